"""Logarithms of normal probabilities and their derivatives, stable in both tails."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

Array = NDArray[np.float64]

# Below this, differences such as λ + z lose more digits than the truncation of their series.
ASYMPTOTE = -150.0


def log_normal_derivatives(z: Array) -> tuple[Array, Array, Array]:
    r"""First, minus second, and minus third derivative of log Φ(z).

    .. math:: \lambda = \phi(z)/\Phi(z), \quad W = \lambda(\lambda + z) \in (0, 1), \quad
              dW/dz = \lambda(1 - W) - W(\lambda + z)

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.likelihoods.probit import log_normal_derivatives
    >>> first, second, third = log_normal_derivatives(np.array([-1000.0, 0.0, 1000.0]))
    >>> first.round(4)
    array([1.000001e+03, 7.979000e-01, 0.000000e+00])
    >>> second.round(4)
    array([1.    , 0.6366, 0.    ])
    """
    z = np.asarray(z, dtype=float)
    # erfcx overflows to infinity for z beyond 37, where λ is 0.
    ratio = np.sqrt(2 / np.pi) / erfcx(z * -np.sqrt(0.5))
    excess = ratio + z
    far = z < ASYMPTOTE
    if far.any():
        inverse = 1 / np.where(far, z, ASYMPTOTE)
        square = inverse * inverse
        excess = np.where(far, -inverse * (1 - square * (2 - 10 * square)), excess)
        ratio = np.where(far, excess - z, ratio)
    weight = ratio * excess
    slope = ratio * (1 - weight) - weight * excess
    if far.any():
        weight = np.where(far, 1 - square * (1 - 6 * square), weight)
        slope = np.where(far, 2 * inverse * square * (1 - 12 * square), slope)
    return ratio, weight, slope


def log_normal_mass(below: Array, above: Array) -> Array:
    """log(Φ(above) − Φ(below)), from the tail in which both are small."""
    upper = above + below > 0
    far, near = np.where(upper, -above, below), np.where(upper, -below, above)
    log_near = log_ndtr(near)
    log_ratio = np.minimum(log_ndtr(far) - log_near, -1e-300)
    return log_near + np.log(-np.expm1(log_ratio))


def normal_mass_derivatives(
    below: Array, above: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Gradient and weight by f; of the weight, then of the log mass, by the two cutpoints."""
    mass = log_normal_mass(below, above) + 0.5 * np.log(2 * np.pi)
    ratio_a, ratio_b = (np.exp(np.minimum(-0.5 * x * x - mass, 700.0)) for x in (below, above))
    gradient = ratio_a - ratio_b
    # 1 − W is the variance of a truncated normal; rounding must not take it out of (0, 1).
    weight = np.clip(gradient * gradient + above * ratio_b - below * ratio_a, 0.0, 1.0)
    by_below = ratio_a * ((below - gradient) ** 2 - 1 + weight)
    by_above = -ratio_b * ((above - gradient) ** 2 - 1 + weight)
    # In a tail where only the nearer end counts, its stable derivatives are used.
    upper = above + below > 0
    far, near = np.where(upper, -above, below), np.where(upper, -below, above)
    alone = log_ndtr(near) - log_ndtr(far) > 40
    first, second, third = log_normal_derivatives(near)
    sign = np.where(upper, 1.0, -1.0)
    gradient = np.where(alone, sign * first, gradient)
    weight = np.where(alone, second, weight)
    by_below = np.where(alone, np.where(upper, -third, 0.0), by_below)
    by_above = np.where(alone, np.where(upper, 0.0, third), by_above)
    ratio_a = np.where(alone, np.where(upper, first, 0.0), ratio_a)
    ratio_b = np.where(alone, np.where(upper, 0.0, first), ratio_b)
    return gradient, weight, by_below, by_above, -ratio_a, ratio_b
