"""Variances of the posterior against dense algebra."""

import numpy as np
import pytest

from dsgp.additive.variance import EXACT_ROWS, CoupledCovariance, DenseCovariance, covariance_of
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from tests.additive.dense import inputs, problem

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)
each_correlation = pytest.mark.parametrize("correlation", [0.0, 0.9])


def new_rows(n, n_terms, correlation):
    """Rows like those of the problem, at its own points and beyond."""
    X = inputs(n, n_terms, correlation, seed=77)
    X[0] = 20.0
    return X


def columns(X):
    return [np.ascontiguousarray(x) for x in X.T]


@every_kernel
@each_correlation
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_dense_variances_are_those_of_the_posterior(make, correlation, missing):
    given = problem(200, correlation, 0.05, make, missing=missing)
    given.weight[::5] = 0.0
    given.__post_init__()
    found = DenseCovariance.of(given.system, given.equations)
    rows = np.vstack([given.X[:40], new_rows(40, 3, correlation)])
    rows[3, 1] = rows[50, 0] = np.nan
    exact = np.diag(given.covariance(rows))
    np.testing.assert_allclose(found.variance(columns(rows)), exact, rtol=1e-7, atol=1e-9)
    for term in range(3):
        x = rows[np.isfinite(rows[:, term]), term]
        exact = given.centred_variance(term, x)
        np.testing.assert_allclose(found.centred_variance(term, x), exact, rtol=1e-7, atol=1e-9)


@each_correlation
def test_up_to_a_thousand_rows_variances_of_the_roughest_kernel_are_dense(correlation):
    given = problem(1000, correlation, 0.01, Matern12, n_terms=4)
    found = covariance_of(given.system)
    rows = new_rows(100, 4, correlation)
    exact = np.diag(given.covariance(rows))
    np.testing.assert_allclose(found.variance(columns(rows)), exact, rtol=0.01)
    for term in range(4):
        exact = given.centred_variance(term, rows[:, term])
        np.testing.assert_allclose(found.centred_variance(term, rows[:, term]), exact, rtol=0.01)


def coupled_ratios(n, correlation, make):
    """Approximate to exact variances, of the sum and of all centred components."""
    given = problem(n, correlation, 0.01, make, n_terms=4)
    found = CoupledCovariance.of(given.system)
    rows = new_rows(400, 4, correlation)[1:]
    of_sum = found.variance(columns(rows)) / np.diag(given.covariance(rows))
    of_terms = [
        found.centred_variance(term, rows[:, term]) / given.centred_variance(term, rows[:, term])
        for term in range(4)
    ]
    return of_sum, of_terms


@each_correlation
@pytest.mark.parametrize("make", [Matern32, Matern52, Matern72])
def test_variances_are_dense_while_rows_are_few_and_near_it_beyond(make, correlation):
    few = EXACT_ROWS[make().order]
    given = problem(few, correlation, 0.01, make, n_terms=4)
    assert covariance_of(given.system).name.startswith("exact")
    given = problem(few + 1, correlation, 0.01, make, n_terms=4)
    assert covariance_of(given.system).name.startswith("smoothers")
    of_sum, of_terms = coupled_ratios(few + 1, correlation, make)
    for ratios in (of_sum, np.concatenate(of_terms)):
        low, high = np.sqrt(np.quantile(ratios, [0.025, 0.975]))
        assert 0.994 < low < high < 1.006


@pytest.mark.parametrize("make", KERNELS[1:])
@each_correlation
def test_coupled_variances_of_smooth_kernels_are_within_three_percent(make, correlation):
    of_sum, of_terms = coupled_ratios(3000, correlation, make)
    for ratio in (of_sum, *of_terms):
        assert np.abs(np.median(ratio) - 1) < 0.04
        assert np.abs(np.quantile(ratio, [0.05, 0.95]) - 1).max() < 0.03


@each_correlation
def test_coupled_variances_of_the_roughest_kernel_are_right_in_the_median(correlation):
    """Its degrees of freedom take up nine tenths of the rows here."""
    of_sum, of_terms = coupled_ratios(4000, correlation, Matern12)
    for ratio in (of_sum, *of_terms):
        assert np.abs(np.median(ratio) - 1) < 0.04


def test_missing_inputs_add_no_variance():
    given = problem(300, 0.5, 0.05, n_terms=3)
    found = CoupledCovariance.of(given.system)
    rows = new_rows(20, 3, 0.5)
    rows[4, 0] = np.nan
    rows[7] = np.nan
    variance = found.variance(columns(rows))
    np.testing.assert_allclose(variance[4], found.variance(columns(rows[4:5]))[0])
    assert variance[7] == 0.0
    exact = np.diag(given.covariance(rows))
    np.testing.assert_allclose(variance[4], exact[4], rtol=0.1)


def test_a_variance_does_not_depend_on_the_other_rows():
    given = problem(300, 0.5, 0.05)
    rows = new_rows(50, 3, 0.5)
    for kind in (
        DenseCovariance.of(given.system, given.equations),
        CoupledCovariance.of(given.system),
    ):
        whole = kind.variance(columns(rows))
        np.testing.assert_allclose(kind.variance(columns(rows[10:11])), whole[10:11], rtol=1e-9)
