"""Every kernel with hardly any noise, and with tiny and huge lengthscales, against sixty digits."""

import mpmath
import numpy as np
import pytest

from dsgp.errors import DataWarning
from dsgp.kernels import (
    DampedOscillation,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    QuasiPeriodic,
    RationalQuadratic,
    SquaredExponential,
)
from dsgp.terms import Axis, DenseCells, GroupedDense, MarkovCells, Observations

# By the lengthscale, in units of the range of the inputs, which is 1.
KERNELS = {
    "matern12": lambda length: Matern12(length, 1.0),
    "matern32": lambda length: Matern32(length, 1.0),
    "matern52": lambda length: Matern52(length, 1.0),
    "matern72": lambda length: Matern72(length, 1.0),
    "squared exponential": lambda length: SquaredExponential(length, 1.0),
    "rational quadratic": lambda length: RationalQuadratic(length, 1.0, 0.7),
    "periodic": lambda length: Periodic(0.37, length, 1.0),
    "quasi-periodic": lambda length: QuasiPeriodic(0.37, length, 1.0, 5.0),
    "oscillation": lambda length: DampedOscillation(0.37, length, 1.0),
    "sum": lambda length: Matern52(length, 0.5) + Matern12(0.3 * length, 0.5),
    "product": lambda length: Matern52(length, 1.0) * DampedOscillation(0.37, length, 1.0),
    "stiff": lambda length: Matern52(length, 0.5) + DampedOscillation(0.37, 1e-6, 0.5),
    "cut": lambda length: SquaredExponential(length, 1.0, error=1e-4),
    "cut season": lambda length: QuasiPeriodic(0.37, max(length, 0.05), 1.0, 5.0, error=1e-4),
}


def all_cells(kernel, x):
    """Every kind of cells that the kernel may have."""
    if kernel.error is not None:
        return [MarkovCells(x)]
    first = Axis(x) if isinstance(kernel, Matern) else DenseCells(x)
    return [first] if kernel.n_states is None else [first, MarkovCells(x)]


def exact(covariance, cross, prior, noise, y):
    """Posterior mean and standard deviation, of covariances as float64 has them."""
    with mpmath.workdps(60):
        matrix = mpmath.matrix(covariance.tolist()) + noise * mpmath.eye(len(y))
        factors, order = mpmath.mp.LU_decomp(matrix)

        def solve(right):
            return mpmath.mp.U_solve(factors, mpmath.mp.L_solve(factors, right, order))

        solved = solve(mpmath.matrix(y.tolist()))
        mean = mpmath.matrix(cross.tolist()) * solved
        std = []
        for row, variance in zip(cross, prior, strict=True):
            column = mpmath.matrix(row.tolist())
            left = mpmath.mpf(float(variance)) - (column.T * solve(column))[0]
            std.append(float(mpmath.sqrt(max(left, 0))))
        return np.array(mean.tolist(), dtype=float)[:, 0], np.array(std)


@pytest.mark.parametrize("length", [1e-6, 0.3, 1e6])
@pytest.mark.parametrize("noise", [1e-10, 1e-2])
@pytest.mark.parametrize("name", KERNELS)
def test_hardly_any_noise_and_extreme_lengthscales(name, noise, length):
    kernel = KERNELS[name](length)
    rng = np.random.default_rng(0)
    x = np.sort(np.append(rng.uniform(0, 1, 22), [0.0, 1.0]))
    kinds = all_cells(kernel, x)
    covariance = kinds[0].prior(kernel, x, x)
    # What the kernel can be: else a tiny noise makes the mean as large as the misfit over it.
    columns = np.linalg.cholesky(covariance + 1e-11 * np.eye(24))
    y = columns @ rng.standard_normal(24) + np.sqrt(noise) * rng.standard_normal(24)
    new = np.array([-0.2, 0.111, 0.5, 0.987, 1.3])
    seen = Observations(target=y, weight=np.full(24, 1 / noise))
    expected, deviation = exact(
        covariance, kinds[0].prior(kernel, new, x), kernel.diagonal(new), noise, y
    )
    # docs/mathematics.md, "Digits": what float64 leaves beside so little noise.
    left = 3e-15 / noise
    unknown = deviation**2 + noise
    for cells in kinds:
        posterior = cells.posterior(kernel, seen)
        mean = cells.kernel_sum(kernel, posterior.dual)(new)
        std = np.sqrt(cells.variance_function(kernel, seen.weight)(new))
        np.testing.assert_array_less(np.abs(mean - expected), 0.02 * np.sqrt(unknown) + left)
        np.testing.assert_array_less(np.abs(std**2 - deviation**2), 0.02 * unknown + left)
        assert np.isfinite(posterior.evidence.value)
        assert np.isfinite([*posterior.evidence.by_log.values()]).all()


@pytest.mark.parametrize(
    "name",
    ["matern32", "matern52", "matern72", "squared exponential", "rational quadratic", "periodic",
     "oscillation"],
)  # fmt: skip
def test_a_million_points_within_one_lengthscale(name):
    """As a thousand means of a thousand targets each, at the means of their inputs."""
    n, n_means, noise, kernel = 1_000_000, 1000, 1e-2, KERNELS[name](1.0)
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1, n))
    y = np.sin(9 * x) + np.sqrt(noise) * rng.standard_normal(n)
    means, targets = (part.reshape(n_means, -1).mean(axis=1) for part in (x, y))
    few = all_cells(kernel, means)[0]
    known = few.posterior(kernel, Observations(targets, np.full(n_means, n / n_means / noise)))
    many = all_cells(kernel, x)[-1 if name == "oscillation" else 0]
    posterior = many.posterior(kernel, Observations(y, np.full(n, 1 / noise)))
    middle = np.arange(n_means) * (n // n_means) + n // n_means // 2
    expected, variance = known.predict(x[middle])
    away = np.abs(posterior.mean[middle] - expected) / np.sqrt(variance)
    # The rougher a function, the more a mean hides of it.
    assert away.max() < {"matern32": 0.2, "oscillation": 0.4}.get(name, 0.05)
    rtol = 3e-2 if name == "oscillation" else 6e-3
    np.testing.assert_allclose(posterior.variance[middle], variance, rtol=rtol)
    for parameter, slope in posterior.evidence.by_log.items():
        # What spreads within a mean is noise to it: some thousandths of a nat.
        expected_slope = pytest.approx(known.evidence.by_log[parameter], rel=2e-2)
        assert slope == expected_slope, parameter


def test_slopes_of_many_dense_cells_are_those_of_the_whole_matrix(monkeypatch):
    rng = np.random.default_rng(0)
    x, weight = np.sort(rng.uniform(0, 10, 300)), rng.uniform(0.5, 2.0, 300)
    pairs = np.column_stack([np.repeat([0.0, 1.0, 4.0], 100), np.tile(x[:100], 3)])
    kinds = [(DenseCells, x), (GroupedDense, pairs)]
    for noise in (1e-2, 1e-6):
        seen = Observations(np.sin(3 * x) + noise**0.5 * rng.standard_normal(300), weight / noise)
        for name in ("squared exponential", "rational quadratic", "sum"):
            kernel = KERNELS[name](1.0)
            for make, points in kinds:
                whole = make(points).posterior(kernel, seen).evidence.by_log
                with monkeypatch.context() as patch:
                    patch.setattr("dsgp.terms.dense._AT_ONCE", 100)
                    by_factor = make(points).posterior(kernel, seen).evidence.by_log
                assert by_factor == pytest.approx(whole, rel=1e-4 if noise < 1e-3 else 1e-7)


def test_rough_dense_covariances_name_the_form_that_is_exact(monkeypatch):
    monkeypatch.setattr("dsgp.terms.dense._AT_ONCE", 10)
    monkeypatch.setattr("dsgp.terms.dense.MOST_COLUMNS", 20)
    cells = DenseCells(np.linspace(0, 1, 60))
    for kernel, form in (
        (DampedOscillation(0.1, 0.01, 1.0), "form of 2 components, which is exact"),
        (RationalQuadratic(0.01, 1.0, 0.7), "a kernel that states its error"),
    ):
        with pytest.warns(DataWarning, match=f"20 columns .* is left out.*{form}"):
            cells.multiply(kernel, np.ones(60))
