"""The benchmark of gap filling runs, small; nothing here looks at a time."""

import json

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from benchmarks import grid_gaps
from benchmarks.grid_gaps import Result, judge, peers_of, promises_of
from benchmarks.pursuit import Seconds
from pipelines.datasets import HeldOut


@pytest.fixture
def data_dir(tmp_path):
    """A small field with the name of one that has limits: smooth, with land and a sea mask."""
    rng = np.random.default_rng(0)
    lat, lon = 10.0 - np.arange(12.0), np.arange(14) * 20.0
    t, i, j = np.meshgrid(np.arange(5.0), lat, lon, indexing="ij")
    values = 290 + np.sin(t / 3) + np.sin(i / 6) * np.cos(np.deg2rad(j))
    values += 0.02 * rng.standard_normal(values.shape)
    sea = np.ones((12, 14), dtype=bool)
    sea[:2, :3] = False
    values[:, ~sea] = np.nan
    np.savez(
        tmp_path / "ostia_tropics_monthly.npz",
        field=values.astype(np.float32), dims=["time", "lat", "lon"], time=30.0 * np.arange(5),
        lat=lat, lon=lon, units="K", time_units="days since 2006-04-16", sea_mask=sea,
    )  # fmt: skip
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(grid_gaps.app, [str(each) for each in arguments])


@pytest.fixture
def warm(monkeypatch):
    monkeypatch.setattr(grid_gaps, "warm_up", lambda: None)


@pytest.mark.usefixtures("warm")
def test_field_is_filled_beside_peers(data_dir, tmp_path):
    out = tmp_path / "out"
    done = invoke(
        "--data-dir", data_dir, "--fields", "ostia_tropics_monthly", "--out", out
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads((out / "grid_gaps.json").read_text())
    by_method = {fill["method"]: fill for fill in report["fills"]}
    assert list(by_method)[:2] == ["linear", "DINEOF (our own)"]
    own = by_method["dsgp"]
    assert own["unanswered"] == 0
    assert own["rmse"][0] < by_method["linear"]["rmse"][0]
    assert own["n_fit"] + sum(own["n_held"]) == 5 * (12 * 14 - 6)
    assert report["promises"]["ostia_tropics_monthly"]["lowest RMSE of single cells"]
    page = (out / "grid_gaps.md").read_text()
    assert "| ostia_tropics_monthly |" in page
    assert "every held-out cell filled: kept" in page


def test_bad_input_is_an_error():
    done = invoke("--fields", "atlantis")
    assert done.exit_code == 1
    assert "expected some of alboran_sst_avhrr" in done.output
    done = invoke("--fields", "alboran_sst_avhrr")
    assert done.exit_code == 1
    assert "--data-dir" in done.output


def test_judge_counts_only_what_is_answered():
    values = np.zeros((1, 2, 3))
    points = np.array([[[True, True, True], [False, False, False]]])
    clouds = np.array([[[False, False, False], [True, False, False]]])
    held = HeldOut(~points & ~clouds, points, clouds)
    mean = np.array([[[0.3, np.nan, 0.4], [1.0, 9.0, 9.0]]])
    found = judge("f", "m", values, held, (mean, np.full(values.shape, 0.2), {}), Seconds(1, 2))
    assert found.rmse == pytest.approx((np.sqrt(0.125), 1.0))
    assert found.unanswered == 1
    assert found.coverage == pytest.approx((1 / 3, 0.0))
    assert judge("f", "m", values, held, (mean, None, {}), Seconds(1, 2)).coverage is None


def result(method, rmse, coverage=None, cpu=1.0, unanswered=0):
    seconds = Seconds(cpu, cpu)
    return Result(
        "alboran_sst_avhrr", method, 1, (1, 1), rmse, unanswered, coverage, seconds
    )  # fmt: skip


def test_promises_are_broken_one_by_one():
    peer = result("linear", (0.12, 0.24))
    good = promises_of([peer, result("dsgp", (0.1, 0.2), (0.95, 0.95))])
    assert len(good) == 8
    assert all(good.values())
    bad = promises_of([peer, result("dsgp", (0.13, 0.25), (0.99, 0.8), 61.0, 1)])
    assert list(bad) == list(good)
    assert not any(bad.values())


def test_library_gets_positive_values():
    kelvin = xr.DataArray(np.zeros(2), attrs={"units": "K"})
    peers = peers_of(kelvin)
    assert {"linear", "DINEOF (our own)"} <= set(peers)
    if "DINEOF (pyDINEOF)" in peers:
        assert peers["DINEOF (pyDINEOF)"].offset == 0.0
        assert peers_of(xr.DataArray(np.zeros(2)))["DINEOF (pyDINEOF)"].offset > 273
