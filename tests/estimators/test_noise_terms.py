"""Noise whose variance varies: against dense algebra, weighted fits, brute force and simulation."""

import re
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import dsgp
from dsgp import AdditiveGPRegressor, Levels, Linear, Smooth
from dsgp.errors import DataWarning, ParameterError
from dsgp.models.noise import Noise


def heteroscedastic(n, seed=0):
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"a": random.uniform(-3, 3, n), "b": random.uniform(0, 1, n)})
    std = np.exp(-1 + np.sin(X["a"]) + 0.8 * X["b"]).to_numpy()
    y = (np.sin(2 * X["a"]) + X["b"]).to_numpy() + std * random.standard_normal(n)
    return X, y, std


@cache
def fitted():
    X, y, _ = heteroscedastic(2000)
    return AdditiveGPRegressor(noise_terms=True, random_state=0).fit(X, y)


def test_it_is_the_joint_maximum_of_a_dense_model():
    """log p(y | g) with f integrated out, and the prior of g, at the hyperparameters found."""
    X, y, _ = heteroscedastic(160, 3)
    model = AdditiveGPRegressor(noise_terms=[Smooth("a")], terms=[Smooth("a"), Smooth("b")]).fit(
        X, y
    )
    prior_f = sum(k.covariance(X[name], X[name]) for name, k in model.kernels_.items())
    kernel = model.noise_.kernels_["a"]
    root = np.linalg.cholesky(kernel.covariance(X["a"], X["a"]) + 1e-8 * np.eye(len(X)))
    ones = np.ones(len(X))

    def loss(unknown):
        g = unknown[0] + root @ unknown[1:]
        precision = np.linalg.inv(prior_f + np.diag(np.exp(g)))
        total = ones @ precision @ ones
        left = y - ones @ precision @ y / total
        projected = precision - np.outer(precision @ ones, ones @ precision) / total
        value = 0.5 * left @ precision @ left + 0.5 * np.log(total)
        value += -0.5 * np.linalg.slogdet(precision)[1] + 0.5 * unknown[1:] @ unknown[1:]
        by_g = 0.5 * (np.diag(projected) - (projected @ y) ** 2) * np.exp(g)
        return value, np.concatenate([[by_g.sum()], root.T @ by_g + unknown[1:]])

    start = np.concatenate([[np.log(np.var(y))], np.zeros(len(X))])
    best = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    expected = best.x[0] + root @ best.x[1:]
    found, std = model.noise_.predict_latent(X, return_std=True)
    assert np.abs(found - expected).max() < 0.2 * std.min()


def test_it_is_a_fit_to_rows_weighted_by_the_noise():
    X, _, _ = heteroscedastic(50, 9)
    model = fitted()
    X_train, y, _ = heteroscedastic(2000)
    log_variance = model.noise_.predict_latent(X_train)
    known = AdditiveGPRegressor(
        terms=dict(model.kernels_), noise_variance=model.noise_variance_, learner=None
    ).fit(X_train, y, model.noise_variance_ / np.exp(log_variance))
    np.testing.assert_allclose(model.predict(X), known.predict(X), atol=2e-3)
    std, expected = (each.predict(X, return_std=True)[1] for each in (model, known))
    np.testing.assert_allclose(std, expected, rtol=0.01)


def test_intervals_cover_in_every_decile_of_the_noise():
    X, y, std = heteroscedastic(20_000, 1)
    lower, upper = fitted().predict_interval(X, include_noise=True)
    inside = (y >= lower) & (y <= upper)
    shares = [inside[part].mean() for part in np.array_split(np.argsort(std), 10)]
    assert min(shares) > 0.925
    assert max(shares) < 0.975
    assert stats.kstest(fitted().pit(X[:1000], y[:1000]), "uniform").pvalue > 0.01


def test_predictions_are_averages_over_the_unknown_variance():
    model, (X, y, _) = fitted(), heteroscedastic(4, 5)
    mean, std = model.predict(X, return_std=True)
    log_mean, log_std = model.noise_.predict_latent(X, return_std=True)
    z = np.linspace(-8, 8, 4001)
    share = stats.norm.pdf(z) * (z[1] - z[0])
    for i in range(4):
        noise = np.exp(log_mean[i] + z * log_std[i])
        total = np.sqrt(std[i] ** 2 + noise)
        density = share @ stats.norm.pdf(y[i], mean[i], total)
        found = model.log_predictive_density(X[i : i + 1], y[i : i + 1])[0]
        np.testing.assert_allclose(found, np.log(density), atol=1e-6)
        quantiles = model.predict_quantiles(X[i : i + 1], [0.01, 0.5, 0.975], include_noise=True)
        reached = [share @ stats.norm.cdf(q, mean[i], total) for q in quantiles[0]]
        np.testing.assert_allclose(reached, [0.01, 0.5, 0.975], atol=1e-6)
        np.testing.assert_allclose(
            model.predict(X[i : i + 1], return_std=True, include_noise=True)[1] ** 2,
            std[i] ** 2 + share @ noise,
            rtol=1e-6,
        )


def test_quantiles_of_a_wide_mixture_are_found():
    nodes = np.exp(np.linspace(-12, 12, 9))[:, None] * np.ones((1, 3))
    noise = Noise(nodes.mean(axis=0), nodes, np.full(9, 1 / 9))
    variance = np.array([0.0, 1.0, 1e-8])
    for p in (1e-6, 0.3, 0.5, 0.9, 1 - 1e-6):
        np.testing.assert_allclose(noise.cdf(noise.reach(variance, p), variance), p, rtol=1e-7)


def test_draws_have_the_moments():
    X, y, _ = heteroscedastic(200, 6)
    model = AdditiveGPRegressor(noise_terms=[Linear("a")]).fit(X, y)
    X = X[:3]
    mean, std = model.predict(X, return_std=True, include_noise=True)
    drawn = model.sample(X, 1000, 0, include_noise=True)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4 * std.max() / np.sqrt(1000))
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.1)
    variance = np.diag(model.covariance(X, include_noise=True))
    np.testing.assert_allclose(variance, std**2, rtol=0.02)


def test_leave_one_out_is_of_the_noise_of_the_row():
    X, y, _ = heteroscedastic(120, 2)
    model = AdditiveGPRegressor(noise_terms=[Linear("a")], terms=[Smooth("a")]).fit(X, y)
    density = model.leave_one_out(X, y)
    weight = model.noise_variance_ / np.exp(model.noise_.predict_latent(X))
    for row in (0, 57):
        others = np.arange(len(X)) != row
        refit = AdditiveGPRegressor(
            terms=[Smooth("a", kernel=model.kernels_["a"])],
            noise_variance=model.noise_variance_,
            learner=None,
        ).fit(X[others], y[others], weight[others])
        mean, std = refit.predict(X[row : row + 1], return_std=True)
        total = np.sqrt(std[0] ** 2 + model.noise_variance_ / weight[row])
        np.testing.assert_allclose(density[row], stats.norm.logpdf(y[row], mean[0], total), 5e-3)


def test_it_is_kept(tmp_path):
    model, (X, y, _) = fitted(), heteroscedastic(30, 7)
    model.save(tmp_path / "model.zarr")
    kept = dsgp.load(tmp_path / "model.zarr")
    for one, other in zip(
        model.predict_interval(X, include_noise=True),
        kept.predict_interval(X, include_noise=True),
        strict=True,
    ):
        assert (one == other).all()
    assert (kept.log_predictive_density(X, y) == model.log_predictive_density(X, y)).all()
    assert kept.noise_.summary() == model.noise_.summary()
    assert "\nnotes                noise terms in" in kept.summary()
    assert kept.get_params()["noise_terms"] is True


def test_rows_that_stream_give_the_same(tmp_path):
    X, y, _ = heteroscedastic(3000, 4)
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    streamed = AdditiveGPRegressor(noise_terms=True, bins=300).fit(tmp_path / "rows.parquet", "y")
    loaded = AdditiveGPRegressor(noise_terms=True, bins=300).fit(X, y)
    for one, other in zip(
        streamed.predict(X[:50], return_std=True, include_noise=True),
        loaded.predict(X[:50], return_std=True, include_noise=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_the_noise_may_depend_on_other_columns_than_the_mean():
    random = np.random.default_rng(0)
    group = random.choice(["calm", "wild"], 800)
    X = pd.DataFrame({"x": random.uniform(0, 1, 800), "group": group})
    y = X["x"] + np.where(group == "wild", 1.0, 0.1) * random.standard_normal(800)
    model = AdditiveGPRegressor(terms=[Smooth("x")], noise_terms=[Levels("group")]).fit(X, y)
    assert model.used_columns_ == ("x", "group")
    assert [term.name for term in model.terms_] == ["x"]
    new = pd.DataFrame({"x": [0.5, 0.5], "group": ["calm", "wild"]})
    std = np.sqrt(model.noise_.predict(new))
    np.testing.assert_allclose(std, [0.1, 1.0], rtol=0.15)
    mean, total = model.predict(new, return_std=True, include_noise=True)
    assert mean[0] == mean[1]
    assert total[1] > 5 * total[0]
    weighted = AdditiveGPRegressor(terms=[Smooth("x")], noise_terms=[Levels("group")]).fit(
        X, y, np.full(800, 4.0)
    )
    np.testing.assert_allclose(weighted.noise_.predict(new), 4 * std**2, rtol=0.02)


def test_beside_a_transform_the_noise_is_on_its_scale():
    X, y, _ = heteroscedastic(200, 8)
    model = AdditiveGPRegressor(noise_terms=True, target_transform="log").fit(X, np.exp(0.5 * y))
    plain = AdditiveGPRegressor(noise_terms=True).fit(X, 0.5 * y)
    rows = X[:20]
    for level in (0.5, 0.9):
        for one, other in zip(
            model.predict_interval(rows, level, include_noise=True),
            plain.predict_interval(rows, level, include_noise=True),
            strict=True,
        ):
            np.testing.assert_allclose(np.log(one), other, atol=1e-6)
    drawn = model.sample(rows, 1500, 1, include_noise=True)
    mean, std = model.predict(rows, return_std=True, include_noise=True)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * (std / np.sqrt(1500)).max())


@pytest.mark.parametrize(
    "options",
    [{"remainder": True}, {"projections": 1}, {"interactions": [("a", "b")]}],
    ids=["remainder", "projections", "interactions"],
)
def test_it_goes_with_what_a_sum_may_have(options):
    random = np.random.default_rng(1)
    X = pd.DataFrame(random.uniform(-1, 1, (350, 2)), columns=["a", "b"])
    std = np.exp(-2 + 1.5 * X["a"])
    y = np.sin(3 * X["a"] * X["b"]) + std * random.standard_normal(350)
    constant = AdditiveGPRegressor(**options).fit(X[:250], y[:250])
    model = AdditiveGPRegressor(noise_terms=True, **options).fit(X[:250], y[:250])
    densities = [each.log_predictive_density(X[250:], y[250:]) for each in (model, constant)]
    assert densities[0].mean() > densities[1].mean() + 0.05
    found = np.sqrt(model.noise_.predict(X[250:]))
    assert np.corrcoef(np.log(found), np.log(std[250:]))[0, 1] > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gibbs"}, "noise_terms= makes the noise a function"),
        ({"fixed_noise": True, "noise_variance": 1.0}, "fixed_noise=True keeps the noise variance"),
        ({"learner": None}, "learner=None keeps the noise variance"),
        ({"noise_terms": "a"}, "noise_terms must be None"),
        ({"noise_terms": {"c": "Linear()"}}, "terms names"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    X, y, _ = heteroscedastic(20)
    with pytest.raises(ParameterError, match=message):
        AdditiveGPRegressor(**{"noise_terms": True, **options}).fit(X, y)


def test_a_mean_that_noise_terms_make_worse_is_warned_of():
    # Where b is quiet the effect of a is +a, where it is noisy it is −a: no sum can be both.
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.uniform(-1, 1, 9000), "b": random.uniform(0, 1, 9000)})
    is_noisy = X["b"] > 0.5
    f = np.where(is_noisy, -1.0, 1.0) * X["a"]
    y = (f + np.where(is_noisy, 0.5, 0.1) * random.standard_normal(9000)).to_numpy()
    train, test = slice(0, 1000), slice(1000, 9000)
    with pytest.warns(DataWarning, match=r"make the mean worse: .* interactions=") as caught:
        varying = AdditiveGPRegressor(noise_terms=True).fit(X[train], y[train])
    constant = AdditiveGPRegressor().fit(X[train], y[train])
    errors = [np.mean((y[test] - model.predict(X[test])) ** 2) for model in (constant, varying)]
    (said,) = [w for w in caught if "make the mean worse" in str(w.message)]
    excess = float(re.search(r"are (\d+)% larger", str(said.message))[1]) / 100
    # That of the 1000 training rows has a standard error of some 0.08.
    assert excess == pytest.approx(errors[1] / errors[0] - 1, abs=0.2)
    assert excess > 0.3
    assert any("errors of the mean" in note for note in varying.learner_notes_)


def test_a_mean_that_noise_terms_make_better_is_not_warned_of():
    X, y, _ = heteroscedastic(700, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model = AdditiveGPRegressor(noise_terms=True).fit(X, y)
    assert not any("errors of the mean" in note for note in model.learner_notes_)


@pytest.mark.parametrize("without_noise", [(3,), (3, 5)])
def test_rows_without_noise_leave_that_of_the_others_as_it_is(without_noise):
    random = np.random.default_rng(0)
    a, b = random.choice(list("pq"), 600), random.integers(0, 12, 600)
    true = np.where(np.isin(b, without_noise), 0.0, 0.3 * (1 + b / 6))
    y = 3.0 * b + true * random.standard_normal(600)
    X = pd.DataFrame({"a": a, "b": b.astype(str)})
    model = AdditiveGPRegressor(noise_terms=True).fit(X, y)
    assert model.converged_
    mean, std = model.predict(X, return_std=True, include_noise=True)
    for level in range(12):
        own, left = std[b == level], (y - mean)[b == level]
        if level in without_noise:
            assert np.abs(left).max() < 1e-3
            # No variance is below a millionth of that of the target.
            np.testing.assert_allclose(own, 1e-3 * y.std(), rtol=0.1)
        else:
            np.testing.assert_allclose(own, np.sqrt(np.mean(left**2)), rtol=0.15)


def test_an_update_is_refused():
    X, y, _ = heteroscedastic(20)
    with pytest.raises(ParameterError, match="a model with noise_terms= cannot be updated"):
        fitted().update(X, y)


def test_constant_noise_has_no_terms():
    X, y, _ = heteroscedastic(50)
    model = AdditiveGPRegressor().fit(X, y)
    with pytest.raises(AttributeError, match="one noise variance for all rows"):
        model.noise_  # noqa: B018
