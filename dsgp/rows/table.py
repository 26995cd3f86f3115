"""The rows of a fit as codes, and the moves between rows and tables.

A *table* is a vector along the axis of one term. The tables of all terms lie one after the other
in one flat vector, so that a solver's dot products are single calls; ``Layout`` splits it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.axis import Axis, Floats
from dsgp.errors import DataError
from dsgp.jit.rows import gather, gather_add, scatter_add

# Rows that are moved at a time: their sums stay in the cache, and codes on disk never come whole.
BLOCK = 2**18


@dataclass(frozen=True)
class Layout:
    """Names and axes of all terms: how a flat vector is made of tables.

    Attributes
    ----------
    names : tuple of str, length n_terms
    axes : tuple of Axis, length n_terms
    """

    names: tuple[str, ...]
    axes: tuple[Axis, ...]

    @property
    def n_terms(self) -> int:
        """Number of terms D."""
        return len(self.axes)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each term's table begins in a flat vector, and the end: shape (n_terms + 1,)."""
        return np.cumsum([0, *(len(axis) for axis in self.axes)], dtype=np.int64)

    @property
    def size(self) -> int:
        """Length Σ U_d of a flat vector."""
        return int(self.offsets[-1])

    def part(self, flat: Floats, term: int) -> Floats:
        """View of one term's table in flat vectors (…, size)."""
        return flat[..., self.offsets[term] : self.offsets[term + 1]]

    def parts(self, flat: Floats) -> list[Floats]:
        """Views of all tables in flat vectors (…, size)."""
        return [self.part(flat, term) for term in range(self.n_terms)]


@dataclass(frozen=True)
class RowTable(Layout):
    """Codes of all rows on the axes of all terms.

    Attributes
    ----------
    names : tuple of str, length n_terms
    axes : tuple of Axis, length n_terms
    codes : integer array of shape (n_terms, n_rows)
        In memory, or anything that gives a block of columns when sliced, as a zarr array does. A
        code that is not below the length of its axis stands for a missing input.
    """

    codes: Any

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.axes) == self.codes.shape[0]:
            raise DataError(
                f"{len(self.names)} names, {len(self.axes)} axes and codes of shape "
                f"{self.codes.shape} do not agree on the number of terms"
            )

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return int(self.codes.shape[1])

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield blocks of rows in order, with their codes (n_terms, n)."""
        for start in range(0, self.n_rows, BLOCK):
            rows = slice(start, min(start + BLOCK, self.n_rows))
            yield rows, np.asarray(self.codes[:, rows])

    def gather(self, flat: Floats) -> Floats:
        """Σ_d of each row's entry in table d, (n_rows,)."""
        out = np.empty(self.n_rows)
        for rows, codes in self.blocks():
            gather(codes, self.offsets, flat, 0, codes.shape[1], out[rows])
        return out

    def gather_add(self, term: int, table: Floats, scale: float, out: Floats) -> None:
        """Add scale times each row's entry in one term's table to ``out`` (n_rows,)."""
        for rows, codes in self.blocks():
            gather_add(codes[term], table, scale, out[rows])

    def scatter(self, term: int, values: Floats) -> Floats:
        """Sum the values of the rows (n_rows,) at the points of one term, (n_points,)."""
        out = np.zeros(len(self.axes[term]))
        for rows, codes in self.blocks():
            scatter_add(codes[term], values[rows], out)
        return out
