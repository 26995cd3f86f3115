"""Rows of a source whose columns, or whose target, are functions of those of another one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from dask import delayed

from dsgp.errors import DataError
from dsgp.rows.sources.kinds import Kind
from dsgp.rows.sources.lazy import LazyRows, task_name
from dsgp.rows.sources.rows import Rows, Source
from dsgp.terms import Floats


@dataclass(frozen=True)
class _Derived(ABC):
    """A source that changes the rows of another one, each by itself, and nothing else."""

    source: Source

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
    def kinds(self) -> Mapping[str, Kind]:
        return self.source.kinds

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    @abstractmethod
    def _change(self) -> Callable[[Rows], Rows]:
        """Return a function that changes a chunk; it travels to workers."""

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        change = self._change()
        # Part of every task, not a separate one that all others would wait for.
        lazily = delayed(change, pure=False, traverse=False)
        for load in self.source.chunks():
            if isinstance(load, LazyRows):
                yield LazyRows(lazily(load.delayed, dask_key_name=task_name("read")))
            else:
                yield partial(_load, change, load)


@dataclass(frozen=True)
class MappedSource(_Derived):
    """Rows of a source with other columns, computed from its own; all else is unchanged.

    Attributes
    ----------
    source : Source
    names : tuple of str
        Of the new columns.
    function : callable
        Takes the columns of some rows (a chunk, which may have none) and returns the new ones, all
        as lists of float64 arrays. It is called again in every pass, wherever the chunk is loaded:
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

    names: tuple[str, ...]
    function: Callable[[list[Floats]], list[Floats]]

    def _change(self) -> Callable[[Rows], Rows]:
        return partial(_mapped, self.function, self.names)


@dataclass(frozen=True)
class RetargetedSource(_Derived):
    """Rows of a source with a function of their target instead of it; all else is unchanged.

    Attributes
    ----------
    source : Source
    function : callable
        Takes the target of some rows and returns another, (n,) each. It must be picklable.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.rows.sources import RetargetedSource, source_of
    >>> source = source_of(np.array([[1.0], [3.0]]), y=[1.0, 100.0])
    >>> [load().y for load in RetargetedSource(source, np.log10).chunks()]
    [array([0., 2.])]
    """

    function: Callable[[Floats], Floats]

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    def _change(self) -> Callable[[Rows], Rows]:
        return partial(_retargeted, self.function)


@dataclass(frozen=True)
class ReweightedSource(_Derived):
    """Rows of a source with weights multiplied by a function of the rows; all else is unchanged.

    Attributes
    ----------
    source : Source
    factor : callable
        Takes some rows and returns what their weights are multiplied by, (n,), positive. It must
        be picklable, and each row depend on itself only.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.rows.sources import ReweightedSource, source_of
    >>> source = source_of(np.array([[1.0], [3.0]]), y=[0.0, 1.0])
    >>> weighted = ReweightedSource(source, lambda rows: 2 * rows.columns[0])
    >>> weighted.weighted, [load().weight for load in weighted.chunks()]
    (True, [array([2., 6.])])
    """

    factor: Callable[[Rows], Floats]

    @property
    def names(self) -> tuple[str, ...]:
        return self.source.names

    @property
    def weighted(self) -> bool:
        return True

    def _change(self) -> Callable[[Rows], Rows]:
        return partial(_reweighted, self.factor)


@dataclass(frozen=True)
class ViewedSource(_Derived):
    """A function of whole rows of a source: of columns, target and further numbers.

    Attributes
    ----------
    source : Source
    names : tuple of str
        Of the columns that are shown.
    view : callable
        Takes some rows and returns as many, with as many columns as there are names. It must be
        picklable, and each row depend on itself only.
    added : tuple of str
        Roles of further numbers that the source does not have.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import replace
    >>> from dsgp.rows.sources import ViewedSource, source_of
    >>> source = source_of(np.array([[1.0, 2.0], [3.0, 5.0]]), y=[0.0, 1.0])
    >>> less = lambda rows: replace(rows, columns=rows.columns[:1], y=rows.y - rows.columns[1])
    >>> [load().y for load in ViewedSource(source, ("x0",), less).chunks()]
    [array([-2., -4.])]
    """

    names: tuple[str, ...]
    view: Callable[[Rows], Rows]
    added: tuple[str, ...] = ()

    @property
    def extra(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.source.extra, *self.added]))

    def _change(self) -> Callable[[Rows], Rows]:
        return self.view


def _load(change: Callable[[Rows], Rows], load: Callable[[], Rows]) -> Rows:
    return change(load())


def _mapped(
    function: Callable[[list[Floats]], list[Floats]], names: tuple[str, ...], rows: Rows
) -> Rows:
    columns = function(rows.columns)
    for name, values in zip(names, columns, strict=True):
        if np.isinf(values).any():  # those of the source are finite or missing
            raise DataError(
                f"{name!r} goes beyond what float64 can hold in some rows; rescale the columns"
            )
    return replace(rows, columns=columns, n_rows=len(rows))


def _reweighted(factor: Callable[[Rows], Floats], rows: Rows) -> Rows:
    weight = factor(rows)
    return replace(rows, weight=weight if rows.weight is None else rows.weight * weight)


def _retargeted(function: Callable[[Floats], Floats], rows: Rows) -> Rows:
    assert rows.y is not None
    return replace(rows, y=function(rows.y))
