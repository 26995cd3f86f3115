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
def _square_distance(a, b, n_numbers, apart):
    total = 0.0
    for d in range(n_numbers):
        difference = a[d] - b[d]
        total += difference * difference
    for d in range(n_numbers, len(a)):
        if a[d] != b[d]:
            total += apart[d]
    return total


@compiled
def _correlation(square, smoothness):
    if smoothness == 1:
        return math.exp(-math.sqrt(square))
    if smoothness == 3:
        s = SQRT3 * math.sqrt(square)
        return (1.0 + s) * math.exp(-s)
    s = SQRT5 * math.sqrt(square)
    return (1.0 + s + s * s / 3.0) * math.exp(-s)


@compiled
def _correlation_and_slope(square, smoothness):
    """Return it, and minus twice its derivative by the square of the distance."""
    r = math.sqrt(square)
    if smoothness == 1:
        alike = math.exp(-r)
        return alike, alike / r if r > 0.0 else 0.0
    if smoothness == 3:
        falling = math.exp(-SQRT3 * r)
        return (1.0 + SQRT3 * r) * falling, 3.0 * falling
    s = SQRT5 * r
    falling = math.exp(-s)
    return (1.0 + s + s * s / 3.0) * falling, 5.0 / 3.0 * (1.0 + s) * falling


@compiled
def _count(row):
    """How many neighbours per row has: those that are not -1 come first."""
    count = 0
    while count < len(row) and row[count] >= 0:
        count += 1
    return count


@compiled
def _factorise(matrix, n):
    """Put the Cholesky factor into the lower triangle; return whether there is one."""
    for j in range(n):
        total = matrix[j, j]
        for k in range(j):
            total -= matrix[j, k] * matrix[j, k]
        if not total > 0.0:
            return False
        root = math.sqrt(total)
        matrix[j, j] = root
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / root
    return True


@compiled
def _solve(factor, n, vector):
    """Solve with a Cholesky factor, in place."""
    for i in range(n):
        total = vector[i]
        for k in range(i):
            total -= factor[i, k] * vector[k]
        vector[i] = total / factor[i, i]
    for i in range(n - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, n):
            total -= factor[k, i] * vector[k]
        vector[i] = total / factor[i, i]


@compiled
def _system(x, point, near, n, n_numbers, apart, smoothness, variance, noise, matrix, cross):
    """Fill the covariances of neighbours among each other, and with a point."""
    for a in range(n):
        i = near[a]
        for b in range(a):
            square = _square_distance(x[i], x[near[b]], n_numbers, apart)
            matrix[a, b] = variance * _correlation(square, smoothness)
        matrix[a, a] = variance + noise[i]
        square = _square_distance(x[i], point, n_numbers, apart)
        cross[a] = variance * _correlation(square, smoothness)


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
    matrix, cross, solved = np.empty((m, m)), np.empty(m), np.empty(m)
    for r in range(first, last):
        i = rows[r]
        near = neighbours[r]
        n = _count(near)
        _system(x, x[i], near, n, n_numbers, apart, smoothness, variance, noise, matrix, cross)
        if not _factorise(matrix, n):
            return r
        solved[:n] = cross[:n]
        _solve(matrix, n, solved)
        rest = variance + noise[i]
        for a in range(n):
            rest -= cross[a] * solved[a]
            weights[r, a] = solved[a]
        for a in range(n, m):
            weights[r, a] = 0.0
        if not rest > 0.0:
            return r
        left[r] = rest
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
    matrix, cross, solved = np.empty((m, m)), np.empty(m), np.empty(m)
    for r in range(len(points)):
        near = neighbours[r]
        n = _count(near)
        _system(x, points[r], near, n, n_numbers, apart, smoothness, variance, noise, matrix, cross)
        if not _factorise(matrix, n):
            return r
        solved[:n] = cross[:n]
        _solve(matrix, n, solved)
        rest = variance
        for a in range(n):
            rest -= cross[a] * solved[a]
            weights[r, a] = solved[a]
        for a in range(n, m):
            weights[r, a] = 0.0
        left[r] = max(rest, 0.0)
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
    matrix, cross = np.empty((m, m)), np.empty(m)
    # Correlations and their slopes: of neighbours below the diagonal, and with the row in the last
    # line.
    alike, steep = np.empty((m + 1, m)), np.empty((m + 1, m))
    v, w = np.empty(m), np.empty(m)
    total = 0.0
    for r in range(first, last):
        i = rows[r]
        near = neighbours[r]
        n = _count(near)
        for a in range(n):
            j = near[a]
            for b in range(a):
                square = _square_distance(x[j], x[near[b]], n_numbers, apart)
                alike[a, b], steep[a, b] = _correlation_and_slope(square, smoothness)
                matrix[a, b] = variance * alike[a, b]
            matrix[a, a] = variance + noise[j]
            square = _square_distance(x[j], x[i], n_numbers, apart)
            alike[m, a], steep[m, a] = _correlation_and_slope(square, smoothness)
            cross[a] = variance * alike[m, a]
        if not _factorise(matrix, n):
            return math.nan
        for a in range(n):
            v[a] = cross[a]
            w[a] = target[near[a]]
        _solve(matrix, n, v)
        _solve(matrix, n, w)
        mean, rest = 0.0, variance + noise[i]
        for a in range(n):
            mean += cross[a] * w[a]
            rest -= cross[a] * v[a]
        if not rest > 0.0:
            return math.nan
        error = target[i] - mean
        total -= 0.5 * (math.log(2.0 * math.pi * rest) + error * error / rest)
        # Derivatives of the log density by the remaining variance and by the mean.
        by_rest = -0.5 * (1.0 - error * error / rest) / rest
        by_mean = error / rest
        by_variance = by_rest * variance
        by_noise = by_rest * noise[i]
        for a in range(n):
            # rest = … - 2 cross·v + v·C v and mean = cross·w, as C changes by C⁻¹ dC.
            by_cross = variance * (by_mean * w[a] - 2.0 * by_rest * v[a])
            by_variance += by_cross * alike[m, a]
            _add_slopes(x[near[a]], x[i], n_numbers, apart, by_cross * steep[m, a], slopes)
            diagonal = v[a] * (by_rest * v[a] - by_mean * w[a])
            by_variance += diagonal * variance
            by_noise += diagonal * noise[near[a]]
            for b in range(a):
                by_pair = 2.0 * by_rest * v[a] * v[b] - by_mean * (v[a] * w[b] + v[b] * w[a])
                by_pair *= variance
                by_variance += by_pair * alike[a, b]
                _add_slopes(x[near[a]], x[near[b]], n_numbers, apart, by_pair * steep[a, b], slopes)
        slopes[n_columns] += by_variance
        slopes[n_columns + 1] += by_noise
    return total


@compiled
def _add_slopes(point, other, n_numbers, apart, factor, slopes):
    """Add the derivatives of a covariance by the logs of the lengthscales, times a factor."""
    for d in range(n_numbers):
        difference = point[d] - other[d]
        slopes[d] += factor * difference * difference
    for d in range(n_numbers, len(point)):
        if point[d] != other[d]:
            slopes[d] += factor * apart[d]


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
