"""Distinct values put into the bins of a fit on as many rows."""

from __future__ import annotations

import numpy as np

from dsgp import memory
from dsgp.additive import RowEquations
from dsgp.additive.joining import moved, tabled
from dsgp.additive.tables import counted_pairs
from dsgp.models.gaussian.growing.merging import InCut, Merged, with_merged
from dsgp.models.gaussian.growing.refusals import REMEDY, inputs_of
from dsgp.models.gaussian.rows import Training
from dsgp.models.rows.bins import BIN_TABLE_BYTES, wanted_bins
from dsgp.models.rows.budget import pair_bytes
from dsgp.rows.coding import TermCut
from dsgp.rows.encode import Sketch
from dsgp.rows.table import Layout
from dsgp.terms import Codes, Floats, sum_by


def put_into_bins(training: Training, bins: str | int | None) -> Training:
    """Put distinct values into the bins of a fit on so many rows, and keep tables if they are few.

    The rows are those that are kept; bins are cut by the distinct values and their weights.
    """
    equations = training.equations
    assert isinstance(equations, RowEquations)
    layout = equations.layout
    cuts, merged = [], []
    for term, cells, weight, n in zip(
        training.terms,
        layout.cells,
        layout.parts(equations.weight),
        wanted_bins(training.terms, bins),
        strict=True,
    ):
        inputs = inputs_of(term, cells)
        sketches = {
            each: _sketch_of(values, weight)
            for each, values in zip(term.inputs, inputs, strict=True)
        }
        levels = {each: sketches[each].values for each in term.level_inputs}
        cut = TermCut.of(term, sketches, levels, n)
        places = cut.coded(inputs, np.uint32)[0].astype(np.int64)
        part = InCut.of(cut, places, cells, weight, np.zeros(len(cells)))
        cuts.append(cut)
        merged.append(Merged.of(cut, [part]))
    to = Layout(layout.names, tuple(one.cells for one in merged))
    moves = [one.moves[0] for one in merged]
    total = moved(equations, to, moves)
    assert isinstance(total, RowEquations)
    if pair_bytes(cuts) <= BIN_TABLE_BYTES:
        memory.require("an update", 4 * pair_bytes(cuts), REMEDY)
        each: list[Codes] = [np.arange(len(one.cells)) for one in merged]
        pairs = counted_pairs(total.table, each, total.row_weight)
        return with_merged(training, tabled(total, pairs), cuts, merged)
    return with_merged(training, total, cuts, merged)


def _sketch_of(values: Floats, weight: Floats) -> Sketch:
    distinct, where = np.unique(values, return_inverse=True)
    counts = np.maximum(sum_by(where.ravel(), len(distinct), weight), np.finfo(float).tiny)
    return Sketch(distinct, counts, float(distinct[0]), float(distinct[-1]), complete=True)
