"""Every algebra gives the answers of dense matrices, and the choice among them is by size."""

import numpy as np
import pytest

from dsgp.errors import ParameterError
from dsgp.grid import covariance, missing, systems
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.systems import GappySystem, complete_system
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic, SquaredExponential
from tests.grid.dense import (
    CASES,
    Dense,
    UnitNormals,
    close,
    covariance_of,
    elsewhere,
    gaps,
    problem,
    uneven,
)


def gappy(dense, **options):
    prior = SeparableSum(tuple(dense.points), tuple(dense.terms))
    return GappySystem(prior, dense.observed, dense.noise, **{"tol": 1e-12} | options)


@pytest.fixture(autouse=True)
def all_candidates(monkeypatch):
    """Local variances may be given all cells."""
    monkeypatch.setattr(missing, "_CANDIDATES", 10**4)


@pytest.fixture
def iterative(monkeypatch):
    """Nothing is small enough for dense algebra."""
    monkeypatch.setattr(systems, "DENSE_CELLS", 0)


# ---------------------------------------------------------------------- complete


@pytest.mark.parametrize("long", [0, 2])
def test_both_ways_through_a_complete_grid_are_those_of_the_matrix(long):
    points = [uneven(7, 0, 2), np.linspace(0, 300, 6), np.linspace(0, 2, 8)]
    kernels = (Matern32(0.5, 1.3), Periodic(360.0, 90.0, 0.8), Matern52(0.8, 1.1))
    dense = Dense(points, [kernels], 0.2)
    y = np.random.default_rng(0).standard_normal(dense.shape)
    lengthscales, amplitudes, noise = dense.gradient(y)
    new = elsewhere(points)
    for system in (
        KroneckerSystem(points, kernels, 0.2),
        FibreSystem(points, kernels, 0.2, long=long),
    ):
        evidence = system.evidence(y)
        close(evidence.value, dense.log_likelihood(y))
        close(system.log_marginal_likelihood(y), dense.log_likelihood(y))
        close(evidence.by_log_lengthscale, lengthscales[0])
        close(evidence.by_log_variance, amplitudes[0])
        close(evidence.by_log_noise, noise)
        for grid, found in ((None, system.posterior(y)), (new, system.predict(new, y))):
            mean, covariance = dense.posterior(y, grid)
            close(found[0], mean)
            close(found[1].ravel(), np.diag(covariance))


def test_the_choice_between_them_is_by_size_and_kernel(monkeypatch):
    unit, smooth = Matern32(1.0, 1.0), SquaredExponential(1.0, 1.0)
    short, long = np.arange(20.0), np.arange(5000.0)
    assert isinstance(complete_system([short, short], [unit, smooth], 0.1), KroneckerSystem)
    assert isinstance(complete_system([np.array([1.0])], [unit], 0.1), KroneckerSystem)
    for points, kernels, d in (([short, long], [smooth, unit], 1), ([long], [unit], 0)):
        system = complete_system(points, kernels, 0.1)
        assert isinstance(system, FibreSystem)
        assert system.long == d
    with pytest.raises(ParameterError, match=r"axis 1 has 5000 points.*expected a Matérn"):
        complete_system([short, long], [unit, smooth], 0.1)
    monkeypatch.setattr(systems, "LONG", 10)
    assert isinstance(complete_system([short, short], [unit, smooth], 0.1), FibreSystem)


# ---------------------------------------------------------------------- gaps and noise per cell


def check(dense, y, **options):
    system = gappy(dense, **options)
    hidden = np.where(dense.observed, y, 0.0)
    dual, _ = system.solve(hidden)
    expected = np.zeros(dense.shape)
    expected[dense.observed] = dense.dual(y)
    close(dual, expected)
    close(system.log_marginal_likelihood(hidden), dense.log_likelihood(y))
    new = elsewhere(dense.points)
    for points in (None, new):
        mean, covariance = dense.posterior(y, points)
        found = system.posterior(hidden) if points is None else system.predict(points, hidden)
        close(system.mean(dual, points), mean)
        close(found[0], mean)
        close(found[1].ravel(), np.diag(covariance))
        close(system.variance(points).ravel(), np.diag(covariance))
    return system


@pytest.mark.parametrize("name", CASES)
def test_few_cells_are_exact(name):
    system = check(*problem(name))
    assert system.is_dense
    assert system.settle_variance() == ("exact", None)


@pytest.mark.usefixtures("iterative")
@pytest.mark.parametrize("name", CASES)
def test_many_cells_are_exact_given_all_neighbours(name):
    system = check(*problem(name), n_neighbours=10**4)
    assert not system.is_dense
    method, error = system.settle_variance()
    assert method == system.variance_method == "local"
    assert error == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("dense_cells", [0, 1000])
def test_long_axes_change_nothing(dense_cells, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", dense_cells)
    for module in (systems, covariance):
        monkeypatch.setattr(module, "LONG", 5)
    points = [uneven(7, 0, 3), np.array([0.0, 1.0]), np.linspace(0, 1, 6)]
    terms = [
        (Matern32(0.9, 1.5), SquaredExponential(1.0, 1.0), Matern52(0.8, 1.0)),
        (Matern12(0.2, 0.3), Matern32(2.0, 1.0), Matern72(0.3, 0.5)),
    ]
    shape = (7, 2, 6)
    random = np.random.default_rng(0)
    dense = Dense(points, terms, random.uniform(0.05, 0.2, shape), gaps(shape))
    check(dense, random.standard_normal(shape), n_neighbours=10**4)


@pytest.mark.parametrize("dense_cells", [0, 1000])
@pytest.mark.parametrize("name", ["one dim", "two dims, round a circle, two scales"])
def test_draws_have_the_moments_of_the_posterior(name, dense_cells, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", dense_cells)
    dense, y = problem(name)
    system = gappy(dense, n_neighbours=10**4)
    nothing = np.zeros(dense.shape)
    new = [np.append(own[:2], own[-1] + 0.3) for own in dense.points]
    for points in (None, new):
        found = covariance_of(lambda rng, points=points: system.sample(nothing, 1, rng, points))
        close(found, dense.posterior(points=points)[1])
    draws = system.sample(np.where(dense.observed, y, 0.0), 3, np.random.default_rng(0))
    again = system.sample(np.where(dense.observed, y, 0.0), 2, np.random.default_rng(0))
    assert draws.shape == (3, *dense.shape)
    np.testing.assert_array_equal(draws[:2], again)
    # Without a single normal number that is not 0, a draw is the mean.
    draw = system.sample(np.where(dense.observed, y, 0.0), 1, UnitNormals(-1), new)[0]
    close(draw, dense.posterior(y, new)[0])


@pytest.mark.usefixtures("iterative")
def test_local_variances_are_upper_bounds_and_say_by_how_much():
    dense, _ = problem("three dims, two scales")
    exact = dense.variance()
    errors = []
    for n_neighbours in (2, 8, 30):
        system = gappy(dense, n_neighbours=n_neighbours, variance="local")
        local = system.variance()
        assert (local >= exact * (1 - 1e-9)).all()
        excess = np.sqrt(local / exact)[~dense.observed] - 1
        method, error = system.settle_variance()
        assert method == "local"
        errors.append(error)
        assert excess.min() - 1e-4 <= errors[-1] <= excess.max() + 1e-4
    assert errors[0] > errors[2]


@pytest.mark.parametrize("dense_cells", [0, 1000])
def test_variances_from_draws_are_near_the_exact_ones(dense_cells, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", dense_cells)
    dense, _ = problem("two dims")
    system = gappy(dense, variance="draws", n_draws=200)
    method, error = system.settle_variance()
    assert (method, error) == ("draws", pytest.approx(1 / np.sqrt(400)))
    for points in (None, elsewhere(dense.points)):
        ratio = np.sqrt(system.variance(points) / dense.variance(points))
        assert np.abs(ratio - 1).max() < 5 * error
        assert np.mean((ratio - 1) ** 2) < (1.5 * error) ** 2
    np.testing.assert_array_equal(system.variance(), system.variance())


@pytest.mark.parametrize("variance", ["exact", "local", "draws"])
def test_variances_outside_the_domain_are_left_out(variance):
    dense, _ = problem("two dims")
    domain = gaps(dense.shape, seed=9)
    options = {"variance": variance, "n_draws": 3}
    inside, everywhere = (gappy(dense, domain=own, **options) for own in (domain, None))
    close(inside.variance(), np.where(domain, everywhere.variance(), np.nan), 1e-12)
    new = elsewhere(dense.points)
    assert np.isfinite(inside.variance(new)).all()


def test_a_dense_mean_can_have_local_variances():
    dense, _ = problem("two dims")
    system = gappy(dense, variance="local", n_neighbours=3)
    assert system.is_dense
    assert (system.variance() >= dense.variance() * (1 - 1e-9)).all()
    assert system.settle_variance()[1] >= -1e-6


def test_exact_variances_of_many_cells_are_refused(monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", 10)
    dense, _ = problem("two dims")
    n = dense.observed.sum()
    with pytest.raises(ParameterError, match=f"there are {n} of them, more than 10; use 'local'"):
        gappy(dense, variance="exact")


def test_dear_exact_variances_are_not_chosen(monkeypatch):
    monkeypatch.setattr(systems, "_DENSE_WORK", 10.0)
    dense, y = problem("two dims")
    system = gappy(dense)
    assert system.is_dense
    assert system.settle_variance()[0] == "local"
    close(system.posterior(np.where(dense.observed, y, 0.0))[0], dense.posterior(y)[0])


@pytest.mark.usefixtures("iterative")
@pytest.mark.parametrize("allowed", [1e-9, 10.0])
def test_local_variances_far_above_the_exact_ones_are_calibrated(allowed, monkeypatch):
    monkeypatch.setattr(systems, "_LARGEST_EXCESS", allowed)
    dense, _ = problem("three dims, two scales")
    found = gappy(dense, n_neighbours=2, n_draws=4).variance()
    method = "calibrated" if allowed < 1 else "local"
    asked = gappy(dense, n_neighbours=2, n_draws=4, variance=method)
    np.testing.assert_array_equal(found, asked.variance())


@pytest.mark.usefixtures("iterative")
def test_calibrated_variances_are_near_the_exact_ones_where_local_ones_are_far_above():
    # Smooth, and as noisy as it is high: two neighbours cannot average the noise of all.
    axes = (np.arange(20.0), np.arange(24.0))
    kernels = (Matern52(6.0, 1.0), Matern52(7.0, 1.0))
    observed = np.random.default_rng(4).random((20, 24)) < 0.7
    prior = SeparableSum(axes, (kernels,))
    exact = DenseSystem(prior, observed, 1.0).posterior(np.zeros(observed.shape))[1]
    options = {"n_neighbours": 4, "n_draws": 60}
    local = GappySystem(prior, observed, 1.0, variance="local", **options).variance()
    found = GappySystem(prior, observed, 1.0, variance="calibrated", **options).variance()
    assert np.mean(local / exact) > 1.3
    assert (found <= local).all()
    assert np.mean(found / exact) == pytest.approx(1.0, abs=0.1)
    assert np.abs(np.sqrt(found / exact) - 1).max() < 0.3
