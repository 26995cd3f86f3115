"""Passes over rows that stream: one for the bins of every column, one for codes and statistics.

The first pass sketches every column; sketches merge in any order, so bins do not depend on how the
rows come. The second sums logical blocks of rows, in order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dsgp.additive.equations import BinEquations, Equations, RowEquations
from dsgp.additive.tables import TwoWayTables, pairs_of
from dsgp.compute import over_blocks, over_chunks, run
from dsgp.errors import DataError
from dsgp.jit.sketch import count_pairs, sum_bins, sum_cells, sum_multiplied_cells
from dsgp.rows.coded import Extremes
from dsgp.rows.coding import TermCut, code_type, multiplier_of
from dsgp.rows.encode import Cells, Sketch
from dsgp.rows.sources import Rows, Source
from dsgp.rows.table import BLOCK, Layout, RowTable
from dsgp.terms import Floats

# Rows of a logical block. Longer ones would take more memory, shorter ones more additions.
LOGICAL_BLOCK = 2**19
# Seconds of compiled work a row.
_ENCODE = 1.5e-8
_COUNT = 2e-9
_UNWEIGHTED = np.empty(0)
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Survey:
    """What the first pass tells of the rows of positive weight.

    Attributes
    ----------
    sketches : list of Sketch
        Of every column.
    target : Sketch
    lengths : list of int
        Rows of every chunk.
    levels : dict of int to ndarray
        Distinct values of those columns of which all are wanted, increasing.
    n_missing : ndarray of int, shape (n_columns,)
        Rows in which each column is missing.
    extremes : list of Extremes
        Of every column, and of the target.
    """

    sketches: list[Sketch]
    levels: dict[int, Floats]
    target: Sketch
    lengths: list[int]
    n_missing: NDArray[np.int64]
    extremes: list[Extremes]

    @property
    def n_rows(self) -> int:
        """All rows, those without weight too."""
        return sum(self.lengths)

    def merge(self, other: Survey) -> Survey:
        """Put two parts together."""
        return Survey(
            [a.merge(b) for a, b in zip(self.sketches, other.sketches, strict=True)],
            {j: np.union1d(own, other.levels[j]) for j, own in self.levels.items()},
            self.target.merge(other.target),
            self.lengths + other.lengths,
            self.n_missing + other.n_missing,
            [a.merge(b) for a, b in zip(self.extremes, other.extremes, strict=True)],
        )


def survey(
    source: Source,
    watch: Callable[[int], None] = lambda rows: None,
    levels: Sequence[int] = (),
) -> Survey:
    """Read all rows once.

    Parameters
    ----------
    source : Source
    levels : sequence of int
        Positions of columns of which all distinct values are wanted.
    watch : callable
        Told the number of rows read so far.

    Raises
    ------
    DataError
        If there is no row of positive weight, or as the source says.
    """
    watch(0)
    found: Survey | None = None
    for part in over_chunks(source.chunks(), partial(_survey, tuple(levels))):
        found = part if found is None else found.merge(part)
        watch(found.n_rows)
    if found is None or found.n_rows == 0:
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    if not len(found.target.values):
        raise DataError("sample_weight is zero in every row; at least one row must count")
    return found


def _survey(levels: tuple[int, ...], rows: Rows) -> Survey:
    assert rows.y is not None
    kept = of_positive_weight(rows)
    missing = np.array([np.count_nonzero(np.isnan(column)) for column in kept.columns])
    assert kept.y is not None
    return Survey(
        [Sketch.of(column) for column in kept.columns],
        {j: np.unique(kept.columns[j][~np.isnan(kept.columns[j])]) for j in levels},
        Sketch.of(kept.y),
        [len(rows)],
        missing,
        [Extremes().add(values) for values in (*kept.columns, kept.y)],
    )


def of_positive_weight(rows: Rows) -> Rows:
    """Return the rows that count."""
    if rows.weight is None or (rows.weight > 0).all():
        return rows
    kept = rows.weight > 0
    assert rows.y is not None
    return replace(
        rows,
        columns=[column[kept] for column in rows.columns],
        y=rows.y[kept],
        weight=rows.weight[kept],
        n_rows=int(kept.sum()),
        extra={name: values[kept] for name, values in rows.extra.items()},
    )


@dataclass
class BlockSums:
    """Sums over some rows, by bins of the columns that vary.

    Attributes
    ----------
    weights, information, shifts, squares : list of ndarray of shape (n_bins,)
        Σ w, Σ w y, Σ w (x − origin), Σ w (x − origin)².
    cell_sums : list of ndarray of shape (2 or 5, n_bins, n_cells)
        Σ w, Σ w y by equal parts of the bins; of terms with multipliers z Σ w, Σ w z, Σ w z²,
        Σ w y, Σ w z y. Without cells where there are none.
    cell_squares, cell_rows : list of ndarray of shape (n_bins,)
        Σ w y², and rows of positive weight, where there are cells.
    pairs : dict of (int, int) to ndarray
        Empty where there are too many bins for tables.
    multiplied : list of ndarray of shape (n_bins,)
        Σ w z, of terms with multipliers z; their other sums are of w z² and y / z.
    total : ndarray of shape (5,)
        Σ w, Σ w y, Σ w y², rows of positive weight and Σ log w.
    """

    weights: list[Floats]
    information: list[Floats]
    shifts: list[Floats]
    squares: list[Floats]
    cell_sums: list[Floats]
    cell_squares: list[Floats]
    cell_rows: list[Floats]
    pairs: dict[tuple[int, int], Floats]
    multiplied: list[Floats]
    total: Floats = field(default_factory=lambda: np.zeros(5))

    @classmethod
    def zeros(cls, bins: list[TermCut], cells: list[Cells], with_pairs: bool) -> BlockSums:
        """Start with nothing."""

        def per_bin() -> list[Floats]:
            return [np.zeros(len(cut)) for cut in bins]

        keys = pairs_of(len(bins)) if with_pairs else []
        pairs = {(d, e): np.zeros((len(bins[d]), len(bins[e]))) for d, e in keys}
        multiplied = [
            np.zeros(len(cut)) if cut.term.multiplier is not None else np.zeros(0) for cut in bins
        ]
        return cls(
            per_bin(),
            per_bin(),
            per_bin(),
            per_bin(),
            [
                np.zeros((2 if cut.term.multiplier is None else 5, len(cut), part.n_cells))
                for cut, part in zip(bins, cells, strict=True)
            ],
            per_bin(),
            per_bin(),
            pairs,
            multiplied,
        )

    def add(self, other: BlockSums) -> None:
        """Add the sums over the rows that come next."""
        for mine, theirs in zip(self._arrays(), other._arrays(), strict=True):
            mine += theirs

    def _arrays(self) -> list[Floats]:
        by_term = (
            self.weights,
            self.information,
            self.shifts,
            self.squares,
            self.cell_sums,
            self.cell_squares,
            self.cell_rows,
            self.multiplied,
        )
        return [*(a for arrays in by_term for a in arrays), *self.pairs.values(), self.total]


@dataclass(frozen=True)
class _Coded:
    """Codes (n_terms, n) of some rows, their weights or nothing, and other numbers by row."""

    codes: NDArray[np.unsignedinteger[Any]]
    weight: Floats
    numbers: dict[str, Floats]
    multipliers: dict[int, Floats]


@dataclass(frozen=True)
class _Recipe:
    """How blocks are summed; it travels to workers."""

    cuts: list[TermCut]
    cells: list[Cells]
    inputs: list[slice]
    location: float
    scale: float
    with_pairs: bool
    with_codes: bool
    keep: tuple[str, ...]

    def __call__(self, rows: Rows) -> tuple[BlockSums, _Coded, int]:
        """Return the sums, the coded rows, and the number of rows read."""
        n_read = len(rows)
        rows = of_positive_weight(rows)
        assert rows.y is not None
        y = (rows.y - self.location) / self.scale
        weight = _UNWEIGHTED if rows.weight is None else rows.weight
        sums = BlockSums.zeros(self.cuts, self.cells, self.with_pairs)
        kind = codes_type(self.cuts)
        codes = np.empty((len(self.cuts), len(rows)), dtype=kind)
        inputs = [rows.columns[part] for part in self.inputs]
        multipliers = {
            d: z
            for d, (cut, own) in enumerate(zip(self.cuts, inputs, strict=True))
            if (z := multiplier_of(cut.term, own)) is not None
        }
        tasks = [
            partial(self._term, d, own, multipliers.get(d), y, weight, codes, sums)
            for d, own in enumerate(inputs)
        ]
        run(tasks, _ENCODE * codes.size, in_place=True)
        counts = [
            partial(
                count_pairs,
                codes[d],
                codes[e],
                _times(weight, multipliers.get(d), multipliers.get(e)),
                table,
            )
            for (d, e), table in sums.pairs.items()
        ]
        run(counts, _COUNT * len(y) * len(counts), in_place=True)
        weighed = y if rows.weight is None else weight * y
        sums.total[:] = (
            len(y) if rows.weight is None else np.sum(weight),
            np.sum(weighed),
            np.sum(weighed * y),
            len(y),
            np.sum(np.log(weight)),
        )
        if not self.with_codes:
            return sums, _Coded(codes[:, :0], _UNWEIGHTED, {}, {}), n_read
        kept = {name: rows.y if name == "y" else rows.extra[name] for name in self.keep}
        return sums, _Coded(codes, weight, kept, multipliers), n_read

    def _term(
        self,
        d: int,
        inputs: list[Floats],
        multiplier: Floats | None,
        y: Floats,
        weight: Floats,
        codes: NDArray[np.unsignedinteger[Any]],
        sums: BlockSums,
    ) -> None:
        cut = self.cuts[d]
        codes[d], value = cut.coded(inputs, codes.dtype.type)
        if self.cells[d].n_cells:
            self._cells(d, codes[d], value, multiplier, y, weight, sums)
        if multiplier is not None:
            # With weights w z² and targets y / z the sums are those of w z².
            seen = codes[d] < len(cut)
            sums.multiplied[d] += np.bincount(
                codes[d][seen], _times(weight, multiplier)[seen], len(cut)
            )
            weight = _times(weight, multiplier, multiplier)
            y = np.divide(y, multiplier, out=np.zeros_like(y), where=multiplier != 0)
        sum_bins(
            codes[d],
            value,
            cut.origin,
            y,
            weight,
            sums.weights[d],
            sums.information[d],
            sums.shifts[d],
            sums.squares[d],
        )

    def _cells(
        self,
        d: int,
        codes: NDArray[np.unsignedinteger[Any]],
        value: Floats,
        multiplier: Floats | None,
        y: Floats,
        weight: Floats,
        sums: BlockSums,
    ) -> None:
        cells, by_bin = self.cells[d], (sums.cell_squares[d], sums.cell_rows[d])
        where = (cells.low, cells.scale)
        if multiplier is None:
            sum_cells(codes, value, y, weight, *where, *sums.cell_sums[d], *by_bin)
        else:
            sum_multiplied_cells(
                codes, value, y, weight, multiplier, *where, sums.cell_sums[d], *by_bin
            )


def codes_type(cuts: list[TermCut]) -> Any:
    """Type of the codes of all terms."""
    return code_type(max(map(len, cuts), default=0))


def _times(weight: Floats, *multipliers: Floats | None) -> Floats:
    """Multiply weights, of which none stand for ones."""
    for multiplier in multipliers:
        if multiplier is not None:
            weight = weight * multiplier if len(weight) else multiplier
    return weight


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
    cell_sums : list of lists of CellSums, one a term
        Of (y − pilot location) / pilot scale. A function that is multiplied has two: of what rows
        have in common whatever their multipliers, and of what grows with these.
    """

    equations: Equations
    spreads: list[Floats]
    offset: float
    scale: float
    weight_scale: float
    numbers: dict[str, Floats]
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
        Rows of positive weight; one less where the mean of the targets is taken off beside.
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
        # Multipliers that are equal but for rounding tell nothing.
        centred = np.where(centred > _ROUNDING * second, centred, 0.0)
        score = product - z * information - y * first + z * y * weights
        return [
            cls(weights, information, squares, n_rows),
            cls(centred, score, squares - level**2 * total, n_rows - 1),
        ]


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
    keep: tuple[str, ...] = (),
    watch: Callable[[int], None] = lambda rows: None,
) -> Statistics:
    """Read all rows again and sum them by bins.

    Parameters
    ----------
    source : Source
    lengths : list of int
        Rows of each chunk.
    cuts : list of TermCut, one a term
    inputs : list of slice
        Where the inputs of each term are among the source's columns.
    pilot : (location, scale)
        Roughly those of the target: sums are taken around them.
    with_pairs : bool
        Make two-way tables of the bins, and keep no row; otherwise keep the codes of all rows.
    cells : list of Cells, optional
        Of the same terms, if targets are to be summed by parts of the bins too.
    codes_on_disk : bool
        Keep them in a temporary zarr store instead of in memory.
    keep : tuple of str
        What else to keep of every row beside its codes: "y", or names of the source's extra
        numbers.
    watch : callable
        Told the number of rows read so far.
    """
    cells = [Cells.none()] * len(cuts) if cells is None else cells
    recipe = _Recipe(cuts, cells, inputs, *pilot, with_pairs, not with_pairs, keep)
    total = BlockSums.zeros(cuts, cells, with_pairs)
    kept = (
        None if with_pairs else _KeptRows(cuts, sum(lengths), source.weighted, codes_on_disk, keep)
    )
    n_read = 0
    watch(n_read)
    for sums, coded, n in over_blocks(source.chunks(), lengths, LOGICAL_BLOCK, recipe):
        total.add(sums)
        if kept is not None:
            kept.append(coded)
        n_read += n
        watch(n_read)
    return _statistics(total, kept, cuts, pilot, source.weighted)


def _statistics(
    total: BlockSums,
    kept: _KeptRows | None,
    cuts: list[TermCut],
    pilot: tuple[float, float],
    weighted: bool,
) -> Statistics:
    weight_sum, weighted_y, quadratic, n_rows, log_weight = (float(x) for x in total.total)
    weight_scale = weight_sum / n_rows
    # Empty bins are no points: their neighbours move up.
    filled = [weights > 0 for weights in total.weights]
    cells, spreads = [], []
    for d, cut in enumerate(cuts):
        in_bins = total.weights[d][filled[d]]
        shift = total.shifts[d][filled[d]] / in_bins
        points = cut.origin[filled[d]] + (0.0 if cut.exact else shift)
        cells.append(cut.cells(filled[d], cut.ordered(filled[d], points)))
        squares = total.squares[d][filled[d]] / in_bins
        spreads.append(np.maximum(squares - shift**2, 0.0) if not cut.exact else 0 * shift)
    location, scale = pilot
    mean = weighted_y / weight_sum
    variance = max(quadratic / weight_sum - mean**2, 0.0)
    std = float(np.sqrt(variance)) or 1.0
    weights = [w[f] / weight_scale for w, f in zip(total.weights, filled, strict=True)]
    ones = [
        own[f] / weight_scale if len(own) else w
        for own, f, w in zip(total.multiplied, filled, weights, strict=True)
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
        codes, row_weight = kept.finished(filled, weight_scale)
        table = RowTable(names, tuple(cells), codes, kept.multipliers())
        equations = RowEquations(layout=table, table=table, row_weight=row_weight, **shared)
    numbers = {} if kept is None else kept.numbers()
    cell_sums = [
        CellSums.of(*sums)
        for sums in zip(total.cell_sums, total.cell_squares, total.cell_rows, strict=True)
    ]
    return Statistics(
        equations, spreads, location + scale * mean, scale * std, weight_scale, numbers, cell_sums
    )


class _KeptRows:
    """Codes of all rows, in memory or on disk, their weights and other numbers."""

    def __init__(
        self,
        cuts: list[TermCut],
        n_rows: int,
        weighted: bool,
        on_disk: bool,
        keep: tuple[str, ...],
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="dsgp-codes-") if on_disk else None
        self.n = 0
        shape, kind = (len(cuts), n_rows), codes_type(cuts)
        self.codes: Any = (
            np.empty(shape, dtype=kind)
            if self.folder is None
            else zarr.create_array(
                Path(self.folder.name) / "codes.zarr",
                shape=shape,
                chunks=(max(len(cuts), 1), BLOCK),
                dtype=np.dtype(kind).name,
                compressors=None,
            )
        )
        self.weight = np.empty(n_rows) if weighted else _UNWEIGHTED
        self._numbers = {name: np.empty(n_rows) for name in keep}
        self._multipliers = {
            d: np.empty(n_rows) for d, cut in enumerate(cuts) if cut.term.multiplier is not None
        }

    def append(self, coded: _Coded) -> None:
        """Keep the rows of the next block."""
        rows = slice(self.n, self.n + coded.codes.shape[1])
        self.codes[:, rows] = coded.codes
        if len(self.weight):
            self.weight[rows] = coded.weight
        for name, values in coded.numbers.items():
            self._numbers[name][rows] = values
        for d, z in coded.multipliers.items():
            self._multipliers[d][rows] = z
        self.n = rows.stop

    def multipliers(self) -> dict[int, Floats]:
        """Return the multipliers of terms that have some, of all rows."""
        return {d: z[: self.n] for d, z in self._multipliers.items()}

    def numbers(self) -> dict[str, Floats]:
        """Return the numbers kept, of all rows."""
        return {name: values[: self.n] for name, values in self._numbers.items()}

    def finished(self, filled: list[NDArray[np.bool_]], weight_scale: float) -> tuple[Any, Floats]:
        """Renumber the codes, so that empty bins are no points."""
        kind = self.codes.dtype
        missing = np.iinfo(kind).max
        moves: list[NDArray[Any] | None] = []
        for kept in filled:
            # The last entry is where a missing input goes, and so does an empty bin.
            move = np.full(len(kept) + 1, missing, dtype=kind)
            move[:-1][kept] = np.arange(kept.sum())
            moves.append(None if kept.all() else move)
        if not all(kept.all() for kept in filled):
            for start in range(0, self.n, BLOCK):
                rows = slice(start, min(start + BLOCK, self.n))
                block = np.asarray(self.codes[:, rows])
                for d, renumbered in enumerate(moves):
                    if renumbered is not None:
                        block[d] = renumbered[np.minimum(block[d], len(renumbered) - 1)]
                self.codes[:, rows] = block
        codes = _Rows(self.codes, self.n, self.folder) if self.folder else self.codes[:, : self.n]
        return codes, self.weight[: self.n] / weight_scale


class _Rows:
    """The first rows of codes on disk, which go with the folder when nobody needs them."""

    def __init__(self, codes: Any, n_rows: int, folder: Any) -> None:
        self.codes, self.shape, self.folder = codes, (codes.shape[0], n_rows), folder
        self.dtype = codes.dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[Any]:
        terms, rows = key
        start, stop, _ = rows.indices(self.shape[1])
        return np.asarray(self.codes[terms, start:stop])
