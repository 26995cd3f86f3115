"""Periodic kernels against scikit-learn, the plane that they come from, and their period."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ExpSineSquared

from dsgp.errors import ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic

PLANAR = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, 3.5: Matern72}


def test_the_smooth_one_agrees_with_scikit_learn():
    x = np.random.default_rng(0).uniform(-30, 30, size=(20, 1))
    found = Periodic(period=7.0, lengthscale=1.3, variance=2.0).covariance(x[:, 0])
    theirs = ExpSineSquared(length_scale=2 * np.pi * 1.3 / 7.0, periodicity=7.0)(x)
    np.testing.assert_allclose(found, 2.0 * theirs, rtol=1e-12)


@pytest.mark.parametrize("smoothness", PLANAR)
def test_others_are_matern_kernels_of_a_circle_in_the_plane(smoothness):
    x = np.random.default_rng(0).uniform(-30, 30, size=40)
    angle = 2 * np.pi * x / 7.0
    circle = 7.0 / (2 * np.pi) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    distance = np.linalg.norm(circle[:, None] - circle[None], axis=2)
    found = Periodic(7.0, 1.3, 2.0, smoothness=smoothness).covariance(x)
    expected = PLANAR[smoothness](1.3, 2.0).covariance([0.0], distance.ravel())
    np.testing.assert_allclose(found, expected.reshape(40, 40), rtol=1e-7)


@pytest.mark.parametrize("smoothness", [*PLANAR, np.inf])
def test_whole_periods_change_nothing(smoothness):
    kernel = Periodic(360.0, 30.0, 1.5, smoothness=smoothness)
    x = np.array([0.0, 0.25, 90.0, 179.5, 180.0, 359.75])
    once = kernel.covariance(x)
    for turns in (-1, 1, 2, 10**6):
        np.testing.assert_array_equal(kernel.covariance(x + 360.0 * turns, x), once)
    assert (np.diag(kernel.covariance(x, x + 360.0)) == 1.5).all()


def test_the_lengthscale_is_that_of_neighbouring_points():
    kernel = Periodic(360.0, 2.0, 1.0, smoothness=1.5)
    close = np.array([0.01, 0.1, 1.0])
    planar = Matern32(2.0, 1.0).covariance([0.0], close)
    np.testing.assert_allclose(kernel.covariance([0.0], close), planar, rtol=1e-4)


def test_period_and_smoothness_are_checked():
    with pytest.raises(TypeError, match="period"):
        Periodic()
    for period in (None, 0.0, -1.0, np.inf, np.nan, "month", True):
        with pytest.raises(ParameterError, match="Periodic: period must be a number"):
            Periodic(period)
    for smoothness in (1.0, -np.inf, np.nan, "smooth", None, [0.5]):
        with pytest.raises(ParameterError, match=r"smoothness must be one of \(0.5, 1.5"):
            Periodic(1.0, smoothness=smoothness)


def test_the_period_stays_when_parameters_move():
    kernel = Periodic(24.0, smoothness=0.5).with_parameters(lengthscale=3.0, variance=1.0)
    assert kernel == Periodic(24.0, 3.0, 1.0, smoothness=0.5)
    assert repr(kernel) == "Periodic(period=24, lengthscale=3, variance=1, smoothness=0.5)"
