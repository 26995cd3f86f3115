"""The Kronecker system of a complete grid against dense algebra on its cells."""

from __future__ import annotations

import tracemalloc
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError, MemoryLimitError, ParameterError
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic, SquaredExponential

KERNELS = (
    Matern52(0.7, 2.0),
    SquaredExponential(0.5, 0.6),
    Matern12(0.4, 1.5),
    Periodic(2.0, lengthscale=0.3, variance=0.9),
)
SHAPES = [(40,), (9, 7), (5, 6, 7), (4, 3, 5, 4), (1, 8), (6, 1, 5), (1, 1)]


class Dense:
    """The same process by one matrix over all cells."""

    def __init__(self, points, kernels, noise):
        self.points, self.kernels, self.noise = points, kernels, noise
        self.prior = self.cross(points, points)
        self.total = self.prior + noise * np.eye(len(self.prior))

    def cross(self, a, b):
        return reduce(
            np.kron, [k.covariance(x, z) for k, x, z in zip(self.kernels, a, b, strict=True)]
        )

    def likelihood(self, y):
        n = y.size
        quadratic = y.ravel() @ np.linalg.solve(self.total, y.ravel())
        return -0.5 * (quadratic + np.linalg.slogdet(self.total)[1] + n * np.log(2 * np.pi))

    def score(self, y, derivative):
        alpha = np.linalg.solve(self.total, y.ravel())
        return 0.5 * (
            alpha @ derivative @ alpha - np.trace(np.linalg.solve(self.total, derivative))
        )

    def scores(self, y):
        by_lengthscale = []
        for d in range(len(self.kernels)):
            factors = [
                k.by_log_lengthscale(x) if e == d else k.covariance(x)
                for e, (k, x) in enumerate(zip(self.kernels, self.points, strict=True))
            ]
            by_lengthscale.append(self.score(y, reduce(np.kron, factors)))
        noise = self.score(y, self.noise * np.eye(y.size))
        return np.array(by_lengthscale), self.score(y, self.prior), noise

    def predict(self, points, y):
        cross = self.cross(points, self.points)
        shape = [len(x) for x in points]
        mean = cross @ np.linalg.solve(self.total, y.ravel())
        covariance = self.cross(points, points) - cross @ np.linalg.solve(self.total, cross.T)
        return mean.reshape(shape), covariance


def grid(shape, seed=0, equispaced=True):
    rng = np.random.default_rng(seed)
    points = [
        np.linspace(0.0, 1.5, n) if equispaced else np.sort(rng.uniform(0.0, 1.5, n)) for n in shape
    ]
    return points, list(KERNELS[: len(shape)]), rng.standard_normal(shape)


def close(a, b, tolerance=1e-8):
    b = np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.max(np.abs(b)))


@pytest.mark.parametrize("equispaced", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_everything_agrees_with_dense_algebra(shape, equispaced):
    points, kernels, y = grid(shape, equispaced=equispaced)
    system, dense = KroneckerSystem(points, kernels, 0.05), Dense(points, kernels, 0.05)
    evidence = system.evidence(y)
    by_lengthscale, by_variance, by_noise = dense.scores(y)
    close(evidence.value, dense.likelihood(y))
    close(system.log_marginal_likelihood(y), dense.likelihood(y))
    close(evidence.by_log_lengthscale, by_lengthscale)
    close(evidence.by_log_variance, by_variance)
    close(evidence.by_log_noise, by_noise)
    close(system.solve(y).ravel(), np.linalg.solve(dense.total, y.ravel()))

    mean, variance = system.posterior(y)
    dense_mean, covariance = dense.predict(points, y)
    close(mean, dense_mean)
    close(variance.ravel(), np.diag(covariance))

    new = [np.random.default_rng(1).uniform(-0.5, 2.0, n) for n in (3, 4, 2, 3)[: len(shape)]]
    mean, variance = system.predict(new, y)
    dense_mean, covariance = dense.predict(new, y)
    close(mean, dense_mean)
    close(variance.ravel(), np.diag(covariance))


def test_the_gradient_agrees_with_finite_differences():
    points, kernels, y = grid((7, 8, 5), equispaced=False)
    start = np.log([k.lengthscale for k in kernels] + [kernels[0].variance, 0.1])

    def system(logs):
        *lengthscales, variance, noise = np.exp(logs)
        moved = [
            k.with_parameters(lengthscale=own) for k, own in zip(kernels, lengthscales, strict=True)
        ]
        moved[0] = moved[0].with_parameters(variance=variance)
        return KroneckerSystem(points, moved, noise)

    evidence = system(start).evidence(y)
    found = [*evidence.by_log_lengthscale, evidence.by_log_variance, evidence.by_log_noise]
    h = 1e-5
    for k, slope in enumerate(found):
        step = h * np.eye(len(start))[k]
        above, below = (system(start + s).log_marginal_likelihood(y) for s in (step, -step))
        assert slope == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-6)


axes = st.lists(st.integers(1, 6), min_size=1, max_size=4)
logs = st.floats(-4.0, 4.0)


@settings(max_examples=60, deadline=None)
@given(
    shape=axes,
    lengthscales=st.lists(st.floats(-6.0, 6.0), min_size=4, max_size=4),
    amplitude=logs,
    signal_to_noise=st.floats(-4.0, 5.0),
    equispaced=st.booleans(),
    kind=st.sampled_from([Matern12, Matern32, Matern52, Matern72, SquaredExponential]),
)
def test_any_shape_and_scale(shape, lengthscales, amplitude, signal_to_noise, equispaced, kind):
    points, _, y = grid(tuple(shape), equispaced=equispaced)
    noise = 10.0 ** (amplitude - signal_to_noise)
    kernels = [kind(10.0**own, 1.0) for own in lengthscales[: len(shape)]]
    kernels[0] = kernels[0].with_parameters(variance=10.0**amplitude)
    y *= 10.0 ** (amplitude / 2)
    system, dense = KroneckerSystem(points, kernels, noise), Dense(points, kernels, noise)
    # Dense algebra loses digits to its condition, up to 1e5 here times the number of cells.
    close(system.log_marginal_likelihood(y), dense.likelihood(y))
    close(system.solve(y).ravel(), np.linalg.solve(dense.total, y.ravel()), 1e-7)
    evidence = system.evidence(y)
    by_lengthscale, by_variance, by_noise = dense.scores(y)
    found = [*evidence.by_log_lengthscale, evidence.by_log_variance, evidence.by_log_noise]
    scale = 1.0 + float(np.sum(y**2)) / noise
    np.testing.assert_allclose(found, [*by_lengthscale, by_variance, by_noise], atol=1e-9 * scale)
    mean, variance = system.posterior(y)
    dense_mean, covariance = dense.predict(points, y)
    close(mean, dense_mean, 1e-7)
    np.testing.assert_allclose(variance.ravel(), np.diag(covariance), atol=1e-9 * 10.0**amplitude)
    assert (variance >= 0).all()
    again, also = system.predict(points, y)
    close(again, mean, 1e-7)
    np.testing.assert_allclose(also, variance, atol=1e-9 * 10.0**amplitude)
    assert (also >= 0).all()
    assert (also <= system.variance).all()


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_extreme_units_change_nothing(scale):
    points, kernels, y = grid((6, 7))
    plain = KroneckerSystem(points, kernels, 0.1)
    moved = [kernels[0].with_parameters(variance=kernels[0].variance * scale**2), *kernels[1:]]
    system = KroneckerSystem(points, moved, 0.1 * scale**2)
    a, b = plain.evidence(y), system.evidence(y * scale)
    assert b.value == pytest.approx(a.value - y.size * np.log(scale), rel=1e-12)
    close(b.by_log_lengthscale, a.by_log_lengthscale, 1e-10)
    close(system.posterior(y * scale)[0] / scale, plain.posterior(y)[0], 1e-12)
    close(system.predict([[0.1], [0.2]], y)[1] / scale**2, plain.predict([[0.1], [0.2]], y)[1])


def test_variances_multiply_past_the_range_of_one_factor():
    points = [np.arange(3.0)] * 4
    kernels = [Matern32(1.0, v) for v in (1e120, 1e100, 1e-110, 1e-110)]
    y = np.random.default_rng(0).standard_normal((3,) * 4)
    one = KroneckerSystem(points, [Matern32(1.0, 1.0)] * 4, 0.1)
    assert KroneckerSystem(points, kernels, 0.1).log_marginal_likelihood(y) == pytest.approx(
        one.log_marginal_likelihood(y), rel=1e-10
    )
    with pytest.raises(ParameterError, match="product of the kernels' variances"):
        KroneckerSystem(points, [Matern32(1.0, 1e100)] * 4, 0.1)


def test_a_smooth_kernel_with_next_to_no_noise_interpolates():
    x = np.linspace(0.0, 1.0, 60)
    y = np.sin(3 * x)[:, None] * np.cos(2 * x)
    system = KroneckerSystem([x, x], [SquaredExponential(0.5, 1.0)] * 2, 1e-12)
    mean, variance = system.posterior(y)
    close(mean, y, 1e-5)
    assert (variance >= 0).all()
    assert variance.max() <= 1e-12
    evidence = system.evidence(y)
    assert np.isfinite([*evidence.by_log_lengthscale, evidence.value]).all()
    between = np.array([0.123, 0.777])
    mean, variance = system.predict([between, between], y)
    close(mean, np.sin(3 * between)[:, None] * np.cos(2 * between), 1e-4)
    assert (variance >= 0).all()


def test_corners_of_a_hypercube():
    rng = np.random.default_rng(0)
    points, kernels = [np.array([-1.0, 1.0])] * 9, [Matern32(1.0 + d / 5, 1.0) for d in range(9)]
    y = rng.standard_normal((2,) * 9)
    system, dense = KroneckerSystem(points, kernels, 0.3), Dense(points, kernels, 0.3)
    evidence = system.evidence(y)
    by_lengthscale, by_variance, by_noise = dense.scores(y)
    close(evidence.value, dense.likelihood(y))
    close(evidence.by_log_lengthscale, by_lengthscale)
    close([evidence.by_log_variance, evidence.by_log_noise], [by_variance, by_noise])


# ---------------------------------------------------------------------- draws


def test_draws_of_the_posterior_have_its_moments():
    points, kernels, y = grid((4, 3))
    n = 20_000
    system, dense = KroneckerSystem(points, kernels, 0.2), Dense(points, kernels, 0.2)
    draws = system.sample(y, n, np.random.default_rng(2)).reshape(n, -1)
    assert_moments(draws, *dense.predict(points, y))


def test_draws_on_another_grid_have_the_moments_of_the_posterior_there():
    points, kernels, y = grid((4, 3), equispaced=False)
    n = 10_000
    system, dense = KroneckerSystem(points, kernels, 0.2), Dense(points, kernels, 0.2)
    # Out of order, one twice, one of the data's own.
    new = [np.array([1.0, 0.2, 1.0]), np.array([points[1][1], 2.0])]
    draws = system.sample(y, n, np.random.default_rng(3), new)
    np.testing.assert_allclose(draws[:, 0], draws[:, 2], atol=1e-12)
    assert_moments(draws.reshape(n, -1), *dense.predict(new, y))
    prior = system.sample_prior(n, np.random.default_rng(4), new)
    np.testing.assert_allclose(prior[:, 0], prior[:, 2], atol=1e-12)
    assert_moments(prior.reshape(n, -1), np.zeros(6), dense.cross(new, new))


def test_draws_of_the_prior_have_its_moments_and_the_first_do_not_depend_on_their_number():
    points, kernels, y = grid((3, 4))
    system = KroneckerSystem(points, kernels, 0.2)
    draws = system.sample_prior(20_000, np.random.default_rng(5))
    assert_moments(draws.reshape(len(draws), -1), np.zeros(12), Dense(points, kernels, 1.0).prior)
    for new in (None, [[0.3], [0.4, 0.5]]):
        many = system.sample(y, 5, np.random.default_rng(6), new)
        few = system.sample(y, 2, np.random.default_rng(6), new)
        np.testing.assert_array_equal(many[:2], few)


def assert_moments(draws, mean, covariance):
    """Within five standard errors of a Gaussian's sample moments."""
    n, variance = len(draws), np.diag(covariance)
    errors = np.sqrt(variance / n)
    assert (np.abs(draws.mean(axis=0) - np.ravel(mean)) <= 5 * errors).all()
    errors = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert (np.abs(np.cov(draws.T) - covariance) <= 5 * errors).all()


# ---------------------------------------------------------------------- storage and arguments


@pytest.mark.parametrize(
    ("method", "grids"),
    [("solve", 2), ("log_marginal_likelihood", 2), ("evidence", 2), ("posterior", 3)],
)
def test_memory_is_what_the_docstring_says(method, grids):
    x = np.linspace(0.0, 1.0, 80)
    y = np.random.default_rng(0).standard_normal((80, 80, 80))
    system = KroneckerSystem([x] * 3, [Matern32(0.1, 1.0)] * 3, 0.1)
    few = KroneckerSystem([x[:4]] * 3, [Matern32(0.1, 1.0)] * 3, 0.1)
    getattr(few, method)(y[:4, :4, :4])  # compiles and imports what it needs
    assert peak(lambda: getattr(system, method)(y)) <= grids * y.nbytes + 2.5e6


def test_memory_of_draws_and_predictions_is_what_the_docstring_says():
    x = np.linspace(0.0, 1.0, 70)
    y = np.random.default_rng(0).standard_normal((70, 70, 70))
    system = KroneckerSystem([x] * 3, [Matern32(0.1, 1.0)] * 3, 0.1)
    rng = np.random.default_rng(0)
    new = [x[:60] + 1e-3] * 3
    assert peak(lambda: system.sample(y, 2, rng)) <= 5 * y.nbytes + 2.5e6
    assert peak(lambda: system.predict(new, y)) <= 3 * y.nbytes + 2.5e6
    union = 8 * 130**3
    assert peak(lambda: system.sample(y, 1, rng, new)) <= 4 * union + 8 * 60**3 + 2.5e6


def peak(call):
    """Bytes taken at most, beyond those there were."""
    call()
    tracemalloc.start()
    try:
        kept = call()  # noqa: F841
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_float32_keeps_six_digits():
    points, kernels, y = grid((40, 30))
    wide = KroneckerSystem(points, kernels, 0.1)
    narrow = KroneckerSystem(points, kernels, 0.1, dtype=np.float32)
    new = [[0.31, 0.7], [0.1]]
    for a, b in [
        (narrow.posterior(y), wide.posterior(y)),
        (narrow.predict(new, y), wide.predict(new, y)),
        ([narrow.solve(y)], [wide.solve(y)]),
        ([narrow.sample(y, 2, np.random.default_rng(0), points=p) for p in (None, new)],
         [wide.sample(y, 2, np.random.default_rng(0), points=p) for p in (None, new)]),
    ]:  # fmt: skip
        for one, other in zip(a, b, strict=True):
            assert one.dtype == np.float32
            close(one, other, 2e-5)
    a, b = narrow.evidence(y), wide.evidence(y)
    assert a.value == pytest.approx(b.value, rel=1e-5)
    close(a.by_log_lengthscale, b.by_log_lengthscale, 1e-4)


def test_the_residuals_are_not_written_to():
    points, kernels, y = grid((6, 5))
    y.flags.writeable = False
    system = KroneckerSystem(points, kernels, 0.1)
    system.evidence(y)
    system.solve(y)
    system.posterior(y)
    system.sample(y, 1, np.random.default_rng(0), points)
    flipped = np.asfortranarray(y)
    np.testing.assert_array_equal(system.solve(flipped), system.solve(y))


def test_bad_arguments_are_refused(monkeypatch):
    x = np.arange(4.0)
    kernel = Matern32(1.0, 1.0)
    system = KroneckerSystem([x, x], [kernel, kernel], 0.1)
    with pytest.raises(DataError, match=r"shape of the grid, \(4, 4\); got \(4,\)"):
        system.solve(x)
    with pytest.raises(DataError, match="finite at every cell"):
        system.posterior(np.full((4, 4), np.nan))
    with pytest.raises(DataError, match="points must be 2 arrays"):
        system.predict([x], np.ones((4, 4)))
    with pytest.raises(DataError, match="points must be finite"):
        system.sample_prior(1, np.random.default_rng(0), [x, [np.inf]])
    with pytest.raises(DataError, match="axis 1 must be finite and strictly ascending"):
        KroneckerSystem([x, x[::-1]], [kernel, kernel], 0.1)
    with pytest.raises(DataError, match="one dimension"):
        KroneckerSystem([np.ones((2, 2))], [kernel], 0.1)
    with pytest.raises(ParameterError, match="one kernel per axis"):
        KroneckerSystem([x], [kernel, kernel], 0.1)
    with pytest.raises(ParameterError, match="noise_variance"):
        KroneckerSystem([x], [kernel], 0.0)
    with pytest.raises(ParameterError, match="lengthscale"):
        KroneckerSystem([x], [Matern32()], 0.1)
    with pytest.raises(ParameterError, match="times the noise variance"):
        KroneckerSystem([x], [Matern32(1.0, 1e140)], 1e-140)
    with pytest.raises(ParameterError, match="dtype"):
        KroneckerSystem([x], [kernel], 0.1, dtype=np.int64)
    monkeypatch.setattr("dsgp.memory.available", lambda: 10)
    with pytest.raises(MemoryLimitError, match="coarser grid"):
        KroneckerSystem([np.arange(1500.0)], [kernel], 0.1)
