"""The second pass over rows that stream: codes, and sums from which models are learned.

It sums logical blocks of rows, in order, so that the results do not depend on how rows come. The
first pass, which finds the bins, is in `dsgp.additive.survey`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.block_sums import BlockRecipe, BlockSums
from dsgp.additive.equations import BinEquations, Equations, RowEquations
from dsgp.additive.kept_rows import KeptOnWorkers, KeptRows, blocks_of_a_part
from dsgp.additive.tables import TwoWayTables
from dsgp.compute import over_blocks
from dsgp.rows.coding import TermCut
from dsgp.rows.encode import Cells
from dsgp.rows.sources import Source
from dsgp.rows.table import Layout, RowTable
from dsgp.terms import Cells as TermCells
from dsgp.terms import Floats

# Rows of a logical block. Longer blocks take more memory, shorter ones more additions.
LOGICAL_BLOCK = 2**19
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Statistics:
    """What the second pass gives.

    Attributes
    ----------
    equations : Equations
        Of (y − offset) / scale, with weights divided by their mean.
    spreads : list of ndarray of shape (n_bins,)
        Weighted variance of the inputs in each bin.
    offset, scale : float
    weight_scale : float
        Mean weight of the rows of positive weight.
    numbers : dict of str to ndarray of shape (n_rows,)
        Of the rows of positive weight, as far as they were to be kept.
    places : list of ndarray of int, one per term
        Which cells of its cut have rows, in the order of the equations' cells.
    cell_sums : list of lists of CellSums, one per term
        Of (y − pilot location) / pilot scale. A function that is multiplied has two: of what rows
        have in common whatever their multipliers, and of what grows with these.
    """

    equations: Equations
    spreads: list[Floats]
    offset: float
    scale: float
    weight_scale: float
    numbers: dict[str, Floats]
    places: list[NDArray[np.int64]]
    cell_sums: list[list[CellSums]]


@dataclass(frozen=True)
class CellSums:
    """Sums over equal parts of the bins of one column.

    Attributes
    ----------
    weights, information : ndarray of shape (n_bins, n_cells)
        Σ w z² and Σ w z y: z is 1, or the multiplier less its mean in the bin.
    squares : ndarray of shape (n_bins,)
        Σ w y².
    n_rows : ndarray of shape (n_bins,)
        Rows of positive weight; one less where the mean of the targets is subtracted, too.
    """

    weights: Floats
    information: Floats
    squares: Floats
    n_rows: Floats

    @classmethod
    def of(cls, sums: Floats, squares: Floats, n_rows: Floats) -> list[CellSums]:
        """Make them of what ``BlockSums`` has of a term."""
        if len(sums) == 2:
            return [cls(sums[0], sums[1], squares, n_rows)]
        weights, first, second, information, product = sums
        total = np.maximum(weights.sum(axis=1), np.finfo(float).tiny)
        mean, level = first.sum(axis=1) / total, information.sum(axis=1) / total
        z, y = mean[:, None], level[:, None]
        centred = second - 2 * z * first + z**2 * weights
        # Multipliers that are equal up to rounding are not informative about the function.
        centred = np.where(centred > _ROUNDING * second, centred, 0.0)
        score = product - z * information - y * first + z * y * weights
        return [
            cls(weights, information, squares, n_rows),
            cls(centred, score, squares - level**2 * total, n_rows - 1),
        ]


def n_parts(n_rows: int, cuts: list[TermCut]) -> int:
    """How many parts so many rows are summed in, where codes of all rows are kept."""
    return -(-n_rows // (LOGICAL_BLOCK * blocks_of_a_part(cuts, LOGICAL_BLOCK)))


def statistics(
    source: Source,
    lengths: list[int],
    cuts: list[TermCut],
    inputs: list[slice],
    pilot: tuple[float, float],
    *,
    with_pairs: bool,
    cells: list[Cells] | None = None,
    codes_on_disk: bool = False,
    workers: Any | None = None,
    keep: tuple[str, ...] = (),
    spare: list[int] | None = None,
    watch: Callable[[int], None] = lambda rows: None,
) -> Statistics:
    """Read all rows again and sum them by bins.

    Parameters
    ----------
    source : Source
    lengths : list of int
        Rows of each chunk.
    cuts : list of TermCut, one per term
    inputs : list of slice
        Where the inputs of each term are among the source's columns.
    pilot : (location, scale)
        Roughly those of the target: sums are taken around them.
    with_pairs : bool
        Make two-way tables of the bins, and keep no row; otherwise keep the codes of all rows,
        which passes sum in parts (``RowTable.ends``), wherever they are.
    cells : list of Cells, optional
        Of the same terms, if targets are to be summed by parts of the bins too.
    codes_on_disk : bool
        Keep them in a temporary zarr store instead of in memory.
    workers : distributed.Client, optional
        Of the workers that keep them. No term may have multipliers.
    keep : tuple of str
        What else to keep of every row beside its codes: "y", or names of the source's extra
        numbers.
    spare : list of int, one per term, optional
        A cell of its cut that a term keeps where no row is in any, as all of its inputs are
        missing; without, that is an error.
    watch : callable
        Called with the number of rows read so far.
    """
    cells = [Cells.none()] * len(cuts) if cells is None else cells
    recipe = BlockRecipe(cuts, cells, inputs, *pilot, with_pairs, not with_pairs, keep)
    total = BlockSums.zeros(cuts, cells, with_pairs)
    kept: KeptRows | KeptOnWorkers | None = None
    if workers is not None:
        kept = KeptOnWorkers(workers, cuts, codes_on_disk)
        results = kept.coded(source, lengths, LOGICAL_BLOCK, recipe)
    else:
        if not with_pairs:
            kept = KeptRows(cuts, sum(lengths), source.weighted, codes_on_disk, keep)
        name = "sums" if with_pairs else "code"
        results = over_blocks(source.chunks(), lengths, LOGICAL_BLOCK, recipe, name)
    n_read = 0
    watch(n_read)
    for sums, coded, n in results:
        total.add(sums)
        if kept is not None:
            kept.append(coded, int(sums.total[3]))
        n_read += n
        watch(n_read)
    return _statistics(total, kept, cuts, pilot, source.weighted, spare)


def _statistics(
    total: BlockSums,
    kept: KeptRows | KeptOnWorkers | None,
    cuts: list[TermCut],
    pilot: tuple[float, float],
    weighted: bool,
    spare: list[int] | None,
) -> Statistics:
    """Centre and scale the sums of all rows, by the bins that have rows."""
    weight_sum, weighted_y, quadratic, n_rows, log_weight = (float(x) for x in total.total)
    weight_scale = weight_sum / n_rows
    # Empty bins are not points of the axis: the following bins move up.
    filled = [weights > 0 for weights in total.weights]
    if spare is not None:
        for with_rows, place in zip(filled, spare, strict=True):
            with_rows[place] |= not with_rows.any()
    cells, spreads = _points_and_spreads(total, filled, cuts)
    location, scale = pilot
    mean = weighted_y / weight_sum
    variance = max(quadratic / weight_sum - mean**2, 0.0)
    std = float(np.sqrt(variance)) or 1.0
    weights = [w[f] / weight_scale for w, f in zip(total.weights, filled, strict=True)]
    ones = [
        multiplied[f] / weight_scale if len(multiplied) else w
        for multiplied, f, w in zip(total.multiplied, filled, weights, strict=True)
    ]
    information = [
        (b[f] / weight_scale - mean * w) / std
        for b, f, w in zip(total.information, filled, ones, strict=True)
    ]
    is_multiplied = any(map(len, total.multiplied))
    names = tuple(cut.term.name for cut in cuts)
    layout = Layout(names, tuple(cells))
    shared: dict[str, Any] = {
        "weight": np.concatenate(weights) if weights else np.zeros(0),
        "information": np.concatenate(information) if weights else np.zeros(0),
        "quadratic": variance / std**2 * n_rows,
        "n_rows": int(n_rows),
        "log_weight": log_weight - n_rows * float(np.log(weight_scale)) if weighted else 0.0,
        "total_weight": n_rows,  # weights are divided by their mean, and targets are centred
        "total_information": 0.0,
        "multiplied": np.concatenate(ones) if is_multiplied else None,
    }
    equations: Equations
    if kept is None:
        pairs = {
            (d, e): pair[np.ix_(filled[d], filled[e])] / weight_scale
            for (d, e), pair in total.pairs.items()
        }
        tables = TwoWayTables(
            cells, weights, information, pairs, spreads, ones if is_multiplied else None
        )
        equations = BinEquations(layout=layout, bins=tables, **shared)
    else:
        n_blocks = blocks_of_a_part(cuts, LOGICAL_BLOCK)
        codes, row_weight = kept.finished(filled, weight_scale, n_blocks)
        ends = kept.ends(n_blocks)
        table = RowTable(names, tuple(cells), codes, kept.multipliers(), ends)
        equations = RowEquations(layout=table, table=table, row_weight=row_weight, **shared)
    numbers = {} if kept is None else kept.numbers()
    cell_sums = [
        CellSums.of(*sums)
        for sums in zip(total.cell_sums, total.cell_squares, total.cell_rows, strict=True)
    ]
    return Statistics(
        equations,
        spreads,
        location + scale * mean,
        scale * std,
        weight_scale,
        numbers,
        [np.flatnonzero(bins_with_rows) for bins_with_rows in filled],
        cell_sums,
    )


def _points_and_spreads(
    total: BlockSums, filled: list[NDArray[np.bool_]], cuts: list[TermCut]
) -> tuple[list[TermCells], list[Floats]]:
    """Cells of every term at the means of its bins, and the variances of the inputs there."""
    cells, spreads = [], []
    for d, cut in enumerate(cuts):
        in_bins = np.maximum(total.weights[d][filled[d]], np.finfo(float).tiny)
        shift = total.shifts[d][filled[d]] / in_bins
        points = cut.origin[filled[d]] + (0.0 if cut.exact else shift)
        cells.append(cut.cells(filled[d], cut.ordered(filled[d], points)))
        squares = total.squares[d][filled[d]] / in_bins
        spreads.append(np.maximum(squares - shift**2, 0.0) if not cut.exact else 0 * shift)
    return cells, spreads
