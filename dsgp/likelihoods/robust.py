"""Real targets with outliers: Student's t."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, ndtri

from dsgp.errors import ParameterError
from dsgp.likelihoods.base import broadcast, prepared
from dsgp.likelihoods.checks import check_level, check_positive
from dsgp.likelihoods.gaussian import RealLikelihood
from dsgp.likelihoods.intervals import ROWS, smallest_reaching
from dsgp.likelihoods.logconcave import DROP
from dsgp.likelihoods.quadrature import blocks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StudentT(RealLikelihood):
    r"""Real targets with outliers.

    .. math:: p(y \mid f) = \frac{\Gamma(\frac{\nu+1}{2})}{\Gamma(\frac{\nu}{2})\sqrt{\nu\pi}\,s}
              \Bigl(1 + \frac{(y - f)^2}{\nu s^2}\Bigr)^{-(\nu+1)/2}

    Its log is not concave in f, so the weight is the expected information
    (ν + 1)/((ν + 3) s²), the same for every row. Averages write it as a normal density whose
    precision u/s² has u ~ Gamma(ν/2, ν/2), and integrate over log u by the trapezoidal rule.

    Parameters
    ----------
    scale : float
        s, in the units of y; can be learned.
    dof : float
        Degrees of freedom ν, as given. The variance is infinite up to 2.

    Raises
    ------
    ParameterError
        If a hyperparameter is not a positive number, or `dof` is below 0.5.

    References
    ----------
    Vanhatalo, Jylänki and Vehtari (2009), *Gaussian process regression with Student-t likelihood*,
    NeurIPS 22.

    Examples
    --------
    >>> from dsgp.likelihoods import StudentT
    >>> lower, upper = StudentT(scale=1.0, dof=4.0).interval([0.0], [0.0], level=0.95)
    >>> upper.round(4)
    array([2.7764])
    """

    name: ClassVar[str] = "student_t"
    information: ClassVar[str] = "expected"

    dof: float = 4.0

    def __post_init__(self) -> None:
        check_positive(self, "scale", "dof")
        if self.dof < 0.5:
            raise ParameterError(f"StudentT: dof must be at least 0.5, got {self.dof!r}; take 4")

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        nu = self.dof
        score = (np.asarray(y, dtype=float) - np.asarray(f, dtype=float)) / self.scale
        constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * np.pi)
        return constant - np.log(self.scale) - 0.5 * (nu + 1) * np.log1p(score * score / nu)

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        nu, square = self.dof, self.scale**2
        difference = np.asarray(y, dtype=float) - np.asarray(f, dtype=float)
        gradient = (nu + 1) * difference / (nu * square + difference * difference)
        weight = np.full_like(gradient, (nu + 1) / ((nu + 3) * square))
        return gradient, weight, np.zeros_like(gradient)

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        gradient, weight, _slope = self.derivatives(y, f)
        difference = np.asarray(y, dtype=float) - np.asarray(f, dtype=float)
        return (gradient * difference - 1)[None], (-2 * weight)[None]

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        f = np.asarray(f, dtype=float)
        return f + self.scale * random.standard_t(self.dof, f.shape)

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        nu = self.dof
        noise = self.scale**2 * nu / (nu - 2) if nu > 2 else np.inf
        return self.mean_variance(mean, variance) + noise

    def _log_u_reach(self) -> tuple[float, float]:
        """Range of log u, outside which its density is negligible."""
        level = DROP / (0.5 * self.dof)
        left = 0.5 * (level + np.sqrt(level * level + 8 * level))
        right = np.sqrt(2 * level)
        return -left, float(min(right, np.log1p(2 * level)) if level > 1.3 else right)

    def _log_u_density(self, log_u: Array) -> Array:
        a = 0.5 * self.dof
        return a * np.log(a) - gammaln(a) + a * (log_u - np.exp(log_u))

    def log_predictive(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        square, v = ((y - mean) ** 2).ravel(), variance.ravel()
        left, right = self._log_u_reach()
        # A far target is explained by a small u: the range extends down to there.
        lower = left - np.log1p(square / (self.dof * self.scale**2))
        result = np.empty_like(square)
        for rows in blocks(square.size, ROWS):
            length = right - lower[rows]
            n = int(max(64, np.ceil(length.max() / 0.2)))
            log_u = lower[rows, None] + length[:, None] * (np.arange(n + 1) / n)
            total = v[rows, None] + self.scale**2 * np.exp(-log_u)
            terms = self._log_u_density(log_u) - 0.5 * (
                square[rows, None] / total + np.log(2 * np.pi * total)
            )
            peak = terms.max(axis=1)
            sums = np.exp(terms - peak[:, None]).sum(axis=1)
            result[rows] = peak + np.log(sums * length / n)
        return result.reshape(y.shape)

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        spread = np.sqrt(variance.ravel() + self.scale**2)
        cdf = self._scaled_cdf(variance.ravel(), spread)
        scores = (y - mean).ravel() / spread
        return cdf(scores, np.arange(scores.size)).reshape(y.shape)

    def _scaled_cdf(
        self, variance: Array, spread: Array
    ) -> Callable[[Array, NDArray[np.int64]], Array]:
        """P(Y ≤ mean + spread x) of rows, averaged over the latent: of (x, rows)."""
        log_u, step = np.linspace(*self._log_u_reach(), 129, retstep=True)
        weight = np.exp(self._log_u_density(log_u)) * step
        shares = variance / spread**2, self.scale**2 / spread**2

        def cdf(x: Array, rows: NDArray[np.int64]) -> Array:
            result = np.zeros_like(x)
            for w, t in zip(weight, log_u, strict=True):
                result += w * ndtr(x / np.sqrt(shares[0][rows] + shares[1][rows] * np.exp(-t)))
            return result

        return cdf

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        level = check_level(level)
        mean, variance = broadcast(mean, variance)
        spread = np.sqrt(variance.ravel() + self.scale**2)
        cdf = self._scaled_cdf(variance.ravel(), spread)
        probability = 0.5 * (1 + level)
        reach = spread * smallest_reaching(
            cdf,
            probability,
            np.full_like(spread, ndtri(probability)),
            np.full_like(spread, 0.5),
            -np.inf,
            np.full_like(spread, np.inf),
            whole=False,
        )
        reach = reach.reshape(mean.shape)
        return mean - reach, mean + reach

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        y = y - o
        order = np.argsort(y)
        cumulative = np.cumsum(w[order])
        constant = float(y[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])
        # Expectation–maximisation over u: the likelihood rises from that of the median.
        for _ in range(1000):
            trust = w / (self.dof * self.scale**2 + (y - constant) ** 2)
            following = float(np.sum(trust * y) / np.sum(trust))
            if abs(following - constant) < 1e-10 * self.scale:
                break
            constant = following
        return constant
