"""The rows of a pursuit: standardised, in memory or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import numpy as np

from dsgp.compute import over_blocks, run
from dsgp.rows.response import TRIALS, shift_of
from dsgp.rows.sources import Rows, Source
from dsgp.terms import Floats
from dsgp.worker_blocks import WorkerBlocks, workers_that_keep

# Number of parts in which rows in memory are summed, whatever the number of threads.
_PARTS = 8
# Number of matrices of the linearised model that exist at a time: one per part, and those of the
# step.
MATRICES = _PARTS + 8
_FEWEST_ROWS = 2048  # per part
STREAM_BLOCK = 2**17  # rows per logical block

Result = TypeVar("Result")
NO_WEIGHT = np.empty(0)


@dataclass(frozen=True)
class Block:
    """Some rows.

    Attributes
    ----------
    inputs : ndarray of shape (n, D)
        In standard units.
    target : ndarray of shape (n,)
        In standard units too, but unchanged if it has a likelihood (``Response``).
    root_weight : ndarray of shape (n,), or of length 0 for ones
    offset : ndarray of shape (n,), or of length 0 without a likelihood
        Added to the functions, in their units.
    trials : ndarray of shape (n,), or of length 0 for ones
        Of a binomial target.
    """

    inputs: Floats
    target: Floats
    root_weight: Floats = field(default_factory=lambda: NO_WEIGHT)
    offset: Floats = field(default_factory=lambda: NO_WEIGHT)
    trials: Floats = field(default_factory=lambda: NO_WEIGHT)

    def __len__(self) -> int:
        return len(self.target)

    def __sizeof__(self) -> int:
        """Size in bytes, with the arrays: dask uses it for the memory of a worker."""
        return sum(getattr(self, each.name).nbytes for each in fields(self))

    def part(self, rows: slice | np.ndarray) -> Block:
        """Return some of the rows, as views where they are a slice."""
        others = (self.root_weight, self.offset, self.trials)
        return Block(
            self.inputs[rows],
            self.target[rows],
            *(values[rows] if len(values) else NO_WEIGHT for values in others),
        )

    @property
    def weight(self) -> Floats:
        """Weights, (n,)."""
        return self.root_weight**2 if len(self.root_weight) else np.ones(len(self))


class RowSet(Protocol):
    """All rows that a step uses."""

    @property
    def n_rows(self) -> int:
        """Rows of positive weight."""

    @property
    def log_weight(self) -> float:
        """Σ log w over them."""

    def total(
        self,
        function: Callable[[Block], Result],
        add: Callable[[Result, Result], Result],
        seconds: float,
    ) -> Result:
        """Apply a function to all rows, block by block, and add its results up, in order.

        ``add`` may overwrite its first argument. ``seconds`` is an estimate of the function's
        compiled work for all rows. Blocks, and the order of the sums, do not depend on the number
        of threads or workers.
        """


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory."""

    block: Block

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.block)

    @property
    def log_weight(self) -> float:
        """Σ log w."""
        return 2 * float(np.sum(np.log(self.block.root_weight)))

    def total(
        self,
        function: Callable[[Block], Result],
        add: Callable[[Result, Result], Result],
        seconds: float,
    ) -> Result:
        """Apply a function on threads, and add its results up."""
        n = len(self.block)
        size = max(-(-n // _PARTS), _FEWEST_ROWS)
        tasks = [
            partial(function, self.block.part(slice(start, min(start + size, n))))
            for start in range(0, max(n, 1), size)
        ]
        return reduce(add, run(tasks, seconds, in_place=True))


def standardised(columns: list[Floats], centre: Floats, scale: Floats) -> Floats:
    """Convert columns to standard units, (n, D)."""
    out = np.empty((len(columns[0]), len(columns)))
    for j, column in enumerate(columns):
        np.subtract(column, centre[j], out=out[:, j])
        out[:, j] /= scale[j]
    return out


@dataclass(frozen=True)
class Standard:
    """The standardisation of raw columns and the target; it travels to workers.

    Attributes
    ----------
    varying : list of int
        Positions of the columns that vary among those of a source.
    centre, scale : ndarray of shape (D,)
        Of these columns.
    offset, spread : float
        Of the target.
    weight_scale : float
        Mean weight.
    """

    varying: list[int]
    centre: Floats
    scale: Floats
    offset: float
    spread: float
    weight_scale: float

    def inputs(self, columns: list[Floats]) -> Floats:
        """Standardise raw columns, (n, D)."""
        if not self.varying:
            return np.empty((len(columns[0]) if columns else 0, 0))
        return standardised([columns[j] for j in self.varying], self.centre, self.scale)

    def __call__(self, rows: Rows) -> Block:
        """Standardise rows, those of weight 0 left out."""
        assert rows.y is not None
        block = Block(
            self.inputs(rows.columns),
            (rows.y - self.offset) / self.spread,
            NO_WEIGHT if rows.weight is None else np.sqrt(rows.weight / self.weight_scale),
        )
        if rows.weight is None or (rows.weight > 0).all():
            return block
        kept = rows.weight > 0
        return block.part(kept)


class View(Protocol):
    """Another target and other weights of the same rows; it travels to workers."""

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows with these; weights of 0 stay 0, and others stay positive."""


@dataclass(frozen=True)
class ResponseStandard(Standard):
    """The same for a target with a likelihood: target and weights are not changed.

    ``offset`` is then the constant part of f, and ``spread`` the unit of the functions.

    Attributes
    ----------
    view : callable, optional
        Applied to the rows first.
    """

    view: View | None = None

    def __call__(self, rows: Rows) -> Block:
        """Standardise rows, those of weight 0 left out."""
        rows = rows if self.view is None else self.view(rows)
        assert rows.y is not None
        block = Block(
            self.inputs(rows.columns),
            rows.y,
            NO_WEIGHT if rows.weight is None else np.sqrt(rows.weight),
            (self.offset + np.zeros(len(rows)) + shift_of(rows.extra)) / self.spread,
            rows.extra.get(TRIALS, NO_WEIGHT),
        )
        if rows.weight is None or (rows.weight > 0).all():
            return block
        return block.part(rows.weight > 0)


@dataclass(frozen=True)
class _OfBlock:
    """The total over a block; it travels to workers, and only its result comes back."""

    function: Callable[[Block], Any]
    add: Callable[[Any, Any], Any]
    seconds: float  # per row

    def __call__(self, block: Block) -> Any:
        return MemoryRows(block).total(self.function, self.add, self.seconds * len(block))


def _of_rows(standard: Standard, total: _OfBlock, rows: Rows) -> Any:
    return total(standard(rows))


def _with_block(standard: Standard, total: _OfBlock, rows: Rows) -> tuple[Any, Block]:
    block = standard(rows)
    return total(block), block


@dataclass(frozen=True)
class StreamedRows:
    """Rows that are read again for every pass, or stay on workers that have the memory for them."""

    source: Source
    lengths: list[int]
    standard: Standard
    n_rows: int
    log_weight: float
    # Kept by the workers of the client that the first pass used, standardised.
    _kept: list[WorkerBlocks] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> Any:
        """Pickle without the blocks that workers keep, which belong to the caller."""
        return StreamedRows, (
            self.source,
            self.lengths,
            self.standard,
            self.n_rows,
            self.log_weight,
        )

    def total(
        self,
        function: Callable[[Block], Result],
        add: Callable[[Result, Result], Result],
        seconds: float,
    ) -> Result:
        """Read, standardise and add up, block by block, on workers where there are some."""
        total = _OfBlock(function, add, seconds / self.n_rows)
        return reduce(add, self._by_block(total))

    def _by_block(self, total: _OfBlock) -> Iterator[Any]:
        if self._kept and self._kept[0].is_usable:
            return self._kept[0].each(total, name="pursuit")
        numbers = len(self.standard.varying) + len(fields(Block)) - 1
        client = workers_that_keep(8.0 * sum(self.lengths) * numbers)
        if client is None:
            recipe = partial(_of_rows, self.standard, total)
            chunks = self.source.chunks()
            return over_blocks(chunks, self.lengths, STREAM_BLOCK, recipe, "pursuit")
        return self._made(client, total)

    def _made(self, client: Any, total: _OfBlock) -> Iterator[Any]:
        blocks = WorkerBlocks(client)
        recipe = partial(_with_block, self.standard, total)
        chunks = self.source.chunks()
        yield from blocks.made(chunks, self.lengths, STREAM_BLOCK, recipe, "pursuit")
        self._kept[:] = [blocks]
