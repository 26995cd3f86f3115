"""Smoothing splines: an integrated Wiener process with a flat prior of its polynomial.

The prior of Section ``sec:gmp`` whose posterior mean is the smoothing spline (Wahba 1978), in O(n):
filtering and smoothing of the function and its derivatives, with the ratio of noise and roughness
by the restricted likelihood. Inputs are shifted and scaled to 0 … 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar

from dsgp.errors import DataError
from dsgp.jit.spline import evaluate_spline, filter_points, smooth_points
from dsgp.kernels import Wiener
from dsgp.terms import LOG_2PI, Floats

# Range of the ratios of roughness to noise, in decades: from a polynomial to a function whose
# neighbouring points are independent, in units of the noise.
_SMOOTHEST, _ROUGHEST = -8.0, 6.0
# Largest variance, some decades below the largest number of float64.
_FARTHEST = 1e280
_NONE_2D = np.empty((0, 0))
# Decades beyond the roughest ratio up to which effective degrees of freedom and the noise keep
# digits.
_BEYOND = 3.0
# Points are filtered once the variance of the state is at most the first number, in noise
# variances: a much larger variance would cancel against itself. Until then, and for at most as many
# points as the second number, dense algebra is used. The variance must be below the last number
# then, which leaves six digits.
_KNOWN, _MOST_FIRST, _BARELY_KNOWN = 1e9, 512, 1e14


@dataclass(frozen=True)
class SplineData:
    """Rows with the same input as one point of their total weight and mean target.

    Attributes
    ----------
    order : int
        m; there are more than m points.
    points : ndarray of shape (n_points,)
        Increasing, from 0 to 1; with further rows, of a span of 1 at most.
    weight, target : ndarray of shape (n_points,)
    n_rows : int or float
        No whole number where some have faded.
    within : float
        Weighted squares of the targets about those of their points.
    log_weights : float
        ½ Σ log w over the rows, less that over the points.
    """

    order: int
    points: Floats
    weight: Floats
    target: Floats
    n_rows: float
    within: float
    log_weights: float

    @classmethod
    def of(cls, order: int, inputs: Floats, target: Floats, weight: Floats) -> SplineData:
        """Sort and merge rows whose inputs are from 0 to 1 and whose weights are positive."""
        points, codes = np.unique(inputs, return_inverse=True)
        total = np.asarray(np.bincount(codes, weight), dtype=float)
        mean = np.bincount(codes, weight * target) / total
        within = float(np.sum(weight * (target - mean[codes]) ** 2))
        log_weights = 0.5 * float(np.sum(np.log(weight)) - np.sum(np.log(total)))
        return cls(order, points, total, mean, len(target), within, log_weights)

    @property
    def degrees(self) -> float:
        """Rows less the coefficients of the polynomial."""
        return self.n_rows - self.order

    @cached_property
    def n_first(self) -> int:
        """Number of points that determine the state at the last of them: m, or more if close.

        Raises
        ------
        DataError
            If the largest allowed number of points does not.
        """
        most = min(len(self.points), _MOST_FIRST)
        count = self.order
        while True:
            known = Beginning.of(self, count).state(0.0)[1].diagonal().max()
            if known <= _KNOWN or (count == most and known <= _BARELY_KNOWN):
                return count
            if count == most:
                raise DataError(
                    f"the first {count} distinct inputs lie within {self.points[count - 1]:.3g} of "
                    "the range of all, too close for float64 to resolve the slopes of a spline: "
                    "round the column, so that they are fewer"
                )
            count = min(2 * count, most)

    @cached_property
    def step(self) -> Floats:
        """Steps between the points from the last of the first ones on; 0 for that."""
        return np.diff(self.points[self.n_first - 1 :], prepend=self.points[self.n_first - 1])

    @property
    def roughest(self) -> float:
        """Decimal logarithm of a rate at which neighbouring points have nothing in common."""
        step = float(np.median(np.diff(self.points)))
        return _ROUGHEST - math.log10(float(np.median(self.weight)) * step ** (2 * self.order - 1))

    @property
    def largest_rate(self) -> float:
        """Beyond it float64 cannot distinguish the noise from none."""
        return float(10.0 ** (self.roughest + _BEYOND))

    @property
    def shift(self) -> tuple[float, ...]:
        """1 / k! for k < m."""
        return tuple(1.0 / math.factorial(k) for k in range(self.order))

    @cached_property
    def beginning(self) -> Beginning:
        """The state at the last of the first points, given these."""
        return Beginning.of(self, self.n_first)


@dataclass(frozen=True)
class Beginning:
    """The state at the last of the first points, which has a flat prior, by dense algebra.

    Attributes
    ----------
    basis : ndarray of shape (k, m)
        What the function is at each of the points for each component of the state.
    spread : ndarray of shape (k, k)
        Covariance at the points given the state, for a rate of 1.
    noise : ndarray of shape (k,)
    target : ndarray of shape (k,)
    """

    basis: Floats
    spread: Floats
    noise: Floats
    target: Floats

    @classmethod
    def of(cls, data: SplineData, count: int) -> Beginning:
        """Take so many points."""
        size = data.order
        points = data.points[:count]
        back = points - points[-1]
        basis = np.column_stack([back**k / math.factorial(k) for k in range(size)])
        spread = Wiener(size, 1.0, 1.0, origin=float(points[-1])).covariance(points)
        return cls(basis, spread, 1.0 / data.weight[:count], data.target[:count])

    def state(self, rate: float) -> tuple[Floats, Floats]:
        """Mean and covariance of the state, given the points."""
        _, triangle, projected, _ = self._reduced(rate)
        inverse = solve_triangular(triangle, np.eye(len(triangle)))
        return inverse @ projected, inverse @ inverse.T

    def likelihood(self, rate: float) -> tuple[float, float]:
        """Squares that a flat prior leaves, and log det V + log det XᵀV⁻¹X."""
        factor, triangle, _, left = self._reduced(rate)
        log_det = np.log(np.diag(factor)).sum() + np.log(np.abs(np.diag(triangle))).sum()
        return float(left @ left), 2.0 * float(log_det)

    def _reduced(self, rate: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Cholesky factor of V, R of the whitened basis Q R, Qᵀ of the targets, what is left."""
        whole = rate * self.spread + np.diag(self.noise)
        factor = np.asarray(np.linalg.cholesky(whole), dtype=float)
        basis = solve_triangular(factor, self.basis, lower=True)
        target = solve_triangular(factor, self.target, lower=True)
        orthogonal, triangle = (np.asarray(part, dtype=float) for part in np.linalg.qr(basis))
        projected = orthogonal.T @ target
        return factor, triangle, projected, target - orthogonal @ projected


def restricted_likelihood(data: SplineData, rate: float) -> tuple[float, float]:
    """Log likelihood of all contrasts, and the noise variance that is most likely.

    ``rate`` is the diffusion of the highest derivative as a ratio to the noise variance of a row of
    weight 1. The constant of the flat prior is that of the coefficients in Σ b_k t^k / k!.
    """
    mean, covariance = data.beginning.state(rate)
    of_first, log_det_of_first = data.beginning.likelihood(rate)
    first = data.n_first - 1
    squares, log_det = filter_points(
        data.shift, data.step, data.weight[first:], data.target[first:], rate, mean, covariance,
        _NONE_2D, _NONE_2D,
    )  # fmt: skip
    noise = (squares + of_first + data.within) / data.degrees
    rest = float(np.log(data.weight[data.n_first :]).sum())
    constant = data.log_weights + 0.5 * (rest - log_det_of_first)
    # A perfect fit has no noise, and its likelihood no bound.
    noise = max(noise, 1e-300)
    value = -0.5 * (data.degrees * (LOG_2PI + math.log(noise) + 1.0) + log_det) + constant
    return value, noise


@dataclass(frozen=True)
class SplineModel:
    """A smoothing spline, with its posterior.

    Attributes
    ----------
    data : SplineData
    rate : float
        Diffusion of the highest derivative as a ratio to the noise variance.
    noise_variance : float
        Of a row of weight 1.
    log_likelihood : float
        Restricted: see ``restricted_likelihood``.
    at_bound : bool
        Whether rougher functions might be likelier still.
    """

    data: SplineData
    rate: float
    noise_variance: float
    log_likelihood: float
    at_bound: bool

    @classmethod
    def learned(cls, data: SplineData) -> SplineModel:
        """Take the likeliest ratio: the best of those a decade apart, and then near it."""
        decades = np.arange(_SMOOTHEST - math.log10(data.weight.sum()), data.roughest + 1.0)

        def negative(log_rate: float) -> float:
            try:
                return -restricted_likelihood(data, 10.0**log_rate)[0]
            except np.linalg.LinAlgError:  # so rough that only the first points matter
                return math.inf

        values = np.array([negative(decade) for decade in decades])
        values = np.where(np.isfinite(values), values, np.inf)
        best = int(np.argmin(values))
        if not np.isfinite(values[best]):
            raise DataError(
                "no smoothing parameter gives the targets a likelihood that float64 can hold; look "
                "for inputs that almost coincide, and for weights of very different sizes"
            )
        low, high = decades[max(best - 1, 0)], decades[min(best + 1, len(decades) - 1)]
        refined = minimize_scalar(negative, bounds=(low, high), method="bounded",
                                  options={"xatol": 1e-3})  # fmt: skip
        log_rate = float(refined.x) if refined.fun < values[best] else float(decades[best])
        return cls.of(data, 10.0**log_rate, at_bound=best == len(decades) - 1)

    @classmethod
    def of(cls, data: SplineData, rate: float, at_bound: bool = False) -> SplineModel:
        """Condition on the rows with a given ratio.

        Raises
        ------
        DataError
            If float64 cannot.
        """
        try:
            value, noise = restricted_likelihood(data, rate)
        except np.linalg.LinAlgError as error:
            raise DataError(
                f"a function of a rate of {rate:.3g} noise variances is too rough to compute: use "
                "a larger smoothing"
            ) from error
        return cls(data, rate, noise, value, at_bound)

    @cached_property
    def _states(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Filtered and smoothed means and covariances from the last of the first points on."""
        data, size = self.data, self.data.order
        first = data.n_first - 1
        n = len(data.step)
        means, covariances = np.empty((n, size)), np.empty((n, size * (size + 1) // 2))
        mean, covariance = data.beginning.state(self.rate)
        filter_points(
            data.shift, data.step, data.weight[first:], data.target[first:], self.rate, mean,
            covariance, means, covariances,
        )  # fmt: skip
        smoothed, spread = means.copy(), covariances.copy()
        smooth_points(data.shift, data.step, self.rate, smoothed, spread)
        return means, covariances, smoothed, spread

    def moments(self, inputs: Floats, derivative: int = 0) -> tuple[Floats, Floats]:
        """Posterior mean and variance of a derivative at inputs, each (n,)."""
        # Where the variance, a power of the distance, is infinite in float64.
        far = np.abs(inputs) > _FARTHEST ** (1.0 / (2 * self.data.order - 1))
        if far.any():
            mean, variance = self._beyond(inputs, derivative), np.full(len(inputs), np.inf)
            mean[~far], variance[~far] = self.moments(inputs[~far], derivative)
            return mean, variance
        first = self.data.points[self.data.n_first - 1]
        mean, variance = np.empty(len(inputs)), np.empty(len(inputs))
        early = inputs < first
        if early.any():
            mean[early], variance[early] = self._before(inputs[early], derivative)
        late = np.ascontiguousarray(inputs[~early])
        if len(late):
            points = self.data.points[self.data.n_first - 1 :]
            left = np.searchsorted(points, late, side="right") - 1
            value, spread = np.empty(len(late)), np.empty(len(late))
            evaluate_spline(
                self.data.shift, self.rate, points, *self._states, late, left, derivative, value,
                spread,
            )  # fmt: skip
            mean[~early], variance[~early] = value, spread
        return mean, self.noise_variance * np.maximum(variance, 0.0)

    def _beyond(self, inputs: Floats, derivative: int) -> Floats:
        """Posterior mean outside the points: a polynomial from the outermost, or infinite."""
        ends = self.data.points[[0, -1]]
        side = (inputs > 0).astype(int)
        mean = np.zeros(len(inputs))
        with np.errstate(over="ignore"):
            for k in range(self.data.order - 1, derivative - 1, -1):
                mean = self.moments(ends, k)[0][side] + mean * (
                    (inputs - ends[side]) / (k + 1 - derivative)
                )
        return mean

    def _before(self, inputs: Floats, derivative: int) -> tuple[Floats, Floats]:
        """Before the last of the first points, given the state there and the targets until then."""
        size, count = self.data.order, self.data.n_first
        beginning = self.data.beginning
        _, _, smoothed, packed = self._states
        state, spread = smoothed[0], np.zeros((size, size))
        spread[np.triu_indices(size)] = packed[0]
        spread = spread + np.triu(spread, 1).T
        seen = self.data.points[: count - 1]
        origin = float(self.data.points[count - 1])
        back = inputs - origin
        basis = np.column_stack(
            [
                back ** (k - derivative) / math.factorial(k - derivative)
                if k >= derivative
                else np.zeros(len(back))
                for k in range(size)
            ]
        )
        prior = self.rate * _derivative_moment(size, derivative, -back)
        if not len(seen):
            return basis @ state, np.einsum("ij,jk,ik->i", basis, spread, basis) + prior
        among = self.rate * beginning.spread[:-1, :-1] + np.diag(beginning.noise[:-1])
        cross = self.rate * _cross_moment(size, derivative, -back, origin - seen)
        gain = np.linalg.solve(among, cross.T).T
        rest = basis - gain @ beginning.basis[:-1]
        mean = basis @ state + gain @ (beginning.target[:-1] - beginning.basis[:-1] @ state)
        variance = np.einsum("ij,jk,ik->i", rest, spread, rest)
        return mean, variance + prior - np.einsum("ij,ij->i", gain, cross)

    @property
    def effective_dof(self) -> float:
        """Trace of the smoother: how many parameters the function amounts to."""
        variance = self.moments(self.data.points)[1]
        return float(np.sum(self.data.weight * variance)) / self.noise_variance


def _derivative_moment(size: int, derivative: int, distance: Floats) -> Floats:
    """Variance of a derivative of the process of rate 1 so far from its origin."""
    power = size - 1 - derivative
    return distance ** (2 * power + 1) / ((2 * power + 1) * math.factorial(power) ** 2)


def _cross_moment(size: int, derivative: int, distance: Floats, seen: Floats) -> Floats:
    """Covariance of a derivative by the input with the function, on the side of falling inputs."""
    power = size - 1 - derivative
    # ∫ (a − u)^power (b − u)^(m−1) du over u up to the nearer, by Gauss–Legendre: a polynomial.
    near = np.minimum(distance[:, None], seen[None, :])
    nodes, weights = np.polynomial.legendre.leggauss(size)
    u = 0.5 * near[..., None] * (nodes + 1.0)
    product = (distance[:, None, None] - u) ** power * (seen[None, :, None] - u) ** (size - 1)
    integral = 0.5 * near * (product @ weights)
    sign = (-1.0) ** derivative  # the input decreases as the distance grows
    return sign * integral / (math.factorial(power) * math.factorial(size - 1))
