"""The benchmark of long axes runs, small; nothing here looks at a time."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import grid_long


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(grid_long, "AGREE_STEPS", 200)
    monkeypatch.setattr(grid_long, "STATIONS", 3)


def invoke(*arguments):
    return CliRunner().invoke(grid_long.app, [str(each) for each in arguments])


def test_both_ways_agree():
    assert max(grid_long.disagreement(100).values()) < 1e-9


def test_series_are_rough_as_said():
    da = grid_long.series(20_000)
    assert da.dims == ("time", "station")
    assert float(da.var()) == pytest.approx(1 + grid_long.NOISE, rel=0.15)
    near, far = np.corrcoef(da.values.T)[0, 1:]
    assert near > far > 0.3


def test_sizes_are_measured_and_written(tmp_path):
    done = invoke("--sizes", "4097,6000", "--gaps", "600", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "grid_long.json").read_text())
    assert [each["n"] for each in report["sizes"]] == [4097, 6000]
    assert {each["method"] for each in report["sizes"]} == {"fibres"}
    assert all(each["rmse"] < np.sqrt(grid_long.NOISE) for each in report["sizes"])
    assert set(report["slopes"]) == {"likelihood", "evidence", "posterior"}
    assert report["gaps"]["converged"]
    assert 0.9 < report["gaps"]["coverage"] < 0.99
    assert "of the cells missing" in (tmp_path / "grid_long.md").read_text()


def test_bad_input_is_an_error():
    assert invoke("--sizes", "1000").exit_code == 1
    done = invoke("--gaps", "100")
    assert done.exit_code == 1
    assert "200 steps" in done.output
