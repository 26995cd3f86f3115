"""Sums of two sets of rows added up, and sums on other cells, in other units or of faded rows.

The rows enter a posterior only through ``Equations``, which are sums over the rows: equations of
rows that come later are added to those of the rows before, once both are on the same cells and in
the same units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dsgp.additive.equations import BinEquations, Equations, RowEquations
from dsgp.additive.streaming import LOGICAL_BLOCK
from dsgp.additive.tables import TwoWayTables
from dsgp.rows.coding import code_type
from dsgp.rows.table import Layout, RowTable
from dsgp.terms import Codes, Floats


def moved(equations: Equations, layout: Layout, moves: Sequence[Codes]) -> Equations:
    """Return the equations of the same rows on other cells.

    Parameters
    ----------
    equations : Equations
    layout : Layout
        The cells that they go to. Some may get no row.
    moves : sequence of ndarray of int, one per term
        Where each cell goes, (U_d,). Several may go to one.
    """
    lengths = [len(cells) for cells in layout.cells]

    def summed(flat: Floats) -> Floats:
        parts = zip(moves, equations.layout.parts(flat), lengths, strict=True)
        sums = [np.bincount(move, part, length) for move, part, length in parts]
        return np.concatenate(sums) if sums else flat

    sums: dict[str, Any] = {
        "weight": summed(equations.weight),
        "information": summed(equations.information),
        "multiplied": None if equations.multiplied is None else summed(equations.multiplied),
    }
    if isinstance(equations, RowEquations):
        kind = code_type(max(lengths, default=0))
        codes = np.empty(equations.table.codes.shape, dtype=kind)
        for rows, block in equations.table.blocks():
            for out, code, move in zip(codes, block, moves, strict=True):
                out[rows] = _renumbered(code, move, kind)
        old = equations.table
        table = RowTable(layout.names, layout.cells, codes, old.multipliers, old.ends)
        return replace(equations, layout=table, table=table, **sums)
    assert isinstance(equations, BinEquations)
    to = [_Move.of(move, length) for move, length in zip(moves, lengths, strict=True)]
    pairs = {
        (d, e): _moved_pair(pair, to[d], to[e]) for (d, e), pair in equations.bins.pairs.items()
    }
    return _of_tables(replace(equations, layout=layout, **sums), pairs)


def joined(first: Equations, second: Equations) -> Equations:
    """Add equations of further rows, on the same cells and in the same units."""
    multiplied = None
    if first.multiplied is not None and second.multiplied is not None:
        multiplied = first.multiplied + second.multiplied
    sums: dict[str, Any] = {
        name: getattr(first, name) + getattr(second, name)
        for name in (
            *("weight", "information", "quadratic", "n_rows", "log_weight"),
            *("total_weight", "total_information"),
        )
    } | {"multiplied": multiplied}
    if isinstance(first, RowEquations) and isinstance(second, RowEquations):
        before, after = first.table, second.table
        kind = np.promote_types(before.codes.dtype, after.codes.dtype)
        codes = np.empty((before.n_terms, before.n_rows + after.n_rows), dtype=kind)
        codes[:, : before.n_rows] = before.codes[:, :]
        codes[:, before.n_rows :] = after.codes[:, :]
        weight = np.empty(0)
        if len(first.row_weight) or len(second.row_weight):
            weight = np.concatenate([_row_weights(first), _row_weights(second)])
        multipliers = {
            d: np.concatenate([z, after.multipliers[d]]) for d, z in before.multipliers.items()
        }
        table = RowTable(
            before.names, before.cells, codes, multipliers, _ends(before.ends, codes.shape[1])
        )
        return replace(first, layout=table, table=table, row_weight=weight, **sums)
    assert isinstance(first, BinEquations)
    assert isinstance(second, BinEquations)
    pairs = {key: pair + second.bins.pairs[key] for key, pair in first.bins.pairs.items()}
    return _of_tables(replace(first, **sums), pairs)


def _ends(before: tuple[int, ...], n_rows: int) -> tuple[int, ...]:
    """Return where parts of rows end with further ones: many small parts would cost more each."""
    if not before:
        return ()
    last = before[-2] if len(before) > 1 else 0
    longest = max(LOGICAL_BLOCK, int(np.diff([0, *before]).max()))
    return (*(before[:-1] if n_rows - last <= longest else before), n_rows)


def in_units(equations: Equations, shift: float, scale: float, weight: float) -> Equations:
    """Return the equations of (y − shift) / scale, with weights times ``weight``."""
    # Only what all equations have is converted: tables are made again once all numbers are in their
    # units.
    shifted = Equations.less(equations, shift)
    numbers: dict[str, Any] = {
        "information": shifted.information * (weight / scale),
        "quadratic": shifted.quadratic * (weight / scale**2),
        "total_information": shifted.total_information * (weight / scale),
        "log_weight": shifted.log_weight + shifted.n_rows * math.log(weight),
    }
    return _weighed(replace(shifted, **numbers), weight)


def faded(equations: Equations, share: float) -> Equations:
    """Return the equations of rows that count as that share of a row, each.

    The log likelihood of every row is multiplied by it, and so is their number: what they say of
    the functions is that of rows whose weights are multiplied by the share, and what they say of
    the noise variance is that of fewer rows of the same noise.
    """
    names = ("information", "quadratic", "total_information", "n_rows", "log_weight")
    numbers: dict[str, Any] = {name: getattr(equations, name) * share for name in names}
    return _weighed(replace(equations, **numbers), share)


def without_faded(equations: Equations, least: float) -> tuple[Equations, list[Codes]]:
    """Leave out cells, and rows, whose weight is below ``least`` of the largest of their kind.

    Returns
    -------
    equations : Equations
    kept : list of ndarray of int, one per term
        Which cells are left.
    """
    layout = equations.layout
    if isinstance(equations, RowEquations) and len(equations.row_weight):
        heavy = equations.row_weight >= least * float(equations.row_weight.max())
        if not heavy.all():
            equations = _some_rows(equations, heavy)
    kept: list[Codes] = [
        np.flatnonzero(part >= least * float(part.max(initial=0.0)))
        for part in layout.parts(equations.weight)
    ]
    if isinstance(equations, RowEquations):  # a row needs its cells even if its weight is 0
        seen = equations.table.counts(np.empty(0))
        kept = [np.flatnonzero(counts > 0) for counts in seen]
    if all(len(some) == len(cells) for some, cells in zip(kept, layout.cells, strict=True)):
        return equations, kept
    cells = tuple(each.subset(some) for each, some in zip(layout.cells, kept, strict=True))
    smaller = Layout(layout.names, cells)
    vectors: dict[str, Any] = {
        name: np.concatenate(
            [part[some] for part, some in zip(layout.parts(flat), kept, strict=True)]
        )
        for name in ("weight", "information", "multiplied")
        if (flat := getattr(equations, name)) is not None
    }
    if isinstance(equations, BinEquations):
        pairs = {
            (d, e): _full(pair)[np.ix_(kept[d], kept[e])]
            for (d, e), pair in equations.bins.pairs.items()
        }
        return _of_tables(replace(equations, layout=smaller, **vectors), pairs), kept
    assert isinstance(equations, RowEquations)
    old, kind = equations.table, equations.table.codes.dtype
    codes = np.empty(old.codes.shape, dtype=kind)
    for d, some in enumerate(kept):
        move = np.zeros(len(layout.cells[d]), dtype=np.int64)
        move[some] = np.arange(len(some))
        codes[d] = _renumbered(np.asarray(old.codes[d, :]), move, kind)
    table = RowTable(layout.names, cells, codes, old.multipliers, old.ends)
    return replace(equations, layout=table, table=table, **vectors), kept


def _some_rows(equations: RowEquations, chosen: NDArray[np.bool_]) -> RowEquations:
    """Drop rows from the codes; the sums, of which they are too little to be seen, stay."""
    old = equations.table
    ends = tuple(dict.fromkeys(int(np.count_nonzero(chosen[:end])) for end in old.ends))
    table = RowTable(
        old.names,
        old.cells,
        np.ascontiguousarray(np.asarray(old.codes[:, :])[:, chosen]),
        {d: z[chosen] for d, z in old.multipliers.items()},
        tuple(end for end in ends if end),
    )
    return replace(equations, layout=table, table=table, row_weight=equations.row_weight[chosen])


def _weighed(equations: Equations, factor: float) -> Equations:
    """Multiply all that counts rows by their weights; the information and its like are not."""
    vectors: dict[str, Any] = {
        "weight": equations.weight * factor,
        "total_weight": equations.total_weight * factor,
        "multiplied": None if equations.multiplied is None else equations.multiplied * factor,
    }
    if isinstance(equations, RowEquations):
        if factor != 1.0:
            vectors["row_weight"] = _row_weights(equations) * factor
        return replace(equations, **vectors)
    assert isinstance(equations, BinEquations)
    pairs = {key: pair * factor for key, pair in equations.bins.pairs.items()}
    return _of_tables(replace(equations, **vectors), pairs)


def _of_tables(
    equations: BinEquations, pairs: dict[tuple[int, int], Any], spreads: Any = None
) -> BinEquations:
    """Put tables around sums that are of their cells; spreads are 0 until they are known."""
    layout = equations.layout
    if spreads is None:
        old = equations.bins.spreads
        same = [len(spread) for spread in old] == [len(cells) for cells in layout.cells]
        spreads = old if same else [np.zeros(len(cells)) for cells in layout.cells]
    tables = TwoWayTables(
        cells=list(layout.cells),
        weights=layout.parts(equations.weight),
        information=layout.parts(equations.information),
        pairs=pairs,
        spreads=spreads,
        multiplied=None if equations.multiplied is None else layout.parts(equations.multiplied),
    )
    return replace(equations, bins=tables)


def with_cells(equations: Equations, layout: Layout, spreads: list[Floats] | None) -> Equations:
    """Return the same equations with their cells at other points, as many as before."""
    if isinstance(equations, RowEquations):
        old = equations.table
        table = RowTable(layout.names, layout.cells, old.codes, old.multipliers, old.ends)
        return replace(equations, layout=table, table=table)
    assert isinstance(equations, BinEquations)
    return _of_tables(replace(equations, layout=layout), equations.bins.pairs, spreads)


def with_information(
    equations: Equations, information: Floats, quadratic: float, total: float
) -> Equations:
    """Return the equations of the same rows with other targets.

    Parameters
    ----------
    equations : Equations
    information : ndarray of shape (Σ U_d,)
    quadratic, total : float
        Σ w y² and Σ w y over the rows.
    """
    changed = replace(
        equations, information=information, quadratic=quadratic, total_information=total
    )
    return _of_tables(changed, changed.bins.pairs) if isinstance(changed, BinEquations) else changed


def tabled(equations: RowEquations, tables: dict[tuple[int, int], Any]) -> BinEquations:
    """Return what rows say of their cells and pairs of cells, without the rows."""
    layout = Layout(equations.layout.names, equations.layout.cells)
    names = (
        *("weight", "information", "quadratic", "n_rows", "log_weight"),
        *("total_weight", "total_information", "multiplied"),
    )
    sums: dict[str, Any] = {name: getattr(equations, name) for name in names}
    empty = TwoWayTables([], [], [], {}, [])
    pairs = {key: _full(table) for key, table in tables.items()}
    return _of_tables(BinEquations(layout=layout, bins=empty, **sums), pairs)


def _row_weights(equations: RowEquations) -> Floats:
    return equations.row_weight if len(equations.row_weight) else np.ones(equations.table.n_rows)


@dataclass(frozen=True)
class _Move:
    """Where the cells of a term go.

    Attributes
    ----------
    places : ndarray of int, shape (U_d,)
    length : int
        Cells of the term there.
    apart : bool
        Whether no two go to the same.
    """

    places: Codes
    length: int
    apart: bool

    @classmethod
    def of(cls, places: Codes, length: int) -> _Move:
        return cls(places, length, len(np.unique(places)) == len(places))

    @property
    def changes_nothing(self) -> bool:
        return len(self.places) == self.length and bool((np.diff(self.places) > 0).all())

    @property
    def matrix(self) -> csr_array:
        where = (self.places, np.arange(len(self.places)))
        return csr_array((np.ones(len(self.places)), where), (self.length, len(self.places)))


def _moved_pair(table: Any, first: _Move, second: _Move) -> Any:
    """Move a table of pairs: most updates bring no new cell, and few put old ones together."""
    table = _full(table)
    if first.changes_nothing and second.changes_nothing:
        return table
    if not (first.apart and second.apart):
        return first.matrix @ table @ second.matrix.T
    out = np.zeros((first.length, second.length))
    out[np.ix_(first.places, second.places)] = table
    return out


def _full(table: Any) -> Any:
    return table.toarray() if issparse(table) else table


def _renumbered(codes: NDArray[Any], move: Codes, kind: Any) -> NDArray[Any]:
    """Turn codes into others; those of missing inputs, beyond all cells, stay such."""
    out = np.full(len(codes), np.iinfo(kind).max, dtype=kind)
    seen = codes < len(move)
    out[seen] = move[codes[seen]]
    return out
