"""Scaling on workers: what is measured, the cost model, and what is said of it."""

import csv
import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from distributed import LocalCluster
from typer.testing import CliRunner

from dsgp.errors import ParameterError
from pipelines.scaling import cell as cells
from pipelines.scaling import running, workers
from pipelines.scaling.__main__ import app
from pipelines.scaling.cell import CHUNK, PASSES, PROBE_ARRAYS, PROBE_BYTES, PROBE_TASKS, ROW_BYTES
from pipelines.scaling.costs import Costs, Fitted, fit_costs, modelled, n_blocks
from pipelines.scaling.run import Settings
from pipelines.scaling.workers import Plan
from pipelines.scaling.workers_report import HEADER, rows_of, workers_table

ROOT = Path(__file__).parents[2]
TRUTH = Costs(
    compute=4e-7,
    read=3e-9,
    worker_task=2e-3,
    worker_byte=5e-10,
    serial=2.0,
    block=0.05,
    driver_task=1e-3,
    driver_byte=2e-9,
    tasks_0=20.0,
    tasks_1=12.0,
    sent_0=1e6,
    sent_1=2e6,
    waiting=1.25,
)


def spent_by(truth, tasks, sent, *, driver=0.0, computing=0.0, reading=0.0, wall=0.1, n_workers=1):
    of_workers = computing + reading + truth.worker_task * tasks + truth.worker_byte * sent
    return {
        "wall": wall,
        "driver": driver + truth.driver_task * tasks + truth.driver_byte * sent,
        "workers": [of_workers / n_workers] * n_workers,
        "computing": computing,
        "reading": reading,
        "tasks": tasks,
        "sent_bytes": sent,
    }


def measured(n, n_workers, truth=TRUTH, noise=0.0, repeat=0):
    """What a fit would measure if the model were right, with noise on the wall time."""
    blocks = math.ceil(n / CHUNK)
    rng = np.random.default_rng([n, n_workers, repeat])
    wall = truth.wall(n, n_workers, 2) * (1 + noise * rng.standard_normal())
    return {
        "settings": asdict(
            Settings("dsgp", n, repeat, 2, 0, True, {}, cluster={"workers": n_workers})
        ),
        "seconds": {"fit": wall},
        "spent": spent_by(
            truth,
            truth.tasks_0 + truth.tasks_1 * blocks,
            truth.sent_0 + truth.sent_1 * blocks,
            driver=truth.serial + truth.block * blocks,
            computing=truth.compute * n,
            reading=truth.read * n * PASSES * ROW_BYTES,
            wall=wall,
            n_workers=n_workers,
        ),
        "probes": {
            "tasks": spent_by(truth, 400, 0.0),
            "bytes": spent_by(truth, 20, 8e7),
        },
        "read_bytes": n * PASSES * ROW_BYTES,
        "cores": 2,
        "workers_peak_memory_mb": 500.0,
        "machine": {"processors": 2},
    }


CELLS = [measured(n, w) for n in (10**6, 4 * 10**6) for w in (1, 2, 4)]


# ---- the cost model


def test_costs_that_make_the_measurements_are_found():
    found = asdict(fit_costs(CELLS))
    for name, value in asdict(TRUTH).items():
        assert found[name] == pytest.approx(value, rel=1e-6), name


def test_walls_follow_from_the_slower_of_driver_and_workers():
    """By hand, for two blocks: 1.05 million rows, 144 bytes read a row, 44 tasks, 5 MB sent."""
    n = 2 * CHUNK
    workers_seconds = n * (4e-7 + 144 * 3e-9) + 44 * 2e-3 + 5e6 * 5e-10
    driver = 2 * 0.05 + 44e-3 + 5e6 * 2e-9
    assert TRUTH.of_workers(n) == pytest.approx(workers_seconds)
    assert TRUTH.of_driver(n) == pytest.approx(driver)
    assert TRUTH.wall(n, 1) == pytest.approx(1.25 * (2 + workers_seconds))
    assert TRUTH.wall(n, 2) == pytest.approx(1.25 * (2 + workers_seconds / 2))
    # Two blocks keep no third worker busy; nor does a second core help.
    assert TRUTH.wall(n, 100) == TRUTH.wall(n, 2)
    assert TRUTH.wall(n, 2, 1) == pytest.approx(1.25 * (2 + workers_seconds + driver))
    slow_driver = replace(TRUTH, block=10.0)
    assert slow_driver.wall(n, 2) == pytest.approx(1.25 * (2 + slow_driver.of_driver(n)))
    assert TRUTH.most_useful_workers(10**10) == math.ceil(
        TRUTH.of_workers(10**10) / TRUTH.of_driver(10**10)
    )


def test_no_cost_is_negative():
    """A driver that takes less where there are more rows."""
    odd = json.loads(json.dumps(CELLS))
    for each in odd:
        each["spent"]["driver"] = 5.0 - each["settings"]["n"] / 1e6
    assert all(value >= 0 for value in asdict(fit_costs(odd)).values())


def test_errors_say_how_far_predictions_are_off():
    exact = Fitted.of(CELLS)
    value, error = exact.predict(10**9, 100)
    assert value == pytest.approx(TRUTH.wall(10**9, 100), rel=1e-6)
    assert error < 1e-5 * value
    off = []
    for seed in range(12):
        noisy = [
            measured(n, w, noise=0.1, repeat=seed)
            for n in (10**6, 2 * 10**6, 4 * 10**6)
            for w in (1, 2, 4)
        ]
        value, error = Fitted.of(noisy).predict(8 * 10**6, 2, 2)
        off.append((value - TRUTH.wall(8 * 10**6, 2, 2)) / error)
        assert 0.03 * value < error < 0.3 * value
    assert 0 < np.sqrt(np.mean(np.square(off))) < 1.5


def test_sizes_that_do_not_distinguish_costs_are_refused():
    with pytest.raises(ParameterError, match="different numbers of blocks of 524,288 rows"):
        fit_costs([measured(n, 1) for n in (1000, 2000, 3000)])
    with pytest.raises(ParameterError, match="at least 3 fits"):
        fit_costs(CELLS[:2])


# ---- what is measured


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        yield cluster


def test_a_cell_counts_its_tasks_and_bytes_on_the_workers_asked_for(cluster, monkeypatch):
    monkeypatch.setattr(cells, "WARM_UP_ROWS", 300)
    monkeypatch.setattr(cells, "CHUNK", 500)
    settings = Settings("dsgp", 1500, 0, 2, 0, True, {"kernel": "matern52"}, {"workers": 1})
    with cells.workers_of(cluster.scheduler_address, 1) as (client, addresses):
        (other,) = set(client.nthreads()) - set(addresses)
        found = cells.measure(settings, client, addresses)
        idle = client.run(cells._of_worker, workers=[other])[other]
    assert idle["tasks"] == []
    assert idle["sent"] == 0
    assert found["probes"]["tasks"]["tasks"] == PROBE_TASKS
    assert found["probes"]["bytes"]["tasks"] == PROBE_ARRAYS
    assert found["probes"]["bytes"]["sent_bytes"] == pytest.approx(
        PROBE_ARRAYS * PROBE_BYTES, rel=0.01
    )
    spent = found["spent"]
    assert 0 < spent["computing"] < spent["wall"]
    assert 0 < spent["reading"] < spent["wall"]
    assert spent["sent_bytes"] > 1e4
    # In each pass three chunks are made, taken apart and read, and sketched or summed.
    assert 2 * 3 * 3 <= spent["tasks"] <= 2 * 3 * 12
    assert found["read_bytes"] == 2 * 1500 * 72
    assert found["cores"] >= 1


def test_workers_of_more_threads_are_refused():
    with (
        LocalCluster(
            processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
        ) as cluster,
        pytest.raises(ParameterError, match="workers of one thread are measured"),
        cells.workers_of(cluster.scheduler_address, 1),
    ):
        pass


def test_more_workers_than_there_are_is_an_error(cluster):
    with (
        pytest.raises(ParameterError, match="has 2 workers, and 3 are needed; start more"),
        cells.workers_of(cluster.scheduler_address, 3),
    ):
        pass


# ---- the plan and the report


def test_the_plan_has_strong_and_weak_scaling():
    plan = Plan([1, 2, 4], [1000, 3000], 9000, 2, 0, {})
    asked = [(each.cluster["workers"], each.n, each.repeat) for each in plan.cells()]
    strong = {(w, n) for w in (1, 2, 4) for n in (1000, 3000)}
    weak = {(1, 1000), (2, 2000), (4, 4000)}
    assert len(asked) == len(set(asked)) == 2 * len(strong | weak)
    assert {(w, n) for w, n, _ in asked} == strong | weak
    assert plan.checked().n == 9000


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A run whose fits are made up; the one that is checked takes twice as long as it should."""
    out = tmp_path_factory.mktemp("workers") / "out"
    made = []

    def pretend(text, module):
        asked = json.loads(text)
        settings = asked["settings"]
        assert module == "pipelines.scaling.cell"
        record = measured(settings["n"], settings["cluster"]["workers"])
        if settings["n"] == 8_000_000:
            record["spent"]["wall"] *= 2
        made.append(settings["n"])
        Path(asked["path"]).write_text(json.dumps(record))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_apart", pretend)
        patch.setattr(workers, "CPU_COUNT", 2)
        result = CliRunner().invoke(app, [*arguments(), "--out", str(out)])
        again = CliRunner().invoke(app, [*arguments(), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert again.exit_code == 0, again.output
    return out, result.stdout, made


def arguments():
    return ["--workers", "1,2,4", "--sizes", "1e6,4e6"]


def test_everything_is_written_and_labelled(reported):
    out, printed, made = reported
    assert {path.name for path in out.iterdir()} == workers.OWN_FILES
    assert (out / "workers.png").read_bytes().startswith(b"\x89PNG")
    assert len(made) == len(set(made)) + 4  # kept, and not made by the second command
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    check = report["check"]
    assert (check["n"], check["workers"]) == (8_000_000, 2)
    assert check["predicted"] == pytest.approx(TRUTH.wall(8_000_000, 2, 2), rel=1e-6)
    assert check["ratio"] == pytest.approx(2, rel=1e-6)
    assert printed.index("predicted before it is measured") < printed.index("8,000,000 rows on 2 ")
    for text in (printed, (out / "report.md").read_text(encoding="utf-8")):
        assert "There are 2 cores" in text
        assert "more workers than cores" in text
        for size in ("1e+09", "1e+10"):
            assert f"PREDICTION, not measured: {size} rows on 100 workers" in text
    with (out / "table.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    marked = {line["workers"]: line["oversubscribed"] for line in table}
    assert marked == {"1": "False", "2": "False", "4": "True"}
    kept = json.loads((out / "costs.json").read_text(encoding="utf-8"))
    assert kept["costs"]["compute"] == pytest.approx(TRUTH.compute, rel=1e-6)


def test_speedup_and_efficiency_are_against_the_fewest_workers():
    lines = rows_of(CELLS, TRUTH)
    one, two = (next(x for x in lines if (x["n"], x["workers"]) == (4 * 10**6, w)) for w in (1, 2))
    assert two["speedup"] == pytest.approx(one["wall"] / two["wall"])
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert one["efficiency"] == 1
    assert two["modelled"] == pytest.approx(two["wall"])
    assert modelled(TRUTH, CELLS[0]) == CELLS[0]["spent"]["wall"]


def test_a_fit_that_fails_is_reported_and_no_model_is_fitted(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "run_apart", lambda text, module: 1)
    result = CliRunner().invoke(app, [*arguments(), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "1,000,000 rows on 1 workers, run 1: FAILED (exit code 1)" in result.stderr
    assert not (tmp_path / "out" / "costs.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0,2"], "--workers takes whole numbers from 1 on"),
        (["--workers", "two"], "--workers takes whole numbers from 1 on"),
        (["--workers", "1", "--sizes", "1e6,4e6"], "at least 3 fits"),
        (["--workers", "1,2", "--sizes", "1e3,2e3"], "different numbers of blocks"),
        (["--workers", "1,2", "--sizes", "1e6,2e6", "--check", "2e6"], "name another size"),
        (["--workers", "1,2", "--check", "1e9"], "--check takes whole numbers"),
        (["--workers", "1,2", "--peer", "mgcv"], "--peer and --workers exclude each other"),
        (["--quick"], "--quick and --check need --workers"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(tmp_path, options, message):
    result = CliRunner().invoke(app, [*options, "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# ---- pages


def test_every_column_is_explained(reported):
    page = ROOT / "docs" / "howto" / "scaling.md"
    if not page.exists():
        pytest.skip("no docs/ here")
    text = page.read_text(encoding="utf-8")
    report = json.loads((reported[0] / "report.json").read_text(encoding="utf-8"))
    explained = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert set(report["lines"][0]) <= explained
    assert set(report["costs"]) <= explained
    assert set(report["check"]) <= explained
    assert all(f"\n| {name} |" in text for name in HEADER)


def test_the_table_of_workers_is_that_of_the_costs_that_are_kept():
    page, kept = ROOT / "cluster" / "README.md", ROOT / "cluster" / "costs.json"
    if not page.exists():
        pytest.skip("no cluster/ here")
    costs = Costs(**json.loads(kept.read_text(encoding="utf-8"))["costs"])
    lines = page.read_text(encoding="utf-8").splitlines()
    table = workers_table(costs)
    start = lines.index(table[0])
    assert lines[start : start + len(table)] == table
    assert n_blocks(10**9) > 100  # enough for the workers of the table
