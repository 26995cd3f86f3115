"""Quantiles of a new observation: the cumulative distribution averaged over a Gaussian latent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[np.float64]

# The mass beyond these is below 1e-13 for a Gaussian, and below 1e-11 for a threshold.
STDS, THRESHOLD_DROP = 7.5, 25.0
# Number of rows that are computed together, with their nodes: larger temporaries are mapped into
# memory again by every operation, at five times the cost.
ROWS = 128
# Width of a panel of a quadrature, and the largest number of panels. Thresholds of counts and
# proportions vary on a scale of 1, and have poles at a distance of π from the real axis: over this
# width the rule is accurate to 1e-12.
_PANEL, _MOST_PANELS = 20.0, 20


@cache
def legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss–Legendre rule on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1), 0.5 * weights


def gamma_reach(shape: Array) -> tuple[Array, Array]:
    """Distances from log(shape) within which the logarithm of a Gamma(shape) variable stays.

    Its log density falls by shape (eᵗ − 1 − t); bounds of that function give the distances.
    """
    level = THRESHOLD_DROP / shape
    left = 0.5 * (level + np.sqrt(level * level + 8 * level))
    right = np.sqrt(2 * level)
    return left, np.where(level > 1.3, np.minimum(right, np.log1p(2 * level)), right)


def averaged_cdf(
    mean: Array,
    std: Array,
    lower: Array,
    upper: Array,
    log_threshold: Callable[[Array], Array],
    cdf: Callable[[Array], Array],
) -> Array:
    r"""P(Y ≤ y) averaged over f ~ N(mean, std²), where Y ≤ y exactly if f lies below a threshold T.

    .. math:: P(Y \le y) = \int t_y(x)\, \Phi\{(x - \mu)/s\}\, dx

    The threshold's density t and the Gaussian are both smooth on the narrower of the two ranges;
    above that range Φ is 1 and the threshold's own distribution is known. Where the latent is wide,
    so is the range: it is cut into panels, 64 nodes each.

    Parameters
    ----------
    mean, std : ndarray of shape (n,)
    lower, upper : ndarray of shape (n,)
        Range of T.
    log_threshold : callable
        x of shape (n, k) to the log density of T.
    cdf : callable
        f of shape (n,) to P(Y ≤ y | f) = P(T > f).
    """
    upper = np.minimum(upper, mean + STDS * std)
    lower = np.minimum(np.maximum(lower, mean - STDS * std), upper)
    nodes, weights = legendre(64)
    # The panels of a row depend on that row only, and so does its result; NaN stays NaN.
    panels = np.fmax(np.fmin(np.ceil((upper - lower) / _PANEL), _MOST_PANELS), 1.0)
    width = (upper - lower) / panels
    inside = np.zeros_like(mean)
    for panel in range(int(panels.max(initial=0.0))):
        # From the ends of the range by offsets: with a tiny std, x − mean must stay exact.
        start = lower - mean + np.minimum(panel, panels - 1) * width
        from_mean = start[:, None] + width[:, None] * nodes
        score = from_mean / np.maximum(std, 1e-300)[:, None]
        # Nothing below e^-250 counts; it is clipped there, as subnormal numbers are slow.
        density = np.exp(np.maximum(log_threshold(mean[:, None] + from_mean), -250.0))
        part = (density * ndtr(score) * weights).sum(axis=1) * width
        inside += np.where(panel < panels, part, 0.0)
    return np.clip(cdf(upper) + inside, 0.0, 1.0)


def smallest_reaching(
    cdf: Callable[[Array, NDArray[np.int64]], Array],
    probability: float,
    guess: Array,
    spread: Array,
    lowest: float,
    highest: Array,
    whole: bool,
) -> Array:
    """Smallest value of each row whose cumulative probability reaches `probability`.

    Bracketed; between the ends of a bracket by secants of the normal score, which is nearly a
    straight line, with a bisection at every third step.

    Parameters
    ----------
    cdf : callable
        (values, rows) to P(Y ≤ value).
    probability : float
    guess, spread : ndarray of shape (n,)
        Where to look first, and the first step from there.
    lowest : float
        Least value of the support.
    highest : ndarray of shape (n,)
        Largest value of the support, where the probability is 1; it may be infinite.
    whole : bool
        Whether values are whole numbers.
    """
    target = ndtri(probability)
    below, above = np.full(guess.shape, lowest - 1.0 if whole else lowest), highest.copy()
    low_score, high_score = np.full(guess.shape, -np.inf), np.full(guess.shape, np.inf)
    x = np.clip(np.round(guess) if whole else guess, lowest, highest)
    spread = np.maximum(np.round(spread), 1.0) if whole else spread.copy()
    rows = np.arange(guess.size)
    for iteration in range(400):
        if not rows.size:
            break
        value = cdf(x[rows], rows)
        score = ndtri(value) - target
        reached = value >= probability
        # Continuous values: one that meets the probability to the last digits closes the bracket.
        hit = np.abs(score) < (0.0 if whole else 1e-9)
        up, down = rows[reached | hit], rows[~reached | hit]
        above[up], high_score[up] = x[up], score[reached | hit]
        below[down], low_score[down] = x[down], score[~reached | hit]
        small = 4e-16 * np.abs(x[rows]) if whole else 1e-12 * (1 + np.abs(x[rows]))
        rows = rows[above[rows] - below[rows] > (np.maximum(small, 1.0) if whole else small)]
        a, b, sa, sb = below[rows], above[rows], low_score[rows], high_score[rows]
        # Between two known scores by the secant; towards an end without a finite one by growing
        # steps, or to the middle when the step would leave the bracket.
        a_, b_ = np.where(np.isinf(a), b, a), np.where(np.isinf(b), a, b)
        middle = 0.5 * (a_ + b_)
        up, down = np.isinf(sb), np.isinf(sa) & ~np.isinf(sb)
        stepped = np.where(up, a_ + spread[rows], b_ - spread[rows])
        stepped = np.where((stepped > a) & (stepped < b), stepped, middle)
        sa, sb = np.where(up | down, -1.0, sa), np.where(up | down, 1.0, sb)
        secant = middle if iteration % 3 == 2 else a_ + sa / (sa - sb) * (b_ - a_)
        following = np.where(up | down, stepped, secant)
        spread[rows] = np.where(up | down, 2 * spread[rows], spread[rows])
        if whole:
            following = np.clip(np.floor(following), a + 1, np.maximum(b - 1, a + 1))
        x[rows] = following
    return above
