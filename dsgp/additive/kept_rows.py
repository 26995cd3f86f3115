"""Codes of all rows, kept in memory, in a temporary zarr store or on workers, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.block_sums import UNWEIGHTED, BlockRecipe, BlockSums, CodedRows, codes_type
from dsgp.additive.disk_codes import DiskCodes
from dsgp.additive.tables import BINS
from dsgp.additive.worker_codes import WorkerCodes
from dsgp.rows.coding import TermCut
from dsgp.rows.sources import Rows, Source
from dsgp.rows.table import BLOCK
from dsgp.terms import Floats
from dsgp.worker_blocks import WorkerBlocks

# Bytes per row of the tables that a pass makes of a part of the rows. To send and add that many
# takes as long as to read a row.
_TABLE_BYTES = 32


class KeptCodes:
    """What is kept of the rows, block after block.

    Attributes
    ----------
    n : int
        Rows so far.
    block_ends : list of int
        Rows up to which each block goes.
    """

    def __init__(self) -> None:
        self.n = 0
        self.block_ends: list[int] = []

    def _count(self, n_rows: int) -> None:
        self.n += n_rows
        self.block_ends.append(self.n)

    def blocks_until(self, n_blocks: int) -> list[int]:
        """Return where parts of so many blocks, or fewer at the end, end among the blocks."""
        total = len(self.block_ends)
        return [*range(n_blocks, total, n_blocks), total]

    def ends(self, n_blocks: int) -> tuple[int, ...]:
        """Rows up to which these parts go."""
        return tuple(self.block_ends[until - 1] for until in self.blocks_until(n_blocks))


def blocks_of_a_part(cuts: Sequence[TermCut], block: int) -> int:
    """How many logical blocks of so many rows are summed together, whatever they are summed by.

    ``cuts`` are those of all terms. What a pass makes of a part are two-way tables of the cells, or
    of bins where cells are more than a learner's, or one-way tables of the cells.
    """
    cells = np.array([len(cut) for cut in cuts], dtype=float)
    sizes = np.minimum(cells, max(BINS.values()))
    n_bytes = max(4.0 * float(sizes.sum() ** 2 - np.sum(sizes**2)), 8.0 * float(cells.sum()))
    return max(1, -int(-n_bytes // (_TABLE_BYTES * block)))


class KeptRows(KeptCodes):
    """Codes of all rows, in memory or on disk, their weights and other numbers."""

    def __init__(
        self,
        cuts: list[TermCut],
        n_rows: int,
        weighted: bool,
        on_disk: bool,
        keep: tuple[str, ...],
    ) -> None:
        super().__init__()
        shape, kind = (len(cuts), n_rows), codes_type(cuts)
        self.codes: Any = DiskCodes.empty(shape, kind) if on_disk else np.empty(shape, dtype=kind)
        self.weight = np.empty(n_rows) if weighted else UNWEIGHTED
        self._numbers = {name: np.empty(n_rows) for name in keep}
        self._multipliers = {
            d: np.empty(n_rows) for d, cut in enumerate(cuts) if cut.term.multiplier is not None
        }

    def append(self, coded: CodedRows, n_rows: int) -> None:
        """Keep the rows of the next block."""
        rows = slice(self.n, self.n + n_rows)
        self.codes[:, rows] = coded.codes
        if len(self.weight):
            self.weight[rows] = coded.weight
        for name, values in coded.numbers.items():
            self._numbers[name][rows] = values
        for d, z in coded.multipliers.items():
            self._multipliers[d][rows] = z
        self._count(n_rows)

    def multipliers(self) -> dict[int, Floats]:
        """Return the multipliers of terms that have some, of all rows."""
        return {d: z[: self.n] for d, z in self._multipliers.items()}

    def numbers(self) -> dict[str, Floats]:
        """Return the numbers kept, of all rows."""
        return {name: values[: self.n] for name, values in self._numbers.items()}

    def finished(
        self, filled: list[NDArray[np.bool_]], weight_scale: float, n_blocks: int
    ) -> tuple[Any, Floats]:
        """Renumber the codes, so that empty bins are no points; blocks lie one after the other."""
        if not all(kept.all() for kept in filled):
            moves = _moves(filled, self.codes.dtype)
            for start in range(0, self.n, BLOCK):
                rows = slice(start, min(start + BLOCK, self.n))
                self.codes[:, rows] = _renumbered(moves, np.asarray(self.codes[:, rows]))
        weight = self.weight[: self.n] / weight_scale
        if isinstance(self.codes, DiskCodes):
            return self.codes.first(self.n), weight
        return self.codes[:, : self.n], weight


class KeptOnWorkers(KeptCodes):
    """Codes of all rows on the workers of a cluster; their weights and other numbers here."""

    def __init__(self, client: Any, cuts: list[TermCut], on_disk: bool) -> None:
        super().__init__()
        self._on_disk = on_disk
        self.dtype, self.n_terms = np.dtype(codes_type(cuts)), len(cuts)
        self.blocks = WorkerBlocks(client)
        self._pieces: list[CodedRows] = []

    def coded(
        self, source: Source, lengths: list[int], block: int, recipe: BlockRecipe
    ) -> Iterator[tuple[BlockSums, CodedRows, int]]:
        """Sum and code logical blocks of rows on the workers; yield them without their codes."""
        keeping = partial(_without_codes, recipe)
        return self.blocks.made(source.chunks(), lengths, block, keeping, "code")

    def append(self, coded: CodedRows, n_rows: int) -> None:
        """Keep the weights and numbers of the next block of so many rows."""
        self._pieces.append(coded)
        self._count(n_rows)

    def multipliers(self) -> dict[int, Floats]:
        """No term has any."""
        return {}

    def numbers(self) -> dict[str, Floats]:
        """Return the numbers kept, of all rows."""
        names = self._pieces[0].numbers
        return {name: np.concatenate([p.numbers[name] for p in self._pieces]) for name in names}

    def finished(
        self, filled: list[NDArray[np.bool_]], weight_scale: float, n_blocks: int
    ) -> tuple[WorkerCodes, Floats]:
        """Join so many blocks to a part, and renumber the codes: empty bins are no points."""
        moves = _moves(filled, self.dtype)
        blocks = self.blocks.joined(self.blocks_until(n_blocks), partial(_joined, moves), "recode")
        weight = np.concatenate([piece.weight for piece in self._pieces]) / weight_scale
        ends = self.ends(n_blocks)
        codes = WorkerCodes(blocks, ends, self.n_terms, self.dtype, on_disk=self._on_disk)
        return codes, weight


def _without_codes(recipe: BlockRecipe, rows: Rows) -> tuple[Any, NDArray[Any]]:
    sums, coded, n_read = recipe(rows)
    return (sums, replace(coded, codes=coded.codes[:, :0].copy()), n_read), coded.codes


def _moves(filled: list[NDArray[np.bool_]], kind: Any) -> list[NDArray[Any] | None]:
    """New numbers of the bins of every term; None where they keep theirs."""
    moves: list[NDArray[Any] | None] = []
    for kept in filled:
        # Missing inputs and empty bins use the last entry.
        move = np.full(len(kept) + 1, np.iinfo(kind).max, dtype=kind)
        move[:-1][kept] = np.arange(kept.sum())
        moves.append(None if kept.all() else move)
    return moves


def _renumbered(moves: list[NDArray[Any] | None], codes: NDArray[Any]) -> NDArray[Any]:
    for d, renumbered in enumerate(moves):
        if renumbered is not None:
            codes[d] = renumbered[np.minimum(codes[d], len(renumbered) - 1)]
    return codes


def _joined(moves: list[NDArray[Any] | None], *blocks: NDArray[Any]) -> NDArray[Any]:
    return _renumbered(moves, np.concatenate(blocks, axis=1))
