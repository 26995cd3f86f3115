"""``pipelines.grid field``: gaps of a field, cells held out of it, and the folder of results."""

import json

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dsgp
from pipelines.datasets.fields import HeldOut, hold_out
from pipelines.grid import filling
from pipelines.grid.__main__ import app

FILES = {
    "held-out-clouds.png", "held-out-points.png", "maps.png", "metrics.json", "model.zarr",
    "posterior.zarr", "report.json", "report.md",
}  # fmt: skip
SMALL = (4, 16, 20)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A small cloudy field in a file, and what the command made of it."""
    folder = tmp_path_factory.mktemp("field")
    da, _ = filling.synthetic_field(0, SMALL)
    np.savez(
        folder / "cloudy.npz", field=da.to_numpy(), dims=list(da.dims),
        time=np.arange(4.0), time_units="days since 2020-06-01", units="degC",
        lat=da["lat"], lon=da["lon"],
    )  # fmt: skip
    done = invoke(
        "field", "--data", "cloudy", "--data-dir", folder, "--side", 4, "--blocks", 2,
        "--scales", 1, "--at", "2020-06-02,2020-06-04", "--out", folder / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return da, folder / "out"


# ---- the synthetic field


def test_the_synthetic_field_is_the_same_for_the_same_seed():
    one, truth = filling.synthetic_field(3, SMALL)
    two, _ = filling.synthetic_field(3, SMALL)
    other, _ = filling.synthetic_field(4, SMALL)
    xr.testing.assert_identical(one, two)
    assert not one.equals(other)
    assert one.shape == truth.shape == SMALL


def test_it_has_a_coast_clouds_and_noise():
    da, truth = filling.synthetic_field(0)
    land = np.isnan(truth)
    assert (land == land[0]).all()
    assert 0.02 < land.mean() < 0.4
    seen = np.isfinite(da.to_numpy())
    assert not seen[land].any()
    cloudy = 1 - seen.sum(axis=(1, 2)) / (~land[0]).sum()
    assert cloudy.max() > 0.6
    assert cloudy.min() < 0.3
    assert (da.to_numpy() - truth)[seen].std() == pytest.approx(0.05, rel=0.05)
    assert da["lat"].values[0] > da["lat"].values[-1]


# ---- scores


def test_scores_are_of_the_cells_with_an_answer():
    values = np.zeros((1, 2, 2))
    mean = np.array([[[1.0, np.nan], [3.0, 0.0]]])
    points = np.array([[[True, True], [False, False]]])
    clouds = np.array([[[False, False], [True, False]]])
    held = HeldOut(~points & ~clouds, points, clouds)
    found = filling.scored(values, mean, held, np.ones_like(values))
    assert found == {
        "rmse_points": 1.0, "coverage_points": 1.0, "rmse_clouds": 3.0, "coverage_clouds": 0.0,
        "filled": pytest.approx(2 / 3),
    }  # fmt: skip


def test_no_cell_held_out_is_no_score():
    nothing = np.zeros((1, 2, 2), dtype=bool)
    found = filling.scored(
        np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), HeldOut(~nothing, nothing, nothing)
    )
    assert found == {"filled": 1.0}


def test_times_to_draw_go_from_clear_to_cloudy():
    values = np.full((5, 2, 4), np.nan)
    for step, n_seen in enumerate([3, 8, 5, 0, 1]):
        values[step].ravel()[:n_seen] = 1.0
    da = xr.DataArray(values, dims=("time", "y", "x"), coords={"time": np.arange(5)})
    assert filling.chosen_times(da, 3) == [0, 1, 3]  # 8, the middle 3, 0; in order
    assert filling.chosen_times(da, 9) == [0, 1, 2, 3, 4]


# ---- the command


def test_the_folder_is_complete(results):
    _, out = results
    assert {entry.name for entry in out.iterdir()} == FILES
    report = json.loads((out / "report.json").read_text())
    assert report["pipeline"] == "grid field"
    assert report["data"]["sizes"] == {"time": 4, "lat": 16, "lon": 20}
    assert report["converged"] is True


def test_the_posterior_is_on_the_grid_and_empty_on_land(results):
    da, out = results
    posterior = xr.open_zarr(out / "posterior.zarr", consolidated=False)
    assert set(posterior.data_vars) == {"mean", "std"}
    assert posterior["mean"].dims == da.dims
    np.testing.assert_array_equal(posterior["lat"], da["lat"])
    land = np.isnan(da.to_numpy()).all(axis=0)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(
            np.isnan(posterior[name].to_numpy()), np.broadcast_to(land, da.shape)
        )


def test_the_scores_are_those_of_the_cells_held_out(results):
    da, out = results
    held = hold_out(da, side=4, blocks=2, seed=1)
    mean = xr.open_zarr(out / "posterior.zarr", consolidated=False)["mean"].to_numpy()
    error = (mean - da.to_numpy())[held.clouds]
    scores = json.loads((out / "metrics.json").read_text())["scores"]
    assert scores["GridGP"]["rmse_clouds"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert set(scores) == {"GridGP", "linear interpolation", "DINEOF"}
    page = (out / "report.md").read_text()
    assert f"| {scores['GridGP']['rmse_points']:.4f} |" in page
    assert "Matern32, lengthscale" in page


def test_the_saved_model_predicts_again(results):
    _, out = results
    model = dsgp.load(out / "model.zarr")
    mean = xr.open_zarr(out / "posterior.zarr", consolidated=False)["mean"]
    np.testing.assert_allclose(model.posterior()["mean"], mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "alboran"], "--data-dir"),
        (["--data", "nothing.npz"], "there is no nothing.npz"),
        (["--side", 100], "smaller squares"),
        (["--kernel", "cubic"], "kernel must be one of"),
        (["--at", ","], "--at takes times"),
    ],
)
def test_bad_options_are_reported_in_a_line(tmp_path, options, message):
    done = invoke("field", "--out", tmp_path / "out", *options)
    assert done.exit_code == 1
    assert message in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["alboran", "ersst", "ostia"])
def test_the_fields_that_are_known_are_in_the_data_folder(data_dir, name):
    assert (data_dir / f"{filling.FIELDS[name].file}.npz").is_file()
