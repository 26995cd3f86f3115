"""Predictions of numbers beside what was observed: errors, densities, coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import binomtest

from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.estimators.response import ResponseEstimator
from dsgp.models.gaussian_model import GaussianModel
from dsgp.report.diagonal_chart import diagonal
from dsgp.report.marks import Spec
from dsgp.report.measures import Figure, Measure
from dsgp.report.rendering import Charts
from dsgp.report.words import number, share_of
from dsgp.terms import Floats

# Probabilities of intervals that are compared with how often they hold.
LEVELS = (0.5, 0.8, 0.9, 0.95)
# Single rows in a chart, evenly spread; groups of rows with like predictions.
_CLOUD, _GROUPS = 500, 20
# How far from nominal a coverage must be to be warned of, beside chance.
_FAR = 0.03


def of_numbers(
    model: Any,
    X: Any,
    y: Floats,
    given: Mapping[str, Any],
    drawn: Charts,
    target: str,
) -> dict[str, Any]:
    """Compare predictions and their intervals with observed numbers."""
    mean, std = model.predict(X, return_std=True, include_noise=True, **given)
    mean, std = np.asarray(mean), np.asarray(std)
    error, around = y - mean, y - y.mean()
    spread = float(np.mean(around**2))
    r_squared = 1 - float(np.mean(error**2)) / spread if spread > 0 else float("nan")
    measures = [
        Measure(
            "R²", share_of(r_squared), "0.0%",
            "share of the variance of the target that the predictions explain; 100% is perfect",
        ),
        Measure(
            "RMSE", number(float(np.sqrt(np.mean(error**2)))), number(float(np.sqrt(spread))),
            f"root mean square of the errors, in units of {target}",
        ),
        Measure(
            "MAE", number(float(np.mean(np.abs(error)))),
            number(float(np.mean(np.abs(y - np.median(y))))),
            f"mean absolute error, in units of {target}",
        ),
    ]  # fmt: skip
    headline = ("held-out R²", share_of(r_squared))
    if isinstance(model, ResponseEstimator):
        explained = float(model.score(X, y, **given))
        headline = ("held-out deviance explained", share_of(explained))
        measures.insert(
            0,
            Measure(
                "D²", share_of(explained), "0.0%",
                "share of the deviance that the predictions explain; 100% is perfect",
            ),
        )  # fmt: skip
    if hasattr(model, "log_predictive_density"):
        density = model.log_predictive_density(X, y, **given)
        measures.append(
            Measure(
                "negative log density", number(-float(np.mean(density)), 4),
                number(0.5 * float(np.log(2 * np.pi * math.e * spread)), 4) if spread > 0 else "–",
                "mean over the rows of −log p(observation); smaller is better, and it judges the "
                "stated uncertainty too (constant: a normal distribution)",
            )
        )  # fmt: skip
    inside = _coverages(model, X, y, mean, std, given)
    coverage, notes = _told_of_coverage(inside, len(y))
    low, high = (
        np.array(ends) for ends in zip(*(_binomial(k, len(y)) for k in inside), strict=True)
    )
    share = np.array(inside) / len(y)
    figures = [
        Figure(
            "Do intervals hold as often as they say?",
            drawn.add(
                diagonal(
                    np.array(LEVELS), share, low, high, as_percent=True,
                    titles=("stated probability of the interval", "held-out rows inside"),
                )
            ),
            "Points above the dashed line: intervals are wider than need be. Below: too narrow. "
            "Vertical lines are what chance allows.",
        ),
        Figure(
            "Predicted and observed",
            drawn.add(_predicted(mean, y, target)),
            "Blue: mean of the observations in groups of rows with like predictions, which should "
            "lie on the dashed line. Grey: single rows.",
        ),
    ]  # fmt: skip
    return {
        "headline": headline,
        "measures": measures,
        "coverage": coverage,
        "figures": figures,
        "notes": notes,
    }


def _coverages(
    model: Any, X: Any, y: Floats, mean: Floats, std: Floats, given: Mapping[str, Any]
) -> list[int]:
    """Count the rows within intervals of a new observation, of each of ``LEVELS``."""
    inner = getattr(model, "model_", None)
    normal = not isinstance(model, (GaussianEstimator, ResponseEstimator)) or (
        type(inner) is GaussianModel and inner.transform is None
    )
    counts = []
    for level in LEVELS:
        if normal:
            inside = np.abs(y - mean) <= ndtri((1 + level) / 2) * std
        else:
            low, high = model.predict_interval(X, level, include_noise=True, **given)
            inside = (np.asarray(low) <= y) & (y <= np.asarray(high))
        counts.append(int(np.count_nonzero(inside)))
    return counts


def _binomial(count: int, number_of_rows: int) -> tuple[float, float]:
    ends = binomtest(count, number_of_rows).proportion_ci(0.95, method="wilson")
    return float(ends.low), float(ends.high)


def _told_of_coverage(inside: list[int], n: int) -> tuple[list[tuple[str, str]], list[str]]:
    coverage, notes = [], []
    for level, count in zip(LEVELS, inside, strict=True):
        coverage.append((f"{level:.0%}", share_of(count / n)))
    low, high = _binomial(inside[-1], n)
    share, nominal = inside[-1] / n, LEVELS[-1]
    if high < nominal and nominal - share > _FAR:
        notes.append(
            f"Intervals of {nominal:.0%} hold only {share:.1%} of the held-out rows: they are too "
            "narrow, and the model is surer of itself than it should be."
        )
    elif low > nominal and share - nominal > _FAR:
        notes.append(
            f"Intervals of {nominal:.0%} hold {share:.1%} of the held-out rows: they are wider "
            "than they need be."
        )
    return coverage, notes


def _predicted(mean: Floats, y: Floats, target: str) -> Spec:
    order = np.argsort(mean, kind="stable")
    groups = [group for group in np.array_split(order, min(_GROUPS, len(order))) if len(group)]
    some = np.linspace(0, len(order) - 1, min(_CLOUD, len(order))).round().astype(int)
    # Groups are contiguous in the predictions: single rows are drawn evenly spread over these.
    cloud = order[some]
    return diagonal(
        np.array([mean[group].mean() for group in groups]),
        np.array([y[group].mean() for group in groups]),
        None,
        None,
        titles=(f"predicted {target}", f"observed {target}"),
        line=False,
        cloud=(mean[cloud], y[cloud]),
    )
