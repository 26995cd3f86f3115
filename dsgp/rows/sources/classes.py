"""The classes of a target, whatever table it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from dask import delayed
from sklearn.utils.multiclass import check_classification_targets

from dsgp.errors import DataError
from dsgp.rows.sources.frames import plain_table, plain_values
from dsgp.rows.sources.labels import Labels, distinct, labels_of, merged
from dsgp.rows.sources.lazy import blocks_of, frame_of, is_lazy, kind_of, name_of, one_column
from dsgp.rows.sources.memory import naming, require_non_inputs, target_of
from dsgp.rows.sources.stored import Stored, open_table
from dsgp.waiting import computed


def classes_of(X: Any, y: Any) -> Labels:
    """Find the classes of a target.

    Parameters
    ----------
    X : table
        As for ``source_of``; looked at only where y is the name of a column.
    y : array_like, dask collection or str
        Strings, booleans or whole numbers, as float64 too.

    Returns
    -------
    ndarray of shape (n_classes,)
        Sorted, each once. A block at a time is loaded of a table on disk; those of a dask
        collection by its scheduler, or the active client.

    Raises
    ------
    DataError
        If a class is missing, they are of several kinds or fractions, or there is no row.

    Examples
    --------
    >>> import pandas as pd
    >>> from dsgp.rows.sources import classes_of
    >>> classes_of(pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [True, False, True]}), "y")
    array([False,  True])
    """
    y = y.data if isinstance(y, xr.DataArray) else plain_values(y)
    if y is None:
        target_of(None, 0)
    if isinstance(X, (str, Path, Stored)):
        labels = _on_disk(X if isinstance(X, Stored) else Stored(X), y)
    else:
        values = _column(X, y) if isinstance(y, str) else y
        labels = _of_blocks(values) if is_lazy(values) else _in_memory(values)
    if not len(labels):
        raise DataError(
            f"the target {name_of(y)!r} is empty: 0 sample(s) (rows); at least 1 is required"
        )
    return labels


def labels_in(X: Any, name: str) -> Labels:
    """Read the class of every row, (n_rows,), from a column of a table.

    Raises
    ------
    DataError
        If there is no such column, or it holds no classes.
    """
    if not isinstance(X, (str, Path, Stored)):
        values = _column(X, name)
        return labels_of(computed(values)[0] if is_lazy(values) else values, name)
    stored = X if isinstance(X, Stored) else Stored(X)
    stored.require_column_name("y", name)
    table = open_table(stored.path, stored.format)
    table.require([name])
    blocks = table.blocks([name], numbers=())
    return np.concatenate([labels_of(b.read()[name], name, b.first_row) for b in blocks])


def _column(X: Any, name: str) -> Any:
    X = plain_table(X, [name])
    if isinstance(X, xr.Dataset):
        X = frame_of(X[[name]] if name in X.data_vars else X)
    require_non_inputs(X, [name], kind_of(X))
    return X[name]


def _in_memory(y: Any) -> Labels:
    name = name_of(y)
    values = labels_of(y, name, warn=True)
    if values.dtype.kind != "O":  # the check has no result for text, and takes long
        try:
            check_classification_targets(values)
        except ValueError as error:
            raise DataError(str(error)) from error
    return distinct(values, name)


def _of_blocks(y: Any) -> Labels:
    if hasattr(y, "rechunk"):
        y = one_column(y, "y")
    blocks, _ = blocks_of(y)
    name = name_of(y)
    labels_of_block = delayed(_of_block, pure=False, traverse=False)
    tasks = [
        labels_of_block(block, name, f"block {number} of the target")
        for number, block in enumerate(blocks)
    ]
    return merged(computed(*tasks), name)


def _of_block(values: Any, name: str, part: str, first_row: int = 0) -> Labels:
    with naming(part):
        return distinct(labels_of(values, name, first_row), name)


def _on_disk(stored: Stored, y: Any) -> Labels:
    stored.require_column_name("y", y)
    table = open_table(stored.path, stored.format)
    table.require([y])
    labels = merged([], y)
    for block in table.blocks([y], numbers=()):
        block_labels = _of_block(block.read()[y], y, block.part, block.first_row)
        labels = merged([labels, block_labels], y)
    return labels
