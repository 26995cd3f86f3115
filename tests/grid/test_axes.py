"""Coordinates as axes: kinds, units, direction, spacing, errors."""

import datetime
import json

import cftime
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError, ParameterError
from dsgp.grid.axes import GridAxis, axes_of, check_dims, check_period

NAMES = ("name", "kind", "unit", "descending", "step", "epoch", "calendar", "rounding")


def axis_of(values, unit=None, name="x", **attrs):
    return GridAxis.of(xr.DataArray(values, dims=name, name=name, attrs=attrs), unit)


def with_coordinate(values, name="x"):
    return xr.DataArray(np.zeros(len(values)), {name: values}, dims=name)


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", ["i2", "u1", "i8", "f4", "f8", ">f4"])
def test_numbers_keep_their_values_and_unit(dtype):
    axis = axis_of(np.array([1, 2, 4], dtype=dtype), units="degrees_north")
    assert axis.points.dtype == np.float64
    assert np.array_equal(axis.points, [1, 2, 4])
    assert (axis.kind, axis.unit, axis.step, axis.is_time) == (
        "number", "degrees_north", None, False,
    )  # fmt: skip
    assert np.array_equal(axis.numbers([4, 0.5]), [4, 0.5])


def test_unsigned_coordinates_descend():
    axis = axis_of(np.array([200, 100, 0], dtype="u1"))
    assert axis.descending
    assert np.array_equal(axis.points, [0, 100, 200])
    assert axis.step == 100


@given(
    st.integers(2, 60),
    st.floats(1e-3, 1e3),
    st.floats(-180, 180),
    st.booleans(),
    st.sampled_from(["f4", "f8", "widened"]),
)
@settings(max_examples=60)
def test_equal_steps_are_recognised_through_their_rounding(n, step, first, falls, dtype):
    exact = first + step * np.arange(n)
    narrow = dtype != "f8"
    stored = exact.astype(np.float32 if narrow else np.float64)
    if dtype == "widened":
        stored = stored.astype(np.float64)
    if narrow and np.spacing(np.float32(np.abs(exact).max())) > 0.02 * step:
        return  # float32 does not resolve such steps
    axis = axis_of(stored[::-1] if falls else stored)
    assert axis.descending == falls
    assert axis.step == pytest.approx(step, rel=0.05 if narrow else 1e-9)
    assert np.abs(axis.points - exact).max() <= 1e-4 * step + (
        3 * np.spacing(np.float32(np.abs(exact).max())) if narrow else 0
    )
    # The user's own coordinates are the points, bit for bit.
    assert np.array_equal(axis.numbers(stored), axis.points)
    assert np.array_equal(axis.find(stored[::-1]), np.arange(n)[::-1])


@pytest.mark.parametrize("name", ["alboran_sst_avhrr", "ostia_tropics_monthly"])
def test_real_float32_degrees_are_equispaced(data_dir, name):
    data = np.load(data_dir / f"{name}.npz")
    for dim in ("lat", "lon"):
        stored = data[dim]
        assert stored.dtype == np.float32
        assert len(set(np.diff(stored.astype(float)))) > 1  # as stored, they are not
        axis = axis_of(stored, name=dim)
        assert axis.step is not None
        assert np.abs(np.diff(axis.points) - axis.step).max() < 1e-12 * 360
        assert np.abs(axis.points - stored).max() < 1e-4 * axis.step + 1e-5


def test_irregular_steps_are_not_equispaced():
    assert axis_of(np.array([0, 1, 2.01], dtype="f4")).step is None
    assert axis_of([0.0, 1.0, 2 + 1e-5]).step is None
    assert axis_of([0.0, 1.0, 2 + 1e-7]).step == pytest.approx(1)
    exact = axis_of([0.0, 1.0, 2 + 1e-7])
    assert exact.points[1] == 1  # only the rounding of narrow floats is taken out
    assert axis_of([3.0]).step is None


def test_find_distinguishes_neighbours():
    axis = axis_of(np.array([34.01, 34.03, 34.05], dtype="f4"))
    assert np.array_equal(axis.find([34.03, 34.05, 34.031, 34.01, 99, -99]), [1, 2, -1, 0, -1, -1])
    assert np.array_equal(axis_of([7.0]).find([7.0, 8.0]), [0, -1])


# ---------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("freq", "unit"),
    [("MS", "days"), ("D", "days"), ("12h", "hours"), ("h", "hours"), ("59min", "minutes"),
     ("min", "minutes"), ("30s", "seconds"), ("250ms", "seconds")],
)  # fmt: skip
def test_unit_of_time_is_the_largest_within_a_step(freq, unit):
    times = xr.date_range("1999-12-31T06:00", periods=5, freq=freq)
    axis = axis_of(times)
    assert axis.unit == unit
    expected = (times - times[0]) / pd.Timedelta(1, unit)
    assert np.allclose(axis.points, expected, rtol=1e-15, atol=0)


def test_unit_of_time_can_be_chosen():
    times = xr.date_range("2000-01-01", periods=3, freq="D")
    assert np.array_equal(axis_of(times, "hours").points, [0, 24, 48])
    assert axis_of(times[:1]).unit == "days"
    assert axis_of(times, "hours").written([0, 30]) == ["2000-01-01", "2000-01-02"]
    hours = axis_of(xr.date_range("2000-01-01", periods=3, freq="3h"))
    assert hours.written([-24, 9]) == ["1999-12-31 00:00", "2000-01-01 09:00"]
    with pytest.raises(ParameterError, match=r"'x'.*'weeks'.*'days', 'hours', 'minutes'"):
        axis_of(times, "weeks")
    with pytest.raises(ParameterError, match=r"coordinate of numbers"):
        axis_of([1.0, 2.0], "days")


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_datetimes_of_any_resolution_agree(resolution):
    text = ["2000-01-01T00:00", "2000-01-02T12:00", "2000-01-09T00:00"]
    axis = axis_of(np.array(text, dtype=f"M8[{resolution}]"))
    assert np.array_equal(axis.points, [0, 1.5, 8])
    assert axis.unit_label == "days since 2000-01-01"
    later = ["2000-01-03", "1999-12-31T12:00"]
    dates = [datetime.datetime(2000, 1, 3), datetime.datetime(1999, 12, 31, 12)]
    for given_as in (
        later, dates, [pd.Timestamp(t) for t in later], pd.DatetimeIndex(later),
        np.array(later, dtype="M8[h]"), np.array(later, dtype="M8[ns]"),
        xr.DataArray(np.array(later, dtype="M8[ms]"), dims="t"),
    ):  # fmt: skip
        assert np.array_equal(axis.numbers(given_as), [2, -0.5])
    assert np.array_equal(axis.numbers("2000-01-03"), [2])
    assert axis.numbers([]).shape == (0,)


def test_far_datetimes_do_not_overflow():
    # Nanoseconds of int64 end in 2262 and begin in 1677.
    axis = axis_of(np.array(["1700-01-01", "2200-01-01"], dtype="M8[ns]"))
    far = axis.numbers(np.array(["-9999-01-01", "9999-01-01"], dtype="M8[s]"))
    days = np.array(["-9999-01-01", "9999-01-01"], dtype="M8[D]") - np.datetime64("1700-01-01")
    assert np.array_equal(far, days.astype(float))


def test_durations():
    axis = axis_of(np.array([3, 1, 0], dtype="m8[h]").astype("m8[ns]"))
    assert (axis.kind, axis.unit, axis.descending, axis.epoch) == (
        "timedelta", "hours", True, None,
    )  # fmt: skip
    assert np.array_equal(axis.points, [0, 1, 3])
    assert np.array_equal(
        axis.numbers([datetime.timedelta(days=1), pd.Timedelta("30min")]), [24, 0.5]
    )
    assert np.array_equal(axis.numbers(np.timedelta64(2, "D")), [48])


@pytest.mark.parametrize("calendar", ["360_day", "noleap", "all_leap", "julian", "standard"])
def test_cftime_calendars_count_their_own_days(calendar):
    times = [
        cftime.datetime(2000 + k // 12, k % 12 + 1, 15, 6, calendar=calendar) for k in range(30)
    ]
    axis = axis_of(np.array(times)[::-1], name="time")
    expected = cftime.date2num(times, "days since 2000-01-15 06:00", calendar=calendar)
    assert np.array_equal(axis.points, expected)
    assert (axis.kind, axis.calendar, axis.descending, axis.unit) == (
        "cftime", calendar, True, "days",
    )  # fmt: skip
    assert axis.unit_label == f"days since 2000-01-15T06:00:00 ({calendar})"
    assert (axis.step == 30) == (calendar == "360_day")
    assert axis.written(axis.points[[0, 2]]) == ["2000-01-15", "2000-03-15"]
    assert np.array_equal(axis.find(times), np.arange(30))
    before = cftime.datetime(1999, 1, 15, 6, calendar=calendar)
    length = {"360_day": 360, "all_leap": 366}.get(calendar, 365)
    assert np.array_equal(axis.numbers(before), [-length])


def test_years_of_the_model_run_are_of_360_days(data_dir):
    data = np.load(data_dir / "e1_north_america_air_temperature.npz")
    units, calendar = str(data["time_units"]).rstrip(")").split(" (")
    coded = xr.Dataset(coords={"time": ("time", data["time"], {
        "units": units, "calendar": calendar.removesuffix(" calendar")})})  # fmt: skip
    axis = GridAxis.of(xr.decode_cf(coded)["time"])
    assert (axis.kind, axis.calendar, axis.unit, axis.step) == ("cftime", "360_day", "days", 360)
    assert np.array_equal(axis.points, 360 * np.arange(240))


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0],
        np.array([3, 2.9, 2.8], dtype="f4"),
        xr.date_range("2000-01-01", periods=3, freq="7h"),
        xr.date_range("0001-02-28", periods=3, freq="D", calendar="noleap", use_cftime=True),
        np.array([0, 5], dtype="m8[s]"),
    ],
)
def test_settings_bring_an_axis_back(values):
    axis = axis_of(values)
    again = GridAxis.from_settings(json.loads(json.dumps(axis.settings())), axis.points.copy())
    assert all(getattr(again, name) == getattr(axis, name) for name in NAMES)
    assert np.array_equal(again.numbers(values), axis.numbers(values))
    assert np.array_equal(np.sort(again.numbers(values)), axis.points)


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0, 2.0], r"'x' holds 2.0 at positions 1 and 2.*repeats 1 of its 3.*drop_dupl"),
        ([1.0, 3.0, 1.0], r"holds 1.0 at positions 0 and 2"),
        ([1.0, 3.0, 2.0], r"'x' neither ascends nor descends: 1.0, 3.0, 2.0 from pos.*sortby"),
        ([350.0, 355.0, 0.0, 5.0], r"350.0, 355.0, 0.0 from position 0.*da.sortby\('x'\)"),
        ([1.0, np.nan, 3.0], r"'x' is nan at position 1.*1 of its 3 values are missing"),
        ([1.0, np.inf], r"'x' is inf at position 1"),
        (np.array(["2000-01-01", "NaT"], dtype="M8[ns]"), r"is NaT at position 1"),
        (np.array(["2000-01-01"] * 2, dtype="M8[ns]"), r"holds 2000-01-01.*positions 0 and 1"),
        (["a", "b"], r"'x' is text \('a', …\): labels.*range\(2\).*da.sel\({'x': 'a'}\)"),
        ([b"a", b"b"], r"'x' is text.*labels.*xarray.concat"),
        (["1", "2.5"], r"'x' is text \('1', …\).*da\['x'\].astype\(float\)"),
        (["2000-01-01", "2000-02-01"], r"'x' is text.*astype\('datetime64\[ns\]'\)"),
        (np.array(["a", "b"], object), r"'x' is text.*labels"),
        ([True, False], r"'x' is bool.*expected numbers.*da.isel\(x=0\).*xarray.concat"),
        (np.array([(1, 2), None], object), r"'x' is tuple.*expected numbers.*number them"),
        ([1 + 1j, 2], r"'x' is complex128"),
        (pd.period_range("2000", periods=2, freq="M"), r"'x' is Period.*expected numbers"),
        (
            pd.date_range("2000", periods=2, tz="Europe/Paris").astype(object),
            r"'x' has a time zone.*tz_convert",
        ),
        ([], r"'x' has no points"),
        (
            np.array([cftime.datetime(2000, 1, k, calendar=c)
                      for k, c in ((1, "noleap"), (2, "360_day"))]),
            r"calendar 'noleap', got 2000-01-02.*'360_day'.*convert_calendar",
        ),
        (np.array([2**60, 2**60 + 1]), r"same number in float64.*subtract"),
    ],
)  # fmt: skip
def test_unusable_coordinates_are_refused(values, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        axis_of(np.asarray(values))


def test_places_in_two_dims_get_advice():
    """Curvilinear grids, and stations with coordinates of their own."""
    da = xr.DataArray(np.zeros((2, 3)), dims=("y", "x"))
    curved = da.assign_coords(lat=(("y", "x"), np.ones((2, 3))), lon=(("y", "x"), np.ones((2, 3))))
    remedy = r"'lat', 'lon' run.*curvilinear.*assign_coords\(y=numpy.arange\(2\), x=numpy.arange\(3"
    with pytest.raises(DataError, match=remedy):
        axes_of(curved)
    with pytest.raises(DataError, match=rf"no variable of the Dataset is a field.*'t': .*{remedy}"):
        curved.to_dataset(name="t").dsgp.fill()
    stations = da.rename(x="station").assign_coords(
        y=[0.0, 1.0], lat=("station", [1.0, 2.0, 3.0]), lon=("station", [1.0, 0.0, 3.0])
    )
    with pytest.raises(DataError, match=r"'station'.*'lat', 'lon' run.*isel\(station=0\)"):
        axes_of(stations)
    with pytest.raises(DataError, match=r"'lat' runs along it: da.swap_dims\({'station': 'lat'}"):
        axes_of(stations.drop_vars("lon"))
    axes_of(stations.drop_vars("lon").swap_dims(station="lat"))


def test_other_kinds_of_new_coordinates_are_refused():
    numbers, times = axis_of([1.0, 2.0]), axis_of(xr.date_range("2000", periods=3))
    model = axis_of(xr.date_range("2000", periods=3, calendar="360_day", use_cftime=True))
    with pytest.raises(DataError, match=r"'x': expected numbers, got dates"):
        numbers.numbers(np.array(["2000-01-01"], dtype="M8[s]"))
    with pytest.raises(DataError, match=r"expected dates .datetime64.*got numbers"):
        times.numbers([3.0])
    with pytest.raises(DataError, match=r"expected dates .datetime64.*got 'soon'.*as YYYY"):
        times.numbers("soon")
    with pytest.raises(DataError, match=r"cftime dates of the calendar 360_day.*date_range"):
        model.numbers(np.array(["2000-01-01"], dtype="M8[s]"))
    with pytest.raises(DataError, match=r"'360_day', got 2000-01-01.*'noleap'"):
        model.numbers(cftime.datetime(2000, 1, 1, calendar="noleap"))
    with pytest.raises(DataError, match=r"one list of values.*shape .1, 2"):
        numbers.numbers([[1.0, 2.0]])
    with pytest.raises(DataError, match=r"nan at position 0"):
        numbers.numbers(np.nan)


def test_axes_follow_the_dims_of_the_field():
    times = xr.date_range("2000", periods=3)
    da = xr.DataArray(np.zeros((2, 3)), {"lat": [50, 40], "time": times}, dims=("lat", "time"))
    lat, time = axes_of(da, {"time": "hours"})
    assert (lat.name, lat.descending, time.unit) == ("lat", True, "hours")
    with pytest.raises(ParameterError, match=r"units: 'tme'.*'lat', 'time'; did you mean 'time'"):
        axes_of(da, {"tme": "hours"})


@pytest.mark.parametrize(
    ("da", "message"),
    [
        (xr.DataArray(np.zeros((2, 3)), {"lat": [1, 2]}, dims=("lat", "lon")),
         r"'lon' has no coordinate.*3 points.*assign_coords\(lon=...\)"),
        (xr.DataArray(1.0), "single number"),
        (xr.DataArray(np.zeros(2), dims=(0,)), "name 0 of a dim is not text.*rename"),
        (xr.DataArray(np.zeros((2, 2)), {"a": [1, 2], "b": [1, 2]}, dims=("a", "b"))
         .stack(c=("a", "b")), r"'c' is stacked.*unstack"),
    ],
)  # fmt: skip
def test_unusable_dims_are_refused(da, message):
    with pytest.raises(DataError, match=message):
        axes_of(da)


def test_names_of_dims_are_checked():
    axes = axes_of(xr.DataArray(np.zeros((1, 1)), {"lat": [0], "lon": [0]}))
    check_dims(["lon"], axes, "kernels")
    message = r"kernels: 'level' is not a dim.*'lat', 'lon'; name one"
    with pytest.raises(ParameterError, match=message):
        check_dims(["lon", "level"], axes, "kernels")


def test_a_closed_circle_holds_each_point_once():
    check_period(axis_of(np.arange(0.0, 360, 2)), 360)
    check_period(axis_of(np.arange(0.0, 1000, 1)), 24)  # many times round
    check_period(axis_of([0.0, 10.0]), 360)
    check_period(axis_of([5.0]), 360)
    with pytest.raises(DataError, match=r"'phase' holds the points 0 and 360.*slice\(None, -1\)"):
        check_period(axis_of(np.arange(0.0, 361, 2), name="phase"), 360)
    lon = np.linspace(-180, 180, 1801).astype("f4")[::-1]
    with pytest.raises(DataError, match=r"-180 and 180.*slice\(1, None\)"):
        check_period(axis_of(lon), 360)
    hours = axis_of(xr.date_range("2000-01-01", periods=25, freq="h"))
    check_period(hours, 24)


@pytest.mark.parametrize("kind", ["M8", "m8"])
@pytest.mark.parametrize("unit", ["D", "h", "s", "ns"])
def test_byte_order_does_not_change_a_time(kind, unit):
    start = 18262 if kind == "M8" else 0
    known = (start + np.arange(5)).astype(f"{kind}[D]")
    wanted = (24 * start + np.array([24, 60])).astype(f"{kind}[h]").astype(f"{kind}[{unit}]")
    expected = axis_of(known.astype(f"{kind}[ns]")).numbers(wanted)
    np.testing.assert_array_equal(expected, [1, 2] if unit == "D" else [1, 2.5])
    for order in "<>":
        axis = axis_of(known.astype(f"{order}{kind}[ns]"))
        np.testing.assert_array_equal(axis.points, [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(
            axis.numbers(wanted.astype(f"{order}{kind}[{unit}]")), expected
        )
