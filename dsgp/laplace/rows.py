"""Rows with targets of any likelihood, and what they sum to at given functions.

The likelihood is linearised around the functions f at hand: the gradient ∇ of log p(y | f) and the
weights W, its negative second derivative. Nothing divides by a weight, which may vanish: the system
of the next step is solved for Zᵀ(W f + ∇), not for targets f + W⁻¹∇ (Gilboa et al., eq. ``cool``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsgp.additive import BinEquations, Equations, RowEquations, TwoWayTables
from dsgp.additive.pair_counts import PairCounts
from dsgp.additive.tables import pairs_of
from dsgp.compute import run
from dsgp.jit.rows import gather_add, gather_pair
from dsgp.laplace.linearised import Linearised, PairTables
from dsgp.likelihoods import Likelihood
from dsgp.rows.table import RowTable, total_of
from dsgp.terms import Floats

Result = TypeVar("Result")

# Rows per task.
_TASK_ROWS = 32_768
# Seconds of compiled work per row: for the likelihood, and for each table that is read or added to.
_LIKELIHOOD = 1e-7
_MOVE = 2e-9
_NONE = np.empty(0)
# Cells per row above which a table of pairs is mostly empty, and number of cells up to which it is
# dense whatever the number of rows: making a small sparse array costs more than it saves.
_CELLS_PER_ROW, _DENSE_CELLS = 5, 2**16
# At a constant this far from 0, only the gradient of a likelihood that bounds the constant is left.
_FAR = 300.0


@dataclass(frozen=True)
class ResponseRows:
    """Rows of a fit: codes on the axes of all terms, and their targets.

    Attributes
    ----------
    table : RowTable
    y : ndarray of shape (n_rows,)
    weight : ndarray of shape (n_rows,), or of length 0 for ones
        How often a row counts.
    offset : ndarray of shape (n_rows,), or of length 0 for zeros
        What is added to the functions, on the link scale.
    trials : ndarray of shape (n_rows,), or of length 0 for ones
        Of a binomial target.
    """

    table: RowTable
    y: Floats
    weight: Floats = field(default_factory=lambda: _NONE)
    offset: Floats = field(default_factory=lambda: _NONE)
    trials: Floats = field(default_factory=lambda: _NONE)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def total_weight(self) -> float:
        """Sum of the weights: each row counts as often as its weight says."""
        return float(self.weight.sum()) if len(self.weight) else float(self.n_rows)

    @property
    def n_counted(self) -> int:
        """The same as a whole number, at least 1, by which sizes are chosen."""
        return max(round(self.total_weight), 1)

    def some(self, chosen: NDArray[np.intp]) -> ResponseRows:
        """Return some of the rows, by increasing numbers, with their codes in memory."""
        mask = np.zeros(self.n_rows, dtype=bool)
        mask[chosen] = True
        table = replace(
            self.table,
            codes=np.concatenate(list(self.table.by_parts(_picked, (mask,))), axis=1),
            ends=(),
            multipliers={d: z[chosen] for d, z in self.table.multipliers.items()},
        )
        return ResponseRows(table, *(_part(values, chosen) for values in self._arrays))

    def on(self, table: RowTable) -> ResponseRows:
        """Return the same rows with other codes."""
        return replace(self, table=table)

    @property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.y, self.weight, self.offset, self.trials

    def level(self, likelihood: Likelihood) -> float:
        """Maximum likelihood of a constant, given the offsets."""
        weight, offset, trials = (
            values if len(values) else None for values in (self.weight, self.offset, self.trials)
        )
        return likelihood.start(self.y, weight, offset, trials)

    def bound_level(self, likelihood: Likelihood) -> bool:
        """Whether the rows bound a constant from both sides.

        They do not where all targets are at one edge of their support: no event, or one class.
        """
        if likelihood.link_name == "identity":
            return True
        weight = self.weight if len(self.weight) else np.ones(self.n_rows)
        trials = self.trials if len(self.trials) else None
        offset = self.offset if len(self.offset) else np.zeros(self.n_rows)
        low, high = (
            float(np.sum(weight * likelihood.derivatives(self.y, end + offset, trials)[0]))
            for end in (-_FAR, _FAR)
        )
        return low > 0 > high

    # ------------------------------------------------------------------ passes

    def linearised(
        self, likelihood: Likelihood, level: float, flat: Floats, *, with_pairs: bool
    ) -> Linearised:
        """Sum a likelihood's value, gradient and weights at functions (Σ U_d,): one pass."""
        arguments = likelihood, level, flat, with_pairs, self.n_rows
        return Linearised.total(self._by_parts(ResponseRows.linearised_part, *arguments))

    def linearised_part(
        self,
        likelihood: Likelihood,
        level: float,
        flat: Floats,
        with_pairs: bool,
        n_rows: int,
        part: slice,
    ) -> Linearised:
        """Sum them over a part of the ``n_rows`` rows, whose codes are here."""
        table = self.table
        keys = pairs_of(table.n_terms) if with_pairs else []
        sizes = [len(cells) for cells in table.cells]
        # The number of all rows decides, because the tables of the parts are added.
        pairs = {
            (d, e): PairCounts(
                (sizes[d], sizes[e]), is_sparse=_is_sparse(sizes[d] * sizes[e], n_rows)
            )
            for d, e in keys
        }
        gradient, weight = np.zeros(table.size), np.zeros(table.size)
        multiplied = np.zeros(table.size) if table.multipliers else None
        row_weight = _NONE if with_pairs else np.empty(part.stop - part.start)
        totals = np.zeros(3)
        for block in self._blocks(part):
            n = len(block.y)
            first = block.rows.start - part.start
            by_row = np.empty((2, n)) if with_pairs else [np.empty(n), row_weight[first:][:n]]
            task = partial(_linearise, block, likelihood, level, flat, by_row)
            for sums in self._by_task(task, n, _LIKELIHOOD + _MOVE * table.n_terms):
                totals += sums
            tasks: list[Callable[[], None]] = []
            for d, (code, gradients, weights) in enumerate(
                zip(block.codes, table.parts(gradient), table.parts(weight), strict=True)
            ):
                add = partial(table.scatter_block, d, code, block.rows)
                tasks.append(partial(add, by_row[0], gradients))
                tasks.append(partial(add, by_row[1], weights, 2))
                if multiplied is not None:
                    tasks.append(partial(add, by_row[1], table.part(multiplied, d)))
            tasks += [
                partial(counts.add, block.codes[d], block.codes[e], block.times(by_row[1], d, e))
                for (d, e), counts in pairs.items()
            ]
            run(tasks, _MOVE * n * len(tasks), in_place=True)
        return Linearised(
            float(totals[0]),
            gradient,
            weight,
            float(totals[1]),
            float(totals[2]),
            {key: counts.table() for key, counts in pairs.items()},
            row_weight,
            multiplied,
        )

    def curvature_change(
        self,
        likelihood: Likelihood,
        level: float,
        flat: Floats,
        variance: PairTables,
    ) -> tuple[Floats, float]:
        """Sum w v ∂W/∂f by points (Σ U_d,), and over all rows: one pass.

        ``variance`` gives v, the posterior variance of a row's f.
        """
        arguments = likelihood, level, flat, variance
        parts = list(self._by_parts(ResponseRows.change_of_part, *arguments))
        return total_of(sums for sums, _ in parts), sum(total for _, total in parts)

    def change_of_part(
        self,
        likelihood: Likelihood,
        level: float,
        flat: Floats,
        variance: PairTables,
        part: slice,
    ) -> tuple[Floats, float]:
        """Sum that over a part of the rows, whose codes are here."""
        table = self.table
        out = np.zeros(table.size)
        total = 0.0
        for block in self._blocks(part):
            n = len(block.y)
            by_row = np.empty(n)
            task = partial(_change, block, likelihood, level, flat, variance, by_row)
            per_row = _LIKELIHOOD + _MOVE * (2 * table.n_terms + len(variance.pairs))
            total += sum(self._by_task(task, n, per_row))
            tasks = [
                partial(table.scatter_block, d, code, block.rows, by_row, part)
                for d, (code, part) in enumerate(zip(block.codes, table.parts(out), strict=True))
            ]
            run(tasks, _MOVE * n * table.n_terms, in_place=True)
        return out, total

    def latent(self, level: float, flat: Floats) -> Floats:
        """Return f of every row with its offset, (n_rows,)."""
        out = self.table.gather(flat) + level
        return out + self.offset if len(self.offset) else out

    def variances(self, variance: PairTables) -> Floats:
        """Posterior variance of f of every row, (n_rows,)."""
        return np.concatenate(list(self._by_parts(ResponseRows.variances_of_part, variance)))

    def _by_parts(self, method: Callable[..., Result], *arguments: Any) -> Iterator[Result]:
        """Call a method with the arguments and a part, where the codes of its rows are."""
        return self.table.by_parts(partial(_of_part, method, arguments), self._arrays)

    def variances_of_part(self, variance: PairTables, part: slice) -> Floats:
        """Return those of a part of the rows, whose codes are here."""
        out = np.empty(part.stop - part.start)
        for block in self._blocks(part):
            own = out[block.rows.start - part.start : block.rows.stop - part.start]
            task = partial(_variance, block, variance, own)
            per_row = _MOVE * (self.table.n_terms + len(variance.pairs))
            self._by_task(task, len(block.y), per_row)
        return out

    def _blocks(self, part: slice) -> Iterator[_Block]:
        for rows, codes in self.table.blocks(part):
            yield _Block(self.table, rows, codes, *(_part(values, rows) for values in self._arrays))

    def _by_task(self, task: Callable[[slice], Any], n: int, seconds: float) -> list[Any]:
        parts = [slice(start, min(start + _TASK_ROWS, n)) for start in range(0, n, _TASK_ROWS)]
        return run([partial(task, part) for part in parts], seconds * n, in_place=True)

    # ------------------------------------------------------------------ equations

    def equations(
        self, linearised: Linearised, flat: Floats, spreads: list[Floats] | None
    ) -> Equations:
        """Equations of the next step from functions (Σ U_d,), for noise variance 1.

        Their quadratic form yᵀWy is left out: it would need targets, and weights may vanish.
        """
        table = self.table
        shared: dict[str, Any] = {
            "weight": linearised.weight,
            "information": linearised.gradient,
            "quadratic": 0.0,
            "n_rows": self.n_rows,
            "log_weight": 0.0,
            "total_weight": linearised.total_weight,
            "total_information": linearised.total_gradient + float(np.sum(linearised.ones * flat)),
            "multiplied": linearised.multiplied,
        }
        equations: RowEquations | BinEquations
        if not len(linearised.row_weight) and self.n_rows:
            tables = TwoWayTables(
                list(table.cells),
                table.parts(linearised.weight),
                table.parts(linearised.gradient),
                linearised.pairs,
                spreads or [np.zeros(len(cells)) for cells in table.cells],
                None if linearised.multiplied is None else table.parts(linearised.multiplied),
            )
            equations = BinEquations(layout=table.layout, bins=tables, **shared)
            information = linearised.gradient + equations.multiply(flat)
            bins = replace(tables, information=table.parts(information))
            return replace(equations, information=information, bins=bins)
        equations = RowEquations(
            layout=table, table=table, row_weight=linearised.row_weight, **shared
        )
        return replace(equations, information=linearised.gradient + equations.multiply(flat))


@dataclass(frozen=True)
class _Block:
    table: RowTable
    rows: slice
    codes: NDArray[np.integer]
    y: Floats
    weight: Floats
    offset: Floats
    trials: Floats

    def gathered(self, flat: Floats, part: slice) -> Floats:
        """Sum what some rows get of all terms, (n,)."""
        out = np.empty(part.stop - part.start)
        rows = slice(self.rows.start + part.start, self.rows.start + part.stop)
        self.table.gather_part(self.codes[:, part], rows, flat, slice(0, len(out)), out)
        return out

    def latent(self, level: float, flat: Floats, part: slice) -> Floats:
        f = self.gathered(flat, part)
        f += level
        if len(self.offset):
            f += self.offset[part]
        return f

    def times(self, values: Floats, *terms: int, part: slice = slice(None)) -> Floats:
        """Multiply values of some rows by the multipliers of terms."""
        for term in terms:
            multiplier = self.table.multiplier(term, self.rows)
            if multiplier is not None:
                values = values * multiplier[part]
        return values

    def seen(self, part: slice) -> tuple[Floats, Floats | None]:
        """Targets and trials."""
        return self.y[part], self.trials[part] if len(self.trials) else None


def _is_sparse(n_cells: int, n_rows: int) -> bool:
    return n_cells > max(_DENSE_CELLS, _CELLS_PER_ROW * n_rows)


def _part(values: Floats, rows: Any) -> Floats:
    return values[rows] if len(values) else values


def _of_part(
    method: Callable[..., Result],
    arguments: Sequence[Any],
    table: RowTable,
    arrays: Sequence[Any],
    part: slice,
) -> Result:
    return method(ResponseRows(table, *arrays), *arguments, part)


def _picked(table: RowTable, arrays: Sequence[Any], part: slice) -> NDArray[np.integer]:
    picked = [codes[:, arrays[0][rows]] for rows, codes in table.blocks(part)]
    return np.concatenate(picked, axis=1)


def _linearise(
    block: _Block,
    likelihood: Likelihood,
    level: float,
    flat: Floats,
    by_row: Any,
    part: slice,
) -> Floats:
    f = block.latent(level, flat, part)
    y, trials = block.seen(part)
    value = likelihood.log_density(y, f, trials)
    gradient, weight, _ = likelihood.derivatives(y, f, trials)
    if len(block.weight):
        counts = block.weight[part]
        value, gradient, weight = counts * value, counts * gradient, counts * weight
    by_row[0][part], by_row[1][part] = gradient, weight
    return np.array([value.sum(), gradient.sum(), weight.sum()])


def _change(
    block: _Block,
    likelihood: Likelihood,
    level: float,
    flat: Floats,
    variance: PairTables,
    by_row: Floats,
    part: slice,
) -> float:
    f = block.latent(level, flat, part)
    y, trials = block.seen(part)
    _, _, slope = likelihood.derivatives(y, f, trials)
    out = by_row[part]
    _variance(block, variance, by_row, part)
    out *= slope
    if len(block.weight):
        out *= block.weight[part]
    return float(out.sum())


def _variance(block: _Block, variance: PairTables, out: Floats, part: slice) -> None:
    codes, values = block.codes[:, part], out[part]
    if not block.table.multipliers:
        alone = variance.alone
        if variance.crossed is not None:
            alone = alone + variance.crossed
        values[:] = block.gathered(alone, part)
    else:
        values[:] = 0.0
        for d, table in enumerate(block.table.parts(variance.alone)):
            gathered = np.zeros(len(values))
            gather_add(codes[d], table, 1.0, gathered)
            values += block.times(gathered, d, d, part=part)
        if variance.crossed is not None:
            values += block.gathered(variance.crossed, part)
    values += variance.constant
    for (d, e), pair in variance.pairs.items():
        if block.table.multipliers:
            gathered = np.zeros(len(values))
            gather_pair(codes[d], codes[e], pair, 1.0, gathered)
            values += block.times(gathered, d, e, part=part)
        else:
            gather_pair(codes[d], codes[e], pair, 1.0, values)
