"""Tables on disk of one or many parts: files, folders, globs and zarr stores.

The columns of the parts are compared when a table is opened; the values are looked at by those who
read the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import has_magic, iglob
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsgp.errors import DataError
from dsgp.rows.sources.arrow import joint_schema
from dsgp.rows.sources.csv_format import CsvFormat
from dsgp.rows.sources.files import FILE_TYPES, is_csv, refuse_address, require_columns, require_csv
from dsgp.rows.sources.memory import listed
from dsgp.rows.sources.parts import Block, CsvPart, ParquetPart, Part, ZarrPart


@dataclass(frozen=True)
class Stored:
    """A table on disk, and which of its columns are inputs; taken wherever a path is.

    Parameters
    ----------
    path : str or Path
        A CSV or Parquet file, a folder of them, a glob such as ``data/*.csv``, or a zarr store.
    columns : sequence of str, optional
        The inputs; None means all but those in ``drop`` and what else is named in a fit (target,
        weight, …).
    drop : sequence of str
    format : CsvFormat
        How CSV files are written: delimiter, decimal point, encoding.
    """

    path: str | Path
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    format: CsvFormat = field(default_factory=CsvFormat)

    def require_column_name(self, what: str, value: Any) -> None:
        """Raise ``DataError`` if what belongs to the rows is no name of a column."""
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
            If a part cannot be read, or there is no row at all.
        """
        empty = True
        numbers = frozenset(numbers)
        for part in self.parts:
            # One column at least, because a table without any has no number of rows.
            for block in part.blocks(columns or part.names[:1], numbers, copied):
                empty = False
                yield block
        if empty:
            raise self.without_rows()

    def without_rows(self) -> DataError:
        """Return the error of a table that has columns only."""
        return DataError(
            f"{self.path!r} is an empty table: it has columns {listed(self.names)} but no row"
        )


def open_table(path: str | Path, form: CsvFormat | None = None) -> StoredTable:
    """Find the parts of a table and read their column names.

    Parameters
    ----------
    path : str or Path
        As for ``Stored``. Files of a folder are taken in the order of their names, in which 10
        comes after 9; those whose names start with ``_`` or ``.`` are left aside.

    Raises
    ------
    DataError
        If there is nothing, or a part is not what its name says.
    """
    refuse_address(path)
    path = Path(path)
    form = CsvFormat() if form is None else form
    if path.is_dir() and any((path / mark).exists() for mark in ("zarr.json", ".zgroup")):
        require_csv(repr(str(path)), form)
        return StoredTable(str(path), [ZarrPart.of(path)])
    if path.is_dir():
        files = _files_below(path)
        labels = [f"part {str(file.relative_to(path))!r}" for file in files]
    elif has_magic(str(path)) and not path.exists():
        matches = (Path(match) for match in iglob(str(path), recursive=True))
        files = _in_order(file for file in matches if file.is_file() and file.name[0] != "_")
        if not files:
            raise DataError(f"no file matches {str(path)!r}; check the pattern")
        labels = [f"part {str(file)!r}" for file in files]
    else:
        files, labels = [path], [repr(str(path))]
    if len({is_csv(file) for file in files}) > 1:
        raise DataError(f"{str(path)!r} has both CSV and Parquet files; keep one kind")
    parts: list[Part] = []
    for file, label in zip(files, labels, strict=True):
        if is_csv(file):
            parts.append(CsvPart.of(file, label, form))
        else:
            require_csv(label, form)
            parts.append(ParquetPart.of(file, label))
    return StoredTable(str(path), parts)


def _files_below(folder: Path) -> list[Path]:
    files = _in_order(
        file
        for file in folder.rglob("*")
        if file.name.lower().endswith(FILE_TYPES)
        and file.is_file()
        and not any(name.startswith(("_", ".")) for name in file.relative_to(folder).parts)
    )
    if not files:
        raise DataError(
            f"{str(folder)!r} is a folder without any file {', '.join(FILE_TYPES)}, and no zarr "
            "group; check the path"
        )
    for file in files:
        if keys := [name for name in file.relative_to(folder).parts[:-1] if "=" in name]:
            raise DataError(
                f"{str(folder)!r} keeps the column {keys[0].split('=')[0]!r} in the names of its "
                "folders, where it is not read; write it without partitioning by columns"
            )
    return files


def _in_order(files: Iterable[Path]) -> list[Path]:
    """Sort by name, numbers within it by value: dask writes part.2 and part.10."""
    return sorted(
        files,
        key=lambda file: [
            (int(piece), "") if piece.isdecimal() else (-1, piece)
            for piece in re.split(r"(\d+)", str(file))
        ],
    )
