"""Sparse inverse Cholesky factors on the cells of a grid (Vecchia): neighbours, factor, likelihood.

Shared conventions:

* ``cells`` (n, D) holds the indices of the observed cells in the order of elimination; ``rank`` is
  a flat array over the grid with the place of each cell in that order, -1 where nothing is known;
* the covariance of two cells is a sum over parts c of products over axes d, read from ``Tables``;
* ``neighbours`` (n, m) holds places of earlier cells, -1 where there are fewer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dsgp.jit.flags import compiled


class Tables(NamedTuple):
    """Covariances along each axis, by indices i <= j.

    Read from ``value[start[c, d] + i stride[d] + j - i]`` (stride 0: an equispaced axis, one row
    serves all), with its derivative by the parameter of that axis in ``slope``. Where the stride is
    negative, an axis too long for a table, they are computed: e^{-τ} Σ_k polynomial[c, d, k] τ^k
    with τ = rate[c, d] (points[origin[d] + j] - points[origin[d] + i]).
    """

    value: Any
    slope: Any
    start: Any
    stride: Any
    points: Any
    origin: Any
    rate: Any
    polynomial: Any
    slope_polynomial: Any


@compiled
def _along(tables, table, coefficients, c, d, index, n, out):
    """Fill the upper triangle of out (n, n) with what one axis gives to the pairs of n cells.

    ``index`` (D, n) has the cells; ``table`` and ``coefficients`` are those of values or slopes.
    """
    stride = tables.stride[d]
    start = tables.start[c, d]
    for a in range(n):
        position = index[d, a]
        if stride == 0:
            for b in range(a, n):
                out[a, b] = table[start + abs(position - index[d, b])]
        elif stride > 0:
            for b in range(a, n):
                other = index[d, b]
                out[a, b] = table[start + min(position, other) * stride + abs(position - other)]
        else:
            origin = tables.origin[d]
            for b in range(a, n):
                tau = tables.rate[c, d] * abs(
                    tables.points[origin + position] - tables.points[origin + index[d, b]]
                )
                out[a, b] = _polynomial(coefficients, c, d, tau)


@compiled
def _polynomial(coefficients, c, d, tau):
    if tau > 700.0:
        return 0.0
    total = 0.0
    for k in range(coefficients.shape[2] - 1, -1, -1):
        total = total * tau + coefficients[c, d, k]
    return total * math.exp(-tau)


@compiled
def _covariances(tables, index, n, part, line, out):
    """Fill the upper triangle of out (n, n) with the covariances of n cells."""
    n_parts, n_dims = tables.start.shape
    for c in range(n_parts):
        _along(tables, tables.value, tables.polynomial, c, 0, index, n, part)
        for d in range(1, n_dims):
            _along(tables, tables.value, tables.polynomial, c, d, index, n, line)
            for a in range(n):
                for b in range(a, n):
                    part[a, b] *= line[a, b]
        for a in range(n):
            for b in range(a, n):
                if c == 0:
                    out[a, b] = part[a, b]
                else:
                    out[a, b] += part[a, b]


@compiled
def earlier_neighbours(cells, rank, shape, wrap, offsets, rows, first, last, limit, out):
    """Fill rows of ``out`` with the first cells of smaller rank along the list of offsets.

    They are ``rows[first:last]``.

    ``offsets`` (n_offsets, D) come nearest first; ``wrap`` (D,) marks axes that close on
    themselves. A cell takes part if its rank is smaller than its own, or than ``limit`` if that is
    not negative. Rows that find fewer than m keep what they found.
    """
    n_dims = len(shape)
    m = out.shape[1]
    for r in range(first, last):
        i = rows[r]
        below = i if limit < 0 else limit
        count = 0
        for o in range(offsets.shape[0]):
            flat = 0
            inside = True
            for d in range(n_dims):
                j = cells[i, d] + offsets[o, d]
                if j < 0 or j >= shape[d]:
                    if not wrap[d]:
                        inside = False
                        break
                    j = j % shape[d]
                flat = flat * shape[d] + j
            if not inside:
                continue
            place = rank[flat]
            if place >= 0 and place < below:
                out[i, count] = place
                count += 1
                if count == m:
                    break
        for k in range(count, m):
            out[i, k] = -1


@compiled
def best_earlier(cells, tables, rows, first, last, out):
    """Fill ``rows[first:last]`` of ``out`` with the earlier cells of largest covariance."""
    m = out.shape[1]
    n_dims = cells.shape[1]
    value = np.empty(m)
    index = np.empty((n_dims, 2), dtype=np.int64)
    part, line, pair = np.empty((2, 2)), np.empty((2, 2)), np.empty((2, 2))
    for r in range(first, last):
        i = rows[r]
        count = 0
        for d in range(n_dims):
            index[d, 0] = cells[i, d]
        for j in range(i):
            for d in range(n_dims):
                index[d, 1] = cells[j, d]
            _covariances(tables, index, 2, part, line, pair)
            c = pair[0, 1]
            if count == m and c <= value[m - 1]:
                continue
            k = min(count, m - 1)
            while k > 0 and value[k - 1] < c:
                value[k] = value[k - 1]
                out[i, k] = out[i, k - 1]
                k -= 1
            value[k] = c
            out[i, k] = j
            count = min(count + 1, m)
        for k in range(count, m):
            out[i, k] = -1


@compiled
def merge(first, second, out):
    """Fill ``out`` (t, m) with the places of both lists, each once, -1 where there are fewer."""
    for i in range(out.shape[0]):
        count = 0
        for source in (first, second):
            for k in range(source.shape[1]):
                place = source[i, k]
                if place < 0:
                    break
                known = False
                for j in range(count):
                    if out[i, j] == place:
                        known = True
                        break
                if not known:
                    out[i, count] = place
                    count += 1
        for k in range(count, out.shape[1]):
            out[i, k] = -1


@compiled
def _collect(near, cells, target, index):
    """Fill index (D, n_near + 1) with the neighbours and, last, the target; return n_near."""
    n_near = 0
    while n_near < len(near) and near[n_near] >= 0:
        for d in range(index.shape[0]):
            index[d, n_near] = cells[near[n_near], d]
        n_near += 1
    for d in range(index.shape[0]):
        index[d, n_near] = target[d]
    return n_near


@compiled
def _cholesky(matrix, n):
    """Overwrite the upper triangle by U, matrix = Uᵀ U."""
    for k in range(n):
        pivot = math.sqrt(matrix[k, k])
        for j in range(k, n):
            matrix[k, j] /= pivot
        for i in range(k + 1, n):
            factor = matrix[k, i]
            for j in range(i, n):
                matrix[i, j] -= factor * matrix[k, j]


@compiled
def _forward(matrix, n, vector):
    """Overwrite by U⁻ᵀ vector."""
    for k in range(n):
        vector[k] /= matrix[k, k]
        for j in range(k + 1, n):
            vector[j] -= matrix[k, j] * vector[k]


@compiled
def _backward(matrix, n, vector):
    """Overwrite by U⁻¹ vector."""
    for k in range(n - 1, -1, -1):
        total = vector[k]
        for j in range(k + 1, n):
            total -= matrix[k, j] * vector[j]
        vector[k] = total / matrix[k, k]


@compiled
def _regress(near, n_near, noise, matrix, cross):
    """Turn covariances into U, and cross into U⁻ᵀ k; return k** − kᵀK⁻¹k.

    They are (n_near + 1, n_near + 1).
    """
    for k in range(n_near):
        matrix[k, k] += noise[near[k]]
        cross[k] = matrix[k, n_near]
    _cholesky(matrix, n_near)
    _forward(matrix, n_near, cross)
    left = matrix[n_near, n_near]
    for k in range(n_near):
        left -= cross[k] * cross[k]
    return left


@compiled
def factor(cells, neighbours, noise, tables, first, last, coefficients, variance):
    """Regress cells on their neighbours: coefficients (n, m) and conditional variances (n,).

    The unit lower triangular B with -coefficients, and D = diag(variance), give
    (K + R)⁻¹ ≈ Bᵀ D⁻¹ B.
    """
    m = neighbours.shape[1]
    index = np.empty((cells.shape[1], m + 1), dtype=np.int64)
    matrix, part, line = (
        np.empty((m + 1, m + 1)),
        np.empty((m + 1, m + 1)),
        np.empty((m + 1, m + 1)),
    )
    cross = np.empty(m)
    for i in range(first, last):
        near = neighbours[i]
        n_near = _collect(near, cells, cells[i], index)
        _covariances(tables, index, n_near + 1, part, line, matrix)
        variance[i] = noise[i] + max(_regress(near, n_near, noise, matrix, cross), 0.0)
        _backward(matrix, n_near, cross)
        for k in range(n_near):
            coefficients[i, k] = cross[k]
        for k in range(n_near, m):
            coefficients[i, k] = 0.0


@compiled
def variance_given_best(targets, cells, candidates, noise, tables, n_best, first, last, variance):
    """Fill the variances of targets (t, D) given the most informative of their candidates (t, q).

    Of the candidates, which are observed cells, the one that lowers the variance most is added
    ``n_best`` times: a Cholesky factorisation, pivoted by the remaining covariance with the target.
    """
    q = candidates.shape[1]
    n_dims = cells.shape[1]
    index = np.empty((n_dims, q + 1), dtype=np.int64)
    pair = np.empty((n_dims, 2), dtype=np.int64)
    part, line, matrix = np.empty((2, 2)), np.empty((2, 2)), np.empty((2, 2))
    rows = np.empty((n_best, q))
    cross, left, product = np.empty(q), np.empty(q), np.empty(q)
    for i in range(first, last):
        near = candidates[i]
        n_near = _collect(near, cells, targets[i], index)
        pair[:, 0] = index[:, n_near]
        pair[:, 1] = index[:, n_near]
        _covariances(tables, pair, 2, part, line, matrix)
        remaining = matrix[0, 0]
        for k in range(n_near):
            left[k] = remaining + noise[near[k]]  # all cells have the same prior variance
        _column(tables, index, n_near, n_near, product, cross)
        for step in range(min(n_best, n_near)):
            best, gain = -1, 0.0
            for k in range(n_near):
                if left[k] > 0.0 and cross[k] * cross[k] > gain * left[k]:
                    best, gain = k, cross[k] * cross[k] / left[k]
            if best < 0 or gain <= 1e-12 * remaining:
                break
            row = rows[step]
            _column(tables, index, n_near, best, product, row)
            row[best] += noise[near[best]]
            for before in range(step):
                factor = rows[before, best]
                for k in range(n_near):
                    row[k] -= factor * rows[before, k]
            root = math.sqrt(left[best])
            scale = cross[best] / root
            for k in range(n_near):
                row[k] /= root
                cross[k] -= scale * row[k]
                left[k] -= row[k] * row[k]
            remaining -= scale * scale
            left[best] = 0.0
        variance[i] = max(remaining, 0.0)


@compiled
def _column(tables, index, n, chosen, part, out):
    """Fill ``out[:n]`` with the covariances of n cells and a chosen one of ``index`` (D, …)."""
    n_parts, n_dims = tables.start.shape
    table = tables.value
    for c in range(n_parts):
        for d in range(n_dims):
            position = index[d, chosen]
            start, stride = tables.start[c, d], tables.stride[d]
            if d == 0:
                part[:n] = 1.0
            if stride == 0:
                for k in range(n):
                    part[k] *= table[start + abs(position - index[d, k])]
            elif stride > 0:
                for k in range(n):
                    other = index[d, k]
                    part[k] *= table[start + min(position, other) * stride + abs(position - other)]
            else:
                origin = tables.origin[d]
                for k in range(n):
                    tau = tables.rate[c, d] * abs(
                        tables.points[origin + position] - tables.points[origin + index[d, k]]
                    )
                    part[k] *= _polynomial(tables.polynomial, c, d, tau)
        for k in range(n):
            out[k] = part[k] if c == 0 else out[k] + part[k]


@compiled
def likelihood(rows, weight, cells, neighbours, noise, y, tables, first, last, gradient):
    """Return Σ w log p(y_i | y of its neighbours) over some rows, and add up its gradient.

    ``gradient`` (C D + C + 1,) is by the parameters of the tables' slopes, by the logs of the C
    amplitudes, and by the log of a factor common to all of ``noise``.
    """
    m = neighbours.shape[1]
    n_parts, n_dims = tables.start.shape
    index = np.empty((n_dims, m + 1), dtype=np.int64)
    matrix, part, line = (
        np.empty((m + 1, m + 1)),
        np.empty((m + 1, m + 1)),
        np.empty((m + 1, m + 1)),
    )
    values, slope = np.empty((n_dims, m + 1, m + 1)), np.empty((m + 1, m + 1))
    cross, dual, u = np.empty(m), np.empty(m + 1), np.empty(m + 1)
    sums = np.empty((n_dims + 1, m + 1))
    total = 0.0
    for r in range(first, last):
        i = rows[r]
        near = neighbours[i]
        n_near = _collect(near, cells, cells[i], index)
        size = n_near + 1
        _covariances(tables, index, size, part, line, matrix)
        left = noise[i] + max(_regress(near, n_near, noise, matrix, cross), 0.0)
        for k in range(n_near):
            dual[k] = y[near[k]]
        _forward(matrix, n_near, dual)
        error = y[i]
        for k in range(n_near):
            error -= cross[k] * dual[k]
        total -= 0.5 * weight[r] * (math.log(2 * math.pi * left) + error * error / left)
        _backward(matrix, n_near, cross)
        _backward(matrix, n_near, dual)
        # d log p = ½ Σ_ab S_ab dK_ab with S = (e/d)(α uᵀ + u αᵀ) + (e²/d² - 1/d) u uᵀ, u = (-b, 1);
        # the triangle has each pair once.
        for k in range(n_near):
            u[k] = -cross[k]
        u[n_near] = 1.0
        dual[n_near] = 0.0
        ratio = weight[r] * error / left
        second = weight[r] * (error * error / left - 1.0) / left
        for a in range(size):
            for b in range(a, size):
                matrix[a, b] = ratio * (dual[a] * u[b] + u[a] * dual[b]) + second * u[a] * u[b]
            matrix[a, a] *= 0.5
            gradient[-1] += matrix[a, a] * noise[near[a] if a < n_near else i]
        for c in range(n_parts):
            sums[:, :size] = 0.0
            for d in range(n_dims):
                _along(tables, tables.value, tables.polynomial, c, d, index, size, values[d])
            for d in range(n_dims + 1):
                if d < n_dims:
                    _along(tables, tables.slope, tables.slope_polynomial, c, d, index, size, slope)
                else:
                    slope[:size, :size] = 1.0
                for a in range(size):
                    for b in range(a, size):
                        line[a, b] = matrix[a, b] * slope[a, b]
                for e in range(n_dims):
                    if e != d:
                        for a in range(size):
                            for b in range(a, size):
                                line[a, b] *= values[e, a, b]
                for a in range(size):
                    for b in range(a, size):
                        sums[d, b] += line[a, b]
            for d in range(n_dims):
                gradient[c * n_dims + d] += sums[d, :size].sum()
            gradient[n_parts * n_dims + c] += sums[n_dims, :size].sum()
    return total


@compiled
def apply(neighbours, coefficients, variance, vector, half, out):
    """Fill ``out`` with Bᵀ D⁻¹ B vector; ``half`` (n,) is scratch."""
    n, m = neighbours.shape
    for i in range(n):
        total = vector[i]
        for k in range(m):
            j = neighbours[i, k]
            if j < 0:
                break
            total -= coefficients[i, k] * vector[j]
        half[i] = total / variance[i]
        out[i] = half[i]
    for i in range(n):
        for k in range(m):
            j = neighbours[i, k]
            if j < 0:
                break
            out[j] -= coefficients[i, k] * half[i]
