"""Every kernel with hardly any noise, and with tiny and huge lengthscales, against sixty digits."""

import mpmath
import numpy as np
import pytest

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
from dsgp.terms import Axis, DenseCells, MarkovCells, Observations

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
        solved = mpmath.lu_solve(matrix, mpmath.matrix(y.tolist()))
        mean = mpmath.matrix(cross.tolist()) * solved
        std = []
        for row, variance in zip(cross, prior, strict=True):
            column = mpmath.matrix(row.tolist())
            left = mpmath.mpf(float(variance)) - (column.T * mpmath.lu_solve(matrix, column))[0]
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
