"""Where rows come from: arrays, data frames, CSV and Parquet files. Columns are read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, column_or_1d

from dsgp.axis import Floats
from dsgp.errors import DataError
from dsgp.rows.encode import require_finite

FILE_TYPES = (".csv", ".csv.gz", ".parquet", ".pq")


@dataclass(frozen=True)
class Columns:
    """Numeric columns of one table, converted to float64 only when asked for.

    Attributes
    ----------
    names : tuple of str
        Column names; x0, x1, … for arrays.
    named : bool
        Whether the names came with the data.
    n_rows : int
    index : pandas.Index or None
        Row labels of a data frame.
    """

    names: tuple[str, ...]
    named: bool
    n_rows: int
    index: pd.Index | None
    data: Any

    def column(self, name: str, rows: slice = slice(None)) -> Floats:
        """Return one column, or some rows of it, as float64."""
        position = self.names.index(name)
        if isinstance(self.data, pd.DataFrame):
            # Missing values of pandas' own integer and boolean types become NaN here.
            values = self.data.iloc[rows, position].to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = self.data[rows, position]
        return np.ascontiguousarray(values, dtype=np.float64)

    def matched(self, names: Sequence[str], named: bool) -> Columns:
        """Return these columns in the order of a fit's ``names``.

        Named columns are matched by name, and further ones are left aside; unnamed ones must agree
        in number and are taken by position.

        Raises
        ------
        DataError
            If a column of the fit is missing, or the numbers do not agree.
        """
        if self.named and named:
            missing = [name for name in names if name not in self.names]
            if missing:
                raise DataError(
                    "The feature names should match those that were passed during fit.\n"
                    f"Missing: {_listed(missing)}; the table has {_listed(self.names)}"
                )
            return self
        if len(self.names) != len(names):
            raise DataError(
                f"X has {len(self.names)} features, but the model was fitted with {len(names)} "
                f"features as input: {_listed(names)}; pass the same columns in the same order"
            )
        return Columns(tuple(names), named, self.n_rows, self.index, self.data)


def columns_of(table: Any) -> Columns:
    """Describe the columns of an array or data frame, without converting them.

    Parameters
    ----------
    table : array_like of shape (n_rows, n_columns), or pandas.DataFrame

    Raises
    ------
    DataError
        If there is no row or no column, a name occurs twice, or a column is not numeric.
    TypeError
        If the table is sparse, or its column names mix text and other types.
    """
    if not isinstance(table, pd.DataFrame):
        array = check_array(table, dtype="numeric", ensure_all_finite=False)
        names = tuple(f"x{j}" for j in range(array.shape[1]))
        return Columns(names, False, array.shape[0], None, array)
    n_rows, n_columns = table.shape
    if n_columns == 0:
        raise DataError("the table has no input column (0 feature(s)); at least one is needed")
    if n_rows == 0:
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    text = [isinstance(name, str) for name in table.columns]
    if any(text) and not all(text):
        raise TypeError(
            "Feature names are only supported if all input features have string names, but X has "
            f"{sorted({type(name).__name__ for name in table.columns})} as column name types; "
            "rename the columns, e.g. X.columns = X.columns.astype(str)"
        )
    named = all(text)
    names = tuple(table.columns) if named else tuple(f"x{j}" for j in range(n_columns))
    require_unique(names)
    for position, name in enumerate(names):
        _require_numeric(name, table.iloc[:, position])
    return Columns(names, named, n_rows, table.index, table)


def target_of(y: Any, n_rows: int, name: str = "y") -> Floats:
    """Check a target column and return it as float64, (n_rows,).

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
        _require_numeric(str(y.name if y.name is not None else name), y, what="target")
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)
    values = column_or_1d(y, warn=True)
    if np.iscomplexobj(values):
        raise DataError("Complex data not supported: the target must be real numbers")
    try:
        values = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the target {name!r} must be numbers: {error}") from error
    if len(values) != n_rows:
        raise DataError(
            f"X has {n_rows} rows but y has {len(values)}: inconsistent numbers of samples; "
            "pass one target a row"
        )
    require_finite(f"the target {name!r}", values)
    return values


def weights_of(sample_weight: ArrayLike | None, n_rows: int) -> Floats:
    """Check precision weights and return them as float64, (n_rows,); ones for None.

    Raises
    ------
    DataError
        If the shape is another, or a weight is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight must be numbers: {error}") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(
            f"sample_weight must have shape ({n_rows},), one weight a row, got {weight.shape}"
        )
    require_finite("sample_weight", weight)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise DataError(
            f"sample_weight is negative in row {row} (counted from 0): {weight[row]:g}; weights "
            "are precisions, relative to the noise: 0 leaves a row out"
        )
    if not (weight > 0).any():
        raise DataError("sample_weight is 0 in every row; at least one row must count")
    return weight


def read_table(path: str | Path, columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Read a CSV or Parquet file, all columns or those named.

    Parameters
    ----------
    path : str or Path
        Its ending tells the format: .csv, .csv.gz, .parquet or .pq.
    columns : iterable of str, optional
        Only these are read.

    Raises
    ------
    DataError
        If there is no such file, it is not what its name says, a column is absent or a name occurs
        twice.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is no file {str(path)!r}; check the path")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; a CSV or Parquet file was expected")
    name = path.name.lower()
    if not name.endswith(FILE_TYPES):
        raise DataError(
            f"cannot tell the format of {str(path)!r}: its name must end in one of "
            f"{', '.join(FILE_TYPES)}"
        )
    is_csv = ".csv" in name
    try:
        present = _csv_header(path) if is_csv else tuple(pq.read_schema(path).names)
        require_unique(present)
        wanted = None if columns is None else list(columns)
        if wanted is not None and (missing := [c for c in wanted if c not in present]):
            raise DataError(
                f"{str(path)!r} has no column {_listed(missing)}; it has {_listed(present)}"
            )
        if is_csv:
            return pd.read_csv(path, usecols=wanted, encoding_errors="strict")
        return pd.read_parquet(path, columns=wanted)
    except DataError:
        raise
    except (pa.ArrowException, pd.errors.ParserError, pd.errors.EmptyDataError, OSError) as error:
        raise _not_as_named(path, is_csv, error) from error
    except ValueError as error:  # UnicodeDecodeError, and what pandas says of broken files
        raise _not_as_named(path, is_csv, error) from error


def require_unique(names: Sequence[str]) -> None:
    """Raise ``DataError`` if a column name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"duplicate column name {_listed(twice)}: columns are matched by name; rename or drop"
        )


def _csv_header(path: Path) -> tuple[str, ...]:
    # header=None: pandas would rename duplicates to a, a.1 before anyone could see them.
    first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    return tuple(first.iloc[0])


def _not_as_named(path: Path, is_csv: bool, error: Exception) -> DataError:
    kind = "CSV" if is_csv else "Parquet"
    reason = str(error).strip().splitlines()
    return DataError(
        f"{str(path)!r} cannot be read as the {kind} file that its name says: "
        f"{reason[0] if reason else type(error).__name__}"
    )


def _require_numeric(name: str, values: pd.Series, what: str = "input column") -> None:
    if pd.api.types.is_complex_dtype(values.dtype):
        raise DataError(f"Complex data not supported: {what} {name!r} must be real numbers")
    if pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        return
    if values.dtype == object:
        # Numbers kept as Python objects are numbers still; text that looks like one is not.
        kinds = {type(value) for value in values.dropna()}
        if kinds and all(issubclass(kind, (int, float, np.number, np.bool_)) for kind in kinds):
            return
    example = next(iter(values.dropna().head(1)), None)
    raise DataError(
        f"{what} {name!r} is not numeric (type {values.dtype}, e.g. {example!r}): convert it to "
        "numbers, or leave it out"
    )


def _listed(names: Sequence[str], at_most: int = 12) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:at_most])
    return shown + (f", … ({len(names)} in all)" if len(names) > at_most else "")
