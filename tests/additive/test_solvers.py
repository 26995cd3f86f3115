"""The additive system against dense algebra: sum, raw components, bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp import compute
from dsgp.additive import SOLVERS, AdditiveSystem, warn_unless_converged
from dsgp.additive.backfitting import backfitting
from dsgp.additive.conjugate_gradients import conjugate_gradients
from dsgp.additive.multigrid import CoarseSpace, TwoWayTables, multigrid
from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)


def table_of(X):
    axes, codes = zip(*[encode(f"x{d}", column) for d, column in enumerate(X.T)], strict=True)
    return RowTable(tuple(f"x{d}" for d in range(X.shape[1])), axes, np.array(codes))


def problem(n=300, correlation=0.0, noise=0.01, make=Matern52, n_terms=3, seed=0):
    """A system, its targets, and the dense posterior mean of every table."""
    rng = np.random.default_rng(seed)
    covariance = (1 - correlation) * np.eye(n_terms) + correlation
    X = rng.multivariate_normal(np.zeros(n_terms), covariance, n)
    X[: n // 10] = np.round(X[: n // 10], 1)
    y = np.sin(2 * X).sum(axis=1) + np.sqrt(noise) * rng.standard_normal(n)
    y -= y.mean()
    weight = rng.uniform(0.5, 2.0, n) / noise
    kernels = [make(lengthscale=0.7 + 0.3 * d, variance=1.0 + d) for d in range(n_terms)]
    system = AdditiveSystem(table_of(X), kernels, weight)
    prior = sum(kernel.covariance(x) for kernel, x in zip(kernels, X.T, strict=True))
    alpha = np.linalg.solve(prior + np.diag(1 / weight), y)
    exact = np.concatenate(
        [
            kernel.covariance(axis.points, x) @ alpha
            for kernel, axis, x in zip(kernels, system.table.axes, X.T, strict=True)
        ]
    )
    return system, y, exact, prior @ alpha


def prior_std(system):
    return np.concatenate(
        [
            np.full(len(axis), np.sqrt(kernel.variance))
            for axis, kernel in zip(system.table.axes, system.kernels, strict=True)
        ]
    )


def centred(system, flat):
    parts = []
    for part, weight in zip(
        system.table.parts(flat), system.table.parts(system.table_weight), strict=True
    ):
        parts.append(part - np.average(part, weights=weight))
    return np.concatenate(parts)


@every_kernel
@pytest.mark.parametrize("solve", [conjugate_gradients, multigrid])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1.0, 100.0])
def test_cg_reaches_the_sum_and_every_raw_component(make, solve, correlation, noise):
    system, y, exact, exact_sum = problem(500, correlation, noise, make)
    solution = solve(system, y, tol=1e-6, max_iter=5000)
    error = np.abs(solution.mean - exact) / prior_std(system)
    assert solution.converged
    assert solution.error_bound <= 1e-6
    assert error.max() <= 1e-6
    # The dense reference itself is good to about the condition number times 1e-16.
    assert error.max() <= solution.error_bound + 1e-9 / noise * 1e-2
    total = system.gather(solution.mean)
    assert np.abs(total - exact_sum).max() <= 1e-6
    np.testing.assert_allclose(solution.residual, y - total, atol=1e-12)


@every_kernel
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_bound_holds_whenever_a_solver_stops(make, solver, correlation):
    system, y, exact, _ = problem(200, correlation, 0.01, make)
    for max_iter in (0, 1, 2, 5, 20):
        solution = SOLVERS[solver](system, y, tol=1e-12, max_iter=max_iter)
        error = np.abs(solution.mean - exact) / prior_std(system)
        assert error.max() <= solution.error_bound * (1 + 1e-9)
        assert not solution.converged


@every_kernel
@pytest.mark.parametrize(("n", "noise"), [(500, 0.5), (100, 0.05)])
def test_backfitting_reaches_the_sum_and_centred_components(make, n, noise):
    system, y, exact, exact_sum = problem(n, 0.0, noise, make)
    solution = backfitting(system, y, tol=1e-6, max_iter=40_000)
    assert np.abs(system.gather(solution.mean) - exact_sum).max() <= 1e-6
    error = np.abs(centred(system, solution.mean) - centred(system, exact)) / prior_std(system)
    assert error.max() <= 1e-6


def test_backfitting_on_correlated_inputs_stops_and_warns_with_its_bound():
    system, y, exact, _ = problem(500, 0.95, 0.01)
    solution = backfitting(system, y, tol=1e-6, max_iter=100)
    assert solution.iterations == 100
    assert not solution.converged
    with pytest.warns(
        ConvergenceWarning,
        match=rf"100 iterations .* {solution.error_bound:.3g} .*multigrid",
    ):
        warn_unless_converged(solution, "backfitting", 1e-6, 100)


def test_backfitting_is_gauss_seidel_on_the_tables():
    """One sweep against block Gauss–Seidel with dense matrices."""
    system, y, _, _ = problem(60, 0.5, 0.1, n_terms=2)
    table = system.table
    solution = backfitting(system, y, tol=1e-12, max_iter=1)
    pick = [np.eye(len(axis))[code] for axis, code in zip(table.axes, table.codes, strict=True)]
    fits = [np.zeros(len(axis)) for axis in table.axes]
    for d, (axis, kernel) in enumerate(zip(table.axes, system.kernels, strict=True)):
        rest = y - sum(pick[e] @ fits[e] for e in range(2) if e != d)
        dense = pick[d] @ kernel.covariance(axis.points) @ pick[d].T + np.diag(1 / system.weight)
        fits[d] = kernel.covariance(axis.points) @ pick[d].T @ np.linalg.solve(dense, rest)
    np.testing.assert_allclose(solution.mean, np.concatenate(fits), atol=1e-8)


def test_cg_started_at_the_solution_stops_at_once():
    system, y, _, _ = problem()
    solution = conjugate_gradients(system, y, tol=1e-6, max_iter=1000)
    again = conjugate_gradients(
        system, y, tol=1e-6, max_iter=1000, start=(solution.mean, solution.dual)
    )
    assert again.iterations == 0
    np.testing.assert_array_equal(again.mean, solution.mean)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_energy_never_rises_from_a_warm_start(solver):
    """VBEM's bound cannot fall because of an inexact E-step."""
    system, y, _, _ = problem(300, 0.9, 0.01)

    def energy(solution):
        return system.weight @ solution.residual**2 + solution.mean @ solution.dual

    start, last = None, np.inf
    for _ in range(12):
        solution = SOLVERS[solver](system, y, tol=1e-9, max_iter=3, start=start)
        assert energy(solution) <= last * (1 + 1e-12)
        start, last = (solution.mean, solution.dual), energy(solution)


def test_cg_knows_the_floor_of_rounding():
    system, y, exact, _ = problem(300, 0.9, 1e-6)
    solution = conjugate_gradients(system, y, tol=1e-12, max_iter=100_000)
    assert not solution.converged
    assert solution.iterations < 20_000
    assert np.abs(system.gather(solution.mean) - y).max() < 1e-2


def test_zero_weights_are_no_rows():
    system, y, _, _ = problem(200)
    weight = system.weight.copy()
    weight[::3] = 0.0
    with_zeros = AdditiveSystem(system.table, system.kernels, weight)
    mean = conjugate_gradients(with_zeros, y, tol=1e-8, max_iter=2000).mean
    prior = sum(
        kernel.covariance(axis.points[code])
        for kernel, axis, code in zip(
            system.kernels, system.table.axes, system.table.codes, strict=True
        )
    )
    kept = weight > 0
    alpha = np.linalg.solve(prior[np.ix_(kept, kept)] + np.diag(1 / weight[kept]), y[kept])
    np.testing.assert_allclose(with_zeros.gather(mean), prior[:, kept] @ alpha, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_terms_at_all(solver):
    system = AdditiveSystem(RowTable((), (), np.empty((0, 5), np.int32)), [], np.ones(5))
    solution = SOLVERS[solver](system, np.arange(5.0), tol=1e-6, max_iter=10)
    assert solution.converged
    np.testing.assert_array_equal(solution.residual, np.arange(5.0))


def test_threads_change_no_digit(monkeypatch):
    results = []
    for threshold in (0.0, np.inf):
        monkeypatch.setattr(compute, "WORTH_A_GRAPH", threshold)
        monkeypatch.setattr(compute, "CPU_COUNT", 2)
        system, y, _, _ = problem(400, 0.5)
        results.append(conjugate_gradients(system, y, tol=1e-6, max_iter=100).mean)
    np.testing.assert_array_equal(*results)


@given(
    solve=st.sampled_from([conjugate_gradients, multigrid]),
    n=st.integers(1, 25),
    n_terms=st.integers(1, 4),
    digits=st.integers(0, 2),
    log_noise=st.floats(-3, 3),
    make=st.sampled_from(KERNELS),
    seed=st.integers(0, 1000),
)
def test_any_small_problem_is_solved(solve, n, n_terms, digits, log_noise, make, seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, n_terms)), digits)
    y = rng.normal(size=n)
    noise = 10.0**log_noise
    kernels = [make(lengthscale=float(np.exp(rng.normal())), variance=1.0) for _ in range(n_terms)]
    system = AdditiveSystem(table_of(X), kernels, np.full(n, 1 / noise))
    solution = solve(system, y, tol=1e-7, max_iter=5000)
    prior = sum(kernel.covariance(x) for kernel, x in zip(kernels, X.T, strict=True))
    expected = prior @ np.linalg.solve(prior + noise * np.eye(n), y)
    assert solution.converged
    np.testing.assert_allclose(system.gather(solution.mean), expected, atol=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize(("make", "iterations"), [(Matern32, 8), (Matern52, 5), (Matern72, 5)])
@pytest.mark.parametrize("n", [2_000, 20_000])
def test_multigrid_needs_a_handful_of_iterations(make, iterations, n, correlation):
    """Root mean square error of the sum below 1e-6, of every component below 1e-4."""
    rng = np.random.default_rng(0)
    X = np.sqrt(1 - correlation) * rng.standard_normal((n, 8))
    X += np.sqrt(correlation) * rng.standard_normal((n, 1))
    y = np.sin(1.5 * X + np.arange(8)).sum(axis=1) + 0.1 * rng.standard_normal(n)
    y -= y.mean()
    system = AdditiveSystem(table_of(X), [make(1.0, 1.0)] * 8, np.full(n, 100.0))
    exact = conjugate_gradients(system, y, tol=1e-7, max_iter=3000)
    found = multigrid(system, y, tol=1e-14, max_iter=iterations)
    error = found.mean - exact.mean
    assert np.sqrt(np.mean(system.gather(error) ** 2)) < 1e-6
    assert np.abs(error).max() < 1e-4


@every_kernel
def test_the_preconditioner_is_symmetric_and_positive(make):
    system, _, _, _ = problem(120, 0.5, 0.05, make)
    coarse = CoarseSpace(system, TwoWayTables.of(system.table, system.kernels, system.weight))
    size = system.table.size
    matrix = np.array([coarse.precondition(unit)[0] for unit in np.eye(size)])
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * scale)
    assert np.linalg.eigvalsh((matrix + matrix.T) / 2).min() > -1e-9 * scale


def test_two_way_tables_count_the_weights_of_all_rows():
    system, _, _, _ = problem(300, 0.5, n_terms=3)
    tables = TwoWayTables.of(system.table, system.kernels, system.weight)
    for (d, e), pair in tables.pairs.items():
        np.testing.assert_allclose(pair.sum(axis=1), tables.weights[d])
        np.testing.assert_allclose(pair.sum(axis=0), tables.weights[e])
        assert pair.sum() == pytest.approx(tables.total)
    # few distinct values: a bin a point, hence exact
    X = np.random.default_rng(0).integers(0, 5, (200, 2)).astype(float)
    weight = np.random.default_rng(1).uniform(size=200)
    exact = TwoWayTables.of(table_of(X), [Matern52(1.0, 1.0)] * 2, weight)
    expected = np.histogram2d(*X.T, bins=5, range=[[-0.5, 4.5]] * 2, weights=weight)[0]
    np.testing.assert_allclose(exact.pairs[0, 1], expected)


def test_multigrid_with_tables_of_weights_in_proportion():
    system, y, _, _ = problem(300, 0.5)
    tables = TwoWayTables.of(system.table, system.kernels, system.weight * 7.0)
    first = multigrid(system, y, tol=1e-6, max_iter=50, tables=tables)
    second = multigrid(system, y, tol=1e-6, max_iter=50)
    assert first.iterations == second.iterations
    np.testing.assert_allclose(first.mean, second.mean, atol=1e-6)
