"""Merging the cells of several sets of rows, by their places in a cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsgp.additive import Equations
from dsgp.additive.joining import with_cells
from dsgp.models.gaussian.rows import Training
from dsgp.rows.coding import TermCut
from dsgp.terms import Cells, Codes, Floats, MultipliedCells, sum_by


@dataclass(frozen=True)
class InCut:
    """Some rows in the cells of a cut: which cells, and the positions of the rows in each.

    Attributes
    ----------
    places : ndarray of int, shape (n_cells,)
        Among the cells of the cut; several may be the same.
    beyond : ndarray of shape (n_cells,)
        Mean of the values, from the origin of the cell of the cut.
    weight, spread : ndarray of shape (n_cells,)
        Of the rows, and the variance of their values.
    """

    places: Codes
    beyond: Floats
    weight: Floats
    spread: Floats

    @classmethod
    def of(cls, cut: TermCut, places: Codes, cells: Cells, weight: Floats, spread: Floats) -> InCut:
        """Take the cells of some rows, whose places in the cut are known."""
        return cls(places, _values_of(cells) - cut.origin[places], weight, spread)


def in_cuts(
    cuts: Sequence[TermCut], places: Sequence[Codes], equations: Equations, spreads: list[Floats]
) -> list[InCut]:
    """Take all terms of some rows; ``places`` are those of the cells of their equations."""
    layout = equations.layout
    weights = layout.parts(equations.weight)
    parts = zip(cuts, places, layout.cells, weights, spreads, strict=True)
    return [InCut.of(*part) for part in parts]


@dataclass(frozen=True)
class Merged:
    """Cells of several sets of rows together.

    Attributes
    ----------
    places : ndarray of int, shape (n_cells,)
        Cells of the cut that have rows.
    cells : Cells
    spread : ndarray of shape (n_cells,)
    moves : list of ndarray of int
        New places of the cells of each set.
    """

    places: Codes
    cells: Cells
    spread: Floats
    moves: Sequence[Codes]

    @classmethod
    def of(cls, cut: TermCut, parts: Sequence[InCut]) -> Merged:
        """Merge the rows of several sets in the cells of a cut."""
        places = np.unique(np.concatenate([part.places for part in parts]))
        moves: list[Codes] = [np.searchsorted(places, part.places) for part in parts]
        weight, beyond, spread = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("weight", "beyond", "spread")
        )
        to, n = np.concatenate(moves), len(places)
        weight = np.maximum(weight, np.finfo(float).tiny)
        total = sum_by(to, n, weight)
        mean = sum_by(to, n, weight * beyond) / total
        within = sum_by(to, n, weight * (spread + (beyond - mean[to]) ** 2)) / total
        filled = np.zeros(len(cut), dtype=bool)
        filled[places] = True
        if cut.exact or cut.pairs is not None:  # pairs have the variances of their bins
            mean, within = np.zeros(n), np.zeros(n)
        values = cut.ordered(filled, cut.origin[places] + mean)
        return cls(places, cut.cells(filled, values), within, moves)


def _values_of(cells: Cells) -> Floats:
    """Value of each cell of a cut, (n_cells,): 0 of pairs, which stand where their bins are."""
    inner = cells.inner if isinstance(cells, MultipliedCells) else cells
    return inner.points if inner.points.ndim == 1 else inner.points[:, 1]


def spreads_of(training: Training) -> list[Floats]:
    """Variance of the inputs in each cell; 0 where every distinct value is kept."""
    if training.spreads is not None:
        return training.spreads
    return [np.zeros(len(cells)) for cells in training.equations.layout.cells]


def with_merged(
    training: Training, equations: Equations, cuts: list[TermCut], merged: list[Merged]
) -> Training:
    """Return the training rows of such equations, whose cells were put together."""
    spreads = [one.spread for one in merged]
    return replace(
        training,
        equations=with_cells(equations, equations.layout, spreads),
        spreads=None if all(cut.exact for cut in cuts) else spreads,
        cuts=cuts,
        places=[one.places for one in merged],
    )
