"""One job by one method, in a process of its own, whose memory and seconds are then its own.

``python -m pipelines.tables.cell`` reads a request as ``pipelines.scaling.run`` does, and writes
NAME.npz with what each test row costs and then NAME.json with everything else, whole or not at all.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipelines.cells import run_cell
from pipelines.datasets import Floats, LabelledSplit, Split
from pipelines.datasets.tables import TABLE_JOBS, TableJob, load_job, path_of, split_table
from pipelines.reporting import release
from pipelines.run.measures import measure_classes, measure_regression
from pipelines.scaling.run import Clock, own_peak_memory_mb
from pipelines.tables.contract import Method, Predicted
from pipelines.tables.methods import METHODS

FORMAT = 1  # of the files; with another number every cell is computed again
LEVEL = 0.95
# Rows of --quick.
QUICK_TRAIN, QUICK_TEST = 2000, 1000
WARM_UP_ROWS = 300


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a cell does.

    Attributes
    ----------
    job, method : str
    data_dir : str
    digest : str
        Of the file of the data.
    quick : bool
        Whether there are 2000 training and 1000 test rows at most.
    """

    job: str
    method: str
    data_dir: str
    digest: str
    quick: bool = False

    @classmethod
    def of(cls, job: str, method: str, data_dir: Path, quick: bool) -> "Settings":
        """Read the file of the data for its digest."""
        content = path_of(job, data_dir).read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        return cls(job, method, str(data_dir.absolute()), digest, quick)

    @property
    def key(self) -> str:
        """Digest of the settings and of the release of what computes."""
        parts = {"format": FORMAT, "dsgp": release(), **asdict(self)}
        del parts["data_dir"]  # the same file elsewhere is the same
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def description(self) -> str:
        """What this is, for people."""
        return f"{self.job}, {METHODS[self.method].label}"

    @property
    def file_name(self) -> str:
        return f"{self.job}-{self.method}-{self.key}.json"


def main() -> None:
    """Run what the standard input asks for."""
    run_cell(Settings, measure)


def measure(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit, predict and measure; return the record, and arrays of the test rows."""
    method = METHODS[settings.method].method
    split = load_job(settings.job, Path(settings.data_dir))
    if settings.quick:
        split = first_rows(split, QUICK_TRAIN, QUICK_TEST)
    warm_up(method, isinstance(split, LabelledSplit))
    before = own_peak_memory_mb()
    clock = Clock()
    job = TABLE_JOBS.get(settings.job)
    predicted = method.fit_predict(split, None if job is None else job.terms, clock)
    apart = predicted.peak_memory_mb is not None
    arrays = costs(split, predicted)
    shares = predicted.shares
    return {
        "n_train": len(split.y_train),
        "n_test": len(split.y_test),
        "n_columns": split.X_train.shape[1],
        "task": _task(split),
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "peak_memory_mb": predicted.peak_memory_mb if apart else own_peak_memory_mb(),
        "memory_before_fit_mb": None if apart else before,
        "metrics": metrics_of(split, predicted),
        "shares": None if shares is None else shares.to_dict(orient="records"),
        "details": predicted.details,
    }, arrays


def _task(split: Split) -> str:
    return "classification" if isinstance(split, LabelledSplit) else "regression"


def metrics_of(split: Split, predicted: Predicted) -> dict[str, float | None]:
    """Measures of the test rows, as the other pipelines have them."""
    if isinstance(split, LabelledSplit):
        probability = np.column_stack([1 - predicted.mean, predicted.mean])
        return measure_classes(split.y_test, probability, split.classes)
    trained_mean = float(np.mean(split.y_train))
    return {**measure_regression(
        np.asarray(split.y_test, dtype=np.float64), predicted.mean, predicted.std, trained_mean,
        level=LEVEL,
    )}  # fmt: skip


def costs(split: Split, predicted: Predicted) -> dict[str, Floats]:
    """What each test row adds to the numerator and to the denominator of NMSE or MNLL."""
    y = np.asarray(split.y_test, dtype=np.float64)
    if isinstance(split, LabelledSplit):
        likelihood = np.where(y == 1, predicted.mean, 1 - predicted.mean)
        with np.errstate(divide="ignore"):  # of a probability of 0 it is infinite
            return {"loss": -np.log(likelihood), "scale": np.ones(len(y))}
    return {"loss": (y - predicted.mean) ** 2, "scale": (y - np.mean(split.y_train)) ** 2}


def first_rows(split: Split, n_train: int, n_test: int) -> Split:
    """So many rows at most."""
    return replace(
        split,
        X_train=split.X_train.iloc[:n_train],
        y_train=split.y_train[:n_train],
        X_test=split.X_test.iloc[:n_test],
        y_test=split.y_test[:n_test],
    )


def warm_up(method: Method, is_class: bool) -> None:
    """Load or compile the loops with a small table, so that no stage is charged for it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(size=(WARM_UP_ROWS, 2)), columns=["a", "b"])
    table["level"] = rng.choice(["p", "q", "r"], WARM_UP_ROWS)
    f = np.sin(6 * table["a"]) * table["b"] + (table["level"] == "q")
    noisy = f + 0.1 * rng.standard_normal(WARM_UP_ROWS)
    table["y"] = (noisy > noisy.median()).astype(int) if is_class else noisy
    method.fit_predict(
        split_table("warm-up", TableJob("", "y", is_class=is_class), table), None, Clock()
    )


if __name__ == "__main__":
    main()
