"""Whether the pairs of columns that interact are found, and only these.

    python -m benchmarks.interactions [--rows N] [--columns D] [--seeds K] [--pairs P]
                                      [--target numbers|labels|counts]

Simulated tables of correlated columns with known pairs, and with none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP

MODELS: dict[str, Callable[..., Any]] = {
    "numbers": AdditiveGPRegressor,
    "labels": AdditiveGPClassifier,
    "counts": lambda **options: GeneralizedAdditiveGP("poisson", **options),
}
CORRELATION = 0.5
NOISE = 1.0


def table(
    n_rows: int, n_columns: int, seed: int, n_pairs: int, target: str = "numbers"
) -> tuple[np.ndarray, np.ndarray, set[tuple[str, str]]]:
    """Return rows, targets and the pairs that interact.

    Columns are normal with correlation 0.5 of any two. Main effects are sines of six columns, and
    interactions products or differences of the columns of a pair, each with a fifth of the noise's
    variance. Labels are 1 with the probability of the logit 2 f; counts have the mean exp(f / 2).
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
    if target == "labels":
        y = (rng.random(n_rows) < 1 / (1 + np.exp(-2 * f))).astype(int)
    elif target == "counts":
        y = rng.poisson(np.exp(f / 2))
    else:
        y = f + NOISE * rng.standard_normal(n_rows)
    return X, y, {(f"x{j}", f"x{k}") for j, k in chosen}


def run(
    n_rows: int, n_columns: int, seeds: int, n_pairs: int = 5, target: str = "numbers"
) -> dict[str, float | str]:
    """Count seeds in which the first pairs are the true ones, and in which none is found."""
    right = silent = 0
    seconds = 0.0
    for seed in range(seeds):
        X, y, true = table(n_rows, n_columns, seed, n_pairs, target)
        began = time.process_time()
        model = MODELS[target](interactions="auto").fit(X, y)
        seconds += time.process_time() - began
        found = set(model.interactions_[:n_pairs])
        right += found == true
        extra = len(model.interactions_) - n_pairs
        X, y, _ = table(n_rows, n_columns, 1000 + seed, 0, target)
        none = MODELS[target](interactions="auto").fit(X, y)
        silent += not none.interactions_
        print(
            f"seed {seed}: {len(found & true)} of {n_pairs} pairs first, {extra} more; of none "
            f"{len(none.interactions_)}",
            flush=True,
        )
    return {
        "target": target, "rows": n_rows, "columns": n_columns, "pairs": n_pairs, "seeds": seeds,
        "the true pairs first": right, "none where there is none": silent,
        "CPU seconds per fit": seconds / seeds,
    }  # fmt: skip


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--target", choices=sorted(MODELS), default="numbers")
    given = parser.parse_args()
    found = run(given.rows, given.columns, given.seeds, given.pairs, given.target)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
