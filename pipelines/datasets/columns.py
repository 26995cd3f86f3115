"""Inputs and targets as models take them: numeric columns, labels, counts; complete rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.sources import columns_of, target_of
from dsgp.rows.sources.numbers import together
from pipelines.datasets.splits import Floats


def chosen_inputs(
    X: pd.DataFrame, columns: Sequence[str] | None, drop: Sequence[str], source: str
) -> pd.DataFrame:
    """Choose the input columns, all numeric.

    Raises
    ------
    DataError
        When a column is absent or not numeric, or none is left.
    """
    unknown = [name for name in columns or drop if name not in X.columns]
    if unknown:
        raise DataError(
            f"{source}: there is no input column {unknown[0]!r}; there are: "
            + ", ".join(map(str, X.columns))
        )
    X = X.drop(columns=list(drop)) if columns is None else X[list(dict.fromkeys(columns))]
    if X.shape[1] == 0:
        raise DataError(f"{source}: no input column is left")
    text = {name: error for name in X if (error := _not_numeric(X[[name]])) is not None}
    if text:
        names = ",".join(map(str, text))
        raise DataError(
            f"{source}: {together(list(text.values()))} (--drop {names}, or --columns with the "
            "others)"
        )
    narrow = X.select_dtypes(include="float32").columns
    return X.astype(dict.fromkeys(narrow, np.float64))


def require_finite(X: pd.DataFrame) -> None:
    """Raise ``DataError`` if an input is missing or infinite.

    This is done before rows are drawn, so that a message counts them as the source does.
    """
    numbers = columns_of(X)
    for name in numbers.names:
        numbers.finite_column(name)


def finite_target(column: pd.Series, source: str, first_row: int = 0) -> Floats:
    """Target of a regression, (n_rows,); the first value is of row `first_row`."""
    try:
        return target_of(column, len(column), first_row=first_row)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def labels_of(column: pd.Series, source: str) -> NDArray[Any]:
    """Labels, none missing: int64 for whole numbers, bool, or object for text.

    Raises
    ------
    DataError
        When one is neither a whole number nor text, or both occur.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    column = column.infer_objects()  # truth values are objects where some were missing
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=bool)
    if pd.api.types.is_integer_dtype(column.dtype):
        return column.to_numpy(dtype=np.int64)
    if pd.api.types.is_float_dtype(column.dtype):  # a missing value makes floats of integers
        numbers = column.to_numpy(dtype=np.float64)
        fits = np.isfinite(numbers) & (numbers == np.round(numbers))
        labels: NDArray[Any] = np.where(fits, numbers, 0).astype(np.int64)
    else:
        labels = column.to_numpy(dtype=object)
        fits = np.array([isinstance(label, str) for label in labels])
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{source}: the target {column.name!r} is {column.tolist()[row]!r} in row "
            f"{column.index[row]}; expected labels, either whole numbers or text: real values are "
            "for the regression pipeline"
        )
    return labels


def counts_of(column: pd.Series, source: str, first_row: int = 0) -> Floats:
    """Counts as float64, (n_rows,); the first is of row `first_row`.

    Raises
    ------
    DataError
        When one is missing, negative or not whole.
    """
    counts = finite_target(column, source, first_row)
    fits = (counts >= 0) & (counts == np.round(counts))
    _require_rows(fits, column, source, first_row, "counts 0, 1, 2, …")
    return counts


def exposure_of(column: pd.Series, source: str, first_row: int = 0) -> Floats:
    """Exposures as float64, (n_rows,); the first is of row `first_row`.

    Raises
    ------
    DataError
        When one is missing or not positive.
    """
    exposure = finite_target(column, source, first_row)
    _require_rows(exposure > 0, column, source, first_row, "exposures above 0")
    return exposure


def _require_rows(
    fits: NDArray[np.bool_], column: pd.Series, source: str, first_row: int, expected: str
) -> None:
    if not fits.all():
        row = int(np.argmin(fits))
        raise DataError(
            f"{source}: {column.name!r} is {column.iloc[row]:g} in row {first_row + row}; "
            f"expected {expected}: leave such rows out"
        )


def _not_numeric(column: pd.DataFrame) -> DataError | None:
    try:
        columns_of(column)
    except DataError as error:
        return error
    return None
