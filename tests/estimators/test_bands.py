"""Bands of whole components against dense draws, simulated truths and what they refuse."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, component_bands
from dsgp.errors import ParameterError
from dsgp.kernels import Matern52

KERNEL = Matern52(1.0, 1.0)
NOISE = 0.09


def fitted(X, y):
    return AdditiveGPRegressor(kernel=KERNEL, learner=None, noise_variance=NOISE).fit(X, y)


def truths(rng, x, at):
    joint = np.concatenate([x, at])
    root = np.linalg.cholesky(KERNEL.covariance(joint) + 1e-10 * np.eye(len(joint)))
    drawn = root @ rng.standard_normal(len(joint))
    return drawn[: len(x)], drawn[len(x) :]


def test_factors_are_those_of_dense_draws():
    rng = np.random.default_rng(0)
    x, at = np.sort(rng.uniform(0, 6, 40)), np.linspace(0, 6, 25)
    y = truths(rng, x, at)[0] + 0.3 * rng.standard_normal(40)
    model = fitted(x[:, None], y)
    bands = component_bands(model, at[:, None], level=0.9, n_samples=4000, random_state=1)

    # The centred function given data with an unknown constant: a flat prior as a large variance.
    joint = np.concatenate([x, at])
    prior = KERNEL.covariance(joint)
    centre = np.eye(65) - np.outer(np.ones(65), np.concatenate([np.full(40, 1 / 40), np.zeros(25)]))
    seen = prior[:40, :40] + NOISE * np.eye(40) + 1e6
    posterior = prior - prior[:, :40] @ np.linalg.solve(seen, prior[:40])
    posterior = (centre @ posterior @ centre.T)[40:, 40:]
    std = np.sqrt(np.diag(posterior))
    values, vectors = np.linalg.eigh(posterior)
    root = vectors * np.sqrt(np.maximum(values, 0))
    far = np.abs(root @ rng.standard_normal((25, 40_000)) / std[:, None]).max(axis=0)
    width = (bands["high"] - bands["low"]).values[:, 0] / 2
    np.testing.assert_allclose(width, np.quantile(far, 0.9) * std, rtol=0.03)
    assert 0 < bands["factor_error"].item() < 0.1
    assert ((bands["low"] > 0) | (bands["high"] < 0)).any()


def test_whole_truths_are_within_as_often_as_asked():
    rng = np.random.default_rng(2)
    x, at = np.linspace(0, 6, 60), np.linspace(0, 6, 40)
    within = pointwise = 0
    for seed in range(40):
        truth, there = truths(rng, x, at)
        model = fitted(x[:, None], truth + 0.3 * rng.standard_normal(60))
        bands = component_bands(model, at[:, None], level=0.8, n_samples=200, random_state=seed)
        there = there - truth.mean()
        low, high, mean = (bands[name].values[:, 0] for name in ("low", "high", "mean"))
        within += bool(((low <= there) & (there <= high)).all())
        narrow = 1.2816 / bands["factor"].item() * (high - mean)
        pointwise += bool((np.abs(there - mean) <= narrow).all())
    # Four standard deviations of a binomial count below what is asked: 32 - 10.
    assert within >= 22
    assert pointwise < 22


def test_a_component_without_effect_may_be_zero():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"a": rng.uniform(0, 6, 200), "g": rng.choice(list("uvw"), 200)})
    y = np.sin(X["a"]) + 0.5 * rng.standard_normal(200)
    model = AdditiveGPRegressor().fit(X, y)
    at = pd.DataFrame({"a": np.linspace(0, 6, 30), "g": np.resize(list("uvw"), 30)})
    bands = component_bands(model, at, random_state=0)
    excludes_zero = ((bands["low"] > 0) | (bands["high"] < 0)).any("row").to_series()
    assert excludes_zero.to_dict() == {"a": True, "g": False}
    xr.testing.assert_identical(bands, component_bands(model, at, random_state=0))


def test_what_cannot_be_answered_is_said():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 6, (50, 1))
    model = fitted(X, np.sin(X[:, 0]))
    with pytest.raises(ParameterError, match="level must be between 0 and 1"):
        component_bands(model, X, level=95)
    with pytest.raises(ParameterError, match="n_samples must be at least 500"):
        component_bands(model, X, level=0.99, n_samples=100)
    classes = AdditiveGPClassifier().fit(X, np.where(X[:, 0] > 3, "a", "b"))
    with pytest.raises(ParameterError, match="pass one of its estimators_"):
        component_bands(classes, X)
