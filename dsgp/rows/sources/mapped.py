"""Rows of a source whose columns are functions of those of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from dask import delayed

from dsgp.axis import Floats
from dsgp.errors import DataError
from dsgp.rows.sources.lazy import LazyRows
from dsgp.rows.sources.rows import Rows, Source


@dataclass(frozen=True)
class MappedSource:
    """Rows of a source with other columns, made of those that it has; all else stays.

    Attributes
    ----------
    source : Source
    names : tuple of str
        Of the new columns.
    function : callable
        Takes the columns of some rows (a chunk, which may have none) and returns the new ones, all
        as lists of float64 arrays. It is called anew in every pass, wherever the chunk is loaded:
        it must be picklable, and each row depend on itself only.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.rows.sources import MappedSource, source_of
    >>> source = source_of(np.array([[1.0, 2.0], [3.0, 5.0]]), y=[0.0, 1.0])
    >>> total = MappedSource(source, ("total",), lambda columns: [sum(columns)])
    >>> [load().columns[0] for load in total.chunks()]
    [array([3., 8.])]
    """

    source: Source
    names: tuple[str, ...]
    function: Callable[[list[Floats]], list[Floats]]

    @property
    def named(self) -> bool:
        return self.source.named

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows

    @property
    def target(self) -> str:
        return self.source.target

    @property
    def weighted(self) -> bool:
        return self.source.weighted

    @property
    def extra(self) -> tuple[str, ...]:
        return self.source.extra

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        mapped = partial(_mapped, self.function, self.names)
        # Part of every task, not one of its own that all others would wait for.
        lazily = delayed(mapped, pure=False, traverse=False)
        for load in self.source.chunks():
            if isinstance(load, LazyRows):
                yield LazyRows(lazily(load.delayed))
            else:
                yield partial(_load, mapped, load)


def _load(mapped: Callable[[Rows], Rows], load: Callable[[], Rows]) -> Rows:
    return mapped(load())


def _mapped(
    function: Callable[[list[Floats]], list[Floats]], names: tuple[str, ...], rows: Rows
) -> Rows:
    columns = function(rows.columns)
    for name, values in zip(names, columns, strict=True):
        if np.isinf(values).any():  # those of the source are finite, or missing
            raise DataError(
                f"{name!r} goes beyond what float64 can hold in some rows; rescale the columns"
            )
    return replace(rows, columns=columns, n_rows=len(rows))
