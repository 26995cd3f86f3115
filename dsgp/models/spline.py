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
from scipy.optimize import minimize_scalar

from dsgp.jit.spline import evaluate_spline, filter_points, smooth_points
from dsgp.kernels import Wiener
from dsgp.terms import LOG_2PI, Floats

# Ratios of roughness to noise that are looked at, a decade apart: from a polynomial, up to where
# neighbouring points have nothing in common but what they are told, in units of their noise.
_SMOOTHEST, _ROUGHEST = -8.0, 6.0
_NONE, _NONE_2D = np.empty(0), np.empty((0, 0))


@dataclass(frozen=True)
class SplineData:
    """Rows with the same input as one point of their total weight and mean target.

    Attributes
    ----------
    order : int
        m; there are more than m points.
    points : ndarray of shape (n_points,)
        Increasing, from 0 to 1.
    weight, target : ndarray of shape (n_points,)
    n_rows : int
    within : float
        Weighted squares of the targets about those of their points.
    log_weights : float
        ½ Σ log w over the rows, less that over the points.
    """

    order: int
    points: Floats
    weight: Floats
    target: Floats
    n_rows: int
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
    def degrees(self) -> int:
        """Rows less the coefficients of the polynomial."""
        return self.n_rows - self.order

    @cached_property
    def step(self) -> Floats:
        """Steps between the points from the m-th on; 0 for that."""
        return np.diff(self.points[self.order - 1 :], prepend=self.points[self.order - 1])

    @property
    def shift(self) -> tuple[float, ...]:
        """1 / k! for k < m."""
        return tuple(1.0 / math.factorial(k) for k in range(self.order))

    def beginning(self) -> Beginning:
        """Return what the first m points say of the state at the last of them."""
        return Beginning.of(self)


@dataclass(frozen=True)
class Beginning:
    """The state at the m-th point: with a flat prior, its function goes through the first m.

    Attributes
    ----------
    basis : ndarray of shape (m, m)
        What the function is at each of the points for each component of the state.
    spread : ndarray of shape (m, m)
        Covariance at the points given the state, for a rate of 1.
    noise : ndarray of shape (m,)
    target : ndarray of shape (m,)
    """

    basis: Floats
    spread: Floats
    noise: Floats
    target: Floats

    @classmethod
    def of(cls, data: SplineData) -> Beginning:
        size = data.order
        points = data.points[:size]
        back = points - points[-1]
        basis = np.column_stack([back**k / math.factorial(k) for k in range(size)])
        spread = Wiener(size, 1.0, 1.0, origin=float(points[-1])).covariance(points)
        return cls(basis, spread, 1.0 / data.weight[:size], data.target[:size])

    def state(self, rate: float) -> tuple[Floats, Floats]:
        """Mean and covariance of the state at the m-th point, given the first m."""
        inverse = np.linalg.inv(self.basis)
        covariance = inverse @ (rate * self.spread + np.diag(self.noise)) @ inverse.T
        return inverse @ self.target, 0.5 * (covariance + covariance.T)


def restricted_likelihood(data: SplineData, rate: float) -> tuple[float, float]:
    """Log likelihood of all contrasts, and the noise variance that is most likely.

    ``rate`` is the diffusion of the highest derivative as a ratio to the noise variance of a row of
    weight 1. The constant of the flat prior is that of the coefficients in Σ b_k t^k / k!.
    """
    beginning = data.beginning()
    mean, covariance = beginning.state(rate)
    first = data.order - 1
    squares, log_det = filter_points(
        data.shift, data.step, data.weight[first:], data.target[first:], rate, mean, covariance,
        _NONE_2D, _NONE_2D,
    )  # fmt: skip
    noise = (squares + data.within) / data.degrees
    rest = float(np.log(data.weight[data.order :]).sum())
    constant = data.log_weights + 0.5 * rest - float(np.linalg.slogdet(beginning.basis)[1])
    # A perfect fit has no noise, and no bound.
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
        highest = _ROUGHEST - math.log10(
            float(np.median(data.weight)) * float(np.median(np.diff(data.points)))
            ** (2 * data.order - 1)
        )  # fmt: skip
        decades = np.arange(_SMOOTHEST - math.log10(data.weight.sum()), highest + 1.0)

        def negative(log_rate: float) -> float:
            return -restricted_likelihood(data, 10.0**log_rate)[0]

        values = np.array([negative(decade) for decade in decades])
        best = int(np.argmin(values))
        low, high = decades[max(best - 1, 0)], decades[min(best + 1, len(decades) - 1)]
        refined = minimize_scalar(negative, bounds=(low, high), method="bounded",
                                  options={"xatol": 1e-3})  # fmt: skip
        log_rate = float(refined.x) if refined.fun < values[best] else float(decades[best])
        return cls.of(data, 10.0**log_rate, at_bound=best == len(decades) - 1)

    @classmethod
    def of(cls, data: SplineData, rate: float, at_bound: bool = False) -> SplineModel:
        """Condition on the rows with a given ratio."""
        value, noise = restricted_likelihood(data, rate)
        return cls(data, rate, noise, value, at_bound)

    @cached_property
    def _states(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Filtered and smoothed means and covariances from the m-th point on."""
        data, size = self.data, self.data.order
        first = size - 1
        n = len(data.step)
        means, covariances = np.empty((n, size)), np.empty((n, size * (size + 1) // 2))
        mean, covariance = data.beginning().state(self.rate)
        filter_points(
            data.shift, data.step, data.weight[first:], data.target[first:], self.rate, mean,
            covariance, means, covariances,
        )  # fmt: skip
        smoothed, spread = means.copy(), covariances.copy()
        smooth_points(data.shift, data.step, self.rate, smoothed, spread)
        return means, covariances, smoothed, spread

    def moments(self, inputs: Floats, derivative: int = 0) -> tuple[Floats, Floats]:
        """Posterior mean and variance of a derivative at inputs, each (n,)."""
        first = self.data.points[self.data.order - 1]
        mean, variance = np.empty(len(inputs)), np.empty(len(inputs))
        early = inputs < first
        if early.any():
            mean[early], variance[early] = self._before(inputs[early], derivative)
        late = np.ascontiguousarray(inputs[~early])
        if len(late):
            points = self.data.points[self.data.order - 1 :]
            left = np.searchsorted(points, late, side="right") - 1
            value, spread = np.empty(len(late)), np.empty(len(late))
            evaluate_spline(
                self.data.shift, self.rate, points, *self._states, late, left, derivative, value,
                spread,
            )  # fmt: skip
            mean[~early], variance[~early] = value, spread
        return mean, self.noise_variance * np.maximum(variance, 0.0)

    def _before(self, inputs: Floats, derivative: int) -> tuple[Floats, Floats]:
        """Before the m-th point, given the smoothed state there and the targets until then."""
        size = self.data.order
        beginning = self.data.beginning()
        _, _, smoothed, packed = self._states
        state, spread = smoothed[0], np.zeros((size, size))
        spread[np.triu_indices(size)] = packed[0]
        spread = spread + np.triu(spread, 1).T
        seen = self.data.points[: size - 1]
        origin = float(self.data.points[size - 1])
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
    sign = (-1.0) ** derivative  # the input falls as the distance grows
    return sign * integral / (math.factorial(power) * math.factorial(size - 1))
