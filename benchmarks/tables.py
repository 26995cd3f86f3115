"""Accuracy and seconds on real tables with categories, dates and gaps.

    python -m benchmarks.tables --data-dir FOLDER [--job NAME ...] [--crossed ROWS LEVELS LEVELS]
    OMP_NUM_THREADS=1 python -m benchmarks.tables --data-dir FOLDER --beside-r 3

The folder has ``tables/NAME.parquet``. Every job has one target, one change of the raw table and
one seeded split (80 % of a permutation by seed 0); terms are the defaults, but for the date of
birthdays and the curves of diamonds-by. ``--beside-r`` takes turns with lme4 and mgcv, where R is
installed, and counts CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from benchmarks.tables_beside_r import PACKAGES, beside_r, missing_package
from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, Levels, Smooth
from pipelines.datasets.tables import TABLE_JOBS, path_of, split_table

GROUPS = {"carat": [Smooth(), Smooth(by="clarity"), Smooth(by="color")]}
# The jobs of the pipeline, and curves of groups that mgcv has too.
JOBS = {**TABLE_JOBS, "diamonds-by": replace(TABLE_JOBS["diamonds"], terms=GROUPS)}


def split_of(folder: Path, name: str) -> tuple[pd.DataFrame, Any, pd.DataFrame, Any]:
    """Return training rows and targets, test rows and targets of a job."""
    path = path_of(JOBS[name].file, folder)
    split = split_table(name, JOBS[name], pd.read_parquet(path))
    return split.X_train, split.y_train, split.X_test, split.y_test


def job(folder: Path, name: str) -> dict[str, Any]:
    """Fit and test one job."""
    X, y, X_test, observed = split_of(folder, name)
    is_class = JOBS[name].is_class
    make: Any = AdditiveGPClassifier if is_class else AdditiveGPRegressor
    model = make(terms=JOBS[name].terms, missing="ignore")
    began = time.perf_counter()
    model.fit(X, y)
    result: dict[str, Any] = {"job": name, "rows": len(X)}
    result["seconds"] = round(time.perf_counter() - began, 1)
    if is_class:
        result["mnll"] = log_loss(observed, model.predict_proba(X_test)[:, 1])
        return result
    mean, std = model.predict(X_test, return_std=True, include_noise=True)
    error = observed - mean
    result["nmse"] = np.mean(error**2) / np.mean((observed - y.mean()) ** 2)
    result["coverage"] = np.mean(np.abs(error) < 1.96 * std)
    return result


def crossed(n_rows: int, first: int, second: int) -> dict[str, Any]:
    """Fit two crossed effects of a simulated table: of standard deviations 0.3, 0.5 and 1."""
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, first, n_rows), rng.integers(0, second, n_rows)
    y = 0.3 * rng.standard_normal(first)[i] + 0.5 * rng.standard_normal(second)[j]
    y += rng.standard_normal(n_rows)
    table = pd.DataFrame({"i": i.astype(float), "j": j.astype(float)})
    began = time.perf_counter()
    model = AdditiveGPRegressor(terms=[Levels("i"), Levels("j")]).fit(table, y)
    stds = {name: kernel.std for name, kernel in model.kernels_.items()}
    stds["noise"] = model.noise_variance_**0.5
    seconds = time.perf_counter() - began
    return {"rows": n_rows, "levels": [first, second], "seconds": seconds, "std": stds}


def main() -> None:
    """Run the jobs, a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--job", action="append", choices=list(JOBS))
    parser.add_argument("--crossed", type=int, nargs=3, metavar="N")
    parser.add_argument("--beside-r", type=int, metavar="ROUNDS")
    options = parser.parse_args()
    if options.beside_r is not None and (options.data_dir is None or options.beside_r < 1):
        parser.error("--beside-r takes a number of rounds, and --data-dir")
    if options.data_dir is None and options.crossed is None:
        parser.error("give --data-dir, --crossed or both")
    warnings.simplefilter("ignore")
    if options.crossed:
        print(json.dumps(crossed(*options.crossed)), flush=True)
    if options.beside_r is not None:
        for name in PACKAGES:
            if options.job and name not in options.job:
                continue
            if (lacking := missing_package(name)) is not None:
                print(json.dumps({"job": name, "not measured": lacking}), flush=True)
                continue
            split = split_of(options.data_dir, name)
            result = beside_r(name, split, JOBS[name].terms, options.beside_r)
            print(json.dumps(result, default=float), flush=True)
    elif options.data_dir is not None:
        for name in options.job or JOBS:
            print(json.dumps(job(options.data_dir, name), default=float), flush=True)


if __name__ == "__main__":
    main()
