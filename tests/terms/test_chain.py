"""Expected statistics of the states, and their expected log density, against dense algebra."""

import math

import mpmath as mp
import numpy as np
import pytest

from dsgp.jit.chain import decaying_powers
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.reference import chain_of, kalman_filter, rts_smoother
from dsgp.terms import Axis, Observations

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)


def problem(make, n=14, noise=0.05, seed=0):
    """An axis with a gap, a point without a target and two that are close."""
    rng = np.random.default_rng(seed)
    points = np.sort(np.concatenate([rng.uniform(0, 4, n - 3), [2.0, 2.001, 30.0]]))
    target = np.sin(2 * points) + math.sqrt(noise) * rng.standard_normal(n)
    weight = rng.uniform(0.5, 2.0, n) / noise
    weight[4] = 0.0
    return Axis(points), make(lengthscale=0.8, variance=1.5), Observations(target, weight)


@every_kernel
def test_statistics_are_those_of_the_smoother(make):
    axis, kernel, seen = problem(make)
    expected = axis.expected_chain(kernel, seen)
    chain = chain_of(kernel, axis.points)
    with np.errstate(divide="ignore"):
        filtered = kalman_filter(chain, seen.target, 1 / seen.weight)
    smoothed = rts_smoother(chain, filtered)
    second = [V + np.outer(z, z) for V, z in zip(smoothed.covariance, smoothed.mean, strict=True)]
    np.testing.assert_allclose(expected.first, second[0], atol=1e-10)
    for t in range(1, len(axis)):
        Phi = chain.transition[t]
        lagged = smoothed.lag_one[t] + np.outer(smoothed.mean[t], smoothed.mean[t - 1])
        cross = lagged - Phi @ second[t - 1]
        noise = second[t] - Phi @ lagged.T - cross @ Phi.T
        np.testing.assert_allclose(expected.previous[t], second[t - 1], atol=1e-10)
        np.testing.assert_allclose(expected.cross[t], cross, atol=1e-10)
        np.testing.assert_allclose(expected.noise[t], noise, atol=1e-10)


@every_kernel
def test_states_are_drawn_as_they_are_expected(make):
    axis, kernel, seen = problem(make)
    expected = axis.expected_chain(kernel, seen)
    random = np.random.default_rng(3)
    number = 3000
    found = {name: [] for name in ("noise", "cross", "previous")}
    functions = []
    for _ in range(number):
        drawn, chain = axis.draw_states(kernel, seen, random)
        functions.append(drawn)
        for name, values in found.items():
            values.append(getattr(chain, name)[1:])
    posterior = axis.posterior(kernel, seen)
    scores = (np.mean(functions, axis=0) - posterior.mean) / np.sqrt(posterior.variance / number)
    assert np.abs(scores).max() < 4.5
    for name, values in found.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0) / math.sqrt(number)
        assert np.abs((mean - getattr(expected, name)[1:]) / error).max() < 5, name


@every_kernel
@pytest.mark.parametrize("spacing", [1e-3, 1e-9])
def test_the_density_of_drawn_states_keeps_its_digits(make, spacing):
    """E p(z | θ) / p(z | θ₀) is 1 for draws of the prior, and its score has mean 0, at any step."""
    axis, kernel = Axis(1 + spacing * np.arange(30.0)), make(lengthscale=0.8, variance=1.5)
    nothing = Observations(np.zeros(30), np.zeros(30))
    random = np.random.default_rng(4)
    slopes, ratios = [], []
    for _ in range(1500):
        chain = axis.draw_states(kernel, nothing, random)[1]
        density = chain.log_density(kernel)
        slopes.append(list(density.by_log.values()))
        other = chain.log_density(make(lengthscale=0.81, variance=1.5)).value
        ratios.append(math.exp(other - density.value))
    for values in (np.array(slopes)[:, 0], np.array(slopes)[:, 1], np.array(ratios) - 1):
        assert abs(values.mean()) < 4.5 * values.std() / math.sqrt(1500)


def derivatives(kernel, of):
    """T with (f, f' / λ, …) = T u, λ the rate of another kernel: u_k = (1 + d / d(λx))^k f."""
    m = kernel.order
    binomials = np.array([[math.comb(i, j) for j in range(m)] for i in range(m)], dtype=float)
    return np.diag((kernel.rate / of.rate) ** np.arange(m)) @ np.linalg.inv(binomials)


@every_kernel
@pytest.mark.parametrize(("factor", "variance"), [(1.0, 1.5), (1.4, 0.6), (0.5, 2.0)])
def test_log_density_is_the_dense_expectation(make, factor, variance):
    """All states at once: −½ (log det 2πS + tr S⁻¹ E[z zᵀ]), by 60 digits."""
    axis, kernel, seen = problem(make, n=7)
    other = make(lengthscale=0.8 * factor, variance=variance)
    value, by_log = axis.expected_chain(kernel, seen).log_density(other)
    with mp.workdps(60):
        prior = dense_states(kernel, kernel, axis.points)
        trial = dense_states(other, kernel, axis.points)
        n, m = len(axis), kernel.order
        rows = [t for t in range(n) if seen.weight[t] > 0]
        H = mp.matrix(len(rows), n * m)
        for row, t in enumerate(rows):
            H[row, t * m] = 1
        y = mp.matrix([float(seen.target[t]) for t in rows])
        S = H * prior * H.T + mp.diag([1 / mp.mpf(float(seen.weight[t])) for t in rows])
        gain = prior * H.T * S**-1
        mean = gain * y
        moment = prior - gain * H * prior + mean * mean.T
        product = trial**-1 * moment
        trace = mp.fsum(product[i, i] for i in range(n * m))
        expected = -(n * m * mp.log(2 * mp.pi) + mp.log(mp.det(trial)) + trace) / 2
    # The code leaves the coordinates of the E-step as they are: B, whose determinant is 1.
    assert value == pytest.approx(float(expected), rel=1e-8, abs=1e-6)
    assert set(by_log) == {"lengthscale", "variance"}


def dense_states(kernel, of, points):
    """Covariance of (f, f' / λ, …) at all points, from derivatives of the Matérn polynomial."""
    m = kernel.order
    rate, unit = mp.sqrt(2 * m - 1) / mp.mpf(kernel.lengthscale), mp.mpf(of.rate)
    p = m - 1
    coefficients = [
        mp.factorial(p) / mp.factorial(2 * p) * mp.factorial(2 * p - k)
        / (mp.factorial(p - k) * mp.factorial(k)) * mp.mpf(2) ** k
        for k in range(m)
    ]  # fmt: skip
    # Derivatives by x of e^{-λx} Σ c_k (λx)^k at x > 0: the polynomial c becomes λ (c' − c).
    polynomials = [coefficients]
    for _ in range(2 * m - 2):
        c = polynomials[-1]
        slope = [(k + 1) * c[k + 1] for k in range(m - 1)] + [mp.mpf(0)]
        polynomials.append([rate * (s - a) for s, a in zip(slope, c, strict=True)])
    size = len(points) * m
    out = mp.matrix(size, size)
    for t, s in ((t, s) for t in range(len(points)) for s in range(len(points))):
        distance = mp.mpf(float(points[t])) - mp.mpf(float(points[s]))
        x = rate * abs(distance)
        values = [mp.exp(-x) * mp.fsum(c * x**k for k, c in enumerate(q)) for q in polynomials]
        sign = 1 if distance >= 0 else -1
        for i in range(m):
            for j in range(m):
                value = values[i + j] * mp.mpf(sign) ** (i + j) * mp.mpf(-1) ** j
                out[t * m + i, s * m + j] = kernel.variance * value / unit ** (i + j)
    return out


@every_kernel
@pytest.mark.parametrize("factor", [1.0, 1.3, 0.3, 4.0])
def test_gradient_is_that_of_finite_differences(make, factor):
    axis, kernel, seen = problem(make)
    chain = axis.expected_chain(kernel, seen)
    trial = make(lengthscale=0.8 * factor, variance=0.9)
    h = 1e-5
    for name, slope in chain.log_density(trial).by_log.items():
        up, down = (
            chain.log_density(
                trial.with_parameters(**{name: trial.value(name) * math.exp(sign * h)})
            ).value
            for sign in (1, -1)
        )
        assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-6)


@every_kernel
@pytest.mark.parametrize("spacing", [1.0, 1e-3, 1e-7, 1e-12])
def test_its_gradient_at_the_e_step_is_that_of_the_likelihood(make, spacing):
    """Fisher's identity; it needs all digits of what moves the states between close points."""
    rng = np.random.default_rng(1)
    points = np.sort(rng.uniform(0, 4, 40))
    points[20:] = points[20] + spacing * np.arange(20)
    axis, kernel = Axis(points), make(lengthscale=0.8, variance=1.5)
    seen = Observations(np.sin(2 * points) + 0.2 * rng.standard_normal(40), np.full(40, 25.0))
    slopes = axis.expected_chain(kernel, seen).log_density(kernel).by_log
    exact = axis.posterior(kernel, seen).evidence.by_log
    for name, slope in slopes.items():
        assert slope == pytest.approx(exact[name], rel=1e-6, abs=1e-6)


@every_kernel
def test_a_better_kernel_by_the_states_is_better_by_the_likelihood(make):
    """Jensen's inequality, which EM rests on; kernels and spacings of all sizes."""
    rng = np.random.default_rng(2)
    points = np.unique(np.concatenate([rng.uniform(0, 9, 60), 3 + 1e-9 * np.arange(5)]))
    axis, kernel = Axis(points), make(lengthscale=1.0, variance=1.0)
    seen = Observations(np.sin(points), np.full(len(points), 30.0))
    chain = axis.expected_chain(kernel, seen)
    start = chain.log_density(kernel).value
    before = axis.log_marginal_likelihood(kernel, seen)
    for lengthscale in (0.01, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0, 50.0):
        for variance in (0.5, 1.0, lengthscale ** (2 * kernel.order - 1)):
            trial = make(lengthscale=lengthscale, variance=variance)
            gain = axis.log_marginal_likelihood(trial, seen) - before
            expected = chain.log_density(trial).value - start
            assert math.isfinite(expected)
            assert gain >= expected - 1e-6 * (1 + abs(expected))


@every_kernel
def test_integrals_of_a_step_give_its_noise(make):
    kernel = make(lengthscale=1.0, variance=1.0)
    m = kernel.order
    for tau in (1e-40, 1e-9, 1e-3, 0.4, 0.999, 1.0, 5.0, 800.0):
        integrals = np.empty(2 * m - 1)
        decaying_powers(tau, integrals)
        a = np.arange(m)[::-1]
        factorials = np.array([math.factorial(k) for k in range(m)], dtype=float)
        expected = kernel.process_noise(tau / kernel.rate)
        intensity = 2 * kernel.stationary_covariance()[-1, -1]
        own = intensity * integrals[a[:, None] + a] / np.outer(factorials[a], factorials[a])
        np.testing.assert_allclose(own, expected, rtol=1e-10, atol=0)
