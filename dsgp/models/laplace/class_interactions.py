"""Models of classes in a search for interactions: all classes have the same pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from dsgp.likelihoods import Bernoulli, Likelihood
from dsgp.models.clock import Clock
from dsgp.models.interactions.search import LeaveOneOut
from dsgp.models.interactions.tables import Left
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.interactions import (
    SumOfTerms,
    faint_terms,
    finer_pairs,
    finer_structure,
    known_log_densities,
    left_out_moments,
    weights_of,
    with_bins_of,
)
from dsgp.models.laplace.judging import left_structure
from dsgp.models.laplace.rows import Responses
from dsgp.models.laplace.softmax import (
    ClassFits,
    average_softmax,
    class_factors,
    fit_classes,
    log_rest,
    present_classes,
    weighted_classes,
)
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats


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
        Factors of the weights of their rows.
    """

    classes: Any
    numbers: NDArray[np.intp]
    factors: Floats | None

    def of(self, rows: Rows) -> tuple[NDArray[np.intp], Floats]:
        """Class and weight of each row."""
        assert rows.y is not None
        labels = self.numbers[rows.y.astype(np.intp)]
        weight = weights_of(rows)
        return labels, weight if self.factors is None else weight * self.factors[labels]


@dataclass(frozen=True)
class ClassOutcome:
    """The result of fits of all classes with the same terms."""

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
            pairs = with_bins_of(outcome.responses.terms, pairs)
            return self._fit(self.fit, [*terms, *pairs], outcome)
        finished = [finer_structure(self.fit, each, self.clock) for each in fits.outcomes]
        return replace(outcome, fits=replace(fits, outcomes=finished))

    def _fitted(
        self,
        procedure: LaplaceFit,
        terms: list[BoundTerm],
        pairs: list[BoundTerm],
        before: ClassOutcome | None,
    ) -> ClassOutcome:
        if before is not None:
            pairs = with_bins_of(before.responses.terms, pairs)
        outcome = self._fit(procedure, [*terms, *pairs], before)
        finer = finer_pairs(pairs, outcome.fits.outcomes)
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
        """The residuals of a model."""
        outcomes = outcome.fits.outcomes
        return WorkingClasses(
            [SumOfTerms.of(each.model()) for each in outcomes],
            outcomes[0].likelihood,
            self.joint,
            outcome.labels,
        )

    def faint(self, outcome: ClassOutcome, names: Collection[str]) -> set[str]:
        """Terms of these that all classes may do without."""
        return faint_terms(outcome.fits.outcomes, names)

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
            left_out_moments(mean, variance, left.score, left.precision)
            for mean, variance, left in zip(means, variances, self.left(rows, means), strict=True)
        ]
        if len(moments) == 1:
            return known_log_densities(self.likelihood, 1.0 * (labels == 1), *moments[0], None)
        own = labels, np.arange(len(labels))
        if not self.joint:
            ones = np.ones(len(labels))
            logs = [known_log_densities(self.likelihood, ones, *each, None) for each in moments]
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
