"""The posterior mean of an additive model by backfitting (Algorithm ``alg:bfgp``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dsgp.kernels import Matern
from dsgp.reference.chain import chain_of
from dsgp.reference.kalman import kalman_filter, rts_smoother
from dsgp.terms import Floats


@dataclass(frozen=True)
class Backfitted:
    """The result of backfitting.

    Attributes
    ----------
    means : ndarray of shape (D, N)
        Posterior mean of each term at the rows.
    sweeps : int
    change : float
        Largest change of any mean in the last sweep.
    converged : bool
        Whether that is at most the threshold.
    """

    means: Floats
    sweeps: int
    change: float
    converged: bool


def backfit(
    kernels: Sequence[Matern],
    X: Floats,
    y: Floats,
    noise_variance: ArrayLike,
    *,
    threshold: float = 1e-6,
    max_sweeps: int = 1000,
) -> Backfitted:
    """Compute E(f_d | y) of every term by Algorithm ``alg:bfgp``.

    Each term in turn is smoothed on what the other terms leave of the targets. A sweep over all of
    them is a Gauss–Seidel step on the system of the joint posterior mean, so that the means
    converge to that. They may be far from it when their change is small: the paper's stopping rule
    is not a bound on the error.

    Parameters
    ----------
    kernels : sequence of D kernels
    X : ndarray of shape (N, D)
    y : ndarray of shape (N,)
        Targets of mean 0; the caller does the first line of the algorithm.
    noise_variance : float or ndarray of shape (N,)
    threshold : float
        Stop when no mean at any row changes by more than this in a sweep, in units of y.
    max_sweeps : int
    """
    noise = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), y.shape)
    orders = [np.argsort(column, kind="stable") for column in X.T]
    chains = [
        chain_of(kernel, column[order])
        for kernel, column, order in zip(kernels, X.T, orders, strict=True)
    ]
    means = np.zeros((len(chains), len(y)))
    change, sweeps = np.inf, 0
    while change > threshold and sweeps < max_sweeps:
        before = means.copy()
        for d, (chain, order) in enumerate(zip(chains, orders, strict=True)):
            others = means.sum(axis=0) - means[d]
            filtered = kalman_filter(chain, (y - others)[order], noise[order])
            smoothed = rts_smoother(chain, filtered)
            means[d, order] = smoothed.mean @ chain.observation
        sweeps += 1
        change = float(np.abs(means - before).max(initial=0.0))
    return Backfitted(means, sweeps, change, change <= threshold)
