"""A fitted function of all inputs: its posterior anywhere, from the nearest training rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from dsgp.jit import nearest as loops
from dsgp.remainder.metric import Metric
from dsgp.remainder.precision import require_factorised
from dsgp.remainder.search import Finder, Places, earlier, others
from dsgp.terms import Floats

# Number of rows at which the error of the nearest-neighbour approximation is estimated.
_CHECKED = 500
# Share of the variance that is added at points that are conditioned on the function at earlier
# points.
_JITTER = 1e-10


@dataclass(frozen=True)
class NeighbourFunction:
    """A Gaussian process of all inputs, given the nearest of the training rows.

    Attributes
    ----------
    inputs : ndarray of shape (n, D)
        Inputs of the training rows; levels are codes.
    target : ndarray of shape (n,)
        What the other terms leave of the target.
    relative_noise : ndarray of shape (n,)
        Noise variances as multiples of the metric's.
    metric : Metric
    n_neighbours : int
    centre : float
        Mean of the function over the training rows.
    share : float
        Its variance over the training rows.
    """

    inputs: Floats
    target: Floats
    relative_noise: Floats
    metric: Metric
    n_neighbours: int
    centre: float = 0.0
    share: float = 0.0

    @cached_property
    def _x(self) -> Floats:
        return self.metric.scaled(self.inputs)

    @cached_property
    def finder(self) -> Finder:
        """The search for neighbours; made when first needed."""
        return Finder(self.metric.coordinates(self._x))

    def prepare(self) -> None:
        """Prepare what all predictions share."""
        self.finder.prepare()
        self._noise  # noqa: B018

    @cached_property
    def _noise(self) -> Floats:
        return self.metric.noise_variance * self.relative_noise

    def moments(self, inputs: Floats) -> tuple[Floats, Floats, Floats]:
        """Posterior mean and variance at inputs (k, D), without the noise, (k,) each.

        The third result is the share of a constant error in the targets that is passed on to the
        mean, between 0 and 1: the sum of the neighbours' coefficients.
        """
        points = self.metric.scaled(inputs)
        near = self.finder.nearest(self.metric.coordinates(points), self.n_neighbours)
        return self._given(points, near)

    def _given(self, points: Floats, near: Places) -> tuple[Floats, Floats, Floats]:
        weights, left = np.empty(near.shape), np.empty(len(points))
        failed = loops.predictions(
            *self.metric.arguments(self._x), self._noise, points, near, weights, left
        )
        require_factorised(failed)
        mean = np.einsum("ij,ij->i", weights, self.target[near])
        return mean, left, np.clip(weights.sum(axis=1), 0.0, 1.0)

    def left_out(self, rows: Places, count: int) -> tuple[Floats, Floats]:
        """Mean and variance of the function at training rows given others, (k,) each."""
        near = others(self.finder, rows, count)
        return self._given(self._x[rows], near)[:2]

    def checked(self, random: np.random.Generator) -> tuple[Places, Floats, Floats, float]:
        """Predict some training rows from others, and report what more neighbours would change.

        Returns
        -------
        rows : ndarray of int, shape (k,)
        mean, variance : ndarray of shape (k,)
        error : float
            Root mean square of the difference that twice as many neighbours make, in posterior
            standard deviations of an observation.
        """
        n = len(self.target)
        rows = np.sort(random.choice(n, min(_CHECKED, n), replace=False))
        mean, variance = self.left_out(rows, self.n_neighbours)
        more, closer = self.left_out(rows, 2 * self.n_neighbours)
        spread = closer + self._noise[rows]
        return rows, mean, variance, float(np.sqrt(np.mean((mean - more) ** 2 / spread)))

    # ------------------------------------------------------------------ joint answers

    def _among(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Condition each of the inputs (k, D) on training rows and on the inputs before it.

        Returns
        -------
        inverse : ndarray of shape (k, k)
            (I − B)⁻¹, B the coefficients of earlier inputs; lower triangular.
        left : ndarray of shape (k,)
            Conditional variance of each.
        """
        points = self.metric.scaled(inputs)
        k, n = len(points), len(self.target)
        where = self.metric.coordinates(points)
        trained = self.finder.nearest(where, self.n_neighbours)
        before = earlier(where, min(k, self.n_neighbours))
        before = np.where(before >= 0, before + n, -1)
        both = np.concatenate([trained, before], axis=1)
        near = np.take_along_axis(both, np.argsort(both < 0, axis=1, kind="stable"), axis=1)
        x = np.concatenate([self._x, points])
        # Values of the function itself have no noise, but points may coincide.
        noise = np.concatenate([self._noise, np.full(k, _JITTER * self.metric.variance)])
        weights, left = np.empty(near.shape), np.empty(k)
        require_factorised(
            loops.predictions(*self.metric.arguments(x), noise, points, near, weights, left)
        )
        among = np.eye(k)
        row, column = np.nonzero(near >= n)
        among[row, near[row, column] - n] -= weights[row, column]
        return solve_triangular(among, np.eye(k), lower=True, unit_diagonal=True), left

    def covariance(self, inputs: Floats) -> Floats:
        """Joint posterior covariance at inputs (k, D), (k, k)."""
        inverse, left = self._among(inputs)
        return np.asarray((inverse * left) @ inverse.T)

    def sample(self, inputs: Floats, n_samples: int, random: np.random.Generator) -> Floats:
        """Draw the function at inputs (k, D), (n_samples, k)."""
        inverse, left = self._among(inputs)
        normal = random.standard_normal((n_samples, len(left))) * np.sqrt(left)
        # Not by BLAS, whose rounding depends on the number of samples.
        return np.asarray(self.moments(inputs)[0] + np.einsum("sk,nk->sn", normal, inverse))
