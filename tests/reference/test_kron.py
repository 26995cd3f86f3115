"""The paper's Kronecker algebra against products that are formed, and the engine against it."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.grid import products
from dsgp.kernels import Matern12, Matern52, Matern72, SquaredExponential
from dsgp.reference import grid_log_likelihood, kron_mvprod


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_kron_mvprod_is_the_product_with_the_matrix_that_is_formed(sizes, seed):
    rng = np.random.default_rng(seed)
    matrices = [rng.standard_normal((size, size)) for size in sizes]
    b = rng.standard_normal(np.prod(sizes))
    expected = functools.reduce(np.kron, matrices) @ b
    np.testing.assert_allclose(kron_mvprod(matrices, b), expected, atol=1e-10)
    engine = products.kron_mvprod(matrices, b.reshape(sizes))
    np.testing.assert_allclose(engine.ravel(), expected, atol=1e-10)


def field():
    rng = np.random.default_rng(2)
    axes = [np.sort(rng.uniform(0, 3, size)) for size in (4, 3, 5)]
    kernels = [Matern52(0.9, 1.4), Matern12(2.0, 0.8), SquaredExponential(0.5, 1.1)]
    return axes, kernels, rng.standard_normal(60), 0.3


def dense_value(kernels, axes, y, noise):
    K = functools.reduce(np.kron, [k.covariance(x) for k, x in zip(kernels, axes, strict=True)])
    K += noise * np.eye(len(y))
    value = -0.5 * (
        y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(y) * np.log(2 * np.pi)
    )
    return value, np.linalg.solve(K, y)


def test_likelihood_and_weights_are_those_of_the_matrix_that_is_formed():
    axes, kernels, y, noise = field()
    result = grid_log_likelihood(kernels, axes, y, noise)
    value, weights = dense_value(kernels, axes, y, noise)
    assert result.value == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(result.weights, weights, atol=1e-10)


def test_gradient_is_that_of_finite_differences():
    axes, kernels, y, noise = field()
    result = grid_log_likelihood(kernels, axes, y, noise)
    h = 1e-5
    for d, kernel in enumerate(kernels):
        assert set(result.by_log[d]) == {"lengthscale", "variance"}
        for name, slope in result.by_log[d].items():
            values = []
            for sign in (1, -1):
                changed = kernel.with_parameters(**{name: kernel.value(name) * np.exp(sign * h)})
                trial = [*kernels[:d], changed, *kernels[d + 1 :]]
                values.append(dense_value(trial, axes, y, noise)[0])
            assert slope == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-6)
    up, down = (dense_value(kernels, axes, y, noise * np.exp(sign * h))[0] for sign in (1, -1))
    assert result.by_log_noise == pytest.approx((up - down) / (2 * h), abs=1e-6)


def test_the_variances_of_all_axes_are_one_parameter():
    axes, _, y, noise = field()
    kernels = [Matern72(1.0, 2.0), Matern72(1.0, 0.5), Matern72(1.0, 1.0)]
    result = grid_log_likelihood(kernels, axes, y, noise)
    slopes = [gradient["variance"] for gradient in result.by_log]
    np.testing.assert_allclose(slopes, slopes[0], atol=1e-9)
