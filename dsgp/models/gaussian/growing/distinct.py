"""Further rows for fits that keep every distinct value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsgp import memory
from dsgp.additive import RowEquations
from dsgp.additive.joining import joined, moved
from dsgp.models.gaussian.growing.refusals import (
    added_counts,
    require_usable_cells,
    require_usable_inputs,
    still_constant,
)
from dsgp.models.gaussian.rows import Constant, Training
from dsgp.models.rows.budget import exact_bytes
from dsgp.models.rows.exact import read_all
from dsgp.rows.coding import encode_term, multiplier_of
from dsgp.rows.sources import Source
from dsgp.rows.table import Layout, RowTable
from dsgp.rows.usable import require_usable_target
from dsgp.terms import Cells, Codes, Floats


def with_distinct_values(training: Training, source: Source) -> Training:
    """Add the distinct values of the further rows to the present ones."""
    equations = training.equations
    assert isinstance(equations, RowEquations)
    rows, n_missing = read_all(source)
    n_rows = equations.table.n_rows + len(rows)
    memory.require(
        f"an update that keeps every distinct value of {n_rows} rows (bins=None, or few rows)",
        exact_bytes(n_rows, len(training.terms)),
        "fit the model again with bins='auto', or on fewer rows",
    )
    assert rows.y is not None
    require_usable_target(float(np.abs(rows.y).max()))
    by_name = dict(zip(source.names, rows.columns, strict=True))
    left_out = still_constant(
        training.left_out,
        [Constant.of(one.term, one.term.read(by_name)) for one in training.left_out],
    )
    cells: list[Cells] = []
    codes: list[Codes] = []
    moves: list[Codes] = []
    multipliers: dict[int, Floats] = {}
    for d, (term, old) in enumerate(zip(training.terms, equations.layout.cells, strict=True)):
        inputs = term.read(by_name)
        require_usable_inputs(term, inputs)
        new, code = encode_term(term, inputs)
        points = old.points[:0] if new is None else new.points
        union, move, to = old.with_inputs(points)
        require_usable_cells(term, union)
        seen = code < len(points)
        among = np.full(len(code), len(union), dtype=np.int64)
        among[seen] = to[code[seen]]
        cells.append(union)
        codes.append(among)
        moves.append(move)
        if (z := multiplier_of(term, inputs)) is not None:
            multipliers[d] = z
    layout = Layout(equations.layout.names, tuple(cells))
    before = moved(equations, layout, moves)
    assert isinstance(before, RowEquations)
    kind = before.table.codes.dtype
    added = np.full((len(codes), len(rows)), np.iinfo(kind).max, dtype=kind)
    for row, numbers, those in zip(added, codes, cells, strict=True):
        seen = numbers < len(those)
        row[seen] = numbers[seen]
    weight = None if rows.weight is None else rows.weight / training.weight_scale
    if weight is None and training.weight_scale != 1.0:
        weight = np.full(len(rows), 1 / training.weight_scale)
    table = RowTable(layout.names, layout.cells, added, multipliers)
    after = RowEquations.of(table, (rows.y - training.offset) / training.scale, weight)
    return replace(
        training,
        equations=joined(before, after),
        n_missing=added_counts(training.n_missing, n_missing),
        left_out=left_out,
    )
