"""Rounds of a search for interactions: pairs of columns, ranked by two-way tables.

A round sums the residuals of the present model by pairs of coarse bins of every two columns in one
pass over the rows, adds the pairs that promise most and fits again, as long as the gain in marginal
likelihood is significant for that many candidates. ``Fits`` defines a fit, and the residual of a
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import comb
from scipy.stats import chi2

from dsgp.additive.survey import of_positive_weight
from dsgp.models.clock import Clock
from dsgp.models.interactions.asked import (
    candidates_of,
    chosen_pairs,
    interaction_of,
    require_new,
)
from dsgp.models.interactions.tables import PairTables, Working
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats
from dsgp.terms.bound import INTERACTIONS

# Nats beyond the log of the number of candidates that a pair must gain with "auto".
LEAST_GAIN = 4.0
# Nats that a pair must gain if a number of pairs is requested.
ANY_GAIN = 1.0
# Limits of "auto": pairs in all, pairs per round, and the least gain as a share of the best one's.
MOST_ADDED, MOST_IN_ROUND, SHARE_OF_BEST = 20, 8, 0.1
# Number of rows for the leave-one-out check of "auto".
CHECKED_ROWS = 20_000

SCORE_COLUMNS = ["first", "other", "gain", "round", "chosen"]

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class LeaveOneOut:
    """Log densities of training rows given all others, by a fitted model.

    Attributes
    ----------
    columns : tuple of str
        Those that the model reads.
    densities : callable
        Of rows that hold these columns, (n,); not finite where a row has none.
    counts : callable
        How often each of these rows counts, (n,); None where weights are precisions.
    """

    columns: tuple[str, ...]
    densities: Callable[[Rows], Floats]
    counts: Callable[[Rows], Floats | None]


class Fits(Protocol[Outcome]):
    """Interface for fitting and judging the models of a search, whatever their noise is."""

    @property
    def source(self) -> Source:
        """The rows."""

    @property
    def clock(self) -> Clock:
        """Receives the names of the stages."""

    @property
    def n_functions(self) -> int:
        """Functions of each row, all of which have the pairs that are added."""

    @property
    def main_effects_known(self) -> bool:
        """Whether pairs are judged with main effects as they are."""

    def fitted(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: Outcome | None
    ) -> Outcome:
        """Fit terms and pairs; learning begins where it ended ``before`` with some of them."""

    def compared(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: Outcome | None
    ) -> Outcome:
        """Fit them as far as a comparison with other models needs."""

    def finished(self, terms: list[BoundTerm], pairs: list[BoundTerm], outcome: Outcome) -> Outcome:
        """Complete a fit of ``compared`` with the same terms and pairs."""

    def evidence(self, outcome: Outcome) -> float:
        """Log marginal likelihood, with the log densities of the priors of kernels."""

    def working(self, outcome: Outcome) -> Working:
        """The residuals of a model."""

    def faint(self, outcome: Outcome, names: Collection[str]) -> set[str]:
        """Terms of these that a model may do without."""

    def leave_one_out(self, outcome: Outcome) -> LeaveOneOut:
        """Log densities of training rows given all others."""


@dataclass(frozen=True)
class Found(Generic[Outcome]):
    """The result of a search for interactions.

    Attributes
    ----------
    outcome : outcome of a fit
        Of the model with them.
    pairs : list of tuple of str
        Names of the terms whose columns interact, as they were added.
    scores : pandas.DataFrame
        A row for each candidate, the most promising first, see ``interaction_scores_``.
    notes : list of str
    """

    outcome: Outcome
    pairs: list[tuple[str, str]]
    scores: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def with_interactions(fits: Fits[Outcome], terms: list[BoundTerm], wanted: Any) -> Found[Outcome]:
    """Fit terms, and interactions of their columns.

    Parameters
    ----------
    fits : Fits
    terms : list of BoundTerm
    wanted : "auto", int or list of pairs of names
    """
    if isinstance(wanted, (list, tuple)):
        pairs = [interaction_of(*pair) for pair in chosen_pairs(terms, wanted)]
        require_new(terms, pairs)
        names = [(str(first), str(other)) for first, other in wanted]
        return Found(fits.fitted(terms, pairs, None), names, scores_of({}))
    search = _Search(fits, terms, wanted == "auto")
    return search.run(MOST_ADDED if wanted == "auto" else int(wanted))


def scores_of(rows: dict[tuple[str, str], dict[str, Any]]) -> pd.DataFrame:
    """Make the table of all candidates, by their names."""
    table = pd.DataFrame(
        [{"first": first, "other": other, **row} for (first, other), row in rows.items()],
        columns=SCORE_COLUMNS,
    )
    return table.sort_values(["chosen", "gain"], ascending=False, ignore_index=True)


def least_of(nats: float, n_functions: int) -> float:
    """Gain of several functions together that is as unlikely by chance as that of one.

    Without an interaction, the best variance of a function is 0 with probability ½, and twice the
    gain has a χ² distribution with as many degrees of freedom as there are positive variances.

    Examples
    --------
    >>> from dsgp.models.interactions.search import least_of
    >>> least_of(7.0, 1), round(least_of(7.0, 3), 2)
    (7.0, 9.18)
    """
    if n_functions == 1:
        return nats

    def log_chance(value: float, n: int) -> float:
        k = np.arange(1, n + 1)
        terms = np.log(comb(n, k)) - n * math.log(2) + chi2.logsf(2 * value, k)
        return float(np.logaddexp.reduce(terms))

    wanted = log_chance(nats, 1)
    beyond = nats + 10.0 * n_functions * (1.0 + math.log1p(nats))
    return float(brentq(lambda value: log_chance(value, n_functions) - wanted, nats, beyond))


class _Search(Generic[Outcome]):
    """Rounds of adding pairs."""

    def __init__(self, fits: Fits[Outcome], terms: list[BoundTerm], is_auto: bool) -> None:
        self.fits, self.terms, self.is_auto = fits, terms, is_auto
        self.columns = candidates_of(terms)
        present = {frozenset(term.inputs) for term in terms if term.other is not None}
        self.pairs = [
            (j, k)
            for j, k in combinations(range(len(self.columns)), 2)
            if frozenset((self.columns[j].inputs[0], self.columns[k].inputs[0])) not in present
            and self.columns[j].columns != self.columns[k].columns
        ]
        # Among many candidates, some promise a small gain by chance.
        self.least = math.log(max(len(self.pairs), 1)) + LEAST_GAIN if is_auto else ANY_GAIN
        self.least = least_of(self.least, fits.n_functions)
        # Pairs whose gain another pair explains.
        self.left_out: set[tuple[int, int]] = set()

    def run(self, most: int) -> Found[Outcome]:
        """Add pairs while they gain, at most ``most`` of them."""
        if not most or not self.pairs:
            return Found(self.fits.fitted(self.terms, [], None), [], scores_of({}))
        outcome = self.fits.compared(self.terms, [], None)
        first = outcome if self.is_auto else None  # the check of "auto" compares with it
        begun = self.fits.evidence(outcome)
        added: list[tuple[int, int]] = []
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        notes: list[str] = []
        self.fits.clock.stage("look for interactions")
        tables = PairTables.of(self.fits.source, self.columns, self.pairs)
        if tables.n_too_many:
            notes.append(
                f"{INTERACTIONS}: {tables.n_too_many} pairs of columns have too many levels and "
                "were not considered"
            )
        self.pairs = tables.pairs
        number = 0
        while self.pairs and len(added) < most:
            number += 1
            room = min(MOST_IN_ROUND, max((most - len(added) + 1) // 2, 1))
            some, gains = self._promising(tables, outcome, added, room)
            for pair, found in gains.items():
                if pair not in added:
                    rows[self._names(pair)] = {"gain": found, "round": number, "chosen": False}
            if not some:
                break
            better = self._with(outcome, added, some)
            if better is None and len(some) > 1:
                some = some[:1]
                better = self._with(outcome, added, some)
            if better is None:
                break
            # For a single pair it is known already.
            judged = added if len(some) == 1 else added + some
            outcome, added = self._without_idle(better, added + some, judged)
            del better  # the tables of a model that is not kept need not wait for the next one
        for pair in added:
            rows[self._names(pair)]["chosen"] = True
        if added:
            gained = self.fits.evidence(outcome) - begun
            notes.append(
                f"{INTERACTIONS}: {len(added)} of {len(self.pairs)} pairs of columns, by "
                f"{gained:.4g} nats of log marginal likelihood"
            )
        elif self.pairs:
            notes.append(
                f"{INTERACTIONS}: none of {len(self.pairs)} pairs of columns gains "
                f"{self.least:.3g} nats of log marginal likelihood"
            )
        if added and first is not None:
            difference, error, n_checked = self._checked(first, outcome)
            notes.append(
                f"{INTERACTIONS}: leave-one-out log density per row, with them minus without: "
                f"{difference:.3g} ± {error:.2g} ({n_checked} rows)"
            )
            claimed = gained / sum(tables.lengths)
            if difference < error < claimed - difference:
                notes.append(
                    f"{INTERACTIONS}: they do not improve leave-one-out predictions and are dropped"
                )
                outcome, added = first, []
                for row in rows.values():
                    row["chosen"] = False
        outcome = self.fits.finished(self.terms, self._terms_of(added), outcome)
        return Found(outcome, [self._names(pair) for pair in added], scores_of(rows), notes)

    def _promising(
        self,
        tables: PairTables,
        outcome: Outcome,
        added: list[tuple[int, int]],
        room: int,
    ) -> tuple[list[tuple[int, int]], dict[tuple[int, int], float]]:
        """Return pairs to add, each judged given those before it, and the gains of all.

        What the pairs before it would explain is subtracted: columns with similar information
        promise the same interaction, which is added once.
        """
        working, known = self.fits.working(outcome), self.fits.main_effects_known
        refused = self.left_out.union(added)
        effects: dict[tuple[int, int], Floats] = {}
        chosen: dict[tuple[int, int], float] = {}
        gains: dict[tuple[int, int], float] = {}
        while len(chosen) < room:
            sums = tables.sums(self.fits.source, working, effects)
            gains = tables.gains(sums, main_effects_known=known) | chosen
            new = [pair for pair in gains if pair not in refused and pair not in chosen]
            best = max(new, key=lambda pair: gains[pair], default=None)
            least = max(self.least, SHARE_OF_BEST * max(chosen.values(), default=0.0))
            if best is None or gains[best] <= least:
                break
            chosen[best] = gains[best]
            effects[best] = tables.effect(best, sums, main_effects_known=known)
        return list(chosen), gains

    def _names(self, pair: tuple[int, int]) -> tuple[str, str]:
        return self.columns[pair[0]].name, self.columns[pair[1]].name

    def _with(
        self, outcome: Outcome, added: list[tuple[int, int]], more: list[tuple[int, int]]
    ) -> Outcome | None:
        """Fit with more pairs; None if the marginal likelihood gains too little."""
        better = self._fitted([*added, *more], outcome)
        gained = self.fits.evidence(better) - self.fits.evidence(outcome)
        return better if gained > self.least else None

    def _fitted(self, pairs: list[tuple[int, int]], before: Outcome) -> Outcome:
        return self.fits.compared(self.terms, self._terms_of(pairs), before)

    def _terms_of(self, pairs: list[tuple[int, int]]) -> list[BoundTerm]:
        return [interaction_of(self.columns[j], self.columns[k]) for j, k in pairs]

    def _without_idle(
        self, outcome: Outcome, added: list[tuple[int, int]], judged: list[tuple[int, int]]
    ) -> tuple[Outcome, list[tuple[int, int]]]:
        """Leave out judged pairs that explain little beside the others, if that is allowed."""
        names = {interaction_of(self.columns[j], self.columns[k]).name: (j, k) for j, k in judged}
        faint = {names[name] for name in self.fits.faint(outcome, names)}
        if not faint:
            return outcome, added
        kept = [pair for pair in added if pair not in faint]
        less = self._fitted(kept, outcome)
        if self.fits.evidence(outcome) - self.fits.evidence(less) > self.least:
            return outcome, added
        self.left_out |= faint
        return less, kept

    def _checked(self, first: Outcome, last: Outcome) -> tuple[float, float, int]:
        """Difference of leave-one-out log densities per row, its standard error, and the rows."""
        models = [self.fits.leave_one_out(outcome) for outcome in (first, last)]
        apart: list[Floats] = []
        counts: list[Floats] = []
        n_rows = 0
        for load in self.fits.source.chunks():
            rows = of_positive_weight(load()).part(slice(CHECKED_ROWS - n_rows))
            by_name = dict(zip(self.fits.source.names, rows.columns, strict=True))
            densities = [
                model.densities(replace(rows, columns=[by_name[name] for name in model.columns]))
                for model in models
            ]
            apart.append(densities[1] - densities[0])
            times = models[0].counts(rows)
            if times is not None:
                counts.append(times)
            n_rows += len(rows)
            if n_rows >= CHECKED_ROWS:
                break
        return _average(np.concatenate(apart), np.concatenate(counts) if counts else None)


def _average(values: Floats, counts: Floats | None) -> tuple[float, float, int]:
    """Average those that are finite: the mean, its standard error, and their number."""
    seen = np.isfinite(values)
    values = values[seen]
    if counts is None:
        error = float(np.std(values)) / math.sqrt(max(len(values), 1))
        return float(np.mean(values)), error, len(values)
    shares = counts[seen] / counts[seen].sum()
    mean = float(np.sum(shares * values))
    error = math.sqrt(float(np.sum((shares * (values - mean)) ** 2)))
    return mean, error, len(values)
