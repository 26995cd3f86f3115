"""Updates beside fits: processor seconds, memory, size of the store, and whether both agree.

    python -m benchmarks.update [--rows 1000000] [--new 1000 --new 10000 --new 100000]
                                [--kernel matern52 --kernel matern32] [--batches 100]

Eight columns, some of them of no use. A model of ``--rows`` rows is saved; each fit and each update
of the saved model then runs in a process of its own, after a small fit and update that load the
compiled code. Models of Matérn 5/2 keep two-way tables of bins, those of Matérn 3/2 have too many
bins for that and keep the bins of all rows. The second table compares ``--batches`` updates with
one fit to all rows that keeps the hyperparameters.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.kernels import Matern32, Matern52
from pipelines.scaling.run import own_peak_memory_mb

KERNELS = {"matern52": Matern52, "matern32": Matern32}
NOISE = 0.5
COLUMNS = 8
# Enough for bins, so that the same code runs as with more rows.
WARM_UP_ROWS = 20_000
NEW_ROWS = 1000  # at which two models are compared

Rows = tuple[np.ndarray, np.ndarray]


def rows(n: int, seed: int, columns: int = COLUMNS) -> Rows:
    """Inputs that are uniform between −3 and 3, and a target with noise."""
    random = np.random.default_rng(seed)
    X = random.uniform(-3, 3, (n, columns))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] ** 2
    if columns > 2:
        y = y - np.cos(2 * X[:, 2]) + 0.5 * X[:, 3]
    return X, y + NOISE * random.standard_normal(n)


def seconds_and_memory(work: Callable[[], object]) -> dict[str, float]:
    """Processor seconds of all threads, and the peak of the process in MB, libraries included."""
    begun = time.process_time()
    work()
    return {"seconds": time.process_time() - begun, "mb": own_peak_memory_mb() or 0.0}


def warm_up(kernel: str) -> None:
    """Load the compiled code of fits and updates."""
    X, y = rows(WARM_UP_ROWS, 0)
    AdditiveGPRegressor(KERNELS[kernel]()).fit(X, y).update(X[:100], y[:100])


def measured_fit(kernel: str, n: int, n_new: int, store: str | None) -> dict[str, float]:
    """Fit to all rows; the model is saved where a store is named."""
    warm_up(kernel)
    X, y = rows(n, 1)
    if n_new:
        X_new, y_new = rows(n_new, 2)
        X, y = np.concatenate([X, X_new]), np.concatenate([y, y_new])
    model = AdditiveGPRegressor(KERNELS[kernel]())
    result = seconds_and_memory(lambda: model.fit(X, y))
    if store is not None:
        model.save(store)
    return result


def measured_update(kernel: str, store: str, n_new: int, updated: str) -> dict[str, float]:
    """Update a saved model, and save it elsewhere."""
    warm_up(kernel)
    model = dsgp.load(store)
    X, y = rows(n_new, 2)
    result = seconds_and_memory(lambda: model.update(X, y))
    model.save(updated)
    return result


def alone(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def size_mb(store: Path) -> float:
    """Size of the files of a store."""
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) / 1e6


def agreement(n: int, columns: int, batches: int, bins: str | None) -> dict[str, float]:
    """Differences between a model of many updates and one fit, in posterior standard deviations."""
    X, y = rows(n, 1, columns)
    edges = np.linspace(n // 2, n, batches + 1).astype(int)
    model = AdditiveGPRegressor(bins=bins).fit(X[: edges[0]], y[: edges[0]])
    for first, last in pairwise(edges):
        model.update(X[first:last], y[first:last])
    whole = AdditiveGPRegressor(
        terms=model.kernels_, noise_variance=model.noise_variance_, learner=None, bins=bins
    ).fit(X, y)
    new = rows(NEW_ROWS, 3, columns)[0]
    (mean, std), (expected, its_std) = (m.predict(new, return_std=True) for m in (model, whole))
    difference = np.abs(mean - expected) / its_std
    return {
        "largest": float(difference.max()),
        "rms": float(np.sqrt(np.mean(difference**2))),
        "of_std": float(np.abs(std / its_std - 1).max()),
    }


def main(
    n_rows: Annotated[int, typer.Option("--rows", help="Rows of the saved model.")] = 1_000_000,
    new: Annotated[list[int], typer.Option(help="New rows of an update.")] = [  # noqa: B006
        1_000,
        10_000,
        100_000,
    ],
    kernel: Annotated[list[str], typer.Option(help="Kernels of all terms.")] = [  # noqa: B006
        "matern52",
        "matern32",
    ],
    batches: Annotated[int, typer.Option(help="Updates beside one fit.")] = 100,
    exact_rows: Annotated[int, typer.Option(help="Rows where every value is kept.")] = 5_000,
) -> None:
    """Print two tables."""
    print("| kernel | new rows | update, CPU s | fit to all, CPU s | ratio | update, peak MB "
          "| fit, peak MB | store, MB | updated |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in kernel:
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "model.zarr"
            alone(measured_fit, name, n_rows, 0, str(store))
            for n_new in new:
                updated = Path(folder) / f"{n_new}.zarr"
                update = alone(measured_update, name, str(store), n_new, str(updated))
                fit = alone(measured_fit, name, n_rows, n_new, None)
                print(
                    f"| {name} | {n_new} | {update['seconds']:.2f} | {fit['seconds']:.2f} "
                    f"| {fit['seconds'] / update['seconds']:.1f} | {update['mb']:.0f} "
                    f"| {fit['mb']:.0f} | {size_mb(store):.1f} | {size_mb(updated):.1f} |",
                    flush=True,
                )
    print(f"\n| rows | columns | bins | largest difference after {batches} updates, std | rms "
          "| of the std |")  # fmt: skip
    print("|---:|---:|---|---:|---:|---:|")
    for n, columns, bins in ((exact_rows, 2, None), (n_rows, COLUMNS, "auto")):
        found = agreement(n, columns, batches, bins)
        print(
            f"| {n} | {columns} | {bins} | {found['largest']:.2g} | {found['rms']:.2g} "
            f"| {found['of_std']:.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
