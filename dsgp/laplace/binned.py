"""Rows of a fit with codes of few bins: what hyperparameters are learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.tables import affordable_bins, bins_of
from dsgp.axis import Axis, Floats, sum_by
from dsgp.laplace.rows import ResponseRows
from dsgp.rows.table import RowTable

# Bins of a term by the order of its kernel, and bytes of all their two-way tables.
BINS = {1: 512, 2: 256, 3: 128, 4: 128}
TABLE_BYTES = 160e6
# Codes of bins that are kept; more are made of those of the points block by block.
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
        n_bins = affordable_bins(table.n_terms, rows.n_counted, wanted[order], TABLE_BYTES)
        axes, merged, bins, in_bins = [], [], [], []
        for term, (axis, counts) in enumerate(zip(table.axes, counts_of(rows), strict=True)):
            within = np.zeros(len(axis)) if spreads is None else spreads[term]
            bin_of_point = bins_of(axis, counts, n_bins)
            means, spread = _merged(axis.points, counts, within, bin_of_point)
            axes.append(Axis(means))
            merged.append(spread)
            bins.append(bin_of_point)
            in_bins.append(sum_by(bin_of_point, len(means), counts))
        lookups = [np.append(b, np.iinfo(np.uint16).max).astype(np.uint16) for b in bins]
        codes: Any = _MergedCodes(table.codes, lookups)
        if codes.nbytes <= _KEPT_BYTES:
            codes = np.concatenate([codes[:, part] for part, _ in table.blocks()], axis=1)
        return cls(rows.on(RowTable(table.names, tuple(axes), codes)), merged, in_bins)

    def some(self, chosen: NDArray[np.intp]) -> BinnedRows:
        """Return some of the rows."""
        rows = self.rows.some(chosen)
        return replace(self, rows=rows, counts=counts_of(rows))


class _MergedCodes:
    """Codes of bins, made of those of points for every block anew: they need no memory."""

    def __init__(self, codes: Any, lookups: list[NDArray[np.uint16]]) -> None:
        self.codes, self.lookups, self.shape = codes, lookups, codes.shape
        self.dtype = np.dtype(np.uint16)

    @property
    def nbytes(self) -> int:
        """What they would need."""
        return int(self.dtype.itemsize * np.prod(self.shape))

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[np.uint16]:
        block = np.asarray(self.codes[key])
        out = np.empty(block.shape, dtype=np.uint16)
        for merged, code, lookup in zip(out, block, self.lookups, strict=True):
            np.take(lookup, np.minimum(code, len(lookup) - 1), out=merged)
        return out


def counts_of(rows: ResponseRows) -> list[Floats]:
    """Rows, each as often as it counts, at the points of every axis."""
    ones = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
    return [rows.table.scatter(d, ones) for d in range(rows.table.n_terms)]


def _merged(
    points: Floats, counts: Floats, within: Floats, bin_of_point: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Mean and variance of the inputs in each bin."""
    size = int(bin_of_point[-1]) + 1
    if size == len(points):
        return points, within
    origin = points[np.searchsorted(bin_of_point, np.arange(size))]
    away = points - origin[bin_of_point]
    total = sum_by(bin_of_point, size, counts)
    total = np.where(total > 0, total, 1.0)
    shift = sum_by(bin_of_point, size, counts * away) / total
    squares = sum_by(bin_of_point, size, counts * (away**2 + within)) / total
    return origin + shift, np.maximum(squares - shift**2, 0.0)
