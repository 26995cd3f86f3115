"""The linear system of the additive posterior mean, and its error bound.

With f = Σ_d Z_d f_d and precisions W of the rows, the tables F = (f_1 … f_D) solve

    (K̃⁻¹ + Zᵀ W Z) F = Zᵀ W y,    K̃ = blockdiag(K_1 … K_D).

K_d⁻¹ is never formed: every vector travels with its dual K̃⁻¹ F, which a smoothing step yields for
free. Rows do not move; only tables do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dsgp.axis import AxisSolver, Floats
from dsgp.compute import run
from dsgp.kernels import Matern
from dsgp.rows.table import RowTable

# Compiled work in seconds per point or row; they only decide whether a graph is worth its cost.
_SOLVE = 2e-8
_FILTER = 4e-8
_MOVE = 2e-9
# Rows a gathering task takes at least.
_ROW_BLOCK = 65_536


@dataclass(frozen=True)
class Solution:
    """Posterior mean of an additive model, as tables, and how well it is known.

    Attributes
    ----------
    mean : ndarray of shape (Σ U_d,)
        f_d at the points of its axis, term after term.
    dual : ndarray of shape (Σ U_d,)
        K_d⁻¹ f_d: the posterior mean at any input x is k_d(x, points) @ dual.
    residual : ndarray of shape (n_rows,)
        y minus the sum of the terms.
    iterations : int
    error_bound : float
        The error of f_d anywhere is at most this many prior standard deviations of f_d.
    converged : bool
        Whether the bound met the tolerance.
    """

    mean: Floats
    dual: Floats
    residual: Floats
    iterations: int
    error_bound: float
    converged: bool


class AdditiveSystem:
    """The system for one table of rows, one kernel a term and one precision a row.

    Parameters
    ----------
    table : RowTable
    kernels : list of kernels, one a term, with all their parameters
    weight : ndarray of shape (n_rows,)
        Precisions 1/σ_i² of the rows; 0 is the same as no row.
    """

    def __init__(self, table: RowTable, kernels: list[Matern], weight: Floats) -> None:
        self.table = table
        self.kernels = kernels
        self.weight = weight
        self.table_weight = self.scatter(np.ones(table.n_rows))
        """Sum of the weights at each point, (Σ U_d,)."""

    @cached_property
    def solvers(self) -> list[AxisSolver]:
        """The smoother of each term, its gains computed."""
        tasks = [
            partial(axis.solver, kernel, weight)
            for axis, kernel, weight in zip(
                self.table.axes, self.kernels, self.table.parts(self.table_weight), strict=True
            )
        ]
        return run(tasks, _FILTER * self.table.size)

    # ------------------------------------------------------------------ rows and tables

    def gather(self, flat: Floats) -> Floats:
        """Sum of the terms at every row, (n_rows,)."""
        n = self.table.n_rows
        out = np.empty(n)
        starts = range(0, n, max(_ROW_BLOCK, -(-n // 64)))
        tasks = [
            partial(self.table.gather, flat, out, start, min(start + starts.step, n))
            for start in starts
        ]
        run(tasks, _MOVE * n * self.table.n_terms)
        return out

    def scatter(self, rows: Floats) -> Floats:
        """Zᵀ W rows, (Σ U_d,)."""
        out = np.empty(self.table.size)
        tasks = [
            partial(self.table.scatter, term, rows, self.weight, part)
            for term, part in enumerate(self.table.parts(out))
        ]
        run(tasks, _MOVE * self.table.n_rows * self.table.n_terms)
        return out

    # ------------------------------------------------------------------ operators

    def smooth(self, information: Floats) -> tuple[Floats, Floats]:
        """Block-Jacobi: blockdiag(K_d⁻¹ + W_d)⁻¹ b, every term by itself, and its dual."""
        tasks = [
            partial(solver.solve, part)
            for solver, part in zip(self.solvers, self.table.parts(information), strict=True)
        ]
        solved = run(tasks, _SOLVE * self.table.size)
        if not solved:
            return np.zeros(0), np.zeros(0)
        means, duals = zip(*solved, strict=True)
        return np.concatenate(means), np.concatenate(duals)

    def multiply_prior(self, flat: Floats) -> Floats:
        """K̃ @ flat."""
        tasks = [
            partial(axis.multiply, kernel, part)
            for axis, kernel, part in zip(
                self.table.axes, self.kernels, self.table.parts(flat), strict=True
            )
        ]
        parts = run(tasks, _SOLVE * self.table.size)
        return np.concatenate(parts) if parts else np.zeros(0)

    def prior_norm(self, flat: Floats) -> float:
        """sqrt(rᵀ K̃ r)."""
        return math.sqrt(max(float(flat @ self.multiply_prior(flat)), 0.0))


@dataclass(frozen=True)
class Candidate:
    """A pair (mean, dual), its residuals, and a bound on its error.

    The system matrix is at least K̃⁻¹, so with r the residual of the system the error of f_d at any
    input is at most s_d sqrt(rᵀ K̃ r), s_d its prior standard deviation, where mean = K̃ dual
    exactly. Rounding leaves a mismatch δ = mean − K̃ dual. It is worth δ itself and a posterior mean
    of the data Z δ, whose components are at most s_d sqrt(δᵀ Zᵀ W Z δ): both are added.
    """

    mean: Floats
    dual: Floats
    row_residual: Floats
    residual: Floats
    mismatch_bound: float
    bound: float

    @classmethod
    def of(cls, system: AdditiveSystem, y: Floats, mean: Floats, dual: Floats) -> Candidate:
        """Compute residuals and bound of a pair; the pair is copied."""
        row_residual = system.gather(mean)
        np.subtract(y, row_residual, out=row_residual)
        residual = system.scatter(row_residual) - dual
        mismatch = mean - system.multiply_prior(dual)
        mismatch_bound = math.sqrt(float(system.weight @ system.gather(mismatch) ** 2)) + max(
            (
                float(np.abs(part).max()) / kernel.std
                for part, kernel in zip(system.table.parts(mismatch), system.kernels, strict=True)
            ),
            default=0.0,
        )
        bound = system.prior_norm(residual) + mismatch_bound
        return cls(mean.copy(), dual.copy(), row_residual, residual, mismatch_bound, bound)

    def matched(self, system: AdditiveSystem, y: Floats) -> Candidate:
        """Return the pair (K̃ dual, dual): no mismatch is left, but a larger residual."""
        return Candidate.of(system, y, system.multiply_prior(self.dual), self.dual)

    @classmethod
    def start(
        cls, system: AdditiveSystem, y: Floats, start: tuple[Floats, Floats] | None
    ) -> Candidate:
        """Where a solver begins: an earlier pair, or 0."""
        nothing = np.zeros(system.table.size)
        return cls.of(system, y, *((nothing, nothing) if start is None else start))

    def solution(self, iterations: int, tol: float) -> Solution:
        """Freeze it."""
        return Solution(
            mean=self.mean,
            dual=self.dual,
            residual=self.row_residual,
            iterations=iterations,
            error_bound=self.bound,
            converged=self.bound <= tol,
        )
