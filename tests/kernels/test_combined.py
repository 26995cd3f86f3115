"""Sums, products, rational quadratic, effects and users' own covariances."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from dsgp.errors import ParameterError
from dsgp.kernels import (
    REGISTRY,
    Constant,
    Custom,
    Independent,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
    from_settings,
    kernel_of,
)

X = np.array([0.0, 0.3, 1.0, 2.5, 7.0])


def test_they_are_those_of_scikit_learn():
    column = X[:, None]
    rational = RationalQuadratic(1.3, 2.0, alpha=0.7)
    np.testing.assert_allclose(
        rational.covariance(X), 2.0 * sk.RationalQuadratic(1.3, 0.7)(column), rtol=1e-12
    )
    total = SquaredExponential(1.3, 2.0) + Matern32(0.5, 0.2)
    expected = 2.0 * sk.RBF(1.3)(column) + 0.2 * sk.Matern(0.5, nu=1.5)(column)
    np.testing.assert_allclose(total.covariance(X), expected, rtol=1e-12)
    product = Periodic(3.0, 0.6, 2.0) * Matern52(4.0)
    wave = sk.ExpSineSquared(2 * np.pi * 0.6 / 3.0, 3.0)
    expected = 2.0 * wave(column) * sk.Matern(4.0, nu=2.5)(column)
    np.testing.assert_allclose(product.covariance(X), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        RationalQuadratic(1.3, 2.0, alpha=0.7),
        SquaredExponential(1.3, 2.0) + Matern32(0.5, 0.2) + Matern12(9.0, 0.1),
        Periodic(3.0, 0.6, 2.0) * Matern52(4.0) * Matern12(2.0),
        (Matern12(1.0, 2.0) + Matern52(3.0, 1.0)) * Periodic(2.0, 1.0),
        Independent(0.7),
        Constant(0.7),
    ],
)
def test_parameters_derivatives_and_settings(kernel):
    for name in kernel.parameters:
        value, step = kernel.value(name), 1e-6
        up, down = (
            kernel.with_parameters(**{name: value * np.exp(s)}).covariance(X) for s in (step, -step)
        )
        np.testing.assert_allclose(kernel.by_log(name, X), (up - down) / (2 * step), atol=1e-8)
    assert from_settings(kernel.to_settings()) == kernel
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(kernel.covariance(X)))
    assert kernel.std**2 == pytest.approx(np.diag(kernel.covariance(X)).max())
    np.testing.assert_allclose(kernel.scaled(3.0).covariance(X), 9 * kernel.covariance(X))
    assert REGISTRY[type(kernel).__name__] is type(kernel)


def test_sums_and_products_join_and_report_what_is_missing():
    total = Matern12() + Matern32() + Matern52()
    assert len(total.parts) == 3
    assert total.missing == total.parameters
    product = Matern12(1.0) * (Matern32(2.0) + Matern52(3.0))
    assert isinstance(product, Product)
    assert (
        repr(Matern12(1.0) + Matern52(3.0)) == "Matern12(lengthscale=1) + Matern52(lengthscale=3)"
    )
    kept = Matern12(1.0, fixed="lengthscale") + Matern32()
    assert kept.fixed == ("lengthscale_1",)
    assert kept.free == ("variance_1", "lengthscale_2", "variance_2")
    with pytest.raises(ParameterError, match="two kernels at least"):
        Sum((Matern12(),))
    with pytest.raises(ParameterError, match=r"must be one of dsgp\.kernels"):
        Matern12() + 3.0


class Line:
    def covariance(self, x, y):
        return np.outer(x, y)


class Wrong:
    def __init__(self, values):
        self.values = values

    def covariance(self, x, y):
        return self.values(x, y)


def test_an_object_with_a_covariance_becomes_a_kernel():
    kernel = kernel_of(Line()).with_parameters(variance=2.0)
    np.testing.assert_allclose(kernel.covariance(X), 2 * np.outer(X, X))
    np.testing.assert_allclose(kernel.diagonal(np.arange(200.0)), 2 * np.arange(200.0) ** 2)
    assert isinstance(kernel + Matern12(), Sum)
    with pytest.raises(ParameterError, match="code, which a store cannot hold"):
        kernel.to_settings()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda x, y: np.ones(len(x)), "must return finite numbers of shape"),
        (lambda x, y: np.full((len(x), len(y)), np.nan), "must return finite numbers"),
        (lambda x, y: x[:, None] - y[None, :], "is not a covariance function"),
        (lambda x, y: -np.outer(x, y), "is not a covariance function"),
    ],
)
def test_what_an_object_must_return(values, message):
    with pytest.raises(ParameterError, match=message):
        Custom(Wrong(values))


@pytest.mark.parametrize("given", [3.0, "Matern52", Matern52, None, object()])
def test_what_is_no_kernel(given):
    with pytest.raises(ParameterError, match=r"a kernel must be one of dsgp\.kernels"):
        kernel_of(given)
