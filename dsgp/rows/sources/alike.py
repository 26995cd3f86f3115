"""Results for rows as a table of the library that the rows came from, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import xarray as xr
from dask import is_dask_collection

from dsgp.errors import DataError
from dsgp.rows.sources.memory import listed


def frame_like(X: Any, names: Sequence[str], values: Any) -> Any:
    """Return results for the rows of X as a table of the same library.

    Parameters
    ----------
    X : table
        Of any kind that is predicted.
    names : sequence of str
    values : ndarray or dask array of shape (n_rows, n_names)
        Lazy where X is.

    Returns
    -------
    data frame
        Of pandas with the index of X, of polars, modin or cuDF, a table of pyarrow, or a data frame
        of dask, as X is. Of pandas for arrays, mappings, datasets and files; a table of pyarrow for
        other tables.

    Raises
    ------
    DataError
        If two columns would have the same name.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from dsgp.rows.sources import frame_like
    >>> frame_like(pa.table({"x": [1.0, 2.0]}), ["lower", "upper"], np.zeros((2, 2))).column_names
    ['lower', 'upper']
    """
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise DataError(
            f"two columns of the table would be named {listed(twice)}: rename the terms or the "
            "classes, name each quantile once, or leave as_frame out"
        )
    if is_dask_collection(values):
        index = X.index if hasattr(X, "map_partitions") else None
        frames = import_module("dask.dataframe")  # importing it takes as long as all of dask
        return frames.from_dask_array(values, columns=list(names), index=index)
    if isinstance(X, (pd.DataFrame, pd.Series)):
        return pd.DataFrame(values, columns=list(names), index=X.index)
    if isinstance(X, (xr.Dataset, xr.DataArray)):  # arrays of xarray are streams of Arrow, too
        return pd.DataFrame(values, columns=list(names), index=_labels_of(X))
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, (nw.DataFrame, nw.LazyFrame)):
        if isinstance(X, pa.RecordBatch) or hasattr(X, "__arrow_c_stream__"):
            return _arrow_of(names, values)
        return pd.DataFrame(values, columns=list(names))
    eager = frame.implementation.is_polars() or isinstance(frame, nw.DataFrame)
    if not eager:  # a table of a database, to which rows cannot be returned
        return _arrow_of(names, values)
    answered = nw.from_arrow(_arrow_of(names, values), backend=frame.implementation)
    if isinstance(frame, nw.LazyFrame):
        return answered.lazy().to_native()
    index = nw.maybe_get_index(frame)
    return (answered if index is None else nw.maybe_set_index(answered, index=index)).to_native()


def _arrow_of(names: Sequence[str], values: Any) -> pa.Table:
    return pa.table(dict(zip(names, np.ascontiguousarray(values.T), strict=True)))


def _labels_of(X: Any) -> Any:
    """Labels of the rows of an object of xarray; None where there are none."""
    if isinstance(X, xr.DataArray):
        return X.indexes.get(X.dims[0])
    (dim,) = {dim for variable in X.data_vars.values() for dim in variable.dims}
    return X.indexes.get(dim)
