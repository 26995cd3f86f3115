"""Kalman filter, Rauch–Tung–Striebel smoother and forward filtering, backward sampling.

Sections ``sec:gmp``, ``sec:gpvb`` and ``sec:MCMC``. In O(n m³) time, one state after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dsgp.errors import DataError
from dsgp.reference.chain import GaussMarkovChain
from dsgp.terms import LOG_2PI, Floats


@dataclass(frozen=True)
class Filtered:
    """Moments of each state given the observations up to it.

    Attributes
    ----------
    predicted_mean, predicted_covariance : ndarray of shape (n, m) and (n, m, m)
        Moments of state t given the observations before it.
    mean, covariance : ndarray of shape (n, m) and (n, m, m)
        Moments of state t given the observations up to and including its own.
    log_likelihood : float
        Log density of all observations.
    """

    predicted_mean: Floats
    predicted_covariance: Floats
    mean: Floats
    covariance: Floats
    log_likelihood: float


@dataclass(frozen=True)
class Smoothed:
    """Moments of each state given all observations.

    Attributes
    ----------
    mean, covariance : ndarray of shape (n, m) and (n, m, m)
    lag_one : ndarray of shape (n, m, m)
        Cov(z_t, z_{t−1}) given all observations; 0 for the first state.
    """

    mean: Floats
    covariance: Floats
    lag_one: Floats


def kalman_filter(chain: GaussMarkovChain, target: Floats, noise_variance: ArrayLike) -> Filtered:
    """Filter noisy observations of hᵀ z (section ``sec:gmp``, ``eq:emission``).

    Parameters
    ----------
    chain : GaussMarkovChain
    target : ndarray of shape (n,)
        y, with NaN where nothing was observed.
    noise_variance : float or ndarray of shape (n,)
        σ² of each target, 0 for one without noise; infinite where nothing was observed (a weight
        of 0).

    Raises
    ------
    DataError
        If there is not one target for each state.
    """
    n, m = len(chain), len(chain.initial_mean)
    if np.shape(target) != (n,):
        raise DataError(f"{n} states need {n} targets, got shape {np.shape(target)}")
    noise = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), (n,))
    h = chain.observation
    predicted_mean, mean = np.empty((n, m)), np.empty((n, m))
    predicted_covariance, covariance = np.empty((n, m, m)), np.empty((n, m, m))
    log_likelihood = 0.0
    a, P = chain.initial_mean, chain.initial_covariance
    for t in range(n):
        if t > 0:
            a = chain.transition[t] @ a
            P = chain.transition[t] @ P @ chain.transition[t].T + chain.process_noise[t]
        predicted_mean[t], predicted_covariance[t] = a, P
        if np.isfinite(target[t]) and np.isfinite(noise[t]):
            # The prediction error is N(0, F), and errors of different states are independent.
            error = target[t] - h @ a
            F = h @ P @ h + noise[t]
            gain = P @ h / F
            log_likelihood -= 0.5 * (LOG_2PI + np.log(F) + error**2 / F)
            a = a + gain * error
            # Joseph's form of P − K F Kᵀ: a sum of squares, which stays positive.
            kept = np.eye(m) - np.outer(gain, h)
            P = kept @ P @ kept.T + noise[t] * np.outer(gain, gain)
        mean[t], covariance[t] = a, P
    return Filtered(predicted_mean, predicted_covariance, mean, covariance, float(log_likelihood))


def rts_smoother(chain: GaussMarkovChain, filtered: Filtered) -> Smoothed:
    """Smooth backwards (Rauch, Tung and Striebel), for the moments that section ``sec:gpvb`` needs.

    With the gain J_t = P_t Φᵀ (P⁻_{t+1})⁺ of the filtered P and the predicted P⁻,

        mean_t = a_t + J_t (mean_{t+1} − a⁻_{t+1}),   Cov(z_{t+1}, z_t) = V_{t+1} J_tᵀ,
        V_t = J_t V_{t+1} J_tᵀ + (the covariance of z_t given z_{t+1}).
    """
    n, m = filtered.mean.shape
    mean, covariance = filtered.mean.copy(), filtered.covariance.copy()
    lag_one = np.zeros((n, m, m))
    for t in range(n - 2, -1, -1):
        gain, left = _backward(chain, filtered, t)
        mean[t] += gain @ (mean[t + 1] - filtered.predicted_mean[t + 1])
        covariance[t] = gain @ covariance[t + 1] @ gain.T + left
        lag_one[t + 1] = covariance[t + 1] @ gain.T
    return Smoothed(mean, covariance, lag_one)


def ffbs(
    chain: GaussMarkovChain, filtered: Filtered, random: np.random.Generator, n_draws: int = 1
) -> Floats:
    """Draw whole paths of states given all observations, of shape (n_draws, n, m).

    Forward filtering, backward sampling (section ``sec:MCMC``): the last state is drawn from what
    the filter says of it, and each state before it given the state just drawn.
    """
    n, m = filtered.mean.shape
    paths = np.empty((n_draws, n, m))
    for t in range(n - 1, -1, -1):
        normal = random.standard_normal((n_draws, m))
        if t == n - 1:
            centre, left = filtered.mean[t], filtered.covariance[t]
        else:
            gain, left = _backward(chain, filtered, t)
            ahead = paths[:, t + 1] - filtered.predicted_mean[t + 1]
            centre = filtered.mean[t] + ahead @ gain.T
        paths[:, t] = centre + normal @ _root(left).T
    return paths


def _backward(chain: GaussMarkovChain, filtered: Filtered, t: int) -> tuple[Floats, Floats]:
    """Return the gain J_t, and the covariance of z_t given z_{t+1} and the observations up to t.

    The predicted covariance is singular where Q is and the filtered covariance is, so that its
    pseudo-inverse is taken. That loses nothing: a direction in which Φ P Φᵀ + Q has no variance is
    one in which P Φᵀ has none. The covariance is P − J P⁻ Jᵀ, written as a sum of squares.
    """
    Phi, P = chain.transition[t + 1], filtered.covariance[t]
    gain = P @ Phi.T @ pseudo_inverse(filtered.predicted_covariance[t + 1])
    kept = np.eye(len(P)) - gain @ Phi
    return gain, kept @ P @ kept.T + gain @ chain.process_noise[t + 1] @ gain.T


def pseudo_inverse(covariance: Floats) -> Floats:
    """Return C⁺, of shape (m, m).

    By the eigenvalues of the correlations, not of C itself: after a tiny step the components of a
    state have variances of different powers of that step, none of which is negligible.
    """
    std = np.sqrt(np.diag(covariance))
    inverse_std = np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)
    values, vectors = np.linalg.eigh(covariance * np.outer(inverse_std, inverse_std))
    cut = len(std) * np.finfo(np.float64).eps * max(values[-1], 0.0)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > cut)
    scaled = vectors * inverse_std[:, None]
    return (scaled * inverse) @ scaled.T


def _root(covariance: Floats) -> Floats:
    """Return L with L Lᵀ = C, where C may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
