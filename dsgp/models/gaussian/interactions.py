"""Interactions that are looked for: pairs of columns, ranked by what two-way tables promise.

A round takes the residuals of the model so far, sums them by pairs of coarse bins of every two
columns in one pass over the rows, adds the pairs that promise most and fits again, for as long as
the marginal likelihood gains what so many candidates call for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dsgp.additive.survey import of_positive_weight
from dsgp.errors import ParameterError
from dsgp.kernels import CentredProduct, Independent, Kernel, Matern52
from dsgp.learning.search import without_starts
from dsgp.models.clock import Clock
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.pair_tables import PairTables
from dsgp.models.gaussian_model import GaussianModel
from dsgp.rows.sources import Source
from dsgp.terms import BoundTerm, Floats, Input
from dsgp.terms.bound import INTERACTIONS
from dsgp.terms.interaction import FAMILIES

# Nats beyond the log of the number of candidates that "auto" asks of a pair.
LEAST_GAIN = 4.0
# Nats that a pair must gain where a number of them is asked for.
ANY_GAIN = 1.0
# Pairs that "auto" adds at most, and those of one round: a share of the best one's gain at least.
MOST_ADDED, MOST_IN_ROUND, SHARE_OF_BEST = 20, 4, 0.15
# Rows by which the leave-one-out check of "auto" is made.
CHECKED_ROWS = 20_000

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
        if len(term.inputs) == 1 and term.value is not None:
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
                    f"{INTERACTIONS}: {tables.n_too_many} pairs of columns have too many levels "
                    "and were not considered"
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
                f"{INTERACTIONS}: {len(added)} of {len(self.pairs)} pairs of columns, by "
                f"{outcome.log_posterior - first.log_posterior:.4g} nats of marginal likelihood"
            )
        if added and self.is_auto:
            difference, error, n_checked = self._checked(first, outcome)
            notes.append(
                f"{INTERACTIONS}: leave-one-out log density of a row with them, less that without: "
                f"{difference:.3g} ± {error:.2g} ({n_checked} rows)"
            )
            if difference < -error:
                notes.append(
                    f"{INTERACTIONS}: predictions are better without them: they are left out"
                )
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
        latents = [one.model() for one in (first, last)]
        models = [
            GaussianModel(latent, one.noise_variance, None)
            for latent, one in zip(latents, (first, last), strict=True)
        ]
        apart: list[Floats] = []
        n_rows = 0
        for load in self.source.chunks():
            rows = of_positive_weight(load()).part(slice(CHECKED_ROWS - n_rows))
            assert rows.y is not None
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            by_name = dict(zip(self.source.names, rows.columns, strict=True))
            densities = [
                model.leave_one_out_at(
                    replace(rows, columns=[by_name[name] for name in latent.used_columns]),
                    rows.y,
                    weight,
                )[0]
                for model, latent in zip(models, latents, strict=True)
            ]
            apart.append(densities[1] - densities[0])
            n_rows += len(rows)
            if n_rows >= CHECKED_ROWS:
                break
        together = np.concatenate(apart)
        together = together[np.isfinite(together)]
        error = float(np.std(together)) / math.sqrt(max(len(together), 1))
        return float(np.mean(together)), error, len(together)
