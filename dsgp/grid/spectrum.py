"""Eigenvalues of a Kronecker product relative to the noise, block by block: never a whole grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.grid.products import Array, marginals

Floats = NDArray[np.float64]

# Cells of a block, whose temporaries stay in the cache.
_BLOCK = 2**15
# Eigenvalues of an axis below this share of its largest are set to it. That changes no result, and
# a common factor of all terms of a sum can be divided out again.
_FLOOR = 1e-30
# The log of a product of eigenvalues must not exceed this.
_LARGEST_LOG = 690.0


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums for the likelihood and its gradient, of residuals z in the eigenbasis, per σ².

    Attributes
    ----------
    quadratic : float
        Σ z² / (1 + λ), the Mahalanobis norm.
    log_det : float
        Σ log (1 + λ).
    quadratic_by_noise, trace_by_noise : float
        Σ z² / (1 + λ)² and Σ 1 / (1 + λ).
    quadratic_by_variance, trace_by_variance : float
        The same sums with a factor λ.
    traces : list of D ndarrays of shape (G_d,)
        Σ λ / (1 + λ) over all axes but one.
    """

    quadratic: float
    log_det: float
    quadratic_by_noise: float
    trace_by_noise: float
    quadratic_by_variance: float
    trace_by_variance: float
    traces: list[Floats]


class Spectrum:
    r"""The numbers :math:`\lambda_j = (s^2 / \sigma^2) \prod_d \lambda_{d, j_d}`.

    Parameters
    ----------
    values : sequence of D ndarrays of shape (G_d,)
        Eigenvalues of every axis, not negative.
    ratio : float
        s² / σ².
    """

    def __init__(self, values: Sequence[Floats], ratio: float) -> None:
        self.values = [
            np.maximum(axis_values, _FLOOR * axis_values.max()) for axis_values in values
        ]
        self.shape = tuple(len(axis_values) for axis_values in values)
        # The rows of the grid as a matrix span the last axes, as many as fit into a block.
        split, columns = len(values), 1
        while split and columns * self.shape[split - 1] <= _BLOCK:
            split -= 1
            columns *= self.shape[split]
        self._split = split
        self._head = ratio * _outer(self.values[:split])
        self._tail = _outer(self.values[split:])
        self._rows = max(1, _BLOCK // columns)

    def _slices(self) -> Iterator[slice]:
        for start in range(0, len(self._head), self._rows):
            yield slice(start, start + self._rows)

    def table(self, grid: Array) -> Array:
        """View of a grid in C order as a matrix whose rows are cut into blocks."""
        return grid.reshape(len(self._head), len(self._tail))

    def fill(self, function: Callable[[Floats], Floats], out: Array) -> Array:
        """Write a function of the eigenvalues into a grid (G_1, ..., G_D)."""
        table = self.table(out)
        for rows in self._slices():
            table[rows] = function(self._head[rows, None] * self._tail)
        return out

    def scale(self, function: Callable[[Floats], Floats], grid: Array) -> Array:
        """Multiply a grid by a function of the eigenvalues, in place."""
        table = self.table(grid)
        for rows in self._slices():
            table[rows] *= function(self._head[rows, None] * self._tail)
        return grid

    def log_likelihood_sums(self, z: Array, scale: float) -> tuple[float, float]:
        """Return ``quadratic`` and ``log_det`` of residuals in the eigenbasis, times a scale."""
        table = self.table(z)
        quadratic = log_det = 0.0
        for rows in self._slices():
            total = self._head[rows, None] * self._tail
            total += 1.0
            scaled = table[rows] * np.float64(scale)
            quadratic += float(np.vdot(scaled, scaled / total))
            log_det += _sum_of_logs(total)
        return quadratic, log_det

    def sums(self, z: Array, scale: float) -> Sums:
        """Return all sums; z becomes scale · √λ z / (1 + λ), whose ``grams`` the gradient needs."""
        table = self.table(z)
        quadratic = log_det = by_noise = trace_by_noise = by_variance = 0.0
        by_head, by_tail = np.empty(len(self._head)), np.zeros(len(self._tail))
        root_head, root_tail = np.sqrt(self._head), np.sqrt(self._tail)
        for rows in self._slices():
            value = self._head[rows, None] * self._tail
            total = value + 1.0
            inverse = 1.0 / total
            scaled = table[rows] * np.float64(scale)
            dual = scaled * inverse
            quadratic += float(np.vdot(scaled, dual))
            by_noise += float(np.vdot(dual, dual))
            trace_by_noise += float(inverse.sum())
            log_det += _sum_of_logs(total)
            inverse *= value
            by_head[rows] = inverse.sum(axis=1)
            by_tail += inverse.sum(axis=0)
            dual *= root_head[rows, None]
            dual *= root_tail
            by_variance += float(np.vdot(dual, dual))
            table[rows] = dual
        return Sums(
            quadratic=quadratic,
            log_det=log_det,
            quadratic_by_noise=by_noise,
            trace_by_noise=trace_by_noise,
            quadratic_by_variance=by_variance,
            trace_by_variance=float(by_tail.sum()),
            traces=[
                *marginals(by_head, self.shape[: self._split]),
                *marginals(by_tail, self.shape[self._split :]),
            ],
        )


def _outer(values: Sequence[Floats]) -> Floats:
    """Flat outer product; one if there is nothing to multiply."""
    product: Any = reduce(np.multiply.outer, values, np.ones(()))
    return np.asarray(product).ravel()


def _sum_of_logs(numbers: Floats) -> float:
    """Sum of the logs of numbers of at least 1, by products of many while these are in range."""
    flat = numbers.ravel()
    log_largest = math.log(float(flat.max()))
    # With an odd number of factors, one joins a pair.
    while len(flat) > 64 and 3.0 * log_largest < _LARGEST_LOG:
        half = len(flat) // 2
        product = flat[:half] * flat[half : 2 * half]
        if len(flat) % 2:
            product[0] *= flat[-1]
        log_largest *= 2.0 + len(flat) % 2
        flat = product
    return float(np.log(flat).sum())
