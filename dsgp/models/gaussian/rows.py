"""Training rows made ready: encoded or binned, in units where target and weights are about 1."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dsgp.additive import Equations, RowEquations
from dsgp.additive.streaming import n_parts
from dsgp.additive.survey import Survey, survey
from dsgp.models.clock import Watch
from dsgp.models.rows.bins import BinPlan, summed_by_bins
from dsgp.models.rows.budget import code_bytes, plan_memory
from dsgp.models.rows.columns import TermRows, missing_of
from dsgp.models.rows.exact import EXACT_DENSE_ROWS, encode_all, read_all
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.sources import Source
from dsgp.rows.usable import (
    constant_target,
    location_and_scale,
    require_usable_scale,
    require_usable_target,
)
from dsgp.terms import BoundTerm, Floats
from dsgp.worker_blocks import workers_that_keep

# Inputs (rows times columns) in memory up to which every distinct value is kept: a second's work.
EXACT_INPUTS = 100_000
# Rough kernels lose by bins, and are worth more work.
EXACT_ROUGH_INPUTS = 10_000_000
# Kept of a row by workers, beside its code.
_ROW_NUMBERS = 3


@dataclass(frozen=True)
class Training:
    """Rows of positive weight, ready for the solver.

    Attributes
    ----------
    names : tuple of str
        All columns.
    named : bool
        Whether the names came with the data.
    terms : list of BoundTerm
        Those of the equations.
    constant : list of str
        Terms whose inputs do not vary, which are left out.
    equations : Equations
        Of (y − offset) / scale, with weights divided by ``weight_scale``, their mean.
    spreads : list of ndarray, or None
        Weighted variance of the inputs in each bin; None where every distinct value is kept.
    n_missing : dict of str to int
        Rows in which a column is missing, if any.
    too_wide : dict of str to int
        Columns whose target varies within the bins by more than noise, and how many bins would do.
    """

    names: tuple[str, ...]
    named: bool
    terms: list[BoundTerm]
    constant: list[str]
    equations: Equations
    offset: float
    scale: float
    weight_scale: float
    spreads: list[Floats] | None
    n_missing: dict[str, int]
    too_wide: dict[str, int] = field(default_factory=dict)

    @property
    def noise_scale(self) -> float:
        """The noise variance of the user is this many times that of the solver."""
        return self.scale**2 * self.weight_scale


def prepare(
    source: Source,
    terms: list[BoundTerm],
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Check and prepare what ``fit`` was given.

    Parameters
    ----------
    source : Source
    terms : list of BoundTerm
        Their kernels say how fine the bins are to be.
    bins : "auto", int or None
    watch : callable
        Told the stage, and the number of rows read in it so far.

    Raises
    ------
    DataError
        If a value is missing, infinite, not a number or beyond what float64 can square, or
        shapes do not agree.
    MemoryLimitError
        If the rows would not fit.
    """
    if bins is None or (bins == "auto" and _exact_is_cheap(source, terms)):
        return _exact(source, terms)
    if source.n_rows is not None:  # what is sure to be needed; the survey tells the rest
        plan_memory(source.n_rows, len(source.names), [], True, source.weighted)
    rows = TermRows(source, terms)
    surveyed = survey(rows.source, partial(watch, "reading columns"), rows.levels)
    return binned(rows, surveyed, bins, watch)


def _exact_is_cheap(source: Source, terms: list[BoundTerm]) -> bool:
    if not source.in_memory or source.n_rows is None:
        return False
    if any(term.is_dense for term in terms) and source.n_rows > EXACT_DENSE_ROWS:
        return False
    rough = min((term.kernel.order for term in terms), default=4) == 1
    limit = EXACT_ROUGH_INPUTS if rough else EXACT_INPUTS
    return source.n_rows * len(source.names) <= limit


def _exact(source: Source, terms: list[BoundTerm]) -> Training:
    rows, n_missing = read_all(source)
    y, weight = rows.y, rows.weight
    assert y is not None
    weight_scale = 1.0 if weight is None else float(np.mean(weight))
    if weight is not None:
        weight = weight / weight_scale if weight.min() < weight.max() else None
    table, kept, constant = encode_all(source, terms, rows.columns, len(y), weight)
    report_columns({f"the target {source.target!r}": Extremes().add(y)})
    offset, scale = location_and_scale(y, weight)
    return Training(
        names=tuple(source.names),
        named=source.named,
        terms=kept,
        constant=constant,
        equations=RowEquations.of(table, (y - offset) / scale, weight),
        offset=offset,
        scale=scale,
        weight_scale=weight_scale,
        spreads=None,
        n_missing=n_missing,
    )


def binned(
    rows: TermRows,
    surveyed: Survey,
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Sum the rows by bins, once a survey has said where the values are."""
    source = rows.column_source
    require_usable_target(max(abs(surveyed.target.low), abs(surveyed.target.high)))
    report_columns({f"the target {source.target!r}": surveyed.extremes[-1]})
    if surveyed.target.low == surveyed.target.high:
        pilot = constant_target(surveyed.target.low, surveyed.n_rows)
    else:
        pilot = _pilot(surveyed)
        require_usable_scale(pilot[1])
    plan, summed, too_wide = summed_by_bins(
        rows,
        surveyed,
        bins,
        pilot,
        partial(watch, "summing rows"),
        workers=partial(_workers, surveyed.n_rows),
    )
    training = Training(
        names=tuple(source.names),
        named=source.named,
        terms=plan.terms,
        constant=plan.constant,
        equations=summed.equations,
        offset=summed.offset,
        scale=summed.scale,
        weight_scale=summed.weight_scale,
        spreads=None if plan.exact else summed.spreads,
        n_missing=missing_of(rows, surveyed),
    )
    return replace(training, too_wide=too_wide)


def _workers(n_rows: int, plan: BinPlan) -> Any | None:
    """Return the client whose workers are to keep the codes, if there are passes over them.

    Tables of one part take as long to come from a worker as its rows take here.
    """
    multiplied = any(cut.term.multiplier is not None for cut in plan.cuts)
    if plan.with_pairs or multiplied or n_parts(n_rows, plan.cuts) < 2:
        return None
    # Codes, weights, and what the rows get of all terms before and after a change.
    return workers_that_keep(n_rows * (code_bytes(plan.cuts) + 8.0 * _ROW_NUMBERS))


def _pilot(surveyed: Survey) -> tuple[float, float]:
    """Rough location and scale of the target, from its sketch."""
    values, counts = surveyed.target.values, surveyed.target.counts
    location = float(np.average(values, weights=counts))
    size = max(abs(surveyed.target.low - location), abs(surveyed.target.high - location))
    spread = float(np.sqrt(np.average(((values - location) / size) ** 2, weights=counts)))
    return location, size * spread if spread > 0 else size
