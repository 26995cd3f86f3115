"""Models with a likelihood, and those of classes, in a search for interactions.

At the mode of Laplace's approximation a row is a Gaussian observation of its f of precision W that
lies s/W beside it, s the gradient of its log density: what a search sums are s and W.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from dsgp.compute import one_blas_thread
from dsgp.likelihoods import Bernoulli, Likelihood
from dsgp.models.additive import AdditiveModel, centred_mean
from dsgp.models.cautions import BIN_ERROR
from dsgp.models.clock import Clock
from dsgp.models.interactions.search import LeaveOneOut
from dsgp.models.interactions.tables import Left
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.judging import BinsOfTerms, left_structure
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses, require_targets
from dsgp.models.laplace.softmax import (
    ClassFits,
    average_softmax,
    class_factors,
    fit_classes,
    log_rest,
    present_classes,
    weighted_classes,
)
from dsgp.models.term import FittedTerm
from dsgp.rows.response import TRIALS, shift_of
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats
from dsgp.terms.interaction import FAMILIES, MOST_PAIR_BINS, PAIR_BINS

# Dispersion that bins of pairs may add, as a share of that of the likelihood.
_BIN_DISPERSION = 0.05
# Effective degrees of freedom of a pair, with less of which a model may do without it.
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


def _left_out(
    mean: Floats, variance: Floats, score: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of f without a row, (n,) each; NaN where the row alone determines f.

    The row is the Gaussian observation of its working model (Vehtari et al. 2016).
    """
    left = 1.0 - variance * precision
    left = np.where(left > 0, left, np.nan)
    return mean - variance * score / left, variance / left


def _with_bins_of(terms: list[BoundTerm], pairs: list[BoundTerm]) -> list[BoundTerm]:
    """Return pairs with as many bins as they have among terms."""
    bins = {term.name: term.bins for term in terms}
    return [replace(pair, bins=bins.get(pair.name, pair.bins)) for pair in pairs]


def _finer(pairs: list[BoundTerm], outcomes: Sequence[LaplaceOutcome]) -> list[BoundTerm]:
    """Return pairs in more bins, where fits say that they are too few.

    Rows of a likelihood differ in how informative they are: where W is large, what a function
    varies by within a bin looks like structure that is left.
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


def _faint(outcomes: Sequence[LaplaceOutcome], names: Collection[str]) -> set[str]:
    """Terms that have few degrees of freedom in all of the fits.

    What is left out of a model with a link other than the identity makes the effects of other
    columns smaller, by more where there is more of it: that looks like further interactions, until
    it is added.
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


def _weights(rows: Rows) -> Floats:
    return np.ones(len(rows)) if rows.weight is None else rows.weight


def _finer_structure(fit: LaplaceFit, outcome: LaplaceOutcome, clock: Clock) -> LaplaceOutcome:
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
    # Rows tell less than with Gaussian noise, so that gains must not be too small.
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
        return _finer_structure(self.fit, outcome, self.clock)

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
            pairs = _with_bins_of(before.responses.terms, pairs)
        outcome = fit([*terms, *pairs], before)
        finer = _finer(pairs, [outcome])
        return outcome if finer == pairs else fit([*terms, *finer], outcome)

    def evidence(self, outcome: LaplaceOutcome) -> float:
        """Log marginal likelihood, with the log densities of the priors of kernels."""
        return outcome.log_posterior

    def working(self, outcome: LaplaceOutcome) -> WorkingRows:
        """What a model leaves of rows."""
        return WorkingRows(SumOfTerms.of(outcome.model()), outcome.likelihood)

    def faint(self, outcome: LaplaceOutcome, names: Collection[str]) -> set[str]:
        """Terms of these that a model may do without."""
        return _faint([outcome], names)

    def leave_one_out(self, outcome: LaplaceOutcome) -> LeaveOneOut:
        """Log densities of training rows given all others."""
        latent, likelihood = outcome.model(), outcome.likelihood

        def densities(rows: Rows) -> Floats:
            mean, variance = latent.moments(rows, True)
            assert rows.y is not None
            assert variance is not None
            f, trials = mean + shift_of(rows.extra), rows.extra.get(TRIALS)
            score, precision, _ = likelihood.derivatives(rows.y, f, trials)
            weight = _weights(rows)
            f, variance = _left_out(f, variance, weight * score, weight * precision)
            return _where_known(likelihood, rows.y, f, variance, trials)

        return LeaveOneOut(latent.used_columns, densities, _weights)


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
        weight = _weights(rows)
        return [Left(weight * precision, weight * score, weight * score**2)]


def _where_known(
    likelihood: Likelihood, y: Floats, mean: Floats, variance: Floats, trials: Floats | None
) -> Floats:
    """Predictive log densities; NaN where f has no variance."""
    known = np.isfinite(variance)
    out = np.full(len(y), np.nan)
    counted = None if trials is None else trials[known]
    out[known] = likelihood.log_predictive(y[known], mean[known], variance[known], counted)
    return out


# ---------------------------------------------------------------- classes


@dataclass(frozen=True)
class Labels:
    """Numbers of classes in a source, as those of the classes that rows of positive weight have.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Labels of these.
    numbers : ndarray of int, shape (n_labels,)
        Of the class of each label of the source.
    factors : ndarray of shape (n_classes,), or None
        What the weights of their rows are multiplied by.
    """

    classes: Any
    numbers: NDArray[np.intp]
    factors: Floats | None

    def of(self, rows: Rows) -> tuple[NDArray[np.intp], Floats]:
        """Class and weight of each row."""
        assert rows.y is not None
        labels = self.numbers[rows.y.astype(np.intp)]
        weight = _weights(rows)
        return labels, weight if self.factors is None else weight * self.factors[labels]


@dataclass(frozen=True)
class ClassOutcome:
    """What fits of all classes with the same terms come to."""

    fits: ClassFits
    labels: Labels
    responses: Responses


@dataclass(frozen=True)
class ClassLaplaceFits:
    """Fits of rows with labels; see ``interactions.search.Fits``.

    All classes have the same terms, each with hyperparameters of its own: what a pair promises is
    summed over the classes.

    Attributes
    ----------
    fit : LaplaceFit
    classes : ndarray of shape (n_labels,)
        Labels of the source.
    link : {"logit", "probit"}
    joint : bool
        Whether more than two classes have a softmax.
    class_weight : mapping, "balanced" or None
    source : Source
    clock : Clock
    """

    fit: LaplaceFit
    classes: Any
    link: str
    joint: bool
    class_weight: Mapping[Any, float] | str | None
    source: Source
    clock: Clock
    main_effects_known: bool = False

    @property
    def n_functions(self) -> int:
        """One of two classes, else one of each."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    def fitted(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: ClassOutcome | None
    ) -> ClassOutcome:
        """Fit terms and pairs; learning begins where it ended ``before`` with some of them."""
        return self._fitted(self.fit, terms, pairs, before)

    def compared(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: ClassOutcome | None
    ) -> ClassOutcome:
        """Fit them without a search for structure that the learner's nodes miss."""
        return self._fitted(replace(self.fit, finer=False), terms, pairs, before)

    def finished(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], outcome: ClassOutcome
    ) -> ClassOutcome:
        """Search for that structure; classes of a softmax that have some are fitted again."""
        fits = outcome.fits
        is_softmax = self.joint and len(fits.outcomes) > 1
        if is_softmax and self.fit.learner is not None and any(map(left_structure, fits.outcomes)):
            pairs = _with_bins_of(outcome.responses.terms, pairs)
            return self._fit(self.fit, [*terms, *pairs], outcome)
        finished = [_finer_structure(self.fit, each, self.clock) for each in fits.outcomes]
        return replace(outcome, fits=replace(fits, outcomes=finished))

    def _fitted(
        self,
        procedure: LaplaceFit,
        terms: list[BoundTerm],
        pairs: list[BoundTerm],
        before: ClassOutcome | None,
    ) -> ClassOutcome:
        if before is not None:
            pairs = _with_bins_of(before.responses.terms, pairs)
        outcome = self._fit(procedure, [*terms, *pairs], before)
        finer = _finer(pairs, outcome.fits.outcomes)
        return outcome if finer == pairs else self._fit(procedure, [*terms, *finer], outcome)

    def _fit(
        self, procedure: LaplaceFit, terms: list[BoundTerm], before: ClassOutcome | None
    ) -> ClassOutcome:
        responses = procedure.prepare(self.source, terms, self.clock, self.n_functions)
        responses, classes, numbers = present_classes(responses, self.classes)
        factors = class_factors(responses, self.class_weight, classes)
        responses = weighted_classes(responses, factors)
        known = None if before is None else before.fits.outcomes
        fits = fit_classes(
            procedure, responses, len(classes), self.link, self.joint, self.clock, known
        )
        return ClassOutcome(fits, Labels(classes, numbers, factors), responses)

    def evidence(self, outcome: ClassOutcome) -> float:
        r"""Log marginal likelihood, with the log densities of the priors of kernels.

        Of a softmax the determinant is that of the posterior of each function given the others:
        log p(y | F̂) − Σ_c (½ F̂_cᵀ K̃_c⁻¹ F̂_c + ½ log det(I + K̃_c W_c)).
        """
        outcomes = outcome.fits.outcomes
        total = sum(each.log_posterior for each in outcomes)
        if len(outcomes) == 1 or not self.joint:
            return total
        rows = outcome.responses.rows
        labels = rows.y.astype(np.intp)
        latents = np.stack([each.latent() for each in outcomes])
        weight = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
        density = log_softmax(latents, axis=0)[labels, np.arange(len(labels))]
        for c in range(len(outcomes)):  # each has the density of its class against the others
            against = latents[c] - log_rest(latents, c)
            density -= Bernoulli().log_density(1.0 * (labels == c), against)
        return total + float(np.sum(weight * density))

    def working(self, outcome: ClassOutcome) -> WorkingClasses:
        """What a model leaves of rows."""
        outcomes = outcome.fits.outcomes
        return WorkingClasses(
            [SumOfTerms.of(each.model()) for each in outcomes],
            outcomes[0].likelihood,
            self.joint,
            outcome.labels,
        )

    def faint(self, outcome: ClassOutcome, names: Collection[str]) -> set[str]:
        """Terms of these that all classes may do without."""
        return _faint(outcome.fits.outcomes, names)

    def leave_one_out(self, outcome: ClassOutcome) -> LeaveOneOut:
        """Log densities of training rows given all others."""
        models = [each.model() for each in outcome.fits.outcomes]
        likelihood = outcome.fits.outcomes[0].likelihood
        judged = _Judged(likelihood, self.joint, outcome.labels)

        def densities(rows: Rows) -> Floats:
            means, variances = zip(*(model.moments(rows, True) for model in models), strict=True)
            return judged.left_out(rows, np.stack(means), np.stack(variances))

        return LeaveOneOut(
            models[0].used_columns, densities, lambda rows: outcome.labels.of(rows)[1]
        )


@dataclass(frozen=True)
class _Judged:
    """Rows with labels beside values of the functions of classes, (n_functions, n)."""

    likelihood: Likelihood
    joint: bool
    labels: Labels

    def left(self, rows: Rows, latents: Floats) -> list[Left]:
        """Precision and score of each row, for each function."""
        labels, weight = self.labels.of(rows)
        if len(latents) > 1 and self.joint:
            latents = np.stack([f - log_rest(latents, c) for c, f in enumerate(latents)])
        out = []
        for c, f in enumerate(latents):
            is_one = labels == (c if len(latents) > 1 else 1)
            score, precision, _ = self.likelihood.derivatives(1.0 * is_one, f)
            out.append(Left(weight * precision, weight * score))
        return out

    def left_out(self, rows: Rows, means: Floats, variances: Floats) -> Floats:
        """Log probability of each row's label given all other rows, (n,)."""
        labels, _ = self.labels.of(rows)
        moments = [
            _left_out(mean, variance, left.score, left.precision)
            for mean, variance, left in zip(means, variances, self.left(rows, means), strict=True)
        ]
        if len(moments) == 1:
            return _where_known(self.likelihood, 1.0 * (labels == 1), *moments[0], None)
        own = labels, np.arange(len(labels))
        if not self.joint:
            ones = np.ones(len(labels))
            logs = [_where_known(self.likelihood, ones, *each, None) for each in moments]
            return np.asarray(log_softmax(np.stack(logs), axis=0)[own])
        mean, variance = (np.stack(part) for part in zip(*moments, strict=True))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(average_softmax(mean, variance)[own]))


@dataclass(frozen=True)
class WorkingClasses:
    """Scores and precisions of rows with labels, for the function of each class."""

    functions: list[SumOfTerms]
    likelihood: Likelihood
    joint: bool
    labels: Labels

    def __call__(self, rows: Rows, by_name: dict[str, Floats]) -> list[Left]:
        """Precision and score of each row, for each function."""
        latents = np.stack([function(rows, by_name) for function in self.functions])
        return _Judged(self.likelihood, self.joint, self.labels).left(rows, latents)
