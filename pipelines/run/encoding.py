"""The stage ``encode``: the table that all models read, and what is made of text and dates."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.sinks import table_writer
from dsgp.rows.sources import Stored, target_of
from dsgp.rows.sources.labels import Labels, distinct, labels_of, merged
from pipelines.run.chain import Work
from pipelines.run.design import DateRange, Design
from pipelines.run.folders import read_json, write_json
from pipelines.run.loading import FACTS
from pipelines.run.sections import Encode
from pipelines.run.tables import (
    CODE,
    EXPOSURE,
    PARTS,
    ROW,
    TEST,
    TRAIN,
    TRUTH,
    blocks,
    names_of,
    share,
    whole,
)

ENCODING = "encoding.json"
IN_MEMORY = 2**24  # values of the training rows; more are streamed
MOST_LEVELS = 65_535


def encode(work: Work, options: Encode) -> None:
    """Write the encoded tables, and how they were encoded."""
    source = work.needs["load"]
    facts = read_json(source / FACTS)
    assert facts is not None
    with work.clock.stage("levels"):
        counts = _levels(source / TRAIN, facts, options)
        dates = _dates(source / TRAIN, facts["inputs"])
    levels = {name: sorted(row_counts) for name, row_counts in counts.items()}
    as_codes = options.categories == "codes"
    classes = None
    if facts["task"] == "classification":
        classes = _classes(source / TRAIN, facts["target"])
    for part in PARTS:
        if not levels and classes is None:
            share(source / part, work.folder / part)
            continue
        with table_writer(part, work.folder / part) as write:
            for frame in blocks(source / part):
                for name, known in levels.items():
                    codes = _codes(frame, name, known, options, part)
                    text = frame[name].astype(object).where(codes.notna(), None)
                    frame[name] = codes if as_codes else text
                if classes is not None:
                    frame[CODE] = _class_codes(frame, facts["target"], classes, part)
                write(frame)
    values = facts["n_train"] * (len(facts["inputs"]) + 1)
    in_memory = values <= IN_MEMORY if options.in_memory == "auto" else options.in_memory
    centre = None
    if facts["task"] != "classification":
        centre = _mean(work.folder / TRAIN, facts["target"])
    write_json(
        work.folder / ENCODING,
        facts
        | {
            "levels": levels,
            "categories": options.categories,
            "numbers": {
                "levels": {} if as_codes else _by_rows(counts),
                "dates": {name: date_range.settings() for name, date_range in dates.items()},
            },
            "classes": None if classes is None else classes.tolist(),
            "in_memory": in_memory,
            "target_mean": centre,
        },
    )


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _levels(path: Path, facts: dict[str, Any], options: Encode) -> dict[str, Counter[str]]:
    """Levels of every text column among the inputs, and how many training rows have each."""
    schema = pq.read_schema(path)
    text = [name for name in facts["inputs"] if _is_text(schema.field(name).type)]
    if text and options.categories == "error":
        raise DataError(
            f"{facts['name']}: input column {text[0]!r} is text; drop it, or let "
            "python -m pipelines.run encode it (encode.categories: levels)"
        )
    level_counts: dict[str, Counter[str]] = {name: Counter() for name in text}
    for frame in blocks(path, text) if text else ():
        for name in text:
            level_counts[name].update(frame[name].value_counts().to_dict())
            if len(+level_counts[name]) > MOST_LEVELS:
                raise DataError(
                    f"{facts['name']}: input column {name!r} has more than {MOST_LEVELS} levels; "
                    "it looks like an identifier: drop it (load.drop)"
                )
    return {name: +counts for name, counts in level_counts.items()}


def _by_rows(counts: dict[str, Counter[str]]) -> dict[str, list[str]]:
    """Levels of most rows first."""
    return {
        name: sorted(levels, key=lambda level: (-levels[level], level))
        for name, levels in counts.items()
    }


def _dates(path: Path, inputs: list[str]) -> dict[str, DateRange]:
    schema = pq.read_schema(path)
    names = [name for name in inputs if pa.types.is_temporal(schema.field(name).type)]
    names = [name for name in names if not pa.types.is_duration(schema.field(name).type)]
    ranges = {name: DateRange() for name in names}
    for frame in blocks(path, names) if names else ():
        for name in names:
            ranges[name].add(name, frame[name])
    return ranges


def _codes(
    frame: pd.DataFrame, name: str, levels: list[str], options: Encode, part: str
) -> pd.Series:
    codes = pd.Series(pd.Index(levels).get_indexer(frame[name]), frame.index, dtype=np.float64)
    unseen = (codes < 0) & frame[name].notna()
    if unseen.any() and options.unseen == "error":
        row = unseen.idxmax()
        raise DataError(
            f"{part}: input column {name!r} has {frame.loc[row, name]!r} in row "
            f"{frame.loc[row, ROW]} of the data (counted from 0), which no training row has; set "
            "encode.unseen: missing, and missing: ignore for the models, or drop the column"
        )
    return codes.where(codes >= 0)


def _classes(path: Path, target: str) -> Labels:
    classes = merged([], target)
    for frame in blocks(path, [target]):
        block_classes = distinct(labels_of(frame[target], target), target)
        classes = merged([classes, block_classes], target)
        if len(classes) > 1000:
            raise DataError(
                f"target {target!r} has more than 1000 distinct values; expected labels: for "
                "numbers set task: regression"
            )
    if len(classes) < 2:
        raise DataError(
            f"target {target!r} has one class only in the training rows, {classes.tolist()[0]!r}; "
            "expected two or more"
        )
    return classes


def _class_codes(frame: pd.DataFrame, target: str, classes: Labels, part: str) -> pd.Series:
    codes = pd.Series(pd.Index(classes).get_indexer(frame[target]), frame.index)
    if (codes < 0).any():
        row = (codes < 0).idxmax()
        raise DataError(
            f"{part}: target {target!r} has {frame.loc[row, target]!r} in row "
            f"{frame.loc[row, ROW]} of the data (counted from 0), a label that no training row "
            "has; leave such rows out, or train on some"
        )
    return codes.astype(np.float64)


def _mean(path: Path, target: str) -> float:
    total, count = 0.0, 0
    for frame in blocks(path, [target]):
        y = target_of(frame[target], len(frame), first_row=count)
        total += float(y.sum())
        count += len(y)
    return total / count


# ---- reading it


@dataclass(frozen=True)
class Encoded:
    """What the stage has written.

    Attributes
    ----------
    folder : Path
    facts : dict
    """

    folder: Path
    facts: dict[str, Any]

    @classmethod
    def of(cls, folder: Path) -> "Encoded":
        facts = read_json(folder / ENCODING)
        assert facts is not None
        return cls(folder, facts)

    @property
    def inputs(self) -> list[str]:
        return list(self.facts["inputs"])

    @property
    def target(self) -> str:
        return str(self.facts["target"])

    @property
    def task(self) -> str:
        return str(self.facts["task"])

    @cached_property
    def design(self) -> Design:
        """How inputs become numbers, for methods that read nothing else."""
        made = self.facts["numbers"]
        return Design(self.inputs, made["levels"], made["dates"])

    @property
    def in_memory(self) -> bool:
        return bool(self.facts["in_memory"])

    @property
    def classes(self) -> np.ndarray[Any, Any]:
        """Labels in the order of their codes."""
        return np.asarray(self.facts["classes"])

    @cached_property
    def has_exposure(self) -> bool:
        return EXPOSURE in names_of(self.folder / TRAIN)

    @cached_property
    def has_truth(self) -> bool:
        return TRUTH in names_of(self.folder / TEST)

    @property
    def numeric_target(self) -> str:
        """Column of the target, or of the codes of its classes."""
        return CODE if self.task == "classification" else self.target

    def codes(self, part: str) -> NDArray[np.intp]:
        """Read the number of each row's class whole."""
        return self.column(part, CODE).astype(np.intp)

    def training(self, target: str) -> tuple[Any, Any]:
        """Inputs and a target as ``fit`` takes them: in memory, or as a table on disk."""
        if not self.in_memory:
            return self.stored(), target
        return whole(self.folder / TRAIN, self.inputs), self.column(TRAIN, target)

    def stored(self) -> Stored:
        """The training table on disk."""
        return Stored(self.folder / TRAIN, columns=self.inputs)

    def column(self, part: str, name: str) -> np.ndarray[Any, Any]:
        """Read one column whole."""
        return whole(self.folder / part, [name])[name].to_numpy()

    def blocks(self, part: str, rows: int) -> Iterator[pd.DataFrame]:
        """Yield blocks with inputs, target, and what there is of code, row, truth, exposure."""
        wanted: Sequence[str] = [
            name
            for name in (*self.inputs, self.target, CODE, ROW, TRUTH, EXPOSURE)
            if name in names_of(self.folder / part)
        ]
        return blocks(self.folder / part, wanted, rows)
