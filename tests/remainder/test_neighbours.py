"""Gaussian processes on nearest neighbours, against dense algebra and differences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import Matern

from dsgp.errors import ParameterError
from dsgp.remainder import Metric, NeighbourFunction, Precision, Problem, learn
from dsgp.remainder import search as searching
from dsgp.remainder.search import Finder, earlier, others


def rows(n=40, seed=0, levels=True):
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(n, 3))
    if not levels:
        return numbers
    return np.column_stack([numbers, random.integers(0, 3, n), random.integers(0, 12, n)])


def metric(smoothness=5, noise=0.05, levels=True):
    lengthscales = np.array([0.7, 1.5, 3.0, 2.0, 4.0])[: 5 if levels else 3]
    return Metric(smoothness, 1.3, lengthscales, noise, (3, 12) if levels else ())


@pytest.mark.parametrize("smoothness", [1, 3, 5])
def test_the_covariance_of_numbers_is_that_of_scikit_learn(smoothness):
    one, x = metric(smoothness, levels=False), rows(levels=False)
    expected = 1.3 * Matern(one.lengthscales, nu=smoothness / 2)(x)
    np.testing.assert_allclose(one.covariance(x, x), expected, rtol=1e-12, atol=1e-14)


def test_levels_are_apart_by_what_was_learned():
    one = metric()
    x = np.zeros((3, 5))
    x[1, 3], x[2, 3:] = 1.0, (1.0, 7.0)
    r = np.sqrt(5 * np.array([0.0, 1 / 4, 1 / 4 + 1 / 16]))
    expected = 1.3 * (1 + r + r**2 / 3) * np.exp(-r)
    np.testing.assert_allclose(one.covariance(x[:1], x)[0], expected, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 40), st.integers(1, 4), st.booleans())
def test_neighbours_are_those_of_all_distances(seed, n, d, by_tree):
    random = np.random.default_rng(seed)
    points, asked = random.integers(0, 5, (n, d)).astype(float), random.normal(size=(7, d))
    finder = Finder(points)
    out = np.full((7, 9), -1)
    (finder._by_tree if by_tree else finder._by_distances)(asked, out)
    distances = np.linalg.norm(asked[:, None] - points[None], axis=2)
    m = min(9, n)
    assert (out[:, m:] == -1).all()
    found = np.take_along_axis(distances, out[:, :m], axis=1)
    np.testing.assert_allclose(found, np.sort(distances, axis=1)[:, :m], atol=1e-6)


def test_many_dimensions_are_searched_by_all_distances(monkeypatch):
    points = np.random.default_rng(0).normal(size=(300, 5))
    by_tree = Finder(points).nearest(points[:50], 8)
    monkeypatch.setattr(searching, "MOST_TREE_DIMENSIONS", 4)
    np.testing.assert_array_equal(Finder(points).nearest(points[:50], 8), by_tree)


@pytest.mark.parametrize("n", [1, 2, 7, 300])
def test_earlier_rows_are_the_nearest_of_those_before(n):
    points = np.random.default_rng(n).normal(size=(n, 3))
    found = earlier(points, 6)
    for i in range(n):
        expected = np.argsort(np.linalg.norm(points[:i] - points[i], axis=1))[:6]
        np.testing.assert_array_equal(found[i, : len(expected)], expected)
        assert (found[i, len(expected) :] == -1).all()


def test_a_row_is_not_its_own_neighbour_among_equal_rows():
    points = np.zeros((12, 2))
    found = others(Finder(points), np.arange(12), 5)
    assert (found >= 0).all()
    assert not (found == np.arange(12)[:, None]).any()


@pytest.mark.parametrize("smoothness", [1, 3, 5])
def test_derivatives_of_the_likelihood_are_differences(smoothness):
    x, one = rows(), metric(smoothness)
    random = np.random.default_rng(1)
    noise = random.uniform(0.5, 2.0, len(x))
    problem = Problem(x, random.normal(size=len(x)), noise, np.arange(15), 7)
    near = problem.neighbours(one)
    _, slopes = problem.log_density(one, near)
    logs = np.log([*one.lengthscales, one.variance, one.noise_variance])

    def value(at):
        scales, variance, noise_variance = np.exp(at[:-2]), np.exp(at[-2]), np.exp(at[-1])
        moved = Metric(smoothness, variance, scales, noise_variance, one.n_levels)
        return problem.log_density(moved, near)[0]

    steps = 1e-5 * np.eye(len(logs))
    differences = [(value(logs + step) - value(logs - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, differences, rtol=1e-6, atol=1e-8)


def test_densities_are_those_of_dense_conditionals():
    x, one = rows(25), metric()
    y = np.random.default_rng(2).normal(size=25)
    problem = Problem(x, y, np.ones(25), np.arange(25), 24)
    value, _ = problem.log_density(one, problem.neighbours(one))
    covariance = one.covariance(x, x) + one.noise_variance * np.eye(25)
    inverse = np.linalg.inv(covariance)
    left_out = 1 / np.diag(inverse)
    errors = inverse @ y * left_out
    expected = -0.5 * (np.log(2 * np.pi * left_out) + errors**2 / left_out)
    assert value == pytest.approx(expected.mean(), rel=1e-10)


def test_with_all_rows_before_the_precision_is_the_inverse():
    x, one = rows(30), metric()
    relative = np.random.default_rng(3).uniform(0.5, 2, 30)
    precision = Precision.of(x, one, relative, 29, seed=0)
    covariance = one.covariance(x, x) + one.noise_variance * np.diag(relative)
    np.testing.assert_allclose(
        precision.multiply(np.eye(30)), np.linalg.inv(covariance), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("smoothness", [1, 3, 5])
def test_given_all_rows_predictions_are_those_of_dense_algebra(smoothness):
    x, one = rows(60), metric(smoothness)
    random = np.random.default_rng(4)
    relative, target = random.uniform(0.5, 2, 60), random.normal(size=60)
    function = NeighbourFunction(x, target, relative, one, 60)
    points = np.concatenate([rows(8, seed=9), x[:2]])
    points[0, 4] = -1.0  # a level that no training row has
    cross = one.covariance(points, x)
    covariance = one.covariance(x, x) + one.noise_variance * np.diag(relative)
    solved = np.linalg.solve(covariance, cross.T)
    joint = one.covariance(points, points) - cross @ solved
    mean, variance, _ = function.moments(points)
    np.testing.assert_allclose(mean, target @ solved, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(joint), rtol=1e-8)
    np.testing.assert_allclose(function.covariance(points), joint, atol=1e-6)
    drawn = function.sample(points, 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(drawn.T), joint, atol=0.05)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.05)


def test_more_neighbours_change_less():
    x = rows(800, levels=False)
    target = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * np.random.default_rng(0).normal(size=800)
    one = Metric(5, 1.0, np.array([0.8, 1.5, 5.0]), 0.01)
    errors = [
        NeighbourFunction(x, target, np.ones(800), one, m).checked(np.random.default_rng(0))[3]
        for m in (4, 16, 64)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_hyperparameters_of_a_draw_are_found():
    random = np.random.default_rng(5)
    x = random.normal(size=(700, 3))
    true = Metric(3, 1.0, np.array([0.6, 1.2, 30.0]), 0.02)
    covariance = true.covariance(x, x) + 0.02 * np.eye(700)
    y = multivariate_normal(cov=covariance, seed=0).rvs()
    start = Metric(3, 1.0, np.full(3, 2.0), 0.1)
    learned = learn(Problem(x, y, np.ones(700), np.arange(700), 20), start)
    found = learned.metric
    assert learned.converged
    assert found.noise_variance == pytest.approx(0.02, rel=0.35)
    # Neighbours only determine lengthscales and variance by their effect at short distances.
    ratio = found.lengthscales / true.lengthscales
    assert ratio[1] / ratio[0] == pytest.approx(1, abs=0.35)
    assert found.lengthscales[2] > 4


def test_noise_that_is_known_is_kept():
    x = rows(200, levels=False)
    problem = Problem(x, np.sin(x[:, 0]), np.ones(200), np.arange(200), 12)
    learned = learn(problem, Metric(5, 1.0, np.ones(3), 0.3), fixed_noise=True, smoothness=1)
    assert learned.metric.noise_variance == 0.3
    assert learned.metric.smoothness == 1


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_rows_have_few_neighbours(n):
    x = rows(n)
    function = NeighbourFunction(x, np.arange(n, dtype=float), np.ones(n), metric(), 64)
    mean, variance, _ = function.moments(rows(4, seed=8))
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert math.isfinite(function.checked(np.random.default_rng(0))[3])


@pytest.mark.parametrize(
    "wrong", [{"smoothness": 2}, {"variance": -1.0}, {"noise_variance": math.nan}]
)
def test_a_metric_that_is_none_is_refused(wrong):
    given_values = {"smoothness": 3, "variance": 1.0, "noise_variance": 0.1} | wrong
    with pytest.raises(ParameterError):
        Metric(lengthscales=np.ones(2), **given_values)
