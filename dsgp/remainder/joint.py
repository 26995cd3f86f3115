"""The terms of a sum and a remainder as one posterior: what each says given the other."""

from __future__ import annotations

import math
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

_SECONDS = 1e-7  # of a row and a term


@dataclass(frozen=True)
class RowTerm:
    """What rows get of one term: the value at a cell, times a multiplier where there is one.

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
    def of(cls, cells: Cells, kernel: Any, inputs: Floats) -> RowTerm:
        """Find the cells of rows by the inputs of the term, (n,) or (n, k)."""
        multiplier = cells.multipliers(inputs)
        points = cells.points.reshape(len(cells), -1)
        asked = inputs.reshape(len(inputs), -1)
        if multiplier is not None:  # the last input
            points, asked = points[:, :-1], asked[:, :-1]
            multiplier = np.nan_to_num(multiplier)
        missing = cells.is_missing(inputs)
        codes = np.full(len(inputs), len(cells))
        spread = np.ptp(points, axis=0)
        spread[spread == 0] = 1.0
        if points.shape[1]:
            _, found = cKDTree(points / spread).query(asked[~missing] / spread)
        else:
            found = np.zeros(np.count_nonzero(~missing), dtype=np.int64)
        codes[~missing] = found
        return cls(cells, kernel, codes, multiplier)

    def dual(self, alpha: Floats) -> Floats:
        """Return Φᵀ α, (n_cells,)."""
        if self.multiplier is not None:
            alpha = alpha * self.multiplier
        return sum_by(self.codes, len(self.cells) + 1, alpha)[:-1]

    def product(self, alpha: Floats) -> Floats:
        """Return Φ K Φᵀ α, (n,)."""
        values = np.append(self.cells.multiply(self.kernel, self.dual(alpha)), 0.0)[self.codes]
        return values if self.multiplier is None else values * self.multiplier


@dataclass(frozen=True)
class Joint:
    """What a solve came to.

    Attributes
    ----------
    alpha : ndarray of shape (n,)
        (K of terms and remainder + R)⁻¹ (y − c).
    constant : float
        c, unknown with a flat prior.
    iterations : int
    converged : bool
    """

    alpha: Floats
    constant: float
    iterations: int
    converged: bool


def solve(
    precision: Precision,
    terms: Sequence[RowTerm],
    target: Floats,
    *,
    tol: float = 1e-3,
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
    tol : float
        Of the residual, in standard deviations of an observation, root mean square over the rows.
    max_iter : int
    """
    of_target, first = _solved(precision, terms, target, tol, max_iter)
    of_ones, second = _solved(precision, terms, np.ones_like(target), tol, max_iter)
    constant = float(np.sum(of_target) / np.sum(of_ones))
    return Joint(
        of_target - constant * of_ones,
        constant,
        max(first, second),
        max(first, second) < max_iter or not terms,
    )


def _solved(
    precision: Precision, terms: Sequence[RowTerm], target: Floats, tol: float, max_iter: int
) -> tuple[Floats, int]:
    """Return P u and the iterations that it took."""
    if not terms:
        return precision.multiply(target[:, None])[:, 0], 0
    n = len(target)
    residual, alpha = target.copy(), np.zeros(n)
    weighted = precision.multiply(residual[:, None])[:, 0]
    direction, along = residual.copy(), weighted.copy()
    size = float(residual @ weighted)
    enough = min(tol**2 * n, 1e-6 * size)
    for iteration in range(max_iter):
        if size <= enough:
            return alpha, iteration
        tasks = [partial(term.product, along) for term in terms]
        image = direction + _total(run(tasks, _SECONDS * n * len(terms), in_place=True))
        step = size / float(along @ image)
        alpha += step * along
        residual -= step * image
        weighted = precision.multiply(residual[:, None])[:, 0]
        before, size = size, float(residual @ weighted)
        direction = residual + (size / before) * direction
        along = weighted + (size / before) * along
    return alpha, max_iter


def _total(parts: list[Floats]) -> Floats:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def root_mean_square(values: Floats) -> float:
    """Root mean square."""
    return math.sqrt(float(np.mean(np.square(values)))) if len(values) else 0.0
