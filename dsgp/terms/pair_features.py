"""Interactions by products of functions of each input: their features, and solves by the first.

Few of the features matter beside the noise of the rows, whatever the number of pairs. Solves use
these and products with the whole covariance, which cost one matrix of each input; determinants and
variances use enough features to leave out no more than a stated limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, eigh, solve_triangular

from dsgp.kernels import CentredProduct
from dsgp.terms.base import Floats, Solver
from dsgp.terms.dense import MOST_COLUMNS, inner_factor

# Eigenvalues of one input's factor, and products of them, below these shares of the largest are
# rounding errors.
_EIGEN_ROUNDING = 1e-13
_ROUNDING_OF_PAIRS = 1e-12
# Number of features that are computed at a time, until all that matter are known.
_TOGETHER = 128
# Largest eigenvalue, in units of the noise, of what the features of a solver leave out. A solve
# then takes about ten iterations.
_LEFT_BY_SOLVER = 0.5
# Squared norm of the error, relative to its initial value, at which an iteration ends, and the
# largest number of iterations.
_SOLVED, _MOST_ITERATIONS = 1e-20, 500
# The same of the residual of a solution, at which it is not corrected again, and the largest number
# of corrections.
_ROUNDED, _MOST_CORRECTIONS = 1e-28, 10
# Number of rows whose variances are computed at a time.
_ROWS = 1024


@dataclass(frozen=True)
class PairFeatures:
    """Features φ of an interaction, products of those of each input: k(x, y) = φ(x)ᵀ φ(y).

    Attributes
    ----------
    kernel : CentredProduct
    values : tuple of two ndarray
        Values of each input, at which features are those of the eigenvectors of its factor k̂.
    weights : tuple of two ndarray of shape (n_values, n_features)
        The features are k̂(x, values) times these.
    sizes : ndarray of shape (n_features + 1,)
        Eigenvalues of the covariance of all pairs of values, the largest first, and of the next.
    """

    kernel: CentredProduct
    values: tuple[Floats, Floats]
    weights: tuple[Floats, Floats]
    sizes: Floats

    @classmethod
    def of(cls, kernel: CentredProduct, first: Floats, second: Floats) -> PairFeatures:
        """Keep the products that are more than rounding, or the largest ones of too many."""
        values, vectors = [], []
        for k, inputs in enumerate((first, second)):
            found = eigh(kernel.factor(k, inputs), check_finite=False)
            positive = found[0] > _EIGEN_ROUNDING * found[0][-1]
            values.append(found[0][positive][::-1])
            vectors.append(found[1][:, positive][:, ::-1])
        products = np.outer(*values)
        order = np.argsort(-products, axis=None, kind="stable")
        counted = products > _ROUNDING_OF_PAIRS * products.max(initial=0.0)
        n_kept = min(int(np.count_nonzero(counted)), MOST_COLUMNS)
        rows, columns = np.unravel_index(order[:n_kept], products.shape)
        weights = (
            vectors[0][:, rows] / np.sqrt(values[0][rows]),
            vectors[1][:, columns] / np.sqrt(values[1][columns]),
        )
        sizes = kernel.std**2 * np.append(products.ravel()[order], 0.0)[: n_kept + 1]
        return cls(kernel, (first, second), weights, sizes)

    def __len__(self) -> int:
        return len(self.sizes) - 1

    def at(self, inputs: Floats, some: slice = slice(None)) -> Floats:
        """Features at inputs (n, 2), (n, n_features)."""
        sides = []
        for k in (0, 1):
            distinct, places = np.unique(inputs[:, k], return_inverse=True)
            factor = self.kernel.factor(k, distinct, self.values[k])
            sides.append((factor @ self.weights[k][:, some])[places.ravel()])
        return self.kernel.std * sides[0] * sides[1]

    def leading(
        self, points: Floats, weight: Floats, limit: float, *, of_trace: bool
    ) -> tuple[Floats, float]:
        """Return the first features at points, as many as matter beside the noise.

        Parameters
        ----------
        points : ndarray of shape (n_points, 2)
            Pairs of ``values``.
        weight : ndarray of shape (n_points,)
            W, without the diagonal matrix.
        limit : float
            Limit of what is left of W^½ K W^½: of its trace, which bounds degrees of freedom and
            the log determinant, or of its largest eigenvalue.
        of_trace : bool

        Returns
        -------
        columns : ndarray of shape (n_points, n_leading)
        left : float
            A bound on the trace or eigenvalue that is left.
        """
        total = float(np.sum(weight * self.kernel.diagonal(points)))
        largest = float(weight.max(initial=0.0))
        parts: list[Floats] = []
        kept = 0.0
        for start in range(0, len(self), _TOGETHER):
            part = self.at(points, slice(start, start + _TOGETHER))
            left = total - kept - np.cumsum(np.einsum("u,ur,ur->r", weight, part, part))
            bound = np.maximum(left, 0.0)
            if not of_trace:
                bound = np.minimum(bound, largest * self.sizes[start + 1 :][: len(bound)])
            enough = np.flatnonzero(bound <= limit)
            if len(enough):
                parts.append(part[:, : enough[0] + 1])
                return np.concatenate(parts, axis=1), float(bound[enough[0]])
            parts.append(part)
            kept = total - float(left[-1])
        if not parts:
            return np.zeros((len(points), 0)), total
        return np.concatenate(parts, axis=1), float(bound[-1])


@dataclass(frozen=True)
class PairSolver(Solver):
    """Applies (K⁻¹ + W)⁻¹ by products with K and the leading features V of it.

    With H = (V Vᵀ + (1 + c) W⁻¹)⁻¹, S = K − K H K is symmetric, positive where the largest
    eigenvalue of what V leaves of W^½ K W^½ is below 1 + c, and near the inverse where that is
    small: conjugate gradients with S take a few iterations.

    Attributes
    ----------
    product : callable
        From a vector to K times it.
    columns : ndarray of shape (n_cells, r)
    weight : ndarray of shape (n_cells,)
        W.
    reduced : ndarray of shape (n_cells,)
        W / (1 + c).
    """

    product: Callable[[Floats], Floats]
    columns: Floats
    weight: Floats
    reduced: Floats

    @classmethod
    def of(
        cls,
        product: Callable[[Floats], Floats],
        features: PairFeatures,
        points: Floats,
        weight: Floats,
    ) -> PairSolver:
        """Choose the features."""
        columns, left = features.leading(points, weight, _LEFT_BY_SOLVER, of_trace=False)
        excess = left if left > _LEFT_BY_SOLVER else 0.0
        return cls(product, columns, weight, weight / (1.0 + excess))

    @cached_property
    def _inner(self) -> Floats:
        """Cholesky factor of I + Vᵀ W V / (1 + c)."""
        return inner_factor(self.columns, self.reduced)

    def _solved(self, vector: Floats) -> Floats:
        return np.asarray(cho_solve((self._inner, True), vector, check_finite=False))

    def _left(self, vector: Floats) -> Floats:
        """Return what V leaves of K, K₂ = K − V Vᵀ, times a vector."""
        return self.product(vector) - self.columns @ (self.columns.T @ vector)

    def smooth(self, information: Floats) -> tuple[Floats, Floats]:
        # S b = V g + K₂ d and d = b − W (V g + K₂ b), with W / (1 + c) for W: with little noise, K
        # d itself would be a small difference of large numbers.
        columns, left = self.columns, self._left(information)
        of_columns = self._solved(columns.T @ information - columns.T @ (self.reduced * left))
        known = columns @ of_columns
        dual = information - self.reduced * (known + left)
        return known + self._left(dual), dual

    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        # Mean and dual match up to rounding errors, which a large W amplifies: the residual is
        # solved for again as long as that helps.
        dual, residual = np.zeros_like(information), information
        enough, last = 0.0, np.inf
        for _ in range(_MOST_CORRECTIONS):
            norm, more = self._iterated(residual, enough)
            if more is None or norm > last / 4:
                break
            enough, last = enough or _ROUNDED * norm, norm
            dual = dual + more
            residual = information - dual - self.weight * self.product(dual)
        return self.product(dual), dual

    def _iterated(self, information: Floats, enough: float) -> tuple[float, Floats | None]:
        """Solve by conjugate gradients for the dual, unless the norm is no more than that."""
        dual = np.zeros_like(information)
        residual = information
        direction, direction_dual = self.smooth(residual)
        norm = first = float(residual @ direction)
        if not norm > enough:
            return norm, None
        for _ in range(_MOST_ITERATIONS):
            if not norm > _SOLVED * first:
                break
            image = direction_dual + self.weight * direction
            step = norm / float(direction @ image)
            dual = dual + step * direction_dual
            residual = residual - step * image
            smoothed, smoothed_dual = self.smooth(residual)
            before, norm = norm, float(residual @ smoothed)
            direction = smoothed + (norm / before) * direction
            direction_dual = smoothed_dual + (norm / before) * direction_dual
        return first, dual


@dataclass(frozen=True)
class PairVariance:
    """The posterior variance: the prior variance beyond the features, and theirs given the rows.

    Attributes
    ----------
    features : PairFeatures
    columns : ndarray of shape (n_cells, r)
        The first of them at the cells.
    weight : ndarray of shape (n_cells,)
    """

    features: PairFeatures
    columns: Floats
    weight: Floats

    @cached_property
    def _inner(self) -> Floats:
        return inner_factor(self.columns, self.weight)

    def __call__(self, inputs: Floats) -> Floats:
        """Variances at inputs, (n,)."""
        inputs = np.asarray(inputs)
        out = np.empty(len(inputs))
        for start in range(0, len(inputs), _ROWS):
            out[start : start + _ROWS] = self._at(inputs[start : start + _ROWS])
        return out

    def _at(self, inputs: Floats) -> Floats:
        features = self.features.at(inputs, slice(self.columns.shape[1]))
        unknown = solve_triangular(self._inner, features.T, lower=True, check_finite=False)
        prior = np.asarray(self.features.kernel.diagonal(inputs))
        open_variance = np.maximum(prior - np.einsum("ir,ir->i", features, features), 0.0)
        return open_variance + np.einsum("ri,ri->i", unknown, unknown)
