"""Rows of dask collections, a block at a time, and collections made of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from dask import delayed, is_dask_collection
from dask.delayed import Delayed
from numpy.typing import NDArray

from dsgp import waiting
from dsgp.clients import in_task, scheduler_of_collections
from dsgp.errors import DataError
from dsgp.rows.sources.frames import plain_table
from dsgp.rows.sources.kinds import NUMBER, Kind
from dsgp.rows.sources.memory import (
    UNMATCHED,
    listed,
    naming,
    numbered,
    require_length,
    require_non_inputs,
    require_unique,
)
from dsgp.rows.sources.numbers import each_checked, require_number_type
from dsgp.rows.sources.rows import Layout, Match, Missing, Roles, Rows, require_no_values


def task_name(name: str) -> str:
    """Return a key of a task, whose first words are its name on a dashboard."""
    return f"dsgp-{name}-{uuid4().hex}"


def is_lazy(X: Any) -> bool:
    """Return whether something is a dask collection, or an object of xarray with one."""
    return is_dask_collection(X)


def kind_of(X: Any) -> str:
    """Return the name of the kind of table for messages."""
    if not is_lazy(X):
        return "table"
    return "dask dataframe" if _is_frame(X) else "dask array"


def computed(values: Any) -> Any:
    """Return the values of a dask collection; anything else as it is."""
    return waiting.computed(values)[0] if is_lazy(values) else values


def frame_of(dataset: xr.Dataset) -> Any:
    """Variables of a dataset as columns of a data frame: of dask if they are dask's."""
    names = [name for name, variable in dataset.data_vars.items() if variable.ndim]
    dataset = dataset[names].reset_coords(drop=True)
    if len(dataset.dims) > 1:
        raise DataError(
            f"the dataset has dimensions {listed(list(dataset.dims))}; columns are variables of "
            "one dimension, the same for all: stack them"
        )
    if is_lazy(dataset):
        return dataset.unify_chunks().to_dask_dataframe()[names]
    return pd.DataFrame({str(name): dataset[name].to_numpy() for name in names})


@dataclass(frozen=True)
class LazyRows:
    """Rows of a block of a dask collection; calling it computes them in this thread.

    In a task of a worker dask computes them, as other workers may keep parts of the collection.
    """

    delayed: Any

    def __call__(self) -> Rows:
        rows: Rows = self.delayed.compute(
            scheduler=scheduler_of_collections() if in_task() else "sync"
        )
        return rows


@dataclass(frozen=True)
class LazySource:
    """Rows of a dask array or data frame.

    Attributes
    ----------
    blocks, y, weight : list
        One delayed block of rows each; None if there is none, or if it is a column of X.
    beside : dict of str to list
        Likewise, the further numbers that are no columns of X, by role.
    extra : tuple of str
        Roles of all further numbers.
    kind : str
        For messages.
    """

    names: tuple[str, ...]
    named: bool
    n_rows: int | None
    weighted: bool
    layout: Layout
    blocks: list[Any]
    y: list[Any]
    weight: list[Any]
    beside: dict[str, list[Any]]
    extra: tuple[str, ...]
    kind: str

    @property
    def target(self) -> str:
        return self.layout.target

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return self.layout.kinds

    @property
    def in_memory(self) -> bool:
        return False

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        rows = delayed(self.layout.rows, pure=False, traverse=False)
        for number, parts in enumerate(zip(self.blocks, self.y, self.weight, strict=True)):
            extra = {role: blocks[number] for role, blocks in self.beside.items()}
            part = f"block {number} of the {self.kind}"
            yield LazyRows(rows(*parts, extra, part=part, dask_key_name=task_name("read")))


def lazy_source(
    X: Any,
    roles: Roles,
    match: Match | None,
    missing: Missing,
    select: Callable[[Sequence[str]], list[str]],
    kinds_of: Callable[[Any, Sequence[str], int | None, str], Mapping[str, Kind]],
) -> LazySource:
    """Describe the rows of a dask array or data frame; parameters as for ``source_of``.

    ``select`` chooses among the inputs of a fit; ``kinds_of`` takes a data frame, its inputs, their
    number of rows if it is known, and what it is called.
    """
    X = _collection(X)
    kind = kind_of(X)
    non_inputs = roles.columns
    if _is_frame(X):
        X, labels, named = _chosen(X, non_inputs, match, kind, select)
        present = needed = labels
    else:
        named = False
        if X.ndim != 2:
            raise DataError(f"X has shape {X.shape}; an array of rows and columns was expected")
        require_non_inputs(X, non_inputs, kind)
        X = X.rechunk({1: -1})
        present = needed = numbered(X.shape[1])
        if match is not None:
            match.found_by_position(present)
            present, needed = match.names, match.needed
    if match is None and not needed:
        raise DataError(f"the {kind} has no input column (0 feature(s)); at least one is needed")
    blocks, sizes = blocks_of(X, as_cut=_is_shared(X, roles.values))
    n_rows = None if np.isnan(sizes).any() else int(sum(sizes))
    if n_rows == 0:
        raise DataError(f"the {kind} is empty: 0 sample(s) (rows); at least 1 is required")
    layout = Layout(
        present,
        needed,
        named,
        kinds=kinds_of(X, needed, n_rows, kind) if _is_frame(X) else {},
        model="the model" if match is None else match.model,
        missing=missing,
        target=name_of(roles.y),
        target_column=roles.y if isinstance(roles.y, str) else None,
        weight_column=roles.weight if isinstance(roles.weight, str) else None,
        extra_columns=roles.extra_columns,
        labels=roles.labels,
    )
    if _is_frame(X):
        _require_number_types(X, layout)
    return LazySource(
        names=needed if match is None else match.needed,
        named=named,
        n_rows=n_rows,
        weighted=roles.weight is not None,
        layout=layout,
        kind=kind,
        blocks=blocks,
        y=_beside(roles.y, "y", sizes, kind),
        weight=_beside(roles.weight, "sample_weight", sizes, kind),
        beside={
            role: _beside(values, role, sizes, kind)
            for role, values in roles.extra.items()
            if not isinstance(values, str)
        },
        extra=tuple(roles.extra),
    )


def _require_number_types(X: Any, layout: Layout) -> None:
    """Check the types of a data frame's columns, which are known before anything is computed."""
    types = dict(zip(X.columns, X.dtypes, strict=True))
    beside = {name: f"column {name!r}" for name in layout.non_inputs}
    if layout.target_column is not None:
        beside[layout.target_column] = f"the target {layout.target!r}"
        if layout.labels is not None:
            del beside[layout.target_column]
    inputs = {
        name: f"input column {name!r}"
        for name in layout.needed
        if name in types and layout.kinds.get(name, NUMBER).is_number
    }
    each_checked(
        partial(require_number_type, what, types[name]) for name, what in (inputs | beside).items()
    )


def _chosen(
    X: Any,
    non_inputs: list[str],
    match: Match | None,
    kind: str,
    select: Callable[[Sequence[str]], list[str]],
) -> tuple[Any, tuple[str, ...], bool]:
    """Keep the inputs of a data frame, and the ``non_inputs`` beside them; name the inputs."""
    require_non_inputs(X, non_inputs, kind)
    present = list(X.columns)
    named = all(isinstance(name, str) for name in present)
    inputs = [name for name in present if name not in non_inputs]
    if match is None:
        columns = select(inputs)
    elif named and match.named:
        columns = list(match.needed)
    else:
        columns = list(match.found_by_position(inputs))
    if absent := [name for name in columns if name not in present]:
        fitted = "" if match is None else f"{UNMATCHED}\n"
        raise DataError(
            f"{fitted}the {kind} has no column {listed(absent)}; it has {listed(present)}"
        )
    # At least one column, because a block without any has no number of rows.
    kept = list(dict.fromkeys([*columns, *non_inputs])) or present[:1]
    require_unique([name for name in present if name in kept])
    return X[kept], tuple(columns) if named else numbered(len(columns)), named


def map_rows(
    X: Any,
    function: Callable[..., NDArray[np.float64]],
    outputs: int,
    extra: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """Apply a function to every block of a dask collection, later: columns of ``map_table``.

    Returns
    -------
    tuple of dask arrays of shape (n_rows,)
        Computed together (``dask.compute``), the function runs once a block.
    """
    table = map_table(X, function, outputs, extra)
    return tuple(table[:, j] for j in range(outputs))


def map_table(
    X: Any,
    function: Callable[..., NDArray[np.float64]],
    outputs: int,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """Apply a function to every block of a dask collection, later.

    Parameters
    ----------
    X : dask array, dask data frame, or xarray dataset of them
    function : callable
        Takes a block, ndarray or data frame, of at least one row and returns (n_rows, outputs).
    outputs : int
    extra : mapping of str to what ``source_of`` takes, optional
        Further numbers of every row. The function takes those of the block as a second argument,
        with names of columns as they are, and without None.

    Returns
    -------
    dask array of shape (n_rows, outputs)
        With the blocks of X, but for those known to be empty.
    """
    X = _collection(X)
    kind = kind_of(X)
    X = X if _is_frame(X) else X.rechunk({1: -1})
    beside = {
        role: values.data if isinstance(values, xr.DataArray) else values
        for role, values in (extra or {}).items()
        if values is not None
    }
    blocks, sizes = blocks_of(X, as_cut=_is_shared(X, beside.values()))
    names = {role: values for role, values in beside.items() if isinstance(values, str)}
    cut = {
        role: _beside(values, role, sizes, kind)
        for role, values in beside.items()
        if role not in names
    }
    apply = delayed(_outputs, pure=False, traverse=False)
    # Sent to a cluster once, not with every block, because it may contain a model.
    function = delayed(function, name=task_name("model"), traverse=False)
    tables = []
    for number, (block, n_rows) in enumerate(zip(blocks, sizes, strict=True)):
        part = f"block {number} of the {kind}"
        block_extra = {role: pieces[number] for role, pieces in cut.items()} | names
        rows = apply(
            block,
            None if extra is None else block_extra,
            function,
            outputs,
            part,
            dask_key_name=task_name("predict"),
        )
        tables.append(da.from_delayed(rows, shape=(n_rows, outputs), dtype=np.float64))
    return da.concatenate(tables, allow_unknown_chunksizes=True)


def _outputs(
    block: Any,
    extra: dict[str, Any] | None,
    function: Callable[..., NDArray[np.float64]],
    outputs: int,
    part: str,
) -> NDArray[np.float64]:
    with naming(part):
        if not len(block):
            require_no_values(extra or {})
            return np.empty((0, outputs))
        return function(block) if extra is None else function(block, extra)


def _collection(X: Any) -> Any:
    """Return a dask array or data frame."""
    X = plain_table(X)
    if isinstance(X, xr.Dataset):
        X = frame_of(X)
    elif isinstance(X, xr.DataArray):
        X = X.data
    # A delayed object has every attribute.
    if isinstance(X, Delayed) or not (_is_frame(X) or hasattr(X, "rechunk")):
        raise DataError(f"X is a {type(X).__name__}; pass a dask array or a dask data frame")
    return X


def _is_frame(X: Any) -> bool:
    return hasattr(X, "map_partitions") and hasattr(X, "columns")


def _is_shared(X: Any, beside: Iterable[Any]) -> bool:
    """Return whether dask must not change the blocks of X, because others are cut like these.

    With an array that is so for any other collection: both may be parts of a block, which is then
    made once. Of a frame dask reads only the columns that are used, unless series need its
    partitions.
    """
    return any(
        is_lazy(values) and (not _is_frame(X) or hasattr(values, "map_partitions"))
        for values in beside
    )


def blocks_of(X: Any, as_cut: bool = False) -> tuple[list[Any], list[float]]:
    """Cut into delayed blocks; NaN is a length that is not known.

    Dask may fuse the partitions of a narrow frame, or the task that makes a block with the one that
    selects X from it; ``as_cut`` keeps them separate.
    """
    blocks = X.to_delayed(optimize_graph=not as_cut)
    if isinstance(blocks, np.ndarray):
        return list(blocks.ravel()), list(X.chunks[0])
    return list(blocks), [np.nan] * len(blocks)


def name_of(y: Any) -> str:
    """Name of a target, for messages."""
    name = y if isinstance(y, str) else getattr(y, "name", None)
    # The name of a dask array is the key of its graph, not a name for users.
    return "y" if name is None or hasattr(y, "rechunk") else str(name)


def _beside(values: Any, what: str, sizes: list[float], kind: str) -> list[Any]:
    """Cut a target, weights or the like as X is cut; None for every block if there are none."""
    if values is None or isinstance(values, str):
        return [None] * len(sizes)
    if np.ndim(values) == 0:  # the same value in every row
        return [values] * len(sizes)
    known = not np.isnan(sizes).any()
    if not is_lazy(values):
        values = values if isinstance(values, pd.Series) else np.asarray(values)
        if not known:
            raise DataError(
                f"{what} is in memory, but the lengths of the blocks of the {kind} are not known, "
                f"so it cannot be cut alike; pass {what} as a dask collection with the same blocks"
                + (", or the name of a column" if kind == "dask dataframe" else "")
            )
        require_length(what, len(values), sum(sizes))
        ends = np.cumsum([0, *sizes]).astype(int)
        cut = values.iloc if isinstance(values, pd.Series) else values
        return [cut[start:end] for start, end in pairwise(ends)]
    if hasattr(values, "rechunk"):
        values = one_column(values, what)
        if known and not np.isnan(values.shape[0]):
            require_length(what, values.shape[0], sum(sizes))
            values = values.rechunk((tuple(sizes),))
    blocks, _ = blocks_of(values, as_cut=True)
    if len(blocks) != len(sizes):
        raise DataError(
            f"X has {len(sizes)} blocks but {what} has {len(blocks)}, and their lengths are not "
            "known; cut both alike"
        )
    return blocks


def one_column(values: Any, what: str) -> Any:
    """Return a dask array of one dimension."""
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise DataError(f"{what} has shape {values.shape}; one value per row was expected")
    return values
