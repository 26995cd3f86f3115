"""A few observed cells of a grid by dense algebra: everything exact, O(n³)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from dsgp.grid.covariance import SeparableSum
from dsgp.grid.scattered import indices, inner_shape
from dsgp.grid.vecchia import VecchiaEvidence
from dsgp.terms import LOG_2PI, Floats

# Target cells whose covariances with the observed ones are in memory at a time.
_TARGETS = 4096


class DenseSystem:
    """A Gaussian process on the observed cells of a grid, by their covariance matrix.

    Parameters
    ----------
    prior : SeparableSum
    observed : ndarray of bool, shape (G_1, …, G_D)
    noise : float or ndarray that broadcasts to the grid
        Noise variances; positive where observed.

    Notes
    -----
    Memory: about three matrices of n × n, n being the number of observed cells.
    """

    def __init__(
        self, prior: SeparableSum, observed: NDArray[np.bool_], noise: float | Floats
    ) -> None:
        self.prior = prior
        self.index = np.argwhere(observed)
        self.observed = observed
        self.noise = np.broadcast_to(np.asarray(noise, dtype=float), observed.shape)[observed]

    @cached_property
    def _factor(self) -> tuple[Floats, bool]:
        try:
            return cho_factor(self._matrix(0.0), lower=True, overwrite_a=True)
        except LinAlgError:
            # With a smooth kernel and very little noise, the smallest eigenvalues are lost to
            # rounding.
            lost = 10 * np.finfo(float).eps * len(self.index) * self.prior.variance
            return cho_factor(self._matrix(lost), lower=True, overwrite_a=True)

    def _matrix(self, more: float) -> Floats:
        """Return K + R, its diagonal raised by ``more``."""
        matrix = self._between(self.index, None)
        matrix[np.diag_indices_from(matrix)] += self.noise + more
        return matrix

    def _between(self, index: NDArray[np.intp], points: Sequence[Floats] | None) -> Floats:
        """Covariances of the observed cells with some cells, of this grid or of another."""
        points = self.prior.points if points is None else points
        total = np.zeros((len(self.index), len(index)))
        for term in self.prior.terms:
            part = np.ones_like(total)
            for d, kernel in enumerate(term):
                part *= _pairs(
                    kernel.covariance,
                    self.prior.points[d],
                    self.index[:, d],
                    points[d],
                    index[:, d],
                )
            total += part
        return total

    def dual(self, y: Floats) -> Floats:
        """Return α = (K + R)⁻¹ y, (n,)."""
        return cho_solve(self._factor, y[self.observed])

    def evidence(self, y: Floats, unknown_constant: bool = False) -> VecchiaEvidence:
        """Log likelihood and its gradient, exact.

        ``unknown_constant``: that of the field up to a constant, which is integrated out.
        """
        dual = self.dual(y)
        lower = self._factor[0]
        n = len(dual)
        quadratic = float(y[self.observed] @ dual)
        value = -float(np.sum(np.log(np.diag(lower)))) - 0.5 * n * LOG_2PI
        # d log p = ½ Σ_ab S_ab dA_ab.
        inner = -cho_solve(self._factor, np.eye(n))
        if unknown_constant:
            ones = cho_solve(self._factor, np.ones(n))
            precision = float(np.sum(ones))
            constant = float(np.sum(dual)) / precision
            dual = dual - constant * ones
            quadratic -= constant**2 * precision
            value += 0.5 * (LOG_2PI - math.log(precision))
            inner += np.outer(ones, ones) / precision
        value -= 0.5 * quadratic
        inner += np.outer(dual, dual)
        n_terms, n_dims = len(self.prior.terms), len(self.prior.points)
        lengthscales, variances = np.zeros((n_terms, n_dims)), np.zeros(n_terms)
        for c, term in enumerate(self.prior.terms):
            values, slopes = [], []
            for d, kernel in enumerate(term):
                axis_points, at = self.prior.points[d], self.index[:, d]
                values.append(_pairs(kernel.covariance, axis_points, at, axis_points, at))
                slopes.append(_pairs(kernel.by_log_lengthscale, axis_points, at, axis_points, at))
            variances[c] = 0.5 * float(np.sum(inner * math.prod(values)))
            for d in range(n_dims):
                others = math.prod([*values[:d], slopes[d], *values[d + 1 :]])
                lengthscales[c, d] = 0.5 * float(np.sum(inner * others))
        by_noise = 0.5 * float(np.diag(inner) @ self.noise)
        return VecchiaEvidence(value, lengthscales, variances, by_noise)

    def posterior(
        self,
        y: Floats,
        points: Sequence[Floats] | None = None,
        where: NDArray[np.bool_] | None = None,
    ) -> tuple[Floats, Floats]:
        """Mean and variance on the grid, or on that of other points; NaN where not requested."""
        shape = tuple(
            len(axis_points) for axis_points in (self.prior.points if points is None else points)
        )
        mean, variance = np.full(shape, np.nan), np.full(shape, np.nan)
        flat = np.arange(mean.size) if where is None else np.flatnonzero(where)
        for some, *moments in self._moments(
            y, flat, lambda some: np.stack(np.unravel_index(some, shape), axis=1), points
        ):
            mean.reshape(-1)[some], variance.reshape(-1)[some] = moments
        return mean, variance

    def posterior_at(
        self, y: Floats, points: Sequence[Floats], together: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Mean and variance at points, (n, H_o, …): some axes point by point, others as a grid."""
        shape = inner_shape(points, together)
        mean, variance = np.empty(shape), np.empty(shape)
        for some, *moments in self._moments(
            y,
            np.arange(mean.size),
            lambda some: indices(some, shape, len(points), together),
            points,
        ):
            mean.reshape(-1)[some], variance.reshape(-1)[some] = moments
        return mean, variance

    def _moments(
        self,
        y: Floats,
        flat: NDArray[np.intp],
        places: Callable[[NDArray[np.intp]], NDArray[np.intp]],
        points: Sequence[Floats] | None,
    ) -> Iterator[tuple[NDArray[np.intp], Floats, Floats]]:
        """Yield blocks of targets with their means and variances; ``places`` (t, D) on the axes."""
        dual, lower = self.dual(y), self._factor[0]
        for start in range(0, len(flat), _TARGETS):
            some = flat[start : start + _TARGETS]
            cross = self._between(places(some), points)
            mean = dual @ cross
            half = solve_triangular(lower, cross, lower=True, overwrite_b=True)
            left = self.prior.variance - np.einsum("it,it->t", half, half)
            yield some, mean, np.maximum(left, 0.0)

    def deviation(self, random: np.random.Generator) -> Floats:
        """Draw the posterior's deviation from its mean on the grid (Matheron's rule)."""
        field = self.prior.sample(random)
        seen = field[self.observed] + np.sqrt(self.noise) * random.standard_normal(len(self.noise))
        grid = np.zeros(self.observed.shape)
        grid[self.observed] = cho_solve(self._factor, seen)
        field -= self.prior.multiply(grid)
        return field


def _pairs(
    function: Callable[[Floats, Floats], Floats],
    x: Floats,
    rows: NDArray[np.intp],
    y: Floats,
    columns: NDArray[np.intp],
) -> Floats:
    """Evaluate a kernel between x[rows] and y[columns], each pair of coordinates once."""
    some, row = np.unique(rows, return_inverse=True)
    others, column = np.unique(columns, return_inverse=True)
    return function(x[some], y[others])[np.ix_(row, column)]
