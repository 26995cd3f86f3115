"""Training rows made ready: encoded or binned, in units where target and weights are about 1."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive import Equations, RowEquations
from dsgp.additive.streaming import LOGICAL_BLOCK, Statistics, statistics
from dsgp.additive.survey import Survey, of_positive_weight, survey
from dsgp.additive.tables import BINS, TABLE_BYTES
from dsgp.compute import CPU_COUNT, over_chunks, run
from dsgp.errors import DataError, DataWarning, MemoryLimitError
from dsgp.kernels import Kernel
from dsgp.learning.scales import bins_too_wide
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.coding import TermCut, code_type, encode_term, multiplier_of, placed
from dsgp.rows.encode import (
    ALL_CELLS,
    BIN_CELLS,
    MOST_BINS,
    ROWS_PER_CELL,
    Sketch,
)
from dsgp.rows.encode import Cells as Parts
from dsgp.rows.sources import MappedSource, Rows, Source
from dsgp.rows.table import RowTable
from dsgp.rows.usable import (
    constant_target,
    location_and_scale,
    require_usable_range,
    require_usable_scale,
    require_usable_target,
    tell_constant,
)
from dsgp.terms import BoundTerm, Cells, Floats, Input

# Inputs (rows times columns) in memory up to which every distinct value is kept: a second's work.
EXACT_INPUTS = 100_000
# Rough kernels lose by bins, and are worth more work.
EXACT_ROUGH_INPUTS = 10_000_000
# Rows up to which kernels without a state-space form keep every distinct value.
EXACT_DENSE_ROWS = 1000
# Bins of such a kernel, and of one curve of many.
_DENSE_BINS = 512
_GROUP_BINS = 256
# Bins of a column by the order of its kernel.
AUTO_BINS = {1: MOST_BINS, 2: 4096, 3: 512, 4: 512}
# What two-way tables of bins may take; with fewer bins than the least, codes are kept instead.
BIN_TABLE_BYTES = 128e6
LEAST_TABLE_BINS = 256
# Memory of a fit, in bytes: what the library, its solver and its covariance take whatever the data,
# per distinct value or bin, and per row and column while rows are encoded exactly.
FIXED_BYTES = 400e6
POINT_BYTES = 600.0
EXACT_ROW_BYTES = 60.0
_ENCODE = 1e-7  # seconds per row and column
# Different whole numbers that may stand for levels.
_FEW_CODES = 20
# Times that bins are cut again where the target varies within them.
_CUTS = 2


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


Watch = Callable[[str, int], None]


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
        _plan_memory(source.n_rows, len(source.names), [], True, source.weighted)
    rows = TermRows(source, terms)
    found = survey(rows.source, partial(watch, "reading columns"), rows.levels)
    return binned(rows, found, bins, watch)


def _exact_is_cheap(source: Source, terms: list[BoundTerm]) -> bool:
    if not source.in_memory or source.n_rows is None:
        return False
    if any(term.family == "dense" for term in terms) and source.n_rows > EXACT_DENSE_ROWS:
        return False
    rough = min((term.kernel.order for term in terms), default=4) == 1
    limit = EXACT_ROUGH_INPUTS if rough else EXACT_INPUTS
    return source.n_rows * len(source.names) <= limit


@dataclass(frozen=True)
class TermRows:
    """Rows of a source as the inputs of terms.

    Attributes
    ----------
    given : Source
        Of the columns.
    terms : list of BoundTerm
    """

    given: Source
    terms: list[BoundTerm]

    @cached_property
    def source(self) -> Source:
        """Its columns are the inputs of all terms, one after the other."""
        plain = tuple(term.name for term in self.terms if term.is_plain)
        if len(plain) == len(self.terms) and plain == tuple(self.given.names):
            return self.given
        names = tuple(f"{term.name}: {own.column}" for term in self.terms for own in term.inputs)
        read = partial(_inputs_of, tuple(self.given.names), tuple(self.terms))
        return MappedSource(self.given, names, read)

    @cached_property
    def parts(self) -> list[slice]:
        """Where the inputs of each term are among the columns."""
        ends = np.cumsum([0, *(len(term.inputs) for term in self.terms)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    @property
    def levels(self) -> list[int]:
        """Positions of inputs that are levels."""
        return [
            part.start + k
            for term, part in zip(self.terms, self.parts, strict=True)
            for k, own in enumerate(term.inputs)
            if own is term.group or (own is term.value and term.family == "levels")
        ]

    def column(self, position: int) -> str:
        """Return the column of an input."""
        return [own.column for term in self.terms for own in term.inputs][position]

    def what(self, position: int) -> str:
        """Name an input for messages."""
        return f"input column {self.column(position)!r}"

    def is_number(self, position: int) -> bool:
        """Whether an input is a column of numbers as it is."""
        own = [each for term in self.terms for each in term.inputs][position]
        as_it_is = own == Input(own.column) and position not in self.levels
        kind = self.given.kinds.get(own.column)
        return as_it_is and (kind is None or kind.is_number)

    def with_terms(self, terms: list[BoundTerm]) -> TermRows:
        """Return the same rows for other terms."""
        return replace(self, terms=terms)


def _inputs_of(
    names: tuple[str, ...], terms: tuple[BoundTerm, ...], columns: list[Floats]
) -> list[Floats]:
    by_name = dict(zip(names, columns, strict=True))
    return [values for term in terms for values in term.read(by_name)]


def plain_terms(kernels: Mapping[str, Kernel]) -> list[BoundTerm]:
    """Return a function of each column of numbers."""
    return [BoundTerm.of_column(name, kernel) for name, kernel in kernels.items()]


# ---------------------------------------------------------------- every distinct value


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


def read_all(source: Source) -> tuple[Rows, dict[str, int]]:
    """Read all rows of positive weight into memory, and count missing values of columns.

    Raises
    ------
    DataError
        If there is no such row.
    MemoryLimitError
        If a fit that keeps every distinct value would not fit.
    """
    if source.n_rows is not None:
        memory.require(
            f"a fit that keeps every distinct value of {source.n_rows} rows and "
            f"{len(source.names)} columns (bins=None)",
            exact_bytes(source.n_rows, len(source.names)),
            "pass bins='auto', or fewer rows",
        )
    parts = list(over_chunks(source.chunks(), of_positive_weight))
    if not sum(map(len, parts)):
        if source.weighted and any(len(load()) for load in source.chunks()):
            raise DataError("sample_weight is zero in every row; at least one row must count")
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    rows = Rows.join([part for part in parts if len(part)])
    missing = [int(np.count_nonzero(np.isnan(column))) for column in rows.columns]
    return rows, _missing_counts(source.names, missing)


def exact_bytes(n_rows: int, n_columns: int) -> float:
    """Estimate the memory of a fit that keeps every distinct value, all of them distinct."""
    rows = (POINT_BYTES + EXACT_ROW_BYTES) * n_rows * n_columns
    return FIXED_BYTES + rows + _coarse_bytes(n_columns)


def _coarse_bytes(n_terms: int) -> float:
    """Two-way tables that the learner and the solver count beside rows, and their sums."""
    return 2.0 * min(TABLE_BYTES, 4.0 * (n_terms * max(BINS.values())) ** 2)


def _missing_counts(names: tuple[str, ...], counts: Any) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def encode_all(
    source: Source,
    terms: list[BoundTerm],
    columns: list[Floats],
    n_rows: int,
    weight: Floats | None = None,
) -> tuple[RowTable, list[BoundTerm], list[str]]:
    """Encode the terms whose inputs vary; name the others.

    Parameters
    ----------
    source : Source
    terms : list of BoundTerm
    columns : list of ndarray of shape (n_rows,)
        Of the source.
    n_rows : int
    weight : ndarray of shape (n_rows,), optional
    """
    rows = TermRows(source, terms)
    by_name = dict(zip(source.names, columns, strict=True))
    terms = [_placed_by_rows(term, by_name, weight) for term in terms]
    inputs = [term.read(by_name) for term in terms]
    n_inputs = sum(len(own) for term in inputs for own in term)
    tasks = [partial(encode_term, term, own) for term, own in zip(terms, inputs, strict=True)]
    found = run(tasks, _ENCODE * n_inputs)
    flat = [own for term in inputs for own in term]
    for position, values in enumerate(flat):
        if position not in rows.levels and not np.isnan(values).all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            require_usable_range(rows.column(position), low, high)
    report_columns(
        {
            rows.what(position): Extremes().add(values)
            for position, values in enumerate(flat)
            if rows.is_number(position)
        }
    )
    kept: list[BoundTerm] = []
    cells: list[Cells] = []
    codes, multipliers = [], {}
    constant = []
    for term, own, (table, code) in zip(terms, inputs, found, strict=True):
        multiplier = multiplier_of(term, own)
        if multiplier is not None:
            tell_of_codes(term, np.unique(own[-1][~np.isnan(own[-1])]))
        if table is None or not _varies(term, len(table), multiplier):
            constant.append(term.name)
            continue
        if multiplier is not None:
            multipliers[len(kept)] = multiplier
        kept.append(term)
        cells.append(table)
        codes.append(code)
    tell_constant(constant)
    # One type for all; its largest number stands for a missing input.
    kind = max((code.dtype for code in codes), default=np.dtype(np.uint16))
    table_codes = np.empty((len(codes), n_rows), dtype=kind)
    for row, code in zip(table_codes, codes, strict=True):
        row[:] = code
        row[code == np.iinfo(code.dtype).max] = np.iinfo(kind).max
    names = tuple(term.name for term in kept)
    return RowTable(names, tuple(cells), table_codes, multipliers), kept, constant


def _varies(term: BoundTerm, n_cells: int, multiplier: Floats | None) -> bool:
    """Whether what rows get of a term can differ."""
    if multiplier is not None:
        return bool(np.ptp(multiplier) > 0) or (n_cells > 1 and bool(multiplier.any()))
    return n_cells > 1


def tell_of_codes(term: BoundTerm, values: Floats) -> None:
    """Warn of a column that a function is multiplied by, if it seems to hold levels.

    ``values`` are its distinct values.
    """
    is_code = 2 < len(values) <= _FEW_CODES and (values == np.floor(values)).all()
    if term.family != "constant" and is_code and term.multiplier is not None:
        warnings.warn(
            f"term {term.name!r}: input column {term.multiplier.column!r} holds {len(values)} "
            "different whole numbers, by which the function is multiplied; if they stand for "
            "levels, turn them into text or a category, for a function of each",
            DataWarning,
            stacklevel=2,
        )


def _placed_by_rows(
    term: BoundTerm, columns: dict[str, Floats], weight: Floats | None
) -> BoundTerm:
    if term.family != "constant" or term.multiplier is None:
        return term
    values = columns[term.multiplier.column]
    seen = ~np.isnan(values)
    if not seen.any():
        return term
    shares = None if weight is None else weight[seen]
    location = float(np.average(values[seen], weights=shares))
    spread = float(np.sqrt(np.average((values[seen] - location) ** 2, weights=shares)))
    return placed(term, location, spread)


# ---------------------------------------------------------------- bins


def binned(
    rows: TermRows,
    found: Survey,
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Sum the rows by bins, once a survey has said where the values are."""
    source = rows.given
    require_usable_target(max(abs(found.target.low), abs(found.target.high)))
    report_columns({f"the target {source.target!r}": found.extremes[-1]})
    if found.target.low == found.target.high:
        pilot = constant_target(found.target.low, found.n_rows)
    else:
        pilot = _pilot(found)
        require_usable_scale(pilot[1])
    plan, summed, too_wide = summed_by_bins(
        rows, found, bins, pilot, partial(watch, "summing rows")
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
        n_missing=missing_of(rows, found),
    )
    return replace(training, too_wide=too_wide)


def missing_of(rows: TermRows, found: Survey) -> dict[str, int]:
    """Count missing values of the columns that terms read."""
    columns = [own.column for term in rows.terms for own in term.inputs]
    if not columns:
        columns = list(rows.source.names)
    return {name: int(count) for name, count in zip(columns, found.n_missing, strict=True) if count}


def summed_by_bins(
    rows: TermRows,
    found: Survey,
    bins: str | int | None,
    pilot: tuple[float, float],
    watch: Callable[[int], None],
    *,
    auto: Mapping[int, int] = AUTO_BINS,
    keep: tuple[str, ...] | None = None,
    kept_numbers: int = 0,
) -> tuple[BinPlan, Statistics, dict[str, int]]:
    """Sum the rows by bins, with ``bins="auto"`` again by more where a target varies within them.

    With ``keep``, numbers of every row as of ``statistics``, codes of all rows are kept too.

    Returns
    -------
    plan : BinPlan
    summed : Statistics
    too_wide : dict of str to int
        As of ``Training``.
    """
    cut = partial(BinPlan.of, rows, found, bins, auto=auto, kept_numbers=kept_numbers)
    plan = cut()
    for again in range(_CUTS + 1):
        placed_rows = rows.with_terms(plan.all_terms)
        summed = statistics(
            placed_rows.source,
            found.lengths,
            plan.cuts,
            [placed_rows.parts[d] for d in plan.varying],
            pilot,
            with_pairs=plan.with_pairs and keep is None,
            cells=plan.cells(rows, found),
            codes_on_disk=plan.on_disk,
            keep=keep or (),
            watch=watch,
        )
        too_wide = {}
        for term, edges, sums in zip(plan.terms, plan.cuts, summed.cell_sums, strict=True):
            parts = bins_too_wide(
                sums.weights, sums.information, sums.squares, summed.weight_scale, len(plan.terms)
            )
            if parts > 1:
                too_wide[term.name] = min(parts * len(edges), MOST_BINS)
        more = any(
            too_wide.get(term.name, 0) > len(edges)
            for term, edges in zip(plan.terms, plan.cuts, strict=True)
        )
        if bins != "auto" or not more or again == _CUTS:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # said already
                plan = cut(least=too_wide)
        except MemoryLimitError:  # what there is stays, and is warned of
            break
    return plan, summed, too_wide


@dataclass(frozen=True)
class BinPlan:
    """How the inputs of terms are cut, and what is kept of their rows.

    Attributes
    ----------
    all_terms : list of BoundTerm
        With straight lines put in their places.
    varying : list of int
        Positions of those whose inputs vary.
    constant : list of str
        The other terms.
    cuts : list of TermCut
        Of the terms that vary.
    with_pairs : bool
        Whether two-way tables of the bins are few enough to do without rows.
    on_disk : bool
        Whether codes of the rows go to disk.
    """

    all_terms: list[BoundTerm]
    varying: list[int]
    constant: list[str]
    cuts: list[TermCut]
    with_pairs: bool
    on_disk: bool

    @property
    def terms(self) -> list[BoundTerm]:
        """Terms whose inputs vary."""
        return [self.all_terms[d] for d in self.varying]

    @property
    def exact(self) -> bool:
        """Whether every bin holds one distinct value."""
        return all(cut.exact for cut in self.cuts)

    def cells(self, rows: TermRows, found: Survey) -> list[Parts]:
        """Parts of the bins, for targets that vary within them."""
        total = sum(map(len, self.cuts))
        return [
            Parts.of(cut.bins, found.sketches[rows.parts[d].start].high, found.n_rows, total)
            if cut.term.is_plain
            else Parts.none()
            for d, cut in zip(self.varying, self.cuts, strict=True)
        ]

    @classmethod
    def of(
        cls,
        rows: TermRows,
        found: Survey,
        bins: str | int | None,
        *,
        auto: Mapping[int, int] = AUTO_BINS,
        kept_numbers: int = 0,
        least: Mapping[str, int] | None = None,
    ) -> BinPlan:
        """Choose bins, and refuse what would not fit into memory.

        ``auto`` are the bins of ``bins="auto"`` by the order of a term's kernel;
        ``kept_numbers`` of every row are kept beside its codes, even where there are tables;
        ``least`` are numbers of bins that single terms need.
        """
        for position, sketch in enumerate(found.sketches):
            if position not in rows.levels:
                require_usable_range(rows.column(position), sketch.low, sketch.high)
        report_columns(
            {
                rows.what(position): found.extremes[position]
                for position in range(len(found.sketches))
                if rows.is_number(position)
            }
        )
        for term, part in zip(rows.terms, rows.parts, strict=True):
            if term.multiplier is not None and found.sketches[part.stop - 1].complete:
                tell_of_codes(term, found.sketches[part.stop - 1].values)
        terms = [
            _placed_by_sketch(term, found.sketches[part.stop - 1])
            for term, part in zip(rows.terms, rows.parts, strict=True)
        ]
        varying = [d for d, part in enumerate(rows.parts) if _varies_in(terms[d], part, found)]
        constant = [term.name for d, term in enumerate(terms) if d not in varying]
        tell_constant(constant)
        kept = [terms[d] for d in varying]
        lines = [d for d, term in enumerate(kept) if term.family in ("axis", "dense")]
        wanted = [_bins_of(term, bins, auto) for term in kept]
        affordable = _affordable_bins(len(kept))
        most = max((wanted[d] for d in lines), default=0)
        with_pairs = affordable >= min(LEAST_TABLE_BINS, most)
        # An exact number is the user's; ours may be a little smaller if that allows for tables.
        if bins == "auto" and with_pairs and most <= 512:
            wanted = [min(n, affordable) for n in wanted]
        wanted = [
            max(n, (least or {}).get(term.name, 0)) for n, term in zip(wanted, kept, strict=True)
        ]
        cuts = []
        for d, n in zip(varying, wanted, strict=True):
            part, term = rows.parts[d], terms[d]
            positions = dict(zip(rows.terms[d].inputs, range(part.start, part.stop), strict=True))
            sketches = {own: found.sketches[j] for own, j in positions.items()}
            levels = {own: found.levels[j] for own, j in positions.items() if j in found.levels}
            cuts.append(TermCut.of(term, sketches, levels, n))
        with_pairs = _pair_bytes(cuts) <= BIN_TABLE_BYTES
        on_disk = _plan_memory(
            found.n_rows,
            len(found.sketches),
            cuts,
            with_pairs,
            rows.given.weighted,
            max(found.lengths),
            kept_numbers,
        )
        return cls(terms, varying, constant, cuts, with_pairs, on_disk)


def _bins_of(term: BoundTerm, bins: str | int | None, auto: Mapping[int, int]) -> int:
    """Bins of a curve of a term."""
    if bins != "auto":
        return int(bins or 0)
    wanted = auto[term.kernel.order]
    wanted = min(wanted, _DENSE_BINS) if term.family == "dense" else wanted
    return wanted if term.group is None else min(wanted, _GROUP_BINS)


def _placed_by_sketch(term: BoundTerm, sketch: Sketch) -> BoundTerm:
    if term.family != "constant" or not len(sketch.values):
        return term
    location = float(np.average(sketch.values, weights=sketch.counts))
    square = np.average((sketch.values - location) ** 2, weights=sketch.counts)
    return placed(term, location, float(np.sqrt(square)))


def _varies_in(term: BoundTerm, part: slice, found: Survey) -> bool:
    """Whether what rows get of a term can differ."""
    sketches = found.sketches[part]
    if not all(sketch.low <= sketch.high for sketch in sketches):  # nothing is known
        return False
    if term.multiplier is not None and sketches[-1].low == sketches[-1].high == 0.0:
        return False
    return any(sketch.low < sketch.high for sketch in sketches)


def _code_bytes(cuts: Sequence[Any]) -> float:
    """Bytes of the codes and multipliers of a row."""
    multiplied = sum(cut.term.multiplier is not None for cut in cuts if isinstance(cut, TermCut))
    size = np.dtype(code_type(max(map(len, cuts), default=0))).itemsize
    return float(size * len(cuts) + 8 * multiplied)


def _pilot(found: Survey) -> tuple[float, float]:
    """Rough location and scale of the target, from its sketch."""
    values, counts = found.target.values, found.target.counts
    location = float(np.average(values, weights=counts))
    size = max(abs(found.target.low - location), abs(found.target.high - location))
    spread = float(np.sqrt(np.average(((values - location) / size) ** 2, weights=counts)))
    return location, size * spread if spread > 0 else size


def _affordable_bins(n_terms: int) -> int:
    n_pairs = max(n_terms * (n_terms - 1) // 2, 1)
    return int(np.sqrt(BIN_TABLE_BYTES / 8 / n_pairs))


def _pair_bytes(cuts: Sequence[Any]) -> float:
    sizes = np.array([len(cut) for cut in cuts], dtype=float)
    return 4.0 * float(sizes.sum() ** 2 - np.sum(sizes**2))


def _plan_memory(
    n_rows: int,
    n_columns: int,
    cuts: Sequence[Any],
    with_pairs: bool,
    weighted: bool,
    chunk: int = 0,
    kept_numbers: int = 0,
) -> bool:
    """Tell whether codes must go to disk; refuse what cannot fit."""
    needed = stream_bytes(n_rows, n_columns, cuts, with_pairs, weighted, chunk)
    remedy = "pass fewer bins, fewer columns, or run where there is more memory"
    if kept_numbers:
        # Codes and numbers are kept beside the tables.
        needed += n_rows * (8.0 * kept_numbers + (_code_bytes(cuts) if with_pairs else 0.0))
    elif with_pairs:
        memory.require("a fit from two-way tables", needed, remedy)
        return False
    codes = _code_bytes(cuts) * n_rows
    on_disk = needed > 0.8 * memory.available()
    memory.require("a fit by rows", needed - codes if on_disk else needed, remedy)
    return on_disk


def stream_bytes(
    n_rows: int,
    n_columns: int,
    cuts: Sequence[Any],
    with_pairs: bool,
    weighted: bool,
    chunk: int = 0,
) -> float:
    """Estimate the memory of a fit by bins, in bytes; its rows are read block by block.

    ``chunk`` is the largest number of rows that the source gives at a time.
    """
    block = max(min(n_rows, LOGICAL_BLOCK), chunk)
    reading = (2 * CPU_COUNT + 3) * block * (n_columns + 2) * 8.0
    n_bins = sum(len(cut) for cut in cuts)
    cells = min(ALL_CELLS, BIN_CELLS * n_bins, n_rows // ROWS_PER_CELL)
    reading += (2 * CPU_COUNT + 3) * cells * 16.0
    points = POINT_BYTES * n_bins
    if with_pairs:
        return FIXED_BYTES + reading + points + 4 * _pair_bytes(cuts)
    kept = n_rows * (_code_bytes(cuts) + (8.0 if weighted else 0.0))
    return FIXED_BYTES + reading + points + kept + _coarse_bytes(len(cuts))
