"""Some rows of a table as numbers, and the interface of every source of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.encode import require_finite
from dsgp.rows.sources.kinds import Kind
from dsgp.rows.sources.labels import codes_of
from dsgp.rows.sources.memory import (
    Columns,
    extra_of,
    matching_columns,
    naming,
    require_as_many,
    some_weights,
    target_of,
)
from dsgp.rows.sources.numbers import each_checked
from dsgp.terms import Floats


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
    extra : dict of str to ndarray of shape (n,)
        Further numbers by their role, e.g. offset; those of the source's ``extra``.
    """

    columns: list[Floats]
    y: Floats | None = None
    weight: Floats | None = None
    n_rows: int = 0
    extra: dict[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        lengths = (len(values) for values in (self.y, *self.columns) if values is not None)
        return next(lengths, self.n_rows)

    def __sizeof__(self) -> int:
        """Size in bytes, with the arrays: dask uses it for the memory of a worker."""
        arrays = [*self.columns, self.y, self.weight, *self.extra.values()]
        return sum(values.nbytes for values in arrays if values is not None)

    def part(self, rows: slice) -> Rows:
        """Return some of the rows, as views."""
        return Rows(
            [column[rows] for column in self.columns],
            None if self.y is None else self.y[rows],
            None if self.weight is None else self.weight[rows],
            len(range(len(self))[rows]),
            {role: values[rows] for role, values in self.extra.items()},
        )

    @staticmethod
    def join(pieces: Sequence[Rows]) -> Rows:
        """Concatenate pieces (at least one) of rows of the same source."""
        if len(pieces) == 1:
            return pieces[0]
        targets = [piece.y for piece in pieces if piece.y is not None]
        weights = [piece.weight for piece in pieces if piece.weight is not None]
        return Rows(
            [np.concatenate(column) for column in zip(*(p.columns for p in pieces), strict=True)],
            np.concatenate(targets) if targets else None,
            np.concatenate(weights) if weights else None,
            sum(map(len, pieces)),
            {
                role: np.concatenate([piece.extra[role] for piece in pieces])
                for role in pieces[0].extra
            },
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
        """None if it is only known after reading."""

    @property
    def target(self) -> str:
        """Name of the target, for messages."""

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""

    @property
    def extra(self) -> tuple[str, ...]:
        """Roles of the further numbers that rows have."""

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds of the columns that are not numbers."""

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory: their number is known, and reading is fast."""

    def chunks(self) -> Iterator[Callable[[], Rows]]:
        """Yield loaders in row order; every call yields the same rows.

        Take them one at a time: a loader of a file that is read from start to end holds its rows.
        Loaders can be pickled; those of dask collections have an attribute ``delayed`` instead, and
        compute it in the calling thread when called.

        Raises
        ------
        DataError
            By this or by a loader, naming the part and the column: a value is missing, infinite or
            no number, a weight is negative, a class is not among the labels, or a part cannot be
            read.
        """


@dataclass(frozen=True)
class Roles:
    """What rows have besides inputs: values, or the name of a column each.

    Attributes
    ----------
    y, weight : array_like, dask collection, str or None
    extra : dict of str to the same
        Without None.
    labels : ndarray or None
        The classes, where the target is one of them.
    """

    y: Any
    weight: Any
    extra: dict[str, Any]
    labels: NDArray[Any] | None

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.y, self.weight, *self.extra.values())

    @property
    def columns(self) -> list[str]:
        """Names of columns among them, each once."""
        return list(dict.fromkeys(value for value in self.values if isinstance(value, str)))

    @property
    def extra_columns(self) -> dict[str, str]:
        """Columns among the further numbers, by role."""
        return {role: value for role, value in self.extra.items() if isinstance(value, str)}

    def map(self, function: Callable[[Any], Any]) -> Roles:
        """Apply a function to all of them, None included."""
        extra = {role: function(values) for role, values in self.extra.items()}
        return replace(self, y=function(self.y), weight=function(self.weight), extra=extra)


@dataclass(frozen=True)
class Match:
    """Columns that a fitted model needs, as in ``matching_columns``."""

    names: tuple[str, ...]
    needed: tuple[str, ...]
    named: bool
    model: str

    def found_by_position(self, present: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the needed columns in a table of as many columns."""
        require_as_many(present, self.names, self.model)
        return tuple(present[self.names.index(name)] for name in self.needed)


@dataclass(frozen=True)
class Missing:
    """The definition and treatment of missing inputs.

    Attributes
    ----------
    policy : {"error", "ignore"}
    codes : tuple of float
        Numbers that stand for a missing value; those of float32 too.
    """

    policy: str = "error"
    codes: tuple[float, ...] = ()

    def blanked(self, values: Floats) -> Floats:
        """Return an input with NaN for the codes."""
        if not self.codes:
            return values
        narrow = np.array(self.codes, np.float32).astype(np.float64)
        coded = np.isin(values, [*self.codes, *narrow])
        return np.where(coded, np.nan, values) if coded.any() else values

    def require_known(self, name: str, values: Floats, first_row: int) -> None:
        """Raise ``DataError`` if a target has one of the codes."""
        blanked = self.blanked(values)
        if blanked is not values:
            bad = np.flatnonzero(np.isnan(blanked))
            raise DataError(
                f"{name} is {values[bad[0]]:g} in row {first_row + bad[0]} (counted from 0), which "
                f"missing_values says is missing, and in {bad.size} of {values.size} rows; every "
                "row must have one: leave such rows out"
            )


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
    missing : Missing
        Whether an input may be NaN, and what numbers mean that.
    target : str
        Name of the target, for messages.
    target_column, weight_column : str or None
        Columns of the block itself that are target and weight.
    extra_columns : dict of str to str
        Those that are further numbers, by role.
    labels : ndarray or None
        The target is one of these, and its rows are given their numbers; None for a number.
    kinds : mapping of str to Kind
        What columns of ``names`` hold that are no numbers.
    """

    names: tuple[str, ...]
    needed: tuple[str, ...]
    named: bool
    model: str
    missing: Missing
    target: str = "y"
    target_column: str | None = None
    weight_column: str | None = None
    extra_columns: dict[str, str] = field(default_factory=dict)
    labels: NDArray[Any] | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def non_inputs(self) -> list[str]:
        """Columns of the block that are no inputs, each once."""
        non_inputs = (self.target_column, self.weight_column, *self.extra_columns.values())
        return list(dict.fromkeys(name for name in non_inputs if name is not None))

    def rows(
        self,
        block: Any,
        y: Any = None,
        weight: Any = None,
        extra: Mapping[str, Any] | None = None,
        part: str = "",
        first_row: int = 0,
    ) -> Rows:
        """Check a block and return its rows as numbers.

        Parameters
        ----------
        block : ndarray or pandas.DataFrame
        y, weight : ndarray or pandas.Series, optional
            Where they are no columns of the block.
        extra : mapping of str to the same, optional
            Likewise.
        part : str
            For messages, which count rows from ``first_row``.
        """
        with naming(part):
            n_rows = len(block)
            y = block[self.target_column] if self.target_column else y
            weight = block[self.weight_column] if self.weight_column else weight
            extra = {
                **(extra or {}),
                **{role: block[name] for role, name in self.extra_columns.items()},
            }
            if n_rows == 0:
                return self._no_rows(y, weight, extra)
            if self.non_inputs and not self.named:
                block = block.drop(columns=self.non_inputs)  # the inputs are matched by position
            columns = matching_columns(
                block, self.names, self.needed, self.named, self.model, self.kinds
            )
            if y is not None and self.labels is not None:
                y = codes_of(y, self.labels, n_rows, self.target, first_row)
            elif y is not None:
                y = target_of(y, n_rows, self.target, first_row)
                self.missing.require_known(f"the target {self.target!r}", y, first_row)
            if weight is not None:
                weight = some_weights(weight, n_rows, first_row)
            extra = {
                role: extra_of(values, n_rows, role, first_row) for role, values in extra.items()
            }
            return rows_of(columns, self.needed, y, weight, extra, self.missing, first_row)

    def _no_rows(self, y: Any, weight: Any, extra: Mapping[str, Any]) -> Rows:
        require_no_values({self.target: y, "sample_weight": weight, **extra})
        none = np.empty(0)
        return Rows(
            [none] * len(self.needed),
            None if y is None else none,
            None if weight is None else none,
            extra=dict.fromkeys(extra, none),
        )


def require_no_values(beside: Mapping[str, Any]) -> None:
    """Raise ``DataError`` naming values that were passed with a block without any row."""
    for name, values in beside.items():
        if values is not None and np.size(values) and np.ndim(values):
            raise DataError(f"X has no row but {name!r} has {np.size(values)}: pass one per row")


def _require_known(name: str, kind: Kind, values: Floats, first_row: int) -> None:
    """Raise ``DataError`` naming the first row without a level or date."""
    gaps = np.flatnonzero(np.isnan(values))
    if not gaps.size:
        return
    what = "date" if kind.is_date else "level"
    level_remedy = (
        ""
        if kind.is_date
        else f", or Levels({name!r}, missing='level') (--term '{name}: Levels(missing=level)'), an "
        "effect of their own"
    )
    raise DataError(
        f"input column {name!r} has no {what} in row {first_row + gaps[0]} (counted from 0) and in "
        f"{gaps.size} of {values.size} rows: drop those rows, fill them, or pass missing='ignore' "
        f"(--missing ignore; not for pursuit models), which gives them no effect{level_remedy}"
    )


def rows_of(
    columns: Columns,
    needed: Sequence[str],
    y: Floats | None,
    weight: Floats | None,
    extra: dict[str, Floats],
    missing: Missing,
    first_row: int,
) -> Rows:
    """Convert columns to numbers and check that they are finite, or missing where they may be."""
    inputs: list[Floats] = []

    def read(name: str) -> None:
        kind, values = columns.kind(name), columns.column(name)
        if kind.is_number:
            values = missing.blanked(values)
        if (getattr(kind, "missing", None) or missing.policy) == "error":
            if not kind.is_number:
                _require_known(name, kind, values, first_row)
            require_finite(f"input column {name!r}", values, first_row)
        elif np.isinf(values).any():
            gaps_filled = np.where(np.isnan(values), 0.0, values)
            require_finite(f"input column {name!r}", gaps_filled, first_row)
        inputs.append(values)

    each_checked(partial(read, name) for name in needed)
    return Rows(inputs, y, weight, columns.n_rows, extra)
