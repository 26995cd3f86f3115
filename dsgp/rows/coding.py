"""The inputs of one term become cells and the code of each row: exactly, or by bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.kernels import CentredProduct, Margin
from dsgp.kernels.centred import MARGIN_POINTS
from dsgp.rows.encode import MOST_BINS, Bins, Sketch, encode
from dsgp.terms import BoundTerm, Cells, Floats, Input, TensorCells, sum_by
from dsgp.terms.spreading import increasing

# Limits for interactions: least number of bins of a smooth input with levels, usual and largest
# number of pairs of bins and levels, number of pairs of levels, number of levels of one column, and
# number of pairs that have rows.
FEWEST_OF_PAIRS = 8
USUAL_PAIRS, MOST_PAIRS = 1024, 2048
MOST_PAIRS_OF_LEVELS = 2**20
MOST_LEVELS_OF_PAIRS = 1024
MOST_FILLED_PAIRS = 2048


def code_type(n_cells: int) -> Any:
    """Smallest type of codes of ``n_cells`` cells; its largest number means a missing input."""
    return np.uint16 if n_cells < MOST_BINS else np.uint32


def encode_term(
    term: BoundTerm, inputs: list[Floats]
) -> tuple[Cells | None, NDArray[np.unsignedinteger[Any]]]:
    """Convert the inputs of a term to its cells and the code of each row, without bins.

    Parameters
    ----------
    term : BoundTerm
    inputs : list of ndarray of shape (n_rows,)
        As ``term.inputs``; NaN stands for a missing one.

    Returns
    -------
    cells : Cells or None
        None if no row has all inputs.
    codes : ndarray of shape (n_rows,)
        The largest number of the type where an input is missing.
    """
    if term.is_plain:
        return encode(inputs[0])
    n = len(inputs[0])
    missing = np.any([np.isnan(column) for column in inputs], axis=0)
    seen = slice(None) if not missing.any() else ~missing
    by_input = dict(zip((each for each in term.inputs), inputs, strict=True))
    if missing.all():
        return None, np.full(n, np.iinfo(np.uint16).max, dtype=np.uint16)
    if term.value is None:
        points: Floats = np.zeros(1)
        row_places: Any = np.zeros(n, dtype=np.int64)[seen]
    else:
        points, row_places = np.unique(by_input[term.value][seen], return_inverse=True)
    if term.other is not None:
        others, place = np.unique(by_input[term.other][seen], return_inverse=True)
        pairs, row_places = np.unique(row_places * len(others) + place, return_inverse=True)
        points = np.column_stack([points[pairs // len(others)], others[pairs % len(others)]])
    elif term.group is not None:
        levels, group = np.unique(by_input[term.group][seen], return_inverse=True)
        pairs, row_places = np.unique(group * len(points) + row_places, return_inverse=True)
        points = np.column_stack([levels[pairs // len(points)], points[pairs % len(points)]])
    kind = code_type(len(points))
    codes = np.full(n, np.iinfo(kind).max, dtype=kind)
    codes[seen] = row_places
    return term.cells(points), codes


def multiplier_of(term: BoundTerm, inputs: list[Floats]) -> Floats | None:
    """Multiplier of the function in each row, 0 where it is missing; None for 1."""
    if term.multiplier is None:
        return None
    return np.nan_to_num(inputs[-1], nan=0.0)


def placed(term: BoundTerm, location: float, spread: float) -> BoundTerm:
    """Return a straight line through the mean of its column, in units of its spread."""
    if term.family != "constant" or term.multiplier is None:
        return term
    multiplier = Input(term.multiplier.column, centre=location, scale=spread or 1.0)
    return replace(term, multiplier=multiplier)


def with_margins(term: BoundTerm, sketches: Mapping[Input, Sketch]) -> BoundTerm:
    """Return an interaction with the distributions of the rows along its inputs."""
    if not isinstance(term.kernel, CentredProduct) or term.value is None or term.other is None:
        return term
    margins = []
    for term_input in (term.value, term.other):
        sketch = sketches[term_input]
        if not len(sketch.values):  # nothing is known of the input, and the term is left out
            return term
        is_level = term_input in term.level_inputs
        if is_level and not (sketch.complete and len(sketch.values) <= MOST_LEVELS_OF_PAIRS):
            raise DataError(
                f"term {term.name!r}: input column {term_input.column!r} has more than "
                f"{MOST_LEVELS_OF_PAIRS} levels, too many for an interaction; merge rare levels, "
                "or use Smooth(column, by=...), a curve for each level"
            )
        bins = Bins.of(sketch, len(sketch.values) if is_level else MARGIN_POINTS)
        codes = np.searchsorted(bins.edges, sketch.values, side="right")
        shares = sum_by(codes, len(bins), sketch.counts)
        filled = shares > 0
        points = BinsOfRows.of(bins, sketch).mean[filled]
        margins.append(Margin(tuple(points.tolist()), tuple(shares[filled].tolist())))
    return term.with_kernel(replace(term.kernel, margins=tuple(margins)))


@dataclass(frozen=True)
class BinsOfRows:
    """Bins of an input, with mean and variance of the values in each, and the greatest value."""

    bins: Bins
    mean: Floats
    variance: Floats
    high: float

    @classmethod
    def of(cls, bins: Bins, sketch: Sketch) -> BinsOfRows:
        """Compute both from a sketch; a bin without a value in it has its lower edge as mean."""
        if bins.exact:
            return cls(bins, bins.origin, np.zeros(len(bins)), sketch.high)
        codes = np.searchsorted(bins.edges, sketch.values, side="right")
        counts = np.maximum(sum_by(codes, len(bins), sketch.counts), 1e-300)
        beyond = sketch.values - bins.origin[codes]
        shift = sum_by(codes, len(bins), sketch.counts * beyond) / counts
        squares = sum_by(codes, len(bins), sketch.counts * (beyond - shift[codes]) ** 2) / counts
        return cls(bins, bins.origin + shift, squares, sketch.high)


@dataclass(frozen=True)
class PairedBins:
    """All pairs of bins of two inputs; the code of a pair is that of the first times the second's
    number, plus that of the second.
    """

    first: BinsOfRows
    other: BinsOfRows

    def __len__(self) -> int:
        return len(self.first.bins) * len(self.other.bins)

    @property
    def exact(self) -> bool:
        """Whether every pair holds one distinct input."""
        return self.first.bins.exact and self.other.bins.exact

    def points(self, filled: NDArray[np.bool_]) -> Floats:
        """Positions of the pairs, (n_filled, 2)."""
        first, other = np.divmod(np.flatnonzero(filled), len(self.other.bins))
        return np.column_stack([self.first.mean[first], self.other.mean[other]])

    def within(self, filled: NDArray[np.bool_]) -> Floats:
        """Variances of both inputs within the bins of pairs, (n_filled, 2)."""
        first, other = np.divmod(np.flatnonzero(filled), len(self.other.bins))
        return np.column_stack([self.first.variance[first], self.other.variance[other]])


@dataclass(frozen=True)
class TermCut:
    """How the inputs of a term are cut into cells.

    Attributes
    ----------
    term : BoundTerm
    bins : Bins
        Bins of its value.
    high : float
        Greatest value.
    levels : ndarray of shape (n_levels,), or None
        Levels of its group.
    pairs : PairedBins or None
        Bins of both inputs of an interaction, whose cells are all pairs.
    """

    term: BoundTerm
    bins: Bins
    high: float = 0.0
    levels: Floats | None = None
    pairs: PairedBins | None = None

    @classmethod
    def of(
        cls,
        term: BoundTerm,
        sketches: Mapping[Input, Sketch],
        levels: Mapping[Input, Floats],
        n: int,
    ) -> TermCut:
        """Cut into about ``n`` bins per curve; levels are not merged.

        ``levels`` are the distinct values of inputs that are levels.
        """
        if term.value is None:
            return cls(term, Bins.of_values(np.zeros(1)))
        if term.family == "levels":
            return cls(term, Bins.of_values(levels[term.value]))
        if term.other is not None:
            return cls._of_pairs(term, sketches, levels, n)
        bins = Bins.of(sketches[term.value], n)
        of_group = None if term.group is None else levels[term.group]
        return cls(term, bins, sketches[term.value].high, of_group)

    @classmethod
    def _of_pairs(
        cls,
        term: BoundTerm,
        sketches: Mapping[Input, Sketch],
        levels: Mapping[Input, Floats],
        n: int,
    ) -> TermCut:
        """Cut both inputs of an interaction, into fewer bins if the levels are many."""
        assert term.value is not None
        assert term.other is not None
        known: dict[Input, Bins] = {
            term_input: Bins.of_values(levels[term_input]) for term_input in term.level_inputs
        }
        n_levels = int(np.prod([len(bins) for bins in known.values()], dtype=float))
        if n_levels > (MOST_PAIRS_OF_LEVELS if len(known) == 2 else MOST_PAIRS // FEWEST_OF_PAIRS):
            raise DataError(
                f"term {term.name!r}: input columns {' and '.join(map(repr, term.columns))} have "
                f"{n_levels} {'pairs of levels' if len(known) == 2 else 'levels'}, more than an "
                "interaction can have; merge rare levels, or use Smooth(column, by=...), a curve "
                "for each level"
            )
        most = n if not known else min(n, max(USUAL_PAIRS // n_levels, FEWEST_OF_PAIRS))
        value, other = (
            BinsOfRows.of(known.get(term_input) or Bins.of(sketch, most), sketch)
            for term_input, sketch in ((each, sketches[each]) for each in (term.value, term.other))
        )
        return cls(term, value.bins, pairs=PairedBins(value, other))

    def __len__(self) -> int:
        return len(self.bins) * self.n_curves if self.pairs is None else len(self.pairs)

    @property
    def n_curves(self) -> int:
        """How many curves have these bins."""
        return 1 if self.levels is None else len(self.levels)

    @property
    def exact(self) -> bool:
        """Whether every cell holds one distinct input."""
        return self.bins.exact if self.pairs is None else self.pairs.exact

    @property
    def origin(self) -> Floats:
        """A value in each cell, from which sums are taken, (n_cells,); 0 of pairs."""
        if self.pairs is not None:
            return np.zeros(len(self))
        return self.bins.origin if self.n_curves == 1 else np.tile(self.bins.origin, self.n_curves)

    def coded(
        self, inputs: list[Floats], kind: Any
    ) -> tuple[NDArray[np.unsignedinteger[Any]], Floats]:
        """Return the code of each row, and the value whose sums are taken, each (n,)."""
        by_input = dict(zip(self.term.inputs, inputs, strict=True))
        value = np.zeros(len(inputs[0])) if self.term.value is None else by_input[self.term.value]
        if len(inputs) == 1 and kind is np.uint16 and len(self.bins) < MOST_BINS:
            return self.bins.codes(value), value
        codes = _binned(self.bins, value)
        missing = np.any([np.isnan(each) for each in inputs], axis=0)
        if self.levels is not None and self.term.group is not None:
            group = by_input[self.term.group]
            place = np.minimum(np.searchsorted(self.levels, group), len(self.levels) - 1)
            codes = place * len(self.bins) + codes
        elif self.pairs is not None and self.term.other is not None:
            other = self.pairs.other.bins
            codes = codes * len(other) + _binned(other, by_input[self.term.other])
            value = np.zeros(len(value))
        out = codes.astype(kind)
        if missing.any():
            out[missing] = np.iinfo(kind).max
        return out, value

    def cells(self, filled: NDArray[np.bool_], values: Floats) -> Cells:
        """Make cells of those that hold rows, at the given values; pairs at those of their bins."""
        if self.pairs is not None:
            n_filled = np.count_nonzero(filled)
            if self.term.family == "tensor of levels" and n_filled > MOST_FILLED_PAIRS:
                raise DataError(
                    f"term {self.term.name!r}: {n_filled} pairs of levels have rows, and an "
                    f"interaction can have at most {MOST_FILLED_PAIRS}; merge rare levels"
                )
            cells = self.term.cells(self.pairs.points(filled))
            assert isinstance(cells, TensorCells)
            return cells.with_within(self.pairs.within(filled))
        if self.levels is None:
            return self.term.cells(values)
        level = np.repeat(self.levels, len(self.bins))[filled]
        return self.term.cells(np.column_stack([level, values]))

    def ordered(self, filled: NDArray[np.bool_], values: Floats) -> Floats:
        """Separate values that rounding has made equal, in place, curve by curve."""
        if self.pairs is not None:
            return values
        if self.levels is None:
            return increasing(values)
        curve = np.repeat(np.arange(len(self.levels)), len(self.bins))[filled]
        for first in np.unique(curve):
            part = curve == first
            values[part] = increasing(values[part])
        return values


def _binned(bins: Bins, value: Floats) -> NDArray[np.int64]:
    if len(bins) < MOST_BINS:
        return bins.codes(value).astype(np.int64)
    return np.searchsorted(bins.edges, value, side="right")
