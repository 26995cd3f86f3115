"""What estimators share that look for interactions: the pairs found, and their scores."""

from __future__ import annotations

from typing import Any, Self

import pandas as pd

from dsgp.estimators.functions import FunctionEstimator
from dsgp.models.interactions.search import SCORE_COLUMNS, Found, scores_of


class InteractionEstimator(FunctionEstimator):
    """An estimator of one f with ``interactions`` among its parameters.

    A ``fit`` calls ``_take_interactions`` after ``_take``.
    """

    interactions_: list[tuple[str, str]]
    interaction_scores_: pd.DataFrame

    def _take_interactions(self, found: Found[Any]) -> None:
        """Take over the pairs found."""
        self.interactions_, self.interaction_scores_ = found.pairs, found.scores

    def _take_no_interactions(self) -> None:
        """Take over that none was looked for."""
        self.interactions_, self.interaction_scores_ = [], scores_of({})

    def _fitted_settings(self) -> dict[str, Any]:
        pairs = [list(pair) for pair in self.interactions_]
        scores = self.interaction_scores_.to_dict("records")
        kept = (
            {"_interactions": {"pairs": pairs, "scores": scores}}
            if self.interactions_ or len(scores)
            else {}
        )
        return super()._fitted_settings() | kept

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        model = super()._restore(settings, tree)
        kept = settings["fitted"].get("_interactions", {"pairs": [], "scores": []})
        model.interactions_ = [(first, other) for first, other in kept["pairs"]]
        model.interaction_scores_ = pd.DataFrame(kept["scores"], columns=SCORE_COLUMNS)
        return model
