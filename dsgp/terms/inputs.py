"""Inputs of terms from their columns: numbers, folded by a period, or parts of a date.

Dates are days since 1970-01-01 here. All functions are elementwise, so that each row depends on
itself only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp.errors import ParameterError
from dsgp.terms.base import Floats

_DAYS_TO_MONDAY = 3  # 1970-01-01 was a Thursday
_FEBRUARY_29 = 59  # days of the year before it
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _calendar(days: Floats, unit: str) -> Any:
    whole = np.floor(np.where(np.isfinite(days), days, 0.0)).astype(np.int64)
    return whole.astype("datetime64[D]").astype(f"datetime64[{unit}]")


def _blank(values: Any, days: Floats) -> Floats:
    return np.where(np.isnan(days), np.nan, values)


def day_of_year(days: Floats) -> Floats:
    """Days since the beginning of the year, counted as in a leap year: from 0 to below 366.

    A date has the same number in every year, so that holidays fall together.
    """
    years = _calendar(days, "Y")
    first = years.astype("datetime64[D]").astype(np.int64)
    length = (years + 1).astype("datetime64[D]").astype(np.int64) - first
    since = np.where(np.isfinite(days), days, 0.0) - first
    return _blank(since + ((length < 366) & (since >= _FEBRUARY_29)), days)


def day_of_week(days: Floats) -> Floats:
    """Days since Monday, from 0 to below 7."""
    return np.mod(days + _DAYS_TO_MONDAY, 7.0)


def day_of_month(days: Floats) -> Floats:
    """Days since the first of the month, from 0 to below 31."""
    first = _calendar(days, "M").astype("datetime64[D]").astype(np.int64)
    return days - _blank(first, days)


def time_of_day(days: Floats) -> Floats:
    """Time since midnight, in days."""
    return np.mod(days, 1.0)


def _month(days: Floats) -> Floats:
    return _blank(_calendar(days, "M").astype(np.int64) % 12 + 1, days)


def _quarter(days: Floats) -> Floats:
    return np.floor((_month(days) - 1) / 3) + 1


def _year(days: Floats) -> Floats:
    return _blank(_calendar(days, "Y").astype(np.int64) + 1970, days)


# Names of periods of dates, their lengths in days, and where in them a date is.
PERIODS: dict[str, tuple[float, Callable[[Floats], Floats]]] = {
    "year": (366.0, day_of_year),
    "week": (7.0, day_of_week),
    "day": (1.0, time_of_day),
}
# Parts of dates that are levels.
PARTS: dict[str, Callable[[Floats], Floats]] = {
    "weekday": lambda days: np.floor(day_of_week(days)),
    "month": _month,
    "quarter": _quarter,
    "year": _year,
    "day": lambda days: np.floor(day_of_month(days)) + 1,
    "hour": lambda days: np.floor(time_of_day(days) * 24.0),
}


@dataclass(frozen=True)
class Input:
    """One number of a row that is an input of a term.

    Attributes
    ----------
    column : str
    part : str or None
        A part of a date, among ``PARTS``.
    period : float, str or None
        By which it is folded: a number, or one of ``PERIODS`` of a date.
    centre, scale : float
        It is ``(x - centre) / scale``.
    """

    column: str
    part: str | None = None
    period: float | str | None = None
    centre: float = 0.0
    scale: float = 1.0

    def of(self, values: Floats) -> Floats:
        """Return it, of the values of the column, (n,)."""
        if self.part is not None:
            return PARTS[self.part](values)
        if isinstance(self.period, str):
            return PERIODS[self.period][1](values)
        if self.period is not None:
            return np.mod(values, self.period)
        if self.centre == 0.0 and self.scale == 1.0:
            return values
        return (values - self.centre) / self.scale

    def label(self, value: float, labels: tuple[Any, ...] = ()) -> str:
        """Write a level of it for people; ``labels`` are those of the column."""
        if labels and self.part is None:
            known = 0 <= value < len(labels)
            return str(labels[int(value)]) if known else "(never seen)"
        if self.part == "weekday":
            return WEEKDAYS[int(value)]
        if self.part == "month":
            return MONTHS[int(value) - 1]
        return f"{value:.10g}"

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return {
            "column": self.column,
            "part": self.part,
            "period": self.period,
            "centre": self.centre,
            "scale": self.scale,
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Input:
        """Undo ``to_settings``."""
        made = cls(**settings)
        if made.part not in (None, *PARTS) or (
            isinstance(made.period, str) and made.period not in PERIODS
        ):
            raise ParameterError(f"{settings} is not an input of a term")
        return made
