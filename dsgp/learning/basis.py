"""Nodes of the terms with cubic splines between, and what the rows say of the nodes.

Each term is represented by its values at M nodes: between them the function is their cubic spline
(bounded, see `dsgp.terms.splines`). What the rows say of the nodes, G = Cᵀ ZᵀWZ C and Cᵀ ZᵀWy with
C the spline's values at the bins, is computed once and does not depend on the hyperparameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from dsgp.additive import TwoWayTables
from dsgp.terms import Cells, Floats

# A coupling to an eliminated term is kept sparse up to this share of nonzero entries.
_SPARSE = 0.15


@dataclass(frozen=True)
class Basis:
    """Where the nodes of all terms are, and their splines at the bins.

    Attributes
    ----------
    cells : list of Cells
        The nodes of each term.
    parts : list of slice
        Where each term is among all nodes. One that is eliminated comes last; without, curves of
        groups come first.
    splines : list of ndarray of shape (n_bins, M_d), or None
        C; None where the nodes are the bins.
    eliminated : int or None
        A term whose prior is a variance times the identity, which is solved for first: its nodes
        are all of its cells, however many.
    """

    cells: list[Cells]
    parts: list[slice]
    splines: list[Floats | None]
    eliminated: int | None = None

    @classmethod
    def of(cls, tables: TwoWayTables, counts: list[int], eliminated: int | None = None) -> Basis:
        """Choose about so many nodes per term among its bins."""
        nodes, splines = [], []
        for bins, weight, count in zip(tables.cells, tables.weights, counts, strict=True):
            chosen = bins.nodes(weight, count)
            nodes.append(bins if len(chosen) == len(bins) else bins.subset(chosen))
            splines.append(bins.interpolation(chosen))
        order = [d for d in range(len(nodes)) if d != eliminated]
        if eliminated is None:
            # The largest group of curves comes first: see ``learning.leading_blocks``.
            order.sort(key=lambda d: -len(nodes[d]) if nodes[d].n_curves > 1 else 0)
        order += [] if eliminated is None else [eliminated]
        ends = np.cumsum([0, *(len(nodes[d]) for d in order)])
        parts = dict(zip(order, (slice(int(a), int(b)) for a, b in pairwise(ends)), strict=True))
        return cls(nodes, [parts[d] for d in range(len(nodes))], splines, eliminated)

    @property
    def size(self) -> int:
        """Nodes of all terms together."""
        return max((part.stop for part in self.parts), default=0)

    @property
    def kept(self) -> list[int]:
        """Terms that are not eliminated."""
        return [d for d in range(len(self.parts)) if d != self.eliminated]

    @property
    def kept_size(self) -> int:
        """Nodes of the terms that are not eliminated."""
        return sum(len(self.cells[d]) for d in self.kept)

    def nodes(self, tables: TwoWayTables) -> Nodes:
        """Move statistics from the bins to the nodes."""
        size = self.kept_size
        matrix = np.empty((size, size))
        kept = self.kept
        for position, d in enumerate(kept):
            part = self.parts[d]
            matrix[part, part] = self.within(d, tables.weights[d])
            for e in kept[:position]:
                block = self.between(e, tables.thin[e, d], d)
                matrix[self.parts[e], part] = block
                matrix[part, self.parts[e]] = block.T
        information = self.at_nodes(tables.information)
        if self.eliminated is None:
            return Nodes(self, matrix, information)
        last = self.eliminated
        blocks = []
        for d in kept:
            table = tables.pairs[d, last] if d < last else tables.pairs[last, d].T
            spline = self.splines[d]
            blocks.append(table if spline is None else spline.T @ table)
        coupling = _stacked(blocks, len(self.cells[last]))
        return Nodes(self, matrix, information, coupling, tables.weights[last])

    def within(self, d: int, weights: Floats) -> Floats:
        """C_dᵀ times a diagonal matrix of the bins of a term times C_d."""
        spline = self.splines[d]
        if spline is None:
            return np.diag(weights)
        out = np.zeros((spline.shape[1], spline.shape[1]))
        for piece, _ in self.cells[d].pieces:
            rows = spline[:, piece].any(axis=1)
            own = spline[rows, piece]
            out[piece, piece] = own.T @ (weights[rows, None] * own)
        return out

    def between(self, d: int, table: Any, e: int) -> Floats:
        """C_dᵀ times a table of the bins of two terms times C_e."""
        left, right = self.splines[d], self.splines[e]
        # The product with a sparse table comes first; if both are dense, the cheaper one.
        if right is not None and (left is None or table.shape[0] <= table.shape[1]):
            table, right = table @ right, None
        table = table if left is None else (table.T @ left).T
        table = table if right is None else table @ right
        return table.toarray() if issparse(table) else table

    def at_bins(self, values: Floats) -> Floats:
        """Values at the nodes carried to the bins, all terms one after the other."""
        return np.concatenate(
            [
                values[part] if spline is None else spline @ values[part]
                for part, spline in zip(self.parts, self.splines, strict=True)
            ]
            or [np.zeros(0)]
        )

    def at_nodes(self, sums: list[Floats]) -> Floats:
        """Cᵀ times sums by bins of each term."""
        out = np.empty(self.size)
        for part, spline, b in zip(self.parts, self.splines, sums, strict=True):
            out[part] = b if spline is None else spline.T @ b
        return out


@dataclass(frozen=True)
class Nodes:
    """Statistics of the rows at the nodes of all terms.

    Attributes
    ----------
    basis : Basis
    matrix : ndarray of shape (M, M)
        G, the weighted normal matrix, of the terms that are not eliminated.
    information : ndarray of shape (Σ M_d,)
        Of all terms.
    coupling : ndarray of shape (M, U), a sparse one, or None
        The part of G between them and the eliminated term.
    weights : ndarray of shape (U,), or None
        The diagonal of G that belongs to it.
    """

    basis: Basis
    matrix: Floats
    information: Floats
    coupling: Any = None
    weights: Floats | None = None

    def squares(self, values: Floats) -> float:
        """Valuesᵀ G values, of all nodes."""
        size = len(self.matrix)
        kept, others = values[:size], values[size:]
        total = kept @ self.matrix @ kept
        if self.coupling is not None and self.weights is not None:
            total += 2 * (kept @ self.coupling @ others) + np.sum(self.weights * others**2)
        return float(total)


def _stacked(blocks: list[Any], n_columns: int) -> Any:
    """Put blocks (M_d, U) one below the other; sparse where most of it is 0."""
    if not blocks:
        return np.empty((0, n_columns))
    filled = [b.nnz if issparse(b) else np.count_nonzero(b) for b in blocks]
    n_rows = sum(block.shape[0] for block in blocks)
    if sum(filled) < _SPARSE * n_rows * n_columns:
        return csr_array(vstack([csr_array(block) for block in blocks]))
    return np.concatenate([b.toarray() if issparse(b) else b for b in blocks])
