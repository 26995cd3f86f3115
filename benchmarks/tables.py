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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from benchmarks.tables_beside_r import PACKAGES, beside_r, missing_package
from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, Levels, Smooth
from dsgp.kernels import Periodic

Change = Callable[[pd.DataFrame], pd.DataFrame]
DATES = {"date": [Smooth(), Smooth(kernel=Periodic("year")), Levels(part="weekday")]}
GROUPS = {"carat": [Smooth(), Smooth(by="clarity"), Smooth(by="color")]}


def _log(name: str) -> Change:
    return lambda table: table.assign(**{name: np.log(table[name].clip(lower=1))})


def _late(table: pd.DataFrame) -> pd.DataFrame:
    late = (table["arr_delay"] > 30).astype(int)
    return table.assign(late=late).drop(columns=["arr_delay", "dep_delay"])


# Target, change of the raw table, and terms.
JOBS: dict[str, tuple[str, Change, Any]] = {
    "diamonds": ("price", _log("price"), None),
    "diamonds-by": ("price", _log("price"), GROUPS),
    "deliveries": ("time_to_delivery", lambda table: table, None),
    "hotel_rates": ("avg_price_per_room", lambda table: table, None),
    "ames": ("Sale_Price", _log("Sale_Price"), None),
    "birthdays": ("births", _log("births"), DATES),
    "insteval": ("y", lambda table: table, None),
    "flights": ("late", _late, None),
    "lending_club": ("Class", lambda table: table, None),
}


def split_of(folder: Path, name: str) -> tuple[pd.DataFrame, Any, pd.DataFrame, Any]:
    """Return training rows and targets, test rows and targets of a job."""
    target, change, _ = JOBS[name]
    table = change(pd.read_parquet(folder / "tables" / f"{name.partition('-')[0]}.parquet"))
    table = table[table[target].notna()].reset_index(drop=True)
    y = table.pop(target)
    if not pd.api.types.is_numeric_dtype(y):
        y = (y == y.value_counts().index[-1]).astype(int)
    order = np.random.default_rng(0).permutation(len(table))
    train, test = np.split(order, [int(0.8 * len(order))])
    return table.iloc[train], y.to_numpy()[train], table.iloc[test], y.to_numpy()[test]


def job(folder: Path, name: str) -> dict[str, Any]:
    """Fit and test one job."""
    X, y, X_test, observed = split_of(folder, name)
    is_class = name in ("flights", "lending_club")
    make: Any = AdditiveGPClassifier if is_class else AdditiveGPRegressor
    model = make(terms=JOBS[name][2], missing="ignore")
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
            told = beside_r(name, split, JOBS[name][2], options.beside_r)
            print(json.dumps(told, default=float), flush=True)
    elif options.data_dir is not None:
        for name in options.job or JOBS:
            print(json.dumps(job(options.data_dir, name), default=float), flush=True)


if __name__ == "__main__":
    main()
