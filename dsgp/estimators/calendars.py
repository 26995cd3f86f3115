"""Columns of dates for forecasts: the dates that come next, and the holidays among dates."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.errors import DataError, DataWarning, ParameterError

# Distinct dates from which their distance is inferred.
_FEWEST_DATES = 3
# Days after which weekends would have been seen.
_TWO_WEEKS = 14
_SATURDAY = 5


def future_dates(dates: Any, periods: int, freq: Any = None) -> pd.DatetimeIndex:
    """Return the dates that follow the last one of some.

    Parameters
    ----------
    dates : array_like of dates, or one date
        Dates of the rows so far, in any order; the same date can occur repeatedly.
    periods : int
        How many dates to return.
    freq : str or pandas offset, optional
        Their distance, as a frequency of pandas: ``"D"``, ``"h"``, ``"W-MON"``, ``"MS"``, … By
        default that of ``dates``, some of which may be absent; ``"D"`` for one or two dates.

    Returns
    -------
    pandas.DatetimeIndex of length ``periods``
        In the time zone of ``dates``.

    Warns
    -----
    DataWarning
        If the last date is not one of ``freq``, such as a Monday with ``"W"``, whose dates are
        Sundays.

    Raises
    ------
    DataError
        If there is no date, or ``freq`` is not given and the dates have no common distance.
    ParameterError
        If ``periods`` is not an integer of at least 1, or ``freq`` is not a frequency of pandas.

    Examples
    --------
    >>> import pandas as pd
    >>> from dsgp import future_dates
    >>> history = pd.DataFrame({"day": pd.to_datetime(["2024-02-28", "2024-02-27"])})
    >>> [str(day.date()) for day in future_dates(history["day"], 2)]
    ['2024-02-29', '2024-03-01']
    >>> months = pd.to_datetime(["2024-01-01", "2024-02-01", "2024-04-01"])  # without March
    >>> [str(day.date()) for day in future_dates(months, 2)]
    ['2024-05-01', '2024-06-01']
    """
    if not isinstance(periods, (int, np.integer)) or periods < 1:
        raise ParameterError(f"periods must be an integer of at least 1, got {periods!r}")
    known = _days(dates, "dates", whole=False)
    step = distance_of(known) if freq is None else _offset(freq)
    last = known.max()
    too_late = ParameterError(
        f"{periods} dates after {last} at the distance {freq or step.freqstr} end beyond the dates "
        "that pandas and Python can hold; pass fewer periods"
    )
    try:
        # One more, as the last date itself is the first one where it is of the frequency.
        index = _range(last, periods + 1, step)
    except (ValueError, OverflowError) as error:  # OutOfBoundsDatetime is a ValueError
        raise too_late from error
    if not step.is_on_offset(last):
        warnings.warn(
            f"the last date, {last:%A %Y-%m-%d}, is not one of the frequency {step.freqstr!r}, "
            f"whose next date is {index[0]:%A %Y-%m-%d}; pass the freq of the dates, such as "
            "'W-MON' for Mondays, 'MS' or 'ME' for the first or the last days of months",
            DataWarning,
            stacklevel=2,
        )
    later = index[index > last][:periods]
    if not len(later):
        raise ParameterError(f"freq must lead to later dates, got {freq!r}")
    if later[-1].year > datetime.MAXYEAR:
        raise too_late
    return later


def _range(first: pd.Timestamp, periods: int, step: Any) -> pd.DatetimeIndex:
    if type(step) is not pd.DateOffset:
        return pd.date_range(first, periods=periods, freq=step)
    # Each counted from the first date: the 30th of January is followed by the last of February and
    # then by the 30th of March, where ``date_range`` would stay with the 28th.
    return pd.DatetimeIndex([first + step * number for number in range(periods)])


def _offset(freq: Any) -> Any:
    try:
        return pd.tseries.frequencies.to_offset(freq)
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"freq must be a frequency of pandas, such as 'D', 'h', 'W' or 'MS', got {freq!r}"
        ) from error


def distance_of(dates: pd.DatetimeIndex) -> Any:
    """Infer the distance of dates, of which some may be absent."""
    # On the clock, so that days on which it is changed are as long as others.
    local = dates.tz_localize(None).unique().sort_values()
    if len(local) < _FEWEST_DATES:
        return _offset("D")
    months = _distance_in_months(local)
    if months is not None:
        return months
    steps = pd.Series(local).diff().dropna()
    step = steps.mode()[0]
    count = int((steps == step).sum())
    if 2 * count <= len(steps) or (steps % step != pd.Timedelta(0)).any():
        raise DataError(
            f"the dates have no common distance: the most frequent one, {step}, is that of "
            f"{count} of {len(steps)} steps; pass freq, such as 'D', 'h', 'W-MON' or 'MS'"
        )
    if step == pd.Timedelta(days=1) and (local[-1] - local[0]).days >= _TWO_WEEKS:
        return _offset("D" if (local.day_of_week >= _SATURDAY).any() else "B")
    whole_days = step % pd.Timedelta(days=1) == pd.Timedelta(0)
    return _offset(f"{step.days}D" if whole_days else step)


def _distance_in_months(local: pd.DatetimeIndex) -> Any:
    """Return an offset of months if dates have one day of the month in common; None otherwise."""
    clock = local - local.normalize()
    last_days = bool(local.is_month_end.all())
    if not ((local.day == local.day[0]).all() or last_days) or not (clock == clock[0]).all():
        return None
    steps = np.diff(12 * local.year.to_numpy() + local.month.to_numpy())
    n = int(np.gcd.reduce(steps))
    if last_days:
        return pd.offsets.MonthEnd(n)
    return pd.offsets.MonthBegin(n) if local.day[0] == 1 else pd.DateOffset(months=n)


def holiday_levels(
    dates: Any,
    holidays: Mapping[Any, Any] | str,
    *,
    before: int = 0,
    after: int = 0,
    other: str = "none",
) -> NDArray[np.object_]:
    """Return the holiday of each date, for a column of levels with one effect per holiday.

    Effects of levels shrink towards 0 where a holiday was seen a few times only, and a holiday that
    moves from year to year (Easter) has one effect wherever it falls.

    Parameters
    ----------
    dates : array_like of dates, of shape (n,)
    holidays : mapping, or str
        Dates by the name of their holiday (``{"Easter": ["2023-04-09", "2024-03-31"]}``), or the
        other way round (``{"2023-04-09": "Easter"}``). Text is a country, such as ``"US"``, whose
        holidays the package ``holidays`` knows; their names are in the country's own language.
    before, after : int
        Number of days before and after each holiday that have their own effects, called
        ``"Easter -1"``, ``"Easter +1"``, …
    other : str
        Name of all other dates.

    Returns
    -------
    ndarray of str, of shape (n,)
        Where two holidays claim a date, the holiday on that date wins, then the nearer one.

    Warns
    -----
    DataWarning
        If ``dates`` go on for longer than the dates of a holiday that a mapping has in every year,
        or begin a year or more before all dates of the mapping.

    Raises
    ------
    DataError
        If a date or a name is missing, or is not a date or a name.
    ParameterError
        If ``before`` or ``after`` is negative, or the country is unknown.
    ImportError
        If ``holidays`` is a country and the package ``holidays`` is not installed.

    Examples
    --------
    >>> import pandas as pd
    >>> from dsgp import holiday_levels
    >>> days = pd.date_range("2023-12-24", periods=4)
    >>> holiday_levels(days, {"Christmas": ["2022-12-25", "2023-12-25"]}, after=1).tolist()
    ['none', 'Christmas', 'Christmas +1', 'none']
    """
    for name, value in (("before", before), ("after", after)):
        if not isinstance(value, (int, np.integer)) or value < 0:
            raise ParameterError(f"{name} must be an integer of at least 0, got {value!r}")
    days = _days(dates, "dates")
    if isinstance(holidays, str):
        named = holidays_of_country(holidays, days)
    else:
        named = _by_name(holidays)
        _warn_of_ends(named, days, other)
    out = np.full(len(days), other, dtype=object)
    taken = np.zeros(len(days), dtype=bool)
    steps = sorted(range(-before, after + 1), key=lambda step: (abs(step), step))
    for step in steps:
        for name, on in named.items():
            mask = days.isin(on + pd.Timedelta(days=step)) & ~taken
            out[mask] = name if step == 0 else f"{name} {step:+d}"
            taken |= mask
    return out


def _warn_of_ends(
    named: Mapping[str, pd.DatetimeIndex], days: pd.DatetimeIndex, other: str
) -> None:
    """Warn of holidays that come every year as far as they are listed, and not in all years."""
    yearly, ended, year = False, [], pd.DateOffset(years=1)
    for name, on in named.items():
        years = on.year.unique()
        if len(years) == 1 or len(years) != years.max() - years.min() + 1:
            continue
        yearly = True
        if on.max() + year <= days.max():
            ended.append(f"{name!r} ({on.max():%Y-%m-%d})")
    if ended:
        names = ", ".join(ended[:3]) + (f" and {len(ended) - 3} more" if len(ended) > 3 else "")
        warnings.warn(
            f"holidays: the list ends before the dates do, which reach {days.max():%Y-%m-%d}: "
            f"{names} came every year until then, and days later than that count as {other!r}; add "
            "the dates to come",
            DataWarning,
            stacklevel=3,
        )
    # A single one may be new; before the first of all of them there is no list.
    if yearly and days.min() + year <= (first := min(on.min() for on in named.values())):
        warnings.warn(
            f"holidays: the list begins after the dates do, which start on {days.min():%Y-%m-%d}: "
            f"its first date is {first:%Y-%m-%d}, and days before that count as {other!r}; add "
            "earlier dates",
            DataWarning,
            stacklevel=3,
        )


def _days(dates: Any, what: str, *, whole: bool = True) -> pd.DatetimeIndex:
    values = [dates] if isinstance(dates, str) or np.ndim(dates) == 0 else dates
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, pd.PeriodDtype):
        values = pd.PeriodIndex(values).to_timestamp()
    elif pd.api.types.is_numeric_dtype(np.asarray(values).dtype if dtype is None else dtype):
        raise DataError(
            f"{what} must be dates, and are numbers; convert them, e.g. "
            "pandas.to_datetime(values, unit='D')"
        )
    try:
        index = pd.DatetimeIndex(pd.to_datetime(values))
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} must be dates, and some are not: {error}") from error
    if not len(index) or index.isna().any():
        problem = "some are missing" if len(index) else "there are none"
        raise DataError(f"{what} must be dates, and {problem}")
    return index.tz_localize(None).normalize() if whole else index


def _by_name(holidays: Mapping[Any, Any]) -> dict[str, pd.DatetimeIndex]:
    """Dates by the name of their holiday, whichever way round they were given."""
    by_name: dict[str, list[Any]] = {}
    for key, value in holidays.items():
        if isinstance(value, (datetime.date, np.datetime64)):
            by_name.setdefault(str(key), []).append(value)
        elif isinstance(value, Iterable) and not isinstance(value, str):
            by_name.setdefault(str(key), []).extend(value)
        elif value is None or value is pd.NaT or value != value:
            raise DataError(f"holidays: the name of {key!r} is missing")
        else:
            by_name.setdefault(str(value), []).append(key)
    return {name: _days(on, f"the dates of holiday {name!r}") for name, on in by_name.items()}


def holidays_of_country(country: str, days: pd.DatetimeIndex) -> dict[str, pd.DatetimeIndex]:
    """Return the dates of the holidays of a country by their names, in the years of some days."""
    try:
        package = import_module("holidays")
    except ImportError as error:
        raise ImportError(
            f"the holidays of {country!r} need the package holidays: pip install holidays (in a "
            'checkout of dsgp, pip install ".[holidays]"); or pass a mapping of names to dates'
        ) from error
    # Neighbours of a holiday may lie in another year.
    years = range(int(days.year.min()) - 1, int(days.year.max()) + 2)
    try:
        # In the country's own language: without one, names depend on the locale of the machine.
        language = package.country_holidays(country).default_language
        found = package.country_holidays(country, years=years, language=language)
    except NotImplementedError as error:
        raise ParameterError(
            f"the package holidays has no country {country!r}; pass a code of ISO 3166 in capitals "
            "such as US or DE, or dates with the names of their holidays"
        ) from error
    named: dict[str, list[Any]] = {}
    for date in found:
        for name in found.get_list(date):  # each of those that fall on one date
            named.setdefault(_as_of_known_dates(name, found), []).append(date)
    # Sorted: of two on one date the first wins, whatever the years.
    return _by_name(dict(sorted(named.items())))


def _as_of_known_dates(name: str, found: Any) -> str:
    """Name a holiday whose date is estimated, such as Eid in years to come, as in other years."""
    for label, plain in (
        ("observed_estimated_label", getattr(found, "observed_label", "%s")),
        ("estimated_label", "%s"),
    ):
        _, _, ending = str(getattr(found, label, "")).partition("%s")
        if ending and name.endswith(ending):
            return plain.replace("%s", name.removesuffix(ending))
    return name
