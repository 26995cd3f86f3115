"""Checks of the arguments of a grid: points of its axes, and the product of its variances."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Stationary
from dsgp.kernels.base import LARGEST, SMALLEST

Floats = NDArray[np.float64]


def amplitude(kernels: Sequence[Stationary]) -> float:
    """Product of the variances, within the range of one."""
    # Checked by logs too, because factors may be large and small in turn. (std raises if one is
    # missing.)
    log = sum(2.0 * math.log(kernel.std) for kernel in kernels)
    if not math.log(SMALLEST) <= log <= math.log(LARGEST):
        raise ParameterError(
            f"the product of the kernels' variances must be from {SMALLEST:g} to {LARGEST:g}, got "
            f"10^{log / math.log(10):.1f}"
        )
    product = math.prod(float(kernel.variance or 0.0) for kernel in kernels)
    return product if 0.0 < product < math.inf else math.exp(log)


def ascending(points: ArrayLike, d: int) -> Floats:
    """Points of axis d as a new array, or a ``DataError``."""
    axis_points = np.array(points, dtype=np.float64)
    if axis_points.ndim != 1 or not axis_points.size:
        raise DataError(f"points of axis {d} must be one dimension, got shape {axis_points.shape}")
    if not np.isfinite(axis_points).all() or not (np.diff(axis_points) > 0).all():
        raise DataError(
            f"points of axis {d} must be finite and strictly ascending; sort them, and merge "
            "those that are equal"
        )
    return axis_points


def points_of(points: Sequence[ArrayLike], n_axes: int) -> list[Floats]:
    """Points of another grid, in any order, or a ``DataError``."""
    inputs = [np.asarray(axis_points, dtype=np.float64) for axis_points in points]
    if len(inputs) != n_axes or any(axis_points.ndim != 1 for axis_points in inputs):
        raise DataError(
            f"points must be {n_axes} arrays of one dimension, one per axis; got arrays of shapes "
            f"{[axis_points.shape for axis_points in inputs]}"
        )
    if not all(np.isfinite(axis_points).all() for axis_points in inputs):
        raise DataError("points must be finite")
    return inputs
