"""The constant of a model is unknown: its uncertainty is in every standard deviation and draw."""

import json
import shutil
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GeneralizedPursuitGP,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import DataWarning
from dsgp.kernels import Matern12, Matern32, Matern52

NOISE = 0.09
KERNELS = {"x0": Matern52(0.8, 1.5), "x1": Matern32(2.0, 0.5)}


def rows(n=70, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    y = 5 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, y, rng.uniform(0.5, 2.0, n)


class Dense:
    """Generalised least squares by dense algebra: K + c 11ᵀ with c → ∞."""

    def __init__(self, kernels, noise_variance, X, y, weight):
        self.kernels, self.X = list(kernels), X
        V = self.prior(X, X) + np.diag(noise_variance / weight)
        solved = np.linalg.solve(V, np.column_stack([np.ones(len(X)), y]))
        self.V, self.ones, self.precision = V, solved[:, 0], solved[:, 0].sum()
        self.constant = self.ones @ y / self.precision
        self.dual = solved[:, 1] - self.constant * self.ones

    def prior(self, A, B):
        found = np.zeros((len(A), len(B)))
        for kernel, a, b in zip(self.kernels, A.T, B.T, strict=True):
            seen = np.isfinite(a)[:, None] & np.isfinite(b)
            found += np.where(seen, kernel.covariance(np.nan_to_num(a), np.nan_to_num(b)), 0.0)
        return found

    def mean(self, new):
        return self.constant + self.prior(new, self.X) @ self.dual

    def covariance(self, new):
        cross = self.prior(new, self.X)
        left = 1 - cross @ self.ones
        explained = cross @ np.linalg.solve(self.V, cross.T)
        return self.prior(new, new) - explained + np.outer(left, left) / self.precision


def kept(**options):
    options = {"terms": KERNELS, "noise_variance": NOISE, "learner": None, "tol": 1e-9} | options
    return AdditiveGPRegressor(**options)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("solver", ["multigrid", "cg", "backfitting"])
def test_mean_std_covariance_and_draws_are_those_of_an_unknown_constant(solver, missing):
    X, y, weight = rows(missing=missing)
    max_iter = 20_000 if solver == "backfitting" else None
    model = kept(solver=solver, missing="ignore", max_iter=max_iter).fit(X, y, weight)
    dense = Dense(KERNELS.values(), NOISE, X, y, weight)
    new = rows(12, missing, seed=1)[0] * 3  # far from the rows, too
    mean, std = model.predict(new, return_std=True)
    exact = dense.covariance(new)
    np.testing.assert_allclose(mean, dense.mean(new), atol=1e-8)
    np.testing.assert_allclose(std, np.sqrt(np.diag(exact)), rtol=1e-8)
    np.testing.assert_allclose(model.covariance(new), exact, atol=1e-6)
    if solver == "multigrid":
        drawn = model.sample(new, 1000, random_state=0)
        np.testing.assert_allclose(np.cov(drawn.T), exact, atol=0.2 * exact.max())
        np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * std.max() / np.sqrt(1000))


def test_centred_components_and_the_constant_make_up_f():
    X, y, _ = rows()
    model = kept().fit(X, y)
    parts = model.components(X)
    total = parts["intercept"].item() + parts["mean"].sum("term")
    np.testing.assert_allclose(total, model.predict(X), atol=1e-9)
    # The mean of f over the rows is that of the targets, to σ / √n.
    assert parts["intercept"].item() == pytest.approx(y.mean(), abs=1e-9)
    n = len(X)
    over_rows = np.full(n, 1 / n) @ model.covariance(X) @ np.full(n, 1 / n)
    assert np.sqrt(over_rows) == pytest.approx(np.sqrt(NOISE / n), rel=1e-3)


@pytest.mark.parametrize("how", ["codes", "tables", "streamed"])
def test_larger_tables_agree_with_dense_algebra(how):
    X, y, _ = rows(1500)
    X = np.round(X, 2)
    bins = {"codes": None, "tables": 512, "streamed": 512}[how]
    given = (da.from_array(X, (400, 2)), da.from_array(y, 400)) if how == "streamed" else (X, y)
    model = kept(bins=bins).fit(*given)
    assert model.model_.latent.posterior.covariance.name.startswith("smoothers")
    dense = Dense(KERNELS.values(), NOISE, X, y, np.ones(len(X)))
    new = np.array([[0.3, 0.5], [-1.9, 1.9], [30.0, 0.0], [40.0, -50.0]])
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, dense.mean(new), atol=1e-6)
    np.testing.assert_allclose(std, np.sqrt(np.diag(dense.covariance(new))), rtol=0.01)
    far = model.model_.latent.posterior.constant.deviation([np.array([1e6]), np.array([1e6])], 1)
    assert far[0] == pytest.approx(1 / np.sqrt(dense.precision), rel=1e-6)


def test_a_flat_function_is_covered_as_often_as_promised():
    covered, stds = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y = rng.uniform(size=(200, 2)), rng.standard_normal(200)
        mean, std = AdditiveGPRegressor().fit(X, y).predict(X[:20], return_std=True)
        covered.append(np.mean(np.abs(mean) < 1.96 * std))
        stds.append(std.min())
    assert 0.92 < np.mean(covered) < 0.99  # 39 % where the constant counts as known
    assert min(stds) > 0.8 / np.sqrt(200)


@pytest.mark.parametrize(
    "model",
    [AdditiveGPRegressor(), ProjectionPursuitGPRegressor(random_state=0)],
    ids=["additive", "pursuit"],
)
def test_without_functions_the_mean_is_as_uncertain_as_that_of_the_targets(model):
    rng = np.random.default_rng(3)
    y = 7 + rng.standard_normal(60)
    X = np.ones((60, 2)) if isinstance(model, AdditiveGPRegressor) else rng.uniform(size=(60, 2))
    with pytest.warns(DataWarning):
        model.fit(X, y)
    assert not model.terms_
    mean, std = model.predict(X[:3], return_std=True)
    np.testing.assert_allclose(mean, y.mean())
    np.testing.assert_allclose(std, np.sqrt(model.noise_variance_ / 60), rtol=1e-6)
    np.testing.assert_allclose(std, np.std(y, ddof=1) / np.sqrt(60), rtol=0.02)
    np.testing.assert_allclose(model.covariance(X[:3]), np.full((3, 3), std[0] ** 2), rtol=1e-9)
    drawn = model.sample(X[:3], 4000, random_state=1)
    assert drawn[:, 0].std() == pytest.approx(std[0], rel=0.06)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 2])


def test_two_observations_say_what_two_observations_say():
    with pytest.warns(DataWarning):
        model = AdditiveGPRegressor().fit(np.ones((2, 1)), [2.0, 5.0])
    mean, std = model.predict([[1.0]], return_std=True)
    assert (mean[0], std[0]) == pytest.approx((3.5, 1.5))


def test_one_row_is_its_own_constant():
    model = kept(terms=None, kernel=Matern52(1.0, 1.0))
    with pytest.warns(DataWarning):
        model.fit([[1.0]], [4.0])
    mean, std = model.predict([[1.0]], return_std=True)
    assert (mean[0], std[0]) == pytest.approx((4.0, np.sqrt(NOISE)))


def test_a_gaussian_likelihood_is_the_regressor():
    X, y, _ = rows()
    likelihood = dsgp.likelihoods.Gaussian(scale=np.sqrt(NOISE))
    model = GeneralizedAdditiveGP(likelihood, terms=KERNELS, learner=None, tol=1e-9)
    model.fit(X, y)
    new = rows(9, seed=2)[0] * 3
    dense = Dense(KERNELS.values(), NOISE, X, y, np.ones(len(X)))
    mean, std = model.predict_latent(new, return_std=True)
    np.testing.assert_allclose(mean, dense.mean(new), atol=1e-7)
    np.testing.assert_allclose(std, np.sqrt(np.diag(dense.covariance(new))), rtol=1e-7)
    np.testing.assert_allclose(model.covariance(new), dense.covariance(new), atol=1e-6)


def laplace(X, y, gradient_and_weight, new, kernels):
    """Joint mode of function and constant by Newton's method, dense; mean and std of f."""
    prior = sum(k.covariance(x) for k, x in zip(kernels, X.T, strict=True))
    cross = sum(k.covariance(a, x) for k, a, x in zip(kernels, new.T, X.T, strict=True))
    f = np.zeros(len(y))
    for _ in range(60):
        gradient, weight = gradient_and_weight(y, f)
        V = prior + np.diag(1 / weight)
        z = f + gradient / weight
        ones = np.linalg.solve(V, np.ones(len(y)))
        constant = ones @ z / ones.sum()
        dual = np.linalg.solve(V, z - constant)
        f = constant + prior @ dual
    left = 1 - cross @ ones
    own = sum(k.variance for k in kernels) - np.sum(cross.T * np.linalg.solve(V, cross.T), axis=0)
    return constant + cross @ dual, np.sqrt(own + left**2 / ones.sum())


def test_laplace_finds_function_and_constant_together():
    X, _, _ = rows(90)
    y = np.random.default_rng(1).poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float)
    model = GeneralizedAdditiveGP("poisson", terms=KERNELS, learner=None, tol=1e-9).fit(X, y)
    new = rows(9, seed=2)[0] * 2
    expected = laplace(X, y, lambda y, f: (y - np.exp(f), np.exp(f)), new, KERNELS.values())
    found = model.predict_latent(new, return_std=True)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-7)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-7)
    held = GeneralizedAdditiveGP(
        "poisson", terms=KERNELS, learner=None, tol=1e-9, intercept=model.intercept_
    ).fit(X, y)
    assert np.all(held.predict_latent(new, return_std=True)[1] < found[1])  # it is known there


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_know_how_little_a_few_rows_say(classes):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(90, 1)), np.arange(90) % classes
    kernel = Matern52(1.0, 1e-8, fixed=("lengthscale", "variance"))
    model = AdditiveGPClassifier(kernel, learner=None).fit(X, y)
    share = 1 / classes
    for each in model.estimators_:
        std = each.predict_latent(X[:4], return_std=True)[1]
        np.testing.assert_allclose(std, 1 / np.sqrt(90 * share * (1 - share)), rtol=1e-3)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (GeneralizedPursuitGP("poisson", random_state=0), "counts"),
        (ProjectionPursuitGPClassifier(random_state=0), "classes"),
    ],
)
def test_generalized_pursuit_without_projections_knows_its_constant_as_well(model, target):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 2))
    y = rng.poisson(4.0, 80) if target == "counts" else (rng.uniform(size=80) < 0.3).astype(int)
    with pytest.warns(DataWarning):
        model.fit(X, y)
    function = model if target == "counts" else model.estimators_[0]
    assert not function.terms_
    mean, std = function.predict_latent(X[:2], return_std=True)
    information = y.sum() if target == "counts" else 80 * y.mean() * (1 - y.mean())
    np.testing.assert_allclose(mean, np.log(y.mean()) if target == "counts" else
                               np.log(y.mean() / (1 - y.mean())), atol=1e-3)  # fmt: skip
    np.testing.assert_allclose(std, 1 / np.sqrt(information), rtol=1e-3)


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
def test_no_event_at_all_leaves_a_rate_of_about_three_in_n(likelihood):
    X = np.random.default_rng(0).uniform(size=(200, 1))
    model = GeneralizedAdditiveGP(likelihood, Matern12(1.0, 0.01), learner=None)
    model.fit(X, np.zeros(200))
    _, high = model.predict_interval(X[:3])
    assert np.all((high > 1 / 200) & (high < 5 / 200))


def test_gibbs_draws_have_the_constants_uncertainty():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 2))
    y = 3 + X[:, 0] + 0.5 * rng.standard_normal(40)
    model = ProjectionPursuitGPRegressor(
        method="gibbs", n_projections=1, n_draws=200, n_warmup=50, random_state=0
    ).fit(X, y)
    drawn = model.sample(X, 200, random_state=0)
    std = np.sqrt(model.noise_variance_ / len(X))
    assert drawn.mean(axis=1).std() == pytest.approx(std, rel=0.25)
    assert model.intercept_ == pytest.approx(y.mean(), abs=0.3 * std)


def test_a_store_keeps_the_constant_and_one_without_it_still_loads(tmp_path):
    X, y, _ = rows()
    model = kept().fit(X, y)
    path = tmp_path / "model.zarr"
    model.save(path)
    new = rows(9, seed=2)[0] * 3
    expected = model.predict(new, return_std=True)
    found = dsgp.load(path).predict(new, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    earlier = _without(path, {"constant", "total_weight", "total_information", "_basis"})
    shutil.rmtree(path / "fitted" / "_basis")  # for updates, of later stores only
    assert earlier == 4
    found = dsgp.load(path).predict(new, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def _without(path, names):
    """Take settings away from a store, as if it had been written before there were any."""
    removed = 0

    def strip(value):
        nonlocal removed
        if isinstance(value, dict):
            removed += len(names & value.keys())
            return {k: strip(v) for k, v in value.items() if k not in names}
        return value

    root = Path(path) / "zarr.json"
    document = json.loads(root.read_text())
    kept = ("format", "kind", "settings")  # format 2 had no digest
    attributes = {name: document["attributes"][name] for name in kept} | {"format_version": 2}
    root.write_text(json.dumps(document | {"attributes": strip(attributes)}))
    return removed
