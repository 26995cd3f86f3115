"""Saving, loading, cloning; and smoothing from disk to disk, which says what a fit says."""

import json

import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone

import dsgp
from dsgp import GridGP
from dsgp.errors import ParameterError, StorageError
from dsgp.kernels import Matern32, Matern52, Periodic
from tests.grid.dense import gaps


def field(missing=True, times="datetime"):
    random = np.random.default_rng(0)
    days = {
        "datetime": xr.date_range("2020-11-25", periods=8, freq="5D"),
        "cftime": xr.date_range(
            "2020-11-25", periods=8, freq="5D", calendar="360_day", use_cftime=True
        ),
    }[times]
    grid = {"time": days, "lat": np.arange(6.0)[::-1], "lon": np.arange(0.0, 360.0, 60.0)}
    da = xr.DataArray(10 + random.standard_normal((8, 6, 6)), grid, name="t", attrs={"units": "K"})
    da.coords["season"] = ("time", ["winter"] * 8)
    return da.where(gaps(da.shape)) if missing else da


KEPT = {
    "time": Matern32(20.0, 1.0),
    "lat": Matern52(2.0, 1.0),
    "lon": Periodic(360.0, 90.0, 1.0),
}
MODELS = {
    "complete, learnt": (GridGP(), {"missing": False}),
    "gaps, learnt": (GridGP(random_state=3), {}),
    "gaps, kept": (GridGP(KEPT, 0.1, learner=None), {}),
    "local variances": (GridGP(KEPT, 0.1, learner=None, variance="local", n_neighbours=7), {}),
    "drawn variances": (GridGP(KEPT, 0.1, learner=None, variance="draws", n_draws=5), {}),
    "climatology": (GridGP(KEPT, 0.1, learner=None, mean="time.month"), {}),
    "cftime": (GridGP(KEPT, 0.1, learner=None, mean="time"), {"times": "cftime"}),
    "number": (GridGP(KEPT, 0.1, learner=None, mean=9.0, units={"time": "hours"}), {}),
    "given mean": (GridGP(KEPT, 0.1, learner=None, mean=xr.zeros_like(field(False)) + 9), {}),
    "given noise": (GridGP(KEPT, xr.ones_like(field(False)), learner=None), {}),
    "numbers of numpy": (
        GridGP(
            KEPT,
            np.float64(0.1),
            learner=None,
            n_neighbours=np.int64(9),
            tol=np.float32(1e-5),
            random_state=np.int64(1),
        ),
        {},
    ),
}  # fmt: skip


def answers(model, da):
    coords = {"lat": [0.5, 4.2], "time": da.time.values[[3, 1]]}
    return model.posterior(), model.predict(**coords), model.sample(2), model.sample(1, **coords)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("iterative", [False, True])
def test_a_loaded_model_says_the_same_to_the_bit(name, iterative, tmp_path, monkeypatch):
    if iterative:
        monkeypatch.setattr("dsgp.grid.systems.DENSE_CELLS", 0)
    model, options = MODELS[name]
    da = field(**options)
    model = clone(model).fit(da, domain=None if "climatology" not in name else "observed")
    model.save(tmp_path / "model")
    loaded = dsgp.load(tmp_path / "model")
    assert type(loaded) is GridGP
    for found, expected in zip(answers(loaded, da), answers(model, da), strict=True):
        xr.testing.assert_identical(found, expected)
    assert loaded.summary() == model.summary()
    for attribute, value in vars(model).items():
        if attribute.endswith("_") and attribute not in ("field_", "mean_"):
            assert getattr(loaded, attribute) == value
    np.testing.assert_array_equal(loaded.mean_, model.mean_)
    # A loaded one is saved again as it was, and its clone can be fitted.
    loaded.save(tmp_path / "again")
    xr.testing.assert_identical(dsgp.load(tmp_path / "again").posterior(), model.posterior())


@pytest.mark.parametrize(
    "name", ["gaps, kept", "given mean", "given noise", "climatology", "number"]
)
def test_the_clone_of_a_loaded_model_fits_the_same(name, tmp_path):
    model, options = MODELS[name]
    da = field(**options)
    model = clone(model).fit(da)
    model.save(tmp_path / "model")
    again = clone(dsgp.load(tmp_path / "model")).fit(da)
    assert again.kernels_ == model.kernels_
    xr.testing.assert_allclose(again.posterior(), model.posterior(), rtol=1e-12)


def test_one_of_two_scales_is_still_one_after_loading(tmp_path):
    model = GridGP([KEPT], 0.1).fit(field())
    assert isinstance(model.kernels_, dict)
    model.save(tmp_path / "model")
    again = clone(dsgp.load(tmp_path / "model")).fit(field())
    assert isinstance(again.kernels_, dict)


def test_parameters_go_through_clones():
    model = GridGP(KEPT, 0.1, mean="time", scales=1, random_state=7)
    assert clone(model).get_params() == model.get_params()
    assert GridGP(**model.get_params()).get_params() == model.get_params()
    assert "learner=None" in repr(model.set_params(learner=None))
    assert set(model.get_params()) == {
        "kernels", "noise_variance", "fixed_noise", "mean", "scales", "units", "learner",
        "variance", "n_neighbours", "n_draws", "tol", "max_iter", "random_state", "transform",
    }  # fmt: skip


def test_fitting_changes_no_parameter():
    model = GridGP()
    before = model.get_params()
    model.fit(field())
    assert model.get_params() == before


def test_what_is_there_is_not_overwritten_unasked(tmp_path):
    model = GridGP(KEPT, 0.1, learner=None).fit(field())
    model.save(tmp_path / "model")
    with pytest.raises(StorageError):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    with pytest.raises(ValueError, match="not fitted"):
        GridGP().save(tmp_path / "other")


def test_chunks_and_encoding_are_saved(tmp_path):
    da = field().chunk({"time": 3})
    da.encoding = {"dtype": "float32", "zlib": True}
    model = GridGP(KEPT, 0.1, learner=None).fit(da)
    model.save(tmp_path / "model")
    found, expected = dsgp.load(tmp_path / "model").posterior(), model.posterior()
    assert found["mean"].chunks == expected["mean"].chunks == da.chunks
    assert found["mean"].encoding == expected["mean"].encoding


# ---------------------------------------------------------------------- from disk to disk


def stored(da, path):
    da.to_dataset(name="t").chunk({"time": 4, "lat": 3, "lon": 4}).to_zarr(path)
    return path


@pytest.mark.parametrize("include_noise", [False, True])
@pytest.mark.parametrize("mean", ["zero", 9.0])
def test_smoothing_a_store_is_fit_and_posterior(mean, include_noise, tmp_path):
    da = field(missing=False).drop_vars("season")
    source = stored(da, tmp_path / "in.zarr")
    model = GridGP(KEPT, 0.1, learner=None, mean=mean)
    report = model.smooth_store(source, "t", tmp_path / "out.zarr", include_noise=include_noise)
    expected = GridGP(KEPT, 0.1, learner=None, mean=mean).fit(da).posterior(include_noise)
    found = xr.open_zarr(tmp_path / "out.zarr").load()
    assert report is not None
    for name in ("mean", "std"):
        assert found[name].dims == da.dims
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10)
    for dim in da.dims:
        np.testing.assert_array_equal(found[dim], da[dim])
    assert model.kernels_ == KEPT
    assert model.noise_variance_ == 0.1
    assert "kronecker" in model.summary()


@pytest.mark.parametrize("domain", [None, "observed"])
def test_smoothing_a_store_with_gaps_is_fit_and_posterior(domain, tmp_path):
    da = field().drop_vars("season")
    da[:, 2, 3] = np.nan  # land
    source = stored(da, tmp_path / "in.zarr")
    options = {"learner": None, "mean": 9.0, "tol": 1e-10}
    model = GridGP(KEPT, 0.1, **options)
    model.smooth_store(source, "t", tmp_path / "out.zarr", domain=domain)
    expected = GridGP(KEPT, 0.1, **options).fit(da, domain=domain).posterior()
    found = xr.open_zarr(tmp_path / "out.zarr").load()
    for dim in da.dims:
        np.testing.assert_array_equal(found[dim], da[dim])
    assert int(found["mean"].isnull().sum()) == (0 if domain is None else 8)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-8)
    excess = (found["std"] / expected["std"]).values
    excess = excess[np.isfinite(excess)]
    assert excess.min() > 1 - 1e-6
    assert excess.max() < 1.3
    assert model.n_observed_ == int(da.notnull().sum())
    assert "method: tiles" in model.summary()


def test_a_store_is_learnt_from(tmp_path):
    da = field(missing=False).drop_vars("season")
    source = stored(da, tmp_path / "in.zarr")
    model = GridGP()
    model.smooth_store(source, "t", tmp_path / "out.zarr")
    assert "hyperparameters learned from: nothing" not in model.summary()
    found = xr.open_zarr(tmp_path / "out.zarr").load()
    kept = GridGP(model.kernels_, model.noise_variance_, learner=None, mean=model.mean_)
    np.testing.assert_allclose(found["mean"], kept.fit(da).posterior()["mean"], rtol=1e-8)


def test_the_field_of_a_store_is_not_held(tmp_path):
    source = stored(field(missing=False).drop_vars("season"), tmp_path / "in.zarr")
    model = GridGP(KEPT, 0.1, learner=None)
    model.fit(field())  # another one, which the store replaces
    model.smooth_store(source, "t", tmp_path / "out.zarr")
    for call in (
        model.posterior,
        lambda: model.predict(lat=[1.0]),
        model.sample,
        lambda: model.save(tmp_path / "model"),
    ):
        with pytest.raises(StorageError, match="does not hold it"):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {"mean": "time"},
        {"mean": xr.DataArray(1.0)},
        {"noise_variance": xr.ones_like(field(False))},
    ],
    ids=["average", "given mean", "noise per cell"],
)
def test_models_that_a_store_cannot_have_are_refused(options, tmp_path):
    source = stored(field(missing=False).drop_vars("season"), tmp_path / "in.zarr")
    with pytest.raises(ParameterError):
        GridGP(**options).smooth_store(source, "t", tmp_path / "out.zarr")


def test_keeping_what_is_not_given_is_refused_for_a_store(tmp_path):
    source = stored(field(missing=False).drop_vars("season"), tmp_path / "in.zarr")
    for options in ({}, {"kernels": KEPT}, {"noise_variance": 0.1}):
        with pytest.raises(ParameterError, match="learner=None"):
            GridGP(**options, learner=None).smooth_store(source, "t", tmp_path / "out.zarr")


def test_a_period_that_meets_itself_is_refused_for_a_store(tmp_path):
    da = field(missing=False).drop_vars("season").assign_coords(lon=np.arange(0.0, 361.0, 72.0))
    source = stored(da, tmp_path / "in.zarr")
    with pytest.raises(ValueError, match="repeats its first point at its end"):
        GridGP(KEPT, 0.1, learner=None).smooth_store(source, "t", tmp_path / "out.zarr")


def test_settings_are_plain_json(tmp_path):
    GridGP(KEPT, 0.1, learner=None).fit(field()).save(tmp_path / "model")
    found = list((tmp_path / "model").rglob("*.json"))
    assert found
    for path in found:
        json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(text))
