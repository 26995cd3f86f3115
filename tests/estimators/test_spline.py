"""Smoothing splines against dense algebra, scipy's, and what a trend has to be."""

import math
import pickle
import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import make_smoothing_spline
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import dsgp
from dsgp import SmoothingSpline
from dsgp.errors import ConvergenceWarning, DataError, ParameterError
from dsgp.kernels import Wiener


def rows(n=60, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 5, n)
    x[:4] = x[4:8]  # ties
    weight = rng.uniform(0.5, 2, n)
    y = 10 + np.sin(2 * x) + x + noise * rng.standard_normal(n) / np.sqrt(weight)
    return x, y, weight


def dense(model, x, y, weight, new):
    """Posterior and restricted likelihood by universal kriging."""
    m, n = model.order, len(x)
    extent = np.ptp(x)
    t, s = (x - x.min()) / extent, (new - x.min()) / extent
    variance = extent ** (2 * m - 1) / model.smoothing_  # of a noise of variance 1
    prior = Wiener(m, 1.0, variance, origin=0.5)  # two-sided
    basis, basis_new = (np.stack([u**k / math.factorial(k) for k in range(m)], 1) for u in (t, s))
    inverse = np.linalg.inv(prior.covariance(t) + np.diag(1 / weight))
    information = basis.T @ inverse @ basis
    trend = np.linalg.solve(information, basis.T @ inverse @ y)
    rest = y - basis @ trend
    noise = rest @ inverse @ rest / (n - m)
    value = -0.5 * (
        (n - m) * (np.log(2 * np.pi * noise) + 1)
        - np.linalg.slogdet(inverse)[1]
        + np.linalg.slogdet(information)[1]
    )
    cross = prior.covariance(s, t)
    left = basis_new - cross @ inverse @ basis
    spread = (
        prior.diagonal(s)
        - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        + np.einsum("ij,jk,ik->i", left, np.linalg.inv(information), left)
    )
    return basis_new @ trend + cross @ inverse @ rest, noise * spread, noise, value


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_it_is_the_dense_posterior(order, weighted):
    x, y, weight = rows()
    weight = 100 * weight if weighted else np.ones(len(x))
    model = SmoothingSpline(order).fit(x, y, weight if weighted else None)
    new = np.concatenate([[-5.0, -3.1], x[:5], np.sort(x)[:4], np.linspace(-3, 5, 40), [5.2, 9.0]])
    mean, std = model.predict(new, return_std=True)
    expected, variance, noise, value = dense(model, x, y, weight, new)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    np.testing.assert_allclose(std**2, variance, rtol=1e-4, atol=1e-7)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-6)
    assert model.log_marginal_likelihood_ == pytest.approx(value, abs=1e-5)
    for factor in (0.9, 1.1):  # it is the largest
        other = SmoothingSpline(order, smoothing=factor * model.smoothing_).fit(x, y, weight)
        assert other.log_marginal_likelihood_ < model.log_marginal_likelihood_ + 1e-5
    at_points = model.predict(np.unique(x), return_std=True)[1] ** 2
    total = np.array([weight[x == point].sum() for point in np.unique(x)])
    assert model.effective_dof_ == pytest.approx((total * at_points).sum() / noise, rel=1e-5)


@pytest.mark.parametrize("smoothing", [1e-3, 0.5, 200.0])
def test_it_is_the_smoothing_spline_of_scipy(smoothing):
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 10, 80))
    y = np.cos(x) + 0.3 * rng.standard_normal(80)
    weight = rng.uniform(0.3, 3, 80)
    theirs = make_smoothing_spline(x, y, weight, lam=smoothing)
    ours = SmoothingSpline(smoothing=smoothing).fit(x, y, weight)
    new = np.linspace(x[0], x[-1], 333)
    np.testing.assert_allclose(ours.predict(new), theirs(new), atol=1e-7)
    np.testing.assert_allclose(ours.predict(new, derivative=1), theirs(new, 1), atol=1e-6)
    assert ours.smoothing_ == pytest.approx(smoothing, rel=1e-12)


@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_are_those_of_the_mean(order):
    x, y, _ = rows()
    model = SmoothingSpline(order).fit(x, y)
    new = np.array([-4.0, np.sort(x)[0] + 0.01, 0.3, 2.2, 6.0])
    step = 1e-4
    for derivative in range(1, order):
        up, down = (model.predict(new + s, derivative=derivative - 1) for s in (step, -step))
        mean, std = model.predict(new, return_std=True, derivative=derivative)
        np.testing.assert_allclose(mean, (up - down) / (2 * step), rtol=1e-4, atol=1e-5)
        assert (std > 0).all()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_beyond_the_rows_goes_the_trend_with_growing_variance(order):
    x, y, _ = rows()
    model = SmoothingSpline(order).fit(x, y)
    for far in (np.linspace(5.5, 60, 8), np.linspace(-3.5, -60, 8)):
        mean, std = model.predict(far, return_std=True)
        assert (np.diff(std) > 0).all()
        fit = np.polyfit(far, mean, order - 1)
        np.testing.assert_allclose(np.polyval(fit, far), mean, rtol=1e-6, atol=1e-6)


def test_a_polynomial_is_found_as_one():
    x, _, _ = rows(200)
    y = 3.0 - 2.0 * x + np.random.default_rng(1).standard_normal(len(x))
    model = SmoothingSpline().fit(x, y)
    line = np.polyfit(x, y, 1)
    assert model.effective_dof_ < 3.5
    np.testing.assert_allclose(model.predict(x), np.polyval(line, x), atol=0.2)


def test_intervals_cover():
    inside = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 1, 150)
        y = np.sin(6 * x) + 0.3 * rng.standard_normal(150)
        model = SmoothingSpline().fit(x, y)
        new = rng.uniform(0, 1, 50)
        lower, upper = model.predict_interval(new)
        inside.append((lower < np.sin(6 * new)) & (np.sin(6 * new) < upper))
    assert 0.92 < np.mean(inside) < 0.985
    density = model.log_predictive_density(new, np.sin(6 * new))
    assert density.shape == (50,)
    assert np.isfinite(density).all()


@settings(max_examples=25, deadline=None)
@given(
    st.floats(-8, 8),
    st.floats(-8, 8),
    st.floats(-6, 6),
    st.floats(-1e6, 1e6),
    st.sampled_from([1, 2]),
)
def test_units_change_nothing(log_x, log_y, log_weight, shift, order):
    x, y, weight = rows(40)
    plain = SmoothingSpline(order, smoothing=0.3).fit(x, y, weight)
    a, b, c = 10.0**log_x, 10.0**log_y, 10.0**log_weight
    moved = SmoothingSpline(order, smoothing=0.3 * c * a ** (2 * order - 1))
    moved.fit(x * a, y * b + shift * b, weight * c)
    mean, std = plain.predict(x, return_std=True)
    again, spread = moved.predict(x * a, return_std=True)
    np.testing.assert_allclose(again / b - shift, mean, atol=1e-6 * max(1, abs(shift) * 1e-6))
    np.testing.assert_allclose(spread / b, std, rtol=1e-4)
    assert moved.noise_variance_ == pytest.approx(plain.noise_variance_ * b**2 * c, rel=1e-5)


@pytest.mark.parametrize("noise", [1e-5, 1e-2])
def test_a_million_points_within_a_lengthscale(noise):
    rng = np.random.default_rng(0)
    n = 200_000
    x = rng.uniform(0, 1, n)
    y = np.sin(3 * x) + noise * rng.standard_normal(n)
    model = SmoothingSpline().fit(x, y)
    assert model.noise_variance_ == pytest.approx(noise**2, rel=0.02)
    new = np.linspace(0, 1, 101)
    mean, std = model.predict(new, return_std=True)
    error = (mean - np.sin(3 * new)) / std
    assert np.isfinite(std).all()
    assert 0.3 < np.mean(error**2) < 2.0
    slope, spread = model.predict(new, return_std=True, derivative=1)
    assert np.mean(((slope - 3 * np.cos(3 * new)) / spread) ** 2) < 2.5


def test_without_noise_it_interpolates_and_says_so():
    walk = np.cumsum(np.random.default_rng(5).standard_normal(60))
    with pytest.warns(ConvergenceWarning, match="goes through all 60 points"):
        model = SmoothingSpline(1).fit(np.arange(60.0), walk)
    np.testing.assert_allclose(model.predict(np.arange(60.0)), walk, atol=1e-4)


def test_a_constant_target_is_a_constant():
    model = SmoothingSpline().fit(np.arange(20.0), np.full(20, 7.0))
    mean, std = model.predict([3.5, 40.0], return_std=True)
    np.testing.assert_allclose(mean, 7.0)
    assert np.isfinite(std).all()


def test_tables_of_any_kind(tmp_path):
    x, y, _ = rows()
    expected = SmoothingSpline().fit(x, y).predict(x)
    frame = pd.DataFrame({"dose": x, "y": y})
    for X, target in (
        (x[:, None], y),
        (list(x), list(y)),
        (frame["dose"], frame["y"]),
        (frame[["dose"]], y),
        (frame, "y"),
        (pl.DataFrame({"dose": x}), pl.Series(y)),
        (dd.from_pandas(frame, npartitions=3), "y"),
    ):
        model = SmoothingSpline().fit(X, target)
        np.testing.assert_allclose(np.asarray(model.predict(X)), expected, atol=1e-12)
    assert model.feature_names_in_.tolist() == ["dose"]
    lazy = model.predict(dd.from_pandas(frame, npartitions=2), return_std=True)
    np.testing.assert_allclose(lazy[0].compute(), expected, atol=1e-12)
    # Rows one by one say what they say together.
    one = np.array([model.predict(frame.iloc[[k]])[0] for k in range(5)])
    np.testing.assert_array_equal(one, model.predict(frame)[:5])


def test_dates_count_in_days():
    day = pd.date_range("2024-01-01", periods=200, freq="D")
    y = np.sin(np.arange(200) / 20) + 0.1 * np.random.default_rng(0).standard_normal(200)
    model = SmoothingSpline().fit(pd.Series(day, name="day"), y)
    slope = model.predict(pd.Series(day[[0, 100]], name="day"), derivative=1)
    np.testing.assert_allclose(slope, [1 / 20, np.cos(5) / 20], atol=0.02)


def test_stores_pickles_and_clones_answer_the_same(tmp_path):
    x, y, weight = rows()
    model = SmoothingSpline(3).fit(pd.DataFrame({"dose": x}), y, weight)
    model.save(tmp_path / "m.zarr")
    new = pd.DataFrame({"dose": np.linspace(-4, 7, 20)})
    expected = np.stack(model.predict(new, return_std=True))
    for other in (dsgp.load(tmp_path / "m.zarr"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(np.stack(other.predict(new, return_std=True)), expected)
        assert other.summary() == model.summary()
        assert other.get_params() == model.get_params()
    assert "quintic spline, 60 rows at 56 points" in model.summary()
    assert clone(model).fit(x, y, weight).smoothing_ == model.smoothing_
    assert cross_val_score(SmoothingSpline(), x[:, None], y).mean() > 0.9


def test_what_it_does_not_take():
    x, y, _ = rows()
    for parameters, message in (
        ({"order": 4}, "order"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": "auto"}, "smoothing"),
    ):
        with pytest.raises(ParameterError, match=message):
            SmoothingSpline(**parameters).fit(x, y)
    with pytest.raises(DataError, match="fits one column, and X has 2"):
        SmoothingSpline().fit(np.column_stack([x, x]), y)
    with pytest.raises(DataError, match="2 distinct values; a spline of order 2 needs more"):
        SmoothingSpline().fit([0.0, 0.0, 1.0], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="holds categories"):
        SmoothingSpline().fit(pd.DataFrame({"g": list("abab")}), [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(DataError, match="row 3"):
        SmoothingSpline().fit([0.0, 1.0, 2.0, np.nan], [1.0, 2.0, 3.0, 4.0])
    model = SmoothingSpline().fit(x, y)
    with pytest.raises(ParameterError, match="derivative must be an integer from 0 to 1"):
        model.predict(x, derivative=2)
    with pytest.raises(ParameterError, match="not for a derivative"):
        model.predict(x, return_std=True, include_noise=True, derivative=1)
    with pytest.raises(ValueError, match="not fitted"):
        SmoothingSpline().predict(x)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("gap", [1e-5, 1e-9, 1e-12])
def test_first_inputs_that_almost_coincide(order, gap):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1, 60))
    y = np.sin(6 * x) + 0.1 * rng.standard_normal(60)
    x[1], x[2] = x[0] + gap, x[0] + 2 * gap
    new = np.array([0.0, 0.2, x[1]])
    ahead = SmoothingSpline(order).fit(x, y).predict(new, return_std=True)
    back = SmoothingSpline(order).fit(-x, y).predict(-new, return_std=True)
    np.testing.assert_allclose(ahead, back, rtol=1e-9)


def test_weights_and_units_that_float64_cannot_hold():
    x, y, weight = rows()
    weight[0] = 1e-30
    with pytest.raises(DataError, match="rows that are to be left out have weight 0"):
        SmoothingSpline().fit(x, y, weight)
    weight[0] = 0.0
    left = SmoothingSpline().fit(x, y, weight).predict(x)
    np.testing.assert_allclose(left, SmoothingSpline().fit(x[1:], y[1:], weight[1:]).predict(x))
    for X, target in ((x * 1e120, y), (x, y * 1e160), (x, y * 1e-170)):
        with pytest.raises(DataError, match="powers float64 cannot hold: scale it"):
            SmoothingSpline().fit(X, target)
    crowd = np.concatenate([np.arange(600) * 1e-13, [0.5, 1.0]])
    with pytest.raises(DataError, match="too close for float64 to resolve the slopes"):
        SmoothingSpline(3).fit(crowd, np.arange(602.0))
    with pytest.raises(DataError, match="2 rows"):
        SmoothingSpline().fit(x, y).log_predictive_density(x[:2], y[:3])
    for order in (2.0, True):
        with pytest.raises(ParameterError, match="order must be 1, 2 or 3"):
            SmoothingSpline(order).fit(x, y)


def test_dates_as_an_index_or_an_array():
    day = pd.date_range("2024-01-01", periods=50, freq="D")
    y = np.sin(np.arange(50) / 8) + 0.1 * np.random.default_rng(0).standard_normal(50)
    expected = SmoothingSpline().fit(pd.Series(day), y).predict(pd.Series(day))
    for X in (day, day.to_numpy()):
        np.testing.assert_array_equal(SmoothingSpline().fit(X, y).predict(X), expected)


# ---------------------------------------------------------------- ends of float64


@pytest.mark.parametrize("order", [1, 2, 3])
def test_inputs_of_any_size_are_answered(order):
    """Far away the mean is that of the outermost polynomial, and nothing is known of the rest."""
    x = np.linspace(-1, 9, 60)
    model = SmoothingSpline(order, smoothing=0.01).fit(x, np.sin(x) + 0.1 * np.cos(40 * x))
    far = np.array([1e308, -1e308, 1e250, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for derivative in range(order):
            mean, std = model.predict(far, return_std=True, derivative=derivative)
            assert not np.isnan([mean, std]).any()
            assert np.isfinite([mean[3], std[3]]).all()
            assert (std[:3] > 1e100).all()
            last = [float(model.predict([9.0], derivative=k)[0]) for k in range(order)]
            expected = sum(
                last[k] * 1e60 ** (k - derivative) / math.factorial(k - derivative)
                for k in range(derivative, order)
            )
            beyond = model.predict([1e60], derivative=derivative)
            assert beyond[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_smoothing_that_float64_cannot_distinguish_from_none_is_refused(order):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 50)
    y = np.sin(x) + 0.3 * rng.standard_normal(50)
    for tiny in (5e-324, 1e-300, 1e-60):
        with pytest.raises(ParameterError, match="give at least") as told:
            SmoothingSpline(order, smoothing=tiny).fit(x, y)
    least = float(str(told.value).split("at least ")[1].split()[0])
    model = SmoothingSpline(order, smoothing=1.01 * least).fit(x, y)
    assert order < model.effective_dof_ <= 50 * (1 + 1e-6)
    assert np.abs(model.predict(x) - y).max() < 1e-3


def test_rows_without_noise_are_reported_in_the_result():
    x = np.linspace(0, 1, 30)
    with pytest.warns(ConvergenceWarning, match="no noise"):
        model = SmoothingSpline().fit(x, 1 + 2 * x)
    assert not model.converged_
    assert "stds are meaningless" in model.summary()
    noisy = SmoothingSpline().fit(x, x + np.random.default_rng(0).standard_normal(30))
    assert noisy.converged_
    assert "say nothing" not in noisy.summary()


def test_vectors_of_dask_are_columns():
    x, y, _ = rows()
    here = SmoothingSpline().fit(x, y)
    vector = da.from_array(x, chunks=20)
    there = SmoothingSpline().fit(vector, da.from_array(y, chunks=20))
    np.testing.assert_array_equal(there.predict(x), here.predict(x))
    np.testing.assert_array_equal(here.predict(vector).compute(), here.predict(x))
    series = dd.from_pandas(pd.Series(x, name="x"), npartitions=3)
    of_column = SmoothingSpline().fit(pd.DataFrame({"x": x}), y)
    np.testing.assert_allclose(of_column.predict(series).compute(), here.predict(x), atol=1e-12)
    np.testing.assert_allclose(
        here.log_predictive_density(vector, y), here.log_predictive_density(x, y)
    )
