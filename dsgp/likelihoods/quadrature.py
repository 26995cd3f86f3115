"""Averages over a Gaussian latent: of the logistic function, and variances of any smooth one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]

# Number of rows that are computed together: their temporaries stay within the processor's cache.
BLOCK = 8192
# Standard deviations at which a Gaussian is e^-37 of its peak, beyond the sixteenth digit.
REACH = 8.6


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Slices that cut n rows into pieces of at most `size`."""
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))


@cache
def logistic_mixture() -> tuple[Array, Array]:
    r"""Scales and weights that write the logistic function as a mixture of normal ones.

    .. math:: \sigma(x) = \int_0^\infty \Phi\{x / (2k)\}\, p(k)\, dk \approx
              \sum_j w_j \Phi(x / \tau_j)

    p is the density of Kolmogorov's statistic. Its logarithm falls as −2k² on one side and as
    −π²/(8k²) on the other, so that the trapezoidal rule in log k with 25 points is exact to 2e-14.

    References
    ----------
    Andrews and Mallows (1974), *Scale mixtures of normal distributions*, JRSS B 36, 99–102.
    Monahan and Stefanski (1992), *Normal scale mixture approximations to F*(z) and computation
    of the logistic-normal integral*, Handbook of the Logistic Distribution.
    """
    log_k = np.linspace(np.log(0.13), np.log(5.2), 28)
    k = np.exp(log_k)
    j = np.arange(1, 12)[:, None]
    upper = 8 * k * np.sum((-1.0) ** (j - 1) * j**2 * np.exp(-2 * (j * k) ** 2), axis=0)
    power = ((2 * j - 1) * np.pi / k) ** 2 / 8
    lower = np.sqrt(2 * np.pi) / k**2 * np.sum((2 * power - 1) * np.exp(-power), axis=0)
    weight = (log_k[1] - log_k[0]) * k * np.where(k > 1, upper, lower)
    kept = weight > 1e-20
    return 2 * k[kept], weight[kept] / weight[kept].sum()


def _mixture(mean: Array, variance: Array) -> Array:
    """E σ(f) as the plain sum over the mixture."""
    total = np.zeros_like(mean)
    for scale, weight in zip(*logistic_mixture(), strict=True):
        term = np.sqrt(variance + scale * scale)
        np.divide(mean, term, out=term)
        ndtr(term, out=term)
        term *= weight
        total += term
    return total


def expected_logistic(mean: ArrayLike, variance: ArrayLike) -> Array:
    r"""E σ(f) under f ~ N(mean, variance), σ the logistic function.

    Tails keep their relative accuracy: σ(f) = eᶠ σ(−f) turns a mean below −variance/2 into the
    mean −(mean + variance) of the other tail.

    Parameters
    ----------
    mean, variance : array_like that broadcast
        Of the latent; a variance of 0 gives σ(mean).

    Returns
    -------
    ndarray

    Examples
    --------
    >>> from dsgp.likelihoods.quadrature import expected_logistic
    >>> expected_logistic([0.0, 2.0], [1.0, 4.0]).round(4)
    array([0.5   , 0.7752])
    """
    mean, variance, shape = _flat(mean, variance)
    out = np.empty_like(mean)
    for rows in blocks(mean.size):
        shift = mean[rows] + 0.5 * variance[rows]
        far = shift < 0
        centre = np.where(far, -(mean[rows] + variance[rows]), mean[rows])
        out[rows] = _mixture(centre, variance[rows]) * np.exp(np.minimum(shift, 0.0))
    return out.reshape(shape)


def log_expected_logistic(mean: ArrayLike, variance: ArrayLike) -> Array:
    """Logarithm of `expected_logistic`, exact in both tails and where that underflows.

    Examples
    --------
    >>> from dsgp.likelihoods.quadrature import log_expected_logistic
    >>> log_expected_logistic([-1000.0, 40.0], [1.0, 0.0])
    array([-9.99500000e+02, -4.24835426e-18])
    """
    mean, variance, shape = _flat(mean, variance)
    out = np.empty_like(mean)
    for rows in blocks(mean.size):
        # The smaller of the two probabilities; the other is log1p of its negative.
        small, v = -np.abs(mean[rows]), variance[rows]
        shift = small + 0.5 * v
        centre = np.where(shift < 0, -(small + v), small)
        sum_ = _mixture(centre, v)
        tiny = np.flatnonzero(sum_ < 1e-280)
        log_small = np.log(np.maximum(sum_, 1e-300))
        if tiny.size:
            log_small[tiny] = _log_mixture(centre[tiny], v[tiny])
        log_small += np.minimum(shift, 0.0)
        out[rows] = np.where(mean[rows] > 0, np.log1p(-np.exp(log_small)), log_small)
    return out.reshape(shape)


def _log_mixture(mean: Array, variance: Array) -> Array:
    scale, weight = logistic_mixture()
    terms = log_ndtr(mean[:, None] / np.sqrt(variance[:, None] + scale**2)) + np.log(weight)
    peak = terms.max(axis=1)
    return peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))


def expected_logistic_slope(mean: ArrayLike, variance: ArrayLike) -> Array:
    """E σ(f)(1 − σ(f)) under f ~ N(mean, variance): the same mixture, of normal densities."""
    mean, variance, shape = _flat(mean, variance)
    out = np.zeros_like(mean)
    for rows in blocks(mean.size):
        # Tilted as in `expected_logistic`; the slope is even in f, hence in the mean.
        small, v = -np.abs(mean[rows]), variance[rows]
        for scale, weight in zip(*logistic_mixture(), strict=True):
            total = v + scale * scale
            out[rows] += weight * np.exp(-0.5 * small * small / total) / np.sqrt(total)
    out *= 1 / np.sqrt(2 * np.pi)
    return out.reshape(shape)


@cache
def hermite(n: int) -> tuple[Array, Array]:
    """Nodes in standard deviations and weights of the Gauss–Hermite rule for N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / np.sqrt(2 * np.pi)


def centred_variance(
    inverse_link: Callable[[Array], Array], mean: Array, variance: Array, n: int = 24
) -> Array:
    """Var g(f) as the Gauss–Hermite mean of (g(f) − g(mean))², less the square of its mean.

    Differences first: a small variance loses nothing to cancellation.
    """
    std, centre = np.sqrt(variance), inverse_link(mean)
    first, second = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in zip(*hermite(n), strict=True):
        difference = inverse_link(mean + std * node) - centre
        first += weight * difference
        second += weight * difference * difference
    return np.maximum(second - first * first, 0.0)


def wide_variance(inverse_link: Callable[[Array], Array], mean: Array, variance: Array) -> Array:
    """Var g(f) for a smooth bounded g and variances above 1, by the trapezoidal rule.

    Steps of at most a third of the unit on which g varies and of half a standard deviation; rows
    are grouped by the number of points that takes.
    """
    std, result = np.sqrt(variance), np.empty_like(mean)
    points = 2.0 ** np.ceil(np.log2(2 * REACH * np.maximum(std / 0.3, 2.0)))
    for n in np.unique(points):
        rows = np.flatnonzero(points == n)
        step, first, second = 2 * REACH / n, np.zeros(rows.size), np.zeros(rows.size)
        centre = inverse_link(mean[rows])
        for node in np.arange(-REACH, REACH + 0.5 * step, step):
            weight = step * np.exp(-0.5 * node * node) / np.sqrt(2 * np.pi)
            difference = inverse_link(mean[rows] + std[rows] * node) - centre
            first += weight * difference
            second += weight * difference * difference
        result[rows] = np.maximum(second - first * first, 0.0)
    return result


def _flat(mean: ArrayLike, variance: ArrayLike) -> tuple[Array, Array, tuple[int, ...]]:
    mean, variance = np.broadcast_arrays(
        np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)
    )
    return mean.ravel(), variance.ravel(), mean.shape
