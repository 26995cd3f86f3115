"""Whether the pairs of columns that interact are found, and only these.

    python -m benchmarks.interactions [--rows N] [--columns D] [--seeds K]

Simulated tables of correlated columns with five known pairs, and with none.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import combinations

import numpy as np

from dsgp import AdditiveGPRegressor

N_PAIRS = 5
CORRELATION = 0.5
NOISE = 1.0


def table(
    n_rows: int, n_columns: int, seed: int, n_pairs: int
) -> tuple[np.ndarray, np.ndarray, set[tuple[str, str]]]:
    """Return rows, targets and the pairs that interact.

    Columns are normal with correlation 0.5 of any two. Main effects are sines of six columns, and
    interactions products or differences of the columns of a pair, each with a fifth of the noise's
    variance.
    """
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n_rows, 1))
    own = rng.standard_normal((n_rows, n_columns))
    X = np.sqrt(CORRELATION) * common + np.sqrt(1 - CORRELATION) * own
    f = sum(np.sin(X[:, k] * (1 + k / 3)) for k in rng.choice(n_columns, 6, replace=False))
    every = list(combinations(range(n_columns), 2))
    chosen = [every[k] for k in rng.choice(len(every), n_pairs, replace=False)]
    kinds = [
        lambda a, b: a * b,
        lambda a, b: np.sin(a - b),
        lambda a, b: np.where((a > 0) & (b > 0), 1.0, 0.0),
        lambda a, b: np.sin(2 * a) * np.cos(b),
        lambda a, b: np.exp(-(a**2) - b**2),
    ]
    for number, (j, k) in enumerate(chosen):
        part = kinds[number % len(kinds)](X[:, j], X[:, k])
        f = f + part / part.std() * np.sqrt(0.2) * NOISE
    y = f + NOISE * rng.standard_normal(n_rows)
    return X, y, {(f"x{j}", f"x{k}") for j, k in chosen}


def run(n_rows: int, n_columns: int, seeds: int) -> dict[str, float]:
    """Count seeds in which the first pairs are the true ones, and in which none is found."""
    right = silent = 0
    seconds = 0.0
    for seed in range(seeds):
        X, y, true = table(n_rows, n_columns, seed, N_PAIRS)
        began = time.process_time()
        model = AdditiveGPRegressor(interactions="auto").fit(X, y)
        seconds += time.process_time() - began
        found = set(model.interactions_[:N_PAIRS])
        right += found == true
        extra = len(model.interactions_) - N_PAIRS
        X, y, _ = table(n_rows, n_columns, 1000 + seed, 0)
        none = AdditiveGPRegressor(interactions="auto").fit(X, y)
        silent += not none.interactions_
        print(
            f"seed {seed}: {len(found & true)} of {N_PAIRS} pairs first, {extra} more; of none "
            f"{len(none.interactions_)}",
            flush=True,
        )
    return {
        "rows": n_rows, "columns": n_columns, "seeds": seeds, "the true pairs first": right,
        "none where there is none": silent, "CPU seconds a fit": seconds / seeds,
    }  # fmt: skip


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.rows, arguments.columns, arguments.seeds), indent=2))


if __name__ == "__main__":
    main()
