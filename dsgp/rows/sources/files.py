"""Single files, CSV and Parquet, and error messages for those that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from dsgp.addresses import Place, name_of, place_of, require_there
from dsgp.errors import DataError, ParameterError
from dsgp.rows.sources.csv_format import CsvFormat
from dsgp.rows.sources.memory import listed, naming, require_unique

FILE_TYPES = (".csv", ".csv.gz", ".parquet", ".pq")

# Names of unnamed row labels, as pandas and dask store them; they are not columns.
_UNNAMED_LABELS = re.compile(r"__index_level_\d+__|__null_dask_index__")


def read_table(
    path: str | Place,
    columns: Iterable[str] | None = None,
    *,
    delimiter: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8",
    storage_options: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Read a CSV or Parquet file, all columns or those named.

    Parameters
    ----------
    path : str, Path or UPath
        The extension gives the format: .csv, .csv.gz, .parquet or .pq. It may be an address, such
        as ``s3://bucket/a.csv``.
    columns : iterable of str, optional
        Only these are read.
    delimiter, decimal, encoding : str
        Format of a CSV file, as for ``CsvFormat``.
    storage_options : mapping, optional
        Options of fsspec for an address, e.g. ``{"anon": True}``.

    Raises
    ------
    DataError
        If there is no such file, its content does not match its extension, a column is absent or a
        name occurs twice.
    ParameterError
        If options of CSV are given for a Parquet file.
    """
    place = place_of(path, storage_options)
    form = CsvFormat(delimiter, decimal, encoding)
    label, is_text = repr(str(place)), is_csv(place)
    if is_text:
        return _read_csv(place, label, columns, form)
    require_csv(label, form)
    with reading(label, "Parquet"), opened(place) as file, pq.ParquetFile(file) as table:
        present, _ = parquet_names(table.schema_arrow)
        require_names(label, present)
        wanted = present if columns is None else list(columns)
        require_columns(label, wanted, present)
        stored = [name for name in wanted if name in table.schema_arrow.names]
        frame = table.read(columns=stored).to_pandas(date_as_object=False)
    # What pandas stored as row labels is a column to all other libraries.
    labels = [name for name in frame.index.names if name is not None]
    return frame.reset_index(labels)[wanted] if labels else frame


def _read_csv(
    path: Place, label: str, columns: Iterable[str] | None, form: CsvFormat
) -> pd.DataFrame:
    hint = partial(form.hint, path)
    # Arrow is strict where pandas guesses: a row with more fields than the header is an error
    # there, not a silent shift of all columns.
    options = {"read_options": form.reading(), "parse_options": form.parsing}
    decimal = form.decimal
    with reading(label, "CSV", hint=hint):
        with opened(path) as file:
            present = csv.open_csv(
                file, convert_options=csv.ConvertOptions(decimal_point=decimal), **options
            ).schema.names
        require_names(label, present)
        wanted = present if columns is None else list(columns)
        require_columns(label, wanted, present, hint=hint)
        conversion = csv.ConvertOptions(include_columns=wanted, decimal_point=decimal)
        with opened(path) as file:
            table = csv.read_csv(file, convert_options=conversion, **options)
    for field in table.schema:
        if pa.types.is_binary(field.type):
            advice = hint() or "; name its encoding (--encoding)"
            raise DataError(
                f"{label}: column {field.name!r} is not in {form.encoding.upper()}{advice}"
            )
    return table.to_pandas(date_as_object=False)


def require_csv(label: str, form: CsvFormat) -> None:
    """Raise ``ParameterError`` if options of CSV are given for another kind of file."""
    if form != CsvFormat():
        raise ParameterError(
            f"{label} is not a CSV file: delimiter, decimal and encoding are for CSV files only; "
            "leave them out"
        )


@contextmanager
def opened(path: Place) -> Iterator[Any]:
    """Yield what Arrow reads: a path of this machine, or an open file of fsspec."""
    if isinstance(path, Path):
        yield path
        return
    with path.open("rb") as file:
        is_compressed = name_of(path).lower().endswith(".gz")
        yield pa.CompressedInputStream(pa.PythonFile(file, "r"), "gzip") if is_compressed else file


def is_csv(path: Place) -> bool:
    """Return whether an existing file is CSV, not Parquet, by its name."""
    name = name_of(path)
    require_there(path, DataError, "file ")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; a CSV or Parquet file was expected")
    if not name.lower().endswith(FILE_TYPES):
        raise DataError(
            f"cannot determine the format of {str(path)!r}: its name must end in one of "
            f"{', '.join(FILE_TYPES)}"
        )
    return name.lower().endswith((".csv", ".csv.gz"))


@contextmanager
def reading(
    label: str, kind: str, names: Sequence[str] = (), hint: Callable[[], str] = str
) -> Iterator[None]:
    """Raise errors of reading with the file, the column where Arrow numbers it, and a remedy.

    ``hint`` says what the file seems to be instead, or nothing.
    """
    try:
        yield
    except UnicodeError as error:
        advice = hint() or "; name its encoding (--encoding)"
        raise DataError(f"{label} cannot be decoded{advice}") from error
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # UTF-16 that is read as UTF-8 is half zeros
        reason = "".join(filter(str.isprintable, reason))
        if names and (match := re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?(.*)", reason)):
            column, line, what = match.groups()
            where = f" in line {line}" if line else ""
            raise DataError(
                f"{label}: column {names[int(column)]!r} is not of one type: {what}{where}; the "
                "type is inferred from its first rows: correct that value, or leave the column "
                f"out{hint()}"
            ) from error
        raise DataError(
            f"{label} cannot be read as the {kind} file that its name says: {reason}{hint()}"
        ) from error


def require_names(label: str, names: Sequence[str]) -> None:
    """Raise ``DataError`` if a column has no name, or that of another."""
    if "" in names:
        raise DataError(
            f"{label} has no name for column {names.index('') + 1} in its header: name it, or drop "
            "it (pandas writes row labels so, unless to_csv(index=False) is used)"
        )
    with naming(label):
        require_unique(names)


def require_columns(
    label: str,
    wanted: Sequence[str],
    present: Sequence[str],
    further: Sequence[str] = (),
    hint: Callable[[], str] = str,
) -> None:
    """Raise ``DataError`` if a column is neither ``present`` nor among the ``further`` ones."""
    if missing := [name for name in wanted if name not in present and name not in further]:
        raise DataError(
            f"{label} has no column {listed(missing)}; it has {listed(present)}{hint()}"
        )


def parquet_names(schema: pa.Schema) -> tuple[list[str], dict[str, range]]:
    """Column names, and the row labels among them that pandas wrote as a range instead."""
    labels = (schema.pandas_metadata or {}).get("index_columns", [])
    ranges = {
        label["name"]: range(label["start"], label["stop"], label["step"])
        for label in labels
        if isinstance(label, dict) and label.get("name")
    }
    stored = [name for name in schema.names if not _UNNAMED_LABELS.fullmatch(name)]
    return [*stored, *ranges], ranges
