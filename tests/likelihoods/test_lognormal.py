"""Moments of eᶠ, and of eᶠ without a tail that no row supports."""

import numpy as np
import pytest

from dsgp.likelihoods.lognormal import log_normal_mean, log_normal_variance, supported_moments

Z = np.linspace(-14, 14, 200_001)
DENSITY = np.exp(-0.5 * Z**2) / np.sqrt(2 * np.pi) * (Z[1] - Z[0])


@pytest.mark.parametrize("highest", [-np.inf, 1.5, 4.0, 30.0])
@pytest.mark.parametrize("std", [1e-9, 0.01, 0.4, 0.7, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("mean", [-20.0, 0.0, 3.0])
def test_moments_are_those_of_a_latent_that_is_held(mean, std, highest):
    held = np.minimum(mean + std * Z, max(highest, mean + 3))
    first = np.exp(held) @ DENSITY
    second = np.exp(2 * (held - mean)) @ DENSITY * np.exp(2 * mean)
    moments = supported_moments([mean], [std**2], highest)
    assert log_normal_mean(*moments)[0] == pytest.approx(first, rel=1e-7)
    expected = second - first**2
    if std > 1e-3:
        assert log_normal_variance(*moments)[0] == pytest.approx(expected, rel=1e-6)
    assert log_normal_mean(*moments, power=2.0)[0] == pytest.approx(second, rel=1e-6)


def test_nothing_changes_where_the_latent_is_known_well():
    mean, variance = np.linspace(-30, 30, 50), np.geomspace(1e-20, 0.04, 50)
    moments = supported_moments(mean, variance, -np.inf)
    np.testing.assert_array_equal(moments, (mean, variance))


def test_the_average_is_bounded_and_never_below_the_median():
    std = np.geomspace(1e-3, 1e4, 400)
    found = log_normal_mean(*supported_moments(0.0, std**2, -np.inf))
    assert np.all((found > 1.0 - 1e-12) | (std > 6))
    assert np.all(found < np.exp(3))
    assert np.isfinite(log_normal_variance(*supported_moments(700.0, 1e8, 710.0)))
