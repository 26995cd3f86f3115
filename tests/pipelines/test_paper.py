"""The paper's evaluation, on small data that are made here."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dsgp.errors import DataError, ParameterError
from pipelines.datasets import load
from pipelines.paper import cell, docs, plan, published, sets
from pipelines.paper.__main__ import app, sections_and_sets
from pipelines.paper.figures import draw_comparison, draw_plane, draw_runtime, draw_speedup
from pipelines.paper.methods import CLASSES, METHODS, REGRESSIONS, Answer, Method
from pipelines.paper.plan import SECTIONS, SIZES, Choice, planned
from pipelines.paper.sets import REGRESSION, download, load_set
from pipelines.paper.summary import (
    counts,
    dominating,
    frontier,
    lines_of,
    predicted_walls,
    slope,
    speedups,
    verdicts,
)
from pipelines.scaling import running

PAPER = Path(__file__).parents[3] / "shared" / "paper.tex"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files under the names of two sets of the paper."""
    made = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(7300, 3)).astype(np.float32)
    y = np.float32(np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X)))
    names = np.array(["a", "b", "c"])
    facts = {"feature_names": names, "target_name": np.array("y")}
    np.savez(made / "pumadyn8fm.npz", X=X, y=y, **facts)
    labels = (y[:700] > 0).astype(np.uint8)
    np.savez(made / "breast_cancer_wisconsin_original.npz", X=X[:700], y=labels, **facts)
    return made


def choice_of(folder, *sections, **known):
    options = {"sets": (), "methods": frozenset(), "runs": 10, "quick": False, "data_dir": folder}
    return Choice(sections or SECTIONS, **options | known)


# ---- data


def test_rows_are_those_of_the_splits_of_all_pipelines(folder):
    split = load_set("pumadyn8-fm-1000", folder)
    same = load("pumadyn8fm", data_dir=folder, n=1000)
    pd.testing.assert_frame_equal(split.X_train, same.X_train)
    pd.testing.assert_frame_equal(split.X_test, same.X_test.loc[split.X_test.index])
    assert len(split.X_test) == sets.TEST_ROWS
    few = load_set("pumadyn8-fm-1000", folder, n=50, n_test=20)
    np.testing.assert_array_equal(few.y_train, same.y_train[:50])
    assert len(few.y_test) == 20
    assert set(few.X_test.index) <= set(same.X_test.index)


def test_a_set_of_few_rows_has_a_split_for_every_run(folder):
    first, again, second = (load_set("breast-cancer", folder, run=run) for run in (0, 0, 1))
    np.testing.assert_array_equal(first.y_test, again.y_test)
    assert first.X_test.index.tolist() != second.X_test.index.tolist()
    assert len(first.y_train) == 546


def test_sets_that_are_drawn_have_the_rows_that_are_asked_for(folder):
    split = load_set("synth-32d", folder, n=60, n_test=30)
    assert split.X_train.shape == (60, 32)
    assert split.X_test.shape == (30, 32)


def test_what_is_absent_is_said_with_the_remedy(folder):
    with pytest.raises(ParameterError, match="there is no data set 'cars'; there are: synth-8d"):
        load_set("cars", folder)
    with pytest.raises(DataError, match=r"elevators: expected elevators\.npz .* --download"):
        sets.files_of("elevators", folder)
    with pytest.raises(DataError, match=r"kin40k: .* not on OpenML"):
        sets.files_of("kin40k", folder)
    with pytest.raises(DataError, match="kin40k is not on OpenML; there are: elevators"):
        download("kin40k", folder)


class Fetched:
    def __init__(self, frame):
        self.frame = frame


def test_sets_of_openml_are_kept_as_the_others(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"clump": rng.integers(1, 11, 699).astype(float)})
    frame.loc[3, "clump"] = np.nan
    frame["Class"] = pd.Categorical(np.where(rng.uniform(size=699) < 0.4, "malignant", "benign"))
    asked = []

    def fetch(**known):
        asked.append(known["data_id"])
        return Fetched(frame)

    monkeypatch.setattr(sets, "fetch_openml", fetch)
    path = download("breast-cancer", tmp_path / "new")
    assert asked == [15]
    assert path.name == "breast_cancer_wisconsin_original.npz"
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["y"], frame["Class"] == "malignant")
        np.testing.assert_array_equal(stored["X"][:, 0], frame["clump"])
    with pytest.warns(UserWarning, match="1 of 699 rows are left out"):
        assert len(load_set("breast-cancer", tmp_path / "new").y_train) == 546
    frame = frame.iloc[:600]
    with pytest.raises(DataError, match="data 15 of OpenML has 600 rows, not 699"):
        download("breast-cancer", tmp_path)

    def fail(**_):
        raise OSError("no network")

    monkeypatch.setattr(sets, "fetch_openml", fail)
    with pytest.raises(DataError, match="could not be fetched from OpenML"):
        download("magic-gamma", tmp_path)


def test_elevators_of_openml_have_the_published_split(tmp_path, monkeypatch):
    goal = np.linspace(0, 1, 16599)
    frame = pd.DataFrame({"a": -goal, "Goal": goal})
    monkeypatch.setattr(sets, "fetch_openml", lambda **_: Fetched(frame))
    download("elevators", tmp_path)
    split = load_set("elevators", tmp_path, n_test=100_000)
    assert len(split.y_train) == 8752
    assert split.y_train.max() < split.y_test.min()


# ---- the plan


def test_every_cell_is_planned_once_and_first_runs_come_first(folder):
    choice = choice_of(folder, sets=("pumadyn8-fm-1000", "breast-cancer"), runs=3)
    cells = planned(choice)
    assert len(set(cells)) == len(cells)
    assert [one.run for one in cells] == sorted(one.run for one in cells)
    names = [one.file_name for one in cells]
    assert len(set(names)) == len(names)
    # A method that draws has three runs, another one, and all have three where splits differ.
    runs = pd.Series([(one.data, one.method) for one in cells if one.threads == 1]).value_counts()
    assert runs["pumadyn8-fm-1000", "spgp"] == 3
    assert runs["pumadyn8-fm-1000", "full-gp"] == 1
    assert runs["breast-cancer", "full-gp"] == 3
    sizes = {one.n for one in cells if one.data == "synth-8d" and one.method == "additive-vb"}
    assert sizes == set(SIZES)
    full = [one.n for one in cells if one.data == "synth-8d" and one.method == "full-gp"]
    assert max(full) == 8000
    assert {one.threads for one in cells if one.data == "synth-32d"} == {1, 2}


def test_methods_and_names_are_chosen(folder):
    cells = planned(
        choice_of(folder, "runtime", methods=frozenset({("regression", "additive")}), quick=True)
    )
    assert {one.method for one in cells} == {"additive"}
    assert sections_and_sets(("image", "kin40k")) == (("image", "regression"), ("kin40k",))
    # A comparison that is named has all its sets beside one of the other task.
    both = ("regression", "classification"), ("breast-cancer", *REGRESSION)
    assert sections_and_sets(("regression", "breast-cancer")) == both
    assert sections_and_sets(()) == (SECTIONS, ())
    with pytest.raises(ParameterError, match="there is no 'figures'; there are: runtime"):
        sections_and_sets(("figures",))


def test_files_are_read_once_for_all_cells_of_a_plan(folder, monkeypatch):
    read = []
    monkeypatch.setattr(plan, "digest_of", lambda data, _: read.append(data) or "0")
    cells = planned(choice_of(folder, sets=("pumadyn8-fm-1000", "breast-cancer")))
    assert len(cells) > len(read)
    assert len(set(read)) == len(read)


def test_large_active_sets_and_dense_methods_end_where_they_say(folder):
    assert CLASSES["full-gp"].most_rows == 4000
    cells = planned(choice_of(folder, "classification", sets=("synth-8d-binary",)))
    assert "full-gp" in {one.method for one in cells}
    runtime = planned(choice_of(folder, "class-runtime"))
    assert max(one.n for one in runtime if one.method == "fic-tenth") == 10_000


# ---- from cells to tables


def record(method, nmse=0.1, mnlp=0.0, seconds=1.0, *, data="kin40k", n=10_000, run=0, threads=1):
    return {
        "task": "regression",
        "settings": {"data": data, "n": n, "threads": threads, "method": method, "run": run},
        "n_test": 10,
        "n_columns": 8,
        "metrics": {"nmse": nmse, "mnlp": mnlp, "coverage": 0.95},
        "seconds": {"fit": seconds, "predict": 0.0},
        "cpu_seconds": {"fit": seconds, "predict": 0.0},
        "peak_memory_mb": 100.0,
    }


def test_runs_are_averaged_with_their_spread():
    records = [record("spgp", nmse, seconds=2.0, run=run) for run, nmse in enumerate((0.1, 0.3))]
    records[1]["cpu_seconds"] = {"start": 3.0, "fit": 4.0, "predict": 0.5}
    records[1]["metrics"]["mnlp"] = None
    (line,) = lines_of(records)
    assert line["runs"] == 2
    assert line["nmse"] == pytest.approx(0.2)
    assert line["nmse_spread"] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert line["mnlp"] is None  # not the mean of the run that has one
    assert line["learn"] == pytest.approx((2 + 7) / 2)
    assert line["all_rows"] == pytest.approx((2 + 4) / 2)
    assert line["total"] == pytest.approx((2 + 7.5) / 2)


def test_the_slope_is_the_exponent_of_a_power():
    lines = lines_of([record("spgp", seconds=3e-9 * n**2.5, n=n) for n in (100, 300, 1000)])
    assert slope(lines) == pytest.approx(2.5)
    assert slope(lines[:2]) is None


points = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=len(REGRESSIONS)
)


@given(points)
def test_the_frontier_is_what_no_other_point_dominates(pairs):
    lines = [
        {"total": float(a), "nmse": float(b), "label": name}
        for name, (a, b) in zip(REGRESSIONS, pairs, strict=False)
    ]
    best = frontier(lines, "nmse")
    undominated = [line for line in lines if not dominating(line, lines, "nmse")]
    assert {(line["total"], line["nmse"]) for line in best} == {
        (line["total"], line["nmse"]) for line in undominated
    }
    assert [line["total"] for line in best] == sorted(line["total"] for line in best)


def test_counts_and_verdicts_of_a_plane():
    records = [
        record("full-gp", 0.01, -1.0, 100.0),
        record("spgp", 0.05, -0.5, 10.0),
        record("additive", 0.5, 0.5, 0.1),
        record("pursuit", 0.06, -0.6, 20.0),
        record("ppgpr-greedy", 0.2, 0.2, 1.0),
    ]
    lines = lines_of(records)
    by_method = {row["method"]: row for row in counts(lines, {"kin40k": 10_000})}
    assert {name: row["nmse"] for name, row in by_method.items()} == {
        "full-gp": 1, "spgp": 1, "additive": 1, "pursuit": 0, "ppgpr-greedy": 1,
    }  # fmt: skip
    assert by_method["pursuit"]["mnlp"] == 1
    assert by_method["additive"]["nmse_paper"] == 0
    nmse, mnlp = verdicts(lines, {"kin40k": 10_000})
    assert nmse["efficient"] == ["dsgp additive"]
    assert nmse["dominated"] == {"dsgp pursuit": ["SPGP"]}
    assert mnlp["dominated"] == {}
    assert mnlp["efficient"] == ["dsgp additive", "dsgp pursuit"]


def test_speedups_are_measured_or_said_to_be_predicted():
    records = [
        record("full-gp", seconds=100.0, data="synth-8d", n=50),
        record("additive", seconds=10.0, data="synth-8d", n=50),
        record("additive", seconds=6.0, data="synth-8d", n=50, threads=2),
    ]
    rows = speedups(lines_of(records), ["synth-8d"], 50)
    ours = {row["threads"]: row for row in rows if row["method"] == "additive"}
    assert {k: row["measured"] for k, row in ours.items()} == {1: True, 2: True, 4: False, 8: False}
    assert ours[2]["speedup"] == pytest.approx(100 / 6)
    assert ours[8]["seconds"] == pytest.approx(2 + 8 / 8)
    assert predicted_walls({1: 5.0}) == {}
    # More than twice as fast with two: nothing is left to be serial.
    assert predicted_walls({1: 10.0, 2: 4.0})[4] == pytest.approx(2.5)


# ---- what the paper says


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not beside the checkout")
def test_published_numbers_are_those_of_the_paper():
    text = PAPER.read_text(encoding="utf-8")
    body = text[text.index(r"Algorithm & Error Rate") : text.index(r"\label{tbl:class-results}")]
    blocks = re.split(r"\\multicolumn", body)[1:]
    for block, (data, results) in zip(blocks, published.CLASS_RESULTS.items(), strict=True):
        rows = {}
        for line in block.split("\n")[1:]:
            cells = [re.sub(r"\\quad|\\\\|[${}\s]", "", part) for part in line.split("&")]
            if len(cells) == 4:
                values = tuple(None if part == "NA" else float(part) for part in cells[1:])
                rows[cells[0]] = values
        names = {"full-gp": "Full-GP", "additive-la": "Additive-LA", "svm": "SVM"}
        for method, label in names.items():
            result = results[method]
            assert rows[label] == (result.error_rate, result.mnll, result.seconds), (data, method)
        sparse = [values for label, values in rows.items() if label.startswith("FIC")]
        for method, values in zip(("fic", "fic-tenth"), sparse, strict=True):
            result = results[method]
            assert values == (result.error_rate, result.mnll, result.seconds)
        result = results["ivm"]
        assert rows["IVM-50"] == (result.error_rate, result.mnll, result.seconds)
    for method, value in published.PARETO_COUNTS.items():
        label = "SPGP" if method == "spgp" else REGRESSIONS[method].label
        assert re.search(rf"^{label} *& *{value} *\\\\", text, re.MULTILINE), label
    slopes = re.search(r"slopes of the algorithms are: (.*)\}", text).group(1)
    for method, value in published.CLASS_SLOPES.items():
        name = {"full-gp": "Full-GP", "additive-la": "Additive-GP"}.get(method, method.upper())
        assert re.search(rf"{name} \$= +{value:.2f}\$", slopes), method
    for seconds in (number for pair in published.IMAGE_SECONDS.values() for number in pair):
        assert f"{seconds:g} seconds" in text


# ---- pictures


@pytest.fixture(scope="module")
def many_lines():
    rng = np.random.default_rng(3)
    records = []
    for data, chosen in REGRESSION.items():
        for name in REGRESSIONS:
            records += [
                record(name, *rng.uniform(0.01, 1, 2), rng.uniform(1, 99), data=data, n=chosen.n,
                       run=run)
                for run in range(2)
            ]  # fmt: skip
    for name in REGRESSIONS:
        records.append(record(name, seconds=5.0, data="synth-8d", n=2000))
        for threads in (1, 2):
            records += [
                record(name, seconds=5.0, data=data, n=500, threads=threads)
                for data in ("synth-8d", "synth-32d")
            ]
    return lines_of(records)


def test_figures_show_every_method_and_data_set(many_lines):
    labels = {method.label for method in REGRESSIONS.values()}
    rows = {data: chosen.n for data, chosen in REGRESSION.items()}
    planes = draw_plane(many_lines, rows, "nmse")
    titles = [ax.get_title() for ax in planes.axes]
    assert titles[:7] == list(REGRESSION)
    (legend,) = [ax.get_legend() for ax in planes.axes if ax.get_legend() is not None]
    assert {text.get_text() for text in legend.get_texts()} == labels
    bars = draw_comparison(many_lines, rows)
    assert {text.get_text() for text in bars.legends[0].get_texts()} == labels
    assert [text.get_text() for text in bars.axes[2].get_xticklabels()] == list(REGRESSION)
    runtime = draw_runtime(many_lines, "synth-8d", {"pumadyn8-nm": 7168})
    assert {text.get_text().split(",")[0] for text in runtime.legends[0].get_texts()} == labels
    speedup = draw_speedup(many_lines, ("synth-8d", "synth-32d"), 500)
    assert [ax.get_title() for ax in speedup.axes] == ["synth-8d", "synth-32d"]
    hatched = [bar for bar in speedup.axes[0].patches if bar.get_hatch()]
    assert len(hatched) == 2 * (len(REGRESSIONS) - 1)


# ---- the pipeline


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_here(asked, module, limit_seconds=None, threads=None):
    """Run a cell in this process: importing everything again takes seconds."""
    request = json.loads(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell.json, "load", lambda _: request)
        cell.main()
    return 0


def test_everything_is_run_at_a_tiny_size_and_kept(folder, tmp_path, monkeypatch):
    started = []

    def run(*arguments, **known):
        started.append(known["threads"])
        return run_here(*arguments, **known)

    monkeypatch.setattr(running, "run_apart", run)
    # Sizes of --quick are for minutes; these are for seconds.
    monkeypatch.setattr("pipelines.paper.plan.QUICK_SIZES", (100, 200))
    monkeypatch.setattr("pipelines.paper.summary.FEWEST_SIZES", 2)
    monkeypatch.setattr("pipelines.paper.plan.QUICK_ROWS", 100)
    monkeypatch.setattr("pipelines.paper.__main__.QUICK_ROWS", 100)
    monkeypatch.setattr("pipelines.paper.plan.SPEEDUP_SETS", ("synth-8d",))
    monkeypatch.setattr("pipelines.paper.plan.QUICK_PIXELS", 24)
    monkeypatch.setattr("pipelines.paper.plan.QUICK_CORNER_DIMS", 9)
    out = tmp_path / "out"
    asked = ["--data-dir", folder, "--out", out, "--quick", "--at-once", "1"]
    asked += ["--methods", "additive,additive-vb,additive-la,ivm"]
    result = invoke(*asked)
    assert result.exit_code == 0, result.output
    names = {path.name for path in out.iterdir()}
    drawn = {"runtime", "class-runtime", "comparison", "pareto-nmse", "pareto-mnlp", "kronecker",
             "image"}  # fmt: skip
    assert {f"{name}{ending}" for name in drawn for ending in (".png", ".svg")} <= names
    tables = {"runtime", "class-runtime", "slopes", "comparison", "pareto", "verdicts",
              "classification", "kronecker", "image"}  # fmt: skip
    for name in tables:
        rows = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        table = pd.read_csv(out / f"{name}.csv")
        assert len(rows) == len(table)
        assert list(rows[0]) == list(table)
    lines = pd.read_csv(out / "comparison.csv")
    assert set(lines["data"]) == {"synth-8d", "pumadyn8-fm-1000", "pumadyn8-fm-7168"}
    smooth = lines[lines["data"] == "pumadyn8-fm-1000"].set_index("method")
    assert smooth.loc["additive", "nmse"] < 0.1
    text = (out / "report.md").read_text(encoding="utf-8")
    assert str(folder) not in text
    for method in smooth.index:
        assert REGRESSIONS[method].label in text
    assert "kin40k is left out: its file is not in the folder of data" in text
    assert set(started) == {1, 2}
    n_started = len(started)
    (lost,) = (out / "runs").glob("pumadyn8-fm-1000-additive-100-*.json")
    lost.rename(tmp_path / "aside.json")
    partial = invoke(*asked, "--report-only")
    assert partial.exit_code == 0, partial.output
    assert len(started) == n_started
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "pumadyn8-fm-1000: runs that have not been made yet: 1 of dsgp additive." in text
    (tmp_path / "aside.json").rename(lost)
    again = invoke(*asked)
    assert again.exit_code == 0, again.output
    assert "(kept)" in again.output
    assert len(started) == n_started


@pytest.mark.filterwarnings("ignore")  # of chains of a few draws, and searches cut short
@pytest.mark.parametrize(
    ("task", "name"), [(task, name) for task, methods in METHODS.items() for name in methods]
)
def test_every_method_that_is_installed_predicts(folder, task, name):
    method = METHODS[task][name]
    if (lacking := method.lacking()) is not None:
        pytest.skip(lacking)
    data = {"regression": "pumadyn8-fm-1000", "classification": "breast-cancer"}[task]
    split = cell.first_rows_of(load_set(data, folder, n=150, n_test=80), 150)
    answer = method.answer(split, 0, True)
    metrics = cell.metrics_of(split, answer)
    measure, worst = {"regression": ("nmse", 0.2), "classification": ("mnll", math.log(2))}[task]
    assert metrics[measure] < worst
    assert {"fit", "predict"} <= set(answer.cpu_seconds)


def test_measures_are_those_of_the_paper(folder):
    """By hand, of a target that is far from zero and has units."""
    rng = np.random.default_rng(5)
    split = load_set("pumadyn8-fm-1000", folder, n=200, n_test=50)
    split = replace(split, y_train=1000 + 7 * split.y_train, y_test=1000 + 7 * split.y_test)
    mean, std = split.y_test + rng.standard_normal(50), rng.uniform(1, 2, 50)
    metrics = cell.metrics_of(split, Answer(mean, std, {}, {}))
    y, centre, scale = split.y_test, split.y_train.mean(), split.y_train.std()
    nmse = np.sum((y - mean) ** 2) / np.sum((y - centre) ** 2)
    assert metrics["nmse"] == pytest.approx(nmse, rel=1e-6)
    z, m, v = (y - centre) / scale, (mean - centre) / scale, (std / scale) ** 2
    mnlp = np.mean((z - m) ** 2 / v + np.log(v) + np.log(2 * np.pi)) / 2
    assert metrics["mnlp"] == pytest.approx(mnlp, rel=1e-6)
    labelled = load_set("breast-cancer", folder, n=100, n_test=50)
    p = rng.uniform(0.1, 0.9, 50)
    metrics = cell.metrics_of(labelled, Answer(p, None, {}, {}))
    likelihood = np.where(labelled.y_test == 1, p, 1 - p)
    assert metrics["mnll"] == pytest.approx(-np.mean(np.log(likelihood)))
    assert metrics["error_rate"] == pytest.approx(np.mean((p > 0.5) != labelled.y_test))


def test_seconds_are_those_after_a_warm_up(folder, tmp_path, monkeypatch):
    asked = []
    answer = Method.answer

    def counted(self, split, seed, quick):
        asked.append((len(split.y_train), len(split.y_test), quick))
        return answer(self, split, seed, quick)

    monkeypatch.setattr(Method, "answer", counted)
    monkeypatch.setattr(cell, "WARM_UP_ROWS", 40)
    monkeypatch.setattr(cell, "TEST_ROWS", 70)
    settings = cell.Settings("pumadyn8-fm-1000", "additive-vb", 60, data_dir=str(folder))
    assert cell.measure(settings, tmp_path / "unused")["n_train"] == 60
    assert asked == [(40, 70, True), (60, 70, False)]
    cell.measure(replace(settings, quick=True), tmp_path / "unused")
    assert len(asked) == 3


def test_a_second_run_leaves_no_table_of_the_first(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "run_apart", run_here)
    monkeypatch.setattr("pipelines.paper.plan.QUICK_PIXELS", 24)
    monkeypatch.setattr("pipelines.paper.plan.QUICK_CORNER_DIMS", 9)
    asked = ["--data-dir", folder, "--out", tmp_path / "out", "--quick"]
    for name, other in (("image", "kronecker"), ("kronecker", "image")):
        result = invoke(*asked, "--only", name)
        assert result.exit_code == 0, result.output
        assert (tmp_path / "out" / f"{name}.png").exists()
        assert not (tmp_path / "out" / f"{other}.json").exists()
    result = invoke(*asked, "--only", "image", "--methods", "svm")
    assert result.exit_code == 0  # grids have no methods to choose among


def test_cells_that_fail_are_in_the_notes(folder, tmp_path, monkeypatch):
    def run(asked, module, limit_seconds=None, threads=None):
        method = json.loads(asked)["settings"]["method"]
        return {"ivm": None, "svm": 1}.get(method) if method != "additive-la" else run_here(
            asked, module
        )  # fmt: skip

    monkeypatch.setattr(running, "run_apart", run)
    out = tmp_path / "out"
    result = invoke(
        "--data-dir", folder, "--out", out, "--quick", "--only", "breast-cancer",
        "--methods", "ivm,svm,additive-la", "--minutes", "2",
    )  # fmt: skip
    assert result.exit_code == 1
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "breast-cancer, ivm, 300 rows, run 1: FAILED (longer than 120 s)" in text
    assert "breast-cancer, svm, 300 rows, run 1: FAILED (exit code 1)" in text
    assert "**Additive-LA**" in text
    assert "**SVM**" not in text


def test_what_cannot_be_run_is_refused(folder, tmp_path):
    for arguments, told in (
        (["--only", "cars"], "there is no 'cars'"),
        (["--methods", "forest"], "there is no method 'forest'"),
        (["--only", "kin40k"], "kin40k: expected kin40k.npz"),
        (["--runs", "0"], "--runs"),
        (["--report-only", "--overwrite"], "--report-only runs nothing"),
    ):
        result = invoke("--data-dir", folder, "--out", tmp_path / "out", *arguments)
        assert result.exit_code == 1
        assert told in result.output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine", encoding="utf-8")
    result = invoke("--data-dir", folder, "--out", tmp_path / "other", "--only", "image", "--quick")
    assert result.exit_code == 1
    assert "thesis.txt" in result.output


# ---- the page of the documentation


def test_the_page_has_the_numbers_that_are_stored_beside_it():
    page = (DOCS / docs.PAGE).read_text(encoding="utf-8")
    _, middle, _ = docs.parts(page)
    assert middle == docs.generated(DOCS)


def test_results_are_put_into_a_page(tmp_path):
    out, pages = tmp_path / "out", tmp_path / "docs"
    out.mkdir()
    pages.mkdir()
    rows = [{"figure": "kronecker", "method": "a", "label": "a", "from": 2, "to": 4, "slope": 1.0,
             "slope_on_all_rows": 1.0, "paper": 1.05}]  # fmt: skip
    (out / "slopes.json").write_text(json.dumps(rows), encoding="utf-8")
    (out / "kronecker.json").write_text(json.dumps([{"n": 2}]), encoding="utf-8")
    (out / "kronecker.png").write_bytes(b"")
    machine = {"processors": 2, "system": "Linux"}
    report = {"command": "c", "machine": machine, "versions": {"dsgp": "1"}, "notes": ["a note"]}
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    (pages / "paper.md").write_text(f"before\n{docs.BEGIN}\nold\n{docs.END}\nafter\n", "utf-8")
    asked = ["--out", str(out), "--docs", str(pages)]
    for _ in range(2):  # a second time changes nothing
        result = CliRunner().invoke(docs.app, asked)
        assert result.exit_code == 0, result.output
        text = (pages / "paper.md").read_text(encoding="utf-8")
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert "| a | 2 to 4 | 1.00 | 1.00 | 1.05 |" in text
        assert "![Grids: seconds of a learning iteration](paper/kronecker.png)" in text
    (pages / "paper.md").write_text("no marks", "utf-8")
    assert CliRunner().invoke(docs.app, asked).exit_code == 1


def test_what_the_page_says_is_what_is_stored():
    """What docs/paper.md says under "What to take from it"."""

    def stored(name):
        return pd.DataFrame(json.loads((DOCS / "paper" / f"{name}.json").read_text("utf-8")))

    planes = stored("verdicts")
    assert len(planes) == 2 * len(REGRESSION)
    assert (planes["efficient"] != "").all()
    slopes = stored("slopes").set_index(["figure", "method"])["slope_on_all_rows"]
    assert 2.3 <= slopes["runtime", "full-gp"] <= 3
    for method in ("additive-vb", "ppgpr-greedy", "additive", "pursuit", "remainder"):
        assert slopes["runtime", method] <= 1.1
    assert slopes["class-runtime", "additive-la"] <= 1.1
    assert slopes["kronecker", "Kronecker"] <= 1.1
