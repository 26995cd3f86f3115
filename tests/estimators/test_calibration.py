"""Quantiles, PIT values, calibration reports and conformal intervals: against closed forms."""

from functools import cache

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GeneralizedPursuitGP,
    ProjectionPursuitGPRegressor,
    Smooth,
    SmoothingSpline,
    calibration_report,
)
from dsgp.errors import DataError, DataWarning, ParameterError

SIZE = 240


def rows(n, seed):
    """Return inputs, real targets with heavy tails, and counts."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"x": random.uniform(-2, 2, n)})
    y = np.sin(2 * X["x"]).to_numpy() + 0.3 * random.standard_t(2.5, n)
    rate = np.exp(1 + np.sin(2 * X["x"])) * random.gamma(2, 0.5, n)
    return X, y, random.poisson(rate).astype(float)


@cache
def gaussian():
    X, y, _ = rows(SIZE, 0)
    return AdditiveGPRegressor(random_state=0).fit(X, y)


@cache
def poisson():
    X, _, counts = rows(SIZE, 0)
    return GeneralizedAdditiveGP("poisson", random_state=0).fit(X, counts)


@pytest.mark.parametrize("include_noise", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [
        AdditiveGPRegressor(),
        AdditiveGPRegressor(target_transform="yeo-johnson"),
        AdditiveGPRegressor(method="collapsed", n_draws=20, n_warmup=10, random_state=0),
        ProjectionPursuitGPRegressor(n_projections=1, random_state=0),
        SmoothingSpline(),
        GeneralizedAdditiveGP("poisson"),
        GeneralizedAdditiveGP("negative_binomial"),
        GeneralizedPursuitGP("poisson", n_projections=1, random_state=0),
    ],
    ids=lambda estimator: repr(estimator)[:60],
)
@pytest.mark.filterwarnings("ignore")
def test_intervals_end_at_quantiles(estimator, include_noise):
    X, _, counts = rows(60, 1)
    model = estimator.fit(X, counts)
    new = X[:7]
    quantiles = model.predict_quantiles(new, [0.05, 0.5, 0.95], include_noise)
    lower, upper = model.predict_interval(new, 0.9, include_noise)
    np.testing.assert_allclose(quantiles[:, 0], lower, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(quantiles[:, 2], upper, rtol=1e-6, atol=1e-9)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert model.predict_quantiles(new, 0.5, include_noise).shape == (7, 1)
    with pytest.raises(ParameterError, match="quantiles must be probabilities"):
        model.predict_quantiles(new, [5])


def test_pit_of_a_gaussian_is_its_distribution_function():
    X, y, _ = rows(50, 2)
    mean, std = gaussian().predict(X, return_std=True, include_noise=True)
    np.testing.assert_allclose(gaussian().pit(X, y), stats.norm.cdf(y, mean, std), atol=1e-12)


def test_pit_of_counts_lies_between_their_probabilities():
    X, _, counts = rows(200, 3)
    latent, std = poisson().predict_latent(X, return_std=True)
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    rate = np.exp(latent[:, None] + std[:, None] * z)
    upper, lower = (
        stats.poisson.cdf(counts[:, None] - k, rate) @ weight / weight.sum() for k in (0, 1)
    )
    pit = poisson().pit(X, counts, random_state=4)
    share = (pit - lower) / (upper - lower)
    np.testing.assert_allclose(share, np.random.default_rng(4).random(200), atol=1e-6)


def test_the_conformal_quantile_has_the_rank_of_the_closed_form():
    X, y, _ = rows(39, 5)
    model = AdditiveGPRegressor().fit(*rows(SIZE, 0)[:2]).calibrate(X, y)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    scores = np.sort(np.abs(y - mean) / std)
    for level, rank in ((0.9, 36), (0.5, 20), (0.975, 39)):
        lower, upper = model.predict_interval(X, level, include_noise=True)
        np.testing.assert_allclose(upper - mean, scores[rank - 1] * std, rtol=1e-9)
        np.testing.assert_allclose(mean - lower, scores[rank - 1] * std, rtol=1e-9)
    with pytest.raises(ParameterError, match=r"calibrate by 99 or more"):
        model.predict_interval(X, 0.99, include_noise=True)
    assert model.n_calibrated_ == 39
    lower, upper = model.predict_interval(X, 0.9)  # of the mean: as it was
    np.testing.assert_allclose((upper - lower) / 2, 1.6448536 * model.predict(X, True)[1])


def test_a_spline_is_calibrated_like_other_models(tmp_path):
    random = np.random.default_rng(0)
    X = pd.DataFrame({"x": random.uniform(0, 6, 400)})
    y = np.sin(X["x"]).to_numpy() + 0.2 * random.standard_t(3, 400)
    train, held = slice(0, 200), slice(200, 300)
    model = SmoothingSpline().fit(X[train], y[train])
    mean, std = model.predict(X[held], return_std=True, include_noise=True)
    scores = np.sort(np.abs(y[held] - mean) / std)
    np.testing.assert_allclose(model.pit(X[held], y[held]), stats.norm.cdf(y[held], mean, std))
    density = stats.norm.logpdf(y[held], mean, std)
    np.testing.assert_allclose(
        model.log_predictive_density(X[held].assign(y=y[held]), "y"), density
    )
    with pytest.raises(DataError, match="the rows that the model was fitted to"):
        model.calibrate(X[train], y[train])
    assert model.calibrate(X[held], y[held]).n_calibrated_ == 100
    model.save(tmp_path / "spline.zarr")
    for one in (model, dsgp.load(tmp_path / "spline.zarr")):
        lower, upper = one.predict_interval(X[held], 0.9, include_noise=True)
        np.testing.assert_allclose((upper - lower) / 2, scores[90] * std, rtol=1e-9)
        lower, upper = one.predict_interval(X[held], 0.9)  # of the mean: as it was
        np.testing.assert_allclose((upper - lower) / 2, 1.6448536 * one.predict(X[held], True)[1])
        with pytest.raises(DataError, match="the rows that the model was fitted to"):
            one.calibrate(X[train], y[train])
    lazy = dd.from_pandas(X[held], npartitions=3)
    pair = model.predict_interval(lazy, 0.9, include_noise=True)
    expected = model.predict_interval(X[held], 0.9, include_noise=True)
    for one, other in zip(pair, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
    assert model.fit(X[held], y[held]).n_calibrated_ == 0


@pytest.mark.parametrize("make", [gaussian, poisson], ids=["gaussian", "poisson"])
def test_coverage_over_calibrations_is_what_is_promised(make):
    """With 39 rows and a level of 0.9 it is 0.9 exactly, where there are no ties."""
    model, column = make(), 1 if make is gaussian else 2
    X, *targets = rows(39 * 100, 6)
    y = targets[column - 1]
    scores = model._conformity(X, y).reshape(100, 39)
    new = rows(4000, 7)
    fresh = model._conformity(new[0], new[column])
    reached = np.sort(scores, axis=1)[:, 35]
    coverage = np.mean(fresh[None] <= reached[:, None])
    assert abs(coverage - 0.9) < 0.02  # four standard errors
    # Intervals hold what the scores do.
    model.calibrate(X[:39], y[:39])
    try:
        lower, upper = model.predict_interval(new[0][:500], 0.9, include_noise=True)
    finally:
        model._scores = None
    inside = (new[column][:500] >= lower) & (new[column][:500] <= upper)
    assert (inside | (fresh[:500] > reached[0])).all()
    if make is gaussian:
        assert (inside == (fresh[:500] <= reached[0])).all()


def test_training_rows_are_refused(tmp_path):
    X, y, _ = rows(SIZE, 0)
    order = np.random.default_rng(0).permutation(SIZE)
    with pytest.raises(DataError, match="the rows that the model was fitted to"):
        gaussian().calibrate(X.iloc[order], y[order])
    other, target, _ = rows(SIZE, 8)
    mixed = pd.concat([X[:100], other[:100]])
    model = AdditiveGPRegressor().fit(X, y)
    with pytest.warns(DataWarning, match=r"100 of 20\d rows|\d+ of \d+ rows that can be compared"):
        model.calibrate(mixed, np.concatenate([y[:100], target[:100]]))
    model.calibrate(other, target)
    model.save(tmp_path / "model.zarr")
    kept = dsgp.load(tmp_path / "model.zarr")
    assert kept.n_calibrated_ == SIZE
    for one, expected in zip(
        kept.predict_interval(other, 0.8, True),
        model.predict_interval(other, 0.8, True),
        strict=True,
    ):
        assert (one == expected).all()
    with pytest.raises(DataError, match="the rows that the model was fitted to"):
        kept.calibrate(X, y)
    assert kept.fit(other, target).n_calibrated_ == 0


def test_categories_have_no_intervals():
    X, y, _ = rows(60, 1)
    model = GeneralizedAdditiveGP("bernoulli").fit(X, (y > 0).astype(float))
    with pytest.raises(ParameterError, match="the target is a category"):
        model.calibrate(*rows(60, 2)[:2])
    with pytest.raises(ParameterError, match="predicts no distribution of a number"):
        calibration_report(AdditiveGPClassifier().fit(X, y > 0), X, y > 0)


def test_the_report_distinguishes_noise_that_varies_from_chance():
    random = np.random.default_rng(0)
    X = pd.DataFrame({"x": random.uniform(0, 1, 3000), "group": random.choice(list("ab"), 3000)})
    std = 0.1 + np.where(X["group"] == "a", 0.0, 0.5)
    y = X["x"] + std * random.standard_normal(3000)
    train, test = X[:1000], X[1000:].assign(y=y[1000:])
    known = {"terms": [Smooth("x")]}
    constant = AdditiveGPRegressor(**known).fit(train, y[:1000])
    varying = AdditiveGPRegressor(**known, noise_terms=["group"]).fit(train, y[:1000])
    wrong = calibration_report(constant, test, "y")
    right = calibration_report(varying, test, "y")
    assert set(right.coverage["by"]) >= {"all rows", "x", "group", "predicted mean"}
    assert right.p_value > 0.01 > wrong.p_value
    assert not (right.coverage["outside"] == "yes").any()
    assert "are in their 95% interval" in right.summary()
    groups = right.coverage[right.coverage["by"] == "group"].set_index("group")
    assert set(groups.index) == {"a", "b"}
    inside = (y[1000:] >= varying.predict_interval(test, include_noise=True)[0]) & (
        y[1000:] <= varying.predict_interval(test, include_noise=True)[1]
    )
    share = inside[test["group"].to_numpy() == "a"].mean()
    np.testing.assert_allclose(groups.loc["a", "coverage"], share)


def test_the_report_of_calibrated_counts_is_of_their_intervals():
    X, _, counts = rows(400, 9)
    model = GeneralizedAdditiveGP("poisson").fit(*(part[:SIZE] for part in (X, counts)))
    model.calibrate(X[SIZE:], counts[SIZE:])
    new = rows(300, 10)
    report = calibration_report(model, new[0], new[2], level=0.9)
    assert report.n_calibrated == 400 - SIZE
    np.testing.assert_array_equal(report.pit, model.pit(new[0], new[2]))
    lower, upper = model.predict_interval(new[0], 0.9, include_noise=True)
    np.testing.assert_allclose(
        report.coverage["coverage"].iloc[0], ((new[2] >= lower) & (new[2] <= upper)).mean()
    )
