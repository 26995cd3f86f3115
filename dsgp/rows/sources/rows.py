"""Some rows of a table as numbers, and what every source of them offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dsgp.axis import Floats
from dsgp.errors import DataError
from dsgp.rows.encode import require_finite
from dsgp.rows.sources.memory import (
    Columns,
    matching_columns,
    naming,
    require_as_many,
    some_weights,
    target_of,
)


@dataclass(frozen=True)
class Rows:
    """Some rows of one table: float64 columns in the order of the source's names.

    Attributes
    ----------
    columns : list of ndarray of shape (n,)
    y : ndarray of shape (n,) or None
        None where the source has no target.
    weight : ndarray of shape (n,) or None
        None means ones.
    n_rows : int
        Number of rows where there is neither a column nor a target.
    """

    columns: list[Floats]
    y: Floats | None = None
    weight: Floats | None = None
    n_rows: int = 0

    def __len__(self) -> int:
        lengths = (len(values) for values in (self.y, *self.columns) if values is not None)
        return next(lengths, self.n_rows)

    def part(self, rows: slice) -> Rows:
        """Return some of the rows, as views."""
        return Rows(
            [column[rows] for column in self.columns],
            None if self.y is None else self.y[rows],
            None if self.weight is None else self.weight[rows],
            len(range(len(self))[rows]),
        )

    @staticmethod
    def join(pieces: Sequence[Rows]) -> Rows:
        """Put rows of the same source (at least one piece) one below the other."""
        if len(pieces) == 1:
            return pieces[0]
        targets = [piece.y for piece in pieces if piece.y is not None]
        weights = [piece.weight for piece in pieces if piece.weight is not None]
        return Rows(
            [np.concatenate(column) for column in zip(*(p.columns for p in pieces), strict=True)],
            np.concatenate(targets) if targets else None,
            np.concatenate(weights) if weights else None,
            sum(map(len, pieces)),
        )


class Source(Protocol):
    """Rows of one table, block by block."""

    @property
    def names(self) -> tuple[str, ...]:
        """Input columns; x0, x1, … where the data have no names."""

    @property
    def named(self) -> bool:
        """Whether the names came with the data."""

    @property
    def n_rows(self) -> int | None:
        """None where only reading tells."""

    @property
    def target(self) -> str:
        """Name of the target, for messages."""

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""

    @property
    def in_memory(self) -> bool:
        """Whether the rows are there already: their number is known, and reading is quick."""

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        """Yield loaders in row order; every call yields the same rows.

        Take them one at a time: a loader of a file that is read from start to end holds its rows.
        Loaders can be pickled; those of dask collections have an attribute ``delayed`` instead, and
        compute it in the calling thread when called.

        Raises
        ------
        DataError
            By this or by a loader, naming the part and the column: a value is missing, infinite or
            no number, a weight is negative, or a part cannot be read.
        """


@dataclass(frozen=True)
class Match:
    """Columns that a fitted model asks for, as in ``matching_columns``."""

    names: tuple[str, ...]
    needed: tuple[str, ...]
    named: bool
    model: str

    def found_by_position(self, present: Sequence[str]) -> tuple[str, ...]:
        """Return what the columns needed are called in a table of as many columns."""
        require_as_many(present, self.names, self.model)
        return tuple(present[self.names.index(name)] for name in self.needed)


@dataclass(frozen=True)
class Layout:
    """How rows are taken from the blocks of a table, all of which have the same columns.

    Attributes
    ----------
    names : tuple of str
        Columns that a block has, as for ``matching_columns``, like the next three.
    needed : tuple of str
    named : bool
    model : str
    missing : {"error", "ignore"}
        Whether an input may be NaN.
    target : str
        Name of the target, for messages.
    target_column, weight_column : str or None
        Columns of the block itself that are target and weight.
    """

    names: tuple[str, ...]
    needed: tuple[str, ...]
    named: bool
    model: str
    missing: str
    target: str = "y"
    target_column: str | None = None
    weight_column: str | None = None

    def rows(
        self, block: Any, y: Any = None, weight: Any = None, part: str = "", first_row: int = 0
    ) -> Rows:
        """Check a block and return its rows as numbers.

        Parameters
        ----------
        block : ndarray or pandas.DataFrame
        y, weight : ndarray or pandas.Series, optional
            Where they are no columns of the block.
        part : str
            For messages, which count rows from ``first_row``.
        """
        with naming(part):
            n_rows = len(block)
            y = block[self.target_column] if self.target_column else y
            weight = block[self.weight_column] if self.weight_column else weight
            if n_rows == 0:
                return self._no_rows(y, weight)
            columns = matching_columns(block, self.names, self.needed, self.named, self.model)
            if y is not None:
                y = target_of(y, n_rows, self.target, first_row)
            if weight is not None:
                weight = some_weights(weight, n_rows, first_row)
            return rows_of(columns, self.needed, y, weight, self.missing, first_row)

    def _no_rows(self, y: Any, weight: Any) -> Rows:
        for name, values in ((self.target, y), ("sample_weight", weight)):
            if values is not None and np.size(values) and np.ndim(values):
                raise DataError(f"X has no row but {name!r} has {np.size(values)}: pass one a row")
        none = np.empty(0)
        return Rows(
            [none] * len(self.needed),
            None if y is None else none,
            None if weight is None else none,
        )


def rows_of(
    columns: Columns,
    needed: Sequence[str],
    y: Floats | None,
    weight: Floats | None,
    missing: str,
    first_row: int,
) -> Rows:
    """Convert columns to numbers and check that they are finite, or missing where they may be."""
    inputs = []
    for name in needed:
        values = columns.column(name)
        if missing == "error":
            require_finite(f"input column {name!r}", values, first_row)
        elif np.isinf(values).any():
            gaps_filled = np.where(np.isnan(values), 0.0, values)
            require_finite(f"input column {name!r}", gaps_filled, first_row)
        inputs.append(values)
    return Rows(inputs, y, weight, columns.n_rows)
