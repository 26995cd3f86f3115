"""Terms and remainder as one posterior, against dense algebra."""

import numpy as np
import pytest

from dsgp.kernels import Independent, Matern52
from dsgp.remainder import Metric, Precision, RowTerm, solve
from dsgp.terms import BoundTerm

N = 80


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    a, g, z = random.uniform(0, 3, N), random.integers(0, 4, N).astype(float), random.normal(size=N)
    y = 3.0 + np.sin(2 * a) + 0.5 * g + a * z + 0.2 * random.normal(size=N)
    return a, g, z, y, random.uniform(0.5, 2, N)


def bound(name, kernel, family=None):
    term = BoundTerm.of_column(name, kernel)
    return term if family is None else BoundTerm(name, kernel, family, term.value, kind="Levels")


def test_alpha_is_that_of_all_covariances_together(data):
    a, g, z, y, relative = data
    smooth, levels = Matern52(1.4, 0.9), Independent(0.6)
    rest = Metric(3, 0.7, np.array([1.1, 2.3]), 0.04)
    inputs = np.column_stack([a, z])
    terms = [
        RowTerm.of(bound("a", smooth).cells(np.unique(a)), smooth, a),
        RowTerm.of(bound("g", levels, "levels").cells(np.unique(g)), levels, g),
    ]
    precision = Precision.of(inputs, rest, relative, N - 1, seed=3)
    solved = solve(precision, terms, y, tol=1e-10)
    K = smooth.covariance(a, a) + 0.6 * (g[:, None] == g) + rest.covariance(inputs, inputs)
    K += 0.04 * np.diag(relative)
    inverse = np.linalg.inv(K)
    constant = np.sum(inverse @ y) / np.sum(inverse)
    assert solved.converged
    assert solved.constant == pytest.approx(constant, rel=1e-6)
    np.testing.assert_allclose(solved.alpha, inverse @ (y - constant), rtol=1e-5, atol=1e-6)


def test_rows_take_the_nearest_cell_and_none_where_the_input_is_missing(data):
    a = np.array([0.1, 0.9, np.nan, 2.2])
    kernel = Matern52(1.0, 1.0)
    term = RowTerm.of(bound("a", kernel).cells(np.array([0.0, 1.0, 2.0])), kernel, a)
    np.testing.assert_array_equal(term.codes, [0, 1, 3, 2])
    np.testing.assert_array_equal(term.dual(np.array([1.0, 2.0, 4.0, 8.0])), [1.0, 2.0, 8.0])
    assert term.product(np.ones(4))[2] == 0.0


def test_without_terms_the_constant_is_by_generalised_least_squares(data):
    a, _, z, y, relative = data
    inputs, rest = np.column_stack([a, z]), Metric(1, 2.0, np.array([1.0, 1.0]), 0.1)
    solved = solve(Precision.of(inputs, rest, relative, N - 1, seed=0), [], y)
    inverse = np.linalg.inv(rest.covariance(inputs, inputs) + 0.1 * np.diag(relative))
    constant = np.sum(inverse @ y) / np.sum(inverse)
    assert solved.constant == pytest.approx(constant, rel=1e-8)
    np.testing.assert_allclose(solved.alpha, inverse @ (y - constant), atol=1e-8)
