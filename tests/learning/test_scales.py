"""The screen and the scan against what they must and must not see."""

import math

import numpy as np
import pytest

from dsgp.additive import RowEquations
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.learning.bin_widths import bins_too_wide
from dsgp.learning.scales import finer_start, structure
from dsgp.learning.search import search_for
from dsgp.rows.table import RowTable
from dsgp.terms import Axis, DenseCells, GroupedAxis, MultipliedCells, Observations
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


def test_blocks_end_with_their_curve():
    rng = np.random.default_rng(3)
    lengths = [37, 1, 64, 2, 301]
    curve = np.repeat(np.arange(5), lengths)
    x = np.concatenate([np.sort(rng.uniform(size=n)) for n in lengths])
    steps = 1e3 * rng.standard_normal(5)  # between curves, which no pair of blocks may see
    weight = rng.uniform(0.5, 2.0, len(x))
    y = rng.standard_normal(len(x)) / np.sqrt(weight) + steps[curve]
    assert structure(x, weight, weight * y, 1, curve) is None
    assert structure(x, weight, weight * y, 1) is not None
    # Waves of one phase each, that no curve alone would show.
    x = np.tile(np.arange(16.0), 60)
    curve = np.repeat(np.arange(60), 16)
    phase = rng.uniform(0, 2 * np.pi, 60)
    y = 1.2 * np.sin(2 * np.pi * x / 8 + phase[curve]) + rng.standard_normal(960)
    alone = [structure(x[curve == c], np.ones(16), y[curve == c], 1) for c in range(60)]
    assert sum(seen is not None for seen in alone) < 6
    seen = structure(x, np.ones(960), y / np.var(y), 1, curve)
    assert seen is not None
    assert seen.distance == 2**seen.level <= 4


def test_screen_of_curves_of_noise_errs_as_rarely_as_it_says():
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(30, 500))
        curve = np.sort(rng.integers(int(rng.integers(1, 40)), size=n))
        weight = rng.uniform(0.1, 5.0, n)
        score = rng.standard_normal(n) * np.sqrt(weight)
        x = np.arange(n) - np.searchsorted(curve, curve).astype(float)
        hits += structure(x, weight, score, 1, curve) is not None
    assert hits <= 2


@pytest.mark.parametrize("kind", ["curves", "varying"])
def test_scan_of_curves_and_coefficients_gains_what_the_dense_likelihood_gains(kind):
    rng = np.random.default_rng(0)
    n = 400
    x, group, z = np.arange(n) // 4.0, np.arange(n) % 4, rng.standard_normal(n)
    f = np.sin(2 * np.pi * x / 9 + (group if kind == "curves" else 0))
    y = (f if kind == "curves" else z * f) + 0.3 * rng.standard_normal(n)
    if kind == "curves":
        order = np.lexsort((x, group))
        cells, codes = GroupedAxis(np.column_stack([group, x])[order]), np.argsort(order)
        prior, factors = (group[:, None] == group[None, :]).astype(float), {}
    else:
        cells, codes = MultipliedCells(Axis(np.unique(x))), x.astype(int)
        prior, factors = np.outer(z, z), {0: z}
    table = RowTable(("f",), (cells,), codes[None].astype(np.uint16), factors)
    start = finer_start(
        RowEquations.of(table, y),
        [Matern52(1e4, 1e-6)],
        1.0,
        np.zeros(len(cells)),
        free=[FREE],
        noise_bounds=NOISE,
    )

    def dense(kernel, noise):
        covariance = prior * kernel.covariance(x) + noise * np.eye(n)
        quadratic = y @ np.linalg.solve(covariance, y)
        return -0.5 * (quadratic + np.linalg.slogdet(covariance)[1] + n * math.log(2 * math.pi))

    before = dense(Matern52(1e4, 1e-6), np.sum(y**2) / n)
    expected = dense(start.kernels[0], start.noise_variance) - before
    assert start.gain == pytest.approx(expected, rel=1e-3)
    assert start.gain > 50
    assert 1 < start.kernels[0].lengthscale < 9


def test_one_lengthscale_of_a_sum_is_scanned_and_both_variances_move():
    x, y = wave(500, 20, 0.3)
    kernel = Matern52(1e4, 1e-6) + Matern32(1e4, 2e-6)
    equations = RowEquations.of(
        RowTable(("x",), (DenseCells(x),), np.arange(500, dtype=np.uint16)[None], {}), y
    )
    options = {"noise_bounds": NOISE, "mean": np.zeros(500)}
    start = finer_start(equations, [kernel], 1.0, free=[kernel.free], **options)
    made = start.kernels[0]
    lengths = sorted(part.lengthscale for part in made.parts)
    assert 1 < lengths[0] < 30
    assert made.parts[1].variance / made.parts[0].variance == pytest.approx(2.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [Matern12, Matern32, Matern52])
def test_scan_gains_what_the_dense_likelihood_gains(make, weighted):
    """Ties, weights and an unused term beside: likelihoods by dense algebra."""
    rng = np.random.default_rng(1)  # not that of the noise: the other column says nothing
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
        for values in (weight, weight * y, weight * y**2, np.ones(len(x)))
    ]
    return sums[0], sums[1], sums[2].sum(axis=1), sums[3].sum(axis=1)


def test_bins_are_too_wide_for_what_goes_on_within_them_only():
    rng = np.random.default_rng(0)
    n = 40_000
    x, weight = rng.uniform(size=n), rng.uniform(0.5, 2.0, n)
    noise = rng.standard_normal(n) / np.sqrt(weight)

    def parts(f):
        return bins_too_wide(*cells(f + noise, x, 64, 32, weight), 1)

    assert parts(0.0) == 1
    assert parts(50 * np.sin(2 * np.pi * x) + 1e3) == 1  # straight within a bin
    few, many = (parts(np.sin(2 * np.pi * cycles * x)) for cycles in (150, 600))
    assert 4 <= few < many <= 64
    # Counts that are rare, with a variance of their own in each bin.
    rare = rng.poisson(0.01 * np.exp(2 * x), n).astype(float)
    assert bins_too_wide(*cells(rare, x, 64, 32, np.ones(n)), 1) == 1


@pytest.mark.parametrize("rows_per_bin", [5, 8, 30])
def test_few_rows_in_a_bin_are_no_structure(rows_per_bin):
    """Noise of another variance in every bin, of multipliers that differ from row to row."""
    hits = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n = 500 * rows_per_bin
        x, z = rng.uniform(size=n), rng.standard_normal(n)
        y = rng.uniform(0.1, 3.0, 500)[(500 * x).astype(int)] * rng.standard_normal(n) + 0.2
        hits += bins_too_wide(*cells(y / z, x, 500, 4, z**2), 1) > 1
    assert hits <= 2
    wave = 5 * np.sin(2 * np.pi * 800 * x)
    assert bins_too_wide(*cells(y + wave, x, 500, 4, np.ones(n)), 1) > 1


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
