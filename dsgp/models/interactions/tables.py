"""Two-way tables of a model's residuals, by coarse bins of every two columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.streaming import LOGICAL_BLOCK
from dsgp.additive.survey import of_positive_weight, survey
from dsgp.compute import over_blocks, run
from dsgp.jit.sketch import count_pairs
from dsgp.learning.pair_scores import PairedColumn, effect, gain
from dsgp.models.rows.columns import TermRows
from dsgp.rows.coding import FEWEST_OF_PAIRS, MOST_FILLED_PAIRS, MOST_PAIRS
from dsgp.rows.encode import Bins, Sketch
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats

# Number of bins of a smooth column, and of levels of a category (those with the most rows), by
# which pairs are judged.
COARSE_BINS, COARSE_LEVELS = 12, 24
_COUNT, _JUDGE = 2e-9, 1e-3  # seconds per row and pair; per pair


@dataclass(frozen=True)
class CoarseColumn:
    """A term's input, cut coarsely.

    Attributes
    ----------
    term : BoundTerm
    bins : Bins
    kept : ndarray of int, or None
        Of levels: which of the bins count, all others are left out.
    shares : ndarray of shape (n_codes,)
        Of the rows with each code.
    """

    term: BoundTerm
    bins: Bins
    kept: NDArray[np.intp] | None
    shares: Floats

    @classmethod
    def of(cls, term: BoundTerm, sketch: Sketch, levels: Floats | None) -> CoarseColumn:
        """Cut by a sketch, or by all levels."""
        bins = Bins.of(sketch, COARSE_BINS) if levels is None else Bins.of_values(levels)
        codes = np.searchsorted(bins.edges, sketch.values, side="right")
        counts = np.bincount(codes, sketch.counts, len(bins))
        kept = None
        if levels is not None and len(levels) > COARSE_LEVELS:
            kept = np.sort(np.argsort(-counts, kind="stable")[:COARSE_LEVELS])
            counts = counts[kept]
        return cls(term, bins, kept, counts / max(counts.sum(), 1.0))

    @property
    def varies(self) -> bool:
        """Whether its rows are in more than one bin."""
        return int(np.count_nonzero(self.shares)) > 1

    @property
    def n_levels(self) -> int:
        """How many levels it has; 0 of a smooth column."""
        return len(self.bins) if self.term.family == "levels" else 0

    def codes(self, by_name: dict[str, Floats]) -> NDArray[np.uint16]:
        """Code of each row; beyond all codes where it does not count."""
        found = self.bins.codes(self.term.read(by_name)[0])
        if self.kept is None:
            return found
        place = np.full(np.iinfo(np.uint16).max + 1, np.iinfo(np.uint16).max, dtype=np.uint16)
        place[self.kept] = np.arange(len(self.kept))
        return place[found]


class Left(NamedTuple):
    """Residuals of a model, (n,) each.

    Attributes
    ----------
    precision, score : ndarray of shape (n,)
        −w d²log p/df² and w dlog p/df of each row of weight w.
    squares : ndarray of shape (n,), or None
        w (dlog p/df)², which are as large as the precisions on average where the likelihood is
        right: what is more is dispersion that it does not know, and no pair's. None where the
        dispersion was learned.
    """

    precision: Floats
    score: Floats
    squares: Floats | None = None

    @property
    def totals(self) -> Floats:
        """Sums of the squares and the precisions, (2,)."""
        if self.squares is None:
            return np.zeros(2)
        return np.array([self.squares.sum(), self.precision.sum()])


Pair = tuple[int, int]
# The residuals of rows of positive weight, by their columns, for each function of a model; it
# travels to workers, without a model's tables.
Working = Callable[[Rows, dict[str, Floats]], list[Left]]


@dataclass(frozen=True)
class PairRecipe:
    """The function that sums a block of rows by pairs; it travels to workers."""

    columns: list[CoarseColumn]
    pairs: list[tuple[int, int]]
    names: tuple[str, ...]
    working: Working
    effects: Mapping[Pair, Floats]

    def __call__(self, rows: Rows) -> list[Floats]:
        """Precisions and scores of each pair, (2 n_functions, n_first, n_other); totals last."""
        rows = of_positive_weight(rows)
        by_name = dict(zip(self.names, rows.columns, strict=True))
        codes = {j: self.columns[j].codes(by_name) for j in sorted({*chain(*self.pairs)})}
        left = self.working(rows, by_name)
        for (j, k), tables in self.effects.items():
            counts = (codes[j] < tables.shape[1]) & (codes[k] < tables.shape[2])
            for each, table in zip(left, tables, strict=True):
                taken = table[codes[j][counts], codes[k][counts]]
                each.score[counts] -= each.precision[counts] * taken
        numbers = [side for each in left for side in (each.precision, each.score)]
        out = [
            np.zeros((len(numbers), len(self.columns[j].shares), len(self.columns[k].shares)))
            for j, k in self.pairs
        ]
        tasks = [
            partial(count_pairs, codes[j], codes[k], values, table[side])
            for (j, k), table in zip(self.pairs, out, strict=True)
            for side, values in enumerate(numbers)
        ]
        run(tasks, _COUNT * len(rows) * len(tasks), in_place=True)
        return [*out, np.array([each.totals for each in left])]


def _fits(columns: list[CoarseColumn], pair: tuple[int, int]) -> bool:
    """Whether an interaction of two columns is within the limits of levels."""
    sizes = [columns[k].n_levels for k in pair if columns[k].n_levels]
    if len(sizes) == 2:
        return sizes[0] * sizes[1] <= MOST_FILLED_PAIRS
    return not sizes or sizes[0] <= MOST_PAIRS // FEWEST_OF_PAIRS


class PairTables:
    """Coarse columns, and how rows are summed by pairs of them."""

    def __init__(
        self,
        columns: list[CoarseColumn],
        pairs: list[tuple[int, int]],
        lengths: list[int],
        n_too_many: int,
    ) -> None:
        self.columns, self.pairs, self.lengths = columns, pairs, lengths
        self.n_too_many = n_too_many
        self.features = [
            PairedColumn(column.shares, column.term.family == "levels").features()
            if column.varies
            else []
            for column in columns
        ]

    @classmethod
    def of(cls, source: Source, terms: list[BoundTerm], pairs: list[tuple[int, int]]) -> PairTables:
        """Cut the inputs of terms, in one pass over the rows."""
        rows = TermRows(source, terms)
        surveyed = survey(rows.source, levels=rows.levels)
        columns = [
            CoarseColumn.of(term, sketch, surveyed.levels.get(position))
            for position, (term, sketch) in enumerate(zip(terms, surveyed.sketches, strict=True))
        ]
        varying = [p for p in pairs if all(columns[k].varies for k in p)]
        fitting = [p for p in varying if _fits(columns, p)]
        return cls(columns, fitting, surveyed.lengths, len(varying) - len(fitting))

    def sums(
        self, source: Source, working: Working, effects: Mapping[Pair, Floats]
    ) -> dict[Pair, Floats]:
        """Precisions and scores beside a model and effects of some pairs.

        For each pair (n_functions, 2, n_first, n_other), as effects are (n_functions, n_first,
        n_other).
        """
        recipe = PairRecipe(self.columns, self.pairs, tuple(source.names), working, effects)
        total: list[Floats] | None = None
        for part in over_blocks(source.chunks(), self.lengths, LOGICAL_BLOCK, recipe, "pairs"):
            if total is None:
                total = part
                continue
            for mine, theirs in zip(total, part, strict=True):
                mine += theirs
        assert total is not None
        squares, precisions = total.pop().T
        # As with Gaussian noise, whose variance includes what a model has missed.
        dispersions = np.maximum(squares / np.maximum(precisions, np.finfo(float).tiny), 1.0)
        return {
            pair: sides.reshape(-1, 2, *sides.shape[1:]) / dispersions[:, None, None, None]
            for pair, sides in zip(self.pairs, total, strict=True)
        }

    def gains(self, sums: Mapping[Pair, Floats], *, main_effects_known: bool) -> dict[Pair, float]:
        """Gain of each single pair, in nats; with several functions, summed over all."""
        found = np.zeros(len(self.pairs))

        def judge(position: int) -> None:
            pair = self.pairs[position]
            features = [self.features[k] for k in pair]
            for precision, score in sums[pair]:
                found[position] += gain(
                    precision, score, *features, main_effects_known=main_effects_known
                )[0]

        run([partial(judge, k) for k in range(len(self.pairs))], _JUDGE * len(found), in_place=True)
        return dict(zip(self.pairs, found.tolist(), strict=True))

    def effect(
        self, pair: Pair, sums: Mapping[Pair, Floats], *, main_effects_known: bool
    ) -> Floats:
        """Effect of a pair on each f in each pair of bins, (n_functions, n_first, n_other)."""
        first, other = (self.features[k] for k in pair)
        return np.stack(
            [
                effect(precision, score, first, other, main_effects_known=main_effects_known)
                for precision, score in sums[pair]
            ]
        )
