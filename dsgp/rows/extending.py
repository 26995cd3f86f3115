"""Cuts of the inputs of terms, extended to rows that come later.

Bins of earlier rows keep their edges, and only whole bins are merged. Therefore the sums of earlier
rows, moved to the extended cut, are those of one pass over all rows with that cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.coding import MOST_PAIRS_OF_LEVELS, BinsOfRows, PairedBins, TermCut
from dsgp.rows.encode import Bins, Sketch
from dsgp.terms import Codes, Floats, Input, sum_by

# Largest number of bins of an input, relative to a cut of all rows; neighbouring bins beyond that
# are merged.
_MOST = 1.5
# Largest width of the last bin, in mean widths, before new bins are added beyond it: bins that are
# cut half by distance are at most twice as wide as the mean.
_WIDEST = 2.0
# Weight of a bin without rows, as a share of the heaviest.
_LEAST = 1e-12


@dataclass(frozen=True)
class Extended:
    """A cut that also covers further rows.

    Attributes
    ----------
    cut : TermCut
    move : ndarray of int, shape (n_cells,)
        The new position of each cell of the earlier cut.
    """

    cut: TermCut
    move: Codes

    @classmethod
    def of(
        cls,
        cut: TermCut,
        weight: Floats,
        sketches: Mapping[Input, Sketch],
        levels: Mapping[Input, Floats],
        most: int,
    ) -> Extended:
        """Extend a cut.

        Parameters
        ----------
        cut : TermCut
        weight : ndarray of shape (n_cells,)
            Weight of the earlier rows in each cell of the cut; 0 where there is none.
        sketches, levels
            Those of the further rows, as for ``TermCut.of``.
        most : int
            Approximate number of bins per curve, as in a cut of all rows.
        """
        term = cut.term
        if term.value is None:
            return cls(cut, np.arange(len(cut)))
        if cut.pairs is not None:
            return cls._of_pairs(cut, cut.pairs, weight, sketches, levels, most)
        if term.family == "levels":
            values, move = _with_levels(cut.bins.origin, levels[term.value])
            return cls(replace(cut, bins=Bins.of_values(values)), move)
        by_bin = weight.reshape(cut.n_curves, len(cut.bins)).sum(axis=0)
        bins, high, move = _with_values(cut.bins, cut.high, by_bin, sketches[term.value], most)
        if cut.levels is None or term.group is None:
            return cls(replace(cut, bins=bins, high=high), move)
        groups, place = _with_levels(cut.levels, levels[term.group])
        both = place[:, None] * len(bins) + move[None, :]
        return cls(replace(cut, bins=bins, high=high, levels=groups), both.ravel())

    @classmethod
    def _of_pairs(
        cls,
        cut: TermCut,
        pairs: PairedBins,
        weight: Floats,
        sketches: Mapping[Input, Sketch],
        levels: Mapping[Input, Floats],
        most: int,
    ) -> Extended:
        term = cut.term
        table = weight.reshape(len(pairs.first.bins), len(pairs.other.bins))
        sides, moves = [], []
        for side, term_input, by_bin in (
            (pairs.first, term.value, table.sum(axis=1)),
            (pairs.other, term.other, table.sum(axis=0)),
        ):
            assert term_input is not None
            known = levels.get(term_input) if term_input in term.level_inputs else None
            extended, move = _with_inputs(side, by_bin, sketches[term_input], known, most)
            sides.append(extended)
            moves.append(move)
        paired = PairedBins(*sides)
        if len(term.level_inputs) == 2 and len(paired) > MOST_PAIRS_OF_LEVELS:
            raise DataError(
                f"term {term.name!r}: with the levels of the new rows there are {len(paired)} "
                "pairs of levels, more than an interaction can have: merge rare levels and fit "
                "again"
            )
        both = moves[0][:, None] * len(paired.other.bins) + moves[1][None, :]
        return cls(replace(cut, bins=paired.first.bins, pairs=paired), both.ravel())


def _with_levels(known: Floats, new: Floats) -> tuple[Floats, Codes]:
    levels = np.union1d(known, new)
    return levels, np.searchsorted(levels, known)


def _with_inputs(
    side: BinsOfRows, weight: Floats, sketch: Sketch, levels: Floats | None, most: int
) -> tuple[BinsOfRows, Codes]:
    """Extend the bins of an input of an interaction; existing bins do not change."""
    if levels is not None:
        values, move = _with_levels(side.bins.origin, levels)
        return BinsOfRows(Bins.of_values(values), values, np.zeros(len(values)), values[-1]), move
    bins, high, move = _with_values(side.bins, side.high, weight, sketch, max(most, len(side.bins)))
    new = BinsOfRows.of(bins, sketch)
    mean, variance = new.mean.copy(), new.variance.copy()
    taken = np.unique(move)
    total = np.maximum(weight, _LEAST * float(weight.max()))
    counts = sum_by(move, len(bins), total)[taken]
    mean[taken] = sum_by(move, len(bins), total * side.mean)[taken] / counts
    beyond = (side.mean - mean[move]) ** 2 + side.variance
    variance[taken] = sum_by(move, len(bins), total * beyond)[taken] / counts
    return BinsOfRows(bins, mean, variance, high), move


def _with_values(
    bins: Bins, high: float, weight: Floats, sketch: Sketch, most: int
) -> tuple[Bins, float, Codes]:
    """Extend bins of numbers: by new ones beyond both ends, or for values that are new."""
    if not len(sketch.values):  # all values are missing
        return bins, high, np.arange(len(bins))
    if bins.exact:
        return _with_distinct(bins, high, weight, sketch, most)
    low = float(bins.origin[0])
    width = (high - low) / len(bins)
    # A single bin has no inner edge: it extends from end to end.
    inner = (bins.edges[0], bins.edges[-1]) if len(bins.edges) else (high, low)
    below = _beyond(sketch, width, most, above=False, end=low, edge=float(inner[0]))
    above = _beyond(sketch, width, most, above=True, end=high, edge=float(inner[1]))
    edges = np.concatenate([below, bins.edges, above])
    first, last = min(low, sketch.low), max(high, sketch.high)
    extended = Bins(edges, np.concatenate([[first], edges]), False)
    move = len(below) + np.arange(len(bins))
    if len(extended) <= _MOST * max(most, 1):
        return extended, last, move
    return _put_together(extended, last, move, weight, sketch, most)


def _beyond(
    sketch: Sketch, width: float, most: int, *, above: bool, end: float, edge: float
) -> Floats:
    """Edges of new bins beyond an end; none where the last bin may be as wide as that.

    ``edge`` is the inner one of the last bin, which goes as far as ``end``.
    """
    reach = sketch.high if above else sketch.low
    distance = reach - end if above else end - reach
    if not distance > 0 or abs(reach - edge) <= max(_WIDEST * width, abs(end - edge)):
        return np.empty(0)
    # Values on an edge belong to the upper bin, but the greatest one so far belongs to the last
    # bin.
    border = float(np.nextafter(end, np.inf)) if above else end
    some = sketch.values >= border if above else sketch.values < border
    n_bins = int(np.clip(np.ceil(distance / max(width, distance / most)), 1, most))
    ends = (border, reach) if above else (reach, border)
    part = Sketch(sketch.values[some], sketch.counts[some], *ends, complete=False)
    inner = Bins.of(part, n_bins).edges if len(part.values) else np.empty(0)
    inner = inner[(inner > ends[0]) & (inner < ends[1])]
    return np.concatenate([[border], inner] if above else [inner, [border]])


def _with_distinct(
    bins: Bins, high: float, weight: Floats, sketch: Sketch, most: int
) -> tuple[Bins, float, Codes]:
    """Add further distinct values, or cut all values into bins if there are too many."""
    values = np.union1d(bins.origin, sketch.values)
    known = np.searchsorted(values, bins.origin)
    if sketch.complete and len(values) <= max(most, len(bins)):
        return Bins.of_values(values), max(high, sketch.high), known
    counts = sum_by(known, len(values), weight)
    counts += sum_by(np.searchsorted(values, sketch.values), len(values), sketch.counts)
    low, high = min(float(values[0]), sketch.low), max(float(values[-1]), sketch.high)
    cut = Bins.of(Sketch(values, counts, low, high, complete=False), most)
    return cut, high, np.searchsorted(cut.edges, bins.origin, side="right")


def _put_together(
    bins: Bins, high: float, move: Codes, weight: Floats, sketch: Sketch, most: int
) -> tuple[Bins, float, Codes]:
    """Merge whole neighbouring bins, so that about as many as wanted are left."""
    counts = sum_by(move, len(bins), weight)
    codes = np.searchsorted(bins.edges, sketch.values, side="right")
    counts += sum_by(codes, len(bins), sketch.counts)
    counts = np.maximum(counts, np.finfo(float).tiny)
    upper = np.append(bins.edges, high)
    lower = bins.origin
    middle = lower / 2 + upper / 2
    wanted = Bins.of(Sketch(middle, counts, float(lower[0]), high, complete=False), most).edges
    chosen: NDArray[Any] = np.unique(np.searchsorted(bins.edges, wanted))
    edges = bins.edges[chosen[chosen < len(bins.edges)]]
    fewer = Bins(edges, np.concatenate([lower[:1], edges]), False)
    to = np.searchsorted(edges, lower, side="right")
    return fewer, high, to[move]
