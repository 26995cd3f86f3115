"""What holds for every kernel: derivatives, values, settings, checks."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from dsgp.errors import ParameterError
from dsgp.estimators import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.kernels import (
    DampedOscillation,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    SquaredExponential,
    from_settings,
)

KERNELS = [
    Matern12(0.8, 2.5),
    Matern32(0.8, 2.5),
    Matern52(0.8, 2.5, fixed="variance"),
    Matern72(0.8, 2.5),
    SquaredExponential(0.8, 2.5, fixed=("lengthscale",)),
    Periodic(7.0, 0.8, 2.5),
    Periodic(7.0, 0.8, 2.5, smoothness=1.5, fixed="lengthscale"),
    DampedOscillation(7.0, 0.8, 2.5),
    DampedOscillation(0.3, 0.8, 2.5, fixed="lengthscale"),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@every_kernel
def test_the_derivative_by_the_lengthscale_against_finite_differences(kernel):
    x, y = np.array([0.0, 0.3, 1.0, 30.0]), np.array([0.1, 0.3, -2.0])
    step = 1e-6
    above = kernel.with_parameters(lengthscale=0.8 * np.exp(step)).covariance(x, y)
    below = kernel.with_parameters(lengthscale=0.8 * np.exp(-step)).covariance(x, y)
    found = kernel.by_log_lengthscale(x, y)
    np.testing.assert_allclose(found, (above - below) / (2 * step), atol=1e-8)


@every_kernel
def test_covariances_are_symmetric_scaled_and_positive(kernel):
    x = np.random.default_rng(1).uniform(-20, 20, 60)
    covariance = kernel.covariance(x)
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_array_equal(np.diag(covariance), np.full(60, 2.5))
    assert np.linalg.eigvalsh(covariance).min() > -1e-12
    double = kernel.with_parameters(variance=5.0).covariance(x)
    np.testing.assert_allclose(double, 2 * covariance, rtol=1e-15, atol=1e-300)
    assert kernel.std == pytest.approx(2.5**0.5)


@every_kernel
def test_inputs_are_left_as_they_were(kernel):
    x, y = np.array([0.5, 2.0, -9.0]), np.array([1.0, 3.0])
    kernel.covariance(x, y)
    kernel.by_log_lengthscale(x, y)
    assert x.tolist() == [0.5, 2.0, -9.0]
    assert y.tolist() == [1.0, 3.0]


@every_kernel
def test_settings_travel_through_json(kernel):
    text = json.dumps(kernel.to_settings(), allow_nan=False)
    assert from_settings(json.loads(text)) == kernel
    incomplete = kernel.with_parameters(variance=None) if not kernel.fixed else kernel
    assert from_settings(incomplete.to_settings()) == incomplete


@every_kernel
def test_kernels_are_values(kernel):
    assert clone(kernel, safe=False) == kernel
    assert hash(clone(kernel, safe=False)) == hash(kernel)
    assert eval(repr(kernel)) == kernel


def test_a_matern_kernel_keeps_the_settings_of_stores_already_written():
    kernel = Matern32(2.0, fixed="lengthscale")
    assert kernel.to_settings() == {
        "type": "Matern32",
        "lengthscale": 2.0,
        "variance": None,
        "fixed": ["lengthscale"],
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "os.system"}, "kernel 'os.system' that this release does not have"),
        ({"type": "Matern"}, "does not have"),
        ({"type": "from_settings"}, "does not have"),
        ({"type": ["Matern32"]}, "does not have"),
        ({}, "kernel None"),
        ({"type": "Matern32", "period": 3.0}, "do not fit it.*period"),
        ({"type": "Periodic", "lengthscale": 3.0}, "do not fit it.*period"),
        ({"type": "Matern32", "lengthscale": -3.0}, "lengthscale must be a number"),
    ],
)
def test_settings_make_only_the_kernels_of_the_library(settings, message):
    with pytest.raises(ParameterError, match=message):
        from_settings(settings)


@pytest.mark.parametrize("make", [SquaredExponential, lambda *a, **k: Periodic(1.0, *a, **k)])
def test_parameters_are_checked_and_named(make):
    for value in ("a", True, -1.0, 0.0, 1e300, np.inf, np.nan):
        with pytest.raises(ParameterError, match="lengthscale must be a number"):
            make(lengthscale=value)
    with pytest.raises(ParameterError, match="fixed names 'period'"):
        make(fixed=("period",))
    with pytest.raises(ParameterError, match="no variance yet"):
        make(1.0).covariance([0.0])


def test_the_base_is_not_a_kernel():
    with pytest.raises(TypeError, match="abstract"):
        Kernel()


def test_kernels_without_a_state_space_form_are_refused_where_a_model_needs_it():
    X, y = np.eye(4), np.arange(4.0)
    with pytest.raises(ParameterError, match=r"Matern32\(\), .*got SquaredExponential"):
        ProjectionPursuitGPRegressor(kernel=SquaredExponential()).fit(X, y)
    with pytest.raises(ParameterError, match=r"\['a'\], which are not among the columns"):
        AdditiveGPRegressor(terms={"a": Periodic(1.0)}).fit(X, y)
