"""Two-level preconditioning of the additive system ("kernel multigrid", Zou and Ding 2024).

Each term gets a coarse space V_d = K_d(·, u_d), u_d some of the axis's own points, so that
K_d⁻¹ V_d c is the scatter of c: no kernel is inverted. The coarse matrix

    Vᵀ A V = blockdiag(K_d(u_d, u_d)) + Φᵀ W Φ,    Φ = Z V

needs all rows, but only through two-way tables of their weights on bins of each axis, which do not
depend on the hyperparameters and take one pass. Directions that terms share, which block-Jacobi
reaches slowly, are coarse; what is left is local, and is solved for by the smoothers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpstrf, dtrtrs

from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.additive.conjugate_gradients import conjugate_gradients
from dsgp.additive.equations import RowEquations
from dsgp.additive.system import AdditiveSystem, Pair, Solution
from dsgp.additive.tables import BINS, TwoWayTables
from dsgp.kernels import Kernel
from dsgp.terms import Cells, Codes, Floats

# Coarse points of a curve by the order of its kernel, and of all terms together. Rough kernels need
# more points.
_POINTS = {1: 160, 2: 128, 3: 64, 4: 48}
_ALL_POINTS = 1600
# Coarse points whose conditional variance, given the others, is below this share of the largest
# prior variance add nothing.
_RESOLVED = 1e-10
# Up to this many rows the coarse matrix is computed from the rows themselves: bins would have too
# few rows each to represent them.
_FEW_ROWS = 4096


def coarse_size(sizes: Sequence[int], kernels: list[Kernel]) -> int:
    """Return an upper bound on the coarse points of all terms, from the numbers of their cells."""
    budget = max(8, _ALL_POINTS // max(len(kernels), 1))
    return sum(
        min(n, _POINTS[kernel.order], budget) for n, kernel in zip(sizes, kernels, strict=True)
    )


@dataclass(frozen=True)
class TermSpace:
    """Coarse space of one term, in coordinates in which its prior is the identity.

    Attributes
    ----------
    points : ndarray of shape (n_coarse,)
        Indices of u_d on the axis.
    lower : ndarray of shape (n_coarse, n_coarse)
        L of K_d(u_d, u_d) = L Lᵀ.
    at_bins : ndarray of shape (n_coarse, n_bins)
        L⁻¹ K_d(u_d, bins).
    """

    points: Codes
    lower: Floats
    at_bins: Floats

    @classmethod
    def of(
        cls,
        cells: Cells,
        kernel: Kernel,
        points: Codes,
        bins: Cells,
        precision: float = 0.0,
    ) -> TermSpace:
        """Choose among ``points`` by pivoted Cholesky.

        With a long lengthscale few points determine the function, and further ones would only make
        the coarse matrix singular to rounding. Where a ``precision`` is given (of all rows
        together, over the share that may be left out), points that it could not distinguish from
        their prior mean are left out too.
        """
        prior = cells.prior(kernel, cells.points[points], cells.points[points])
        tolerance = _RESOLVED * float(np.diag(prior).max())
        factor, pivots, rank, _ = dpstrf(prior, tol=tolerance, lower=1, overwrite_a=1)
        if precision > 0:
            # The prior variance that n points do not represent is the sum of the eigenvalues after
            # the n-th, which fall like n^(−2ν−1): the next one is 2ν / n of that sum.
            left = np.diag(factor)[1:rank] ** 2
            number = np.arange(1, rank)
            negligible = left * precision * (2 * kernel.order - 1) < number
            rank = int(number[np.argmax(negligible)]) if negligible.any() else rank
        chosen = points[pivots[:rank] - 1]
        lower = np.asfortranarray(np.tril(factor[:rank, :rank]))
        space = cls(chosen, lower, np.empty((rank, 0)))
        return replace(space, at_bins=space.at(cells, kernel, bins.points))

    def at(self, cells: Cells, kernel: Kernel, inputs: Floats) -> Floats:
        """L⁻¹ K_d(u_d, inputs), the features φ, (n_coarse, n_inputs)."""
        cross = cells.prior(kernel, cells.points[self.points], inputs)
        return solve_triangular(self.lower, cross, lower=True, check_finite=False)


class CoarseSpace:
    """The coarse spaces of all terms and the solve on them, for one system."""

    def __init__(self, system: AdditiveSystem) -> None:
        self.system = self.smoother = system
        layout = system.layout
        wanted = max((BINS[kernel.order] for kernel in system.kernels), default=1)
        tables = system.equations.tables(wanted)
        budget = max(8, _ALL_POINTS // layout.n_terms)
        least = system.least_precision
        self.spaces = [
            TermSpace.of(
                cells,
                kernel,
                cells.chosen(weight, min(_POINTS[kernel.order] * cells.n_lines, budget)),
                bins,
                float(weight.sum()) / least if least > 0 else 0.0,
            )
            for cells, kernel, weight, bins in zip(
                layout.cells,
                system.kernels,
                layout.parts(system.weight),
                tables.cells,
                strict=True,
            )
        ]
        ends = np.cumsum([0, *(len(space.points) for space in self.spaces)])
        self.rows = [slice(*pair) for pair in pairwise(ends)]
        offsets = layout.offsets[:-1]
        self.flat = [offset + s.points for offset, s in zip(offsets, self.spaces, strict=True)]
        self.tables = tables
        equations = system.equations
        self.of_rows = isinstance(equations, RowEquations) and equations.table.n_rows <= _FEW_ROWS
        if isinstance(equations, RowEquations) and self.of_rows:
            self.normal = self._of_rows(equations)
        else:
            self.normal = self._of_tables(tables)
        """Φᵀ W Φ, without the noise."""
        self.sums, self.total = self._sums(), equations.total_weight
        """Φᵀ W 1 and 1ᵀ W 1, likewise."""
        self.factor = self._factor()

    def with_noise_of(
        self, system: AdditiveSystem, smoother: AdditiveSystem | None = None
    ) -> CoarseSpace:
        """Return the coarse space of a system that differs in its noise, weights or targets only.

        The smoothers may be those of a third one: the preconditioner is symmetric and positive with
        any, and the nearer its weights are, the fewer iterations it takes.
        """
        other = copy(self)
        other.system, other.smoother = system, smoother or system
        other.factor = other._factor()
        return other

    @property
    def grams(self) -> list[Floats]:
        """Φ_dᵀ W_d Φ_d of each term, without the noise."""
        return [self.normal[rows, rows] for rows in self.rows]

    def _of_rows(self, equations: RowEquations) -> Floats:
        """Return Φᵀ W Φ, without the noise."""
        codes = equations.table.codes[:, :]
        features = np.empty((self.rows[-1].stop, codes.shape[1]))
        for d, (rows, space, cells, kernel, code) in enumerate(
            zip(
                self.rows,
                self.spaces,
                self.system.layout.cells,
                self.system.kernels,
                codes,
                strict=True,
            )
        ):
            at_cells = space.at(cells, kernel, cells.points)
            # The features of a missing input are 0.
            features[rows] = np.pad(at_cells, ((0, 0), (0, 1)))[:, np.minimum(code, len(cells))]
            multiplier = equations.table.multiplier(d)
            if multiplier is not None:
                features[rows] *= multiplier
        weight = equations.row_weight
        return (features * weight if len(weight) else features) @ features.T

    def _of_tables(self, tables: TwoWayTables) -> Floats:
        """Return Φᵀ W Φ, without the noise, but for what rows within a bin differ by."""
        normal = np.empty((self.rows[-1].stop, self.rows[-1].stop))
        for d, (rows, space) in enumerate(zip(self.rows, self.spaces, strict=True)):
            normal[rows, rows] = _gram(space, tables.cells[d], tables.weights[d], tables.spreads[d])
            for e in range(d):
                block = space.at_bins @ tables.pairs[e, d].T @ self.spaces[e].at_bins.T
                normal[rows, self.rows[e]] = block
                normal[self.rows[e], rows] = block.T
        return normal

    def _sums(self) -> Floats:
        """Return Φᵀ W 1, without the noise, of the same rows or bins as ``normal``."""
        layout = self.system.layout
        if not self.of_rows:
            pairs = zip(self.spaces, self.tables.ones, strict=True)
            return np.concatenate([space.at_bins @ weight for space, weight in pairs])
        return np.concatenate(
            [
                space.at(cells, kernel, cells.points) @ ones
                for space, cells, kernel, ones in zip(
                    self.spaces,
                    layout.cells,
                    self.system.kernels,
                    layout.parts(self.system.equations.ones),
                    strict=True,
                )
            ]
        )

    def _factor(self) -> tuple[Floats, bool]:
        """Cholesky factor of the coarse matrix, I + Φᵀ W Φ."""
        noise, constant = self.system.noise_variance, self.system.constant
        matrix = self.normal / noise
        if constant is not None:
            # These are totals of the rows of this space. The rows of the system may have other
            # weights, those of a later Newton step.
            total = max(self.total / noise + constant, np.finfo(float).tiny)
            matrix -= np.outer(self.sums / noise, self.sums / (noise * total))
        matrix[np.diag_indices_from(matrix)] += 1.0
        # Beside a huge weight, rounding errors could exceed the identity.
        matrix[np.diag_indices_from(matrix)] *= 1.0 + 1e-12
        return cholesky_to_rounding(matrix), True

    def correct(self, residual: Floats) -> Pair:
        """Galerkin correction V (Vᵀ A V)⁻¹ Vᵀ r and its dual, of vectors (k, Σ U_d)."""
        smoothed = self.system.multiply_prior(residual)
        whitened = np.concatenate(
            [
                dtrtrs(space.lower, smoothed[:, flat].T, lower=1)[0]
                for space, flat in zip(self.spaces, self.flat, strict=True)
            ]
        )
        solved = cho_solve(self.factor, whitened, check_finite=False)
        dual = np.zeros(residual.shape)
        for space, flat, rows in zip(self.spaces, self.flat, self.rows, strict=True):
            dual[:, flat] = dtrtrs(space.lower, solved[rows], lower=1, trans=1)[0].T
        return self.system.multiply_prior(dual), dual

    def precondition(self, residual: Floats) -> Pair:
        """Coarse, smooth, coarse: a symmetric operator near the inverse of the system."""
        mean, dual = self.correct(residual)
        for step in (self.smoother.smooth, self.correct):
            more, more_dual = step(residual - dual - self.system.multiply(mean))
            mean += more
            dual += more_dual
        return mean, dual


def _gram(space: TermSpace, bins: Cells, weights: Floats, spreads: Floats) -> Floats:
    """Sum of φφᵀ over the rows, by value and slope of φ in each bin.

    Without the slopes the coarse matrix of a rough kernel beside little noise would be too small:
    the correction would go too far, and "coarse, smooth, coarse" would not be positive.
    """
    gram = (space.at_bins * weights) @ space.at_bins.T
    if spreads.any() and (slopes := bins.slopes(space.at_bins)) is not None:
        gram += (slopes * (weights * spreads)) @ slopes.T
    return gram


def multigrid(
    system: AdditiveSystem,
    rhs: Floats | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Pair | None = None,
    coarse: Callable[[], CoarseSpace] | None = None,
) -> Solution:
    """Solve the additive system by conjugate gradients with the two-level preconditioner.

    Parameters and result are those of ``conjugate_gradients``. Where the coarse space is too small
    for a rough kernel beside little noise, the preconditioner may not be positive: the smoothers
    alone take over then.

    Parameters
    ----------
    coarse : callable, optional
        Returns the coarse space of the system, where the caller uses it for other purposes too.
    """
    if not system.layout.n_terms:
        return conjugate_gradients(system, rhs, tol=tol, max_iter=max_iter, start=start)
    # Made when an iteration first needs it: with a good initial value none may.
    space = cache(partial(CoarseSpace, system)) if coarse is None else coarse
    solution = conjugate_gradients(
        system,
        rhs,
        tol=tol,
        max_iter=max_iter,
        start=start,
        precondition=lambda residual: space().precondition(residual),
    )
    left = max_iter - solution.iterations
    if solution.converged or left == 0:
        return solution
    alone = conjugate_gradients(
        system, rhs, tol=tol, max_iter=left, start=(solution.mean, solution.dual)
    )
    return replace(alone, iterations=solution.iterations + alone.iterations)
