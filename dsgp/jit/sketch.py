"""Loops of ``rows.encode``: hashing, counting distinct values, sums by bins."""

from __future__ import annotations

import numpy as np

from dsgp.jit.flags import compiled


@compiled
def hash_of(bits):
    """Mix the 64 bits of a number (splitmix64, a bijection: distinct values never collide)."""
    x = bits + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def count_distinct(bits, start, threshold, limit, keys, hashes, counts, n_kept):
    """Count values whose hash is below the threshold, in an open-addressed table.

    Returns (next position, number of entries); it stops early when the table holds ``limit``
    entries. ``counts`` of 0 marks a free slot; the capacity is a power of 2.
    """
    mask = np.uint64(keys.shape[0] - 1)
    for i in range(start, bits.shape[0]):
        h = hash_of(bits[i])
        if h > threshold:
            continue
        slot = (h >> np.uint64(7)) & mask
        while counts[slot] > 0 and keys[slot] != bits[i]:
            slot = (slot + np.uint64(1)) & mask
        if counts[slot] == 0:
            if n_kept >= limit:
                return i, n_kept
            keys[slot] = bits[i]
            hashes[slot] = h
            n_kept += 1
        counts[slot] += 1
    return bits.shape[0], n_kept


@compiled
def reinsert(old_keys, old_counts, keys, hashes, counts):
    """Put entries into an empty table."""
    mask = np.uint64(keys.shape[0] - 1)
    for i in range(old_keys.shape[0]):
        h = hash_of(old_keys[i])
        slot = (h >> np.uint64(7)) & mask
        while counts[slot] > 0:
            slot = (slot + np.uint64(1)) & mask
        keys[slot] = old_keys[i]
        hashes[slot] = h
        counts[slot] = old_counts[i]


@compiled
def sum_bins(codes, column, origin, y, weight, totals, information, shifts, squares):
    """Add to each bin its rows' Σ w, Σ w y, Σ w (x − origin) and Σ w (x − origin)².

    ``weight`` of length 0 counts every row once; codes beyond the bins stand for missing inputs.
    """
    size = totals.shape[0]
    weighted = weight.shape[0] > 0
    for i in range(codes.shape[0]):
        code = codes[i]
        if code >= size:
            continue
        w = weight[i] if weighted else 1.0
        away = column[i] - origin[code]
        totals[code] += w
        information[code] += w * y[i]
        shifts[code] += w * away
        squares[code] += w * away * away


@compiled
def sum_cells(codes, column, y, weight, low, scale, totals, information, squares, n_rows):
    """Add to the cells of each bin its rows' Σ w and Σ w y, (n_bins, n_cells).

    To the bins it adds Σ w y², and how many rows have a weight.

    A bin begins at ``low`` and has ``scale`` cells per unit.
    """
    size, n_cells = totals.shape
    weighted = weight.shape[0] > 0
    for i in range(codes.shape[0]):
        code = codes[i]
        if code >= size:
            continue
        w = weight[i] if weighted else 1.0
        place = (column[i] - low[code]) * scale[code]
        cell = n_cells - 1 if place >= n_cells else int(place) if place > 0.0 else 0
        totals[code, cell] += w
        information[code, cell] += w * y[i]
        squares[code] += w * y[i] * y[i]
        if w > 0.0:
            n_rows[code] += 1.0


@compiled
def sum_multiplied_cells(codes, column, y, weight, multiplier, low, scale, sums, squares, n_rows):
    """As ``sum_cells``, of rows with multipliers z: Σ w, Σ w z, Σ w z², Σ w y and Σ w z y.

    ``sums`` is (5, n_bins, n_cells).
    """
    size, n_cells = sums.shape[1:]
    weighted = weight.shape[0] > 0
    for i in range(codes.shape[0]):
        code = codes[i]
        if code >= size:
            continue
        w = weight[i] if weighted else 1.0
        place = (column[i] - low[code]) * scale[code]
        cell = n_cells - 1 if place >= n_cells else int(place) if place > 0.0 else 0
        z = multiplier[i]
        sums[0, code, cell] += w
        sums[1, code, cell] += w * z
        sums[2, code, cell] += w * z * z
        sums[3, code, cell] += w * y[i]
        sums[4, code, cell] += w * z * y[i]
        squares[code] += w * y[i] * y[i]
        if w > 0.0:
            n_rows[code] += 1.0


@compiled
def count_pairs(codes_d, codes_e, weight, out):
    """Add the weight of each row to the cell of its two codes."""
    n_d, n_e = out.shape
    weighted = weight.shape[0] > 0
    for i in range(codes_d.shape[0]):
        if codes_d[i] < n_d and codes_e[i] < n_e:
            out[codes_d[i], codes_e[i]] += weight[i] if weighted else 1.0
