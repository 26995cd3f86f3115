"""Dates, and parts of them, along an axis of days."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from dsgp.terms.inputs import MONTHS, WEEKDAYS, Input

# Days of a leap year at which months begin.
_MONTH_STARTS = np.cumsum([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30])


def write_dates(axis: Axis, model: Any, read: Input | None) -> None:
    """Write dates along an axis of what a term reads, if it reads a column of dates."""
    kind = None if read is None else model._columns.kinds.get(read.column)
    if read is None or kind is None or not kind.is_date or read.part is not None:
        return
    if read.period == "year":
        axis.set_ticks(_MONTH_STARTS, [month[0] for month in MONTHS])
    elif read.period == "week":
        axis.set_ticks(np.arange(7) + 0.5, [day[:2] for day in WEEKDAYS])
    elif read.period == "day":
        axis.set_ticks(np.arange(0, 25, 6) / 24, [str(hour) for hour in range(0, 25, 6)])
    else:
        locator = AutoDateLocator(minticks=3, maxticks=7)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
