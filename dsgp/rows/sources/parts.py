"""Parts of a table on disk: a CSV or Parquet file, or a zarr store, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from pyarrow import csv

from dsgp.addresses import Place, options_of
from dsgp.errors import DataError
from dsgp.rows.sources.arrow import numbers_frame, of_arrays, parsed
from dsgp.rows.sources.csv_format import CsvFormat
from dsgp.rows.sources.files import opened, parquet_names, reading, require_names
from dsgp.rows.sources.unchanged import Seen, require_same

# Rows of a block at most (a Parquet row group of up to twice as many is read at once).
BLOCK_ROWS = 2**19
# Bytes of CSV text read at a time.
CSV_BYTES = 2**24


@dataclass(frozen=True)
class Block:
    """Some successive rows of a stored table, not read yet.

    Attributes
    ----------
    part : str
        The file, for messages.
    first_row : int
        Number of the first row within that file.
    read_both : callable
        Returns a data frame without row labels, and the columns to be copied as an Arrow table. It
        can be pickled.
    """

    part: str
    first_row: int
    read_both: Callable[[], tuple[pd.DataFrame, pa.Table]]

    def read(self) -> pd.DataFrame:
        """Return a data frame without row labels."""
        return self.read_both()[0]


class Part(Protocol):
    """A file or a zarr store."""

    @property
    def label(self) -> str:
        """Its name in messages."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Further columns, which label rows: read only if requested."""

    @property
    def n_rows(self) -> int | None:
        """None if it is only known after reading."""

    @property
    def seen(self) -> Seen | None:
        """Its size and time of modification when it was opened."""

    def blocks(
        self, columns: Sequence[str], numbers: Collection[str], copied: Sequence[str] = ()
    ) -> Iterator[Block]:
        """Yield the rows in their order.

        ``numbers`` are the columns that are read as numbers, and ``copied`` those that are returned
        as they are stored (for a CSV file, as text).
        """

    def types(self, columns: Sequence[str]) -> pa.Schema | None:
        """Return the Arrow types of columns, or None where they are text of a CSV file."""


@dataclass(frozen=True)
class CsvPart:
    """A CSV file: read from start to end, so its blocks hold their rows."""

    path: Place
    label: str
    schema: pa.Schema  # from the first rows
    format: CsvFormat = field(default_factory=CsvFormat)
    labels: tuple[str, ...] = ()
    n_rows: int | None = None
    seen: Seen | None = None

    @classmethod
    def of(cls, path: Place, label: str, form: CsvFormat) -> CsvPart:
        seen = Seen.of(path, label)
        with reading(label, "CSV", hint=partial(form.hint, path)), opened(path) as file:
            schema = csv.open_csv(
                file,
                read_options=form.reading(),
                parse_options=form.parsing,
                convert_options=csv.ConvertOptions(decimal_point=form.decimal),
            ).schema
            require_names(label, schema.names)
        return cls(path, label, schema, form, seen=seen)

    def hint(self) -> str:
        """Report what the format of the file seems to be, if it is not the given one."""
        return self.format.hint(self.path)

    def types(self, columns: Sequence[str]) -> None:
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def blocks(
        self, columns: Sequence[str], numbers: Collection[str], copied: Sequence[str] = ()
    ) -> Iterator[Block]:
        first_row = 0
        wanted = list(dict.fromkeys([*columns, *copied]))
        self._require_text(wanted)
        kinds = {name: self._type(name, name in numbers) for name in wanted}
        options = csv.ConvertOptions(
            include_columns=wanted,
            column_types=kinds | dict.fromkeys(copied, pa.string()),
            decimal_point=self.format.decimal,
        )
        # Inputs among the columns whose text is copied.
        read = {name: kinds[name] for name in copied if name in numbers}
        split = partial(_split, columns, numbers, copied, read, self.format.decimal)
        with (
            reading(self.label, "CSV", self.names, self.hint),
            opened(self.path) as file,
            csv.open_csv(
                file,
                read_options=self.format.reading(CSV_BYTES),
                parse_options=self.format.parsing,
                convert_options=options,
            ) as reader,
        ):
            for batch in reader:
                for start in range(0, batch.num_rows, BLOCK_ROWS):
                    piece = pa.Table.from_batches([batch.slice(start, BLOCK_ROWS)])
                    yield Block(self.label, first_row + start, partial(split, piece))
                first_row += batch.num_rows
        require_same(self.seen)  # the file has been read to its end

    def _require_text(self, names: Sequence[str]) -> None:
        for name in names:
            if pa.types.is_binary(self.schema.field(name).type):
                encoding = self.format.encoding
                hint = self.hint() or "; name its encoding (--encoding)"
                raise DataError(f"{self.label}: column {name!r} is not in {encoding.upper()}{hint}")

    def _type(self, name: str, number: bool) -> pa.DataType:
        """Return the type as which a column is read; first rows may mislead (1, then 1.5)."""
        seen = self.schema.field(name).type
        if pa.types.is_null(seen):
            return pa.float64() if number else pa.string()
        if number and (pa.types.is_integer(seen) or pa.types.is_floating(seen)):
            return pa.float64()
        return seen


@dataclass(frozen=True)
class ParquetPart:
    """A Parquet file, read by row groups in any order."""

    path: Place
    label: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]  # rows of the groups
    ranges: dict[str, range]  # row labels that pandas describes instead of storing them
    schema: pa.Schema
    labels: tuple[str, ...] = ()
    seen: Seen | None = None

    @classmethod
    def of(cls, path: Place, label: str) -> ParquetPart:
        seen = Seen.of(path, label)
        with reading(label, "Parquet"), opened(path) as source, pq.ParquetFile(source) as file:
            schema = file.schema_arrow
            names, ranges = parquet_names(schema)
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        require_names(label, names)
        return cls(path, label, tuple(names), tuple(sizes), ranges, schema, seen=seen)

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)

    def types(self, columns: Sequence[str]) -> pa.Schema:
        stored = {name: self.schema.field(name) for name in self._stored(columns)}
        return pa.schema([stored.get(name, pa.field(name, pa.int64())) for name in columns])

    def blocks(
        self, columns: Sequence[str], numbers: Collection[str], copied: Sequence[str] = ()
    ) -> Iterator[Block]:
        first_row = 0
        wanted = list(dict.fromkeys([*columns, *copied]))
        split = partial(_split, columns, numbers, copied, {}, ".")
        for groups, n_rows in self._runs():
            if n_rows > 2 * BLOCK_ROWS:
                yield from self._pieces(groups, wanted, split, first_row)
            elif n_rows:
                read = partial(self._read, groups, wanted, split, first_row)
                yield Block(self.label, first_row, read)
            first_row += n_rows

    def _runs(self) -> Iterator[tuple[list[int], int]]:
        """Yield successive row groups that together are not too long, and their rows."""
        run: list[int] = []
        n_rows = 0
        for group, size in enumerate(self.sizes):
            if run and n_rows + size > BLOCK_ROWS:
                yield run, n_rows
                run, n_rows = [], 0
            run.append(group)
            n_rows += size
        if run:
            yield run, n_rows

    def _read(
        self, groups: list[int], columns: Sequence[str], split: Split, first_row: int
    ) -> tuple[pd.DataFrame, pa.Table]:
        with self._file() as file:
            table = file.read_row_groups(groups, columns=self._stored(columns))
        return split(self._completed(table, columns, first_row))

    def _pieces(
        self, groups: list[int], columns: Sequence[str], split: Split, first_row: int
    ) -> Iterator[Block]:
        """Read a long row group from start to end, as reading a piece needs all before it."""
        with self._file() as file:
            stored = self._stored(columns)
            for batch in file.iter_batches(BLOCK_ROWS, row_groups=groups, columns=stored):
                table = self._completed(pa.Table.from_batches([batch]), columns, first_row)
                yield Block(self.label, first_row, partial(split, table))
                first_row += batch.num_rows

    @contextmanager
    def _file(self) -> Iterator[pq.ParquetFile]:
        require_same(self.seen)
        with (
            reading(self.label, "Parquet"),
            opened(self.path) as source,
            pq.ParquetFile(source) as file,
        ):
            yield file
        require_same(self.seen)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name not in self.ranges]

    def _completed(self, table: pa.Table, columns: Sequence[str], first_row: int) -> pa.Table:
        rows = slice(first_row, first_row + table.num_rows)
        for name in columns:
            if name in self.ranges:
                table = table.append_column(name, pa.array(np.asarray(self.ranges[name][rows])))
        return table.select(list(columns))  # Arrow also reads "a.b" if "a" is requested


@dataclass(frozen=True)
class ZarrPart:
    """A zarr group whose arrays of one dimension are the columns, as xarray writes data sets."""

    path: Place
    label: str
    names: tuple[str, ...]
    labels: tuple[str, ...]  # coordinates, which a dataset does not count as variables
    n_rows: int
    step: int
    seen: Seen | None = None

    @classmethod
    def of(cls, path: Place) -> ZarrPart:
        label = f"zarr store {str(path)!r}"
        seen = Seen.of(path, label)
        group = _zarr_group(path)
        arrays = {name: array for name, array in _arrays(path, group) if array.ndim}
        if not arrays:
            raise DataError(f"{label} has no array; columns are arrays of one dimension")
        first, n_rows = next((name, array.shape[0]) for name, array in arrays.items())
        for name, array in arrays.items():
            if array.shape != (n_rows,):
                raise DataError(
                    f"{label}: array {name!r} has shape {array.shape}, but {first!r} has "
                    f"{arrays[first].shape}; columns are arrays of one dimension and one length"
                )
        # Named so by xarray, or after their dimension.
        attributes = [group.attrs, *(array.attrs for array in arrays.values())]
        coordinates = set(" ".join(str(a.get("coordinates", "")) for a in attributes).split())
        labels = tuple(
            name
            for name, array in arrays.items()
            if name in coordinates or _dimension(array) == name
        )
        names = tuple(name for name in arrays if name not in labels)
        longest = max(array.chunks[0] for array in arrays.values())
        step = BLOCK_ROWS // longest * longest or BLOCK_ROWS
        return cls(path, label, names, labels, n_rows, step, seen)

    def types(self, columns: Sequence[str]) -> pa.Schema:
        group = _zarr_group(self.path)
        return of_arrays(
            {name: self._values(group[name], name, slice(0, 1)) for name in columns}
        ).schema

    def blocks(
        self, columns: Sequence[str], numbers: Collection[str], copied: Sequence[str] = ()
    ) -> Iterator[Block]:
        for start in range(0, self.n_rows, self.step):
            rows = slice(start, min(start + self.step, self.n_rows))
            yield Block(self.label, start, partial(self._read, columns, copied, rows))

    def _read(
        self, columns: Sequence[str], copied: Sequence[str], rows: slice
    ) -> tuple[pd.DataFrame, pa.Table]:
        group = _zarr_group(self.path)
        wanted = dict.fromkeys([*columns, *copied])
        arrays = {name: self._values(group[name], name, rows) for name in wanted}
        frame = pd.DataFrame({name: arrays[name] for name in columns})
        return frame, of_arrays({name: arrays[name] for name in copied})

    def _values(self, array: Any, name: str, rows: slice) -> Any:
        # xarray would decode these; their stored numbers are different.
        coded = [key for key in ("scale_factor", "add_offset") if key in array.attrs]
        coded += ["units"] if " since " in str(array.attrs.get("units")) else []
        coded += ["_FillValue"] if array.dtype.kind in "iu" and "_FillValue" in array.attrs else []
        if coded:
            raise DataError(
                f"{self.label}: column {name!r} is stored in a code ({', '.join(coded)}); write it "
                "as plain numbers, or open it with xarray and pass the dataset"
            )
        try:
            return array[rows]
        # zarr and its codecs raise many types of errors for a damaged store; all mean the same
        # here.
        except Exception as error:
            raise DataError(f"{self.label}: column {name!r} cannot be read: {error}") from error


def _zarr_group(path: Place) -> zarr.Group:
    try:
        return zarr.open_group(str(path), mode="r", **options_of(path))
    except Exception as error:  # as above
        raise DataError(f"{str(path)!r} cannot be read as a zarr group: {error}") from error


def _arrays(path: Place, group: zarr.Group) -> list[tuple[str, Any]]:
    try:
        return sorted(group.arrays())
    except Exception as error:  # as above
        raise DataError(
            f"the metadata of an array of {str(path)!r} are damaged: {error}"
        ) from error


def _dimension(array: Any) -> str | None:
    """Name of an array's only dimension, in version 3 or 2 of the format."""
    named = getattr(array.metadata, "dimension_names", None)
    return (named or array.attrs.get("_ARRAY_DIMENSIONS") or [None])[0]


Split = Callable[[pa.Table], tuple[pd.DataFrame, pa.Table]]


def _split(
    columns: Sequence[str],
    numbers: Collection[str],
    copied: Sequence[str],
    read: Mapping[str, pa.DataType],
    decimal: str,
    table: pa.Table,
) -> tuple[pd.DataFrame, pa.Table]:
    """Make a data frame of some columns, and return others unchanged."""
    frame = numbers_frame(parsed(table.select(list(columns)), read, decimal), numbers)
    return frame, table.select(list(copied))
