"""Prepared training rows of a generalized model: codes of the inputs, unchanged targets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dsgp.additive import RowEquations
from dsgp.additive.streaming import n_parts
from dsgp.additive.survey import survey
from dsgp.errors import DataError
from dsgp.kernels import Kernel
from dsgp.laplace.rows import ResponseRows
from dsgp.likelihoods import Likelihood
from dsgp.models.clock import Watch
from dsgp.models.rows.bins import BinPlan, summed_by_bins
from dsgp.models.rows.budget import code_bytes
from dsgp.models.rows.columns import TermRows, missing_of
from dsgp.models.rows.exact import EXACT_DENSE_ROWS, encode_all, read_all
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.response import EXPOSURE, OFFSET, TRIALS, require_positive, require_shift, shift_of
from dsgp.rows.sources import Source
from dsgp.rows.table import CodesElsewhere, RowTable
from dsgp.terms import BoundTerm, Floats
from dsgp.worker_blocks import workers_that_keep

# Inputs (rows times columns) in memory up to which every distinct value is kept: beyond, bins
# change the functions of a likelihood by far less than their posterior uncertainty.
EXACT_INPUTS = 20_000
# Bins of a column by the order of its kernel.
AUTO_BINS = {1: 4096, 2: 512, 3: 512, 4: 512}
# Number of entries of two-way tables that are multiplied in the time it takes a row to read and add
# to a table.
_MOVES = 8
# Number of values kept per row beside its codes: the target, its weight W, and f.
_NUMBERS = 3
# And for each of several functions, their modes and what follows from them (measured).
_NUMBERS_OF_EACH = 24


@dataclass(frozen=True)
class Responses:
    """Rows of positive weight, ready for a likelihood.

    Attributes
    ----------
    names : tuple of str
        All columns.
    named : bool
        Whether the names came with the data.
    terms : list of BoundTerm
        Those of the rows.
    constant : list of str
        Terms whose inputs do not vary, which are left out.
    rows : ResponseRows
    spreads : list of ndarray, or None
        Variance of the inputs in each bin; None where every distinct value is kept.
    with_pairs : bool
        Whether equations are held as two-way tables of the points, which are few and cost less than
        the rows.
    n_missing : dict of str to int
        Rows in which a column is missing, if any.
    target : str
        Name of the target, for messages.
    too_wide : dict of str to int
        Columns whose target varies within the bins by more than noise, and how many bins would do.
    """

    names: tuple[str, ...]
    named: bool
    terms: list[BoundTerm]
    constant: list[str]
    rows: ResponseRows
    spreads: list[Floats] | None
    with_pairs: bool
    n_missing: dict[str, int]
    target: str
    too_wide: dict[str, int] = field(default_factory=dict)

    def with_kernels(self, kernels: list[Kernel]) -> Responses:
        """Return the same rows for terms with other kernels."""
        terms = [term.with_kernel(kernel) for term, kernel in zip(self.terms, kernels, strict=True)]
        return replace(self, terms=terms)

    def with_target(self, y: Any, more_offset: Floats | None = None) -> Responses:
        """Return the same rows with another target, and with something added to their offset."""
        offset = self.rows.offset
        if more_offset is not None:
            offset = offset + more_offset if len(offset) else more_offset
        return replace(self, rows=replace(self.rows, y=np.asarray(y, np.float64), offset=offset))


def prepare_responses(
    source: Source,
    terms: list[BoundTerm],
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
    *,
    n_functions: int = 1,
) -> Responses:
    """Check and code what ``fit`` was given; targets are the caller's to check.

    Parameters
    ----------
    source : Source
    terms : list of BoundTerm
        Their kernels say how fine the bins are to be.
    bins : "auto", int or None
    watch : callable
        Called with the stage, and the number of rows read in it so far.
    n_functions : int
        Number of functions that are fitted to each row at the same time.

    Raises
    ------
    DataError
        If a value is missing, infinite, not a number or beyond what float64 can square, an
        exposure or a number of trials is not positive, or shapes do not agree.
    MemoryLimitError
        If the rows would not fit.
    """
    cheap = (
        source.in_memory
        and source.n_rows is not None
        and source.n_rows * len(source.names) <= EXACT_INPUTS
        and not (source.n_rows > EXACT_DENSE_ROWS and any(term.is_dense for term in terms))
    )
    if bins is None or (bins == "auto" and cheap):
        rows, n_missing = read_all(source)
        assert rows.y is not None
        table, kept, constant = encode_all(source, terms, rows.columns, len(rows.y), rows.weight)
        numbers = {"y": rows.y, **rows.extra}
        return Responses(
            tuple(source.names),
            source.named,
            kept,
            constant,
            _responses(table, numbers, rows.weight, source),
            None,
            False,
            n_missing,
            source.target,
        )
    term_rows = TermRows(source, terms)
    surveyed = survey(term_rows.source, partial(watch, "reading columns"), term_rows.levels)
    numbers_kept = _NUMBERS + len(source.extra)
    if n_functions > 1:
        numbers_kept += _NUMBERS_OF_EACH * n_functions
    plan, summed, too_wide = summed_by_bins(
        term_rows,
        surveyed,
        bins,
        (0.0, 1.0),
        partial(watch, "coding rows"),
        auto=AUTO_BINS,
        keep=("y", *source.extra),
        kept_numbers=numbers_kept,
        workers=partial(_workers, surveyed.n_rows),
    )
    equations = summed.equations
    assert isinstance(equations, RowEquations)
    weight = equations.row_weight * summed.weight_scale if source.weighted else None
    table = equations.table
    coded = _responses(table, summed.numbers, weight, source)
    with_pairs = plan.with_pairs and _worth_pairs(coded.n_rows, table.n_terms, table.size)
    if not with_pairs and isinstance(table.codes, CodesElsewhere):
        coded = coded.on(replace(table, codes=table.codes.here()))
    return Responses(
        tuple(source.names),
        source.named,
        plan.terms,
        plan.constant,
        coded,
        None if plan.exact else summed.spreads,
        with_pairs,
        missing_of(term_rows, surveyed),
        source.target,
        too_wide,
    )


def _worth_pairs(n_rows: int, n_terms: int, size: int) -> bool:
    """Whether two-way tables of so many points in all cost less than the rows."""
    return n_rows * _MOVES * n_terms > size**2


def _workers(n_rows: int, plan: BinPlan) -> Any | None:
    """Return the client whose workers are to keep the codes, if passes are sums of several parts.

    Receiving the tables of one part from a worker takes as long as summing its rows here.
    """
    size = sum(map(len, plan.cuts))
    multiplied = any(cut.term.multiplier is not None for cut in plan.cuts)
    pairs = plan.with_pairs and _worth_pairs(n_rows, len(plan.cuts), size)
    if multiplied or not pairs or n_parts(n_rows, plan.cuts) < 2:
        return None
    # Codes of points and of the learner's bins, and other numbers per row.
    return workers_that_keep(n_rows * (2 * code_bytes(plan.cuts) + 8.0 * _NUMBERS))


def _responses(
    table: RowTable, numbers: dict[str, Floats], weight: Floats | None, source: Source
) -> ResponseRows:
    exposure = numbers.get(EXPOSURE)
    if exposure is not None and not (exposure > 0).all():
        require_positive(exposure, EXPOSURE, row_of(source, int(np.argmin(exposure > 0))))
    offset = np.asarray(shift_of(numbers)) if numbers.keys() & {OFFSET, EXPOSURE} else np.empty(0)
    report_columns({f"the target {source.target!r}": Extremes().add(numbers["y"])})
    trials = numbers.get(TRIALS, np.empty(0))
    if weight is not None and (weight == 1.0).all():
        weight = None
    return ResponseRows(
        table, numbers["y"], np.empty(0) if weight is None else weight, offset, trials
    )


def require_targets(responses: Responses, likelihood: Likelihood, source: Source) -> None:
    """Raise ``DataError`` of the first row whose target or offset is none of a likelihood's."""
    require_shift(
        likelihood,
        responses.rows.offset,
        source.extra,
        first_row=partial(row_of, source),
        is_training=True,
    )
    y, trials = responses.rows.y, responses.rows.trials
    name = f"the target {responses.target!r}"

    def check(rows: slice, first_row: int) -> None:
        likelihood.check_target(
            y[rows], trials[rows] if len(trials) else None, name, first_row=first_row
        )

    try:
        check(slice(None), 0)
    except DataError:
        good, bad = 0, len(y)  # numbers of rows, of which all are valid, and at least one is not
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                check(slice(good, middle), 0)
                good = middle
            except DataError:
                bad = middle
        # Rows of weight 0 are not among these, but count in the user's numbering.
        check(slice(good, bad), row_of(source, good))
        raise


def row_of(source: Source, position: int) -> int:
    """Number of a row in the table, from that among the rows of positive weight."""
    first = 0
    for load in source.chunks():
        rows = load()
        kept = np.flatnonzero(np.ones(len(rows)) if rows.weight is None else rows.weight)
        if position < len(kept):
            return first + int(kept[position])
        position -= len(kept)
        first += len(rows)
    raise IndexError(position)
