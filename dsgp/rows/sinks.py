"""Where rows go: CSV and Parquet files, written aside and moved into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from dsgp.errors import ParameterError, StorageError
from dsgp.rows.sources import FILE_TYPES


def write_table(table: pd.DataFrame, name: str, path: Path) -> None:
    """Write a table, without its row labels, to ``path`` in the format that ``name`` asks for."""
    if name.lower().endswith((".csv", ".csv.gz")):
        compression = "gzip" if name.lower().endswith(".gz") else None
        table.to_csv(path, index=False, compression=compression)
    else:
        table.to_parquet(path, index=False)


@contextmanager
def written_aside(path: Path, overwrite: bool) -> Iterator[Path]:
    """Make an empty file beside ``path``, to be moved there once the block has filled it.

    Raises
    ------
    ParameterError
        If the ending names no format.
    StorageError
        If something is there already, or the place cannot be written; before the block runs.
    """
    if not path.name.lower().endswith(FILE_TYPES):
        raise ParameterError(f"{str(path)!r} must end in one of {', '.join(FILE_TYPES)}")
    if path.is_dir() or (path.exists() and not overwrite):
        remedy = "choose another path" + ("" if path.is_dir() else ", or --overwrite")
        raise StorageError(f"{str(path)!r} exists; {remedy}")
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        aside.touch(exist_ok=False)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        yield aside
        os.replace(aside, path)
    except StorageError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        aside.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {str(path)!r}: {error.strerror or error}")
