"""Loops of ``learning.node_posterior`` over sparse couplings, column by column.

A column of levels shares rows with few nodes, so that its products have few entries: a dense
product would compute all of them, and a sparse one would first search for their positions.
"""

from __future__ import annotations

from dsgp.jit.flags import compiled


@compiled
def subtract_outer(starts, rows, values, divisor, out):
    """Subtract C D⁻¹ Cᵀ from a dense matrix; C (M, U) in compressed columns, D diagonal."""
    for u in range(starts.shape[0] - 1):
        for a in range(starts[u], starts[u + 1]):
            scaled = values[a] / divisor[u]
            for b in range(starts[u], a):
                product = scaled * values[b]
                out[rows[a], rows[b]] -= product
                out[rows[b], rows[a]] -= product
            out[rows[a], rows[a]] -= scaled * values[a]


@compiled
def quadratic_forms(starts, rows, values, matrix, out):
    """Set out[u] to cᵤᵀ M cᵤ for the columns of C (M, U) in compressed form; M is symmetric."""
    for u in range(starts.shape[0] - 1):
        total = 0.0
        for a in range(starts[u], starts[u + 1]):
            part = 0.0
            for b in range(starts[u], a):
                part += values[b] * matrix[rows[a], rows[b]]
            total += values[a] * (2.0 * part + values[a] * matrix[rows[a], rows[a]])
        out[u] = total
