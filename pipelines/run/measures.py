"""What is measured on the test rows, of each task."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.metrics import (
    brier,
    calibration_error,
    coverage,
    error_rate,
    mnll,
    mnlp,
    nmse,
    roc_auc,
)
from pipelines.datasets import Floats

# Lines of a table of results: key and label. Smaller is better, except for the last two kinds.
LABELS = {
    "nmse": "NMSE",
    "mnlp": "MNLP",
    "rmse": "RMSE",
    "error_rate": "error rate",
    "mnll": "MNLL",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "auc": "area under ROC",
    "coverage": "coverage",
}
# What a picture calls them, which has no place to explain them.
SPELT_OUT = {
    "nmse": "mean squared error\n/ variance of the target",
    "mnlp": "mean of −log density of\nthe target (nats)",
    "rmse": "root mean squared error\n",
    "error_rate": "labels that are wrong\n",
    "mnll": "log loss\n(nats)",
    "calibration_error": "error of predicted\nprobabilities",
    "coverage": "targets in their\nintervals",
}
FROM_ZERO = ("nmse", "rmse", "error_rate", "mnll", "calibration_error")
SHARES = ("nmse", "error_rate", "calibration_error", "coverage")
MOST_OF = ("auc",)  # larger is better
_AS_GOOD = 1e-3
# Those that the comparison draws.
DRAWN = {
    "regression": ("nmse", "mnlp", "coverage"),
    "classification": ("error_rate", "mnll", "calibration_error"),
    "counts": ("rmse", "mnlp", "coverage"),
}


def measure_regression(
    y: Floats,
    mean: Floats,
    std: Floats | None,
    y_train_mean: float,
    *,
    level: float,
    f: Floats | None = None,
    f_noise_variance: float | None = None,
    noise_variance: float | None = None,
) -> dict[str, float]:
    """Errors, fit of the density and coverage.

    Parameters
    ----------
    y : ndarray of shape (n_test,)
    mean, std : ndarray of shape (n_test,)
        Of the observations, with the noise. A baseline may have no std.
    y_train_mean : float
    level : float
        Of the intervals.
    f : ndarray of shape (n_test,), optional
        The true function; `f_noise_variance` is that of y around it.
    noise_variance : float, optional
        The part of ``std**2`` that is noise, if the model reports it.

    Returns
    -------
    dict
        ``nmse``, ``rmse`` (in units of y), with std also ``mnlp`` and ``coverage``; where f is
        known also ``mse_f``, ``coverage_f``, and ``nmse_truth`` and ``mnlp_truth``, which a model
        that knows f and the noise would have.
    """
    metrics = {"nmse": nmse(y, mean, y_train_mean)}
    if std is not None:
        metrics["mnlp"] = mnlp(y, mean, std**2)
    metrics["rmse"] = math.sqrt(np.mean((y - mean) ** 2))
    if std is not None:
        metrics["coverage"] = coverage(y, mean, std, level)
    if f is None:
        return metrics
    metrics["mse_f"] = float(np.mean((f - mean) ** 2))
    if std is not None and noise_variance is not None:
        std_f = np.sqrt(np.maximum(std**2 - noise_variance, 0.0))
        metrics["coverage_f"] = coverage(f, mean, std_f, level)
    metrics["nmse_truth"] = nmse(y, f, y_train_mean)
    if f_noise_variance is not None:
        metrics["mnlp_truth"] = mnlp(y, f, f_noise_variance)
    return metrics


def measure_classes(
    labels: NDArray[Any],
    probability: Floats,
    classes: NDArray[Any],
    truth: Floats | None = None,
) -> dict[str, float | None]:
    """Errors of labels and of probabilities.

    Parameters
    ----------
    labels : ndarray of shape (n_test,)
    probability : ndarray of shape (n_test, n_classes)
    classes : ndarray of shape (n_classes,)
    truth : ndarray of shape (n_test,), optional
        True probability of the second of two classes.

    Returns
    -------
    dict
        ``error_rate``, ``mnll`` (None where it is infinite, since a label that was observed has
        probability 0), ``brier``, ``calibration_error``, ``auc`` (None where the test rows are of
        one class); with the truth also ``error_rate_truth`` and ``mnll_truth``, which
        a model that knows it would have, and ``mse_probability``.
    """
    predicted = classes[probability.argmax(axis=1)]
    several = len(np.unique(labels)) > 1
    metrics: dict[str, float | None] = {
        "error_rate": error_rate(labels, predicted),
        "mnll": _mnll(labels, probability, classes),
        "brier": brier(labels, probability, classes),
        "calibration_error": calibration_error(labels, probability, classes),
        "auc": roc_auc(labels, probability, classes) if several else None,
    }
    if truth is not None:
        known = np.column_stack([1 - truth, truth])
        metrics["error_rate_truth"] = error_rate(labels, classes[known.argmax(axis=1)])
        metrics["mnll_truth"] = _mnll(labels, known, classes)
        metrics["mse_probability"] = float(np.mean((probability[:, 1] - truth) ** 2))
    return metrics


def impossible(labels: NDArray[Any], probability: Floats, classes: NDArray[Any]) -> int:
    """Count the rows whose label was given probability 0."""
    return int(np.count_nonzero((probability == 0) & (labels[:, None] == classes)))


def _mnll(labels: NDArray[Any], probability: Floats, classes: NDArray[Any]) -> float | None:
    if impossible(labels, probability, classes):
        return None
    return mnll(labels, probability, classes)


def measure_counts(y: Floats, table: pd.DataFrame) -> dict[str, float]:
    """Errors, fit of the density and coverage; of whole numbers more than the level is usual."""
    mean = table["mean"].to_numpy()
    return {
        "rmse": math.sqrt(np.mean((y - mean) ** 2)),
        "mnlp": -float(table["log_density"].mean()),
        "coverage": float(np.mean((table["lower"] <= y) & (y <= table["upper"]))),
    }


def formatted(name: str, value: float | None) -> str:
    """Format a measure for a table."""
    if value is None:
        return ""
    shares = ("coverage", "coverage_f", "error_rate", "error_rate_truth")
    return f"{value:.1%}" if name in shares and name.startswith("cov") else f"{value:.4g}"


def best_of(name: str, values: Mapping[str, float | None]) -> set[str]:
    """Models that are best by a measure, or a thousandth worse at most.

    None are by coverage, whose best is its level.
    """
    known = {m: value for m, value in values.items() if value is not None and math.isfinite(value)}
    if name.startswith("coverage") or len(known) < 2:
        return set()
    best = max(known.values()) if name in MOST_OF else min(known.values())
    return {m for m, value in known.items() if abs(value - best) <= _AS_GOOD * abs(best)}
