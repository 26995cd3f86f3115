"""Training rows that further rows are added to: sums add up, on cells that hold both.

Where every distinct value is kept, so are those of the further rows. Where there are bins, they
keep their edges; there are new ones beyond the range so far, and for levels that were never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dsgp import memory
from dsgp.additive import BinEquations, Equations, RowEquations
from dsgp.additive.joining import faded, in_units, joined, moved, tabled, with_cells, without_faded
from dsgp.additive.streaming import statistics
from dsgp.additive.survey import Survey, survey
from dsgp.additive.tables import counted_pairs
from dsgp.errors import DataError, MemoryLimitError
from dsgp.models.clock import Watch
from dsgp.models.gaussian.rows import Constant, Training, exact_is_cheap
from dsgp.models.rows.bins import BIN_TABLE_BYTES, wanted_bins
from dsgp.models.rows.budget import code_bytes, exact_bytes, pair_bytes, stream_bytes
from dsgp.models.rows.columns import TermRows, missing_of
from dsgp.models.rows.exact import read_all
from dsgp.rows.coding import TermCut, encode_term, multiplier_of
from dsgp.rows.encode import Sketch
from dsgp.rows.extending import Extended
from dsgp.rows.sources import Source
from dsgp.rows.table import Layout, RowTable
from dsgp.rows.usable import require_usable_range, require_usable_target
from dsgp.terms import BoundTerm, Cells, Codes, Floats, MultipliedCells, sum_by

# Rows and cells whose weight has faded to this share of the largest are nothing to float64.
_LEAST_WEIGHT = 1e-18
# Two-way tables may grow to so many times those that a fit begins with.
_MOST_GROWTH = 4.0
_REMEDY = "fit the model again, on all rows"


def grown(
    training: Training,
    source: Source,
    bins: str | int | None,
    share: float = 1.0,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Add the rows of a source to those of a fit.

    Parameters
    ----------
    training : Training
    source : Source
        Its columns are those that the terms read, the terms that were left out too.
    bins : "auto", int or None
        As of the estimator.
    share : float
        What a row so far counts for from now on.
    watch : callable
        As of ``prepare``.

    Raises
    ------
    DataError
        As of ``prepare``; and if a term that was left out, as its inputs did not vary, now has some
        that do.
    MemoryLimitError
        If the rows would not fit.
    """
    if share != 1.0:
        training = _faded(training, share)
    if training.cuts is not None:
        return _grown_bins(training, training.cuts, source, bins, watch)
    training = _grown_exactly(training, source)
    n_rows = training.equations.n_rows
    if isinstance(training.equations, RowEquations):
        n_rows = training.equations.table.n_rows
    if bins == "auto" and not exact_is_cheap(int(n_rows), len(training.names), training.terms):
        return binned(training, bins)
    return training


def normalised(training: Training) -> Training:
    """Return training rows in units where target and weights are about 1 again."""
    equations = training.equations
    weight = equations.total_weight / equations.n_rows
    mean = equations.total_information / equations.total_weight
    variance = equations.quadratic / equations.total_weight - mean**2
    scale = float(np.sqrt(max(variance, 0.0))) or 1.0
    return replace(
        training,
        equations=in_units(equations, mean, scale, 1 / weight),
        offset=training.offset + training.scale * mean,
        scale=training.scale * scale,
        weight_scale=training.weight_scale * weight,
    )


def _faded(training: Training, share: float) -> Training:
    """Let all rows count less, and forget those that no digit is left of."""
    equations, kept = without_faded(faded(training.equations, share), _LEAST_WEIGHT)
    spreads, places = training.spreads, training.places
    if spreads is not None:
        spreads = [spread[some] for spread, some in zip(spreads, kept, strict=True)]
    if places is not None:
        places = [place[some] for place, some in zip(places, kept, strict=True)]
    return replace(training, equations=equations, spreads=spreads, places=places)


# ---------------------------------------------------------------- every distinct value


def _grown_exactly(training: Training, source: Source) -> Training:
    """Take the distinct values of the further rows beside those there are."""
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
    left_out = _still_constant(
        training.left_out,
        [Constant.of(one.term, one.term.read(by_name)) for one in training.left_out],
    )
    cells: list[Cells] = []
    codes: list[Codes] = []
    moves: list[Codes] = []
    multipliers: dict[int, Floats] = {}
    for d, (term, old) in enumerate(zip(training.terms, equations.layout.cells, strict=True)):
        inputs = term.read(by_name)
        _require_usable(term, inputs)
        new, code = encode_term(term, inputs)
        points = old.points[:0] if new is None else new.points
        union, move, to = old.with_inputs(points)
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
        n_missing=_summed(training.n_missing, n_missing),
        left_out=left_out,
    )


# ---------------------------------------------------------------- bins


def _grown_bins(
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
    left_out = _still_constant(
        training.left_out,
        [
            Constant.of_sketches(one.term, surveyed.sketches[part])
            for one, part in zip(training.left_out, rows.parts[len(cuts) :], strict=True)
        ],
    )
    extended = _extended(training, cuts, rows, surveyed, bins)
    with_pairs = isinstance(training.equations, BinEquations)
    _require_memory(training, [one.cut for one in extended], surveyed, source)
    of_terms = rows.with_terms(training.terms)
    summed = statistics(
        of_terms.source,
        surveyed.lengths,
        [one.cut for one in extended],
        of_terms.parts,
        (training.offset, training.scale),
        with_pairs=with_pairs,
        watch=partial(watch, "summing rows"),
    )
    further = in_units(
        summed.equations,
        (training.offset - summed.offset) / summed.scale,
        training.scale / summed.scale,
        summed.weight_scale / training.weight_scale,
    )
    assert training.places is not None
    new_cuts = [one.cut for one in extended]
    places = [one.move[old] for one, old in zip(extended, training.places, strict=True)]
    before = _in_cuts(new_cuts, places, training.equations, _spreads_of(training))
    after = _in_cuts(new_cuts, summed.places, further, summed.spreads)
    merged = [_Merged.of(cut, parts) for cut, *parts in zip(new_cuts, before, after, strict=True)]
    layout = Layout(training.equations.layout.names, tuple(one.cells for one in merged))
    total = joined(
        moved(training.equations, layout, [one.moves[0] for one in merged]),
        moved(further, layout, [one.moves[1] for one in merged]),
    )
    return _with_merged(
        replace(
            training,
            n_missing=_summed(training.n_missing, missing_of(rows, surveyed)),
            left_out=left_out,
        ),
        total,
        new_cuts,
        merged,
    )


@dataclass(frozen=True)
class _InCut:
    """Some rows in the cells of a cut: which cells, and where rows are in each.

    Attributes
    ----------
    places : ndarray of int, shape (n_cells,)
        Among the cells of the cut; several may be the same.
    beyond : ndarray of shape (n_cells,)
        Mean of the values, from the origin of the cell of the cut.
    weight, spread : ndarray of shape (n_cells,)
        Of the rows, and the variance of their values.
    """

    places: Codes
    beyond: Floats
    weight: Floats
    spread: Floats

    @classmethod
    def of(
        cls, cut: TermCut, places: Codes, cells: Cells, weight: Floats, spread: Floats
    ) -> _InCut:
        return cls(places, _values_of(cells) - cut.origin[places], weight, spread)


def _in_cuts(
    cuts: Sequence[TermCut], places: Sequence[Codes], equations: Equations, spreads: list[Floats]
) -> list[_InCut]:
    layout = equations.layout
    weights = layout.parts(equations.weight)
    parts = zip(cuts, places, layout.cells, weights, spreads, strict=True)
    return [_InCut.of(*part) for part in parts]


@dataclass(frozen=True)
class _Merged:
    """Cells of several sets of rows together.

    Attributes
    ----------
    places : ndarray of int, shape (n_cells,)
        Cells of the cut that have rows.
    cells : Cells
    spread : ndarray of shape (n_cells,)
    moves : list of ndarray of int
        Where the cells of each set went.
    """

    places: Codes
    cells: Cells
    spread: Floats
    moves: Sequence[Codes]

    @classmethod
    def of(cls, cut: TermCut, parts: Sequence[_InCut]) -> _Merged:
        places = np.unique(np.concatenate([part.places for part in parts]))
        moves: list[Codes] = [np.searchsorted(places, part.places) for part in parts]
        weight, beyond, spread = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("weight", "beyond", "spread")
        )
        to, n = np.concatenate(moves), len(places)
        weight = np.maximum(weight, np.finfo(float).tiny)
        total = sum_by(to, n, weight)
        mean = sum_by(to, n, weight * beyond) / total
        within = sum_by(to, n, weight * (spread + (beyond - mean[to]) ** 2)) / total
        filled = np.zeros(len(cut), dtype=bool)
        filled[places] = True
        if cut.exact or cut.pairs is not None:  # pairs know the variances of their bins
            mean, within = np.zeros(n), np.zeros(n)
        values = cut.ordered(filled, cut.origin[places] + mean)
        return cls(places, cut.cells(filled, values), within, moves)


def _values_of(cells: Cells) -> Floats:
    """Value of each cell of a cut, (n_cells,): 0 of pairs, which stand where their bins are."""
    inner = cells.inner if isinstance(cells, MultipliedCells) else cells
    return inner.points if inner.points.ndim == 1 else inner.points[:, 1]


def _spreads_of(training: Training) -> list[Floats]:
    if training.spreads is not None:
        return training.spreads
    return [np.zeros(len(cells)) for cells in training.equations.layout.cells]


def _with_merged(
    training: Training, equations: Equations, cuts: list[TermCut], merged: list[_Merged]
) -> Training:
    spreads = [one.spread for one in merged]
    return replace(
        training,
        equations=with_cells(equations, equations.layout, spreads),
        spreads=None if all(cut.exact for cut in cuts) else spreads,
        cuts=cuts,
        places=[one.places for one in merged],
    )


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
    """Refuse what would not fit: tables beside those there are, or codes of all rows."""
    with_pairs = isinstance(training.equations, BinEquations)
    if with_pairs and pair_bytes(cuts) > _MOST_GROWTH * BIN_TABLE_BYTES:
        raise MemoryLimitError(
            f"with the levels of the new rows the two-way tables would take "
            f"{pair_bytes(cuts) / 1e9:.1f} GB: {_REMEDY}"
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
    memory.require("an update", needed, "pass fewer rows at a time, or " + _REMEDY)


# ---------------------------------------------------------------- from distinct values to bins


def binned(training: Training, bins: str | int | None) -> Training:
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
        inputs = _inputs_of(term, cells)
        sketches = {
            each: _sketch_of(values, weight)
            for each, values in zip(term.inputs, inputs, strict=True)
        }
        levels = {each: sketches[each].values for each in term.level_inputs}
        cut = TermCut.of(term, sketches, levels, n)
        places = cut.coded(inputs, np.uint32)[0].astype(np.int64)
        part = _InCut.of(cut, places, cells, weight, np.zeros(len(cells)))
        cuts.append(cut)
        merged.append(_Merged.of(cut, [part]))
    to = Layout(layout.names, tuple(one.cells for one in merged))
    total = moved(equations, to, [one.moves[0] for one in merged])
    assert isinstance(total, RowEquations)
    if pair_bytes(cuts) <= BIN_TABLE_BYTES:
        memory.require("an update", 4 * pair_bytes(cuts), _REMEDY)
        each = [np.arange(len(one.cells)) for one in merged]
        pairs = counted_pairs(total.table, each, total.row_weight)
        return _with_merged(training, tabled(total, pairs), cuts, merged)
    return _with_merged(training, total, cuts, merged)


def _inputs_of(term: BoundTerm, cells: Cells) -> list[Floats]:
    """Return the inputs of cells, one after the other; undoes ``BoundTerm.joined``."""
    columns = [cells.points] if cells.points.ndim == 1 else list(cells.points.T)
    return columns if term.value is not None else columns[1:]


def _sketch_of(values: Floats, weight: Floats) -> Sketch:
    distinct, where = np.unique(values, return_inverse=True)
    counts = np.maximum(sum_by(where.ravel(), len(distinct), weight), np.finfo(float).tiny)
    return Sketch(distinct, counts, float(distinct[0]), float(distinct[-1]), complete=True)


# ---------------------------------------------------------------- checks


def _require_usable(term: BoundTerm, inputs: list[Floats]) -> None:
    for each, values in zip(term.inputs, inputs, strict=True):
        if each not in term.level_inputs and not np.isnan(values).all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            require_usable_range(each.column, low, high)


def _still_constant(before: list[Constant], further: list[Constant]) -> list[Constant]:
    """Put the ends of inputs that did not vary together; refuse such as now do."""
    together = [one.merged(other) for one, other in zip(before, further, strict=True)]
    for one in together:
        if one.varies:
            columns = " and ".join(repr(name) for name in one.term.columns)
            raise DataError(
                f"term {one.term.name!r}: input column {columns} did not vary in the rows that the "
                f"model was fitted to, and has other values in the new ones, so that the model has "
                f"no function of it that could be updated: {_REMEDY}"
            )
    return together


def _summed(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}
