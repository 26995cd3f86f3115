"""Additive models whose hyperparameters are draws: predictions, keeping, edges."""

import warnings

import dask
import distributed
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import dsgp
from dsgp import AdditiveGPRegressor, component_bands, memory
from dsgp.errors import ConvergenceWarning, MemoryLimitError, ParameterError
from dsgp.kernels import Matern52, Periodic
from dsgp.priors import HyperPriors

pytestmark = pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")
METHODS = ["gibbs", "collapsed"]


def table(n=80, seed=0):
    """Two functions in units of their own, and levels."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(0, 700, n), "b": rng.uniform(-1e-3, 1e-3, n)})
    X["town"] = rng.choice(["x", "y", "z"], n)
    f = 500 + 20 * np.sin(X["a"] / 100) + 1e4 * X["b"] + X["town"].map({"x": 0, "y": 5, "z": -5})
    return X, (f + 6.0 * rng.standard_normal(n)).to_numpy(), f.to_numpy()


def fitted(X, y, weight=None, **parameters):
    settings = {"method": "gibbs", "random_state": 0, "n_draws": 40, "n_warmup": 10} | parameters
    return AdditiveGPRegressor(**settings).fit(X, y, weight)


@pytest.fixture(scope="module", params=METHODS)
def model(request):
    X, y, _ = table()
    return fitted(X, y, method=request.param)


@pytest.fixture(scope="module")
def new():
    return table(9, seed=1)[0]


# ------------------------------------------------------------------ what is predicted


def test_it_predicts_like_the_point_estimate_and_says_more_uncertainty(model, new):
    X, y, _ = table()
    point = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict(new, return_std=True)
    expected, expected_std = point.predict(new, return_std=True)
    assert np.abs(mean - expected).max() < 1.5 * expected_std.max()
    assert std.mean() > 0.95 * expected_std.mean()
    assert model.noise_variance_ == pytest.approx(point.noise_variance_, rel=0.5)
    assert model.kernels_ == point.kernels_  # those that the chains started at
    assert point.log_marginal_likelihood_ == model.log_marginal_likelihood_


def test_moments_are_those_of_the_members(model, new):
    rows = model._loaded_rows(new)[0]
    members = model.model_.latent.members
    pairs = [member.moments(rows, True) for member in members]
    means, variances = (np.array(column) for column in zip(*pairs, strict=True))
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std**2, variances.mean(axis=0) + means.var(axis=0), rtol=1e-9)
    noises = model.model_.latent.noise_variances
    assert noises == pytest.approx(model.draws_["noise_variance"].to_numpy().ravel())
    total = np.sqrt(variances + noises[:, None])
    for end, share in zip(
        model.predict_interval(new, 0.9, include_noise=True), (0.05, 0.95), strict=True
    ):
        np.testing.assert_allclose(ndtr((end - means) / total).mean(axis=0), share, atol=1e-9)
    density = np.exp(-0.5 * ((mean - means) / total) ** 2) / total / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(
        model.log_predictive_density(new, mean), np.log(density.mean(axis=0)), rtol=1e-9
    )


def test_covariance_samples_and_components_agree_with_the_moments(model, new):
    std = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance(new))), std, rtol=1e-4)
    drawn = model.sample(new, 800, random_state=0)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.15)
    np.testing.assert_allclose(model.sample(new, 3, random_state=0), drawn[:3], rtol=1e-12)
    parts = model.components(new)
    np.testing.assert_allclose(
        parts["mean"].sum("term") + parts["intercept"], model.predict(new), rtol=1e-9
    )
    components = model.sample_components(new, 400, random_state=0)
    np.testing.assert_allclose(components.std("sample"), parts["std"], rtol=0.3)
    bands = component_bands(model, new, random_state=0, n_samples=400)
    assert (bands["factor"] > 1.5).all()


def test_one_row_and_dask_are_answered_alike(model, new):
    dask_frame = pytest.importorskip("dask.dataframe")
    mean, std = model.predict(new, return_std=True)
    one, one_std = model.predict(new[:1], return_std=True)
    np.testing.assert_allclose([one[0], one_std[0]], [mean[0], std[0]], rtol=1e-9)
    lazy = model.predict(dask_frame.from_pandas(new, npartitions=2), return_std=True)[1]
    np.testing.assert_allclose(lazy.compute(), std, rtol=1e-9)


def test_leave_one_out_is_the_harmonic_mean(model):
    X, y, _ = table()
    densities = np.array(
        [
            member.leave_one_out_at(model._loaded_rows(X)[0], y, np.ones(len(y)))[0]
            for member in model.model_.members
        ]
    )
    expected = -np.log(np.exp(-densities).mean(axis=0))
    np.testing.assert_allclose(model.leave_one_out(X, y), expected, rtol=1e-9)


def test_units_do_not_matter(model, new):
    X, y, _ = table()
    scaled = fitted(X.assign(a=X["a"] * 1e3), 1e-4 * y, method=model.method)
    ratio = scaled.predict(new.assign(a=new["a"] * 1e3), return_std=True)[1] / (
        model.predict(new, return_std=True)[1] * 1e-4
    )
    np.testing.assert_allclose(ratio, 1.0, rtol=0.35)  # other roundings, other draws


@pytest.mark.parametrize("method", METHODS)
def test_a_transformed_target_has_a_mixture_too(method):
    X, y, _ = table(60)
    target = np.exp((y - 500) / 20)
    model = fitted(X, target, method=method, target_transform="log", n_draws=20)
    mean, std = model.predict(X, return_std=True)
    median = model.predict(X, statistic="median")
    low, high = model.predict_interval(X, include_noise=True)
    assert (low < median).all()
    assert (median < high).all()
    assert (median < mean).all()
    assert np.isfinite(model.log_predictive_density(X, target)).all()
    drawn = model.sample(X, 300, random_state=0)
    assert np.median(drawn.std(axis=0) / std) == pytest.approx(1, rel=0.2)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance(X[:5]))), std[:5], rtol=1e-3)


# ------------------------------------------------------------------ every kind of term


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::dsgp.errors.DataWarning")
def test_all_kinds_of_terms_are_drawn(method):
    X, y, _ = table(60)
    X["a"] = X["a"] / 100
    X.loc[3, "b"] = np.nan
    terms = {
        "a": [dsgp.Smooth(by="town"), dsgp.Linear()],
        "b": [Periodic(2e-3), Matern52(fixed="variance", variance=20.0)],
        "town": dsgp.Levels(),
    }
    model = fitted(X, y, method=method, terms=terms, missing="ignore", n_draws=20, n_warmup=10)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite([mean, std]).all()
    draws = model.draws_
    assert len(draws["variance_term"]) == 4
    assert len(draws["lengthscale_term"]) == 3
    assert (draws["variance"].std(("chain", "draw")) > 0).all()


def test_weights_count():
    X, y, _ = table(60)
    weight = np.ones(60)
    weight[:20] = 0.0
    kept = fitted(X[20:], y[20:]).predict(X)
    np.testing.assert_allclose(fitted(X, y, weight).predict(X), kept, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_bins_will_do(method):
    X, y, _ = table(300)
    model = fitted(X, y, method=method, bins=32, n_draws=20, n_warmup=10)
    exact = AdditiveGPRegressor().fit(X, y)
    mean, std = exact.predict(X, return_std=True)
    assert np.abs(model.predict(X) - mean).max() < 2 * std.max()
    assert np.isfinite(model.sample(X[:5], 3)).all()


# ------------------------------------------------------------------ draws and diagnostics


def test_draws_are_reported(model):
    draws = model.draws_
    assert (draws.sizes["chain"], draws.sizes["draw"]) == (2, 20)
    assert list(draws["lengthscale_term"].to_numpy()) == ["a", "b"]
    assert list(draws["variance_term"].to_numpy()) == ["a", "b", "town"]
    told = model.diagnostics_
    assert set(told) == {
        *("a: lengthscale", "a: variance", "b: lengthscale", "b: variance", "town: variance"),
        "noise_variance",
    }
    text = model.summary()
    for words in ("40 draws in 2 chains", "R-hat", "effective draws", "a: lengthscale"):
        assert words in text
    assert ("evidence" in text) == (model.method == "collapsed")


def test_arviz_takes_the_draws(model):
    arviz = pytest.importorskip("arviz")
    data = model.inference_data()
    summary = arviz.summary(data)
    assert next(iter(summary.index)) == "lengthscale[a]"
    expected = model.diagnostics_["noise_variance"]["rhat"]
    assert summary.loc["noise_variance", "r_hat"] == pytest.approx(expected, abs=0.03)
    assert data["sample_stats"]["lp"].shape == (2, 20)


def test_without_draws_there_is_nothing_to_report():
    X, y, _ = table(30)
    model = AdditiveGPRegressor().fit(X, y)
    for name in ("draws_", "diagnostics_", "inference_data"):
        with pytest.raises(AttributeError, match="gibbs"):
            getattr(model, name)() if name == "inference_data" else getattr(model, name)
    again = fitted(X, y, n_draws=4, n_warmup=2)
    again.set_params(method=None).fit(X, y)
    assert not hasattr(again, "draws_")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.filterwarnings("default::dsgp.errors.ConvergenceWarning")
def test_chains_that_have_not_mixed_are_warned_of():
    X, y, _ = table(30)
    with pytest.warns(ConvergenceWarning, match="n_warmup or n_draws"):
        model = fitted(X, y, n_draws=10, n_warmup=1)
    assert not model.converged_
    with pytest.warns(ConvergenceWarning, match="too few draws"):
        fitted(X, y, n_draws=4, n_warmup=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_the_same_draws_on_any_scheduler(method):
    X, y, _ = table(40)
    settings = {"method": method, "n_draws": 4, "n_warmup": 2}
    X = X[["a"]]
    expected = fitted(X, y, **settings)
    with dask.config.set(scheduler="synchronous", num_workers=1):
        assert fitted(X, y, **settings).draws_.identical(expected.draws_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)  # everything on threads
        again = fitted(X, y, **settings)
        assert again.draws_.identical(expected.draws_)
        np.testing.assert_array_equal(again.predict(X), expected.predict(X))
        patch.setattr("dsgp.compute.WORTH_A_GRAPH", np.inf)  # nothing
        assert fitted(X, y, **settings).draws_.identical(expected.draws_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)
        patch.setattr("dsgp.compute.WORTH_A_WORKER", 0.0)
        cluster = {"processes": False, "n_workers": 1, "dashboard_address": None}
        with distributed.Client(threads_per_worker=2, **cluster):
            assert fitted(X, y, **settings).draws_.identical(expected.draws_)
    assert not fitted(X, y, **settings, random_state=1).draws_.equals(expected.draws_)


# ------------------------------------------------------------------ keeping


def test_a_saved_model_answers_the_same(model, new, tmp_path):
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    for some in (model, loaded):
        some.answers = [
            *some.predict(new, return_std=True, include_noise=True),
            *some.predict_interval(new),
            some.sample(new, 3, 0, include_noise=True),
            some.covariance(new),
        ]
    for ours, theirs in zip(model.answers, loaded.answers, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.components(new).identical(model.components(new))
    assert loaded.draws_.identical(model.draws_)
    assert loaded.summary() == model.summary()
    assert loaded.get_params() == model.get_params()


def test_the_plain_sampler_refuses_terms_without_states():
    X, y, _ = table(30)
    with pytest.raises(ParameterError, match=r"'a by town'.*is neither.*gibbs"):
        fitted(X, y, method="plain-gibbs", terms={"a": dsgp.Smooth(by="town")})
    model = fitted(X, y, method="plain-gibbs")
    assert list(model.draws_["variance_term"].to_numpy()) == ["a", "b", "town"]
    assert "plain-gibbs: 40 draws" in model.summary()
    assert "log_likelihood" in model.draws_


def test_priors_are_kept(tmp_path):
    X, y, _ = table(30)
    priors = HyperPriors(lengthscale_mean=1.0, noise_rate=0.1)
    fitted(X, y, priors=priors, n_draws=4, n_warmup=2).save(tmp_path / "m.zarr")
    assert dsgp.load(tmp_path / "m.zarr").priors == priors


def test_priors_matter():
    X, y, _ = table(30)
    priors = HyperPriors(lengthscale_mean=2.0, lengthscale_std=0.01)
    draws = fitted(X, y, priors=priors, n_warmup=60).draws_["lengthscale"].sel(lengthscale_term="a")
    width = np.subtract(*np.quantile(X["a"], [0.9, 0.1]))
    assert float(np.log(draws / width).mean()) == pytest.approx(2.0, abs=0.15)


# ------------------------------------------------------------------ edges


@pytest.mark.filterwarnings("ignore::dsgp.errors.DataWarning")
@pytest.mark.parametrize("method", METHODS)
def test_little_data_is_taken(method):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    for rows, y in (
        (X, np.ones(20)),
        (X[:2], np.array([0.0, 1.0])),
        (np.ones((20, 2)), rng.standard_normal(20)),
        (np.column_stack([X[:, 0], X[:, 0]]), X[:, 0]),
    ):
        model = fitted(rows, y, method=method, n_draws=8, n_warmup=3)
        assert np.isfinite(model.predict(rows, return_std=True)).all()
        assert model.covariance(rows).shape == (len(y), len(y))
        assert np.isfinite(model.sample(rows, 3, include_noise=True)).all()
        assert model.summary()


@pytest.mark.parametrize("name", ["n_draws", "n_warmup", "n_chains"])
@pytest.mark.parametrize("value", [0, 1.5, "many"])
def test_numbers_are_checked(name, value):
    X, y, _ = table(30)
    with pytest.raises(ParameterError, match=name):
        fitted(X, y, **{name: value})


def test_what_cannot_be_is_refused(monkeypatch):
    X, y, _ = table(30)
    with pytest.raises(ParameterError, match="method must be one of"):
        fitted(X, y, method="nuts")
    with pytest.raises(ParameterError, match="HyperPriors"):
        fitted(X, y, priors={"noise_rate": 1.0})
    with pytest.raises(ParameterError, match="noise_rate must be a positive"):
        HyperPriors(noise_rate=0.0)
    with pytest.raises(ParameterError, match="learner=None keeps"):
        fitted(X, y, learner=None, kernel=Matern52(1.0, 1.0), noise_variance=1.0)
    known = Matern52(1.0, 1.0, fixed=("lengthscale", "variance"))
    with pytest.raises(ParameterError, match="every hyperparameter is fixed"):
        fitted(X[["a"]], y, kernel=known, noise_variance=1.0, fixed_noise=True)
    monkeypatch.setattr("dsgp.sampling.collapsed.are_too_many", lambda cells: True)
    with pytest.raises(ParameterError, match=r'levels too many.*method="gibbs"'):
        fitted(X, y, method="collapsed")


def test_what_does_not_fit_is_refused(monkeypatch):
    X, y, _ = table(30)
    model = fitted(X, y, n_draws=8, n_warmup=2)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available", lambda: 1000)
        with pytest.raises(MemoryLimitError, match="8 draws of hyperparameters"):
            model.predict(X, return_std=True)
    required = []
    monkeypatch.setattr(memory, "require", lambda what, needed, remedy: required.append(what))
    fitted(X, y, n_draws=4, n_warmup=1)
    assert any("2 chains and 4 draws of" in what for what in required)


def test_fitting_is_quiet_where_all_is_well():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(X, y, n_draws=300, n_warmup=50, method="collapsed")
    assert model.converged_
