"""Sums of Matérn 7/2 functions of normal inputs, with noise, as labels or as counts.

The functions are fixed, rows and noise depend on the seed. The stream of the training rows depends
on their number and that of the test rows does not, so models trained on different numbers of rows
are compared on the same points.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from dsgp.errors import DataError
from pipelines.datasets.splits import Floats, Whole

N_COLUMNS, MANY_COLUMNS = 8, 32
N_ROWS, N_TEST = 8000, 100_000  # unless the caller says otherwise
NOISE_VARIANCE = 0.01
LOG_RATE_STD = 0.5
EXPOSURE = (0.5, 4.0)
REFERENCE_STREAM, TEST_STREAM = 5, 999
REFERENCE_ROWS = 20_000


def synth8d(n: int, n_test: int, seed: int) -> Whole:
    """``y = sum_d f_d(x_d) + noise`` of eight columns."""
    return _with_noise("synth8d", N_COLUMNS, n, n_test, seed)


def synth32d(n: int, n_test: int, seed: int) -> Whole:
    """Likewise of 32 columns; the first eight functions are those of ``synth8d``."""
    return _with_noise("synth32d", MANY_COLUMNS, n, n_test, seed)


def _with_noise(name: str, n_columns: int, n: int, n_test: int, seed: int) -> Whole:
    def noisy(f: Floats, rng: np.random.Generator) -> Floats:
        return f + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(len(f))

    X, f, y, is_train = _draw(name, n, n_test, seed, lambda total: total, noisy, n_columns)
    return Whole(name, name, X, y, is_train, f=f, noise_variance=NOISE_VARIANCE)


def synth8d_binary(n: int, n_test: int, seed: int) -> Whole:
    """Labels 0 and 1 with the logit ``sum_d f_d(x_d) - c``; c is the mean of the sum."""
    centre, _ = synth8d_moments(seed)

    def labels(f: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
        return (rng.uniform(size=len(f)) < expit(f)).astype(np.int64)

    name = "synth8d-binary"
    X, f, y, is_train = _draw(name, n, n_test, seed, lambda total: total - centre, labels)
    return Whole(name, name, X, y, is_train, f=f)


def synth8d_poisson(n: int, n_test: int, seed: int) -> Whole:
    """Counts with the mean ``exposure * exp(f)``, ``f = 0.5 (sum_d f_d(x_d) - c) / s``.

    c and s are the mean and the standard deviation of the sum; exposures are uniform between 0.5
    and 4.
    """
    centre, scale = synth8d_moments(seed)
    exposures = []

    def counts(f: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
        exposures.append(rng.uniform(*EXPOSURE, len(f)))
        return rng.poisson(exposures[-1] * np.exp(f))

    def log_rate(total: Floats) -> Floats:
        return LOG_RATE_STD * (total - centre) / scale

    name = "synth8d-poisson"
    X, f, y, is_train = _draw(name, n, n_test, seed, log_rate, counts)
    exposure = pd.Series(np.concatenate(exposures), X.index, name="exposure")
    return Whole(name, name, X, y, is_train, exposure, f)


def synth8d_moments(seed: int) -> tuple[float, float]:
    """Mean and standard deviation of the sum of the functions, over 20 000 rows of their own."""
    rng = np.random.default_rng([seed, REFERENCE_STREAM])
    total = _sum(rng.standard_normal((REFERENCE_ROWS, N_COLUMNS)), *additive_functions(N_COLUMNS))
    return float(total.mean()), float(total.std())


def _draw(
    name: str,
    n: int,
    n_test: int,
    seed: int,
    latent: Callable[[Floats], Floats],
    outcome: Callable[[Floats, np.random.Generator], NDArray],
    n_columns: int = N_COLUMNS,
) -> tuple[pd.DataFrame, Floats, pd.Series, NDArray[np.bool_]]:
    """Training rows, then test rows: inputs, f, outcomes, and which are trained on.

    `latent` makes f of the sum of the functions, `outcome` draws from it after the inputs.
    """
    if min(n, n_test) < 1:
        raise DataError(f"{name}: expected at least one row, got n = {n}, n_test = {n_test}")
    if n == TEST_STREAM:
        raise DataError(
            f"{name}: n = {n} would draw the training rows from the stream of the test rows; "
            "choose another n"
        )
    functions = additive_functions(n_columns)
    X, f = np.empty((n + n_test, n_columns)), np.empty(n + n_test)
    y = []
    for rows, stream in ((slice(0, n), n), (slice(n, None), TEST_STREAM)):
        rng = np.random.default_rng([seed, stream])
        rng.standard_normal(out=X[rows])
        f[rows] = latent(_sum(X[rows], *functions))
        y.append(outcome(f[rows], rng))
    index = np.concatenate([np.arange(n), np.arange(n_test)])
    frame = pd.DataFrame(X, index, [f"x{j + 1}" for j in range(n_columns)])
    return frame, f, pd.Series(np.concatenate(y), index, name="y"), np.arange(len(X)) < n


def _sum(X: Floats, grid: Floats, functions: Floats) -> Floats:
    total = np.zeros(len(X))
    for j, function in enumerate(functions):
        total += _interpolate(grid, function, X[:, j])
    return total


def additive_functions(
    n_functions: int = 8, lengthscale: float = 1.0, seed: int = 11
) -> tuple[Floats, Floats]:
    """Draw Matern-7/2 functions of unit variance on a regular grid of [-6, 6].

    Returns
    -------
    grid : ndarray of shape (4096,)
    functions : ndarray of shape (n_functions, 4096)
    """
    rng = np.random.default_rng(seed)
    grid = np.linspace(-6.0, 6.0, 4096)
    # A Fourier series on a circle so long that a path does not feel its other end.
    step = 2 * np.pi / (24.0 + 32.0 * lengthscale)
    rate = np.sqrt(7.0) / lengthscale
    frequency = step * np.arange(int(np.clip(60 * rate / step, 400, 6000)) + 1)
    power = (rate**2 + frequency**2) ** -4.0
    power[0] *= 0.5  # the zero frequency has no negative twin
    amplitude = np.sqrt(power / power.sum())
    cosine, sine = (rng.standard_normal((n_functions, 2, len(frequency))) * amplitude).transpose(
        1, 2, 0
    )  # (n_frequencies, n_functions)

    functions = np.empty((len(grid), n_functions))
    for start in range(0, len(grid), 512):  # all phases at once would take 50 MB
        phase = grid[start : start + 512, None] * frequency
        functions[start : start + 512] = np.cos(phase) @ cosine + np.sin(phase) @ sine
    return grid, functions.T


def _interpolate(grid: Floats, values: Floats, x: Floats) -> Floats:
    """Catmull-Rom cubic through `values` on a regular grid; the end cubics reach beyond it."""
    position = (x - grid[0]) / (grid[1] - grid[0])
    i = np.clip(np.floor(position).astype(np.int64), 1, len(grid) - 3)
    t = position - i
    p0, p1, p2, p3 = values[i - 1], values[i], values[i + 1], values[i + 2]
    slope, bend, twist = p2 - p0, 2 * p0 - 5 * p1 + 4 * p2 - p3, 3 * (p1 - p2) + p3 - p0
    return p1 + 0.5 * t * (slope + t * (bend + t * twist))
