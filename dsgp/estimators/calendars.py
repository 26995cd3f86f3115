"""Columns of dates for forecasts: the dates that come next, and the holidays among dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.errors import DataError, ParameterError


def future_dates(dates: Any, periods: int, freq: str = "D") -> pd.DatetimeIndex:
    """Return the dates that follow the last one of some.

    Parameters
    ----------
    dates : array_like of dates, or one date
        Dates of the rows so far, in any order.
    periods : int
        How many dates to return.
    freq : str
        Their distance, as a frequency of pandas: ``"D"``, ``"h"``, ``"W"``, ``"MS"``, …

    Returns
    -------
    pandas.DatetimeIndex of length ``periods``
        In the time zone of ``dates``.

    Raises
    ------
    DataError
        If there is no date.
    ParameterError
        If ``periods`` is not an integer of at least 1, or ``freq`` is not a frequency of pandas.

    Examples
    --------
    >>> import pandas as pd
    >>> from dsgp import future_dates
    >>> history = pd.DataFrame({"day": pd.to_datetime(["2024-02-28", "2024-02-27"])})
    >>> [str(day.date()) for day in future_dates(history["day"], 2)]
    ['2024-02-29', '2024-03-01']
    """
    if not isinstance(periods, (int, np.integer)) or periods < 1:
        raise ParameterError(f"periods must be an integer of at least 1, got {periods!r}")
    last = _days(dates, "dates", whole=False).max()
    try:
        step = pd.tseries.frequencies.to_offset(freq)
        return pd.date_range(last + step, periods=periods, freq=step)
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"freq must be a frequency of pandas, such as 'D', 'h', 'W' or 'MS', got {freq!r}"
        ) from error


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
        holidays the package ``holidays`` knows.
    before, after : int
        Number of days before and after each holiday that have their own effects, called
        ``"Easter -1"``, ``"Easter +1"``, …
    other : str
        Name of all other dates.

    Returns
    -------
    ndarray of str, of shape (n,)
        Where two holidays claim a date, the holiday on that date wins, then the nearer one.

    Raises
    ------
    DataError
        If an element is not a date, or is missing.
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
    named = _of_country(holidays, days) if isinstance(holidays, str) else _by_name(holidays)
    out = np.full(len(days), other, dtype=object)
    taken = np.zeros(len(days), dtype=bool)
    steps = sorted(range(-before, after + 1), key=lambda step: (abs(step), step))
    for step in steps:
        for name, on in named.items():
            mask = days.isin(on + pd.Timedelta(days=step)) & ~taken
            out[mask] = name if step == 0 else f"{name} {step:+d}"
            taken |= mask
    return out


def _days(dates: Any, what: str, *, whole: bool = True) -> pd.DatetimeIndex:
    values = [dates] if isinstance(dates, str) or np.ndim(dates) == 0 else dates
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
        if isinstance(value, Iterable) and not isinstance(value, str):
            by_name.setdefault(str(key), []).extend(value)
        else:
            by_name.setdefault(str(value), []).append(key)
    return {name: _days(on, f"the dates of holiday {name!r}") for name, on in by_name.items()}


def _of_country(country: str, days: pd.DatetimeIndex) -> dict[str, pd.DatetimeIndex]:
    try:
        package = import_module("holidays")
    except ImportError as error:
        raise ImportError(
            f"the holidays of {country!r} need the package holidays: pip install holidays; or pass "
            "a mapping of names to dates"
        ) from error
    # Neighbours of a holiday may lie in another year.
    years = range(int(days.year.min()) - 1, int(days.year.max()) + 2)
    try:
        return _by_name(dict(package.country_holidays(country, years=years)))
    except NotImplementedError as error:
        raise ParameterError(f"the package holidays has no country {country!r}") from error
