"""Columns that ``dsgp predict --keep`` copies: as they are stored, whatever the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dsgp.errors import DataError
from dsgp.rows.sources import StoredTable
from dsgp.rows.sources.arrow import WholeNumbers, retyped


@dataclass(frozen=True)
class Copied:
    """How the columns to keep go from a table to the predictions.

    Attributes
    ----------
    schema : pyarrow.Schema or None
        Types of the columns in all parts; None where they are text of CSV files.
    whole : dict of str to pyarrow.DataType
        Columns of such text that are whole numbers in every row, to go to a Parquet file.
    """

    schema: pa.Schema | None
    whole: dict[str, pa.DataType]

    @classmethod
    def of(cls, stored: StoredTable, names: Sequence[str], *, to_csv: bool) -> Copied:
        """Find out what the columns are; those of a CSV file are read through for Parquet."""
        stored.require(names)
        schema = stored.types(names)
        if schema is not None or to_csv or not names:
            return cls(schema, {})
        search = WholeNumbers(names)
        for block in stored.blocks(stored.names[:1], (), names):
            search.see(block.read_both()[1])
        return cls(None, search.types)

    def __call__(self, kept: pa.Table, predictions: Mapping[str, Any]) -> pa.Table:
        """Put predictions beside the columns of some rows."""
        if self.schema is None:
            kept = retyped(kept, self.whole)
        else:
            try:
                kept = kept.replace_schema_metadata(None).cast(self.schema)
            except pa.ArrowException as error:
                raise DataError(f"columns to keep differ in type between parts: {error}") from error
        columns = {name: pa.array(np.asarray(values)) for name, values in predictions.items()}
        for name in kept.column_names[::-1]:
            columns = {name: kept.column(name), **columns}
        return pa.table(columns)
