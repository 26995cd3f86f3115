"""Convergence diagnostics of chains, from their draws: R-hat and effective sample size."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import rankdata

from dsgp.terms import Floats


def split_rhat(draws: ArrayLike) -> float:
    """Rank-normalised split R-hat, the larger of bulk and folded (Vehtari et al. 2021).

    Parameters
    ----------
    draws : array_like of shape (n_chains, n_draws)

    Returns
    -------
    float
        About 1 where the chains agree; NaN with fewer than 4 draws per chain.
    """
    halves = _split(draws)
    if halves.shape[1] < 2:
        return math.nan
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))


def effective_sample_size(draws: ArrayLike) -> float:
    """Bulk effective sample size of all chains together (Vehtari et al. 2021).

    Parameters
    ----------
    draws : array_like of shape (n_chains, n_draws)

    Returns
    -------
    float
        NaN with fewer than 4 draws per chain.
    """
    scores = _normal_scores(_split(draws))
    n_chains, n = scores.shape
    if n < 2:
        return math.nan
    centred = scores - scores.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    autocovariance = np.fft.irfft(spectrum, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    total = autocovariance[0] + (scores.mean(axis=1).var(ddof=1) if n_chains > 1 else 0.0)
    if not total > 0:
        return float(n_chains * n)  # constant draws
    correlation = 1 - (within - autocovariance) / total
    correlation[0] = 1.0
    # Geyer's initial monotone sequence of sums of pairs.
    pairs = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if len(negative) else pairs)
    time = max(-1 + 2 * float(pairs.sum()), 1 / math.log10(max(n_chains * n, 11)))
    return n_chains * n / time


def _split(draws: ArrayLike) -> Floats:
    """Halve each chain, (2 n_chains, n_draws // 2)."""
    draws = np.atleast_2d(np.asarray(draws, dtype=np.float64))
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(draws: Floats) -> Floats:
    ranks = rankdata(draws, axis=None).reshape(draws.shape)
    return np.asarray(ndtri((ranks - 0.375) / (draws.size + 0.25)))


def _rhat(draws: Floats) -> float:
    n = draws.shape[1]
    within = float(draws.var(axis=1, ddof=1).mean())
    between = float(draws.mean(axis=1).var(ddof=1))
    if not within > 0:
        return 1.0 if not between > 0 else math.inf
    return math.sqrt((n - 1) / n + between / within)
