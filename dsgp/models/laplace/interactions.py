"""Models with a likelihood, and those of classes, in a search for interactions.

At the mode of Laplace's approximation a row is a Gaussian observation of f + s/W with precision W,
s the gradient of its log density: a search sums s and W.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsgp.compute import one_blas_thread
from dsgp.likelihoods import Likelihood
from dsgp.models.additive import AdditiveModel, centred_mean
from dsgp.models.cautions import BIN_ERROR
from dsgp.models.clock import Clock
from dsgp.models.interactions.search import LeaveOneOut
from dsgp.models.interactions.tables import Left
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.judging import BinsOfTerms
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import require_targets
from dsgp.models.term import FittedTerm
from dsgp.rows.response import TRIALS, shift_of
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats
from dsgp.terms.interaction import FAMILIES, MOST_PAIR_BINS, PAIR_BINS

# Dispersion that bins of pairs may add, as a share of that of the likelihood.
_BIN_DISPERSION = 0.05
# Effective degrees of freedom below which a pair may be left out of a model.
_FAINT = 3.0


@dataclass(frozen=True)
class SumOfTerms:
    """A fitted f, without the tables of its training rows."""

    terms: list[FittedTerm]
    intercept: float

    def __call__(self, rows: Rows, by_name: dict[str, Floats]) -> Floats:
        """Evaluate f without an offset, (n,)."""
        f = np.full(len(rows), self.intercept)
        for term in self.terms:
            f += centred_mean(term, term.bound.joined(term.bound.read(by_name)))
        return f

    @classmethod
    def of(cls, model: AdditiveModel) -> SumOfTerms:
        """Take that of a model."""
        return cls(model.terms, model.intercept)


def left_out_moments(
    mean: Floats, variance: Floats, score: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of f without a row, (n,) each; NaN where the row alone determines f.

    The row is the Gaussian observation of its working model (Vehtari et al. 2016).
    """
    left = 1.0 - variance * precision
    left = np.where(left > 0, left, np.nan)
    return mean - variance * score / left, variance / left


def with_bins_of(terms: list[BoundTerm], pairs: list[BoundTerm]) -> list[BoundTerm]:
    """Return pairs with as many bins as they have among terms."""
    bins = {term.name: term.bins for term in terms}
    return [replace(pair, bins=bins.get(pair.name, pair.bins)) for pair in pairs]


def finer_pairs(pairs: list[BoundTerm], outcomes: Sequence[LaplaceOutcome]) -> list[BoundTerm]:
    """Return pairs with more bins, if fits report that they are too few.

    Rows of a likelihood differ in how informative they are: where W is large, the variation of a
    function within a bin looks like structure in the residuals.
    """
    names = {pair.name for pair in pairs}
    costs = [BinsOfTerms.of(each, names) for each in outcomes]
    excess = max(max(cost.error / BIN_ERROR, cost.dispersion / _BIN_DISPERSION) for cost in costs)
    if excess <= 1:
        return pairs

    def more(bins: int | None) -> int:
        # Both fall with the square of the number of bins.
        return min(math.ceil((bins or PAIR_BINS) * math.sqrt(excess)), MOST_PAIR_BINS)

    return [
        pair if pair.family == FAMILIES[-1] else replace(pair, bins=more(pair.bins))
        for pair in pairs
    ]


def faint_terms(outcomes: Sequence[LaplaceOutcome], names: Collection[str]) -> set[str]:
    """Terms that have few degrees of freedom in all of the fits.

    With a link other than the identity, terms that are missing in a model make the effects of other
    columns smaller, and more so where they are larger: that looks like further interactions until
    they are added.
    """
    used = {
        name
        for each in outcomes
        for name, dof in zip(
            each.responses.rows.table.names, each.complexity.dof_of_terms, strict=True
        )
        if dof >= _FAINT
    }
    return set(names) - used


def weights_of(rows: Rows) -> Floats:
    """Weights of rows, (n,); ones where they have none."""
    return np.ones(len(rows)) if rows.weight is None else rows.weight


def finer_structure(fit: LaplaceFit, outcome: LaplaceOutcome, clock: Clock) -> LaplaceOutcome:
    """Learn what the nodes of a fit miss, where there was a learner."""
    if outcome.learned is None:
        return outcome
    with one_blas_thread():
        return fit.without_structure(outcome, clock)


# ---------------------------------------------------------------- one function


@dataclass(frozen=True)
class LaplaceFits:
    """Fits of rows of a source; see ``interactions.search.Fits``."""

    fit: LaplaceFit
    likelihood: Likelihood
    source: Source
    clock: Clock
    n_functions: int = 1
    # Rows are less informative than with Gaussian noise, so that smaller gains do not count.
    main_effects_known: bool = False

    def fitted(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: LaplaceOutcome | None
    ) -> LaplaceOutcome:
        """Fit terms and pairs; learning begins where it ended ``before`` with some of them."""
        return self._fitted(self.fit, terms, pairs, before)

    def compared(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: LaplaceOutcome | None
    ) -> LaplaceOutcome:
        """Fit them without a search for structure that the learner's nodes miss."""
        return self._fitted(replace(self.fit, finer=False), terms, pairs, before)

    def finished(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], outcome: LaplaceOutcome
    ) -> LaplaceOutcome:
        """Search for that structure."""
        return finer_structure(self.fit, outcome, self.clock)

    def _fitted(
        self,
        procedure: LaplaceFit,
        terms: list[BoundTerm],
        pairs: list[BoundTerm],
        before: LaplaceOutcome | None,
    ) -> LaplaceOutcome:
        likelihood = self.likelihood if before is None else before.likelihood

        def fit(terms: list[BoundTerm], before: LaplaceOutcome | None) -> LaplaceOutcome:
            responses = procedure.prepare(self.source, terms, self.clock)
            if before is None:
                require_targets(responses, likelihood, self.source)
            return procedure(responses, likelihood, self.clock, before)

        if before is not None:
            pairs = with_bins_of(before.responses.terms, pairs)
        outcome = fit([*terms, *pairs], before)
        finer = finer_pairs(pairs, [outcome])
        return outcome if finer == pairs else fit([*terms, *finer], outcome)

    def evidence(self, outcome: LaplaceOutcome) -> float:
        """Log marginal likelihood, with the log densities of the priors of kernels."""
        return outcome.log_posterior

    def working(self, outcome: LaplaceOutcome) -> WorkingRows:
        """The residuals of a model."""
        return WorkingRows(SumOfTerms.of(outcome.model()), outcome.likelihood)

    def faint(self, outcome: LaplaceOutcome, names: Collection[str]) -> set[str]:
        """Terms of these that a model may do without."""
        return faint_terms([outcome], names)

    def leave_one_out(self, outcome: LaplaceOutcome) -> LeaveOneOut:
        """Log densities of training rows given all others."""
        latent, likelihood = outcome.model(), outcome.likelihood

        def densities(rows: Rows) -> Floats:
            mean, variance = latent.moments(rows, True)
            assert rows.y is not None
            assert variance is not None
            f, trials = mean + shift_of(rows.extra), rows.extra.get(TRIALS)
            score, precision, _ = likelihood.derivatives(rows.y, f, trials)
            weight = weights_of(rows)
            f, variance = left_out_moments(f, variance, weight * score, weight * precision)
            return known_log_densities(likelihood, rows.y, f, variance, trials)

        return LeaveOneOut(latent.used_columns, densities, weights_of)


@dataclass(frozen=True)
class WorkingRows:
    """Scores w dlog p/df and precisions −w d²log p/df² of rows."""

    function: SumOfTerms
    likelihood: Likelihood

    def __call__(self, rows: Rows, by_name: dict[str, Floats]) -> list[Left]:
        """Precision and score of each row."""
        assert rows.y is not None
        f = self.function(rows, by_name) + shift_of(rows.extra)
        score, precision, _ = self.likelihood.derivatives(rows.y, f, rows.extra.get(TRIALS))
        weight = weights_of(rows)
        return [Left(weight * precision, weight * score, weight * score**2)]


def known_log_densities(
    likelihood: Likelihood, y: Floats, mean: Floats, variance: Floats, trials: Floats | None
) -> Floats:
    """Predictive log densities; NaN where f has no variance."""
    known = np.isfinite(variance)
    out = np.full(len(y), np.nan)
    counted = None if trials is None else trials[known]
    out[known] = likelihood.log_predictive(y[known], mean[known], variance[known], counted)
    return out
