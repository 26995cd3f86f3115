"""Targets that are transformed: equal to transforming by hand, and in the target's unit."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

import dsgp
from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.models.gaussian.target import is_skewed
from dsgp.transforms import Log, YeoJohnson

SIGMA = 0.5


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
    return X, f, np.exp(f + SIGMA * rng.standard_normal(n))


def estimators():
    return [
        AdditiveGPRegressor(),
        ProjectionPursuitGPRegressor(n_projections=2, n_starts=2, random_state=0),
        ProjectionPursuitGPRegressor(
            n_projections=1, n_starts=2, method="gibbs", n_draws=40, n_warmup=30, random_state=0
        ),
        ProjectionPursuitGPRegressor(n_projections=1, n_starts=2, method="greedy", random_state=0),
    ]


@pytest.fixture(params=range(4), ids=["additive", "refit", "gibbs", "greedy"])
def pair(request):
    """A model by ``target_transform="log"`` and one of the logarithm by hand."""
    X, _, y = rows()
    model = estimators()[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_hand = clone(model).fit(X, np.log(y))
        return clone(model).set_params(target_transform="log").fit(X, y), by_hand


def test_it_is_the_model_of_the_logarithm(pair):
    model, by_hand = pair
    X, _, y = rows()
    new = rows(50, seed=1)[0]
    m, std = by_hand.predict(new, return_std=True)
    s2 = by_hand.noise_variance_
    assert model.noise_variance_ == s2
    mean, deviation = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, np.exp(m + (std**2 + s2) / 2), rtol=1e-12)
    np.testing.assert_allclose(model.predict(new), mean, rtol=1e-12)
    np.testing.assert_allclose(deviation, mean * np.sqrt(np.expm1(std**2)), rtol=1e-9)
    again, wide = model.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(again, mean, rtol=1e-12)
    np.testing.assert_allclose(wide, mean * np.sqrt(np.expm1(std**2 + s2)), rtol=1e-9)
    np.testing.assert_allclose(model.predict(new, statistic="median"), np.exp(m), rtol=1e-12)
    np.testing.assert_allclose(model.predict_latent(new, return_std=True), [m, std], rtol=1e-12)
    lower, upper = model.predict_interval(new, 0.8, include_noise=True)
    log_normal = stats.lognorm(np.sqrt(std**2 + s2), scale=np.exp(m))
    np.testing.assert_allclose([lower, upper], log_normal.ppf([[0.1], [0.9]]), rtol=1e-9)
    np.testing.assert_allclose(
        model.log_predictive_density(new, np.exp(m + 1)), log_normal.logpdf(np.exp(m + 1))
    )
    narrow = model.predict_interval(new, 0.8)
    expected = np.exp(m + [[-1], [1]] * std * stats.norm.ppf(0.9) + s2 / 2)
    np.testing.assert_allclose(narrow, expected, rtol=1e-9)
    jacobian = -np.log(y).sum()
    assert model.log_marginal_likelihood_ == pytest.approx(
        by_hand.log_marginal_likelihood_ + jacobian
    )
    if hasattr(model, "evidence_"):
        assert model.evidence_ == pytest.approx(by_hand.evidence_ + jacobian)
        np.testing.assert_allclose(
            np.array(model.evidence_trace_)[:, 1] - jacobian,
            np.array(by_hand.evidence_trace_)[:, 1],
        )
    np.testing.assert_allclose(
        model.sample(new[:5], 3, 0, include_noise=True),
        np.exp(by_hand.sample(new[:5], 3, 0, include_noise=True)),
    )
    np.testing.assert_allclose(
        model.sample(new[:5], 3, 0), np.exp(by_hand.sample(new[:5], 3, 0) + s2 / 2)
    )
    np.testing.assert_allclose(
        np.sqrt(np.diag(model.covariance(new[:5]))), deviation[:5], rtol=0.15
    )
    assert "the logarithm of the target" in model.summary()
    np.testing.assert_allclose(model.components(new)["mean"], by_hand.components(new)["mean"])


def test_saved_and_loaded(pair, tmp_path):
    model, _ = pair
    model.save(tmp_path / "model.zarr")
    loaded = dsgp.load(tmp_path / "model.zarr")
    new = rows(20, seed=1)[0]
    assert loaded.transform_ == Log()
    assert loaded.target_transform == "log"
    np.testing.assert_array_equal(
        loaded.predict(new, return_std=True), model.predict(new, return_std=True)
    )


def test_intervals_cover_skewed_rows_and_means_are_means():
    X, _, y = rows(3000)
    new, f, later = rows(20_000, seed=5)
    model = AdditiveGPRegressor(target_transform="log").fit(X, y)
    lower, upper = model.predict_interval(new, 0.9, include_noise=True)
    assert np.mean(later < lower) == pytest.approx(0.05, abs=0.012)
    assert np.mean(later > upper) == pytest.approx(0.05, abs=0.012)
    mean, std = model.predict(new, return_std=True, include_noise=True)
    assert np.mean(later / mean) == pytest.approx(1.0, abs=0.03)
    assert np.mean(((later - mean) / std) ** 2) == pytest.approx(1.0, abs=0.15)
    median = model.predict(new, statistic="median")
    assert np.mean(later < median) == pytest.approx(0.5, abs=0.02)
    # Of what is expected of y: exp(f + σ²/2).
    lower, upper = model.predict_interval(new, 0.9)
    expected = np.exp(f + SIGMA**2 / 2)
    assert np.mean((lower < expected) & (expected < upper)) == pytest.approx(0.9, abs=0.12)


def test_yeo_johnson_covers_where_no_transform_does_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (4000, 1))
    z = 0.7 * np.sin(5 * X[:, 0]) + 0.7 * rng.standard_normal(4000)
    y = 7 + YeoJohnson(0.1).inverse(z)
    train, test = slice(0, 2000), slice(2000, None)
    model = AdditiveGPRegressor(target_transform="yeo-johnson").fit(X[train], y[train])
    assert isinstance(model.transform_, YeoJohnson)
    with pytest.warns(
        DataWarning, match=r"strongly skewed.*\"log\" or target_transform=\"yeo-johnson\""
    ):
        plain = AdditiveGPRegressor().fit(X[train], y[train])
    tails = {}
    for name, fitted in (("transformed", model), ("plain", plain)):
        lower, upper = fitted.predict_interval(X[test], 0.9, include_noise=True)
        tails[name] = np.mean(y[test] < lower), np.mean(y[test] > upper)
    np.testing.assert_allclose(tails["transformed"], 0.05, atol=0.02)
    assert tails["plain"][0] < 0.02
    assert model.log_marginal_likelihood_ > plain.log_marginal_likelihood_ + 100
    density = model.log_predictive_density(X[test], y[test]).mean()
    assert density > plain.log_predictive_density(X[test], y[test]).mean() + 0.05
    assert model.score(X[test], y[test]) == pytest.approx(plain.score(X[test], y[test]), abs=0.03)
    assert "Yeo–Johnson, power" in model.summary()


def test_densities_integrate_to_one():
    X, _, y = rows(200)
    for choice in ("log", "yeo-johnson", None):
        model = AdditiveGPRegressor(target_transform=choice).fit(X, y)
        grid = np.linspace(1e-6, 60, 20_001) if choice == "log" else np.linspace(-60, 60, 40_001)
        density = np.exp(model.log_predictive_density(np.tile(X[:1], (len(grid), 1)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
        mean, std = model.predict(X[:1], return_std=True, include_noise=True)
        assert np.trapezoid(density * grid, grid) == pytest.approx(mean[0], rel=1e-3)
        assert np.trapezoid(density * (grid - mean) ** 2, grid) == pytest.approx(
            std[0] ** 2, rel=1e-2
        )


@pytest.mark.parametrize("unit", [1e-15, 1e9])
@pytest.mark.parametrize("choice", ["log", "yeo-johnson"])
def test_units_do_not_matter(choice, unit):
    X, _, y = rows(200)
    one = AdditiveGPRegressor(target_transform=choice).fit(X, y)
    other = AdditiveGPRegressor(target_transform=choice).fit(X, unit * y)
    for function in ("predict_interval", "predict"):
        expected = np.asarray(getattr(one, function)(X[:9]))
        np.testing.assert_allclose(getattr(other, function)(X[:9]), unit * expected, rtol=2e-3)
    shift = -len(y) * np.log(unit)
    assert other.log_marginal_likelihood_ == pytest.approx(
        one.log_marginal_likelihood_ + shift, abs=0.1
    )


@pytest.mark.parametrize("choice", ["log", "yeo-johnson"])
def test_streamed_rows_give_the_same_model(choice, tmp_path):
    X, _, y = rows(700)
    weight = np.random.default_rng(3).integers(0, 3, 700).astype(float)
    model = AdditiveGPRegressor(target_transform=choice, bins=64)
    whole = clone(model).fit(X, y, weight)
    chunks = [
        clone(model).fit(
            da.from_array(X, (size, 2)), da.from_array(y, size), da.from_array(weight, size)
        )
        for size in (100, 333)
    ]
    for other in chunks:
        assert other.transform_ == whole.transform_
        assert other.log_marginal_likelihood_ == whole.log_marginal_likelihood_
        np.testing.assert_array_equal(other.predict(X[:9]), whole.predict(X[:9]))
    lazy = whole.predict_interval(da.from_array(X, (100, 2)))[1]
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), whole.predict_interval(X)[1], rtol=1e-12)
    kept = weight > 0
    assert clone(model).fit(X[kept], y[kept], weight[kept]).log_marginal_likelihood_ == (
        pytest.approx(whole.log_marginal_likelihood_)
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_values_without_a_logarithm_are_counted(streamed):
    X, _, y = rows(90)
    y[[3, 40, 41]] = [0.0, -1.0, 0.0]
    table = pd.DataFrame(X, columns=["a", "b"]).assign(rain=y)
    if streamed:
        table = pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=4)
    message = "positive target, and 'rain' is 0 or negative in 3 of 90 rows.*yeo-johnson"
    for model in estimators()[:2]:
        with pytest.raises(DataError, match=message):
            model.set_params(target_transform="log").fit(table, "rain")
    # Rows that do not count are none of them.
    AdditiveGPRegressor(target_transform="log").fit(X, y, (y > 0).astype(float))
    model = AdditiveGPRegressor(target_transform="yeo-johnson").fit(table, "rain")
    assert np.isfinite(np.asarray(model.predict(table))).all()


def test_a_given_transform_is_kept_and_stored(tmp_path):
    X, _, y = rows(100)
    given = YeoJohnson(0.25, 1.0, 2.0)
    model = AdditiveGPRegressor(target_transform=given).fit(X, y)
    assert model.transform_ == given
    model.save(tmp_path / "model.zarr")
    assert dsgp.load(tmp_path / "model.zarr").target_transform == given
    assert clone(model).target_transform == given


def test_refusals():
    X, _, y = rows(60)
    for model in estimators()[:2]:
        with pytest.raises(ParameterError, match="target_transform must be None"):
            model.set_params(target_transform="sqrt").fit(X, y)
    model = AdditiveGPRegressor(target_transform="log").fit(X, y)
    with pytest.raises(ParameterError, match="statistic"):
        model.predict(X, statistic="mode")
    with pytest.raises(DataError, match="0 or negative in 1 of 60 rows"):
        model.log_predictive_density(X, np.append(y[1:], 0.0))


def test_without_a_transform_nothing_changes():
    X, f, _ = rows()
    y = f + 0.1 * np.random.default_rng(1).standard_normal(len(f))
    model = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_array_equal(model.predict(X, statistic="median"), mean)
    lower, upper = model.predict_interval(X, include_noise=True)
    np.testing.assert_allclose(upper - lower, 2 * stats.norm.ppf(0.975) * std)
    np.testing.assert_allclose((lower + upper) / 2, mean)
    np.testing.assert_allclose(model.log_predictive_density(X, y), stats.norm(mean, std).logpdf(y))
    assert model.transform_ is None


# ---------------------------------------------------------------- skewed residuals


@pytest.mark.parametrize("n", [50, 200, 5000])
def test_normal_and_symmetric_residuals_are_not_called_skewed(n):
    rng = np.random.default_rng(n)
    draws = 1500 if n < 1000 else 150
    assert not any(is_skewed(rng.standard_normal(n)) for _ in range(draws))
    assert sum(is_skewed(rng.standard_t(3, n)) for _ in range(draws)) <= 3
    contaminated = rng.standard_normal(n)
    contaminated[: n // 50] = -9999.0
    assert not is_skewed(contaminated)


def test_strong_skewness_is_found_on_either_side():
    rng = np.random.default_rng(0)
    for draw in (rng.lognormal(0, 1, 1000), rng.exponential(size=1000), rng.gamma(1.5, size=3000)):
        assert is_skewed(draw)
        assert is_skewed(-1e-9 * draw)


def test_a_signed_target_gets_the_remedy_it_can_take():
    X, _, y = rows(1000)
    y = y * np.exp(np.random.default_rng(2).standard_normal(1000))
    with pytest.warns(DataWarning, match='skewed.*: target_transform="yeo-johnson" models'):
        ProjectionPursuitGPRegressor(n_projections=1, n_starts=2, random_state=0).fit(X, -y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdditiveGPRegressor(target_transform="log").fit(X, y)
