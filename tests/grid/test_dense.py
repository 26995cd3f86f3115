"""The dense system against matrices built from formulas."""

import tracemalloc

import numpy as np
import pytest

from dsgp.grid import dense as module
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.kernels import Matern32, SquaredExponential
from tests.grid.dense import CASES, close, covariance_of, elsewhere, gaps, problem


def system_of(dense):
    prior = SeparableSum(tuple(dense.points), tuple(dense.terms))
    return DenseSystem(prior, dense.observed, dense.noise)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_everything_is_that_of_the_matrix(name, missing):
    dense, y = problem(name, missing)
    system = system_of(dense)
    hidden = np.where(dense.observed, y, np.nan)  # missing cells are not read
    close(system.dual(hidden), dense.dual(y))
    evidence = system.evidence(hidden)
    lengthscales, amplitudes, noise = dense.gradient(y)
    close(evidence.value, dense.log_likelihood(y))
    close(evidence.by_log_lengthscale, lengthscales)
    close(evidence.by_log_variance, amplitudes)
    close(evidence.by_log_noise, noise)

    mean, variance = system.posterior(hidden)
    dense_mean, covariance = dense.posterior(y)
    close(mean, dense_mean)
    close(variance.ravel(), np.diag(covariance))
    close(covariance_of(system.deviation), covariance)

    new = elsewhere(dense.points)
    mean, variance = system.posterior(hidden, new)
    dense_mean, covariance = dense.posterior(y, new)
    close(mean, dense_mean)
    close(variance.ravel(), np.diag(covariance))


def test_targets_are_taken_where_asked_for_and_in_blocks(monkeypatch):
    dense, y = problem("two dims")
    system = system_of(dense)
    everywhere = system.posterior(y)
    monkeypatch.setattr(module, "_TARGETS", 7)
    where = gaps(dense.shape, seed=5)
    for found, expected in zip(system.posterior(y, where=where), everywhere, strict=True):
        close(found, np.where(where, expected, np.nan), 1e-12)


def test_a_few_cells_of_a_long_axis_take_no_matrix_of_it():
    points = (np.arange(200_000.0),)
    prior = SeparableSum(points, ((Matern32(10.0, 1.0),),))
    observed = np.zeros(200_000, bool)
    observed[1000:1100] = True
    observed[-1] = True
    y = np.where(observed, 1.0, np.nan)
    tracemalloc.start()
    system = DenseSystem(prior, observed, 0.1)
    system.evidence(y)
    where = np.zeros(200_000, bool)
    where[[1050, 150_000]] = True
    mean, variance = system.posterior(y, where=where)
    deviation = system.deviation(np.random.default_rng(0))
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()
    assert deviation.shape == (200_000,)
    assert mean[1050] == pytest.approx(1.0, abs=0.05)
    assert abs(mean[150_000]) < 1e-12
    assert variance[150_000] == pytest.approx(1.0)


@pytest.mark.parametrize("noise", [1e-15, 1e-30])
def test_a_smooth_kernel_with_next_to_no_noise_interpolates(noise):
    x = np.arange(25.0)
    kernel = SquaredExponential(8.0, 1.0)
    truth = np.sin(x / 8)[:, None] * np.cos(x / 9)
    observed = gaps((25, 25))
    system = DenseSystem(SeparableSum((x, x), ((kernel, kernel),)), observed, noise)
    mean, variance = system.posterior(np.where(observed, truth, np.nan))
    assert np.abs(mean - truth)[4:, 4:].max() < 1e-3
    assert (variance >= 0).all()
    assert variance[observed].max() < 1e-6
    assert np.isfinite(system.evidence(np.where(observed, truth, np.nan)).value)
