"""Rows of dask collections, a block at a time, and collections made of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from dask import delayed, is_dask_collection
from dask.delayed import Delayed
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.sources.memory import UNMATCHED, listed, naming, numbered, require_unique
from dsgp.rows.sources.rows import Layout, Match, Rows


def is_lazy(X: Any) -> bool:
    """Tell whether something is a dask collection, or xarray's around one."""
    return is_dask_collection(X)


def computed(values: Any) -> Any:
    """Return the values of a dask collection; anything else as it is."""
    return values.compute() if is_lazy(values) else values


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
    """Rows of a block of a dask collection; calling it computes them in this thread."""

    delayed: Any

    def __call__(self) -> Rows:
        rows: Rows = self.delayed.compute(scheduler="sync")
        return rows


@dataclass(frozen=True)
class LazySource:
    """Rows of a dask array or data frame.

    Attributes
    ----------
    blocks, y, weight : list
        One delayed block of rows each; None where there is none, or where it is a column of X.
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
    kind: str

    @property
    def target(self) -> str:
        return self.layout.target

    @property
    def in_memory(self) -> bool:
        return False

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        rows = delayed(self.layout.rows, pure=False, traverse=False)
        for number, parts in enumerate(zip(self.blocks, self.y, self.weight, strict=True)):
            yield LazyRows(rows(*parts, part=f"block {number} of the {self.kind}"))


def lazy_source(
    X: Any, y: Any, sample_weight: Any, match: Match | None, missing: str
) -> LazySource:
    """Describe the rows of a dask array or data frame; parameters as for ``source_of``."""
    X = _collection(X)
    own = [name for name in (y, sample_weight) if isinstance(name, str)]
    if _is_frame(X):
        kind = "dask dataframe"
        X, labels, named = _chosen(X, own, match, kind)
        present = needed = labels
    else:
        kind, named = "dask array", False
        if X.ndim != 2 or own:
            raise DataError(
                f"the {kind} has no column {listed(own)}: pass an array"
                if own
                else f"X has shape {X.shape}; an array of rows and columns was expected"
            )
        X = X.rechunk({1: -1})
        present = needed = numbered(X.shape[1])
        if match is not None:
            match.found_by_position(present)
            present, needed = match.names, match.needed
    if match is None and not needed:
        raise DataError(f"the {kind} has no input column (0 feature(s)); at least one is needed")
    beside = any(is_lazy(values) and _is_series(values) for values in (y, sample_weight))
    blocks, sizes = _blocks(X, as_cut=beside)
    n_rows = None if np.isnan(sizes).any() else int(sum(sizes))
    if n_rows == 0:
        raise DataError(f"the {kind} is empty: 0 sample(s) (rows); at least 1 is required")
    layout = Layout(
        present,
        needed,
        named,
        model="the model" if match is None else match.model,
        missing=missing,
        target=_name_of(y),
        target_column=y if isinstance(y, str) else None,
        weight_column=sample_weight if isinstance(sample_weight, str) else None,
    )
    return LazySource(
        names=needed if match is None else match.needed,
        named=named,
        n_rows=n_rows,
        weighted=sample_weight is not None,
        layout=layout,
        kind=kind,
        blocks=blocks,
        y=_beside(y, "y", sizes, kind),
        weight=_beside(sample_weight, "sample_weight", sizes, kind),
    )


def _chosen(
    X: Any, own: list[str], match: Match | None, kind: str
) -> tuple[Any, tuple[str, ...], bool]:
    """Keep the inputs of a data frame, and target and weight; name the inputs."""
    present = list(X.columns)
    named = all(isinstance(name, str) for name in present)
    inputs = [name for name in present if name not in own]
    if match is None:
        columns = inputs
    elif named and match.named:
        columns = list(match.needed)
    else:
        columns = list(match.found_by_position(inputs))
    if absent := [name for name in [*own, *columns] if name not in present]:
        fitted = "" if match is None else f"{UNMATCHED}\n"
        raise DataError(
            f"{fitted}the {kind} has no column {listed(absent)}; it has {listed(present)}"
        )
    kept = [*columns, *own] or present[:1]  # a block without any column has no rows
    require_unique([name for name in present if name in kept])
    return X[kept], tuple(columns) if named else numbered(len(columns)), named


def map_rows(
    X: Any, function: Callable[[Any], NDArray[np.float64]], outputs: int
) -> tuple[Any, ...]:
    """Apply a function to every block of a dask collection, later.

    Parameters
    ----------
    X : dask array, dask data frame, or xarray dataset of them
    function : callable
        Takes a block, ndarray or data frame, of at least one row and returns (n_rows, outputs).
    outputs : int

    Returns
    -------
    tuple of dask arrays of shape (n_rows,)
        With the blocks of X, but for those known to be empty. Computed together
        (``dask.compute``), the function runs once a block.
    """
    X = _collection(X)
    if _is_frame(X):
        kind = "dask dataframe"
    else:
        kind, X = "dask array", X.rechunk({1: -1})
    blocks, sizes = _blocks(X)
    apply = delayed(_outputs, pure=False, traverse=False)
    # Sent to a cluster once, not with every block: it may hold a model.
    function = delayed(function, pure=False, traverse=False)
    tables = [
        da.from_delayed(
            apply(block, function, outputs, f"block {number} of the {kind}"),
            shape=(n_rows, outputs),
            dtype=np.float64,
        )
        for number, (block, n_rows) in enumerate(zip(blocks, sizes, strict=True))
    ]
    table = da.concatenate(tables, allow_unknown_chunksizes=True)
    return tuple(table[:, j] for j in range(outputs))


def _outputs(
    block: Any, function: Callable[[Any], NDArray[np.float64]], outputs: int, part: str
) -> NDArray[np.float64]:
    with naming(part):
        return function(block) if len(block) else np.empty((0, outputs))


def _collection(X: Any) -> Any:
    """Return a dask array or data frame."""
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


def _is_series(values: Any) -> bool:
    return hasattr(values, "map_partitions")


def _blocks(X: Any, as_cut: bool = False) -> tuple[list[Any], list[float]]:
    """Cut into delayed blocks; NaN is a length that is not known.

    Dask may fuse the partitions of a narrow frame; ``as_cut`` keeps them, for those beside it.
    """
    blocks = X.to_delayed(optimize_graph=not as_cut)
    if isinstance(blocks, np.ndarray):
        return list(blocks.ravel()), list(X.chunks[0])
    return list(blocks), [np.nan] * len(blocks)


def _name_of(y: Any) -> str:
    name = y if isinstance(y, str) else getattr(y, "name", None)
    # The name of a dask array is that of its graph.
    return "y" if name is None or hasattr(y, "rechunk") else str(name)


def _beside(values: Any, what: str, sizes: list[float], kind: str) -> list[Any]:
    """Cut a target or weights as X is cut; None for every block where there are none."""
    if values is None or isinstance(values, str):
        return [None] * len(sizes)
    if np.ndim(values) == 0:  # the same weight in every row
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
        _require_length(what, len(values), sum(sizes))
        ends = np.cumsum([0, *sizes]).astype(int)
        cut = values.iloc if isinstance(values, pd.Series) else values
        return [cut[start:end] for start, end in pairwise(ends)]
    if hasattr(values, "rechunk"):
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise DataError(f"{what} has shape {values.shape}; one value a row was expected")
        if known and not np.isnan(values.shape[0]):
            _require_length(what, values.shape[0], sum(sizes))
            values = values.rechunk((tuple(sizes),))
    blocks, _ = _blocks(values, as_cut=True)
    if len(blocks) != len(sizes):
        raise DataError(
            f"X has {len(sizes)} blocks but {what} has {len(blocks)}, and their lengths are not "
            "known; cut both alike"
        )
    return blocks


def _require_length(what: str, length: int, n_rows: float) -> None:
    if length != n_rows:
        raise DataError(
            f"X has {n_rows:.0f} rows but {what} has {length}: inconsistent numbers of samples; "
            "pass one value a row"
        )
