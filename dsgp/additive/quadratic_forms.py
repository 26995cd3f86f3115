"""Tail probabilities of quadratic forms in normal variables, and of their ratios.

For independent χ² variables of one degree of freedom and weights λ ≥ 0,

    P(Σ_i λ_i χ²_i > x)   and   P(Σ_i λ_i χ²_i > r Σ_j χ²_j),  j = 1 … n,

are both P(Q > 0) of a sum Q with weights of either sign, less a constant. With the cumulant
function K of Q, P(Q > 0) = 1/(2πi) ∫ exp K(s) / s ds along any path that crosses the real axis
between 0 and the first singularity of K (Imhof 1961 takes the imaginary axis itself). The path here
crosses at the saddle point of the integrand and bends away from the singularities along a
hyperbola, so that the trapezoid rule has the same relative accuracy far out in the tail, where a
rule along the imaginary axis subtracts numbers of order 1.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dsgp.errors import ParameterError
from dsgp.terms import Floats

# The step of the trapezoidal rule is halved until the sum changes by less than this share.
_ACCURACY = 1e-8
_FIRST_POINTS, _MOST_POINTS = 64, 2**16
# The path of integration ends where the integrand is below this share of its largest value.
_NEGLIGIBLE = 1e-14
# Relative to the largest weight; smaller weights change nothing that float64 would show.
_SMALLEST_WEIGHT = 1e-12


def tail_of_sum(weights: Floats, value: float) -> float:
    """P(Σ λ_i χ²_i > value).

    Parameters
    ----------
    weights : ndarray of shape (k,)
        λ, none negative, some positive.
    value : float

    Raises
    ------
    ParameterError
        If there is no positive weight, or a number is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.additive.quadratic_forms import tail_of_sum
    >>> round(tail_of_sum(np.ones(2), 6.0), 6)  # exp(-3)
    0.049787
    """
    positive = _positive(weights, value)
    return 1.0 if value <= 0 else _probability(positive, value, 0.0, 0)


def tail_of_ratio(weights: Floats, value: float, n: float) -> float:
    """P(Σ_i λ_i χ²_i > value · Σ_j χ²_j), i = 1 … k among j = 1 … n: the first ones are the same.

    Parameters
    ----------
    weights : ndarray of shape (k,)
        λ, none negative, some positive.
    value : float
    n : int or float
        At least k.

    Raises
    ------
    ParameterError
        If there is no positive weight, more weights than n, or a number is not finite.
    """
    positive = _positive(weights, value)
    if len(positive) > n:
        raise ParameterError(f"{len(positive)} weights cannot be among {n} squares")
    if value <= 0:
        return 1.0
    if value >= positive.max():  # the ratio is an average of the weights and zeros
        return 0.0
    if len(positive) == n and value <= positive.min():
        return 1.0
    return _probability(positive - value, 0.0, value, n - len(positive))


def _positive(weights: Floats, value: float) -> Floats:
    if not (np.isfinite(weights).all() and np.isfinite(value)):
        raise ParameterError("weights and value of a quadratic form must be finite")
    positive = weights[weights > _SMALLEST_WEIGHT * np.max(weights, initial=0.0)]
    if not len(positive):
        raise ParameterError("a quadratic form needs a positive weight")
    return positive


def _probability(weights: Floats, value: float, common: float, n_common: float) -> float:
    """P(Σ a_i χ²_i − common · χ²_n_common > value), with weights of either sign."""
    unit = float(np.abs(weights).max())
    a, x, c = weights / unit, value / unit, common / unit

    def exponent(s: Floats) -> Floats:
        """K(s) − log s, up to multiples of 2πi."""
        logs = np.log1p(-2 * a[:, None] * s).sum(axis=0) + n_common * np.log1p(2 * c * s)
        return -0.5 * logs - s * x - np.log(s)

    def slope(s: float) -> float:
        rest = n_common * c / (1 + 2 * c * s)
        return float(np.sum(a / (1 - 2 * a * s))) - rest - x - 1 / s

    singular = 1 / (2 * float(a.max()))
    low, high = 1e-14 * singular, (1 - 1e-14) * singular
    saddle = brentq(slope, low, high, xtol=1e-15 * singular, rtol=1e-12)
    peak = float(exponent(np.array([saddle + 0j]))[0].real)
    reach = min(saddle, singular - saddle)

    def integrand(v: Floats) -> Floats:
        s = saddle + reach * (np.cosh(v) - 1 + 1j * np.sinh(v))
        along = reach * (np.sinh(v) + 1j * np.cosh(v))
        return np.asarray((np.exp(exponent(s) - peak) * along).imag)

    end = 1.0
    while abs(integrand(np.array([end]))[0]) > _NEGLIGIBLE * reach and end < 60:
        end += 1.0
    total, n_points = np.nan, _FIRST_POINTS
    while n_points <= _MOST_POINTS:
        v = np.linspace(0.0, end, n_points + 1)
        values = integrand(v)
        before, total = total, (values.sum() - 0.5 * (values[0] + values[-1])) * end / n_points
        if abs(total - before) <= _ACCURACY * abs(total):
            return float(np.clip(np.exp(peak) * total / np.pi, 0.0, 1.0))
        n_points *= 2
    raise ArithmeticError(
        f"the tail probability of a quadratic form of {len(weights)} weights did not settle"
    )
