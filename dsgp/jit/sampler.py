"""Draws of the prior along one sorted axis. Conventions are those of ``filter``."""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.filter import predict
from dsgp.jit.flags import compiled
from dsgp.jit.transition import push, scaled


@compiled
def simulate(shift, stationary, rate, step, normal, out):
    """Fill ``out`` (n,) with a draw, from standard normal numbers ``normal`` (n, m).

    The state moves by Φ and gets noise of covariance Q = P∞ − Φ P∞ Φᵀ. Of a tiny step Q is rounding
    error to some extent, which the factor cuts at 0: the draw is good to about 1e-8 of the prior's
    standard deviation.
    """
    m = len(shift)
    state = np.zeros(m)
    spread = np.zeros((m, m))
    half = np.empty((m, m))
    nothing = np.zeros(m)
    for t in range(step.shape[0]):
        for i in range(m):
            for j in range(m):
                spread[i, j] = 0.0 if t > 0 else stationary[i, j]
        if t > 0:
            tau = scaled(rate, step[t])
            push(shift, tau, math.exp(-tau), state)
            predict(shift, stationary, tau, nothing, spread, half)
        factorise(spread)
        for i in range(m):
            for j in range(i + 1):
                state[i] += spread[i, j] * normal[t, j]
        out[t] = state[0]


@compiled
def factorise(matrix):
    """Replace a covariance by its lower Cholesky factor; pivots below rounding become 0."""
    m = matrix.shape[0]
    for j in range(m):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        root = math.sqrt(pivot) if pivot > 1e-16 * abs(matrix[j, j]) else 0.0
        for i in range(j + 1, m):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / root if root > 0.0 else 0.0
        matrix[j, j] = root
