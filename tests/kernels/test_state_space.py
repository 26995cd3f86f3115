"""State-space forms: Φ and Q against exponentials and integrals, covariances against dense ones."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

import dsgp
from dsgp.errors import ParameterError
from dsgp.kernels import (
    DampedOscillation,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    QuasiPeriodic,
    RationalQuadratic,
    SquaredExponential,
    Wiener,
)
from dsgp.kernels.state_space import discretised

STATIONARY = {
    "matern12": Matern12(1.7, 0.4),
    "matern32": Matern32(1.7, 0.4),
    "matern52": Matern52(1.7, 0.4),
    "matern72": Matern72(1.7, 0.4),
    "oscillation": DampedOscillation(2.0, 3.0, 0.4),
    "overdamped": DampedOscillation(50.0, 0.7, 0.4),
    "squared exponential": SquaredExponential(1.7, 0.4),
    "periodic": Periodic(2.0, 0.4, 0.4),
    "quasi-periodic": QuasiPeriodic(2.0, 0.6, 0.4, 3.0),
    "sum": Matern32(1.0, 0.3) + DampedOscillation(2.0, 3.0, 0.4) + Matern12(0.2, 0.1),
    "product": Matern32(1.0, 0.3) * DampedOscillation(2.0, 3.0, 0.4),
}
WIENER = {f"wiener {m}": Wiener(m, 1.5, 0.4) for m in (1, 2, 3)}
every_kernel = pytest.mark.parametrize("name", [*STATIONARY, *WIENER])
every_stationary = pytest.mark.parametrize("name", STATIONARY)


def kernel_of(name):
    return (STATIONARY | WIENER)[name]


@every_stationary
def test_the_stationary_covariance_stays_what_it_is(name):
    space = kernel_of(name).state_space()
    balance = space.drift @ space.stationary_covariance
    residual = balance + balance.T + space.diffusion
    assert np.abs(residual).max() < 1e-12 * np.abs(balance).max(initial=1.0)
    assert np.linalg.eigvalsh(space.diffusion).min() > -1e-12
    assert np.linalg.eigvalsh(space.stationary_covariance).min() > -1e-14


@every_stationary
def test_it_has_the_covariance_of_the_dense_form_up_to_its_error(name):
    kernel = kernel_of(name)
    space = kernel.state_space()
    x = np.concatenate([[0.0, 1e-9, 1e-3], np.linspace(0.1, 30, 200)])
    error = np.abs(space.covariance([0.0], x) - kernel.covariance([0.0], x)).max()
    assert error <= space.error * kernel.std**2 + 1e-12
    if space.error:  # and it is no larger than it has to be said
        assert error > 0.05 * space.error * kernel.std**2


@every_kernel
@pytest.mark.parametrize("step", [0.0, 1e-12, 1e-4, 0.3, 5.0, 40.0])
def test_transition_is_the_exponential_of_the_drift(name, step):
    kernel = kernel_of(name)
    expected = expm(kernel.drift() * step)
    np.testing.assert_allclose(kernel.transition(step), expected, atol=2e-13 * max(step, 1) ** 2)


def exact_noise(drift, diffusion, step):
    """Integrate exp(F u) D exp(Fᵀ u) in many digits (Van Loan 1978)."""
    size = len(drift)
    with mpmath.workdps(40 if step > 1e-3 else 130):
        block = mpmath.zeros(2 * size)
        for i in range(size):
            for j in range(size):
                block[i, j] = -mpmath.mpf(float(drift[i, j])) * step
                block[size + i, size + j] = mpmath.mpf(float(drift[j, i])) * step
                block[i, size + j] = mpmath.mpf(float(diffusion[i, j])) * step
        whole = mpmath.expm(block)
        phi = whole[size:, size:].T
        made = phi * whole[:size, size:]
        return np.array(made.tolist(), dtype=float)


@every_kernel
@pytest.mark.parametrize("step", [1e-12, 1e-5, 0.03, 0.7, 6.0])
def test_process_noise_is_the_integral(name, step):
    kernel = kernel_of(name)
    if len(kernel.drift()) > 12:
        kernel = QuasiPeriodic(2.0, 2.0, 0.4, 3.0)  # few harmonics: many digits take their time
        space = kernel.state_space(0.2)
    else:
        space = kernel.state_space()
    expected = exact_noise(space.drift, space.diffusion, step)
    noise = space.process_noise(step)
    # Entry by entry, against what correlations allow: a tiny entry is right as well.
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_array_less(np.abs(noise - expected), 1e-11 * scale + 1e-300)


@every_stationary
def test_a_huge_step_forgets_everything_that_it_can(name):
    space = kernel_of(name).state_space()
    phi, noise = space.transition(1e6), space.process_noise(1e6)
    assert np.isfinite(phi).all()
    kept = phi @ space.stationary_covariance @ phi.T
    np.testing.assert_allclose(noise + kept, space.stationary_covariance, atol=1e-8)
    if name != "periodic":
        assert np.abs(phi).max() < 1e-12


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_wiener_process_has_the_covariance_of_its_increments(order):
    kernel = Wiener(order, 1.5, 0.4, origin=2.0)
    x = np.array([2.0, 2.1, 3.0, 7.5])
    space = kernel.state_space()
    covariance = space.process_noise(x - 2.0)
    for i, early in enumerate(x):
        for j, late in enumerate(x[i:], i):
            moved = covariance[i] @ space.transition(late - early).T
            assert moved[0, 0] == pytest.approx(kernel.covariance(x)[i, j], rel=1e-12)
    # The other side is independent of this one, and alike.
    both = kernel.covariance([1.0, 3.0])
    assert both[0, 1] == 0.0
    assert both[0, 0] == both[1, 1] == kernel.diagonal([1.0])[0] > 0
    with pytest.raises(ParameterError, match="not stationary"):
        kernel.stationary_covariance()


@settings(max_examples=40, deadline=None)
@given(
    st.floats(-12, 6),
    st.floats(-6, 6),
    st.sampled_from(["matern12", "matern72", "oscillation", "product"]),
)
def test_halving_a_step_twice_gives_the_step(log_step, log_length, name):
    step, length = 10.0**log_step, 10.0**log_length
    space = STATIONARY[name].state_space()
    phi, noise = discretised(
        space.drift / length, space.diffusion / length, np.array([step, step / 2])
    )
    assert np.isfinite(phi).all()
    np.testing.assert_allclose(phi[1] @ phi[1], phi[0], atol=1e-8)
    np.testing.assert_allclose(
        noise[1] + phi[1] @ noise[1] @ phi[1].T, noise[0], rtol=1e-6, atol=1e-12
    )
    scale = np.sqrt(np.diag(noise[0]))
    assert np.linalg.eigvalsh(noise[0] / np.outer(scale, scale)).min() > -1e-9


def test_steps_of_any_shape():
    kernel = Matern52(1.0, 1.0)
    steps = np.array([[0.0, 0.5, 1.0], [2.0, 0.5, 3.0]])
    assert kernel.transition(steps).shape == kernel.process_noise(steps).shape == (2, 3, 3, 3)
    np.testing.assert_array_equal(kernel.transition(steps)[1, 1], kernel.transition(0.5))
    for step in (-1.0, np.nan, np.inf, [1.0, -1e-9]):
        with pytest.raises(ParameterError, match="step: expected finite numbers from 0"):
            kernel.transition(step)
        with pytest.raises(ParameterError, match="step: expected finite numbers from 0"):
            SquaredExponential(1.0, 1.0).process_noise(step)


def test_an_approximation_has_the_order_or_the_error_that_is_asked_for():
    kernel = SquaredExponential(2.0, 3.0)
    errors = [kernel.state_space(order=order).error for order in range(1, 13)]
    assert (np.diff(errors) < 0).all()
    x = np.linspace(0, 20, 400)
    for order in (1, 3, 8, 12):
        space = kernel.state_space(order=order)
        assert len(space.drift) == order
        missed = np.abs(space.covariance([0.0], x) - kernel.covariance([0.0], x)).max() / 3.0
        assert missed == pytest.approx(space.error, rel=0.05)
    for error in (0.3, 1e-2, 1e-4):
        space = kernel.state_space(error=error)
        assert space.error <= error < errors[len(space.drift) - 2]
    with pytest.raises(ParameterError, match=r"least error.*4.7e-05.*dense form, which is exact"):
        kernel.state_space(error=1e-6)
    with pytest.raises(ParameterError, match="an order or an error, not both"):
        kernel.state_space(order=3, error=0.1)
    for order in (0, 13, 2.0, True, "6"):
        with pytest.raises(ParameterError, match="order must be an integer from 1 to 12"):
            kernel.state_space(order=order)


def test_what_has_no_form_says_so():
    for kernel in (
        RationalQuadratic(1.0, 1.0, 1.0),
        Matern32(1.0, 1.0) + RationalQuadratic(1, 1, 1),
    ):
        with pytest.raises(ParameterError, match="no state-space form; kernels with one are"):
            kernel.transition(1.0)
    with pytest.raises(ParameterError, match="if all are stationary"):
        (Matern32(1.0, 1.0) * Wiener(1, 1.0, 1.0)).drift()
    with pytest.raises(ParameterError, match=r"harmonics beyond the 60th.*dense form"):
        Periodic(1.0, 0.01, 1.0, smoothness=0.5).state_space(1e-6)
    with pytest.raises(ParameterError, match="no lengthscale"):
        Matern32(variance=1.0).drift()


@pytest.mark.parametrize("make", [DampedOscillation, QuasiPeriodic])
def test_periods_are_checked(make):
    assert make("year").period == "year"
    for period in (None, 0.0, -1.0, np.inf, np.nan, "month", True):
        with pytest.raises(ParameterError, match="period must be a number"):
            make(period)


def test_parameters_of_a_wiener_process_are_checked():
    for order in (0, 4, 1.0, True, None):
        with pytest.raises(ParameterError, match=r"smoothing_order must be one of \(1, 2, 3\)"):
            Wiener(order)
    for origin in (np.nan, np.inf, "0", None, True):
        with pytest.raises(ParameterError, match="origin must be"):
            Wiener(2, origin=origin)


def test_an_oscillation_that_lasts_is_learned_to_last():
    """A phase kept over many periods: no bound of two periods stops the lengthscale."""
    t = np.arange(120.0)
    y = np.sin(2 * np.pi * t / 11) + 0.1 * np.random.default_rng(0).standard_normal(120)
    model = dsgp.AdditiveGPRegressor(DampedOscillation(11.0)).fit(t[:, None], y)
    (kernel,) = model.kernels_.values()
    assert kernel.lengthscale > 100
    given = [DampedOscillation(11.0, length, 1.0, fixed="lengthscale") for length in (22.0, 120.0)]
    short, long = (dsgp.AdditiveGPRegressor(each).fit(t[:, None], y) for each in given)
    assert model.log_marginal_likelihood_ > short.log_marginal_likelihood_ + 5
    assert model.log_marginal_likelihood_ > long.log_marginal_likelihood_ - 0.1
