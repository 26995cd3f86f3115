"""The rows of a fit as codes, and the moves between rows and tables.

A *table* is a vector along the axis of one term. The tables of all terms lie one after the other
in one flat vector, so that a solver's dot products are single calls; ``parts`` splits it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dsgp.axis import Axis, Floats
from dsgp.errors import DataError
from dsgp.jit.rows import gather, gather_add, scatter


@dataclass(frozen=True)
class RowTable:
    """Codes of all rows on the axes of all terms.

    Attributes
    ----------
    names : tuple of str, length n_terms
    axes : tuple of Axis, length n_terms
    codes : ndarray of int32, shape (n_terms, n_rows)
    """

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    codes: NDArray[np.int32]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.axes) == len(self.codes):
            raise DataError(
                f"{len(self.names)} names, {len(self.axes)} axes and codes of shape "
                f"{self.codes.shape} do not agree on the number of terms"
            )

    @property
    def n_terms(self) -> int:
        """Number of terms D."""
        return self.codes.shape[0]

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.codes.shape[1]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each term's table begins in a flat vector, and the end: shape (n_terms + 1,)."""
        return np.cumsum([0, *(len(axis) for axis in self.axes)], dtype=np.int64)

    @property
    def size(self) -> int:
        """Length Σ U_d of a flat vector."""
        return int(self.offsets[-1])

    def part(self, flat: Floats, term: int) -> Floats:
        """View of one term's table in a flat vector."""
        return flat[self.offsets[term] : self.offsets[term + 1]]

    def parts(self, flat: Floats) -> list[Floats]:
        """Views of all tables in a flat vector."""
        return [self.part(flat, term) for term in range(self.n_terms)]

    def gather(self, flat: Floats, out: Floats, start: int = 0, stop: int | None = None) -> Floats:
        """Σ_d of each row's entry in table d, for the rows from start to stop."""
        gather(self.codes, self.offsets, flat, start, self.n_rows if stop is None else stop, out)
        return out

    def gather_add(self, term: int, table: Floats, scale: float, out: Floats) -> None:
        """Add scale times each row's entry in one term's table to ``out`` (n_rows,)."""
        gather_add(self.codes[term], table, scale, out)

    def scatter(self, term: int, rows: Floats, weight: Floats, out: Floats) -> Floats:
        """Sum weight * rows by the points of one term, into ``out`` (n_points,)."""
        scatter(self.codes[term], rows, weight, out)
        return out
