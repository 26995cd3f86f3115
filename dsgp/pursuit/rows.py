"""The rows of a pursuit: standardised, in memory or block by block, and what they sum to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy.linalg import blas

from dsgp.axis import Floats
from dsgp.compute import over_blocks, run
from dsgp.jit.ridge import fill_design, projection_range
from dsgp.pursuit.ridges import Ridges
from dsgp.rows.sources import Rows, Source

# Rows of one matrix product: the design of so many stays in the cache of a core.
_PRODUCT_ROWS = 1024
# Rows in memory are summed in so many parts, whatever the number of threads.
_PARTS = 8
# Matrices of the linearised model that exist at a time: one of each part, and those of the step.
MATRICES = _PARTS + 8
_FEWEST_ROWS = 2048  # of a part
STREAM_BLOCK = 2**17  # rows of a logical block
_FLOP = 4e-11  # seconds of one multiplication and addition within a matrix product
_FILL = 3e-9  # seconds of one entry of the design

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
    root_weight : ndarray of shape (n,), or of length 0 for ones
    """

    inputs: Floats
    target: Floats
    root_weight: Floats = field(default_factory=lambda: NO_WEIGHT)

    def __len__(self) -> int:
        return len(self.target)

    def part(self, rows: slice) -> Block:
        """Return some of the rows, as views."""
        root = self.root_weight[rows] if len(self.root_weight) else NO_WEIGHT
        return Block(self.inputs[rows], self.target[rows], root)

    @property
    def weight(self) -> Floats:
        """Weights, (n,)."""
        return self.root_weight**2 if len(self.root_weight) else np.ones(len(self))


class RowSet(Protocol):
    """All rows that a step looks at."""

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

        ``add`` may use up its first argument. ``seconds`` is an estimate of the function's compiled
        work for all rows. Blocks, and the order of the sums, do not depend on the number of threads
        or workers.
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
    """Bring columns to standard units, (n, D)."""
    out = np.empty((len(columns[0]), len(columns)))
    for j, column in enumerate(columns):
        np.subtract(column, centre[j], out=out[:, j])
        out[:, j] /= scale[j]
    return out


@dataclass(frozen=True)
class Standard:
    """How raw columns and the target become standard ones; it travels to workers.

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
        return Block(block.inputs[kept], block.target[kept], block.root_weight[kept])


@dataclass(frozen=True)
class _OfRows:
    """The total over some raw rows; it travels to workers, and only its result comes back."""

    standard: Standard
    function: Callable[[Block], Any]
    add: Callable[[Any, Any], Any]
    seconds: float  # per row

    def __call__(self, rows: Rows) -> Any:
        block = self.standard(rows)
        return MemoryRows(block).total(self.function, self.add, self.seconds * len(block))


@dataclass(frozen=True)
class StreamedRows:
    """Rows that are read anew for every pass."""

    source: Source
    lengths: list[int]
    standard: Standard
    n_rows: int
    log_weight: float

    def total(
        self,
        function: Callable[[Block], Result],
        add: Callable[[Result, Result], Result],
        seconds: float,
    ) -> Result:
        """Read, standardise and add up, block by block, on workers where there are some."""
        recipe = _OfRows(self.standard, function, add, seconds / self.n_rows)
        return reduce(add, over_blocks(self.source.chunks(), self.lengths, STREAM_BLOCK, recipe))


# ---------------------------------------------------------------- sums over rows


@dataclass(frozen=True)
class Moments:
    """All that the linearised model needs of the rows.

    Attributes
    ----------
    matrix : ndarray of shape (P + 1, P + 1)
        Jᵀ W J with J of a row as in ``jit.ridge.fill_design``: nodes, directions, and the residual
        in place of the target. Functions may be far larger than their sum: squares of residuals
        that are taken from those of the target would lose all their digits.
    low, high : ndarray of shape (M,)
        Range of each projection.
    """

    matrix: Floats
    low: Floats
    high: Floats


def moments(rows: RowSet, ridges: Ridges) -> Moments:
    """Sum the linearised model over all rows: O(N P²) in matrix products, one pass."""
    size = ridges.n_parameters + 1
    work = rows.n_rows * size * (_FILL + size * _FLOP)
    total, low, high = rows.total(partial(_block_moments, ridges), _add_moments, work)
    upper = np.triu(total, 1)
    return Moments(np.diag(np.diag(total)) + upper + upper.T, low, high)


def _add_moments(
    total: tuple[Floats, Floats, Floats], more: tuple[Floats, Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    total[0][:] += more[0]
    return total[0], np.minimum(total[1], more[1]), np.maximum(total[2], more[2])


def ranges(rows: RowSet, ridges: Ridges) -> tuple[Floats, Floats]:
    """Range of each projection over all rows, each (M,)."""
    work = 1e-9 * rows.n_rows * ridges.directions.size
    return rows.total(partial(_block_ranges, ridges), _add_ranges, work)


def _add_ranges(total: tuple[Floats, Floats], more: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return np.minimum(total[0], more[0]), np.maximum(total[1], more[1])


def _block_ranges(ridges: Ridges, block: Block) -> tuple[Floats, Floats]:
    low, high = np.full(len(ridges), np.inf), np.full(len(ridges), -np.inf)
    projection_range(block.inputs, ridges.directions, low, high)
    return low, high


def _block_moments(ridges: Ridges, block: Block) -> tuple[Floats, Floats, Floats]:
    size = ridges.n_parameters + 1
    total = np.zeros((size, size), order="F")
    low, high = _block_ranges(ridges, block)
    flat, starts = ridges.cardinal
    design = np.empty((min(_PRODUCT_ROWS, len(block)), size))
    for start in range(0, len(block), _PRODUCT_ROWS):
        part = block.part(slice(start, start + _PRODUCT_ROWS))
        out = design[: len(part)]
        fill_design(
            part.inputs,
            part.target,
            part.root_weight,
            ridges.directions,
            ridges.nodes,
            ridges.starts,
            flat,
            starts,
            ridges.functions,
            out,
        )
        out[:, -1] -= out[:, : ridges.n_nodes] @ ridges.values
        total = blas.dsyrk(1.0, out.T, beta=1.0, c=total, overwrite_c=1)
    return total, low, high
