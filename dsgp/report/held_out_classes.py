"""Probabilities of classes beside the classes that came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp import metrics
from dsgp.errors import DataError
from dsgp.report.diagonal_chart import diagonal
from dsgp.report.measures import Figure, Measure
from dsgp.report.rendering import Charts
from dsgp.report.words import number, share_of
from dsgp.terms import Floats

# Classes of which each has a chart and a row of the table of what was predicted.
_MOST_CLASSES = 8


def of_categories(
    model: Any, X: Any, y: NDArray[Any], given: Mapping[str, Any], drawn: Charts
) -> dict[str, Any]:
    """Categories of a likelihood: two of them by their probability, ordered ones by deviance."""
    explained = float(model.score(X, y, **given))
    deviance = Measure(
        "D²", share_of(explained), "0.0%",
        "share of the deviance that the predictions explain; 100% is perfect",
    )  # fmt: skip
    if model.likelihood_.name == "bernoulli":
        second = np.asarray(model.predict(X, **given))
        probability = np.column_stack([1 - second, second])
        found = of_classes(y, probability, np.array([0, 1]), drawn)
        return {**found, "measures": [deviance, *found["measures"]]}
    density = float(np.mean(model.log_predictive_density(X, y, **given)))
    shares = np.unique(y, return_counts=True)[1] / len(y)
    loss = Measure(
        "log loss", number(-density, 4), number(-float(shares @ np.log(shares)), 4),
        "mean over the rows of −log of the probability of their class; smaller is better",
    )  # fmt: skip
    return {
        "headline": ("held-out deviance explained", share_of(explained)),
        "measures": [deviance, loss],
        "coverage": [],
        "figures": [],
        "notes": [],
    }


def of_classes(
    y: NDArray[Any], probability: Any, classes: NDArray[Any], drawn: Charts
) -> dict[str, Any]:
    """Compare probabilities (n_rows, n_classes) with the classes that came."""
    probability = np.asarray(probability, dtype=np.float64)
    known = np.isin(y, classes)
    if not known.any():  # labels of a file may have come as text, or as numbers
        by_text = {str(label): label for label in classes}
        if all(str(label) in by_text for label in y):
            y = np.array([by_text[str(label)] for label in y], dtype=classes.dtype)
            known = np.ones(len(y), dtype=bool)
    if not known.all():
        strange = sorted({str(label) for label in y[~known]})[:3]
        raise DataError(
            f"the held-out target has classes that the fit did not: {', '.join(strange)}; the fit "
            f"has {', '.join(str(label) for label in classes[:20])}"
        )
    came = np.array([np.count_nonzero(y == label) for label in classes]) / len(y)
    predicted = classes[probability.argmax(axis=1)]
    seen = came[came > 0]
    constant_error = 1 - float(came.max())
    loss = metrics.mnll(y, probability, classes)
    measures = [
        Measure(
            "accuracy", share_of(1 - metrics.error_rate(y, predicted)),
            share_of(1 - constant_error),
            "share of the rows whose most probable class is theirs (constant: the most frequent "
            "class)",
        ),
        Measure(
            "log loss", number(loss, 4), number(-float(seen @ np.log(seen)), 4),
            "mean over the rows of −log of the probability of their class; smaller is better",
        ),
        Measure(
            "Brier score", number(metrics.brier(y, probability, classes), 3),
            number(_brier_of_constant(came), 3),
            "mean squared error of the probabilities; smaller is better",
        ),
        Measure(
            "calibration error", share_of(metrics.calibration_error(y, probability, classes)), "–",
            "distance of probabilities from observed shares, on average over ten groups of rows",
        ),
    ]  # fmt: skip
    headline = ("held-out accuracy", measures[0].value)
    if len(classes) == 2 and 0 < came[1] < 1:
        area = metrics.roc_auc(y, probability, classes)
        headline = ("held-out ROC AUC", number(area))
        measures.insert(
            1,
            Measure(
                "ROC AUC", number(area), "0.5",
                f"probability that a row of class {classes[1]} is given a larger probability of it "
                "than another one; 1 is perfect",
            ),
        )  # fmt: skip
    figures = []
    shown = range(1, 2) if len(classes) == 2 else range(min(len(classes), _MOST_CLASSES))
    for k in shown:
        label = str(classes[k])
        curve = metrics.calibration_curve(y == classes[k], probability[:, k], [False, True])
        figures.append(
            Figure(
                f"Do probabilities of “{label}” come true?",
                drawn.add(
                    diagonal(
                        curve.predicted, curve.observed, curve.low, curve.high, as_percent=True,
                        titles=("predicted probability", "observed share"),
                    )
                ),
                "Groups of rows with similar probabilities, which should lie on the dashed line. "
                "Vertical lines: 95% confidence intervals.",
            )
        )  # fmt: skip
    table = None
    if len(classes) <= _MOST_CLASSES:
        table = pd.crosstab(
            pd.Categorical(y, classes), pd.Categorical(predicted, classes), dropna=False
        )
    return {
        "headline": headline,
        "measures": measures,
        "coverage": [],
        "figures": figures,
        "notes": [],
        "table": table,
    }


def _brier_of_constant(came: Floats) -> float:
    """Return the score of always predicting the shares, in the manner of ``metrics.brier``."""
    score = float(np.sum(came * (1 - came)))
    return score / 2 if len(came) == 2 else score
