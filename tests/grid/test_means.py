"""Means of fields: what xarray's own averages say, on the field's grid and on others."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError, ParameterError
from dsgp.grid.field import Field
from dsgp.grid.means import Mean


def example(n=30, calendar="standard", freq="MS", gaps=0.3, falling=(), seed=0):
    rng = np.random.default_rng(seed)
    times = xr.date_range(
        "2000-01-01", periods=n, freq=freq, calendar=calendar, use_cftime=calendar != "standard"
    )
    da = xr.DataArray(
        rng.normal(10, 3, (n, 3, 4)),
        {"time": times, "lat": [10.0, 20.0, 40.0], "lon": [0.0, 1.0, 2.0, 3.0]},
        dims=("time", "lat", "lon"),
    )
    da = da.where(rng.random(da.shape) >= gaps)
    return da.isel({dim: slice(None, None, -1) for dim in falling})


def in_layout(mean, field):
    return field.restore(mean.on_field())


def test_numbers():
    da = example()
    field = Field.of(da)
    average = float(da.mean())
    for spec, value in (("constant", average), ("zero", 0.0), (3, 3.0), (np.float32(2.5), 2.5)):
        mean = Mean.of(spec, field)
        assert mean.constant == pytest.approx(value, rel=1e-14)
        assert mean.table.size == 1
        assert mean.on_field().shape == field.shape
        np.testing.assert_allclose(mean.on_field(), value, rtol=1e-14)
        np.testing.assert_allclose(
            mean.at({"lat": [0, 99.0], "lon": 7}), np.full((30, 2, 1), value)
        )


@given(
    dim=st.sampled_from(["time", "lat", "lon"]),
    falling=st.sets(st.sampled_from(["time", "lat", "lon"])),
    gaps=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=15)
def test_average_over_a_dim_is_xarray_s(dim, falling, gaps):
    da = example(gaps=gaps, falling=falling)
    field = Field.of(da)
    mean = Mean.of(dim, field)
    assert mean.table.shape[field.dims.index(dim)] == 1
    # Where nothing is observed along the dim, the average of the field stands in.
    expected = da.mean(dim).fillna(da.mean()).broadcast_like(da)
    xr.testing.assert_allclose(in_layout(mean, field), expected.transpose(*da.dims), rtol=1e-13)


@pytest.mark.parametrize("calendar", ["standard", "360_day", "noleap"])
@pytest.mark.parametrize("part", ["month", "season", "year", "dayofyear", "hour"])
@pytest.mark.parametrize("falling", [(), ("time", "lat")])
def test_average_by_a_part_of_the_date_is_xarray_s_climatology(calendar, part, falling):
    da = example(60, calendar, freq="360h" if part != "hour" else "6h", gaps=0.0, falling=falling)
    field = Field.of(da)
    mean = Mean.of(f"time.{part}", field)
    groups = da[f"time.{part}"]
    expected = da.groupby(groups).mean().sel({part: groups}).drop_vars(part)
    xr.testing.assert_allclose(in_layout(mean, field), expected, rtol=1e-13)
    # The same dates again, in another order, and elsewhere in the field.
    order = np.random.default_rng(1).permutation(60)[:20]
    at = mean.at({"time": da.time.values[order]})
    np.testing.assert_allclose(at, field.restore(mean.on_field()).values[order][
        :, :: -1 if falling else 1], rtol=1e-13)  # fmt: skip


def test_stand_ins_for_groups_without_observations():
    da = example(24, gaps=0.0)
    da[{"time": [2, 14], "lat": 0, "lon": 0}] = np.nan  # no March here
    da[:, 1, 1] = np.nan  # never
    da[{"time": [5, 17]}] = np.nan  # no June anywhere
    field = Field.of(da)
    table = in_layout(Mean.of("time.month", field), field)
    cell = da.mean("time")
    assert float(table[2, 0, 0]) == pytest.approx(float(cell[0, 0]))  # the cell's average
    march = float(da.isel(time=[2, 14]).mean())
    assert float(table[2, 1, 1]) == pytest.approx(march)  # the group's
    assert float(table[5, 2, 2]) == pytest.approx(float(cell[2, 2]))
    assert float(table[5, 1, 1]) == pytest.approx(float(da.mean()))  # neither: the constant
    known = da.isel(time=[1, 13]).mean("time")
    np.testing.assert_allclose(table[1].values[0], known[0])
    over_time = in_layout(Mean.of("time", field), field)
    assert float(over_time[0, 1, 1]) == pytest.approx(float(da.mean()))


def test_labels_not_seen_take_the_cell_s_average():
    da = example(5, gaps=0.0)  # January to May
    mean = Mean.of("time.month", Field.of(da))
    at = mean.at({"time": ["2011-08-07", "1990-02-03"]})
    np.testing.assert_allclose(at[0], da.mean("time"))
    np.testing.assert_allclose(at[1], da[1])
    model = Mean.of("time.month", Field.of(example(5, "360_day", gaps=0.0)))
    later = xr.date_range("2020-02-30", periods=2, calendar="360_day", use_cftime=True)
    np.testing.assert_allclose(model.at({"time": later}), model.table[[1, 2]])


def test_a_given_field_is_matched_by_its_coordinates():
    da = example(falling={"lat"})
    climate = xr.DataArray(
        [[1.0, 2.0, 3.0]] * 4, {"lon": da.lon, "lat": [10.0, 20.0, 40.0]}, dims=("lon", "lat")
    )
    field = Field.of(da)
    mean = Mean.of(climate, field)
    assert mean.table.shape == (1, 3, 4)
    expected = climate.broadcast_like(da).transpose(*da.dims).sel(lat=da.lat)
    xr.testing.assert_allclose(in_layout(mean, field), expected)
    whole = Mean.of(da.fillna(0).transpose("lon", "lat", "time"), field)
    assert in_layout(whole, field).identical(da.fillna(0))


@given(st.lists(st.floats(-20, 60), min_size=1, max_size=5), st.booleans())
@settings(max_examples=30)
def test_other_grids_are_linear_and_constant_outside(lats, falls):
    field = Field.of(example(gaps=0.0, falling={"lat"} if falls else ()))
    mean = Mean.of("time", field)
    plain = mean.table[0]  # (lat, lon)
    lons = [2.5, 0.0, -9.0, 3.0]
    got = mean.at({"lat": lats, "lon": lons})
    assert got.shape == (30, len(lats), 4)
    by_lat = np.stack([np.interp(lats, [10, 20, 40], column) for column in plain.T], axis=1)
    by_both = np.stack([np.interp(lons, range(4), row) for row in by_lat])
    np.testing.assert_allclose(got[7], by_both, rtol=1e-12)


def test_a_point_of_the_grid_does_not_see_its_neighbours():
    da = example(gaps=0.0)
    da[:, 1] = np.nan
    climate = da.mean("time")
    field = Field.of(da)
    mean = Mean.of(climate, field)
    assert np.isnan(mean.on_field()[:, 1]).all()  # no number was given there, and none is observed
    got = mean.at({"lat": [10.0, 40.0, 30.0, 99.0]})
    np.testing.assert_allclose(got[0, [0, 1, 3]], climate.values[[0, 2, 2]])
    assert np.isnan(got[:, 2]).all()


def test_axes_of_one_point():
    da = example(1, gaps=0.0).isel(lat=[1])
    mean = Mean.of(da, Field.of(da))
    np.testing.assert_allclose(mean.at({"lat": [0.0, 1.0]}), da.values.repeat(2, axis=1))
    np.testing.assert_allclose(Mean.of("time.month", Field.of(da)).on_field(), da.values)


@pytest.mark.parametrize("spec", ["constant", 2.5, "lat", "time.month", "time.season", "field"])
def test_settings_bring_a_mean_back(spec):
    da = example()
    field = Field.of(da)
    mean = Mean.of(da.fillna(1.0) if spec == "field" else spec, field)
    settings = json.loads(json.dumps(mean.settings(), allow_nan=False))
    again = Mean.from_settings(settings, mean.arrays(), field.axes)
    for coords in ({}, {"time": ["2031-05-05"], "lat": [11.0, 12.0]}):
        np.testing.assert_array_equal(again.at(coords), mean.at(coords))
    assert again.spec == mean.spec


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("constnat", ParameterError, "mean: expected 'constant', 'zero'.*got 'constnat'.*'lat'"),
        ("tme.month", ParameterError, "'tme' is not a dim.*did you mean 'time'"),
        ("time.moon", ParameterError, "'time' of kind datetime has no part 'moon'.*month"),
        ("lat.month", ParameterError, "groups dates, and 'lat' is of kind number"),
        (np.nan, ParameterError, "a finite number.*got nan"),
        (True, ParameterError, "got True"),
        (None, ParameterError, "got None"),
        (np.zeros((30, 3, 4)), ParameterError, "give a DataArray with the field's dims"),
        (lambda da: da, DataError, "mean: expected a finite number at each observed.*at 1 of 360"),
        (lambda da: da.isel(lat=slice(2)), DataError, "mean: expected 3 points along 'lat'"),
        (lambda da: da > 1, DataError, "mean: expected floats or integers, got dtype bool"),
        (lambda da: da.groupby("time.month").mean(), DataError, "mean: expected dims.*'month'"),
    ],
)
def test_unusable_means_are_refused(spec, error, message):
    da = example(gaps=0.0)
    holed = da.where(da != da[3, 1, 2])
    with pytest.raises(error, match=f"(?s){message}"):
        Mean.of(spec(holed) if callable(spec) else spec, Field.of(da))


def test_quarters_are_of_datetimes_only():
    assert Mean.of("time.quarter", Field.of(example())).labels == (1, 2, 3, 4)
    with pytest.raises(ParameterError, match=r"kind cftime has no part 'quarter'"):
        Mean.of("time.quarter", Field.of(example(calendar="360_day")))


def test_unknown_dims_and_kinds_are_refused_elsewhere():
    mean = Mean.of("time.month", Field.of(example()))
    with pytest.raises(ParameterError, match=r"coords: 'lev' is not a dim"):
        mean.at({"lev": [1.0]})
    with pytest.raises(DataError, match=r"'time': expected dates"):
        mean.at({"time": [1.0]})
