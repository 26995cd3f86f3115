"""Longitudes: read from attributes, one turn or another, the date line, a repeated column."""

import warnings

import numpy as np
import pytest
import xarray as xr

import dsgp
from dsgp import GridGP
from dsgp.errors import DataError, DataWarning
from dsgp.grid.axes import GridAxis
from dsgp.kernels import Matern32, Periodic

EAST = {"units": "degrees_east"}


def axis_of(values, name="lon", **attrs):
    return GridAxis.of(xr.DataArray(values, {name: (name, values, attrs)}, name=name)[name])


def globe(lon, seed=0, attrs=EAST, dtype=float):
    """A field of 5 latitudes that goes round the globe, at some longitudes."""
    rng = np.random.default_rng(seed)
    lat = np.linspace(-20, 20, 5)
    lon = np.asarray(lon, dtype)
    turn = lon.astype(float) % 360
    values = np.cos(np.deg2rad(2 * turn)) * np.cos(np.deg2rad(lat))[:, None]
    by_place = {one: rng.standard_normal(5) for one in sorted(set(turn))}
    noise = np.stack([by_place[one] for one in turn], axis=1)
    coords = {"lat": lat, "lon": ("lon", lon, attrs)}
    return xr.DataArray(values + 0.01 * noise, coords, ("lat", "lon"))


def fitted(da, **options):
    kernels = {"lat": Matern32(15.0, 1.0), "lon": Periodic(360.0, 40.0, smoothness=1.5)}
    return GridGP(kernels, 1e-4, learner=None, **options).fit(da)


@pytest.mark.parametrize(
    ("name", "attrs", "circle"),
    [
        ("x", {"units": "degrees_east"}, 360.0),
        ("x", {"units": "degree_E"}, 360.0),
        ("x", {"standard_name": "longitude", "units": "degrees"}, 360.0),
        ("x", {"long_name": "Longitude", "axis": "X"}, 360.0),
        ("x", {"standard_name": "grid_longitude", "units": "degrees"}, 360.0),
        ("x", {"standard_name": "longitude", "units": "radian"}, 2 * np.pi),
        ("lon", {}, 360.0),
        ("Longitude", {"axis": "X"}, 360.0),
        ("lon", {"units": "m"}, None),
        ("lon", {"standard_name": "projection_x_coordinate"}, None),
        ("x", {"axis": "X"}, None),
        ("lat", {"units": "degrees_north"}, None),
    ],
)
def test_longitudes_are_known_by_their_attributes_or_name(name, attrs, circle):
    assert axis_of([0.0, 1.0, 2.0], name, **attrs).circle == circle


def test_axes_of_several_turns_are_no_circle():
    assert axis_of(np.arange(0.0, 800, 10)).circle is None
    assert axis_of([0.0, 10.0, 400.0]).circle is None


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
def test_one_circle_in_two_conventions_is_one_field(dtype):
    """The same cells from 0 to 360, from −180 to 180, and as they come when half is turned."""
    lon = np.arange(0, 360, 15)
    first = globe(lon, dtype=dtype)
    west = globe(np.where(lon > 180, lon - 360, lon), dtype=dtype)  # …, 180, −165, …, −15
    sorted_west = west.sortby("lon")
    expected = fitted(first)
    for da in (west, sorted_west, sorted_west.isel(lon=slice(None, None, -1))):
        model = fitted(da)
        got = model.posterior()
        np.testing.assert_array_equal(got.lon, da.lon)
        cells = expected.posterior().isel(lon=(np.asarray(da.lon) % 360 / 15).astype(int))
        np.testing.assert_allclose(got["mean"], cells["mean"], atol=1e-9)
        where = {"lon": [-170.0, 190.0, 359.9, -0.1, 7.5], "lat": 3.0}
        there, here = model.predict(**where), expected.predict(**where)
        np.testing.assert_allclose(there["mean"], here["mean"], atol=1e-9)
        np.testing.assert_allclose(there["std"], here["std"], rtol=1e-6)
        assert float(here["mean"][0]) == pytest.approx(float(here["mean"][1]), abs=1e-9)
        assert float(here["mean"][2]) == pytest.approx(float(here["mean"][3]), abs=1e-9)
        np.testing.assert_array_equal(there.lon, where["lon"])  # as they were asked for


def test_targets_in_the_other_convention_are_not_far_away():
    """A part of the globe: without the turn the mean would be the prior's."""
    da = globe(np.arange(200.0, 260, 5))
    model = GridGP({"lat": Matern32(15.0, 1.0), "lon": Matern32(40.0)}, 1e-4, learner=None).fit(da)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        west = model.predict(lon=[-157.5, -120.0])
        east = model.predict(lon=[202.5, 240.0])
        point = model.predict(
            lon=xr.DataArray([-157.5], dims="o"), lat=xr.DataArray([3.0], dims="o")
        )
    np.testing.assert_array_equal(west["mean"], east["mean"])
    np.testing.assert_array_equal(west["std"], east["std"])
    assert float(point["std"][0]) < 0.3
    sea = (da > -2).assign_coords(lon=da.lon - 360)
    xr.testing.assert_identical(
        GridGP(model.kernels_, 1e-4, learner=None).fit(da, mask=sea).posterior(), model.posterior()
    )


def test_fields_across_the_date_line_stay_together():
    lon = np.array([170.0, 175, 180, -175, -170])
    da = globe(lon)
    expected = fitted(da.assign_coords(lon=("lon", lon % 360, EAST))).posterior()
    got = fitted(da).posterior()
    np.testing.assert_array_equal(got.lon, lon)
    np.testing.assert_allclose(got["mean"], expected["mean"], rtol=1e-9)
    backwards = fitted(da.isel(lon=slice(None, None, -1))).posterior()
    np.testing.assert_allclose(backwards["mean"][:, ::-1], expected["mean"], rtol=1e-9)
    with pytest.raises(DataError, match="neither ascends nor descends"):
        GridGP().fit(da.isel(lon=[0, 3, 1, 2, 4]))


def test_longitudes_round_the_globe_get_a_periodic_kernel():
    noisy = globe(np.arange(0, 360, 20))
    model = GridGP().fit(noisy)
    assert isinstance(model.kernels_["lon"], Periodic)
    assert model.kernels_["lon"].period == 360.0
    assert isinstance(GridGP().fit(noisy.isel(lon=slice(0, 12))).kernels_["lon"], Matern32)
    assert isinstance(GridGP({"lon": Matern32()}).fit(noisy).kernels_["lon"], Matern32)
    gap = noisy.where(noisy.lon > 30)
    assert all(
        isinstance(one["lon"], Periodic) for one in np.atleast_1d(GridGP().fit(gap).kernels_)
    )


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("descending", [False, True])
def test_a_repeated_column_is_one_place(tmp_path, lazy, dtype, descending):
    once = globe(np.arange(0, 360, 24), dtype=dtype)
    twice = globe(np.arange(0, 361, 24), dtype=dtype)
    land = xr.where(twice.lat > 15, False, True)
    if descending:
        once, twice = (da.isel(lon=slice(None, None, -1)) for da in (once, twice))
    model = fitted(twice, ).fit(twice, mask=twice < 5, domain=land)  # fmt: skip
    expected = fitted(once).fit(once, domain=land).posterior()
    got = model.posterior()
    if lazy:
        options = {"kernels": model.kernels, "noise_variance": 1e-4, "learner": None}
        got = twice.chunk(lat=2).dsgp.smooth(domain=land, **options)
        assert got["mean"].chunks is not None
    assert model.n_observed_ == once.size
    for name in ("mean", "std"):
        assert got[name].shape == twice.shape
        same = got.sel(lon=once.lon.values)[name]
        np.testing.assert_allclose(same, expected[name], rtol=1e-9)
        np.testing.assert_array_equal(got[name].sel(lon=360), got[name].sel(lon=0))
    model.save(tmp_path / "model.zarr")
    xr.testing.assert_identical(dsgp.load(tmp_path / "model.zarr").posterior(), model.posterior())
    draws = model.sample(2)
    np.testing.assert_array_equal(draws.sel(lon=360), draws.sel(lon=0))
    points = model.predict(lat=xr.DataArray(np.zeros(16), dims="lon"))
    np.testing.assert_allclose(points["mean"], got["mean"].sel(lat=0), atol=1e-7)


def test_a_repeated_column_fills_the_other_and_may_not_differ():
    twice = globe(np.arange(0, 361, 24))
    expected = fitted(twice).posterior()
    half = twice.copy(deep=True)
    half[:, 0] = np.nan
    xr.testing.assert_allclose(fitted(half).posterior(), expected)
    other = twice.copy(deep=True)
    other[2, -1] += 1.0
    with pytest.warns(DataWarning, match="twice, at 0 and 360, and the values differ in 1 cells"):
        xr.testing.assert_allclose(fitted(other).posterior(), expected)


def test_a_repeated_column_of_a_store_is_reported(tmp_path):
    globe(np.arange(0, 361, 24)).to_dataset(name="t").to_zarr(tmp_path / "in", consolidated=False)
    twice = r"its first point at its end.*ds.isel\(lon=slice\(None, -1\)\)"
    with pytest.raises(DataError, match=twice):
        GridGP().smooth_store(tmp_path / "in", "t", tmp_path / "out.zarr")


def test_targets_beyond_the_field_are_counted():
    da = globe(np.arange(200.0, 260, 5)).rename(lat="time")
    da = da.assign_coords(time=xr.date_range("2020-01-01", periods=5))
    options = {
        "kernels": {"time": Matern32(3.0, 1.0), "lon": Matern32(20.0)},
        "noise_variance": 1e-4,
    }
    options["learner"] = None
    with pytest.warns(
        DataWarning, match=r"2 of 3 targets.*'time', which has 2020-01-01 to 2020-01-05"
    ):
        da.dsgp.interp(time=["2019-12-30", "2020-01-02", "2020-02-01"], **options)
    with pytest.warns(DataWarning, match=r"1 of 2 targets.*'lon', which has 200 to 255 deg"):
        da.dsgp.interp(lon=xr.DataArray([-60.0, -105.0], dims="o"), **options)
    with pytest.warns(DataWarning, match=r"1 of 1 targets"):
        da.chunk(time=1).dsgp.interp(lon=150.0, **options).compute()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        da.dsgp.interp(lon=[197.6, 257.4], time="2020-01-05T06", **options)
        fitted(globe(np.arange(0, 360, 24))).predict(lon=[350.0, 359.0, -5.0])
