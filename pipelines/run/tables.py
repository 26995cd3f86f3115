"""Tables between stages: Parquet files that are written and read block by block."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

TRAIN, TEST = "train.parquet", "test.parquet"
PARTS = (TRAIN, TEST)
# Columns beside inputs and target.
ROW, TRUTH, EXPOSURE, CODE = "__row__", "__truth__", "__exposure__", "__code__"
BLOCK_ROWS = 2**19
ROW_BLOCK = 500_000  # rows predicted at a time


def names_of(path: Path) -> list[str]:
    """Columns of a table."""
    return list(pq.read_schema(path).names)


def rows_of(path: Path) -> int:
    """Number of rows of a table."""
    return int(pq.read_metadata(path).num_rows)


def blocks(
    path: Path, columns: Sequence[str] | None = None, rows: int = BLOCK_ROWS
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table in their order, numbered on from 0."""
    first = 0
    with pq.ParquetFile(path) as file:
        wanted = None if columns is None else list(columns)
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            frame = batch.to_pandas()
            frame.index = pd.RangeIndex(first, first + len(frame))
            first += len(frame)
            yield frame if columns is None else frame[list(columns)]


def whole(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read some columns of a table at once."""
    return pq.read_table(path, columns=list(columns)).to_pandas()[list(columns)]


def share(path: Path, copy: Path) -> None:
    """Let a file appear in another folder too, without a copy where the system can do that."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copyfile(path, copy)
