"""Splines through nodes: scipy's where these are bounded, bounded everywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from dsgp.terms.splines import (
    LEBESGUE_BOUND,
    BoundedSpline,
    interpolated,
    spline_matrix,
    unevenness,
)
from dsgp.terms.spreading import spread_beside_gaps


def test_even_nodes_have_the_usual_cubic_spline() -> None:
    nodes = np.linspace(-1, 3, 20)
    points = np.linspace(-1, 3, 301)
    np.testing.assert_array_equal(
        spline_matrix(nodes, points), CubicSpline(nodes, np.eye(20))(points)
    )


def test_far_nodes_leave_the_spline_of_the_others_as_it_is() -> None:
    near = np.linspace(0, 1, 12)
    points = np.linspace(0, 1, 50)
    for far in (-1e3, -9999.0, -1e14, 9.97e36):
        nodes = np.sort(np.append(near, far))
        values = np.where(nodes == far, 5.0, np.sin(4 * nodes))
        result = interpolated(nodes, values, points)
        np.testing.assert_allclose(result, CubicSpline(near, np.sin(4 * near))(points), rtol=1e-12)


@pytest.mark.parametrize("ratio", [3.0, 30.0, 1e3, 1e5])
def test_uneven_gaps_with_points_within_are_bounded(ratio: float) -> None:
    gaps = np.array([1, ratio, 1, 1, 1 / ratio, 1, ratio, ratio**2, ratio, 1.0])
    nodes = np.concatenate([[0.0], np.cumsum(gaps)])
    points = np.sort(np.concatenate([nodes[:-1] + t * gaps for t in np.linspace(0, 1, 12)]))
    matrix = spline_matrix(nodes, points)
    assert np.abs(matrix).sum(axis=1).max() <= LEBESGUE_BOUND * 1.1
    # Lines are reproduced, and nodes kept.
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-9)
    at_nodes = BoundedSpline.through(nodes, points)(np.eye(len(nodes)), nodes)
    np.testing.assert_allclose(at_nodes, np.eye(len(nodes)), atol=1e-9)


@settings(max_examples=150, deadline=None)
@given(
    exponents=st.lists(st.floats(-12, 12), min_size=1, max_size=40),
    seed=st.integers(0, 2**16),
)
def test_any_nodes_are_bounded_where_points_are(exponents: list[float], seed: int) -> None:
    nodes = np.unique(np.concatenate([[0.0], np.cumsum(10.0 ** np.array(exponents))]))
    random = np.random.default_rng(seed)
    points = np.sort(random.choice(nodes, 30) + 10.0 ** random.uniform(-12, 12, 30))
    points = np.unique(np.append(points[points < nodes[-1]], nodes))
    matrix = spline_matrix(nodes, points)
    assert np.isfinite(matrix).all()
    # Between the places where the bound is checked it may be a little more.
    assert np.abs(matrix).sum(axis=1).max() <= 1.5 * LEBESGUE_BOUND


def test_a_smooth_function_keeps_the_accuracy_of_cubic_splines_beside_far_values() -> None:
    random = np.random.default_rng(0)
    points = np.sort(np.append(random.uniform(0, 1, 490), -1e4 * (1 + 0.001 * np.arange(10))))
    nodes = points[spread_beside_gaps(points, np.ones(500), 32)]
    inside = points[points >= 0]
    error = interpolated(nodes, np.sin(8 * nodes), points)[points >= 0] - np.sin(8 * inside)
    assert np.abs(error).max() < 3e-3  # plain cubic splines through them: 1e+9


def test_one_two_and_three_nodes() -> None:
    points = np.array([0.0, 0.25, 1.0])
    np.testing.assert_allclose(interpolated(np.zeros(1), np.array([7.0]), points), 7.0)
    line = interpolated(np.array([0.0, 1.0]), np.array([1.0, 3.0]), np.array([-5, 0.25, 9]))
    np.testing.assert_allclose(line, [1, 1.5, 3])
    nodes = np.array([0.0, 1.0, 1e9])
    assert np.abs(interpolated(nodes, np.array([0.0, 1.0, -1.0]), points)).max() <= 1.5


def test_unevenness_is_the_ratio_of_neighbouring_gaps() -> None:
    np.testing.assert_allclose(unevenness(np.array([0.0, 1, 3, 4])), [2, 2, 2, 2])
    np.testing.assert_allclose(unevenness(np.array([0.0, 9])), 1)
