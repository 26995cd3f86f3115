"""Predictions of numbers beside what was observed: errors, densities, coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import binomtest

from dsgp.estimators.response import ResponseEstimator
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
_OF_CELLS = (
    " They count cells as independent; the errors of neighbours are alike, so that the uncertainty "
    "is larger than they show."
)
# How far from nominal a coverage must be to be warned of, beside chance.
_FAR = 0.03
# Likelihoods of whole numbers.
_WHOLE = ("binomial", "negative_binomial", "poisson")
_OF_COUNTS = (
    " Counted by randomised probabilities, because intervals of counts end at whole numbers and "
    "hold more rows than stated."
)


def of_numbers(
    model: Any,
    X: Any,
    y: Floats,
    given: Mapping[str, Any],
    drawn: Charts,
    target: str,
    unit: str = "rows",
) -> dict[str, Any]:
    """Compare predictions and their intervals with observed numbers of rows, or of cells."""
    mean = np.asarray(model.predict(X, **given))
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
    headline, explained = ("held-out R²", share_of(r_squared)), r_squared
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
                f"mean over the {unit} of −log p(observation); smaller is better, and it judges "
                "the stated uncertainty too (constant: a normal distribution)",
            )
        )  # fmt: skip
    inside = _coverages(model, X, y, given)
    calibrated = getattr(model, "n_calibrated_", 0)
    whole = isinstance(model, ResponseEstimator) and model.likelihood_.name in _WHOLE
    at_least = whole and bool(calibrated)
    notes = [
        *_note_of_accuracy(explained, error**2 - around**2, headline, unit),
        *_note_of_coverage(*inside[-1], len(y), at_least, unit),
    ]
    if calibrated:
        notes.append(
            f"Intervals of new observations are calibrated on {calibrated:,} rows (conformal)."
        )
    low, high = (
        np.array(ends) for ends in zip(*(_binomial(k, len(y)) for _, k in inside), strict=True)
    )
    nominal, share = np.array(inside).T / [[1], [len(y)]]
    figures = [
        Figure(
            "Do intervals hold as often as they say?",
            drawn.add(
                diagonal(
                    nominal, share, low, high, as_percent=True,
                    titles=("stated probability of the interval", f"held-out {unit} inside"),
                )
            ),
            "Points above the dashed line: intervals are wider than they need be. Below: too "
            "narrow. Vertical lines: 95% confidence intervals."
            + (_OF_COUNTS if whole and not at_least else "")
            + (_OF_CELLS if unit == "cells" else ""),
        ),
        Figure(
            "Predicted and observed",
            drawn.add(_predicted(mean, y, target)),
            f"Blue: mean of the observations in groups of {unit} with similar predictions, which "
            f"should lie on the dashed line. Grey: single {unit}.",
        ),
    ]  # fmt: skip
    return {
        "headline": headline,
        "measures": measures,
        "coverage": [(f"{level:.0%}", share_of(count / len(y))) for level, count in inside],
        "figures": figures,
        "notes": notes,
    }


def _coverages(model: Any, X: Any, y: Floats, given: Mapping[str, Any]) -> list[tuple[float, int]]:
    """Return each level that the model has intervals of, and how many rows these hold."""
    calibrated = getattr(model, "n_calibrated_", 0)
    if not calibrated:
        # The predictive probability of a row shows for all levels whether it is inside. That of a
        # count is randomised: intervals of counts end at whole numbers and hold more than stated.
        pit = model.pit(X, y, **given)
        return [(level, int(np.count_nonzero(np.abs(2 * pit - 1) <= level))) for level in LEVELS]
    counts = []
    for level in LEVELS:
        if round(level / (1 - level)) > calibrated:
            continue  # predict_interval refuses it: too few rows for a guarantee
        low, high = model.predict_interval(X, level, include_noise=True, **given)
        inside = (np.asarray(low) <= y) & (y <= np.asarray(high))
        counts.append((level, int(np.count_nonzero(inside))))
    return counts


def _binomial(count: int, number_of_rows: int) -> tuple[float, float]:
    ends = binomtest(count, number_of_rows).proportion_ci(0.95)  # exact
    return float(ends.low), float(ends.high)


def _note_of_accuracy(
    explained: float, worse: Floats, headline: tuple[str, str], unit: str
) -> list[str]:
    """Warn of predictions that a constant beats by more than chance; ``worse`` by its squares."""
    n = len(worse)
    if not (n > 1 and explained < 0 and worse.mean() > 2 * worse.std(ddof=1) / np.sqrt(n)):
        return []
    return [
        f"The held-out {unit} are predicted worse than by a constant, the mean of their values "
        f"({headline[0]} {headline[1]}): the model lacks what they vary with, such as a season or "
        f"an interaction, or they differ from the {unit} of the fit."
    ]


def _note_of_coverage(level: float, count: int, n: int, at_least: bool, unit: str) -> list[str]:
    """Warn of intervals that hold too few rows, or too many unless they hold a level at least."""
    low, high = _binomial(count, n)
    share = count / n
    if high < level and level - share > _FAR:
        return [
            f"Intervals of {level:.0%} hold only {share:.1%} of the held-out {unit}: they are too "
            "narrow, and the model is surer of itself than it should be."
        ]
    if low > level and share - level > _FAR and not at_least:
        return [
            f"Intervals of {level:.0%} hold {share:.1%} of the held-out {unit}: they are wider "
            "than they need be."
        ]
    return []


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
