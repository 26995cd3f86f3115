"""The user's layout: order and direction of dims, dates, attributes, encoding, chunks, scalars."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP
from dsgp.kernels import Matern32, Matern52

TERMS = {"time": Matern32(3.0, 2.0), "lat": Matern52(2.0, 1.0), "lon": Matern32(1.5, 1.0)}
SIZES = (6, 5, 4)


def field(missing, times=None):
    random = np.random.default_rng(0)
    times = xr.date_range("2021-03-01", periods=6) if times is None else times
    values = 15 + random.standard_normal(SIZES)
    grid = {"time": times, "lat": np.arange(5.0), "lon": np.array([0.0, 1.0, 2.5, 3.0])}
    da = xr.DataArray(values, grid, name="sst", attrs={"units": "degC"})
    return da.where(np.random.default_rng(1).random(SIZES) > 0.3) if missing else da


def fitted(da, **options):
    options = {"learner": None, "noise_variance": 0.1, "scales": 1} | options
    return GridGP(options.pop("kernels", TERMS), **options).fit(da)


def all_answers(model, coords):
    return model.posterior(), model.predict(**coords), model.sample(2)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "layout",
    [
        lambda da: da.isel(lat=slice(None, None, -1)),
        lambda da: da.isel(time=slice(None, None, -1), lon=slice(None, None, -1)),
        lambda da: da.transpose("lon", "time", "lat"),
        lambda da: da.isel(lat=slice(None, None, -1)).transpose("lat", "lon", "time"),
    ],
    ids=["descending", "two descending", "transposed", "both"],
)
def test_answers_do_not_depend_on_the_layout_and_come_back_in_it(layout, missing):
    da = field(missing)
    other = layout(da)
    coords = {"lat": [0.3, 4.0, -1.0], "time": ["2021-03-02T12", "2021-03-01"]}
    plain = all_answers(fitted(da), coords)
    model = fitted(other)
    for name, kernel in TERMS.items():
        amplitude = 2.0 if name == other.dims[0] else 1.0
        assert model.kernels_[name] == kernel.with_parameters(variance=amplitude)
    for found, expected in zip(all_answers(model, coords)[:2], plain[:2], strict=True):
        assert found["mean"].dims == other.dims
        assert found["std"].dims == other.dims
        # xarray aligns by name and coordinate.
        xr.testing.assert_allclose(
            found.transpose(*da.dims).sortby(list(da.dims)),
            expected.sortby(list(da.dims)),
            rtol=1e-9,
        )
    posterior = model.posterior()
    for name in da.coords:
        xr.testing.assert_identical(posterior[name], other[name])
    assert model.sample(2).dims == ("sample", *other.dims)


@pytest.mark.parametrize("missing", [False, True])
def test_learning_does_not_depend_on_the_layout(missing):
    da = field(missing)
    first = GridGP(scales=1).fit(da)
    second = GridGP(scales=1).fit(
        da.isel(lat=slice(None, None, -1)).transpose("lon", "lat", "time")
    )
    assert first.log_marginal_likelihood_ == pytest.approx(second.log_marginal_likelihood_, abs=0.1)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["cftime", "numbers", "timedelta", "coarse"])
def test_times_of_any_kind_are_the_same_axis(missing, kind):
    times = {
        "cftime": xr.date_range("2021-03-01", periods=6, calendar="noleap", use_cftime=True),
        "numbers": np.arange(100.0, 106.0),
        "timedelta": np.arange(6).astype("timedelta64[D]").astype("timedelta64[ns]"),
        "coarse": np.datetime64("2021-03-01", "s") + np.arange(6) * np.timedelta64(86400, "s"),
    }[kind]
    da = field(missing, times)
    model, plain = fitted(da), fitted(field(missing))
    xr.testing.assert_identical(model.posterior().time, da.time)
    for name, expected in plain.posterior().items():
        np.testing.assert_allclose(model.posterior()[name].values, expected.values, rtol=1e-9)
    assert model.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_, rel=1e-9)
    later = model.predict(time=da.time.values[2:3])
    np.testing.assert_allclose(
        later["mean"].values, model.posterior()["mean"][2:3].values, rtol=1e-9
    )
    assert (
        model.units_["time"]
        == {
            "cftime": "days since 2021-03-01 (noleap)",
            "numbers": "",
            "timedelta": "days",
            "coarse": "days since 2021-03-01",
        }[kind]
    )


def test_coordinates_attributes_and_encoding_are_kept():
    da = field(missing=True)
    da.lat.attrs = {"units": "degrees_north"}
    da = da.assign_coords(month=("time", np.arange(6)), depth=5.0)
    da.attrs["valid_max"] = 9000  # packed
    da.encoding = {"dtype": "int16", "scale_factor": 0.01, "zlib": True}
    model = fitted(da)
    posterior = model.posterior()
    assert posterior.lat.attrs == {"units": "degrees_north"}
    assert set(posterior.coords) == {"time", "lat", "lon", "month", "depth"}
    assert posterior["mean"].attrs == posterior["std"].attrs == {"units": "degC"}
    assert "scale_factor" not in posterior["mean"].encoding
    other = model.predict(lat=[0.5])
    assert other.lat.attrs == {"units": "degrees_north"}
    assert set(other.coords) == {"time", "lat", "lon", "month", "depth"}
    assert set(model.predict(time=["2021-03-01"]).coords) == {"time", "lat", "lon", "depth"}


@pytest.mark.parametrize("missing", [False, True])
def test_predictions_keep_order_and_scalars_take_their_dim_away(missing):
    model = fitted(field(missing))
    lat = [3.3, 0.1, 9.0, 1.2]
    found = model.predict(lat=lat)
    assert found.lat.values.tolist() == lat
    assert found["mean"].shape == (6, 4, 4)
    one = model.predict(lat=0.1)
    assert one["mean"].dims == ("time", "lon")
    assert float(one.lat) == 0.1
    xr.testing.assert_allclose(one, found.isel(lat=1))
    point = model.predict(lat=1.0, lon=2.5, time="2021-03-03")
    assert point["mean"].ndim == 0
    expected = model.posterior().isel(time=2, lat=1, lon=2)
    assert float(point["mean"]) == pytest.approx(float(expected["mean"]), rel=1e-9)
    assert float(point["std"]) == pytest.approx(float(expected["std"]), rel=1e-8)
    draws = model.sample(3, lat=0.1)
    assert draws.dims == ("sample", "time", "lon")
    assert model.predict(lat=[])["mean"].shape == (6, 0, 4)


@pytest.mark.parametrize("missing", [False, True])
def test_predictions_at_the_cells_are_the_posterior(missing):
    da = field(missing)
    model = fitted(da)
    own = model.predict(**{dim: da[dim] for dim in da.dims})
    xr.testing.assert_allclose(own, model.posterior(), rtol=1e-8)
    xr.testing.assert_allclose(model.predict(), model.posterior(), rtol=1e-8)


def test_beyond_the_field_is_the_prior():
    da = field(missing=True)
    model = fitted(da, mean=float(da.mean()))
    far = model.predict(lat=1e4)
    np.testing.assert_allclose(far["std"], np.sqrt(2.0))
    np.testing.assert_allclose(far["mean"], float(da.mean()))


@pytest.mark.parametrize("dtype", ["int16", "int64", "uint8", "float32"])
def test_integers_and_single_precision_are_numbers(dtype):
    da = field(missing=False).round().astype(dtype)
    found = fitted(da).posterior()
    expected = fitted(da.astype(float)).posterior()
    assert found["mean"].dtype == np.float64
    xr.testing.assert_allclose(found, expected)


def test_chunks_come_back():
    da = field(missing=True).chunk({"time": 2, "lat": 3})
    posterior = fitted(da).posterior()
    assert posterior["mean"].chunks == da.chunks
    xr.testing.assert_allclose(posterior.compute(), fitted(da.compute()).posterior())


def test_the_field_is_not_written_to():
    da = field(missing=True)
    kept = da.copy(deep=True)
    all_answers(fitted(da), {"lat": [0.5]})
    xr.testing.assert_identical(da, kept)


def test_dims_of_one_point():
    da = field(missing=True).isel(lat=[2])
    model = fitted(da)
    flat = fitted(da.isel(lat=0, drop=True), kernels={d: TERMS[d] for d in ("time", "lon")})
    np.testing.assert_allclose(
        model.posterior()["mean"].isel(lat=0), flat.posterior()["mean"], rtol=1e-9
    )
    learnt = GridGP().fit(da)
    assert np.isfinite(learnt.posterior()["std"]).all()
    single = xr.DataArray([3.0], {"x": [1.0]})
    posterior = GridGP().fit(single).posterior()
    assert np.isfinite(posterior["mean"]).all()
    assert float(posterior["mean"][0]) == pytest.approx(3.0)
