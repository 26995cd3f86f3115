"""Panels of interactions: a surface as a map, a curve for each level, a table of two categories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dsgp.models.term import FittedTerm
from dsgp.plotting.curve_panels import (
    CurvesPanel,
    curves_panel,
    input_name,
    value_inputs,
    value_name,
)
from dsgp.plotting.level_panels import NAME_LENGTH, moments
from dsgp.plotting.panels import shown_range
from dsgp.plotting.style import DIVERGING, TEXT, label, short_names
from dsgp.terms import Floats, sum_by
from dsgp.terms.inputs import Input

# Values of each input at which a surface is drawn, and its rows that are dots.
_GRID, _DOTS = 60, 400
# Levels of each column of a table, those with most rows.
_LEVELS = 20
_NO_ROWS, _HATCH = "#d5d9dc", "#7d868e"


@dataclass(frozen=True)
class MapPanel:
    """An interaction over two inputs, by colour.

    Attributes
    ----------
    term : FittedTerm
    first, other : ndarray of shape (n_first,), (n_other,)
        Inputs along the axes; numbers of names where these are given.
    names : tuple of two lists of str
        Of levels; empty of numbers.
    mean, low, high : ndarray of shape (n_other, n_first)
        NaN where no row is near, for a surface, or no row has both levels, for a table.
    dots : ndarray of shape (n_dots, 2)
        Where rows are.
    size : float
        Effect, above or below zero, that has the darkest colour.
    """

    term: FittedTerm
    first: Floats
    other: Floats
    names: tuple[list[str], list[str]]
    mean: Floats
    low: Floats
    high: Floats
    cell_inputs: Floats
    dots: Floats
    size: float
    few: bool = False

    @property
    def has_gaps(self) -> bool:
        """Whether there are places without rows near."""
        return bool(np.isnan(self.mean).any())

    def widened(self, factor: float, keep: bool) -> MapPanel:
        """Return the panel for wider bands; there is no room for two of them."""
        low, high = (self.mean + factor * (border - self.mean) for border in (self.low, self.high))
        return replace(self, low=low, high=high)

    @property
    def is_clear(self) -> bool:
        """Whether the band of the interaction excludes zero somewhere."""
        return bool(np.nanmax(np.maximum(self.low, -self.high)) > 0)

    def draw(self, ax: Axes, level: float) -> None:
        """Draw the mean by colour, hatched where the band holds zero."""
        ax.set_facecolor(_NO_ROWS)
        mesh = ax.pcolormesh(
            self.first, self.other, self.mean, cmap=DIVERGING, vmin=-self.size, vmax=self.size,
            shading="nearest", rasterized=True,
        )  # fmt: skip
        bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, aspect=18)
        bar.ax.tick_params(labelsize=7, length=2)
        bar.outline.set_visible(False)
        unclear = np.where(np.isnan(self.mean), np.nan, (self.low <= 0) & (self.high >= 0))
        if not any(self.names):
            if np.nanmax(unclear) > 0:
                hatched = ax.contourf(
                    self.first, self.other, unclear, levels=[0.5, 1.5], colors="none",
                    hatches=["///"],
                )  # fmt: skip
                hatched.set_edgecolor(_HATCH)
                hatched.set_linewidth(0.0)
            ax.plot(*self.dots.T, ".", color="black", markersize=1.0, alpha=0.35, linewidth=0)
        else:
            for row, place in enumerate(self.other):
                for column, at in enumerate(self.first):
                    if unclear[row, column] == 1:
                        ax.plot(at, place, "x", color=TEXT, markersize=3.5, markeredgewidth=0.7)

    @property
    def effects(self) -> Floats:
        """All values that are drawn."""
        return self.mean

    @property
    def room_below(self) -> float:
        """Inches that names take below the panel, beyond those of numbers."""
        return 0.05 * max(map(len, short_names(self.names[0], NAME_LENGTH)), default=0)

    def write_inputs(self, ax: Axes, width: int) -> None:
        """Write the names of the columns and of levels."""
        value, other = self.term.bound.value, self.term.bound.other
        assert value is not None
        assert other is not None
        ax.set_xlabel(label(input_name(value), width), fontsize=8, parse_math=False)
        ax.set_ylabel(label(input_name(other), 18), fontsize=8, parse_math=False)
        for axis, names in zip((ax.xaxis, ax.yaxis), self.names, strict=True):
            if not names:
                continue
            axis.set_ticks(np.arange(len(names)), short_names(names, NAME_LENGTH))
            for text in axis.get_ticklabels():
                text.set_parse_math(False)
                text.set_fontsize(6.5)
        if self.names[0]:
            ax.tick_params(axis="x", labelrotation=60)


def pair_panel(model: Any, term: FittedTerm, n_points: int, z: float) -> MapPanel | CurvesPanel:
    """Evaluate an interaction as its columns ask for."""
    are_levels = [each in term.bound.level_inputs for each in term.bound.inputs]
    if are_levels == [False, True]:
        return curves_panel(model, term, n_points, z)
    if not any(are_levels):
        column = value_inputs(term, lambda read: _is_date(model, read))
        if column is not None:
            return curves_panel(model, term, n_points, z, column)
    return _map(model, term, z, are_levels[0])


def _is_date(model: Any, read: Input) -> bool:
    kind = model._columns.kinds.get(read.column)
    return kind is not None and kind.is_date


def _names(model: Any, term: FittedTerm, k: int, values: Floats) -> list[str]:
    """Names of levels of an input."""
    read = (term.bound.value, term.bound.other)[k]
    assert read is not None
    return [value_name(model, read, float(value)) for value in values]


def weights_along(term: FittedTerm, k: int) -> tuple[Floats, Floats]:
    """Distinct values of the k-th input of an interaction, and the weight of each."""
    values, places = np.unique(term.cells.points[:, k], return_inverse=True)
    return values, sum_by(places.ravel(), len(values), term.weight)


def _map(model: Any, term: FittedTerm, z: float, are_levels: bool) -> MapPanel:
    points, axes = term.cells.points, []
    for k in (0, 1):
        values, weight = weights_along(term, k)
        if are_levels:
            axes.append(values[np.sort(np.argsort(-weight, kind="stable")[:_LEVELS])])
        else:
            axes.append(np.linspace(*shown_range(values, weight), _GRID))
    first, other = axes
    at = np.column_stack([np.tile(first, len(other)), np.repeat(other, len(first))])
    mean, std = moments(model, term, at)
    known = _is_near(points, at, are_levels)
    if known.any():
        mean, std = np.where(known, mean, np.nan), np.where(known, std, np.nan)
    shape = (len(other), len(first))
    names: tuple[list[str], list[str]] = ([], [])
    places = (first, other)
    if are_levels:
        names = (_names(model, term, 0, first), _names(model, term, 1, other))
        places = (np.arange(len(first), dtype=float), np.arange(len(other), dtype=float))
    some = np.linspace(0, len(points) - 1, min(len(points), _DOTS)).astype(int)
    inside = points[some]
    within = (inside >= [first[0], other[0]]) & (inside <= [first[-1], other[-1]])
    return MapPanel(
        term, *places, names, mean.reshape(shape), (mean - z * std).reshape(shape),
        (mean + z * std).reshape(shape), at[known] if known.any() else at,
        inside[within.all(axis=1)], float(np.nanmax(np.abs(mean))) or 1.0,
    )  # fmt: skip


def _is_near(points: Floats, at: Floats, are_levels: bool) -> np.ndarray:
    """Whether rows are near each place: within a tenth of what is shown, or just there."""
    scale = np.array([1.0, 1.0]) if are_levels else np.ptp(at, axis=0) / 10
    near = np.zeros(len(at), dtype=bool)
    for start in range(0, len(points), 256):
        apart = np.abs(at[:, None, :] - points[None, start : start + 256]) / scale
        near |= (apart < (0.5 if are_levels else 1.0)).all(axis=2).any(axis=1)
    return near
