"""The benchmark of large N: its data, its runs, what it keeps, and the peers."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from dsgp.errors import DsgpError, ParameterError
from dsgp.rows.sources import source_of
from pipelines.datasets import load
from pipelines.peers import PEERS, Mgcv, PyGam, peer_of
from pipelines.scaling import rows, running, synth8d_arrays, synth8d_blocks
from pipelines.scaling import run as scaling_run
from pipelines.scaling.__main__ import app
from pipelines.scaling.figures import draw
from pipelines.scaling.rows import BLOCK, TEST, bare_pass
from pipelines.scaling.run import Settings, own_peak_memory_mb, scores
from pipelines.scaling.summary import HEADER, markdown, slopes, summarise, table_of

ROOT = Path(__file__).parents[2]
PICTURES = {"stages.png", "time.png", "memory.png", "accuracy.png"}
FILES = {"report.json", "report.md", "runs", *PICTURES}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# ---- data


def test_the_first_rows_are_the_same_at_any_size():
    X, y, f = synth8d_arrays(BLOCK + 300, seed=2)
    for n in (1, 7, BLOCK - 1, BLOCK, BLOCK + 1):
        for whole, part in zip((X, y, f), synth8d_arrays(n, seed=2), strict=True):
            np.testing.assert_array_equal(part, whole[:n])


@given(start=st.integers(0, 2 * BLOCK), n=st.integers(1, 500))
def test_rows_can_be_taken_from_anywhere(start, n):
    for whole, part in zip(
        synth8d_arrays(start + n, seed=3), synth8d_arrays(n, seed=3, start=start), strict=True
    ):
        np.testing.assert_array_equal(part, whole[start:])


@pytest.mark.parametrize("chunk", [1, 10, 97, 1000])
def test_chunks_do_not_change_the_rows(chunk):
    n = 20 if chunk == 1 else 500
    X, y = synth8d_blocks(n, seed=2, chunk=chunk)
    assert X.chunks[0] == y.chunks[0]
    assert X.chunks[1] == (8,)
    expected_X, expected_y, _ = synth8d_arrays(n, seed=2)
    np.testing.assert_array_equal(X.compute(), expected_X)
    np.testing.assert_array_equal(y.compute(), expected_y)
    assert bare_pass(y) == pytest.approx(expected_y.mean(), rel=1e-12)


def test_a_chunk_of_inputs_and_targets_is_made_once(monkeypatch):
    made = []

    def counted(n, *rest):
        made.append(n)
        return synth8d_arrays(n, *rest)

    monkeypatch.setattr(rows, "synth8d_arrays", counted)
    X, y = synth8d_blocks(250, seed=2, chunk=100)
    assert made == []  # building the arrays makes no row
    dask.compute(X, y, scheduler="synchronous")
    assert sorted(made) == [50, 100, 100]


def test_a_fit_makes_every_chunk_once_in_each_pass(monkeypatch):
    made = []

    def counted(n, *rest):
        made.append(rest[-1])
        return synth8d_arrays(n, *rest)

    monkeypatch.setattr(rows, "synth8d_arrays", counted)
    X, y = synth8d_blocks(600, seed=2, chunk=200)
    source = source_of(X, y, None)
    for _ in range(2):
        made.clear()
        assert sum(len(chunk()) for chunk in source.chunks()) == 600
        assert sorted(made) == [0, 200, 400]


def test_functions_and_noise_are_those_of_synth8d():
    X, y, f = synth8d_arrays(20_000, seed=2)
    assert np.var(y - f) == pytest.approx(0.01, rel=0.05)
    assert np.abs(X.mean(axis=0)).max() < 0.03
    split = load("synth8d", n=100, n_test=20_000)
    assert f.mean() == pytest.approx(split.f_test.mean(), abs=0.1)
    assert f.std() == pytest.approx(split.f_test.std(), rel=0.05)
    others = [synth8d_arrays(50, seed=3)[0], synth8d_arrays(50, seed=2, stream=TEST)[0]]
    assert all(np.abs(other - X[:50]).min() > 0 for other in others)


# ---- runs, in processes of their own


def run_here(text):
    """Do in this process what a run does in one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(text))
        patch.setattr(scaling_run, "exit_on_termination", lambda: None)
        scaling_run.main()
    return 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The larger size is run in this process, which is quicker."""
    out = tmp_path_factory.mktemp("scaling") / "deep" / "out"
    apart = running.run_apart

    def run(text, module):
        small = json.loads(text)["settings"]["n"] == 200
        return apart(text, module) if small else run_here(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_apart", run)
        result = invoke(*options(out))
    assert result.exit_code == 0, result.output
    return out, result.stdout


def options(out):
    return ("--sizes", "2e2,400", "--n-test", 300, "--peer", "splines:8", "--out", out)


def test_everything_is_written_and_nothing_else(finished):
    out, printed = finished
    assert {path.name for path in out.iterdir()} == FILES
    assert all(path.suffix == ".json" for path in (out / "runs").iterdir())
    for name in PICTURES:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert [(line["method"], line["n"]) for line in report["lines"]] == [
        ("dsgp", 200), ("splines:8", 200), ("dsgp", 400), ("splines:8", 400)
    ]  # fmt: skip
    assert len(report["runs"]) == 4
    assert report["model"] == {"kernel": "matern52"}
    ours = report["lines"][0]
    assert ours["fit"] > 0
    assert ours["converged"] is True
    assert ours["peak_memory_mb"] > 50
    assert ours["rmse_f"] < 0.5
    assert 0.8 < ours["coverage_f"] <= 1
    assert "synth8d" in printed
    page = (out / "report.md").read_text(encoding="utf-8")
    assert page.count("| splines:8 |") == 2
    assert str(out) in printed


def test_every_column_and_key_is_explained(finished):
    page = ROOT / "docs" / "howto" / "scaling.md"
    if not page.exists():
        pytest.skip("no docs/ here")
    text = page.read_text(encoding="utf-8")
    report = json.loads((finished[0] / "report.json").read_text(encoding="utf-8"))
    explained = set(re.findall(r"`([a-z_]+)`", text))
    assert set(report["lines"][0]) <= explained
    assert all(f"\n| {name} |" in text for name in HEADER)
    assert all(f"| `{name}`" in text for name in PEERS)


def test_finished_runs_are_kept_and_only_missing_ones_made(finished, monkeypatch):
    out, _ = finished
    before = {path.name: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    lost = next(name for name in before if name.startswith("splines-8-400"))
    (out / "runs" / lost).unlink()
    (out / "runs" / "torn.part").write_text("{")
    asked = []
    monkeypatch.setattr(running, "run_apart", lambda text, _: asked.append(text) or run_here(text))
    result = invoke(*options(out))
    assert result.exit_code == 0, result.output
    assert [json.loads(text)["settings"]["n"] for text in asked] == [400]
    assert result.stdout.count("(kept)") == 3
    after = {path.name: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert set(after) == set(before)
    assert all(after[name] == before[name] for name in before if name != lost)
    assert {path.name for path in out.iterdir()} == FILES


def test_settings_that_matter_make_another_run():
    base = Settings("dsgp", 100, 0, 2, 50, model={"kernel": "matern52"})
    others = [
        Settings("dsgp", 100, 1, 2, 50, model={"kernel": "matern52"}),
        Settings("dsgp", 100, 0, 2, 50, model={"kernel": "matern52", "bins": 9}),
        Settings("dsgp", 100, 0, 2, 50, True, {"kernel": "matern52"}),
        Settings("dsgp", 100, 0, 2, 50, False, {"kernel": "matern52"}, {"workers": 2}),
    ]
    assert len({settings.file_name for settings in [base, *others]}) == 5
    again = Settings("dsgp", 100, 0, 2, 50, model={"kernel": "matern52"})
    assert again.file_name == base.file_name


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_a_terminated_benchmark_ends_its_run_and_keeps_nothing_half_written(tmp_path):
    out = tmp_path / "out"
    command = ["-m", "pipelines.scaling", "--sizes", "3e5", "--n-test", "10", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        parent = psutil.Process(process.pid)
        deadline = time.monotonic() + 120
        while not (children := parent.children(recursive=True)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    assert list((out / "runs").iterdir()) == []


PROBE = """
import json, os, sys, time
asked = json.load(sys.stdin)
processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else 0
start = time.time()
time.sleep(asked["settings"]["sleep"])
record = {
    "seconds": {"fit": 0.0}, "n": asked["settings"]["n"], "start": start, "end": time.time(),
    "threads": os.environ.get("OMP_NUM_THREADS"), "processors": processors,
}
with open(asked["path"], "w") as file:
    json.dump(record, file)
"""


@dataclass(frozen=True)
class Probed:
    n: int
    threads: int = 1
    sleep: float = 1.0

    @property
    def description(self):
        return f"probe {self.n}"

    @property
    def file_name(self):
        return f"{self.n}.json"


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """A module that says when and with what it ran."""
    (tmp_path / "probed.py").write_text(PROBE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "probed"


def test_runs_side_by_side_keep_their_order_and_their_processors(probe, tmp_path):
    planned = [Probed(0), Probed(1), Probed(2, threads=2, sleep=0.0)]
    before = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    records, failures = running.run_all(
        planned, tmp_path / "runs", None, False, probe, limit_seconds=60, at_once=2
    )
    assert failures == []
    assert [record["n"] for record in records] == [0, 1, 2]
    first, second, third = records
    assert max(first["start"], second["start"]) < min(first["end"], second["end"])
    assert [record["threads"] for record in records] == ["1", "1", "2"]
    if before:
        assert first["processors"] == second["processors"] == 1
        assert third["processors"] == min(2, len(before))
        assert os.sched_getaffinity(0) == before


def test_runs_side_by_side_are_ended_with_their_caller(probe, tmp_path, monkeypatch):
    say = running.say

    def interrupted(line):
        say(line)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "say", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        running.run_all(
            [Probed(0, sleep=0.0), Probed(1, sleep=120.0)],
            tmp_path / "runs", None, False, probe, at_once=2,
        )  # fmt: skip
    assert time.monotonic() - start < 60
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["0.json"]


def test_a_run_that_fails_is_reported_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(
        running, "run_apart", lambda text, _: -9 if json.loads(text)["settings"]["n"] == 30 else 1
    )
    result = invoke("--sizes", "30,40", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "30 rows, run 1: FAILED (signal 9, memory?)" in result.output
    assert "40 rows, run 1: FAILED (exit code 1)" in result.output
    assert list((tmp_path / "out" / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "many"), "--sizes takes whole numbers from 10 to 100,000,000"),
        (("--sizes", "1e9"), "--sizes takes whole numbers"),
        (("--sizes", "10.5"), "--sizes takes whole numbers"),
        (("--kernel", "rbf"), "one of matern12, matern32, matern52"),
        (("--bins", "few"), "--bins takes auto, none or a number above 1"),
        (("--repeats", "0"), "--repeats must be at least 1"),
        (("--peer", "stan"), "peer must be one of mgcv, pygam, splines, boosting"),
        (("--peer", "mgcv:2"), "whole number above 3, such as mgcv:40"),
        (("--peer", "boosting:5"), "peer boosting has no size"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(tmp_path, arguments, message):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    result = invoke("--sizes", "20", "--out", tmp_path, "--overwrite")
    assert result.exit_code == 1
    assert "holds 'thesis.tex'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_help_is_plain_and_fits_80_columns():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "│" not in text


# ---- what is measured


def test_scores_of_the_truth_are_perfect():
    _, y, f = synth8d_arrays(2000, seed=2)
    found = scores(y, f, f, np.full(2000, 1e-9), 0.01, y_train_mean=float(y.mean()))
    assert found["rmse_f"] == 0
    assert found["coverage_f"] == 1
    assert found["mnlp_excess"] == pytest.approx(0, abs=1e-9)
    without = scores(y, f, f + 0.1, None, None, y_train_mean=0.0)
    assert without["mnlp_excess"] is None
    assert without["coverage_f"] is None
    assert without["rmse_f"] == pytest.approx(0.1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux reports it")
def test_memory_is_the_program_s_own():
    """Of a small program started from a large one, where getrusage reports the large one."""
    ballast = np.ones(30_000_000)  # 240 MB
    code = "print(open('/proc/self/status').read())"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = (line for line in text.stdout.splitlines() if line.startswith("VmHWM"))
    assert int(line.split()[1]) / 1024 < 100
    assert own_peak_memory_mb() > ballast.nbytes / 2**20


def run_record(method, n, fit, *, streamed=False, generate=0.0, stages=None):
    return {
        "settings": {"method": method, "n": n, "streamed": streamed},
        "seconds": {"generate": generate, "fit": fit, "predict": 0.1},
        "cpu_seconds": {"generate": generate, "fit": fit, "predict": 0.1},
        "stages": stages or {},
        "learner_iterations": 5,
        "solver_iterations": 3,
        "peak_memory_mb": 100 + n / 1e4,
        "workers_peak_memory_mb": 200.0 if streamed else None,
        "metrics": {
            "rmse_f": n**-0.5, "nmse": 0.002, "mnlp_excess": 1 / n, "coverage_f": 0.95
        },
    }  # fmt: skip


def test_slopes_are_those_of_a_power_law(tmp_path):
    records = [
        run_record("dsgp", n, 1e-6 * n**1.5 + 2e-6 * n, streamed=True, generate=2e-6 * n,
                   stages={"read": 2e-6 * n, "learn": 0.6e-6 * n**1.5})
        for n in (10**4, 10**5, 10**6, 10**7)
    ]  # fmt: skip
    records += [run_record("mgcv:40", n, 1e-5 * n) for n in (10**4, 10**5, 10**6)]
    records[4]["metrics"]["mnlp_excess"] = None
    lines = summarise(records)
    found = slopes(lines)
    assert found["dsgp"]["net_from_1e5"] == pytest.approx(1.5)
    assert found["dsgp"]["net_from_1e6"] == pytest.approx(1.5)
    assert found["mgcv:40"] == {
        "total_from_1e5": pytest.approx(1.0), "net_from_1e5": pytest.approx(1.0)
    }  # fmt: skip
    page = markdown(lines, ["a note"])
    assert "∝ N^1.00 from 100,000 rows" in page
    assert "| rows | read | learn |" in page
    assert page.endswith("a note\n")
    draw(lines, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == PICTURES


def test_repeats_are_summarised_by_their_median():
    records = [run_record("dsgp", 1000, fit) for fit in (3.0, 1.0, 2.0)]
    records[1]["peak_memory_mb"] = 500
    (line,) = summarise(records)
    assert (line["runs"], line["fit"], line["fit_range"]) == (3, 2.0, [1.0, 3.0])
    assert line["peak_memory_mb"] == 500
    assert table_of([line])[0][:3] == ["1,000", "dsgp", "2.00"]


# ---- peers


@pytest.mark.parametrize(
    ("spec", "name"),
    [("mgcv", "mgcv:40"), ("mgcv:20", "mgcv:20"), ("boosting", "boosting"), ("pygam", "pygam:40")],
)
def test_peers_have_full_names(spec, name):
    assert peer_of(spec)[0] == name


def test_peers_that_are_not_installed_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ParameterError, match=r"Rscript, which is not found; install R and mgcv"):
        Mgcv(40).require()
    monkeypatch.setitem(sys.modules, "pygam", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ParameterError, match="not installed: pip install pygam"):
        PyGam(40).require()
    result = invoke("--peer", "mgcv", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "Rscript" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_peer_beyond_its_size_is_left_out_with_a_note(monkeypatch, tmp_path):
    def pretend(text, module):
        asked = json.loads(text)
        record = run_record(asked["settings"]["method"], asked["settings"]["n"], 1.0)
        Path(asked["path"]).write_text(json.dumps(record | {"machine": {}}))
        return 0

    monkeypatch.setattr(running, "run_apart", pretend)
    monkeypatch.setattr(PEERS["splines"], "max_rows", 100)
    out = tmp_path / "out"
    result = invoke("--sizes", "90,150", "--peer", "splines:5", "--out", out)
    assert result.exit_code == 0, result.output
    assert "splines:5 is left out at 150 rows: it takes 100 at most." in result.stdout
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert [line["n"] for line in report["lines"] if line["method"] == "splines:5"] == [90]
    assert len(report["notes"]) == 1


@pytest.mark.parametrize("spec", ["mgcv:10", "pygam:10", "splines:10", "boosting"])
def test_every_peer_learns_the_functions(spec):
    _, peer = peer_of(spec)
    try:
        peer.require()
    except ParameterError as error:
        pytest.skip(str(error))
    X, y, _ = synth8d_arrays(1500, seed=2)
    X_test, y_test, f_test = synth8d_arrays(300, seed=2, stream=TEST)
    with threadpool_limits(1):  # OpenMP's threads wait busily where other tests run
        fit = peer.fit_predict(X, y, X_test)
    assert fit.mean.shape == (300,)
    assert np.mean((fit.mean - f_test) ** 2) < 0.15 * np.var(f_test)
    assert set(fit.seconds) == set(fit.cpu_seconds) >= {"fit", "predict"}
    if fit.std is not None:
        assert fit.std.shape == (300,)
        assert (fit.std >= 0).all()
        assert 0.005 < fit.noise_variance < 0.5
        assert 0.8 < np.mean(np.abs(y_test - fit.mean) < 2 * np.hypot(fit.std, 0.1)) <= 1


FAKE_R = """#!/bin/sh
folder=$2
[ -f "$folder/X.bin" ] || exit 0          # the question whether mgcv is there
echo "arguments: $3 $4" >&2
case "$(cat $folder/shape.txt)" in "5 8 2") ;; *) echo "shape?" >&2; exit 3;; esac
[ "$(wc -c < $folder/X.bin)" -eq 320 ] || exit 4
head -c 16 $folder/X_test.bin > $folder/mean.bin
head -c 16 /dev/zero > $folder/std.bin
for stage in fit predict predict_rounded; do
  echo "${stage}_seconds 1.5"; echo "${stage}_cpu_seconds 2.5"
done > $folder/figures.txt
cat >> $folder/figures.txt <<END
noise_variance 0.0101
peak_memory_mb 321.5
effective_dof 99
mgcv 1.9
r 4.4
blas libblas.so.3
END
"""


def test_mgcv_takes_columns_of_few_values():
    peer = Mgcv(10)
    try:
        peer.require()
    except ParameterError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    indicator, few, x = rng.integers(2, size=500), rng.integers(6, size=500), rng.uniform(size=500)
    X = np.column_stack([indicator, few, x]).astype(float)
    truth = 2 * indicator + np.cos(few) + np.sin(6 * x)
    y = truth + 0.1 * rng.standard_normal(500)
    fit = peer.fit_predict(X, y, X)
    assert np.sqrt(np.mean((fit.mean - truth) ** 2)) < 0.05


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_mgcv_is_given_files_column_by_column(monkeypatch, tmp_path):
    script = tmp_path / "Rscript"
    script.write_text(FAKE_R)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    X, y, _ = synth8d_arrays(5, seed=2)
    peer = Mgcv(20)
    peer.require()
    fit = peer.fit_predict(X, y, X[:2])
    np.testing.assert_array_equal(fit.mean, X[:2, 0])  # the first column comes first
    assert fit.noise_variance == 0.0101
    assert fit.seconds == {"fit": 1.5, "predict": 1.5, "predict_rounded": 1.5}
    assert fit.peak_memory_mb == 321.5
    assert fit.details == {"mgcv": "1.9", "r": "4.4", "blas": "libblas.so.3", "effective_dof": 99.0}
    with pytest.raises(DsgpError, match=r"^mgcv: (.|\n)*shape\?"):
        peer.fit_predict(X[:4], y[:4], X[:2])
