"""Rows of a fit with codes of few bins, from which hyperparameters are learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp import memory
from dsgp.additive.tables import affordable_bins
from dsgp.laplace.rows import ResponseRows
from dsgp.rows.table import CodesElsewhere, RowTable
from dsgp.terms import Floats, sum_by

# Bins of a term by the order of its kernel, and the memory limit of all their two-way tables.
BINS = {1: 512, 2: 256, 3: 128, 4: 128}
TABLE_BYTES = 160e6
# Largest number of bins that 16-bit codes can hold.
_MOST = 2**16 - 1
# Number of tables of all pairs that a step of the learner holds at once.
_PAIR_TABLES = 4
# Memory for kept codes of bins. Beyond, they are computed from the codes of the points, block by
# block.
_KEPT_BYTES = 64e6


@dataclass(frozen=True)
class BinnedRows:
    """Rows with codes of few bins, and the variance of the inputs within these."""

    rows: ResponseRows
    spreads: list[Floats]
    counts: list[Floats]
    """Rows (their weights) in each bin."""

    @classmethod
    def of(
        cls, rows: ResponseRows, spreads: list[Floats] | None, wanted: dict[int, int], order: int
    ) -> BinnedRows:
        """Merge the points of every axis into bins."""
        table = rows.table
        n_bins = affordable_bins(table.cells, rows.n_counted, wanted[order], TABLE_BYTES)
        means, merged, bins, in_bins = [], [], [], []
        for term, (cells, counts) in enumerate(zip(table.cells, counts_of(rows), strict=True)):
            within = None if spreads is None else spreads[term]
            bin_of_cell = cells.bins(counts, n_bins)
            mean_cells, spread = cells.merged(bin_of_cell, counts, within)
            means.append(mean_cells)
            merged.append(spread)
            bins.append(bin_of_cell)
            in_bins.append(sum_by(bin_of_cell, len(mean_cells), counts))
        sizes = np.array([len(mean_cells) for mean_cells in means], dtype=float)
        memory.require(
            f"learning from the pairs of {len(sizes)} terms, "
            f"the largest of {max(sizes, default=0):.0f} levels or bins",
            _PAIR_TABLES * 4.0 * float(sizes.sum() ** 2 - np.sum(sizes**2)),
            "leave a column of many levels out, or merge those of few rows",
        )
        kind = np.uint16 if max(map(len, means), default=0) < _MOST else np.uint32
        lookups = [np.append(b, np.iinfo(kind).max).astype(kind) for b in bins]
        codes = _merged_codes(table, lookups, kind)
        binned = RowTable(table.names, tuple(means), codes, table.multipliers, table.ends)
        return cls(rows.on(binned), merged, in_bins)

    def some(self, chosen: NDArray[np.intp]) -> BinnedRows:
        """Return some of the rows."""
        rows = self.rows.some(chosen)
        return replace(self, rows=rows, counts=counts_of(rows))


def _merged_codes(table: RowTable, lookups: list[NDArray[Any]], kind: type) -> Any:
    if isinstance(table.codes, CodesElsewhere):
        return table.codes.changed(partial(_merged, lookups, kind), np.dtype(kind))
    codes = _MergedCodes(table.codes, lookups, kind)
    if codes.nbytes > _KEPT_BYTES:
        return codes
    return np.concatenate([codes[:, part] for part, _ in table.blocks()], axis=1)


def _merged(lookups: list[NDArray[Any]], kind: type, codes: NDArray[Any]) -> NDArray[Any]:
    out: NDArray[Any] = np.empty(codes.shape, dtype=kind)
    for merged, code, lookup in zip(out, codes, lookups, strict=True):
        np.take(lookup, np.minimum(code, len(lookup) - 1), out=merged)
    return out


class _MergedCodes:
    """Codes of bins, computed from those of the points for each block: they need no memory."""

    def __init__(self, codes: Any, lookups: list[NDArray[Any]], kind: type) -> None:
        self.codes, self.lookups, self.shape = codes, lookups, codes.shape
        self.dtype = np.dtype(kind)

    @property
    def nbytes(self) -> int:
        """Memory that they would need."""
        return int(self.dtype.itemsize * np.prod(self.shape))

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[Any]:
        return _merged(self.lookups, self.dtype.type, np.asarray(self.codes[key]))


def counts_of(rows: ResponseRows) -> list[Floats]:
    """Return the sums of the weights of the rows at the points of every axis."""
    return rows.table.counts(rows.weight)
