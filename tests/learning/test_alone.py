"""One term by itself against all of them, for few rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dsgp.additive import RowEquations
from dsgp.kernels import Matern52
from dsgp.learning.alone import alone
from tests.learning.test_scales import FREE, NOISE, table_of


def rows():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.arange(40.0), rng.uniform(0, 40, (40, 2))])
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(40)
    return X, y - y.mean()


def test_it_begins_with_the_likelihood_of_the_term_alone():
    X, y = rows()
    equations = RowEquations.of(table_of(X), y)
    kernels = [Matern52(100.0, 0.1)] * 3
    options = {"free": [FREE] * 3, "noise_bounds": NOISE}
    start = alone(equations, kernels, 0.5, least=-1e9, **options)
    assert start.terms == [0]
    kernel, noise = start.kernels[0], start.noise_variance
    covariance = kernel.covariance(X[:, 0]) + noise * np.eye(40)
    value = multivariate_normal(np.zeros(40), covariance).logpdf(y)
    # It is kept from two nats below what all terms come to, and not from any lower.
    assert alone(equations, kernels, 0.5, least=value + 1.99, **options) is not None
    assert alone(equations, kernels, 0.5, least=value + 2.01, **options) is None
    assert all(other.variance == pytest.approx(0.01 * noise) for other in start.kernels[1:])


def test_a_variance_that_is_fixed_stays():
    X, y = rows()
    fixed = Matern52(100.0, 0.1, fixed="variance")
    start = alone(
        RowEquations.of(table_of(X), y),
        [Matern52(100.0, 0.1), fixed, Matern52(100.0, 0.1)],
        0.5,
        free=[FREE, ("lengthscale",), FREE],
        noise_bounds=NOISE,
        least=-1e9,
    )
    assert start.terms == [0]
    assert start.kernels[1] == fixed
    assert start.kernels[2].variance < 0.01
