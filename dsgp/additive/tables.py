"""Sufficient statistics of the rows: what bins of each axis, and pairs of bins, hold of them.

With the posterior of an additive model as a function of the terms at the bins, the rows enter only
through these tables; they do not depend on the hyperparameters and take one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dsgp.axis import Axis, Floats, sum_by
from dsgp.compute import run
from dsgp.jit.rows import two_way_table
from dsgp.rows.table import RowTable

# Bins of an axis by the order of its kernel; what all two-way tables together may take.
BINS = {1: 832, 2: 256, 3: 256, 4: 256}
TABLE_BYTES = 160e6
# There are always so many, and no more than this share of the rows.
_FEWEST = 16
_PER_BIN = 2
_MOVE = 2e-9  # seconds per row


@dataclass(frozen=True)
class TwoWayTables:
    """Weights and targets of the rows by bins, and weights by pairs of bins.

    Attributes
    ----------
    positions : list of ndarray of shape (n_bins,)
        Weighted mean of the inputs in each bin of each axis.
    weights : list of ndarray of shape (n_bins,)
        Σ w.
    information : list of ndarray of shape (n_bins,)
        Σ w y.
    pairs : dict of (int, int) to ndarray of shape (n_bins, n_bins)
        Σ w of the rows in both bins, for terms d < e.
    spreads : list of ndarray of shape (n_bins,)
        Weighted variance of the inputs in each bin.
    """

    positions: list[Floats]
    weights: list[Floats]
    information: list[Floats]
    pairs: dict[tuple[int, int], Floats]
    spreads: list[Floats]

    @classmethod
    def of(cls, table: RowTable, information: Floats, weight: Floats, n_bins: int) -> TwoWayTables:
        """Count all rows, in one pass a pair of terms.

        Parameters
        ----------
        table : RowTable
        information : ndarray of shape (Σ U_d,)
            Σ w y at each point.
        weight : ndarray of shape (n_rows,), or of length 0 for ones
        n_bins : int
            An axis with fewer points keeps them.
        """
        positions, weights, informations, spreads, bins = [], [], [], [], []
        for term, axis in enumerate(table.axes):
            at_points = table.scatter(term, weight if len(weight) else np.ones(table.n_rows))
            bin_of_point = bins_of(axis, at_points, n_bins)
            size = int(bin_of_point[-1]) + 1
            in_bins = sum_by(bin_of_point, size, at_points)
            means = axis.points
            spread = np.zeros(size)
            if size < len(axis):
                # Around one of its points, so that inputs far from 0 lose no digits.
                origin = axis.points[np.searchsorted(bin_of_point, np.arange(size))]
                away = axis.points - origin[bin_of_point]
                counted = np.where(in_bins > 0, in_bins, 1.0)  # all its rows may have weight 0
                shift = sum_by(bin_of_point, size, at_points * away) / counted
                means = origin + shift
                squares = sum_by(bin_of_point, size, at_points * away**2) / counted
                spread = np.maximum(squares - shift**2, 0.0)
            positions.append(means)
            weights.append(in_bins)
            informations.append(sum_by(bin_of_point, size, table.part(information, term)))
            spreads.append(spread)
            bins.append(bin_of_point)
        keys = pairs_of(table.n_terms)
        tasks = [partial(_count, table, d, e, bins[d], bins[e], weight) for d, e in keys]
        pairs = dict(zip(keys, run(tasks, _MOVE * table.n_rows * len(keys)), strict=True))
        return cls(positions, weights, informations, pairs, spreads)

    @property
    def n_terms(self) -> int:
        """Number of terms D."""
        return len(self.weights)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each term's bins begin in a flat vector, and the end."""
        return np.cumsum([0, *(len(weights) for weights in self.weights)], dtype=np.int64)

    def multiply(self, flat: Floats) -> Floats:
        """Weighted normal matrix ZᵀWZ of the bins times vectors (k, Σ n_bins)."""
        parts = np.split(flat, self.offsets[1:-1], axis=1)
        tasks = [partial(self.row, term, parts) for term in range(self.n_terms)]
        work = 5e-10 * len(flat) * float(self.offsets[-1]) ** 2
        return np.concatenate(run(tasks, work), axis=1) if tasks else flat.copy()

    def row(self, term: int, parts: list[Floats]) -> Floats:
        """Rows of ``multiply`` that belong to one term, from vectors split by term."""
        out = parts[term] * self.weights[term]
        for other, part in enumerate(parts):
            if other < term:
                out += part @ self.pairs[other, term]
            elif other > term:
                out += part @ self.pairs[term, other].T
        return out


def pairs_of(n_terms: int) -> list[tuple[int, int]]:
    """All pairs of terms d < e."""
    return [(d, e) for d in range(n_terms) for e in range(d + 1, n_terms)]


def affordable_bins(n_terms: int, n_rows: int, wanted: int, table_bytes: float) -> int:
    """How many bins a term may have: what is wanted, if the tables and the rows allow it."""
    n_pairs = max(n_terms * (n_terms - 1) // 2, 1)
    affordable = int(math.sqrt(table_bytes / 8 / n_pairs))
    return max(_FEWEST, min(affordable, wanted, max(64, n_rows // _PER_BIN)))


def measure(points: Floats, weight: Floats) -> Floats:
    """Share of the axis up to each point: half by weight of rows, half by distance.

    Bins by rows alone would be too wide in the tails, and bins by distance alone in the bulk where
    there are outliers.
    """
    share = np.cumsum(weight) / weight.sum()
    extent = points[-1] - points[0]
    distance = (points - points[0]) / extent if extent > 0 else share
    return 0.5 * share + 0.5 * distance


def bins_of(axis: Axis, weight: Floats, n_bins: int) -> NDArray[np.int64]:
    """Bin of each point: its own while there are few, else equal parts of ``measure``."""
    if len(axis) <= n_bins:
        return np.arange(len(axis))
    bins = np.minimum((measure(axis.points, weight) * n_bins).astype(np.int64), n_bins - 1)
    return np.unique(bins, return_inverse=True)[1]


def spread(points: Floats, weight: Floats, n_points: int) -> NDArray[np.int64]:
    """Indices of ``n_points`` points at most, both ends among them, evenly by ``measure``."""
    chosen = np.searchsorted(measure(points, weight), np.linspace(0.0, 1.0, n_points))
    return np.unique(np.concatenate([[0], np.minimum(chosen, len(points) - 1)]))


def spread_beside_gaps(points: Floats, weight: Floats, n_points: int) -> NDArray[np.int64]:
    """Indices of about ``n_points`` points as ``spread`` has them, but few for wide gaps.

    A gap counts as no more of the distance than two of the points that are chosen: nothing is to be
    gained within it. The points on both sides of such a gap are among those chosen.
    """
    gaps = np.diff(points)
    widest = _widest_gap(gaps, n_points)
    sides = np.flatnonzero(gaps > widest)
    shortened = np.concatenate([[0.0], np.cumsum(np.minimum(gaps, widest))])
    chosen = spread(shortened, weight, max(n_points - len(sides), 2))
    return np.unique(np.concatenate([chosen, sides, sides + 1]))


def _widest_gap(gaps: Floats, n_points: int) -> float:
    """Solve g = 2 Σ min(gap, g) / n_points for the length that longer gaps are shortened to."""
    if len(gaps) <= n_points // 2:
        return float(np.max(gaps, initial=0.0))
    longest = np.sort(gaps)[::-1]
    rest = np.cumsum(longest[::-1])[::-1]  # of this gap and all shorter ones
    n_longer = np.arange(min(n_points // 2, len(gaps) - 1))
    lengths = 2 * rest[n_longer] / np.maximum(n_points - 2 * n_longer, 1)
    fits = longest[n_longer] <= lengths
    return float(lengths[np.argmax(fits)] if fits.any() else longest[n_longer[-1]])


def _count(
    table: RowTable,
    d: int,
    e: int,
    bins_d: NDArray[np.int64],
    bins_e: NDArray[np.int64],
    weight: Floats,
) -> Floats:
    counts = np.zeros((bins_d[-1] + 1, bins_e[-1] + 1))
    for rows, codes in table.blocks():
        two_way_table(
            codes[d], codes[e], bins_d, bins_e, weight[rows] if len(weight) else weight, counts
        )
    return counts
