"""How a table that a command is given is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from dsgp import memory
from dsgp.addresses import Place, exists, is_remote
from dsgp.cli.holidays import ForModel, require_inputs
from dsgp.errors import DataError
from dsgp.rows.sources import CsvFormat, StoredTable, open_table, read_table

# A file of so many bytes is read block by block, as tables of several parts always are.
LARGE_FILE = 2**28


def names_of(listed: str) -> list[str]:
    """Return the columns of an option ``A,B,C``."""
    return [name.strip() for name in listed.split(",")]


def is_streamed(data: Place) -> bool:
    """Return whether a table is read block by block: it has parts, or is large."""
    if is_remote(data) and not exists(data):  # a pattern, or nothing: reading it shows which
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


def read_held_out(
    model: Any,
    place: Place,
    beside: Sequence[str],
    form: CsvFormat,
    added: ForModel | None = None,
) -> pd.DataFrame:
    """Read the inputs of a model, and the target and the like ``beside`` them, into memory.

    ``added`` is a column of holidays that the table lacks.

    Raises
    ------
    MemoryLimitError
        As soon as it is clear that the rows do not fit.
    """
    stored = open_table(place, form)
    if hasattr(model, "feature_names_in_"):
        names = list(model.used_columns_)
        names = names if added is None else added.stored(names)
    else:
        names = [name for name in stored.names if name not in beside]
    return _at_once(stored, names, beside, model, added, f"the held-out rows of {str(place)!r}")


def read_further(
    model: Any, place: Place, beside: Sequence[str], form: CsvFormat, added: ForModel
) -> pd.DataFrame:
    """Read further rows for a model into memory, with a column of holidays that they lack.

    Parameters and errors are those of ``read_held_out``. Columns that the fit had and did not use
    are read where they are there: an update checks that they still do not vary.
    """
    stored = open_table(place, form)
    fitted = added.stored(list(model.feature_names_in_))
    names = [name for name in fitted if name in (*model.used_columns_, *stored.names)]
    return _at_once(stored, names, beside, model, added, f"the rows of {str(place)!r}")


def _at_once(
    stored: StoredTable,
    names: Sequence[str],
    beside: Sequence[str],
    model: Any,
    added: ForModel | None,
    what: str,
) -> pd.DataFrame:
    """Read inputs, and what is beside them, of all rows."""
    wanted = list(dict.fromkeys([*names, *beside]))
    require_inputs(stored, wanted, model, added)
    blocks, n_bytes, n_rows = [], 0, 0
    for block in stored.blocks(wanted, names):
        table = block.read()
        blocks.append(table)
        n_bytes += memory.held(table)
        n_rows += len(table)
        in_all = n_bytes * max((stored.n_rows or 0) / max(n_rows, 1), 1.0)
        memory.require(
            what,
            2 * in_all - n_bytes,  # those that are still to be read, and all once more when joined
            "take a part of them, such as one file of a folder",
        )
    table = pd.concat(blocks, ignore_index=True)
    return table if added is None else added.to(table, model)
