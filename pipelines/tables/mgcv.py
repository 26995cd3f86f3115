"""mgcv's ``bam`` on a table, in R: smooth functions of numbers, random effects of levels."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from dsgp.errors import DsgpError, ParameterError
from pipelines.datasets import LabelledSplit, Split
from pipelines.peers import Mgcv as MgcvOfNumbers
from pipelines.scaling.run import Clock
from pipelines.tables.columns import Plain, plain
from pipelines.tables.contract import Predicted

SCRIPT = Path(__file__).with_name("mgcv.R")
# Levels of a random effect at most: its equations are dense, and their cube is the cost.
MOST_LEVELS = 1500
BASIS_SIZE, FEWEST_VALUES = 40, 5


@dataclass(frozen=True)
class Mgcv:
    """target ~ s(number) + s(level, bs="re") + …, ``discrete=TRUE``, one thread, no interactions.

    Smooth functions have 40 basis functions, those of parts of dates are cyclic. Gaps are filled.
    """

    tasks: tuple[str, ...] = ("regression", "classification")

    def lacking(self) -> str | None:
        try:
            MgcvOfNumbers(None).require()
        except ParameterError as error:
            return str(error)
        return None

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        is_class = isinstance(split, LabelledSplit)
        table = plain(split).without_gaps()
        with tempfile.TemporaryDirectory(prefix="mgcv.") as name:
            folder = Path(name)
            formula, left_out = _written(table, split, folder)
            figures = _run(folder, formula, "binomial" if is_class else "gaussian")
            mean, std = (np.loadtxt(folder / f"{stem}.csv") for stem in ("mean", "std"))
        for stage in ("fit", "predict"):
            clock.seconds[stage] = figures.pop(f"{stage}_seconds")
            clock.cpu_seconds[stage] = figures.pop(f"{stage}_cpu_seconds")
        peak = figures.pop("peak_memory_mb", None)
        noise = figures.pop("noise_variance")
        details: dict[str, Any] = {"formula": formula, **figures}
        if left_out:
            details["left out"] = left_out
        if is_class:
            return Predicted(expit(mean), None, None, details, peak)
        return Predicted(mean, np.sqrt(std**2 + noise), None, details, peak)


def _written(table: Plain, split: Split, folder: Path) -> tuple[str, list[str]]:
    """Write the rows, with columns V1, V2, …; return the formula, and the columns left out."""
    train, test, words, left_out = {}, {}, [], []
    for number, name in enumerate(table.train, start=1):
        column = f"V{number}"
        values, n_values = table.train[name], table.train[name].nunique()
        if name in table.text and n_values > MOST_LEVELS:
            left_out.append(str(name))
            continue
        if n_values < 2:
            continue
        if name in table.text:
            # Levels of the test rows only are levels too, whose effect has the prior's mean 0.
            codes = pd.Index(pd.unique(pd.concat([values, table.test[name]]).astype(str)))
            train[column] = [f"l{k}" for k in codes.get_indexer(values.astype(str))]
            test[column] = [f"l{k}" for k in codes.get_indexer(table.test[name].astype(str))]
            words.append(f's({column}, bs = "re")')
            continue
        train[column], test[column] = values.to_numpy(), table.test[name].to_numpy()
        size = min(BASIS_SIZE, n_values)
        basis = "cc" if name in table.cyclic else "cr"
        words.append(
            f's({column}, bs = "{basis}", k = {size})' if n_values >= FEWEST_VALUES else column
        )
    pd.DataFrame({**train, "target": split.y_train}).to_csv(folder / "train.csv", index=False)
    pd.DataFrame(test).to_csv(folder / "test.csv", index=False)
    return "target ~ " + " + ".join(words), left_out


def _run(folder: Path, formula: str, family: str) -> dict[str, float]:
    one_core = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = ["Rscript", str(SCRIPT), str(folder), formula, family]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_core)
    if done.returncode:
        raise DsgpError(f"mgcv: {done.stderr.strip() or f'status {done.returncode}'}")
    lines = (folder / "figures.txt").read_text(encoding="utf-8").splitlines()
    pairs = dict(line.split(maxsplit=1) for line in lines)
    return {name: float(value) for name, value in pairs.items() if value != "NA"}
