"""Dates as text for people. A model counts dates as days since 1970-01-01."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Unit = Literal["D", "m", "s", "ms"]

# Units of numpy that dates are written to, from long to short.
_UNITS: tuple[Unit, ...] = ("D", "m", "s", "ms")
_PER_DAY = 86_400_000


def dates_of_days(days: ArrayLike) -> NDArray[np.datetime64]:
    """Turn days since 1970-01-01 into dates, to the millisecond; NaN into NaT.

    Parameters
    ----------
    days : array_like of shape (n,)

    Returns
    -------
    ndarray of datetime64[ms] of shape (n,)
    """
    numbers = np.asarray(days, dtype=np.float64)
    known = np.isfinite(numbers)
    dates = np.full(numbers.shape, np.datetime64("NaT", "ms"))
    # To the millisecond: a microsecond of today is within the rounding of the days.
    dates[known] = np.rint(numbers[known] * _PER_DAY).astype(np.int64).astype("datetime64[ms]")
    return dates


def days_of_dates(dates: ArrayLike) -> NDArray[np.float64]:
    """Undo ``dates_of_days``, for dates of any unit of numpy."""
    instants = np.asarray(dates).astype("datetime64[ms]")
    days = instants.astype(np.int64) / _PER_DAY
    return np.where(np.isnat(instants), np.nan, days)


def written_dates(dates: ArrayLike, shortest: float) -> list[str]:
    """Write dates in ISO 8601, all of them to the day, the minute, the second or its thousandth.

    Parameters
    ----------
    dates : array_like of datetime64 of shape (n,)
        None is missing.
    shortest : float
        Days that matter: they are written to the longest of these units that is no longer, or that
        leaves nothing out.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from dsgp.dates import dates_of_days, written_dates
    >>> written_dates(dates_of_days([18960, 18960.75]), shortest=1.0)
    ['2021-11-29', '2021-11-29']
    >>> written_dates(dates_of_days([18960, 18960.75]), shortest=0.75)
    ['2021-11-29 00:00', '2021-11-29 18:00']
    """
    instants = np.asarray(dates).astype("datetime64[ms]")
    for unit in _UNITS:
        rounded = instants.astype(f"datetime64[{unit}]")
        length = np.timedelta64(1, unit) / np.timedelta64(_PER_DAY, "ms")
        if length <= shortest or (rounded == instants).all():
            break
    texts: NDArray[np.str_] = np.datetime_as_string(instants, unit=unit)
    return [str(text).replace("T", " ") for text in texts]
