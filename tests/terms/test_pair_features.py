"""Many pairs of few values: solves, determinants and variances against dense algebra."""

import numpy as np
import pytest
from scipy.linalg.lapack import dpstrf

from dsgp.kernels import CentredProduct, Independent, Margin, Matern12, Matern32, Matern52
from dsgp.terms import LevelPairs, Observations, SmoothByLevels, TensorCells
from dsgp.terms.pair_features import PairFeatures, PairSolver

N_FIRST, N_SECOND = 40, 30
EVEN = Margin(tuple(np.linspace(0.0, 1.0, 9)), (1.0 / 9,) * 9)
LEVELS = Margin(tuple(np.arange(float(N_SECOND))), (1.0 / N_SECOND,) * N_SECOND)


def kernel_of(name: str) -> CentredProduct:
    parts = {
        "smooth": (Matern52(0.5, 2.0), Matern52(0.7)),
        "middling": (Matern32(0.3, 0.7), Matern32(0.4)),
        "rough": (Matern12(0.05, 1.5), Matern12(0.05)),
    }
    if name == "levels":
        return CentredProduct((Matern32(0.3, 0.7), Independent()), (EVEN, LEVELS))
    return CentredProduct(parts[name], (EVEN, EVEN))


def cells_of(name: str, random: np.random.Generator) -> TensorCells:
    """800 of 1200 pairs."""
    chosen = np.sort(random.choice(N_FIRST * N_SECOND, 800, replace=False))
    first = np.sort(random.uniform(0.0, 1.0, N_FIRST))[chosen // N_SECOND]
    second = chosen % N_SECOND
    if name == "levels":
        return SmoothByLevels(np.column_stack([first, second.astype(float)]))
    values = np.sort(random.uniform(0.0, 1.0, N_SECOND))
    return TensorCells(np.column_stack([first, values[second]]))


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.fixture(params=["smooth", "middling", "rough", "levels"])
def problem(request):
    random = np.random.default_rng(7)
    cells, kernel = cells_of(request.param, random), kernel_of(request.param)
    weight = random.gamma(0.5, 4.0, len(cells)) * (random.random(len(cells)) > 0.1)
    prior = cells.prior(kernel, cells.points, cells.points)
    return cells, kernel, weight, prior


def dense_posterior(prior, weight):
    """(K⁻¹ + W)⁻¹ without an inverse of K."""
    root = np.sqrt(weight)
    inner = np.eye(len(weight)) + root[:, None] * prior * root
    return prior - (prior * root) @ np.linalg.solve(inner, root[:, None] * prior)


def test_products_with_the_covariance(problem, random):
    cells, kernel, _, prior = problem
    vector = random.normal(size=len(cells))
    np.testing.assert_allclose(cells.multiply(kernel, vector), prior @ vector, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_a_solve_is_exact(problem, random, scale):
    cells, kernel, weight, prior = problem
    weight = scale * weight
    target = prior @ random.normal(size=len(cells)) / 20 + 0.1 * random.normal(size=len(cells))
    information = weight * target
    solver = cells.solver(kernel, weight)
    assert isinstance(solver, PairSolver)
    mean, dual = solver.solve(information)
    np.testing.assert_allclose(prior @ dual, mean, atol=1e-8)
    left = information - dual - weight * mean
    np.testing.assert_allclose(left, 0.0, atol=1e-8 * (1 + np.abs(information).max()))
    np.testing.assert_allclose(mean, dense_posterior(prior, weight) @ information, atol=1e-6)


@pytest.mark.parametrize("name", ["rough", "middling"])
def test_a_solve_keeps_its_digits_beside_next_to_no_noise(random, name):
    cells, kernel = cells_of(name, random), kernel_of(name)
    weight = 1e10 * random.gamma(0.5, 2.0, len(cells))
    prior = cells.prior(kernel, cells.points, cells.points)
    target = prior @ random.normal(size=len(cells)) + random.normal(size=len(cells)) / weight**0.5
    mean, dual = cells.solver(kernel, weight).solve(weight * target)
    np.testing.assert_allclose(prior @ dual, mean, atol=1e-9)
    # The error in posterior standard deviations is at most that in units of the noise.
    left = weight * (target - mean) - dual
    assert np.linalg.norm(left / np.sqrt(weight)) < 1e-4


def test_pairs_of_more_levels_than_features_can_hold_are_exact(random):
    chosen = np.sort(random.choice(60 * 60, 600, replace=False))
    cells = LevelPairs(np.column_stack([chosen // 60, chosen % 60]).astype(float))
    margin = Margin(tuple(np.arange(60.0)), (1.0 / 60,) * 60)
    kernel = CentredProduct((Independent(0.8), Independent()), (margin, margin))
    weight = random.gamma(0.5, 40.0, len(cells))
    prior = cells.prior(kernel, cells.points, cells.points)
    exact, root = dense_posterior(prior, weight), np.sqrt(weight)
    spectrum = np.linalg.eigvalsh(root[:, None] * prior * root)
    log_det, dof = cells.complexity(kernel, weight)(1.0)
    assert cells.left_out(kernel, weight) == 0
    assert log_det == pytest.approx(np.sum(np.log1p(spectrum)), abs=1e-6)
    assert dof == pytest.approx(np.sum(spectrum / (1 + spectrum)), abs=1e-6)
    variance = cells.variance_function(kernel, weight)(cells.points)
    np.testing.assert_allclose(variance, np.diag(exact), rtol=1e-8)
    information = random.normal(size=len(cells))
    mean, _ = cells.solver(kernel, weight).solve(information)
    np.testing.assert_allclose(mean, exact @ information, atol=1e-9)


def test_a_smoother_is_symmetric_positive_and_near_the_inverse(problem):
    cells, kernel, weight, prior = problem
    solver = cells.solver(kernel, weight)
    pairs = [solver.smooth(vector) for vector in np.eye(len(cells))]
    means, duals = (np.stack(vectors) for vectors in zip(*pairs, strict=True))
    np.testing.assert_allclose(means, means.T, atol=1e-10)
    np.testing.assert_allclose(duals @ prior, means, atol=1e-9)
    # In the coordinates of its square root the inverse is within a factor of 1.5.
    posterior = dense_posterior(prior, weight)
    values, vectors = np.linalg.eigh(posterior)
    kept = values > 1e-9 * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    ratios = np.linalg.eigvalsh(half.T @ means @ half)
    assert ratios[0] > 0.5
    assert ratios[-1] < 1.0 + 1e-4


def test_complexity_is_within_a_hundredth_of_a_nat(problem):
    cells, kernel, weight, prior = problem
    at = cells.complexity(kernel, weight)
    for factor in (0.5, 1.0, 30.0):
        root = np.sqrt(weight / factor)
        spectrum = np.linalg.eigvalsh(root[:, None] * prior * root).clip(0.0)
        log_det, dof = at(factor)
        assert np.sum(np.log1p(spectrum)) - 0.01 / factor - 1e-9 <= log_det
        assert log_det <= np.sum(np.log1p(spectrum)) + 1e-9
        assert dof == pytest.approx(np.sum(spectrum / (1 + spectrum)), abs=0.011 / factor)


def test_variances_are_within_a_tenth_of_a_degree_of_freedom(problem, random):
    cells, kernel, weight, prior = problem
    exact = np.diag(dense_posterior(prior, weight))
    found = cells.variance_function(kernel, weight)(cells.points)
    assert np.sum(weight * np.abs(found - exact)) <= 0.1
    np.testing.assert_allclose(found, exact, rtol=0.02)
    new = np.column_stack([random.uniform(-0.2, 1.3, 50), random.choice(cells.points[:, 1], 50)])
    cross = cells.prior(kernel, new, cells.points)
    root = np.sqrt(weight)
    inner = np.eye(len(weight)) + root[:, None] * prior * root
    known = np.einsum("ij,ji->i", cross * root, np.linalg.solve(inner, (cross * root).T))
    exact_new = cells.prior_variance(kernel, new) - known
    found_new = cells.variance_function(kernel, weight)(new)
    np.testing.assert_allclose(found_new, exact_new, rtol=0.02)


def test_a_prediction_does_not_depend_on_how_many_there_are(problem, random):
    cells, kernel, weight, _ = problem
    new = cells.points[random.integers(len(cells), size=2500)]
    variance = cells.variance_function(kernel, weight)
    np.testing.assert_allclose(variance(new)[2000:], variance(new[2000:]), rtol=1e-11)


def test_leading_features_bound_what_they_leave(problem):
    cells, kernel, weight, prior = problem
    first, second = (np.unique(cells.points[:, k]) for k in (0, 1))
    features = PairFeatures.of(kernel, first, second)
    root = np.sqrt(weight)
    for of_trace in (True, False):
        columns, bound = features.leading(cells.points, weight, 0.3, of_trace=of_trace)
        left = root[:, None] * (prior - columns @ columns.T) * root
        measured = np.trace(left) if of_trace else np.linalg.eigvalsh(left)[-1]
        assert measured <= bound + 1e-9
        assert bound <= 0.3


def test_more_features_than_there_are_leave_something_out(random, monkeypatch):
    monkeypatch.setattr("dsgp.terms.pair_features.MOST_COLUMNS", 60)
    cells, kernel = cells_of("rough", random), kernel_of("rough")
    weight = np.full(len(cells), 50.0)
    assert cells.left_out(kernel, weight) > 100
    assert cells.left_out(kernel, 1e-9 * weight) == 0
    prior = cells.prior(kernel, cells.points, cells.points)
    information = random.normal(size=len(cells))
    mean, dual = cells.solver(kernel, weight).solve(information)
    exact = dense_posterior(prior, weight) @ information
    np.testing.assert_allclose(mean, exact, atol=1e-7 * np.abs(exact).max())
    np.testing.assert_allclose(dual + weight * mean, information, atol=1e-7)


def test_no_weight_at_all(random):
    cells, kernel = cells_of("middling", random), kernel_of("middling")
    nothing = np.zeros(len(cells))
    prior = cells.prior(kernel, cells.points, cells.points)
    information = random.normal(size=len(cells))
    mean, dual = cells.solver(kernel, nothing).solve(information)
    np.testing.assert_allclose(dual, information, atol=1e-10)
    np.testing.assert_allclose(mean, prior @ information, atol=1e-9)
    assert cells.complexity(kernel, nothing)(1.0) == (0.0, 0.0)
    variance = cells.variance_function(kernel, nothing)(cells.points)
    np.testing.assert_allclose(variance, np.diag(prior), rtol=1e-10)
    np.testing.assert_array_equal(cells.solver(kernel, nothing).solve(nothing)[0], nothing)


def test_chosen_cells_are_the_pivots_of_a_cholesky_factor(random):
    cells = cells_of("middling", random)
    weight = random.gamma(1.0, 1.0, len(cells))
    places = cells._shares(cells.points, weight)
    root = np.sqrt(weight)
    matrix = cells._alike(places, places) * np.outer(root, root)
    _, pivots, _, _ = dpstrf(matrix, tol=0.0, lower=1)
    np.testing.assert_array_equal(cells.chosen(weight, 25), np.sort(pivots[:25] - 1))


def test_posterior_agrees_with_the_solver(problem, random):
    cells, kernel, weight, _ = problem
    target = random.normal(size=len(cells))
    assert cells.left_out(kernel, weight) == 0
    posterior = cells.posterior(kernel, Observations(target, weight))
    mean, _ = cells.solver(kernel, weight).solve(weight * target)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-7)
