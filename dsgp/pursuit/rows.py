"""The rows of a pursuit: standardised, in memory or block by block, and what they sum to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
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

    def map(self, function: Callable[[Block], Result], seconds: float) -> Iterator[Result]:
        """Apply a function to all rows, block by block, in order.

        ``seconds`` is an estimate of its compiled work for all rows. Blocks do not depend on the
        number of threads or workers.
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

    def map(self, function: Callable[[Block], Result], seconds: float) -> Iterator[Result]:
        """Apply a function on threads."""
        n = len(self.block)
        size = max(-(-n // _PARTS), _FEWEST_ROWS)
        tasks = [
            partial(function, self.block.part(slice(start, min(start + size, n))))
            for start in range(0, n, size)
        ]
        return iter(run(tasks, seconds, in_place=True))


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
        out = np.empty((len(columns[0]) if columns else 0, len(self.varying)))
        for j, position in enumerate(self.varying):
            np.subtract(columns[position], self.centre[j], out=out[:, j])
            out[:, j] /= self.scale[j]
        return out

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
    """A function of standardised rows as one of raw rows; it travels to workers."""

    standard: Standard
    function: Callable[[Block], Any]
    seconds: float  # per row

    def __call__(self, rows: Rows) -> list[Any]:
        block = self.standard(rows)
        return list(MemoryRows(block).map(self.function, self.seconds * len(block)))


@dataclass(frozen=True)
class StreamedRows:
    """Rows that are read anew for every pass."""

    source: Source
    lengths: list[int]
    standard: Standard
    n_rows: int
    log_weight: float

    def map(self, function: Callable[[Block], Result], seconds: float) -> Iterator[Result]:
        """Read, standardise and apply, block by block, on workers where there are some."""
        recipe = _OfRows(self.standard, function, seconds / self.n_rows)
        for results in over_blocks(self.source.chunks(), self.lengths, STREAM_BLOCK, recipe):
            yield from results


# ---------------------------------------------------------------- sums over rows


@dataclass(frozen=True)
class Moments:
    """All that the linearised model needs of the rows.

    Attributes
    ----------
    matrix : ndarray of shape (P + 1, P + 1)
        Jᵀ W J with J of a row as in ``jit.ridge.fill_design``: nodes, directions, target.
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
    total = np.zeros((size, size), order="F")
    low, high = np.full(len(ridges), np.inf), np.full(len(ridges), -np.inf)
    for matrix, lowest, highest in rows.map(partial(_block_moments, ridges), work):
        total += matrix
        np.minimum(low, lowest, out=low)
        np.maximum(high, highest, out=high)
    upper = np.triu(total, 1)
    return Moments(np.diag(np.diag(total)) + upper + upper.T, low, high)


def ranges(rows: RowSet, ridges: Ridges) -> tuple[Floats, Floats]:
    """Range of each projection over all rows, each (M,)."""
    work = 1e-9 * rows.n_rows * ridges.directions.size
    low, high = np.full(len(ridges), np.inf), np.full(len(ridges), -np.inf)
    for lowest, highest in rows.map(partial(_block_ranges, ridges), work):
        np.minimum(low, lowest, out=low)
        np.maximum(high, highest, out=high)
    return low, high


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
        total = blas.dsyrk(1.0, out.T, beta=1.0, c=total, overwrite_c=1)
    return total, low, high
