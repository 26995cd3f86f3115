"""Tables of other libraries, and other objects whose columns have names, as pandas data frames.

A table that has names is matched by them: it is never treated as an array without names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import xarray as xr
from dask import is_dask_collection
from dask.delayed import Delayed
from pyarrow import interchange
from scipy import sparse
from upath import UPath

from dsgp.errors import DataError
from dsgp.rows.sources.arrow import frame_of_arrow
from dsgp.rows.sources.memory import listed

# Attributes with the names of columns, in libraries that no reader here supports.
_NAMES = ("columns", "colnames", "column_names", "feature_names")


def plain_table(X: Any, wanted: Iterable[str] = ()) -> Any:
    """Convert a table with names to a data frame of pandas, or a dataset if its columns are lazy.

    Arrays without names, data frames of pandas and dask, datasets and paths are returned as they
    are.

    Parameters
    ----------
    X : table
        Also of polars, pyarrow, modin, cuDF or DuckDB, whatever narwhals, Arrow's or the data frame
        interchange protocol read; a mapping of names to columns; a structured array; a DataArray
        whose second dim has names.
    wanted : iterable of str
        Only these columns are converted, where the table has all of them.

    Raises
    ------
    DataError
        If there are names, but the columns cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dsgp.rows.sources import plain_table
    >>> list(plain_table(pa.table({"b": [1.0], "a": [2.0]})).columns)
    ['b', 'a']
    """
    if isinstance(X, xr.DataArray):
        return _of_data_array(X)
    if isinstance(X, (pd.DataFrame, xr.Dataset, str, Path, UPath, list, tuple)) or sparse.issparse(
        X
    ):
        return X
    if isinstance(X, np.ndarray):
        return X if X.dtype.names is None else _of_mapping({n: X[n] for n in X.dtype.names})
    if isinstance(X, Delayed):  # it has every attribute
        return X
    if is_dask_collection(X):
        names = getattr(getattr(X, "dtype", None), "names", None)
        return X if names is None else _of_mapping({name: X[name] for name in names})
    if isinstance(X, Mapping):
        return _of_mapping(X)
    try:
        table = _arrow_of(X, list(wanted))
        if table is not None:
            return frame_of_arrow(table)
    # Other libraries may raise any type of error.
    except Exception as error:
        raise DataError(
            f"X is a {_type_of(X)} whose columns cannot be read ({error}); convert it to a data "
            "frame of pandas"
        ) from error
    if hasattr(X, "__array__"):
        array = np.asarray(X)
        if array.dtype.names is not None:
            return plain_table(array)
    if any(hasattr(X, name) for name in _NAMES):
        raise DataError(
            f"X is a {_type_of(X)}, whose columns have names that cannot be read here; convert it "
            "to a data frame of pandas, e.g. X.to_pandas(), or to an array if order is what counts"
        )
    return X


def plain_values(values: Any) -> Any:
    """Convert a column of another library to a series of pandas; return all else unchanged."""
    plain = (pd.Series, pd.DataFrame, np.ndarray, xr.DataArray, str, list, tuple, int, float)
    if values is None or isinstance(values, plain) or is_dask_collection(values):
        return values
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        column = series.to_arrow()
        if isinstance(column, pa.Array):
            column = pa.chunked_array([column])
        frame = frame_of_arrow(pa.table({"": column}))
        return frame[""].rename(series.name or None)
    if isinstance(series, nw.DataFrame | nw.LazyFrame):
        return plain_table(values)
    return values


def _arrow_of(X: Any, wanted: list[str]) -> pa.Table | None:
    """Read a table of another library; return None if the object is not a table."""
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame | nw.DataFrame):
        names = frame.collect_schema().names()
        if wanted and set(wanted) <= set(names):
            frame = frame.select(wanted)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect(backend="pyarrow")
        return frame.to_arrow()
    if hasattr(X, "__arrow_c_stream__"):
        return pa.table(X)
    if hasattr(X, "__dataframe__"):
        return interchange.from_dataframe(X)
    return None


def _of_mapping(X: Mapping[Any, Any]) -> Any:
    columns = {name: plain_values(values) for name, values in X.items()}
    shapes = {name: np.shape(values) for name, values in columns.items()}
    if wrong := [name for name, shape in shapes.items() if len(shape) != 1]:
        raise DataError(
            f"column {str(wrong[0])!r} has shape {shapes[wrong[0]]}; the columns of a mapping have "
            "one dimension"
        )
    if len(set(shapes.values())) > 1:
        lengths = ", ".join(f"{name!r} {shape[0]}" for name, shape in list(shapes.items())[:12])
        raise DataError(f"the columns have different lengths: {lengths}; pass one value per row")
    if any(is_dask_collection(values) for values in columns.values()):
        return xr.Dataset({name: ("row", _native_lazy(values)) for name, values in columns.items()})
    # Row labels of series are not matched: rows are used in their order.
    plain = {
        name: values.reset_index(drop=True) if isinstance(values, pd.Series) else _native(values)
        for name, values in columns.items()
    }
    return pd.DataFrame(plain)


def _native(values: Any) -> Any:
    """Return a column in the byte order of the machine, which pandas needs."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _native_lazy(values: Any) -> Any:
    """Return a column in the byte order of the machine; a lazy one stays lazy."""
    if not hasattr(values, "rechunk") or values.dtype.isnative:
        return values
    return values.astype(values.dtype.newbyteorder("="))


def _of_data_array(X: xr.DataArray) -> Any:
    """Name the columns of an array whose second dim has text as its coordinate."""
    if X.ndim != 2 or X.dims[1] not in X.indexes:
        return X
    names = X.indexes[X.dims[1]]
    if not all(isinstance(name, str) for name in names):
        return X
    if names.has_duplicates:
        raise DataError(f"duplicate column name {listed(names[names.duplicated()])}: rename it")
    return X.rename(None).drop_vars([X.dims[0]], errors="ignore").to_dataset(dim=X.dims[1])


def _type_of(X: Any) -> str:
    return f"{type(X).__module__.partition('.')[0]} {type(X).__name__}"
