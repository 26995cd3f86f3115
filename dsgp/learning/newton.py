"""Minimisation within bounds by trust regions and a positive model of the curvature."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dsgp.terms import Floats

# Largest change of a parameter in any step.
_LARGEST_RADIUS = 4.0
# With a smaller radius, steps only follow rounding errors.
_SMALLEST_RADIUS = 1e-6
# Decrease as a share of what the model promised: below the first the radius shrinks, above the
# second it grows.
_POOR, _GOOD = 0.25, 0.75
# Added to the diagonal of the curvature: a share of it, and a constant.
_RIDGE = 1e-8
_LEAST_CURVATURE = 0.1
# Rounding errors of the function, as a share of it.
_ROUNDING = 1e-14
_ROUNDS = 30
# Number of past steps that correct the model, and the smallest share of its curvature that the
# gradients must show along a step.
_PAIRS = 3
_LEAST_ALONG = 0.02


class Found(NamedTuple):
    """Where the search ended, its value, and whether the gradient vanishes there."""

    x: Floats
    value: float
    converged: bool


def trust_region(
    function: Callable[[Floats], tuple[float, Floats]],
    curvature: Callable[[], Floats],
    start: Floats,
    lower: Floats,
    upper: Floats,
    *,
    tol: Floats,
    enough: float,
    radius: float,
    max_iter: int,
) -> Found:
    """Minimise a function from a start within bounds.

    The model of the curvature is corrected by what the gradient does along the steps.

    Parameters
    ----------
    function : callable
        Returns value and gradient; a value that is not finite means that the step was too long.
    curvature : callable
        Positive semi-definite matrix near the Hessian, where ``function`` was called last.
    start, lower, upper : ndarray of shape (q,)
    tol : ndarray of shape (q,)
        The search ends when all slopes that point within the bounds are below these.
    enough : float
        The search also ends when a step promises a smaller decrease.
    radius : float
        Largest change of a parameter in the first step.
    max_iter : int
    """
    x, (value, gradient) = start, function(start)
    model = own = curvature()
    pairs = deque[tuple[Floats, Floats]](maxlen=_PAIRS)
    for _ in range(max_iter):
        inward = np.where(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)), 0, 1)
        if np.all(np.abs(gradient * inward) <= tol):
            return Found(x, value, True)
        low, high = np.maximum(lower - x, -radius), np.minimum(upper - x, radius)
        step = box_step(gradient, model, low, high)
        promised = -float(gradient @ step + 0.5 * step @ model @ step)
        if promised <= enough:
            return Found(x, value, True)
        if promised <= _ROUNDING * abs(value) or radius < _SMALLEST_RADIUS:
            break
        tried = np.clip(x + step, lower, upper)
        new_value, new_gradient = function(tried)
        gain = (value - new_value) / promised if np.isfinite(new_value) else -np.inf
        length = float(np.max(np.abs(step)))
        if gain < _POOR:
            radius = _POOR * length
        elif gain > _GOOD and length > 0.9 * radius:
            radius = min(2 * radius, _LARGEST_RADIUS)
        if np.isfinite(new_value):
            pairs.append((tried - x, new_gradient - gradient))
        if gain > 0:
            x, value, gradient = tried, new_value, new_gradient
            own = curvature()
        model = corrected(own, pairs)
    return Found(x, value, False)


def corrected(curvature: Floats, pairs: Iterable[tuple[Floats, Floats]]) -> Floats:
    """Update a curvature by the changes of the gradient along steps, as BFGS does."""
    out = curvature
    for step, change in pairs:
        along, expected = float(step @ change), out @ step
        total = float(step @ expected)
        if along > _LEAST_ALONG * total > 0:
            out = out - np.outer(expected, expected) / total + np.outer(change, change) / along
    return out


def box_step(gradient: Floats, curvature: Floats, low: Floats, high: Floats) -> Floats:
    """Minimise gᵀs + ½ sᵀBs, nearly, over low ≤ s ≤ high: by active sets.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.learning.newton import box_step
    >>> low, high = np.array([-2.0, -2.0]), np.array([2.0, 2.0])
    >>> box_step(np.array([-1.0, -4.0]), np.eye(2), low, high).round(2)
    array([0.91, 2.  ])
    """
    diagonal = np.diag(curvature)
    ridged = curvature + np.diag(_RIDGE * diagonal + _LEAST_CURVATURE)
    step, fixed = np.zeros(len(gradient)), low >= high
    best, least = np.zeros(len(gradient)), 0.0
    for _ in range(_ROUNDS):
        free = ~fixed
        if free.any():
            slope = gradient[free] + ridged[np.ix_(free, fixed)] @ step[fixed]
            step[free] = -cho_solve(cho_factor(ridged[np.ix_(free, free)], lower=True), slope)
        beyond = free & ((step < low) | (step > high))
        step = np.clip(step, low, high)
        slope = gradient + ridged @ step
        reached = float(gradient @ step + 0.5 * step @ ridged @ step)
        if reached < least:
            best, least = step.copy(), reached
        if beyond.any():
            fixed = fixed | beyond
            continue
        leaving = (
            fixed & (low < high) & (((step <= low) & (slope < 0)) | ((step >= high) & (slope > 0)))
        )
        if not leaving.any():
            break
        fixed = fixed & ~leaving
    return best
