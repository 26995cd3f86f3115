"""Products with the covariance of any Gauss–Markov process, predictions and draws of it.

K is semiseparable: K v is one forward and one backward accumulation, as in ``product``, and at any
other input the same two, carried there from its two neighbours. Each new input is computed by
itself. Conventions are those of ``markov`` and ``exponential``; ``left`` and ``right`` are the
points beside each input, negative where there is none, and ``through`` is P∞ h.
"""

from __future__ import annotations

import numpy as np

from dsgp.jit.chain import unpack
from dsgp.jit.exponential import dot, process_noise, pull_blocks, push_blocks, transition
from dsgp.jit.flags import compiled
from dsgp.jit.markov import condition_on, observe, predict_state
from dsgp.jit.sampler import factorise


@compiled
def accumulate_process(low, high, h, through, phi, which, vectors, forward, backward):
    """Fill both accumulations (n, r, m) of several vectors (n, r).

    They are what the points up to t, and from t on, contribute elsewhere.
    """
    m = h.shape[0]
    n, r = vectors.shape
    moved = np.zeros(m)
    for t in range(n):
        for k in range(r):
            if t > 0:
                push_blocks(low, high, phi[which[t]], forward[t - 1, k], moved)
            for i in range(m):
                forward[t, k, i] = moved[i] + through[i] * vectors[t, k]
    moved[:] = 0.0
    for t in range(n - 1, -1, -1):
        for k in range(r):
            if t < n - 1:
                pull_blocks(low, high, phi[which[t + 1]], backward[t + 1, k], moved)
            for i in range(m):
                backward[t, k, i] = moved[i] + h[i] * vectors[t, k]


@compiled
def multiply_process(low, high, h, through, phi, which, vector, out):
    """Fill ``out`` (n,) with K @ vector, in O(n m²)."""
    m = h.shape[0]
    n = vector.shape[0]
    state, moved = np.zeros(m), np.empty(m)
    for t in range(n):
        if t > 0:
            push_blocks(low, high, phi[which[t]], state, moved)
            state[:] = moved
        for i in range(m):
            state[i] += through[i] * vector[t]
        out[t] = dot(h, state)
    state[:] = 0.0
    for t in range(n - 2, -1, -1):
        for i in range(m):
            state[i] += h[i] * vector[t + 1]
        pull_blocks(low, high, phi[which[t + 1]], state, moved)
        state[:] = moved
        out[t] += dot(through, state)


@compiled
def evaluate_process(
    low, high, h, through, terms, norm, points, forward, backward, inputs, left, right, out
):  # fmt: skip
    """Add r sums x ↦ k(x, points) @ vector_k at ``inputs`` to ``out`` (n_inputs, r).

    ``forward`` and ``backward`` (n, r, m) are the accumulations of every vector.
    """
    m = h.shape[0]
    phi, spare, row = np.empty((m, m)), np.empty((m, m)), np.empty(m)
    for k in range(inputs.shape[0]):
        before, after = left[k], right[k]
        if before >= 0:
            transition(terms, norm, high, inputs[k] - points[before], phi, spare)
            pull_blocks(low, high, phi, h, row)
            for j in range(out.shape[1]):
                out[k, j] += dot(row, forward[before, j])
        if after >= 0:
            transition(terms, norm, high, points[after] - inputs[k], phi, spare)
            push_blocks(low, high, phi, through, row)
            for j in range(out.shape[1]):
                out[k, j] += dot(row, backward[after, j])


@compiled
def process_variance(
    low, high, h, stationary, terms, norm, points, weight, covariances, adjoint,
    inputs, left, right, variance,
):  # fmt: skip
    """Fill the posterior variance at ``inputs`` from the stored states of the two neighbours.

    ``covariances`` are the predicted ones of ``filter_process`` and ``adjoint`` the N of
    ``smooth_process``, both (n, m (m + 1) / 2).
    """
    m = h.shape[0]
    a, gain, moved = np.zeros(m), np.empty(m), np.empty(m)
    p, q = np.empty((m, m)), np.empty((m, m))
    phi, half = np.empty((m, m)), np.empty((m, m))
    for k in range(inputs.shape[0]):
        before, after = left[k], right[k]
        p[:] = stationary
        if before >= 0:
            unpack(covariances[before], p)
            _, ratio = observe(h, weight[before], p, gain)
            condition_on(gain, weight[before] / ratio, 0.0, a, p)
            transition(terms, norm, high, inputs[k] - points[before], phi, half)
            predict_state(low, high, stationary, phi, a, p, moved, half)
        total, _ = observe(h, 0.0, p, gain)
        if after >= 0:
            unpack(adjoint[after], q)
            # N is pulled back to the input: hᵀ P Φᵀ N Φ P h, by pushing P h forward.
            transition(terms, norm, high, points[after] - inputs[k], phi, half)
            push_blocks(low, high, phi, gain, moved)
            for i in range(m):
                total -= moved[i] * dot(q[i], moved)
        variance[k] = max(total, 0.0)


@compiled
def process_covariance(low, high, h, through, phi, which, out):
    """Fill ``out`` (n, n) with the covariances of the function at all points."""
    m = h.shape[0]
    n = which.shape[0]
    state, moved = np.empty(m), np.empty(m)
    for t in range(n):
        state[:] = through
        out[t, t] = dot(h, state)
        for u in range(t + 1, n):
            push_blocks(low, high, phi[which[u]], state, moved)
            state[:] = moved
            out[t, u] = dot(h, state)
            out[u, t] = out[t, u]


@compiled
def covariance_between(low, high, h, through, terms, norm, x, y, out):
    """Fill ``out`` (n, k) with the covariances of the function at x and y, pair by pair.

    Each depends on its own two inputs only, to the last bit.
    """
    m = h.shape[0]
    phi, spare, row = np.empty((m, m)), np.empty((m, m)), np.empty(m)
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            transition(terms, norm, high, abs(x[i] - y[j]), phi, spare)
            push_blocks(low, high, phi, through, row)
            out[i, j] = dot(h, row)


@compiled
def simulate_process(
    low, high, h, stationary, phi, which, terms, noise_terms, norm, steps, normal, out
):  # fmt: skip
    """Fill ``out`` (n,) with a draw, from standard normal numbers ``normal`` (n, m).

    The noise of a step is integrated, not computed as a difference of covariances.
    """
    m = h.shape[0]
    state, moved = np.zeros(m), np.empty(m)
    noise, move, spare = np.empty((m, m)), np.empty((m, m)), np.empty((m, m))
    for t in range(which.shape[0]):
        step = steps[which[t]]
        if t > 0 and step < np.inf:
            push_blocks(low, high, phi[which[t]], state, moved)
            state[:] = moved
            process_noise(terms, noise_terms, norm, high, stationary, step, noise, move, spare)
        else:
            state[:] = 0.0
            noise[:] = stationary
        factorise(noise)
        for i in range(m):
            for j in range(i + 1):
                state[i] += noise[i, j] * normal[t, j]
        out[t] = dot(h, state)
