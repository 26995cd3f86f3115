"""Ridge functions are scipy's natural splines of projections, straight beyond their nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from dsgp.jit.projection import project_rows
from dsgp.jit.ridge import fill_design, projection_range
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit.ridges import FEWEST_NODES, MOST_NODES, Ridge, Ridges, nodes_for, normalised

KERNEL = Matern52(lengthscale=1.0, variance=1.0)
NOTHING = np.empty(0)


def straight(nodes, values, u):
    """Value and slope of scipy's natural spline, straight beyond the ends."""
    spline = CubicSpline(nodes, values, bc_type="natural")
    inside = np.clip(u, nodes[0], nodes[-1])
    slope = spline(inside, 1)
    return spline(inside) + (u - inside) * slope, slope


def some_ridges(n_terms=3, n_features=4, seed=0):
    rng = np.random.default_rng(seed)
    terms = []
    for m in range(n_terms):
        nodes = np.sort(rng.uniform(-2, 2, 5 + 3 * m))
        terms.append(
            Ridge(rng.standard_normal(n_features), nodes, rng.standard_normal(len(nodes)), KERNEL)
        )
    return Ridges(tuple(terms), n_features)


def test_values_and_slopes_are_those_of_natural_splines():
    ridges = some_ridges()
    inputs = 2 * np.random.default_rng(1).standard_normal((500, 4))
    value, slope = ridges.evaluate(inputs)
    for m, term in enumerate(ridges.terms):
        u = inputs @ term.direction
        assert (u < term.nodes[0]).any()
        assert (u > term.nodes[-1]).any()
        expected = straight(term.nodes, term.values, u)
        np.testing.assert_allclose(value[:, m], expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(slope[:, m], expected[1], rtol=1e-9, atol=1e-9)


def test_a_function_has_its_values_at_its_nodes():
    (term,) = some_ridges(1, 1).terms
    ridges = Ridges((term._replace(direction=np.ones(1)),), 1)
    value, _ = ridges.evaluate(term.nodes[:, None])
    np.testing.assert_allclose(value[:, 0], term.values, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_design_has_splines_slopes_and_target(weighted):
    ridges = some_ridges()
    rng = np.random.default_rng(2)
    inputs, target = 2 * rng.standard_normal((60, 4)), rng.standard_normal(60)
    root = rng.uniform(0.5, 2.0, 60) if weighted else NOTHING
    out = np.full((60, ridges.n_parameters + 1), np.nan)
    fill_design(
        inputs, target, root, ridges.directions, ridges.nodes, ridges.starts, *ridges.cardinal,
        ridges.functions, out,
    )  # fmt: skip
    columns = []
    for term in ridges.terms:
        for unit in np.eye(len(term.nodes)):
            columns.append(straight(term.nodes, unit, inputs @ term.direction)[0])
    for term in ridges.terms:
        slope = straight(term.nodes, term.values, inputs @ term.direction)[1]
        columns += list((slope[:, None] * inputs).T)
    expected = np.column_stack([*columns, target]) * (root[:, None] if weighted else 1.0)
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)


def test_projections_and_their_range():
    rng = np.random.default_rng(0)
    inputs, directions = rng.standard_normal((50, 3)), rng.standard_normal((2, 3))
    out = np.empty((50, 2))
    project_rows(inputs, directions, out)
    np.testing.assert_allclose(out, inputs @ directions.T, atol=1e-12)
    low, high = np.array([np.inf, -9.0]), np.array([-np.inf, 0.0])
    projection_range(inputs, directions, low, high)
    np.testing.assert_array_equal(low, [out[:, 0].min(), -9.0])
    np.testing.assert_array_equal(high, out.max(axis=0))


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=60),
    st.floats(0.05, 40.0),
    st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
)
def test_nodes_ascend_and_cover_all_rows(sample, lengthscale, further):
    low, high = min(sample) - further, max(sample)
    nodes = nodes_for(np.array(sample), low, high, lengthscale)
    assert FEWEST_NODES <= len(nodes) <= MOST_NODES
    assert nodes[0] < low
    assert nodes[-1] > high
    # Far enough apart for the covariance of the values.
    assert np.diff(nodes).min() > 1e-5 * (nodes[-1] - nodes[0])


def test_nodes_are_where_the_rows_are():
    sample = np.random.default_rng(0).standard_normal(5000)
    even = nodes_for(sample, -4.0, 4.0, 1.0)
    assert len(even) == 17  # two a lengthscale, and the end
    far = nodes_for(np.append(sample, 400.0), -4.0, 400.0, 1.0)
    assert len(far) == len(even)
    assert np.count_nonzero(far < 5) >= len(far) // 2 - 1
    assert len(nodes_for(sample, -4.0, 4.0, 1e-3)) == MOST_NODES
    assert len(nodes_for(sample, -4.0, 4.0, 1e3)) == FEWEST_NODES


def test_a_term_in_other_units_is_the_same_function():
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((800, 3))
    direction = np.array([3.0, -1.0, 2.0])
    projection = inputs @ direction
    nodes = np.linspace(-12, 12, 40)
    old = Ridge(direction, nodes, np.sin(nodes / 4), Matern32(lengthscale=2.0, variance=0.7))
    low, high = projection.min(), projection.max()
    new = normalised(old, projection.std(), projection, low, high)
    assert np.std(inputs @ new.direction) == pytest.approx(1.0)
    assert new.kernel == Matern32(lengthscale=2.0 / projection.std(), variance=0.7)
    before, after = (Ridges((term,), 3).evaluate(inputs)[0] for term in (old, new))
    np.testing.assert_allclose(after, before, atol=3e-3)


def test_normalised_terms_go_on_straight_beyond_the_old_nodes():
    nodes = np.linspace(-1, 1, 9)
    old = Ridge(np.ones(1), nodes, nodes**2, KERNEL)
    new = normalised(old, 1.0, np.linspace(-3, 3, 50), -3.0, 3.0)
    expected, _ = straight(nodes, nodes**2, new.nodes)
    np.testing.assert_allclose(new.values, expected, atol=1e-12)


def test_what_depends_on_nodes_alone_is_carried_along():
    ridges = some_ridges()
    tables = ridges.cardinal, ridges.factors, ridges.parts
    rng = np.random.default_rng(5)
    directions, values = rng.standard_normal((3, 4)), rng.standard_normal(ridges.n_nodes)
    moved = ridges.moved(directions, values)
    assert (moved.cardinal, moved.factors, moved.parts) == tables
    np.testing.assert_array_equal(moved.directions, directions)
    np.testing.assert_array_equal(moved.values, values)
    kernels = [Matern52(2.0, 3.0), Matern52(0.5, 1.0), Matern52(1.0, 0.1)]
    other = moved.with_kernels(kernels, 2 * values)
    fresh = Ridges(other.terms, 4)
    for ours, theirs in zip(other.factors, fresh.factors, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    inputs = rng.standard_normal((20, 4))
    np.testing.assert_array_equal(other.evaluate(inputs), fresh.evaluate(inputs))
    np.testing.assert_allclose(other.evaluate(inputs)[0], 2 * moved.evaluate(inputs)[0])
    for term, factor in zip(other.terms, other.factors, strict=True):
        np.testing.assert_allclose(
            factor @ factor.T, term.kernel.covariance(term.nodes), atol=1e-8, rtol=1e-8
        )


def test_terms_are_joined_and_left_out():
    ridges = some_ridges()
    both = ridges.joined(some_ridges(2, seed=8))
    assert len(both) == 5
    assert both.n_parameters == both.n_nodes + 5 * 4
    kept = both.kept(np.array([True, False, False, True, True]))
    assert [id(term) for term in kept.terms] == [id(both.terms[m]) for m in (0, 3, 4)]
    nothing = Ridges((), 4)
    assert (len(nothing), nothing.n_nodes, nothing.n_parameters) == (0, 0, 0)
    assert nothing.directions.shape == (0, 4)
    assert nothing.evaluate(np.zeros((7, 4)))[0].shape == (7, 0)
