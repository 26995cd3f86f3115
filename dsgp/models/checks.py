"""Checks of an estimator's parameters, made when it is fitted."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from dsgp.additive import MAX_ITER, SOLVERS
from dsgp.errors import ParameterError
from dsgp.kernels import Kernel
from dsgp.rows.encode import MOST_BINS


def require_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ``ParameterError`` unless the value is one of those allowed."""
    if value not in allowed:
        raise ParameterError(f"{name} must be one of {allowed}, got {value!r}")


def require_positive(name: str, value: Any) -> None:
    """Raise ``ParameterError`` unless the value is a positive finite number."""
    if not (isinstance(value, Real) and math.isfinite(value) and float(value) > 0):
        raise ParameterError(f"{name} must be a positive finite number, got {value!r}")


def require_number(name: str, value: Any) -> None:
    """Raise ``ParameterError`` unless the value is a finite number."""
    if not (isinstance(value, Real) and math.isfinite(value)):
        raise ParameterError(f"{name} must be a finite number, got {value!r}")


def require_numbers(name: str, values: Any) -> None:
    """Raise ``ParameterError`` unless the values are a sequence of numbers."""
    listed = isinstance(values, (list, tuple, np.ndarray))
    if not (listed and all(isinstance(value, Real) for value in values)):
        raise ParameterError(f"{name} must be a list of numbers, such as [-999], got {values!r}")


def require_level(name: str, value: Any) -> None:
    """Raise ``ParameterError`` unless the value is a probability between 0 and 1."""
    if not (isinstance(value, Real) and 0 < float(value) < 1):
        raise ParameterError(f"{name} must lie between 0 and 1, got {value!r}")


def require_count(name: str, value: Any) -> None:
    """Raise ``ParameterError`` unless the value is an integer of at least 1."""
    if not (isinstance(value, Integral) and int(value) >= 1):
        raise ParameterError(f"{name} must be an integer of at least 1, got {value!r}")


def generator(random_state: Any) -> np.random.Generator:
    """Return random numbers of a seed, or raise ``ParameterError`` if it is none."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"random_state must be None, an integer of at least 0 or a numpy Generator, got "
            f"{random_state!r}"
        ) from error


def require_bins(value: Any) -> None:
    """Raise ``ParameterError`` unless bins are "auto", None or a number that codes can hold."""
    if value is None or value == "auto":
        return
    number = isinstance(value, Integral) and not isinstance(value, bool)
    if not (number and 2 <= int(value) <= MOST_BINS):
        raise ParameterError(
            f'bins must be "auto", None or an integer from 2 to {MOST_BINS}, got {value!r}'
        )


def require_resolvable(kernels: list[Kernel], noise_variance: float) -> None:
    """Raise ``ParameterError`` if float64 cannot resolve noise that is so small."""
    largest = max((kernel.std**2 for kernel in kernels), default=0.0)
    if largest > 1e13 * noise_variance:
        raise ParameterError(
            f"the noise variance is {largest / noise_variance:.0e} times smaller than the largest "
            "variance of a kernel; float64 resolves about 1e13: raise noise_variance, or lower the "
            "kernel's variance"
        )


def iterations_of(solver: str, max_iter: Any) -> int:
    """Return how many iterations a solver may take; None means its usual number.

    Raises
    ------
    ParameterError
        If the solver is none, or the number is none.
    """
    require_choice("solver", solver, tuple(SOLVERS))
    if max_iter is None:
        return MAX_ITER[solver]
    require_count("max_iter", max_iter)
    return int(max_iter)
