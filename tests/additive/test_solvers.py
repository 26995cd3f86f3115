"""The additive system against dense algebra: sum, raw components, bounds."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dsgp import compute
from dsgp.additive import (
    SOLVERS,
    AdditiveSystem,
    RowEquations,
    TwoWayTables,
    equations,
    warn_unless_converged,
)
from dsgp.additive.backfitting import backfitting
from dsgp.additive.conjugate_gradients import conjugate_gradients
from dsgp.additive.multigrid import CoarseSpace, multigrid
from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.rows import table as rows_table
from dsgp.rows.table import RowTable
from tests.additive.dense import Problem, bins_of, inputs, prior_std, problem, table_of

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)
both = pytest.mark.parametrize("solve", [conjugate_gradients, multigrid])
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def centred(system, flat):
    parts = []
    for part, weight in zip(
        system.layout.parts(flat), system.layout.parts(system.weight), strict=True
    ):
        parts.append(part - np.average(part, weights=weight))
    return np.concatenate(parts)


@every_kernel
@both
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1.0, 100.0])
def test_cg_reaches_the_sum_and_every_raw_component(make, solve, correlation, noise):
    given = problem(500, correlation, noise, make)
    solution = solve(given.system, tol=1e-6, max_iter=5000)
    error = np.abs(solution.mean - given.tables) / prior_std(given.system)
    assert solution.converged
    assert solution.error_bound <= 1e-6
    assert error.max() <= 1e-6
    # The dense reference itself is good to about the condition number times 1e-16.
    assert error.max() <= solution.error_bound + 1e-9 / noise * 1e-2
    residual = given.y - given.table.gather(solution.mean)
    np.testing.assert_allclose(residual, given.y - given.fit, atol=1e-6)
    squares = given.equations.squares(solution.mean)
    assert squares == pytest.approx(np.sum(given.weight * residual**2), rel=1e-9)


@every_kernel
@every_solver
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_bound_holds_whenever_a_solver_stops(make, solver, correlation):
    given = problem(200, correlation, 0.01, make)
    exact = given.tables
    for max_iter in (0, 1, 2, 5, 20):
        solution = SOLVERS[solver](given.system, tol=1e-14, max_iter=max_iter)
        error = np.abs(solution.mean - exact) / prior_std(given.system)
        # Dense algebra itself has an error of about 1e-11.
        assert error.max() <= solution.error_bound + 1e-10
        assert not solution.converged


@every_kernel
@pytest.mark.parametrize(("n", "noise"), [(500, 0.5), (100, 0.05)])
def test_backfitting_reaches_the_sum_and_centred_components(make, n, noise):
    given = problem(n, 0.0, noise, make)
    solution = backfitting(given.system, tol=1e-6, max_iter=40_000)
    assert np.abs(given.table.gather(solution.mean) - given.fit).max() <= 1e-6
    error = centred(given.system, solution.mean) - centred(given.system, given.tables)
    assert np.abs(error / prior_std(given.system)).max() <= 1e-6


def test_backfitting_on_correlated_inputs_stops_and_warns_with_its_bound():
    given = problem(500, 0.95, 0.01)
    solution = backfitting(given.system, tol=1e-6, max_iter=100)
    assert solution.iterations == 100
    assert not solution.converged
    with pytest.warns(
        ConvergenceWarning,
        match=rf"100 iterations .* {solution.error_bound:.3g} .*multigrid",
    ):
        warn_unless_converged(solution, "backfitting", 1e-6, 100, 2)


@pytest.mark.parametrize("kind", ["rows", "bins"])
def test_backfitting_is_gauss_seidel_on_the_tables(kind):
    """One sweep against block Gauss–Seidel with dense matrices."""
    given = problem(60, 0.5, 0.1, n_terms=2)
    table, kernels = given.table, given.kernels
    own = given.equations if kind == "rows" else bins_of(given.equations)
    solution = backfitting(AdditiveSystem(own, kernels, given.noise), tol=1e-12, max_iter=1)
    pick = [np.eye(len(axis))[code] for axis, code in zip(table.cells, table.codes, strict=True)]
    fits = [np.zeros(len(axis)) for axis in table.cells]
    for d, (axis, kernel) in enumerate(zip(table.cells, kernels, strict=True)):
        rest = given.y - sum(pick[e] @ fits[e] for e in range(2) if e != d)
        prior = kernel.covariance(axis.points)
        dense = pick[d] @ prior @ pick[d].T + np.diag(given.noise / given.weight)
        fits[d] = prior @ pick[d].T @ np.linalg.solve(dense, rest)
    np.testing.assert_allclose(solution.mean, np.concatenate(fits), atol=1e-8)


@every_solver
def test_a_start_at_the_solution_stops_at_once(solver):
    system = problem(noise=0.5).system
    solution = multigrid(system, tol=1e-9, max_iter=1000)
    again = SOLVERS[solver](system, tol=1e-6, max_iter=1000, start=(solution.mean, solution.dual))
    assert again.iterations == 0
    np.testing.assert_array_equal(again.mean, solution.mean)


@every_solver
def test_the_energy_never_rises_from_a_warm_start(solver):
    """VBEM's bound cannot fall because of an inexact E-step."""
    given = problem(300, 0.9, 0.01)

    def energy(solution):
        residual = given.y - given.table.gather(solution.mean)
        return given.weight @ residual**2 / given.noise + solution.mean @ solution.dual

    start, last = None, np.inf
    for _ in range(12):
        solution = SOLVERS[solver](given.system, tol=1e-9, max_iter=3, start=start)
        assert energy(solution) <= last * (1 + 1e-12)
        start, last = (solution.mean, solution.dual), energy(solution)


def test_cg_knows_the_floor_of_rounding():
    given = problem(300, 0.9, 1e-6)
    solution = conjugate_gradients(given.system, tol=1e-12, max_iter=100_000)
    assert not solution.converged
    assert solution.iterations < 20_000
    assert np.abs(given.table.gather(solution.mean) - given.y).max() < 1e-2


@both
def test_zero_weights_are_no_rows(solve):
    given = problem(200)
    weight = given.weight.copy()
    weight[::3] = 0.0
    given = Problem(given.X, given.y, weight, given.kernels, given.noise)
    mean = solve(given.system, tol=1e-8, max_iter=2000).mean
    np.testing.assert_allclose(given.table.gather(mean), given.fit, atol=1e-6)
    kept = weight > 0
    assert given.equations.n_rows == kept.sum()
    assert given.equations.log_weight == pytest.approx(np.log(weight[kept]).sum())


@every_kernel
@every_solver
@pytest.mark.parametrize("kind", ["rows", "bins"])
def test_a_missing_input_leaves_its_term_out_of_the_row(make, solver, kind):
    given = problem(200, 0.5, 0.5, make, missing=0.2, digits=1)
    own = given.equations if kind == "rows" else bins_of(given.equations)
    system = AdditiveSystem(own, given.kernels, given.noise)
    solution = SOLVERS[solver](system, tol=1e-7, max_iter=40_000)
    np.testing.assert_allclose(given.table.gather(solution.mean), given.fit, atol=1e-6)
    error = np.abs(solution.mean - given.tables) / prior_std(system)
    assert error.max() <= solution.error_bound + 1e-9
    assert own.squares(solution.mean) == pytest.approx(
        given.weight @ (given.y - given.fit) ** 2, rel=1e-5
    )


@pytest.mark.parametrize("kind", ["rows", "bins"])
@both
def test_several_right_hand_sides_at_once_are_single_solves(solve, kind):
    given = problem(300, 0.7, 0.05, digits=2)
    own = given.equations if kind == "rows" else bins_of(given.equations)
    system = AdditiveSystem(own, given.kernels, given.noise)
    rng = np.random.default_rng(5)
    # Of very different sizes: every one has its own stopping point.
    rhs = rng.standard_normal((4, system.layout.size)) * np.array([[1.0], [1e-4], [1e3], [0.0]])
    rhs[2] = system.information
    together = solve(system, rhs, tol=1e-8, max_iter=2000)
    assert together.converged
    for k, one in enumerate(rhs):
        alone = solve(system, one, tol=1e-8, max_iter=2000)
        scale = prior_std(system)
        assert alone.converged
        assert alone.mean.shape == one.shape
        assert alone.error_bound <= together.error_bound + 1e-8
        np.testing.assert_allclose(together.mean[k] / scale, alone.mean / scale, atol=2e-8)
        dense = np.linalg.solve(_matrix(given), _prior(given) @ one)
        np.testing.assert_allclose(together.mean[k] / scale, dense / scale, atol=1e-7)
    again = solve(system, rhs, tol=1e-8, max_iter=10, start=(together.mean, together.dual))
    assert again.iterations == 0
    np.testing.assert_array_equal(again.mean, together.mean)


def _prior(given):
    layout = given.table
    prior = np.zeros((layout.size, layout.size))
    for d, (axis, kernel) in enumerate(zip(layout.cells, given.kernels, strict=True)):
        part = slice(*layout.offsets[d : d + 2])
        prior[part, part] = kernel.covariance(axis.points)
    return prior


def _normal(given):
    """ZᵀWZ by one-hot matrices; codes beyond the axis pick nothing."""
    picks = [
        np.eye(len(axis) + 1)[np.minimum(code, len(axis))][:, :-1]
        for axis, code in zip(given.table.cells, given.table.codes, strict=True)
    ]
    Z = np.hstack(picks)
    return Z.T @ (given.weight[:, None] * Z), Z


def _matrix(given):
    """I + K̃A, which times the mean is K̃ times the right-hand side."""
    normal = _normal(given)[0] / given.noise
    return np.eye(len(normal)) + _prior(given) @ normal


@every_solver
def test_no_terms_at_all(solver):
    table = RowTable((), (), np.empty((0, 5), np.int32))
    y = np.arange(5.0)
    system = AdditiveSystem(RowEquations.of(table, y), [], 1.0)
    solution = SOLVERS[solver](system, tol=1e-6, max_iter=10)
    assert solution.converged
    assert len(solution.mean) == 0
    np.testing.assert_array_equal(table.gather(solution.mean), 0.0)
    assert system.equations.squares(solution.mean) == y @ y


@pytest.mark.parametrize("solve", [conjugate_gradients, multigrid, backfitting])
def test_threads_change_no_digit(monkeypatch, solve):
    results = []
    monkeypatch.setattr(equations, "_GATHER_ROWS", 64)
    for threshold in (0.0, np.inf):
        monkeypatch.setattr(compute, "WORTH_A_GRAPH", threshold)
        monkeypatch.setattr(compute, "CPU_COUNT", 2)
        results.append(solve(problem(400, 0.5).system, tol=1e-6, max_iter=40).mean)
    np.testing.assert_array_equal(*results)


@given(
    solve=st.sampled_from([conjugate_gradients, multigrid]),
    n=st.integers(1, 25),
    n_terms=st.integers(1, 4),
    digits=st.integers(0, 2),
    log_noise=st.floats(-3, 3),
    make=st.sampled_from(KERNELS),
    bins=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_small_problem_is_solved(solve, n, n_terms, digits, log_noise, make, bins, seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, n_terms)), digits)
    kernels = [make(lengthscale=float(np.exp(rng.normal())), variance=1.0) for _ in range(n_terms)]
    given = Problem(X, rng.normal(size=n), np.ones(n), kernels, 10.0**log_noise)
    own = bins_of(given.equations) if bins else given.equations
    solution = solve(AdditiveSystem(own, kernels, given.noise), tol=1e-7, max_iter=5000)
    assert solution.converged
    np.testing.assert_allclose(given.table.gather(solution.mean), given.fit, atol=1e-6)


# ------------------------------------------------------------------ equations


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("block", [2**18, 37])
def test_rows_and_bins_are_the_same_equations(monkeypatch, missing, block):
    monkeypatch.setattr(rows_table, "BLOCK", block)
    given = problem(200, 0.5, digits=1, missing=missing)
    rows, layout = given.equations, given.table
    bins = bins_of(rows)
    normal, Z = _normal(given)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3, 2, layout.size))
    mean = vectors[0, 0]
    for own in (rows, bins):
        np.testing.assert_allclose(own.weight, np.diag(normal))
        np.testing.assert_allclose(own.information, Z.T @ (given.weight * given.y), atol=1e-12)
        np.testing.assert_allclose(own.multiply(vectors), vectors @ normal, atol=1e-10)
        np.testing.assert_allclose(own.multiply(mean), normal @ mean, atol=1e-10)
        squares = given.weight @ (given.y - Z @ mean) ** 2
        assert own.squares(mean) == pytest.approx(squares, rel=1e-10)
        assert own.quadratic == pytest.approx(given.weight @ given.y**2)
        # a sweep over the terms
        current = mean.copy()
        fitted = own.fitted(current)
        for term in (0, 2, 1):
            expected = Z.T @ (given.weight * (given.y - Z @ current))
            np.testing.assert_allclose(
                fitted.residual(term), layout.part(expected, term), atol=1e-10
            )
            change = rng.standard_normal(len(layout.cells[term]))
            fitted.add(term, change)
            layout.part(current, term)[:] += change
        np.testing.assert_array_equal(mean, vectors[0, 0])


@every_kernel
@every_solver
def test_rows_and_bins_have_the_same_solution(make, solver):
    given = problem(300, 0.5, 0.5, make, digits=1)
    bins = AdditiveSystem(bins_of(given.equations), given.kernels, given.noise)
    # The same steps, not only the same limit.
    first = SOLVERS[solver](given.system, tol=1e-14, max_iter=5)
    second = SOLVERS[solver](bins, tol=1e-14, max_iter=5)
    np.testing.assert_allclose(first.mean, second.mean, atol=1e-8)
    first = SOLVERS[solver](given.system, tol=1e-6, max_iter=1000)
    second = SOLVERS[solver](bins, tol=1e-6, max_iter=1000)
    assert np.abs(first.mean - second.mean).max() <= 2 * (first.error_bound + second.error_bound)


@pytest.mark.parametrize("kind", ["rows", "bins"])
@pytest.mark.parametrize("weighted", [True, False])
def test_noise_has_the_covariance_of_the_equations(monkeypatch, kind, weighted):
    monkeypatch.setattr(rows_table, "BLOCK", 37)
    given = problem(100, 0.5, digits=0, missing=0.1)
    if not weighted:
        given.weight = np.ones(100)
        given.equations = RowEquations.of(given.table, given.y)
    own = given.equations if kind == "rows" else bins_of(given.equations)
    random = np.random.default_rng(0)
    draws = np.array([own.noise(random) for _ in range(20_000)])
    normal, _ = _normal(given)
    scale = np.sqrt(np.diag(normal))
    error = (draws.T @ draws / len(draws) - normal) / np.outer(scale, scale)
    # Five standard errors of a variance.
    assert np.abs(error).max() < 5 * np.sqrt(2 / len(draws))
    assert np.abs(draws.mean(axis=0) / scale).max() < 5 / np.sqrt(len(draws))


def test_noise_of_sparse_tables_is_that_of_dense_ones():
    own = bins_of(problem(100, 0.5, digits=0).equations)
    pairs = {key: csr_array(pair) for key, pair in own.bins.pairs.items()}
    sparse = replace(own, bins=replace(own.bins, pairs=pairs))
    np.testing.assert_array_equal(
        sparse.noise(np.random.default_rng(0)), own.noise(np.random.default_rng(0))
    )


def test_two_way_tables_count_the_weights_of_all_rows():
    given = problem(600, 0.5, n_terms=3)
    own = given.equations
    tables = TwoWayTables.of(given.table, own.information, own.ones, own.row_weight, 100)
    for d in range(3):
        n_bins = len(tables.weights[d])
        assert 80 < n_bins <= 100
        bins = np.argmin(np.abs(given.X[:, [d]] - tables.cells[d].points), axis=1)
        assert tables.weights[d].sum() == pytest.approx(given.weight.sum())
        assert tables.information[d].sum() == pytest.approx(given.weight @ given.y, abs=1e-9)
        # Mean and variance within the bins make up those of the column.
        mean = np.average(given.X[:, d], weights=given.weight)
        variance = np.average((given.X[:, d] - mean) ** 2, weights=given.weight)
        share = tables.weights[d] / tables.weights[d].sum()
        assert share @ tables.cells[d].points == pytest.approx(mean)
        between = share @ (tables.cells[d].points - mean) ** 2
        assert between + share @ tables.spreads[d] == pytest.approx(variance)
        assert len(np.unique(bins)) > 0.9 * n_bins
    for (d, e), pair in tables.pairs.items():
        np.testing.assert_allclose(pair.sum(axis=1), tables.weights[d])
        np.testing.assert_allclose(pair.sum(axis=0), tables.weights[e])
    # few distinct values: a bin a point, hence exact
    X = np.random.default_rng(0).integers(0, 5, (200, 2)).astype(float)
    weight = np.random.default_rng(1).uniform(size=200)
    own = RowEquations.of(table_of(X), np.ones(200), weight)
    expected = np.histogram2d(*X.T, bins=5, range=[[-0.5, 4.5]] * 2, weights=weight)[0]
    np.testing.assert_allclose(own.tables(100).pairs[0, 1], expected)
    assert own.tables(100) is own.tables(100)


# ------------------------------------------------------------------ multigrid

HANDFUL = {Matern12: 30, Matern32: 8, Matern52: 5, Matern72: 5}


@functools.lru_cache(maxsize=1)  # systems of all kernels differ in their kernels only
def rows_of_sines(n, correlation, digits):
    X = inputs(n, 8, correlation)
    X = X if digits is None else np.round(X, digits)
    y = np.sin(1.5 * X + np.arange(8)).sum(axis=1)
    y += 0.1 * np.random.default_rng(1).standard_normal(n)
    return RowEquations.of(table_of(X), y - y.mean())


def sines(n, correlation, make, digits=None):
    return AdditiveSystem(rows_of_sines(n, correlation, digits), [make(1.0, 1.0)] * 8, 0.01)


def check_a_handful(system, iterations):
    """Root mean square error of the sum below 1e-6, of every component below 1e-4."""
    coarse = functools.cache(lambda: CoarseSpace(system))  # the same for both
    found = multigrid(system, tol=1e-14, max_iter=iterations, coarse=coarse)
    # Its own limit, which the bound makes rigorous.
    start = (found.mean, found.dual)
    exact = multigrid(system, tol=1e-7, max_iter=200, start=start, coarse=coarse)
    assert exact.error_bound < 5e-7
    error = found.mean - exact.mean
    assert np.sqrt(np.mean(system.equations.table.gather(error) ** 2)) < 1e-6
    if system.kernels[0].order > 1:
        assert np.abs(error).max() < 1e-4  # at every point, not in the mean only
    layout = system.layout
    for part, weight in zip(layout.parts(error), layout.parts(system.weight), strict=True):
        assert np.sqrt(np.average(part**2, weights=weight)) < 1e-4


@every_kernel  # first, which varies it fastest: rows are made once for all kernels
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("n", [10_000, 100_000])
def test_multigrid_needs_a_handful_of_iterations(make, n, correlation):
    # For the roughest kernel beside so few rows 30 are not quite enough.
    more = 5 if make is Matern12 and n == 10_000 else 0
    check_a_handful(sines(n, correlation, make), HANDFUL[make] + more)


def test_multigrid_needs_no_more_iterations_for_a_million_rows():
    # Rounded, which takes time off the reference, not work off the iterations.
    check_a_handful(sines(1_000_000, 0.9, Matern72, digits=4), HANDFUL[Matern72])


@every_kernel
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_preconditioner_is_symmetric_and_positive(make, missing):
    system = problem(120, 0.5, 0.05, make, missing=missing).system
    matrix = CoarseSpace(system).precondition(np.eye(system.layout.size))[0]
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * scale)
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2).min() > -1e-9 * scale


def test_a_coarse_space_that_is_there_is_used():
    system = problem(300, 0.5).system
    made = CoarseSpace(system)
    asked = []
    first = multigrid(system, tol=1e-6, max_iter=50, coarse=lambda: asked.append(1) or made)
    second = multigrid(system, tol=1e-6, max_iter=50)
    assert asked
    np.testing.assert_array_equal(first.mean, second.mean)


def test_tables_that_are_mostly_empty_multiply_as_sparse_ones():
    small = Problem(np.repeat(np.arange(60.0)[:, None], 3, axis=1), *np.ones((2, 60)), [], 0.1)
    tables = bins_of(small.equations).bins
    vectors = np.random.default_rng(0).standard_normal((2, 180))
    rows = vectors.reshape(2, 3, 60).sum(axis=1)
    assert tables._normal is not None
    np.testing.assert_allclose(tables.multiply(vectors), np.tile(rows, 3))
    changed = tables.with_information([np.zeros(60)] * 3)
    assert changed._normal is tables._normal
