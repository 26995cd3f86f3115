"""What estimators of functions of projections share: the projections, and how they were found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dsgp.estimators.functions import FunctionEstimator
from dsgp.models import report
from dsgp.models.columns import Columns
from dsgp.models.projected import ProjectedModel, directions_of
from dsgp.models.pursuit.outcome import PursuitOutcome, SearchFacts
from dsgp.models.report import Summary
from dsgp.models.sampled import DrawsModel
from dsgp.terms import Floats


class PursuitEstimator(FunctionEstimator):
    """An estimator whose first terms are functions of projections of columns."""

    missing = "error"  # a projection needs all its inputs

    evidence_: float
    evidence_trace_: list[list[float]]
    search_gain_: float
    search_limited_: bool

    _relevance: Floats

    def _take_pursuit(
        self, model: Any, fitted: PursuitOutcome, columns: Columns, fit_seconds: dict[str, float]
    ) -> None:
        """Take over what a fit came to."""
        self._take(model, fitted.facts, columns, fit_seconds)
        self._take_search(fitted.search_facts, fitted.relevance)

    def _take_search(self, facts: SearchFacts, relevance: Floats) -> None:
        self._search_facts, self._relevance = facts, relevance
        self.__dict__.update(facts.shown())

    @property
    def _projected(self) -> ProjectedModel:
        """The fitted functions of projections; of draws those that they began at."""
        latent = self._fitted.latent
        model: ProjectedModel = latent.start if isinstance(latent, DrawsModel) else latent
        return model

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``direction_uncertainty`` counts in a model that is fitted already."""
        super().set_params(**params)
        model: Any = getattr(self, "model_", None)
        counts = params.get("direction_uncertainty")
        if counts is not None and isinstance(getattr(model, "latent", None), ProjectedModel):
            latent = replace(model.latent, direction_uncertainty=bool(counts))
            self.model_ = replace(model, latent=latent)
        return self

    # ------------------------------------------------------------------ what was found

    @property
    def n_projections_(self) -> int:
        """Number of projections."""
        return self._projected.n_projections

    @property
    def projections_(self) -> pd.DataFrame:
        """Weights of the standardised inputs in each projection."""
        return directions_of(self._projected)

    @property
    def relevance_(self) -> pd.Series:
        """Share of each projected column in the mean squared gradient of what projections give."""
        model = self._projected
        others = {name for term in model.others for name in term.bound.columns}
        # Columns that hold no numbers are never projected.
        others |= set(self._columns.kinds)
        names = [name for name in self._columns.names if name not in others]
        shares = pd.Series(0.0, index=names, name="relevance")
        shares[list(model.projected)] = self._relevance
        return shares

    # ------------------------------------------------------------------ telling and keeping

    def _told_of_projections(
        self, summary: Summary, legend: tuple[str, ...], method: str
    ) -> Summary:
        """Say of a summary how projections were found by a method, and what they are."""
        told = report.Projected(
            self._facts.n_rows, self.projections_, self.relevance_, self._search_facts
        )
        return report.with_projections(summary, type(self).__name__, told, legend, method)

    def _fitted_settings(self) -> dict[str, Any]:
        return super()._fitted_settings() | self._search_facts.shown()

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Any:
        model = super()._restore(settings, tree)
        fitted = settings["fitted"]
        facts = SearchFacts(**{name: fitted[f"{name}_"] for name in SearchFacts.names()})
        model._take_search(facts, np.asarray(tree["fitted"]["_relevance"]))
        return model
