"""Sums over one block of rows by the bins of every term, and the codes of its rows.

Blocks are put together in `dsgp.additive.streaming`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.survey import of_positive_weight
from dsgp.additive.tables import pairs_of
from dsgp.compute import run
from dsgp.jit.sketch import count_pairs, sum_bins, sum_cells, sum_multiplied_cells
from dsgp.memory import held
from dsgp.rows.coding import TermCut, code_type, multiplier_of
from dsgp.rows.encode import Cells
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Seconds of compiled work per row.
_ENCODE = 1.5e-8
_COUNT = 2e-9
# Stands for weights that are all 1.
UNWEIGHTED = np.empty(0)


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
        Empty where there are too many bins for tables. Of any type once ``pack`` was called.
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
    pairs: dict[tuple[int, int], NDArray[Any]]
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

    def pack(self) -> None:
        """Keep whole numbers of the tables in the smallest type that holds them, to travel."""
        self.pairs = {key: _packed(table) for key, table in self.pairs.items()}

    def __sizeof__(self) -> int:
        return held(vars(self))

    def _arrays(self) -> list[NDArray[Any]]:
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
class CodedRows:
    """Some rows after coding.

    Attributes
    ----------
    codes : ndarray of shape (n_terms, n)
    weight : ndarray of shape (n,) or (0,)
    numbers : dict of str to ndarray of shape (n,)
    multipliers : dict of int to ndarray of shape (n,)
        Of the terms that have some.
    """

    codes: NDArray[np.unsignedinteger[Any]]
    weight: Floats
    numbers: dict[str, Floats]
    multipliers: dict[int, Floats]

    def __sizeof__(self) -> int:
        return held(vars(self))


@dataclass(frozen=True)
class BlockRecipe:
    """How blocks are summed; it travels to workers.

    Attributes
    ----------
    cuts : list of TermCut, one per term
    cells : list of Cells
        Equal parts of the bins of each term that targets are summed by, too.
    inputs : list of slice
        Where the inputs of each term are among the columns.
    location, scale : float
        Taken off the target, and what it is divided by.
    with_pairs, with_codes : bool
        Make two-way tables; return coded rows.
    keep : tuple of str
        Numbers of coded rows: "y", or names of extra ones.
    """

    cuts: list[TermCut]
    cells: list[Cells]
    inputs: list[slice]
    location: float
    scale: float
    with_pairs: bool
    with_codes: bool
    keep: tuple[str, ...]

    def __call__(self, rows: Rows) -> tuple[BlockSums, CodedRows, int]:
        """Return the sums, the coded rows, and the number of rows read."""
        n_read = len(rows)
        rows = of_positive_weight(rows)
        assert rows.y is not None
        y = (rows.y - self.location) / self.scale
        weight = UNWEIGHTED if rows.weight is None else rows.weight
        sums = BlockSums.zeros(self.cuts, self.cells, self.with_pairs)
        kind = codes_type(self.cuts)
        codes = np.empty((len(self.cuts), len(rows)), dtype=kind)
        inputs = [rows.columns[part] for part in self.inputs]
        multipliers = {
            d: z
            for d, (cut, term_inputs) in enumerate(zip(self.cuts, inputs, strict=True))
            if (z := multiplier_of(cut.term, term_inputs)) is not None
        }
        tasks = [
            partial(self._term, d, term_inputs, multipliers.get(d), y, weight, codes, sums)
            for d, term_inputs in enumerate(inputs)
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
        sums.pack()
        if not self.with_codes:
            return sums, CodedRows(codes[:, :0], UNWEIGHTED, {}, {}), n_read
        kept = {name: rows.y if name == "y" else rows.extra[name] for name in self.keep}
        return sums, CodedRows(codes, weight, kept, multipliers), n_read

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
            # A row of multiplier z counts below like one of weight w z² and target y / z.
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
        """Add up by the parts of the bins of a term."""
        cells, by_bin = self.cells[d], (sums.cell_squares[d], sums.cell_rows[d])
        where = (cells.low, cells.scale)
        if multiplier is None:
            sum_cells(codes, value, y, weight, *where, *sums.cell_sums[d], *by_bin)
        else:
            sum_multiplied_cells(
                codes, value, y, weight, multiplier, *where, sums.cell_sums[d], *by_bin
            )


def _packed(table: Floats) -> NDArray[Any]:
    """Return the same numbers in the smallest type that holds them."""
    if not table.size or table.min() < 0 or not table.max() < 2**32:
        return table
    whole = table.astype(np.min_scalar_type(int(table.max())))
    return whole if np.array_equal(whole, table) else table


def codes_type(cuts: list[TermCut]) -> Any:
    """Type of the codes of all terms."""
    return code_type(max(map(len, cuts), default=0))


def _times(weight: Floats, *multipliers: Floats | None) -> Floats:
    """Multiply weights, of which none stand for ones."""
    for multiplier in multipliers:
        if multiplier is not None:
            weight = weight * multiplier if len(weight) else multiplier
    return weight
