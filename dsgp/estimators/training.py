"""Training rows made ready: encoded, centred, in units where target and weights are about 1."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.axis import Axis, Floats
from dsgp.errors import DataError, DataWarning
from dsgp.kernels.matern import LARGEST, SMALLEST
from dsgp.rows.encode import encode
from dsgp.rows.sources import Columns, columns_of, target_of, weights_of
from dsgp.rows.table import RowTable

# Targets whose variance, times what a search may try, is a number that kernels accept.
_TARGET_RANGE = (1e-60, 1e60)
# Columns whose lengthscales, likewise.
_COLUMN_RANGE = (SMALLEST * 1e10, LARGEST * 1e-10)


@dataclass(frozen=True)
class Training:
    """Rows of positive weight, ready for the solver.

    Attributes
    ----------
    columns : Columns
    table : RowTable
        Of the columns that vary.
    constant : list of str
        The others.
    y : ndarray of shape (n_rows,)
        Target minus ``offset``, divided by ``scale``.
    weight : ndarray of shape (n_rows,)
        Weights divided by ``weight_scale``, their mean.
    """

    columns: Columns
    table: RowTable
    constant: list[str]
    y: Floats
    weight: Floats
    offset: float
    scale: float
    weight_scale: float

    @property
    def noise_scale(self) -> float:
        """The noise variance of the user is this many times that of the solver."""
        return self.scale**2 * self.weight_scale

    @classmethod
    def of(cls, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Training:
        """Check and prepare what ``fit`` was given.

        Raises
        ------
        DataError
            If a value is missing, infinite, not a number or beyond what float64 can square, or
            shapes do not agree.
        """
        columns = columns_of(X)
        y = target_of(y, columns.n_rows)
        weight = weights_of(sample_weight, columns.n_rows)
        kept = weight > 0
        table, constant = _encode(columns, kept)
        if not kept.all():
            y, weight = y[kept], weight[kept]
        weight_scale = float(np.mean(weight))
        weight = weight / weight_scale
        offset, scale = _location_and_scale(y, weight)
        centred = (y - offset) / scale
        return cls(columns, table, constant, centred, weight, offset, scale, weight_scale)


def _location_and_scale(y: Floats, weight: Floats) -> tuple[float, float]:
    size = float(np.abs(y).max())
    if size > _TARGET_RANGE[1]:
        raise DataError(
            f"the target reaches {size:g}, too large to be squared safely; rescale it, e.g. divide "
            f"by {size:.0e}"
        )
    if y.min() == y.max():
        value = float(y[0])
        warnings.warn(
            f"the target is constant ({value:g} in all {len(y)} rows): every component is 0",
            DataWarning,
            stacklevel=4,
        )
        return value, abs(value) if abs(value) > _TARGET_RANGE[0] else 1.0
    offset = float(np.average(y, weights=weight))
    centred = y - offset
    largest = float(np.abs(centred).max())
    scale = largest * float(np.sqrt(np.average((centred / largest) ** 2, weights=weight)))
    if scale < _TARGET_RANGE[0]:
        raise DataError(
            f"the target has a standard deviation of {scale:g}, too small to be squared safely; "
            f"rescale it, e.g. divide by {scale:.0e}"
        )
    return offset, scale


def _encode(columns: Columns, kept: NDArray[np.bool_]) -> tuple[RowTable, list[str]]:
    """Encode the columns that vary over the kept rows; name the others."""
    codes = np.empty((len(columns.names), int(kept.sum())), dtype=np.int32)
    names: list[str] = []
    axes: list[Axis] = []
    constant: list[str] = []
    for name in columns.names:
        column = columns.finite_column(name)
        _require_usable_range(name, column)
        axis, code = encode(name, column if kept.all() else column[kept])
        if len(axis) == 1:
            constant.append(name)
            continue
        codes[len(names)] = code
        names.append(name)
        axes.append(axis)
    if constant:
        warnings.warn(
            f"constant over the training rows and left out: {', '.join(map(repr, constant))}",
            DataWarning,
            stacklevel=4,
        )
    return RowTable(tuple(names), tuple(axes), codes[: len(names)]), constant


def _require_usable_range(name: str, column: Floats) -> None:
    low, high = float(column.min()), float(column.max())
    extent = high / 2 - low / 2  # of the difference only the half cannot overflow
    smallest, largest = _COLUMN_RANGE
    if high > low and not smallest < extent < largest:
        raise DataError(
            f"input column {name!r} spans {low:g} to {high:g}, beyond what lengthscales can be "
            f"({smallest:.0e} to {largest:.0e}); rescale it"
        )
