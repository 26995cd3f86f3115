"""Rows added to a smoothing spline: the function is that of all rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import SmoothingSpline
from dsgp.errors import DataError, DataWarning, ParameterError


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = np.round(rng.uniform(-3, 5, n) * np.linspace(0.3, 4, n), 2)  # ties, and a range that grows
    weight = rng.uniform(0.5, 2, n)
    return x, 10 + np.sin(x) + 0.3 * rng.standard_normal(n) / np.sqrt(weight), weight


def assert_equal(model, whole, x, rtol=1e-7):
    new = np.concatenate([x, [x.min() - 5, x.max() + 5]])
    for one, other in zip(
        model.predict(new, return_std=True), whole.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=rtol)
    for name in ("noise_variance_", "log_marginal_likelihood_", "effective_dof_", "smoothing_"):
        assert getattr(model, name) == pytest.approx(getattr(whole, name), rel=1e-7), name
    assert model.n_rows_ == whole.n_rows_


@pytest.mark.parametrize("order", [1, 2, 3])
def test_batches_equal_one_fit(order, tmp_path):
    x, y, weight = rows()
    model = SmoothingSpline(order).fit(x[:60], y[:60], weight[:60])
    for first in range(60, 300, 20):
        model.update(*(part[first : first + 20] for part in (x, y, weight)))
    whole = SmoothingSpline(order, smoothing=model.smoothing_).fit(x, y, weight)
    assert_equal(model, whole, x)
    assert len(model.model_.data.points) == len(np.unique(x))
    assert model.n_updates_ == 12
    model.save(tmp_path / "model.zarr")
    loaded = dsgp.load(tmp_path / "model.zarr")
    assert (loaded.n_rows_, loaded.n_updates_) == (300, 12)
    more = [part[:5] for part in (x, y, weight)]
    np.testing.assert_array_equal(loaded.update(*more).predict(x), model.update(*more).predict(x))


def test_a_smoothing_that_is_learned_again_is_that_of_a_fit():
    x, y, _ = rows()
    model = SmoothingSpline().fit(x[:30], y[:30]).update(x[30:], y[30:], relearn=True)
    whole = SmoothingSpline().fit(x, y)
    assert model.smoothing_ == pytest.approx(whole.smoothing_, rel=0.02)
    assert model.log_marginal_likelihood_ == pytest.approx(whole.log_marginal_likelihood_, abs=1e-3)


def test_half_life_is_a_fit_with_weights():
    x, y, weight = rows()
    model = SmoothingSpline().fit(x[:100], y[:100], weight[:100])
    model.update(x[100:], y[100:], weight[100:], half_life=2, elapsed=4)
    faded = weight * np.repeat([0.25, 1.0], [100, 200])
    whole = SmoothingSpline(smoothing=model.smoothing_).fit(x, y, faded)
    np.testing.assert_allclose(model.predict(x), whole.predict(x), rtol=1e-9)
    # The noise is that of fewer rows: 100 rows that count for a quarter each.
    squares = np.sum(faded * (y - whole.predict(x)) ** 2)
    assert model.noise_variance_ == pytest.approx(squares / (225 - whole.effective_dof_), rel=0.1)
    assert model.n_rows_ == 300
    for _ in range(4):
        model.update(x[200:], y[200:], weight[200:], half_life=1, elapsed=20)
    last = SmoothingSpline(smoothing=model.smoothing_).fit(x[200:], y[200:], weight[200:])
    near = x[200:210]
    np.testing.assert_allclose(model.predict(near), last.predict(near), rtol=1e-5)
    assert len(model.model_.data.points) == len(np.unique(x[200:]))


def test_tables_and_dates():
    days = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=90, freq="D")})
    y = np.sin(np.arange(90) / 9)
    y += 0.1 * np.random.default_rng(0).standard_normal(90)
    model = SmoothingSpline().fit(days[:60], y[:60]).update(days[60:].assign(y=y[60:]), "y")
    whole = SmoothingSpline(smoothing=model.smoothing_).fit(days, y)
    np.testing.assert_allclose(model.predict(days), whole.predict(days), rtol=1e-7)
    with pytest.raises(DataError, match="'day' held dates"):
        model.update(pd.DataFrame({"day": [3.0]}), [1.0])
    with pytest.raises(DataError, match="no column 'day', which the model reads"):
        model.update(pd.DataFrame({"time": [3.0]}), [1.0])


def test_an_update_is_complete_where_its_warning_is_an_error():
    x, y, _ = rows()
    model = SmoothingSpline(smoothing=1.0).fit(x[:100], y[:100]).calibrate(x[200:], y[200:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataWarning, match="calibrate again"):
            model.update(x[100:200], y[100:200])
    whole = SmoothingSpline(smoothing=1.0).fit(x[:200], y[:200])
    assert model.noise_variance_ == pytest.approx(whole.noise_variance_, rel=1e-9)
    assert_equal(model, whole, x)


def test_an_update_that_fails_leaves_the_model_as_it_was():
    x, y, _ = rows()
    model = SmoothingSpline(smoothing=1.0).fit(x[:100], y[:100])
    kept = dict(vars(model))
    for new, target in (([np.nan], [1.0]), ([1e300], [1.0]), ([1.0], [np.inf]), ([], [])):
        with pytest.raises((DataError, ValueError)):
            model.update(np.array(new), np.array(target))
    with pytest.raises(DataError, match="in every row"):
        model.update(x[:3], y[:3], np.zeros(3))
    with pytest.raises(DataError, match="weights in the unit of the fit"):
        model.update(x[:3], y[:3], np.full(3, 1e-30))
    with pytest.raises(DataError, match="target has a range of 1e"):
        model.update(x[:3], [1.0, 1e300, 1.0])
    with pytest.raises(DataError, match="the rows count for 2 rows"):
        model.update(x[:2], y[:2], half_life=1, elapsed=38)
    with pytest.raises(ParameterError, match="smoothing="):
        model.update(x[:3], y[:3], relearn=True)
    with pytest.raises(ParameterError, match="elapsed"):
        model.update(x[:3], y[:3], elapsed=1)
    assert vars(model) == kept
