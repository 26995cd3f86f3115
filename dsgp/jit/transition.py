"""Products with Φ(τ) = exp(-τ) exp(Sτ), S the upward shift, on vectors of m components.

``shift`` is the tuple of 1/k!, k < m: its *type* gives the compiler m, so that all small loops
unroll. ``decay`` is exp(-τ), which some passes keep.
"""

from __future__ import annotations

from dsgp.jit.flags import compiled

# exp(-800) is 0 in float64: after a longer step the state is forgotten, and no power of τ
# overflows.
FORGOTTEN = 800.0


@compiled
def scaled(rate, step):
    """τ = rate * step, cut where everything is forgotten."""
    return min(rate * step, FORGOTTEN)


@compiled
def push(shift, tau, decay, c):
    """C ← Φ c, in place."""
    m = len(shift)
    for i in range(m):
        total = 0.0
        power = 1.0
        for j in range(i, m):
            total += power * shift[j - i] * c[j]
            power *= tau
        c[i] = decay * total


@compiled
def pull(shift, tau, decay, c):
    """C ← Φᵀ c, in place."""
    m = len(shift)
    for i in range(m - 1, -1, -1):
        total = 0.0
        power = 1.0
        for j in range(i, -1, -1):
            total += power * shift[i - j] * c[j]
            power *= tau
        c[i] = decay * total
