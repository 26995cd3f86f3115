"""Checks of further rows, and counts of them that do not depend on the cells."""

from __future__ import annotations

import numpy as np

from dsgp.errors import DataError
from dsgp.models.gaussian.rows import Constant
from dsgp.rows.coding import TermCut
from dsgp.rows.usable import require_usable_range
from dsgp.terms import BoundTerm, Cells, Floats

REMEDY = "fit the model again, on all rows"


def still_constant(before: list[Constant], further: list[Constant]) -> list[Constant]:
    """Return the ends of inputs that still do not vary; raise an error for those that now do."""
    together = [one.merged(other) for one, other in zip(before, further, strict=True)]
    for one in together:
        if one.varies:
            columns = " and ".join(repr(name) for name in one.term.columns)
            raise DataError(
                f"term {one.term.name!r}: input column {columns} did not vary in the rows that the "
                f"model was fitted to, and has other values in the new ones, so that the model has "
                f"no function of it that could be updated: {REMEDY}"
            )
    return together


def added_counts(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Add up the numbers of rows in which columns are missing."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}


def inputs_of(term: BoundTerm, cells: Cells) -> list[Floats]:
    """Return the inputs of cells, one after the other; undoes ``BoundTerm.joined``."""
    columns = [cells.points] if cells.points.ndim == 1 else list(cells.points.T)
    return columns if term.value is not None else columns[1:]


def require_usable_inputs(term: BoundTerm, inputs: list[Floats]) -> None:
    """Raise ``DataError`` if the further rows alone span more than float64 can square."""
    for each, values in zip(term.inputs, inputs, strict=True):
        if each not in term.level_inputs and not np.isnan(values).all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            require_usable_range(each.column, low, high)


def require_usable_cells(term: BoundTerm, cells: Cells) -> None:
    """Raise ``DataError`` if the distinct values of all rows span more than float64 can square."""
    for each, values in zip(term.inputs, inputs_of(term, cells), strict=True):
        if each not in term.level_inputs and len(values):
            require_usable_range(each.column, float(values.min()), float(values.max()))


def require_usable_cut(cut: TermCut) -> None:
    """Raise ``DataError`` if a cut of all rows spans more than float64 can square."""
    term = cut.term
    sides = [(term.value, cut.bins, cut.high)]
    if cut.pairs is not None:
        first, other = cut.pairs.first, cut.pairs.other
        sides = [(term.value, first.bins, first.high), (term.other, other.bins, other.high)]
    for each, bins, high in sides:
        if each is not None and each not in term.level_inputs:
            require_usable_range(each.column, float(bins.origin[0]), float(high))
