"""What a remainder costs, and how near it comes to the function it is to find.

    python -m benchmarks.remainder [--rows N] [--columns D] [--alone] [--neighbours M]
                                   [--interactions] [--projections] [--data FILE]

A simulated table with interactions of two and three columns; or an npz file of ``X`` and ``y`` (and
``is_train``), such as the public regression sets. CPU seconds of the process, all threads together.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np

from dsgp import AdditiveGPRegressor, Remainder

NOISE = 0.2
TEST_ROWS = 10_000


def simulated(n_rows: int, n_columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and the function at them: seven of the columns matter."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n_rows, n_columns))
    pairs = np.sin(3 * X[:, 0] * X[:, 1]) + X[:, 2] ** 2 * X[:, 3]
    return X, pairs + np.sin(2 * X[:, 4] + X[:, 5] * X[:, 6])


def stored(path: str) -> tuple[np.ndarray, ...]:
    """Return training rows, their targets, and those of the test."""
    with np.load(path, allow_pickle=False) as data:
        X, y = data["X"], data["y"]
        known = data["is_train"].astype(bool) if "is_train" in data else None
    if known is None:
        known = np.zeros(len(y), dtype=bool)
        known[np.random.default_rng(0).permutation(len(y))[: int(0.875 * len(y))]] = True
    return X[known], y[known], X[~known], y[~known]


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit, predict, and compare."""
    if arguments.data:
        X, y, X_test, y_test = stored(arguments.data)
    else:
        X, f = simulated(arguments.rows, arguments.columns, 0)
        y = f + NOISE * np.random.default_rng(1).standard_normal(len(f))
        X_test, y_test = simulated(TEST_ROWS, arguments.columns, 2)
    options: dict[str, Any] = {"remainder": Remainder(n_neighbours=arguments.neighbours)}
    if arguments.alone:
        options["terms"] = []
    if arguments.interactions:
        options["interactions"] = "auto"
    if arguments.projections:
        options["projections"] = "auto"
    start = time.process_time()
    model = AdditiveGPRegressor(**options).fit(X, y)
    fitted = time.process_time()
    mean, std = model.predict(X_test, return_std=True, include_noise=bool(arguments.data))
    done = time.process_time()
    error = y_test - mean
    return {
        "rows": len(X),
        "columns": X.shape[1],
        "fit_cpu_s": round(fitted - start, 1),
        "predict_cpu_s_per_1000_rows": round(1000 * (done - fitted) / len(X_test), 2),
        "nmse": round(float(np.mean(error**2) / np.var(y_test)), 4),
        "cover_95": round(100 * float(np.mean(np.abs(error) < 1.96 * std)), 1),
        "noise_std": model.noise_variance_**0.5,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "notes": model.learner_notes_,
    }


def main() -> None:
    """Measure as the arguments say, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--columns", type=int, default=9)
    parser.add_argument("--alone", action="store_true", help="no terms beside it")
    parser.add_argument("--interactions", action="store_true")
    parser.add_argument("--projections", action="store_true")
    parser.add_argument("--neighbours", type=int, default=64)
    parser.add_argument("--data", help="an npz file with X, y and, where it is known, is_train")
    print(json.dumps(measured(parser.parse_args()), ensure_ascii=False))


if __name__ == "__main__":
    main()
