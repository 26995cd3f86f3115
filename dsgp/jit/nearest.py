"""Gaussian processes of many inputs on nearest neighbours: likelihood, factor and predictions.

Shared conventions:

* ``x`` (n, D) holds inputs divided by their lengthscales; the first ``n_numbers`` columns are
  numbers, and the others hold levels, which are either the same or apart by ``apart`` (D,), the
  square of 1 / lengthscale;
* ``smoothness`` is 2ν of the Matérn covariance: 1, 3 or 5;
* ``neighbours`` (k, m) holds rows of ``x``, -1 where there are fewer;
* ``noise`` (n,) is the noise variance of each row.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.flags import compiled

SQRT3 = math.sqrt(3.0)
SQRT5 = math.sqrt(5.0)


@compiled
def _count(row):
    """How many neighbours per row has: those that are not -1 come first."""
    count = 0
    while count < len(row) and row[count] >= 0:
        count += 1
    return count


@compiled
def _gather(x, near, n, point, places):
    """Put the inputs of n neighbours into the first columns of ``places``, the point's next."""
    for d in range(x.shape[1]):
        for a in range(n):
            places[d, a] = x[near[a], d]
        places[d, n] = point[d]


@compiled
def _square_distances(places, a, n_numbers, apart, squares):
    """Fill ``squares`` with those between column a of ``places`` and the ones before it."""
    for b in range(a):
        squares[b] = 0.0
    for d in range(n_numbers):
        line = places[d]
        for b in range(a):
            difference = line[a] - line[b]
            squares[b] += difference * difference
    for d in range(n_numbers, len(places)):
        line = places[d]
        for b in range(a):
            squares[b] += apart[d] if line[b] != line[a] else 0.0


@compiled
def _correlations(squares, n, smoothness, alike):
    if smoothness == 1:
        for b in range(n):
            alike[b] = math.exp(-math.sqrt(squares[b]))
    elif smoothness == 3:
        for b in range(n):
            s = SQRT3 * math.sqrt(squares[b])
            alike[b] = (1.0 + s) * math.exp(-s)
    else:
        for b in range(n):
            s = SQRT5 * math.sqrt(squares[b])
            alike[b] = (1.0 + s + s * s / 3.0) * math.exp(-s)


@compiled
def _correlations_and_slopes(squares, n, smoothness, alike, steep):
    """Fill them, and minus twice their derivatives by the squares of the distances."""
    if smoothness == 1:
        for b in range(n):
            r = math.sqrt(squares[b])
            alike[b] = math.exp(-r)
            steep[b] = alike[b] / r if r > 0.0 else 0.0
    elif smoothness == 3:
        for b in range(n):
            s = SQRT3 * math.sqrt(squares[b])
            falling = math.exp(-s)
            alike[b] = (1.0 + s) * falling
            steep[b] = 3.0 * falling
    else:
        for b in range(n):
            s = SQRT5 * math.sqrt(squares[b])
            falling = math.exp(-s)
            alike[b] = (1.0 + s + s * s / 3.0) * falling
            steep[b] = 5.0 / 3.0 * (1.0 + s) * falling


@compiled
def _factorise(matrix, n):
    """Put R, with RᵀR the matrix, into the upper triangle; return whether there is one.

    By rows, which unlike dot products are computed several numbers at a time.
    """
    for j in range(n):
        if not matrix[j, j] > 0.0:
            return False
        root = math.sqrt(matrix[j, j])
        row = matrix[j]
        for k in range(j, n):
            row[k] /= root
        for i in range(j + 1, n):
            factor, below = row[i], matrix[i]
            for k in range(i, n):
                below[k] -= factor * row[k]
    return True


@compiled
def _solve(factor, n, vector):
    """Solve with a Cholesky factor, in place."""
    for i in range(n):
        row = factor[i]
        value = vector[i] / row[i]
        vector[i] = value
        for k in range(i + 1, n):
            vector[k] -= row[k] * value
    for i in range(n - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, n):
            total -= factor[i, k] * vector[k]
        vector[i] = total / factor[i, i]


@compiled
def _regress(
    x, n_numbers, apart, smoothness, variance, noise, point, near, n, matrix, places, squares,
    alike, cross, weights,
):  # fmt: skip
    """Fill the covariances of a point with its neighbours, and the coefficients of these.

    Returns the covariance that they explain, or NaN where float64 cannot factorise theirs.
    """
    _gather(x, near, n, point, places)
    for a in range(n):
        _square_distances(places, a, n_numbers, apart, squares)
        _correlations(squares, a, smoothness, alike)
        for b in range(a):
            matrix[b, a] = variance * alike[b]
        matrix[a, a] = variance + noise[near[a]]
    _square_distances(places, n, n_numbers, apart, squares)
    _correlations(squares, n, smoothness, alike)
    if not _factorise(matrix, n):
        return math.nan
    for a in range(n):
        cross[a] = variance * alike[a]
        weights[a] = cross[a]
    _solve(matrix, n, weights)
    explained = 0.0
    for a in range(n):
        explained += cross[a] * weights[a]
    for a in range(n, len(weights)):
        weights[a] = 0.0
    return explained


@compiled
def conditionals(
    x, n_numbers, apart, smoothness, variance, noise, rows, neighbours, first, last, weights, left
):
    """Regress ``rows[first:last]`` on their neighbours, noise and all.

    Fills ``weights`` (k, m) with the coefficients and ``left`` (k,) with the variance that they
    leave of an observation of the row. Returns the first of the rows whose covariance float64
    cannot factorise, or -1.
    """
    m = neighbours.shape[1]
    matrix, places = np.empty((m, m)), np.empty((x.shape[1], m + 1))
    squares, alike, cross = np.empty(m), np.empty(m), np.empty(m)
    for r in range(first, last):
        i = rows[r]
        near = neighbours[r]
        explained = _regress(
            x, n_numbers, apart, smoothness, variance, noise, x[i], near, _count(near), matrix,
            places, squares, alike, cross, weights[r],
        )  # fmt: skip
        left[r] = variance + noise[i] - explained
        if not left[r] > 0.0:
            return r
    return -1


@compiled
def predictions(
    x, n_numbers, apart, smoothness, variance, noise, points, neighbours, weights, left
):
    """Regress the function at new points (k, D) on observations of their neighbours.

    Fills ``weights`` (k, m) and ``left`` (k,), the posterior variance without noise. Returns as
    ``conditionals``.
    """
    m = neighbours.shape[1]
    matrix, places = np.empty((m, m)), np.empty((x.shape[1], m + 1))
    squares, alike, cross = np.empty(m), np.empty(m), np.empty(m)
    for r in range(len(points)):
        near = neighbours[r]
        explained = _regress(
            x, n_numbers, apart, smoothness, variance, noise, points[r], near, _count(near),
            matrix, places, squares, alike, cross, weights[r],
        )  # fmt: skip
        if math.isnan(explained):
            return r
        left[r] = max(variance - explained, 0.0)
    return -1


@compiled
def likelihood(
    x, n_numbers, apart, smoothness, variance, noise, target, rows, neighbours, first, last, slopes
):
    """Sum log densities of ``rows[first:last]`` given their neighbours.

    Adds to ``slopes`` (D + 2,) their derivatives by the logs of the lengthscales, of the variance,
    and of a factor common to all noise variances. NaN where float64 cannot factorise a covariance.
    """
    m, n_columns = neighbours.shape[1], x.shape[1]
    matrix, places, squares = np.empty((m, m)), np.empty((n_columns, m + 1)), np.empty(m)
    # Correlations and their slopes: of neighbours below the diagonal, and of the row with them in
    # the line after theirs.
    alike, steep = np.empty((m + 1, m)), np.empty((m + 1, m))
    v, w, by_distance = np.empty(m), np.empty(m), np.empty(m)
    # Derivatives by neighbour: a sum over neighbours of one row would wait for each addition.
    by_scale, by_alike = np.zeros((n_columns, m)), np.zeros(m)
    total, by_variance, by_noise = 0.0, 0.0, 0.0
    for r in range(first, last):
        i = rows[r]
        near = neighbours[r]
        n = _count(near)
        _gather(x, near, n, x[i], places)
        for a in range(n + 1):
            _square_distances(places, a, n_numbers, apart, squares)
            _correlations_and_slopes(squares, a, smoothness, alike[a], steep[a])
        for a in range(n):
            for b in range(a):
                matrix[b, a] = variance * alike[a, b]
            matrix[a, a] = variance + noise[near[a]]
        if not _factorise(matrix, n):
            return math.nan
        for a in range(n):
            v[a] = variance * alike[n, a]
            w[a] = target[near[a]]
        _solve(matrix, n, v)
        _solve(matrix, n, w)
        mean, rest = 0.0, variance + noise[i]
        for a in range(n):
            mean += variance * alike[n, a] * w[a]
            rest -= variance * alike[n, a] * v[a]
        if not rest > 0.0:
            return math.nan
        error = target[i] - mean
        total -= 0.5 * (math.log(2.0 * math.pi * rest) + error * error / rest)
        # Derivatives of the log density by the remaining variance and by the mean.
        by_rest = -0.5 * (1.0 - error * error / rest) / rest
        by_mean = error / rest
        by_variance += by_rest * variance
        by_noise += by_rest * noise[i]
        # rest = … - 2 cross·v + v·C v and mean = cross·w, as C changes by C⁻¹ dC.
        for a in range(n):
            of_v, of_w = 2.0 * by_rest * v[a] - by_mean * w[a], -by_mean * v[a]
            diagonal = v[a] * (by_rest * v[a] - by_mean * w[a])
            by_variance += diagonal * variance
            by_noise += diagonal * noise[near[a]]
            for b in range(a):
                by_pair = variance * (of_v * v[b] + of_w * w[b])
                by_alike[b] += by_pair * alike[a, b]
                by_distance[b] = by_pair * steep[a, b]
            _add_slopes(places, a, n_numbers, apart, by_distance, by_scale)
        for b in range(n):
            by_cross = variance * (by_mean * w[b] - 2.0 * by_rest * v[b])
            by_alike[b] += by_cross * alike[n, b]
            by_distance[b] = by_cross * steep[n, b]
        _add_slopes(places, n, n_numbers, apart, by_distance, by_scale)
    for b in range(m):
        for d in range(n_columns):
            slopes[d] += by_scale[d, b]
        by_variance += by_alike[b]
    slopes[n_columns] += by_variance
    slopes[n_columns + 1] += by_noise
    return total


@compiled
def _add_slopes(places, a, n_numbers, apart, by_distance, by_scale):
    """Add derivatives by the logs of the lengthscales, of column a with the ones before it."""
    for d in range(n_numbers):
        line, out = places[d], by_scale[d]
        for b in range(a):
            difference = line[a] - line[b]
            out[b] += by_distance[b] * (difference * difference)
    for d in range(n_numbers, len(places)):
        line, out = places[d], by_scale[d]
        for b in range(a):
            out[b] += by_distance[b] * apart[d] if line[b] != line[a] else 0.0


@compiled
def residuals(weights, neighbours, rows, vectors, out):
    """Return (I − B) v for vectors (k, r): each row minus its regression on its neighbours."""
    for r in range(len(rows)):
        i = rows[r]
        for c in range(vectors.shape[1]):
            out[i, c] = vectors[i, c]
        for a in range(neighbours.shape[1]):
            j = neighbours[r, a]
            if j < 0:
                break
            for c in range(vectors.shape[1]):
                out[i, c] -= weights[r, a] * vectors[j, c]


@compiled
def transposed_residuals(weights, neighbours, rows, vectors, out):
    """Add (I − B)ᵀ v to ``out``."""
    for r in range(len(rows)):
        i = rows[r]
        for c in range(vectors.shape[1]):
            out[i, c] += vectors[i, c]
        for a in range(neighbours.shape[1]):
            j = neighbours[r, a]
            if j < 0:
                break
            for c in range(vectors.shape[1]):
                out[j, c] -= weights[r, a] * vectors[i, c]
