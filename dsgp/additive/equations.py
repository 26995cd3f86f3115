"""The normal equations of an additive model: what all rows together say of the tables.

The rows enter the posterior only through ZᵀWZ, ZᵀWy and yᵀWy. ``RowEquations`` applies ZᵀWZ row by
row, for any number of points on the axes; ``BinEquations`` has it as two-way tables, where the axes
are short enough, and never needs a row again. W holds the users' weights here, without the noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.sparse import issparse

from dsgp.additive.tables import TABLE_BYTES, TwoWayTables, affordable_bins
from dsgp.compute import is_small, run
from dsgp.jit.rows import gather_and_scatter
from dsgp.rows.table import CodesElsewhere, Layout, RowTable, total_of
from dsgp.terms import Floats

_MOVE = 2e-9  # seconds per row and term
_GATHER_ROWS = 65_536  # per task
_UNWEIGHTED = np.empty(0)
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Equations(ABC):
    """ZᵀWZ, ZᵀWy and yᵀWy of some rows on some axes.

    Attributes
    ----------
    layout : Layout
    weight : ndarray of shape (Σ U_d,)
        Σ w z² of the rows in each cell: the diagonal of ZᵀWZ.
    information : ndarray of shape (Σ U_d,)
        ZᵀWy.
    quadratic : float
        yᵀWy.
    n_rows : int or float
        Rows of positive weight; no whole number where some have faded (``additive.joining``).
    log_weight : float
        Σ log w over them.
    total_weight, total_information : float
        Σ w and Σ w y over all rows: the same as ``weight`` and ``information``, of a constant.
    multiplied : ndarray of shape (Σ U_d,), optional
        ZᵀW1, where some rows have multipliers z; otherwise it is ``weight``.
    """

    layout: Layout
    weight: Floats
    information: Floats
    quadratic: float
    n_rows: float
    log_weight: float
    total_weight: float
    total_information: float
    multiplied: Floats | None = field(default=None, kw_only=True)

    @property
    def ones(self) -> Floats:
        """ZᵀW1, (Σ U_d,): what the cells have in common with a constant."""
        return self.weight if self.multiplied is None else self.multiplied

    @abstractmethod
    def multiply(self, flat: Floats) -> Floats:
        """ZᵀWZ times vectors (…, Σ U_d)."""

    @abstractmethod
    def tables(self, n_bins: int) -> TwoWayTables:
        """Two-way tables on about so many bins per term, or on fewer where memory is short."""

    @abstractmethod
    def without(self, term: int) -> Self:
        """Return the equations of the same rows in a model without one of the terms."""

    def _parts_without(self, term: int) -> dict[str, Any]:
        """Vectors (Σ U_d,) of all terms but one, by the names of the attributes."""
        vectors = {"weight": self.weight, "information": self.information}
        if self.multiplied is not None:
            vectors["multiplied"] = self.multiplied
        first, last = self.layout.offsets[term : term + 2]
        return {name: np.delete(vector, slice(first, last)) for name, vector in vectors.items()}

    def at_home(self) -> Self:
        """Return the same equations with nothing kept in other processes."""
        return self

    @abstractmethod
    def fitted(self, mean: Floats) -> Fitted:
        """Start a sweep over the terms at a mean (Σ U_d,)."""

    @abstractmethod
    def noise(self, random: np.random.Generator) -> Floats:
        """Draw Zᵀ W^½ z with z white noise, (Σ U_d,)."""

    def less(self, constant: float) -> Self:
        """Return the equations of targets less a constant."""
        weight, information = self.total_weight, self.total_information
        return replace(
            self,
            information=self.information - constant * self.ones,
            quadratic=self.quadratic - constant * (2 * information - constant * weight),
            total_information=information - constant * weight,
        )

    def share(self, term: int) -> Floats:
        """Weights of the cells of a term in the mean over the rows of what they get of it."""
        weight = self.layout.part(self.weight, term)
        if self.multiplied is None:
            return weight / max(float(weight.sum()), _TINY)
        return self.layout.part(self.ones, term) / max(self.total_weight, _TINY)

    def moments(self, term: int, mean: Floats) -> tuple[float, float]:
        """Mean and variance over the rows of what they get of a term, (U_d,) at its cells."""
        centre = float(np.sum(self.share(term) * mean))
        if self.multiplied is None:
            return centre, float(np.sum(self.share(term) * (mean - centre) ** 2))
        weight = self.layout.part(self.weight, term)
        square = float(np.sum(weight * mean**2)) / max(self.total_weight, _TINY)
        return centre, max(square - centre**2, 0.0)

    def squares(self, mean: Floats) -> float:
        """Weighted sum of squared residuals of the rows, at a mean (Σ U_d,)."""
        return max(
            self.quadratic
            - 2 * float(np.sum(self.information * mean))
            + float(np.sum(mean * self.multiply(mean))),
            0.0,
        )


class Fitted(ABC):
    """The fit of the rows while single terms change (backfitting, the M-step of VBEM)."""

    @abstractmethod
    def residual(self, term: int) -> Floats:
        """Zᵀ_d W (y − fit) of one term, (U_d,)."""

    @abstractmethod
    def add(self, term: int, change: Floats) -> None:
        """Add a change (U_d,) of one term to the fit."""


@dataclass(frozen=True)
class RowEquations(Equations):
    """Equations applied row by row.

    Sums over the rows of a part run in their order, term by term, and those of parts are added in
    theirs: they do not depend on blocks, threads or workers.

    Attributes
    ----------
    table : RowTable
    row_weight : ndarray of shape (n_rows,), or of length 0 for ones
    """

    table: RowTable
    row_weight: Floats

    @classmethod
    def of(cls, table: RowTable, y: Floats, weight: Floats | None = None) -> RowEquations:
        """Sum the rows: targets (n_rows,), and weights (n_rows,) or None for ones."""
        weighted = y if weight is None else weight * y
        ones = np.ones(table.n_rows) if weight is None else weight
        return cls(
            layout=table,
            weight=_scattered(table, ones, 2),
            information=_scattered(table, weighted),
            multiplied=_scattered(table, ones) if table.multipliers else None,
            quadratic=float(np.sum(weighted * y)),
            n_rows=table.n_rows if weight is None else int(np.count_nonzero(weight)),
            log_weight=0.0 if weight is None else float(np.sum(np.log(weight[weight > 0]))),
            total_weight=float(table.n_rows if weight is None else np.sum(weight)),
            total_information=float(np.sum(weighted)),
            table=table,
            row_weight=_UNWEIGHTED if weight is None else weight,
        )

    def less(self, constant: float) -> Self:
        """Return the equations of targets less a constant; they share the counts of the rows."""
        equations = super().less(constant)
        kept: dict[int, TwoWayTables] = self.__dict__.get("_tables", {})
        equations.__dict__["_tables"] = {n: tables.less(constant) for n, tables in kept.items()}
        return equations

    def __getstate__(self) -> dict[str, Any]:
        """Leave out tables that are counted again of the codes."""
        return {name: part for name, part in self.__dict__.items() if name != "_tables"}

    def multiply(self, flat: Floats) -> Floats:
        """ZᵀWZ times vectors (…, Σ U_d): gather, weigh, scatter, block by block of rows."""
        flats = flat.reshape(math.prod(flat.shape[:-1]), self.layout.size)
        parts = self.table.by_parts(partial(_multiplied, flats), (self.row_weight,))
        product: Floats = total_of(parts)
        return product.reshape(flat.shape)

    def tables(self, n_bins: int) -> TwoWayTables:
        """Count the rows on about so many bins per term; the last tables are kept."""
        n_rows = min(int(self.n_rows), self.table.n_rows)
        affordable = affordable_bins(self.layout.cells, n_rows, n_bins, TABLE_BYTES)
        kept: dict[int, TwoWayTables] = self.__dict__.setdefault("_tables", {})
        if affordable not in kept:
            kept.clear()
            kept[affordable] = TwoWayTables.of(
                self.table, self.information, self.ones, self.row_weight, affordable
            )
        return kept[affordable]

    def without(self, term: int) -> Self:
        """Return the equations of the same rows in a model without one of the terms."""
        table = self.table.without(term)
        return replace(self, layout=table, table=table, **self._parts_without(term))

    def fitted(self, mean: Floats) -> Fitted:
        """Keep the fit of every row."""
        return _RowsFitted(self, mean)

    def noise(self, random: np.random.Generator) -> Floats:
        """Draw noise row by row, block by block."""
        out = np.zeros(self.layout.size)
        for rows, codes in self.table.blocks():
            values: Floats = np.empty(codes.shape[1])
            random.standard_normal(out=values)
            if len(self.row_weight):
                values *= np.sqrt(self.row_weight[rows])
            _scatter(self.table, codes, rows, values, out)
        return out

    def at_home(self) -> Self:
        """Return the same equations with the codes here, if other processes keep them."""
        if not isinstance(self.table.codes, CodesElsewhere):
            return self
        table = replace(self.table, codes=self.table.codes.here())
        equations = replace(self, layout=table, table=table)
        if "_tables" in self.__dict__:
            equations.__dict__["_tables"] = self.__dict__["_tables"]
        return equations


class _RowsFitted(Fitted):
    def __init__(self, equations: RowEquations, mean: Floats) -> None:
        self.equations = equations
        self.rows = equations.table.fit(mean)

    def residual(self, term: int) -> Floats:
        equations = self.equations
        information = equations.layout.part(equations.information, term)
        return information - self.rows.scatter(term, equations.row_weight)

    def add(self, term: int, change: Floats) -> None:
        self.rows.add(term, change)


@dataclass(frozen=True)
class BinEquations(Equations):
    """Equations held as two-way tables, one bin per point of the axes.

    Attributes
    ----------
    bins : TwoWayTables
    """

    bins: TwoWayTables

    def less(self, constant: float) -> Self:
        """Return the equations of targets less a constant."""
        equations = super().less(constant)
        parts = self.layout.parts(equations.information)
        return replace(equations, bins=self.bins.with_information(parts))

    def multiply(self, flat: Floats) -> Floats:
        """ZᵀWZ times vectors (…, Σ U_d)."""
        flats = flat.reshape(math.prod(flat.shape[:-1]), self.layout.size)
        return self.bins.multiply(flats).reshape(flat.shape)

    def tables(self, n_bins: int) -> TwoWayTables:
        """Return the tables themselves: merging bins would cost more than it saves."""
        return self.bins

    def without(self, term: int) -> Self:
        """Return the equations of the same rows in a model without one of the terms."""
        layout = self.layout.without(term)
        return replace(
            self, layout=layout, bins=self.bins.without(term), **self._parts_without(term)
        )

    def fitted(self, mean: Floats) -> Fitted:
        """Keep the tables' own fit."""
        return _BinsFitted(self, mean)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the factor for draws."""
        return {name: part for name, part in self.__dict__.items() if name != "_factor"}

    def noise(self, random: np.random.Generator) -> Floats:
        """Draw with a Cholesky factor of ZᵀWZ, made at the first call."""
        return self._factor @ random.standard_normal(self.layout.size)

    @cached_property
    def _factor(self) -> Floats:
        matrix = np.diag(self.weight)
        offsets = self.layout.offsets
        for (d, e), pair in self.bins.pairs.items():
            block = pair.toarray() if issparse(pair) else pair
            matrix[offsets[e] : offsets[e + 1], offsets[d] : offsets[d + 1]] = block.T
        # The matrix is singular, as a constant can be shifted from term to term.
        matrix[np.diag_indices_from(matrix)] *= 1 + 1e-10
        return cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)


class _BinsFitted(Fitted):
    def __init__(self, equations: BinEquations, mean: Floats) -> None:
        self.equations = equations
        self.parts = [part[None].copy() for part in equations.layout.parts(mean)]

    def residual(self, term: int) -> Floats:
        equations = self.equations
        fit = equations.bins.row(term, self.parts)[0]
        return equations.layout.part(equations.information, term) - fit

    def add(self, term: int, change: Floats) -> None:
        self.parts[term] += change


def _multiplied(
    flats: Floats, table: RowTable, arrays: Sequence[NDArray[Any]], part: slice
) -> Floats:
    """ZᵀWZ of the rows of a part, times vectors (k, Σ U_d)."""
    (weight,) = arrays
    out = np.zeros(flats.shape)
    for rows, codes in table.blocks(part):
        n = codes.shape[1]
        # For few rows, the overhead of a call per vector and term would exceed the work.
        if not table.multipliers and is_small(_MOVE * n * table.n_terms):
            some = weight[rows] if len(weight) else _UNWEIGHTED
            gather_and_scatter(codes, table.offsets, flats, some, np.empty(n), out)
            continue
        for vector, total in zip(flats, out, strict=True):
            values = _gathered(table, codes, rows, vector)
            if len(weight):
                values *= weight[rows]
            _scatter(table, codes, rows, values, total)
    return out


def _gathered(table: RowTable, codes: NDArray[np.integer], rows: slice, flat: Floats) -> Floats:
    n = codes.shape[1]
    values = np.empty(n)
    tasks = [
        partial(
            table.gather_part,
            codes,
            rows,
            flat,
            slice(start, min(start + _GATHER_ROWS, n)),
            values,
        )
        for start in range(0, n, _GATHER_ROWS)
    ]
    run(tasks, _MOVE * n * table.n_terms, in_place=True)
    return values


def _scattered(table: RowTable, values: Floats, power: int = 1) -> Floats:
    out = np.zeros(table.size)
    for rows, codes in table.blocks():
        _scatter(table, codes, rows, values[rows], out, power)
    return out


def _scatter(
    table: RowTable,
    codes: NDArray[np.integer],
    rows: slice,
    values: Floats,
    flat: Floats,
    power: int = 1,
) -> None:
    """Add the values of a block of rows to the tables of all terms, as ``RowTable.scatter``."""
    tasks = [
        partial(table.scatter_block, term, code, rows, values, part, power)
        for term, (code, part) in enumerate(zip(codes, table.parts(flat), strict=True))
    ]
    run(tasks, _MOVE * len(values) * table.n_terms, in_place=True)
