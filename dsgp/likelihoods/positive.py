"""Positive targets: the gamma distribution with the log link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammainc, gammaln, ndtri

from dsgp.likelihoods.base import Likelihood, broadcast, clipped_exp, prepared
from dsgp.likelihoods.checks import check_level, check_positive, refuse_rows
from dsgp.likelihoods.intervals import ROWS, averaged_cdf, gamma_reach, smallest_reaching
from dsgp.likelihoods.lognormal import log_normal_mean, log_normal_variance
from dsgp.likelihoods.quadrature import blocks

Array = NDArray[np.float64]
# Largest learned shape: a relative scatter of 10⁻³.
LARGEST_SHAPE = 1e6
# Largest target, and the inverse of the smallest: log f is that of a number of float64.
_LARGEST = 1e150


@dataclass(frozen=True)
class Gamma(Likelihood):
    r"""Positive targets with a constant coefficient of variation.

    .. math:: p(y \mid f) = \frac{(k/\mu)^k}{\Gamma(k)} y^{k-1} e^{-k y/\mu}, \quad
              \mu = e^f, \quad \mathrm{Var}[y] = \mu^2 / k

    Parameters
    ----------
    shape : float
        k; 1 is the exponential distribution, and 1/√k the coefficient of variation.
    fixed_shape : bool
        Keep the shape as given instead of learning it. With a shape of 1/2, ``y`` is the square of
        a normal variable of mean 0 and variance μ.

    Raises
    ------
    ParameterError
        If `shape` is not a positive number.

    Examples
    --------
    >>> from dsgp.likelihoods import Gamma
    >>> Gamma(shape=4.0).response_variance([0.0], [0.0])
    array([0.25])
    >>> lower, upper = Gamma(shape=4.0).interval([0.0], [0.0], level=0.9)
    >>> lower.round(4), upper.round(4)
    (array([0.3416]), array([1.9384]))
    """

    name: ClassVar[str] = "gamma"
    _positive: ClassVar[tuple[str, ...]] = ("shape",)

    shape: float = 1.0
    fixed_shape: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "shape")

    @property
    def free(self) -> tuple[str, ...]:
        """The shape, unless it is fixed."""
        return () if self.fixed_shape else self._positive

    def unconstrained(self) -> Array:
        """Logarithm of the shape, if it is free."""
        return np.empty(0) if self.fixed_shape else super().unconstrained()

    def from_unconstrained(self, values: ArrayLike) -> Self:
        """Return a copy with another shape, if it is free."""
        return self if self.fixed_shape else super().from_unconstrained(values)

    def limits(self, unit: float) -> tuple[Array, Array]:
        """Keep the shape below that of targets without any scatter."""
        n_free = len(self.free)
        return np.full(n_free, -np.inf), np.full(n_free, np.log(LARGEST_SHAPE))

    @property
    def link_name(self) -> str:
        """Always ``"log"``."""
        return "log"

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        refuse_rows(
            ~((y >= 1 / _LARGEST) & (y <= _LARGEST)),
            y,
            name,
            first_row,
            f"positive numbers from {1 / _LARGEST:.0e} to {_LARGEST:.0e}",
            "leave out zeros or model them apart, or take the negative binomial for counts",
        )

    def _ratio(self, y: ArrayLike, f: ArrayLike) -> tuple[Array, Array]:
        """Logarithm of y/μ and k y/μ, the latter without overflow."""
        log_ratio = np.log(np.asarray(y, dtype=float)) - np.asarray(f, dtype=float)
        return log_ratio, clipped_exp(log_ratio + np.log(self.shape))

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        k = self.shape
        log_ratio, ratio = self._ratio(y, f)
        constant = k * np.log(k) - gammaln(k)
        return constant + k * log_ratio - ratio - np.log(np.asarray(y, dtype=float))

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        _log_ratio, ratio = self._ratio(y, f)
        return ratio - self.shape, ratio, -ratio

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        if self.fixed_shape:
            return super().by_parameters(y, f, trials)
        k = self.shape
        log_ratio, ratio = self._ratio(y, f)
        density = k * (np.log(k) + 1 - digamma(k) + log_ratio) - ratio
        return density[None], ratio[None]

    def inverse_link(self, f: ArrayLike) -> Array:
        return clipped_exp(np.asarray(f, dtype=float))

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        return random.gamma(self.shape, 1 / self.shape, np.shape(f)) * self.inverse_link(f)

    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return log_normal_mean(mean, variance)

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        within = log_normal_mean(mean, variance, power=2.0) / self.shape
        return within + log_normal_variance(mean, variance)

    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return log_normal_variance(mean, variance)

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        level = check_level(level)
        mean, variance = broadcast(mean, variance)
        m, std = np.zeros(mean.size), np.sqrt(variance).ravel()
        spread = np.sqrt(std**2 + 1 / self.shape)

        def cdf(x: Array, rows: NDArray[np.int64]) -> Array:
            result = np.empty_like(x)
            for part in blocks(x.size, ROWS):
                result[part] = self._averaged_cdf(x[part], m[rows[part]], std[rows[part]])
            return result

        # In log y, about the latent's mean, which only shifts the quantiles.
        ends = []
        for tail in (0.5 * (1 - level), 0.5 * (1 + level)):
            infinite = np.full_like(m, np.inf)
            x = smallest_reaching(
                cdf, tail, ndtri(tail) * spread, 0.2 * spread, -np.inf, infinite, whole=False
            )
            ends.append(clipped_exp(x.reshape(mean.shape) + mean))
        return ends[0], ends[1]

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        flat, m, std = y.ravel(), mean.ravel(), np.sqrt(variance).ravel()
        result = np.zeros_like(flat)
        known = np.flatnonzero(flat > 0)
        for part in blocks(known.size, ROWS):
            rows = known[part]
            result[rows] = self._averaged_cdf(np.log(flat[rows]), m[rows], std[rows])
        return result.reshape(y.shape)

    def _averaged_cdf(self, x: Array, mean: Array, std: Array) -> Array:
        # log Y ≤ x exactly if the latent lies below x − log(G/k), G a Gamma(k) variable.
        k = self.shape
        left, right = gamma_reach(np.full_like(x, k))
        constant = k * np.log(k) - gammaln(k)

        def log_threshold(f: Array) -> Array:
            difference = x[:, None] - f
            return constant + k * difference - clipped_exp(np.log(k) + difference)

        return averaged_cdf(
            mean,
            std,
            x - right,
            x + left,
            log_threshold,
            lambda f: gammainc(k, clipped_exp(np.log(k) + x - f)),
        )

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        # The gamma's likelihood equation is Σ w (y e^{-c - offset} − 1) = 0.
        log_ratio = np.log(y) - o
        top = float(log_ratio.max())
        return top + float(np.log(np.sum(w * np.exp(log_ratio - top)) / np.sum(w)))

    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        return np.log(np.asarray(y, dtype=float))
