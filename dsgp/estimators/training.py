"""Training rows made ready: encoded or binned, in units where target and weights are about 1."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive import Equations, RowEquations
from dsgp.additive.streaming import (
    LOGICAL_BLOCK,
    Statistics,
    Survey,
    of_positive_weight,
    statistics,
    survey,
)
from dsgp.additive.tables import BINS, TABLE_BYTES
from dsgp.compute import CPU_COUNT, over_chunks, run
from dsgp.errors import DataError, DataWarning, MemoryLimitError
from dsgp.learning.scales import bins_too_wide
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.encode import (
    ALL_CELLS,
    BIN_CELLS,
    MOST_BINS,
    ROWS_PER_CELL,
    Bins,
    Cells,
    encode,
)
from dsgp.rows.sources import Rows, Source
from dsgp.rows.table import RowTable
from dsgp.rows.usable import (
    constant_target,
    location_and_scale,
    require_usable_range,
    require_usable_scale,
    require_usable_target,
    tell_constant,
)
from dsgp.terms import Axis, Floats

# Inputs (rows times columns) in memory up to which every distinct value is kept: a second's work.
EXACT_INPUTS = 100_000
# Rough kernels lose by bins, and are worth more work.
EXACT_ROUGH_INPUTS = 10_000_000
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
    constant : list of str
        Columns that do not vary; the others are the equations' terms.
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
    orders: dict[str, int],
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Check and prepare what ``fit`` was given.

    Parameters
    ----------
    source : Source
    orders : dict of str to int
        Order of the kernel of each column.
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
    if bins is None or (bins == "auto" and _exact_is_cheap(source, orders)):
        return _exact(source)
    if source.n_rows is not None:  # what is sure to be needed; the survey tells the rest
        _plan_memory(source.n_rows, len(source.names), [], True, source.weighted)
    found = survey(source, partial(watch, "reading columns"))
    return binned(source, found, orders, bins, watch)


def _exact_is_cheap(source: Source, orders: dict[str, int]) -> bool:
    if not source.in_memory or source.n_rows is None:
        return False
    rough = min(orders.values(), default=4) == 1
    limit = EXACT_ROUGH_INPUTS if rough else EXACT_INPUTS
    return source.n_rows * len(source.names) <= limit


# ---------------------------------------------------------------- every distinct value


def _exact(source: Source) -> Training:
    rows, n_missing = read_all(source)
    y, weight = rows.y, rows.weight
    assert y is not None
    weight_scale = 1.0 if weight is None else float(np.mean(weight))
    if weight is not None:
        weight = weight / weight_scale if weight.min() < weight.max() else None
    table, constant = encode_all(source.names, rows.columns, len(y))
    report_columns({f"the target {source.target!r}": Extremes().add(y)})
    offset, scale = location_and_scale(y, weight)
    return Training(
        names=tuple(source.names),
        named=source.named,
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
    names: tuple[str, ...], columns: list[Floats], n_rows: int
) -> tuple[RowTable, list[str]]:
    """Encode the columns that vary; name the others."""
    n_inputs = sum(map(len, columns))
    found = run([partial(encode, column) for column in columns], _ENCODE * n_inputs)
    for name, (axis, _) in zip(names, found, strict=True):
        if axis is not None:
            require_usable_range(name, float(axis.points[0]), float(axis.points[-1]))
    report_columns(
        {
            f"input column {name!r}": Extremes().add(values)
            for name, values in zip(names, columns, strict=True)
        }
    )
    varying = [axis is not None and len(axis) > 1 for axis, _ in found]
    constant = [name for name, varies in zip(names, varying, strict=True) if not varies]
    tell_constant(constant)
    cells: list[Axis] = []
    codes = []
    for (axis, code), varies in zip(found, varying, strict=True):
        if varies and axis is not None:
            cells.append(axis)
            codes.append(code)
    # One type for all; its largest number stands for a missing input.
    kind = max((code.dtype for code in codes), default=np.dtype(np.uint16))
    table = np.empty((len(codes), n_rows), dtype=kind)
    for row, code in zip(table, codes, strict=True):
        row[:] = code
        row[code == np.iinfo(code.dtype).max] = np.iinfo(kind).max
    kept = tuple(name for name, varies in zip(names, varying, strict=True) if varies)
    return RowTable(kept, tuple(cells), table), constant


# ---------------------------------------------------------------- bins


def binned(
    source: Source,
    found: Survey,
    orders: dict[str, int],
    bins: str | int | None,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Sum the rows by bins, once a survey has said where the values are."""
    names = tuple(source.names)
    require_usable_target(max(abs(found.target.low), abs(found.target.high)))
    report_columns({f"the target {source.target!r}": found.extremes[-1]})
    if found.target.low == found.target.high:
        pilot = constant_target(found.target.low, found.n_rows)
    else:
        pilot = _pilot(found)
        require_usable_scale(pilot[1])
    plan, summed, too_wide = summed_by_bins(
        source, found, orders, bins, pilot, partial(watch, "summing rows")
    )
    training = _of_statistics(names, source.named, plan.constant, summed, plan.exact, found)
    return replace(training, too_wide=too_wide)


def summed_by_bins(
    source: Source,
    found: Survey,
    orders: dict[str, int],
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
    cut = partial(BinPlan.of, source, found, orders, bins, auto=auto, kept_numbers=kept_numbers)
    plan = cut()
    for again in range(_CUTS + 1):
        summed = statistics(
            source,
            found.lengths,
            plan.names,
            plan.cuts,
            plan.varying,
            pilot,
            with_pairs=plan.with_pairs and keep is None,
            cells=plan.cells(found),
            codes_on_disk=plan.on_disk,
            keep=keep or (),
            watch=watch,
        )
        too_wide = {}
        for name, edges, sums in zip(plan.names, plan.cuts, summed.cell_sums, strict=True):
            parts = bins_too_wide(
                sums.weights, sums.information, sums.squares, summed.weight_scale, len(plan.names)
            )
            if parts > 1:
                too_wide[name] = min(parts * len(edges), MOST_BINS)
        more = any(
            too_wide.get(name, 0) > len(edges)
            for name, edges in zip(plan.names, plan.cuts, strict=True)
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
    """How the columns of a source are cut, and what is kept of its rows.

    Attributes
    ----------
    names : tuple of str
        Of the columns that vary.
    varying : list of int
        Their positions.
    constant : list of str
        The other columns.
    cuts : list of Bins
        Of the columns that vary.
    with_pairs : bool
        Whether two-way tables of the bins are few enough to do without rows.
    on_disk : bool
        Whether codes of the rows go to disk.
    """

    names: tuple[str, ...]
    varying: list[int]
    constant: list[str]
    cuts: list[Bins]
    with_pairs: bool
    on_disk: bool

    @property
    def exact(self) -> bool:
        """Whether every bin holds one distinct value."""
        return all(cut.exact for cut in self.cuts)

    def cells(self, found: Survey) -> list[Cells]:
        """Parts of the bins, for targets that vary within them."""
        total = sum(map(len, self.cuts))
        return [
            Cells.of(cut, found.sketches[j].high, found.n_rows, total)
            for j, cut in zip(self.varying, self.cuts, strict=True)
        ]

    @classmethod
    def of(
        cls,
        source: Source,
        found: Survey,
        orders: dict[str, int],
        bins: str | int | None,
        *,
        auto: Mapping[int, int] = AUTO_BINS,
        kept_numbers: int = 0,
        least: Mapping[str, int] | None = None,
    ) -> BinPlan:
        """Choose bins, and refuse what would not fit into memory.

        ``auto`` are the bins of ``bins="auto"`` by the order of a column's kernel;
        ``kept_numbers`` of every row are kept beside its codes, even where there are tables;
        ``least`` are numbers of bins that single columns need.
        """
        names = tuple(source.names)
        for name, sketch in zip(names, found.sketches, strict=True):
            require_usable_range(name, sketch.low, sketch.high)
        inputs = [f"input column {name!r}" for name in names]
        report_columns(dict(zip(inputs, found.extremes[:-1], strict=True)))
        varying = [j for j, sketch in enumerate(found.sketches) if sketch.low < sketch.high]
        constant = [name for j, name in enumerate(names) if j not in varying]
        tell_constant(constant)
        kept = tuple(names[j] for j in varying)
        wanted = [auto[orders[name]] if bins == "auto" else int(bins or 0) for name in kept]
        affordable = _affordable_bins(len(kept))
        with_pairs = affordable >= min(LEAST_TABLE_BINS, max(wanted, default=0))
        # An exact number is the user's; ours may be a little smaller if that allows for tables.
        if bins == "auto" and with_pairs and max(wanted, default=0) <= 512:
            wanted = [min(n, affordable) for n in wanted]
        wanted = [max(n, (least or {}).get(name, 0)) for n, name in zip(wanted, kept, strict=True)]
        cuts = [Bins.of(found.sketches[j], n) for j, n in zip(varying, wanted, strict=True)]
        with_pairs = _pair_bytes(cuts) <= BIN_TABLE_BYTES
        on_disk = _plan_memory(
            found.n_rows,
            len(names),
            cuts,
            with_pairs,
            source.weighted,
            max(found.lengths),
            kept_numbers,
        )
        return cls(kept, varying, constant, cuts, with_pairs, on_disk)


def _of_statistics(
    names: tuple[str, ...],
    named: bool,
    constant: list[str],
    summed: Statistics,
    exact: bool,
    found: Survey,
) -> Training:
    return Training(
        names=names,
        named=named,
        constant=constant,
        equations=summed.equations,
        offset=summed.offset,
        scale=summed.scale,
        weight_scale=summed.weight_scale,
        spreads=None if exact else summed.spreads,
        n_missing=_missing_counts(names, found.n_missing),
    )


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


def _pair_bytes(cuts: list[Bins]) -> float:
    sizes = np.array([len(cut) for cut in cuts], dtype=float)
    return 4.0 * float(sizes.sum() ** 2 - np.sum(sizes**2))


def _plan_memory(
    n_rows: int,
    n_columns: int,
    cuts: list[Bins],
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
        needed += n_rows * (8.0 * kept_numbers + (2.0 * len(cuts) if with_pairs else 0.0))
    elif with_pairs:
        memory.require("a fit from two-way tables", needed, remedy)
        return False
    codes = 2.0 * n_rows * len(cuts)
    on_disk = needed > 0.8 * memory.available()
    memory.require("a fit by rows", needed - codes if on_disk else needed, remedy)
    return on_disk


def stream_bytes(
    n_rows: int,
    n_columns: int,
    cuts: list[Bins],
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
    kept = n_rows * (2.0 * len(cuts) + (8.0 if weighted else 0.0))
    return FIXED_BYTES + reading + points + kept + _coarse_bytes(len(cuts))
