"""Loops over rows: gather tables at codes, scatter rows into tables."""

from __future__ import annotations

from dsgp.jit.flags import compiled


@compiled
def gather(codes, offsets, tables, start, stop, out):
    """Set out[i] = Σ_d tables[offsets[d] + codes[d, i]] for start ≤ i < stop.

    ``codes`` (n_terms, n_rows); ``tables`` holds the tables of all terms one after the other.
    """
    for i in range(start, stop):
        out[i] = 0.0
    for d in range(codes.shape[0]):
        offset = offsets[d]
        for i in range(start, stop):
            out[i] += tables[offset + codes[d, i]]


@compiled
def gather_add(codes, table, scale, out):
    """Add scale * table[codes[i]] to out[i]."""
    for i in range(codes.shape[0]):
        out[i] += scale * table[codes[i]]


@compiled
def scatter(codes, rows, weight, out):
    """Set out[u] to the sum of weight[i] * rows[i] over the rows with codes[i] = u."""
    for u in range(out.shape[0]):
        out[u] = 0.0
    for i in range(codes.shape[0]):
        out[codes[i]] += weight[i] * rows[i]


@compiled
def two_way_table(codes_d, codes_e, bins_d, bins_e, weight, out):
    """Add the weight of each row to the cell of its two bins."""
    for i in range(codes_d.shape[0]):
        out[bins_d[codes_d[i]], bins_e[codes_e[i]]] += weight[i]
