"""One column of inputs as an axis, and the code of each row on it.

``encode`` keeps every distinct value. ``Bins`` limits their number and needs no sorted column: they
are chosen by a ``Sketch`` of the column, which is made block by block in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.jit.rows import find_bins
from dsgp.jit.sketch import count_distinct, hash_of, reinsert
from dsgp.terms import Axis, Floats, sum_by

# Number of distinct values that a sketch keeps. The rows in 512 bins of a continuous column are
# then equal to about 20 %.
SKETCH = 2**14
# Codes are stored in the smallest type that holds them; its largest number stands for a missing
# input.
MOST_BINS = 2**16 - 1
MISSING = np.uint16(MOST_BINS)
_CELLS = 4096
_EVERYTHING = np.uint64(2**64 - 1)


def require_finite(name: str, values: NDArray[np.float64], first_row: int = 0) -> None:
    """Raise ``DataError`` naming the column and the first row that is not a finite number.

    ``first_row`` is the number of the first value's row.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    bad = np.flatnonzero(~finite)
    value = values[bad[0]]
    kind = "NaN (missing)" if np.isnan(value) else "infinity"
    whole = values.size > 1 and np.isnan(values).all()
    remedy = "leave it out, or fill it" if whole else "drop those rows or fill them"
    raise DataError(
        f"{name} contains {kind} in row {first_row + bad[0]} (counted from 0) and is not finite in "
        f"{bad.size} of {values.size} rows; every value must be a finite number: {remedy}"
    )


def encode(column: Floats) -> tuple[Axis | None, NDArray[np.unsignedinteger[Any]]]:
    """Convert a column to its axis of distinct values and the code of each row (no bins).

    Parameters
    ----------
    column : ndarray of shape (n_rows,)
        NaN stands for a missing input.

    Returns
    -------
    axis : Axis or None
        None if no value is known.
    codes : ndarray of shape (n_rows,)
        ``axis.points[codes]`` is the column; the largest number of the type where it is missing.
    """
    seen = ~np.isnan(column)
    points, codes = np.unique(column if seen.all() else column[seen], return_inverse=True)
    kind: type[np.unsignedinteger[Any]] = np.uint16 if len(points) < MOST_BINS else np.uint32
    if seen.all():
        return Axis(points), codes.astype(kind)
    out = np.full(len(column), np.iinfo(kind).max, dtype=kind)
    out[seen] = codes
    return (Axis(points) if len(points) else None), out


@dataclass(frozen=True)
class Sketch:
    """Some distinct values of a column, chosen by their hashes, and how often each occurs.

    The values are those of the smallest hashes: sketches of blocks merge, in any order and
    grouping, to that of the whole column. It is the column's set of values while these are few.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Increasing.
    counts : ndarray of shape (k,)
        Rows of each.
    low, high : float
        Least and greatest of all values.
    complete : bool
        Whether all distinct values are included.
    """

    values: Floats
    counts: Floats
    low: float
    high: float
    complete: bool

    def __sizeof__(self) -> int:
        return int(self.values.nbytes + self.counts.nbytes)

    @classmethod
    def of(cls, column: Floats) -> Sketch:
        """Sketch one block of a column, without its NaN."""
        column = column[~np.isnan(column)] + 0.0  # −0 and 0 are one value
        bits = column.view(np.uint64)
        # If most values differ, it is enough to admit three times as many as are kept.
        threshold = _EVERYTHING
        if len(bits) > 4 * SKETCH:
            threshold = np.uint64(int(_EVERYTHING) // len(bits) * 3 * SKETCH)
        values, counts = _count(bits, threshold)
        if len(values) < SKETCH:
            threshold = _EVERYTHING
            values, counts = _count(bits, threshold)
        return cls._smallest(
            values,
            counts,
            float(column.min(initial=np.inf)),
            float(column.max(initial=-np.inf)),
            complete=threshold == _EVERYTHING and len(values) <= SKETCH,
        )

    def merge(self, other: Sketch) -> Sketch:
        """Sketch of both blocks together."""
        values, where = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        counts = sum_by(where, len(values), np.concatenate([self.counts, other.counts]))
        # A value that one of them dropped has a larger hash than all it kept, and is dropped here
        # too.
        return self._smallest(
            values,
            counts,
            min(self.low, other.low),
            max(self.high, other.high),
            self.complete and other.complete,
        )

    @classmethod
    def _smallest(
        cls, values: Floats, counts: Floats, low: float, high: float, complete: bool
    ) -> Sketch:
        if len(values) > SKETCH:
            hashes = _hashes(values)
            small = np.argpartition(hashes, SKETCH)[:SKETCH]
            values, counts, complete = values[small], counts[small], False
        order = np.argsort(values)
        return cls(values[order], counts[order], low, high, complete)


def _hashes(values: Floats) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        return np.asarray(hash_of.py_func(np.ascontiguousarray(values).view(np.uint64)))


def _count(bits: NDArray[np.uint64], threshold: np.uint64) -> tuple[Floats, Floats]:
    """Distinct values below a threshold of their hashes, and how often each occurs.

    At least those of the ``SKETCH`` smallest hashes are included; the threshold may be lowered.
    """
    capacity = 8 * SKETCH
    keys, hashes = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    counts = np.zeros(capacity, np.int64)
    kept = position = 0
    while True:
        position, kept = count_distinct(
            bits, position, threshold, 4 * SKETCH, keys, hashes, counts, kept
        )
        if position == len(bits):
            break
        threshold = np.partition(hashes[counts > 0], SKETCH)[SKETCH]
        small = (counts > 0) & (hashes <= threshold)
        kept_keys, kept_counts = keys[small], counts[small]
        counts[:] = 0
        reinsert(kept_keys, kept_counts, keys, hashes, counts)
        kept = len(kept_keys)
    used = counts > 0
    return keys[used].view(np.float64), counts[used].astype(np.float64)


@dataclass(frozen=True)
class Bins:
    """The bins of a column.

    Attributes
    ----------
    edges : ndarray of shape (n_bins - 1,)
        Increasing; a value on an edge belongs to the upper bin.
    origin : ndarray of shape (n_bins,)
        A value in each bin, from which sums are taken so that inputs far from 0 lose no digits.
    exact : bool
        Whether every bin holds one distinct value, its origin.
    """

    edges: Floats
    origin: Floats
    exact: bool

    @classmethod
    def of(cls, sketch: Sketch, n_bins: int) -> Bins:
        """Cut a column into about ``n_bins``: half by rows, half by distance.

        Bins by rows alone would be too wide in the tails, and bins by distance alone in the bulk
        where there are outliers. A column with no more distinct values keeps them.
        """
        if sketch.complete and len(sketch.values) <= n_bins:
            return cls.of_values(sketch.values)
        values = sketch.values
        share = np.cumsum(sketch.counts) / sketch.counts.sum()
        half = np.maximum(sketch.high / 2 - sketch.low / 2, np.finfo(float).tiny)
        distance = (values / 2 - sketch.low / 2) / half
        # The ends may not be among the values of an incomplete sketch, and tails need bins as well.
        position = np.concatenate([[0.0], 0.5 * share + 0.5 * distance, [1.0]])
        values = np.concatenate([[sketch.low], values, [sketch.high]])
        # An eighth of each value, because differences may overflow; subnormal values would lose
        # digits by that.
        unit = 8.0 if half > 1.0 else 1.0
        edges = np.interp(np.arange(1, n_bins) / n_bins, position, values / unit) * unit
        edges = np.unique(edges)
        edges = edges[(edges > sketch.low) & (edges <= sketch.high)]
        return cls(edges, np.concatenate([[sketch.low], edges]), False)

    @classmethod
    def of_values(cls, values: Floats) -> Bins:
        """Make a bin of each of some increasing values; other values go to the nearest bin."""
        # Half of each value, because the sum may overflow; rounding may give the lower value.
        middle = values[:-1] / 2 + values[1:] / 2
        return cls(np.where(middle > values[:-1], middle, values[1:]), values, True)

    def __len__(self) -> int:
        return len(self.origin)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the edges."""
        return {name: part for name, part in self.__dict__.items() if name != "_lookup"}

    @cached_property
    def _lookup(self) -> tuple[NDArray[np.int64], float, float]:
        """Number of edges below each of some equal cells; where the cells begin; their number."""
        if len(self.edges) < 2:
            return np.zeros(1, dtype=np.int64), 0.0, 0.0
        low, high = float(self.edges[0]), float(self.edges[-1])
        width = (high / _CELLS) - (low / _CELLS)
        scale = 1 / width if width > 1 / np.finfo(float).max else 0.0
        share = np.arange(_CELLS) / _CELLS
        cells = low * (1 - share) + high * share
        return np.searchsorted(self.edges, cells, side="right"), low, scale

    def codes(self, column: Floats) -> NDArray[np.uint16]:
        """Bin of each value, (n_rows,); ``MISSING`` for NaN."""
        codes = np.empty(len(column), dtype=np.uint16)
        lookup, low, scale = self._lookup
        find_bins(column, self.edges, lookup, low, scale, MISSING, codes)
        return codes


# Limits of cells: all columns together, rows per cell, and cells per bin and curve.
ALL_CELLS = 2**20
ROWS_PER_CELL = 4
BIN_CELLS = 64
# A straight line explains the differences of fewer cells in a bin: at least this many are made even
# if rows are few. And the limit per column.
_FEWEST_CELLS = 4
_COLUMN_CELLS = 2**15


@dataclass(frozen=True)
class Cells:
    """Equal parts of every bin of a column: they show whether a target varies within the bins.

    Attributes
    ----------
    low : ndarray of shape (n_bins,)
        Where each bin begins.
    scale : ndarray of shape (n_bins,)
        Cells per unit.
    n_cells : int
        Of each bin, a power of 2; 0 where bins hold single values or too few rows.
    """

    low: Floats
    scale: Floats
    n_cells: int

    @classmethod
    def none(cls) -> Cells:
        """Bins without parts."""
        return cls(np.empty(0), np.empty(0), 0)

    @classmethod
    def of(cls, bins: Bins, high: float, n_rows: int, n_all_bins: int, n_curves: int = 1) -> Cells:
        """Divide the bins of a column that ends at ``high``, given the bins of all columns.

        With several curves each has these bins, one curve after the other.
        """
        n_bins = len(bins) * n_curves
        with_rows = n_rows // (ROWS_PER_CELL * n_bins)
        if n_rows >= _FEWEST_CELLS * n_bins:
            with_rows = max(with_rows, _FEWEST_CELLS)
        most = min(
            BIN_CELLS, _COLUMN_CELLS // len(bins), with_rows, ALL_CELLS // max(n_all_bins, 1)
        )
        if bins.exact or most < _FEWEST_CELLS:
            return cls.none()
        n_cells = 1 << (most.bit_length() - 1)
        low = np.concatenate([bins.origin[:1], bins.edges])
        # Half of each value, because the difference may overflow.
        half_width = np.append(bins.edges, high) / 2 - low / 2
        with np.errstate(divide="ignore", over="ignore"):
            scale = np.where(half_width > 0, n_cells / half_width / 2, 0.0)
        scale = np.where(np.isfinite(scale), scale, 0.0)
        return cls(np.tile(low, n_curves), np.tile(scale, n_curves), n_cells)
