"""Commands use the workers of a cluster, and write what threads would."""

import logging
import re
import sys
from contextlib import redirect_stderr

import numpy as np
import pandas as pd
import pytest
from distributed import LocalCluster

from dsgp import cli
from dsgp.rows.sources import parts
from tests.cli.commands import completed, invoke


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address=None, scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        worker_dashboard_address=None,
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in two parts, a model of it, and rows to predict as Parquet and CSV."""
    folder = tmp_path_factory.mktemp("scheduler")
    rng = np.random.default_rng(0)
    (folder / "rows").mkdir()
    for part in range(2):
        table = pd.DataFrame({"a": rng.uniform(size=400), "id": np.arange(400) + 400 * part})
        table["y"] = np.sin(9 * table["a"]) + 0.1 * rng.standard_normal(400)
        table.to_parquet(folder / "rows" / f"{part}.parquet")
    table.to_csv(folder / "rows.csv", index=False)
    completed(
        "fit", folder / "rows", "--target", "y", "--drop", "id", "--out", folder / "model.zarr"
    )
    return folder


def test_fit_is_the_same(cluster, folder, tmp_path):
    out = tmp_path / "model.zarr"
    completed(
        "fit", folder / "rows", "--target", "y", "--drop", "id", "--out", out,
        "--scheduler", cluster.scheduler_address,
    )  # fmt: skip
    for model, name in ((out, "there.csv"), (folder / "model.zarr", "here.csv")):
        completed("predict", model, folder / "rows.csv", "--out", tmp_path / name)
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


@pytest.mark.parametrize("data", ["rows", "rows.csv"])
def test_predictions_are_the_same_in_the_same_order(cluster, folder, tmp_path, monkeypatch, data):
    monkeypatch.setattr(parts, "BLOCK_ROWS", 90)
    written = []
    for name, options in (
        ("here.csv", []),
        ("there.csv", ["--scheduler", cluster.scheduler_address]),
    ):
        said = completed(
            "predict", folder / "model.zarr", folder / data, "--keep", "id",
            "--out", tmp_path / name, *options,
        )  # fmt: skip
        assert said.stdout.startswith("800 pred" if data == "rows" else "400 pred")
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_mistakes_in_a_row_are_named_from_a_worker_too(cluster, folder, tmp_path):
    table = pd.DataFrame({"a": [0.1, "much", 0.3], "id": [1, 2, 3]})
    table.to_csv(tmp_path / "bad.csv", index=False)
    result = invoke(
        "predict", folder / "model.zarr", tmp_path / "bad.csv", "--out", tmp_path / "p.csv",
        "--scheduler", cluster.scheduler_address,
    )  # fmt: skip
    assert result.exit_code != 0
    assert "'a'" in str(result.exception)
    assert "much" in str(result.exception)
    assert not (tmp_path / "p.csv").exists()


def test_stages_are_lines_where_there_is_no_terminal(cluster, folder, tmp_path, capfd):
    data, out = folder / "rows", tmp_path / "p.csv"
    predict = ("predict", folder / "model.zarr", data, "--out", out)
    completed(*predict)
    assert "predicting" not in capfd.readouterr().err
    with redirect_stderr(sys.__stderr__):
        cli.app(
            [*map(str, predict), "--overwrite", "--scheduler", cluster.scheduler_address],
            standalone_mode=False,
        )
    told = capfd.readouterr().err
    assert re.search(r"^20\d\d-\d\d-\d\d \S+ predicting \.\.\.$", told, re.MULTILINE)
    assert re.search(r"predicting: done in \d+\.\d s$", told, re.MULTILINE)
    assert logging.getLogger("dsgp").handlers == []


def test_a_performance_report_says_what_workers_did(cluster, folder, tmp_path):
    pytest.importorskip("bokeh")
    page = tmp_path / "work.html"
    completed(
        "predict", folder / "model.zarr", folder / "rows", "--out", tmp_path / "p.csv",
        "--scheduler", cluster.scheduler_address, "--performance-report", page,
    )  # fmt: skip
    assert "dsgp-predict" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--performance-report", "work.html"], "name one by --scheduler"),
        (["--performance-report", "work.txt", "--scheduler", "tcp://x:1"], "such as work.html"),
        (["--performance-report", "no/w.html", "--scheduler", "tcp://x:1"], "there is no folder"),
        (["--scheduler", "tcp://127.0.0.1:9"], "there is no dask scheduler at"),
    ],
)
def test_what_cannot_be_is_said_before_the_work(folder, tmp_path, options, said):
    predict = ["predict", folder / "model.zarr", folder / "rows.csv"]
    result = invoke(*predict, "--out", tmp_path / "p.csv", *options)
    assert result.exit_code != 0
    assert said in str(result.exception)
