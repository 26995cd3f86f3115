"""Smoothing splines beside scipy's: seconds, error and smoothing parameter.

    python -m benchmarks.spline [--rows 1000 10000 100000 1000000] [--peer-rows 1000000]

Both choose the smoothing parameter: ours by restricted likelihood, scipy's by generalised
cross-validation. The inputs are even: scipy refuses inputs that lie closer ("ill-posed"). At 10⁶
rows it takes some eight minutes.
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer
from scipy.interpolate import make_smoothing_spline

from dsgp import SmoothingSpline

NOISE = 0.3


def rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Even inputs with a spacing of 1, the function there, and targets."""
    x = np.arange(float(n))
    truth = np.sin(12 * x / n)
    return x, truth, truth + NOISE * np.random.default_rng(0).standard_normal(n)


def ours(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Posterior mean and standard deviation at all rows; the mean is returned."""
    return np.asarray(SmoothingSpline().fit(x, y).predict(x, return_std=True)[0])


def theirs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(make_smoothing_spline(x, y)(x))


def main(
    n_rows: Annotated[list[int], typer.Option("--rows")] = [1_000, 10_000, 100_000, 1_000_000],  # noqa: B006
    peer_rows: Annotated[int, typer.Option(help="Maximum number of rows for scipy.")] = 1_000_000,
) -> None:
    """Print a table."""
    ours(*rows(100)[::2])  # compiles
    print("| rows | method | CPU s | root mean squared error of the function |")
    print("| --- | --- | --- | --- |")
    for n in n_rows:
        x, truth, y = rows(n)
        for name, method in (("dsgp", ours), ("scipy", theirs)):
            if name == "scipy" and n > peer_rows:
                continue
            begun = time.process_time()
            mean = method(x, y)
            taken = time.process_time() - begun
            error = float(np.sqrt(np.mean((mean - truth) ** 2)))
            print(f"| {n} | {name} | {taken:.3g} | {error:.2g} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
