"""What estimators whose models may have projections report of them."""

from __future__ import annotations

import pandas as pd

from dsgp.models.base import FittedModel
from dsgp.models.columns import Columns
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.outcome import SearchFacts
from dsgp.models.remainder import RemainderModel
from dsgp.models.sampled import DrawsModel
from dsgp.terms import Floats


class WithProjections:
    """An estimator that has a fitted f, and may have functions of projections as first terms."""

    evidence_: float
    evidence_trace_: list[list[float]]
    search_gain_: float
    search_limited_: bool

    _columns: Columns
    _relevance: Floats
    _rows_model: FittedModel

    def _take_search(self, facts: SearchFacts, relevance: Floats) -> None:
        self._search_facts, self._relevance = facts, relevance
        self.__dict__.update(facts.shown())

    def _forget_search(self) -> None:
        """Forget what an earlier fit found."""
        for name in ("_search_facts", "_relevance", *SearchFacts.shown_names()):
            self.__dict__.pop(name, None)

    @property
    def _projected(self) -> ProjectedModel:
        """The fitted functions of projections; of draws those that they began at."""
        latent = self._rows_model
        if isinstance(latent, RemainderModel):
            latent = latent.structure
        model = latent.start if isinstance(latent, DrawsModel) else latent
        if not isinstance(model, ProjectedModel):
            raise AttributeError("there are no projections: the model was fitted without any")
        return model

    @property
    def n_projections_(self) -> int:
        """Number of projections."""
        try:
            return self._projected.n_projections
        except AttributeError:
            if not hasattr(self, "model_"):
                raise
            return 0

    @property
    def projections_(self) -> pd.DataFrame:
        """Weights of the standardised inputs in each projection."""
        model = self._projected
        assert model.projections is not None
        directions = model.projections.directions
        names = [f"projection {m + 1}" for m in range(len(directions))]
        return pd.DataFrame(directions, index=names, columns=list(model.projected))

    @property
    def relevance_(self) -> pd.Series:
        """Share of each projected column in the mean squared gradient of what projections give."""
        model = self._projected
        others = {name for term in model.others for name in term.bound.columns}
        # Columns that hold no numbers are never projected.
        others |= set(self._columns.kinds)
        others -= set(model.projected)
        names = [name for name in self._columns.names if name not in others]
        shares = pd.Series(0.0, index=names, name="relevance")
        shares[list(model.projected)] = self._relevance
        return shares
