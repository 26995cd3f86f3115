"""The format of a CSV file, and what it seems to be where the given one does not fit."""

from __future__ import annotations

import codecs
import gzip
import re
from dataclasses import dataclass

from pyarrow import csv

from dsgp.addresses import Place, name_of
from dsgp.errors import ParameterError

_HEAD = 2**16  # bytes that are looked at
_LINES = 20
_MARKS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


@dataclass(frozen=True)
class CsvFormat:
    r"""How a CSV file is written.

    Parameters
    ----------
    delimiter : str
        One character between the fields; ``"tab"`` is the tabulator.
    decimal : {".", ","}
        Between the digits of a number.
    encoding : str
        One that Python knows, e.g. ``"utf-8"``, ``"utf-16"``, ``"latin-1"``, ``"cp1252"``.

    Raises
    ------
    ParameterError
        If there is no such delimiter, decimal point or encoding.

    Examples
    --------
    >>> from dsgp.rows.sources import CsvFormat
    >>> CsvFormat(delimiter="tab").delimiter
    '\t'
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ParameterError(
                "delimiter must be one ASCII character such as ';', or 'tab', got "
                f"{self.delimiter!r}"
            )
        if self.decimal not in (".", ","):
            raise ParameterError(f"decimal must be '.' or ',', got {self.decimal!r}")
        try:
            codecs.lookup(self.encoding)
        except LookupError as error:
            raise ParameterError(
                "encoding must be one that Python knows, such as 'utf-8', 'utf-16', 'latin-1' or "
                f"'cp1252', got {self.encoding!r}"
            ) from error

    @property
    def parsing(self) -> csv.ParseOptions:
        """Options of Arrow."""
        return csv.ParseOptions(delimiter=self.delimiter)

    def reading(self, block_size: int | None = None) -> csv.ReadOptions:
        """Return options of Arrow; with blocks, on one thread, which is needed for line numbers."""
        if block_size is None:
            return csv.ReadOptions(encoding=self.encoding)
        return csv.ReadOptions(block_size=block_size, use_threads=False, encoding=self.encoding)

    def hint(self, path: Place) -> str:
        """Return what a file seems to be if it has another format, ``"; it seems …"`` or ""."""
        head = _head(path)
        if (encoding := _other_encoding(head, self.encoding)) is not None:
            return encoding
        text = head.decode(self.encoding, "ignore").lstrip("\ufeff")
        lines = [_QUOTED.sub("", line) for line in text.splitlines() if line.strip()]
        if len(head) == _HEAD:
            lines = lines[:-1]  # the last line may be cut off
        lines = lines[:_LINES]
        if not lines or self._fits(lines):
            return ""
        mark = next((mark for mark in _MARKS if mark != self.delimiter and _even(lines, mark)), "")
        if not mark:
            return ""
        named = "'tab'" if mark == "\t" else repr(mark)
        option = "tab" if mark == "\t" else f"'{mark}'"
        hint = f"; it seems to be separated by {mark!r}: delimiter={named} (--delimiter {option})"
        fields = [field for line in lines[1:] for field in line.split(mark)]
        if self.decimal == "." and mark != "," and any(map(_DECIMAL_COMMA.fullmatch, fields)):
            hint += ", with decimal commas: decimal=',' (--decimal ,)"
        return hint

    def _fits(self, lines: list[str]) -> bool:
        return lines[0].count(self.delimiter) > 0 and _even(lines, self.delimiter)


def _even(lines: list[str], mark: str) -> bool:
    """Whether every line has as many marks as the header, and at least one."""
    counts = [line.count(mark) for line in lines]
    return counts[0] > 0 and min(counts) == max(counts)


def _head(path: Place) -> bytes:
    try:
        with path.open("rb") as file:
            is_compressed = name_of(path).lower().endswith(".gz")
            return (gzip.GzipFile(fileobj=file) if is_compressed else file).read(_HEAD)
    except (OSError, EOFError):  # not a gzip file, for example: another message reports that
        return b""


def _other_encoding(head: bytes, encoding: str) -> str | None:
    """Return a message on the encoding that a file seems to have if that is another one."""
    name = codecs.lookup(encoding).name
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    zeros = max(head[::2].count(0), head[1::2].count(0)) > len(head) / 8
    little = head[1::2].count(0) > head[::2].count(0)
    wanted = "utf-16" if marked else "utf-16-le" if little else "utf-16-be"
    if (marked or zeros) and not name.startswith("utf-16"):
        return f"; it seems to be in UTF-16: encoding={wanted!r} (--encoding {wanted})"
    if zeros and not marked and name == "utf-16":
        return f"; it has no byte order mark: encoding={wanted!r} (--encoding {wanted})"
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        return (
            f"; it is not in {encoding.upper()}: name its encoding, e.g. encoding='latin-1', "
            "'cp1252' or 'utf-8' (--encoding)"
        )
    return None
