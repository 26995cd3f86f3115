"""Fields taken apart for storage and put together again."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dsgp import storage
from dsgp.errors import DataWarning
from dsgp.grid.field import Field
from dsgp.grid.stored import pack, unpack


def example(calendar, chunks):
    times = xr.date_range("2000-01-30T06:00", periods=5, freq="D", calendar=calendar)
    if calendar == "standard":
        times = times.as_unit("s")
    rng = np.random.default_rng(0)
    da = xr.DataArray(
        rng.random((3, 5)),
        {
            "lat": ("lat", np.array([3, 2.9, 2.8], "f4"), {"units": "degrees_north"}),
            "time": ("time", times, {"long_name": "day"}),
            "station / name": ("lat", ["Å", "b", "cc"]),
            "checked": ("lat", [True, False, True]),
            "lag": ("time", np.arange(5).astype("m8[h]").astype("m8[s]")),
            "depth": ((), np.float32(0.5)),
            "label": ((), "one"),
        },
        dims=("lat", "time"),
        name="sst",
        attrs={"units": "degC", "levels": np.array([1, 2]), "scale": np.float32(0.5)},
    )
    da = da.where(da > 0.2)
    da.encoding = {"dtype": np.dtype("f4"), "zlib": True, "chunksizes": (3, 1), "codec": object()}
    return da.chunk(lat=2) if chunks else da


@pytest.mark.parametrize("calendar", ["standard", "360_day", "julian", "noleap"])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_stored_field_is_the_field(tmp_path, calendar, chunks):
    da = example(calendar, chunks)
    field = Field.of(da, domain=xr.DataArray([True, True, False], {"lat": da.lat}))
    settings, tree = pack(field)
    storage.write(tmp_path / "field.zarr", "test", settings, tree)
    again = unpack(*storage.read(tmp_path / "field.zarr")[1:])
    assert again.dims == field.dims
    for name in ("values", "observed", "domain"):
        np.testing.assert_array_equal(getattr(again, name), getattr(field, name))
    for one, other in zip(again.axes, field.axes, strict=True):
        np.testing.assert_array_equal(one.points, other.points)
        assert one.settings() == other.settings()
    values = np.ones(field.shape)
    expected = field.restore(values)
    got = again.restore(values)
    for name in da.coords:
        assert got.coords[name].dtype == da.coords[name].dtype
    expected.attrs["levels"] = [1, 2]  # JSON has no arrays
    assert got.identical(expected)
    assert got.chunksizes == expected.chunksizes
    assert got.encoding == {"dtype": np.dtype("f4"), "zlib": True, "chunksizes": (3, 1)}
    # New coordinates fall on the same numbers.
    np.testing.assert_array_equal(again.axes[1].numbers(da.time), field.axes[1].numbers(da.time))


def test_a_complete_field_stores_no_mask():
    field = Field.of(xr.DataArray([1.0, 2.0], {"x": [0, 1]}))
    assert set(pack(field)[1]) == {"values", "coords", "points"}
    assert unpack(*pack(field)).observed is None


def test_other_objects_are_left_out_with_a_warning():
    bins = pd.IntervalIndex.from_breaks([0, 1, 2]).astype(object)
    field = Field.of(xr.DataArray([1.0, 2.0], {"x": [0, 1], "bin": ("x", bins)}, dims="x"))
    with pytest.warns(DataWarning, match=r"coordinate 'bin' of type object is not saved"):
        settings, tree = pack(field)
    assert list(unpack(settings, tree).template.coords) == ["x"]
