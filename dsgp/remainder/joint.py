"""The joint posterior of the terms of a sum and a remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsgp.compute import run
from dsgp.remainder.precision import Precision
from dsgp.terms import Cells, Floats, sum_by

_SECONDS = 1e-7  # per row and term


@dataclass(frozen=True)
class RowTerm:
    """The contribution of one term to rows: the value at a cell, times a multiplier if any.

    Attributes
    ----------
    cells : Cells
    kernel : kernel
    codes : ndarray of int, shape (n,)
        The cell nearest to each row; the number of cells where an input is missing.
    multiplier : ndarray of shape (n,), or None
    """

    cells: Cells
    kernel: Any
    codes: NDArray[np.int64]
    multiplier: Floats | None = None

    @classmethod
    def of(
        cls, cells: Cells, kernel: Any, inputs: Floats, level_axes: Sequence[int] = ()
    ) -> RowTerm:
        """Find the cells of rows by the inputs of the term, (n,) or (n, k).

        ``level_axes`` are the inputs that hold levels: a row is in a cell of the same levels, the
        nearest one in the other inputs.
        """
        multiplier = cells.multipliers(inputs)
        points = cells.points.reshape(len(cells), -1)
        asked = inputs.reshape(len(inputs), -1)
        if multiplier is not None:  # the multiplier is the last input
            points, asked = points[:, :-1], asked[:, :-1]
            multiplier = np.nan_to_num(multiplier)
        known = ~cells.is_missing(inputs)
        # Different levels are farther apart than any two numbers.
        points, asked = points.copy(), asked.copy()
        for axis in range(points.shape[1]):
            if axis in level_axes:
                levels, place = np.unique(points[:, axis], return_inverse=True)
                at = np.minimum(np.searchsorted(levels, asked[:, axis]), len(levels) - 1)
                known &= levels[at] == asked[:, axis]
                points[:, axis], asked[:, axis] = 10.0 * place, 10.0 * at
            else:
                spread = np.ptp(points[:, axis]) or 1.0
                # A row beyond the cells is placed at their edge.
                low, high = points[:, axis].min(), points[:, axis].max()
                asked[:, axis] = np.clip(asked[:, axis], low, high) / spread
                points[:, axis] /= spread
        codes = np.full(len(inputs), len(cells))
        if points.shape[1]:
            _, codes[known] = cKDTree(points).query(asked[known])
        else:
            codes[known] = 0
        return cls(cells, kernel, codes, multiplier)

    def dual(self, alpha: Floats) -> Floats:
        """Return Φᵀ α, (n_cells,)."""
        if self.multiplier is not None:
            alpha = alpha * self.multiplier
        return sum_by(self.codes, len(self.cells) + 1, alpha)[:-1]

    def products(self, vectors: Floats) -> Floats:
        """Return Φ K Φᵀ α of vectors (k, n)."""
        return np.stack([self.product(alpha) for alpha in vectors])

    def product(self, alpha: Floats) -> Floats:
        """Return Φ K Φᵀ α, (n,)."""
        values = np.append(self.cells.multiply(self.kernel, self.dual(alpha)), 0.0)[self.codes]
        return values if self.multiplier is None else values * self.multiplier


@dataclass(frozen=True)
class Joint:
    """The result of a solve.

    Attributes
    ----------
    alpha : ndarray of shape (n,)
        (K of terms and remainder + R)⁻¹ (y − c).
    constant : float
        c, unknown with a flat prior.
    iterations : int
    converged : bool
    solutions : ndarray of shape (n, 2)
        P⁻¹ α of the targets, and of ones: an initial value for a solve with another P.
    """

    alpha: Floats
    constant: float
    iterations: int
    converged: bool
    solutions: Floats


def solve(
    precision: Precision,
    terms: Sequence[RowTerm],
    target: Floats,
    *,
    start: Floats | None = None,
    tol: float = 3e-3,
    max_iter: int = 500,
) -> Joint:
    """Find the joint posterior of terms, remainder and constant.

    With P the precision of the remainder and the noise, u = P⁻¹ α solves (I + Σ_d Φ K_d Φᵀ P) u = y
    − c, which is symmetric in the inner product of P: conjugate gradients need products with P and
    with the terms, and no inverse. c is the generalised least squares estimate.

    Parameters
    ----------
    precision : Precision
    terms : sequence of RowTerm
    target : ndarray of shape (n,)
    start : ndarray of shape (n, 2), optional
        As ``solutions``.
    tol : float
        Tolerance of the residuals, in standard deviations of an observation, as a root mean square
        over the rows.
    max_iter : int
    """
    unit = float(np.std(target)) or 1.0  # the result must not depend on the units of the target
    both = np.column_stack([target, np.full_like(target, unit)])
    u = both.copy() if start is None or not terms else start.copy()
    alpha = precision.multiply(u)
    residual = both - u - _of_terms(terms, alpha)
    weighted = precision.multiply(residual)
    direction, along = residual.copy(), weighted.copy()
    size = np.einsum("ij,ij->j", residual, weighted)
    iteration = 0
    while (size > tol**2 * len(target)).any() and iteration < max_iter:
        iteration += 1
        image = direction + _of_terms(terms, along)
        curvature = np.einsum("ij,ij->j", along, image)
        step = np.divide(size, curvature, out=np.zeros(2), where=curvature > 0)
        u += step * direction
        alpha += step * along
        residual -= step * image
        weighted = precision.multiply(residual)
        before, size = size, np.einsum("ij,ij->j", residual, weighted)
        ratio = np.divide(size, before, out=np.zeros(2), where=before > 0)
        direction = residual + ratio * direction
        along = weighted + ratio * along
    of_target, of_ones = alpha[:, 0], alpha[:, 1] / unit
    constant = float(np.sum(of_target) / np.sum(of_ones))
    converged = not (size > tol**2 * len(target)).any()
    return Joint(of_target - constant * of_ones, constant, iteration, converged, u)


def _of_terms(terms: Sequence[RowTerm], alpha: Floats) -> Floats:
    """Σ_d Φ K_d Φᵀ α of both vectors, (n, 2)."""
    total = np.zeros_like(alpha)
    columns = np.ascontiguousarray(alpha.T)
    tasks = [partial(term.products, columns) for term in terms]
    for part in run(tasks, 2 * _SECONDS * len(alpha) * len(terms), in_place=True):
        total += part.T
    return total
