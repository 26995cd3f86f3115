"""Two-level preconditioning of the additive system ("kernel multigrid", Zou and Ding 2024).

Each term gets a coarse space V_d = K_d(·, u_d), u_d some of the axis's own points, so that
K_d⁻¹ V_d c is the scatter of c: no kernel is inverted. The coarse matrix

    Vᵀ A V = blockdiag(K_d(u_d, u_d)) + Φᵀ W Φ,    Φ = Z V

needs all rows, but only through two-way tables of their weights on bins of each axis, which do not
depend on the hyperparameters and take one pass. Directions that terms share, which block-Jacobi
reaches slowly, are coarse; what is left is local, and the smoothers take it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf

from dsgp.additive.conjugate_gradients import conjugate_gradients
from dsgp.additive.system import AdditiveSystem, Solution
from dsgp.axis import Axis, Floats, sum_by
from dsgp.compute import run
from dsgp.jit.rows import two_way_table
from dsgp.kernels import Matern
from dsgp.rows.table import RowTable

# Bins of an axis for the two-way tables by the order of the roughest kernel, and what all tables
# together may take.
_BINS = {1: 512, 2: 256, 3: 256, 4: 256}
_TABLE_BYTES = 32e6
# Coarse points of a term by the order of its kernel, and of all terms: rough kernels need more.
_POINTS = {1: 120, 2: 96, 3: 64, 4: 48}
_ALL_POINTS = 1600
# Coarse points whose variance given the others is less than this share of the prior's add nothing.
_RESOLVED = 1e-10
_MOVE = 2e-9  # seconds per row


@dataclass(frozen=True)
class TwoWayTables:
    """Weights of the rows by pairs of bins.

    Attributes
    ----------
    positions : list of ndarray of shape (n_bins,)
        Weighted mean of the inputs in each bin of each axis.
    weights : list of ndarray of shape (n_bins,)
    pairs : dict of (int, int) to ndarray of shape (n_bins, n_bins)
        For terms d < e.
    total : float
        Sum of the weights.
    """

    positions: list[Floats]
    weights: list[Floats]
    pairs: dict[tuple[int, int], Floats]
    total: float

    @classmethod
    def of(cls, table: RowTable, kernels: list[Matern], weight: Floats) -> TwoWayTables:
        """Count all rows, in one pass a pair of terms. Of the kernels only the orders matter."""
        n_pairs = table.n_terms * (table.n_terms - 1) // 2
        affordable = max(16, int(math.sqrt(_TABLE_BYTES / 8 / max(n_pairs, 1))))
        n_bins = min(affordable, max((_BINS[kernel.order] for kernel in kernels), default=16))
        positions, weights, bins = [], [], []
        for axis, codes in zip(table.axes, table.codes, strict=True):
            at_points = sum_by(codes, len(axis), weight)
            bin_of_point = _bins(axis, at_points, n_bins)
            size = int(bin_of_point[-1]) + 1
            in_bins = sum_by(bin_of_point, size, at_points)
            sums = sum_by(bin_of_point, size, at_points * axis.points)
            positions.append(sums / in_bins)
            weights.append(in_bins)
            bins.append(bin_of_point)
        keys = [(d, e) for d in range(table.n_terms) for e in range(d + 1, table.n_terms)]
        tasks = [
            partial(_count, table.codes[d], table.codes[e], bins[d], bins[e], weight)
            for d, e in keys
        ]
        counted = run(tasks, _MOVE * 3 * table.n_rows * len(keys))
        return cls(positions, weights, dict(zip(keys, counted, strict=True)), float(weight.sum()))


@dataclass(frozen=True)
class TermSpace:
    """Coarse space of one term, in coordinates in which its prior is the identity.

    Attributes
    ----------
    points : ndarray of shape (n_coarse,)
        Indices of u_d on the axis.
    lower : ndarray of shape (n_coarse, n_coarse)
        L of K_d(u_d, u_d) = L Lᵀ.
    at_bins : ndarray of shape (n_coarse, n_bins)
        L⁻¹ K_d(u_d, bins).
    """

    points: NDArray[np.int64]
    lower: Floats
    at_bins: Floats

    @classmethod
    def of(cls, axis: Axis, kernel: Matern, points: NDArray[np.int64], bins: Floats) -> TermSpace:
        """Choose among ``points`` by pivoted Cholesky.

        Beside a long lengthscale few points tell all, and further ones would only make the coarse
        matrix singular to rounding.
        """
        prior = kernel.covariance(axis.points[points])
        tolerance = _RESOLVED * prior[0, 0]
        factor, pivots, rank, _ = dpstrf(prior, tol=tolerance, lower=1, overwrite_a=1)
        chosen = points[pivots[:rank] - 1]
        lower = np.tril(factor[:rank, :rank])
        cross = kernel.covariance(axis.points[chosen], bins)
        return cls(chosen, lower, solve_triangular(lower, cross, lower=True, check_finite=False))


class CoarseSpace:
    """The coarse spaces of all terms and the solve on them, for one system."""

    def __init__(self, system: AdditiveSystem, tables: TwoWayTables) -> None:
        self.system = system
        budget = max(8, _ALL_POINTS // system.table.n_terms)
        self.spaces = [
            TermSpace.of(
                axis, kernel, _spread(axis, weight, min(_POINTS[kernel.order], budget)), bins
            )
            for axis, kernel, weight, bins in zip(
                system.table.axes,
                system.kernels,
                system.table.parts(system.table_weight),
                tables.positions,
                strict=True,
            )
        ]
        ends = np.cumsum([0, *(len(space.points) for space in self.spaces)])
        self.rows = [slice(*pair) for pair in pairwise(ends)]
        offsets = system.table.offsets[:-1]
        self.flat = [offset + s.points for offset, s in zip(offsets, self.spaces, strict=True)]
        self.factor = self._factor(tables)

    def _factor(self, tables: TwoWayTables) -> tuple[Floats, bool]:
        """Cholesky factor of the coarse matrix, I + features W featuresᵀ."""
        scale = float(self.system.weight.sum()) / tables.total
        matrix = np.eye(self.rows[-1].stop)
        for d, (rows, space) in enumerate(zip(self.rows, self.spaces, strict=True)):
            weighted = scale * tables.weights[d] * space.at_bins
            matrix[rows, rows] += weighted @ space.at_bins.T
            for e in range(d):
                block = space.at_bins @ tables.pairs[e, d].T @ self.spaces[e].at_bins.T
                matrix[rows, self.rows[e]] = scale * block
        # Beside a huge weight, rounding could outweigh the identity.
        matrix[np.diag_indices_from(matrix)] *= 1.0 + 1e-12
        return cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def correct(self, residual: Floats) -> tuple[Floats, Floats]:
        """Galerkin correction V (Vᵀ A V)⁻¹ Vᵀ r and its dual."""
        smoothed = self.system.multiply_prior(residual)
        whitened = np.concatenate(
            [
                solve_triangular(space.lower, smoothed[flat], lower=True, check_finite=False)
                for space, flat in zip(self.spaces, self.flat, strict=True)
            ]
        )
        solved = cho_solve(self.factor, whitened, check_finite=False)
        dual = np.zeros(self.system.table.size)
        for space, flat, rows in zip(self.spaces, self.flat, self.rows, strict=True):
            dual[flat] = solve_triangular(
                space.lower, solved[rows], lower=True, trans="T", check_finite=False
            )
        return self.system.multiply_prior(dual), dual

    def precondition(self, residual: Floats) -> tuple[Floats, Floats]:
        """Coarse, smooth, coarse: a symmetric operator near the inverse of the system."""
        mean, dual = self.correct(residual)
        for step in (self.system.smooth, self.correct):
            left = residual - dual - self.system.scatter(self.system.gather(mean))
            more, more_dual = step(left)
            mean += more
            dual += more_dual
        return mean, dual


def multigrid(
    system: AdditiveSystem,
    y: Floats,
    *,
    tol: float,
    max_iter: int,
    start: tuple[Floats, Floats] | None = None,
    tables: TwoWayTables | None = None,
) -> Solution:
    """Solve the additive system by conjugate gradients with the two-level preconditioner.

    Parameters and result are those of ``conjugate_gradients``.

    Parameters
    ----------
    tables : TwoWayTables, optional
        Of the same rows, with weights in the same proportion; they are counted if not given.
    """
    if system.table.n_terms == 0:
        return conjugate_gradients(system, y, tol=tol, max_iter=max_iter, start=start)

    @cache  # not before an iteration asks for it: a good start may need none
    def coarse() -> CoarseSpace:
        counted = tables or TwoWayTables.of(system.table, system.kernels, system.weight)
        return CoarseSpace(system, counted)

    return conjugate_gradients(
        system,
        y,
        tol=tol,
        max_iter=max_iter,
        start=start,
        precondition=lambda residual: coarse().precondition(residual),
    )


def _count(
    codes_d: NDArray[np.int32],
    codes_e: NDArray[np.int32],
    bins_d: NDArray[np.int64],
    bins_e: NDArray[np.int64],
    weight: Floats,
) -> Floats:
    counts = np.zeros((bins_d[-1] + 1, bins_e[-1] + 1))
    two_way_table(codes_d, codes_e, bins_d, bins_e, weight, counts)
    return counts


def _measure(axis: Axis, weight: Floats) -> Floats:
    """Share of the points up to each: half by weight of rows, half by distance."""
    share = np.cumsum(weight) / weight.sum()
    extent = axis.points[-1] - axis.points[0]
    distance = (axis.points - axis.points[0]) / extent if extent > 0 else share
    return 0.5 * share + 0.5 * distance


def _bins(axis: Axis, weight: Floats, n_bins: int) -> NDArray[np.int64]:
    """Bin of each point: its own while there are few, else equal parts of ``_measure``."""
    if len(axis) <= n_bins:
        return np.arange(len(axis))
    bins = np.minimum((_measure(axis, weight) * n_bins).astype(np.int64), n_bins - 1)
    return np.unique(bins, return_inverse=True)[1]


def _spread(axis: Axis, weight: Floats, n_points: int) -> NDArray[np.int64]:
    """Indices of ``n_points`` points at most, both ends among them, evenly by ``_measure``."""
    targets = np.linspace(0.0, 1.0, n_points)
    found = np.searchsorted(_measure(axis, weight), targets)
    return np.unique(np.concatenate([[0], np.minimum(found, len(axis) - 1)]))
