"""One method on one data set, in a process of its own, whose memory and seconds are then its own.

``python -m pipelines.paper.cell`` reads a request as ``pipelines.scaling.run`` does, and writes one
JSON file, whole or not at all.
"""

import hashlib
import json
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Matern72
from dsgp.places import made_aside, replace_text
from pipelines.datasets import LabelledSplit, Split
from pipelines.grid import corners
from pipelines.grid.figures import draw_image
from pipelines.grid.imaging import NOISY, tasks_of
from pipelines.grid.pictures import default_image, picture_of
from pipelines.paper.methods import Answer, method_named
from pipelines.paper.sets import TEST_ROWS, files_of, load_set, set_named
from pipelines.reporting import (
    DPI,
    environment,
    gathered_warnings,
    machine,
    plain_errors,
    plain_json,
    release,
)
from pipelines.run.measures import measure_classes, measure_regression
from pipelines.scaling.run import own_peak_memory_mb

FORMAT = 1  # of the files; with another number every cell is computed again
LEVEL = 0.95
QUICK_TEST = 500
# Enough to take the way that more rows take; all test rows are predicted.
WARM_UP_ROWS = 1000
CORNERS, IMAGE = "corners", "image"
BASELINES = ("torch", "gpytorch")
FIGURES = (".png", ".svg")
NOISE_ADDED = 20.0  # grey levels, to the image


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a cell does.

    Attributes
    ----------
    data : str
        A set of the paper, ``corners`` or ``image``.
    method : str
        Of that set's task; ``grid`` for corners and image.
    n : int
        Training rows; of corners the largest number of dims, of the image pixels along a side.
    run : int
        Seed of a method that draws, and of a set with a split for every run.
    threads : int
        Processors that it may use.
    quick : bool
    data_dir, digest : str
        Where the data are, and of the file.
    """

    data: str
    method: str
    n: int
    run: int = 0
    threads: int = 1
    quick: bool = False
    data_dir: str = ""
    digest: str = ""

    @property
    def key(self) -> str:
        """Digest of the settings, of the method with its parameters, and of the versions."""
        parts = {"format": FORMAT, "versions": versions() | {"dsgp": release()}, **asdict(self)}
        if self.data not in (CORNERS, IMAGE):
            method = method_named(set_named(self.data).task, self.method)
            parts["made"] = repr(method.make(self.run, self.quick, self.n))
        del parts["data_dir"]  # the same file elsewhere is the same
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def description(self) -> str:
        """What this is, for people."""
        if self.data in (CORNERS, IMAGE):
            return f"{self.data}, {self.n} {'dims' if self.data == CORNERS else 'pixels a side'}"
        n = f"{self.n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        threads = "" if self.threads == 1 else f", {self.threads} threads"
        return f"{self.data}, {self.method}, {n} rows, run {self.run + 1}{threads}"

    @property
    def file_name(self) -> str:
        return f"{self.data}-{self.method}-{self.n}-{self.run}-{self.key}.json"


@cache
def versions() -> dict[str, str]:
    """Versions of what computes, with the libraries of the baselines that are installed."""
    found = dict(environment())
    for name in BASELINES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def digest_of(data: str, data_dir: Path) -> str:
    """Digest of the files that a set is read from; empty where it is drawn."""
    digest = hashlib.sha256()
    files = files_of(data, data_dir)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12] if files else ""


def main() -> None:
    """Run what the standard input asks for."""
    asked = json.load(sys.stdin)
    exit_on_termination()
    with plain_errors():
        settings = Settings(**asked["settings"])
        with gathered_warnings() as messages:
            outcome = measure(settings, Path(asked["path"]))
        record = {
            "settings": asdict(settings),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **outcome,
            "peak_memory_mb": own_peak_memory_mb(),
            "warnings": messages,
            "versions": versions(),
            "machine": machine(),
        }
        del record["settings"]["data_dir"]  # the file is known by its digest
        text = json.dumps(plain_json(record), indent=2, allow_nan=False)
        replace_text(Path(asked["path"]), text)


def measure(settings: Settings, path: Path) -> dict[str, Any]:
    """Do what the settings ask for, and return what is recorded in the file."""
    if settings.data == CORNERS:
        return measure_corners(settings)
    if settings.data == IMAGE:
        return measure_image(settings, path)
    task = set_named(settings.data).task
    method = method_named(task, settings.method)
    split = load_set(
        settings.data,
        Path(settings.data_dir),
        n=settings.n,
        n_test=QUICK_TEST if settings.quick else TEST_ROWS,
        run=settings.run,
    )
    if not settings.quick:  # whose seconds nobody compares
        # Loops are loaded or compiled with a few rows, so that no stage is charged for it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model of so few rows is nobody's
            method.answer(first_rows_of(split, WARM_UP_ROWS), settings.run, True)
    answer = method.answer(split, settings.run, settings.quick)
    return {
        "task": task,
        "n_train": len(split.y_train),
        "n_test": len(split.y_test),
        "n_columns": split.X_train.shape[1],
        "seconds": answer.seconds,
        "cpu_seconds": answer.cpu_seconds,
        "metrics": metrics_of(split, answer),
        "details": answer.details,
    }


def first_rows_of(split: Split, n: int) -> Split:
    """The first training rows; of labels as many of both classes, as far as they go."""
    rows = np.arange(len(split.y_train))
    if isinstance(split, LabelledSplit):
        rows = np.concatenate([rows[split.y_train == label][: n // 2] for label in (0, 1)])
    rows = rows[:n]
    return replace(
        split,
        X_train=split.X_train.iloc[rows],
        y_train=split.y_train[rows],
    )


def metrics_of(split: Split, answer: Answer) -> dict[str, float | None]:
    """The paper's measures, with coverage; MNLP is that of the standardised target."""
    if isinstance(split, LabelledSplit):
        probability = np.column_stack([1 - answer.mean, answer.mean])
        return measure_classes(split.y_test, probability, split.classes)
    y_train = np.asarray(split.y_train, dtype=np.float64)
    centre, scale = float(y_train.mean()), float(y_train.std())
    assert answer.std is not None
    return {**measure_regression(
        (np.asarray(split.y_test, dtype=np.float64) - centre) / scale,
        (answer.mean - centre) / scale, answer.std / scale, 0.0, level=LEVEL,
    )}  # fmt: skip


# ---- grids


def measure_corners(settings: Settings) -> dict[str, Any]:
    """One learning iteration at the corners of hypercubes, by Kronecker products and densely."""
    dims = range(8, settings.n + 1)
    timings, why = corners.timings_of(dims, 5.0 if settings.quick else 60.0, Matern72, 0)
    return {
        "task": CORNERS,
        "seconds": {"fit": sum(timing.seconds for timing in timings)},
        "timings": [asdict(timing) for timing in timings],
        "ended": why,
    }


def measure_image(settings: Settings, path: Path) -> dict[str, Any]:
    """Smooth an image with noise added, and reconstruct it from every fourth pixel; draw it."""
    picture = picture_of(default_image(), settings.n)
    tasks = tasks_of(picture, NOISE_ADDED, Matern72, 0)
    figure = draw_image(*(task for task in tasks if task.case == NOISY))
    for ending in FIGURES:
        with made_aside(path.with_suffix(ending)) as aside:
            figure.savefig(aside, dpi=DPI, format=ending[1:])
    lines = [
        {
            "case": task.case,
            "kind": task.kind,
            "method": one.method,
            "pixels_given": int(task.given.size),
            **one.scores,
            **{f"{stage}_seconds": seconds for stage, seconds in one.seconds.items()},
            "fitted": one.fitted,
        }
        for task in tasks
        for one in task.methods
    ]
    learning = sum(task.ours.seconds["learn"] for task in tasks)
    return {"task": IMAGE, "image": picture.source, "seconds": {"fit": learning}, "lines": lines}


if __name__ == "__main__":
    main()
