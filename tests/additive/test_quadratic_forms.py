"""Tails of quadratic forms against closed forms, Imhof's integral and simulation."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dsgp.additive.quadratic_forms import tail_of_ratio, tail_of_sum
from dsgp.errors import ParameterError

FALLING = 1 / np.arange(1, 60) ** 4.0


@pytest.mark.parametrize("k", [1, 2, 5, 50])
@pytest.mark.parametrize("value", [0.1, 1.0, 5.0, 30.0, 200.0])
def test_equal_weights_are_a_chi_square_far_into_the_tail(k, value):
    computed = tail_of_sum(np.full(k, 3.0), 3.0 * value)
    np.testing.assert_allclose(computed, stats.chi2.sf(value, k), rtol=1e-8)


@pytest.mark.parametrize(("k", "n"), [(1, 5), (1, 99), (1, 10**6), (40, 99), (40, 41), (3, 10**7)])
@pytest.mark.parametrize("value", [0.01, 0.5, 0.9, 1.5, 3.0, 20.0])
def test_equal_weights_are_a_beta_ratio(k, n, value):
    ratio = value * k / n
    expected = stats.beta.sf(ratio, k / 2, (n - k) / 2) if ratio < 1 else 0.0
    np.testing.assert_allclose(tail_of_ratio(np.full(k, 7.0), 7.0 * ratio, n), expected, rtol=1e-8)


@pytest.mark.parametrize("value", [0.3, 1.0, 4.0, 8.0])
def test_falling_weights_agree_with_the_integral_of_imhof(value):
    def integrand(u):
        phase = 0.5 * np.arctan(FALLING * u).sum() - 0.5 * value * u
        return np.sin(phase) / (u * np.prod((1 + (FALLING * u) ** 2) ** 0.25))

    integral = 0.5 + quad(integrand, 0, np.inf, limit=4000)[0] / np.pi
    np.testing.assert_allclose(tail_of_sum(FALLING, value), integral, rtol=1e-6)


@pytest.mark.parametrize("value", [0.02, 0.05, 0.1])
def test_ratios_of_falling_weights_agree_with_simulation(value):
    rng = np.random.default_rng(0)
    squares = rng.standard_normal((40_000, 80)) ** 2
    above = (squares[:, :59] @ FALLING > value * squares.sum(axis=1)).mean()
    computed = tail_of_ratio(FALLING, value, 80)
    assert abs(above - computed) < 4 * np.sqrt(computed * (1 - computed) / 40_000)


def test_a_ratio_of_all_squares_is_between_its_weights():
    weights = np.array([1.0, 2.0, 3.0])
    assert tail_of_ratio(weights, 1.0, 3) == 1.0
    assert tail_of_ratio(weights, 3.0, 3) == 0.0
    # Weights symmetric about the value.
    np.testing.assert_allclose(tail_of_ratio(weights, 2.0, 3), 0.5, rtol=1e-8)
    assert tail_of_sum(weights, -1.0) == tail_of_ratio(weights, 0.0, 5) == 1.0


def test_what_is_no_quadratic_form_is_refused():
    with pytest.raises(ParameterError, match="needs a positive weight"):
        tail_of_sum(np.zeros(3), 1.0)
    with pytest.raises(ParameterError, match="must be finite"):
        tail_of_ratio(np.ones(2), np.nan, 5)
    with pytest.raises(ParameterError, match="3 weights cannot be among 2 squares"):
        tail_of_ratio(np.ones(3), 0.5, 2)
