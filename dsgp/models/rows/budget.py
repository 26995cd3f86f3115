"""Memory of fits, estimated before they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive.streaming import LOGICAL_BLOCK
from dsgp.additive.tables import BINS, TABLE_BYTES
from dsgp.compute import CPU_COUNT
from dsgp.rows.coding import TermCut, code_type
from dsgp.rows.encode import (
    ALL_CELLS,
    BIN_CELLS,
)
from dsgp.terms import BoundTerm

# Memory of a fit, in bytes: of the library, its solver and its covariance whatever the data; per
# distinct value or bin; and per row and column while rows are encoded exactly.
FIXED_BYTES = 400e6
POINT_BYTES = 600.0
EXACT_ROW_BYTES = 60.0
# Number of components of a state if it depends on the hyperparameters, as the harmonics of a season
# do.
TYPICAL_STATES = 24


def exact_bytes(n_rows: int, n_columns: int) -> float:
    """Estimate the memory of a fit that keeps every distinct value, all of them distinct."""
    rows = (POINT_BYTES + EXACT_ROW_BYTES) * n_rows * n_columns
    return FIXED_BYTES + rows + coarse_bytes(n_columns)


def state_bytes(term: BoundTerm, n_points: int) -> float:
    """Bytes of the states along a term, beyond those of ``POINT_BYTES``; 0 of other forms."""
    if term.family != "markov":
        return 0.0
    size = term.kernel.n_states or TYPICAL_STATES
    # Transitions, predicted covariances and the results of the backward pass.
    return n_points * 8.0 * max(size**2 + size * (size + 1) + 6 * size - 40, 0)


def coarse_bytes(n_terms: int) -> float:
    """Two-way tables that the learner and the solver count beside rows, and their sums."""
    return 2.0 * min(TABLE_BYTES, 4.0 * (n_terms * max(BINS.values())) ** 2)


def code_bytes(cuts: Sequence[Any]) -> float:
    """Bytes of the codes and multipliers of a row."""
    multiplied = sum(cut.term.multiplier is not None for cut in cuts if isinstance(cut, TermCut))
    size = np.dtype(code_type(max(map(len, cuts), default=0))).itemsize
    return float(size * len(cuts) + 8 * multiplied)


def pair_bytes(cuts: Sequence[Any]) -> float:
    """Bytes of the two-way tables of all pairs of terms."""
    sizes = np.array([len(cut) for cut in cuts], dtype=float)
    return 4.0 * float(sizes.sum() ** 2 - np.sum(sizes**2))


def plan_memory(
    n_rows: int,
    n_columns: int,
    cuts: Sequence[Any],
    with_pairs: bool,
    weighted: bool,
    chunk: int = 0,
    kept_numbers: int = 0,
) -> bool:
    """Return whether codes must go to disk; raise an error if the fit cannot fit into memory."""
    needed = stream_bytes(n_rows, n_columns, cuts, with_pairs, weighted, chunk)
    remedy = "pass fewer bins, fewer columns, or run where there is more memory"
    if kept_numbers:
        # Codes and numbers are kept in addition to the tables.
        needed += n_rows * (8.0 * kept_numbers + (code_bytes(cuts) if with_pairs else 0.0))
    elif with_pairs:
        memory.require("a fit from two-way tables", needed, remedy)
        return False
    codes = code_bytes(cuts) * n_rows
    on_disk = needed > 0.8 * memory.available()
    memory.require("a fit by rows", needed - codes if on_disk else needed, remedy)
    return on_disk


def stream_bytes(
    n_rows: int,
    n_columns: int,
    cuts: Sequence[Any],
    with_pairs: bool,
    weighted: bool,
    chunk: int = 0,
) -> float:
    """Estimate the memory of a fit by bins, in bytes; its rows are read block by block.

    ``chunk`` is the largest number of rows that the source gives at a time.
    """
    block = max(min(n_rows, LOGICAL_BLOCK), chunk)
    reading = (2 * CPU_COUNT + 3) * block * (n_columns + 2) * 8.0
    n_bins = sum(len(cut) for cut in cuts)
    cells = min(ALL_CELLS, BIN_CELLS * n_bins, n_rows)
    reading += (2 * CPU_COUNT + 3) * cells * 16.0
    points = POINT_BYTES * n_bins
    points += sum(state_bytes(cut.term, len(cut)) for cut in cuts if isinstance(cut, TermCut))
    if with_pairs:
        return FIXED_BYTES + reading + points + 4 * pair_bytes(cuts)
    kept = n_rows * (code_bytes(cuts) + (8.0 if weighted else 0.0))
    return FIXED_BYTES + reading + points + kept + coarse_bytes(len(cuts))
