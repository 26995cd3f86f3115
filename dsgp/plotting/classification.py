"""Probabilities of classes against what came: calibration, ROC, confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from dsgp.plotting.class_panels import (
    BINARY_DOTS,
    TOP_DOTS,
    Scored,
    draw_calibration,
    draw_confusion,
    draw_probabilities,
    draw_roc,
    score,
)
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import GREY, INK, name_artists, short_name

_HEIGHTS = (4.2, 1)  # of the calibration curve and the rows below it
_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 1.6}


def plot_classification(
    y: ArrayLike,
    probability: ArrayLike,
    *,
    classes: Sequence[Any] | ArrayLike | None = None,
    n_bins: int | None = None,
    level: float = 0.95,
) -> Figure:
    """Draw calibration and ROC curves; with more than two classes also the confusion matrix.

    With two classes: as ``plot_calibration`` and ``plot_roc``. With more: one curve per class
    against the rest, in at most ten colours, given to the classes with the smallest areas; and a
    confusion matrix, in which the shade of a cell shows its share of the row.

    Parameters
    ----------
    y : array_like of shape (n_rows,)
        Observed labels.
    probability : array_like of shape (n_rows,) or (n_rows, n_classes)
        Probability of the second of two classes, or of every class.
    classes : sequence of n_classes labels, optional
        Labels of the columns (``classes_`` of a classifier); by default 0, 1, ….
    n_bins : int, optional
        Number of bins of the calibration curve; by default 5 to 20, depending on the number of
        rows.
    level : float in (0, 1)
        Probability of the intervals of the observed shares.

    Returns
    -------
    Figure

    Raises
    ------
    DataError
        If shapes differ, probabilities are invalid, a label is not among the classes, or all labels
        are the same.

    Examples
    --------
    >>> from dsgp.plotting import plot_classification
    >>> figure = plot_classification(["b", "a", "b"], [0.9, 0.2, 0.6], classes=["a", "b"])
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['observed share', 'true positive rate', 'rows']
    """
    scored = score(y, probability, classes)
    if scored.binary:
        fig = _figure_over_legend(8.8, 4.8, _binary_entries(scored, level))
        panels = fig.subplot_mosaic("cr;pr", height_ratios=_HEIGHTS)
        draw_calibration(panels["c"], scored, n_bins, level)
        draw_probabilities(panels["p"], panels["c"], scored)
        draw_roc(panels["r"], scored)
        panels["r"].set_anchor("N")  # its title beside the other one
        return fig
    entries = [*_class_entries(scored), *_top_entries(level)]
    fig = _figure_over_legend(12.0, 4.8, entries)
    calibration, roc, confusion = fig.subplots(1, 3)
    draw_calibration(calibration, scored, n_bins, level)
    draw_roc(roc, scored)
    draw_confusion(confusion, scored)
    return fig


def plot_calibration(
    y: ArrayLike,
    probability: ArrayLike,
    *,
    classes: Sequence[Any] | ArrayLike | None = None,
    ax: Axes | None = None,
    n_bins: int | None = None,
    level: float = 0.95,
) -> Figure:
    """Draw how often a class occurred against its predicted probability.

    Rows are binned by their probability, with equally many in each bin. With two classes, bins have
    the Wilson interval of the observed share, red where it does not contain the predicted one;
    below are the probabilities of the rows of the second class (upwards) and of the first
    (downwards). With more classes there is one curve per class against the rest, over the rows
    where it has a probability of at least 2 %, and black dots with intervals for the most probable
    class, hollow where the interval does not contain the prediction.

    Parameters
    ----------
    y, probability, classes, n_bins, level
        As for ``plot_classification``.
    ax : Axes, optional
        Draw into it, without the probabilities below.

    Returns
    -------
    Figure
        The figure of ``ax``, if given.

    Raises
    ------
    DataError
        As for ``plot_classification``.

    Examples
    --------
    >>> from dsgp.plotting import plot_calibration
    >>> figure = plot_calibration([0, 1, 1], [0.2, 0.9, 0.6])
    >>> figure.axes[0].get_ylabel()
    'observed share'
    """
    scored = score(y, probability, classes)
    if ax is not None:
        draw_calibration(ax, scored, n_bins, level)
        if not scored.binary:
            _write_legend(ax, _class_entries(scored), loc="upper left")
        return ax.figure.figure
    if not scored.binary:
        entries = [*_class_entries(scored), *_top_entries(level)]
        fig = _figure_over_legend(4.6, 4.9, entries)
        draw_calibration(fig.subplots(), scored, n_bins, level)
        return fig
    fig = _figure_over_legend(4.6, 4.7, _binary_entries(scored, level))
    curve, rows = fig.subplots(2, 1, height_ratios=_HEIGHTS)
    draw_calibration(curve, scored, n_bins, level)
    draw_probabilities(rows, curve, scored)
    return fig


def plot_roc(
    y: ArrayLike,
    probability: ArrayLike,
    *,
    classes: Sequence[Any] | ArrayLike | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the true positive rate of a class against its false positive rate.

    The diamond is where the second of two classes is predicted from a probability of one half on.
    Curves close to the corner are also shown enlarged.

    Parameters
    ----------
    y, probability, classes
        As for ``plot_classification``.
    ax : Axes, optional
        Draw into it.

    Returns
    -------
    Figure
        The figure of ``ax``, if given.

    Raises
    ------
    DataError
        As for ``plot_classification``.

    Examples
    --------
    >>> from dsgp.plotting import plot_roc
    >>> plot_roc([0, 1, 1], [0.2, 0.9, 0.6]).axes[0].get_ylabel()
    'true positive rate'
    """
    scored = score(y, probability, classes)
    if ax is not None:
        draw_roc(ax, scored)
        if not scored.binary:
            _write_legend(ax, _class_entries(scored), loc="lower right")
        return ax.figure.figure
    fig = _figure_over_legend(4.6, 5.1, [] if scored.binary else _class_entries(scored))
    draw_roc(fig.subplots(), scored)
    return fig


# ---- legends


def _class_entries(scored: Scored) -> list[Line2D]:
    """A line a class in colour, with its area under the ROC curve, and one for the others."""
    entries = [
        Line2D(
            [], [], color=colour, linewidth=1.8,
            label=f"{short_name(scored.names[k], 14)}: area {scored.areas[k]:.4f}",
        )
        for k, colour in scored.colours.items()
    ]  # fmt: skip
    n_others = len(scored.areas) - len(scored.colours)
    if n_others:
        entries.append(Line2D([], [], color=GREY, linewidth=1.8, label=f"{n_others} larger areas"))
    return entries


def _top_entries(level: float) -> list[Line2D]:
    held, missed = TOP_DOTS
    return [
        Line2D([], [], linestyle="", marker="o", label="most probable class", **held),
        Line2D(
            [],
            [],
            linestyle="",
            marker="o",
            label=f"{level:.0%} interval misses the prediction",
            **missed,
        ),
    ]


def _binary_entries(scored: Scored, level: float) -> list[Line2D]:
    entries = [
        Line2D([], [], linestyle="", marker="o", label=f"{level:.0%} interval {what}", **look)
        for what, look in zip(
            ("contains the prediction", "misses the prediction"), BINARY_DOTS, strict=True
        )
    ]
    for k, colour in ((1, INK), (0, GREY)):
        rows = f"{np.count_nonzero(scored.codes == k):,} rows"
        entries.append(
            Line2D(
                [], [], linestyle="", marker="s", markersize=6, color=colour,
                label=f"class {short_name(scored.names[k], 20)}: {rows}",
            )
        )  # fmt: skip
    return entries


def _figure_over_legend(width: float, height: float, entries: list[Line2D]) -> Figure:
    """Figure with a legend below, for whose lines it is as much higher."""
    n_columns = _columns_that_fit([str(entry.get_label()) for entry in entries], width)
    height += 0.2 * -(-len(entries) // n_columns)
    fig = DisplayedFigure((width, height), layout=ConstrainedLayoutEngine(h_pad=0.07))
    if entries:
        _write_legend(fig, entries, loc="outside lower center", ncols=n_columns)
    return fig


def _columns_that_fit(texts: list[str], width: float) -> int:
    """Columns of a legend, at most 6, that is filled column by column."""
    for n_columns in range(min(6, len(texts)), 1, -1):
        columns = np.array_split(np.array([len(text) for text in texts]), n_columns)
        letters = sum(int(column.max()) for column in columns)
        if 0.58 * 8 * letters + 36 * n_columns <= 72 * width:
            return n_columns
    return 1


def _write_legend(parent: Axes | Figure, entries: list[Line2D], **style: Any) -> None:
    name_artists(parent, entries, [str(entry.get_label()) for entry in entries], **style, **_LEGEND)
