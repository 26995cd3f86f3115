"""Kinds of the columns of a training table, and the labels of those that are levels.

Types distinguish numbers, dates and levels. Labels need the values: a table on disk, or a dask
collection, is read once to find its levels, if it has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from dask import delayed

from dsgp.errors import DataError
from dsgp.rows.sources.kinds import (
    NUMBER,
    Categories,
    Kind,
    Kinds,
    Wanted,
    distinct_levels,
    kind_of_column,
    merged_levels,
    require_few_levels,
    with_labels,
)
from dsgp.rows.sources.lazy import blocks_of
from dsgp.rows.sources.memory import naming
from dsgp.rows.sources.stored import StoredTable
from dsgp.waiting import computed


def kinds_in_memory(table: Any, names: Sequence[str], wanted: Wanted) -> Kinds:
    """Find the kinds of the columns of a data frame; those of an array are numbers."""
    if not isinstance(table, pd.DataFrame):
        return {}
    columns = {name: table[name] for name in names if name in table.columns}
    kinds = {
        name: _asked(name, kind_of_column(_what(name), column), wanted)
        for name, column in columns.items()
        if column.ndim == 1
    }
    levels_by_name = {
        name: [distinct_levels(_what(name), columns[name])]
        for name, kind in kinds.items()
        if isinstance(kind, Categories)
    }
    return _completed(kinds, levels_by_name, wanted, len(table))


def kinds_on_disk(table: StoredTable, names: Sequence[str], wanted: Wanted) -> Kinds:
    """Find the kinds of the columns of a stored table by their types, and read its levels."""
    kinds: Kinds = {}
    for name in names:
        empty_column = pd.Series(dtype=pd.ArrowDtype(table.type_of(name)))
        kinds[name] = _asked(name, kind_of_column(_what(name), empty_column), wanted)
    levels = [name for name, kind in kinds.items() if isinstance(kind, Categories)]
    levels_by_name: dict[str, list[Any]] = {name: [] for name in levels}
    if levels:
        for block in table.blocks(levels, numbers=()):
            _add(levels_by_name, _block_levels(block.read(), levels, block.part))
    return _completed(kinds, levels_by_name, wanted, table.n_rows)


def kinds_of_collection(
    table: Any, names: Sequence[str], wanted: Wanted, n_rows: int | None, kind_name: str
) -> Kinds:
    """Find the kinds of the columns of a dask data frame by their types, and read its levels."""
    kinds: Kinds = {}
    for name in names:
        meta = table[name]._meta
        column_kind = kind_of_column(_what(name), meta, by_type=True)
        kinds[name] = _asked(name, column_kind, wanted)
    levels = [name for name, kind in kinds.items() if isinstance(kind, Categories)]
    levels_by_name: dict[str, list[Any]] = {name: [] for name in levels}
    if levels:
        blocks, _ = blocks_of(table[levels])
        look = delayed(_block_levels, pure=False, traverse=False)
        tasks = [
            look(block, levels, f"block {number} of the {kind_name}")
            for number, block in enumerate(blocks)
        ]
        for one in computed(*tasks):
            _add(levels_by_name, one)
    return _completed(kinds, levels_by_name, wanted, n_rows)


def _what(name: str) -> str:
    return f"input column {name!r}"


def _asked(name: str, kind: Kind, wanted: Wanted) -> Kind:
    """Return levels where they were requested, unless numbers can represent them."""
    if name not in wanted.levels or kind.is_date:
        return kind
    if isinstance(wanted.before.get(name), Categories):
        return Categories(())
    # Numbers are their own labels, unless a missing value is to have a label too.
    is_level = isinstance(kind, Categories) or wanted.levels[name] == "level"
    return Categories(()) if is_level or not kind.is_number else kind


def _block_levels(block: Any, names: Iterable[str], part: str) -> dict[str, Any]:
    with naming(part):
        return {name: distinct_levels(_what(name), block[name]) for name in names}


def _add(levels_by_name: dict[str, list[Any]], more: dict[str, Any]) -> None:
    for name, labels in more.items():
        levels_by_name[name].append(labels)


def _completed(
    kinds: Kinds, levels_by_name: dict[str, list[Any]], wanted: Wanted, n_rows: int | None
) -> Kinds:
    for name, pieces in levels_by_name.items():
        labels = merged_levels(_what(name), pieces)
        asked = name in wanted.levels
        before = wanted.before.get(name)
        if isinstance(before, Categories):
            others = _are_numbers(labels) and not _are_numbers(before.names)
            kind = with_labels(kinds[name], labels, wanted.levels.get(name))
            kinds[name] = NUMBER if others else kind
            continue
        as_text = pd.Series(labels, dtype=object)
        if not asked and _look_like_numbers(as_text):
            kinds[name] = NUMBER  # reading them as numbers reports what is wrong with such text
            continue
        if not labels:
            raise DataError(f"{_what(name)} has no value in any row: leave it out")
        kinds[name] = with_labels(kinds[name], labels, wanted.levels.get(name))
        if isinstance(labels[0], str):
            require_few_levels(name, kinds[name], n_rows, asked)
    return kinds


def _are_numbers(labels: Sequence[Any]) -> bool:
    return len(labels) > 0 and not any(isinstance(one, (str, bool, np.bool_)) for one in labels)


def _look_like_numbers(labels: Any) -> bool:
    is_text = len(labels) > 0 and isinstance(labels.iloc[0], str)
    return is_text and kind_of_column("", labels).is_number
