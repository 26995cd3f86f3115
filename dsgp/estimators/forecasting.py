"""What a fitted model says of its dates: their column, the last one, and their distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgp.dates import dates_of_days
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.calendars import distance_of
from dsgp.estimators.spline import SmoothingSpline
from dsgp.terms import Floats


@dataclass(frozen=True)
class DatesSeen:
    """Dates of the rows that a model was fitted to.

    Attributes
    ----------
    column : str
    zone : str or None
        Their time zone.
    first, last : pandas.Timestamp or None
        In the time zone; None where the model does not hold them, such as one whose only terms of
        the date are seasons, or whose dates are in bins.
    step : pandas offset or None
        Their distance; None where it is not known or they have none in common.
    """

    column: str
    zone: str | None
    first: Any = None
    last: Any = None
    step: Any = None


def dates_seen(model: Any) -> DatesSeen:
    """Return the dates of a fitted model.

    Raises
    ------
    ParameterError
        If the model has no column of dates, or more than one.
    """
    kinds = model._columns.kinds
    names = [name for name in model.used_columns_ if name in kinds and kinds[name].is_date]
    if len(names) != 1:
        columns = ", ".join(map(repr, model.used_columns_)) or "none"
        problem = (
            f"has the columns of dates {', '.join(map(repr, names))}"
            if names
            else f"has no column of dates among its inputs, which are {columns}"
        )
        raise ParameterError(
            f"the model {problem}, and a forecast is for one column of dates; make a table of the "
            "rows to come and use dsgp predict"
        )
    column, zone = names[0], kinds[names[0]].zone
    days = _days_seen(model, column)
    if days is None:
        return DatesSeen(column, zone, last=_local(_last_of_bins(model, column), zone))
    dates = pd.DatetimeIndex(dates_of_days(days))
    try:
        step = distance_of(dates) if len(dates) > 1 else None
    except DataError:
        step = None
    return DatesSeen(column, zone, _local(days[0], zone), _local(days[-1], zone), step)


def _days_seen(model: Any, column: str) -> Floats | None:
    """All dates, in days and ascending, if a spline or a term keeps every distinct one."""
    if isinstance(model, SmoothingSpline):
        return model._points()[0]
    if getattr(model, "bin_error_", 1.0):
        return None
    for term in model._rows_model.terms:
        bound = term.bound
        if bound.family == "axis" and bound.group is None and _is_whole(bound.value, column):
            return np.asarray(term.cells.points)
    return None


def _last_of_bins(model: Any, column: str) -> float | None:
    """The last date, in days, of which a model that is updated keeps the end of the bins."""
    basis = getattr(model.model_, "basis", None)
    for cut in getattr(basis, "cuts", None) or ():
        if cut.pairs is None and _is_whole(cut.term.value, column):
            return float(cut.high)
    return None


def _is_whole(value: Any, column: str) -> bool:
    """Whether a term reads a column of dates itself: no part of it, and not within a period."""
    return (
        value is not None
        and value.column == column
        and value.part is None
        and value.period is None
        and (value.centre, value.scale) == (0.0, 1.0)
    )


def _local(days: float | None, zone: str | None) -> Any:
    if days is None:
        return None
    date = pd.Timestamp(dates_of_days([days])[0])
    if zone is None:
        return date
    # An hour that occurs twice is the later one.
    return date.tz_localize(zone, ambiguous=False, nonexistent="shift_forward")
