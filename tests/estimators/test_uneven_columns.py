"""Columns of any shape under every likelihood: finite answers, or an error of dsgp's own."""

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgError

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import DataError, DsgpError

Random = np.random.Generator

# Each makes a column of n values: what real tables hold, and some that they should not.
COLUMNS: dict[str, Callable[[Random, int], np.ndarray]] = {
    "even": lambda random, n: random.uniform(0, 1, n),
    "one far value": lambda random, n: np.append(random.uniform(0, 1, n - 1), 1e14),
    "far values close together": lambda random, n: np.where(
        np.arange(n) < n // 5, -1e4 * (1 + 1e-3 * np.arange(n)), random.uniform(0, 1, n)
    ),
    "coded missing values": lambda random, n: np.where(
        random.random(n) < 0.3, 9.97e36, random.uniform(0, 1, n)
    ),
    "clusters": lambda random, n: (
        random.choice([1e-6, 1.0, 1e7], n, p=[0.49, 0.49, 0.02]) + 1e-9 * random.random(n)
    ),
    "log-normal": lambda random, n: np.exp(8 * random.standard_normal(n)),
    "Cauchy": lambda random, n: random.standard_cauchy(n),
    "powers of two": lambda random, n: 2.0 ** np.arange(n),
    "few values": lambda random, n: random.integers(0, 3, n).astype(float),
    "nearly constant": lambda random, n: 1 + 1e-12 * random.standard_normal(n),
    "seconds since 1970": lambda random, n: 1.6e9 + random.random(n),
    "constant": lambda random, n: np.full(n, 3.0),
    "one of them different": lambda random, n: np.append(np.zeros(n - 1), 1.0),
}
WEIGHTS: dict[str, Callable[[Random, int], np.ndarray | None]] = {
    "none": lambda random, n: None,
    "uneven": lambda random, n: 10.0 ** random.uniform(-3, 3, n),
    "zeros": lambda random, n: np.where(np.arange(n) % 3, 1.0, 0.0),
}
MODELS = ["regressor", "classifier", "poisson", "gamma", "student_t", "ordered"]


def _fit_and_predict(
    model: str, inputs: np.ndarray, latent: np.ndarray, weight: np.ndarray | None, random: Random
) -> np.ndarray:
    n = len(latent)
    target = latent + 0.3 * random.standard_normal(n)
    if model == "regressor":
        fitted = AdditiveGPRegressor().fit(inputs, target, sample_weight=weight)
    elif model == "classifier":
        fitted = AdditiveGPClassifier().fit(inputs, target > 0, sample_weight=weight)
        return fitted.predict_proba(inputs)
    else:
        target = {
            "poisson": lambda: random.poisson(np.exp(latent)),
            "gamma": lambda: np.exp(latent) * random.gamma(3.0, 1 / 3, n),
            "student_t": lambda: target,
            "ordered": lambda: np.digitize(target, [-1.0, 1.0]),
        }[model]()
        fitted = GeneralizedAdditiveGP(model).fit(inputs, target, sample_weight=weight)
    return np.column_stack(fitted.predict(inputs, return_std=True))


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    model=st.sampled_from(MODELS),
    shapes=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3),
    weights=st.sampled_from(sorted(WEIGHTS)),
    n=st.sampled_from([4, 30, 120]),
    seed=st.integers(0, 2**20),
)
def test_no_error_but_our_own_and_finite_answers(
    model: str, shapes: list[str], weights: str, n: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    inputs = np.column_stack([COLUMNS[shape](random, n) for shape in shapes])
    rank = np.argsort(np.argsort(inputs[:, 0], kind="stable")) / n
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = _fit_and_predict(
                model, inputs, 2 * np.sin(7 * rank), WEIGHTS[weights](random, n), random
            )
        except DsgpError:
            return
    assert np.isfinite(np.asarray(answers, dtype=float)).all()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", ["far values close together", "one far value", "clusters"])
@pytest.mark.parametrize("model", ["regressor", "gamma", "poisson", "classifier"])
def test_the_function_of_the_bulk_is_found_beside_far_values(
    model: str, shape: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    near = random.uniform(0, 1, 500)
    column = COLUMNS[shape](random, 500)
    column = np.where(np.abs(column) > 100, column, near)
    bulk = np.abs(column) <= 100
    latent = np.where(bulk, np.sin(8 * column), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = _fit_and_predict(model, column[:, None], latent, None, random)
    if model == "classifier":
        assert np.corrcoef(answers[bulk, 1], latent[bulk])[0, 1] > 0.93
        return
    truth = np.exp(latent) if model in ("gamma", "poisson") else latent
    error = np.sqrt(np.mean((answers[bulk, 0] - truth[bulk]) ** 2))
    assert error < {"regressor": 0.08, "gamma": 0.2, "poisson": 0.3}[model]


@pytest.mark.parametrize("shape", ["far values close together", "Cauchy"])
def test_projection_pursuit_of_uneven_columns(shape: str) -> None:
    random = np.random.default_rng(0)
    inputs = np.column_stack([COLUMNS[shape](random, 150), random.uniform(0, 1, 150)])
    target = np.sin(6 * inputs[:, 1]) + 0.2 * random.standard_normal(150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ProjectionPursuitGPRegressor(random_state=0).fit(inputs, target)
        mean, std = model.predict(inputs, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.std(mean - np.sin(6 * inputs[:, 1])) < 0.15


def _cannot(*args: object, **kwargs: object) -> None:
    raise LinAlgError("not positive definite to rounding")


def test_the_regressor_learns_otherwise_where_nodes_cannot_resolve_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dsgp.models.gaussian.learner.marginal", _cannot)
    random = np.random.default_rng(0)
    inputs = random.uniform(0, 1, (200, 1))
    target = np.sin(6 * inputs[:, 0]) + 0.1 * random.standard_normal(200)
    model = AdditiveGPRegressor().fit(inputs, target)
    assert "variational Bayes EM was used instead" in model.summary()
    assert np.std(model.predict(inputs) - np.sin(6 * inputs[:, 0])) < 0.05


def test_other_likelihoods_name_the_column_that_float64_cannot_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dsgp.models.laplace.fit.learn", _cannot)
    inputs = pd.DataFrame({"depth": [0.0, 1e-9, 1e12, 3.0], "age": [1.0, 2.0, 3.0, 5.0]})
    with pytest.raises(DataError, match=r"'depth'.*1e\+12 apart.*as little as 1e-09"):
        GeneralizedAdditiveGP("poisson").fit(inputs, [1, 2, 3, 4])
