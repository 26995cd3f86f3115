"""Sets in files: .npz of arrays, alone or as a training and a test file, CSV and Parquet."""

import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsgp import read_table
from dsgp.errors import DataError
from dsgp.rows.sources import CsvFormat, open_table
from pipelines.datasets.splits import Whole

TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
NPZ_KEYS = ("X", "y", "feature_names", "target_name", "is_train")
PAIR = ("_train.npz", "_test.npz")

# Kinds of the dtype of y, and what is said to one of another kind.
KINDS = {"regression": "f", "classification": "iubU", "counts": "iu"}
EXPECTED = {
    "regression": ("a real-valued y", "labels are for the classification pipeline"),
    "classification": (
        "integers or text as y",
        "real values are for the regression pipeline: store labels as integers",
    ),
    "counts": ("integers as y", "store counts as integers"),
}


def read_npz(path: Path, task: str) -> Whole:
    """Read ``X``, ``y``, ``feature_names``, ``target_name`` and ``is_train``; the last three may
    be absent.

    Raises
    ------
    DataError
        When it is no such file, or ``y`` is of a kind for another task.
    """
    try:
        with np.load(path) as arrays:
            stored = {key: arrays[key] for key in arrays.files if key in NPZ_KEYS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an .npz of plain arrays; {error}") from error
    absent = [key for key in ("X", "y") if key not in stored]
    if absent:
        raise DataError(
            f"{path}: expected a table with arrays X and y, found no {' and no '.join(absent)}; "
            "a gridded field is for the grid pipeline"
        )
    if stored["y"].dtype.kind not in KINDS[task]:
        expected, remedy = EXPECTED[task]
        raise DataError(f"{path}: expected {expected}, got {stored['y'].dtype}; {remedy}")
    columns = stored.get("feature_names", [f"x{j + 1}" for j in range(stored["X"].shape[1])])
    X = pd.DataFrame(stored["X"].astype(np.float64), columns=[str(name) for name in columns])
    y = pd.Series(stored["y"], name=str(stored.get("target_name", "y")))
    return Whole(path.stem, str(path), X, y, stored.get("is_train"))


def read_named(folder: Path, name: str, task: str) -> Whole | None:
    """Read ``NAME.npz`` of a folder, or ``NAME_train.npz`` and ``NAME_test.npz``, if there.

    Raises
    ------
    DataError
        As ``read_npz``, and when the two files have not the same columns.
    """
    path = folder / f"{name}.npz"
    if path.is_file():
        return read_npz(path, task)
    pair = [folder / f"{name}{ending}" for ending in PAIR]
    if not all(path.is_file() for path in pair):
        return None
    train, test = (read_npz(path, task) for path in pair)
    if list(train.X) != list(test.X):
        raise DataError(
            f"{pair[1]}: expected the columns of {pair[0].name}, {_listed(train.X)}, "
            f"got {_listed(test.X)}"
        )
    return Whole(
        name,
        str(folder / f"{name}_*.npz"),
        pd.concat([train.X, test.X]),
        pd.concat([train.y, test.y]),
        np.arange(len(train.y) + len(test.y)) < len(train.y),
    )


def read_file(path: Path, target: str | None, form: CsvFormat) -> Whole:
    """Read a CSV or Parquet file.

    Raises
    ------
    DataError
        When it cannot be read, or has no such target.
    """
    open_table(path, form).require([] if target is None else [target])
    frame = read_table(path, **asdict(form))
    if target is None or target not in frame.columns:
        came = "no target was named" if target is None else f"there is no column {target!r}"
        raise DataError(f"{path}: {came}; name one of its columns with --target: {_listed(frame)}")
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    return Whole(name, str(path), frame.drop(columns=target), frame[target])


def names_in(folder: Path, task: str) -> list[str]:
    """Names of the sets of a folder that are for a task."""
    names = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            if {"X", "y"} <= set(arrays.files) and arrays["y"].dtype.kind in KINDS[task]:
                names.append(path.name)
    return list(dict.fromkeys(_set_of(name, names) for name in names))


def _set_of(file: str, files: list[str]) -> str:
    """Name of the set that a file is, or is a half of."""
    for ending, other in (PAIR, PAIR[::-1]):
        name = file.removesuffix(ending)
        if name != file and f"{name}{other}" in files:
            return name
    return file.removesuffix(".npz")


def _listed(frame: Any) -> str:
    return ", ".join(map(str, frame.columns))
