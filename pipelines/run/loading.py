"""The stage ``load``: rows of a set or file as one table to train on and one to test on."""

import glob
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsgp import read_table
from dsgp.errors import DataError, DataWarning
from dsgp.rows.sinks import table_writer
from dsgp.rows.sources import FILE_TYPES, StoredTable, columns_of, open_table
from pipelines import datasets
from pipelines.datasets import CountSplit, LabelledSplit, Split
from pipelines.datasets.columns import counts_of, exposure_of, finite_target, labels_of
from pipelines.run.chain import Work
from pipelines.run.folders import write_json
from pipelines.run.sections import Load
from pipelines.run.tables import EXPOSURE, PARTS, ROW, TEST, TRAIN, TRUTH

FACTS = "facts.json"
STREAMED = 2**28  # bytes of a file that is not read at once
HASHED = 2**26  # bytes; of larger files size and time of change have to do
LOADERS = {
    "regression": datasets.load,
    "classification": datasets.load_labels,
    "counts": datasets.load_counts,
}


def load(work: Work, options: Load, task: str, seed: int, complete: bool = True) -> None:
    """Load the rows, split them, and write them.

    Parameters
    ----------
    work : Work
    options : Load
    task : {"regression", "classification", "counts"}
    seed : int
        Of the split.
    complete : bool
        Whether every input must be there: rows of labels without one are left out (those without a
        label are in any case), and numbers or counts are refused.
    """
    if is_streamed(options):
        _write_streamed(work, options, task, seed, complete)
        return
    if "test_share" in options.model_fields_set:
        raise DataError(
            f"{options.data}: load.test_share is for tables that stream; load.n says how many rows "
            "are trained on"
        )
    if _has_text(options):
        _write_split(work.folder, _split_with_text(options, task, seed, complete), task)
    else:
        _write_split(work.folder, named_split(options, task, seed, complete), task)


def named_split(options: Load, task: str, seed: int | None, complete: bool = True) -> Split:
    """Load a set, or a file of numbers, as the pipelines of one model do."""
    further = {"exposure": options.exposure} if task == "counts" and options.exposure else {}
    return LOADERS[task](
        options.data,
        target=options.target,
        columns=options.columns,
        drop=options.drop,
        data_dir=options.data_dir,
        n=options.n,
        n_test=options.n_test,
        seed=seed,
        complete=complete,
        format=options.format,
        **further,
    )


def write_given(work: Work, split: Split, task: str) -> None:
    """Write rows that the caller has loaded."""
    _write_split(work.folder, split, task)


def fingerprint(options: Load) -> dict[str, Any]:
    """What identifies the files that were loaded; nothing for built-in sets."""
    file_marks: dict[str, Any] = {}
    for key in ("data", "test"):
        name = getattr(options, key)
        if name is None:
            continue
        for path in _files(name, options.data_dir):
            status = path.stat()
            if status.st_size <= HASHED:
                file_marks[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                file_marks[str(path)] = [status.st_size, status.st_mtime_ns]
    return file_marks


def _files(name: str, data_dir: Path | None) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.is_file())
    elif path.is_file():
        yield path
    elif glob.has_magic(name):
        yield from sorted(Path(match) for match in glob.glob(name, recursive=True))
    elif data_dir is not None:
        # A set may be of several files: NAME.npz, or NAME_train.npz and NAME_test.npz.
        yield from sorted(data_dir.glob(f"{glob.escape(name)}*.npz"))


def is_streamed(options: Load) -> bool:
    """Whether the rows come from tables on disk that are never read at once."""
    path = Path(options.data)
    if options.test is not None:
        return True
    if datasets.is_built_in(options.data):
        return False  # whatever the working directory holds
    if path.is_dir():
        return options.data_dir is None  # else it is the name of a set
    if path.is_file():
        is_table = options.data.lower().endswith(FILE_TYPES)
        return is_table and path.stat().st_size > STREAMED
    return glob.has_magic(options.data)


# ---- in memory


def _has_text(options: Load) -> bool:
    """Whether the inputs of a CSV or Parquet file need encoding."""
    if not options.data.lower().endswith(FILE_TYPES):
        return False
    return bool(_text_columns(_inputs(read_table(options.data, **asdict(options.format)), options)))


def _text_columns(X: pd.DataFrame) -> list[str]:
    text = []
    for name in X.columns:
        try:
            columns_of(X[[name]])
        except DataError:
            text.append(str(name))
    return text


def _split_with_text(options: Load, task: str, seed: int, complete: bool) -> Split:
    """Split a file that has text among its inputs, by the rule of every other file."""
    frame = read_table(options.data, **asdict(options.format))
    inputs = input_names([str(name) for name in frame.columns], options)
    assert options.target is not None
    left_out = _LeftOut()
    if task == "classification":
        frame = left_out.without(frame, inputs if complete else [], options.target)
        left_out.warn(name_of(options))
    frame = _with_target(frame, options, task, options.data)
    n_train = len(frame) * 4 // 5 if options.n is None else options.n
    if not 0 < n_train < len(frame):
        raise DataError(
            f"{options.data}: expected between 1 and {len(frame) - 1} training rows, so that some "
            f"are left for the test, got {n_train}; choose another load.n"
        )
    order = np.random.default_rng(seed).permutation(len(frame))
    train, test = order[:n_train], order[n_train:]
    X, y = frame[inputs], frame[options.target].to_numpy()
    split = Split(
        name_of(options),
        X.iloc[train],
        y[train],
        X.iloc[test],
        y[test],
        f_train=None,
        f_test=None,
        target=options.target,
    )
    known = {field.name: getattr(split, field.name) for field in fields(split)}
    if task == "classification":
        classes = np.unique(split.y_train)
        return LabelledSplit(**known, classes=classes, n_left_out=left_out.rows)
    if task != "counts":
        return split
    exposure = np.ones(len(y))
    if options.exposure is not None:
        exposure = frame[options.exposure].to_numpy()
    return CountSplit(**known, exposure_train=exposure[train], exposure_test=exposure[test])


def _inputs(frame: pd.DataFrame, options: Load) -> pd.DataFrame:
    return frame[input_names([str(name) for name in frame.columns], options)]


def input_names(names: list[str], options: Load) -> list[str]:
    """Choose the inputs among the columns of a table."""
    if options.target is None or options.target not in names:
        came = "no target was named" if options.target is None else f"no column {options.target!r}"
        raise DataError(
            f"{options.data}: {came}; name one of its columns as target (load.target): "
            + ", ".join(names)
        )
    non_inputs = {options.target, options.exposure}
    others = [name for name in names if name not in non_inputs]
    asked = options.drop if options.columns is None else options.columns
    for name in [*asked, *([options.exposure] if options.exposure else [])]:
        if name not in names:
            raise DataError(
                f"{options.data}: there is no column {name!r}; there are: {', '.join(names)}"
            )
    inputs = options.columns or [name for name in others if name not in options.drop]
    if clash := non_inputs & set(inputs):
        raise DataError(f"{options.data}: {sorted(map(str, clash))[0]!r} cannot be an input, too")
    if not inputs:
        raise DataError(f"{options.data}: no input column is left")
    return list(inputs)


def name_of(options: Load) -> str:
    """What a set is called."""
    name = Path(options.data.rstrip("/")).name
    for ending in (*FILE_TYPES, ".npz", ".zarr"):
        name = name.removesuffix(ending)
    return name.replace("*", "").strip(".-_") or Path(options.data).parent.name or "table"


def _write_split(folder: Path, split: Split, task: str) -> None:
    inputs = [str(name) for name in split.X_train.columns]
    if split.target in inputs:
        raise DataError(f"{split.name}: target {split.target!r} is among the inputs; rename one")
    for part, X, y, f, exposure in (
        (TRAIN, split.X_train, split.y_train, split.f_train, _exposure(split, "train")),
        (TEST, split.X_test, split.y_test, split.f_test, _exposure(split, "test")),
    ):
        frame = X.set_axis(inputs, axis=1).reset_index(drop=True)
        frame[split.target] = y
        frame[ROW] = np.asarray(X.index)
        for name, values in ((TRUTH, f), (EXPOSURE, exposure)):
            if values is not None:
                frame[name] = values
        with table_writer(part, folder / part) as write:
            write(frame)
    write_json(
        folder / FACTS,
        {
            "name": split.name,
            "task": task,
            "target": split.target,
            "inputs": inputs,
            "n_train": len(split.y_train),
            "n_test": len(split.y_test),
            "n_left_out": split.n_left_out if isinstance(split, LabelledSplit) else 0,
            "noise_variance": split.noise_variance,
        },
    )


def _exposure(split: Split, part: str) -> Any:
    if not isinstance(split, CountSplit):
        return None
    return split.exposure_train if part == "train" else split.exposure_test


# ---- block by block


def _write_streamed(work: Work, options: Load, task: str, seed: int, complete: bool) -> None:
    """Copy tables on disk, with their rows assigned to training or test as they are read."""
    if options.n is not None or options.n_test is not None:
        raise DataError(
            f"{options.data}: n and n_test (load.n and load.n_test) are for sets that are read at "
            "once; load.test_share says how many rows of a large table are tested on"
        )
    table = open_table(options.data, options.format)
    inputs = input_names(list(table.names), options)
    assert options.target is not None
    target = options.target
    wanted = [*inputs, target, *([options.exposure] if options.exposure else [])]
    rng, left_out = np.random.default_rng(seed), _LeftOut()
    needed = inputs if complete else []

    def blocks(name: str, table: StoredTable) -> Iterator[pd.DataFrame]:
        for source, frame in _blocks(name, table, wanted):
            rows = frame
            if task == "classification":
                rows = left_out.without(rows, needed, target)
            if rows.empty:
                continue
            rows = _with_target(rows, options, task, source)
            yield rows.rename(columns={options.exposure: EXPOSURE} if options.exposure else {})

    counts = dict.fromkeys(PARTS, 0)
    with ExitStack() as stack:
        write = {
            part: stack.enter_context(table_writer(part, work.folder / part)) for part in PARTS
        }
        for frame in blocks(options.data, table):
            if options.test is not None:
                parts = {TRAIN: frame}
            else:
                tested = rng.random(len(frame)) < options.test_share
                parts = {TRAIN: frame[~tested], TEST: frame[tested]}
            for part, rows in parts.items():
                counts[part] += len(rows)
                write[part](rows)
        if options.test is not None:
            further = open_table(options.test, options.format)
            further.require(wanted)
            for frame in blocks(options.test, further):
                counts[TEST] += len(frame)
                write[TEST](frame)
    if task == "classification":
        left_out.warn(name_of(options))
    if not all(counts.values()):
        raise DataError(
            f"{options.data}: {counts[TRAIN]} rows to train on and {counts[TEST]} to test on; "
            "expected some of both: choose another load.test_share"
        )
    write_json(
        work.folder / FACTS,
        {
            "name": name_of(options),
            "task": task,
            "target": options.target,
            "inputs": inputs,
            "n_train": counts[TRAIN],
            "n_test": counts[TEST],
            "n_left_out": left_out.rows,
            "noise_variance": None,
        },
    )


def _blocks(name: str, table: StoredTable, wanted: list[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the file that a block is of, and its rows, with their numbers there for labels."""
    first = 0
    for block in table.blocks(wanted, numbers=()):
        frame = block.read()[wanted]
        frame.index = pd.RangeIndex(block.first_row, block.first_row + len(frame))
        frame[ROW] = np.arange(first, first + len(frame))
        first += len(frame)
        yield block.part or name, frame


# ---- targets


def _with_target(frame: pd.DataFrame, options: Load, task: str, source: str) -> pd.DataFrame:
    """Check the target and the exposure of some rows, whose labels are their numbers."""
    target, first_row = str(options.target), int(frame.index[0])
    if task == "classification":
        return frame.assign(**{target: labels_of(frame[target], source)})
    if task == "regression":
        return frame.assign(**{target: finite_target(frame[target], source, first_row)})
    frame = frame.assign(**{target: counts_of(frame[target], source, first_row)})
    if options.exposure is None:
        return frame
    exposure = exposure_of(frame[options.exposure], source, first_row)
    return frame.assign(**{options.exposure: exposure})


class _LeftOut:
    """Rows that are left out since a value of theirs is missing."""

    def __init__(self) -> None:
        self.rows, self.of, self.names = 0, 0, dict[str, None]()

    def without(self, frame: pd.DataFrame, inputs: list[str], target: str) -> pd.DataFrame:
        """Return the rows that have a label and all of the inputs."""
        missing = frame[[*inputs, target]].isna()
        # an empty field of a CSV file is text in a column of text
        missing[target] |= frame[target].isin([""])
        rows = missing.any(axis=1)
        self.rows += int(rows.sum())
        self.of += len(frame)
        self.names |= dict.fromkeys(missing.columns[missing.any()])
        return frame[~rows]

    def warn(self, name: str) -> None:
        listed = ", ".join(map(repr, self.names))
        if self.rows == self.of:
            raise DataError(f"{name}: no row is complete; values are missing in {listed}")
        if self.rows:
            warnings.warn(
                f"{name}: {self.rows} of {self.of} rows are left out, with values missing in "
                f"{listed}",
                DataWarning,
                stacklevel=2,
            )
