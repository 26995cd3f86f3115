"""How well a model predicts rows that it was not fitted to: measures, and calibration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binomtest

from dsgp import metrics
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.classes import ClassEstimator
from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.estimators.response import ResponseEstimator
from dsgp.models.gaussian_model import GaussianModel
from dsgp.report import charts
from dsgp.report.rendering import Chart, Charts
from dsgp.report.words import number, share_of
from dsgp.rows.sources import plain_table
from dsgp.terms import Floats

# Probabilities of intervals that are compared with how often they hold.
LEVELS = (0.5, 0.8, 0.9, 0.95)
# Single rows in a chart, evenly spread; groups of rows with like predictions.
_CLOUD, _GROUPS = 500, 20
# Classes of which each has a chart and a row of the table of what was predicted.
_MOST_CLASSES = 8
# How far from nominal a coverage must be to be warned of, beside chance.
_FAR = 0.03


@dataclass(frozen=True)
class Measure:
    """A measure of all held-out rows, and that of predicting a constant."""

    name: str
    value: str
    constant: str
    meaning: str


@dataclass(frozen=True)
class Figure:
    """A chart with its title, and what to look for."""

    title: str
    chart: Chart
    text: str


@dataclass(frozen=True)
class HeldOut:
    """What a page says of held-out rows.

    Attributes
    ----------
    n_rows : int
    headline : tuple of (str, str)
        The most telling measure: its name and its value.
    measures : list of Measure
    coverage : list of (nominal, observed)
        Of intervals, as text.
    figures : list of Figure
    notes : list of str
        What to be careful of, in whole sentences.
    table : DataFrame or None
        Rows by their class and the class predicted.
    """

    n_rows: int
    headline: tuple[str, str]
    measures: list[Measure]
    coverage: list[tuple[str, str]]
    figures: list[Figure]
    notes: list[str]
    table: pd.DataFrame | None = None


def held_out_of(
    model: Any, X: Any, y: Any, extra: Mapping[str, Any], drawn: Charts, target: str
) -> HeldOut:
    """Compare predictions with held-out observations.

    Parameters
    ----------
    model : fitted estimator
    X : table
    y : array_like of shape (n_rows,) or str
        Observations, or the name of their column of X. Rows without one are left out.
    extra : mapping
        Offsets, exposures and trials that are given.
    drawn : Charts
        Charts are added to it.
    target : str
        Name of the target, for axes.

    Raises
    ------
    DataError
        If the table does not have the columns of the fit, or no row has an observation.
    ParameterError
        If the model has nothing to do with the numbers in ``extra``.
    """
    X, observed, n_without = _observed(X, y)
    given = {role: _values_of(X, role, value, observed) for role, value in extra.items()}
    if n_without:
        kept = ~pd.isna(observed)
        X, observed = X[kept], observed[kept]
        given = {role: value[kept] for role, value in given.items()}
    if not len(observed):
        raise DataError("no held-out row has an observation; pass rows with the target")
    notes = []
    if n_without:
        notes.append(f"{n_without:,} held-out rows without an observed target were left out.")
    if isinstance(model, ClassEstimator):
        _refuse(given, model)
        found = _of_classes(observed, model.predict_proba(X), model.classes_, drawn)
    elif isinstance(model, ResponseEstimator) and model.likelihood_.name in (
        "bernoulli",
        "ordered",
    ):
        found = _of_categories(model, X, observed, given, drawn)
    else:
        if not isinstance(model, ResponseEstimator):
            _refuse(given, model)
        found = _of_numbers(model, X, observed.astype(np.float64), given, drawn, target)
    return HeldOut(**{**found, "notes": [*notes, *found["notes"]], "n_rows": len(observed)})


def _observed(X: Any, y: Any) -> tuple[Any, NDArray[Any], int]:
    """Return rows that can be selected, their observations, and how many have none."""
    X = plain_table(X)
    if not isinstance(X, (pd.DataFrame, np.ndarray)):
        try:
            X = X.compute() if hasattr(X, "compute") else np.asarray(X)
        except Exception as error:
            raise DataError(
                "held-out rows must be a table in memory, such as a data frame or an array, got "
                f"{type(X).__name__}; read them first"
            ) from error
    if isinstance(y, str):
        if not isinstance(X, pd.DataFrame) or y not in X.columns:
            raise DataError(f"the held-out table has no column {y!r} with the target")
        values = X[y].to_numpy()
    else:
        values = np.asarray(y)
    if values.shape != (len(X),):
        raise DataError(
            f"y must have an observation for each of the {len(X)} held-out rows, got the shape "
            f"{values.shape}"
        )
    return X, values, int(np.count_nonzero(pd.isna(values)))


def _values_of(X: Any, role: str, value: Any, observed: NDArray[Any]) -> Floats:
    if isinstance(value, str):
        if not isinstance(X, pd.DataFrame) or value not in X.columns:
            raise DataError(f"the held-out table has no column {value!r} for {role}")
        value = X[value]
    values = np.asarray(value, dtype=np.float64)
    if values.shape != observed.shape:
        raise DataError(
            f"{role} must have a number for each of the {len(observed)} held-out rows, got the "
            f"shape {values.shape}"
        )
    return values


def _refuse(given: Mapping[str, Any], model: Any) -> None:
    for role in given:
        raise ParameterError(
            f"{role} is of models of counts, rates and the like, and the model is a "
            f"{type(model).__name__}; leave it out"
        )


# ---------------------------------------------------------------- numbers


def _of_numbers(
    model: Any,
    X: Any,
    y: Floats,
    given: Mapping[str, Any],
    drawn: Charts,
    target: str,
) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of doubtful averages; the intervals show them
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
                number(0.5 * float(np.log(2 * np.pi * np.e * spread)), 4) if spread > 0 else "–",
                "mean over the rows of −log p(observation); smaller is better, and it judges the "
                "stated uncertainty too (constant: a normal distribution)",
            )
        )  # fmt: skip
    inside = _coverages(model, X, y, mean, std, given)
    coverage, notes = _told_of_coverage(inside, len(y))
    low, high = (np.array(ends) for ends in zip(*(_binomial(k, len(y)) for k in inside), strict=True))
    share = np.array(inside) / len(y)
    figures = [
        Figure(
            "Do intervals hold as often as they say?",
            drawn.add(
                charts.diagonal(
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


def _predicted(mean: Floats, y: Floats, target: str) -> charts.Spec:
    order = np.argsort(mean, kind="stable")
    groups = [group for group in np.array_split(order, min(_GROUPS, len(order))) if len(group)]
    some = np.linspace(0, len(order) - 1, min(_CLOUD, len(order))).round().astype(int)
    # Groups are contiguous in the predictions: single rows are drawn evenly spread over these.
    cloud = order[some]
    return charts.diagonal(
        np.array([mean[group].mean() for group in groups]),
        np.array([y[group].mean() for group in groups]),
        None,
        None,
        titles=(f"predicted {target}", f"observed {target}"),
        line=False,
        cloud=(mean[cloud], y[cloud]),
    )


# ---------------------------------------------------------------- classes


def _of_categories(
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
        found = _of_classes(y, probability, np.array([0, 1]), drawn)
        return {**found, "measures": [deviance, *found["measures"]]}
    density = float(np.mean(model.log_predictive_density(X, y, **given)))
    shares = np.unique(y, return_counts=True)[1] / len(y)
    loss = Measure(
        "log loss", number(-density, 4), number(-float(shares @ np.log(shares)), 4),
        "mean over the rows of −log of the probability of what came; smaller is better",
    )  # fmt: skip
    return {
        "headline": ("held-out deviance explained", share_of(explained)),
        "measures": [deviance, loss],
        "coverage": [],
        "figures": [],
        "notes": [],
    }


def _of_classes(
    y: NDArray[Any], probability: Any, classes: NDArray[Any], drawn: Charts
) -> dict[str, Any]:
    probability = np.asarray(probability, dtype=np.float64)
    known = np.isin(y, classes)
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
            "share of the rows whose most probable class came (constant: the most frequent class)",
        ),
        Measure(
            "log loss", number(loss, 4), number(-float(seen @ np.log(seen)), 4),
            "mean over the rows of −log of the probability of what came; smaller is better",
        ),
        Measure(
            "Brier score", number(metrics.brier(y, probability, classes), 3),
            number(_brier_of_constant(came), 3),
            "mean squared error of the probabilities; smaller is better",
        ),
        Measure(
            "calibration error", share_of(metrics.calibration_error(y, probability, classes)), "–",
            "how far probabilities are from how often it came, on average over ten groups of rows",
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
                    charts.diagonal(
                        curve.predicted, curve.observed, curve.low, curve.high, as_percent=True,
                        titles=("predicted probability", "how often it came"),
                    )
                ),
                "Groups of rows with like probabilities; they should lie on the dashed line. "
                "Vertical lines are what chance allows.",
            )
        )  # fmt: skip
    table = None
    if len(classes) <= _MOST_CLASSES:
        table = pd.crosstab(pd.Categorical(y, classes), pd.Categorical(predicted, classes), dropna=False)
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
