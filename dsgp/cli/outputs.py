"""Columns that predictions have, by the kind of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgp.errors import ParameterError
from dsgp.estimators.classes import ClassEstimator, model_of_terms
from dsgp.estimators.explaining import Explanation
from dsgp.estimators.framed import names_of_quantiles
from dsgp.estimators.response import ResponseEstimator
from dsgp.estimators.spline import SmoothingSpline
from dsgp.likelihoods import Likelihood, Ordered
from dsgp.rows.sinks import EXPLAINED, MEDIANS, MOMENTS

Further = Mapping[str, pd.Series]

LEVEL = 0.95


@dataclass(frozen=True)
class Outputs:
    """Columns that a model predicts.

    Attributes
    ----------
    names : tuple of str
    predict : callable
        Takes inputs and further numbers (exposure, offset, trials) of some rows; gives a column a
        name.
    """

    names: tuple[str, ...]
    predict: Callable[[pd.DataFrame, Further], Iterable[Any]]

    def __post_init__(self) -> None:
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ParameterError(
                f"two columns of the output would be named {', '.join(map(repr, twice))}: rename "
                "the classes or the columns of the model, and fit it again"
            )

    def of(self, X: pd.DataFrame, further: Further) -> dict[str, Any]:
        """Predict some rows."""
        return dict(zip(self.names, self.predict(X, further), strict=True))


def outputs_of(
    model: Any,
    level: float | None,
    further: Iterable[str],
    statistic: str | None = None,
    quantiles: Sequence[float] = (),
) -> Outputs:
    """Return what a model predicts.

    Parameters
    ----------
    model : fitted model
    level : float or None
        Probability of the intervals; None means 0.95.
    further : iterable of str
        Numbers of the rows that are given: exposure, offset, trials.
    statistic : {"mean", "median"} or None
        Of the mean response; None means its mean.
    quantiles : sequence of float
        Probabilities of quantiles of new observations, which come last.

    Raises
    ------
    ParameterError
        If the model has nothing to do with the level or the numbers.
    """
    kind = type(model).__name__
    if isinstance(model, ResponseEstimator):
        outputs = _of_responses(model, LEVEL if level is None else level, statistic or "mean")
        return _with_quantiles(model, outputs, quantiles)
    for role in further:
        raise ParameterError(
            f"--{role} is for models of counts, rates and other targets, and the model is of kind "
            f"{kind}; leave it out"
        )
    if isinstance(model, ClassEstimator):
        if statistic is not None:
            raise ParameterError(
                f"--statistic is for models of numbers, and the model is of kind {kind}, which "
                "predicts probabilities; leave it out"
            )
        if level is not None:
            raise ParameterError(
                "--level is for intervals, and the model, a classifier, predicts probabilities; "
                "leave it out"
            )
        if quantiles:
            raise ParameterError(
                "--quantile is for a number, and the model, a classifier, predicts probabilities; "
                "leave it out"
            )
        return _of_classes(model)
    outputs = _of_numbers(model, LEVEL if level is None else level, statistic or "mean")
    return _with_quantiles(model, outputs, quantiles)


def _with_quantiles(model: Any, outputs: Outputs, quantiles: Sequence[float]) -> Outputs:
    """Append quantiles of new observations."""
    probabilities = list(dict.fromkeys(quantiles))
    if not probabilities:
        return outputs

    def predict(X: pd.DataFrame, further: Further) -> Iterator[Any]:
        yield from outputs.predict(X, further)
        yield from model.predict_quantiles(X, probabilities, include_noise=True, **further).T

    return Outputs((*outputs.names, *names_of_quantiles(probabilities)), predict)


def _of_numbers(model: Any, level: float, statistic: str) -> Outputs:
    # That of a spline is normal: its mean is its median, and ``predict`` has no choice of them.
    asked = {} if isinstance(model, SmoothingSpline) else {"statistic": statistic}

    def predict(X: pd.DataFrame, _further: Further) -> list[Any]:
        mean, std = model.predict(X, return_std=True, **asked)
        return [mean, std, *model.predict_interval(X, level, include_noise=True)]

    return Outputs(MEDIANS if statistic == "median" else MOMENTS, predict)


def _of_responses(model: ResponseEstimator, level: float, statistic: str) -> Outputs:
    likelihood = model.likelihood_

    def predict(X: pd.DataFrame, further: Further) -> list[Any]:
        mean, std = model.predict(X, return_std=True, statistic=statistic, **further)
        ends = model.predict_interval(X, level, include_noise=True, **further)
        return [mean, std, *ends, *_probabilities(model, likelihood, X, further)]

    moments = MEDIANS if statistic == "median" else MOMENTS
    return Outputs((*moments, *_level_names(likelihood)), predict)


def _level_names(likelihood: Likelihood) -> list[str]:
    if not isinstance(likelihood, Ordered):
        return []
    return [f"probability_{k}" for k in range(int(likelihood.n_levels or 0))]


def _probabilities(
    model: ResponseEstimator, likelihood: Likelihood, X: pd.DataFrame, further: Further
) -> list[Any]:
    """Probabilities of the levels of an ordered target, a column each."""
    if not isinstance(likelihood, Ordered):
        return []
    mean, std = model.predict_latent(X, return_std=True)
    shift = further["offset"].to_numpy() if "offset" in further else 0.0
    return list(likelihood.class_probabilities(mean + shift, std**2).T)


def _of_classes(model: ClassEstimator) -> Outputs:
    labels = [str(label) for label in model.classes_]
    of_latents = ["latent", "std"]
    if len(labels) > 2:
        of_latents = [f"{name}_{label}" for label in labels for name in of_latents]

    def predict(X: pd.DataFrame, _further: Further) -> list[Any]:
        probability = model.predict_proba(X)
        latents = [each.predict_latent(X, return_std=True) for each in model.estimators_]
        most_probable = model.classes_[probability.argmax(axis=1)]
        return [
            most_probable,
            *probability.T,
            *(column for moments in latents for column in moments),
        ]

    return Outputs(
        ("predicted", *(f"probability_{label}" for label in labels), *of_latents), predict
    )


def explanation_of(model: Any) -> Outputs:
    """Return what the terms of a model contribute to a prediction, by ``explain``."""
    classes = model.classes_ if isinstance(model, ClassEstimator) else ()
    models = model.estimators_ if len(classes) > 2 else [model_of_terms(model)]
    names: list[str] = []
    for k, each in enumerate(models):
        of_class = f"_{classes[k]}" if len(models) > 1 else ""
        latent = each.model_.latent
        terms = [latent.names[d] for d in Explanation(latent).order]
        names += [f"{name}{of_class}" for name in EXPLAINED]
        names += [f"{what}{of_class}_{name}" for name in terms for what in ("contribution", "std")]

    def explain(X: pd.DataFrame, _further: Further) -> Iterable[Any]:
        for each in models:
            parts = each.explain(X)
            yield parts["prediction"].to_numpy()
            yield np.full(len(X), float(parts["intercept"]))
            for k in range(parts.sizes["term"]):
                yield parts["contribution"].to_numpy()[:, k]
                yield parts["std"].to_numpy()[:, k]

    return Outputs(tuple(names), explain)


def require_answers(
    level: float | None, statistic: str | None, quantiles: Sequence[float] | None
) -> None:
    """Raise ``ParameterError`` if an option of what is predicted is out of its range."""
    if level is not None and not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    if statistic not in (None, "mean", "median"):
        raise ParameterError(f"--statistic must be mean or median, got {statistic!r}")
    for probability in quantiles or ():
        if not 0 < probability < 1:
            raise ParameterError(f"--quantile must lie between 0 and 1, got {probability:g}")
