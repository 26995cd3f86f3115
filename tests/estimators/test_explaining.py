"""Explanations add up to predictions; accumulated effects of additive functions are components."""

from itertools import pairwise

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    ProjectionPursuitGPRegressor,
    Tensor,
    accumulated_effects,
)
from dsgp.errors import DataError, ParameterError

RNG = np.random.default_rng(5)
N = 200
X = pd.DataFrame(
    {"a": RNG.uniform(-2, 2, N), "b": RNG.uniform(-1, 1, N), "g": RNG.choice(["u", "v"], N)},
    index=np.arange(N) + 1000,
)
F = np.sin(2 * X["a"]) + X["b"] ** 2 + X["a"] * X["b"] + (X["g"] == "u")
Y = F + 0.2 * RNG.standard_normal(N)
TERMS = ["a", "b", "g", Tensor("a", "b")]
MODELS = {
    "regression": lambda: AdditiveGPRegressor(terms=TERMS).fit(X, Y),
    "transformed": lambda: AdditiveGPRegressor(target_transform="log").fit(X, np.exp(Y)),
    "counts": lambda: GeneralizedAdditiveGP("poisson").fit(X, RNG.poisson(np.exp(F / 2))),
    "classes": lambda: AdditiveGPClassifier().fit(X, Y > 0.5),
    "pursuit": lambda: ProjectionPursuitGPRegressor(n_projections=2, random_state=0).fit(X, Y),
}


@pytest.mark.parametrize("kind", MODELS)
def test_contributions_and_intercept_sum_to_the_prediction(kind):
    model = MODELS[kind]()
    parts = model.explain(X.iloc[:50])
    total = parts["intercept"] + parts["contribution"].sum("term")
    one = model.estimators_[0] if kind == "classes" else model
    np.testing.assert_allclose(total, one.predict_latent(X.iloc[:50]), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(parts["prediction"], one.predict_latent(X.iloc[:50]))
    components = model.components(X.iloc[:50]).sel(term=parts["term"])
    np.testing.assert_allclose(parts["contribution"], components["mean"], rtol=1e-13)
    np.testing.assert_allclose(parts["std"], components["std"], rtol=1e-9)
    assert list(parts["row"].to_numpy()) == list(X.index[:50])
    sizes = {term.name: term.explained_variance for term in one.terms_}
    assert [sizes[name] for name in parts["term"].to_numpy()] == sorted(sizes.values())[::-1]
    assert parts["contribution"].to_pandas().shape == (50, len(sizes))


def test_more_classes_have_a_dimension():
    model = AdditiveGPClassifier(multi_class="ovr").fit(X, np.digitize(Y, [0.0, 1.0]))
    parts = model.explain(X.iloc[:9])
    assert parts["contribution"].dims == ("class", "row", "term")
    for k, each in enumerate(model.estimators_):
        total = (parts["intercept"] + parts["contribution"].sum("term")).isel({"class": k})
        np.testing.assert_allclose(total, each.predict_latent(X.iloc[:9]), rtol=1e-12)


def test_dask_tables_are_explained_later_and_the_same():
    values = X[["a", "b"]].to_numpy()
    model = AdditiveGPRegressor().fit(values, Y)
    lazy = model.explain(dask.array.from_array(values, (64, 2)))
    assert isinstance(lazy["contribution"].data, dask.array.Array)
    at_once = model.explain(values)
    np.testing.assert_array_equal(lazy["prediction"].compute(), at_once["prediction"])
    np.testing.assert_allclose(lazy["contribution"].compute(), at_once["contribution"], rtol=1e-13)
    frame = dask.dataframe.from_pandas(X[["a", "b"]], npartitions=3)
    named = AdditiveGPRegressor().fit(X[["a", "b"]], Y)
    np.testing.assert_allclose(
        named.explain(frame)["prediction"], named.predict_latent(X[["a", "b"]]), rtol=1e-13
    )


def test_accumulated_effect_of_an_additive_function_is_its_component():
    model = AdditiveGPRegressor(terms=["a", "b", "g"]).fit(X, Y)
    effect = accumulated_effects(model, "a", X, n_intervals=20 * N)
    at = pd.DataFrame({"a": effect.index, "b": 0.0, "g": "u"})
    component = model.components(at)["mean"].sel(term="a").to_numpy()
    # Every row is an end of an interval, so that the mean over the rows is exact as well.
    np.testing.assert_allclose(effect["effect"], component, atol=1e-10)


def test_accumulated_effect_of_a_product_in_closed_form():
    # f = a b: local differences at a are b times a step, averaged over the rows near a.
    model = AdditiveGPRegressor(terms=["a", "b", Tensor("a", "b")]).fit(X[["a", "b"]], X.a * X.b)
    effect = accumulated_effects(model, "a", X, n_intervals=4)
    ends = effect.index.to_numpy()
    steps = [
        (high - low) * X["b"][(X["a"] <= high) & ((X["a"] > low) | (low == ends[0]))].mean()
        for low, high in pairwise(ends)
    ]
    np.testing.assert_allclose(np.diff(effect["effect"]), steps, atol=0.02)
    assert effect["n_rows"].sum() == N


def test_accumulated_effect_of_projections_has_a_band():
    numbers = X[["a", "b"]]
    y = np.sin(numbers["a"] + numbers["b"]) + 0.1 * RNG.standard_normal(N)
    model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(numbers, y)
    effect = accumulated_effects(model, "b", numbers, 8, n_samples=200)
    truth = [
        np.mean(np.sin(numbers["a"] + high) - np.sin(numbers["a"] + low))
        for low, high in pairwise(effect.index)
    ]
    # a and b are independent, so that the mean over rows near equals that over all, but for noise.
    assert abs(np.sum(truth) - (effect["effect"].iloc[-1] - effect["effect"].iloc[0])) < 0.2
    assert (effect["low"] < effect["effect"]).all()
    assert (effect["high"] > effect["effect"]).all()


def test_accumulated_effects_name_what_will_not_do():
    model = AdditiveGPRegressor().fit(X, Y)
    with pytest.raises(ParameterError, match="does not use a column 'z'"):
        accumulated_effects(model, "z", X)
    with pytest.raises(DataError, match="'g' holds no numbers"):
        accumulated_effects(model, "g", X)
    with pytest.raises(DataError, match="one value"):
        accumulated_effects(model, "a", X.iloc[:1])
    with pytest.raises(ParameterError, match="at least 100"):
        accumulated_effects(model, "a", X, n_samples=5)
