"""Dense and state-space forms of the Matérn kernels, against scipy and against each other."""

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import expm
from scipy.special import gamma, kv
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from dsgp.errors import ParameterError
from dsgp.kernels import LogNormal, Matern, Matern12, Matern32, Matern52, Matern72

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)


@every_kernel
def test_covariance_is_the_general_matern_function(make):
    kernel = make(lengthscale=0.7, variance=2.3)
    distance = np.array([1e-3, 0.1, 0.7, 2.0, 9.0])
    nu = kernel.smoothness
    scaled = np.sqrt(2 * nu) * distance / 0.7
    expected = 2.3 * 2 ** (1 - nu) / gamma(nu) * scaled**nu * kv(nu, scaled)
    np.testing.assert_allclose(kernel.covariance([0.0], distance)[0], expected, rtol=1e-10)


@every_kernel
def test_covariance_agrees_with_scikit_learn(make):
    x = np.random.default_rng(0).normal(size=(20, 1))
    kernel = make(lengthscale=1.3, variance=1.0)
    theirs = SklearnMatern(length_scale=1.3, nu=kernel.smoothness)(x)
    np.testing.assert_allclose(kernel.covariance(x[:, 0]), theirs, atol=1e-12)


@every_kernel
@pytest.mark.parametrize("step", [0.0, 1e-12, 0.3, 5.0, 40.0])
def test_transition_is_the_matrix_exponential_of_the_drift(make, step):
    kernel = make(lengthscale=1.7, variance=0.4)
    m = kernel.order
    drift = kernel.rate * (np.eye(m, k=1) - np.eye(m))
    np.testing.assert_allclose(kernel.transition(step), expm(drift * step), atol=1e-13)


@every_kernel
def test_stationary_covariance_is_the_integral_of_the_driven_state(make):
    kernel = make(lengthscale=1.7, variance=0.4)
    m = kernel.order
    last = np.eye(m)[-1]

    def driven(tau):
        state = expm((np.eye(m, k=1) - np.eye(m)) * tau) @ last
        return np.outer(state, state)

    integral = quad_vec(driven, 0, 60, epsabs=1e-13)[0]
    expected = 0.4 * integral / integral[0, 0]
    np.testing.assert_allclose(kernel.stationary_covariance(), expected, atol=1e-11)


@every_kernel
def test_state_space_gives_the_dense_covariance(make):
    kernel = make(lengthscale=0.9, variance=1.6)
    for distance in (0.0, 0.2, 1.0, 4.0):
        through_state = (kernel.transition(distance) @ kernel.stationary_covariance())[0, 0]
        dense = kernel.covariance([0.0], [distance])[0, 0]
        assert through_state == pytest.approx(dense, rel=1e-13)


@every_kernel
def test_far_apart_inputs_are_independent_and_finite(make):
    kernel = make(lengthscale=1e-3, variance=1.0)
    assert (kernel.covariance([0.0], [1e6, 1e300]) == 0.0).all()


def test_many_covariances_are_those_of_few():
    x, y = np.linspace(0, 3, 400), np.linspace(-1, 2, 201)
    kernel = Matern52(0.7, 1.3)
    whole = kernel.covariance(x, y)
    np.testing.assert_array_equal(whole, [kernel.covariance(x[[i]], y)[0] for i in range(400)])
    slopes = kernel.by_log_lengthscale(x, y)
    one = [kernel.by_log_lengthscale(x[[i]], y)[0] for i in range(400)]
    np.testing.assert_array_equal(slopes, one)


def test_parameters_are_checked_and_named():
    with pytest.raises(
        ParameterError, match=r"Matern32: lengthscale must be a number from .* got -1"
    ):
        Matern32(lengthscale=-1.0)
    with pytest.raises(ParameterError, match=r"variance must be a number from .* got nan"):
        Matern32(variance=float("nan"))
    for value in ("a", True, np.array([1.0, 2.0]), 0.0, 1e300, np.inf):
        with pytest.raises(ParameterError, match="variance must be a number"):
            Matern32(variance=value)
    with pytest.raises(ParameterError, match="base of the kernels"):
        Matern(1.0, 1.0)
    with pytest.raises(ParameterError, match="fixed names 'scale'"):
        Matern32(fixed=("scale",))
    with pytest.raises(ParameterError, match="lengthscale is marked fixed but has no value"):
        Matern32(variance=1.0, fixed="lengthscale")
    with pytest.raises(ParameterError, match="no lengthscale yet"):
        Matern32(variance=1.0).covariance([0.0])


def test_kernels_are_values():
    kernel = Matern52(lengthscale=2.0, variance=3.0, fixed="variance")
    assert kernel == clone(kernel, safe=False)
    assert kernel.with_parameters(lengthscale=4.0) == Matern52(4.0, 3.0, ("variance",))
    assert repr(kernel) == "Matern52(lengthscale=2, variance=3, fixed=('variance',))"
    assert eval(repr(kernel)) == kernel


@pytest.mark.parametrize("make", [Matern12, Matern32, Matern52, Matern72])
def test_the_derivative_by_the_lengthscale_against_finite_differences(make):
    x, y = np.array([0.0, 0.3, 1.0, 30.0]), np.array([0.1, 0.3, -2.0])
    found = make(0.8, 2.5).by_log_lengthscale(x, y)
    step = 1e-6
    expected = (
        make(0.8 * np.exp(step), 2.5).covariance(x, y)
        - make(0.8 * np.exp(-step), 2.5).covariance(x, y)
    ) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-8)


@every_kernel
def test_copies_with_other_parameters_are_checked_as_any_kernel(make):
    kernel = make(2.0, 3.0, priors={"variance": LogNormal(1.0, 1.0)})
    for value in (4.0, np.float64(4.0), 4):
        copy = kernel.with_parameters(lengthscale=value)
        assert copy == make(4.0, 3.0, priors=kernel.priors)
        assert hash(copy) == hash(make(4.0, 3.0, priors=kernel.priors))
        assert type(copy.lengthscale) is float
    assert kernel.lengthscale == 2.0
    for wrong in (0.0, -1.0, np.nan, np.inf, 1e200):
        with pytest.raises(ParameterError, match="lengthscale must be a number from 1e-150"):
            kernel.with_parameters(lengthscale=wrong)
    with pytest.raises(TypeError, match="nonsense"):
        kernel.with_parameters(nonsense=1.0)
