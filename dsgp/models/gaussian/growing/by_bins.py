"""Rows summed by bins, and further ones summed by the same bins, or by more of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from dsgp import memory
from dsgp.additive import BinEquations, RowEquations
from dsgp.additive.joining import in_units, joined, moved
from dsgp.additive.streaming import statistics
from dsgp.additive.survey import Survey, survey
from dsgp.errors import MemoryLimitError
from dsgp.models.clock import Watch
from dsgp.models.gaussian.growing.merging import Merged, in_cuts, spreads_of, with_merged
from dsgp.models.gaussian.growing.refusals import (
    REMEDY,
    added_counts,
    require_usable_cut,
    still_constant,
)
from dsgp.models.gaussian.rows import Constant, Training
from dsgp.models.rows.bins import BIN_TABLE_BYTES, wanted_bins
from dsgp.models.rows.budget import code_bytes, pair_bytes, stream_bytes
from dsgp.models.rows.columns import TermRows, missing_of
from dsgp.rows.coding import TermCut
from dsgp.rows.extending import Extended
from dsgp.rows.sources import Source
from dsgp.rows.table import Layout
from dsgp.rows.usable import require_usable_range, require_usable_target

# Two-way tables may grow to this multiple of those with which a fit begins.
_MOST_GROWTH = 4.0


def with_summed_rows(
    training: Training,
    cuts: list[TermCut],
    source: Source,
    bins: str | int | None,
    watch: Watch,
) -> Training:
    """Sum further rows by bins, and add the sums up."""
    left = [one.term for one in training.left_out]
    rows = TermRows(source, [*training.terms, *left])
    surveyed = survey(rows.source, partial(watch, "reading columns"), rows.levels)
    require_usable_target(max(abs(surveyed.target.low), abs(surveyed.target.high)))
    for position, sketch in enumerate(surveyed.sketches):
        if position not in rows.levels and len(sketch.values):
            require_usable_range(rows.column(position), sketch.low, sketch.high)
    left_out = still_constant(
        training.left_out,
        [
            Constant.of_sketches(one.term, surveyed.sketches[part])
            for one, part in zip(training.left_out, rows.parts[len(cuts) :], strict=True)
        ],
    )
    extended = _extended(training, cuts, rows, surveyed, bins)
    with_pairs = isinstance(training.equations, BinEquations)
    _require_memory(training, [one.cut for one in extended], surveyed, source)
    assert training.places is not None
    new_cuts = [one.cut for one in extended]
    places = [one.move[old] for one, old in zip(extended, training.places, strict=True)]
    for cut in new_cuts:
        require_usable_cut(cut)
    of_terms = rows.with_terms(training.terms)
    summed = statistics(
        of_terms.source,
        surveyed.lengths,
        new_cuts,
        of_terms.parts,
        (training.offset, training.scale),
        with_pairs=with_pairs,
        spare=[int(before[0]) for before in places],
        watch=partial(watch, "summing rows"),
    )
    further = in_units(
        summed.equations,
        (training.offset - summed.offset) / summed.scale,
        training.scale / summed.scale,
        summed.weight_scale / training.weight_scale,
    )
    before = in_cuts(new_cuts, places, training.equations, spreads_of(training))
    after = in_cuts(new_cuts, summed.places, further, summed.spreads)
    merged = [Merged.of(cut, parts) for cut, *parts in zip(new_cuts, before, after, strict=True)]
    layout = Layout(training.equations.layout.names, tuple(one.cells for one in merged))
    moves = [one.moves[0] for one in merged]
    total = joined(
        moved(training.equations, layout, moves),
        moved(further, layout, [one.moves[1] for one in merged]),
    )
    all_rows = replace(
        training,
        n_missing=added_counts(training.n_missing, missing_of(rows, surveyed)),
        left_out=left_out,
    )
    return with_merged(all_rows, total, new_cuts, merged)


def _extended(
    training: Training,
    cuts: list[TermCut],
    rows: TermRows,
    surveyed: Survey,
    bins: str | int | None,
) -> list[Extended]:
    """Extend all cuts to the values and levels of further rows."""
    assert training.places is not None
    weights = training.equations.layout.parts(training.equations.weight)
    wanted = wanted_bins(training.terms, "auto" if bins is None else bins)
    extended = []
    for d, (cut, term) in enumerate(zip(cuts, training.terms, strict=True)):
        part = rows.parts[d]
        by_cell = np.zeros(len(cut))
        by_cell[training.places[d]] = weights[d]
        positions = dict(zip(term.inputs, range(part.start, part.stop), strict=True))
        sketches = {each: surveyed.sketches[j] for each, j in positions.items()}
        levels = {each: surveyed.levels[j] for each, j in positions.items() if j in surveyed.levels}
        extended.append(Extended.of(cut, by_cell, sketches, levels, wanted[d]))
    return extended


def _require_memory(
    training: Training, cuts: list[TermCut], surveyed: Survey, source: Source
) -> None:
    """Raise an error if further tables, or codes of all rows, would not fit into memory."""
    with_pairs = isinstance(training.equations, BinEquations)
    if with_pairs and pair_bytes(cuts) > _MOST_GROWTH * BIN_TABLE_BYTES:
        raise MemoryLimitError(
            f"with the levels of the new rows the two-way tables would take "
            f"{pair_bytes(cuts) / 1e9:.1f} GB: {REMEDY}"
        )
    needed = stream_bytes(
        surveyed.n_rows,
        len(surveyed.sketches),
        cuts,
        with_pairs,
        source.weighted,
        max(surveyed.lengths),
    )
    if isinstance(training.equations, RowEquations):
        n_rows = training.equations.table.n_rows + surveyed.n_rows
        needed += 2 * n_rows * (code_bytes(cuts) + 8.0)
    else:
        needed += 4 * pair_bytes(cuts)
    memory.require("an update", needed, "pass fewer rows at a time, or " + REMEDY)
