"""A grid with a long axis against dense algebra, finite differences and moments of draws."""

import math

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from dsgp import compute
from dsgp.errors import DataError, ParameterError
from dsgp.grid import rotation
from dsgp.grid.fibres import FibreSystem
from dsgp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    SquaredExponential,
)

RNG = np.random.default_rng(5)


def irregular(n, low, high):
    return np.sort(RNG.uniform(low, high, n))


TIME = irregular(60, 0.0, 20.0)
EAST, NORTH = irregular(4, 0.0, 5.0), np.array([0.0, 1.0, 2.5])
CASES = {
    "long first": ([TIME, EAST], [Matern52(3.0, 1.5), SquaredExponential(2.0, 0.8)], 0.1, 0),
    "long last": ([EAST, TIME], [Matern12(2.0, 1.2), Matern72(4.0, 0.7)], 0.05, 1),
    "long in the middle": (
        [EAST, TIME, NORTH],
        [Matern32(1.5, 2.0), Matern32(2.0, 0.5), Matern52(1.0, 1.1)],
        0.3,
        1,
    ),
    "long first of three": (
        [TIME, np.array([10.0, 100.0, 300.0]), NORTH],
        [Matern12(5.0, 1.0), Periodic(360.0, 60.0, 1.0, smoothness=1.5), Matern12(1.0, 3.0)],
        0.02,
        0,
    ),
    "long only": ([TIME], [Matern52(3.0, 1.5)], 0.2, 0),
    "one point beside": ([[2.0], TIME], [Matern32(1.0, 2.0), Matern32(3.0, 1.5)], 0.2, 1),
    "fibres without signal": (
        [TIME[:40], np.linspace(0, 1, 16)],
        [Matern32(3.0, 1.5), SquaredExponential(4.0, 1.0)],
        1.0,
        0,
    ),
    "nothing but noise": ([TIME, EAST], [Matern32(3.0, 1e-3), Matern32(1.0, 1e-3)], 1e12, 0),
    "little noise": ([TIME[::2], EAST], [Matern32(1.0, 1.0), Matern12(1.0, 1.0)], 1e-4, 0),
}
every_case = pytest.mark.parametrize("name", CASES)


class Dense:
    """The same process with every matrix in full."""

    def __init__(self, points, kernels, noise_variance):
        self.points, self.kernels, self.noise_variance = points, kernels, noise_variance
        self.shape = tuple(len(own) for own in points)
        self.covariance = self.between(points, points)
        self.factor = cho_factor(self.covariance + noise_variance * np.eye(math.prod(self.shape)))

    def between(self, x, y, slope=None):
        out = np.ones((1, 1))
        for d, kernel in enumerate(self.kernels):
            own = kernel.by_log_lengthscale if d == slope else kernel.covariance
            out = np.kron(out, own(x[d], y[d]))
        return out

    def solve(self, y):
        return cho_solve(self.factor, y.ravel())

    def log_marginal_likelihood(self, y):
        log_det = 2 * np.log(np.diag(self.factor[0])).sum()
        return -0.5 * (y.ravel() @ self.solve(y) + log_det + y.size * math.log(2 * math.pi))

    def gradient(self, y):
        """By log lengthscale of every axis, log variance, log noise variance."""
        slopes = [self.between(self.points, self.points, d) for d in range(len(self.shape))]
        slopes += [self.covariance, self.noise_variance * np.eye(y.size)]
        alpha = self.solve(y)
        return [
            0.5 * (alpha @ own @ alpha - np.trace(cho_solve(self.factor, own))) for own in slopes
        ]

    def predict(self, points, y):
        cross = self.between(points, self.points)
        covariance = self.between(points, points) - cross @ cho_solve(self.factor, cross.T)
        return cross @ self.solve(y), covariance


def system_and_dense(name):
    points, kernels, noise_variance, long = CASES[name]
    dense = Dense([np.asarray(own) for own in points], kernels, noise_variance)
    y = np.random.default_rng(7).standard_normal(dense.shape)
    y += 2.0 * np.sin(np.asarray(points[long])).reshape(
        [-1 if d == long else 1 for d in range(y.ndim)]
    )
    return FibreSystem(points, kernels, noise_variance, long), dense, y


def elsewhere(points, long):
    """Another grid: unordered, within, at and beyond the points of every axis."""
    return [
        np.array([own[0] - 1.0, own[-1] + 2.0, own[0], 0.3 * own[0] + 0.7 * own[-1], own[-1]])
        if d == long
        else np.array([0.4 * own[0] + 0.6 * own[-1], own[0], own[-1] + 0.7])
        for d, own in enumerate(points)
    ]


def close(found, expected, tolerance=1e-8):
    """Equal relative to the largest."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@every_case
def test_likelihood_and_gradient_are_those_of_dense_algebra(name):
    system, dense, y = system_and_dense(name)
    expected = dense.log_marginal_likelihood(y)
    assert system.log_marginal_likelihood(y) == pytest.approx(expected, rel=1e-9)
    evidence = system.evidence(y)
    assert evidence.value == pytest.approx(expected, rel=1e-9)
    *by_lengthscale, by_variance, by_noise = dense.gradient(y)
    found = [*evidence.by_log_lengthscale, evidence.by_log_variance, evidence.by_log_noise]
    close(found, [*by_lengthscale, by_variance, by_noise])


@every_case
def test_the_gradient_is_that_of_finite_differences(name):
    points, kernels, noise_variance, long = CASES[name]
    system, _, y = system_and_dense(name)
    evidence = system.evidence(y)
    step = 1e-4

    def moved(d, amount):
        own = list(kernels)
        own[d] = own[d].with_parameters(lengthscale=own[d].lengthscale * np.exp(amount))
        return FibreSystem(points, own, noise_variance, long).log_marginal_likelihood(y)

    expected = [(moved(d, step) - moved(d, -step)) / (2 * step) for d in range(len(points))]
    scale = 1.0 + abs(evidence.value)
    np.testing.assert_allclose(evidence.by_log_lengthscale, expected, atol=1e-7 * scale)


@every_case
def test_solve_and_posterior_are_those_of_dense_algebra(name):
    system, dense, y = system_and_dense(name)
    close(system.solve(y), dense.solve(y).reshape(y.shape))
    mean, variance = system.posterior(y)
    expected, covariance = dense.predict(dense.points, y)
    close(mean, expected.reshape(y.shape))
    close(variance, np.diag(covariance).reshape(y.shape))


@every_case
@pytest.mark.parametrize("others_stay", [True, False])
def test_predictions_on_another_grid_are_those_of_dense_algebra(name, others_stay):
    system, dense, y = system_and_dense(name)
    points = elsewhere(dense.points, system.long)
    if others_stay:
        points = [
            p if d == system.long else own
            for d, (p, own) in enumerate(zip(points, dense.points, strict=True))
        ]
    mean, variance = system.predict(points, y)
    expected, covariance = dense.predict(points, y)
    close(mean, expected.reshape(mean.shape))
    close(variance, np.diag(covariance).reshape(mean.shape))
    assert (variance >= 0).all()


@every_case
def test_predictions_on_the_grid_are_the_posterior(name):
    system, dense, y = system_and_dense(name)
    for found, expected in zip(system.predict(dense.points, y), system.posterior(y), strict=True):
        close(found, expected)


def test_no_points_give_no_predictions():
    system, dense, y = system_and_dense("long in the middle")
    for d in range(3):
        points = [own[:0] if e == d else own[:2] for e, own in enumerate(dense.points)]
        shape = tuple(0 if e == d else 2 for e in range(3))
        assert [part.shape for part in system.predict(points, y)] == [shape, shape]


def test_fibres_without_signal_are_distinguished():
    silent = {name: FibreSystem(*case)._silent.sum() for name, case in CASES.items()}
    assert silent.pop("fibres without signal") > 0
    assert not any(silent.values())


def whitened(draws, mean, covariance):
    """Sum of squares of whitened draws: chi-squared with as many degrees of freedom."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-8 * values.max()
    assert np.abs((draws - mean) @ vectors[:, ~kept]).max(initial=0) < 1e-3 * values.max() ** 0.5
    return (draws - mean) @ vectors[:, kept] / np.sqrt(values[kept])


def check_draws(draws, mean, covariance):
    draws = draws.reshape(len(draws), -1)
    white = whitened(draws, mean.ravel(), covariance)
    n, k = white.shape
    assert np.abs(white.mean(axis=0)).max() < 5 / math.sqrt(n)
    moments = white.T @ white / n - np.eye(k)
    assert np.abs(moments).max() < 7 / math.sqrt(n)


@pytest.mark.parametrize("name", ["long first", "long in the middle"])
def test_draws_have_the_moments_of_dense_algebra(name):
    points, kernels, noise_variance, long = CASES[name]
    points = [own[:6] if d == long else own[:3] for d, own in enumerate(points)]
    system, dense = (
        FibreSystem(points, kernels, noise_variance, long),
        Dense(points, kernels, noise_variance),
    )
    y = np.random.default_rng(1).standard_normal(system.shape)
    there = [own[::-1] for own in elsewhere(points, long)]
    n = 800
    rng = np.random.default_rng(2)
    draws = system.sample(y, n, rng)
    assert draws.shape == (n, *system.shape)
    check_draws(draws, *dense.predict(points, y))
    draws = system.sample(y, n, rng, points=there)
    assert draws.shape == (n, *(len(own) for own in there))
    check_draws(draws, *dense.predict(there, y))
    check_draws(system.sample_prior(n, rng), np.zeros(y.size), dense.covariance)
    twice = [np.concatenate([own, own[:1]]) for own in there]
    draws = system.sample_prior(n, rng, points=twice)
    np.testing.assert_array_equal(np.take(draws, 0, axis=1), np.take(draws, -1, axis=1))
    draws = draws[np.ix_(range(n), *(range(len(own)) for own in there))]
    check_draws(draws, np.zeros(draws[0].size), dense.between(there, there))


def test_draws_repeat_with_their_seed():
    system, dense, y = system_and_dense("long first of three")
    there = elsewhere(dense.points, system.long)
    for points in (None, there):
        first, second = (system.sample(y, 2, np.random.default_rng(4), points) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("long", [0, 1, 2])
def test_threads_and_the_order_in_memory_change_no_bit(long, monkeypatch):
    monkeypatch.setattr(rotation, "_BLOCK", 1000)
    rng = np.random.default_rng(3)
    lengths = [3, 4, 4]
    lengths[long] = 700
    points = [np.sort(rng.uniform(0, n / 5, n)) for n in lengths]
    kernels = [Matern32(1.0, 1.0), Matern32(1.0, 0.5), Matern32(1.0, 0.5)]
    y = rng.standard_normal(lengths)
    answers = []
    for threads, order in ((1, "C"), (2, "C"), (4, "F")):
        monkeypatch.setattr(compute, "CPU_COUNT", threads)
        monkeypatch.setattr(compute, "WORTH_A_GRAPH", 0.0)
        system = FibreSystem(points, kernels, 0.1, long)
        own = np.asarray(y, order=order)
        evidence = system.evidence(own)
        moments = system.posterior(own)
        found = [
            evidence.value,
            *evidence.by_log_lengthscale,
            evidence.by_log_noise,
            system.log_marginal_likelihood(own),
            *(part.tobytes() for part in moments),
            system.sample(own, 2, np.random.default_rng(0)).tobytes(),
        ]
        np.testing.assert_array_equal(own, y)
        answers.append(found)
    assert answers[0] == answers[1] == answers[2]


def test_a_hundred_thousand_steps_agree_with_a_window_of_dense_algebra():
    """Far from the ends of a window, what lies outside it is forgotten."""
    rng = np.random.default_rng(6)
    time, sites = np.cumsum(rng.uniform(0.5, 1.5, 100_000)), np.array([0.0, 1.0, 3.0])
    kernels = [Matern32(2.0, 1.0), Matern52(2.0, 1.0)]
    y = rng.standard_normal((len(time), 3))
    mean, variance = FibreSystem([time, sites], kernels, 0.5, 0).posterior(y)
    window, middle = slice(60_000, 60_120), slice(55, 65)
    dense = Dense([time[window], sites], kernels, 0.5)
    expected, covariance = dense.predict(dense.points, y[window])
    close(mean[window][middle], expected.reshape(-1, 3)[middle])
    close(variance[window][middle], np.diag(covariance).reshape(-1, 3)[middle])


def test_what_does_not_fit_is_refused():
    kernels = [Matern32(1.0, 1.0), SquaredExponential(1.0, 1.0)]
    points = [np.arange(5.0), np.arange(3.0)]
    system = FibreSystem(points, kernels, 0.1, 0)
    with pytest.raises(ParameterError, match=r"long axis 1 must be Matern12.*got SquaredExp"):
        FibreSystem(points, kernels, 0.1, 1)
    with pytest.raises(ParameterError, match="2 axes, 1 kernels and long=0"):
        FibreSystem(points, kernels[:1], 0.1, 0)
    with pytest.raises(ParameterError, match="long=2"):
        FibreSystem(points, kernels, 0.1, 2)
    for noise_variance in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ParameterError, match="noise_variance must be a number from"):
            FibreSystem(points, kernels, noise_variance, 0)
    with pytest.raises(ParameterError, match="no variance yet"):
        FibreSystem(points, [Matern32(1.0), kernels[1]], 0.1, 0)
    with pytest.raises(DataError, match="increase strictly"):
        FibreSystem([points[0][::-1], points[1]], kernels, 0.1, 0)
    with pytest.raises(DataError, match=r"shape of the grid, \(5, 3\); got \(3, 5\)"):
        system.solve(np.zeros((3, 5)))
    with pytest.raises(DataError, match="finite at every cell"):
        system.evidence(np.full((5, 3), np.nan))
    with pytest.raises(DataError, match="2 arrays of one dimension"):
        system.predict([np.zeros(2)], np.zeros((5, 3)))
    with pytest.raises(DataError, match="points must be finite"):
        system.predict([[np.nan], [0.0]], np.zeros((5, 3)))
