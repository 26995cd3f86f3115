"""Tables on disk of one or many parts: files, folders, globs and zarr stores.

The columns of the parts are compared when a table is opened; the values are checked when blocks are
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import has_magic, iglob
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsgp.addresses import (
    Place,
    exists,
    files_below,
    is_store,
    is_web,
    matches,
    name_of,
    parts_within,
    place_of,
    require_there,
)
from dsgp.errors import DataError
from dsgp.rows.sources.arrow import joint_schema
from dsgp.rows.sources.csv_format import CsvFormat
from dsgp.rows.sources.files import FILE_TYPES, is_csv, require_columns, require_csv
from dsgp.rows.sources.memory import listed
from dsgp.rows.sources.parts import Block, CsvPart, ParquetPart, Part, ZarrPart
from dsgp.rows.sources.unchanged import require_same


@dataclass(frozen=True)
class Stored:
    """A table on disk, and which of its columns are inputs; accepted wherever a path is.

    Parameters
    ----------
    path : str, Path or UPath
        A CSV or Parquet file, a folder of them, a glob such as ``data/*.csv``, or a zarr store; on
        this machine or at an address, such as ``s3://bucket/*.parquet``.
    columns : sequence of str, optional
        The inputs; None means all except those in ``drop`` and the columns named in a fit (target,
        weight, …).
    drop : sequence of str
    format : CsvFormat
        How CSV files are written: delimiter, decimal point, encoding.
    storage_options : mapping, optional
        Options of fsspec for an address, e.g. ``{"anon": True}``.
    """

    path: str | Place
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    format: CsvFormat = field(default_factory=CsvFormat)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def require_column_name(self, what: str, value: Any) -> None:
        """Raise ``DataError`` if a target, weight or offset is not the name of a column."""
        if not isinstance(value, str):
            raise DataError(
                f"{what} must be the name of a column, because X is the path {str(self.path)!r}; "
                f"got {type(value).__name__}"
            )


@dataclass(frozen=True)
class StoredTable:
    """Parts of one table, in their order."""

    path: str
    parts: list[Part]

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the first part."""
        return self.parts[0].names

    @property
    def n_rows(self) -> int | None:
        """Rows of all parts, where they are known before reading."""
        counts = [part.n_rows for part in self.parts if part.n_rows is not None]
        return sum(counts) if len(counts) == len(self.parts) else None

    def require(self, columns: Iterable[str]) -> None:
        """Raise ``DataError`` naming the first part that lacks one of these columns."""
        wanted = list(columns)
        for part in self.parts:
            hint = part.hint if isinstance(part, CsvPart) else str
            require_columns(part.label, wanted, part.names, part.labels, hint)

    def require_alike(self) -> None:
        """Raise ``DataError`` naming the first part whose columns are not those of the first."""
        first = self.parts[0]
        for part in self.parts[1:]:
            further = [name for name in part.names if name not in first.names]
            absent = [name for name in first.names if name not in part.names]
            if further or absent:
                differences = [f"lacks {listed(absent)}"] if absent else []
                differences += [f"has {listed(further)} as well"] if further else []
                raise DataError(
                    f"{part.label} {' and '.join(differences)}, compared with {first.label}, which "
                    f"has {listed(first.names)}; all parts must have the same columns: write them "
                    "alike, or name the input columns that are meant"
                )

    def type_of(self, name: str) -> pa.DataType:
        """Arrow type of a column in the first part; for a CSV file, by its first rows."""
        first = self.parts[0]
        if isinstance(first, CsvPart):
            return first.schema.field(name).type
        schema = first.types([name])
        assert schema is not None  # only CSV files have none
        return schema.field(name).type

    def types(self, columns: Sequence[str]) -> pa.Schema | None:
        """Return the Arrow types of columns in all parts, or None where they are text of CSV.

        Raises
        ------
        DataError
            If parts do not agree.
        """
        schemas = [part.types(columns) for part in self.parts]
        if any(schema is None for schema in schemas):
            return None
        return joint_schema(schemas, [part.label for part in self.parts])

    def blocks(
        self, columns: Sequence[str], numbers: Iterable[str], copied: Sequence[str] = ()
    ) -> Iterator[Block]:
        """Yield the rows of all parts in their order.

        Take them one at a time: blocks of a CSV file, and of a Parquet file with very long row
        groups, hold their rows, because such files are read from start to end.

        Parameters
        ----------
        columns : sequence of str
        numbers : iterable of str
            Those to be read as numbers, whatever the first rows of a CSV file look like.
        copied : sequence of str
            Those that ``Block.read_both`` gives as they are stored.

        Raises
        ------
        DataError
            If a part cannot be read or has changed since it was opened, or there is no row at all.
        """
        empty = True
        numbers = frozenset(numbers)
        for part in self.parts:
            require_same(part.seen)
            # At least one column, because a table without any has no number of rows.
            for block in part.blocks(columns or part.names[:1], numbers, copied):
                empty = False
                yield block
        if empty:
            raise self.without_rows()

    def without_rows(self) -> DataError:
        """Return the error for a table without rows."""
        return DataError(
            f"{self.path!r} is an empty table: it has columns {listed(self.names)} but no row"
        )


def open_table(
    path: str | Place,
    form: CsvFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StoredTable:
    """Find the parts of a table and read their column names.

    Parameters
    ----------
    path, form, storage_options
        As for ``Stored``. Files of a folder are taken in the order of their names, in which 10
        comes after 9; those whose names start with ``_`` or ``.`` are ignored.

    Raises
    ------
    DataError
        If there is nothing, or a part is not what its name says.
    StorageError
        If an address cannot be reached.
    """
    place = place_of(path, storage_options)
    label = repr(str(place))
    form = CsvFormat() if form is None else form
    is_pattern = _is_pattern(place)
    if not is_pattern:
        require_there(place, DataError, "file ")
    if not is_pattern and not name_of(place).lower().endswith(FILE_TYPES) and is_store(place):
        require_csv(label, form)
        return StoredTable(str(place), [ZarrPart.of(place)])
    files: Sequence[Place]
    if is_pattern:
        files = _matching(place)
        if not files:
            raise DataError(f"no file matches {label}; check the pattern")
        labels = [f"part {str(file)!r}" for file in files]
    elif place.is_dir():
        files = _files_below(place)
        labels = [f"part {'/'.join(parts_within(file, place))!r}" for file in files]
    else:
        files, labels = [place], [label]
    if len({is_csv(file) for file in files}) > 1:
        raise DataError(f"{label} has both CSV and Parquet files; keep one kind")
    parts: list[Part] = []
    for file, part_label in zip(files, labels, strict=True):
        if is_csv(file):
            parts.append(CsvPart.of(file, part_label, form))
        else:
            require_csv(part_label, form)
            parts.append(ParquetPart.of(file, part_label))
    return StoredTable(str(place), parts)


def _is_pattern(place: Place) -> bool:
    if isinstance(place, Path):
        return has_magic(str(place)) and not place.exists()
    # A question mark begins the query of a URL.
    path = place.path.partition("?")[0] if is_web(place.protocol) else place.path
    return has_magic(path) and not exists(place)


def _matching(place: Place) -> list[Place]:
    candidates: Iterable[Place]
    if isinstance(place, Path):
        candidates = (Path(match) for match in iglob(str(place), recursive=True))
    else:
        candidates = matches(place)
    return _in_order(
        file for file in candidates if file.is_file() and not name_of(file).startswith("_")
    )


def _files_below(folder: Place) -> list[Place]:
    candidates: Iterable[Place]
    if isinstance(folder, Path):
        candidates = (file for file in folder.rglob("*") if file.is_file())
    else:
        candidates = files_below(folder)
    files = _in_order(
        file
        for file in candidates
        if name_of(file).lower().endswith(FILE_TYPES)
        and not any(name.startswith(("_", ".")) for name in parts_within(file, folder))
    )
    if not files:
        raise DataError(
            f"{str(folder)!r} is a folder without any file {', '.join(FILE_TYPES)}, and no zarr "
            "group; check the path"
        )
    for file in files:
        if keys := [name for name in parts_within(file, folder)[:-1] if "=" in name]:
            raise DataError(
                f"{str(folder)!r} keeps the column {keys[0].split('=')[0]!r} in the names of its "
                "folders, where it is not read; write it without partitioning by columns"
            )
    return files


def _in_order(files: Iterable[Place]) -> list[Place]:
    """Sort by name, numbers within it by value: dask writes part.2 and part.10."""
    return sorted(
        files,
        key=lambda file: [
            (int(piece), "") if piece.isdecimal() else (-1, piece)
            for piece in re.split(r"(\d+)", str(file))
        ],
    )
