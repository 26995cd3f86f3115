"""Models of dsgp on a table, with their defaults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    ProjectionPursuitGPRegressor,
    variance_shares,
)
from dsgp import ProjectionPursuitGPClassifier as PursuitClassifier
from pipelines.datasets import LabelledSplit, Split
from pipelines.reporting import parts_of
from pipelines.scaling.run import Clock
from pipelines.tables.columns import plain
from pipelines.tables.contract import Predicted

Make = Callable[[Any], Any]  # an estimator, from terms


@dataclass(frozen=True)
class Ours:
    """An estimator of dsgp.

    Attributes
    ----------
    regressor, classifier : callable or None
        Make the estimator from its terms; None where there is none for the task.
    fills_gaps : bool
        Whether gaps are filled before (by medians, and a level of their own): otherwise a gap adds
        nothing to a row.
    """

    regressor: Make | None
    classifier: Make | None = None
    fills_gaps: bool = False

    @property
    def tasks(self) -> tuple[str, ...]:
        made = {"regression": self.regressor, "classification": self.classifier}
        return tuple(task for task, make in made.items() if make is not None)

    def lacking(self) -> None:
        """Nothing: dsgp is there."""

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        is_class = isinstance(split, LabelledSplit)
        make = self.classifier if is_class else self.regressor
        assert make is not None
        if self.fills_gaps:
            split = _filled(split)
        model = make(terms)
        with clock.stage("fit"):
            model.fit(split.X_train, split.y_train)
        std = None
        with clock.stage("predict"):
            if is_class:
                mean = model.predict_proba(split.X_test)[:, 1]
            else:
                mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
        return Predicted(
            np.asarray(mean),
            None if std is None else np.asarray(std),
            _shares(model),
            _facts_of(model),
        )


def _filled(split: Split) -> Split:
    """Fill gaps; dates stay dates."""
    filled = plain(split).without_gaps()
    kept = {name: filled.train[name] for name in split.X_train if name in filled.train}
    test = {name: filled.test[name] for name in split.X_test if name in filled.test}
    for name in split.X_train:
        if pd.api.types.is_datetime64_any_dtype(split.X_train[name]):
            kept[name], test[name] = split.X_train[name], split.X_test[name]
    return replace(split, X_train=pd.DataFrame(kept), X_test=pd.DataFrame(test))


def _shares(model: Any) -> pd.DataFrame:
    """Shares of the variance of f, of all terms, a remainder and projections; they add up to 1."""
    parts = [variance_shares(part).reset_index() for part in parts_of(model).values()]
    table = pd.concat(parts)[["term", "kind", "share"]]
    return table.sort_values("share", ascending=False, ignore_index=True)


def _facts_of(model: Any) -> dict[str, Any]:
    parts = list(parts_of(model).values())
    facts: dict[str, Any] = {
        "converged": bool(model.converged_),
        "notes": [str(note) for part in parts for note in getattr(part, "learner_notes_", [])],
    }
    pairs = [list(pair) for part in parts for pair in getattr(part, "interactions_", None) or []]
    if pairs:
        facts["interactions"] = pairs
    if hasattr(model, "projections_"):
        facts["projections"] = len(model.projections_)
    return facts


def additive(terms: Any) -> Any:
    return AdditiveGPRegressor(terms=terms, missing="ignore")


def with_interactions(terms: Any) -> Any:
    return AdditiveGPRegressor(terms=terms, missing="ignore", interactions="auto")


def with_remainder(terms: Any) -> Any:
    return AdditiveGPRegressor(terms=terms, missing="ignore", interactions="auto", remainder=True)


def classes_with_interactions(terms: Any) -> Any:
    return AdditiveGPClassifier(terms=terms, missing="ignore", interactions="auto")


def additive_classes(terms: Any) -> Any:
    return AdditiveGPClassifier(terms=terms, missing="ignore")


def pursuit(terms: Any) -> Any:
    return ProjectionPursuitGPRegressor(terms=terms, random_state=0)


def pursuit_classes(terms: Any) -> Any:
    return PursuitClassifier(terms=terms, random_state=0)
