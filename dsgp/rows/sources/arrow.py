"""Arrow's tables: as data frames of numbers, and columns that are copied as they are."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dsgp.errors import DataError

# Text that Arrow reads as missing in a column of numbers of a CSV file.
_NULLS = tuple(csv.ConvertOptions().null_values)
# A whole number in canonical form: no leading zero, no plus sign.
_WHOLE = r"^(0|-?[1-9][0-9]{0,19})$"


def frame_of_arrow(table: pa.Table) -> pd.DataFrame:
    """Convert to a data frame without row labels."""
    for position, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(position)
            table = table.set_column(position, field.name, _with_signed_codes(column))
    return table.to_pandas(ignore_metadata=True, date_as_object=False, split_blocks=True)


def _with_signed_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Change codes of categories that Arrow up to 20 cannot convert to pandas (those of polars)."""
    kind = column.type
    if not pa.types.is_unsigned_integer(kind.index_type):
        return column
    codes = pa.int64() if kind.index_type == pa.uint64() else pa.int32()
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(codes), chunk.dictionary, ordered=kind.ordered
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(codes, kind.value_type, kind.ordered))


def numbers_frame(table: pa.Table, numbers: Collection[str]) -> pd.DataFrame:
    """Convert to a data frame, in which decimals and missing counts are float64."""
    for position, field in enumerate(table.schema):
        if field.name in numbers and _is_converted(field.type):
            column = table.column(position).cast(pa.float64(), safe=False)
            table = table.set_column(position, field.name, column)
    return frame_of_arrow(table)


def _is_converted(kind: pa.DataType) -> bool:
    """Whether Arrow converts a type better than pandas: missing ones to NaN, decimals fast."""
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_null, pa.types.is_decimal)
    return any(is_one(kind) for is_one in tests)


def parsed(table: pa.Table, kinds: Mapping[str, pa.DataType], decimal: str) -> pa.Table:
    """Read text of a CSV file as Arrow does, in columns of some types.

    Where numbers are expected, columns that hold other text stay as they are.

    Raises
    ------
    DataError
        If a column of dates, times or true and false holds something else.
    """
    for position, field in enumerate(table.schema):
        kind = kinds.get(field.name)
        if kind is None:
            continue
        is_other = pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
        text = pc.utf8_trim_whitespace(table.column(position))
        text = pc.if_else(pc.is_in(text, pa.array(_NULLS)), pa.scalar(None, pa.string()), text)
        if decimal == "," and not is_other:
            text = pc.replace_substring(text, ",", ".")
        try:
            column = text.cast(kind if is_other else pa.float64())
        except pa.ArrowInvalid as error:
            if not is_other:
                continue
            raise DataError(
                f"column {field.name!r} is not of one type: {error}; the type is inferred from its "
                "first rows: correct that value, or leave the column out"
            ) from error
        table = table.set_column(position, field.name, column)
    return table


def of_arrays(arrays: dict[str, Any]) -> pa.Table:
    """Make a table of numpy's arrays of one dimension."""
    return pa.table({name: _of_array(values) for name, values in arrays.items()})


def _of_array(values: Any) -> pa.Array:
    values = np.asarray(values)
    if values.dtype.kind in "TU":
        return pa.array(values.astype(object), pa.string())
    return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))


# ---------------------------------------------------------------- copied as they are


def joint_schema(schemas: Sequence[pa.Schema], labels: Sequence[str]) -> pa.Schema:
    """Return the types that columns to be copied have in all parts of a table.

    Raises
    ------
    DataError
        If the types of two parts cannot hold the values of each other.
    """
    joint = schemas[0].remove_metadata()
    for schema, label in zip(schemas, labels, strict=True):
        try:
            unified = pa.unify_schemas([joint, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise _differing(label, labels[0], str(error)) from error
        for name in unified.names:
            kinds = [joint.field(name).type, schema.field(name).type]
            # Floats cannot hold all whole numbers.
            if pa.types.is_floating(unified.field(name).type) and not all(map(_floats, kinds)):
                reason = f"column {name!r} is {kinds[1]} there and {kinds[0]} before"
                raise _differing(label, labels[0], reason)
        joint = unified.remove_metadata()
    return joint


def _floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_null(kind))


def _differing(label: str, first: str, reason: str) -> DataError:
    return DataError(
        f"{label}: columns to keep have other types than in {first}, and neither holds all values "
        f"of the other ({reason}); write the parts with the same types"
    )


class WholeNumbers:
    """Finds out which columns of text are whole numbers throughout, as they would be written.

    They are int64 or uint64 then; ``"007"`` is text, and so is a column that is empty.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._possible = {name: [pa.int64(), pa.uint64()] for name in names}
        self._seen: set[str] = set()

    def see(self, table: pa.Table) -> None:
        """Look at some more rows."""
        for name, kinds in self._possible.items():
            if kinds:
                text = _without_gaps(table.column(name)).drop_null()
                if len(text):
                    self._seen.add(name)
                    self._possible[name] = [kind for kind in kinds if _holds(kind, text)]

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Types of the columns that are whole numbers."""
        return {
            name: kinds[0] for name, kinds in self._possible.items() if kinds and name in self._seen
        }


def retyped(table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Convert columns of text to types that ``WholeNumbers`` has found; empty text is missing."""
    for name, kind in types.items():
        column = _without_gaps(table.column(name)).cast(kind)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _without_gaps(text: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _holds(kind: pa.DataType, text: pa.ChunkedArray) -> bool:
    if not pc.all(pc.match_substring_regex(text, _WHOLE)).as_py():
        return False
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def text_frame(table: pa.Table) -> pd.DataFrame:
    """Convert to a data frame that pandas writes to CSV without changing types."""
    texts = {name: _texts(name, table.column(name)) for name in table.column_names}
    return pd.DataFrame(texts, columns=table.column_names)


def _texts(name: str, column: pa.ChunkedArray) -> Any:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return _texts(name, pa.chunked_array(storage, kind.storage_type))
    if pa.types.is_floating(kind):
        return column.to_pandas()
    if pa.types.is_dictionary(kind):
        return _texts(name, column.cast(kind.value_type))
    if pa.types.is_boolean(kind):
        return _objects(column.to_pylist())
    if pa.types.is_nested(kind):
        return _objects([None if v is None else _json(v) for v in column.to_pylist()])
    if pa.types.is_duration(kind):
        return _objects([None if v is None else str(v) for v in column.to_pylist()])
    try:
        return _objects(column.cast(pa.string()).to_pylist())
    except pa.ArrowException as error:
        raise DataError(
            f"column {name!r} is {kind}, which has no text for a CSV file ({error}); write to a "
            "Parquet file"
        ) from error


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
