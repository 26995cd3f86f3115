"""Methods of other libraries on the same rows: boosted trees, EBM, splines with one-hot levels."""

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler

from pipelines.datasets import LabelledSplit, Split
from pipelines.scaling.run import Clock
from pipelines.tables.columns import plain
from pipelines.tables.contract import Predicted

BOTH = ("regression", "classification")


def _of_model(
    model: Any, X: Any, y: Any, X_test: Any, is_class: bool, clock: Clock
) -> np.ndarray[Any, Any]:
    with clock.stage("fit"):
        model.fit(X, y)
    with clock.stage("predict"):
        mean = model.predict_proba(X_test)[:, 1] if is_class else model.predict(X_test)
    return np.asarray(mean, dtype=np.float64)


@dataclass(frozen=True)
class Trees:
    """scikit-learn's boosted trees, stopped early; interactions and all."""

    tasks: tuple[str, ...] = BOTH

    def lacking(self) -> None:
        """scikit-learn is always there."""

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        is_class = isinstance(split, LabelledSplit)
        kind = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
        X, X_test, is_code = plain(split).categories()
        model = kind(
            max_iter=500, early_stopping=True, categorical_features=is_code, random_state=0
        )
        mean = _of_model(model, X, split.y_train, X_test, is_class, clock)
        return Predicted(mean, details={"iterations": int(model.n_iter_)})


@dataclass(frozen=True)
class Ebm:
    """Explainable boosting machine of the package ``interpret``, with its pairs."""

    tasks: tuple[str, ...] = BOTH

    def lacking(self) -> str | None:
        if importlib.util.find_spec("interpret") is None:
            return "the package interpret is not installed: pip install interpret-core"
        return None

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        from interpret.glassbox import (  # noqa: PLC0415 — optional
            ExplainableBoostingClassifier,
            ExplainableBoostingRegressor,
        )

        is_class = isinstance(split, LabelledSplit)
        table = plain(split).without_gaps()
        kinds = ["nominal" if name in table.text else "continuous" for name in table.train]
        kind = ExplainableBoostingClassifier if is_class else ExplainableBoostingRegressor
        model = kind(random_state=0, n_jobs=1, feature_types=kinds)
        mean = _of_model(model, table.train, split.y_train, table.test, is_class, clock)
        pairs = [
            [str(table.train.columns[j]) for j in term]
            for term in model.term_features_
            if len(term) == 2
        ]
        return Predicted(mean, details={"interactions": pairs})


@dataclass(frozen=True)
class Ridge:
    """Cubic splines on twelve knots a number and one-hot levels, ridge or logistic regression."""

    n_knots: int = 12
    tasks: tuple[str, ...] = BOTH

    def lacking(self) -> None:
        """scikit-learn is always there."""

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        is_class = isinstance(split, LabelledSplit)
        table = plain(split).without_gaps()
        splines = SplineTransformer(n_knots=self.n_knots, knots="uniform")
        numbers = make_column_transformer(
            (make_pipeline(StandardScaler(), splines), table.numbers),
            (OneHotEncoder(handle_unknown="ignore"), table.text),
        )
        last = LogisticRegression(max_iter=500) if is_class else RidgeCV(np.logspace(-3, 3, 13))
        model = make_pipeline(numbers, last)
        return Predicted(_of_model(model, table.train, split.y_train, table.test, is_class, clock))
