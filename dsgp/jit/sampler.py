"""Draws of the prior along one sorted axis. Conventions are those of ``filter``."""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.flags import compiled
from dsgp.jit.transition import push, scaled


@compiled
def simulate(shift, stationary, rate, step, normal, out, states, moved):
    """Fill ``out`` (n,) with a draw, from standard normal numbers ``normal`` (n, m).

    The state moves by Φ and gets noise of covariance Q, which is as small as a high power of τ: it
    is integrated, not computed as a difference of covariances. Where their length is not 0,
    ``states`` (n, m) gets all states, and ``moved`` (n, m) the noise that led to them; that of the
    first state is 0.
    """
    m = len(shift)
    keep = states.shape[0] > 0
    state = np.zeros(m)
    spread = np.empty((m, m))
    integrals = np.empty(2 * m - 1)
    for t in range(step.shape[0]):
        if t > 0:
            tau = scaled(rate, step[t])
            push(shift, tau, math.exp(-tau), state)
            integrate(tau, integrals)
            # u_i is white noise of intensity 2 P∞[m-1, m-1], filtered by e^{-s} s^a / a! with
            # a = m-1-i.
            for i in range(m):
                for j in range(m):
                    a = m - 1 - i
                    b = m - 1 - j
                    spread[i, j] = (
                        2.0 * stationary[m - 1, m - 1] * shift[a] * shift[b] * integrals[a + b]
                    )
        else:
            for i in range(m):
                for j in range(m):
                    spread[i, j] = stationary[i, j]
        factorise(spread)
        for i in range(m):
            noise = 0.0
            for j in range(i + 1):
                state[i] += spread[i, j] * normal[t, j]
                noise += spread[i, j] * normal[t, j]
            if keep:
                states[t, i] = state[i]
                moved[t, i] = noise if t > 0 else 0.0
        out[t] = state[0]


@compiled
def integrate(tau, out):
    """Fill out[n] with the integral of e^{-2s} s^n from 0 to τ, to a few ulps."""
    if tau < 1.0:
        power = tau
        for n in range(out.shape[0]):
            term = 1.0
            total = 0.0
            for k in range(40):
                total += term / (n + k + 1)
                term *= -2.0 * tau / (k + 1)
            out[n] = power * total
            power *= tau
        return
    decay = math.exp(-2.0 * tau)
    out[0] = 0.5 * (1.0 - decay)
    for n in range(1, out.shape[0]):
        decay *= tau
        out[n] = 0.5 * (n * out[n - 1] - decay)


@compiled
def factorise(matrix):
    """Replace a covariance by its lower Cholesky factor; a pivot lost to rounding becomes 0."""
    m = matrix.shape[0]
    for j in range(m):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        root = math.sqrt(pivot) if pivot > 0.0 else 0.0
        for i in range(j + 1, m):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / root if root > 0.0 else 0.0
        matrix[j, j] = root
