"""From a source to standardised rows, in levels: few rows first, all rows last."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dsgp import memory
from dsgp.additive.survey import of_positive_weight, survey
from dsgp.compute import over_blocks, over_chunks
from dsgp.errors import DataError, DataWarning
from dsgp.likelihoods import Likelihood
from dsgp.pursuit.response import Response, require_response, response_of
from dsgp.pursuit.rows import (
    STREAM_BLOCK,
    Block,
    MemoryRows,
    ResponseStandard,
    Standard,
    StreamedRows,
    View,
)
from dsgp.pursuit.search import Level
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.sources import Rows, Source, naming
from dsgp.rows.usable import (
    constant_target,
    location_and_scale,
    require_usable_range,
    require_usable_scale,
    require_usable_target,
    warn_of_constant,
)
from dsgp.terms import Floats

# Rows of the first level, and the ratio of the rows of each further level to those of the one
# before. At every level, directions begin and nodes are placed by that many rows.
FIRST_ROWS, _RATIO = 2**14, 8
# Quantiles that bound the bulk of a column, and the number of its widths up to which values count.
_BULK, _REACH = (0.1, 0.9), 5.0
# Number of half ranges of the bulk beyond which values are reported.
_FAR = 100.0
# Memory for standardised rows, in bytes and as a share of what is free. Beyond, rows are read again
# for every pass.
KEPT_BYTES, _KEPT_SHARE = 2e9, 0.25
# Fields of a block.
_ARRAYS = ("inputs", "target", "root_weight", "offset", "trials")


@dataclass(frozen=True)
class Prepared:
    """Rows ready for a search.

    Attributes
    ----------
    standard : Standard
    covariance : ndarray of shape (D, D)
        Of the standardised columns.
    levels : list of Level
    ends : ndarray of shape (D, 2)
        Range of each column, in its units.
    constant : list of str
        Columns that do not vary; the others are inputs.
    n_rows : int
        Of positive weight.
    response : Response, optional
        The likelihood, with parameters that the targets suggest.
    """

    standard: Standard
    covariance: Floats
    levels: list[Level]
    ends: Floats
    constant: list[str]
    n_rows: int
    response: Response | None = None


Watch = Callable[[str, int], None]


def prepare_rows(
    source: Source,
    random: np.random.Generator,
    watch: Watch = lambda stage, rows: None,
    likelihood: Likelihood | None = None,
    view: View | None = None,
) -> Prepared:
    """Check and standardise the rows of a source.

    Parameters
    ----------
    source : Source
    random : Generator
    watch : callable
        Called with the stage, and the number of rows read in it so far.
    likelihood : Likelihood, optional
        Likelihood of the target, which is then not standardised; None is normal noise.
    view : callable, optional
        With a likelihood: applied to the rows first.

    Raises
    ------
    DataError
        If a value is missing, infinite, not a number or beyond what float64 can square, a target is
        none of the likelihood's, or shapes do not agree.
    MemoryLimitError
        If the rows would not fit.
    """
    n_rows = source.n_rows
    surveyed = None
    if n_rows is None:
        surveyed = survey(source, partial(watch, "reading columns"))
        n_rows = surveyed.n_rows
    size = 8.0 * n_rows * (len(source.names) + 2)
    if size <= min(KEPT_BYTES, _KEPT_SHARE * memory.available()):
        return _in_memory(source, random, watch, likelihood, view)
    if surveyed is None:
        surveyed = survey(source, partial(watch, "reading columns"))
    for name, sketch in zip(source.names, surveyed.sketches, strict=True):
        require_usable_range(name, sketch.low, sketch.high)
    require_usable_target(max(abs(surveyed.target.low), abs(surveyed.target.high)))
    ends = [(sketch.low, sketch.high) for sketch in surveyed.sketches]
    varying = [j for j, (low, high) in enumerate(ends) if low < high]
    constant = _constant(source, varying)
    sketches = [surveyed.sketches[j] for j in varying]
    limits = [_bulk(sketch.values, sketch.counts, sketch.low, sketch.high) for sketch in sketches]
    coded = _warn_of_codes(source, surveyed.extremes)
    for j, bulk in zip(varying, limits, strict=True):
        if source.names[j] not in coded:
            _warn_of_far_values(source.names[j], bulk, *ends[j])
    pilot = _pilot(varying, limits, (surveyed.target.low, surveyed.target.high))
    share = min(1.0, FIRST_ROWS * _RATIO / n_rows)
    totals, pieces, n_read = None, [], 0
    recipe = _Sums(pilot, share, int(random.integers(2**63)), source.target, likelihood, view)
    for sums, piece, n in over_blocks(
        source.chunks(), surveyed.lengths, STREAM_BLOCK, recipe, "sums"
    ):
        totals = sums if totals is None else totals + sums
        pieces.append(piece)
        n_read += n
        watch("summing rows", n_read)
    assert totals is not None
    standard, covariance, counted, log_weight = _standard(
        totals, pilot, surveyed.target.low < surveyed.target.high, likelihood
    )
    response = None
    joined = Rows.join(pieces)
    if likelihood is not None:
        some, highest = (joined, surveyed.target.high) if view is None else (view(joined), None)
        response, level = response_of(likelihood, some, highest)
        standard = ResponseStandard(
            varying, standard.centre, standard.scale, level, response.unit, 1.0, view
        )
    rows = StreamedRows(source, surveyed.lengths, standard, counted, log_weight)
    kept = np.array([ends[j] for j in varying]).reshape(-1, 2)
    if share < 1.0 and counted <= FIRST_ROWS * _RATIO:  # most rows have weight 0
        blocks = rows.total(_listed, list.__add__, 0.0)
        block = Block(*(np.concatenate([getattr(b, name) for b in blocks]) for name in _ARRAYS))
        levels = _levels(block, random)
        return Prepared(standard, covariance, levels, kept, constant, counted, response)
    sample = standard(joined)
    order = random.permutation(len(sample))
    first = sample.part(order[:FIRST_ROWS])
    levels = [Level(MemoryRows(first), first)]
    if len(sample) > _RATIO / 4 * FIRST_ROWS:
        levels.append(Level(MemoryRows(sample), first))
    levels.append(Level(rows, first))
    return Prepared(standard, covariance, levels, kept, constant, counted, response)


def _listed(block: Block) -> list[Block]:
    return [block]


def _bulk(values: Floats, counts: Floats | None, low: float, high: float) -> tuple[float, float]:
    """Range of a column without values far from all others: outliers, or codes for "missing".

    ``values`` are in increasing order. Units and directions are measured within this range, so that
    a single far value does not make the others indistinguishable.
    """
    if counts is None:
        first, last = np.quantile(values, _BULK)
    else:
        share = np.cumsum(counts) / np.sum(counts)
        first, last = values[np.minimum(np.searchsorted(share, _BULK), len(values) - 1)]
    # Halves are subtracted because the whole difference may overflow.
    reach = _REACH * (float(last) / 2 - float(first) / 2)
    if not 0 < reach < np.inf:
        return low, high
    return max(low, float(first) - 2 * reach), min(high, float(last) + 2 * reach)


def _warn_of_far_values(name: str, limits: tuple[float, float], low: float, high: float) -> None:
    """Warn of values so far from the others that they may stand for something else."""
    half = limits[1] / 2 - limits[0] / 2
    far = low if limits[0] / 2 - low / 2 > high / 2 - limits[1] / 2 else high
    if max(limits[0] / 2 - low / 2, high / 2 - limits[1] / 2) > _FAR * half:
        warnings.warn(
            f"input column {name!r} reaches {far:g}, more than {2 * _FAR:.0f} times as far as the "
            f"bulk of its values ({limits[0]:g} to {limits[1]:g}): if that stands for a missing "
            "value, leave such rows out; otherwise transform the column, e.g. by its logarithm",
            DataWarning,
            stacklevel=2,
        )


def _warn_of_codes(source: Source, extremes: Sequence[Extremes]) -> list[str]:
    """Warn of values that look like codes; return the names of the inputs that have some."""
    inputs = [f"input column {name!r}" for name in source.names]
    target = f"the target {source.target!r}"
    coded = report_columns(dict(zip([*inputs, target], extremes, strict=True)), False)
    return [name for name, what in zip(source.names, inputs, strict=True) if what in coded]


def _constant(source: Source, varying: list[int]) -> list[str]:
    constant = [name for j, name in enumerate(source.names) if j not in varying]
    warn_of_constant(constant)
    return constant


# ---------------------------------------------------------------- in memory


def _in_memory(
    source: Source,
    random: np.random.Generator,
    watch: Watch,
    likelihood: Likelihood | None,
    view: View | None,
) -> Prepared:
    watch("reading rows", 0)
    parts = list(over_chunks(source.chunks(), of_positive_weight, "read"))
    rows = Rows.join([part for part in parts if len(part)] or parts[:1])
    n_read = sum(map(len, parts))
    del parts
    watch("reading rows", n_read)
    if not len(rows):
        if n_read == 0 and source.weighted:
            raise DataError("sample_weight is zero in every row; at least one row must count")
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    rows = rows if view is None else view(rows)
    assert rows.y is not None
    if likelihood is not None:
        require_response(likelihood, rows, source.target)
    ends = [(float(column.min()), float(column.max())) for column in rows.columns]
    for name, (low, high) in zip(source.names, ends, strict=True):
        require_usable_range(name, low, high)
    varying = [j for j, (low, high) in enumerate(ends) if low < high]
    constant = _constant(source, varying)
    weight_scale = 1.0 if rows.weight is None else float(np.mean(rows.weight))
    weight = None
    if rows.weight is not None and rows.weight.min() < rows.weight.max():
        weight = rows.weight / weight_scale
    if likelihood is None:
        offset, spread = location_and_scale(rows.y, weight)
    centre, scale = np.empty(len(varying)), np.empty(len(varying))
    limits = np.empty((len(varying), 2))
    coded = _warn_of_codes(source, [Extremes().add(values) for values in (*rows.columns, rows.y)])
    for position, j in enumerate(varying):
        limits[position] = bulk = _bulk(np.sort(rows.columns[j]), None, *ends[j])
        if source.names[j] not in coded:
            _warn_of_far_values(source.names[j], bulk, *ends[j])
        centre[position], scale[position] = _moments_of(rows.columns[j], weight, *limits[position])
    response = None
    if likelihood is None:
        standard = Standard(varying, centre, scale, offset, spread, weight_scale)
        rows = replace(rows, weight=None if weight is None else rows.weight)
    else:
        response, level = response_of(likelihood, rows)
        standard = ResponseStandard(varying, centre, scale, level, response.unit, 1.0)
    block = standard(rows)
    bounds = (limits - centre[:, None]) / scale[:, None]
    covariance = _covariance(block, *bounds.T)
    kept = np.array([ends[j] for j in varying]).reshape(-1, 2)
    levels = _levels(block, random)
    return Prepared(standard, covariance, levels, kept, constant, len(block), response)


def _covariance(block: Block, low: Floats, high: Floats) -> Floats:
    """Covariance of standardised inputs within their bulk, (D, D), in blocks of rows."""
    total = np.zeros((len(low), len(low)))
    for start in range(0, len(block), STREAM_BLOCK):
        part = block.part(slice(start, start + STREAM_BLOCK))
        inputs = np.clip(part.inputs, low, high)
        total += (inputs * part.weight[:, None]).T @ inputs
    return total / float(np.sum(block.weight))


def _moments_of(
    column: Floats, weight: Floats | None, low: float, high: float
) -> tuple[float, float]:
    """Mean and standard deviation of a column within its bulk, so that nothing overflows."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    away = (np.clip(column, low, high) - middle) / half
    mean = float(np.average(away, weights=weight))
    variance = float(np.average((away - mean) ** 2, weights=weight))
    return middle + half * mean, half * float(np.sqrt(variance))


def _levels(block: Block, random: np.random.Generator) -> list[Level]:
    n = len(block)
    if n <= FIRST_ROWS:
        return [Level(MemoryRows(block), block)]
    order = random.permutation(n)
    first = block.part(order[:FIRST_ROWS])
    levels = []
    size = FIRST_ROWS
    while _RATIO / 4 * size < n:
        rows = first if size == FIRST_ROWS else block.part(order[:size])
        levels.append(Level(MemoryRows(rows), first))
        size *= _RATIO
    return [*levels, Level(MemoryRows(block), first)]


# ---------------------------------------------------------------- streams


def _pilot(
    varying: list[int], limits: list[tuple[float, float]], target: tuple[float, float]
) -> Standard:
    """Middle and half width of each column's bulk, around and within which sums are taken."""
    low, high = np.array(limits).reshape(-1, 2).T
    half = target[1] / 2 - target[0] / 2
    return Standard(
        varying,
        low / 2 + high / 2,
        high / 2 - low / 2,
        target[0] / 2 + target[1] / 2,
        half if half > 0 else 1.0,
        1.0,
    )


@dataclass(frozen=True)
class _Sums:
    """Sums of a block for ``_standard``, and a share of its rows; it travels to workers."""

    pilot: Standard
    share: float
    seed: int
    target: str
    likelihood: Likelihood | None = None
    view: View | None = None

    def __call__(self, rows: Rows) -> tuple[Floats, Rows, int]:
        seen = rows if self.view is None else self.view(rows)
        if self.likelihood is not None:
            counted = of_positive_weight(seen)
            with naming(f"a block of {len(counted)} rows of positive weight, numbered within it"):
                require_response(self.likelihood, counted, self.target)
        block = self.pilot(seen)
        bulk = np.clip(block.inputs, -1.0, 1.0)
        table = np.column_stack([np.ones(len(block)), bulk, block.target])
        weight = block.weight
        sums = np.zeros((table.shape[1] + 1, table.shape[1] + 1))
        sums[:-1, :-1] = (table * weight[:, None]).T @ table
        sums[-1, 0] = len(block)
        sums[-1, 1] = float(np.sum(np.log(weight)))
        # Random rows of every block, whatever periods the table has.
        seeding_values = (
            rows.y if self.likelihood is None else sum(rows.columns, np.zeros(len(rows)))
        )
        seed = (
            int(np.frombuffer(seeding_values[:1].tobytes(), np.uint64)[0])
            if seeding_values is not None
            else 0
        )
        random = np.random.default_rng([self.seed, seed])
        count = int(np.ceil(self.share * len(rows)))
        chosen = np.sort(random.choice(len(rows), count, replace=False))
        some = Rows(
            [column[chosen] for column in rows.columns],
            None if rows.y is None else rows.y[chosen],
            None if rows.weight is None else rows.weight[chosen],
            count,
            {role: values[chosen] for role, values in rows.extra.items()},
        )
        return sums, some, len(rows)


def _standard(
    sums: Floats, pilot: Standard, varies: bool, likelihood: Likelihood | None
) -> tuple[Standard, Floats, int, float]:
    """Return how to standardise, the covariance of the inputs, rows and Σ log w."""
    n_rows, log_weight = int(sums[-1, 0]), float(sums[-1, 1])
    total = sums[0, 0]
    if n_rows == 0 or not total > 0:
        raise DataError("sample_weight is zero in every row; at least one row must count")
    mean = sums[0, 1:-1] / total
    second = sums[1:-1, 1:-1] / total - np.outer(mean, mean)
    std = np.sqrt(np.maximum(np.diag(second), np.finfo(float).tiny))
    weight_scale = float(total) / n_rows
    location = pilot.offset + pilot.spread * float(mean[-1])
    if varies:
        spread = pilot.spread * float(std[-1])
        if likelihood is None:
            require_usable_scale(spread)
    elif likelihood is None:
        location, spread = constant_target(pilot.offset, n_rows)
    else:
        spread = 1.0
    standard = Standard(
        pilot.varying,
        pilot.centre + pilot.scale * mean[:-1],
        pilot.scale * std[:-1],
        location,
        spread,
        weight_scale,
    )
    covariance = second[:-1, :-1] / np.outer(std[:-1], std[:-1])
    return standard, covariance, n_rows, log_weight - n_rows * float(np.log(weight_scale))
