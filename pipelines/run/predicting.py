"""Predictions of a model from the folders of its stages, block by block."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

import dsgp
from dsgp.progress import progress
from pipelines.run.baselines import PREDICTED
from pipelines.run.encoding import Encoded
from pipelines.run.fitting import INPUTS, MODEL
from pipelines.run.tables import EXPOSURE, ROW_BLOCK, TEST
from pipelines.run.view import View

Predict = Callable[[pd.DataFrame], pd.DataFrame]


def predicted(needs: dict[str, Path], encoded: Encoded, level: float) -> pd.DataFrame:
    """Predict the test rows.

    Returns
    -------
    DataFrame
        Regression: ``mean`` and ``std`` of an observation (of a baseline ``std`` may be absent),
        and what ``Counts`` has too where the target was transformed.
        Classification: ``p0``, ``p1``, … for the classes in their order. Counts: ``mean`` and
        ``std`` of an observation, ``lower`` and ``upper``, and ``log_density`` of the one observed.
    """
    if "baseline" in needs:
        return pd.read_parquet(needs["baseline"] / PREDICTED)
    predict = _predictor(needs, encoded, level)
    parts = []
    with progress("predict", encoded.facts["n_test"]) as bar:
        for frame in encoded.blocks(TEST, ROW_BLOCK):
            parts.append(predict(frame))
            bar.update(len(frame))
    return pd.concat(parts, ignore_index=True)


def noise_variance(needs: dict[str, Path]) -> float | None:
    """Variance of an observation around the function, of a regression that is not a baseline.

    None where it differs from row to row: of a transformed target, or with noise terms.

    The residuals that a pursuit was fitted to are those of rows that the additive functions have
    been fitted to as well, which have taken their degrees of freedom out of them.
    """
    if len({"additive", "pursuit"} & set(needs)) == 1:
        model = dsgp.load(needs["additive" if "additive" in needs else "pursuit"] / MODEL)
        return None if _by_row(model) else float(model.noise_variance_)
    pursuit = dsgp.load(needs["pursuit"] / MODEL)
    additive = dsgp.load(needs["additive"] / MODEL)
    left = additive.n_rows_ - additive.effective_dof_
    return float(pursuit.noise_variance_ * additive.n_rows_ / max(left, 1.0))


def _predictor(needs: dict[str, Path], encoded: Encoded, level: float) -> Predict:
    if "scoring" in needs:
        view = View.read(needs["scoring"] / INPUTS)
        scored = dsgp.load(needs["scoring"] / MODEL)
        if encoded.task == "classification":
            return lambda frame: _probabilities(scored, view(frame))
        return lambda frame: _in_full(scored, view(frame), frame, encoded.target, level)
    if {"additive", "pursuit"} <= set(needs):
        return _summed(needs, encoded)
    (stage,) = {"additive", "pursuit"} & set(needs)
    model = dsgp.load(needs[stage] / MODEL)

    def predict(frame: pd.DataFrame) -> pd.DataFrame:
        X = frame[encoded.inputs]
        if _by_row(model):
            return _in_full(model, X, frame, encoded.target, level)
        mean, std = model.predict(X, return_std=True, include_noise=True)
        return pd.DataFrame({"mean": mean, "std": std})

    return predict


def _by_row(model: Any) -> bool:
    """Return whether noise differs from row to row, in the unit of the target."""
    return model.transform_ is not None or model.model_.noise is not None


def _summed(needs: dict[str, Path], encoded: Encoded) -> Predict:
    """Additive mean plus that of its residual.

    The variances add up as if the two functions were independent. They are not: what the additive
    mean lacks is part of the residual, and where projections can make up for it, it is counted
    twice. So the standard deviation is rather too large than too small.
    """
    additive = dsgp.load(needs["additive"] / MODEL)
    pursuit = dsgp.load(needs["pursuit"] / MODEL)
    noise = noise_variance(needs) or 0.0

    def predict(frame: pd.DataFrame) -> pd.DataFrame:
        mean, std = additive.predict(frame[encoded.inputs], return_std=True)
        further, its_std = pursuit.predict(frame[encoded.inputs], return_std=True)
        return pd.DataFrame({"mean": mean + further, "std": np.sqrt(std**2 + its_std**2 + noise)})

    return predict


def _probabilities(model: Any, X: pd.DataFrame) -> pd.DataFrame:
    probability = model.predict_proba(X)
    return pd.DataFrame(probability, columns=[f"p{code}" for code in range(probability.shape[1])])


def _in_full(
    model: Any, X: pd.DataFrame, frame: pd.DataFrame, target: str, level: float
) -> pd.DataFrame:
    exposure = {"exposure": frame[EXPOSURE].to_numpy()} if EXPOSURE in frame else {}
    y = frame[target].to_numpy(np.float64)
    mean, std = model.predict(X, return_std=True, include_noise=True, **exposure)
    lower, upper = model.predict_interval(X, level, include_noise=True, **exposure)
    return pd.DataFrame(
        {
            "mean": mean,
            "std": std,
            "lower": lower,
            "upper": upper,
            "log_density": model.log_predictive_density(X, y, **exposure),
        }
    )


def reach_of(level: float) -> float:
    """Half width of a central normal interval, in standard deviations."""
    return float(ndtri((1 + level) / 2))
