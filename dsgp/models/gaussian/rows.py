"""Prepared training rows: encoded or binned, in units where target and weights are about 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from dsgp.rows.coding import TermCut
from dsgp.rows.encode import Sketch
from dsgp.rows.sources import Source
from dsgp.rows.usable import (
    constant_target,
    location_and_scale,
    require_usable_scale,
    require_usable_target,
)
from dsgp.terms import BoundTerm, Codes, Floats
from dsgp.worker_blocks import workers_that_keep

# Inputs (rows times columns) in memory up to which every distinct value is kept, which takes about
# a second.
EXACT_INPUTS = 100_000
# The same for rough kernels, which lose accuracy by bins and are worth more work.
EXACT_ROUGH_INPUTS = 10_000_000
# Number of values that workers keep per row, beside its code.
_ROW_NUMBERS = 3


@dataclass(frozen=True)
class Constant:
    """A term that has no function, because its inputs did not vary.

    Attributes
    ----------
    term : BoundTerm
    low, high : tuple of float
        Least and greatest value of each of its inputs; NaN where all were missing.
    """

    term: BoundTerm
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, term: BoundTerm, inputs: Sequence[Floats]) -> Constant:
        """Find the ends of its inputs, (n_rows,) each."""
        seen = [values[~np.isnan(values)] for values in inputs]
        low = tuple(float(some.min()) if len(some) else math.nan for some in seen)
        high = tuple(float(some.max()) if len(some) else math.nan for some in seen)
        return cls(term, low, high)

    @classmethod
    def of_sketches(cls, term: BoundTerm, sketches: Sequence[Sketch]) -> Constant:
        """Find them by sketches of the inputs."""
        ends = [
            (one.low, one.high) if one.low <= one.high else (math.nan, math.nan) for one in sketches
        ]
        return cls(term, tuple(low for low, _ in ends), tuple(high for _, high in ends))

    def merged(self, other: Constant) -> Constant:
        """Return the ends of the inputs of both."""
        low = tuple(float(np.fmin(a, b)) for a, b in zip(self.low, other.low, strict=True))
        high = tuple(float(np.fmax(a, b)) for a, b in zip(self.high, other.high, strict=True))
        return Constant(self.term, low, high)

    @property
    def varies(self) -> bool:
        """Whether rows with such inputs have a function after all."""
        if any(math.isnan(low) for low in self.low):  # nothing is known of an input
            return False
        differ = [low < high for low, high in zip(self.low, self.high, strict=True)]
        if self.term.multiplier is not None and self.low[-1] == self.high[-1] == 0.0:
            return False
        return all(differ) if self.term.other is not None else any(differ)


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
    left_out : list of Constant
        The terms that ``constant`` names.
    cuts, places
        How the inputs of each term were cut, and which cells of the cut are those of the equations;
        None where every distinct value is kept.
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
    left_out: list[Constant] = field(default_factory=list)
    cuts: list[TermCut] | None = None
    places: list[Codes] | None = None

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
        Called with the stage, and the number of rows read in it so far.

    Raises
    ------
    DataError
        If a value is missing, infinite, not a number or beyond what float64 can square, or
        shapes do not agree.
    MemoryLimitError
        If the rows would not fit.
    """
    cheap = source.in_memory and exact_is_cheap(source.n_rows, len(source.names), terms)
    if bins is None or (bins == "auto" and cheap):
        return _exact(source, terms)
    if source.n_rows is not None:  # what is needed in any case; the survey determines the rest
        plan_memory(source.n_rows, len(source.names), [], True, source.weighted)
    rows = TermRows(source, terms)
    surveyed = survey(rows.source, partial(watch, "reading columns"), rows.levels)
    return binned(rows, surveyed, bins, watch)


def exact_is_cheap(n_rows: int | None, n_columns: int, terms: list[BoundTerm]) -> bool:
    """Return whether every distinct value of so many rows in memory is kept by default."""
    if n_rows is None:
        return False
    if any(term.is_dense for term in terms) and n_rows > EXACT_DENSE_ROWS:
        return False
    rough = min((term.kernel.order for term in terms), default=4) == 1
    limit = EXACT_ROUGH_INPUTS if rough else EXACT_INPUTS
    return n_rows * n_columns <= limit


def _exact(source: Source, terms: list[BoundTerm]) -> Training:
    rows, n_missing = read_all(source)
    y, weight = rows.y, rows.weight
    assert y is not None
    weight_scale = 1.0 if weight is None else float(np.mean(weight))
    if weight is not None:
        weight = weight / weight_scale if weight.min() < weight.max() else None
    table, kept, constant = encode_all(source, terms, rows.columns, len(y), weight)
    by_name = dict(zip(source.names, rows.columns, strict=True))
    left_out = [Constant.of(term, term.read(by_name)) for term in terms if term.name in constant]
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
        left_out=left_out,
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
        left_out=[
            Constant.of_sketches(term, surveyed.sketches[part])
            for d, (term, part) in enumerate(zip(plan.all_terms, rows.parts, strict=True))
            if d not in plan.varying
        ],
        cuts=plan.cuts,
        places=[*summed.places],
    )
    return replace(training, too_wide=too_wide)


def _workers(n_rows: int, plan: BinPlan) -> Any | None:
    """Return the client whose workers are to keep the codes, if there are passes over them.

    Receiving the tables of one part from a worker takes as long as summing its rows here.
    """
    multiplied = any(cut.term.multiplier is not None for cut in plan.cuts)
    if plan.with_pairs or multiplied or n_parts(n_rows, plan.cuts) < 2:
        return None
    # Codes, weights, and the contribution of all terms to the rows before and after a change.
    return workers_that_keep(n_rows * (code_bytes(plan.cuts) + 8.0 * _ROW_NUMBERS))


def _pilot(surveyed: Survey) -> tuple[float, float]:
    """Approximate location and scale of the target, from its sketch."""
    values, counts = surveyed.target.values, surveyed.target.counts
    location = float(np.average(values, weights=counts))
    size = max(abs(surveyed.target.low - location), abs(surveyed.target.high - location))
    spread = float(np.sqrt(np.average(((values - location) / size) ** 2, weights=counts)))
    return location, size * spread if spread > 0 else size
