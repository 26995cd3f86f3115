"""Coordinates from users: their kind, whether they can be used, and their values as numbers.

No calendar library is imported: cftime's objects bring their own arithmetic.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dsgp.dates import dates_of_days, days_of_dates, written_dates
from dsgp.errors import DataError

Floats = NDArray[np.float64]
Kind = Literal["number", "datetime", "cftime", "timedelta"]

# Units of time, the largest first, and their number per day.
PER_DAY = {"days": 1, "hours": 24, "minutes": 1440, "seconds": 86400}
_NS_PER_DAY = 86_400_000_000_000
_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": _NS_PER_DAY}
# Steps within this share of their mean count as equal.
EQUISPACED = 1e-6
# The same for coordinates in float32, which were often computed from larger ones in float32.
NARROW = 1e-4
EXPECTED: dict[Kind, str] = {
    "number": "numbers",
    "datetime": "dates (datetime64)",
    "cftime": "cftime dates of the calendar",
    "timedelta": "durations (timedelta64)",
}
EMPTY = {"number": "f8", "datetime": "M8[ns]", "cftime": "O", "timedelta": "m8[ns]"}
_ISO = re.compile(r"(-?\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)")


# ---------------------------------------------------------------------- kinds


def listed(names: Iterable[str]) -> str:
    """Quote names for a message."""
    return ", ".join(repr(name) for name in names)


def plain(name: str, values: Any) -> NDArray[Any]:
    """Return a coordinate as an array of one dim, in the byte order of the machine; dates are
    datetime64 or objects.
    """
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise DataError(
            f"dim {name!r}: expected its coordinate as one list of values, got an array of shape "
            f"{array.shape}; give the values along this dim only"
        )
    # Big-endian numbers, as in netCDF 3: later steps read ticks of dates as integers.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def kind_of(name: str, values: NDArray[Any]) -> Kind:
    """Return the kind of a coordinate; raise ``DataError`` if it has no distances."""
    kind = values.dtype.kind
    if kind in "iuf":
        return "number"
    if kind == "M":
        return "datetime"
    if kind == "m":
        return "timedelta"
    if kind == "O" and all(is_cftime(value) or _is_missing(value) for value in values):
        some = next((value for value in values if is_cftime(value)), None)
        if some is not None:
            require_calendar(name, values, str(some.calendar))
            return "cftime"
    sample = values[0]
    if isinstance(sample, datetime.datetime) and sample.tzinfo is not None:
        remedy = f"convert to UTC without one: da.indexes[{name!r}].tz_convert(None)"
        raise DataError(
            f"coordinate {name!r} has a time zone ({sample.tzinfo}); expected dates without: "
            f"{remedy}"
        )
    if isinstance(sample, (str, bytes)):
        meant = _meant_by(name, values)
        raise DataError(
            f"coordinate {name!r} is text ({str(sample)!r}, …)"
            + (meant or ": labels, which have no distances. ")
            + ("" if meant else without_distances(name, len(values), sample))
        )
    got = f"{type(sample).__name__} ({sample!r}, …; dtype {values.dtype})"
    raise DataError(
        f"coordinate {name!r} is {got}; expected numbers, dates or durations, which have "
        f"distances. {without_distances(name, len(values), sample)}"
    )


def _meant_by(name: str, values: NDArray[Any]) -> str:
    """Return how to convert text that is all numbers or all dates; "" if it is neither."""
    for kind, remedy in (("f8", "astype(float)"), ("M8[ns]", "astype('datetime64[ns]')")):
        try:
            values.astype(str).astype(kind)
        except ValueError:
            continue
        return (
            f"; expected numbers, dates or durations, and it can be read as such: "
            f"da.assign_coords({name}=da[{name!r}].{remedy})"
        )
    return ""


def without_distances(name: str, size: int, sample: Any) -> str:
    """Return advice on a dim of stations, members or other labels."""
    one = f"da.sel({{{name!r}: {str(sample)!r}}})" if isinstance(sample, str) else (
        f"da.isel({name}=0)"
    )  # fmt: skip
    return (
        f"If they have places or times, give these: da.assign_coords({name}=[...]); if their order "
        f"has a meaning, number them: da.assign_coords({name}=range({size})). If they are "
        f"independent members or stations, fit them one by one, {one}, and join the results: "
        f"xarray.concat([...], da[{name!r}]); a model of independent members is not available yet"
    )


def is_cftime(value: Any) -> bool:
    """Whether it is a date of cftime, of any calendar."""
    return hasattr(value, "calendar") and hasattr(value, "dayofyr")


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value))


def require_calendar(name: str, values: NDArray[Any], calendar: str) -> None:
    """Raise ``DataError`` if a date of cftime is of another calendar."""
    for value in values:
        if is_cftime(value) and value.calendar != calendar:
            raise DataError(
                f"dim {name!r}: expected dates of the calendar {calendar!r}, got {value} of "
                f"{value.calendar!r}; use one calendar: convert_calendar({calendar!r})"
            )


def from_objects(name: str, values: NDArray[Any], kind: Kind) -> NDArray[Any]:
    """Convert text, and dates or durations of Python and pandas, to those of numpy."""
    if any(is_cftime(value) or getattr(value, "tzinfo", None) for value in values):
        return values  # kind_of refuses the values with a reason
    try:
        if kind == "timedelta":
            return np.asarray(pd.to_timedelta(values).to_numpy())
        return values.astype("datetime64[us]")
    except (ValueError, TypeError) as error:
        raise DataError(
            f"dim {name!r}: expected {EXPECTED[kind]}, got {str(values[0])!r}; write it as "
            f"{'a number and a unit (3 days)' if kind == 'timedelta' else 'YYYY-MM-DDThh:mm:ss'}"
        ) from error


def dates_of(name: str, texts: NDArray[Any], calendar: str) -> NDArray[Any]:
    """Convert ISO 8601 text to dates of a calendar of cftime."""
    try:
        dates = [
            xr.date_range(text, periods=1, calendar=calendar, use_cftime=True)[0]
            for text in texts.tolist()
        ]
    except ValueError as error:
        raise DataError(
            f"dim {name!r}: expected dates of the calendar {calendar}, got {str(texts[0])!r}; "
            "write them as YYYY-MM-DDThh:mm:ss"
        ) from error
    return np.array(dates, dtype=object)


def require_finite(name: str, values: NDArray[Any], kind: Kind) -> None:
    """Raise ``DataError`` at NaN, infinity or NaT."""
    if kind == "number":
        bad = ~np.isfinite(values)
    elif kind == "cftime":
        bad = np.array([_is_missing(value) for value in values])
    else:
        bad = np.isnat(values)
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"coordinate {name!r} is {values[where]} at position {where} (counted from 0), and "
            f"{int(bad.sum())} of its {values.size} values are missing or infinite; expected all "
            f"to be known: da.isel({name}=...) without them, or assign_coords"
        )


def direction(name: str, values: NDArray[Any], kind: Kind) -> bool:
    """Return whether the coordinate descends; raise if it does neither."""
    rises, falls = values[1:] > values[:-1], values[1:] < values[:-1]
    if rises.all():
        return False
    if falls.all():
        return True
    order = np.argsort(values, kind="stable")
    same = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    if same.size:
        first, second = sorted(int(order[same[0] + k]) for k in (0, 1))
        raise DataError(
            f"coordinate {name!r} holds {values[first]} at positions {first} and {second} (counted "
            f"from 0), and repeats {same.size} of its {values.size} values; expected each once: "
            f"da.drop_duplicates({name!r}), or average with da.groupby({name!r}).mean()"
        )
    turn = int(np.flatnonzero(rises != rises[0])[0]) - 1
    a, b, c = values[turn : turn + 3]
    raise DataError(
        f"coordinate {name!r} neither ascends nor descends: {a}, {b}, {c} from position {turn} "
        f"(counted from 0); sort it with da.sortby({name!r})"
    )


# ---------------------------------------------------------------------- numbers


def iso(date: Any) -> str:
    """Write a cftime date to its microsecond."""
    day = f"{date.year:04d}-{date.month:02d}-{date.day:02d}"
    return f"{day}T{date.hour:02d}:{date.minute:02d}:{date.second:02d}.{date.microsecond:06d}"


def since(values: NDArray[Any], kind: Kind, epoch: str | None, unit: str) -> Floats:
    """Count from the epoch, with whole days and the rest separate to avoid rounding."""
    if not values.size:
        return np.empty(0)
    if kind == "cftime":
        match = _ISO.fullmatch(str(epoch))
        if match is None:
            raise ValueError(f"no date of cftime: {epoch!r}")
        parts = ("year", "month", "day", "hour", "minute", "second", "microsecond")
        # The same class as the values, with its calendar and year zero.
        zero = values[0].replace(**dict(zip(parts, map(int, match.groups()), strict=True)))
        deltas = [value - zero for value in values]
        days = np.array([delta.days for delta in deltas], dtype=np.int64)
        rest = np.array([delta.seconds * 10**9 + delta.microseconds * 1000 for delta in deltas])
    else:
        days, rest = _split(values)
        if epoch is not None:
            day, part = _split(np.array([np.datetime64(epoch)]))
            days, rest = days - day, rest - part
    per_day = PER_DAY[unit]
    return np.asarray(days * float(per_day) + rest / (_NS_PER_DAY // per_day), dtype=np.float64)


def written(days: Floats, epoch: str, calendar: str, shortest: float) -> list[str]:
    """Write days since the epoch as dates, with times where ``shortest`` is less than a day."""
    if calendar == "proleptic_gregorian":
        start = days_of_dates(np.array([epoch], dtype="datetime64"))
        return written_dates(dates_of_days(start + days), shortest)
    start = dates_of("", np.array([epoch]), calendar)[0]
    dates = [iso(start + datetime.timedelta(seconds=round(day * 86_400))) for day in days]
    return [date[:10] if shortest >= 1 else date[:19].replace("T", " ") for date in dates]


def _split(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split datetime64 or timedelta64 into whole days and nanoseconds: no unit overflows."""
    unit, count = np.datetime_data(values.dtype)
    if unit not in _TICKS_PER_DAY or count != 1:
        unit = "s" if unit in ("Y", "M", "W", "D", "h", "m") else "ns"
        values = values.astype(f"{values.dtype.kind}8[{unit}]")
    ticks = _TICKS_PER_DAY[unit]
    days, rest = np.divmod(values.view(np.int64), ticks)
    return days, rest * (_NS_PER_DAY // ticks)


def best_unit(days: Floats) -> str:
    """Return the largest unit for which the median step is at least one."""
    step = float(np.median(np.diff(days))) if days.size > 1 else 1.0
    # The step is a sum of rounded numbers: an hour may be slightly less than 1/24.
    return next((unit for unit, n in PER_DAY.items() if step * n >= 1 - 1e-9), "seconds")


def resolution_of(values: NDArray[Any]) -> float:
    """Two units in the last place of a narrow float coordinate, 0 for the others.

    One is for the rounding of a point and of the ends, one for arithmetic in the narrow type.
    Float64 values that are all float32 values count as float32.
    """
    if values.dtype.kind != "f":
        return 0.0
    narrow = values.dtype
    if narrow.itemsize >= 8:
        if not np.array_equal(values.astype(np.float32), values):
            return 0.0
        narrow = np.dtype(np.float32)
    return 2 * float(np.spacing(narrow.type(np.abs(values).max())))


def spacing_of(points: Floats, resolution: float) -> tuple[float | None, float]:
    """Return the common step, or None, and the rounding that was needed for it, or 0."""
    if points.size < 2:
        return None, 0.0
    step = float(points[-1] - points[0]) / (points.size - 1)
    exact = points[0] + step * np.arange(points.size)
    off = float(np.abs(points - exact).max())
    # Differences of larger float32 numbers (colatitudes, for example) have their rounding errors.
    # If these exceed a tenth of the step, they say nothing about the spacing.
    resolution = max(resolution, NARROW * step) if resolution else 0.0
    if 0 < off <= resolution <= 0.1 * step:
        return step, resolution
    return (step if off <= EQUISPACED * step else None), 0.0
