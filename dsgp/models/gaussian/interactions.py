"""Interactions that are looked for: pairs of columns, ranked by what two-way tables promise.

A round takes the residuals of the model so far, sums them by pairs of coarse bins of every two
columns in one pass over the rows, adds the pairs that promise most and fits again, for as long as
the marginal likelihood gains what so many candidates call for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.additive.streaming import LOGICAL_BLOCK
from dsgp.additive.survey import of_positive_weight, survey
from dsgp.compute import over_blocks, run
from dsgp.errors import ParameterError
from dsgp.jit.sketch import count_pairs
from dsgp.kernels import CentredProduct, Independent, Kernel, Matern52
from dsgp.learning.pair_scores import PairedColumn, gain
from dsgp.learning.search import without_starts
from dsgp.models.additive import AdditiveModel
from dsgp.models.clock import Clock
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.rows.columns import TermRows
from dsgp.rows.coding import FEWEST_OF_PAIRS, MOST_FILLED_PAIRS, MOST_PAIRS
from dsgp.rows.encode import Bins, Sketch
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats, Input
from dsgp.terms.interaction import FAMILIES

# Bins of a smooth column, and levels of a category (those with most rows), by which pairs are
# judged.
COARSE_BINS, COARSE_LEVELS = 12, 24
# Nats beyond the log of the number of candidates that "auto" asks of a pair.
LEAST_GAIN = 4.0
# Nats that a pair must gain where a number of them is asked for.
ANY_GAIN = 1.0
# Pairs that "auto" adds at most, and those of one round: a share of the best one's gain at least.
MOST_ADDED, MOST_IN_ROUND, SHARE_OF_BEST = 20, 4, 0.15
# Rows by which the leave-one-out check of "auto" is made.
CHECKED_ROWS = 20_000
_COUNT = 2e-9  # seconds per row and pair


SCORE_COLUMNS = ["first", "other", "gain", "round", "chosen"]

Fit = Callable[[Source, list[BoundTerm], Clock], GaussianOutcome]


@dataclass(frozen=True)
class Found:
    """What a search for interactions came to.

    Attributes
    ----------
    outcome : GaussianOutcome
        Of the model with them.
    pairs : list of tuple of str
        Names of the terms whose columns interact, as they were added.
    scores : pandas.DataFrame
        A row for each candidate, the most promising first, see ``interaction_scores_``.
    notes : list of str
    """

    outcome: GaussianOutcome
    pairs: list[tuple[str, str]]
    scores: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def require_interactions(value: Any) -> None:
    """Raise ``ParameterError`` if it is not "auto", a number, or pairs of names."""
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value == "auto" if isinstance(value, str) else is_number and value >= 0:
        return
    pairs = isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and all(isinstance(name, str) for name in pair)
        for pair in value
    )
    if not pairs:
        raise ParameterError(
            'interactions must be "auto", a number of pairs, or a list of pairs of columns such as '
            f"[('hour', 'day')], got {value!r}"
        )
    named = [tuple(pair) for pair in value]
    for pair in named:
        if pair[0] == pair[1]:
            raise ParameterError(f"interactions has column {pair[0]!r} with itself")
        if named.count(pair) + named.count(pair[::-1]) > 1:
            raise ParameterError(f"interactions has {pair} twice")


def chosen_pairs(
    terms: list[BoundTerm], pairs: Sequence[Sequence[str]]
) -> list[tuple[BoundTerm, BoundTerm]]:
    """Return the terms that pairs name.

    Raises
    ------
    ParameterError
        If there is no such term, or it is none of a single column.
    """
    by_name = {term.name: term for term in candidates_of(terms)}
    for name in (name for pair in pairs for name in pair):
        if name not in by_name:
            raise ParameterError(
                f"interactions names {name!r}; there are terms of single columns {list(by_name)}"
            )
    return [(by_name[first], by_name[other]) for first, other in pairs]


def candidates_of(terms: list[BoundTerm]) -> list[BoundTerm]:
    """Terms of single columns that can interact, one for each input."""
    by_input: dict[Input, BoundTerm] = {}
    for term in terms:
        if term.family == "constant" and term.multiplier is not None:
            column = Input(term.multiplier.column)  # of a line, the function that it may become
            by_input.setdefault(column, BoundTerm.of_column(term.name, Matern52()))
            continue
        is_single = len(term.inputs) == 1 and term.value is not None
        if is_single and term.value is not None:
            by_input.setdefault(term.value, term)
    return list(by_input.values())


def interaction_of(first: BoundTerm, other: BoundTerm) -> BoundTerm:
    """Return the interaction of the columns of two terms."""
    # The levels of a curve come second.
    sides = sorted((first, other), key=lambda term: term.family == "levels")
    assert sides[0].value is not None
    kernel = CentredProduct((_kernel_of(sides[0]), _kernel_of(sides[1])))
    return BoundTerm(
        f"{first.name} × {other.name}",
        kernel,
        FAMILIES[sum(side.family == "levels" for side in sides)],
        sides[0].value,
        kind="Tensor",
        other=sides[1].value,
    )


def _kernel_of(term: BoundTerm) -> Kernel:
    if term.family == "levels":
        return Independent()
    kernel = term.kernel
    if [name for name in kernel.parameters if name.startswith("variance")] != ["variance"]:
        return Matern52()
    free = replace(kernel, fixed=(), priors={}) if kernel.priors else replace(kernel, fixed=())
    return without_starts(free)


def with_interactions(
    fit: Fit, source: Source, terms: list[BoundTerm], wanted: Any, clock: Clock
) -> Found:
    """Fit terms, and interactions of their columns.

    Parameters
    ----------
    fit : callable
    source : Source
    terms : list of BoundTerm
    wanted : "auto", int or list of pairs of names
    clock : Clock
    """
    if isinstance(wanted, (list, tuple)):
        pairs = [interaction_of(*pair) for pair in chosen_pairs(terms, wanted)]
        _require_new(terms, pairs)
        names = [(str(first), str(other)) for first, other in wanted]
        return Found(fit(source, [*terms, *pairs], clock), names, _scores({}))
    search = _Search(fit, source, terms, clock, wanted == "auto")
    return search.run(MOST_ADDED if wanted == "auto" else int(wanted))


def _require_new(terms: list[BoundTerm], pairs: list[BoundTerm]) -> None:
    """Raise ``ParameterError`` if a pair that is named is among the terms already."""
    by_inputs = {frozenset(term.inputs): term.name for term in terms if term.other is not None}
    names = {term.name for term in terms}
    for pair in pairs:
        present = by_inputs.get(frozenset(pair.inputs))
        if present is None and pair.name in names:
            present = pair.name
        if present is not None:
            raise ParameterError(
                f"interactions names a pair that is among the terms already, as {present!r}: leave "
                "one of them out"
            )


def _scores(rows: dict[tuple[str, str], dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(
        [{"first": first, "other": other, **row} for (first, other), row in rows.items()],
        columns=SCORE_COLUMNS,
    )
    return table.sort_values(["chosen", "gain"], ascending=False, ignore_index=True)


class _Search:
    """Rounds of adding pairs."""

    def __init__(
        self, fit: Fit, source: Source, terms: list[BoundTerm], clock: Clock, is_auto: bool
    ) -> None:
        self.fit, self.source, self.terms, self.clock = fit, source, terms, clock
        self.is_auto = is_auto
        self.columns = candidates_of(terms)
        present = {frozenset(term.inputs) for term in terms if term.other is not None}
        self.pairs = [
            (j, k)
            for j, k in combinations(range(len(self.columns)), 2)
            if frozenset((self.columns[j].inputs[0], self.columns[k].inputs[0])) not in present
            and self.columns[j].columns != self.columns[k].columns
        ]
        # Of as many candidates some promise a little by chance.
        self.least = math.log(max(len(self.pairs), 1)) + LEAST_GAIN if is_auto else ANY_GAIN

    def run(self, most: int) -> Found:
        """Add pairs while they gain, so many at most."""
        outcome = first = self.fit(self.source, self.terms, self.clock)
        added: list[tuple[int, int]] = []
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        notes: list[str] = []
        if most and self.pairs:
            self.clock.stage("look for interactions")
            tables = PairTables.of(self.source, self.columns, self.pairs)
            if tables.n_too_many:
                notes.append(
                    f"{tables.n_too_many} pairs of columns have too many levels and were not "
                    "considered"
                )
            self.pairs = tables.pairs
        number = 0
        while self.pairs and len(added) < most:
            number += 1
            gains = tables.gains(self.source, outcome)
            for pair, found in gains.items():
                if pair not in added:
                    rows[self._names(pair)] = {"gain": found, "round": number, "chosen": False}
            ranked = sorted(gains, key=lambda pair: -gains[pair])
            ranked = [p for p in ranked if p not in added and gains[p] > self.least]
            if not ranked:
                break
            room = min(MOST_IN_ROUND, max((most - len(added) + 1) // 2, 1))
            some = [p for p in ranked[:room] if gains[p] >= SHARE_OF_BEST * gains[ranked[0]]]
            better = self._with(outcome, added, some)
            if better is None and len(some) > 1:
                some = some[:1]
                better = self._with(outcome, added, some)
            if better is None:
                break
            outcome = better
            added += some
            for pair in some:
                rows[self._names(pair)]["chosen"] = True
        if added:
            notes.append(
                f"{len(added)} of {len(self.pairs)} pairs of columns interact, by "
                f"{outcome.log_posterior - first.log_posterior:.4g} nats of marginal likelihood"
            )
        if added and self.is_auto:
            difference, error, n_checked = self._checked(first, outcome)
            notes.append(
                f"leave-one-out log density of a row with them, less that without: "
                f"{difference:.3g} ± {error:.2g} ({n_checked} rows)"
            )
            if difference < -error:
                notes.append("predictions are better without them: they are left out")
                outcome, added = first, []
                for row in rows.values():
                    row["chosen"] = False
        return Found(outcome, [self._names(pair) for pair in added], _scores(rows), notes)

    def _names(self, pair: tuple[int, int]) -> tuple[str, str]:
        return self.columns[pair[0]].name, self.columns[pair[1]].name

    def _with(
        self, outcome: GaussianOutcome, added: list[tuple[int, int]], more: list[tuple[int, int]]
    ) -> GaussianOutcome | None:
        """Fit with more pairs; None where the marginal likelihood gains too little by them."""
        pairs = [interaction_of(self.columns[j], self.columns[k]) for j, k in [*added, *more]]
        # Learning begins where it ended before.
        known = {term.name: term.kernel for term in outcome.terms()}
        terms = [
            term.with_kernel(known.get(term.name, term.kernel)) for term in [*self.terms, *pairs]
        ]
        better = self.fit(self.source, terms, self.clock)
        gained = better.log_posterior - outcome.log_posterior
        return better if gained > self.least else None

    def _checked(self, first: GaussianOutcome, last: GaussianOutcome) -> tuple[float, float, int]:
        """Difference of leave-one-out log densities a row, its standard error, and the rows."""
        models = [GaussianModel(one.model(), one.noise_variance, None) for one in (first, last)]
        apart: list[Floats] = []
        n_rows = 0
        for load in self.source.chunks():
            rows = of_positive_weight(load())
            rows = _head(rows, CHECKED_ROWS - n_rows)
            assert rows.y is not None
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            densities = [
                model.leave_one_out_at(_used(model, self.source, rows), rows.y, weight)[0]
                for model in models
            ]
            apart.append(densities[1] - densities[0])
            n_rows += len(rows)
            if n_rows >= CHECKED_ROWS:
                break
        together = np.concatenate(apart)
        together = together[np.isfinite(together)]
        error = float(np.std(together)) / math.sqrt(max(len(together), 1))
        return float(np.mean(together)), error, len(together)


def _head(rows: Rows, number: int) -> Rows:
    """Return the first rows."""
    if len(rows) <= number:
        return rows
    return replace(
        rows,
        columns=[column[:number] for column in rows.columns],
        y=None if rows.y is None else rows.y[:number],
        weight=None if rows.weight is None else rows.weight[:number],
        n_rows=number,
        extra={name: values[:number] for name, values in rows.extra.items()},
    )


def _used(model: GaussianModel, source: Source, rows: Rows) -> Rows:
    """Return rows with the columns that a model uses."""
    return replace(rows, columns=_columns_of(model.latent, source.names, rows))  # type: ignore[arg-type]


def _columns_of(model: AdditiveModel, names: Sequence[str], rows: Rows) -> list[Floats]:
    by_name = dict(zip(names, rows.columns, strict=True))
    return [by_name[name] for name in model.used_columns]


# ---------------------------------------------------------------- tables


@dataclass(frozen=True)
class CoarseColumn:
    """A term's input, cut coarsely.

    Attributes
    ----------
    term : BoundTerm
    bins : Bins
    kept : ndarray of int, or None
        Of levels: which of the bins count, all others are left out.
    shares : ndarray of shape (n_codes,)
        Of the rows with each code.
    """

    term: BoundTerm
    bins: Bins
    kept: NDArray[np.intp] | None
    shares: Floats

    @classmethod
    def of(cls, term: BoundTerm, sketch: Sketch, levels: Floats | None) -> CoarseColumn:
        """Cut by a sketch, or by all levels."""
        bins = Bins.of(sketch, COARSE_BINS) if levels is None else Bins.of_values(levels)
        codes = np.searchsorted(bins.edges, sketch.values, side="right")
        counts = np.bincount(codes, sketch.counts, len(bins))
        kept = None
        if levels is not None and len(levels) > COARSE_LEVELS:
            kept = np.sort(np.argsort(-counts, kind="stable")[:COARSE_LEVELS])
            counts = counts[kept]
        return cls(term, bins, kept, counts / max(counts.sum(), 1.0))

    @property
    def varies(self) -> bool:
        """Whether its rows are in more than one bin."""
        return int(np.count_nonzero(self.shares)) > 1

    @property
    def n_levels(self) -> int:
        """How many levels it has; 0 of a smooth column."""
        return len(self.bins) if self.term.family == "levels" else 0

    def codes(self, by_name: dict[str, Floats]) -> NDArray[np.uint16]:
        """Code of each row; beyond all codes where it does not count."""
        values = self.term.read(by_name)[0]
        found = np.searchsorted(self.bins.edges, values, side="right")
        if self.kept is not None:
            place = np.minimum(np.searchsorted(self.kept, found), len(self.kept) - 1)
            found = np.where(self.kept[place] == found, place, len(self.kept))
        return np.where(np.isnan(values), np.iinfo(np.uint16).max, found).astype(np.uint16)


@dataclass(frozen=True)
class PairRecipe:
    """How a block of rows is summed by pairs; it travels to workers."""

    columns: list[CoarseColumn]
    pairs: list[tuple[int, int]]
    names: tuple[str, ...]
    model: AdditiveModel
    row_variance: float

    def __call__(self, rows: Rows) -> list[Floats]:
        """Precisions and scores of each pair, (2, n_first, n_other)."""
        rows = of_positive_weight(rows)
        assert rows.y is not None
        by_name = dict(zip(self.names, rows.columns, strict=True))
        codes = [column.codes(by_name) for column in self.columns]
        used = replace(rows, columns=_columns_of(self.model, self.names, rows))
        mean, _ = self.model.moments(used, False)
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        precision = weight / self.row_variance
        score = precision * (rows.y - mean)
        out = [
            np.zeros((2, len(self.columns[j].shares), len(self.columns[k].shares)))
            for j, k in self.pairs
        ]
        tasks = [
            partial(count_pairs, codes[j], codes[k], numbers, table[side])
            for (j, k), table in zip(self.pairs, out, strict=True)
            for side, numbers in enumerate((precision, score))
        ]
        run(tasks, _COUNT * len(rows) * len(tasks), in_place=True)
        return out


def _fits(columns: list[CoarseColumn], pair: tuple[int, int]) -> bool:
    """Whether an interaction of two columns has no more levels than one is made of."""
    sizes = [columns[k].n_levels for k in pair if columns[k].n_levels]
    if len(sizes) == 2:
        return sizes[0] * sizes[1] <= MOST_FILLED_PAIRS
    return not sizes or sizes[0] <= MOST_PAIRS // FEWEST_OF_PAIRS


class PairTables:
    """Coarse columns, and how rows are summed by pairs of them."""

    def __init__(
        self,
        columns: list[CoarseColumn],
        pairs: list[tuple[int, int]],
        lengths: list[int],
        n_too_many: int,
    ) -> None:
        self.columns, self.pairs, self.lengths = columns, pairs, lengths
        self.n_too_many = n_too_many
        self.features = [
            PairedColumn(column.shares, column.term.family == "levels").features()
            if column.varies
            else []
            for column in columns
        ]

    @classmethod
    def of(cls, source: Source, terms: list[BoundTerm], pairs: list[tuple[int, int]]) -> PairTables:
        """Cut the inputs of terms, in one pass over the rows."""
        rows = TermRows(source, terms)
        surveyed = survey(rows.source, levels=rows.levels)
        columns = [
            CoarseColumn.of(term, sketch, surveyed.levels.get(position))
            for position, (term, sketch) in enumerate(zip(terms, surveyed.sketches, strict=True))
        ]
        varying = [p for p in pairs if all(columns[k].varies for k in p)]
        fitting = [p for p in varying if _fits(columns, p)]
        return cls(columns, fitting, surveyed.lengths, len(varying) - len(fitting))

    def gains(self, source: Source, outcome: GaussianOutcome) -> dict[tuple[int, int], float]:
        """What each pair would gain beside a model, in nats."""
        model = outcome.model()
        recipe = PairRecipe(
            self.columns, self.pairs, tuple(source.names), model, outcome.noise_variance
        )
        total: list[Floats] | None = None
        for part in over_blocks(source.chunks(), self.lengths, LOGICAL_BLOCK, recipe, "pairs"):
            if total is None:
                total = part
                continue
            for mine, theirs in zip(total, part, strict=True):
                mine += theirs
        assert total is not None
        found = np.empty(len(self.pairs))

        def judge(position: int) -> None:
            j, k = self.pairs[position]
            precision, score = total[position]
            found[position] = gain(precision, score, self.features[j], self.features[k])[0]

        run([partial(judge, k) for k in range(len(self.pairs))], 1e-3 * len(found), in_place=True)
        return dict(zip(self.pairs, found.tolist(), strict=True))
