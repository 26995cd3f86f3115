"""Codes of rows that stay on the workers of a cluster, for passes that sum over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.disk_codes import DiskCodes
from dsgp.rows.table import CodesElsewhere, Layout, PartFunction, RowsFit, RowTable, total_of
from dsgp.terms import Floats
from dsgp.worker_blocks import WorkerBlocks

# Number of further sets of arrays that workers keep beside the codes: those of the last passes.
_SETS = 2


class WorkerCodes(CodesElsewhere):
    """Codes of some parts of rows, each kept by a worker.

    Parameters
    ----------
    blocks : WorkerBlocks
        Codes (n_terms, n) of each part.
    ends : sequence of int
        Rows up to which each part goes.
    n_terms : int
    dtype : numpy.dtype
    sent : list, optional
        What has been sent to be beside them.
    on_disk : bool
        Whether they are to go to a temporary zarr store when they come here.
    """

    def __init__(
        self,
        blocks: WorkerBlocks,
        ends: Sequence[int],
        n_terms: int,
        dtype: np.dtype[Any],
        sent: list[tuple[tuple[NDArray[Any], ...], WorkerBlocks]] | None = None,
        on_disk: bool = False,
    ) -> None:
        self.blocks, self.ends = blocks, tuple(ends)
        self.shape, self.dtype = (n_terms, self.ends[-1]), dtype
        self._sent = [] if sent is None else sent
        self._on_disk = on_disk

    def by_parts(
        self, layout: Layout, function: PartFunction, arrays: Sequence[NDArray[Any]]
    ) -> Iterator[Any]:
        on_part = partial(_on_part, layout, function)
        if not any(map(len, arrays)):
            return self.blocks.each(partial(on_part, arrays=tuple(arrays)), name="rows")
        return self.blocks.each(on_part, self.beside(arrays), name="rows")

    def changed(
        self, function: Callable[[NDArray[Any]], NDArray[Any]], dtype: np.dtype[Any]
    ) -> WorkerCodes:
        blocks = self.blocks.changed(function, name="recode")
        return WorkerCodes(blocks, self.ends, self.shape[0], dtype, self._sent, self._on_disk)

    def chosen(self, terms: Sequence[int]) -> WorkerCodes:
        blocks = self.blocks.changed(partial(_some_terms, list(terms)), name="recode")
        return WorkerCodes(blocks, self.ends, len(terms), self.dtype, self._sent, self._on_disk)

    def fit(self, layout: Layout, mean: Floats) -> WorkerFit:
        return WorkerFit(self, layout, mean)

    def here(self) -> Any:
        out: Any = (
            DiskCodes.empty(self.shape, self.dtype)
            if self._on_disk
            else np.empty(self.shape, self.dtype)
        )
        parts = self.blocks.each(_as_it_is, name="codes")
        for (start, stop), codes in zip(pairwise((0, *self.ends)), parts, strict=True):
            out[:, start:stop] = codes
        return out

    def beside(self, arrays: Sequence[NDArray[Any]]) -> WorkerBlocks:
        """Send parts of arrays to be with the codes, but for those that the last passes sent."""
        for known, blocks in self._sent:
            if len(known) == len(arrays) and all(map(_is_same, known, arrays)):
                return blocks
        parts = (
            tuple(values[start:stop] if len(values) else values for values in arrays)
            for start, stop in pairwise((0, *self.ends))
        )
        blocks = self.blocks.with_parts(parts, name="targets")
        self._sent[:] = [(tuple(arrays), blocks), *self._sent][:_SETS]
        return blocks


class WorkerFit(RowsFit):
    """What the rows get of all tables, beside their codes.

    Each change makes other blocks of those before. Where the cluster forgets them they are made of
    the codes, by the same additions in the same order.
    """

    def __init__(self, codes: WorkerCodes, layout: Layout, mean: Floats) -> None:
        self._codes, self._layout = codes, layout
        self._mean = mean.copy()
        self._changes: list[tuple[int, Floats]] = []
        self._rows = codes.blocks.changed(partial(_fitted, layout, self._mean, ()), name="fit")

    def scatter(self, term: int, weight: Floats) -> Floats:
        function = partial(_scattered, self._layout, term)
        beside = (self._codes.beside((weight,)),) if len(weight) else ()
        sums = self._rows.each(function, self._codes.blocks, *beside, name="rows")
        total: Floats = total_of(sums)
        return total

    def add(self, term: int, table: Floats) -> None:
        change = (term, table.copy())
        self._changes.append(change)
        self._rows = self._rows.changed(
            partial(_with_change, self._layout, change),
            self._codes.blocks,
            name="fit",
            again=partial(_fitted, self._layout, self._mean, tuple(self._changes)),
        )


def _is_same(known: NDArray[Any], array: NDArray[Any]) -> bool:
    return known is array or (not len(known) and not len(array))


def _as_it_is(codes: NDArray[Any]) -> NDArray[Any]:
    return codes


def _on_part(
    layout: Layout, function: PartFunction, codes: NDArray[Any], arrays: Sequence[NDArray[Any]]
) -> Any:
    table = RowTable(layout.names, layout.cells, codes)
    return function(table, arrays, slice(0, codes.shape[1]))


def _some_terms(terms: list[int], codes: NDArray[Any]) -> NDArray[Any]:
    return codes[terms]


def _fitted(
    layout: Layout, mean: Floats, changes: Sequence[tuple[int, Floats]], codes: NDArray[Any]
) -> Floats:
    """Return what rows get of the tables of a mean, and of changes that came after."""
    table = RowTable(layout.names, layout.cells, codes)
    rows = table.gather(mean)
    for term, change in changes:
        table.gather_add(term, change, 1.0, rows)
    return rows


def _with_change(
    layout: Layout, change: tuple[int, Floats], rows: Floats, codes: NDArray[Any]
) -> Floats:
    term, by = change
    changed = rows.copy()  # dask keeps the previous array
    RowTable(layout.names, layout.cells, codes).gather_add(term, by, 1.0, changed)
    return changed


def _scattered(
    layout: Layout,
    term: int,
    rows: Floats,
    codes: NDArray[Any],
    weight: Sequence[Floats] | None = None,
) -> Floats:
    weighted = rows if weight is None else rows * weight[0]
    return RowTable(layout.names, layout.cells, codes).scatter(term, weighted)
