"""The logistic function and its logarithm, faster than scipy's and exact in both tails."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsgp.likelihoods.base import LARGEST_EXPONENT

Array = NDArray[np.float64]


def logistic_pair(f: Array) -> tuple[Array, Array]:
    """σ(f) and σ(−f): each from its own exponential, since 1 − σ(f) loses a tail.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.likelihoods.logistic import logistic_pair
    >>> logistic_pair(np.array([0.0, 50.0]))
    (array([0.5, 1. ]), array([5.00000000e-01, 1.92874985e-22]))
    """
    exponent = np.clip(f, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    odds = np.exp(exponent)
    against = np.exp(np.negative(exponent))
    odds += 1
    against += 1
    return 1 / against, 1 / odds


def log_logistic(f: Array) -> Array:
    """Log σ(f)."""
    return np.minimum(f, 0.0) - np.log1p(np.exp(-np.abs(f)))
