"""The rows of a fit as codes, and the moves between rows and tables.

A *table* is a vector of the cells of one term. The tables of all terms lie one after the other
in one flat vector, so that a solver's dot products are single calls; ``Layout`` splits it again.
What a row gets of a term is the entry of its cell, times its multiplier where the term has one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.jit.rows import gather, gather_add, gather_multiplied, scatter_add
from dsgp.terms import Cells, Floats

# Number of rows that are processed at a time: their sums stay in the cache, and codes on disk are
# never in memory as a whole.
BLOCK = 2**18


@dataclass(frozen=True)
class Layout:
    """Names and cells of all terms: how a flat vector is made of tables.

    Attributes
    ----------
    names : tuple of str, length n_terms
    cells : tuple of Cells, length n_terms
    """

    names: tuple[str, ...]
    cells: tuple[Cells, ...]

    @property
    def n_terms(self) -> int:
        """Number of terms D."""
        return len(self.cells)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each term's table begins in a flat vector, and the end: shape (n_terms + 1,)."""
        return np.cumsum([0, *(len(term_cells) for term_cells in self.cells)], dtype=np.int64)

    @property
    def size(self) -> int:
        """Length Σ U_d of a flat vector."""
        return int(self.offsets[-1])

    def without(self, term: int) -> Layout:
        """Return the layout of all terms but one."""
        names, cells = list(self.names), list(self.cells)
        del names[term], cells[term]
        return Layout(tuple(names), tuple(cells))

    def part(self, flat: Floats, term: int) -> Floats:
        """View of one term's table in flat vectors (…, size)."""
        return flat[..., self.offsets[term] : self.offsets[term + 1]]

    def parts(self, flat: Floats) -> list[Floats]:
        """Views of all tables in flat vectors (…, size)."""
        return [self.part(flat, term) for term in range(self.n_terms)]


class CodesElsewhere(ABC):
    """Codes of rows that other processes keep, and process, part by part.

    Attributes
    ----------
    shape : (n_terms, n_rows)
    dtype : numpy.dtype
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @abstractmethod
    def by_parts(
        self, layout: Layout, function: PartFunction, arrays: Sequence[NDArray[Any]]
    ) -> Iterator[Any]:
        """As ``RowTable.by_parts``; every table is one of a part alone."""

    @abstractmethod
    def changed(
        self, function: Callable[[NDArray[Any]], NDArray[Any]], dtype: np.dtype[Any]
    ) -> CodesElsewhere:
        """Compute other codes from these, where they are, as a function of each part's codes."""

    @abstractmethod
    def chosen(self, terms: Sequence[int]) -> CodesElsewhere:
        """Return the codes of some of the terms."""

    @abstractmethod
    def fit(self, layout: Layout, mean: Floats) -> RowsFit:
        """As ``RowTable.fit``."""

    @abstractmethod
    def here(self) -> Any:
        """Bring all codes into this process's memory, or to its disk."""

    def __getitem__(self, key: tuple[Any, slice]) -> NDArray[Any]:
        """Bring some codes into memory, for work that is not done part by part."""
        return np.asarray(self.here()[key])


class RowsFit(ABC):
    """The sum of all tables at every row, while single tables change."""

    @abstractmethod
    def scatter(self, term: int, weight: Floats) -> Floats:
        """Sum it, weighted by (n_rows,) or (0,) for ones, at the cells of one term, (n_cells,)."""

    @abstractmethod
    def add(self, term: int, table: Floats) -> None:
        """Add a change (n_cells,) of one term's table to each row's sum."""


@dataclass(frozen=True)
class RowTable(Layout):
    """Codes of all rows in the tables of all terms.

    Attributes
    ----------
    names : tuple of str, length n_terms
    cells : tuple of Cells, length n_terms
    codes : integer array of shape (n_terms, n_rows)
        In memory, or anything that gives a block of columns when sliced, as a zarr array does. A
        code that is not below the number of cells stands for a missing input.
    multipliers : dict of int to ndarray of shape (n_rows,)
        Multiplier of a term's function in each row, if that is not 1.
    ends : tuple of int
        Ends of the parts of rows that are summed separately, the last one n_rows; the parts' sums
        are added in their order, wherever they are computed. Empty: all rows are one part.
    """

    codes: Any
    multipliers: dict[int, Floats] = field(default_factory=dict)
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.cells) == self.codes.shape[0]:
            raise DataError(
                f"{len(self.names)} names, {len(self.cells)} tables and codes of shape "
                f"{self.codes.shape} do not agree on the number of terms"
            )

    def without(self, term: int) -> RowTable:
        """Return the table of all terms but one; codes on disk or elsewhere stay there."""
        layout = super().without(term)
        left = [d for d in range(self.n_terms) if d != term]
        codes: Any
        if isinstance(self.codes, np.ndarray):
            codes = self.codes[left]
        elif isinstance(self.codes, CodesElsewhere):
            codes = self.codes.chosen(left)
        else:
            codes = _ChosenCodes(self.codes, left)
        return RowTable(
            layout.names,
            layout.cells,
            codes,
            {i: self.multipliers[d] for i, d in enumerate(left) if d in self.multipliers},
            self.ends,
        )

    @property
    def layout(self) -> Layout:
        """Names and cells without the rows."""
        return Layout(self.names, self.cells)

    def by_parts(
        self, function: PartFunction, arrays: Sequence[NDArray[Any]] = ()
    ) -> Iterator[Any]:
        """Apply a function to the rows of each part, where their codes are.

        Parameters
        ----------
        function : callable
            Takes a table, arrays of its rows, and a slice: the part's rows in both. It travels to
            where the codes are.
        arrays : sequence of ndarray of shape (n_rows,), or (0,) for none
            Further arguments of the function.

        Yields
        ------
        The results, in the order of the parts.
        """
        if isinstance(self.codes, CodesElsewhere):
            yield from self.codes.by_parts(self.layout, function, arrays)
            return
        for start, stop in pairwise((0, *(self.ends or (self.n_rows,)))):
            yield function(self, arrays, slice(start, stop))

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return int(self.codes.shape[1])

    def blocks(self, part: slice | None = None) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield blocks of all rows, or of those of a part, in order; codes are (n_terms, n)."""
        first, end = (0, self.n_rows) if part is None else (part.start, part.stop)
        for start in range(first, end, BLOCK):
            rows = slice(start, min(start + BLOCK, end))
            yield rows, np.asarray(self.codes[:, rows])

    def multiplier(self, term: int, rows: slice = slice(None)) -> Floats | None:
        """Multiplier of one term in some rows; None for 1."""
        return self.multipliers[term][rows] if term in self.multipliers else None

    def gather_part(
        self, codes: NDArray[Any], rows: slice, flat: Floats, part: slice, out: Floats
    ) -> None:
        """Set ``out`` (n,) to Σ_d of each row's entry in table d, for a part of a block of rows."""
        if not self.multipliers:
            gather(codes, self.offsets, flat, part.start, part.stop, out)
            return
        first = rows.start
        where = np.full(self.n_terms, -1)
        where[list(self.multipliers)] = np.arange(len(self.multipliers))
        multipliers = np.stack(
            [z[first + part.start : first + part.stop] for z in self.multipliers.values()]
        )
        gather_multiplied(codes, self.offsets, flat, where, multipliers, part.start, part.stop, out)

    def gather(self, flat: Floats) -> Floats:
        """Σ_d of each row's entry in table d, (n_rows,)."""
        parts = list(self.by_parts(partial(_gathered, flat)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def fit(self, mean: Floats) -> RowsFit:
        """Start with the sum at every row of the tables of a flat vector, where the codes are."""
        if isinstance(self.codes, CodesElsewhere):
            return self.codes.fit(self.layout, mean)
        return _FitHere(self, mean)

    def gather_add(self, term: int, table: Floats, scale: float, out: Floats) -> None:
        """Add scale times the entries of one term's table at each row to ``out`` (n_rows,)."""
        multiplier = self.multiplier(term)
        total = out if multiplier is None else np.zeros(self.n_rows)
        for rows, codes in self.blocks():
            gather_add(codes[term], table, scale, total[rows])
        if multiplier is not None:
            out += multiplier * total

    def scatter(self, term: int, values: Floats, power: int = 1) -> Floats:
        """Sum the values of the rows (n_rows,) at the cells of one term, (n_cells,).

        Each row is multiplied by that power of its multiplier.
        """
        return total_of(self.by_parts(partial(_scattered, term, power), (values,)))

    def counts(self, weight: Floats, power: int = 0) -> list[Floats]:
        """Count rows in the cells of all terms, by their weights (n_rows,), or (0,) for ones.

        Each row counts as often as that power of its multiplier says.
        """
        return self.parts(total_of(self.by_parts(partial(_counted, power), (weight,))))

    def scatter_block(
        self,
        term: int,
        codes: NDArray[Any],
        rows: slice,
        values: Floats,
        out: Floats,
        power: int = 1,
    ) -> None:
        """Add the values of a block of rows to the table ``out`` of one term, as ``scatter``."""
        multiplier = self.multiplier(term, rows)
        if multiplier is not None and power:
            values = values * (multiplier if power == 1 else multiplier**power)
        scatter_add(codes, values, out)


PartFunction = Callable[[RowTable, Sequence[NDArray[Any]], slice], Any]


def total_of(sums: Iterator[Any]) -> Any:
    """Add sums, one at least, in their order."""
    total = next(sums)
    for more in sums:
        total = total + more
    return total


def _gathered(flat: Floats, table: RowTable, arrays: Sequence[NDArray[Any]], part: slice) -> Floats:
    out = np.empty(part.stop - part.start)
    for rows, codes in table.blocks(part):
        own = out[rows.start - part.start : rows.stop - part.start]
        table.gather_part(codes, rows, flat, slice(0, len(own)), own)
    return out


def _scattered(
    term: int, power: int, table: RowTable, arrays: Sequence[NDArray[Any]], part: slice
) -> Floats:
    out = np.zeros(len(table.cells[term]))
    for rows, codes in table.blocks(part):
        table.scatter_block(term, codes[term], rows, arrays[0][rows], out, power)
    return out


def _counted(power: int, table: RowTable, arrays: Sequence[NDArray[Any]], part: slice) -> Floats:
    (weight,) = arrays
    out = np.zeros(table.size)
    for rows, codes in table.blocks(part):
        counts = weight[rows] if len(weight) else np.ones(codes.shape[1])
        for term, cells in enumerate(table.parts(out)):
            table.scatter_block(term, codes[term], rows, counts, cells, power)
    return out


class _FitHere(RowsFit):
    def __init__(self, table: RowTable, mean: Floats) -> None:
        self._table, self._rows = table, table.gather(mean)

    def scatter(self, term: int, weight: Floats) -> Floats:
        return self._table.scatter(term, self._rows * weight if len(weight) else self._rows)

    def add(self, term: int, table: Floats) -> None:
        self._table.gather_add(term, table, 1.0, self._rows)


class _ChosenCodes:
    """Codes of some of the terms, of an array that is read block by block."""

    def __init__(self, codes: Any, terms: list[int]) -> None:
        self.codes, self.terms = codes, terms
        self.shape = (len(terms), codes.shape[1])

    def __getitem__(self, block: tuple[slice, slice]) -> NDArray[Any]:
        terms, rows = block
        return np.asarray(self.codes[:, rows])[self.terms][terms]
