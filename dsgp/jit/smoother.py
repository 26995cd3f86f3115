"""Backward passes along one sorted axis: posterior moments, score, mean-only solves.

The disturbance form (Bryson–Frazier; Durbin and Koopman 2012, section 4.4): it never inverts a
predicted covariance. Conventions are those of ``filter``.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.flags import compiled
from dsgp.jit.transition import FORGOTTEN, pull, push, scaled


@compiled
def smooth(
    shift,
    stationary,
    rate,
    step,
    weight,
    target,
    means,
    covariances,
    mean,
    variance,
    dual,
    slope,
    slope_variance,
    slope_covariance,
    adjoint,
):
    """One backward pass over the states that ``filter_states`` kept.

    Fills, each where its length is not 0: ``mean``, ``variance`` and ``dual`` = (K + R)⁻¹ y at the
    points, (n,), all three or none; mean and variance of df/dτ and its covariance with f, (n,), all
    three or none; and the adjoint N, (n, m (m + 1) / 2), the backward message that variances
    between the points need.

    Returns the derivative of the log likelihood by log rate, and Σ (e² − D) / w over the observed
    points, twice the derivative by the log of a factor common to all noise variances.
    """
    m = len(shift)
    n = target.shape[0]
    want_slope = slope.shape[0] > 0
    want_moments = mean.shape[0] > 0
    want_adjoint = adjoint.shape[0] > 0
    r = np.zeros(m)
    s = np.zeros(m)
    c = np.zeros(m)
    p = np.zeros((m, m))
    q = np.zeros((m, m))  # the N of the literature
    half = np.zeros((m, m))
    rate_score = 0.0
    noise_score = 0.0
    for t in range(n - 1, -1, -1):
        k = 0
        for i in range(m):
            for j in range(i, m):
                p[i, j] = covariances[t, k]
                p[j, i] = p[i, j]
                k += 1
        # s = Φᵀ r and q ← Φᵀ N Φ, with the transition from t to t + 1.
        for i in range(m):
            s[i] = r[i]
        if t < n - 1:
            pull_back(shift, scaled(rate, step[t + 1]), s, q, half)
        w = weight[t]
        ratio = 1.0 + w * p[0, 0]
        inverse = w / ratio
        # c = N P h. Then e = v/F − Kᵀ s and D = 1/F + Kᵀ N K, with K = P h / F.
        residual = target[t] - means[t, 0]
        spread = 0.0
        for i in range(m):
            row = 0.0
            for j in range(m):
                row += q[i, j] * p[0, j]
            c[i] = row
            residual -= p[0, i] * s[i]
            spread += p[0, i] * row
        residual *= inverse
        inflation = 1.0 + inverse * spread  # D F
        spread = inverse * inflation
        # r⁻ = s + h e;  N⁻ = (I − h Kᵀ) N (I − K hᵀ) + h hᵀ / F changes only row and column 0.
        for i in range(m):
            r[i] = s[i]
        r[0] += residual
        q[0, 0] += spread - 2.0 * inverse * c[0]
        for i in range(1, m):
            q[0, i] -= inverse * c[i]
            q[i, 0] = q[0, i]

        if want_moments:
            dual[t] = residual
            if w * p[0, 0] > 1.0:
                # Accurate where the noise is small, and the other form where it is large.
                mean[t] = target[t] - residual / w
                variance[t] = (1.0 - spread / w) / w
            else:
                smoothed = means[t, 0]
                lost = 0.0
                for i in range(m):
                    smoothed += p[0, i] * r[i]
                    row = 0.0
                    for j in range(m):
                        row += q[i, j] * p[0, j]
                    lost += p[0, i] * row
                mean[t] = smoothed
                variance[t] = p[0, 0] - lost
        if w > 0.0:
            noise_score += (residual * residual - spread) / w
        if want_slope and m > 1:
            # df/dτ = u_1 − u_0
            total = means[t, 1] - means[t, 0]
            for i in range(m):
                total += (p[1, i] - p[0, i]) * r[i]
            slope[t] = total
            lost = 0.0
            for i in range(m):
                row = 0.0
                for j in range(m):
                    row += q[i, j] * (p[1, j] - p[0, j])
                lost += (p[1, i] - p[0, i]) * row
            slope_variance[t] = p[1, 1] - 2.0 * p[0, 1] + p[0, 0] - lost
            # V h = (P h D − P N K) R, the response to the target times R: unlike the difference of
            # P h and P N⁻ P h it is as small as the noise, and it allows a weight of 0.
            total = (p[1, 0] - p[0, 0]) * inflation
            for i in range(m):
                total -= (p[1, i] - p[0, i]) * c[i]
            slope_covariance[t] = total / ratio
        if want_adjoint:
            k = 0
            for i in range(m):
                for j in range(i, m):
                    adjoint[t, k] = q[i, j]
                    k += 1
        if t > 0:
            # d log Z / dτ_t = rᵀ A (a + Y r) − tr(N A Y), Y = P_t − P∞, A = S − I: the predicted
            # state moves by A a and its covariance by A Y + Y Aᵀ.
            tau = rate * step[t]
            if tau < FORGOTTEN:
                score = 0.0
                for i in range(m):
                    drift = -means[t, i]
                    if i + 1 < m:
                        drift += means[t, i + 1]
                    score += r[i] * drift
                    for j in range(m):
                        trend = stationary[i, j] - p[i, j]
                        if i + 1 < m:
                            trend += p[i + 1, j] - stationary[i + 1, j]
                        score += (r[i] * r[j] - q[i, j]) * trend
                rate_score += tau * score
    return rate_score, noise_score


@compiled
def pull_back(shift, tau, r, q, half):
    """R ← Φᵀ r and q ← Φᵀ q Φ, in place."""
    m = len(shift)
    decay = math.exp(-tau)
    pull(shift, tau, decay, r)
    for i in range(m):
        for j in range(m):
            total = 0.0
            power = 1.0
            for k in range(i, -1, -1):
                total += power * shift[i - k] * q[k, j]
                power *= tau
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            power = 1.0
            for k in range(j, -1, -1):
                total += power * shift[j - k] * half[i, k]
                power *= tau
            q[i, j] = decay * decay * total
            q[j, i] = q[i, j]


@compiled
def solve_with_gains(
    shift, rate, step, weight, decay, shrinkage, covariance, information, mean, dual
):
    """Fill ``mean`` and ``dual`` (n,): (K⁻¹ + W)⁻¹ b and K⁻¹ times it, b the ``information``.

    With b = W y these are the posterior mean and (K + R)⁻¹ y. Nothing divides by a weight that may
    vanish, and the gains being known no covariance moves: O(n m²).
    """
    m = len(shift)
    n = information.shape[0]
    a = np.zeros(m)
    r = np.zeros(m)
    for t in range(n):
        if t > 0:
            push(shift, scaled(rate, step[t]), decay[t], a)
        mean[t] = a[0]
        weighed = (information[t] - weight[t] * a[0]) * shrinkage[t]  # v / F
        for i in range(m):
            a[i] += covariance[t, i] * weighed
        dual[t] = weighed
    for t in range(n - 1, -1, -1):
        if t < n - 1:
            pull(shift, scaled(rate, step[t + 1]), decay[t + 1], r)
        residual = dual[t]
        inverse = weight[t] * shrinkage[t]
        for i in range(m):
            residual -= inverse * covariance[t, i] * r[i]
        r[0] += residual
        dual[t] = residual
        if weight[t] * covariance[t, 0] > 1.0:
            mean[t] = (information[t] - residual) / weight[t]
        else:
            for i in range(m):
                mean[t] += covariance[t, i] * r[i]
