"""Joint covariances and samples of the posterior against dense algebra."""

import numpy as np
import pytest

from dsgp.additive import AdditiveSystem
from dsgp.additive.posterior import joint_covariance, joint_samples
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from tests.additive.dense import bins_of, inputs, problem

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)
either = pytest.mark.parametrize("kind", ["rows", "bins"])


def system_of(given, kind):
    own = given.equations if kind == "rows" else bins_of(given.equations)
    return AdditiveSystem(own, given.kernels, given.noise)


def rows_of(given, n):
    """New rows, rows of the data, two of them equal, some of their inputs missing."""
    rows = np.vstack([inputs(n - 4, given.X.shape[1], 0.5, seed=9), given.X[:4]])
    rows[1] = rows[0]
    rows[2, 0] = np.nan
    return rows


def columns(X):
    return [np.ascontiguousarray(x) for x in X.T]


@every_kernel
@either
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_joint_covariance_is_that_of_the_posterior(make, kind, missing):
    given = problem(200, 0.7, 0.05, make, digits=1, missing=missing)
    rows = rows_of(given, 70)  # more than are solved at once
    found, converged = joint_covariance(
        system_of(given, kind), columns(rows), tol=1e-7, max_iter=2000
    )
    assert converged
    prior = sum(kernel.variance for kernel in given.kernels)
    np.testing.assert_allclose(found, given.covariance(rows), atol=1e-6 * prior)
    np.testing.assert_array_equal(found, found.T)


def test_a_covariance_that_did_not_converge_says_so():
    given = problem(200, 0.7, 0.05)
    _, converged = joint_covariance(given.system, columns(rows_of(given, 9)), tol=1e-9, max_iter=1)
    assert not converged


def draw(given, kind, rows, n_samples, seed=0):
    system = system_of(given, kind)
    return joint_samples(
        system,
        system.information,
        columns(rows),
        n_samples,
        np.random.default_rng(seed),
        tol=1e-5,
        max_iter=500,
    )


@pytest.mark.parametrize("make", [Matern12, Matern52])
@either
def test_samples_have_the_moments_of_the_posterior(make, kind):
    given = problem(60, 0.7, 0.1, make, digits=1, missing=0.1)
    rows = rows_of(given, 8)
    n_samples = 8000
    samples, converged = draw(given, kind, rows, n_samples)
    assert converged
    assert samples.shape == (n_samples, 8)
    mean = given.prior(rows, given.rows) @ given.alpha
    covariance = given.covariance(rows)
    std = np.sqrt(np.diag(covariance))
    assert np.abs((samples.mean(axis=0) - mean) / std).max() < 5 / np.sqrt(n_samples)
    found = np.cov(samples.T)
    # Five standard errors of a variance.
    error = (found - covariance) / np.outer(std, std)
    assert np.abs(error).max() < 5 * np.sqrt(2 / n_samples)
    np.testing.assert_allclose(samples[:, 0], samples[:, 1], atol=1e-9)


@either
def test_the_first_samples_do_not_depend_on_their_number(kind):
    given = problem(100, 0.5, 0.1, digits=1)
    rows = rows_of(given, 10)
    many, _ = draw(given, kind, rows, 130)  # in three batches
    for n_samples in (1, 5, 64, 65):
        few, _ = draw(given, kind, rows, n_samples)
        # Solved together with others to the tolerance, from the same random numbers.
        np.testing.assert_allclose(few, many[:n_samples], atol=1e-4)
    again, _ = draw(given, kind, rows, 130)
    np.testing.assert_array_equal(again, many)
    other, _ = draw(given, kind, rows, 5, seed=1)
    assert np.abs(other - many[:5]).min() > 1e-6


def test_no_row_and_no_sample():
    given = problem(50, 0.5, 0.1, digits=1)
    samples, converged = draw(given, "rows", given.X[:0], 3)
    assert samples.shape == (3, 0)
    assert converged
    samples, _ = draw(given, "rows", given.X[:2], 0)
    assert samples.shape == (0, 2)
