"""Of a Dataset, what an operation does not concern comes through as it was, bit by bit."""

import warnings

import numpy as np
import pytest
import xarray as xr

import dsgp  # noqa: F401  (registers the accessor)
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern32

SIZES = {"time": 5, "lat": 4, "lon": 6}


def known(*dims):
    """Options by which nothing is learnt."""
    kernels = {dim: Matern32(3.0, 1.0) for dim in dims}
    return {"kernels": kernels, "noise_variance": 0.01, "learner": None}


def cruise():
    """A field with gaps, and what files have beside it."""
    rng = np.random.default_rng(0)
    grid = {
        "time": xr.date_range("2024-01-01", periods=5),
        "lat": ("lat", np.arange(44.0, 40.0, -1), {"units": "degrees_north"}),
        "lon": np.arange(6.0),
        "area": (("lat", "lon"), rng.random((4, 6))),
        "ship": "RV",
        "unused": ("unused", [1, 2, 3]),
    }
    ds = xr.Dataset(coords=grid, attrs={"title": "a cruise", "history": "made"})
    cube = tuple(SIZES)
    values = 15 + rng.standard_normal(tuple(SIZES.values())).cumsum(0)
    values[1, :2, 2:4] = np.nan
    ds["sst"] = (cube, values, {"units": "degC", "ancillary_variables": "sst_quality"})
    ds["wind"] = (cube, rng.standard_normal((5, 4, 6)).astype("f4"), {"units": "m s-1"})
    ds["depth"] = (("lat", "lon"), rng.random((4, 6)).astype("f4"), {"units": "m"})
    ds["sst_quality"] = (cube, rng.integers(0, 5, (5, 4, 6)).astype("i1"))
    ds["mask"] = (cube, rng.integers(0, 2, (5, 4, 6)).astype("i1"), {
        "flag_values": np.array([0, 1], "i1"), "flag_meanings": "land sea"})  # fmt: skip
    ds["bits"] = (("time",), np.arange(5, dtype="u2"), {"flag_masks": [1, 2, 4]})
    ds["soil"] = (("lat", "lon"), rng.integers(1, 9, (4, 6)).astype("i2"), {"long_name": "class"})
    ds["decoded_soil"] = (("lat", "lon"), np.where(values[1] > 15, np.nan, 3.0).astype("f4"))
    ds["decoded_soil"].encoding = {"dtype": np.dtype("i2"), "_FillValue": -1}
    ds["cloudy"] = ds["sst"].isnull()
    ds["label"] = ("time", list("abcde"))
    ds["when"] = ("lat", np.arange(4).astype("M8[D]").astype("M8[ns]"))
    ds["time_bnds"] = (("time", "nv"), np.zeros((5, 2)))
    ds["time"].attrs["bounds"] = "time_bnds"
    ds["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude"})
    ds["scale"] = ((), 2.0)
    for name in ("wind", "depth", "soil"):
        ds[name].encoding = {"zlib": True, "dtype": ds[name].dtype, "chunksizes": ds[name].shape}
    ds.encoding = {"unlimited_dims": {"time"}}
    return ds


def require_unchanged(got, ds, *names):
    for name in names:
        assert name in got.variables, name
        one, other = got[name].variable, ds[name].variable
        assert one.dtype == other.dtype
        assert one.identical(other), name
        assert one.encoding == other.encoding
        assert name in got.coords or name in ds.data_vars


OTHERS = (
    "depth", "sst_quality", "mask", "bits", "soil", "decoded_soil", "cloudy", "label", "when",
    "time_bnds", "crs", "scale", "area", "ship", "unused", "time", "lat", "lon",
)  # fmt: skip


@pytest.mark.parametrize("lazy", [False, True])
def test_fill_changes_what_has_gaps_only(lazy):
    ds = cruise()
    source = ds.chunk(time=2) if lazy else ds
    options = {**known(*SIZES), **({"variables": ["sst"]} if lazy else {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        result = source.dsgp.fill(**options).load()
    require_unchanged(result, ds, *OTHERS[:-3], "wind", "lat", "lon", "time")
    assert set(result.data_vars) == set(ds.data_vars) - {"sst"} | {"sst_mean", "sst_std"}
    assert result.attrs == ds.attrs
    assert result.encoding["unlimited_dims"] == {"time"}
    alone = ds["sst"].dsgp.fill(**known(*SIZES))
    np.testing.assert_allclose(result["sst_mean"], alone["mean"])


def test_categories_are_reported_and_can_be_forced():
    ds = cruise()
    with pytest.warns(DataWarning, match="'soil', 'decoded_soil': integers without units.*variab"):
        result = ds.dsgp.smooth(**known(*SIZES))
    require_unchanged(result, ds, *(name for name in OTHERS if name != "depth"))
    assert {"wind_mean", "sst_std", "depth_mean"} < set(result)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ds.dsgp.smooth(variables=["mask", "soil"], **known(*SIZES))
    assert {"mask_mean", "soil_std", "sst", "wind"} < set(result)
    require_unchanged(result, ds, "sst", "wind", *set(OTHERS) - {"mask", "soil"})
    with pytest.raises(ParameterError, match="variables: the Dataset has no variable 'sat'"):
        ds.dsgp.smooth(variables="sat")
    with pytest.raises(DataError, match="variable 'label': "):
        ds.dsgp.smooth(variables="label")
    with pytest.raises(ParameterError, match="an option of a Dataset"):
        ds["sst"].dsgp.smooth(variables="sst")


def test_interp_leaves_alone_what_lacks_the_dim():
    ds = cruise()
    with pytest.warns(DataWarning) as told:
        result = ds.dsgp.interp(time="2024-01-02T12", **known(*SIZES))
    require_unchanged(
        result, ds, "depth", "soil", "decoded_soil", "when", "crs", "scale", "area", "lat", "lon"
    )
    lost = next(str(one.message) for one in told if "left out" in str(one.message))
    kept_out = "'mask', 'bits', 'cloudy', 'label': not a field, and along the interpolated 'time'"
    assert lost.startswith(kept_out)
    assert set(result.data_vars) == {
        "sst_mean", "sst_std", "wind_mean", "wind_std", "depth", "soil", "decoded_soil", "when",
        "crs", "scale",
    }  # fmt: skip
    assert result["sst_mean"].dims == ("lat", "lon")
    only = ds[["depth", "sst"]].dsgp.interp(lat=[42.5], **known(*SIZES))
    assert only["depth_mean"].sizes == {"lat": 1, "lon": 6}


def test_options_that_name_a_dim_which_one_variable_lacks():
    ds = cruise()[["sst", "depth"]]
    plain = ds["depth"].dsgp.smooth(**known("lat", "lon"))
    noise = xr.full_like(ds["time"], 0.02, dtype=float)
    for options in (
        {"mean": "time"},
        {"mean": "time.month"},
        {"units": {"time": "hours"}},
        {"mask": ds["sst"].notnull()},
        {"domain": ds["sst"].notnull()},
        {"mean": ds["sst"].mean("lat").fillna(0)},
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = ds.dsgp.smooth(**known(*SIZES), **options)
        array = next((key for key, one in options.items() if isinstance(one, xr.DataArray)), None)
        said = [str(one.message) for one in told if "does not apply to 'depth'" in str(one.message)]
        assert bool(said) == (array is not None)
        if options.get("mean") is None:
            np.testing.assert_allclose(result["depth_mean"], plain["mean"])
    with pytest.warns(DataWarning, match="noise_variance does not apply to 'depth'"):
        ds.dsgp.smooth(noise_variance=noise)
    with pytest.raises(ParameterError, match="x"):
        ds.dsgp.smooth({"x": Matern32()})


@pytest.mark.parametrize("taken", ["sst_mean", "sst_std"])
def test_names_that_are_taken_are_refused(taken):
    ds = cruise()[["sst"]]
    ds[taken] = ds["sst"].mean("time")
    with pytest.raises(
        ParameterError, match=f"'sst': the result would be called '{taken}'.*rename"
    ):
        ds.dsgp.fill(**known(*SIZES))
    result = ds.rename({taken: "climate"}).dsgp.fill(**known(*SIZES))
    assert {"sst_mean", "sst_std"} < set(result)
    assert ds.assign_coords(sst_mean=ds[taken])["sst"].dsgp.fill(**known(*SIZES))["mean"].any()


def test_nothing_to_fill_changes_nothing():
    ds = cruise()[["wind", "depth"]]
    xr.testing.assert_identical(ds.dsgp.fill(), ds)
    coded = ds.copy()
    coded["wind"] = ds["wind"].where(ds["wind"] < 1, -999.0).assign_attrs(missing_value=-999.0)
    with pytest.warns(DataWarning, match="'wind': .* cells are treated as missing"):
        assert "wind_mean" in coded.dsgp.fill(**known(*SIZES))
    masked = ds.dsgp.fill(mask=ds["wind"] < 1, variables="wind", **known(*SIZES))
    assert {"wind_mean", "depth"} <= set(masked)
