"""Counts of successes in known numbers of trials, with the logit or the probit link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import (
    betainc,
    betaln,
    expit,
    log_expit,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    ndtri_exp,
    owens_t,
)

from dsgp.likelihoods.base import Likelihood, broadcast, prepared
from dsgp.likelihoods.checks import LARGEST_COUNT, check_choice, check_level, refuse_rows
from dsgp.likelihoods.intervals import ROWS, averaged_cdf, gamma_reach, smallest_reaching
from dsgp.likelihoods.logistic import log_logistic, logistic_pair
from dsgp.likelihoods.probit import log_normal_derivatives
from dsgp.likelihoods.quadrature import (
    blocks,
    centred_variance,
    expected_logistic,
    expected_logistic_slope,
    log_expected_logistic,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Binomial(Likelihood):
    r"""Number of successes in a known number of trials.

    .. math:: p(y \mid f) = \binom{n}{y} p^y (1 - p)^{n - y}, \quad
              p = \sigma(f) \text{ or } \Phi(f)

    ``inverse_link``, ``response_mean`` and ``mean_variance`` are per trial; samples, intervals,
    ``response_variance`` and densities are of the count y. Where `trials` is None every row has
    one trial.

    Parameters
    ----------
    link : {"logit", "probit"}

    Raises
    ------
    ParameterError
        If the link is another.

    Examples
    --------
    >>> from dsgp.likelihoods import Binomial
    >>> gradient, weight, slope = Binomial().derivatives([3.0], [0.0], trials=[10.0])
    >>> gradient, weight
    (array([-2.]), array([2.5]))
    >>> Binomial().interval([0.0], [0.1], level=0.9, trials=[20.0])
    (array([6.]), array([14.]))
    """

    name: ClassVar[str] = "binomial"

    link: str = "logit"

    def __post_init__(self) -> None:
        check_choice(self, "link", ("logit", "probit"))

    @property
    def link_name(self) -> str:
        """The link as given."""
        return self.link

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        size = np.ones_like(y) if trials is None else np.asarray(trials, dtype=float)
        size = np.broadcast_to(size, y.shape)
        refuse_rows(
            ~((size >= 1) & (size <= LARGEST_COUNT) & (size == np.floor(size))),
            size,
            f"trials of {name}",
            first_row,
            f"whole numbers of at least 1 and at most {LARGEST_COUNT:.0e}",
            "leave out rows without trials",
        )
        bad = ~((y >= 0) & (y <= size) & (y == np.floor(y)))
        where = f" ({size[np.argmax(bad)]:g} here)" if bad.any() else ""
        refuse_rows(
            bad,
            y,
            name,
            first_row,
            f"whole numbers from 0 to the row's trials{where}",
            "give counts of successes, and their trials",
        )

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        y, f = np.asarray(y, dtype=float), np.asarray(f, dtype=float)
        logarithm = log_logistic if self.link == "logit" else log_ndtr
        if trials is None:
            return logarithm((2 * y - 1) * f)
        n = np.asarray(trials, dtype=float)
        ways = -np.log1p(n) - betaln(n - y + 1, y + 1)
        return ways + y * logarithm(f) + (n - y) * logarithm(-f)

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        y, f = broadcast(y, f)
        if self.link == "logit":
            p, q = logistic_pair(f)
            weight = p * q
            if trials is None:
                return y - p, weight, weight * (q - p)
            n = np.asarray(trials, dtype=float)
            weight = n * weight
            # The sum over successes and failures, so that y = n at a large f leaves n q and not 0.
            return y * q - (n - y) * p, weight, weight * (q - p)
        if trials is None:
            sign = 2 * y - 1
            first, second, third = log_normal_derivatives(sign * f)
            return sign * first, second, sign * third
        failures = np.asarray(trials, dtype=float) - y
        first, second, third = log_normal_derivatives(f)
        first_, second_, third_ = log_normal_derivatives(-f)
        return (
            y * first - failures * first_,
            y * second + failures * second_,
            y * third - failures * third_,
        )

    def inverse_link(self, f: ArrayLike) -> Array:
        f = np.asarray(f, dtype=float)
        return expit(f) if self.link == "logit" else ndtr(f)

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        n = 1 if trials is None else np.asarray(trials).astype(np.int64)
        return np.asarray(random.binomial(n, self.inverse_link(f)), dtype=float)

    # ------------------------------------------------------------------ a Gaussian latent

    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        if self.link == "logit":
            return expected_logistic(mean, variance)
        return ndtr(np.asarray(mean, dtype=float) / np.sqrt(1 + np.asarray(variance)))

    def _one_trial_variance(self, mean: Array, variance: Array) -> Array:
        """E p (1 − p)."""
        if self.link == "logit":
            return expected_logistic_slope(mean, variance)
        # Owen (1980), table of normal integrals, 20,010.4.
        return 2 * owens_t(mean / np.sqrt(1 + variance), 1 / np.sqrt(1 + 2 * variance))

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        mean, variance = np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)
        if trials is None:
            rarer = self.response_mean(-np.abs(mean), variance)
            return rarer * (1 - rarer)
        n = np.asarray(trials, dtype=float)
        within = self._one_trial_variance(mean, variance)
        return n * within + n * n * self.mean_variance(mean, variance)

    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        mean, variance = broadcast(mean, variance)
        shape = mean.shape
        # Both tails have the same variance; the lower one has its relative accuracy.
        mean, variance = -np.abs(mean).ravel(), variance.ravel()
        result = np.empty_like(mean)
        for rows in blocks(mean.size):
            m, v = mean[rows], variance[rows]
            narrow = v <= 1
            # its tails are steep: p² may peak beyond the nodes of the rule
            if self.link == "probit":
                narrow &= (v <= 0.01) | (m > -4)
            out = np.empty_like(m)
            if narrow.any():
                out[narrow] = centred_variance(self.inverse_link, m[narrow], v[narrow], 32)
            wide = np.flatnonzero(~narrow)
            m, v = m[wide], v[wide]
            p = self.response_mean(m, v)
            out[wide] = p * (1 - p) - self._one_trial_variance(m, v)
            tail = p < 1e-4
            if tail.any():
                # E p² is the chance of two successes in two trials.
                two = np.full(int(tail.sum()), 2.0)
                square = np.exp(Binomial(self.link).log_predictive(two, m[tail], v[tail], two))
                out[wide[tail]] = square - p[tail] ** 2
            result[rows] = np.maximum(out, 0.0)
        return result.reshape(shape)

    def log_predictive(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        if trials is not None:
            return super().log_predictive(y, mean, variance, trials)
        signed = (2 * np.asarray(y, dtype=float) - 1) * np.asarray(mean, dtype=float)
        if self.link == "logit":
            return log_expected_logistic(signed, variance)
        return log_ndtr(signed / np.sqrt(1 + np.asarray(variance, dtype=float)))

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        level = check_level(level)
        mean, variance, size = broadcast(mean, variance, 1.0 if trials is None else trials)
        tails = (0.5 * (1 - level), 0.5 * (1 + level))
        if trials is None:
            none = self.response_mean(-mean, variance)  # P(Y = 0)
            lower, upper = ((none < p).astype(float) for p in tails)
            return lower, upper
        shape, m, n = mean.shape, mean.ravel(), size.ravel()
        std = np.sqrt(variance).ravel()
        p = self.response_mean(m, std**2)
        spread = np.sqrt(self.response_variance(m, std**2, n))

        def cdf(k: Array, rows: NDArray[np.int64]) -> Array:
            return self._averaged_cdf(k, m[rows], std[rows], n[rows])

        lower, upper = (
            smallest_reaching(
                cdf, tail, n * p + ndtri(tail) * spread, 0.2 * spread, 0.0, n, whole=True
            )
            for tail in tails
        )
        return lower.reshape(shape), upper.reshape(shape)

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance, size = broadcast(y, mean, variance, 1.0 if trials is None else trials)
        k = np.floor(y).ravel()
        if trials is None:
            result = np.where(k < 1, self.response_mean(-mean, variance).ravel(), 1.0)
        else:
            result = self._averaged_cdf(
                np.maximum(k, 0.0), mean.ravel(), np.sqrt(variance).ravel(), size.ravel()
            )
        return np.where(k < 0, 0.0, result).reshape(y.shape)

    def _averaged_cdf(self, k: Array, mean: Array, std: Array, n: Array) -> Array:
        # Y ≤ k exactly if p lies below a Beta(k + 1, n − k) variable; at k = n it always does.
        result = np.ones_like(mean)
        inner = np.flatnonzero(k < n)
        for rows in blocks(inner.size, ROWS):
            i = inner[rows]
            a, b = k[i] + 1, n[i] - k[i]
            (left_a, right_a), (left_b, right_b) = gamma_reach(a), gamma_reach(b)
            centre = np.log(a / b)
            lower, upper = (
                self._from_logit(centre - left_a - right_b),
                self._from_logit(centre + right_a + left_b),
            )
            result[i] = averaged_cdf(
                mean[i],
                std[i],
                lower,
                upper,
                lambda x, a=a, b=b: self._log_threshold(x, a, b),  # type: ignore[misc]
                lambda f, a=a, b=b: betainc(b, a, self.inverse_link(-f)),  # type: ignore[misc]
            )
        return result

    def _from_logit(self, x: Array) -> Array:
        if self.link == "logit":
            return x
        return -np.sign(x) * ndtri_exp(log_expit(-np.abs(x)))

    def _log_threshold(self, f: Array, a: Array, b: Array) -> Array:
        """Log density, in f, of the latent whose probability is Beta(a, b)."""
        a, b = a[:, None], b[:, None]
        if self.link == "logit":
            return a * log_logistic(f) + b * log_logistic(-f) - betaln(a, b)
        normal = -0.5 * f * f - 0.5 * np.log(2 * np.pi)
        return (a - 1) * log_ndtr(f) + (b - 1) * log_ndtr(-f) + normal - betaln(a, b)

    # ------------------------------------------------------------------ where to start

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        n = np.ones_like(y) if trials is None else np.asarray(trials, dtype=float)
        successes, total = float(np.sum(w * y)), float(np.sum(w * n))
        edge = successes <= 0 or successes >= total
        p = (successes + 0.5) / (total + 1) if edge else successes / total
        constant = float(logit(p) if self.link == "logit" else ndtri(p))
        if offset is None:
            return constant
        constant -= float(np.sum(w * n * o) / total)
        return constant if edge else self._newton_start(constant, y, w, o, trials)

    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        n = 1.0 if trials is None else np.asarray(trials, dtype=float)
        p = (np.asarray(y, dtype=float) + 0.5) / (n + 1)
        return logit(p) if self.link == "logit" else ndtri(p)
