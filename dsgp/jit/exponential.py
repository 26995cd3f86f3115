"""Transitions exp(F s) of any Gauss–Markov process, block by block, and their derivatives.

F is block diagonal: the rows i of a block have ``low[i]`` and ``high[i]``, its first component and
the one after its last, and ``norm[i]``, a bound of its entries that τ = norm s is in units of.
``terms[k]`` is (F / norm)^k / k!. A step is halved until τ <= 1/2, where the series is exact, and
the result is squared as often: block by block, as a slow process beside a quick one would lose its
digits in the squares that the quick one needs.
"""

from __future__ import annotations

import numpy as np

from dsgp.jit.flags import compiled

# Number of terms of the series: 0.5^16 / 16! is below rounding.
N_TERMS = 16
# After this many squares the state is forgotten, or its phase has no digits left.
MOST_DOUBLINGS = 50


@compiled
def halved(tau):
    """Return τ halved until it is no more than 1/2, how often, and how many terms matter."""
    doublings = 0
    while tau > 0.5:
        tau *= 0.5
        doublings += 1
    n_terms = N_TERMS if tau > 0.1 else 11 if tau > 0.01 else 8 if tau > 1e-3 else 6
    return tau, doublings, n_terms


@compiled
def series(terms, start, stop, tau, n_terms, phi):
    """Fill a block of ``phi`` with Σ τ^k terms[k]."""
    for i in range(start, stop):
        for j in range(start, stop):
            total = terms[n_terms - 1, i, j]
            for k in range(n_terms - 2, -1, -1):
                total = total * tau + terms[k, i, j]
            phi[i, j] = total


@compiled
def square(start, stop, phi, out):
    """Fill a block of ``out`` with the square of that of ``phi``."""
    for i in range(start, stop):
        for j in range(start, stop):
            total = 0.0
            for k in range(start, stop):
                total += phi[i, k] * phi[k, j]
            out[i, j] = total


@compiled
def transition(terms, norm, high, step, phi, spare):
    """Fill ``phi`` (m, m) with Φ, which is 0 for an infinite step."""
    m = phi.shape[0]
    for i in range(m):
        for j in range(m):
            phi[i, j] = 0.0
    if not step < np.inf:
        return
    start = 0
    while start < m:
        stop = high[start]
        tau = norm[start] * step
        if tau < 2.0 ** (MOST_DOUBLINGS - 1):
            tau, doublings, n_terms = halved(tau)
            series(terms, start, stop, tau, n_terms, phi)
            for _ in range(doublings):
                square(start, stop, phi, spare)
                for i in range(start, stop):
                    for j in range(start, stop):
                        phi[i, j] = spare[i, j]
        start = stop


@compiled
def transitions(terms, norm, high, steps, phi):
    """Fill ``phi`` (u, m, m) with Φ of every step (u,)."""
    spare = np.empty(phi.shape[1:])
    for k in range(steps.shape[0]):
        transition(terms, norm, high, steps[k], phi[k], spare)


@compiled
def pull_slope(terms, norm, high, step, gradient, sums, stack, spare):
    """Convert a derivative by Φ to one by the terms of its series, added to ``sums``.

    ``sums`` is (N_TERMS, m, m). ``gradient`` (m, m) holds the derivatives by the entries of Φ and
    is overwritten; ``stack`` (MOST_DOUBLINGS + 1, m, m) is scratch for the squares.
    """
    m = gradient.shape[0]
    if not step < np.inf:
        return
    start = 0
    while start < m:
        stop = high[start]
        tau = norm[start] * step
        if tau < 2.0 ** (MOST_DOUBLINGS - 1):
            tau, doublings, n_terms = halved(tau)
            if doublings > 0:
                series(terms, start, stop, tau, n_terms, stack[0])
            for d in range(1, doublings):
                square(start, stop, stack[d - 1], stack[d])
            for d in range(doublings - 1, -1, -1):
                back_through_square(start, stop, stack[d], gradient, spare)
            power = 1.0
            for k in range(1, n_terms):
                power *= tau
                for i in range(start, stop):
                    for j in range(start, stop):
                        sums[k, i, j] += power * gradient[i, j]
        start = stop


@compiled
def back_through_square(start, stop, phi, gradient, spare):
    """G ← Φᵀ G + G Φᵀ in a block: the derivative by Φ, of that by its square."""
    for i in range(start, stop):
        for j in range(start, stop):
            total = 0.0
            for k in range(start, stop):
                total += phi[k, i] * gradient[k, j] + gradient[i, k] * phi[j, k]
            spare[i, j] = total
    for i in range(start, stop):
        for j in range(start, stop):
            gradient[i, j] = spare[i, j]


@compiled
def process_noise(terms, noise_terms, norm, high, stationary, step, noise, phi, spare):
    """Fill ``noise`` (m, m) with Q = ∫₀ˢ exp(F a) D exp(Fᵀ a) da, by sums of positive parts.

    ``noise_terms[k]`` is the coefficient of τ^k in its series. ``phi`` becomes Φ.
    """
    m = noise.shape[0]
    for i in range(m):
        for j in range(m):
            noise[i, j] = 0.0
            phi[i, j] = 0.0
    start = 0
    while start < m:
        stop = high[start]
        if norm[start] * step >= 2.0 ** (MOST_DOUBLINGS - 1):  # forgotten: Φ = 0
            noise[start:stop, start:stop] = stationary[start:stop, start:stop]
            start = stop
            continue
        tau, doublings, n_terms = halved(norm[start] * step)
        series(terms, start, stop, tau, n_terms, phi)
        series(noise_terms, start, stop, tau, n_terms, noise)
        for _ in range(doublings):
            for i in range(start, stop):  # Q + Φ Q Φᵀ
                for j in range(start, stop):
                    total = 0.0
                    for k in range(start, stop):
                        total += phi[i, k] * noise[k, j]
                    spare[i, j] = total
            for i in range(start, stop):
                for j in range(start, stop):
                    total = 0.0
                    for k in range(start, stop):
                        total += spare[i, k] * phi[j, k]
                    noise[i, j] += total
            square(start, stop, phi, spare)
            for i in range(start, stop):
                for j in range(start, stop):
                    phi[i, j] = spare[i, j]
        start = stop


@compiled
def push_blocks(low, high, phi, vector, out):
    """Fill ``out`` (m,) with Φ vector."""
    for i in range(vector.shape[0]):
        total = 0.0
        for j in range(low[i], high[i]):
            total += phi[i, j] * vector[j]
        out[i] = total


@compiled
def pull_blocks(low, high, phi, vector, out):
    """Fill ``out`` (m,) with Φᵀ vector."""
    for i in range(vector.shape[0]):
        total = 0.0
        for j in range(low[i], high[i]):
            total += phi[j, i] * vector[j]
        out[i] = total


@compiled
def dot(first, second):
    """Sum of products; NumPy's needs a library that may be threaded."""
    total = 0.0
    for i in range(first.shape[0]):
        total += first[i] * second[i]
    return total
