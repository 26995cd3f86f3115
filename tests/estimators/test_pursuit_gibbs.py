"""Projection pursuit by draws: against refitting, the truth, and its own draws."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import ProjectionPursuitGPRegressor, memory
from dsgp.errors import ConvergenceWarning, MemoryLimitError, ParameterError
from dsgp.models.pursuit import sampling as module
from dsgp.pursuit import gibbs, levels

pytestmark = pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")

NOISE = 3.0


def table(n=300, seed=0):
    """Two functions of projections, in units of their own, and the function without noise."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, 3)), columns=["a", "b", "c"])
    inputs = X.to_numpy()
    f = 500 + 20 * np.sin(1.5 * inputs @ [0.8, 0.6, 0]) + 5 * (inputs @ [-0.6, 0.8, 0.0]) ** 2
    return X * [1.0, 100.0, 0.01] + 7.0, f + NOISE * rng.standard_normal(n), f


def fitted(X, y, weight=None, **parameters):
    settings = {"n_starts": 3, "random_state": 0, "n_draws": 80, "n_warmup": 40} | parameters
    return ProjectionPursuitGPRegressor(method="gibbs", **settings).fit(X, y, weight)


@pytest.fixture(scope="module")
def model():
    X, y, _ = table()
    return fitted(X, y)


@pytest.fixture(scope="module")
def refitted():
    """The same by refitting; nobody may change it or ``model``."""
    X, y, _ = table()
    return ProjectionPursuitGPRegressor(n_starts=3, random_state=0).fit(X, y)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 100)
    monkeypatch.setattr(gibbs, "_BLOCK", 70)


# ------------------------------------------------------------------ what is predicted


@pytest.mark.parametrize("relevance", [True, False])
def test_it_predicts_like_refitting_and_like_the_truth(model, refitted, relevance):
    X, y, _ = table()
    if not relevance:  # the default is True
        model = fitted(X, y, relevance=False)
        refitted = ProjectionPursuitGPRegressor(n_starts=3, random_state=0, relevance=False)
        refitted.fit(X, y)
    assert model.n_projections_ == refitted.n_projections_ >= 2
    assert model.noise_variance_ == pytest.approx(refitted.noise_variance_, rel=0.15)
    assert model.noise_variance_ == pytest.approx(NOISE**2, rel=0.3)
    test, observed, truth = table(500, seed=1)
    inner = (np.abs((test - 7.0) / [1.0, 100.0, 0.01]).max(axis=1) < 2).to_numpy()
    mean, std = model.predict(test, return_std=True)
    expected, theirs = refitted.predict(test, return_std=True)
    assert np.mean(np.abs(mean - expected)[inner] < 3 * std[inner]) > 0.97
    assert 0.5 < np.median(std / theirs) < 1.5
    assert np.sqrt(np.mean((mean - truth)[inner] ** 2)) < 0.6 * NOISE
    assert 0.85 < np.mean(np.abs(mean - truth)[inner] < 1.96 * std[inner]) <= 1
    _, whole = model.predict(test, return_std=True, include_noise=True)
    np.testing.assert_allclose(whole**2, std**2 + model.noise_variance_, rtol=1e-12)
    assert 0.9 < np.mean(np.abs(mean - observed)[inner] < 1.96 * whole[inner]) < 0.99


def test_the_target_may_be_moved_and_stretched(model):
    X, y, _ = table()
    other = fitted(X, 1e3 * y - 1e6)
    mean, std = model.predict(X, return_std=True)
    moved, stretched = other.predict(X, return_std=True)
    # Not to all digits: the search rounds otherwise.
    np.testing.assert_allclose((moved + 1e6) / 1e3, mean, atol=0.5 * std.mean())
    assert stretched.mean() == pytest.approx(1e3 * std.mean(), rel=0.2)
    assert other.noise_variance_ == pytest.approx(1e6 * model.noise_variance_, rel=0.1)
    ours, theirs = (m.draws_.log_likelihood.mean().item() for m in (model, other))
    assert theirs == pytest.approx(ours - 300 * np.log(1e3), abs=10)


def test_weights_are_precisions_and_zero_is_no_row():
    X, y, _ = table(220)
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(y))
    weight[200:] = 0.0
    model = fitted(X, y, weight)
    without = fitted(X[:200], y[:200], weight[:200])
    np.testing.assert_array_equal(model.predict(X), without.predict(X))
    scaled = fitted(X[:200], y[:200], 100 * weight[:200])
    np.testing.assert_allclose(scaled.predict(X), model.predict(X), rtol=0.02)
    assert scaled.noise_variance_ == pytest.approx(100 * model.noise_variance_, rel=0.1)


def test_noise_may_be_fixed():
    X, y, _ = table(100)
    model = fitted(X, y, noise_variance=16.0, fixed_noise=True)
    np.testing.assert_allclose(model.draws_.noise_variance, 16.0, rtol=1e-12)
    assert model.noise_variance_ == pytest.approx(16.0)
    assert model.diagnostics_["noise_variance"]["rhat"] == 1.0


# ------------------------------------------------------------------ draws are consistent


def test_draws_are_what_predictions_are_made_of(model):
    X, _, _ = table(150, seed=2)
    mean, std = model.predict(X, return_std=True)
    S = len(model.model_.latent.draws)
    every = model.sample(X, S, random_state=3)
    assert len(np.unique(every[:, 0])) == S
    np.testing.assert_allclose(every.mean(axis=0), mean, rtol=1e-10)
    np.testing.assert_allclose(every.std(axis=0, ddof=1), std, rtol=1e-8)
    covariance = model.covariance(X)
    np.testing.assert_allclose(covariance, np.cov(every.T), atol=1e-8 * std.max() ** 2)
    noisy = model.covariance(X, include_noise=True)
    np.testing.assert_allclose(noisy - covariance, model.noise_variance_ * np.eye(150), atol=1e-9)
    some = model.sample(X, 5)
    np.testing.assert_array_equal(some, model.sample(X, 5))
    assert len(np.unique(some[:, 0])) == 5
    more = model.sample(X, S + 1, random_state=0)
    assert more.shape == (S + 1, 150)
    observed = model.sample(X, S, random_state=3, include_noise=True)
    assert np.var(observed - every) == pytest.approx(model.noise_variance_, rel=0.1)


def test_components_add_up_and_are_centred(model, refitted):
    X, _, _ = table()
    found = model.components(X)
    assert list(found.term.values) == [term.name for term in model.terms_]
    mean = model.predict(X)
    np.testing.assert_allclose(found["mean"].sum("term") + found.intercept, mean, rtol=1e-12)
    np.testing.assert_allclose(found["mean"].mean("row"), 0.0, atol=1e-9)
    assert (found["std"] > 0).all()
    assert model.intercept_ == pytest.approx(mean.mean())
    # they are the functions that the chains started at
    theirs = refitted.components(X)
    for term in found.term.values[:2]:
        ours = found["mean"].sel(term=term)
        assert np.corrcoef(ours, theirs["mean"].sel(term=term))[0, 1] > 0.95


def test_draws_and_diagnostics_are_public(model):
    X, _, _ = table()
    draws = model.draws_
    M = model.n_projections_
    assert draws.directions.dims == ("chain", "draw", "projection", "input")
    assert draws.directions.shape == (2, 40, M, 3)
    assert draws.variances.shape == (2, 40, M)
    assert draws.noise_variance.shape == draws.log_likelihood.shape == (2, 40)
    assert list(draws.input.values) == ["a", "b", "c"]
    assert model.noise_variance_ == draws.noise_variance.mean()
    first = draws.directions[:, :, 0].to_numpy().reshape(-1, 3)
    found = model.projections_.iloc[0].to_numpy()
    cosine = first @ found / np.linalg.norm(first, axis=1) / np.linalg.norm(found)
    assert np.mean(cosine > 0.95) > 0.9
    # likelihoods are those of the targets given the functions
    _, y, _ = table()
    level = model.intercept_ - model.model_.latent.draws.level
    functions = level + gibbs.evaluate(
        model.model_.latent.draws,
        model.model_.latent.start.projections.standard(list(X.to_numpy().T)),
    )
    variance = model.model_.latent.draws.noise_variance[:, None]
    logs = -0.5 * (np.log(2 * np.pi * variance) + (y - functions) ** 2 / variance).sum(axis=1)
    np.testing.assert_allclose(draws.log_likelihood.to_numpy().ravel(), logs, atol=2)
    told = model.diagnostics_
    assert set(told) == {"noise_variance", "predictions", "log_likelihood"}
    for numbers in told.values():
        assert 0.9 < numbers["rhat"] < 5
        assert 1 < numbers["effective_sample_size"] < 400
    text = model.summary()
    assert "80 draws in 2 chains" in text
    assert f"predictions {told['predictions']['rhat']:.2f}" in text
    assert "std of predictions   those of 80 draws" in text
    assert "sample" in model.fit_seconds_


def test_chains_that_do_not_agree_are_reported():
    X, y, _ = table(60)
    with pytest.warns(ConvergenceWarning, match="too few draws.*n_warmup or n_draws"):
        fitted(X, y, n_draws=4, n_warmup=1)
    drawn = fitted(X, y).model_.latent.draws
    bad = module.Sampled(drawn, 40, np.array([[1.0, 50.0], [1.3, 5.0], [2.0, 4.0]]))
    with pytest.warns(ConvergenceWarning, match=r"R-hat of the predictions is 1\.30") as record:
        bad.warn()
    assert len(record) == 1
    good = module.Sampled(drawn, 40, np.array([[1.0, 50.0], [1.05, 5.0], [2.0, 4.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good.warn()


# ------------------------------------------------------------------ the same model everywhere


def test_the_same_seed_gives_the_same_model(model):
    X, y, _ = table()
    other = fitted(X, y)
    for ours, theirs in zip(
        model.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert other.diagnostics_ == model.diagnostics_
    assert not (fitted(X, y, random_state=1).predict(X) == model.predict(X)).any()


def test_predictions_do_not_depend_on_blocks_and_are_lazy(model):
    X, _, _ = table(250, seed=4)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(model.predict(X[120:130]), mean[120:130])
    lazy = da.from_array(X.to_numpy(), chunks=(110, 3))
    found = model.predict(lazy, return_std=True)
    for ours, theirs in zip(found, (mean, std), strict=True):
        assert isinstance(ours, da.Array)
        np.testing.assert_array_equal(ours.compute(), theirs)
    np.testing.assert_array_equal(model.sample(lazy, 2, random_state=0), model.sample(X, 2, 0))


def test_it_is_saved_to_the_bit(model, tmp_path):
    X, _, _ = table(50, seed=5)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    for ours, theirs in zip(
        loaded.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(loaded.sample(X, 3), model.sample(X, 3))
    np.testing.assert_array_equal(loaded.covariance(X), model.covariance(X))
    assert loaded.components(X).identical(model.components(X))
    assert loaded.draws_.identical(model.draws_)
    assert loaded.diagnostics_ == model.diagnostics_
    assert loaded.summary() == model.summary()
    assert loaded.get_params() == model.get_params()


def test_another_fit_forgets_the_draws(tmp_path):
    X, y, _ = table(60)
    model = fitted(X, y, n_draws=8, n_warmup=5)
    assert hasattr(model, "draws_")
    model.set_params(method="refit").fit(X, y)
    assert not hasattr(model, "draws_")
    assert not hasattr(model, "diagnostics_")
    expected = ProjectionPursuitGPRegressor(n_starts=3, random_state=0).fit(X, y)
    for name in ("predict", "covariance", "sample"):
        np.testing.assert_array_equal(getattr(model, name)(X), getattr(expected, name)(X))
    model.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(dsgp.load(tmp_path / "m.zarr").predict(X), model.predict(X))


# ------------------------------------------------------------------ edges


@pytest.mark.filterwarnings("ignore::dsgp.errors.DataWarning")
def test_little_data_is_taken():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    for rows, y in (
        (X, np.ones(30)),
        (X[:2], np.array([0.0, 1.0])),
        (np.ones((30, 2)), rng.standard_normal(30)),
        (np.column_stack([X[:, 0], X[:, 0]]), X[:, 0] + 0.1 * rng.standard_normal(30)),
    ):
        for relevance in (True, False):
            model = fitted(rows, y, n_draws=8, n_warmup=5, relevance=relevance)
            mean, std = model.predict(rows, return_std=True)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
            assert model.covariance(rows).shape == (len(y), len(y))
            assert np.isfinite(model.sample(rows, 3, include_noise=True)).all()
            assert model.components(rows)["mean"].shape == (len(y), model.n_projections_)
            assert model.draws_.sizes["draw"] == 4
            assert model.summary()


@pytest.mark.parametrize("name", ["n_draws", "n_warmup", "n_chains"])
@pytest.mark.parametrize("value", [0, 1.5, "many"])
def test_numbers_are_checked(name, value):
    X, y, _ = table(30)
    with pytest.raises(ParameterError, match=name):
        fitted(X, y, **{name: value})


def test_what_does_not_fit_is_refused(model, monkeypatch):
    X, y, _ = table(60)
    with pytest.raises(ParameterError, match="n_samples"):
        model.sample(X, 0)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available", lambda: 1000)
        with pytest.raises(MemoryLimitError, match="covariance"):
            model.covariance(X)
        with pytest.raises(MemoryLimitError, match="samples"):
            model.sample(X, 2)
    with monkeypatch.context() as patch:
        patch.setattr(levels, "KEPT_BYTES", 0)
        with pytest.raises(MemoryLimitError, match=r"'gibbs' needs all rows in memory"):
            fitted(X, y)
    required = []
    monkeypatch.setattr(memory, "require", lambda what, needed, remedy: required.append(what))
    fitted(X, y, n_draws=4, n_warmup=1)
    assert any("sampling 60 rows" in what for what in required)
