"""Jobs of ``benchmarks.tables`` beside lme4 and mgcv in R, in turns, on the same rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from dsgp import AdditiveGPRegressor, Levels

SCRIPT = Path(__file__).with_name("tables.R")
# What R needs of each job. lme4 takes all rows, as variance components have no test rows.
PACKAGES = {"insteval": "lme4", "diamonds-by": "mgcv"}

Figures = dict[str, float]
# Training rows, targets, test rows, targets.
Split = tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]


def missing_package(job: str) -> str | None:
    """Say what a job lacks of R, if anything."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed (Debian: apt install r-base-core r-cran-lme4 r-cran-mgcv)"
    name = PACKAGES[job]
    check = ["Rscript", "-e", f"quit(status = !requireNamespace('{name}', quietly = TRUE))"]
    if subprocess.run(check, capture_output=True, check=False).returncode:
        return f"R has no package {name} (Debian: apt install r-cran-{name})"
    return None


def beside_r(job: str, split: Split, terms: Any, rounds: int) -> dict[str, Any]:
    """Fit a job by both programs in turns; return medians of CPU seconds, and what came of it.

    Parameters
    ----------
    job : {"insteval", "diamonds-by"}
    split : training rows, targets, test rows, targets
    terms : terms of dsgp, of diamonds-by
    rounds : int
        Fits by each program.
    """
    fits: dict[str, Callable[[], Figures]] = {
        "dsgp": lambda: _of_dsgp(job, split, terms),
        PACKAGES[job]: lambda: _of_r(job, split),
    }
    results: dict[str, list[Figures]] = {name: [] for name in fits}
    for _ in range(rounds):
        for name, fit in fits.items():
            results[name].append(fit())
    out: dict[str, Any] = {"job": job, "rows": _n_rows(job, split), "rounds": rounds}
    for name, rows in results.items():
        out[name] = {key: median(row[key] for row in rows) for key in rows[0]}
    out["ratio of seconds"] = out["dsgp"]["seconds"] / out[PACKAGES[job]]["seconds"]
    return out


def _n_rows(job: str, split: Split) -> int:
    return len(split[1]) + (len(split[3]) if job == "insteval" else 0)


def _of_dsgp(job: str, split: Split, terms: Any) -> Figures:
    X, y, X_test, y_test = split
    if job == "insteval":
        X, y = pd.concat([X, X_test])[["s", "d"]], np.concatenate([y, y_test])
        model = AdditiveGPRegressor(terms=[Levels("s"), Levels("d")])
    else:
        model = AdditiveGPRegressor(terms=terms)
    began = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - began
    if job == "insteval":
        variances = {name: kernel.std**2 for name, kernel in model.kernels_.items()}
        return {**variances, "Residual": model.noise_variance_, "seconds": seconds}
    return {"nmse": _nmse(y, y_test, model.predict(X_test)), "seconds": seconds}


def _of_r(job: str, split: Split) -> Figures:
    X, y, X_test, y_test = split
    with tempfile.TemporaryDirectory(prefix="tables.") as name:
        folder = Path(name)
        train, test = X.assign(target=y), X_test.assign(target=y_test)
        if job == "insteval":
            train = pd.concat([train, test])
        train.to_csv(folder / "train.csv", index=False)
        test.to_csv(folder / "test.csv", index=False)
        one_core = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = ["Rscript", str(SCRIPT), job, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_core)
        if done.returncode:
            raise RuntimeError(f"{job}: {done.stderr.strip() or f'status {done.returncode}'}")
        figures = pd.read_csv(folder / "figures.csv", header=None, index_col=0)[1].to_dict()
        if job == "diamonds-by":
            mean = np.loadtxt(folder / "mean.csv")
            figures = {"nmse": _nmse(y, y_test, mean), **figures}
    return {str(key): float(value) for key, value in figures.items()}


def _nmse(y: np.ndarray, y_test: np.ndarray, mean: np.ndarray) -> float:
    return float(np.mean((y_test - mean) ** 2) / np.mean((y_test - y.mean()) ** 2))
