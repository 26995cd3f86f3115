"""Sufficient statistics of the rows: what bins of each axis, and pairs of bins, hold of them.

With the posterior of an additive model as a function of the terms at the bins, the rows enter only
through these tables; they do not depend on the hyperparameters and take one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from dsgp.additive.packing import packed, unpacked
from dsgp.additive.pair_counts import PairCounts
from dsgp.compute import run
from dsgp.jit.rows import two_way_table
from dsgp.rows.table import RowTable
from dsgp.terms import Cells, Codes, Floats, sum_by

# Bins of an axis by the order of its kernel, and the memory limit of all two-way tables together.
BINS = {1: 832, 2: 256, 3: 256, 4: 256}
TABLE_BYTES = 160e6
# There are at least this many bins, and above that at least this many rows per bin.
_FEWEST = 16
_PER_BIN = 2
# Number of cells up to which a table of pairs is dense whatever the number of rows.
_DENSE_CELLS = 2**20
_MOVE = 2e-9  # seconds per row
# Share of nonzero entries of the normal matrix up to which its products are sparse. A sparse entry
# costs about four dense ones, and a separate table costs many more.
_SPARSE = 0.2


@dataclass(frozen=True)
class TwoWayTables:
    """Weights and targets of the rows by bins, and weights by pairs of bins.

    Attributes
    ----------
    cells : list of Cells
        Of each term: bins at the weighted means of their inputs, or all cells.
    weights : list of ndarray of shape (n_bins,)
        Σ w z².
    information : list of ndarray of shape (n_bins,)
        Σ w z y.
    pairs : dict of (int, int) to ndarray of shape (n_bins, n_bins), or a sparse one
        Σ w z z' of the rows in both bins, for terms d < e.
    spreads : list of ndarray of shape (n_bins,)
        Weighted variance of the inputs in each bin.
    multiplied : list of ndarray of shape (n_bins,), optional
        Σ w z, where some rows have multipliers z; otherwise they are ``weights``.
    """

    cells: list[Cells]
    weights: list[Floats]
    information: list[Floats]
    pairs: dict[tuple[int, int], Any]
    spreads: list[Floats]
    multiplied: list[Floats] | None = None

    @classmethod
    def of(
        cls, table: RowTable, information: Floats, ones: Floats, weight: Floats, n_bins: int
    ) -> TwoWayTables:
        """Count all rows, in one pass for the terms and one for their pairs.

        Parameters
        ----------
        table : RowTable
        information : ndarray of shape (Σ U_d,)
            Σ w z y of each cell.
        ones : ndarray of shape (Σ U_d,)
            Σ w z of each cell.
        weight : ndarray of shape (n_rows,), or of length 0 for ones
        n_bins : int
            A term with fewer cells keeps them.
        """
        merged, weights, informations, spreads, bins, multiplied = [], [], [], [], [], []
        counts = table.counts(weight, 2)
        for term, (cells, in_cells) in enumerate(zip(table.cells, counts, strict=True)):
            bin_of_cell = cells.bins(in_cells, n_bins)
            size = int(bin_of_cell.max()) + 1
            means, spread = cells.merged(bin_of_cell, in_cells)
            merged.append(means)
            weights.append(sum_by(bin_of_cell, size, in_cells))
            informations.append(sum_by(bin_of_cell, size, table.part(information, term)))
            multiplied.append(sum_by(bin_of_cell, size, table.part(ones, term)))
            spreads.append(spread)
            bins.append(bin_of_cell)
        return cls(
            merged,
            weights,
            informations,
            counted_pairs(table, bins, weight),
            spreads,
            multiplied if table.multipliers else None,
        )

    def less(self, constant: float) -> TwoWayTables:
        """Return the tables of targets less a constant."""
        pairs = zip(self.information, self.ones, strict=True)
        return replace(self, information=[b - constant * ones for b, ones in pairs])

    def without(self, term: int) -> TwoWayTables:
        """Return the tables of all terms but one."""
        left = [d for d in range(self.n_terms) if d != term]
        return TwoWayTables(
            [self.cells[d] for d in left],
            [self.weights[d] for d in left],
            [self.information[d] for d in left],
            {(i, k): self.pairs[left[i], left[k]] for i, k in pairs_of(len(left))},
            [self.spreads[d] for d in left],
            None if self.multiplied is None else [self.multiplied[d] for d in left],
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made of the tables, and count in small integers where that is exact."""
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return state | {"pairs": {key: packed(table) for key, table in self.pairs.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        pairs = {key: unpacked(table) for key, table in state["pairs"].items()}
        self.__dict__.update(state | {"pairs": pairs})

    @property
    def ones(self) -> list[Floats]:
        """Σ w z of each term: what its bins have in common with a constant."""
        return self.weights if self.multiplied is None else self.multiplied

    @property
    def n_terms(self) -> int:
        """Number of terms D."""
        return len(self.weights)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each term's bins begin in a flat vector, and the end."""
        return np.cumsum([0, *(len(weights) for weights in self.weights)], dtype=np.int64)

    def multiply(self, flat: Floats) -> Floats:
        """Weighted normal matrix ZᵀWZ of the bins times vectors (k, Σ n_bins)."""
        if self._normal is not None:
            return np.ascontiguousarray((self._normal @ flat.T).T)
        parts = np.split(flat, self.offsets[1:-1], axis=1)
        tasks = [partial(self.row, term, parts) for term in range(self.n_terms)]
        work = 5e-10 * len(flat) * float(self.offsets[-1]) ** 2
        return np.concatenate(run(tasks, work), axis=1) if tasks else flat.copy()

    @cached_property
    def thin(self) -> dict[tuple[int, int], Any]:
        """``pairs``, each sparse where most of it is 0."""
        return {key: _thin(table) for key, table in self.pairs.items()}

    @cached_property
    def _normal(self) -> csr_array | None:
        """ZᵀWZ of all bins as one sparse matrix; None where too much of it is not 0."""
        size = int(self.offsets[-1])
        # A table that is not sparse counts in full.
        filled = [_filled(t) if _is_thin(t) else t.size for t in self.pairs.values()]
        if not size or 2 * sum(filled) + size > _SPARSE * size**2:
            return None
        first, second = [np.arange(size)], [np.arange(size)]
        values = list(self.weights)
        for (d, e), table in self.pairs.items():
            rows, columns, entries = _entries(table)
            rows, columns = rows + self.offsets[d], columns + self.offsets[e]
            first += [rows, columns]
            second += [columns, rows]
            values += [entries, entries]
        where = (np.concatenate(first), np.concatenate(second))
        return coo_array((np.concatenate(values), where), (size, size)).tocsr()

    def with_information(self, information: list[Floats]) -> TwoWayTables:
        """Return the tables of the same rows with other targets."""
        other = replace(self, information=information)
        # they do not depend on the targets
        other.__dict__.update(thin=self.thin, _normal=self._normal)
        return other

    def row(self, term: int, parts: list[Floats]) -> Floats:
        """Rows of ``multiply`` that belong to one term, from vectors split by term."""
        out = parts[term] * self.weights[term]
        for other, part in enumerate(parts):
            if other < term:
                out += part @ self.pairs[other, term]
            elif other > term:
                out += part @ self.pairs[term, other].T
        return out


def _thin(table: Any) -> Any:
    if issparse(table) or not _is_thin(table):
        return table
    rows, columns, entries = _entries(table)
    starts = np.zeros(len(table) + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=len(table)), out=starts[1:])
    return csr_array((entries, columns.astype(np.int32), starts), shape=table.shape)


def _is_thin(table: Any) -> bool:
    return issparse(table) or _filled(table) <= _SPARSE * table.size


def _filled(table: Any) -> int:
    return int(table.nnz if issparse(table) else np.count_nonzero(table))


def _entries(table: Any) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """Rows, columns and values of what a table stores, or of what is not 0 where it is dense.

    Without a sparse array for each pair: there are thousands of small ones.
    """
    if issparse(table):
        entries = coo_array(table)
        return entries.row, entries.col, entries.data
    # Eight times as fast as ``np.nonzero`` for a table that is mostly 0.
    where = np.flatnonzero(table != 0)
    rows, columns = np.divmod(where, table.shape[1])
    return rows, columns, table.ravel()[where]


def pairs_of(n_terms: int) -> list[tuple[int, int]]:
    """All pairs of terms d < e."""
    return [(d, e) for d in range(n_terms) for e in range(d + 1, n_terms)]


def affordable_bins(cells: Sequence[Cells], n_rows: int, wanted: int, table_bytes: float) -> int:
    """How many bins per term may have: what is wanted, if the tables and the rows allow it."""
    n_pairs = max(len(cells) * (len(cells) - 1) // 2, 1)
    most = max(_FEWEST, min(wanted, max(64, n_rows // _PER_BIN)))
    affordable = most
    if any(term_cells.fewest_bins() > 1 for term_cells in cells):
        # Tables of cells that cannot be merged come first. Sparse ones take no more memory than the
        # rows.
        def needed(n_bins: int) -> float:
            sizes = [
                min(max(n_bins, term_cells.fewest_bins()), len(term_cells)) for term_cells in cells
            ]
            return sum(8.0 * min(sizes[d] * sizes[e], 2 * n_rows) for d, e in pairs_of(len(sizes)))

        while affordable > _FEWEST and needed(affordable) > table_bytes:
            affordable = max(_FEWEST, affordable // 2)
        return affordable
    return max(_FEWEST, min(int(math.sqrt(table_bytes / 8 / n_pairs)), most))


def is_sparse(n_first: int, n_second: int, n_rows: int) -> bool:
    """Whether a table of pairs is mostly empty, and worth being kept so."""
    return n_first * n_second > max(_DENSE_CELLS, 4 * n_rows)


def _added(parts: Iterator[list[Any]]) -> list[Any]:
    """Add tables of all pairs, part by part."""
    total = next(parts)
    for more in parts:
        for position, table in enumerate(more):
            total[position] = total[position] + table
    return total


def counted_pairs(table: RowTable, bins: list[Codes], weight: Floats) -> dict[tuple[int, int], Any]:
    """Σ w z z' of the rows in pairs of bins; ``bins`` are those of the cells of each term."""
    counted = partial(_count_pairs, bins, table.n_rows)
    pairs = _added(table.by_parts(counted, (weight,)))
    return dict(zip(pairs_of(table.n_terms), pairs, strict=True))


def _count_pairs(
    bins: list[Codes],
    n_rows: int,
    table: RowTable,
    arrays: Sequence[NDArray[Any]],
    part: slice,
) -> list[Any]:
    """Count rows of a part by all pairs of terms; there are ``n_rows`` in all parts."""
    (weight,) = arrays
    keys = pairs_of(table.n_terms)
    tasks = [partial(_count, table, part, n_rows, d, e, bins[d], bins[e], weight) for d, e in keys]
    return run(tasks, _MOVE * (part.stop - part.start) * len(keys))


def _count(
    table: RowTable,
    part: slice,
    n_rows: int,
    d: int,
    e: int,
    bins_d: Codes,
    bins_e: Codes,
    weight: Floats,
) -> Any:
    shape = (int(bins_d.max()) + 1, int(bins_e.max()) + 1)
    multipliers = [z for z in (table.multiplier(d), table.multiplier(e)) if z is not None]
    if multipliers:
        for multiplier in multipliers:
            weight = weight * multiplier if len(weight) else multiplier
    if is_sparse(*shape, n_rows):
        # Rows without a value have the bin after the last one.
        of_d, of_e = np.append(bins_d, shape[0]), np.append(bins_e, shape[1])
        sparse = PairCounts(shape, is_sparse=True)
        for rows, codes in table.blocks(part):
            some = weight[rows] if len(weight) else weight
            sparse.add(of_d[codes[d]], of_e[codes[e]], some)
        return sparse.table()
    counts = np.zeros(shape)
    for rows, codes in table.blocks(part):
        two_way_table(
            codes[d], codes[e], bins_d, bins_e, weight[rows] if len(weight) else weight, counts
        )
    return counts
