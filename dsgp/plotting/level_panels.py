"""Panels of terms that have levels: effects sorted with their intervals, and a curve a level."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dsgp.compute import one_blas_thread
from dsgp.models.term import FittedTerm
from dsgp.plotting.panels import draw_intervals, wider
from dsgp.plotting.style import CURVES, FAINT, INK, label
from dsgp.terms import Floats

# Levels that have their names beside them, and curves drawn of one term.
_NAMED, _CURVES = 24, len(CURVES)
NAME_LENGTH = 14


@dataclass(frozen=True)
class LevelsPanel:
    """Effects of levels, in ascending order; of parts of dates in the order of these.

    Attributes
    ----------
    term : FittedTerm
    names : list of str
    weight, mean, low, high : ndarray of shape (n_levels,)
        Borders are those of the wider intervals, if there are two of each.
    inner : ndarray of shape (2, n_levels), optional
        Borders of the narrower ones.
    """

    term: FittedTerm
    names: list[str]
    weight: Floats
    mean: Floats
    low: Floats
    high: Floats
    few: bool = True
    inner: Floats | None = None

    @property
    def cell_inputs(self) -> Floats:
        """Inputs of the term's cells that the panel shows."""
        return self.term.cells.points

    def widened(self, factor: float, keep: bool) -> LevelsPanel:
        """Return the panel with wider intervals; ``keep`` the old ones within them."""
        (low, high), inner = wider(self.mean, self.low, self.high, factor)
        return replace(self, low=low, high=high, inner=inner if keep else None)

    @property
    def told(self) -> bool:
        """Whether the data tell an effect from zero."""
        return bool(np.any((self.low > 0) | (self.high < 0)))

    def draw(self, ax: Axes, level: float) -> None:
        """Draw a point with its interval for each level, lowest first."""
        place = np.arange(len(self.mean), dtype=np.float64)
        many = len(place) > _NAMED
        colour, size = INK if self.told else FAINT, 1.2 if many else 2.4
        draw_intervals(ax, self, place, level, colour, size=size, thin=many)

    def write_inputs(self, ax: Axes) -> None:
        """Write the names of the levels, where they are few."""
        n = len(self.mean)
        names = [label(name, NAME_LENGTH) for name in self.names] if n <= _NAMED else []
        ax.set_xticks(np.arange(len(names)), names)
        ax.tick_params(axis="x", labelrotation=60, labelsize=7)
        for text in ax.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")
            text.set_parse_math(False)
        ax.set_xlim(-0.7, n - 0.3)

    @property
    def xlabel(self) -> str:
        """Name of the term, and how many levels it has where they are not named."""
        n = len(self.mean)
        return self.term.name if n <= _NAMED else f"{self.term.name}: {n} levels, sorted"


@dataclass(frozen=True)
class CurvesPanel:
    """A curve for each level, those with most rows.

    Attributes
    ----------
    term : FittedTerm
    names : list of str
    inputs, means, lows, highs : list of ndarray of shape (n_inputs,)
        Of each curve; borders are those of the wider bands, if there are two of each.
    cell_inputs : ndarray of shape (Σ n_inputs, k)
        Of all curves drawn, as inputs of the term's cells.
    n_levels : int
        Of all levels.
    inners : list of ndarray of shape (2, n_inputs)
        Borders of the narrower bands; empty without.
    """

    term: FittedTerm
    names: list[str]
    inputs: list[Floats]
    means: list[Floats]
    lows: list[Floats]
    highs: list[Floats]
    cell_inputs: Floats
    n_levels: int
    few: bool = False
    inners: list[Floats] = field(default_factory=list)

    def widened(self, factor: float, keep: bool) -> CurvesPanel:
        """Return the panel with wider bands; ``keep`` the old ones within them."""
        bands = [
            wider(mean, low, high, factor)
            for mean, low, high in zip(self.means, self.lows, self.highs, strict=True)
        ]
        return replace(
            self,
            lows=[borders[0] for borders, _ in bands],
            highs=[borders[1] for borders, _ in bands],
            inners=[inner for _, inner in bands] if keep else [],
        )

    @property
    def low(self) -> Floats:
        return np.concatenate(self.lows)

    @property
    def high(self) -> Floats:
        return np.concatenate(self.highs)

    @property
    def told(self) -> bool:
        """Whether the data tell a curve from zero somewhere."""
        return bool(np.any((self.low > 0) | (self.high < 0)))

    def draw(self, ax: Axes, level: float) -> None:
        """Draw all curves over one another, with their bands."""
        for k, (name, x, mean, low, high) in enumerate(
            zip(self.names, self.inputs, self.means, self.lows, self.highs, strict=True)
        ):
            colour = CURVES[k]
            ax.fill_between(x, low, high, color=colour, alpha=0.08 if self.inners else 0.12, lw=0)
            if self.inners:
                ax.fill_between(x, *self.inners[k], color=colour, alpha=0.15, lw=0)
            ax.plot(x, mean, color=colour, linewidth=1.1, label=label(name, NAME_LENGTH))
        ax.legend(fontsize=5.5, ncols=2, frameon=False, handlelength=1.0, columnspacing=0.8)

    def write_inputs(self, ax: Axes) -> None:
        """Leave the axis as it is."""

    @property
    def xlabel(self) -> str:
        """Name of the term, and how many of its curves are drawn."""
        n = len(self.names)
        left = "" if n == self.n_levels else f" ({n} of {self.n_levels})"
        return f"{self.term.name}{left}"


def levels_panel(model: Any, term: FittedTerm, z: float) -> LevelsPanel:
    """Evaluate the effects of all levels of a term."""
    points = term.cells.points
    mean, std = moments(model, term, points)
    value = term.bound.value
    assert value is not None
    # Days of the week and the like have an order of their own.
    order = np.arange(len(mean)) if value.part else np.argsort(mean, kind="stable")
    column = points if points.ndim == 1 else points[:, 0]
    kind = model._columns.kinds.get(value.column)
    labels = () if kind is None else kind.labels
    names = [value.label(float(column[k]), labels) for k in order]
    mean, reach = mean[order], z * std[order]
    return LevelsPanel(term, names, term.weight[order], mean, mean - reach, mean + reach)


def curves_panel(model: Any, term: FittedTerm, n_points: int, z: float) -> CurvesPanel:
    """Evaluate the curves of the levels with most rows, each where its rows are."""
    # Cells of a group begin with the level, and those of an interaction end with it.
    is_grouped = term.bound.group is not None
    group = term.bound.group if is_grouped else term.bound.other
    assert group is not None
    points, column = term.cells.points, 0 if is_grouped else 1
    levels, codes = np.unique(points[:, column], return_inverse=True)
    weights = np.bincount(codes.ravel(), term.weight, len(levels))
    chosen = np.sort(np.argsort(-weights, kind="stable")[:_CURVES])
    kind = model._columns.kinds.get(group.column)
    labels = () if kind is None else kind.labels
    names, inputs, means, lows, highs, cell_inputs = [], [], [], [], [], []
    for k in chosen:
        values = points[codes.ravel() == k, 1 - column]
        x = np.linspace(values.min(), values.max(), n_points) if len(values) > 1 else values
        level = np.full(len(x), levels[k])
        at = np.column_stack([level, x] if is_grouped else [x, level])
        if term.cells.multipliers(points[:1]) is not None:
            at = np.column_stack([at, np.ones(len(x))])
        mean, std = moments(model, term, at)
        names.append(group.label(float(levels[k]), labels))
        inputs.append(x)
        cell_inputs.append(at)
        means.append(mean)
        lows.append(mean - z * std)
        highs.append(mean + z * std)
    return CurvesPanel(
        term, names, inputs, means, lows, highs, np.concatenate(cell_inputs), len(levels)
    )


def moments(model: Any, term: FittedTerm, inputs: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of a centred component at inputs."""
    position = [fitted_term.name for fitted_term in model.terms_].index(term.name)
    with one_blas_thread():
        variance = model._rows_model.posterior.centred_variance(position, inputs)
    return term.mean(inputs) - term.centre, np.sqrt(variance)
