"""Fields in files become labelled arrays; cells are held out as elsewhere."""

import importlib.util

import cftime
import numpy as np
import pytest
import xarray as xr

from dsgp.errors import DataError, ParameterError
from pipelines.datasets import hold_out, load_field

DAYS = np.array([0.0, 1.0, 30.0])


def stored(folder, name="f", **changes):
    arrays = {
        "field": np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        "dims": np.array(["time", "lat", "lon"]),
        "time": DAYS,
        "lat": np.array([34.03, 34.01], dtype=np.float32),
        "lon": np.arange(4, dtype=np.float32),
        "units": "K",
        "time_units": "days since 2020-01-01",
    } | changes
    path = folder / f"{name}.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


@pytest.fixture
def holdout(shared):
    """The shared definition of the held-out cells."""
    path = shared / "bench" / "gaps" / "holdout.py"
    if not path.is_file():
        pytest.skip("needs ../shared/bench/gaps/holdout.py")
    spec = importlib.util.spec_from_file_location("holdout", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------- loading


def test_npz_becomes_a_labelled_array(tmp_path):
    field = load_field(stored(tmp_path))
    assert field.equals(load_field("f", data_dir=tmp_path))
    assert field.name == "f"
    assert field.dims == ("time", "lat", "lon")
    assert field.dtype == np.float64
    assert field.attrs == {"units": "K"}
    expected = np.array(["2020-01-01", "2020-01-02", "2020-01-31"], dtype="datetime64[ns]")
    np.testing.assert_array_equal(field["time"], expected)
    # The decimals that were meant, in the order of the file.
    np.testing.assert_array_equal(field["lat"], [34.03, 34.01])
    assert field["lat"].attrs["units"] == "degrees_north"
    np.testing.assert_array_equal(field[1, 1], [12, 13, 14, 15])


def test_calendar_in_brackets_is_that_of_the_times(tmp_path):
    field = load_field(stored(tmp_path, time_units="days since 1970-01-01 (360_day calendar)"))
    assert field["time"].values[2] == cftime.Datetime360Day(1970, 2, 1)


def test_years_before_1000_are_padded_in_silence(tmp_path, recwarn):
    days = np.array([711_000.0, 711_001.0, 711_002.0])
    field = load_field(stored(tmp_path, time=days, time_units="days since 1-1-1 00:00:0.0"))
    expected = cftime.num2date(711_000, "days since 0001-01-01", "standard")
    assert str(field["time"].values[0])[:10] == expected.strftime("%Y-%m-%d")
    assert not recwarn


def test_times_without_units_stay_numbers(tmp_path):
    field = load_field(stored(tmp_path, time_units=None, units=None))
    np.testing.assert_array_equal(field["time"], DAYS)
    assert field.attrs == {}


def test_sea_mask_is_a_coordinate(tmp_path):
    mask = np.arange(8).reshape(2, 4) % 3 == 0
    field = load_field(stored(tmp_path, sea_mask=mask))
    assert field["sea_mask"].dims == ("lat", "lon")
    np.testing.assert_array_equal(field["sea_mask"], mask)


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_variable_of_a_store_is_named_where_there_are_several(tmp_path, kind):
    field = load_field(stored(tmp_path))
    both = xr.Dataset({"a": field, "b": field + 1})
    path = tmp_path / f"two.{kind}"
    if kind == "nc":
        both.to_netcdf(path)
    else:
        both.to_zarr(path)
    assert load_field(path, variable="b").equals(field + 1)
    with pytest.raises(DataError, match=r"no variable was named; it holds a, b"):
        load_field(path)
    with pytest.raises(DataError, match=r"there is no 'c'"):
        load_field(path, variable="c")


def test_what_is_no_field_is_refused(tmp_path):
    np.savez(tmp_path / "table.npz", X=np.zeros((2, 2)), y=np.zeros(2))
    stored(tmp_path)
    with pytest.raises(DataError, match="no field and no dims"):
        load_field(tmp_path / "table.npz")
    with pytest.raises(DataError, match="no lat"):
        load_field(stored(tmp_path, "headless", lat=None))
    with pytest.raises(DataError, match=r"holds no g\.npz; fields there: f, headless"):
        load_field("g", data_dir=tmp_path)
    with pytest.raises(DataError, match="--data-dir"):
        load_field("f")
    with pytest.raises(DataError, match="there is no"):
        load_field(tmp_path / "absent.nc")
    with pytest.raises(DataError, match="holds one field"):
        load_field(tmp_path / "f.npz", variable="f")
    (tmp_path / "bad.npz").write_text("no archive")
    with pytest.raises(DataError, match="plain arrays"):
        load_field(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("name", "first", "units"),
    [
        ("alboran_sst_avhrr", "2017-05-14", "degC"),
        ("ersst_v5_monthly", "2012-09-01", "degC"),
        ("ostia_tropics_monthly", "2006-04-16", "K"),
        ("e1_north_america_air_temperature", "1860-06-01", "K"),
        ("hgt500_djf", "1948-01-15", "m"),
        ("sst_ndjfm_anomaly", "1963-01-15", "degC anomaly"),
    ],
)
def test_shared_fields_have_their_times(data_dir, name, first, units):
    field = load_field(name, data_dir=data_dir)
    assert str(field["time"].values[0])[:10] == first
    assert field.attrs["units"] == units
    with np.load(data_dir / f"{name}.npz") as arrays:
        np.testing.assert_array_equal(field.values, arrays["field"])


# ---------------------------------------------------------------------- held-out cells


def test_held_out_cells_are_apart_and_cover_the_observed():
    values = np.random.default_rng(0).standard_normal((3, 20, 30))
    values[:, :4] = np.nan
    held = hold_out(xr.DataArray(values), side=5)
    total = held.fit.astype(int) + held.points + held.clouds
    np.testing.assert_array_equal(total, np.isfinite(values).astype(int))
    assert held.points.any()
    assert held.clouds.any()
    np.testing.assert_array_equal(held.held, held.points | held.clouds)
    other = hold_out(xr.DataArray(values), side=5, seed=2)
    assert (other.points != held.points).any()


@pytest.mark.parametrize(("seed", "share", "side"), [(1, 0.05, 6), (4, 0.3, 11)])
def test_held_out_cells_are_those_of_the_shared_definition(holdout, seed, share, side):
    values = np.random.default_rng(seed).standard_normal((5, 25, 40))
    values[values > 1] = np.nan
    expected = holdout.masks(values, seed=seed, share=share, blocks=7, side=side)
    found = hold_out(xr.DataArray(values), seed=seed, share=share, blocks=7, side=side)
    for own, theirs in zip((found.fit, found.points, found.clouds), expected, strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_alboran_is_held_out_as_by_the_shared_definition(holdout, data_dir):
    field = load_field("alboran_sst_avhrr", data_dir=data_dir)
    found, expected = hold_out(field), holdout.masks(field.values)
    for own, theirs in zip((found.fit, found.points, found.clouds), expected, strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="side = 20"):
        hold_out(xr.DataArray(np.zeros((3, 20, 30))))
    with pytest.raises(DataError, match="three dims"):
        hold_out(xr.DataArray(np.zeros((30, 30))))
    with pytest.raises(ParameterError, match="share"):
        hold_out(xr.DataArray(np.zeros((3, 30, 30))), share=1.0)
