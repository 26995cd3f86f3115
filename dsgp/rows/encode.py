"""One column of inputs: numbers become an axis and the code of each row on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsgp.axis import Axis
from dsgp.errors import DataError


def require_finite(name: str, values: NDArray[np.float64], first_row: int = 0) -> None:
    """Raise ``DataError`` naming the column and the first row that is not a finite number.

    ``first_row`` is the number of the first value's row.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    bad = np.flatnonzero(~finite)
    value = values[bad[0]]
    kind = "NaN (missing)" if np.isnan(value) else "infinity"
    raise DataError(
        f"{name} contains {kind} in row {first_row + bad[0]} (counted from 0) and is not finite in "
        f"{bad.size} of {values.size} rows; every value must be a finite number: drop those rows "
        "or fill them"
    )


def encode(name: str, column: NDArray[np.float64]) -> tuple[Axis, NDArray[np.int32]]:
    """Turn a column into its axis of distinct values and the code of each row (exact: no bins).

    Parameters
    ----------
    name : str
        For messages.
    column : ndarray of shape (n_rows,)

    Returns
    -------
    axis : Axis
    codes : ndarray of shape (n_rows,)
        ``axis.points[codes]`` is the column.

    Raises
    ------
    DataError
        If a value is not finite.
    """
    require_finite(f"input column {name!r}", column)
    return Axis.from_column(column)
