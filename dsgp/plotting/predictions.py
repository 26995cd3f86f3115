"""Predicted against observed, and the residuals in predictive standard deviations."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from dsgp.errors import DataError
from dsgp.metrics import coverage, nmse
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import ACCENT, GREY, INK, label, limits, normal_quantile, percent, tidy
from dsgp.terms import Floats

_LINE = "#30363c"  # references: identity, borders of the intervals
# Without their palest third: a single row must be seen on white.
_DENSITY = LinearSegmentedColormap.from_list("density", ["#b7d0e8", "#4a8ac4", "#0b3a6b"])
_MISSED = LinearSegmentedColormap.from_list("missed", ["#e9b3a8", "#c1432e", "#7a1f10"])
_ERROR_BAR_ROWS = 200
_HEXBIN_ROWS = 2000
_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 1.6}
_RESIDUALS = (3.0, 8.0)  # standard deviations shown at least and at most


def plot_predictions(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    ax: Axes | None = None,
    level: float = 0.95,
    y_train_mean: float | None = None,
    target: str | None = None,
    interval: tuple[ArrayLike, ArrayLike] | None = None,
    unit: str = "rows",
) -> Figure:
    """Draw predicted against observed targets, and the residuals in standard deviations.

    The title of the left panel has the mean squared error as a share of the variance of the target
    (the NMSE) and the coverage of the intervals; up to 200 rows have error bars. The right one
    shows (observed − predicted) / std against the prediction, between the borders of the interval.
    Rows outside their interval are red; many rows are drawn as a density.

    Parameters
    ----------
    y, mean, std : array_like of shape (n_rows,)
        Observed targets, predictive means and standard deviations (with the noise).
    ax : Axes, optional
        Draw only the left panel, into these axes.
    level : float in (0, 1)
        Probability of the intervals.
    y_train_mean : float, optional
        Mean of the training targets, the reference of the NMSE; by default that of ``y``.
    target : str, optional
        Name and unit of the target, for the labels.
    interval : (lower, upper), array_like of shape (n_rows,), optional
        Ends of the intervals, for predictions whose intervals are not symmetric
        (``predict_interval`` with a transformed target or another likelihood); by default those of
        a normal distribution.
    unit : str
        Name of the elements of ``y`` in titles and legends, such as "cells" of a field.

    Returns
    -------
    Figure
        The figure of ``ax``, if given.

    Raises
    ------
    DataError
        If shapes differ or a value is not finite.

    Examples
    --------
    >>> from dsgp.plotting import plot_predictions
    >>> figure = plot_predictions([1.0, 2.0, 3.0], [1.1, 2.0, 2.8], [0.2, 0.2, 0.2])
    >>> figure.axes[0].get_ylabel()
    'predicted'
    """
    z = normal_quantile(level)
    y, mean, std = (np.asarray(values, dtype=np.float64) for values in (y, mean, std))
    covered = coverage(y, mean, std, level)  # checks shapes and values
    lower, upper, missed = mean - z * std, mean + z * std, np.abs(y - mean) > z * std
    if interval is not None:
        lower, upper = (np.asarray(end, dtype=np.float64) for end in interval)
        if not lower.shape == upper.shape == y.shape or np.isnan([lower, upper]).any():
            raise DataError(
                f"interval: expected two arrays of shape {y.shape} without missing values, got "
                f"{lower.shape} and {upper.shape}"
            )
        missed = (y < lower) | (y > upper)
        covered = float(1 - missed.mean())
    reference = float(np.mean(y)) if y_train_mean is None else y_train_mean
    try:
        error = f"mean squared error {percent(nmse(y, mean, reference))} of the variance"
    except DataError:  # one row, or a constant target: there is no variance to compare with
        error = f"mean squared error {np.mean((y - mean) ** 2):.3g}"

    whole = ax is None
    if ax is None:
        ax, right = DisplayedFigure((8.6, 4.1), layout="constrained").subplots(1, 2)
        _draw_residuals(right, y, mean, std, z, missed, unit)
    _draw_predictions(ax, y, mean, lower, upper, missed)
    ax.set_title(
        f"{error},\n{covered:.1%} of {len(y):,} {unit} in {level:.0%} intervals", fontsize=8.5
    )
    suffix = "" if target is None else f" {target}"
    for set_label, word in ((ax.set_xlabel, "observed"), (ax.set_ylabel, "predicted")):
        set_label(label(f"{word}{suffix}", 48), fontsize=9.5, parse_math=False)
    entries = _legend_entries(level, len(y) > _HEXBIN_ROWS, unit)
    if whole:
        right.set_xlabel(label(f"predicted{suffix}", 48), fontsize=9.5, parse_math=False)
        ax.figure.legend(handles=entries, loc="outside lower center", ncols=4, **_LEGEND)
        if len(y) > _HEXBIN_ROWS:
            _add_rows_bar(ax, right, unit)
    else:
        ax.legend(handles=entries, loc="lower right", **_LEGEND)
    return ax.figure.figure


def _draw_predictions(
    ax: Axes, y: Floats, mean: Floats, bottom: Floats, top: Floats, missed: Any
) -> None:
    low, high = limits(np.concatenate([y, mean]))
    ax.plot([low, high], [low, high], color=_LINE, linewidth=1.0, zorder=3, label="identity")
    ax.set(xlim=(low, high), ylim=(low, high))
    if len(y) > _HEXBIN_ROWS:
        _draw_density(ax, y, mean, missed, (low, high, low, high))
    else:
        _draw_dots(ax, y, mean, missed)
    if len(y) <= _ERROR_BAR_ROWS:
        for rows, colour in ((~missed, GREY), (missed, ACCENT)):
            ax.vlines(y[rows], bottom[rows], top[rows], colour, linewidth=0.8, zorder=1.5)
        ax.set_ylim(*limits(np.concatenate([y, bottom, top])))
    tidy(ax, x_ticks=5)


def _draw_residuals(
    ax: Axes, y: Floats, mean: Floats, std: Floats, z: float, missed: Any, unit: str
) -> None:
    """Draw (y − mean) / std against the mean; what is too far out stays at the edge."""
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.nan_to_num((y - mean) / std, nan=0.0)  # exact, and certain of it
    least, most = _RESIDUALS
    reach = float(np.clip(np.abs(residual).max(), max(least, 1.2 * z), max(most, 1.2 * z)))
    n_beyond = int(np.count_nonzero(np.abs(residual) > reach))
    residual = np.clip(residual, -reach, reach)
    low, high = limits(mean)
    ax.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    for border in (-z, z):
        ax.axhline(border, color=_LINE, linewidth=0.9, linestyle="--", zorder=3, label="border")
    if len(y) > _HEXBIN_ROWS:
        _draw_density(ax, mean, residual, missed, (low, high, -reach, reach))
    else:
        _draw_dots(ax, mean, residual, missed)
    ax.set(xlim=(low, high), ylim=(-1.06 * reach, 1.06 * reach))
    ax.set_ylabel("(observed − predicted) / predicted std", fontsize=9.5)
    beyond = f",\n{n_beyond:,} {unit} beyond ±{reach:g} at the edge" if n_beyond else ""
    ax.set_title(f"residuals, dashed: ends of the interval, ±{z:.3g} std{beyond}", fontsize=8.5)
    tidy(ax, x_ticks=5)


def _draw_dots(ax: Axes, x: Floats, y: Floats, missed: Any) -> None:
    faint = 1.0 if len(x) <= _ERROR_BAR_ROWS else 0.45
    for rows, colour, alpha, name in (
        (~missed, INK, faint, "covered"),
        (missed, ACCENT, 1.0, "missed"),
    ):
        ax.plot(
            x[rows], y[rows], "o", color=colour, markersize=3.2, alpha=alpha,
            markeredgewidth=0, label=name,
        )  # fmt: skip


def _draw_density(
    ax: Axes, x: Floats, y: Floats, missed: Any, extent: tuple[float, float, float, float]
) -> None:
    """Hexagons; red are those in which every row is missed, so these come first."""
    for rows, cmap in ((missed, _MISSED), (~missed, _DENSITY)):
        if rows.any():
            ax.hexbin(
                x[rows],
                y[rows],
                gridsize=50,
                extent=extent,
                norm=LogNorm(),
                mincnt=1,
                cmap=cmap,
                linewidths=0.1,
            )


def _add_rows_bar(left: Axes, right: Axes, unit: str) -> None:
    """One scale of rows per hexagon for both panels."""
    hexagons = [*left.collections, *right.collections]
    most = max(float(np.max(each.get_array())) for each in hexagons)  # type: ignore[arg-type]
    for each in hexagons:
        each.set_clim(1, max(most, 2.0))
    bar = right.figure.colorbar(hexagons[-1], ax=right, shrink=0.75, pad=0.02)
    bar.set_label(f"{unit} per hexagon", fontsize=8.5, parse_math=False)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)


def _legend_entries(level: float, hexagons: bool, unit: str) -> list[Line2D]:
    dots: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linestyle": ""}
    entries = [Line2D([], [], color=_LINE, linewidth=1.0, label="observed = predicted")]
    inside = f"some {unit} in their" if hexagons else "in its"
    entries.append(Line2D([], [], color=INK, label=f"{inside} {level:.0%} interval", **dots))
    entries.append(
        Line2D([], [], color=ACCENT, label=f"all {unit} outside" if hexagons else "outside", **dots)
    )
    return entries
