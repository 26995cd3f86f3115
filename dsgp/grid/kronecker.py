"""Exact Gaussian processes on complete grids whose axes are short enough to decompose.

The covariance is a Kronecker product of one dense matrix an axis (Section ``sec:kron``). Gaps,
long axes and grids larger than memory are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.grid.eigen import AxisCovariance, Eigenbasis
from dsgp.grid.points import amplitude, ascending, points_of
from dsgp.grid.products import Array, Workspace, grams, kron_mvprod, multiply
from dsgp.grid.scattered import squared, sums_at
from dsgp.grid.spectrum import Spectrum
from dsgp.kernels import Stationary
from dsgp.kernels.base import LARGEST, SMALLEST
from dsgp.memory import require

__all__ = ["Eigenbasis", "GridEvidence", "KroneckerSystem", "kron_mvprod"]

Floats = NDArray[np.float64]

_LOG_2PI = math.log(2.0 * math.pi)
# Ratio of signal to noise beyond which products with it leave the range of float64.
_LARGEST_RATIO = 1e200
# Points of an axis from which its matrices are checked against the available memory.
_LONG = 1024


@dataclass(frozen=True, eq=False)
class GridEvidence:
    """Log marginal likelihood of a grid and its derivatives by the logs of the hyperparameters.

    Attributes
    ----------
    value : float
    by_log_lengthscale : ndarray of shape (D,)
        One per axis, in order.
    by_log_variance : float
        By the log of the amplitude, the product of all kernels' variances.
    by_log_noise : float
        By the log of the noise variance.
    """

    value: float
    by_log_lengthscale: Floats
    by_log_variance: float
    by_log_noise: float


class KroneckerSystem:
    r"""A Gaussian process on a complete grid, by the eigenbases of its axes.

    .. math:: y \sim N(0, K_1 \otimes \dots \otimes K_D + \sigma^2 I), \qquad
              K_d = Q_d \Lambda_d Q_d^\top

    (``eq:kroneig``). Everything is exact: the posterior variance at all cells is itself a
    Kronecker product, with the squares of the entries of :math:`Q_d`.

    *Cost.* :math:`O(N \sum_d G_d)` for N cells, and :math:`O(\sum_d G_d^3)` to begin with. The
    gradient costs about as much as one more product, for all axes together.

    *Memory*, in arrays of N cells beside the residuals, results included: ``solve``,
    ``log_marginal_likelihood`` and ``evidence`` two; ``posterior`` three; ``sample`` three beside
    its draws. ``predict`` takes three arrays of up to Π max(G_d, H_d) cells; ``sample`` with
    ``points`` four beside its draws, of the grid that has the old and the new points. Residuals
    of another dtype are copied. Besides, some three matrices (G_d, G_d) per axis.

    Parameters
    ----------
    points : sequence of D arrays, of shapes (G_1,), ..., (G_D,)
        Strictly ascending, each in the units of its axis.
    kernels : sequence of D kernels
        One per axis; their variances multiply.
    noise_variance : float
        σ², in squared units of the target.
    dtype : {"float64", "float32"}
        Type of grids and of the products with them. Eigenbases and sums over the grid are float64
        in either case. With float32, results have some six digits relative to the largest value,
        and the gradient by lengthscales no more.

    Raises
    ------
    ParameterError
        If a kernel lacks a parameter, the noise is not positive, the numbers of axes differ, the
        product of the variances is out of range, or dtype is another one.
    DataError
        If points are not finite and strictly ascending.
    MemoryLimitError
        If the matrices of the axes do not fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.kronecker import KroneckerSystem
    >>> from dsgp.kernels import Matern52, SquaredExponential
    >>> lat, lon = np.linspace(-1, 1, 20), np.linspace(0, 3, 30)
    >>> y = np.sin(lat)[:, None] * np.cos(lon)
    >>> kernels = [Matern52(1.0, 1.0), SquaredExponential(1.0, 1.0)]
    >>> system = KroneckerSystem([lat, lon], kernels, noise_variance=0.01)
    >>> mean, variance = system.posterior(y)
    >>> float(abs(mean - y).max()) < 0.05
    True
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        kernels: Sequence[Stationary],
        noise_variance: float,
        dtype: DTypeLike = np.float64,
    ) -> None:
        if not 0 < len(points) == len(kernels):
            raise ParameterError(
                f"a grid needs one kernel per axis, got {len(points)} axes and "
                f"{len(kernels)} kernels"
            )
        if not SMALLEST <= noise_variance <= LARGEST:
            raise ParameterError(
                f"noise_variance must be a number from {SMALLEST:g} to {LARGEST:g}, got "
                f"{noise_variance!r}"
            )
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise ParameterError(f"dtype must be float64 or float32, got {self.dtype}")
        self.points = [ascending(axis_points, d) for d, axis_points in enumerate(points)]
        self.kernels = list(kernels)
        self.noise_variance = float(noise_variance)
        self.variance = amplitude(self.kernels)
        self.shape = tuple(len(axis_points) for axis_points in self.points)
        ratio = self.variance / self.noise_variance
        if not ratio <= _LARGEST_RATIO:
            raise ParameterError(
                f"the product of the kernels' variances, {self.variance:g}, must be at most "
                f"{_LARGEST_RATIO:g} times the noise variance, {noise_variance:g}; give more noise"
            )
        if max(self.shape) >= _LONG:
            require(
                f"a grid of axes of {self.shape} points, with dense matrices of every axis,",
                24.0 * sum(size**2 for size in self.shape),
                "use the state-space engine for its longest axis, or a coarser grid",
            )
        # Equal axes are decomposed once.
        known: dict[tuple[bytes, Stationary], AxisCovariance] = {}
        self._axes = []
        for axis_points, kernel in zip(self.points, self.kernels, strict=True):
            key = axis_points.tobytes(), kernel.with_parameters(variance=1.0)
            if key not in known:
                known[key] = AxisCovariance(axis_points, kernel)
            self._axes.append(known[key])
        self._spectrum = Spectrum([axis.basis.values for axis in self._axes], ratio)

    @property
    def bases(self) -> list[Eigenbasis]:
        """Eigenbasis of the correlations of every axis, variances left out."""
        return [axis.basis for axis in self._axes]

    # ------------------------------------------------------------------ likelihood

    def log_marginal_likelihood(self, y: ArrayLike) -> float:
        """Log density of the residuals, the function integrated out.

        Parameters
        ----------
        y : array_like of shape (G_1, ..., G_D)
            Residuals without gaps, in units of the target.

        Raises
        ------
        DataError
            If they are of another shape or not finite; so for all methods that take residuals.
        """
        z = self._rotated(y, Workspace())
        quadratic, log_det = self._spectrum.log_likelihood_sums(z, self._precision_root)
        return self._log_density(quadratic, log_det)

    def evidence(self, y: ArrayLike) -> GridEvidence:
        """Log marginal likelihood and its derivatives by the logs of all hyperparameters."""
        z = self._rotated(y, Workspace())
        sums = self._spectrum.sums(z, self._precision_root)
        by_log_lengthscale = np.empty(len(self.shape))
        # With a = (Λ + σ²)⁻¹ Qᵀ y and B = Qᵀ ∂K Q of one axis, the derivative is
        # ½ Σ_ij B_ij (Σ λ_rest a_i a_j − [i = j] Σ λ_rest / (λ + σ²)), both sums over the others.
        # The sums below hold √(λ_i λ_j) or λ_i of the axis itself as well, a factor of every term,
        # so that it divides out without loss even where λ_i is nothing but rounding.
        for d, gram in enumerate(grams(z)):
            root = 1.0 / np.sqrt(self._spectrum.values[d])
            weights = gram * root * root[:, None]
            np.fill_diagonal(weights, np.diag(weights) - sums.traces[d] * root**2)
            axis = self._axes[d]
            by_log_lengthscale[d] = 0.5 * axis.basis.contract(axis.slope, weights)
        return GridEvidence(
            value=self._log_density(sums.quadratic, sums.log_det),
            by_log_lengthscale=by_log_lengthscale,
            by_log_variance=0.5 * (sums.quadratic_by_variance - sums.trace_by_variance),
            by_log_noise=0.5 * (sums.quadratic_by_noise - sums.trace_by_noise),
        )

    # ------------------------------------------------------------------ on the grid

    def solve(self, y: ArrayLike) -> Array:
        """Return (K + σ² I)⁻¹ y, (G_1, ..., G_D)."""
        workspace = Workspace()
        z = self._rotated(y, workspace)
        self._spectrum.scale(lambda v: 1.0 / (self.noise_variance * (1.0 + v)), z)
        return multiply(self._vectors, z, workspace)

    def posterior(self, y: ArrayLike) -> tuple[Array, Array]:
        """Posterior mean and variance of the function at all cells, each (G_1, ..., G_D)."""
        return self._mean(y, Workspace()), self._variance(Workspace())

    def sample(
        self,
        y: ArrayLike,
        n: int,
        rng: np.random.Generator,
        points: Sequence[ArrayLike] | None = None,
    ) -> Array:
        """Draw the function from its joint posterior.

        Parameters
        ----------
        y : array_like of shape (G_1, ..., G_D)
            Residuals without gaps.
        n : int
            Number of draws.
        rng : numpy.random.Generator
        points : sequence of D arrays of shapes (H_1,), ..., (H_D,), optional
            Points of another grid, in any order; by default those of the data.

        Returns
        -------
        ndarray of shape (n, H_1, ..., H_D)
        """
        if points is not None:
            return self._sample_at(points_of(points, len(self.shape)), y, n, rng)
        draws = self._drawn(n, rng, lambda v: np.sqrt(self.noise_variance * (v / (1.0 + v))))
        draws += self._mean(y, Workspace())
        return draws

    def sample_prior(
        self, n: int, rng: np.random.Generator, points: Sequence[ArrayLike] | None = None
    ) -> Array:
        """Draw the function from its prior; parameters and result are those of ``sample``."""
        if points is None:
            return self._drawn(n, rng, lambda v: np.sqrt(self.noise_variance * v))
        inputs = points_of(points, len(self.shape))
        merged = [np.unique(axis_points, return_inverse=True) for axis_points in inputs]
        there = self._moved([axis_points for axis_points, _ in merged])
        return there.sample_prior(n, rng)[np.ix_(np.arange(n), *(code for _, code in merged))]

    # ------------------------------------------------------------------ at another grid

    def predict(self, points: Sequence[ArrayLike], y: ArrayLike) -> tuple[Array, Array]:
        """Posterior mean and variance of the function on another grid.

        Parameters
        ----------
        points : sequence of D arrays of shapes (H_1,), ..., (H_D,)
            In the units of the axes, in any order.
        y : array_like of shape (G_1, ..., G_D)
            Residuals without gaps.

        Returns
        -------
        mean, variance : ndarrays of shape (H_1, ..., H_D)
        """
        cross = self._cross(points_of(points, len(self.shape)))
        mean = self._mean_at(cross, y, Workspace())
        workspace = Workspace()
        ratio = self.variance / self.noise_variance
        weights = workspace.grid(self.shape, self.dtype)
        self._spectrum.fill(lambda v: ratio / (1.0 + v), weights)
        variance = multiply([matrix**2 for matrix in cross], weights, workspace)
        # Share of the prior variance that the data explain: rounding may take it out of [0, 1].
        np.subtract(1.0, variance, out=variance)
        np.clip(variance, 0.0, 1.0, out=variance)
        variance *= self.variance
        return mean, variance

    def predict_at(
        self, points: Sequence[Floats], together: Sequence[int], y: ArrayLike
    ) -> tuple[Array, Array]:
        """Posterior mean and variance at points, block by block.

        Parameters
        ----------
        points : sequence of D arrays
            (n,) along the axes that go together, (H_d,) along the others.
        together : sequence of int
            Axes that go together, point by point.
        y : array_like of shape (G_1, ..., G_D)
            Residuals without gaps.

        Returns
        -------
        mean, variance : ndarrays of shape (n, H_d, ...)
        """
        ratio = self.variance / self.noise_variance
        z = self._spectrum.scale(lambda v: ratio / (1.0 + v), self._rotated(y, Workspace()))
        crosses = [axis.cross for axis in self._axes]
        mean = sums_at(crosses, points, together, z)
        weights = Workspace().grid(self.shape, self.dtype)
        self._spectrum.fill(lambda v: ratio / (1.0 + v), weights)
        explained = sums_at([squared(cross) for cross in crosses], points, together, weights)
        return mean, self.variance * np.clip(1.0 - explained, 0.0, 1.0)

    def _sample_at(
        self, points: list[Floats], y: ArrayLike, n: int, rng: np.random.Generator
    ) -> Array:
        """Matheron's rule: a draw of the prior, plus the prediction from the residuals less it."""
        y = self._residuals(y)
        cross = self._cross(points)
        union = [np.union1d(old, new) for old, new in zip(self.points, points, strict=True)]
        there = self._moved(union)
        roots = [
            axis.basis.vectors * np.sqrt(values)
            for axis, values in zip(there._axes, there._spectrum.values, strict=True)
        ]
        old, new = (
            [
                root[np.searchsorted(both, axis_points)]
                for root, both, axis_points in zip(roots, union, wanted, strict=True)
            ]
            for wanted in (self.points, points)
        )
        old[0], new[0] = (root * math.sqrt(self.variance) for root in (old[0], new[0]))
        noise = math.sqrt(self.noise_variance)
        out = np.empty((n, *(len(axis_points) for axis_points in points)), self.dtype)
        for draw in out:
            z = self._normal(rng, there.shape)
            draw[:] = kron_mvprod(new, z)
            lack = kron_mvprod(old, z)
            del z  # released before more is allocated
            np.subtract(y, lack, out=lack)
            lack -= noise * self._normal(rng, self.shape)
            draw += self._mean_at(cross, lack, Workspace())
            del lack
        return out

    def _cross(self, points: list[Floats]) -> list[Floats]:
        return [
            axis.cross(axis_points) for axis, axis_points in zip(self._axes, points, strict=True)
        ]

    def _mean_at(self, cross: list[Floats], y: ArrayLike, workspace: Workspace) -> Array:
        z = self._rotated(y, workspace)
        ratio = self.variance / self.noise_variance
        self._spectrum.scale(lambda v: ratio / (1.0 + v), z)
        return multiply(cross, z, workspace)

    def _moved(self, points: list[Floats]) -> KroneckerSystem:
        return KroneckerSystem(points, self.kernels, self.noise_variance, self.dtype)

    # ------------------------------------------------------------------ parts

    @property
    def _vectors(self) -> list[Floats]:
        return [axis.basis.vectors for axis in self._axes]

    @property
    def _precision_root(self) -> float:
        return 1.0 / math.sqrt(self.noise_variance)

    def _log_density(self, quadratic: float, log_det: float) -> float:
        n = math.prod(self.shape)
        return -0.5 * (quadratic + log_det + n * (_LOG_2PI + math.log(self.noise_variance)))

    def _residuals(self, y: ArrayLike) -> Array:
        y = np.asarray(y)
        if y.shape != self.shape:
            raise DataError(f"y must have the shape of the grid, {self.shape}; got {y.shape}")
        if not np.isfinite(y).all():
            raise DataError(
                "y must be finite at every cell; fill its gaps, or use the solver of observed cells"
            )
        return y.astype(self.dtype, copy=False)

    def _rotated(self, y: ArrayLike, workspace: Workspace) -> Array:
        """Qᵀ y, in the workspace."""
        return multiply([vectors.T for vectors in self._vectors], self._residuals(y), workspace)

    def _mean(self, y: ArrayLike, workspace: Workspace) -> Array:
        z = self._spectrum.scale(lambda v: v / (1.0 + v), self._rotated(y, workspace))
        return multiply(self._vectors, z, workspace)

    def _variance(self, workspace: Workspace) -> Array:
        weights = workspace.grid(self.shape, self.dtype)
        self._spectrum.fill(lambda v: self.noise_variance * (v / (1.0 + v)), weights)
        return multiply([vectors**2 for vectors in self._vectors], weights, workspace)

    def _drawn(self, n: int, rng: np.random.Generator, deviation: Any) -> Array:
        """Draws with independent coefficients of the eigenvectors; the first come first."""
        out = np.empty((n, *self.shape), self.dtype)
        workspace = Workspace()
        for draw in out:
            z = self._spectrum.scale(deviation, self._normal(rng, self.shape))
            draw[:] = multiply(self._vectors, z, workspace)
            del z  # released before the next is allocated
        return out

    def _normal(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        # Drawn in float64, so that both dtypes use the same numbers.
        return rng.standard_normal(shape).astype(self.dtype, copy=False)
