"""The informative vector machine against dense moments, naive entropies, finite differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal, norm

from pipelines.peers.gp import Ivm
from pipelines.peers.gp.ivm import (
    InformativeVectorMachine,
    SquaredExponential,
    entropy_reduction,
    log_likelihood,
    select,
    slopes,
)


@pytest.fixture
def problem():
    """Two columns, of which the first says the class but for noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(25) > 0, 1.0, -1.0)
    return SquaredExponential(np.array([1.2, 2.0]), 2.5, 0.4), X, y


def dense_site(mean, covariance, row, y):
    """Posterior moments after the row's likelihood, its own moments by quadrature."""
    m, v = mean[row], covariance[row, row]

    # The trapezoidal rule of a smooth function that vanishes at both ends is exact to rounding.
    f = m + np.sqrt(v) * np.linspace(-12, 12, 2001)
    density = norm.cdf(y[row] * f) * norm.pdf(f, m, np.sqrt(v))
    z, first, second = (np.trapezoid(f**power * density, f) for power in range(3))
    tilted, spread = first / z, second / z - (first / z) ** 2
    s = covariance[:, row]
    return (
        mean + s * (tilted - m) / v,
        covariance - np.outer(s, s) * (v - spread) / v**2,
    )


def test_all_rows_active_is_assumed_density_filtering(problem):
    kernel, X, y = problem
    sites, posterior = select(kernel, X, y, size=len(X))
    assert sorted(sites.rows) == list(range(len(X)))
    mean, covariance = np.zeros(len(X)), kernel(X, X)
    for row in sites.rows:
        mean, covariance = dense_site(mean, covariance, row, y)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-7)
    factor = posterior.factor
    np.testing.assert_allclose(kernel(X, X) - factor.T @ factor, covariance, atol=1e-8)


def test_each_row_that_enters_reduces_the_entropy_most(problem):
    kernel, X, y = problem
    sites, _ = select(kernel, X, y, size=6)
    mean, covariance = np.zeros(len(X)), kernel(X, X) + 1e-10 * np.eye(len(X))
    for k, row in enumerate(sites.rows):
        before = np.linalg.slogdet(covariance)[1]
        gains = {
            i: 0.5 * (before - np.linalg.slogdet(dense_site(mean, covariance, i, y)[1])[1])
            for i in range(len(X))
            if i not in sites.rows[:k]
        }
        assert gains[row] == pytest.approx(max(gains.values()), rel=1e-6)
        g, nu = slopes(y, mean, np.diag(covariance))
        fast = entropy_reduction(np.diag(covariance), nu)
        np.testing.assert_allclose(fast[list(gains)], list(gains.values()), rtol=1e-5)
        mean, covariance = dense_site(mean, covariance, row, y)


def test_sites_give_the_posterior_that_selection_has(problem):
    kernel, X, y = problem
    sites, posterior = select(kernel, X, y, size=10)
    machine = InformativeVectorMachine(kernel, X[sites.rows], sites, 0.0, 0)
    mean, variance = machine.function(X)
    np.testing.assert_allclose(mean, posterior.mean, rtol=1e-8)
    np.testing.assert_allclose(variance, posterior.variance, rtol=1e-8)
    gain = np.linalg.solve(
        kernel(X[sites.rows], X[sites.rows]) + np.diag(1 / sites.precisions),
        kernel(X[sites.rows], X),
    )
    np.testing.assert_allclose(mean, gain.T @ sites.means, rtol=1e-8)


def test_slopes_are_derivatives_of_the_log_evidence():
    mean, variance = np.array([-3.0, 0.2, 5.0]), np.array([0.5, 2.0, 9.0])
    y = np.array([1.0, -1.0, 1.0])

    def log_z(m, v):
        return norm.logcdf(y * m / np.sqrt(1 + v))

    h = 1e-4
    by_mean = (log_z(mean + h, variance) - log_z(mean - h, variance)) / (2 * h)
    by_variance = (log_z(mean, variance + h) - log_z(mean, variance - h)) / (2 * h)
    g, nu = slopes(y, mean, variance)
    np.testing.assert_allclose(g, by_mean, rtol=1e-6)
    np.testing.assert_allclose(nu, g**2 - 2 * by_variance, rtol=1e-5)


def test_slopes_far_in_the_tail_are_finite():
    g, nu = slopes(np.array([1.0, 1.0]), np.array([-200.0, 200.0]), np.array([0.01, 0.01]))
    assert np.isfinite([g, nu]).all()
    # Of a Gaussian tail: the truncated normal's hazard is −u + 1 / (−u), and ν is nearly c².
    assert nu[0] == pytest.approx(1 / 1.01, rel=1e-3)


@pytest.mark.parametrize("lengthscales", [[0.7, 1.5], [1.1]])
def test_likelihood_of_sites_and_its_gradient(problem, lengthscales):
    kernel, X, y = problem
    kernel = SquaredExponential(np.array(lengthscales), 2.5, 0.4)
    sites, _ = select(kernel, X, y, size=10)
    active = X[sites.rows]

    def value(logarithms):
        trial = SquaredExponential.of_logarithms(logarithms)
        C = trial(active, active) + np.diag(1 / sites.precisions)
        return multivariate_normal(np.zeros(len(C)), C).logpdf(sites.means)

    found, gradient = log_likelihood(kernel, active, sites.means, sites.precisions)
    assert found == pytest.approx(value(kernel.logarithms), rel=1e-9)
    numeric = approx_fprime(kernel.logarithms, value, 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learn_on", ["selected", "random"])
def test_classes_that_a_curve_divides(learn_on):
    rng = np.random.default_rng(1)
    X, X_test = rng.uniform(-2, 2, (600, 2)), rng.uniform(-2, 2, (500, 2))
    y, y_test = (((Z**2).sum(axis=1) > 2.0).astype(float) for Z in (X, X_test))
    machine = Ivm(size=80, learn_on=learn_on)
    fit = machine.fit_predict(X, y, X_test)
    assert np.mean((fit.mean > 0.5) != y_test) < 0.06
    assert fit.std is None
    assert fit.details["size"] == 80
    np.testing.assert_array_equal(machine.fit_predict(X, y, X_test).mean, fit.mean)
