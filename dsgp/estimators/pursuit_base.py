"""What estimators of functions of projections share: the projections, and how they were found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dsgp.estimators.functions import FunctionEstimator
from dsgp.estimators.with_projections import WithProjections
from dsgp.models import report
from dsgp.models.columns import Columns
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.outcome import PursuitOutcome, SearchFacts
from dsgp.models.summary import Summary


class PursuitEstimator(WithProjections, FunctionEstimator):
    """An estimator whose first terms are functions of projections of columns."""

    _no_update = "directions of projections are learned from the rows, and these are not kept"

    missing = "error"  # a projection needs all its inputs

    def _take_pursuit(
        self, model: Any, fitted: PursuitOutcome, columns: Columns, fit_seconds: dict[str, float]
    ) -> None:
        """Take over what a fit came to."""
        self._take(model, fitted.facts, columns, fit_seconds)
        self._take_search(fitted.search_facts, fitted.relevance)

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``direction_uncertainty`` counts in a model that is fitted already."""
        super().set_params(**params)
        model: Any = getattr(self, "model_", None)
        counts = params.get("direction_uncertainty")
        if counts is not None and isinstance(getattr(model, "latent", None), ProjectedModel):
            latent = replace(model.latent, direction_uncertainty=bool(counts))
            self.model_ = replace(model, latent=latent)
        return self

    # ------------------------------------------------------------------ reporting and storing

    def _summary_of_projections(
        self, summary: Summary, legend: tuple[str, ...], method: str
    ) -> Summary:
        """Say of a summary how projections were found by a method, and what they are."""
        projected = report.Projected(
            self._facts.n_rows, self.projections_, self.relevance_, self._search_facts
        )
        return report.with_projections(summary, type(self).__name__, projected, legend, method)

    def _fitted_settings(self) -> dict[str, Any]:
        return super()._fitted_settings() | self._search_facts.shown()

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Any:
        model = super()._restore(settings, tree)
        facts = SearchFacts.of_settings(settings["fitted"])
        model._take_search(facts, np.asarray(tree["fitted"]["_relevance"]))
        return model
