"""Transforms against scipy, closed forms and numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from dsgp.errors import ParameterError
from dsgp.transforms import Log, Transform, YeoJohnson, from_settings, require_transform

TRANSFORMS = [
    Log(),
    YeoJohnson(1.0),
    YeoJohnson(0.0),
    YeoJohnson(0.3, 2.0, 0.7),
    YeoJohnson(2.0, -1.0, 3.0),
    YeoJohnson(1.6),
]


def expected_value(function, mean, variance):
    """E function(z), z ~ N(mean, variance), by the trapezoidal rule; means may be an array."""
    x = np.linspace(-10, 14, 1201)
    density = stats.norm.pdf(x)
    values = function(np.asarray(mean)[..., None] + np.sqrt(variance) * x)
    return values @ (density / density.sum())


@pytest.mark.parametrize("power", [0.0, 1e-14, 0.2, 1.0, 1.7, 2.0])
def test_yeo_johnson_is_that_of_scipy(power):
    y = np.concatenate([-np.geomspace(1e-9, 1e6, 30), [0.0], np.geomspace(1e-9, 1e6, 30)])
    expected = stats.yeojohnson(y, lmbda=power)
    np.testing.assert_allclose(YeoJohnson(power).forward(y), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_inverse_and_slope(transform):
    y = np.geomspace(1e-3, 50, 40)
    if not isinstance(transform, Log):
        y = np.concatenate([-y, y])
    np.testing.assert_allclose(transform.inverse(transform.forward(y)), y, rtol=1e-9)
    step = 1e-6 * np.abs(y)
    slope = (transform.forward(y + step) - transform.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(transform.log_slope(y), np.log(slope), atol=1e-6)
    assert (np.diff(transform.forward(np.sort(y))) > 0).all()
    assert np.isnan(transform.forward(np.nan))
    assert transform.allows(np.nan)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_moments_by_integration(transform, noise):
    def given(f):
        return expected_value(transform.inverse, f, noise)

    for mean, variance in ((0.0, 0.04), (0.4, 1.0), (-1.5, 0.6), (2.0, 2.5)):
        expected = expected_value(transform.inverse, mean, variance + noise)
        second = expected_value(lambda f: given(f) ** 2, mean, variance)
        std = np.sqrt(second - expected**2)
        got = transform.moments(mean, variance, noise)
        np.testing.assert_allclose(got, [expected, std], rtol=1e-9, atol=3e-5 * std)
        np.testing.assert_allclose(
            transform.average(mean, noise), given(mean), rtol=1e-9, atol=3e-5 * std
        )


def test_moments_of_a_log_normal():
    mean, std = Log().moments([0.0, 3.0, -700.0, 5.0], [1.0, 0.0, 1e-14, 40.0])
    expected = [stats.lognorm.stats(1.0)[0], np.exp(3.0), np.exp(-700.0), np.exp(25.0)]
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(std[0], np.sqrt(stats.lognorm.stats(1.0)[1]))
    np.testing.assert_allclose(std[1:], [0.0, np.exp(-700.0) * 1e-7, np.exp(45.0)])
    # The same by quadrature, as other transforms have it.
    by_quadrature = Transform.moments(Log(), 0.5, 1.5, 0.7)
    np.testing.assert_allclose(by_quadrature, Log().moments(0.5, 1.5, 0.7), rtol=1e-9)


def test_values_beyond_float64_are_infinite_not_nan():
    for transform in (Log(), YeoJohnson(0.0)):
        mean, std = transform.moments([800.0, 0.0], [0.0, 0.0])
        assert mean[0] == np.inf
        assert not np.isnan(std).any()
        assert std[1] == 0.0


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_quantiles(transform):
    low, high = transform.quantile(0.3, 0.5, [0.05, 0.9])
    z = (transform.forward([low, high]) - 0.3) / np.sqrt(0.5)
    np.testing.assert_allclose(ndtr(z), [0.05, 0.9], atol=1e-12)
    np.testing.assert_allclose(transform.median(0.3), transform.quantile(0.3, 0.5, 0.5))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_covariance_by_draws_and_on_its_diagonal(transform):
    rng = np.random.default_rng(0)
    mean = np.array([0.2, -0.5, 1.0])
    joint = np.array([[0.3, 0.2, -0.1], [0.2, 0.5, 0.0], [-0.1, 0.0, 0.2]])
    found = transform.covariance(mean, joint, noise=0.1)
    np.testing.assert_allclose(
        np.sqrt(np.diag(found)), transform.moments(mean, np.diag(joint), 0.1)[1], rtol=1e-8
    )
    f = rng.multivariate_normal(mean, joint, 8_000)
    np.testing.assert_allclose(
        found, np.cov(transform.average(f, 0.1).T), atol=0.12 * np.diag(found).max()
    )
    # New observations: as much together, and their own noise beside.
    new = transform.covariance(mean, joint, own=0.1)
    np.testing.assert_allclose(new - np.diag(np.diag(new)), found - np.diag(np.diag(found)))
    np.testing.assert_allclose(
        np.sqrt(np.diag(new)), transform.moments(mean, np.diag(joint) + 0.1)[1], rtol=1e-8
    )


def test_learned_power_is_that_of_scipy_in_the_same_frame():
    y = np.random.default_rng(1).gamma(3.0, size=4000)
    learned = YeoJohnson.learned(y, np.ones(len(y)))
    u = (y - learned.location) / learned.scale
    assert learned.power == pytest.approx(stats.yeojohnson_normmax(u), abs=1e-3)


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1.0, 1e5, 1e20])
def test_learning_knows_no_unit(unit):
    y = np.random.default_rng(2).lognormal(0.0, 0.8, 500)
    plain, other = YeoJohnson.learned(y, np.ones(500)), YeoJohnson.learned(unit * y, np.ones(500))
    assert other.power == pytest.approx(plain.power, abs=1e-4)
    np.testing.assert_allclose(other.forward(unit * y), plain.forward(y), rtol=1e-3, atol=1e-6)


def test_learned_power_of_gaussian_lower_tailed_and_constant_samples():
    rng = np.random.default_rng(3)
    normal = rng.standard_normal(5000)
    assert YeoJohnson.learned(normal, np.ones(5000)).power == pytest.approx(1.0, abs=0.1)
    assert YeoJohnson.learned(-np.exp(normal), np.ones(5000)).power > 1.7
    far = 1e4 + np.exp(normal / 2)
    z = YeoJohnson.learned(far, np.ones(5000)).forward(far)
    assert abs(stats.skew(z)) < 0.2 < stats.skew(far)
    assert YeoJohnson.learned(np.full(3, 7.0), np.ones(3)).power == 1.0


def test_counts_are_rows():
    y = np.random.default_rng(4).gamma(2.0, size=200).round(1)
    values, counts = np.unique(y, return_counts=True)
    one, other = (
        YeoJohnson.learned(y, np.ones(200)),
        YeoJohnson.learned(values, counts.astype(float)),
    )
    assert other.power == pytest.approx(one.power, abs=1e-6)
    assert (other.location, other.scale) == (one.location, one.scale)


def test_settings_and_refusals():
    for transform in TRANSFORMS:
        assert from_settings(transform.settings()) == transform
        require_transform("transform", transform)
    assert from_settings(None) is None
    with pytest.raises(ParameterError, match="no transform 'sqrt'"):
        from_settings({"name": "sqrt"})
    with pytest.raises(ParameterError, match="settings of transform"):
        from_settings({"name": "log", "power": 1.0})
    with pytest.raises(ParameterError, match='None, "log", "yeo-johnson"'):
        require_transform("transform", "sqrt")
    for wrong in ({"power": 2.5}, {"power": 1.0, "scale": 0.0}, {"power": np.nan}):
        with pytest.raises(ParameterError, match="YeoJohnson"):
            YeoJohnson(**wrong)
