"""Shares of variance against draws at the training rows, dense algebra and closed forms."""

import dask.array
import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    Linear,
    ProjectionPursuitGPRegressor,
    Smooth,
    Tensor,
    variance_shares,
)
from dsgp.errors import ConvergenceWarning, DataWarning, ParameterError
from dsgp.kernels import Matern12

RNG = np.random.default_rng(3)


def table_of(n):
    X = pd.DataFrame(
        {
            "a": RNG.uniform(-2, 2, n),
            "b": RNG.normal(0, 1, n),
            "g": RNG.choice(["u", "v", "w"], n),
        }
    )
    X["c"] = X["a"] + 0.5 * RNG.normal(0, 1, n)  # correlated with a
    slope = X["g"].map({"u": 0.0, "v": 1.0, "w": -1.0})
    f = np.sin(2 * X["a"]) + 0.7 * X["c"] + slope * X["b"] + 0.5 * X["a"] * X["b"]
    return X, f + 0.5 * RNG.standard_normal(n)


def by_dense_draws(model, y, weight=None, n_samples=4000):
    """Shares of joint draws at the training rows, by dense algebra, all in one go."""
    latent = model.model_.latent
    table, random = latent.equations.table, np.random.default_rng(1)
    n = table.n_rows
    weight = np.ones(n) if weight is None else weight / weight.mean()
    priors = []
    for d, term in enumerate(latent.terms):
        codes = np.asarray(table.codes[d])
        prior = term.cells.prior(term.kernel, term.cells.points, term.cells.points)
        z = table.multipliers.get(d, np.ones(n))
        priors.append(prior[np.ix_(codes, codes)] * np.outer(z, z))
    noise = latent.row_variance / weight
    constant = 1e6 * np.var(y)
    total = np.linalg.inv(sum(priors) + np.diag(noise) + constant)
    drawn = [
        np.linalg.cholesky(prior + 1e-9 * np.trace(prior) / n * np.eye(n))
        @ random.standard_normal((n, n_samples))
        for prior in priors
    ]
    observed = sum(drawn) + np.sqrt(noise)[:, None] * random.standard_normal((n, n_samples))
    observed += np.sqrt(constant) * random.standard_normal(n_samples)
    pull = total @ (np.asarray(y)[:, None] - observed)
    functions = np.stack([f + prior @ pull for f, prior in zip(drawn, priors, strict=True)])
    share = weight / weight.sum()
    functions -= np.einsum("n,kns->ks", share, functions)[:, None]
    each = np.einsum("n,kns,ns->sk", share, functions, functions.sum(axis=0))
    return each / each.sum(axis=1, keepdims=True)


TERMS = [
    ["a", "b", "c", "g", Tensor("b", "g"), Tensor("a", "b")],
    [Smooth("a"), Smooth("b", by="a"), Linear("c"), Smooth("c", by="g")],
]


@pytest.mark.parametrize("terms", TERMS, ids=["interactions", "multiplied"])
@pytest.mark.parametrize("n", [200, 500])
def test_shares_are_those_of_dense_joint_draws(terms, n):
    X, y = table_of(n)
    weight = RNG.uniform(0.5, 2.0, n)
    model = AdditiveGPRegressor(terms=terms).fit(X, y, sample_weight=weight)
    shares = variance_shares(model, n_samples=4000)
    drawn = by_dense_draws(model, y, weight)
    close = 0.15 * drawn.std(axis=0).max() + 1e-3
    np.testing.assert_allclose(shares["share"], drawn.mean(axis=0), atol=close)
    for end, probability in (("low", 0.05), ("high", 0.95)):
        np.testing.assert_allclose(shares[end], np.quantile(drawn, probability, 0), atol=close)
    assert shares["share"].sum() == pytest.approx(1.0, abs=1e-12)


def test_rough_functions_count_what_is_too_fine_for_coarse_spaces():
    n = 800
    X = pd.DataFrame({"a": RNG.uniform(0, 1, n), "b": RNG.uniform(0, 1, n)})
    y = np.sin(60 * X["a"]) + X["b"] + 0.5 * RNG.standard_normal(n)
    model = AdditiveGPRegressor(
        terms={"a": Matern12(0.05, 1.0), "b": Matern12(1.0, 1.0)},
        noise_variance=0.25,
        learner=None,
        bins=None,
    ).fit(X, y)
    drawn = by_dense_draws(model, y, n_samples=500)
    shares = variance_shares(model)
    np.testing.assert_allclose(shares["share"], drawn.mean(axis=0), atol=0.005)
    np.testing.assert_allclose(shares["low"], np.quantile(drawn, 0.05, axis=0), atol=0.01)


def test_one_function_of_a_linear_model_in_closed_form():
    # Two lines: the posterior of their slopes is normal, and shares are a quadratic form of it.
    n = 60
    X = pd.DataFrame({"a": RNG.normal(0, 1, n), "b": RNG.normal(0, 1, n)})
    X["b"] += 0.6 * X["a"]
    y = X["a"] - 0.5 * X["b"] + RNG.standard_normal(n)
    model = AdditiveGPRegressor(terms=[Linear("a"), Linear("b")]).fit(X, y)
    Z = X.to_numpy() - X.to_numpy().mean(axis=0)
    scale = Z.std(axis=0)
    prior = np.array([model.kernels_[name].std for name in model.kernels_]) ** 2 / scale**2
    precision = Z.T @ Z / model.noise_variance_ + np.diag(1 / prior)
    mean = np.linalg.solve(precision, Z.T @ (y - y.mean()) / model.noise_variance_)
    slopes = RNG.multivariate_normal(mean, np.linalg.inv(precision), 100_000)
    covariance = Z.T @ Z / n
    each = slopes * (slopes @ covariance)
    expected = each / each.sum(axis=1, keepdims=True)
    shares = variance_shares(model, n_samples=40_000)
    np.testing.assert_allclose(shares["share"], expected.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(shares["low"], np.quantile(expected, 0.05, axis=0), atol=0.03)


def test_kinds_add_up_their_terms_and_are_in_the_summary():
    X, y = table_of(300)
    model = AdditiveGPRegressor(terms=TERMS[0]).fit(X, y)
    terms, kinds = variance_shares(model), variance_shares(model, by="kind")
    assert list(kinds.index) == ["main effects", "interactions"]
    together = terms.groupby("kind")["share"].sum()
    np.testing.assert_allclose(kinds["share"], together[kinds.index], rtol=1e-12)
    text = model.summary()
    assert "of f by kind" in text
    assert f"interactions {kinds.loc['interactions', 'share']:.0%}"[:14] in text
    first, other = model.kernels_["a × b"].parts
    assert f"{first.lengthscale:.4g} × {other.lengthscale:.4g}" in text


def test_projections_are_a_kind_of_their_own():
    X, y = table_of(150)
    model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X, y)
    kinds = variance_shares(model, by="kind")
    assert list(kinds.index) == ["projections", "main effects"]  # g is a term beside them


def test_streamed_and_stored_models_have_the_shares_of_those_in_memory(tmp_path):
    X = RNG.uniform(-1, 1, (3000, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * RNG.standard_normal(3000)
    inside = AdditiveGPRegressor(bins=64).fit(X, y)
    streamed = AdditiveGPRegressor(bins=64).fit(
        dask.array.from_array(X, (1000, 3)), dask.array.from_array(y, 1000)
    )
    expected = variance_shares(inside)
    numbers = ["share", "low", "high"]
    np.testing.assert_allclose(variance_shares(streamed)[numbers], expected[numbers], atol=1e-3)
    inside.save(tmp_path / "model.zarr")
    pd.testing.assert_frame_equal(variance_shares(dsgp.load(tmp_path / "model.zarr")), expected)


def test_classes_and_draws_of_hyperparameters():
    X, y = table_of(200)
    two = AdditiveGPClassifier().fit(X[["a", "c"]], y > 0)
    assert variance_shares(two)["share"].sum() == pytest.approx(1.0)
    three = AdditiveGPClassifier(multi_class="ovr").fit(X[["a", "c"]], np.digitize(y, [-1, 1]))
    with pytest.raises(ParameterError, match="each of its 3 classes"):
        variance_shares(three)
    drawn = AdditiveGPRegressor(method="gibbs", n_draws=20, n_warmup=10, n_chains=1)
    with pytest.warns(ConvergenceWarning):
        drawn.fit(X[["a", "c"]], y)
    assert variance_shares(drawn, n_samples=200)["share"].sum() == pytest.approx(1.0)
    with pytest.raises(ParameterError, match="by"):
        variance_shares(two, by="column")


def test_a_remainder_has_a_share_and_contributions_of_its_own():
    X, _ = table_of(300)
    y = X["a"] + X["a"] * X["b"] * X["c"] + 0.3 * RNG.standard_normal(300)
    model = AdditiveGPRegressor(remainder=True).fit(X, y)
    shares = variance_shares(model)
    drawn = model.sample_components(X, 300, random_state=1).to_numpy()
    drawn -= drawn.mean(axis=1, keepdims=True)
    each = np.einsum("snk,sn->sk", drawn, drawn.sum(axis=2))
    each /= each.sum(axis=1, keepdims=True)
    close = 0.3 * each.std(axis=0).max()
    np.testing.assert_allclose(shares["share"], each.mean(axis=0), atol=close)
    np.testing.assert_allclose(shares["low"], np.quantile(each, 0.05, axis=0), atol=2 * close)
    kinds = variance_shares(model, by="kind")
    assert list(kinds.index) == ["main effects", "remainder"]
    assert "remainder" in model.summary()
    parts = model.explain(X[:9])
    assert "remainder" in parts["term"]
    total = parts["intercept"] + parts["contribution"].sum("term")
    np.testing.assert_allclose(total, model.predict(X[:9]), rtol=1e-12, atol=1e-12)


def test_models_without_terms_have_no_shares():
    X = np.ones((20, 1))
    with pytest.warns(DataWarning, match="constant"):
        model = AdditiveGPRegressor().fit(X, RNG.standard_normal(20))
    assert len(variance_shares(model)) == 0
    assert model.summary()
