"""Loops over rows: gather tables at codes, scatter rows into tables, count pairs, find bins.

A code that is not below the number of points of its axis stands for a missing input: the row does
not depend on that term.
"""

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
        size = offsets[d + 1] - offset
        for i in range(start, stop):
            code = codes[d, i]
            if code < size:
                out[i] += tables[offset + code]


@compiled
def gather_multiplied(codes, offsets, tables, where, multipliers, start, stop, out):
    """As ``gather``, each term times a row of ``multipliers``; a negative ``where[d]`` is 1."""
    for i in range(start, stop):
        out[i] = 0.0
    for d in range(codes.shape[0]):
        offset = offsets[d]
        size = offsets[d + 1] - offset
        row = where[d]
        for i in range(start, stop):
            code = codes[d, i]
            if code < size:
                value = tables[offset + code]
                out[i] += value if row < 0 else value * multipliers[row, i - start]


@compiled
def gather_add(codes, table, scale, out):
    """Add scale * table[codes[i]] to out[i]."""
    size = table.shape[0]
    for i in range(codes.shape[0]):
        if codes[i] < size:
            out[i] += scale * table[codes[i]]


@compiled
def scatter_add(codes, rows, out):
    """Add to out[u] the sum of rows[i] over the rows with codes[i] = u."""
    size = out.shape[0]
    for i in range(codes.shape[0]):
        if codes[i] < size:
            out[codes[i]] += rows[i]


@compiled
def gather_and_scatter(codes, offsets, tables, weight, values, out):
    """Add ZᵀWZ tables[k] to each out[k]: as ``gather``, times the weight, and ``scatter_add``.

    ``values`` (n_rows,) is written over; ``weight`` of length 0 counts every row once.
    """
    n_rows = codes.shape[1]
    weighted = weight.shape[0] > 0
    for k in range(tables.shape[0]):
        for i in range(n_rows):
            values[i] = 0.0
        for d in range(codes.shape[0]):
            offset = offsets[d]
            size = offsets[d + 1] - offset
            for i in range(n_rows):
                code = codes[d, i]
                if code < size:
                    values[i] += tables[k, offset + code]
        if weighted:
            for i in range(n_rows):
                values[i] *= weight[i]
        for d in range(codes.shape[0]):
            offset = offsets[d]
            size = offsets[d + 1] - offset
            for i in range(n_rows):
                code = codes[d, i]
                if code < size:
                    out[k, offset + code] += values[i]


@compiled
def two_way_table(codes_d, codes_e, bins_d, bins_e, weight, out):
    """Add the weight of each row to the cell of the bins of its two points.

    ``weight`` of length 0 counts every row once.
    """
    n_d = bins_d.shape[0]
    n_e = bins_e.shape[0]
    weighted = weight.shape[0] > 0
    for i in range(codes_d.shape[0]):
        if codes_d[i] < n_d and codes_e[i] < n_e:
            out[bins_d[codes_d[i]], bins_e[codes_e[i]]] += weight[i] if weighted else 1.0


@compiled
def find_bins(column, edges, lookup, low, scale, missing, codes):
    """Fill the number of edges at or below each value; NaN becomes ``missing``.

    ``lookup[j]`` is the answer for the lower end of the j-th of equal cells that begin at ``low``;
    ``scale`` is cells per unit. From there few edges are left to pass.
    """
    n_edges = edges.shape[0]
    last = lookup.shape[0] - 1
    for i in range(column.shape[0]):
        value = column[i]
        if value != value:
            codes[i] = missing
            continue
        cell = (value - low) * scale
        position = last if cell >= last else int(cell) if cell > 0.0 else 0  # NaN is 0
        code = lookup[position]
        # Rounding may move a value to the neighbouring cell.
        while code > 0 and value < edges[code - 1]:
            code -= 1
        while code < n_edges and edges[code] <= value:
            code += 1
        codes[i] = code


@compiled
def gather_pair(codes_d, codes_e, table, scale, out):
    """Add scale * table[codes_d[i], codes_e[i]] to out[i]."""
    n_d, n_e = table.shape
    for i in range(codes_d.shape[0]):
        if codes_d[i] < n_d and codes_e[i] < n_e:
            out[i] += scale * table[codes_d[i], codes_e[i]]
