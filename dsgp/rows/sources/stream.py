"""Any kind of table becomes a source of rows, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from dsgp.axis import Floats
from dsgp.errors import DataError
from dsgp.rows.sources.lazy import computed, frame_of, is_lazy, lazy_source
from dsgp.rows.sources.memory import (
    UNMATCHED,
    Columns,
    columns_of,
    listed,
    matching_columns,
    target_of,
    weights_of,
)
from dsgp.rows.sources.parts import BLOCK_ROWS
from dsgp.rows.sources.rows import Layout, Match, Rows, Source, rows_of
from dsgp.rows.sources.stored import Stored, StoredTable, open_table


def source_of(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    missing: str = "error",
    names: Sequence[str] | None = None,
    named: bool | None = None,
    needed: Sequence[str] | None = None,
    model: str = "the model",
) -> Source:
    """Describe rows, without reading them.

    Parameters
    ----------
    X : table
        An array, a pandas or dask data frame, a dask array, an xarray dataset of one dimension, or
        a table on disk (``Stored``, or its path).
    y : array_like, dask collection or str
        Its name where it is a column of X, as it must be on disk. None only with ``names``.
    sample_weight : array_like, dask collection or str, optional
        Likewise.
    missing : {"error", "ignore"}
        Whether an input may be NaN. Target and weights never may.
    names : sequence of str, optional
        Columns of a model that was fitted already, which X must match as in ``matching_columns``;
        so must ``needed`` (all of them by default), ``named`` (True) and ``model``.

    Raises
    ------
    DataError
        If columns are absent, no numbers or do not agree between parts, lengths differ, or there is
        no row, as far as that is known before reading; loaders raise it for what comes later.

    Notes
    -----
    That all weights are 0, or that all blocks of a dask collection of unknown length are empty, is
    seen by nobody but who adds up all chunks.
    """
    match = None
    if names is not None:
        wanted = tuple(names if needed is None else needed)
        match = Match(tuple(names), wanted, named is not False, model)
    elif y is None:
        target_of(None, 0)
    if isinstance(X, xr.Dataset):
        X = frame_of(X)
    y, sample_weight = (
        values.data if isinstance(values, xr.DataArray) else values for values in (y, sample_weight)
    )
    if isinstance(X, (str, Path, Stored)):
        return _stored_source(X, y, sample_weight, match, missing)
    if is_lazy(X):
        return lazy_source(X, y, sample_weight, match, missing)
    return _memory_source(X, computed(y), computed(sample_weight), match, missing)


def matching_source(
    X: Any,
    names: Sequence[str],
    needed: Sequence[str],
    named: bool,
    model: str,
    missing: str = "error",
) -> Source:
    """Describe rows to predict, of the columns that a fitted model needs; see ``source_of``."""
    return source_of(X, names=names, needed=needed, named=named, model=model, missing=missing)


# ---------------------------------------------------------------- in memory


@dataclass(frozen=True)
class MemorySource:
    """Rows of an array or data frame, checked but for the values of the inputs."""

    columns: Columns
    needed: tuple[str, ...]
    y: Floats | None
    weight: Floats | None
    missing: str
    target: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.needed

    @property
    def named(self) -> bool:
        return self.columns.named

    @property
    def n_rows(self) -> int:
        return self.columns.n_rows

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    @property
    def in_memory(self) -> bool:
        return True

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        for start in range(0, self.n_rows, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, self.n_rows))
            # Views, so that a pickled loader takes its own rows only.
            yield partial(
                rows_of,
                self.columns.part(rows),
                self.needed,
                None if self.y is None else self.y[rows],
                None if self.weight is None else self.weight[rows],
                self.missing,
                start,
            )


def _memory_source(
    X: Any, y: Any, sample_weight: Any, match: Match | None, missing: str
) -> MemorySource:
    target = "y"
    if isinstance(X, pd.DataFrame):
        own = [name for name in (y, sample_weight) if isinstance(name, str)]
        if absent := [name for name in own if name not in X.columns]:
            raise DataError(f"the table has no column {listed(absent)}; it has {listed(X.columns)}")
        y, sample_weight = (
            X[values] if isinstance(values, str) else values for values in (y, sample_weight)
        )
        X = X.drop(columns=own) if own else X
    if match is None:
        columns = columns_of(X)
        needed = columns.names
    else:
        columns = matching_columns(X, match.names, match.needed, match.named, match.model)
        needed = match.needed
    if isinstance(y, pd.Series) and y.name is not None:
        target = str(y.name)
    n_rows = columns.n_rows
    return MemorySource(
        columns,
        needed,
        None if y is None else target_of(y, n_rows),
        None if sample_weight is None else weights_of(sample_weight, n_rows),
        missing,
        target,
    )


# ---------------------------------------------------------------- on disk


@dataclass(frozen=True)
class StoredSource:
    """Rows of a table on disk."""

    names: tuple[str, ...]
    layout: Layout
    table: StoredTable
    named: bool = True

    @property
    def n_rows(self) -> int | None:
        return self.table.n_rows

    @property
    def target(self) -> str:
        return self.layout.target

    @property
    def weighted(self) -> bool:
        return self.layout.weight_column is not None

    @property
    def in_memory(self) -> bool:
        return False

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        own = (self.layout.target_column, self.layout.weight_column)
        columns = [*self.layout.needed, *(name for name in own if name is not None)]
        for block in self.table.blocks(columns, numbers=columns):
            yield partial(_load, self.layout, block)


def _load(layout: Layout, block: Any) -> Rows:
    return layout.rows(block.read(), part=block.part, first_row=block.first_row)


def _stored_source(
    X: str | Path | Stored, y: Any, sample_weight: Any, match: Match | None, missing: str
) -> StoredSource:
    stored = X if isinstance(X, Stored) else Stored(X)
    for what, name in (("y", y), ("sample_weight", sample_weight)):
        if name is not None and not isinstance(name, str):
            raise DataError(
                f"{what} must be the name of a column, because X is the path {str(stored.path)!r}; "
                f"got {type(name).__name__}"
            )
    table = open_table(stored.path)
    own = [name for name in (y, sample_weight) if name is not None]
    if match is None:
        names = columns = _inputs(table, stored, own)
    else:
        names = match.needed
        columns = names if match.named else match.found_by_position(table.names)
        try:
            table.require([*columns, *own])
        except DataError as error:
            raise DataError(f"{UNMATCHED}\n{error}") from error
    if table.n_rows == 0:
        raise table.without_rows()
    model = "the model" if match is None else match.model
    target = "y" if y is None else y
    layout = Layout(columns, columns, True, model, missing, target, y, sample_weight)
    return StoredSource(names, layout, table)


def _inputs(table: StoredTable, stored: Stored, own: list[str]) -> tuple[str, ...]:
    """Input columns of a table to be fitted to."""
    if stored.columns is None:
        table.require_alike()
        table.require([*own, *stored.drop])
        apart = {*own, *stored.drop}
        inputs = tuple(name for name in table.names if name not in apart)
    else:
        inputs = tuple(name for name in stored.columns if name not in stored.drop)
        if twice := [name for name in own if name in inputs]:
            raise DataError(f"{listed(twice)} cannot be an input as well as the target or weight")
        table.require([*inputs, *own])
    if not inputs:
        raise DataError(
            f"{table.path!r} has no input column (0 feature(s)) besides {listed(own)}; at least "
            "one is needed"
        )
    return inputs
