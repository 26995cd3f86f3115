"""Where rows come from: arrays, data frames, files and dask collections."""

from dsgp.rows.sources.alike import frame_like
from dsgp.rows.sources.classes import classes_of, labels_in
from dsgp.rows.sources.csv_format import CsvFormat
from dsgp.rows.sources.files import FILE_TYPES, opened, read_table
from dsgp.rows.sources.frames import plain_table
from dsgp.rows.sources.further import Further, further_rows
from dsgp.rows.sources.kinds import Kind, Wanted, kind_from_settings
from dsgp.rows.sources.lazy import computed, is_lazy, map_rows, map_table
from dsgp.rows.sources.mapped import MappedSource, RetargetedSource, ReweightedSource, ViewedSource
from dsgp.rows.sources.memory import (
    Columns,
    columns_of,
    matching_columns,
    naming,
    require_unique,
    target_of,
    weights_of,
)
from dsgp.rows.sources.numbers import numbers_of
from dsgp.rows.sources.parts import Block
from dsgp.rows.sources.rows import Rows, Source
from dsgp.rows.sources.stored import Stored, StoredTable, open_table
from dsgp.rows.sources.stream import MemorySource, matching_source, source_of

__all__ = [
    "FILE_TYPES",
    "Block",
    "Columns",
    "CsvFormat",
    "Further",
    "Kind",
    "MappedSource",
    "MemorySource",
    "RetargetedSource",
    "ReweightedSource",
    "Rows",
    "Source",
    "Stored",
    "StoredTable",
    "ViewedSource",
    "Wanted",
    "classes_of",
    "columns_of",
    "computed",
    "frame_like",
    "further_rows",
    "is_lazy",
    "kind_from_settings",
    "labels_in",
    "map_rows",
    "map_table",
    "matching_columns",
    "matching_source",
    "naming",
    "numbers_of",
    "open_table",
    "opened",
    "plain_table",
    "read_table",
    "require_unique",
    "source_of",
    "target_of",
    "weights_of",
]
