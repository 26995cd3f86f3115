"""Rows in memory: arrays and data frames. Columns are converted one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, column_or_1d

from dsgp.errors import DataError
from dsgp.rows.encode import require_finite
from dsgp.rows.sources.kinds import NUMBER, Kind
from dsgp.rows.sources.numbers import each_checked, numbers_of, require_numbers
from dsgp.terms import Floats

UNMATCHED = "The feature names should match those that were passed during fit."


@dataclass(frozen=True)
class Columns:
    """Numeric columns of one table, converted to float64 only when needed.

    Attributes
    ----------
    names : tuple of str
        Column names; x0, x1, … where the data have none.
    named : bool
        Whether the names came with the data.
    n_rows : int
    index : pandas.Index or None
        Row labels of a data frame.
    data : ndarray or pandas.DataFrame
        It may have further columns.
    positions : tuple of int
        Where in ``data`` each column is.
    kinds : mapping of str to Kind
        What columns hold that are no numbers.
    """

    names: tuple[str, ...]
    named: bool
    n_rows: int
    index: pd.Index | None
    data: Any
    positions: tuple[int, ...]
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def kind(self, name: str) -> Kind:
        """Kind of a column."""
        return self.kinds.get(name, NUMBER)

    def column(self, name: str, rows: slice = slice(None)) -> Floats:
        """Return one column, or some rows of it, as float64."""
        position = self.positions[self.names.index(name)]
        frame = isinstance(self.data, pd.DataFrame)
        values = self.data.iloc[rows, position] if frame else self.data[rows, position]
        return self.kind(name).encode(f"input column {name!r}", values)

    def part(self, rows: slice) -> Columns:
        """Return some of the rows, as views and without their labels."""
        rows = slice(*rows.indices(self.n_rows))
        frame = isinstance(self.data, pd.DataFrame)
        data = self.data.iloc[rows] if frame else self.data[rows]
        return replace(self, n_rows=len(data), index=None, data=data)

    def finite_column(self, name: str, rows: slice = slice(None)) -> Floats:
        """Like ``column``, but raise ``DataError`` where a value is missing or infinite."""
        values = self.column(name, rows)
        require_finite(f"input column {name!r}", values, first_row=rows.start or 0)
        return values


def columns_of(table: Any, kinds: Mapping[str, Kind] | None = None) -> Columns:
    """Describe the columns of an array or data frame, without converting them.

    Parameters
    ----------
    table : array_like of shape (n_rows, n_columns), or pandas.DataFrame
    kinds : mapping of str to Kind, optional
        What columns hold that are no numbers.

    Raises
    ------
    DataError
        If there is no row or no column, a name occurs twice, or a column is not of its kind.
    TypeError
        If the table is sparse, or its column names mix text and other types.
    """
    if not isinstance(table, pd.DataFrame):
        return _array_columns(table)
    text = [isinstance(name, str) for name in table.columns]
    if any(text) and not all(text):
        raise TypeError(
            "Feature names are only supported if all input features have string names, but X has "
            f"{sorted({type(name).__name__ for name in table.columns})} as column name types; "
            "rename the columns, e.g. X.columns = X.columns.astype(str)"
        )
    named = all(text)
    n_columns = table.shape[1]
    names = tuple(table.columns) if named else numbered(n_columns)
    return _frame_columns(table, names, named, tuple(range(n_columns)), kinds)


def matching_columns(
    table: Any,
    names: Sequence[str],
    needed: Sequence[str],
    named: bool,
    model: str,
    kinds: Mapping[str, Kind] | None = None,
) -> Columns:
    """Describe the columns that a model fitted on ``names`` needs.

    Where both have names, columns are matched by them, and further ones are ignored, whatever they
    hold; otherwise they are taken by position and must agree in number with those of the fit.

    Parameters
    ----------
    table : array_like of shape (n_rows, n_columns), or pandas.DataFrame
    names, needed : sequence of str
        Columns of the fit, and those that the model uses.
    named : bool
        Whether the names of the fit came with its data.
    model : str
        For messages.
    kinds : mapping of str to Kind, optional
        As for ``columns_of``.

    Raises
    ------
    DataError
        If a column is missing, or the numbers do not agree, or as ``columns_of``.
    """
    if named and isinstance(table, pd.DataFrame) and any(isinstance(n, str) for n in table.columns):
        present = list(table.columns)
        if missing := [name for name in needed if name not in present]:
            raise DataError(
                f"{UNMATCHED}\nMissing: {listed(missing)}; the table has {listed(present)}"
            )
        require_unique([name for name in present if name in needed])
        positions = tuple(present.index(name) for name in needed)
        return _frame_columns(table, tuple(needed), named, positions, kinds)
    columns = columns_of(table)
    require_as_many(columns.names, names, model)
    return replace(columns, names=tuple(names), kinds=kinds or {})


def require_as_many(present: Sequence[str], names: Sequence[str], model: str) -> None:
    """Raise ``DataError`` if columns matched by position are not as many as in the fit."""
    if len(present) != len(names):
        raise DataError(
            f"X has {len(present)} features, but {model} is expecting {len(names)} features "
            f"as input: {listed(names)}; pass the same columns in the same order"
        )


def _array_columns(table: Any) -> Columns:
    _refuse_mask(table, "X")
    kind = getattr(np.asarray(table), "dtype", np.dtype(float)).kind
    if kind in "US":
        raise DataError("X is text: convert it to numbers")
    array = check_array(table, dtype=None, ensure_all_finite=False)
    n_rows, n_columns = array.shape
    names = numbered(n_columns)
    if array.dtype.kind == "O":
        each_checked(
            partial(require_numbers, f"input column {name!r}", array[:, j])
            for j, name in enumerate(names)
        )
    else:
        require_numbers("X", array[:0, 0])
    return Columns(names, False, n_rows, None, array, tuple(range(n_columns)))


def _refuse_mask(values: Any, what: str) -> None:
    if np.ma.isMaskedArray(values):
        raise DataError(f"{what} is a masked array: fill the masked values, or drop their rows")


def numbered(n_columns: int) -> tuple[str, ...]:
    """Name columns that have no names."""
    return tuple(f"x{j}" for j in range(n_columns))


def _frame_columns(
    table: pd.DataFrame,
    names: tuple[str, ...],
    named: bool,
    positions: tuple[int, ...],
    kinds: Mapping[str, Kind] | None = None,
) -> Columns:
    kinds = kinds or {}
    if table.shape[1] == 0:
        raise DataError("the table has no input column (0 feature(s)); at least one is needed")
    if len(table) == 0:
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    require_unique(names)
    each_checked(
        partial(kinds.get(name, NUMBER).check, f"input column {name!r}", table.iloc[:, position])
        for name, position in zip(names, positions, strict=True)
    )
    return Columns(names, named, len(table), table.index, table, positions, kinds)


def target_of(y: Any, n_rows: int, name: str = "y", first_row: int = 0) -> Floats:
    """Check a target column and return it as float64, (n_rows,).

    ``first_row`` is the number, for messages, of the first value's row.

    Raises
    ------
    DataError
        If it is absent, not numeric, of another length or not finite.
    """
    if y is None:
        raise DataError(
            "fit requires y to be passed, but the target y is None: pass the target column"
        )
    if isinstance(y, pd.Series):
        name = str(y.name if y.name is not None else name)
    _refuse_mask(y, f"the target {name!r}")
    values = numbers_of(f"the target {name!r}", _flat(y))
    require_length("y", len(values), n_rows)
    require_finite(f"the target {name!r}", values, first_row)
    return values


def _flat(y: Any) -> Any:
    """Return a target as one column, with scikit-learn's warning of a column vector."""
    series = isinstance(y, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray))
    return y if series else column_or_1d(y, warn=True, dtype=None)


def require_length(what: str, length: int, n_rows: float) -> None:
    """Raise ``DataError`` if values beside a table are not one per row."""
    if length != n_rows:
        raise DataError(
            f"X has {n_rows:.0f} rows but {what} has {length}: inconsistent numbers of samples; "
            "pass one value per row"
        )


def weights_of(sample_weight: ArrayLike | None, n_rows: int) -> Floats:
    """Check precision weights and return them as float64, (n_rows,); ones for None.

    Raises
    ------
    DataError
        If the shape is another, or a weight is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    weight = some_weights(sample_weight, n_rows)
    if not (weight > 0).any():
        name = _weight_name(sample_weight)
        raise DataError(f"{name} is zero in every row; at least one row must count")
    return weight


def some_weights(sample_weight: ArrayLike, n_rows: int, first_row: int = 0) -> Floats:
    """Check the weights of some rows, which may all be 0; ``first_row`` as for ``target_of``."""
    name = _weight_name(sample_weight)
    _refuse_mask(sample_weight, name)
    weight = numbers_of(name, sample_weight)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(
            f"{name} must have shape ({n_rows},), one weight per row, got {weight.shape}"
        )
    require_finite(name, weight, first_row)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise DataError(
            f"{name} is negative in row {first_row + row} (counted from 0): {weight[row]:g}; "
            "weights are precisions, relative to the noise: 0 leaves a row out"
        )
    if weight.max(initial=0.0) > 1e100 or weight[weight > 0].min(initial=1.0) < 1e-100:
        raise DataError(f"{name} goes beyond 1e-100 to 1e100; only ratios matter: rescale it")
    return weight


def _weight_name(sample_weight: ArrayLike) -> str:
    if isinstance(sample_weight, pd.Series):
        return f"the weight {str(sample_weight.name or 'sample_weight')!r}"
    return "sample_weight"


def extra_of(values: Any, n_rows: int, role: str, first_row: int = 0) -> Floats:
    """Check further numbers of some rows and return them as float64, (n_rows,).

    Parameters
    ----------
    values : array_like
        One per row, or one for all rows.
    n_rows : int
    role : str
        What they are, e.g. offset.
    first_row : int
        As for ``target_of``.

    Raises
    ------
    DataError
        If the shape is another, or a value is no finite number.
    """
    name = role
    if isinstance(values, pd.Series):
        name = f"the {role} {str(role if values.name is None else values.name)!r}"
    _refuse_mask(values, name)
    numbers = numbers_of(name, values)
    if numbers.ndim == 0:
        numbers = np.full(n_rows, float(numbers))
    if numbers.shape != (n_rows,):
        raise DataError(
            f"{name} must have shape ({n_rows},), one value per row, got {numbers.shape}"
        )
    require_finite(name, numbers, first_row)
    return numbers


def require_unique(names: Sequence[str]) -> None:
    """Raise ``DataError`` if a column name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"duplicate column name {listed(twice)}: columns are matched by name; rename or drop"
        )


def require_non_inputs(table: Any, non_inputs: Sequence[str], kind: str) -> None:
    """Raise ``DataError`` if a table lacks columns that are no inputs, or has one of them twice."""
    if not non_inputs:
        return
    if not hasattr(table, "columns"):
        raise DataError(f"the {kind} has no column {listed(non_inputs)}: pass an array")
    if absent := [name for name in non_inputs if name not in table.columns]:
        raise DataError(
            f"the {kind} has no column {listed(absent)}; it has {listed(list(table.columns))}"
        )
    require_unique([name for name in table.columns if name in non_inputs])


@contextmanager
def naming(part: str) -> Iterator[None]:
    """Begin errors with the part of the table that they are about; "" is no part."""
    try:
        yield
    except DataError as error:
        if not part:
            raise
        raise DataError(f"{part}: {error}") from error


def listed(names: Sequence[Any], at_most: int = 12) -> str:
    """Quote names for a message, the first dozen of them."""
    shown = ", ".join(repr(str(name)) for name in names[:at_most])
    return shown + (f", … ({len(names)} in all)" if len(names) > at_most else "")
