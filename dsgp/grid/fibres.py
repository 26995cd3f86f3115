"""Exact Gaussian processes on a grid with one long axis, in a time linear in its length.

The other axes are rotated by their eigenvectors. Each fibre along the long axis is then a process
of its own, with covariance λ_j K_t + σ² I, and the state-space engine takes it in linear time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.compute import one_blas_thread, run
from dsgp.errors import DataError, ParameterError
from dsgp.grid.kronecker import Eigenbasis, GridEvidence
from dsgp.grid.rotation import Rotation
from dsgp.grid.scattered import Cross, squared, sums_along, sums_at
from dsgp.kernels import Matern, Stationary
from dsgp.kernels.base import LARGEST, SMALLEST
from dsgp.terms import LOG_2PI, Axis, Evidence, Floats, Observations

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Seconds of compiled work per cell, which decide whether threads are worth their cost.
_SMOOTHING, _SOLVING, _DRAWING = 1.5e-7, 7e-8, 4e-7
# Kernels do not accept smaller variances.
_LEAST = 1e10 * SMALLEST


def _on_one_blas_thread(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Once around a whole method: setting the limit takes a millisecond."""

    @wraps(method)
    def limited(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with one_blas_thread():
            return method(*args, **kwargs)

    return limited


class FibreSystem:
    r"""A Gaussian process on a complete grid, one axis of which may have 10⁶ points.

    .. math:: y \sim N(0, K_1 \otimes \dots \otimes K_D + \sigma^2 I)

    With :math:`Q \Lambda Q^\top` the eigendecomposition of the product of all axes but the long
    one, the fibres of :math:`Q^\top y` are independent, with covariances
    :math:`\lambda_j K_t + \sigma^2 I`. Results do not depend on the number of threads.

    *Cost.* O(N m³) for N cells and a Matérn kernel of order m, beside the rotations, O(N Σ G_d)
    over the other axes d of G_d points, and their eigendecompositions, O(Σ G_d³).

    *Memory.* Beside the residuals: ``posterior`` and ``evidence`` take two fields, which the first
    returns; ``log_marginal_likelihood`` and ``solve`` one; ``sample`` one more than it draws;
    ``predict`` one, its results, and twice the fibres at the new points of the long axis. Every
    thread holds the states of one fibre, some m (m + 2) + 4 numbers per step: 19 for Matérn 5/2.

    Parameters
    ----------
    points : sequence of D arrays, of shapes (G_1,), ..., (G_D,)
        Strictly ascending, each in the units of its axis.
    kernels : sequence of D kernels
        One per axis; their variances multiply. That of the long axis is a Matérn kernel.
    noise_variance : float
        σ², in squared units of the target.
    long : int
        The long axis.

    Raises
    ------
    ParameterError
        If the long axis' kernel has no state-space form, a kernel lacks a parameter, the noise is
        not positive, or the numbers of axes differ.
    DataError
        If points are not finite and strictly ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.fibres import FibreSystem
    >>> from dsgp.kernels import Matern32, SquaredExponential
    >>> hours, stations = np.arange(5_000.0), np.array([0.0, 1.0, 3.0])
    >>> y = np.sin(hours / 40)[:, None] * np.cos(stations)
    >>> system = FibreSystem(
    ...     [hours, stations], [Matern32(30.0, 1.0), SquaredExponential(2.0, 1.0)], 0.01, long=0
    ... )
    >>> mean, variance = system.posterior(y)
    >>> float(abs(mean - y).max()) < 0.1
    True
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        kernels: Sequence[Stationary],
        noise_variance: float,
        long: int,
    ) -> None:
        if not 0 < len(points) == len(kernels) > long >= 0:
            raise ParameterError(
                "a grid needs one kernel per axis and the number of its long axis, got "
                f"{len(points)} axes, {len(kernels)} kernels and long={long}"
            )
        kernel = kernels[long]
        if not isinstance(kernel, Matern):
            raise ParameterError(
                f"the kernel of the long axis {long} must be Matern12, Matern32, Matern52 or "
                f"Matern72, which go along it in linear time; got {kernel!r}"
            )
        if not SMALLEST <= noise_variance <= LARGEST:
            raise ParameterError(
                f"noise_variance must be a number from {SMALLEST:g} to {LARGEST:g}, got "
                f"{noise_variance!r}"
            )
        self.axes = [Axis(axis_points) for axis_points in points]
        self.kernels = list(kernels)
        self.noise_variance = float(noise_variance)
        self.long = long
        self.axis = self.axes[long]
        self.kernel = kernel
        self.shape = tuple(len(axis) for axis in self.axes)
        self._others = [d for d in range(len(points)) if d != long]
        self._rotation = Rotation(
            [Eigenbasis.of(kernels[d].covariance(self.axes[d].points)) for d in self._others],
            long,
            len(self.axis),
        )
        self._weight = np.full(len(self.axis), 1.0 / self.noise_variance)
        scales = self._rotation.scales
        self._variances = scales * kernel.std**2
        # In these fibres, all steps together are less informative than the rounding error of the
        # others.
        signal = self._variances * (len(self.axis) / self.noise_variance)
        self._silent = (signal < 1e-15) & (scales <= 1e-16 * scales.max())
        self._silent |= self._variances < _LEAST

    # ------------------------------------------------------------------ on the grid

    @_on_one_blas_thread
    def log_marginal_likelihood(self, y: Floats) -> float:
        """Log density of the residuals, the function integrated out.

        Parameters
        ----------
        y : ndarray of shape (G_1, ..., G_D)
            Residuals without gaps, in units of the target.
        """
        fibres = self._rotation.fibres(y)

        def value(j: int) -> float:
            if self._silent[j]:
                return self._noise_alone(fibres[j]).value
            seen = Observations(fibres[j], self._weight)
            return self.axis.log_marginal_likelihood(self._kernel(j), seen)

        return float(sum(self._along(value, _SOLVING)))

    @_on_one_blas_thread
    def evidence(self, y: Floats) -> GridEvidence:
        """Log marginal likelihood and its derivatives by the logs of all hyperparameters."""
        scales = self._rotation.scales
        duals = self._rotation.fibres(y)  # overwritten by (λ_j K_t + σ² I)⁻¹ times itself
        products = np.empty_like(duals)  # K_t times the duals

        def learn(j: int) -> tuple[Evidence, float]:
            if self._silent[j]:
                evidence = self._noise_alone(duals[j])
                duals[j] /= self.noise_variance
                products[j] = self.axis.multiply(self.kernel, duals[j])
                return evidence, len(self.axis) * self.kernel.std**2 / self.noise_variance
            posterior = self.axis.posterior(self._kernel(j), Observations(duals[j], self._weight))
            duals[j] = posterior.dual
            np.divide(posterior.mean, scales[j], out=products[j])
            # The posterior covariance is σ² λ_j K_t (λ_j K_t + σ² I)⁻¹: nothing cancels.
            trace = float(np.sum(posterior.variance)) / (self.noise_variance * scales[j])
            return posterior.evidence, trace

        results = self._along(learn, _SMOOTHING)
        traces = np.array([trace for _, trace in results])
        by_log_lengthscale = np.empty(len(self.shape))
        by_log_lengthscale[self.long] = sum(
            evidence.by_log["lengthscale"] for evidence, _ in results
        )
        for position, d in enumerate(self._others):
            slope = self.kernels[d].by_log_lengthscale(self.axes[d].points)
            by_log_lengthscale[d] = self._rotation.score(position, slope, duals, products, traces)
        return GridEvidence(
            value=float(sum(evidence.value for evidence, _ in results)),
            by_log_lengthscale=by_log_lengthscale,
            by_log_variance=float(sum(evidence.by_log["variance"] for evidence, _ in results)),
            by_log_noise=float(sum(evidence.by_log_noise for evidence, _ in results)),
        )

    @_on_one_blas_thread
    def solve(self, y: Floats) -> Floats:
        """Return (K + σ² I)⁻¹ y, (G_1, ..., G_D)."""
        return self._rotation.field(self._rotation.vectors, self._duals(y), in_place=True)

    @_on_one_blas_thread
    def posterior(self, y: Floats) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the function at all cells, each (G_1, ..., G_D)."""
        means = self._rotation.fibres(y)
        variances = np.empty_like(means)

        def smooth(j: int) -> None:
            if self._silent[j]:
                means[j], variances[j] = 0.0, self._variances[j]
                return
            posterior = self.axis.posterior(self._kernel(j), Observations(means[j], self._weight))
            means[j], variances[j] = posterior.mean, posterior.variance

        self._along(smooth, _SMOOTHING)
        return (
            self._rotation.field(self._rotation.vectors, means, in_place=True),
            self._rotation.field(self._rotation.squares, variances, in_place=True),
        )

    # ------------------------------------------------------------------ on other grids

    @_on_one_blas_thread
    def predict(self, points: Sequence[ArrayLike], y: Floats) -> tuple[Floats, Floats]:
        """Posterior mean and variance of the function on another grid.

        Parameters
        ----------
        points : sequence of D arrays, of shapes (H_1,), ..., (H_D,)
            In any order, each in the units of its axis.
        y : ndarray of shape (G_1, ..., G_D)

        Returns
        -------
        mean, variance : ndarray of shape (H_1, ..., H_D)
        """
        inputs = self._inputs(points)
        return self._mean_at(inputs, y), self._variance_at(inputs)

    @_on_one_blas_thread
    def predict_at(
        self, points: Sequence[Floats], together: Sequence[int], y: Floats
    ) -> tuple[Floats, Floats]:
        """Posterior mean and variance at points; as that of ``KroneckerSystem``."""
        duals = self._duals(y)

        def evaluate(j: int, inputs: Floats) -> Floats:
            return self.axis.kernel_sum(self.kernel, duals[j])(inputs)

        def explain(j: int, inputs: Floats) -> Floats:
            return np.zeros(len(inputs)) if self._silent[j] else self._explained(j, inputs)

        crosses = self._cross_functions()
        squares = [squared(cross) for cross in crosses]
        mean = self._sums_at(evaluate, crosses, points, together, _SOLVING)
        explained = self._sums_at(explain, squares, points, together, _SMOOTHING)
        prior = math.prod(kernel.std**2 for kernel in self.kernels)
        return mean, np.clip(prior - explained, 0.0, prior)

    def _sums_at(
        self,
        evaluate: Callable[[int, Floats], Floats],
        crosses: list[Cross],
        points: Sequence[Floats],
        together: Sequence[int],
        seconds: float,
    ) -> Floats:
        if self.long in together:
            return sums_along(
                evaluate,
                crosses,
                points,
                together,
                self.long,
                self.shape,
                seconds * len(self.axis),
            )
        inputs = points[self.long]
        values = np.empty((len(self._variances), len(inputs)))

        def fill(j: int) -> None:
            values[j] = evaluate(j, inputs)

        self._along(fill, seconds)
        grid = np.moveaxis(values.reshape(*self._rotation.others, -1), -1, self.long)
        there: list[Cross | None] = [*crosses]
        there[self.long] = None
        return sums_at(there, points, together, np.ascontiguousarray(grid))

    def _cross_functions(self) -> list[Cross]:
        """Covariances of new points of each axis with its eigenvectors; not of the long one."""
        vectors = dict(zip(self._others, self._rotation.vectors, strict=True))

        def cross_of(d: int) -> Cross:
            return lambda new: self.kernels[d].covariance(new, self.axes[d].points) @ vectors[d]

        return [cross_of(d) for d in range(len(self.axes))]

    def _mean_at(self, inputs: list[Floats], y: Floats) -> Floats:
        duals = self._duals(y)
        values = np.empty((len(duals), len(inputs[self.long])))

        def evaluate(j: int) -> None:
            values[j] = self.axis.kernel_sum(self.kernel, duals[j])(inputs[self.long])

        self._along(evaluate, _SOLVING)
        return self._rotation.field(self._crosses(inputs), values)

    def _variance_at(self, inputs: list[Floats]) -> Floats:
        # Where the other axes are unchanged, the variances of the fibres add up and nothing
        # cancels.
        same = all(np.array_equal(inputs[d], self.axes[d].points) for d in self._others)
        values = np.empty((len(self._variances), len(inputs[self.long])))

        def vary(j: int) -> None:
            if self._silent[j]:
                values[j] = self._variances[j] if same else 0.0
                return
            if same:
                function = self.axis.variance_function(self._kernel(j), self._weight)
                values[j] = function(inputs[self.long])
            else:
                values[j] = self._explained(j, inputs[self.long])

        self._along(vary, _SMOOTHING)
        if same:
            return self._rotation.field(self._rotation.squares, values)
        out = self._rotation.field([cross**2 for cross in self._crosses(inputs)], values)
        prior = math.prod(kernel.std**2 for kernel in self.kernels)
        np.subtract(prior, out, out=out)  # less the variance that the data explain
        return np.maximum(out, 0.0, out=out)

    def _explained(self, j: int, inputs: Floats) -> Floats:
        """k_t (λ_j K_t + σ² I)⁻¹ k_tᵀ at new points of the long axis."""
        # The error is a rounding error divided by λ_j, and the squares that multiply it are at most
        # λ_j.
        variance = self.axis.variance_function(self._kernel(j), self._weight)(inputs)
        left = np.maximum(1.0 - variance / self._variances[j], 0.0)
        return left * (self.kernel.std**2 / self._rotation.scales[j])

    def _crosses(self, inputs: list[Floats]) -> list[Floats]:
        """Covariances of new points of each other axis with its eigenvectors, (H_d, G_d)."""
        return [
            self.kernels[d].covariance(inputs[d], self.axes[d].points) @ vectors
            for d, vectors in zip(self._others, self._rotation.vectors, strict=True)
        ]

    # ------------------------------------------------------------------ draws

    @_on_one_blas_thread
    def sample(
        self,
        y: Floats,
        n: int,
        rng: np.random.Generator,
        points: Sequence[ArrayLike] | None = None,
    ) -> Floats:
        """Draw the function from its joint posterior, on the grid or on another one.

        On another grid the prior is drawn at the points of both, axis by axis, which takes memory
        for a field of so many cells.

        Parameters
        ----------
        y : ndarray of shape (G_1, ..., G_D)
        n : int
            Number of draws.
        rng : numpy.random.Generator
        points : sequence of D arrays, of shapes (H_1,), ..., (H_D,), optional
            In any order. None: the grid itself.

        Returns
        -------
        ndarray of shape (n, H_1, ..., H_D)
        """
        if points is not None:
            return self._sample_at(self._inputs(points), y, n, rng)
        fibres = self._rotation.fibres(y)
        noise = math.sqrt(self.noise_variance)

        def simulate(j: int, randoms: list[np.random.Generator], out: Floats) -> None:
            # A draw of the prior, plus the posterior mean given the residuals less that draw and a
            # draw of the noise (Durbin and Koopman 2002).
            kernel = self._kernel(j)
            solver = self.axis.solver(kernel, self._weight)
            for k, random in enumerate(randoms):
                draw = self.axis.sample(kernel, random)
                surprise = fibres[j] - draw - noise * random.standard_normal(len(draw))
                out[k] = draw + solver.solve(self._weight * surprise)[0]

        return self._drawn(simulate, n, rng)

    @_on_one_blas_thread
    def sample_prior(
        self, n: int, rng: np.random.Generator, points: Sequence[ArrayLike] | None = None
    ) -> Floats:
        """Draw the function from its prior; parameters and result are those of ``sample``."""
        if points is not None:
            merged = [
                np.unique(axis_points, return_inverse=True) for axis_points in self._inputs(points)
            ]
            there = self._moved([axis_points for axis_points, _ in merged])
            return there._prior(n, rng)[np.ix_(np.arange(n), *(code for _, code in merged))]
        return self._prior(n, rng)

    def _prior(self, n: int, rng: np.random.Generator) -> Floats:
        def simulate(j: int, randoms: list[np.random.Generator], out: Floats) -> None:
            kernel = self._kernel(j)
            for k, random in enumerate(randoms):
                out[k] = self.axis.sample(kernel, random)

        return self._drawn(simulate, n, rng)

    def _drawn(
        self,
        simulate: Callable[[int, list[np.random.Generator], Floats], None],
        n: int,
        rng: np.random.Generator,
    ) -> Floats:
        """Fill n fields fibre by fibre, each with seeds of its own, whichever thread is first."""
        out = np.zeros((n, len(self._variances), len(self.axis)))
        seeds = rng.integers(2**63, size=(len(self._variances), n))

        def fill(j: int) -> None:
            if self._variances[j] >= _LEAST:
                simulate(j, [np.random.default_rng(seed) for seed in seeds[j]], out[:, j])

        self._along(fill, n * _DRAWING)
        for field in out:
            self._rotation.field(self._rotation.vectors, field, in_place=True)
        fields = out.reshape(n, *self._rotation.others, len(self.axis))
        return np.moveaxis(fields, -1, self.long + 1)

    def _sample_at(
        self, inputs: list[Floats], y: Floats, n: int, rng: np.random.Generator
    ) -> Floats:
        both = [np.union1d(axis.points, new) for axis, new in zip(self.axes, inputs, strict=True)]
        union = self._moved(both)
        here = _places(both, [axis.points for axis in self.axes])
        there = _places(both, inputs)
        noise = math.sqrt(self.noise_variance)
        out = np.empty((n, *(len(axis_points) for axis_points in inputs)))
        for k in range(n):
            draw = union._prior(1, rng)[0]
            surprise = y - draw[here] - noise * rng.standard_normal(self.shape)
            out[k] = draw[there] + self._mean_at(inputs, surprise)
        return out

    # ------------------------------------------------------------------ fibres

    def _kernel(self, j: int) -> Matern:
        return self.kernel.with_parameters(variance=self._variances[j])

    def _along(self, task: Callable[[int], Result], seconds: float) -> list[Result]:
        """Run a task for every fibre, on threads; ``seconds`` of work per cell."""
        n_fibres = len(self._variances)
        return run(
            [partial(task, j) for j in range(n_fibres)],
            seconds * n_fibres * len(self.axis),
            in_place=True,
        )

    def _duals(self, y: Floats) -> Floats:
        """Return (λ_j K_t + σ² I)⁻¹ times every rotated fibre."""
        fibres = self._rotation.fibres(y)

        def solve(j: int) -> None:
            fibres[j] /= self.noise_variance
            if not self._silent[j]:
                solver = self.axis.solver(self._kernel(j), self._weight)
                fibres[j] = solver.solve(fibres[j])[1]

        self._along(solve, _SOLVING)
        return fibres

    def _noise_alone(self, fibre: Floats) -> Evidence:
        """Evidence of a fibre in which the function does not show."""
        n = len(fibre)
        quadratic = float(fibre @ fibre) / self.noise_variance
        value = -0.5 * (quadratic + n * (LOG_2PI + math.log(self.noise_variance)))
        return Evidence(value, {"lengthscale": 0.0, "variance": 0.0}, 0.5 * (quadratic - n))

    def _moved(self, points: list[Floats]) -> FibreSystem:
        return FibreSystem(points, self.kernels, self.noise_variance, self.long)

    def _inputs(self, points: Sequence[ArrayLike]) -> list[Floats]:
        inputs = [np.asarray(axis_points, dtype=np.float64) for axis_points in points]
        if len(inputs) != len(self.axes) or any(axis_points.ndim != 1 for axis_points in inputs):
            raise DataError(
                f"points must be {len(self.axes)} arrays of one dimension, one per axis; got "
                f"arrays of shapes {[axis_points.shape for axis_points in inputs]}"
            )
        if not all(np.isfinite(axis_points).all() for axis_points in inputs):
            raise DataError("points must be finite")
        return inputs


def _places(axes: list[Floats], points: list[Floats]) -> tuple[NDArray[np.intp], ...]:
    """Index of a grid of points within the grid that has them all."""
    return np.ix_(
        *(np.searchsorted(a, axis_points) for a, axis_points in zip(axes, points, strict=True))
    )
