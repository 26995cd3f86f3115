"""Tests of terms against dense simulation; how often they find what is there and what is not."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Levels,
    Linear,
    ProjectionPursuitGPRegressor,
    Smooth,
    term_tests,
)
from dsgp.errors import DataWarning, ParameterError
from dsgp.kernels import Matern52


def rows(seed, n, smooth=0.0, levels=0.0):
    """A function of a, a line in c; b and g go with a, and have what effect is asked for."""
    rng = np.random.default_rng(seed)
    a, c = rng.uniform(-3, 3, n), rng.standard_normal(n)
    b = 0.3 * a + 0.9 * rng.standard_normal(n)
    g = np.where(rng.uniform(size=n) < 0.5, np.digitize(a, [-1.5, 0, 1.5]), rng.integers(0, 4, n))
    f = np.sin(1.5 * a) + 0.4 * c + smooth * np.sin(1.5 * b) + levels * (g % 2 - 0.5)
    X = pd.DataFrame({"a": a, "b": b, "c": c, "g": np.array(list("uvwx"))[g]})
    return X, f, rng


def test_p_value_is_that_of_dense_draws():
    rng = np.random.default_rng(0)
    x, z = np.round(rng.uniform(0, 6, (2, 50)), 1)
    weight = rng.uniform(0.5, 2.0, 50)
    kernel = Matern52(1.5, 1.0, fixed=("lengthscale", "variance"))
    y = np.sin(x) + 0.02 * z + 0.5 * rng.standard_normal(50) / np.sqrt(weight)
    model = AdditiveGPRegressor(kernel, learner=None, noise_variance=0.25)
    model.fit(np.column_stack([x, z]), y, sample_weight=weight)
    computed = term_tests(model, ["x1"])

    without = kernel.covariance(x) + np.diag(0.25 / weight)
    inverse = np.linalg.inv(without)
    ones = inverse.sum(axis=1)
    projection = inverse - np.outer(ones, ones) / ones.sum()
    prior = kernel.covariance(z)

    def statistic(targets):
        projected = projection @ targets
        return np.sum(projected * (prior @ projected), axis=0) / np.sum(targets * projected, axis=0)

    draws = np.linalg.cholesky(without) @ rng.standard_normal((50, 40_000))
    above = np.mean(statistic(draws) > statistic(y))
    p_value = computed["p_value"].item()
    assert 0.001 < p_value < 0.5
    assert abs(above - p_value) < 4 * np.sqrt(p_value / 40_000)
    expected = np.sum(projection * prior) / 49
    np.testing.assert_allclose(computed["statistic"].item(), statistic(y) / expected, rtol=1e-3)


def test_terms_that_are_zero_have_uniform_p_values():
    p_values = []
    for seed in range(40):
        X, f, rng = rows(seed, 80)
        model = AdditiveGPRegressor().fit(X, f + 0.5 * rng.standard_normal(80))
        p_values.append(term_tests(model, ["b", "g"])["p_value"])
    p_values = np.array(p_values)
    # Four standard deviations of a binomial count beyond 2.
    assert ((p_values < 0.05).sum(axis=0) <= 7).all()
    assert min(kstest(own, "uniform").pvalue for own in p_values.T) > 1e-3


def test_weak_effects_are_found_more_often_than_by_chance():
    seen = 0
    for seed in range(20):
        X, f, rng = rows(seed, 150, smooth=0.25, levels=0.4)
        model = AdditiveGPRegressor().fit(X, f + 0.5 * rng.standard_normal(150))
        seen += (term_tests(model, ["b", "g"])["p_value"] < 0.05).to_numpy()
    assert (seen >= 12).all()


def test_strong_effects_are_found_in_every_kind_of_term():
    rng = np.random.default_rng(1)
    n = 400
    X = pd.DataFrame(
        {
            "x": rng.uniform(0, 6, n),
            "z": rng.standard_normal(n),
            "g": rng.choice(list("uvw"), n),
        }
    )
    y = np.sin(X["x"] + (X["g"] == "v")) + 0.3 * X["z"] + (X["g"] == "w")
    y = y + 0.2 * rng.standard_normal(n)
    curves = term_tests(AdditiveGPRegressor(terms=[Smooth("x", by="g"), Linear("z")]).fit(X, y))
    assert (curves["p_value"] < 1e-4).all()
    terms = [Smooth("x"), Levels("g"), Smooth("x", by="z")]
    effects = term_tests(AdditiveGPRegressor(terms=terms).fit(X, y))
    assert effects.index.tolist() == ["x", "g", "x by z"]
    assert (effects["p_value"] < 1e-4).all()
    assert effects["tested"]["g"] == "Independent, 3 levels"
    assert effects["tested"]["x"].startswith("Matern52, lengthscales ")
    assert effects["lengthscale"].isna().tolist() == [False, True, False]
    # What another term can say as well is not needed beside it.
    both = AdditiveGPRegressor(terms=[*terms, Linear("z")]).fit(X, y)
    assert term_tests(both, ["z (line)"])["p_value"].item() > 0.01


def test_bins_and_a_stored_model_give_the_same_answer(tmp_path):
    X, f, rng = rows(3, 1500, smooth=0.1)
    y = f + 0.5 * rng.standard_normal(1500)
    exact = term_tests(AdditiveGPRegressor(bins=None).fit(X, y), ["b"])
    binned = AdditiveGPRegressor(bins=256).fit(X, y)
    np.testing.assert_allclose(
        np.log(term_tests(binned, ["b"])["p_value"]), np.log(exact["p_value"]), rtol=0.05
    )
    binned.save(tmp_path / "model.zarr")
    stored = dsgp.load(tmp_path / "model.zarr")
    pd.testing.assert_frame_equal(term_tests(stored, ["b"]), term_tests(binned, ["b"]))


def test_counts_with_and_without_an_effect():
    X, f, rng = rows(4, 300, smooth=0.6)
    model = GeneralizedAdditiveGP("poisson").fit(X, rng.poisson(np.exp(0.5 + f)))
    tests = term_tests(model)
    assert tests.loc["b", "p_value"] < 1e-3
    p_values = []
    for seed in range(24):
        X, f, rng = rows(100 + seed, 100)
        model = GeneralizedAdditiveGP("poisson").fit(X, rng.poisson(np.exp(0.5 + f)))
        p_values.append(term_tests(model, ["b", "g"])["p_value"])
    p_values = np.array(p_values)
    assert ((p_values < 0.05).sum(axis=0) <= 5).all()  # four standard deviations beyond 1
    assert min(kstest(own, "uniform").pvalue for own in p_values.T) > 1e-3


def test_what_other_terms_explain_entirely_is_said():
    rng = np.random.default_rng(5)
    X = {"x": rng.uniform(0, 1, 40)}
    vague = Linear("x", variance=1e12, fixed="variance")
    same = Linear("x", variance=1.0, fixed="variance", name="again")
    model = AdditiveGPRegressor(terms=[vague, same], learner=None, noise_variance=1.0)
    model.fit(X, rng.standard_normal(40))
    with pytest.warns(DataWarning, match="explain everything that the rows say about term 'again'"):
        tests = term_tests(model, ["again"])
    assert tests["p_value"].isna().all()


def test_what_cannot_be_tested_is_refused():
    X, f, rng = rows(6, 60)
    y = f + 0.5 * rng.standard_normal(60)
    model = AdditiveGPRegressor().fit(X, y)
    with pytest.raises(ParameterError, match=r"terms names \['nothing'\]; the model has the terms"):
        term_tests(model, ["a", "nothing"])
    assert term_tests(model, []).empty
    pursuit = ProjectionPursuitGPRegressor(n_projections=1).fit(X[["a", "b"]], y)
    with pytest.raises(ParameterError, match="has learned directions for its terms"):
        term_tests(pursuit)
    classes = AdditiveGPClassifier().fit(X, np.where(y > 0, "low", "high"))
    with pytest.raises(ParameterError, match="pass one of its estimators_"):
        term_tests(classes)
