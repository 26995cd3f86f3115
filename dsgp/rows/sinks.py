"""Output of rows: CSV and Parquet files, written to a temporary place and moved when complete."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dsgp.addresses import Place, exists, name_of
from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.places import made_aside
from dsgp.rows.sources import FILE_TYPES, opened
from dsgp.rows.sources.arrow import text_frame

Table: TypeAlias = pd.DataFrame | pa.Table
Write = Callable[[Table], None]

_PART = re.compile(r"part-\d{5,}\.parquet")
# Columns of predicted numbers, in this order.
MOMENTS = ("mean", "std", "lower", "upper")
MEDIANS = ("median", *MOMENTS[1:])
# Columns of explanations; the label of a class may follow.
EXPLAINED = ("prediction", "intercept")


@contextmanager
def table_writer(name: str, path: Path) -> Iterator[Write]:
    """Yield a function that adds rows to ``path``, in the format of the extension of ``name``.

    Every call adds a table of the same columns; row labels are not written.
    """
    if name.lower().endswith((".csv", ".csv.gz")):
        opened = gzip.open if name.lower().endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8", newline="") as file:
            header = True

            def add(table: Table) -> None:
                nonlocal header
                table = text_frame(table) if isinstance(table, pa.Table) else table
                table.to_csv(file, index=False, header=header)
                header = False

            yield add
        return
    writer: pq.ParquetWriter | None = None

    def append(table: Table) -> None:
        nonlocal writer
        rows = _arrow(table, None if writer is None else writer.schema)
        if writer is None:
            writer = pq.ParquetWriter(path, rows.schema)
        writer.write_table(rows)

    try:
        yield append
    finally:
        if writer is not None:
            writer.close()


def _arrow(table: Table, schema: pa.Schema | None) -> pa.Table:
    """Convert a table, to the types of those before it."""
    try:
        if isinstance(table, pa.Table):
            return table if schema is None else table.cast(schema)
        return pa.Table.from_pandas(table, schema=schema, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"a column changes its type between blocks: {error}") from error


@contextmanager
def written_aside(place: Place, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary file, which is moved to ``place`` once the block has filled it.

    Raises
    ------
    ParameterError
        If the extension names no format.
    StorageError
        If something is there already, or the place cannot be written; before the block runs.
    """
    if not name_of(place).lower().endswith(FILE_TYPES):
        raise ParameterError(
            f"{str(place)!r} must end in one of {', '.join(FILE_TYPES)}; a folder of parts has no "
            "file extension"
        )
    _require_replaceable(place, place.is_file() and _is_predicted(place), overwrite)
    with made_aside(place) as made:
        made.touch()
        yield made


@contextmanager
def written_parts(folder: Place, overwrite: bool = False) -> Iterator[Callable[[Table, int], None]]:
    """Yield a function that writes tables as parts of a folder, moved into place at the end.

    ``write(table, number)`` makes part-00000.parquet and so on. All parts have the types of the
    one written first.

    Raises
    ------
    StorageError
        If something is there already (only a folder of such parts can be overwritten), or the place
        cannot be written; before the block runs.
    """
    ours = folder.is_dir() and all(
        _PART.fullmatch(part.name) and _is_predicted(part) for part in folder.iterdir()
    )
    _require_replaceable(folder, ours, overwrite)
    schema: pa.Schema | None = None
    with made_aside(folder) as parts:

        def write(table: Table, number: int) -> None:
            nonlocal schema
            rows = _arrow(table, schema)
            schema = rows.schema
            pq.write_table(rows, parts / f"part-{number:05}.parquet")

        parts.mkdir()
        yield write


def _require_replaceable(path: Place, ours: bool, overwrite: bool) -> None:
    """Raise ``StorageError`` if something is there, unless it may and can be overwritten."""
    if not exists(path) or (ours and overwrite):
        return
    remedy = (
        ", or --overwrite"
        if ours
        else f", or delete it yourself: it does not hold predictions ({', '.join(MOMENTS)}; "
        "predicted, probability_…; prediction, intercept), and nothing else is overwritten"
    )
    raise StorageError(f"{str(path)!r} exists; choose another path{remedy}")


def _is_predicted(path: Place) -> bool:
    """Whether a file is empty, or ends with the columns of predictions."""
    if not path.stat().st_size:
        return True
    try:
        with opened(path) as file:
            if name_of(path).lower().endswith((".csv", ".csv.gz")):
                names = list(map(str, pd.read_csv(file, nrows=0).columns))
            else:
                names = pq.read_schema(file).names
    # Readers raise many types of errors for a file that is not a table; all mean the same here.
    except Exception:
        return False
    for at, name in enumerate(names):
        of_numbers = tuple(names[at : at + len(MOMENTS)]) in (MOMENTS, MEDIANS)
        of_classes = name == "predicted" and "".join(names[at + 1 : at + 2]).startswith(
            "probability_"
        )
        after = "".join(names[at + 1 : at + 2])
        is_explained = name.startswith(EXPLAINED[0]) and after.startswith(EXPLAINED[1])
        if of_numbers or of_classes or is_explained:
            return True
    return False
