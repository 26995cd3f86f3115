"""Counts with the log link: Poisson, and negative binomial for counts that vary more."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import (
    betainc,
    betaln,
    digamma,
    expit,
    gammaincc,
    gammaln,
    ndtri,
)

from dsgp.likelihoods.base import Likelihood, broadcast, clipped_exp, prepared
from dsgp.likelihoods.checks import LARGEST_COUNT, check_level, check_positive, refuse_rows
from dsgp.likelihoods.intervals import ROWS, averaged_cdf, gamma_reach, smallest_reaching
from dsgp.likelihoods.logistic import log_logistic, logistic_pair
from dsgp.likelihoods.lognormal import log_normal_mean, log_normal_variance
from dsgp.likelihoods.quadrature import blocks

Array = NDArray[np.float64]
# Smallest learned dispersion.
SMALLEST_DISPERSION = 1e-6
# The samplers of numpy return 64-bit integers.
LARGEST_RATE = 9e18


@dataclass(frozen=True)
class CountLikelihood(Likelihood):
    """What Poisson and negative binomial share: support, link, start and intervals."""

    @property
    def link_name(self) -> str:
        """Always ``"log"``."""
        return "log"

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        refuse_rows(
            ~((y >= 0) & (y <= LARGEST_COUNT) & (y == np.floor(y))),
            y,
            name,
            first_row,
            f"counts (whole numbers of at least 0 and at most {LARGEST_COUNT:.0e})",
            "give counts, with rates' denominators as exposure, or take the gamma for positive "
            "numbers",
        )

    def inverse_link(self, f: ArrayLike) -> Array:
        return clipped_exp(np.asarray(f, dtype=float))

    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return log_normal_mean(mean, variance)

    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return log_normal_variance(mean, variance)

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        total, top = float(np.sum(w * y)), float(o.max()) if o.size else 0.0
        exposure = float(np.sum(w * np.exp(o - top)))
        constant = float(np.log((total if total > 0 else 0.5) / exposure)) - top
        if offset is None or total <= 0:
            return constant
        return self._newton_start(constant, y, w, o)

    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        return np.log(np.asarray(y, dtype=float) + 0.1)

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        level = check_level(level)
        mean, variance = broadcast(mean, variance)
        shape, m, std = mean.shape, mean.ravel(), np.sqrt(variance).ravel()
        top = np.log(LARGEST_COUNT)
        rate = np.exp(np.clip(m, 0.0, top))
        relative = np.sqrt(std**2 + self._relative_variance(rate))

        def cdf(k: Array, rows: NDArray[np.int64]) -> Array:
            result = np.empty_like(k)
            for part in blocks(k.size, ROWS):
                result[part] = self._averaged_cdf(k[part], m[rows[part]], std[rows[part]])
            return result

        def quantile(probability: float) -> Array:
            log_guess = np.clip(m + ndtri(probability) * relative, -1.0, top)
            guess = np.exp(log_guess)
            spread = 0.1 * guess * np.minimum(relative, 1.0)
            return smallest_reaching(
                cdf, probability, guess, spread, 0.0, np.full_like(m, LARGEST_COUNT), whole=True
            )

        lower, upper = (quantile(0.5 * (1 + side * level)) for side in (-1, 1))
        return lower.reshape(shape), upper.reshape(shape)

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        k, m, std = np.floor(y).ravel(), mean.ravel(), np.sqrt(variance).ravel()
        result = np.zeros_like(k)
        known = np.flatnonzero(k >= 0)
        for part in blocks(known.size, ROWS):
            rows = known[part]
            result[rows] = self._averaged_cdf(k[rows], m[rows], std[rows])
        return result.reshape(y.shape)

    @abstractmethod
    def _relative_variance(self, rate: Array) -> Array:
        """Var[y] / E[y]² given the rate."""

    @abstractmethod
    def _averaged_cdf(self, k: Array, mean: Array, std: Array) -> Array:
        """P(Y ≤ k) averaged over the latent."""


@dataclass(frozen=True)
class Poisson(CountLikelihood):
    r"""Counts whose variance equals their mean.

    .. math:: p(y \mid f) = \mu^y e^{-\mu} / y!, \quad \mu = e^f

    Examples
    --------
    >>> from dsgp.likelihoods import Poisson
    >>> Poisson().log_density([0.0, 2.0], [0.0, 0.0]).round(4)
    array([-1.    , -1.6931])
    >>> Poisson().interval([1.0], [0.25], level=0.95)
    (array([0.]), array([9.]))
    """

    name: ClassVar[str] = "poisson"

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        y, f = np.asarray(y, dtype=float), np.asarray(f, dtype=float)
        # Relative to the saturated density, so that counts of 1e9 keep their digits.
        log_y = np.log(np.maximum(y, 1.0))
        difference = np.minimum(f, 680.0) - log_y
        return np.where(
            y > 0,
            _log_saturated(y, log_y) + y * (difference - np.expm1(difference)),
            -clipped_exp(f),
        )

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        y, f = broadcast(y, f)
        rate = clipped_exp(f)
        return y - rate, rate, rate.copy()

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        return log_normal_mean(mean, variance) + log_normal_variance(mean, variance)

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        rate = np.minimum(self.inverse_link(f), LARGEST_RATE)
        return np.asarray(random.poisson(rate), dtype=float)

    def _relative_variance(self, rate: Array) -> Array:
        return 1 / rate

    def _averaged_cdf(self, k: Array, mean: Array, std: Array) -> Array:
        # Y ≤ k exactly if the (k + 1)st arrival, a Gamma(k + 1) time, is later than the rate.
        left, right = gamma_reach(k + 1)
        centre, following = np.log(k + 1), (k + 1)[:, None]
        return averaged_cdf(
            mean,
            std,
            centre - left,
            centre + right,
            lambda x: self.log_density(following, x) + centre[:, None],
            lambda f: gammaincc(k + 1, clipped_exp(f)),
        )


def _log_saturated(y: Array, log_y: Array) -> Array:
    """Log Poisson probability of y > 0 at the rate y; Stirling's series for large y."""
    large = np.maximum(y, 16.0)
    inverse = 1 / large
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    stirling = -0.5 * np.log(2 * np.pi * large) - series
    if np.all(y >= 16):
        return stirling
    return np.where(y >= 16, stirling, y * log_y - y - gammaln(y + 1))


@dataclass(frozen=True)
class NegativeBinomial(CountLikelihood):
    r"""Overdispersed counts: the negative binomial distribution "NB2".

    .. math:: p(y \mid f) = \frac{\Gamma(y + r)}{\Gamma(r)\, y!}
              \Bigl(\frac{r}{r + \mu}\Bigr)^r \Bigl(\frac{\mu}{r + \mu}\Bigr)^y, \quad
              \mu = e^f, \quad r = 1/\alpha, \quad \mathrm{Var}[y] = \mu + \alpha \mu^2

    Parameters
    ----------
    dispersion : float
        α; towards 0 the distribution becomes Poisson's.

    Raises
    ------
    ParameterError
        If `dispersion` is not a positive number.

    Examples
    --------
    >>> from dsgp.likelihoods import NegativeBinomial
    >>> likelihood = NegativeBinomial(dispersion=0.5)
    >>> likelihood.response_variance([0.0], [0.0])
    array([1.5])
    >>> likelihood.from_unconstrained([0.0])
    NegativeBinomial(dispersion=1.0)
    """

    name: ClassVar[str] = "negative_binomial"
    _positive: ClassVar[tuple[str, ...]] = ("dispersion",)

    dispersion: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "dispersion")

    def limits(self, unit: float) -> tuple[Array, Array]:
        """Keep the dispersion where it differs from that of a Poisson target."""
        return np.array([np.log(SMALLEST_DISPERSION)]), np.array([np.inf])

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        y, r = np.asarray(y, dtype=float), 1 / self.dispersion
        x = np.asarray(f, dtype=float) + np.log(self.dispersion)
        return -np.log(y + r) - betaln(r, y + 1) + y * log_logistic(x) + r * log_logistic(-x)

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        y, r = np.asarray(y, dtype=float), 1 / self.dispersion
        x = np.asarray(f, dtype=float) + np.log(self.dispersion)
        p, q = logistic_pair(x)
        weight = (y + r) * p * q
        return y * q - r * p, weight, weight * (q - p)

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        y, r = np.asarray(y, dtype=float), 1 / self.dispersion
        x = np.asarray(f, dtype=float) + np.log(self.dispersion)
        p, q = logistic_pair(x)
        density = y * q - r * p - r * (digamma(y + r) - digamma(r) + log_logistic(-x))
        weight = p * q * ((y + r) * (q - p) - r)
        return density[None], weight[None]

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        poisson = log_normal_mean(mean, variance) + log_normal_variance(mean, variance)
        return poisson + self.dispersion * log_normal_mean(mean, variance, power=2.0)

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        rate = random.gamma(1 / self.dispersion, self.dispersion, np.shape(f)) * self.inverse_link(
            f
        )
        return np.asarray(random.poisson(np.minimum(rate, LARGEST_RATE)), dtype=float)

    def _relative_variance(self, rate: Array) -> Array:
        return 1 / rate + self.dispersion

    def _averaged_cdf(self, k: Array, mean: Array, std: Array) -> Array:
        # Y ≤ k exactly if μ/(r + μ) lies below a Beta(k + 1, r) variable.
        r, shift = 1 / self.dispersion, np.log(self.dispersion)
        (left, right), (left_r, right_r) = gamma_reach(k + 1), gamma_reach(np.full_like(k, r))
        centre, following = np.log(k + 1), (k + 1)[:, None]
        return averaged_cdf(
            mean,
            std,
            centre - left - right_r,
            centre + right + left_r,
            lambda x: self.log_density(following, x) + centre[:, None],
            lambda f: betainc(r, k + 1, expit(-f - shift)),
        )
