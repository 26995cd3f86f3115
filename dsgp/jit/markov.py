"""Passes along sorted points for any Gauss–Markov process: filter, smoother, mean-only solves.

As ``filter`` and ``smoother``, for a state of m components of any meaning. The function is hᵀ u,
the state moves over the step to point t by ``phi[which[t]]`` (m, m), whose rows i are 0 outside
``low[i]`` to ``high[i]``, and ``stationary`` is P∞. Symmetric matrices are stored by rows of their
upper triangle. Predicted covariances are P∞ + Φ (P − P∞) Φᵀ, exact where a step is 0.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.chain import unpack
from dsgp.jit.exponential import (
    MOST_DOUBLINGS,
    dot,
    pull_blocks,
    pull_slope,
    push_blocks,
)
from dsgp.jit.flags import compiled


@compiled
def sandwich(low, high, phi, p, half, out):
    """Fill ``out`` with Φ p Φᵀ, p symmetric; ``out`` may be p."""
    m = p.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(low[i], high[i]):
                total += phi[i, k] * p[k, j]
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for k in range(low[j], high[j]):
                total += half[i, k] * phi[j, k]
            out[i, j] = total
            out[j, i] = total


@compiled
def sandwich_back(low, high, phi, q, half):
    """Q ← Φᵀ q Φ, in place."""
    m = q.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(low[i], high[i]):
                total += phi[k, i] * q[k, j]
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for k in range(low[j], high[j]):
                total += half[i, k] * phi[k, j]
            q[i, j] = total
            q[j, i] = total


@compiled
def predict_state(low, high, stationary, phi, a, p, moved, half):
    """Move mean and covariance over a step, in place."""
    m = a.shape[0]
    push_blocks(low, high, phi, a, moved)
    for i in range(m):
        a[i] = moved[i]
        for j in range(m):
            p[i, j] -= stationary[i, j]
    sandwich(low, high, phi, p, half, p)
    for i in range(m):
        for j in range(m):
            p[i, j] += stationary[i, j]


@compiled
def observe(h, weight, p, gain):
    """Fill ``gain`` with P h; return hᵀ P h and F w = 1 + w hᵀ P h."""
    m = h.shape[0]
    variance = 0.0
    for i in range(m):
        total = 0.0
        for j in range(m):
            total += p[i, j] * h[j]
        gain[i] = total
    variance = max(dot(h, gain), 0.0)
    return variance, 1.0 + weight * variance


@compiled
def condition_on(gain, inverse, innovation, a, p):
    """Condition mean and covariance on one observation, in place."""
    m = a.shape[0]
    for i in range(m):
        a[i] += gain[i] * (inverse * innovation)
        factor = inverse * gain[i]
        for j in range(i, m):
            p[i, j] -= factor * gain[j]
            p[j, i] = p[i, j]


@compiled
def pack(matrix, triangle):
    """Store a symmetric matrix by rows of its upper triangle."""
    m = matrix.shape[0]
    k = 0
    for i in range(m):
        for j in range(i, m):
            triangle[k] = matrix[i, j]
            k += 1


@compiled
def filter_process(
    low, high, h, stationary, phi, which, weight, target, means, covariances
):  # fmt: skip
    """Return Σ v²/F and Σ log(F w) over the observed points.

    Fills the predicted states that a backward pass needs, ``means`` (n, m) and ``covariances``
    (n, m (m + 1) / 2), where their length is not 0.
    """
    m = h.shape[0]
    keep = means.shape[0] > 0
    a = np.zeros(m)
    p = stationary.copy()
    gain, moved, half = np.empty(m), np.empty(m), np.empty((m, m))
    quadratic, log_det, product = 0.0, 0.0, 1.0
    for t in range(target.shape[0]):
        if t > 0:
            predict_state(low, high, stationary, phi[which[t]], a, p, moved, half)
        if keep:
            means[t] = a
            pack(p, covariances[t])
        _, ratio = observe(h, weight[t], p, gain)
        product *= ratio
        if product > 1e150:
            log_det += math.log(product)
            product = 1.0
        innovation = target[t] - dot(h, a)
        inverse = weight[t] / ratio
        quadratic += inverse * innovation * innovation
        condition_on(gain, inverse, innovation, a, p)
    return quadratic, log_det + math.log(product)


@compiled
def smooth_process(
    low, high, h, stationary, phi, which, weight, target, means, covariances,
    mean, variance, dual, adjoint, terms, norm, steps, by_terms, by_stationary, by_h,
):  # fmt: skip
    """One backward pass over the states that ``filter_process`` kept.

    Fills, each where its length is not 0: ``mean``, ``variance`` and ``dual`` = (K + R)⁻¹ y at the
    points, (n,), all three or none; the adjoint N, (n, m (m + 1) / 2); and the derivatives of the
    log likelihood by the terms of the series of Φ, ``by_terms`` (N_TERMS, m, m), by P∞ and by h,
    all three or none. Returns Σ (e² − D) / w over the observed points, twice the derivative by the
    log of a factor common to all noise variances.

    With S = r rᵀ − N the derivative by a predicted covariance is S / 2, and by the Φ that led to it
    r aᵀ + S Φ (P − P∞), of the filtered state (a, P) before.
    """
    m = h.shape[0]
    n = target.shape[0]
    want_moments = mean.shape[0] > 0
    want_adjoint = adjoint.shape[0] > 0
    want_slopes = by_terms.shape[0] > 0
    r, s, c, gain = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    p, q, half = np.zeros((m, m)), np.zeros((m, m)), np.zeros((m, m))
    depth = MOST_DOUBLINGS + 1 if want_slopes else 1
    stack, slope = np.zeros((depth, m, m)), np.zeros((m, m))
    noise_score = 0.0
    for t in range(n - 1, -1, -1):
        s[:] = r
        if t < n - 1:
            pull_blocks(low, high, phi[which[t + 1]], r, s)
            sandwich_back(low, high, phi[which[t + 1]], q, half)
            if want_slopes:
                add_score(-0.5, s, q, by_stationary)
        unpack(covariances[t], p)
        prior, ratio = observe(h, weight[t], p, gain)
        w = weight[t]
        inverse = w / ratio
        # c = N P h. Then e = v/F − Kᵀ s and D = 1/F + Kᵀ N K, with K = P h / F.
        for i in range(m):
            c[i] = dot(q[i], gain)
        residual = inverse * (target[t] - dot(h, means[t]) - dot(gain, s))
        inflation = 1.0 + inverse * dot(gain, c)  # D F
        spread = inverse * inflation
        # r⁻ = s + h e;  N⁻ = (I − h Kᵀ) N (I − K hᵀ) + h hᵀ / F.
        for i in range(m):
            r[i] = s[i] + h[i] * residual
            for j in range(m):
                q[i, j] += h[i] * h[j] * spread - inverse * (h[i] * c[j] + c[i] * h[j])
        if want_moments:
            dual[t] = residual
            if w * prior > 1.0:
                # Accurate where the noise is small, and the other form where it is large.
                mean[t] = target[t] - residual / w
                variance[t] = (1.0 - spread / w) / w
            else:
                lost = 0.0
                for i in range(m):
                    lost += gain[i] * dot(q[i], gain)
                mean[t] = dot(h, means[t]) + dot(gain, r)
                variance[t] = max(prior - lost, 0.0)
        if w > 0.0:
            noise_score += (residual * residual - spread) / w
        if want_adjoint:
            pack(q, adjoint[t])
        if want_slopes:
            # Of the log density of an observation: e û − w V h, û and V of the smoothed state.
            for i in range(m):
                smoothed = means[t, i] + dot(p[i], r)
                by_h[i] += residual * smoothed
                by_h[i] -= inverse * (inflation * gain[i] - dot(p[i], c))
            add_score(0.5, r, q, by_stationary)
            if t > 0:
                before(h, stationary, weight[t - 1], target[t - 1], means[t - 1],
                       covariances[t - 1], s, p, gain)  # fmt: skip
                slope_of_transition(low, high, phi[which[t]], r, q, s, p, half, slope)
                pull_slope(terms, norm, high, steps[which[t]], slope, by_terms, stack, half)
    return noise_score


@compiled
def add_score(factor, r, q, out):
    """Add factor (r rᵀ − N) to ``out``."""
    for i in range(r.shape[0]):
        for j in range(r.shape[0]):
            out[i, j] += factor * (r[i] * r[j] - q[i, j])


@compiled
def before(h, stationary, weight, target, mean, covariance, a, p, gain):
    """Fill the filtered mean ``a`` and P − P∞ in ``p``, from a predicted state that was kept."""
    unpack(covariance, p)
    a[:] = mean
    _, ratio = observe(h, weight, p, gain)
    condition_on(gain, weight / ratio, target - dot(h, a), a, p)
    for i in range(a.shape[0]):
        for j in range(a.shape[0]):
            p[i, j] -= stationary[i, j]


@compiled
def slope_of_transition(low, high, phi, r, q, a, p, half, slope):
    """Fill the blocks of ``slope`` with r aᵀ + (r rᵀ − N) Φ p; p is written over."""
    m = r.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(low[i], high[i]):
                total += phi[i, k] * p[k, j]
            half[i, j] = total
    for j in range(m):
        along = a[j]
        for k in range(m):
            along += r[k] * half[k, j]
        for i in range(low[j], high[j]):
            total = r[i] * along
            for k in range(m):
                total -= q[i, k] * half[k, j]
            slope[i, j] = total


@compiled
def process_gains(low, high, h, stationary, phi, which, weight, shrinkage, gains):
    """Fill what a mean-only pass needs: 1 / (1 + w hᵀ P h), (n,), and P h, (n, m)."""
    m = h.shape[0]
    a = np.zeros(m)
    p = stationary.copy()
    moved, half = np.empty(m), np.empty((m, m))
    for t in range(which.shape[0]):
        if t > 0:
            predict_state(low, high, stationary, phi[which[t]], a, p, moved, half)
        _, ratio = observe(h, weight[t], p, gains[t])
        shrinkage[t] = 1.0 / ratio
        condition_on(gains[t], weight[t] / ratio, 0.0, a, p)


@compiled
def solve_process(
    low, high, h, phi, which, weight, shrinkage, gains, information, mean, dual
):  # fmt: skip
    """Fill ``mean`` and ``dual`` (n,): (K⁻¹ + W)⁻¹ b and K⁻¹ times it, b the ``information``.

    Nothing divides by a weight that may vanish, and no covariance moves: O(n m²).
    """
    m = h.shape[0]
    n = information.shape[0]
    a, r, moved = np.zeros(m), np.zeros(m), np.empty(m)
    for t in range(n):
        if t > 0:
            push_blocks(low, high, phi[which[t]], a, moved)
            a[:] = moved
        mean[t] = dot(h, a)
        weighed = (information[t] - weight[t] * mean[t]) * shrinkage[t]  # v / F
        for i in range(m):
            a[i] += gains[t, i] * weighed
        dual[t] = weighed
    for t in range(n - 1, -1, -1):
        if t < n - 1:
            pull_blocks(low, high, phi[which[t + 1]], r, moved)
            r[:] = moved
        residual = dual[t] - weight[t] * shrinkage[t] * dot(gains[t], r)
        for i in range(m):
            r[i] += h[i] * residual
        dual[t] = residual
        if weight[t] * dot(h, gains[t]) > 1.0:
            mean[t] = (information[t] - residual) / weight[t]
        else:
            mean[t] += dot(gains[t], r)
