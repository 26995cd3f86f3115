"""Other methods on the same rows: the peers of regression, and scikit-learn's classifiers."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from dsgp.errors import ParameterError
from pipelines.datasets import Floats
from pipelines.peers import PEERS, peer_of
from pipelines.peers.python import Boosting
from pipelines.run.chain import Work
from pipelines.run.encoding import Encoded
from pipelines.run.folders import write_json
from pipelines.run.tables import TEST, TRAIN, whole

PREDICTED = "predicted.parquet"
DETAILS = "details.json"
TREES = "trees"  # boosted, interactions and all
BOOSTING = "boosting"  # the same without interactions
CLASSIFIERS = (TREES, BOOSTING, "splines")


def require(name: str, task: str) -> None:
    """Raise ``ParameterError`` where there is no such baseline for the task, or not installed."""
    if task == "counts":
        raise ParameterError(f"baseline {name!r}: there are no baselines for counts")
    if task == "classification" and name not in CLASSIFIERS:
        raise ParameterError(
            f"baseline for classification must be one of {', '.join(CLASSIFIERS)}, got {name!r}"
        )
    if task == "regression" and name != TREES:
        if name.partition(":")[0] not in PEERS:
            raise ParameterError(
                f"baseline for regression must be one of {', '.join([TREES, *PEERS])}, got {name!r}"
            )
        peer_of(name)[1].require()


def fit_baseline(work: Work, name: str) -> None:
    """Fit a baseline and predict the test rows, all of them in memory."""
    encoded = Encoded.of(work.needs["encode"])
    frames = [whole(work.needs["encode"] / part, encoded.inputs) for part in (TRAIN, TEST)]
    design = encoded.design
    if name in (TREES, BOOSTING):
        (X, special), (X_test, _) = map(design.categories, frames)
    else:
        X, X_test = (design(frame).to_numpy(np.float64) for frame in frames)
        special = design.indicators
    if encoded.task == "classification":
        table, details = _classified(work, name, X, encoded.codes(TRAIN), X_test, special)
    else:
        y = encoded.column(TRAIN, encoded.target).astype(np.float64)
        table, details = _regressed(work, name, X, y, X_test, special)
    table.to_parquet(work.folder / PREDICTED, index=False)
    write_json(work.folder / DETAILS, details)


def _regressed(
    work: Work, name: str, X: Any, y: Floats, X_test: Any, special: Any
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Fit the standardised target: boosting compares its loss with an absolute tolerance.

    ``special`` says which columns are codes of levels, of trees, or indicators of these.
    """
    centre, scale = float(y.mean()), float(y.std()) or 1.0
    standard = (y - centre) / scale
    if name == TREES:
        trees = HistGradientBoostingRegressor(
            categorical_features=special, max_iter=1000, early_stopping=True, random_state=0
        )
        with work.clock.stage("fit"):
            trees.fit(X, standard)
        with work.clock.stage("predict"):
            mean = trees.predict(X_test)
        return pd.DataFrame({"mean": centre + scale * mean}), {"iterations": trees.n_iter_}
    peer = peer_of(name)[1]
    known = {"categorical": special} if isinstance(peer, Boosting) else {}
    fit = peer.fit_predict(X, standard, X_test, **known)
    work.clock.seconds.update(fit.seconds)
    table = pd.DataFrame({"mean": centre + scale * fit.mean})
    noise = None if fit.noise_variance is None else fit.noise_variance * scale**2
    if fit.std is not None and noise is not None:
        table["std"] = np.sqrt((scale * fit.std) ** 2 + noise)
    return table, {**fit.details, "noise_variance": noise}


def _classified(
    work: Work, name: str, X: Any, y: Any, X_test: Any, special: Any
) -> tuple[pd.DataFrame, dict[str, Any]]:
    model: Any
    if name == "splines":
        splines = SplineTransformer(n_knots=20, knots="quantile", extrapolation="linear")
        of_numbers = make_column_transformer(
            (make_pipeline(StandardScaler(), splines), ~special), remainder="passthrough"
        )
        model = make_pipeline(of_numbers, LogisticRegression(C=1.0, max_iter=2000))
    else:
        apart = {"interaction_cst": "no_interactions"} if name == BOOSTING else {}
        model = HistGradientBoostingClassifier(
            categorical_features=special,
            max_iter=1000,
            early_stopping=True,
            random_state=0,
            **apart,
        )
    with work.clock.stage("fit"):
        model.fit(X, y)
    with work.clock.stage("predict"):
        probability = model.predict_proba(X_test)
    last = model[-1] if name == "splines" else model
    names = [f"p{code}" for code in range(probability.shape[1])]
    return pd.DataFrame(probability, columns=names), {"iterations": int(np.max(last.n_iter_))}
