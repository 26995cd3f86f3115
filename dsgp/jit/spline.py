"""Passes along sorted points for integrated Wiener processes: filter, smoother, evaluation.

The state is the function and its first m − 1 derivatives; over a step h it is multiplied by Φ with
entries h^(j−i) / (j−i)!, and gets noise of covariance q times that of ``noise_entry``. Noise
variances are relative to that of a row of weight 1. ``shift`` is the tuple of 1/k!, k < m: its type
gives the compiler m. Symmetric matrices are stored by rows of their upper triangle.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.filter import update
from dsgp.jit.flags import compiled
from dsgp.jit.transition import push


@compiled
def filter_points(shift, step, weight, target, rate, mean, covariance, means, covariances):
    """Filter the points after the first m; return Σ v²/F and Σ log F w over them.

    ``mean`` (m,) and ``covariance`` (m, m) are those of the state at the first of the points, given
    all up to it, and are left as those at the last. Filtered states are kept where ``means`` has
    rows: (n, m), and ``covariances`` (n, m (m + 1) / 2).
    """
    m = len(shift)
    keep = means.shape[0] > 0
    half = np.empty((m, m))
    squares, log_det, product = 0.0, 0.0, 1.0
    for t in range(step.shape[0]):
        if t > 0:
            move(shift, step[t], rate, mean, covariance, half)
            ratio = 1.0 + weight[t] * covariance[0, 0]
            product *= ratio
            if product > 1e150:
                log_det += math.log(product)
                product = 1.0
            innovation = target[t] - mean[0]
            inverse = weight[t] / ratio
            squares += inverse * innovation * innovation
            update(shift, ratio, inverse, innovation, mean, covariance)
        if keep:
            k = 0
            for i in range(m):
                means[t, i] = mean[i]
                for j in range(i, m):
                    covariances[t, k] = covariance[i, j]
                    k += 1
    return squares, log_det + math.log(product)


@compiled
def move(shift, step, rate, mean, covariance, half):
    """Move a state over a step: mean ← Φ mean, P ← Φ P Φᵀ + Q, in place."""
    push(shift, step, 1.0, mean)
    moved_covariance(shift, step, rate, covariance, half, covariance)


@compiled
def moved_covariance(shift, step, rate, covariance, half, out):
    """Half ← Φ P and out ← Φ P Φᵀ + Q; out may be P."""
    m = len(shift)
    for i in range(m):
        for j in range(m):
            total = 0.0
            power = 1.0
            for k in range(i, m):
                total += power * shift[k - i] * covariance[k, j]
                power *= step
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            power = 1.0
            for k in range(j, m):
                total += power * shift[k - j] * half[i, k]
                power *= step
            total += rate * noise_entry(shift, step, i, j)
            out[i, j] = total
            out[j, i] = total


@compiled
def noise_entry(shift, step, i, j):
    """∫₀ʰ u^a u^b / (a! b!) du with a = m − 1 − i, b = m − 1 − j."""
    m = len(shift)
    a = m - 1 - i
    b = m - 1 - j
    power = step
    for _ in range(a + b):
        power *= step
    return power * shift[a] * shift[b] / (a + b + 1)


@compiled
def smooth_points(shift, step, rate, means, covariances):
    """Rauch–Tung–Striebel: filtered states become smoothed ones, in place, from the last back."""
    m = len(shift)
    n = means.shape[0]
    mean, right_mean = np.empty(m), np.empty(m)
    covariance, right = np.empty((m, m)), np.empty((m, m))
    work = np.empty((4, m, m))
    _read(means, covariances, n - 1, right_mean, right)
    for t in range(n - 2, -1, -1):
        _read(means, covariances, t, mean, covariance)
        condition(shift, step[t + 1], rate, mean, covariance, right_mean, right, work)
        k = 0
        for i in range(m):
            means[t, i] = mean[i]
            right_mean[i] = mean[i]
            for j in range(m):
                right[i, j] = covariance[i, j]
                if j >= i:
                    covariances[t, k] = covariance[i, j]
                    k += 1


@compiled
def condition(shift, step, rate, mean, covariance, right_mean, right, work):
    """Condition a filtered state on the smoothed one a step later, in place.

    V ← (I − G Φ) P (I − G Φ)ᵀ + G (V' + Q) Gᵀ, a sum of positive parts: a state of which next to
    nothing is known, such as the slope after two points that are close, loses no digits.
    """
    m = len(shift)
    gain, moved, rest, product = work[0], work[1], work[2], work[3]
    moved_covariance(shift, step, rate, covariance, product, moved)
    solve_symmetric(moved, product, gain)
    # The solution of moved X = Φ P is Gᵀ.
    for i in range(m):
        for j in range(m):
            gain[i, j] = product[j, i]
    # rest = I − G Φ
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(j + 1):
                power = 1.0
                for _ in range(j - k):
                    power *= step
                total += gain[i, k] * power * shift[j - k]
            rest[i, j] = (1.0 if i == j else 0.0) - total
    # mean + G (right mean − Φ mean)
    for i in range(m):
        total = right_mean[i]
        power = 1.0
        for j in range(i, m):
            total -= power * shift[j - i] * mean[j]
            power *= step
        product[0, i] = total
    for i in range(m):
        for j in range(m):
            mean[i] += gain[i, j] * product[0, j]
    _sandwich(rest, covariance, product, moved)
    for i in range(m):
        for j in range(m):
            covariance[i, j] = moved[i, j]
            rest[i, j] = right[i, j] + rate * noise_entry(shift, step, i, j)
    _sandwich(gain, rest, product, moved)
    for i in range(m):
        for j in range(m):
            covariance[i, j] += moved[i, j]


@compiled
def solve_symmetric(matrix, columns, factor):
    """Solve matrix X = columns in place, of a positive definite matrix, by Cholesky.

    ``factor`` is room for its Cholesky factor.
    """
    m = matrix.shape[0]
    for i in range(m):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                # A variance that rounding makes negative, of a direction that is known exactly,
                # counts as rounding.
                factor[i, i] = math.sqrt(max(total, 1e-15 * matrix[i, i]))
            else:
                factor[i, j] = total / factor[j, j]
    for column in range(m):
        for i in range(m):
            total = columns[i, column]
            for k in range(i):
                total -= factor[i, k] * columns[k, column]
            columns[i, column] = total / factor[i, i]
        for i in range(m - 1, -1, -1):
            total = columns[i, column]
            for k in range(i + 1, m):
                total -= factor[k, i] * columns[k, column]
            columns[i, column] = total / factor[i, i]


@compiled
def _sandwich(left, middle, half, out):
    """Out ← left middle leftᵀ."""
    m = left.shape[0]
    for i in range(m):
        for j in range(m):
            total = 0.0
            for k in range(m):
                total += left[i, k] * middle[k, j]
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for k in range(m):
                total += half[i, k] * left[j, k]
            out[i, j] = total
            out[j, i] = total


@compiled
def _read(means, covariances, t, mean, covariance):
    m = mean.shape[0]
    k = 0
    for i in range(m):
        mean[i] = means[t, i]
        for j in range(i, m):
            covariance[i, j] = covariances[t, k]
            covariance[j, i] = covariances[t, k]
            k += 1


@compiled
def evaluate_spline(
    shift, rate, points, filtered, kept, smoothed, spread, inputs, left, derivative, value, variance
):
    """Fill the posterior mean and variance of a derivative of the function at inputs.

    ``left`` is the point at or before each input, which is no earlier than the first. ``filtered``
    and ``kept`` are filtered means and covariances, ``smoothed`` and ``spread`` smoothed ones.
    """
    m = len(shift)
    n = points.shape[0]
    mean, right_mean = np.empty(m), np.empty(m)
    covariance, right = np.empty((m, m)), np.empty((m, m))
    work = np.empty((4, m, m))
    for k in range(inputs.shape[0]):
        t = left[k]
        _read(filtered, kept, t, mean, covariance)
        if inputs[k] > points[t]:
            move(shift, inputs[k] - points[t], rate, mean, covariance, work[0])
            if t + 1 < n:
                _read(smoothed, spread, t + 1, right_mean, right)
                step = points[t + 1] - inputs[k]
                condition(shift, step, rate, mean, covariance, right_mean, right, work)
        else:
            _read(smoothed, spread, t, mean, covariance)
        value[k] = mean[derivative]
        variance[k] = covariance[derivative, derivative]
