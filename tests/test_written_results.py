"""Every result can be written where fields are kept, whatever it came from, and read back."""

import warnings

import numpy as np
import pytest
import xarray as xr

import dsgp
from dsgp.errors import DataError, DataWarning
from dsgp.kernels import Matern32

pytestmark = pytest.mark.filterwarnings("ignore")

KNOWN = {
    "kernels": {"time": Matern32(3.0, 1.0), "lat": Matern32(2.0), "lon": Matern32(2.0)},
    "noise_variance": 0.01,
    "learner": None,
}


def field(dtype="f8"):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 4, 6))
    values[2, :2, 3] = np.nan
    grid = {
        "time": ("time", xr.date_range("2024-01-01", periods=5), {"bounds": "time_bnds"}),
        "lat": ("lat", np.arange(44.0, 40.0, -1, dtype="f4"), {"units": "degrees_north"}),
        "lon": np.arange(6.0),
        "area": (("lat", "lon"), rng.random((4, 6))),
    }
    ds = xr.Dataset({"sst": (tuple(grid)[:3], values.astype(dtype))}, grid)
    ds["sst"].attrs = {"units": "degC", "grid_mapping": "crs", "ancillary_variables": "sst_error"}
    ds["time_bnds"] = (("time", "nv"), np.zeros((5, 2)))
    ds["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude"})
    return ds


def from_netcdf(path):
    path = path.with_suffix(".nc")
    chunks = {"chunksizes": (5, 2, 3), "zlib": True, "dtype": "f4"}
    field().to_netcdf(path, encoding={"sst": chunks})
    return xr.load_dataset(path)


def from_netcdf3(path):  # big-endian
    path = path.with_suffix(".nc")
    field().to_netcdf(path, engine="scipy")
    return xr.load_dataset(path, engine="scipy")


def from_packed(path):
    path = path.with_suffix(".nc")
    packed = {"dtype": "i2", "scale_factor": 1e-3, "_FillValue": -32768}
    field().to_netcdf(path, encoding={"sst": packed})
    return xr.load_dataset(path, decode_coords="all")


def from_zarr(path, version=3, dtype="f8", **encoding):
    field(dtype).chunk(time=2).to_zarr(
        path, zarr_format=version, consolidated=False, encoding={"sst": encoding}
    )
    return xr.open_zarr(path, consolidated=False)


SOURCES = {
    "memory": lambda path: field(),
    "netcdf": from_netcdf,
    "netcdf3": from_netcdf3,
    "packed": from_packed,
    "zarr": lambda path: from_zarr(path).load(),
    "lazy zarr": from_zarr,
    "rechunked zarr": lambda path: from_zarr(path).chunk(time=3, lat=3, lon=5),
    "rechunked zarr 2": lambda path: from_zarr(path, 2).chunk(time=3, lat=3, lon=5),
    "sharded zarr": lambda path: (
        from_zarr(path, chunks=(1, 2, 3), shards=(2, 4, 6)).unify_chunks().chunk(time=3)
    ),
    "part of zarr": lambda path: (
        from_zarr(path).isel(time=slice(1, 5), lat=slice(0, 3)).chunk(time=3)
    ),
    "halves": lambda path: from_zarr(path, dtype="f2"),
    "halves in memory": lambda path: from_zarr(path, dtype="f2").load(),
    "big-endian": lambda path: field(">f4").assign_coords(lon=np.arange(6).astype(">f8")),
}
RESULTS = {
    "smooth": lambda da: da.dsgp.smooth(**KNOWN),
    "fill": lambda da: da.dsgp.fill(keep_observed=True, **KNOWN),
    "interp": lambda da: da.dsgp.interp(lat=[42.5, 43.0], time="2024-01-02T12", **KNOWN),
    "points": lambda da: da.dsgp.interp(
        lat=xr.DataArray([42.5, 43.0], dims="obs"),
        lon=xr.DataArray([1.5, 2.0], dims="obs"),
        **KNOWN,
    ),
    "sample": lambda da: dsgp.GridGP(**KNOWN).fit(da.load()).sample(2).to_dataset(name="draws"),
    "saved": "saved",
}


def result_of(name, da, path):
    if name != "saved":
        return RESULTS[name](da)
    dsgp.GridGP(**KNOWN).fit(da.load()).save(path)
    return dsgp.load(path).posterior()


def require_no_dangling(ds):
    for name, one in ds.variables.items():
        for key in ("bounds", "grid_mapping", "ancillary_variables", "coordinates"):
            for source in (one.attrs, one.encoding):
                assert set(str(source.get(key, "")).split()) <= set(ds.variables), (name, key)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["smooth", "interp"])
def test_round_trips(tmp_path, source, name):
    da = SOURCES[source](tmp_path / "in")["sst"]
    result = result_of(name, da, tmp_path / "model.zarr")
    for kind in ("nc", "zarr", "zarr2"):
        round_trip(result.copy(), tmp_path, kind)


@pytest.mark.parametrize("name", ["fill", "points", "sample", "saved"])
def test_round_trips_of_other_results(tmp_path, name):
    da = from_zarr(tmp_path / "in", dtype="f4").chunk(time=3)["sst"]
    result = result_of(name, da, tmp_path / "model.zarr")
    for kind in ("nc", "zarr"):
        round_trip(result.copy(), tmp_path, kind)


def round_trip(result, folder, kind):
    require_no_dangling(result)
    out = folder / f"out.{kind}"
    if kind == "nc":
        result.to_netcdf(out)
    else:
        result.to_zarr(out, zarr_format=2 if kind == "zarr2" else 3, consolidated=False)
    options = {} if kind == "nc" else {"engine": "zarr", "consolidated": False}
    with xr.open_dataset(out, decode_coords="all", **options) as back:
        assert set(back.variables) == set(result.variables)
        for one in set(result.data_vars) - {"time_bnds"}:  # which reading decodes
            rtol = 1e-6 if result[one].encoding.get("dtype") == np.float32 else 1e-12
            np.testing.assert_allclose(back[one], result[one], rtol=rtol, atol=1e-7)
            assert back[one].dims == result[one].dims
        for one in result.coords:
            np.testing.assert_array_equal(back[one], result[one])


@pytest.mark.parametrize("source", ["memory", "packed", "lazy zarr"])
def test_datasets_keep_what_describes_them(tmp_path, source):
    ds = SOURCES[source](tmp_path / "in")
    result = ds.dsgp.fill(variables="sst", **KNOWN)
    require_no_dangling(result)
    bounds = result["time"].attrs.get("bounds", result["time"].encoding.get("bounds"))
    assert bounds == "time_bnds"
    mean = result["sst_mean"]
    assert mean.attrs.get("grid_mapping", mean.encoding.get("grid_mapping")) == "crs"
    round_trip(result, tmp_path, "nc")
    moved = ds.dsgp.interp(time=["2024-01-02T12"], variables="sst", **KNOWN)
    require_no_dangling(moved)
    assert "time_bnds" not in moved.variables


@pytest.mark.parametrize("lazy", [False, True])
def test_coordinates_with_the_names_of_results(tmp_path, lazy):
    da = field()["sst"].assign_coords(mean=1.0, std=("lat", np.arange(4.0)))
    da = da.chunk(time=2) if lazy else da
    with pytest.warns(DataWarning, match=r"coordinates 'mean', 'std' are left out.*rename"):
        result = da.dsgp.smooth(**KNOWN)
    assert set(result.data_vars) == {"mean", "std"}
    round_trip(result, tmp_path, "nc")
    plain = da.drop_vars(["mean", "std"]).dsgp.smooth(**KNOWN)
    np.testing.assert_array_equal(result["mean"], plain["mean"])
    with pytest.raises(DataError, match=r"dim 'mean'.*rename"):
        da.drop_vars("mean").rename(lat="mean").dsgp.smooth()
    both = da.to_dataset().drop_vars(["mean", "std"]).assign_coords(mean=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        kept = both.dsgp.smooth(**KNOWN)
    assert float(kept["mean"]) == 1.0
    assert set(kept.data_vars) == {"sst_mean", "sst_std"}
