"""Sums of a likelihood over the rows around given functions, and quadratic forms of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from dsgp.terms import Floats


@dataclass(frozen=True)
class Linearised:
    """A likelihood around given functions, summed over the rows.

    Attributes
    ----------
    log_density : float
        Σ w log p(y | f).
    gradient : ndarray of shape (Σ U_d,)
        Zᵀ w ∇ at the points of all axes.
    weight : ndarray of shape (Σ U_d,)
        Sums of w W z² of the rows in each cell, z their multipliers.
    total_gradient, total_weight : float
        Σ w ∇ and Σ w W: the same of a constant.
    pairs : dict of (int, int) to ndarray or csr_array
        w W by pairs of points, if they were requested; sparse where few rows meet many cells.
    row_weight : ndarray of shape (n_rows,)
        w W, if pairs were not requested.
    multiplied : ndarray of shape (Σ U_d,), optional
        Zᵀ w W, where some rows have multipliers; otherwise it is ``weight``.
    """

    log_density: float
    gradient: Floats
    weight: Floats
    total_gradient: float
    total_weight: float
    pairs: dict[tuple[int, int], Any]
    row_weight: Floats
    multiplied: Floats | None = None

    @classmethod
    def total(cls, parts: Iterator[Linearised]) -> Linearised:
        """Add the sums of parts of the rows, in their order."""
        total = next(parts)
        row_weights = [total.row_weight]
        for number, part in enumerate(parts):
            if number == 0:  # arrays from another process are read-only
                total = total._copied()
            for mine, theirs in zip(total._sums, part._sums, strict=True):
                np.add(mine, theirs, out=mine)
            total = replace(
                total,
                pairs={key: _added(pair, part.pairs[key]) for key, pair in total.pairs.items()},
                log_density=total.log_density + part.log_density,
                total_gradient=total.total_gradient + part.total_gradient,
                total_weight=total.total_weight + part.total_weight,
            )
            row_weights.append(part.row_weight)
        return replace(total, row_weight=np.concatenate(row_weights))

    def _copied(self) -> Linearised:
        return replace(
            self,
            gradient=self.gradient.copy(),
            weight=self.weight.copy(),
            multiplied=None if self.multiplied is None else self.multiplied.copy(),
            pairs={key: pair.copy() for key, pair in self.pairs.items()},
        )

    @property
    def _sums(self) -> list[Floats]:
        multiplied = [] if self.multiplied is None else [self.multiplied]
        return [self.gradient, self.weight, *multiplied]

    @property
    def ones(self) -> Floats:
        """Zᵀ w W, (Σ U_d,): what the cells have in common with a constant."""
        return self.weight if self.multiplied is None else self.multiplied


def _added(total: Any, table: Any) -> Any:
    """Add a table to that of parts before, in place if they are dense."""
    return total + table if issparse(total) else np.add(total, table, out=total)


@dataclass(frozen=True)
class PairTables:
    """A quadratic form of the terms at points of their axes, to be evaluated for every row.

    Attributes
    ----------
    constant : float
    alone : ndarray of shape (Σ U_d,)
        What each term adds by itself.
    pairs : dict of (int, int) to ndarray
        What pairs of terms add.
    crossed : ndarray of shape (Σ U_d,), optional
        What each term adds together with a constant.
    """

    constant: float
    alone: Floats
    pairs: dict[tuple[int, int], Floats]
    crossed: Floats | None = None
