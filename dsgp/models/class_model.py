"""Fitted f of classes: probabilities, averaged over the posterior of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsgp.models.base import FittedModel
from dsgp.models.laplace.softmax import average_softmax, softmax
from dsgp.models.response_model import ResponseModel
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Log of a probability that is 0 in float64.
_LEAST = -745.0

# Mean and variance of f of each class, or of the second of two, at some rows.
Moments = list[tuple[Floats, Floats]]


@dataclass(frozen=True)
class ClassModel:
    """One f of two classes, or one for each of more.

    Attributes
    ----------
    models : sequence of ResponseModel
        Each that of a class against the others; one of two classes, that of the second.
    joint : bool
        Whether the functions of more than two classes are those of a softmax.
    """

    models: Sequence[ResponseModel]
    joint: bool

    @property
    def leader(self) -> FittedModel:
        """An f with terms, where there is one: it asks for all columns that the others need."""
        return max((model.latent for model in self.models), key=lambda latent: bool(latent.terms))

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return max(len(self.models), 2)

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        for model in self.models:
            model.prepare(with_std)

    def moments(self, rows: Rows) -> Moments:
        """Mean and variance of f of each class at some rows."""
        moments: Moments = []
        for model in self.models:
            mean, variance = model.latent.moments(rows, with_variance=True)
            assert variance is not None
            moments.append((mean, variance))
        return moments

    def probabilities(self, rows: Rows) -> list[Floats]:
        """Probability of each class at some rows, (n,) each."""
        moments = self.moments(rows)
        if len(moments) == 1:
            return list(self.models[0].likelihood.class_probabilities(*moments[0]).T)
        if not self.joint:
            # In logs, because all probabilities may be 0 far from all classes.
            logs = [
                model.likelihood.log_predictive(1.0, mean, variance)
                for model, (mean, variance) in zip(self.models, moments, strict=True)
            ]
            return list(softmax(np.stack(logs)))
        return list(average_softmax(*map(np.stack, zip(*moments, strict=True))))

    def log_odds(self, rows: Rows) -> list[Floats]:
        """Log odds of the second of two classes; of more, the log of each probability."""
        if len(self.models) > 1:
            with np.errstate(divide="ignore"):
                return [np.maximum(np.log(p), _LEAST) for p in self.probabilities(rows)]
        likelihood, moments = self.models[0].likelihood, self.moments(rows)
        yes, no = (likelihood.log_predictive(y, *moments[0]) for y in (1.0, 0.0))
        return [yes - no]
