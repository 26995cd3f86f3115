"""The inputs of one term become cells and the code of each row: exactly, or by bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.rows.encode import MOST_BINS, Bins, Sketch, encode
from dsgp.terms import BoundTerm, Cells, Floats, Input
from dsgp.terms.spreading import increasing


def code_type(n_cells: int) -> Any:
    """Smallest type of codes of so many cells; its largest number stands for a missing input."""
    return np.uint16 if n_cells < MOST_BINS else np.uint32


def encode_term(
    term: BoundTerm, inputs: list[Floats]
) -> tuple[Cells | None, NDArray[np.unsignedinteger[Any]]]:
    """Turn the inputs of a term into its cells and the code of each row, without bins.

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
    if term.group is not None:
        levels, group = np.unique(by_input[term.group][seen], return_inverse=True)
        pairs, row_places = np.unique(group * len(points) + row_places, return_inverse=True)
        points = np.column_stack([levels[pairs // len(points)], points[pairs % len(points)]])
    kind = code_type(len(points))
    codes = np.full(n, np.iinfo(kind).max, dtype=kind)
    codes[seen] = row_places
    return term.cells(points), codes


def multiplier_of(term: BoundTerm, inputs: list[Floats]) -> Floats | None:
    """What the function is multiplied by in each row, 0 where it is missing; None for 1."""
    if term.multiplier is None:
        return None
    return np.nan_to_num(inputs[-1], nan=0.0)


def placed(term: BoundTerm, location: float, spread: float) -> BoundTerm:
    """Return a straight line that goes through the mean of its column, in units of its spread."""
    if term.family != "constant" or term.multiplier is None:
        return term
    multiplier = Input(term.multiplier.column, centre=location, scale=spread or 1.0)
    return replace(term, multiplier=multiplier)


@dataclass(frozen=True)
class TermCut:
    """How the inputs of a term are cut into cells.

    Attributes
    ----------
    term : BoundTerm
    bins : Bins
        Of its value.
    high : float
        Greatest value.
    levels : ndarray of shape (n_levels,), or None
        Of its group.
    """

    term: BoundTerm
    bins: Bins
    high: float = 0.0
    levels: Floats | None = None

    @classmethod
    def of(
        cls,
        term: BoundTerm,
        sketches: Mapping[Input, Sketch],
        levels: Mapping[Input, Floats],
        n: int,
    ) -> TermCut:
        """Cut into about ``n`` bins a curve; levels are kept as they are.

        ``levels`` are the distinct values of inputs that are levels.
        """
        if term.value is None:
            return cls(term, Bins.of_values(np.zeros(1)))
        if term.family == "levels":
            return cls(term, Bins.of_values(levels[term.value]))
        bins = Bins.of(sketches[term.value], n)
        of_group = None if term.group is None else levels[term.group]
        return cls(term, bins, sketches[term.value].high, of_group)

    def __len__(self) -> int:
        return len(self.bins) * self.n_curves

    @property
    def n_curves(self) -> int:
        """How many curves have these bins."""
        return 1 if self.levels is None else len(self.levels)

    @property
    def exact(self) -> bool:
        """Whether every cell holds one distinct input."""
        return self.bins.exact

    @property
    def origin(self) -> Floats:
        """A value in each cell, from which sums are taken, (n_cells,)."""
        return self.bins.origin if self.n_curves == 1 else np.tile(self.bins.origin, self.n_curves)

    def coded(
        self, inputs: list[Floats], kind: Any
    ) -> tuple[NDArray[np.unsignedinteger[Any]], Floats]:
        """Return the code of each row, and the value whose sums are taken, each (n,)."""
        by_input = dict(zip(self.term.inputs, inputs, strict=True))
        value = np.zeros(len(inputs[0])) if self.term.value is None else by_input[self.term.value]
        if len(inputs) == 1 and kind is np.uint16 and len(self.bins) < MOST_BINS:
            return self.bins.codes(value), value
        codes = self._binned(value)
        missing = np.any([np.isnan(each) for each in inputs], axis=0)
        if self.levels is not None and self.term.group is not None:
            group = by_input[self.term.group]
            place = np.minimum(np.searchsorted(self.levels, group), len(self.levels) - 1)
            codes = place * len(self.bins) + codes
        out = codes.astype(kind)
        if missing.any():
            out[missing] = np.iinfo(kind).max
        return out, value

    def _binned(self, value: Floats) -> NDArray[np.int64]:
        if len(self.bins) < MOST_BINS:
            return self.bins.codes(value).astype(np.int64)
        return np.searchsorted(self.bins.edges, value, side="right")

    def cells(self, filled: NDArray[np.bool_], values: Floats) -> Cells:
        """Make cells of those that hold rows, at the given values."""
        if self.levels is None:
            return self.term.cells(values)
        level = np.repeat(self.levels, len(self.bins))[filled]
        return self.term.cells(np.column_stack([level, values]))

    def ordered(self, filled: NDArray[np.bool_], values: Floats) -> Floats:
        """Part values that rounding has made equal, in place, curve by curve."""
        if self.levels is None:
            return increasing(values)
        curve = np.repeat(np.arange(len(self.levels)), len(self.bins))[filled]
        for first in np.unique(curve):
            part = curve == first
            values[part] = increasing(values[part])
        return values
