"""Algorithm ``alg:bfgp`` against the joint posterior mean, dense and by the engine."""

import numpy as np
import pytest

from dsgp.additive import AdditiveSystem, RowEquations, backfitting, multigrid
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.reference import backfit
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable

KERNELS = [Matern52(0.8, 1.0), Matern32(1.5, 0.5), Matern12(3.0, 0.4)]


def problem(n=20, correlation=0.2, seed=0):
    """Rows with ties, and a noise variance of each."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 1))
    X = np.sqrt(1 - correlation) * rng.standard_normal((n, 3)) + np.sqrt(correlation) * shared
    X = np.round(X, 1)
    y = np.sin(2 * X).sum(axis=1) + 0.3 * rng.standard_normal(n)
    return X, y - y.mean(), rng.uniform(0.5, 2.0, n)


def dense_means(X, y, noise):
    priors = [kernel.covariance(x) for kernel, x in zip(KERNELS, X.T, strict=True)]
    alpha = np.linalg.solve(sum(priors) + np.diag(noise), y)
    return np.array([prior @ alpha for prior in priors])


def test_means_are_those_of_the_joint_posterior():
    X, y, noise = problem()
    result = backfit(KERNELS, X, y, noise, threshold=1e-8)
    assert result.converged
    assert result.change <= 1e-8
    np.testing.assert_allclose(result.means, dense_means(X, y, noise), atol=1e-6)


def test_the_engine_has_the_same_means():
    X, y, noise = problem()
    axes, codes = zip(*[encode(column) for column in X.T], strict=True)
    table = RowTable(("a", "b", "c"), axes, np.array(codes))
    system = AdditiveSystem(RowEquations.of(table, y, 1 / noise), KERNELS, 1.0)
    exact = multigrid(system, tol=1e-10, max_iter=500)
    result = backfit(KERNELS, X, y, noise, threshold=1e-8)
    for mean, part, code in zip(result.means, table.parts(exact.mean), table.codes, strict=True):
        np.testing.assert_allclose(mean, part[code], atol=1e-6)
    # and it makes the same sweeps
    for sweeps in (1, 3):
        few = backfit(KERNELS, X, y, noise, max_sweeps=sweeps)
        solution = backfitting(system, tol=1e-14, max_iter=sweeps)
        for mean, part, code in zip(
            few.means, table.parts(solution.mean), table.codes, strict=True
        ):
            np.testing.assert_allclose(mean, part[code], atol=1e-9)


def test_it_stops_when_no_mean_changes_by_more_than_the_threshold():
    X, y, noise = problem()
    loose = backfit(KERNELS, X, y, noise, threshold=0.05)
    tight = backfit(KERNELS, X, y, noise, threshold=0.005)
    assert loose.converged
    assert loose.change <= 0.05
    assert loose.sweeps < tight.sweeps
    before = backfit(KERNELS, X, y, noise, threshold=0.05, max_sweeps=loose.sweeps - 1)
    assert not before.converged
    assert before.change > 0.05
    assert np.abs(loose.means - before.means).max() == pytest.approx(loose.change)


def test_one_term_needs_one_sweep():
    X, y, noise = problem()
    result = backfit(KERNELS[:1], X[:, :1], y, noise)
    prior = KERNELS[0].covariance(X[:, 0])
    expected = prior @ np.linalg.solve(prior + np.diag(noise), y)
    np.testing.assert_allclose(result.means[0], expected, atol=1e-9)
    assert result.sweeps == 2  # the second finds no change
