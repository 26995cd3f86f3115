"""Checks that the numbers of a table have a size that float64 can handle."""

from __future__ import annotations

import warnings

import numpy as np

from dsgp.errors import DataError, DataWarning
from dsgp.kernels.base import LARGEST, SMALLEST
from dsgp.terms import Floats

# Range of targets whose variance, and its multiples in a search, kernels accept.
_TARGET_RANGE = (1e-60, 1e60)
# Range of columns whose lengthscales, and their multiples in a search, kernels accept.
_COLUMN_RANGE = (SMALLEST * 1e10, LARGEST * 1e-10)


def require_usable_target(size: float) -> None:
    """Raise ``DataError`` if a target is too large to be squared."""
    if size > _TARGET_RANGE[1]:
        raise DataError(
            f"the target reaches {size:g}, too large to be squared safely; rescale it, e.g. divide "
            f"by {size:.0e}"
        )


def constant_target(value: float, n_rows: int) -> tuple[float, float]:
    """Warn of a constant target; return its location, and a scale that is safe to divide by."""
    warnings.warn(
        f"the target is constant ({value:g} in all {n_rows} rows): every component is 0",
        DataWarning,
        stacklevel=2,
    )
    return value, abs(value) if abs(value) > _TARGET_RANGE[0] else 1.0


def require_usable_scale(scale: float) -> None:
    """Raise ``DataError`` if a target's standard deviation is too small to be squared."""
    if scale < _TARGET_RANGE[0]:
        raise DataError(
            f"the target has a standard deviation of {scale:g}, too small to be squared safely; "
            f"rescale it, e.g. divide by {scale:.0e}"
        )


def warn_of_constant(constant: list[str]) -> None:
    """Warn of columns that do not vary."""
    if constant:
        warnings.warn(
            f"constant over the training rows and left out: {', '.join(map(repr, constant))}",
            DataWarning,
            stacklevel=2,
        )


def require_usable_range(name: str, low: float, high: float) -> None:
    """Raise ``DataError`` if the range of a column is beyond what lengthscales can be."""
    extent = high / 2 - low / 2  # half, because the difference may overflow
    smallest, largest = _COLUMN_RANGE
    if high > low and not smallest < extent < largest:
        raise DataError(
            f"input column {name!r} spans {low:g} to {high:g}, beyond what lengthscales can be "
            f"({smallest:.0e} to {largest:.0e}); rescale it"
        )


def location_and_scale(y: Floats, weight: Floats | None) -> tuple[float, float]:
    """Mean and standard deviation of a target (n_rows,), computed so that nothing overflows."""
    require_usable_target(float(np.abs(y).max()))
    if y.min() == y.max():
        return constant_target(float(y[0]), len(y))
    offset = float(np.average(y, weights=weight))
    centred = y - offset
    largest = float(np.abs(centred).max())
    scale = largest * float(np.sqrt(np.average((centred / largest) ** 2, weights=weight)))
    require_usable_scale(scale)
    return offset, scale
