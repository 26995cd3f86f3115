"""Averages on a log link where the rows say little of f."""

import warnings

import numpy as np
import pytest

import dsgp
from dsgp import GeneralizedAdditiveGP, GeneralizedPursuitGP
from dsgp.errors import DataWarning, ParameterError
from dsgp.kernels import Matern52

MEDIAN = "statistic='median'"


@pytest.fixture(scope="module")
def two_counts():
    return GeneralizedAdditiveGP("poisson").fit([[0.0], [1.0]], [0, 3])


def test_two_counts_do_not_promise_hundreds(two_counts):
    with pytest.warns(DataWarning, match=MEDIAN):
        mean, std = two_counts.predict([[0.5], [5.0]], return_std=True)
    assert np.all(mean < 15)
    assert np.all(std < 60)
    with pytest.warns(DataWarning, match=r"in 2 of 3 rows"):
        two_counts.predict([[0.5], [1.0], [5.0]])


def test_the_median_is_the_inverse_link_of_the_mean(two_counts):
    new = np.array([[0.0], [0.5], [1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        median, std = two_counts.predict(new, True, statistic="median")
    np.testing.assert_allclose(median, np.exp(two_counts.predict_latent(new)))
    assert np.all(std > 0)
    low, high = two_counts.predict_interval(new)
    assert np.all((low < median) & (median < high))
    double = two_counts.predict(new, statistic="median", exposure=np.full(3, 2.0))
    np.testing.assert_allclose(double, 2 * median)
    with pytest.raises(ParameterError, match="statistic"):
        two_counts.predict(new, statistic="mode")


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("poisson", lambda rng, mu: rng.poisson(mu)),
        ("negative_binomial", lambda rng, mu: rng.poisson(mu * rng.gamma(2.0, 0.5, len(mu)))),
        ("gamma", lambda rng, mu: mu * rng.gamma(2.0, 0.5, len(mu))),
    ],
)
def test_far_from_the_rows_averages_stay_near_what_the_rows_have(name, draw):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (60, 1))
    y = draw(rng, np.exp(3 * np.sin(9 * X[:, 0])))
    exposure = rng.uniform(1, 3, 60)
    kernel = Matern52(0.2, 25.0, fixed=("lengthscale", "variance"))
    model = GeneralizedAdditiveGP(name, kernel).fit(X, y, exposure=exposure)
    with pytest.warns(DataWarning, match=MEDIAN):
        mean, std = model.predict([[0.5], [40.0]], True, exposure=[2.0, 2.0])
    with pytest.warns(DataWarning, match=MEDIAN):
        noisy = model.predict([[0.5], [40.0]], True, True, exposure=[2.0, 2.0])[1]
    highest = np.exp(model.predict_latent(X).max())
    assert mean[1] < 2 * max(highest, 20 * np.exp(model.predict_latent([[40.0]])[0]))
    assert np.isfinite(std).all()
    assert np.all(noisy >= std)
    # Among the rows nothing has changed.
    f, f_std = model.predict_latent([[0.5]], True)
    assert mean[0] == pytest.approx(2 * np.exp(f[0] + 0.5 * f_std[0] ** 2), rel=1e-3)


def test_where_rows_are_informative_the_average_is_the_whole_one_without_a_warning():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (300, 1))
    model = GeneralizedAdditiveGP("poisson").fit(X, rng.poisson(np.exp(1 + X[:, 0])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean = model.predict(X)
    f, std = model.predict_latent(X, True)
    np.testing.assert_allclose(mean, np.exp(f + 0.5 * std**2), rtol=1e-12)


def test_other_links_have_a_median_and_no_limit():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (100, 1))
    model = GeneralizedAdditiveGP("bernoulli").fit(X, rng.uniform(size=100) < 0.3)
    f = model.predict_latent(X[:4])
    np.testing.assert_allclose(model.predict(X[:4], statistic="median"), 1 / (1 + np.exp(-f)))
    pursuit = GeneralizedPursuitGP("poisson", random_state=0, n_projections=1)
    pursuit.fit(np.hstack([X, X**2]), rng.poisson(np.exp(2 * X[:, 0])))
    new = np.hstack([X, X**2])[:4]
    np.testing.assert_allclose(
        pursuit.predict(new, statistic="median"), np.exp(pursuit.predict_latent(new))
    )


def test_a_lazy_table_warns_when_it_is_computed(two_counts):
    da = pytest.importorskip("dask.array")
    lazy = two_counts.predict(da.from_array(np.array([[0.5], [5.0]]), chunks=(1, 1)))
    with pytest.warns(DataWarning, match=MEDIAN):
        found = lazy.compute(scheduler="synchronous")
    with pytest.warns(DataWarning, match=MEDIAN):
        np.testing.assert_allclose(found, two_counts.predict([[0.5], [5.0]]))


def test_a_saved_model_keeps_its_limit(two_counts, tmp_path):
    two_counts.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    with pytest.warns(DataWarning, match=MEDIAN):
        found = loaded.predict([[0.5]])
    with pytest.warns(DataWarning, match=MEDIAN):
        assert found == pytest.approx(two_counts.predict([[0.5]]))
