"""How a table that a command is given is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from dsgp.addresses import Place, exists, is_remote
from dsgp.errors import DataError
from dsgp.rows.sources import CsvFormat, open_table, read_table

# A file of so many bytes is read block by block, as tables of several parts always are.
LARGE_FILE = 2**28


def names_of(listed: str) -> list[str]:
    """Return the columns of an option ``A,B,C``."""
    return [name.strip() for name in listed.split(",")]


def is_streamed(data: Place) -> bool:
    """Tell whether a table is read block by block: it has parts, or is large."""
    if is_remote(data) and not exists(data):  # a pattern, or nothing: reading tells
        return True
    if not data.is_file() or (is_remote(data) and data.is_dir()):  # a server may have it as both
        return True
    size: int | None = data.stat().st_size
    return size is None or size >= LARGE_FILE


def read(path: Place, columns: Sequence[str], only: bool, form: CsvFormat) -> pd.DataFrame:
    """Read a table that must have ``columns``: only these, or further ones too."""
    open_table(path, form).require(columns)
    table = read_table(path, columns if only else None, **asdict(form))
    if len(table) == 0:
        raise DataError(f"{str(path)!r} is an empty table: it has columns {list(table)} but no row")
    return table
