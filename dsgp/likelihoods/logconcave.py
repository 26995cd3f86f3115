"""Integrals of a log-concave density times a Gaussian, row by row.

Arrays and callables in, arrays out; nothing here depends on a particular likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dsgp.likelihoods.quadrature import REACH

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# A density e^-37 below its peak affects no digit of the integral before the sixteenth.
DROP = 37.0
LARGEST_RULE = 1 << 14


def latent_mode(
    derivatives: Callable[[Array, Rows], tuple[Array, Array, Array]],
    likely: Array,
    mean: Array,
    std: Array,
) -> tuple[Array, Array]:
    """Mode and width, in z, of p(y | mean + std z) N(z; 0, 1): Newton within a bracket.

    Parameters
    ----------
    derivatives : callable
        (f, rows) to gradient, weight and slope of the log density.
    likely : ndarray of shape (n,)
        Latents near each row's own maximum, where the search starts.
    mean, std : ndarray of shape (n,)

    Returns
    -------
    mode, width : ndarray of shape (n,)
        The mode to a twentieth of the width, the inverse square root of the curvature there.
    """
    everything = np.arange(mean.size)
    slope, information, _ = derivatives(likely, everything)
    # The gradient falls with f, so the mode lies between 0 and std times the gradient at 0,
    # and on the side of the row's own maximum that the gradient there points to.
    bound = std * derivatives(mean, everything)[0]
    likely_z = (likely - mean) / np.maximum(std, 1e-150)
    rising = std * slope - likely_z > 0
    lower, upper = np.minimum(bound, 0.0), np.maximum(bound, 0.0)
    lower = np.where(rising & (likely_z > lower), np.minimum(likely_z, upper), lower)
    upper = np.where(~rising & (likely_z < upper), np.maximum(likely_z, lower), upper)
    information = information * std**2
    z = np.clip(information / (1 + information) * likely_z, lower, upper)
    width, last = np.empty_like(z), np.full_like(z, np.inf)
    rows = everything
    for _ in range(200):
        at = z[rows]
        gradient, weight, _ = derivatives(mean[rows] + std[rows] * at, rows)
        gradient = std[rows] * gradient - at
        curvature = 1 + std[rows] ** 2 * weight
        width[rows] = 1 / np.sqrt(curvature)
        lower[rows] = np.where(gradient > 0, at, lower[rows])
        upper[rows] = np.where(gradient > 0, upper[rows], at)
        step = gradient / curvature
        following = at + step
        # Along an exponential, Newton's steps all have the same length: then the bracket is halved.
        poor = (following < lower[rows]) | (following > upper[rows])
        poor |= np.abs(step) > 0.5 * last[rows]
        middle = 0.5 * lower[rows] + 0.5 * upper[rows]
        moved = np.abs(step) > 0.05 * width[rows]
        z[rows] = np.where(moved & poor, middle, np.where(moved, following, at))
        last[rows] = np.abs(z[rows] - at)
        rows = rows[moved]
        if not rows.size:
            break
    return z, width


def log_concave_integral(
    log_integrand: Callable[[Array, Rows], Array], mode: Array, width: Array
) -> Array:
    r"""Logarithm of the integrals of :math:`e^{\psi(z)}`, a log-concave ψ for each row.

    The trapezoidal rule between the points where the integrand is negligible: for an analytic
    integrand every halving of the step squares the error, so that a change below 1e-7 leaves
    1e-13. Rows that have not settled are halved again.

    Parameters
    ----------
    log_integrand : callable
        (z of shape (r, k), rows of shape (r,)) to ψ of shape (r, k); its second derivative is at
        most −1.
    mode : ndarray of shape (n,)
        Where ψ is largest, roughly.
    width : ndarray of shape (n,)
        Inverse square root of the curvature there, at most 1.

    Returns
    -------
    ndarray of shape (n,)
    """
    n = mode.size
    everything = np.arange(n)
    peak = log_integrand(mode[:, None], everything)[:, 0]
    reach = {}
    for side in (-1.0, 1.0):
        length = np.minimum(REACH * width, REACH)
        rows = everything
        while rows.size:
            edge = mode[rows] + side * length[rows]
            fall = peak[rows] - log_integrand(edge[:, None], rows)[:, 0]
            rows = rows[(fall < 0.8 * DROP) & (length[rows] < REACH)]
            length[rows] = np.minimum(2 * length[rows], REACH)
        reach[side] = length
    lower = mode - reach[-1.0]
    step = (reach[-1.0] + reach[1.0]) / 16
    result = np.empty(n)

    def summed(rows: Rows, offsets: Array) -> Array:
        z = lower[rows, None] + step[rows, None] * offsets
        return np.exp(log_integrand(z, rows) - peak[rows, None]).sum(axis=1)

    total = summed(everything, np.arange(17.0))
    rows, points = everything, 16
    while rows.size:
        odd = summed(rows, np.arange(float(points)) + 0.5)
        change = np.abs(odd - total) / (odd + total)
        total = total + odd
        step[rows] *= 0.5
        points *= 2
        done = (change < 1e-7) | (points >= LARGEST_RULE)
        settled = rows[done]
        result[settled] = peak[settled] + np.log(total[done] * step[settled])
        rows, total = rows[~done], total[~done]
    return result
