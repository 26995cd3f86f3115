"""Models with Gaussian noise in a search for interactions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from dsgp.models.additive import centred_mean
from dsgp.models.clock import Clock
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.interactions.search import LeaveOneOut
from dsgp.models.interactions.tables import Left
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows, Source
from dsgp.terms import BoundTerm, Floats

# Residuals are clipped to this many standard deviations of their noise: otherwise a single outlier
# in a bin of few rows, which the model cannot explain in another way, would add a pair.
_MOST_STDS = 3.0


@dataclass(frozen=True)
class GaussianFits:
    """Fits of rows of a source; see ``interactions.search.Fits``."""

    fit: GaussianFit
    source: Source
    clock: Clock
    n_functions: int = 1
    main_effects_known: bool = True

    def fitted(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: GaussianOutcome | None
    ) -> GaussianOutcome:
        """Fit terms and pairs; learning begins where it ended ``before`` with some of them."""
        terms = [*terms, *pairs]
        if before is not None:
            known = {term.name: term.kernel for term in before.terms()}
            terms = [term.with_kernel(known.get(term.name, term.kernel)) for term in terms]
        return self.fit(self.source, terms, self.clock)

    def compared(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], before: GaussianOutcome | None
    ) -> GaussianOutcome:
        """Fit them completely: with Gaussian noise that is cheap."""
        return self.fitted(terms, pairs, before)

    def finished(
        self, terms: list[BoundTerm], pairs: list[BoundTerm], outcome: GaussianOutcome
    ) -> GaussianOutcome:
        """It is complete."""
        return outcome

    def evidence(self, outcome: GaussianOutcome) -> float:
        """Log marginal likelihood, with the log densities of the priors of kernels."""
        return outcome.log_posterior

    def working(self, outcome: GaussianOutcome) -> Residuals:
        """The residuals of a model."""
        model = outcome.model()
        return Residuals(model.terms, model.intercept, outcome.noise_variance)

    def faint(self, outcome: GaussianOutcome, names: Collection[str]) -> set[str]:
        """None: with Gaussian noise, terms that are left out do not change the others' size."""
        return set()

    def leave_one_out(self, outcome: GaussianOutcome) -> LeaveOneOut:
        """Log densities of training rows given all others."""
        latent = outcome.model()
        model = GaussianModel(latent, outcome.noise_variance, None)

        def densities(rows: Rows) -> Floats:
            assert rows.y is not None
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            return model.leave_one_out_at(rows, rows.y, weight)[0]

        return LeaveOneOut(latent.used_columns, densities, lambda rows: None)


@dataclass(frozen=True)
class Residuals:
    """Residuals of a model, w (y − f) / σ², and their precisions w / σ²."""

    terms: list[FittedTerm]
    intercept: float
    row_variance: float

    def __call__(self, rows: Rows, by_name: dict[str, Floats]) -> list[Left]:
        """Precision and score of each row."""
        assert rows.y is not None
        score = rows.y - self.intercept
        for term in self.terms:
            score -= centred_mean(term, term.bound.joined(term.bound.read(by_name)))
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        precision = weight / self.row_variance
        most = _MOST_STDS / np.sqrt(precision)
        score = np.clip(score, -most, most) * precision
        return [Left(precision, score)]
