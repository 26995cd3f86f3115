"""``dsgp smooth`` of several files, groups, noise and masks as files have them, and remedies."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern32
from tests.cli.commands import smooth

KNOWN = ["--noise-variance", "0.04", "--fixed-noise", "--scales", "1"]


def field(seed=0):
    """Six days of a sea with land in a corner; errors and flags beside it."""
    rng = np.random.default_rng(seed)
    t, y, x = np.meshgrid(np.arange(6), np.arange(5), np.arange(6), indexing="ij")
    values = 15 + np.sin(t / 3 + y / 4) + np.cos(x / 3) + 0.2 * rng.standard_normal(t.shape)
    ds = xr.Dataset(
        {"sst": (("time", "lat", "lon"), values, {"units": "K"})},
        {
            "time": xr.date_range("2024-01-01", periods=6),
            "lat": ("lat", np.arange(5.0), {"units": "degrees_north"}),
            "lon": ("lon", np.arange(6.0), {"units": "degrees_east"}),
        },
    )
    land = (ds.lat + ds.lon > 6) | (ds.lon == 0)
    ds["sst"] = ds["sst"].where(~land).assign_attrs(units="K")
    ds["land"] = land.astype("i1")
    ds["error"] = (0.2 + 0.0 * ds.lon).assign_attrs(units="K")
    return ds


def result_of(path):
    return xr.open_dataset(path, engine="zarr").load()


def test_several_files_are_joined_along_time(tmp_path):
    ds = field()
    ds.to_netcdf(tmp_path / "all.nc")
    for k, days in enumerate((slice(4, 6), slice(0, 1), slice(1, 4))):
        ds.isel(time=days).to_netcdf(tmp_path / f"part-{k}.nc")
    common = [
        "--variable",
        "sst",
        "--domain",
        "observed",
        "--noise-variance",
        "0.04",
        "--fixed-noise",
        "--scales",
        1,
    ]
    smooth(tmp_path / "all.nc", "--out", tmp_path / "a.zarr", *common)
    smooth(tmp_path / "part-*.nc", "--out", tmp_path / "b.zarr", *common)
    parts = [tmp_path / f"part-{k}.nc" for k in (2, 0, 1)]
    smooth(*parts, tmp_path / "part-[01].nc", "--out", tmp_path / "c.zarr", *common)
    expected = result_of(tmp_path / "a.zarr")
    for name in ("b", "c"):
        got = result_of(tmp_path / f"{name}.zarr")
        for one in expected.data_vars:
            np.testing.assert_allclose(got[one], expected[one], rtol=1e-12)
        np.testing.assert_array_equal(got.time, ds.time)


def test_files_that_do_not_join_are_reported(tmp_path):
    ds = field()
    ds.isel(time=slice(0, 4)).to_netcdf(tmp_path / "a.nc")
    ds.isel(time=slice(2, 6)).to_netcdf(tmp_path / "overlap.nc")
    ds.isel(time=slice(4, 6), lat=slice(0, 3)).to_netcdf(tmp_path / "smaller.nc")
    for other in ("overlap", "smaller"):
        with pytest.raises(DataError, match=r"2 files.*do not join into one field.*same variables"):
            smooth(tmp_path / "a.nc", tmp_path / f"{other}.nc", "--out", tmp_path / "out.zarr")
    with pytest.raises(DataError, match=r"no file matches the pattern '.*b-\*.nc'"):
        smooth(tmp_path / "b-*.nc", "--out", tmp_path / "out.zarr")
    with pytest.raises(DataError, match=r"there is no '.*b.nc'"):
        smooth(tmp_path / "b.nc", "--out", tmp_path / "out.zarr")
    options = ["--variable", "sst", "--memory", "2kB"]
    ds.isel(time=slice(4, 6)).to_netcdf(tmp_path / "rest.nc")
    with pytest.raises(ParameterError, match=r"one store without --group.*open_mfdataset"):
        smooth(tmp_path / "a.nc", tmp_path / "rest.nc", "--out", tmp_path / "out.zarr", *options)


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_a_group_of_a_file(tmp_path, ending):
    ds, path = field(), tmp_path / f"in.{ending}"
    xr.DataTree.from_dict({"/": xr.Dataset(attrs={"a": 1}), "/surface/daily": ds}).to_netcdf(
        path
    ) if ending == "nc" else ds.to_zarr(path, group="surface/daily", consolidated=False)
    common = ["--variable", "sst", "--domain", "observed", *KNOWN]
    smooth(path, "--group", "surface/daily", "--out", tmp_path / "out.zarr", *common)
    expected = (
        GridGP(noise_variance=0.04, fixed_noise=True, scales=1)
        .fit(ds["sst"], domain="observed")
        .posterior()
    )
    got = result_of(tmp_path / "out.zarr")
    means = [name for name in got.data_vars if got[name].dims == ds["sst"].dims]
    np.testing.assert_allclose(got[means[0]], expected["mean"], rtol=1e-5)
    with pytest.raises(DataError, match=r"--group 'deep' must be one of its groups"):
        smooth(path, "--group", "deep", "--out", tmp_path / "out2.zarr", *common)


def test_noise_in_the_units_of_the_field_is_squared_or_refused(tmp_path):
    ds = field()
    ds["variance"] = (ds["error"] ** 2).assign_attrs(units="K2")
    ds["unknown"] = (ds["error"] ** 2).drop_attrs()
    ds["se"] = ds["unknown"].assign_attrs(standard_name="sea_surface_temperature standard_error")
    ds.to_netcdf(tmp_path / "in.nc")
    common = ["--variable", "sst", "--domain", "observed", "--scales", 1]
    results = []
    for k, noise in enumerate(("error^2", "variance", "unknown")):
        smooth(
            tmp_path / "in.nc", "--noise-variance", noise, "--out", tmp_path / f"{k}.zarr", *common
        )
        results.append(result_of(tmp_path / f"{k}.zarr"))
    for got in results[1:]:
        for one in results[0].data_vars:
            np.testing.assert_allclose(got[one], results[0][one], rtol=1e-9)
    for noise, told in (("error", "is in 'K', as the field is"), ("se", "is a standard error")):
        message = rf"--noise-variance '{noise}' {told}.*--noise-variance '{noise}\^2'"
        with pytest.raises(ParameterError, match=message):
            smooth(
                tmp_path / "in.nc",
                "--noise-variance",
                noise,
                "--out",
                tmp_path / "out.zarr",
                *common,
            )


def test_an_inverted_mask_is_noticed(tmp_path):
    ds = field()
    ds["sst"][0, 4, 5] = 14.0  # a value on land
    sst, land = ds["sst"], ds["land"] == 1
    known = {"noise_variance": 0.04, "learner": None, "scales": 1}
    model = GridGP({"time": _kernel(1.0), "lat": _kernel(), "lon": _kernel()}, **known)
    with pytest.warns(DataWarning, match=r"mask: 114 of 115 cells with a value.*other way round"):
        model.fit(sst, mask=land)
    with pytest.warns(DataWarning, match=r"domain: 114 of 115 cells with a value.*stay empty"):
        model.fit(sst, domain=land)
    with pytest.raises(DataError, match=r"no cell of the field is observed.*pass ~mask"):
        model.fit(sst.where(~land), mask=land)
    ds.to_netcdf(tmp_path / "in.nc")
    common = ["--variable", "sst", *KNOWN]
    with pytest.warns(DataWarning, match=r"mask: 114 of 115 .*--mask NAME=0"):
        smooth(tmp_path / "in.nc", "--mask", "land", "--out", tmp_path / "a.zarr", *common)
    options = ["--mask", "land=0", "--domain", "land=0"]
    smooth(tmp_path / "in.nc", *options, "--out", tmp_path / "b.zarr", *common)
    got = result_of(tmp_path / "b.zarr")
    for one in got.data_vars:
        if got[one].dims == sst.dims:
            assert (got[one].isnull() == land).all()
    with pytest.raises(ParameterError, match=r"--mask 'land=sea': expected NAME or NAME=NUMBER"):
        smooth(tmp_path / "in.nc", "--mask", "land=sea", "--out", tmp_path / "c.zarr", *common)


@pytest.mark.filterwarnings("error::dsgp.errors.DataWarning")
def test_strict_masks_are_none_of_the_inverted_ones():
    sst = field()["sst"].fillna(15.0)
    known = {"noise_variance": 0.04, "learner": None, "scales": 1}
    model = GridGP({"time": _kernel(1.0), "lat": _kernel(), "lon": _kernel()}, **known)
    model.fit(sst, mask=sst > float(sst.quantile(0.8)))  # flags that leave out most
    model.fit(field()["sst"], mask=field()["land"] == 0)


def _kernel(variance=None):
    return Matern32(3.0, variance)


def test_curvilinear_grids_and_unequal_months_come_with_a_remedy(tmp_path):
    rng = np.random.default_rng(0)
    where = {name: (("y", "x"), rng.random((4, 5))) for name in ("lat", "lon")}
    curved = xr.Dataset({"sst": (("y", "x"), rng.random((4, 5)))}, where)
    curved.to_netcdf(tmp_path / "curved.nc")
    for options in ([], ["--variable", "sst"]):
        with pytest.raises(DataError, match=r"curvilinear.*assign_coords\(y=numpy.arange\(4\), x="):
            smooth(tmp_path / "curved.nc", "--out", tmp_path / "out.zarr", *options)
    ds = field().drop_vars("time")
    for unit, step in (("months", "MS"), ("years", "YS")):
        path = tmp_path / f"{unit}.nc"
        times = ("time", np.arange(6) + 0.5, {"units": f"{unit} since 1960-01-01"})
        ds.assign_coords(time=times).to_netcdf(path)
        remedy = rf"times in {unit}.*decode_times=False.*'1990-01-01'.*freq='{step}'"
        with pytest.raises(DataError, match=remedy):
            smooth(path, "--out", tmp_path / "out.zarr")
        opened = xr.open_dataset(path, decode_times=False)
        opened["time"] = xr.date_range("1990-01-01", periods=opened.sizes["time"], freq=step)
        GridGP(noise_variance=0.04, fixed_noise=True, scales=1).fit(opened["sst"])
