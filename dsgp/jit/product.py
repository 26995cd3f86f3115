"""Products with the prior covariance, and predictions between the points of an axis.

K is semiseparable: K v at the points is one forward and one backward accumulation, and at any
other input the same two accumulations, carried there from its two neighbours. Each new input is
computed by itself, so its result cannot depend on which others share the call. Conventions are
those of ``filter``; ``left`` and ``right`` are the points beside each input, at or before it and
after it, negative where there is none.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.filter import predict, update
from dsgp.jit.flags import compiled
from dsgp.jit.transition import pull, push, scaled


@compiled
def multiply(shift, stationary, rate, step, vector, out):
    """Fill ``out`` (n,) with K @ vector, in O(n m²)."""
    m = len(shift)
    n = vector.shape[0]
    c = np.zeros(m)
    for t in range(n):
        if t > 0:
            tau = scaled(rate, step[t])
            push(shift, tau, math.exp(-tau), c)
        for i in range(m):
            c[i] += stationary[i, 0] * vector[t]
        out[t] = c[0]
    for i in range(m):
        c[i] = 0.0
    for t in range(n - 2, -1, -1):
        c[0] += vector[t + 1]
        tau = scaled(rate, step[t + 1])
        pull(shift, tau, math.exp(-tau), c)
        total = out[t]
        for i in range(m):
            total += stationary[i, 0] * c[i]
        out[t] = total


@compiled
def accumulate(shift, stationary, rate, step, vector, forward, backward):
    """Fill both accumulations (n, m): what points up to t, and from t on, contribute elsewhere."""
    m = len(shift)
    n = vector.shape[0]
    c = np.zeros(m)
    for t in range(n):
        if t > 0:
            tau = scaled(rate, step[t])
            push(shift, tau, math.exp(-tau), c)
        for i in range(m):
            c[i] += stationary[i, 0] * vector[t]
            forward[t, i] = c[i]
    for i in range(m):
        c[i] = 0.0
    for t in range(n - 1, -1, -1):
        if t < n - 1:
            tau = scaled(rate, step[t + 1])
            pull(shift, tau, math.exp(-tau), c)
        c[0] += vector[t]
        for i in range(m):
            backward[t, i] = c[i]


@compiled
def evaluate(shift, stationary, rate, points, forward, backward, inputs, left, right, value, slope):
    """Fill ``value`` and ``slope`` (by the input) of x ↦ k(x, points) @ vector at ``inputs``.

    ``slope`` is filled where its length is not 0.
    """
    m = len(shift)
    want_slope = slope.shape[0] > 0
    c = np.empty(m)
    b = np.empty(m)
    for k in range(inputs.shape[0]):
        before = left[k]
        after = right[k]
        total = 0.0
        rise = 0.0
        if before >= 0:
            for i in range(m):
                c[i] = forward[before, i]
            tau = scaled(rate, inputs[k] - points[before])
            push(shift, tau, math.exp(-tau), c)
            total += c[0]
            rise -= c[0]
            if m > 1:
                rise += c[1]
        if after >= 0:
            for i in range(m):
                b[i] = backward[after, i]
            tau = scaled(rate, points[after] - inputs[k])
            pull(shift, tau, math.exp(-tau), b)
            # Φᵀ b moves by Aᵀ Φᵀ b as τ grows, and τ shrinks as the input grows.
            for i in range(m):
                total += stationary[0, i] * b[i]
                rise += stationary[0, i] * b[i]
                if i > 0:
                    rise -= stationary[0, i] * b[i - 1]
        value[k] = total
        if want_slope:
            slope[k] = rate * rise


@compiled
def posterior_variance(
    shift, stationary, rate, points, weight, covariances, adjoint, inputs, left, right, variance
):
    """Fill the posterior variance at ``inputs`` from the stored states of the two neighbours.

    ``covariances`` are the predicted ones of ``filter_states`` and ``adjoint`` the N of ``smooth``,
    both (n, m (m + 1) / 2).
    """
    m = len(shift)
    a = np.zeros(m)
    p = np.empty((m, m))
    q = np.empty((m, m))
    half = np.empty((m, m))
    for k in range(inputs.shape[0]):
        before = left[k]
        after = right[k]
        for i in range(m):
            for j in range(m):
                p[i, j] = stationary[i, j]
        if before >= 0:
            _unpack(covariances, before, p)
            ratio = 1.0 + weight[before] * p[0, 0]
            update(shift, ratio, weight[before] / ratio, 0.0, a, p)
            tau = scaled(rate, inputs[k] - points[before])
            predict(shift, stationary, tau, a, p, half)
        total = p[0, 0]
        if after >= 0:
            _unpack(adjoint, after, q)
            # N is pulled back to the input: hᵀ P Φᵀ N Φ P h, by pushing P h forward.
            for i in range(m):
                half[0, i] = p[i, 0]
            tau = scaled(rate, points[after] - inputs[k])
            push(shift, tau, math.exp(-tau), half[0])
            for i in range(m):
                for j in range(m):
                    total -= half[0, i] * q[i, j] * half[0, j]
        variance[k] = max(total, 0.0)


@compiled
def _unpack(packed, t, matrix):
    m = matrix.shape[0]
    k = 0
    for i in range(m):
        for j in range(i, m):
            matrix[i, j] = packed[t, k]
            matrix[j, i] = packed[t, k]
            k += 1


@compiled
def accumulate_many(shift, stationary, rate, step, vectors, forward, backward):
    """Fill both accumulations (n, m, r) of several vectors (n, r)."""
    m = len(shift)
    n, r = vectors.shape
    for t in range(n):
        for i in range(m):
            for k in range(r):
                forward[t, i, k] = stationary[i, 0] * vectors[t, k]
        if t > 0:
            tau = scaled(rate, step[t])
            decay = math.exp(-tau)
            for i in range(m):
                power = decay
                for j in range(i, m):
                    factor = power * shift[j - i]
                    power *= tau
                    for k in range(r):
                        forward[t, i, k] += factor * forward[t - 1, j, k]
    for t in range(n - 1, -1, -1):
        for i in range(m):
            for k in range(r):
                backward[t, i, k] = vectors[t, k] if i == 0 else 0.0
        if t < n - 1:
            tau = scaled(rate, step[t + 1])
            decay = math.exp(-tau)
            for i in range(m):
                power = decay
                for j in range(i, -1, -1):
                    factor = power * shift[i - j]
                    power *= tau
                    for k in range(r):
                        backward[t, i, k] += factor * backward[t + 1, j, k]


@compiled
def evaluate_many(shift, stationary, rate, points, forward, backward, inputs, left, right, out):
    """Add r sums x ↦ k(x, points) @ vector_k at ``inputs`` to ``out`` (n_inputs, r).

    ``forward`` and ``backward`` (n, m, r) hold the accumulations of every vector.
    """
    m = len(shift)
    r = out.shape[1]
    one = np.empty(m)
    for k in range(inputs.shape[0]):
        before = left[k]
        after = right[k]
        if before >= 0:
            # First row of Φ: what each component of the accumulation adds to the function.
            tau = scaled(rate, inputs[k] - points[before])
            power = math.exp(-tau)
            for i in range(m):
                factor = power * shift[i]
                power *= tau
                for j in range(r):
                    out[k, j] += factor * forward[before, i, j]
        if after >= 0:
            tau = scaled(rate, points[after] - inputs[k])
            for i in range(m):
                one[i] = stationary[i, 0]
            push(shift, tau, math.exp(-tau), one)
            for i in range(m):
                factor = one[i]
                for j in range(r):
                    out[k, j] += factor * backward[after, i, j]
