"""The screen and the scan against what they must and must not see."""

import math

import numpy as np
import pytest

from dsgp.additive import RowEquations
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.learning.scales import bins_too_wide, finer_start, structure
from dsgp.learning.search import search_for
from dsgp.terms import Axis, Observations
from dsgp.terms.spreading import spacing, typical_width
from tests.additive.dense import table_of

FREE = ("lengthscale", "variance")
NOISE = (1e-6, 1e2)


def wave(n, period, noise, seed=0):
    rng = np.random.default_rng(seed)
    x = np.arange(n, dtype=float)
    y = math.sqrt(2) * np.sin(2 * np.pi * x / period) + noise * rng.standard_normal(n)
    return x, (y - y.mean()) / y.std()


def test_screen_of_noise_errs_as_rarely_as_it_says():
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(10, 500))
        x, weight = np.sort(rng.lognormal(sigma=2.0, size=n)), rng.uniform(0.1, 5.0, n)
        hits += structure(x, weight, rng.standard_normal(n) * np.sqrt(weight), 1) is not None
    assert hits <= 2


@pytest.mark.parametrize(("period", "level"), [(10, 1), (40, 1), (200, 3)])
def test_screen_finds_the_scale_of_a_wave(period, level):
    x, y = wave(2000, period, 0.3)
    seen = structure(x, np.ones(2000), y, 1)
    assert seen.level == level
    assert seen.distance == 2**level
    # Units do not matter, and points without weight say nothing.
    both = np.concatenate([x, x + 0.5])
    order = np.argsort(both)
    weight = np.concatenate([np.full(2000, 2.0), np.zeros(2000)])[order]
    score = np.concatenate([2 * y / math.sqrt(2), np.full(2000, np.nan)])[order]
    again = structure(1e6 * both[order], weight, score, 1)
    assert (again.level, again.distance) == (level, 1e6 * seen.distance)


def test_screen_sees_a_bump_in_few_rows_but_no_single_far_value():
    rng = np.random.default_rng(1)
    x, y = np.arange(4000.0), rng.standard_normal(4000)
    y[1700:1720] += 4.0
    assert structure(x, np.ones(4000), y, 1) is not None
    y = rng.standard_normal(4000)
    y[::500] = 60.0
    y /= y.std()
    assert structure(x, np.ones(4000), y, 1) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [Matern12, Matern32, Matern52])
def test_scan_gains_what_the_dense_likelihood_gains(make, weighted):
    """Ties, weights and an unused term beside: likelihoods by dense algebra."""
    rng = np.random.default_rng(0)
    x, y = wave(300, 15, 0.3)
    X = np.column_stack([np.repeat(x[::2], 2), rng.standard_normal(300)])
    weight = rng.uniform(0.5, 2.0, 300) if weighted else np.ones(300)
    equations = RowEquations.of(table_of(X), y, weight if weighted else None)
    kernels = [make(1e4, 1e-6), make(1e4, 1e-6)]
    start = finer_start(
        equations,
        kernels,
        1.0,
        np.zeros(equations.layout.size),
        free=[FREE, FREE],
        noise_bounds=NOISE,
    )
    assert start.terms == [0]
    assert start.kernels[1] == kernels[1]

    def dense(kernel, noise):
        covariance = kernel.covariance(X[:, 0]) + np.diag(noise / weight)
        return -0.5 * (
            y @ np.linalg.solve(covariance, y)
            + np.linalg.slogdet(covariance)[1]
            + 300 * math.log(2 * math.pi)
        )

    # Before, the noise is where it is best beside a term of next to no variance.
    before = dense(kernels[0], np.sum(weight * y**2) / 300)
    expected = dense(start.kernels[0], start.noise_variance) - before
    assert start.gain == pytest.approx(expected, rel=1e-3)
    seen = Observations.from_rows(equations.table.codes[0], 150, y, weight / start.noise_variance)
    mean = equations.layout.cells[0].posterior(start.kernels[0], seen).mean
    np.testing.assert_allclose(equations.layout.part(start.mean, 0), mean, atol=1e-8)


def test_fixed_lengthscales_stay_and_fixed_noise_too():
    x, y = wave(500, 20, 0.3)
    equations = RowEquations.of(table_of(x[:, None]), y)
    options = {"noise_bounds": (0.2, 0.2), "mean": np.zeros(500)}
    kernels = [Matern52(1e4, 1e-6)]
    assert finer_start(equations, kernels, 0.2, free=[("variance",)], **options) is None
    start = finer_start(equations, kernels, 0.2, free=[FREE], **options)
    assert start.noise_variance == 0.2
    kernels = [Matern52(1e4, 0.7)]
    start = finer_start(equations, kernels, 0.2, free=[("lengthscale",)], **options)
    assert start.kernels[0].variance == 0.7
    assert 3 < start.kernels[0].lengthscale < 30


def test_two_waves_are_taken_up_one_after_the_other():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 3))
    y = np.sin(2 * np.pi * 60 * X[:, 0]) + 0.4 * np.sin(2 * np.pi * 90 * X[:, 2])
    y += 0.3 * rng.standard_normal(3000)
    equations = RowEquations.of(table_of(X), (y - y.mean()) / y.std())
    start = finer_start(
        equations,
        [Matern52(10.0, 1e-6)] * 3,
        1.0,
        np.zeros(9000),
        free=[FREE] * 3,
        noise_bounds=NOISE,
    )
    assert start.terms == [0, 2]
    assert start.noise_variance == pytest.approx(0.09 / np.var(y), rel=0.2)


def cells(y, x, n_bins, n_cells, weight):
    code = np.minimum((x * n_bins * n_cells).astype(int), n_bins * n_cells - 1)
    sums = [
        np.bincount(code, values, n_bins * n_cells).reshape(n_bins, n_cells)
        for values in (weight, weight * y, weight * y**2)
    ]
    return sums[0], sums[1], sums[2].sum(axis=1)


def test_bins_are_too_wide_for_what_goes_on_within_them_only():
    rng = np.random.default_rng(0)
    n = 40_000
    x, weight = rng.uniform(size=n), rng.uniform(0.5, 2.0, n)
    noise = rng.standard_normal(n) / np.sqrt(weight)

    def parts(f):
        return bins_too_wide(*cells(f + noise, x, 64, 32, weight), float(weight.mean()), 1)

    assert parts(0.0) == 1
    assert parts(50 * np.sin(2 * np.pi * x) + 1e3) == 1  # straight within a bin
    few, many = (parts(np.sin(2 * np.pi * cycles * x)) for cycles in (150, 600))
    assert 4 <= few < many <= 64
    # Counts that are rare, with a variance of their own in each bin.
    rare = rng.poisson(0.01 * np.exp(2 * x), n).astype(float)
    assert bins_too_wide(*cells(rare, x, 64, 32, np.ones(n)), 1.0, 1) == 1


def test_width_is_that_of_the_rows_without_gaps():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=3000)
    x[::5] = -9999.0
    x[::7] = 1e6
    points, counts = np.unique(x, return_counts=True)
    assert 0.5 < typical_width(points, counts) <= 1.0
    ordinary = np.sort(rng.lognormal(sigma=2.0, size=1000))
    low, high = ordinary[np.searchsorted(np.arange(1, 1001) / 1000, [0.1, 0.9])]
    assert typical_width(ordinary, np.ones(1000)) == high - low
    # Of few values none is extraordinary.
    assert typical_width(np.array([0.0, 1.0, 100.0]), np.ones(3)) == 100.0
    assert spacing(np.array([0.0, 1.0, 2.0, 3.0, 1e6])) == 1.0


def test_shortest_is_a_bound_of_the_search():
    axis = Axis(np.arange(1000.0))
    search = search_for(Matern52(), axis, np.ones(1000), 1, shortest=1.0)
    assert search.lower[search.names.index("lengthscale")] == 0.0
