"""A forecast: what was observed, and what is to come with its intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dsgp.errors import DataError
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import FAINT, INK, frame, label

_FEW = 60  # dates, of which each has a dot


def plot_forecast(
    dates: Any,
    centre: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    observed: tuple[Any, ArrayLike] | None = None,
    level: float = 0.95,
    statistic: str = "median",
    target: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a forecast over dates, with its intervals and what was observed before.

    Parameters
    ----------
    dates : array_like of dates, of shape (n,)
    centre, lower, upper : array_like of shape (n,)
        Median or mean, and the ends of the intervals of observations.
    observed : (dates, values), optional
        Of the past, and of the dates of the forecast where these are known by now.
    level : float in (0, 1)
        Of the intervals.
    statistic : {"median", "mean"}
        What ``centre`` is.
    target : str, optional
        Name and unit of the target, for the vertical axis.
    ax : Axes, optional
        Draw into it.

    Returns
    -------
    Figure
        The figure of ``ax``, if given.

    Raises
    ------
    DataError
        If shapes differ.

    Examples
    --------
    >>> import pandas as pd
    >>> from dsgp.plotting import plot_forecast
    >>> ahead = pd.date_range("2024-05-01", periods=3)
    >>> figure = plot_forecast(ahead, [2.0, 2.1, 2.2], [1.0, 0.9, 0.8], [3.0, 3.3, 3.6])
    >>> len(figure.axes[0].lines)
    1
    """
    index = _on_the_clock(dates)
    values = [np.asarray(each, dtype=np.float64) for each in (centre, lower, upper)]
    if any(each.shape != (len(index),) for each in values):
        shapes = ", ".join(str(each.shape) for each in values)
        raise DataError(f"expected arrays of shape ({len(index)},) for as many dates, got {shapes}")
    if ax is None:
        ax = DisplayedFigure((9.0, 3.8), layout="constrained").subplots()
    if observed is not None:
        seen, y = _on_the_clock(observed[0]), np.asarray(observed[1], dtype=np.float64)
        if y.shape != (len(seen),):
            raise DataError(f"expected {len(seen)} observed values for as many dates, got {len(y)}")
        size = 3.2 if len(seen) <= 4 * _FEW else 2.0
        ax.plot(
            seen, y, ".", color="#30363c", markersize=2 * size, markeredgewidth=0, label="observed"
        )
        ax.axvline(index[0], color=FAINT, linewidth=0.8)
    middle, low, high = values
    ax.fill_between(
        index, low, high, color=INK, alpha=0.2, linewidth=0,
        label=f"{100 * level:g} % interval of an observation",
    )  # fmt: skip
    marker = "o" if len(index) <= _FEW else ""
    ax.plot(index, middle, color=INK, linewidth=1.4, marker=marker, markersize=3, label=statistic)
    locator = AutoDateLocator(minticks=4, maxticks=9)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if target is not None:
        ax.set_ylabel(label(target, 40), fontsize=9.5, parse_math=False)
    frame(ax)
    ax.figure.legend(loc="outside upper center", ncols=3, fontsize=8.5, frameon=False)
    return ax.figure.figure


def _on_the_clock(dates: Any) -> pd.DatetimeIndex:
    """Dates without their time zone, as the clock showed them."""
    return pd.DatetimeIndex(pd.to_datetime(dates)).tz_localize(None)
