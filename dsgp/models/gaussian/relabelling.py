"""Training rows whose levels have other numbers, as there are new ones among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dsgp.additive.joining import with_cells
from dsgp.kernels import CentredProduct, Kernel, Margin
from dsgp.models.gaussian.rows import Constant, Training
from dsgp.rows.coding import BinsOfRows, PairedBins, TermCut
from dsgp.rows.encode import Bins
from dsgp.rows.table import Layout
from dsgp.terms import BoundTerm, Cells, Codes, Floats, Input, MultipliedCells

Moves = Mapping[str, Codes]


def relabelled(training: Training, moves: Moves) -> Training:
    """Give levels their new numbers, in cells, cuts and margins.

    Parameters
    ----------
    training : Training
    moves : mapping of str to ndarray of int
        New number of each level by column, in the order of before, and of a missing one.
    """
    if not moves:
        return training
    equations = training.equations
    cells = tuple(
        _cells(term, each, moves)
        for term, each in zip(training.terms, equations.layout.cells, strict=True)
    )
    terms = [_term(term, moves) for term in training.terms]
    cuts = training.cuts
    if cuts is not None:
        cuts = [_cut(cut, term, moves) for cut, term in zip(cuts, terms, strict=True)]
    return replace(
        training,
        terms=terms,
        equations=with_cells(equations, Layout(equations.layout.names, cells), training.spreads),
        left_out=[_constant(one, moves) for one in training.left_out],
        cuts=cuts,
    )


def _moved(term: BoundTerm, one: Input | None, values: Floats, moves: Moves) -> Floats:
    """New numbers of an input of a term, if it is a column of such levels."""
    if one is None or one not in term.level_inputs or one.column not in moves:
        return values
    return moves[one.column][values.astype(np.int64)].astype(np.float64)


def _cells(term: BoundTerm, cells: Cells, moves: Moves) -> Cells:
    inner = cells.inner if isinstance(cells, MultipliedCells) else cells
    if inner.points.ndim == 1:
        return term.cells(_moved(term, term.value, inner.points, moves))
    first, second = (term.value, term.other) if term.other is not None else (term.group, term.value)
    columns = zip((first, second), inner.points.T, strict=True)
    return term.cells(np.column_stack([_moved(term, one, part, moves) for one, part in columns]))


def _term(term: BoundTerm, moves: Moves) -> BoundTerm:
    kernel: Kernel = term.kernel
    if not isinstance(kernel, CentredProduct) or not kernel.margins:
        return term
    margins = tuple(
        Margin(tuple(_moved(term, one, np.array(margin.points), moves).tolist()), margin.shares)
        for one, margin in zip((term.value, term.other), kernel.margins, strict=True)
    )
    return term.with_kernel(replace(kernel, margins=margins))


def _cut(cut: TermCut, term: BoundTerm, moves: Moves) -> TermCut:
    cut = replace(cut, term=term)
    if cut.levels is not None:
        return replace(cut, levels=_moved(term, term.group, cut.levels, moves))
    if cut.pairs is not None:
        first = _side(cut.pairs.first, term, term.value, moves)
        other = _side(cut.pairs.other, term, term.other, moves)
        return replace(cut, bins=first.bins, pairs=PairedBins(first, other))
    if term.value is not None and term.value in term.level_inputs:
        return replace(cut, bins=Bins.of_values(_moved(term, term.value, cut.bins.origin, moves)))
    return cut


def _side(side: BinsOfRows, term: BoundTerm, one: Input | None, moves: Moves) -> BinsOfRows:
    if one is None or one not in term.level_inputs:
        return side
    values = _moved(term, one, side.bins.origin, moves)
    return BinsOfRows(Bins.of_values(values), values, side.variance, float(values[-1]))


def _constant(constant: Constant, moves: Moves) -> Constant:
    term = constant.term
    low, high = (
        tuple(
            float(value if np.isnan(value) else _moved(term, one, np.array([value]), moves)[0])
            for one, value in zip(term.inputs, ends, strict=True)
        )
        for ends in (constant.low, constant.high)
    )
    return Constant(_term(term, moves), low, high)
