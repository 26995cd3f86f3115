"""Trust regions within bounds, and the curvature that they are given."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dsgp.learning.newton import box_step, corrected, trust_region


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_the_best_one_in_the_box(seed):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((6, 6))
    curvature = factor @ factor.T + 20 * np.eye(6)
    gradient = 20 * rng.standard_normal(6)
    low, high = -rng.uniform(0, 1, 6), rng.uniform(0, 1, 6)
    low[0] = high[0] = 0.0
    step = box_step(gradient, curvature, low, high)
    best = minimize(
        lambda s: gradient @ s + 0.5 * s @ curvature @ s,
        np.zeros(6),
        jac=lambda s: gradient + curvature @ s,
        bounds=list(zip(low, high, strict=True)),
        options={"ftol": 1e-14, "gtol": 1e-10},
    )
    np.testing.assert_allclose(step, best.x, atol=5e-3)


def test_a_flat_direction_does_not_leave_the_box():
    step = box_step(np.array([-1.0, 0.0]), np.zeros((2, 2)), -np.ones(2), np.ones(2))
    np.testing.assert_allclose(step, [1.0, 0.0])


def test_corrections_make_the_curvature_right_along_the_last_step():
    exact = np.array([[3.0, 1.0], [1.0, 2.0]])
    steps = [np.array([1.0, 0.0]), np.array([0.5, -1.0])]
    model = corrected(np.eye(2), [(step, exact @ step) for step in steps])
    np.testing.assert_allclose(model @ steps[-1], exact @ steps[-1])
    # What would make it indefinite is left out.
    np.testing.assert_array_equal(corrected(np.eye(2), [(steps[0], -steps[0])]), np.eye(2))


def rosenbrock(x):
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    slope = -2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2)
    return value, np.array([slope, 200 * (x[1] - x[0] ** 2)])


@pytest.mark.parametrize(("upper", "expected"), [(3.0, (1.0, 1.0)), (0.5, (0.5, 0.25))])
def test_a_curved_valley_is_followed_within_bounds(upper, expected):
    at = []

    def function(x):
        at[:] = [x]
        return rosenbrock(x)

    def curvature():
        x = at[0]
        rows = np.array([[2.0, 0.0], [-20.0 * np.sqrt(2) * x[0], 10.0 * np.sqrt(2)]])
        return rows[1:].T @ rows[1:] + np.diag([2.0, 0.0])

    bounds = np.full(2, -2.0), np.array([upper, 3.0])
    start, tol = np.array([-1.2, 1.0]), np.full(2, 1e-6)
    options = {"tol": tol, "enough": 0.0, "radius": 0.5, "max_iter": 200}
    found = trust_region(function, curvature, start, *bounds, **options)
    assert found.converged
    np.testing.assert_allclose(found.x, expected, atol=1e-4)


def test_steps_to_where_there_is_no_value_come_back():
    def function(x):
        return (x[0] - np.log(x[0]), 1 - 1 / x) if x[0] > 0 else (np.inf, np.zeros(1))

    bounds = np.full(1, -5.0), np.full(1, 5.0)
    found = trust_region(
        function,
        lambda: np.full((1, 1), 0.5),
        np.full(1, 3.0),
        *bounds,
        tol=np.full(1, 1e-6),
        enough=0.0,
        radius=0.5,
        max_iter=100,
    )
    assert found.converged
    assert found.x[0] == pytest.approx(1.0, abs=1e-5)
