"""Gaps and noise per cell by conjugate gradients against dense algebra."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import ConvergenceWarning
from dsgp.grid import covariance, missing
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.missing import CellSystem, conjugate_gradients
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from tests.grid.dense import CASES, Dense, close, covariance_of, elsewhere, gaps, problem, uneven


@pytest.fixture
def all_candidates(monkeypatch):
    """Local variances may be given all cells."""
    monkeypatch.setattr(missing, "_CANDIDATES", 10**4)


def system_of(dense, **options):
    prior = SeparableSum(tuple(dense.points), tuple(dense.terms))
    return CellSystem(prior, dense.observed, dense.noise, **{"tol": 1e-12} | options)


def check(dense, y, tolerance=1e-8, **options):
    """Mean, its solve, likelihood and variances, at the cells and elsewhere."""
    system = system_of(dense, **options)
    hidden = np.where(dense.observed, y, np.nan)
    done = system.dual(hidden)
    assert done.converged
    order = np.argsort(system.cells.flat)
    close(done.solution[order], dense.dual(y), tolerance)
    new = elsewhere(dense.points)
    for points in (None, new):
        mean, covariance = dense.posterior(y, points)
        exact = np.diag(covariance).reshape(mean.shape)
        close(system.mean(done.solution, points), mean, tolerance)
        local = system.local_variance(points)
        assert local.shape == exact.shape
        assert (local >= exact - tolerance * exact.max()).all()
        assert (local <= dense.prior[0, 0] * (1 + 1e-12)).all()
    return system


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_means_are_exact_and_local_variances_upper_bounds(name, missing):
    dense, y = problem(name, missing)
    check(dense, y, n_neighbours=6)


@pytest.mark.usefixtures("all_candidates")
@pytest.mark.parametrize("name", CASES)
def test_with_all_neighbours_likelihoods_and_variances_are_exact(name):
    dense, y = problem(name)
    system = system_of(dense, n_neighbours=10**4)
    evidence = system.evidence(y)
    lengthscales, amplitudes, noise = dense.gradient(y)
    close(evidence.value, dense.log_likelihood(y))
    close(evidence.by_log_lengthscale, lengthscales)
    close(evidence.by_log_variance, amplitudes)
    close(evidence.by_log_noise, noise)
    close(system.local_variance(), dense.variance())
    new = elsewhere(dense.points)
    close(system.local_variance(new), dense.variance(new))
    assert system.dual(y).iterations <= 2


@pytest.mark.parametrize("name", ["one dim", "two dims, round a circle, two scales"])
def test_draws_have_the_moments_of_the_posterior(name):
    dense, _ = problem(name)
    system = system_of(dense)
    close(covariance_of(system.deviation), dense.posterior()[1])


@pytest.mark.usefixtures("all_candidates")
def test_long_axes_change_nothing(monkeypatch):
    monkeypatch.setattr(covariance, "LONG", 5)
    points = [uneven(7, 0, 3), np.array([0.0, 1.0]), np.linspace(0, 1, 6)]
    terms = [
        (Matern32(0.9, 1.5), Matern72(1.0, 1.0), Matern52(0.8, 1.0)),
        (Matern12(0.2, 0.3), Matern32(2.0, 1.0), Matern12(0.3, 0.5)),
    ]
    random = np.random.default_rng(0)
    shape = (7, 2, 6)
    dense = Dense(points, terms, random.uniform(0.05, 0.2, shape), gaps(shape))
    y = random.standard_normal(shape)
    check(dense, y, n_neighbours=6)
    exact = system_of(dense, n_neighbours=1000)
    close(exact.local_variance(), dense.variance())
    close(exact.local_variance(elsewhere(points)), dense.variance(elsewhere(points)))
    close(exact.evidence(y).by_log_lengthscale, dense.gradient(y)[0])
    line = Dense([points[0]], [(Matern72(0.9, 1.5),), (Matern12(0.2, 0.3),)], 0.1, gaps((7,)))
    close(covariance_of(system_of(line).deviation), line.posterior()[1])


def test_variances_at_a_place_are_exact_to_what_is_left_to_gain(monkeypatch):
    dense, _ = problem("two dims", noise=0.05)
    system = system_of(dense)
    place = [0.33, 6.1]
    exact = dense.variance([np.array([own]) for own in place])[0, 0]
    rough = system.variance_at(place)
    assert exact * (1 - 1e-9) <= rough <= exact * 1.01
    monkeypatch.setattr(missing, "_PROBE", 1e-13)
    assert system.variance_at(place) == pytest.approx(exact, rel=1e-8)
    assert system.variance_at([1e6, 1e6]) == pytest.approx(dense.prior[0, 0], rel=1e-14)


def test_variances_are_taken_where_asked_for_and_in_blocks(monkeypatch):
    dense, _ = problem("two dims")
    system = system_of(dense, n_neighbours=5)
    everywhere = system.local_variance()
    monkeypatch.setattr(missing, "_TARGETS", 7)
    where = gaps(dense.shape, seed=5)
    np.testing.assert_array_equal(
        system.local_variance(where=where), np.where(where, everywhere, np.nan)
    )
    np.testing.assert_array_equal(system.local_variance(), everywhere)


def test_other_grids_at_the_own_points_are_the_own_grid():
    dense, _ = problem("two dims, round a circle, two scales")
    system = system_of(dense, n_neighbours=5)
    np.testing.assert_allclose(
        system.local_variance(dense.points), system.local_variance(), rtol=1e-12
    )


def test_another_prior_on_the_same_cells():
    dense, y = problem("three dims, two scales")
    other = Dense(
        dense.points,
        [(Matern52(1.0, 0.5), Matern32(0.5, 1.0), Matern12(1.0, 1.0))] * 2,
        3.0 * dense.noise,
        dense.observed,
    )
    system = system_of(dense, n_neighbours=10**4)
    before = system.factor
    moved = system.with_prior(SeparableSum(tuple(other.points), tuple(other.terms)), 3.0)
    close(moved.evidence(y).value, other.log_likelihood(y))
    close(moved.dual(y).solution[np.argsort(moved.cells.flat)], other.dual(y))
    assert system.factor is before
    close(system.evidence(y).value, dense.log_likelihood(y))


# ---------------------------------------------------------------------- any grid


@settings(max_examples=25)
@given(data=st.data())
def test_any_small_grid(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), "shape"))
    seed = data.draw(st.integers(0, 10**6), "seed")
    random = np.random.default_rng(seed)
    points = [
        np.linspace(0, 1, n) if data.draw(st.booleans(), "equispaced") else uneven(n, 0, 1, seed)
        for n in shape
    ]
    kinds = st.sampled_from([Matern12, Matern32, Matern52, Matern72])
    amplitude = 10 ** data.draw(st.floats(-8, 8), "amplitude")
    terms = [
        [data.draw(kinds)(10 ** data.draw(st.floats(-2, 1.5), "lengthscale"), 1.0) for _ in shape]
        for _ in range(data.draw(st.integers(1, 2), "terms"))
    ]
    terms = [(own[0].with_parameters(variance=amplitude), *own[1:]) for own in terms]
    noise = amplitude * 10 ** random.uniform(-3, 1, shape)
    observed = gaps(shape, data.draw(st.sampled_from([0.0, 0.3, 0.7]), "share"), seed)
    dense = Dense(points, terms, noise, observed)
    y = np.sqrt(amplitude) * random.standard_normal(shape)
    # Dense algebra loses digits to its condition, and residuals are relative to the data.
    system = check(dense, y, 1e-7, n_neighbours=data.draw(st.integers(1, 8), "neighbours"))
    exact = system_of(dense, n_neighbours=1000)
    close(exact.evidence(y).value, dense.log_likelihood(y))
    assert len(system.cells) == observed.sum()


# ---------------------------------------------------------------------- conjugate gradients


def spd(n=30, condition=1e6, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]
    return (basis * np.geomspace(1, condition, n)) @ basis.T


def test_solutions_and_residuals_are_true():
    matrix, rhs = spd(), np.random.default_rng(1).standard_normal(30)
    done = conjugate_gradients(
        lambda v: matrix @ v, lambda v: v / np.diag(matrix), rhs, tol=1e-9, max_iter=1000
    )
    assert done.converged
    residual = np.linalg.norm(rhs - matrix @ done.solution) / np.linalg.norm(rhs)
    assert done.residual == pytest.approx(residual, rel=1e-6)
    assert done.residual <= 1.1e-9
    close(done.solution, np.linalg.solve(matrix, rhs), 1e-6)


def test_stopping_short_is_warned_of_with_its_residual():
    matrix, rhs = spd(), np.random.default_rng(1).standard_normal(30)
    with pytest.warns(ConvergenceWarning, match=r"after 3 iterations at a relative residual of"):
        done = conjugate_gradients(lambda v: matrix @ v, np.copy, rhs, tol=1e-9, max_iter=3)
    assert not done.converged
    assert done.iterations == 3


def test_a_tolerance_out_of_reach_ends_and_says_so():
    matrix, rhs = spd(condition=1e10), np.random.default_rng(1).standard_normal(30)
    with pytest.warns(ConvergenceWarning):
        done = conjugate_gradients(lambda v: matrix @ v, np.copy, rhs, tol=1e-16, max_iter=10**4)
    assert np.isfinite(done.solution).all()
    assert done.residual < 1e-5


def test_nothing_on_the_right_is_nothing_to_solve():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = conjugate_gradients(np.copy, np.copy, np.zeros(3), tol=1e-6, max_iter=5)
    assert (done.solution.tolist(), done.iterations, done.residual) == ([0, 0, 0], 0, 0.0)
    assert done.converged


def test_threads_and_repetition_change_no_bit(monkeypatch):
    dense, y = problem("three dims, two scales")
    found = []
    for work in (0.0, np.inf):
        monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", work)
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", 4)
        system = system_of(dense, n_neighbours=8)
        random = np.random.default_rng(0)
        found.append((system.dual(y).solution, system.local_variance(), system.deviation(random)))
    for threads, none in zip(*found, strict=True):
        np.testing.assert_array_equal(threads, none)
