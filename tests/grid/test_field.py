"""Fields: layout there and back, masks, domains, errors."""

import dask.array
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError, ParameterError
from dsgp.grid.field import Field, static_gaps
from dsgp.grid.targets import Targets

SIZES = {"time": 4, "lat": 3, "lon": 5}


def example(order=("time", "lat", "lon"), falling=(), chunks=None, gaps=True, calendar="standard"):
    """A field whose value names its cell: 100 time + 10 lat + lon, each counted upwards."""
    rng = np.random.default_rng(0)
    cftimes = calendar != "standard"
    times = xr.date_range("2000-01-01", periods=4, freq="6h", calendar=calendar, use_cftime=cftimes)
    ds = xr.Dataset(
        coords={
            "time": times,
            "lat": ("lat", np.array([34.01, 34.03, 34.05], dtype="f4"), {"units": "degrees_north"}),
            "lon": ("lon", [0, 2, 4, 6, 8]),
            "area": (("lat", "lon"), rng.random((3, 5))),
            "cruise": ("time", list("abcd")),
            "depth": ((), 0.5, {"units": "m"}),
        }
    )
    cells = np.add.outer(np.add.outer(100.0 * np.arange(4), 10.0 * np.arange(3)), np.arange(5.0))
    if gaps:
        cells[rng.random(cells.shape) < 0.3] = np.nan
    da = xr.DataArray(
        cells, ds.coords, dims=tuple(SIZES), name="sst", attrs={"units": "degC", "note": "x"}
    )
    da = da.isel({dim: slice(None, None, -1) for dim in falling}).transpose(*order)
    da.encoding = {"zlib": True, "complevel": 4, "dtype": np.dtype("f4"), "_FillValue": -9.0}
    return da if chunks is None else da.chunk(chunks)


layouts = {
    "order": st.permutations(list(SIZES)),
    "falling": st.sets(st.sampled_from(list(SIZES))),
    "calendar": st.sampled_from(["standard", "360_day", "noleap"]),
}


@given(
    **layouts,
    chunks=st.none() | st.fixed_dictionaries({d: st.integers(1, n) for d, n in SIZES.items()}),
    gaps=st.booleans(),
)
@settings(max_examples=60)
def test_any_layout_is_read_ascending_and_given_back(order, falling, calendar, chunks, gaps):
    da = example(order, falling, chunks, gaps, calendar)
    field = Field.of(da)
    plain = example(gaps=gaps, calendar=calendar).transpose(*order)
    assert field.dims == tuple(order)
    assert field.values.flags.c_contiguous
    np.testing.assert_array_equal(field.values, plain.values)
    assert {axis.name for axis in field.axes if axis.descending} == falling
    if gaps:
        np.testing.assert_array_equal(field.observed, plain.notnull())
        assert field.n_observed == int(plain.count())
    else:
        assert field.observed is None
        assert field.n_observed == 60
    back = field.restore(field.values)
    assert back.identical(da)  # dims, coordinates, attributes, name
    assert back.encoding == da.encoding
    assert back.chunksizes == da.chunksizes
    assert (chunks is None) == isinstance(back.data, np.ndarray)


@given(**layouts, mask_order=st.permutations(list(SIZES)), mask_falling=layouts["falling"])
@settings(max_examples=40)
def test_masks_are_matched_by_their_coordinates(order, falling, calendar, mask_order, mask_falling):
    da = example(order, falling, gaps=False, calendar=calendar)
    used = example(mask_order, mask_falling, gaps=False, calendar=calendar) % 3 != 0
    field = Field.of(da, mask=used)
    expected = da.where(da % 3 != 0)
    assert field.restore(field.values).identical(expected)
    assert field.n_observed == int(expected.count())
    # One that lacks dims holds for every step of these.
    some = used.isel(time=0, drop=True)
    np.testing.assert_array_equal(Field.of(da, mask=some).values, Field.of(da.where(some)).values)
    # Without coordinates, or as an array of the field's shape, it goes by position.
    bare = (da % 3 != 0).drop_vars(["time", "lat", "lon"])
    for mask in (bare, bare.values, bare.values.tolist()):
        np.testing.assert_array_equal(Field.of(da, mask=mask).values, field.values)


def test_masks_in_float64_fit_fields_in_float32():
    da = example()
    mask = xr.DataArray([True, False, True], {"lat": [34.05, 34.03, 34.01]})
    field = Field.of(da, mask=mask)
    assert np.isnan(field.values[:, 1]).all()
    assert not np.isnan(field.values[:, [0, 2]]).all()


def test_arrays_that_go_with_the_field_are_aligned():
    field = Field.of(example(("lon", "time", "lat"), {"lat", "lon"}))
    noise = xr.DataArray(
        [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], {"lon": [8, 6, 4, 2, 0]}, dims=("lon", "z")
    ).isel(z=0, drop=True)
    np.testing.assert_array_equal(
        field.align(noise, "noise"), np.reshape([9, 7, 5, 3, 1], (5, 1, 1))
    )


@pytest.mark.parametrize("dtype", ["i2", "u1", "i8", "f4", ">f4"])
def test_other_numbers_become_float64(dtype):
    da = example(gaps=False).isel(time=slice(2)).astype(dtype)
    field = Field.of(da)
    assert field.values.dtype == np.float64
    np.testing.assert_array_equal(field.values, da.values.astype(float))
    assert field.values is not da.values


def test_the_values_are_a_copy():
    da = example()
    field = Field.of(da)
    before = field.values.copy()
    da[:] = 0
    np.testing.assert_array_equal(field.values, before)


def test_results_share_no_metadata_with_the_field():
    da = example()
    field = Field.of(da)
    out = field.restore(field.values)
    out.attrs["units"] = out.lat.attrs["units"] = "changed"
    out.encoding["zlib"] = False
    assert field.restore(field.values).identical(da)
    assert (da.attrs["units"], da.lat.attrs["units"]) == ("degC", "degrees_north")
    assert da.encoding["zlib"]
    da.lat.attrs["units"] = da.attrs["units"] = "new"
    assert field.restore(field.values).lat.attrs["units"] == "degrees_north"


def test_a_whole_slice_may_be_missing():
    da = example()
    da[1] = np.nan
    field = Field.of(da)
    assert np.isnan(field.values[1]).all()
    assert not field.observed[1].any()


def test_cells_outside_the_domain_stay_empty():
    da = example(("lon", "lat", "time"), {"lon"}, chunks={"lon": 2})
    sea = xr.DataArray(np.arange(15).reshape(3, 5) != 3, {"lat": da.lat, "lon": [0, 2, 4, 6, 8]})
    field = Field.of(da, domain=sea)
    assert field.domain.shape == (5, 3, 1)
    assert field.n_observed == int(da.count())  # an observation on land still counts
    out = field.restore(np.ones(field.shape))
    assert out.dims == da.dims
    assert out.chunksizes == da.chunksizes
    assert out.attrs == da.attrs
    assert bool(out.isnull().any("time").sel(lat=da.lat[0], lon=6))
    assert int(out.isnull().sum()) == 4
    draws = field.restore(np.ones((7, *field.shape)), leading=("sample",))
    assert draws.dims == ("sample", *da.dims)
    assert int(draws.isnull().sum()) == 28


def test_land_is_what_is_never_observed():
    da = example()
    da[:, 1, 3] = np.nan
    field = Field.of(da.isel(lat=slice(None, None, -1)))
    expected = da.isnull().all("time").values
    assert expected[1, 3]
    np.testing.assert_array_equal(field.static_gaps("time")[0], expected)
    np.testing.assert_array_equal(static_gaps(field.observed, 0)[0], expected)
    assert field.static_gaps("time", "lat").shape == (1, 1, 5)
    whole = Field.of(example(gaps=False)).static_gaps("time")
    assert whole.shape == (1, 3, 5)
    assert not whole.any()
    with pytest.raises(ParameterError, match=r"static_gaps: 'day' is not a dim"):
        field.static_gaps("day")


def test_lazy_values_stay_lazy():
    da = example(("lat", "time", "lon"), {"lat"}, chunks={"lat": 1, "lon": 2})
    field = Field.of(da)

    def fail():
        raise AssertionError("computed")

    lazy = dask.array.map_blocks(
        lambda block: fail(), dask.array.ones(field.shape), dtype=float, meta=np.empty((0, 0, 0))
    )
    out = field.restore(lazy)
    assert out.chunksizes == da.chunksizes
    with pytest.raises(AssertionError, match=r"computed"):
        out.compute()


def test_other_coordinates_are_placed_as_given():
    da = example(("lat", "time", "lon"), {"lat", "lon"}, chunks={"lat": 1})
    field = Field.of(da)
    values = np.arange(3 * 2 * 5.0).reshape(3, 2, 5)
    new = xr.DataArray(np.array(["2000-03-01", "2000-02-01"], dtype="M8[s]"), dims="time")
    targets = Targets.of(field.axes, {"time": new})
    out = field.restore(values, targets=targets, name="mean", attrs={"units": "K"})
    assert out.dims == da.dims
    assert (out.name, out.attrs) == ("mean", {"units": "K"})
    np.testing.assert_array_equal(out.time, new)
    np.testing.assert_array_equal(out.values, values[::-1, :, ::-1])
    assert set(out.coords) == {"time", "lat", "lon", "area", "depth"}  # not the cruise
    assert out.area.identical(da.area)
    assert out.chunksizes["lat"] == (1, 1, 1)
    one = field.restore(np.ones((1, 4, 5)), targets=Targets.of(field.axes, {"lat": 34.02}))
    assert one.dims == ("time", "lon")
    assert float(one.lat) == 34.02
    assert one.lat.attrs == {"units": "degrees_north"}
    march = Targets.of(field.axes, {"time": "2000-03-01"})
    text = field.restore(np.ones((3, 1, 5)), targets=march)
    assert text.time.dtype.kind == "M"
    assert text.time == np.datetime64("2000-03-01")
    with pytest.raises(ParameterError, match=r"coords: 'lev' is not a dim"):
        Targets.of(field.axes, {"lev": [1]})
    with pytest.raises(DataError, match=r"expected values of shape \(sample, 3, 4, 5\), got"):
        field.restore(values, leading=("sample",))
    with pytest.raises(DataError, match=r"dim 'depth' of its own.*rename"):
        field.restore(np.ones((2, *field.shape)), leading=("depth",))


def test_encodings_of_packed_numbers_are_dropped():
    da = example()
    da.encoding = {
        "dtype": np.dtype("i2"), "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768,
        "missing_value": -32768, "zlib": True, "complevel": 4, "chunksizes": (1, 3, 5),
        "least_significant_digit": 1, "units": "degC",
    }  # fmt: skip
    field = Field.of(da)
    kept = {"zlib": True, "complevel": 4, "chunksizes": (1, 3, 5), "units": "degC"}
    assert field.restore(field.values).encoding == kept
    assert da.encoding["scale_factor"] == 0.01
    first = Targets.of(field.axes, {"time": da.time[:1]})
    assert field.restore(field.values[:1], targets=first).encoding == {}


def test_ranges_of_the_data_are_not_claimed_for_results():
    da = example()
    da.attrs |= {"valid_range": [0, 400], "actual_range": [0, 1], "valid_max": 500}
    assert Field.of(da).restore(np.ones(da.shape)).attrs == {"units": "degC", "note": "x"}


@pytest.mark.parametrize("kind", ["netcdf4", "zarr2", "zarr3", "packed netcdf4", "packed zarr3"])
def test_results_can_be_stored_where_the_field_came_from(tmp_path, kind):
    da = example(falling={"lat"}).drop_vars("cruise")
    da.encoding = {}
    if "packed" in kind:
        da.encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -99}
    engine = kind.split()[-1]
    path = str(tmp_path / "in")

    def write(array, path):
        ds = array.to_dataset(name="sst")
        if "zarr" in engine:
            ds.to_zarr(path, zarr_format=int(engine[-1]), consolidated=False)
        else:
            ds.to_netcdf(path, engine=engine)

    def read(path):
        if "zarr" in engine:
            return xr.open_zarr(path, consolidated=False)["sst"]
        return xr.open_dataset(path, engine=engine, chunks={"time": 2})["sst"]

    write(da, path)
    with read(path) as stored:
        field = Field.of(stored)
        out = field.restore(field.values + 0.001)
        write(out, str(tmp_path / "out"))
    with read(str(tmp_path / "out")) as again:
        assert again.dtype == np.float64
        np.testing.assert_array_equal(again.values, out.values)
        assert again.attrs == da.attrs
        assert again.lat.identical(da.lat)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda da: da.values, {}, "DataArray, got ndarray; wrap it"),
        (lambda da: da.to_dataset(), {}, r"got Dataset; choose a variable: ds\['sst'\]"),
        (lambda da: da > 1, {}, "dtype bool; expected floats.*astype.float"),
        (lambda da: da.astype(complex), {}, "dtype complex128.*da.real"),
        (lambda da: da.astype(str), {}, "dtype <U.*astype.float"),
        (lambda da: da.astype("m8[s]"), {}, "dtype timedelta64.*divide"),
        (lambda da: da * np.nan, {}, "no cell.*observed: 0 of 60 hold a value; expected at least"),
        (lambda da: da.where(da != 11, np.inf), {},
         r"infinite in 1 of 60 cells, such as isel\(time=0, lat=1, lon=1\)"),
        (lambda da: da.drop_vars("lon"), {}, "'lon' has no coordinate.*assign_coords"),
        (lambda da: da.where(da % 3 != 0, -999), {},
         r"20 of the values are exactly -999.*from 1 to 323"),
        (lambda da: da.assign_attrs(valid_max=5), {}, "55 of 60 values are 55 above valid_max"),
        (lambda da: da, {"mask": np.ones((4, 3), bool)},
         r"mask: expected the shape.*'lon': 5.*got \(4, 3\)"),
        (lambda da: da, {"mask": lambda da: da}, "mask: expected True and False, got float64"),
        (lambda da: da, {"mask": lambda da: da > 1e9}, "60 of 60.*the mask leaves out all"),
        (lambda da: da, {"mask": lambda da: (da > 1).isel(lat=slice(2))},
         "mask: expected 3 points along 'lat', as the field has, got 2"),
        (lambda da: da, {"mask": lambda da: (da > 1).assign_coords(lat=[1, 2, 34.01])},
         "mask: expected the coordinates.*'lat', got 1.0, which it lacks.*assign_coords"),
        (lambda da: da, {"mask": lambda da: (da > 1).assign_coords(lon=[0, 2, 4, 6, 6])},
         "along 'lon', got one of them twice"),
        (lambda da: da, {"mask": lambda da: (da > 1).rename(lat="y")},
         "mask: expected dims among.*got 'y'"),
        (lambda da: da, {"mask": lambda da: (da > 1).assign_coords(time=range(4))},
         "'time': expected dates"),
        (lambda da: da, {"domain": lambda da: da > 1e9}, "domain leaves no cell.*~domain"),
        (lambda da: da, {"domain": lambda da: da}, "domain: expected True and False"),
    ],
)  # fmt: skip
def test_unusable_fields_and_masks_are_refused(change, options, message):
    da = example(gaps=False)
    made = {key: value(da) if callable(value) else value for key, value in options.items()}
    with pytest.raises(DataError, match=f"(?s){message}"):
        Field.of(change(da), **made)


def test_positions_in_messages_are_the_user_s():
    da = example(falling={"lat"}, gaps=False)
    da[3, 0, 2] = -np.inf
    with pytest.raises(DataError, match=r"isel\(time=3, lat=0, lon=2\)"):
        Field.of(da)


def test_what_the_mask_leaves_out_may_hold_anything():
    da = example(gaps=False).assign_attrs(_FillValue=-99)
    da[0, 0, 0], da[0, 0, 1] = np.inf, -99
    mask = np.ones(da.shape, dtype=bool)
    mask[0, 0, :2] = False
    assert Field.of(da, mask=mask).n_observed == 58
