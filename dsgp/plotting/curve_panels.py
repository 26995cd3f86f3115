"""Panels of curves over one another: one for each level of a column, or each value of a count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from dsgp.models.term import FittedTerm
from dsgp.plotting.level_panels import NAME_LENGTH, moments
from dsgp.plotting.panels import FEW_VALUES, wider
from dsgp.plotting.style import CURVES, GREY, TEXT, label, name_artists, short_names
from dsgp.terms import Floats
from dsgp.terms.inputs import Input

# Levels that all have a colour and a band; of more, so many have one, and so many are grey lines.
_ALL, _MOST, _GREY = len(CURVES), 5, 40
_LINE = 0.125  # inches of a line of a legend
_BELOW = 30  # points between the panel and its legend: ticks and the name of the axis


@dataclass(frozen=True)
class Curve:
    """One curve of a panel.

    Attributes
    ----------
    name : str
    inputs, mean, low, high : ndarray of shape (n_inputs,)
        Borders are those of the wider band, if there are two.
    inner : ndarray of shape (2, n_inputs), optional
        Borders of the narrower one.
    """

    name: str
    inputs: Floats
    mean: Floats
    low: Floats
    high: Floats
    inner: Floats | None = None

    def widened(self, factor: float, keep: bool) -> Curve:
        """Return the curve with a wider band; ``keep`` the old one within it."""
        (low, high), inner = wider(self.mean, self.low, self.high, factor)
        return replace(self, low=low, high=high, inner=inner if keep else None)


@dataclass(frozen=True)
class CurvesPanel:
    """A curve with its band for each of the levels with most rows, and lines for others.

    Attributes
    ----------
    term : FittedTerm
    curves : list of Curve
    others : list of (inputs, mean)
        Of levels with fewer rows.
    along, by : str
        What is along the axis, and what the curves are of.
    n_levels : int
        Of all levels.
    cell_inputs : ndarray of shape (Σ n_inputs, k)
        Of all curves with a band, as inputs of the term's cells.
    points : bool
        Whether there are few inputs, which are drawn as points.
    """

    term: FittedTerm
    curves: list[Curve]
    others: list[tuple[Floats, Floats]] = field(repr=False)
    along: str
    by: str
    n_levels: int
    cell_inputs: Floats
    points: bool

    @property
    def few(self) -> bool:
        return self.points

    def widened(self, factor: float, keep: bool) -> CurvesPanel:
        """Return the panel with wider bands; ``keep`` the old ones within them."""
        return replace(self, curves=[curve.widened(factor, keep) for curve in self.curves])

    @property
    def low(self) -> Floats:
        ends = [*(curve.low for curve in self.curves), *(mean for _, mean in self.others)]
        return np.concatenate(ends)

    @property
    def high(self) -> Floats:
        ends = [*(curve.high for curve in self.curves), *(mean for _, mean in self.others)]
        return np.concatenate(ends)

    @property
    def effects(self) -> Floats:
        """All values that are drawn."""
        ends = [*(curve.mean for curve in self.curves), *(mean for _, mean in self.others)]
        return np.concatenate(ends)

    @property
    def is_clear(self) -> bool:
        """Whether the band of a curve excludes zero somewhere."""
        return any(bool(np.any((curve.low > 0) | (curve.high < 0))) for curve in self.curves)

    @property
    def room_below(self) -> float:
        """Inches of the legend."""
        return _LINE * (1.3 + math.ceil(len(self.curves) / self._legend_columns(28)))

    @property
    def _names(self) -> list[str]:
        return short_names([curve.name for curve in self.curves], NAME_LENGTH)

    def draw(self, ax: Axes, level: float) -> None:
        """Draw all curves over one another, with their bands."""
        for x, mean in self.others:
            ax.plot(x, mean, color=GREY, linewidth=0.6, zorder=1.5, label="others")
        if self.points:
            self._draw_points(ax)
            return
        for curve, colour, name in zip(self.curves, CURVES, self._names, strict=False):
            x = curve.inputs
            alpha = 0.12 if curve.inner is None else 0.08
            ax.fill_between(x, curve.low, curve.high, color=colour, alpha=alpha, lw=0)
            if curve.inner is not None:
                ax.fill_between(x, *curve.inner, color=colour, alpha=0.15, lw=0)
            marker = "." if len(x) == 1 else None
            ax.plot(x, curve.mean, marker=marker, color=colour, linewidth=1.2, label=name)

    def _draw_points(self, ax: Axes) -> None:
        """Draw points with intervals, beside one another where they are at the same input."""
        values = np.unique(np.concatenate([curve.inputs for curve in self.curves]))
        step = 0.3 * float(np.diff(values).min()) if len(values) > 1 else 0.3
        beside = np.linspace(-0.5, 0.5, len(self.curves)) * step * (len(self.curves) > 1)
        for curve, colour, name, shift in zip(
            self.curves, CURVES, self._names, beside, strict=False
        ):
            at = curve.inputs + shift
            ax.plot(at, curve.mean, "o-", color=colour, linewidth=0.9, markersize=3, label=name)
            ax.vlines(at, curve.low, curve.high, color=colour, linewidth=0.9)
            if curve.inner is not None:
                ax.vlines(at, *curve.inner, color=colour, linewidth=2.4, alpha=0.6)
        ax.set_xticks(values)

    def write_inputs(self, ax: Axes, width: int) -> None:
        """Write what is along the axis, and the names of the curves below it."""
        ax.set_xlabel(label(self.along, width), fontsize=8, parse_math=False)
        title = self.by
        if len(self.curves) < self.n_levels:
            title += f" ({len(self.curves)} of {self.n_levels} with most rows"
            title += f", grey: {len(self.others)} others)" if self.others else ")"
        curves = ax.lines[-len(self.curves) :]  # those of the other levels come before
        legend = name_artists(
            ax, curves, self._names, title=label(title, width), fontsize=6.5, title_fontsize=6.5,
            ncols=self._legend_columns(width), frameon=False, handlelength=1.0, columnspacing=0.8,
            labelspacing=0.2, borderpad=0, loc="upper center", bbox_to_anchor=(0.5, 0.0),
            bbox_transform=ax.transAxes
            + ScaledTranslation(0, -_BELOW / 72, ax.figure.figure.dpi_scale_trans),
        )  # fmt: skip
        legend.get_title().set_parse_math(False)
        for text in (legend.get_title(), *legend.get_texts()):
            text.set_color(TEXT)

    def _legend_columns(self, width: int) -> int:
        """Columns of a legend that is as wide as a label of so many larger characters."""
        longest = max(map(len, self._names))
        return max(1, min(4, len(self.curves), int(1.3 * width / (longest + 4))))


def value_inputs(term: FittedTerm, is_date: Any) -> int | None:
    """Which input of an interaction of numbers is drawn as a curve for each value, if any.

    A count of few values: a surface between them would mean nothing.
    """
    counts = []
    for k, read in enumerate(term.bound.inputs):
        values = np.unique(term.cells.points[:, k])
        if _are_counts(values, _ALL) and not is_date(read):
            counts.append((len(values), k))
    return min(counts)[1] if counts else None


def _are_counts(values: Floats, most: int) -> bool:
    """Whether distinct inputs are few whole numbers: bins of a continuous column are not."""
    return len(values) <= most and np.array_equal(values, np.round(values))


def curves_panel(
    model: Any, term: FittedTerm, n_points: int, z: float, column: int | None = None
) -> CurvesPanel:
    """Evaluate a curve for each level, where its rows are: those with most rows with a band.

    Parameters
    ----------
    model : fitted estimator
    term : FittedTerm
        Of a group, or an interaction.
    n_points : int
        Inputs a curve is evaluated at.
    z : float
        Half the width of a band, in standard deviations.
    column : int, optional
        Of an interaction of two numbers: the input that there is a curve of each value of.
    """
    # Cells of a group begin with the level, and those of an interaction end with it.
    is_grouped = term.bound.group is not None
    if column is None:
        column = 0 if is_grouped else 1
    by = term.bound.group if is_grouped else (term.bound.value, term.bound.other)[column]
    along = term.bound.value if is_grouped else (term.bound.value, term.bound.other)[1 - column]
    assert by is not None
    points = term.cells.points
    levels, codes = np.unique(points[:, column], return_inverse=True)
    codes = codes.ravel()
    weights = np.bincount(codes, term.weight, len(levels))
    most = np.argsort(-weights, kind="stable")
    n_banded = len(levels) if len(levels) <= _ALL else _MOST
    few = _are_counts(np.unique(points[:, 1 - column]), FEW_VALUES)
    curves, cell_inputs, others = [], [], []
    for rank, k in enumerate([*np.sort(most[:n_banded]), *most[n_banded : n_banded + _GREY]]):
        values = np.unique(points[codes == k, 1 - column])
        x = values if few or len(values) == 1 else np.linspace(values[0], values[-1], n_points)
        level = np.full(len(x), levels[k])
        at = np.column_stack([level, x] if column == 0 else [x, level])
        if term.cells.multipliers(points[:1]) is not None:
            at = np.column_stack([at, np.ones(len(x))])
        if rank >= n_banded:
            others.append((x, term.mean(at) - term.centre))
            continue
        mean, std = moments(model, term, at)
        name = value_name(model, by, float(levels[k]))
        curves.append(Curve(name, x, mean, mean - z * std, mean + z * std))
        cell_inputs.append(at)
    return CurvesPanel(
        term, curves, others, "" if along is None else input_name(along), input_name(by),
        len(levels), np.concatenate(cell_inputs), few,
    )  # fmt: skip


def value_name(model: Any, read: Input, value: float) -> str:
    """Write a level, or a number."""
    kind = model._columns.kinds.get(read.column)
    if kind is not None and (kind.labels or read.part is not None):
        return read.label(value, kind.labels)
    return f"{value:g}"


def input_name(read: Input) -> str:
    """Name of a column, with the part of a date that is read of it."""
    return read.column if read.part is None else f"{read.column} ({read.part})"
