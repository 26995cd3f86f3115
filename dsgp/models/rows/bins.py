"""Rows summed by bins, with bins as fine as the target requires."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dsgp.additive.streaming import Statistics, statistics
from dsgp.additive.survey import Survey
from dsgp.errors import DataWarning, MemoryLimitError
from dsgp.learning.bin_widths import bins_too_wide
from dsgp.models.rows.budget import pair_bytes, plan_memory
from dsgp.models.rows.columns import TermRows, warn_of_codes_as_multiplier
from dsgp.rows.coded import report_columns
from dsgp.rows.coding import TermCut, placed, with_margins
from dsgp.rows.encode import (
    MOST_BINS,
    Sketch,
)
from dsgp.rows.encode import Cells as Parts
from dsgp.rows.usable import (
    require_usable_range,
    warn_of_constant,
)
from dsgp.terms import BoundTerm
from dsgp.terms.interaction import PAIR_BINS

# Bins of a kernel with a dense covariance, and of one curve of many.
_DENSE_BINS = 512
# Largest number of these: the work on a dense covariance grows with its cube. If structure within
# bins requires more, that is reported.
_MOST_DENSE_BINS = 1024
_GROUP_BINS = 256
# Bins of a column by the order of its kernel.
AUTO_BINS = {1: MOST_BINS, 2: 4096, 3: 512, 4: 512}
# Memory of two-way tables of bins. If that allows fewer bins than the second number, codes are kept
# instead.
BIN_TABLE_BYTES = 128e6
LEAST_TABLE_BINS = 256


# Number of times that bins are cut again where the target varies within them.
_CUTS = 2


def summed_by_bins(
    rows: TermRows,
    surveyed: Survey,
    bins: str | int | None,
    pilot: tuple[float, float],
    watch: Callable[[int], None],
    *,
    auto: Mapping[int, int] = AUTO_BINS,
    keep: tuple[str, ...] | None = None,
    kept_numbers: int = 0,
    workers: Callable[[BinPlan], Any | None] = lambda plan: None,
) -> tuple[BinPlan, Statistics, dict[str, int]]:
    """Sum the rows by bins, with ``bins="auto"`` again by more where a target varies within them.

    With ``keep``, numbers of every row as for ``statistics``, codes of all rows are kept too. Codes
    that are kept are so by the workers of the client that ``workers`` returns, if any.

    Returns
    -------
    plan : BinPlan
    summed : Statistics
    too_wide : dict of str to int
        As for ``Training``.
    """
    cut = partial(BinPlan.of, rows, surveyed, bins, auto=auto, kept_numbers=kept_numbers)
    plan = cut()
    for again in range(_CUTS + 1):
        placed_rows = rows.with_terms(plan.all_terms)
        summed = statistics(
            placed_rows.source,
            surveyed.lengths,
            plan.cuts,
            [placed_rows.parts[d] for d in plan.varying],
            pilot,
            with_pairs=plan.with_pairs and keep is None,
            cells=plan.cells(surveyed),
            codes_on_disk=plan.on_disk,
            keep=keep or (),
            workers=workers(plan),
            watch=watch,
        )
        too_wide = {}
        n_screens = sum(map(len, summed.cell_sums))
        for cut_term, screens in zip(plan.cuts, summed.cell_sums, strict=True):
            parts = max(
                bins_too_wide(
                    screen.weights, screen.information, screen.squares, screen.n_rows, n_screens
                )
                for screen in screens
            )
            if parts > 1:
                too_wide[cut_term.term.name] = min(parts * len(cut_term.bins), MOST_BINS)
        more = any(
            _affordable_cut(term_cut.term, too_wide.get(term_cut.term.name, 0)) > len(term_cut.bins)
            for term_cut in plan.cuts
        )
        if bins != "auto" or not more or again == _CUTS:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # there was a warning already
                plan = cut(least=too_wide)
        except MemoryLimitError:  # what there is is kept, and there is a warning
            break
    return plan, summed, too_wide


@dataclass(frozen=True)
class BinPlan:
    """The cuts of the inputs of terms, and what is kept of their rows.

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

    def cells(self, surveyed: Survey) -> list[Parts]:
        """Parts of the bins, for targets that vary within them."""
        total = sum(map(len, self.cuts))
        return [
            Parts.of(cut.bins, cut.high, surveyed.n_rows, total, cut.n_curves)
            if cut.pairs is None
            else Parts.none()
            for cut in self.cuts
        ]

    @classmethod
    def of(
        cls,
        rows: TermRows,
        surveyed: Survey,
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
        for position, sketch in enumerate(surveyed.sketches):
            if position not in rows.levels:
                require_usable_range(rows.column(position), sketch.low, sketch.high)
        report_columns(
            {
                rows.what(position): surveyed.extremes[position]
                for position in range(len(surveyed.sketches))
                if rows.is_number(position)
            }
        )
        for term, part in zip(rows.terms, rows.parts, strict=True):
            if term.multiplier is not None and surveyed.sketches[part.stop - 1].complete:
                warn_of_codes_as_multiplier(term, surveyed.sketches[part.stop - 1].values)
        terms = [
            _placed_by_sketch(term, surveyed.sketches[part])
            for term, part in zip(rows.terms, rows.parts, strict=True)
        ]
        varying = [d for d, part in enumerate(rows.parts) if _varies_in(terms[d], part, surveyed)]
        constant = [term.name for d, term in enumerate(terms) if d not in varying]
        warn_of_constant(constant)
        kept = [terms[d] for d in varying]
        wanted = [
            max(n, _affordable_cut(term, (least or {}).get(term.name, 0)))
            for n, term in zip(wanted_bins(kept, bins, auto), kept, strict=True)
        ]
        cuts = []
        for d, n in zip(varying, wanted, strict=True):
            part, term = rows.parts[d], terms[d]
            positions = dict(zip(rows.terms[d].inputs, range(part.start, part.stop), strict=True))
            sketches = {term_input: surveyed.sketches[j] for term_input, j in positions.items()}
            levels = {
                term_input: surveyed.levels[j]
                for term_input, j in positions.items()
                if j in surveyed.levels
            }
            cuts.append(TermCut.of(term, sketches, levels, n))
        with_pairs = pair_bytes(cuts) <= BIN_TABLE_BYTES
        on_disk = plan_memory(
            surveyed.n_rows,
            len(surveyed.sketches),
            cuts,
            with_pairs,
            rows.column_source.weighted,
            max(surveyed.lengths),
            kept_numbers,
        )
        return cls(terms, varying, constant, cuts, with_pairs, on_disk)


def wanted_bins(
    terms: Sequence[BoundTerm], bins: str | int | None, auto: Mapping[int, int] = AUTO_BINS
) -> list[int]:
    """Return the number of bins of a curve of each term; arguments are as for ``BinPlan.of``."""
    wanted = [_bins_of(term, bins, auto) for term in terms]
    affordable = _affordable_bins(len(terms))
    lines = (
        n
        for n, term in zip(wanted, terms, strict=True)
        if term.family in ("axis", "markov", "dense")
    )
    most = max(lines, default=0)
    # A number of bins that the user has chosen is exact; the automatic one may be reduced for the
    # sake of tables.
    if bins == "auto" and affordable >= min(LEAST_TABLE_BINS, most) and most <= 512:
        wanted = [min(n, affordable) for n in wanted]
    return wanted


def _bins_of(term: BoundTerm, bins: str | int | None, auto: Mapping[int, int]) -> int:
    """Bins of a curve of a term."""
    if term.other is not None:
        return term.bins or PAIR_BINS
    if bins != "auto":
        return int(bins or 0)
    wanted = auto[term.kernel.order]
    wanted = min(wanted, _DENSE_BINS) if term.family == "dense" else wanted
    return wanted if term.group is None else min(wanted, _GROUP_BINS)


def _affordable_cut(term: BoundTerm, n_bins: int) -> int:
    """Number of bins of a curve that structure within wider ones requires; 0 if too many."""
    return 0 if term.family == "dense" and n_bins > _MOST_DENSE_BINS else n_bins


def _placed_by_sketch(term: BoundTerm, sketches: list[Sketch]) -> BoundTerm:
    if term.other is not None:
        return with_margins(term, dict(zip(term.inputs, sketches, strict=True)))
    sketch = sketches[-1]
    if term.family != "constant" or not len(sketch.values):
        return term
    location = float(np.average(sketch.values, weights=sketch.counts))
    square = np.average((sketch.values - location) ** 2, weights=sketch.counts)
    return placed(term, location, float(np.sqrt(square)))


def _varies_in(term: BoundTerm, part: slice, surveyed: Survey) -> bool:
    """Whether the value of a term can differ between rows."""
    sketches = surveyed.sketches[part]
    if not all(sketch.low <= sketch.high for sketch in sketches):  # nothing is known of the inputs
        return False
    if term.multiplier is not None and sketches[-1].low == sketches[-1].high == 0.0:
        return False
    varying = all if term.other is not None else any
    return varying(sketch.low < sketch.high for sketch in sketches)


def _affordable_bins(n_terms: int) -> int:
    n_pairs = max(n_terms * (n_terms - 1) // 2, 1)
    return int(np.sqrt(BIN_TABLE_BYTES / 8 / n_pairs))
