"""Refusals of hyperparameters, options and targets, with messages that name them."""

from __future__ import annotations

from numbers import Real

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError, ParameterError

Array = NDArray[np.float64]
# Largest counts and trials: beyond, float64 does not distinguish neighbouring numbers.
LARGEST_COUNT = 2.0**53


def check_positive(owner: object, *names: str) -> None:
    """Refuse hyperparameters that are not positive numbers; make them floats."""
    for name in names:
        value = getattr(owner, name)
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and 1e-150 <= float(value) <= 1e150):
            raise ParameterError(
                f"{type(owner).__name__}: {name} must be a number from 1e-150 to 1e150, "
                f"got {value!r}"
            )
        object.__setattr__(owner, name, float(value))


def check_choice(owner: object, name: str, choices: tuple[str, ...]) -> None:
    """Refuse an option that is not one of `choices`."""
    value = getattr(owner, name)
    if value not in choices:
        raise ParameterError(
            f"{type(owner).__name__}: {name} must be one of {', '.join(map(repr, choices))}, "
            f"got {value!r}"
        )


def check_level(level: float) -> float:
    """Refuse a probability that is not within (0, 1)."""
    if not 0 < level < 1:
        raise ParameterError(f"level must be within 0 and 1, such as 0.95, got {level!r}")
    return float(level)


def refuse_rows(
    bad: NDArray[np.bool_], y: Array, name: str, first_row: int, expected: str, remedy: str
) -> None:
    """Raise the DataError of the first row that is marked bad, if any is."""
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{name} must hold {expected}, but row {row + first_row} is {y[row]!s}; {remedy}"
        )
