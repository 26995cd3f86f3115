"""Where rows come from: arrays, data frames, CSV and Parquet files. Columns are read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike
from pyarrow import csv
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
    """

    names: tuple[str, ...]
    named: bool
    n_rows: int
    index: pd.Index | None
    data: Any
    positions: tuple[int, ...]

    def column(self, name: str, rows: slice = slice(None)) -> Floats:
        """Return one column, or some rows of it, as float64."""
        position = self.positions[self.names.index(name)]
        if isinstance(self.data, pd.DataFrame):
            # Missing values of pandas' own integer and boolean types become NaN here.
            values = self.data.iloc[rows, position].to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = self.data[rows, position]
        return np.ascontiguousarray(values, dtype=np.float64)

    def finite_column(self, name: str, rows: slice = slice(None)) -> Floats:
        """Like ``column``, but raise ``DataError`` where a value is missing or infinite."""
        values = self.column(name, rows)
        require_finite(f"input column {name!r}", values, first_row=rows.start or 0)
        return values


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
        _refuse_text_and_masks(table, "X")
        array = check_array(table, dtype="numeric", ensure_all_finite=False)
        n_rows, n_columns = array.shape
        return Columns(_numbered(n_columns), False, n_rows, None, array, tuple(range(n_columns)))
    text = [isinstance(name, str) for name in table.columns]
    if any(text) and not all(text):
        raise TypeError(
            "Feature names are only supported if all input features have string names, but X has "
            f"{sorted({type(name).__name__ for name in table.columns})} as column name types; "
            "rename the columns, e.g. X.columns = X.columns.astype(str)"
        )
    named = all(text)
    n_columns = table.shape[1]
    names = tuple(table.columns) if named else _numbered(n_columns)
    return _frame_columns(table, names, named, tuple(range(n_columns)))


def matching_columns(
    table: Any, names: Sequence[str], needed: Sequence[str], named: bool, model: str
) -> Columns:
    """Describe the columns that a model fitted on ``names`` needs.

    Where both have names, columns are matched by them, and further ones are left aside, whatever
    they hold; otherwise they are taken by position and must agree in number with those of the fit.

    Parameters
    ----------
    table : array_like of shape (n_rows, n_columns), or pandas.DataFrame
    names, needed : sequence of str
        Columns of the fit, and those that the model uses.
    named : bool
        Whether the names of the fit came with its data.
    model : str
        For messages.

    Raises
    ------
    DataError
        If a column is missing, or the numbers do not agree, or as ``columns_of``.
    """
    if named and isinstance(table, pd.DataFrame) and any(isinstance(n, str) for n in table.columns):
        present = list(table.columns)
        if missing := [name for name in needed if name not in present]:
            raise DataError(
                "The feature names should match those that were passed during fit.\n"
                f"Missing: {_listed(missing)}; the table has {_listed(present)}"
            )
        require_unique([name for name in present if name in needed])
        positions = tuple(present.index(name) for name in needed)
        return _frame_columns(table, tuple(needed), named, positions)
    columns = columns_of(table)
    if len(columns.names) != len(names):
        raise DataError(
            f"X has {len(columns.names)} features, but {model} is expecting {len(names)} features "
            f"as input: {_listed(names)}; pass the same columns in the same order"
        )
    return replace(columns, names=tuple(names))


def _refuse_text_and_masks(values: Any, what: str) -> None:
    if np.ma.isMaskedArray(values):
        raise DataError(f"{what} is a masked array: fill the masked values, or drop their rows")
    if getattr(np.asarray(values), "dtype", np.dtype(float)).kind in "US":
        raise DataError(f"{what} is text: convert it to numbers")


def _numbered(n_columns: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(n_columns))


def _frame_columns(
    table: pd.DataFrame, names: tuple[str, ...], named: bool, positions: tuple[int, ...]
) -> Columns:
    if table.shape[1] == 0:
        raise DataError("the table has no input column (0 feature(s)); at least one is needed")
    if len(table) == 0:
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    require_unique(names)
    for name, position in zip(names, positions, strict=True):
        _require_numeric(name, table.iloc[:, position])
    return Columns(names, named, len(table), table.index, table, positions)


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
        name = str(y.name if y.name is not None else name)
        _require_numeric(name, y, what="target")
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse_text_and_masks(y, f"the target {name!r}")
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
    name = "sample_weight"
    if isinstance(sample_weight, pd.Series):
        name = f"the weight {str(sample_weight.name or name)!r}"
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers: {error}") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(f"{name} must have shape ({n_rows},), one weight a row, got {weight.shape}")
    require_finite(name, weight)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise DataError(
            f"{name} is negative in row {row} (counted from 0): {weight[row]:g}; weights "
            "are precisions, relative to the noise: 0 leaves a row out"
        )
    if weight.max() > 1e100 or weight[weight > 0].min(initial=1.0) < 1e-100:
        raise DataError(f"{name} goes beyond 1e-100 to 1e100; only ratios matter: rescale it")
    if not (weight > 0).any():
        raise DataError(f"{name} is zero in every row; at least one row must count")
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
    is_csv = name.endswith((".csv", ".csv.gz"))
    try:
        present = csv.open_csv(path).schema.names if is_csv else _parquet_names(path)
        if "" in present:
            raise DataError(
                f"{str(path)!r} has no name for column {present.index('') + 1} in its header: name "
                "it, or drop it (pandas writes row labels so, unless told to_csv(index=False))"
            )
        require_unique(present)
        wanted = present if columns is None else list(columns)
        if missing := [name for name in wanted if name not in present]:
            hint = ""
            if len(present) == 1 and (mark := next((m for m in ";\t|" if m in present[0]), "")):
                hint = f"; it seems to be separated by {mark!r}, a comma is needed"
            raise DataError(
                f"{str(path)!r} has no column {_listed(missing)}; it has {_listed(present)}{hint}"
            )
        if is_csv:
            # Arrow is strict where pandas guesses: a row with more fields than the header is an
            # error there, not a silent shift of all columns.
            options = csv.ConvertOptions(include_columns=wanted, check_utf8=True)
            return csv.read_csv(path, convert_options=options).to_pandas(date_as_object=False)
        stored = [name for name in wanted if name in pq.read_schema(path).names]
        frame = pq.read_table(path, columns=stored).to_pandas(date_as_object=False)
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not in UTF-8; convert it, e.g. with iconv") from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()
        raise DataError(
            f"{str(path)!r} cannot be read as the {'CSV' if is_csv else 'Parquet'} file that its "
            f"name says: {reason[0] if reason else type(error).__name__}"
        ) from error
    # What pandas stored as row labels is a column to everyone else.
    labels = [name for name in frame.index.names if name is not None]
    return frame.reset_index(labels)[wanted] if labels else frame


def _parquet_names(path: Path) -> list[str]:
    """Column names, and that of row labels that pandas wrote as a range instead of a column."""
    schema = pq.read_schema(path)
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    ranges = [label["name"] for label in stored if isinstance(label, dict) and label.get("name")]
    return [*schema.names, *ranges]


def require_unique(names: Sequence[str]) -> None:
    """Raise ``DataError`` if a column name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"duplicate column name {_listed(twice)}: columns are matched by name; rename or drop"
        )


def _require_numeric(name: str, values: pd.Series, what: str = "input column") -> None:
    kind = values.dtype
    if pd.api.types.is_complex_dtype(kind):
        raise DataError(f"Complex data not supported: {what} {name!r} must be real numbers")
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return
    if pd.api.types.is_datetime64_any_dtype(kind):
        raise DataError(
            f"{what} {name!r} holds dates (type {kind}): convert it to numbers, e.g. days since "
            f"the first: (t[{name!r}] - t[{name!r}].min()) / pandas.Timedelta(days=1)"
        )
    present = values.dropna()
    if pd.api.types.is_object_dtype(kind) and all(
        isinstance(value, (Real, np.bool_)) for value in present
    ):
        if len(present):
            return  # numbers kept as Python objects
        raise DataError(f"{what} {name!r} has no value in any row: leave it out")
    numbers = pd.to_numeric(present.astype(str), errors="coerce").isna().to_numpy()
    first = int(np.argmax(numbers))  # where all parse, the first: text that looks like a number
    row = int(np.flatnonzero(values.notna())[first])
    raise DataError(
        f"{what} {name!r} is not numeric (type {kind}): {present.iloc[first]!r} in row {row} "
        f"(counted from 0) is no number, nor are {max(int(numbers.sum()), 1)} of {len(values)} in "
        "all; convert it to numbers" + (", or leave it out" if what == "input column" else "")
    )


def _listed(names: Sequence[Any], at_most: int = 12) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:at_most])
    return shown + (f", … ({len(names)} in all)" if len(names) > at_most else "")
