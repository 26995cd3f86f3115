"""Any kind of table becomes a source of rows, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from upath import UPath

from dsgp.errors import DataError
from dsgp.rows.sources.discovery import kinds_in_memory, kinds_of_collection, kinds_on_disk
from dsgp.rows.sources.frames import plain_table, plain_values
from dsgp.rows.sources.kinds import NUMBER, Kind, Wanted
from dsgp.rows.sources.labels import codes_of
from dsgp.rows.sources.lazy import computed, frame_of, is_lazy, kind_of, lazy_source
from dsgp.rows.sources.memory import (
    UNMATCHED,
    Columns,
    columns_of,
    extra_of,
    listed,
    matching_columns,
    require_non_inputs,
    target_of,
    weights_of,
)
from dsgp.rows.sources.parts import BLOCK_ROWS
from dsgp.rows.sources.rows import Layout, Match, Missing, Roles, Rows, Source, rows_of
from dsgp.rows.sources.stored import Stored, StoredTable, open_table
from dsgp.terms import Floats


def source_of(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    extra: Mapping[str, Any] | None = None,
    labels: NDArray[Any] | None = None,
    missing: str = "error",
    missing_values: Sequence[float] = (),
    names: Sequence[str] | None = None,
    named: bool | None = None,
    needed: Sequence[str] | None = None,
    model: str = "the model",
    wanted: Wanted | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> Source:
    """Describe rows, without reading them.

    Parameters
    ----------
    X : table
        An array, a data frame of pandas, dask or another library (see ``plain_table``), a dask
        array, an xarray dataset of one dimension, or a table on disk (``Stored``, or its path).
    y : array_like, dask collection or str
        Its name where it is a column of X, as it must be on disk. None only with ``names``.
    sample_weight : array_like, dask collection or str, optional
        Likewise.
    extra : mapping of str to the same, optional
        Further numbers of every row by their role, e.g. offset; None among them are left out. A
        column that is named is no input.
    labels : ndarray, optional
        Classes, sorted (see ``classes_of``): the target is one of them in every row, and y its
        number among them. None means that the target is a number.
    missing : {"error", "ignore"}
        Whether an input may be NaN. Target, weights and further numbers never may.
    missing_values : sequence of float
        Numbers that count as NaN in the inputs, and that a target may not have.
    names : sequence of str, optional
        Columns of a model that was fitted already, which X must match as in ``matching_columns``;
        so must ``needed`` (all of them by default), ``named`` (True) and ``model``.
    wanted : Wanted, optional
        Inputs may be dates and levels too, and what they hold is found out. None: all are numbers.
    kinds : mapping of str to Kind, optional
        What they hold, where that is known.

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
    blank = Missing(missing, tuple(map(float, missing_values)))
    match = None
    if names is not None:
        asked = tuple(names if needed is None else needed)
        match = Match(tuple(names), asked, named is not False, model)
    elif y is None:
        target_of(None, 0)
    given_extra = {role: values for role, values in (extra or {}).items() if values is not None}
    labels = None if labels is None else np.asarray(labels)
    roles = Roles(y, sample_weight, given_extra, labels).map(_plain)
    if isinstance(X, (str, Path, UPath, Stored)):
        stored = X if isinstance(X, Stored) else Stored(X)
        return _stored_source(stored, roles, match, blank, wanted, kinds or {})
    by_name = match.needed if match is not None and match.named else ()
    X = plain_table(X, [*by_name, *roles.columns] if by_name else ())
    if isinstance(X, xr.Dataset):
        X = frame_of(X)
    if is_lazy(X):

        def kinds_of(
            table: Any, inputs: Sequence[str], n_rows: int | None, kind: str
        ) -> Mapping[str, Kind]:
            if wanted is None:
                return kinds or {}
            return kinds_of_collection(table, inputs, wanted, n_rows, kind)

        select = partial(_selected, wanted=wanted or Wanted(), kind=kind_of(X))
        return lazy_source(X, roles, match, blank, select, kinds_of)
    return _memory_source(X, roles.map(computed), match, blank, wanted, kinds or {})


def _selected(names: Sequence[Any], wanted: Wanted, kind: str) -> list[Any]:
    """Keep the inputs that are wanted, of a table whose columns have names."""
    if wanted.columns is None or not all(isinstance(name, str) for name in names):
        return list(names)
    if absent := [name for name in wanted.columns if name not in names]:
        raise DataError(
            f"the {kind} has no column {listed(absent)}, which {wanted.reason}; it has "
            f"{listed(names)}"
        )
    return [name for name in names if name in wanted.columns]


def _plain(values: Any) -> Any:
    return values.data if isinstance(values, xr.DataArray) else plain_values(values)


def matching_source(
    X: Any,
    names: Sequence[str],
    needed: Sequence[str],
    named: bool,
    model: str,
    missing: str = "error",
    extra: Mapping[str, Any] | None = None,
    missing_values: Sequence[float] = (),
    kinds: Mapping[str, Kind] | None = None,
) -> Source:
    """Describe rows to predict, of the columns that a fitted model needs; see ``source_of``."""
    return source_of(
        X,
        extra=extra,
        missing=missing,
        missing_values=missing_values,
        names=names,
        needed=needed,
        named=named,
        model=model,
        kinds=kinds,
    )


# ---------------------------------------------------------------- in memory


@dataclass(frozen=True)
class MemorySource:
    """Rows of an array or data frame, checked but for the values of the inputs."""

    columns: Columns
    needed: tuple[str, ...]
    y: Floats | None
    weight: Floats | None
    numbers: dict[str, Floats]
    missing: Missing
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
    def extra(self) -> tuple[str, ...]:
        return tuple(self.numbers)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return self.columns.kinds

    @property
    def in_memory(self) -> bool:
        return True

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        for start in range(0, self.n_rows, BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, self.n_rows))
            # Views, so that a pickled loader includes its own rows only.
            yield partial(
                rows_of,
                self.columns.part(rows),
                self.needed,
                None if self.y is None else self.y[rows],
                None if self.weight is None else self.weight[rows],
                {role: values[rows] for role, values in self.numbers.items()},
                self.missing,
                start,
            )


def _memory_source(
    X: Any,
    roles: Roles,
    match: Match | None,
    missing: Missing,
    wanted: Wanted | None,
    kinds: Mapping[str, Kind],
) -> MemorySource:
    target = "y"
    non_inputs = roles.columns
    require_non_inputs(X, non_inputs, "table")
    if non_inputs:
        table = X
        roles = roles.map(lambda values: table[values] if isinstance(values, str) else values)
        # An input of a model that matches by name may be one of these columns.
        X = X if match is not None and match.named else X.drop(columns=non_inputs)
    if match is None:
        if wanted is not None and isinstance(X, pd.DataFrame):
            X = X[_selected(list(X.columns), wanted, "table")]
            names = [name for name in X.columns if isinstance(name, str)]
            kinds = kinds_in_memory(X, names, wanted)
        columns = columns_of(X, kinds)
        needed = columns.names
    else:
        columns = matching_columns(X, match.names, match.needed, match.named, match.model, kinds)
        needed = match.needed
    y, weight, n_rows = roles.y, roles.weight, columns.n_rows
    if isinstance(y, pd.Series) and y.name is not None:
        target = str(y.name)
    if y is not None:
        if roles.labels is None:
            y = target_of(y, n_rows)
            missing.require_known(f"the target {target!r}", y, 0)
        else:
            y = codes_of(y, roles.labels, n_rows)
    return MemorySource(
        columns,
        needed,
        y,
        None if weight is None else weights_of(weight, n_rows),
        {role: extra_of(values, n_rows, role) for role, values in roles.extra.items()},
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
    def extra(self) -> tuple[str, ...]:
        return tuple(self.layout.extra_columns)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return self.layout.kinds

    @property
    def in_memory(self) -> bool:
        return False

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        layout = self.layout
        columns = list(dict.fromkeys([*layout.needed, *layout.non_inputs]))
        numbers = [
            name
            for name in columns
            if layout.kinds.get(name, NUMBER).is_number
            and (layout.labels is None or name != layout.target_column)
        ]
        for block in self.table.blocks(columns, numbers):
            yield partial(_load, layout, block)


def _load(layout: Layout, block: Any) -> Rows:
    return layout.rows(block.read(), part=block.part, first_row=block.first_row)


def _stored_source(
    stored: Stored,
    roles: Roles,
    match: Match | None,
    missing: Missing,
    wanted: Wanted | None,
    kinds: Mapping[str, Kind],
) -> StoredSource:
    for what, name in {"y": roles.y, "sample_weight": roles.weight, **roles.extra}.items():
        if name is not None:
            stored.require_column_name(what, name)
    table = open_table(stored.path, stored.format, stored.storage_options)
    non_inputs = roles.columns
    if match is None:
        names = columns = _inputs(table, stored, non_inputs)
    else:
        names = match.needed
        columns = names
        table.require(non_inputs)
        if not match.named:
            inputs = [name for name in table.names if name not in non_inputs]
            columns = match.found_by_position(inputs)
        try:
            table.require(columns)
        except DataError as error:
            raise DataError(f"{UNMATCHED}\n{error}") from error
    if table.n_rows == 0:
        raise table.without_rows()
    if wanted is not None:
        names = columns = tuple(_selected(columns, wanted, "table"))
        kinds = kinds_on_disk(table, columns, wanted)
    elif match is not None and not match.named:
        by_name = dict(zip(match.needed, columns, strict=True))
        kinds = {by_name[name]: kind for name, kind in kinds.items() if name in by_name}
    layout = Layout(
        columns,
        columns,
        True,
        kinds=kinds,
        model="the model" if match is None else match.model,
        missing=missing,
        target="y" if roles.y is None else roles.y,
        target_column=roles.y,
        weight_column=roles.weight,
        extra_columns=roles.extra_columns,
        labels=roles.labels,
    )
    return StoredSource(names, layout, table)


def _inputs(table: StoredTable, stored: Stored, non_inputs: list[str]) -> tuple[str, ...]:
    """Input columns of a table to be fitted to."""
    if stored.columns is None:
        table.require_alike()
        table.require([*non_inputs, *stored.drop])
        apart = {*non_inputs, *stored.drop}
        inputs = tuple(name for name in table.names if name not in apart)
    else:
        inputs = tuple(name for name in stored.columns if name not in stored.drop)
        if twice := [name for name in non_inputs if name in inputs]:
            raise DataError(
                f"{listed(twice)} cannot be an input as well as the target, a weight or the like"
            )
        table.require([*inputs, *non_inputs])
    if not inputs:
        raise DataError(
            f"{table.path!r} has no input column (0 feature(s)) besides {listed(non_inputs)}; at "
            "least one is needed"
        )
    return inputs
