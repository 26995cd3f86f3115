"""Rows in memory, with every distinct value of their columns kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive.survey import of_positive_weight
from dsgp.compute import over_chunks, run
from dsgp.errors import DataError
from dsgp.models.rows.budget import exact_bytes, state_bytes
from dsgp.models.rows.columns import TermRows, placed_by_rows, varies, warn_of_codes_as_multiplier
from dsgp.rows.coded import Extremes, report_columns
from dsgp.rows.coding import encode_term, multiplier_of
from dsgp.rows.sources import Rows, Source
from dsgp.rows.table import RowTable
from dsgp.rows.usable import (
    require_usable_range,
    warn_of_constant,
)
from dsgp.terms import BoundTerm, Cells, Floats

# Number of rows up to which kernels without a state-space form keep every distinct value.
EXACT_DENSE_ROWS = 1000


_ENCODE = 1e-7  # seconds per row and column


def read_all(source: Source) -> tuple[Rows, dict[str, int]]:
    """Read all rows of positive weight into memory, and count missing values of columns.

    Raises
    ------
    DataError
        If there is no such row.
    MemoryLimitError
        If a fit that keeps every distinct value would not fit.
    """
    if source.n_rows is not None:
        memory.require(
            f"a fit that keeps every distinct value of {source.n_rows} rows and "
            f"{len(source.names)} columns (bins=None)",
            exact_bytes(source.n_rows, len(source.names)),
            "pass bins='auto', or fewer rows",
        )
    parts = list(over_chunks(source.chunks(), of_positive_weight, "read"))
    if not sum(map(len, parts)):
        if source.weighted and any(len(load()) for load in source.chunks()):
            raise DataError("sample_weight is zero in every row; at least one row must count")
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    rows = Rows.join([part for part in parts if len(part)])
    missing = [int(np.count_nonzero(np.isnan(column))) for column in rows.columns]
    return rows, _missing_counts(source.names, missing)


def _missing_counts(names: tuple[str, ...], counts: Any) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def encode_all(
    source: Source,
    terms: list[BoundTerm],
    columns: list[Floats],
    n_rows: int,
    weight: Floats | None = None,
) -> tuple[RowTable, list[BoundTerm], list[str]]:
    """Encode the terms whose inputs vary; name the others.

    Parameters
    ----------
    source : Source
    terms : list of BoundTerm
    columns : list of ndarray of shape (n_rows,)
        Of the source.
    n_rows : int
    weight : ndarray of shape (n_rows,), optional
    """
    rows = TermRows(source, terms)
    by_name = dict(zip(source.names, columns, strict=True))
    terms = [placed_by_rows(term, by_name, weight) for term in terms]
    inputs = [term.read(by_name) for term in terms]
    n_inputs = sum(len(column) for term in inputs for column in term)
    tasks = [
        partial(encode_term, term, term_inputs)
        for term, term_inputs in zip(terms, inputs, strict=True)
    ]
    encoded = run(tasks, _ENCODE * n_inputs)
    flat = [column for term in inputs for column in term]
    for position, values in enumerate(flat):
        if position not in rows.levels and not np.isnan(values).all():
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            require_usable_range(rows.column(position), low, high)
    report_columns(
        {
            rows.what(position): Extremes().add(values)
            for position, values in enumerate(flat)
            if rows.is_number(position)
        }
    )
    kept: list[BoundTerm] = []
    cells: list[Cells] = []
    codes, multipliers = [], {}
    constant = []
    for term, term_inputs, (table, code) in zip(terms, inputs, encoded, strict=True):
        multiplier = multiplier_of(term, term_inputs)
        if multiplier is not None:
            warn_of_codes_as_multiplier(
                term, np.unique(term_inputs[-1][~np.isnan(term_inputs[-1])])
            )
        if table is None or not varies(term, len(table), multiplier):
            constant.append(term.name)
            continue
        if multiplier is not None:
            multipliers[len(kept)] = multiplier
        if (needed := state_bytes(term, len(table))) > 0:
            memory.require(
                f"the states of term {term.name!r} at {len(table)} distinct values",
                needed,
                "pass bins='auto', or a kernel with fewer states",
            )
        kept.append(term)
        cells.append(table)
        codes.append(code)
    warn_of_constant(constant)
    # One type for all; its largest number stands for a missing input.
    kind = max((code.dtype for code in codes), default=np.dtype(np.uint16))
    table_codes = np.empty((len(codes), n_rows), dtype=kind)
    for row, code in zip(table_codes, codes, strict=True):
        row[:] = code
        row[code == np.iinfo(code.dtype).max] = np.iinfo(kind).max
    names = tuple(term.name for term in kept)
    return RowTable(names, tuple(cells), table_codes, multipliers), kept, constant
