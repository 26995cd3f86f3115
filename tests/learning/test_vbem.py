"""VBEM against a dense variational bound, and its monotony."""

import numpy as np
import pytest

from dsgp.additive import SOLVERS, RowEquations
from dsgp.kernels import Matern32, Matern52
from dsgp.learning.search import search_for
from dsgp.learning.vbem import expectation, maximise, vbem
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable
from dsgp.terms import Axis, Observations


def solve(system, start):
    return SOLVERS["cg"](system, tol=1e-7, max_iter=5000, start=start)


def problem(n=150, n_terms=3, correlation=0.0, noise=0.05, digits=1, seed=1):
    rng = np.random.default_rng(seed)
    covariance = (1 - correlation) * np.eye(n_terms) + correlation
    X = np.round(rng.multivariate_normal(np.zeros(n_terms), covariance, n), digits)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 3 + np.sqrt(noise) * rng.standard_normal(n)
    y -= y.mean()
    axes, codes = zip(*[encode(x) for x in X.T], strict=True)
    table = RowTable(tuple(f"x{d}" for d in range(n_terms)), axes, np.array(codes))
    weight = rng.uniform(0.5, 2.0, n)
    return X, y, weight, RowEquations.of(table, y, weight)


def searches_of(equations, kernels):
    layout = equations.layout
    return [
        search_for(kernel, axis, np.ones(len(axis)), len(kernels))
        for kernel, axis in zip(kernels, layout.cells, strict=True)
    ]


def dense_bound(X, y, weight, kernels, noise):
    """E_q log p(y, F) − E_q log q(F) at the optimal factorised q, from its definition."""
    n = len(y)
    priors = [
        kernel.covariance(x) + 1e-12 * np.eye(n) for kernel, x in zip(kernels, X.T, strict=True)
    ]
    rows = noise / weight
    alpha = np.linalg.solve(sum(priors) + np.diag(rows), y)
    means = [prior @ alpha for prior in priors]
    covariances = [
        prior - prior @ np.linalg.solve(prior + np.diag(rows), prior) for prior in priors
    ]
    spread = sum(np.diag(covariance) for covariance in covariances)
    expected_log_likelihood = -0.5 * np.sum(
        np.log(2 * np.pi * rows) + ((y - sum(means)) ** 2 + spread) / rows
    )
    divergence = 0.0
    for prior, covariance, mean in zip(priors, covariances, means, strict=True):
        # log|K| − log|V| = log|I + K W|; tr(K⁻¹ V) = n − tr(W V)
        log_ratio = np.linalg.slogdet(np.eye(n) + prior / rows)[1]
        trace = n - np.sum(np.diag(covariance) / rows)
        divergence += 0.5 * (trace + mean @ alpha - n + log_ratio)
    return expected_log_likelihood - divergence


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_bound_is_the_variational_one(correlation, noise):
    X, y, weight, equations = problem(correlation=correlation)
    kernels = [Matern52(0.8, 1.0), Matern32(1.5, 0.5), Matern52(3.0, 0.1)]
    state = expectation(equations, kernels, noise, solve)
    expected = dense_bound(X, y, weight, kernels, noise)
    assert state.bound == pytest.approx(expected, abs=1e-6)
    # and it is a lower bound on the log marginal likelihood
    covariance = sum(k.covariance(x) for k, x in zip(kernels, X.T, strict=True))
    covariance += np.diag(noise / weight)
    exact = -0.5 * (
        y @ np.linalg.solve(covariance, y)
        + np.linalg.slogdet(covariance)[1]
        + len(y) * np.log(2 * np.pi)
    )
    assert state.bound <= exact


def test_bound_of_one_term_is_the_exact_log_marginal_likelihood():
    _, y, weight, equations = problem(n_terms=2)
    table = equations.table
    single = RowTable(table.names[:1], table.cells[:1], table.codes[:1])
    equations = RowEquations.of(single, y, weight)
    state = expectation(equations, [Matern52(0.8, 1.0)], 0.1, solve)
    seen = Observations.from_rows(single.codes[0], len(single.cells[0]), y, weight / 0.1)
    exact = single.cells[0].log_marginal_likelihood(Matern52(0.8, 1.0), seen)
    assert state.bound == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_recorded_bound_never_falls(solver, correlation):
    _, y, weight, equations = problem(n=300, correlation=correlation)
    searches = searches_of(equations, [Matern52()] * 3)

    def rough(system, start):
        return SOLVERS[solver](system, tol=1e-2, max_iter=20, start=start)

    learned = vbem(
        equations,
        searches,
        0.5,
        rough,
        noise_bounds=(1e-8, 1e2),
        tol=1e-9,
        max_iter=25,
    )
    gains = np.diff(learned.trace)
    assert len(gains) > 2
    # Rounding of a sum of this size is all that may be missing.
    assert gains.min() >= -1e-12 * np.abs(learned.trace).max()


def test_learned_hyperparameters_are_a_stationary_point_of_the_dense_bound():
    X, y, weight, equations = problem(n=120, digits=2)
    searches = searches_of(equations, [Matern52()] * 3)
    learned = vbem(
        equations,
        searches,
        0.1,
        solve,
        noise_bounds=(1e-8, 1e2),
        tol=1e-8,
        max_iter=300,
    )
    assert learned.converged

    def bound(term, lengthscale=1.0, variance=1.0, noise=1.0):
        kernels = list(learned.kernels)
        if term is not None:
            kernel = kernels[term]
            kernels[term] = kernel.with_parameters(
                lengthscale=kernel.lengthscale * lengthscale, variance=kernel.variance * variance
            )
        return dense_bound(X, y, weight, kernels, learned.noise_variance * noise)

    best = bound(None)
    assert best == pytest.approx(learned.trace[-1], abs=1e-5)
    for factor in (0.9, 1.1):
        assert bound(None, noise=factor) < best
        for term in (0, 1):  # the third term is irrelevant: its lengthscale may be at its bound
            assert bound(term, lengthscale=factor) < best
            assert bound(term, variance=factor) < best


def test_fixed_parameters_stay():
    _, y, weight, equations = problem()
    kernels = [
        Matern52(lengthscale=0.8, variance=1.0, fixed=("lengthscale", "variance")),
        Matern52(lengthscale=0.6, fixed="lengthscale"),
        Matern52(),
    ]
    searches = searches_of(equations, kernels)
    learned = vbem(
        equations,
        searches,
        0.07,
        solve,
        noise_bounds=(0.07, 0.07),
        tol=1e-3,
        max_iter=20,
    )
    assert learned.kernels[0].lengthscale == 0.8
    assert learned.kernels[0].variance == 1.0
    assert learned.kernels[1].lengthscale == 0.6
    assert learned.kernels[1].variance != searches[1].start.variance
    assert learned.noise_variance == 0.07


def test_a_search_starts_from_the_bulk_of_the_rows():
    points = np.concatenate([np.linspace(0, 1, 100), [1e9]])
    axis = Axis(points)
    search = search_for(Matern52(), axis, np.ones(101), 4)
    assert 5 < search.start.lengthscale < 10
    assert 0.3 < search.others[0].lengthscale < 0.5
    assert search.start.variance == 0.25
    given_far_out = search_for(Matern52(lengthscale=1e-9), axis, np.ones(101), 4)
    assert given_far_out.start.lengthscale == 1e-9
    assert np.exp(given_far_out.lower[0]) == pytest.approx(1e-9)


def test_maximise_finds_the_best_kernel_of_one_axis():
    rng = np.random.default_rng(0)
    axis = Axis(np.sort(rng.uniform(0, 10, 200)))
    seen = Observations(np.sin(axis.points) + 0.1 * rng.standard_normal(200), np.full(200, 100.0))
    search = search_for(Matern52(), axis, np.ones(200), 1)
    kernel = search.start
    for _ in range(6):
        kernel, posterior = maximise(search, kernel, axis, seen)
    assert abs(posterior.evidence.by_log["lengthscale"]) <= 0.05
    assert abs(posterior.evidence.by_log["variance"]) <= 0.05
    grid = np.exp(np.linspace(-1, 1, 21))
    around = [
        axis.log_marginal_likelihood(
            kernel.with_parameters(lengthscale=kernel.lengthscale * f), seen
        )
        for f in grid
    ]
    assert posterior.evidence.value > max(around) - 1e-3
