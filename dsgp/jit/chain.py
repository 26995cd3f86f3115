"""Expected statistics of the states along an axis, and the expected log density of a chain.

For EM: ``disturbances`` is its E-step, ``expected_log_density`` what its M-step maximises.
Conventions are those of ``filter``. The states that stay as they are while hyperparameters move
are the function and its derivatives. They are written in the damped coordinates u of the rate λ₀ of
the E-step, v = B⁻¹ u being f^(k) / λ₀^k with B the binomials; those of a rate λ = ρ λ₀ are M u,
M = B diag(ρ^-k) B⁻¹.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.filter import update
from dsgp.jit.flags import compiled
from dsgp.jit.sampler import integrate
from dsgp.jit.transition import FORGOTTEN, pull, push

# The seventh power of a τ as small as this is still within the range of float64.
_SHORTEST = 1e-40
# Number of terms of the series of a transition up to τ = 1.
_TERMS = 26


@compiled
def disturbances(
    shift, stationary, rate, step, weight, target, means, covariances, dual, adjoint,
    tau, first, noise, cross, previous,
):  # fmt: skip
    """Fill the expected statistics of a chain, from the stored results of both passes.

    With e_t = u_t − Φ u_{t−1}: ``noise`` E[e eᵀ], ``cross`` E[e u_{t−1}ᵀ] and ``previous``
    E[u_{t−1} u_{t−1}ᵀ], (n, m, m) each, of t > 0; ``first`` E[u_0 u_0ᵀ], (m, m); and ``tau`` (n,).
    They are equivalent to the moments of u_t, u_{t−1} and their products, and keep the digits of a
    tiny e. Given the past, e ~ N(0, Q) and u_{t−1} ~ N(a, P) are independent, and the information
    of the future about Φ u_{t−1} + e is in the smoother's vector r and matrix N at t.
    """
    m = len(shift)
    r = np.zeros(m)
    a = np.empty(m)
    eta = np.empty(m)
    p = np.empty((m, m))
    q = np.empty((m, m))
    future = np.empty((m, m))  # the N of the literature
    gain = np.empty((m, m))
    half = np.empty((m, m))
    integrals = np.empty(2 * m - 1)
    for t in range(step.shape[0] - 1, -1, -1):
        r[0] += dual[t]
        unpack(adjoint[t], future)
        tau[t] = max(min(rate * step[t], FORGOTTEN), _SHORTEST)
        if t == 0:
            unpack(covariances[0], p)
            for i in range(m):
                a[i] = means[0, i]
                for j in range(m):
                    a[i] += p[i, j] * r[j]
            moment(p, a, a, first)
            take(p, future, p, half, first)
            return
        for i in range(m):
            a[i] = means[t - 1, i]
        unpack(covariances[t - 1], p)
        ratio = 1.0 + weight[t - 1] * p[0, 0]
        update(shift, ratio, weight[t - 1] / ratio, target[t - 1] - a[0], a, p)
        decay = math.exp(-tau[t])
        for i in range(m):  # P Φᵀ
            gain[i] = p[i]
            push(shift, tau[t], decay, gain[i])
        integrate(tau[t], integrals)
        white(shift, stationary[m - 1, m - 1], integrals, q)
        for i in range(m):
            eta[i] = 0.0
            for j in range(m):
                a[i] += gain[i, j] * r[j]
                eta[i] += q[i, j] * r[j]
        moment(q, eta, eta, noise[t])
        take(q, future, q, half, noise[t])
        for i in range(m):
            for j in range(m):
                cross[t, i, j] = eta[i] * a[j]
        take(q, future, gain, half, cross[t])
        moment(p, a, a, previous[t])
        take(gain, future, gain, half, previous[t])
        pull(shift, tau[t], decay, r)


@compiled
def smoothed_states(
    shift, stationary, rate, step, means, covariances, dual, tau, states, moved
):  # fmt: skip
    """Fill the posterior means of the states u and of their e, (n, m) each, and ``tau`` (n,).

    From the stored results of both passes; e_t = u_t − Φ u_{t−1} is Q times the smoother's vector
    r, with all its digits. That of the first state is 0.
    """
    m = len(shift)
    r = np.zeros(m)
    q = np.empty((m, m))
    p = np.empty((m, m))
    integrals = np.empty(2 * m - 1)
    for t in range(step.shape[0] - 1, -1, -1):
        r[0] += dual[t]
        unpack(covariances[t], p)
        tau[t] = max(min(rate * step[t], FORGOTTEN), _SHORTEST)
        integrate(tau[t], integrals)
        white(shift, stationary[m - 1, m - 1], integrals, q)
        for i in range(m):
            states[t, i] = means[t, i]
            moved[t, i] = 0.0
            for j in range(m):
                states[t, i] += p[i, j] * r[j]
                if t > 0:
                    moved[t, i] += q[i, j] * r[j]
        if t > 0:
            pull(shift, tau[t], math.exp(-tau[t]), r)


@compiled
def expected_log_density(shift, unit, tau, log_ratio, first, noise, cross, previous):
    """Return Σ log det Q̃ and Σ tr(Q̃⁻¹ E[e eᵀ]) of all states at ρ, and their derivatives by log ρ.

    ``unit`` is P∞ of variance 1, Q̃ the covariance of variance 1 that a step adds (of the first
    state P∞), and e = M u_t − Φ M u_{t−1}; the rest is what ``disturbances`` filled.
    """
    m = len(shift)
    ratio = math.exp(log_ratio)
    move, d_move, terms, d_terms = series(shift, log_ratio)
    psi = np.zeros((m, m))
    d_psi = np.zeros((m, m))
    q = unit.copy()
    d_q = np.zeros((m, m))
    integrals = np.empty(2 * m - 1)
    work = np.empty((4, m, m))
    log_det, trace, d_log_det, d_trace = quadratic(
        q, d_q, move, d_move, psi, d_psi, first, d_q, d_q, work
    )
    for t in range(1, tau.shape[0]):
        here = tau[t]
        there = min(ratio * here, FORGOTTEN)
        reach = here * max(1.0, ratio)
        if reach <= 1.0:
            evaluate_series(here, reach, terms, psi)
            evaluate_series(here, reach, d_terms, d_psi)
        else:
            difference(shift, here, there, move, d_move, psi, d_psi)
        decaying_powers(there, integrals)
        white(shift, unit[m - 1, m - 1], integrals, q)
        power = there * math.exp(-2.0 * there)
        for k in range(2 * m - 1):  # their derivatives by log τ
            integrals[k] = power
            power *= there
        white(shift, unit[m - 1, m - 1], integrals, d_q)
        parts = quadratic(q, d_q, move, d_move, psi, d_psi, noise[t], cross[t], previous[t], work)
        log_det += parts[0]
        trace += parts[1]
        d_log_det += parts[2]
        d_trace += parts[3]
    return log_det, trace, d_log_det, d_trace


@compiled
def quadratic(q, d_q, move, d_move, psi, d_psi, noise, cross, previous, work):
    """Compute log det Q and tr(Q⁻¹ E[e eᵀ]) of one step, e = M e₀ − Ψ u, and their derivatives."""
    m = q.shape[0]
    root, inverse, by_noise, by_previous = work[0], work[1], work[2], work[3]
    log_det = inverse_of(q, root, inverse)
    # E[e e₀ᵀ] and E[e uᵀ]
    for i in range(m):
        for j in range(m):
            total = 0.0
            other = 0.0
            for k in range(m):
                total += move[i, k] * noise[k, j] - psi[i, k] * cross[j, k]
                other += move[i, k] * cross[k, j] - psi[i, k] * previous[k, j]
            by_noise[i, j] = total
            by_previous[i, j] = other
    trace = 0.0
    d_log_det = 0.0
    d_trace = 0.0
    # root ← E[e eᵀ], then Q⁻¹ (dQ Q⁻¹ E[e eᵀ] − 2 E[de eᵀ]) entry by entry
    for i in range(m):
        for j in range(m):
            total = 0.0
            changed = 0.0
            for k in range(m):
                total += by_noise[i, k] * move[j, k] - by_previous[i, k] * psi[j, k]
                changed += d_move[i, k] * by_noise[j, k] - d_psi[i, k] * by_previous[j, k]
            root[i, j] = total
            trace += inverse[i, j] * total
            d_log_det += inverse[i, j] * d_q[i, j]
            d_trace += 2.0 * inverse[i, j] * changed
    for i in range(m):
        for j in range(m):
            left = 0.0  # (Q⁻¹ dQ) and (Q⁻¹ E[e eᵀ])ᵀ
            right = 0.0
            for k in range(m):
                left += inverse[i, k] * d_q[k, j]
                right += inverse[j, k] * root[k, i]
            d_trace -= left * right
    return log_det, trace, d_log_det, d_trace


@compiled
def inverse_of(q, root, inverse):
    """Fill ``inverse`` with Q⁻¹ and return log det Q; pivots keep the digits of graded entries."""
    m = q.shape[0]
    log_det = 0.0
    for j in range(m):
        for i in range(j, m):
            total = q[i, j]
            for k in range(j):
                total -= root[i, k] * root[j, k]
            if i == j:
                root[j, j] = math.sqrt(total)
                log_det += 2.0 * math.log(root[j, j])
            else:
                root[i, j] = total / root[j, j]
    for j in range(m):  # in place of the factor
        root[j, j] = 1.0 / root[j, j]
        for i in range(j + 1, m):
            total = 0.0
            for k in range(j, i):
                total -= root[i, k] * root[k, j]
            root[i, j] = total / root[i, i]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(max(i, j), m):
                total += root[k, i] * root[k, j]
            inverse[i, j] = total
    return log_det


@compiled
def series(shift, log_ratio):
    """Return M, dM / d log ρ, and the series of Ψ(τ₀) = Φ(ρ τ₀) M − M Φ(τ₀) and its derivative.

    In the coordinates v a transition is exp(A τ₀), A the companion matrix, of which ρ changes the
    last row only. The powers of both matrices, and so their difference, agree in row i up to the
    power m − i, exactly: Ψ is as accurate, row by row, as the tiny e that it is compared with.
    """
    m = len(shift)
    upper = np.zeros((m, m))  # B diag(ρ^-k), its derivative, and B⁻¹
    d_upper = np.zeros((m, m))
    inverse = np.zeros((m, m))
    for i in range(m):
        for j in range(i + 1):
            binomial = shift[j] * shift[i - j] / shift[i]
            upper[i, j] = binomial * math.exp(-j * log_ratio)
            d_upper[i, j] = -j * upper[i, j]
            inverse[i, j] = binomial if (i - j) % 2 == 0 else -binomial
    last = np.empty((4, m))  # rows of A at 1 and at ρ, their difference, and its derivative
    binomial = 1.0
    for j in range(m):
        last[0, j] = -binomial
        last[1, j] = -binomial * math.exp((m - j) * log_ratio)
        last[2, j] = -binomial * math.expm1((m - j) * log_ratio)
        last[3, j] = (m - j) * last[1, j]
        binomial *= (m - j) / (j + 1.0)
    powers = np.zeros((4, m, m))  # A₀^k / k!, A^k / k!, A^k / k! − A₀^k / k!, its derivative
    for i in range(m):
        powers[0, i, i] = 1.0
        powers[1, i, i] = 1.0
    terms = np.zeros((_TERMS, m, m))
    d_terms = np.zeros((_TERMS, m, m))
    for k in range(1, _TERMS):
        after = np.zeros((4, m, m))
        for which in range(4):
            row = last[0] if which == 0 else last[1]
            for j in range(m):
                for i in range(m - 1):
                    after[which, i, j] = powers[which, i + 1, j] / k
                total = 0.0
                for i in range(m):
                    total += row[i] * powers[which, i, j]
                    if which >= 2:
                        total += last[which, i] * powers[which - 2, i, j]
                after[which, m - 1, j] = total / k
        powers = after
        add_product(upper, powers[2], inverse, terms[k])
        add_product(d_upper, powers[2], inverse, d_terms[k])
        add_product(upper, powers[3], inverse, d_terms[k])
    move = np.zeros((m, m))
    d_move = np.zeros((m, m))
    unit = np.eye(m)
    add_product(upper, unit, inverse, move)
    add_product(d_upper, unit, inverse, d_move)
    return move, d_move, terms, d_terms


@compiled
def add_product(left, middle, right, out):
    """Add left middle right to ``out``."""
    m = out.shape[0]
    for i in range(m):
        for j in range(m):
            for k in range(m):
                for n in range(m):
                    out[i, j] += left[i, k] * middle[k, n] * right[n, j]


@compiled
def evaluate_series(tau, reach, terms, out):
    """Fill ``out`` with Σ τ^k terms[k], as many as matter where ``reach`` is max(τ, ρ τ)."""
    m = out.shape[0]
    n_terms = _TERMS if reach > 0.1 else 14 if reach > 0.005 else 9
    for i in range(m):
        for j in range(m):
            total = terms[n_terms - 1, i, j]
            for k in range(n_terms - 2, -1, -1):
                total = total * tau + terms[k, i, j]
            out[i, j] = total


@compiled
def difference(shift, here, there, move, d_move, psi, d_psi):
    """Fill Ψ = Φ(ρ τ₀) M − M Φ(τ₀) and its derivative where steps are long, from both products."""
    m = len(shift)
    after = math.exp(-there)
    before = math.exp(-here)
    column = np.empty(m)
    d_column = np.empty(m)
    for j in range(m):
        for i in range(m):
            column[i] = move[i, j]
            d_column[i] = d_move[i, j]
        push(shift, there, after, column)
        push(shift, there, after, d_column)
        for i in range(m):  # dΦ = τ (S − I) Φ
            total = column[i + 1] if i + 1 < m else 0.0
            d_column[i] += there * (total - column[i])
            psi[i, j] = column[i]
            d_psi[i, j] = d_column[i]
    for i in range(m):
        for k in range(m):
            column[k] = move[i, k]
            d_column[k] = d_move[i, k]
        pull(shift, here, before, column)
        pull(shift, here, before, d_column)
        for j in range(m):
            psi[i, j] -= column[j]
            d_psi[i, j] -= d_column[j]


@compiled
def decaying_powers(tau, out):
    """Fill out[n] with the integral of e^{-2s} s^n from 0 to τ; faster than ``integrate``."""
    if tau >= 1.0:
        integrate(tau, out)
        return
    # The last one by a series of positive terms, and from each the one before.
    n = out.shape[0] - 1
    term = math.exp(-2.0 * tau) * tau
    for k in range(n):
        out[k] = term  # e^{-2τ} τ^{k+1}
        term *= tau
    total = 0.0
    term /= n + 1
    k = n + 1
    while total + term > total:
        total += term
        k += 1
        term *= 2.0 * tau / k
    out[n] = total
    for k in range(n, 0, -1):
        out[k - 1] = (2.0 * out[k] + out[k - 1]) / k


@compiled
def white(shift, last, integrals, out):
    """Fill ``out`` with the covariance of what ``integrals`` of e^{-2s} s^n add to the state."""
    m = len(shift)
    for i in range(m):
        for j in range(m):
            a = m - 1 - i
            b = m - 1 - j
            out[i, j] = 2.0 * last * shift[a] * shift[b] * integrals[a + b]


@compiled
def unpack(triangle, out):
    """Fill a symmetric matrix from the rows of its upper triangle."""
    m = out.shape[0]
    k = 0
    for i in range(m):
        for j in range(i, m):
            out[i, j] = triangle[k]
            out[j, i] = triangle[k]
            k += 1


@compiled
def moment(covariance, mean, other, out):
    """Fill ``out`` with covariance + mean otherᵀ."""
    for i in range(out.shape[0]):
        for j in range(out.shape[0]):
            out[i, j] = covariance[i, j] + mean[i] * other[j]


@compiled
def take(left, middle, right, half, out):
    """Subtract left middle rightᵀ from ``out``."""
    m = out.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(m):
                total += left[i, k] * middle[k, j]
            half[i, j] = total
    for i in range(m):
        for j in range(m):
            for k in range(m):
                out[i, j] -= half[i, k] * right[j, k]
