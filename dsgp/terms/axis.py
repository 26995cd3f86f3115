"""One sorted axis and the Gaussian process along it, in O(n) time.

The only place where kernels meet the compiled passes. Rows with the same input are one point of
the axis: their weights (noise precisions) add up and their targets average, which changes no
posterior; ``Observations`` keeps what the likelihood of the rows needs besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.jit.chain import disturbances, smoothed_states
from dsgp.jit.filter import filter_gains, filter_states
from dsgp.jit.product import (
    accumulate,
    accumulate_many,
    evaluate,
    evaluate_many,
    multiply,
    posterior_variance,
)
from dsgp.jit.sampler import simulate
from dsgp.jit.smoother import smooth, solve_with_gains
from dsgp.kernels import Matern
from dsgp.terms.base import Evidence, Floats, Observations, Posterior, Solver
from dsgp.terms.chain import ExpectedChain, empty_statistics, of_path
from dsgp.terms.passed import PassedLine, in_order

_NONE = np.empty(0)
_NONE_2D = np.empty((0, 0))


class Axis(PassedLine):
    """Strictly increasing points of one input, and Gaussian processes along them.

    Parameters
    ----------
    points : array_like of shape (n_points,)
        Finite, strictly increasing, in the units of the input.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.terms import Axis, Observations
    >>> from dsgp.kernels import Matern32
    >>> axis, codes = Axis.from_column(np.array([2.0, 0.0, 1.0, 0.0]))
    >>> seen = Observations.from_rows(codes, len(axis), np.array([1.0, 0, 2, 1]), np.full(4, 10.0))
    >>> posterior = axis.posterior(Matern32(lengthscale=1.0, variance=1.0), seen)
    >>> posterior.mean.round(3)
    array([0.522, 1.803, 0.99 ])
    """

    def __init__(self, points: ArrayLike) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        if self.points.ndim != 1 or self.points.size == 0:
            raise DataError(f"an axis needs points of shape (n,), got {self.points.shape}")
        if not np.isfinite(self.points).all():
            raise DataError("the points of an axis must be finite")
        if not (self.points[1:] > self.points[:-1]).all():
            raise DataError("the points of an axis must increase strictly; merge ties first")

    @classmethod
    def from_column(cls, column: Floats) -> tuple[Axis, NDArray[np.int32]]:
        """Sort and merge a column of inputs; return the axis and the code (point) of each row."""
        points, codes = np.unique(column, return_inverse=True)
        return cls(points), codes.astype(np.int32)

    def likelihood_terms(self, kernel: Matern, seen: Observations) -> tuple[float, float]:
        """Return targetᵀ (K + W⁻¹)⁻¹ target and log det(I + K W): what depends on the kernel."""
        quadratic, log_det = filter_states(
            *_dynamics(kernel), self.step, seen.weight, seen.target, _NONE_2D, _NONE_2D
        )
        return float(quadratic), float(log_det)

    def posterior(self, kernel: Matern, seen: Observations, slope: bool = False) -> AxisPosterior:
        """Posterior along the axis, with the log marginal likelihood and its gradient.

        With ``slope`` the mean and variance of the derivative by the input, and its covariance with
        the function, come along; Matérn 1/2 has none.
        """
        if slope:
            _require_slope(kernel)
        n = len(self)
        mean, variance, dual = np.empty(n), np.empty(n), np.empty(n)
        slopes = (np.empty(n), np.empty(n), np.empty(n)) if slope else (_NONE, _NONE, _NONE)
        _, sums = self._smooth(
            kernel, seen.weight, seen.target, (mean, variance, dual), slopes, _NONE_2D
        )
        quadratic, log_det, rate_score, noise_score = sums
        by_log_noise = 0.5 * noise_score
        evidence = Evidence(
            value=seen.log_likelihood(quadratic, log_det),
            by_log={
                "lengthscale": -rate_score,
                "variance": 0.5 * (quadratic - seen.n_observed) - by_log_noise,
            },
            by_log_noise=by_log_noise + seen.remainder_by_log_noise,
        )
        return AxisPosterior(
            cells=self,
            kernel=kernel,
            seen=seen,
            mean=mean,
            variance=variance,
            dual=dual,
            slope=kernel.rate * slopes[0] if slope else None,
            slope_variance=kernel.rate**2 * slopes[1] if slope else None,
            slope_covariance=kernel.rate * slopes[2] if slope else None,
            evidence=evidence,
            log_det=log_det,
        )

    def _smooth(
        self,
        kernel: Matern,
        weight: Floats,
        target: Floats,
        moments: tuple[Floats, Floats, Floats],
        slopes: tuple[Floats, Floats, Floats],
        adjoint: Floats,
    ) -> tuple[Floats, tuple[float, float, float, float]]:
        """Run both passes; return the predicted covariances and the four sums of the passes."""
        n, m = len(self), kernel.order
        dynamics = _dynamics(kernel)
        means, covariances = np.empty((n, m)), np.empty((n, m * (m + 1) // 2))
        forward = filter_states(*dynamics, self.step, weight, target, means, covariances)
        backward = smooth(
            *dynamics, self.step, weight, target, means, covariances, *moments, *slopes, adjoint
        )
        return covariances, (*forward, *backward)

    def expected_chain(self, kernel: Matern, seen: Observations) -> ExpectedChain:
        """Expected sufficient statistics of the posterior states along the axis."""
        n, m = len(self), kernel.order
        passes = (*_dynamics(kernel), self.step, seen.weight, seen.target)
        means, packed = np.empty((n, m)), (n, m * (m + 1) // 2)
        covariances, adjoint = np.empty(packed), np.empty(packed)
        filter_states(*passes, means, covariances)
        mean, variance, dual = np.empty(n), np.empty(n), np.empty(n)
        smooth(*passes, means, covariances, mean, variance, dual, _NONE, _NONE, _NONE, adjoint)
        statistics = empty_statistics(n, m)
        disturbances(*passes, means, covariances, dual, adjoint, *statistics)
        return ExpectedChain(kernel, *statistics)

    def solver(self, kernel: Matern, weight: Floats) -> AxisSolver:
        """Prepare repeated solves with the same kernel and weights."""
        n = len(self)
        decay, shrinkage, covariance = np.empty(n), np.empty(n), np.empty((n, kernel.order))
        filter_gains(*_dynamics(kernel), self.step, weight, decay, shrinkage, covariance)
        return AxisSolver(self, kernel, weight, decay, shrinkage, covariance)

    def sample(self, kernel: Matern, random: np.random.Generator) -> Floats:
        """Draw the process at the points from its prior, (n_points,)."""
        out = np.empty(len(self))
        normal = random.standard_normal((len(self), kernel.order))
        simulate(*_dynamics(kernel), self.step, normal, out, _NONE_2D, _NONE_2D)
        return out

    def draw_states(
        self, kernel: Matern, seen: Observations, random: np.random.Generator
    ) -> tuple[Floats, ExpectedChain]:
        """Draw the whole chain of states from its posterior (section ``sec:MCMC``), in O(n_points).

        A draw of the prior, plus the posterior mean given the targets less that draw and a draw of
        the noise (Durbin and Koopman 2002): the law is that of forward filtering, backward
        sampling.

        Returns
        -------
        function : ndarray of shape (n_points,)
        chain : ExpectedChain
            Its states are those drawn, without uncertainty.
        """
        n, m = len(self), kernel.order
        dynamics = _dynamics(kernel)
        drawn, states, moved = np.empty(n), np.empty((n, m)), np.empty((n, m))
        simulate(*dynamics, self.step, random.standard_normal((n, m)), drawn, states, moved)
        noise = np.zeros(n)
        normal, observed = random.standard_normal(n), seen.weight > 0
        np.divide(normal, np.sqrt(seen.weight), out=noise, where=observed)
        target = np.where(observed, seen.target - drawn - noise, 0.0)
        means, covariances = np.empty((n, m)), np.empty((n, m * (m + 1) // 2))
        filter_states(*dynamics, self.step, seen.weight, target, means, covariances)
        mean, variance, dual = np.empty(n), np.empty(n), np.empty(n)
        passes = (*dynamics, self.step, seen.weight, target, means, covariances)
        smooth(*passes, mean, variance, dual, _NONE, _NONE, _NONE, _NONE_2D)
        tau, smoothed, left = np.empty(n), np.empty((n, m)), np.empty((n, m))
        smoothed_states(*dynamics, self.step, means, covariances, dual, tau, smoothed, left)
        return drawn + mean, of_path(kernel, tau, states + smoothed, moved + left)

    def multiply(self, kernel: Matern, vector: Floats) -> Floats:
        """Return K @ vector, in O(n_points)."""
        out = np.empty(len(self))
        multiply(*_dynamics(kernel), self.step, vector, out)
        return out

    def multiply_each(self, kernel: Matern, vectors: Floats) -> Floats:
        dynamics, out = _dynamics(kernel), np.empty(vectors.shape)
        for vector, product in zip(vectors, out, strict=True):
            multiply(*dynamics, self.step, vector, product)
        return out

    def kernel_sum(self, kernel: Matern, vector: Floats) -> KernelSum:
        """Return the function x ↦ k(x, points) @ vector, ready to be evaluated anywhere."""
        shape = (len(self), kernel.order)
        forward, backward = np.empty(shape), np.empty(shape)
        accumulate(*_dynamics(kernel), self.step, vector, forward, backward)
        return KernelSum(self, kernel, forward, backward)

    def kernel_sums(self, kernel: Matern, vectors: Floats) -> KernelSums:
        """Like ``kernel_sum`` for several vectors (r, n_points) at once."""
        shape = (len(self), kernel.order, len(vectors))
        forward, backward = np.empty(shape), np.empty(shape)
        # The vectors are the last axis, so that one input reads neighbouring numbers.
        columns = np.ascontiguousarray(vectors.T)
        accumulate_many(*_dynamics(kernel), self.step, columns, forward, backward)
        return KernelSums(self, kernel, forward, backward)

    def _slope(self, kernel: Matern, dual: Floats) -> Floats:
        if kernel.order == 1:
            return super()._slope(kernel, dual)
        return self.kernel_sum(kernel, dual).slope(self.points)

    def variance_function(self, kernel: Matern, weight: Floats) -> VarianceFunction:
        """Return the posterior variance as a function of the input; it needs no target."""
        n, m = len(self), kernel.order
        adjoint = np.empty((n, m * (m + 1) // 2))
        nothing = (_NONE, _NONE, _NONE)
        covariances, _ = self._smooth(kernel, weight, np.zeros(n), nothing, nothing, adjoint)
        return VarianceFunction(self, kernel, weight, covariances, adjoint)


@dataclass(frozen=True)
class AxisPosterior(Posterior):
    """The Gaussian process along an axis, given observations.

    Attributes
    ----------
    slope, slope_variance : ndarray of shape (n_points,) or None
        Of the derivative by the input.
    slope_covariance : ndarray of shape (n_points,) or None
        Of the function and its derivative at the same point.
    """

    slope: Floats | None = None
    slope_variance: Floats | None = None
    slope_covariance: Floats | None = None


@dataclass(frozen=True)
class AxisSolver(Solver):
    """Applies (K⁻¹ + W)⁻¹ for one kernel and one set of weights, vector by vector."""

    axis: Axis
    kernel: Matern
    weight: Floats
    decay: Floats
    shrinkage: Floats
    covariance: Floats

    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        mean, dual = np.empty(len(self.axis)), np.empty(len(self.axis))
        solve_with_gains(
            self.kernel.inverse_factorials,
            self.kernel.rate,
            self.axis.step,
            self.weight,
            self.decay,
            self.shrinkage,
            self.covariance,
            information,
            mean,
            dual,
        )
        return mean, dual


@dataclass(frozen=True)
class KernelSum:
    """The function x ↦ k(x, points) @ vector."""

    axis: Axis
    kernel: Matern
    forward: Floats
    backward: Floats

    def __call__(self, inputs: ArrayLike) -> Floats:
        """Values at inputs of any order, (n_inputs,)."""
        return self._evaluate(inputs, slope=False)[0]

    def slope(self, inputs: ArrayLike) -> Floats:
        """Derivatives by the input, (n_inputs,)."""
        _require_slope(self.kernel)
        return self._evaluate(inputs, slope=True)[1]

    def _evaluate(self, inputs: ArrayLike, slope: bool) -> tuple[Floats, Floats]:
        inputs, order = self.axis.ordered(inputs)
        coordinates, left, right = self.axis.locate(inputs)
        value, rise = np.empty(len(inputs)), np.empty(len(inputs)) if slope else _NONE
        evaluate(
            *_dynamics(self.kernel),
            self.axis.coordinates,
            self.forward,
            self.backward,
            coordinates,
            left,
            right,
            value,
            rise,
        )
        return in_order(value, order), in_order(rise, order) if slope else rise


@dataclass(frozen=True)
class KernelSums:
    """The functions x ↦ k(x, points) @ vector of several vectors."""

    axis: Axis
    kernel: Matern
    forward: Floats
    backward: Floats

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs of any order to ``out`` (n_inputs, r)."""
        coordinates, left, right = self.axis.locate(inputs)
        evaluate_many(
            *_dynamics(self.kernel),
            self.axis.coordinates,
            self.forward,
            self.backward,
            coordinates,
            left,
            right,
            out,
        )


@dataclass(frozen=True)
class VarianceFunction:
    """The posterior variance as a function of the input."""

    axis: Axis
    kernel: Matern
    weight: Floats
    covariances: Floats
    adjoint: Floats

    def __call__(self, inputs: ArrayLike) -> Floats:
        """Variances at inputs of any order, (n_inputs,)."""
        inputs, order = self.axis.ordered(inputs)
        coordinates, left, right = self.axis.locate(inputs)
        variance = np.empty(len(inputs))
        posterior_variance(
            *_dynamics(self.kernel),
            self.axis.coordinates,
            self.weight,
            self.covariances,
            self.adjoint,
            coordinates,
            left,
            right,
            variance,
        )
        return in_order(variance, order)


def _require_slope(kernel: Matern) -> None:
    if kernel.order < 2:
        raise ParameterError(f"{kernel!r} has no derivative; use Matern32 or smoother")


def _dynamics(kernel: Matern) -> tuple[tuple[float, ...], Floats, float]:
    return kernel.inverse_factorials, kernel.stationary_covariance(), kernel.rate
