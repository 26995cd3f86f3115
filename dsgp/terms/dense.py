"""Cells of a kernel that has no state-space form, by a factor K = V Vᵀ exact to rounding.

Smooth kernels have few directions, whatever the number of cells: a pivoted Cholesky factorisation
stops where what is left is below rounding (or at a largest number of columns, in which case what is
left is reported). All else is algebra with V (n, r):

    (K⁻¹ + W)⁻¹ b = V S⁻¹ Vᵀ b,  S = I + Vᵀ W V,  with the dual b − W times that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, eigvalsh, solve_triangular
from scipy.linalg.lapack import dpstrf

from dsgp.errors import DataWarning
from dsgp.terms.base import (
    Cells,
    Evidence,
    Floats,
    Function,
    Observations,
    Posterior,
    Slopes,
    Solver,
    Sum,
)
from dsgp.terms.line import Line

# What a factor leaves out is a rounding error below this share of the largest prior variance.
_ROUNDING = 1e-13
# Number of cells up to which the prior matrix is computed as a whole. Beyond, columns are computed
# one by one, as many as matter and at most the second number.
_AT_ONCE = 1024
MOST_COLUMNS = 2048
# Prior variance in units of the noise beyond which solves are corrected once.
_STEEP = 1e6
# Share of the prior variance that may be left out without a warning.
REPORTED = 1e-6


class Factored(Cells):
    """The algebra of a dense covariance, whatever the inputs are."""

    # ------------------------------------------------------------------ algebra at the cells

    def _factor(self, kernel: Any) -> Floats:
        """V, (n_cells, r)."""
        return self._factored_once(kernel)[0]

    def _factored_once(self, kernel: Any) -> tuple[Floats, NDArray[np.intp]]:
        """V, and the cells whose rows of it are a lower triangle; the last ones are kept."""
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept", {})
        factored: tuple[Floats, NDArray[np.intp]] | None = kept.get(kernel)
        if factored is None:
            factored = self._factored(kernel)
            # Another thread may use another kernel at the same time: what is returned is not looked
            # up again.
            kept.clear()
            kept[kernel] = factored
        return factored

    def _factored(self, kernel: Any) -> tuple[Floats, NDArray[np.intp]]:
        left = self.prior_variance(kernel, self.points)
        tolerance = _ROUNDING * float(left.max(initial=0.0))
        if len(self) <= _AT_ONCE:
            prior = self.prior(kernel, self.points, self.points)
            factor, pivots, rank, _ = dpstrf(prior, tol=tolerance, lower=1, overwrite_a=1)
            columns = np.empty((len(self), rank))
            columns[pivots - 1] = np.tril(factor)[:, :rank]
            return columns, pivots[:rank] - 1
        chosen = np.empty(MOST_COLUMNS, dtype=np.intp)
        columns = np.zeros((len(self), MOST_COLUMNS), order="F")
        for rank in range(MOST_COLUMNS):
            pivot = int(np.argmax(left))
            if left[pivot] <= tolerance:
                return columns[:, :rank], chosen[:rank]
            column = self.prior(kernel, self.points, self.points[pivot : pivot + 1])[:, 0]
            column -= columns[:, :rank] @ columns[pivot, :rank]
            columns[:, rank] = column / np.sqrt(left[pivot])
            chosen[rank] = pivot
            left = np.maximum(left - columns[:, rank] ** 2, 0.0)
            left[pivot] = 0.0
        share = float(left.mean()) / float(self.prior_variance(kernel, self.points).mean())
        if share > REPORTED:
            other = (
                "a state-space form: Matérn, a kernel that states its error, as "
                "SquaredExponential(error=1e-3) does, or Smooth(form='state-space')"
            )
            if kernel.n_states is not None:
                other = (
                    f"its state-space form of {kernel.n_states} components, which is exact: "
                    "Smooth(form='state-space')"
                )
            warnings.warn(
                f"{kernel!r} is too rough for the {MOST_COLUMNS} columns that represent its "
                f"covariance of {len(self)} distinct values: {share:.2g} of its prior variance is "
                f"left out; use fewer bins, or {other}",
                DataWarning,
                stacklevel=2,
            )
        return columns, chosen

    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        columns = self._factor(kernel)
        return columns @ (columns.T @ vector)

    def solver(self, kernel: Any, weight: Floats) -> Solver:
        return self._solver(kernel, weight)

    def _solver(self, kernel: Any, weight: Floats) -> DenseSolver:
        return DenseSolver(self._factor(kernel), weight)

    def complexity(self, kernel: Any, weight: Floats) -> Callable[[float], tuple[float, float]]:
        columns = self._columns_beside(kernel, weight)
        weighted = columns * np.sqrt(weight)[:, None]
        if weighted.shape[0] < weighted.shape[1]:
            weighted = weighted.T
        values = np.maximum(eigvalsh(weighted.T @ weighted, check_finite=False), 0.0)

        def at(factor: float) -> tuple[float, float]:
            dof = float(np.sum(values / (factor + values)))
            return float(np.sum(np.log1p(values / factor))), dof

        return at

    def _columns_beside(self, kernel: Any, weight: Floats) -> Floats:
        """V, or as much of it as its determinant beside the weights takes, (n_cells, r)."""
        return self._factor(kernel)

    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        solver = self._solver(kernel, seen.weight)
        _, dual = solver.solve(seen.weight * seen.target)
        return float(np.sum(seen.target * dual)), solver.log_det

    def posterior(self, kernel: Any, seen: Observations) -> Posterior:
        solver = self._solver(kernel, seen.weight)
        mean, dual = solver.solve(seen.weight * seen.target)
        quadratic, variance = float(np.sum(seen.target * dual)), solver.variances

        def by_log() -> dict[str, float]:
            if not seen.n_observed:
                return dict.fromkeys(kernel.parameters, 0.0)
            if len(self) > _AT_ONCE and len(self._factored_once(kernel)[1]):
                return self._by_log_of_factor(kernel, solver, dual)
            inverse = solver.inverse_of_targets()
            slopes = {name: self.prior_by_log(kernel, name) for name in kernel.parameters}
            return {
                name: 0.5 * float(dual @ slope @ dual - np.sum(inverse * slope))
                for name, slope in slopes.items()
            }

        # log det(I + K W) falls by tr(V W), and the quadratic form by the squares of the noise.
        noise = seen.target[seen.weight > 0] - mean[seen.weight > 0]
        squares = float(np.sum(seen.weight[seen.weight > 0] * noise**2))
        taken = float(np.sum(seen.weight * variance))
        evidence = Evidence(
            value=seen.log_likelihood(quadratic, solver.log_det),
            by_log=Slopes(kernel.parameters, by_log),
            by_log_noise=0.5 * (squares + taken - seen.n_observed) + seen.remainder_by_log_noise,
        )
        return Posterior(
            cells=self,
            kernel=kernel,
            seen=seen,
            mean=mean,
            variance=variance,
            dual=dual,
            evidence=evidence,
            log_det=solver.log_det,
        )

    def _by_log_of_factor(self, kernel: Any, solver: DenseSolver, dual: Floats) -> dict[str, float]:
        """Derivatives of the evidence by the logs of all parameters, in O(n r²).

        With C the covariances with the r chosen cells, A those among them and A = L Lᵀ, the factor
        is V = C L^(−T), and K = V Vᵀ = C A⁻¹ Cᵀ changes by G Vᵀ + V Gᵀ − V B Vᵀ, where
        G = C' L^(−T) and B = L⁻¹ A' L^(−T). Its trace with (K + W⁻¹)⁻¹ needs W V S⁻¹ only, as
        (K + W⁻¹)⁻¹ V = W V S⁻¹.
        """
        columns, chosen = self._factored_once(kernel)
        triangle = columns[chosen]
        inner = cho_solve((solver.inner, True), columns.T, check_finite=False) * solver.weight
        within, projected = inner @ columns, columns.T @ dual
        by_log = {}
        for name in kernel.parameters:
            slope = self.prior_by_log_to(kernel, name, chosen)
            moved = solve_triangular(triangle, slope.T, lower=True, check_finite=False)
            among = solve_triangular(triangle, moved[:, chosen].T, lower=True, check_finite=False)
            square = 2.0 * (moved @ dual) @ projected - projected @ among @ projected
            trace = 2.0 * np.einsum("ru,ru->", inner, moved) - np.sum(among * within)
            by_log[name] = 0.5 * float(square - trace)
        return by_log

    def prior_by_log_to(self, kernel: Any, name: str, chosen: NDArray[np.intp]) -> Floats:
        """Derivative of the prior covariances of all cells with some, (n_cells, n_chosen)."""
        return np.asarray(kernel.by_log(name, self.points, self.points[chosen]))

    def sample(self, kernel: Any, random: np.random.Generator) -> Floats:
        columns = self._factor(kernel)
        return columns @ random.standard_normal(columns.shape[1])

    # ------------------------------------------------------------------ anywhere

    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        return DenseSum(self, kernel, vector)

    def kernel_sums(self, kernel: Any, vectors: Floats) -> Sum:
        return DenseSum(self, kernel, vectors.T)

    def variance_function(self, kernel: Any, weight: Floats) -> Function:
        columns, chosen = self._factored_once(kernel)
        return DenseVariance(self, kernel, DenseSolver(columns, weight), chosen)

    def prior_variance(self, kernel: Any, inputs: Floats) -> Floats:
        return np.asarray(kernel.diagonal(inputs))


class DenseCells(Factored, Line):
    """Points of a line with any kernel that has a dense covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import SquaredExponential
    >>> from dsgp.terms import DenseCells, Observations
    >>> cells = DenseCells(np.array([0.0, 1.0]))
    >>> seen = Observations(target=np.array([1.0, 3.0]), weight=np.array([1.0, 2.0]))
    >>> posterior = cells.posterior(SquaredExponential(1.0, 2.0), seen)
    >>> posterior.mean.round(4)
    array([1.189 , 2.3542])
    """

    def __init__(self, points: Floats) -> None:
        super().__init__(np.ascontiguousarray(points, dtype=np.float64))


@dataclass(frozen=True)
class DenseSolver(Solver):
    """Applies (K⁻¹ + W)⁻¹ by the factor of K."""

    columns: Floats
    weight: Floats

    @cached_property
    def inner(self) -> Floats:
        """Cholesky factor of S = I + Vᵀ W V."""
        return inner_factor(self.columns, self.weight)

    @cached_property
    def _is_steep(self) -> bool:
        """Whether the noise of some cell is tiny beside the prior variance there."""
        squares = np.einsum("ur,ur->u", self.columns, self.columns)
        return bool((self.weight * squares).max(initial=0.0) > _STEEP)

    @property
    def log_det(self) -> float:
        """Log det(I + K W)."""
        return 2 * float(np.sum(np.log(np.diag(self.inner))))

    @cached_property
    def half(self) -> Floats:
        """S^(−1/2) Vᵀ, (r, n_cells)."""
        return solve_triangular(self.inner, self.columns.T, lower=True, check_finite=False)

    @property
    def variances(self) -> Floats:
        """Posterior variances, (n_cells,)."""
        return np.einsum("ru,ru->u", self.half, self.half)

    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        columns = self.columns
        solved = cho_solve((self.inner, True), columns.T @ information, check_finite=False)
        dual = information - self.weight * (columns @ solved)
        if self._is_steep:
            # The dual has the rounding error of the mean times the weights. Without it Vᵀ dual is c
            # again: one correction removes the difference.
            wrong = solved - columns.T @ dual
            solved -= cho_solve((self.inner, True), wrong, check_finite=False)
            dual = information - self.weight * (columns @ solved)
        return columns @ solved, dual

    def inverse_of_targets(self) -> Floats:
        """(K + W⁻¹)⁻¹ = W − W V S⁻¹ Vᵀ W, (n_cells, n_cells)."""
        weighted = self.half * self.weight
        inverse = -(weighted.T @ weighted)
        inverse[np.diag_indices_from(inverse)] += self.weight
        return inverse


def inner_factor(columns: Floats, weight: Floats) -> Floats:
    """Cholesky factor of I + Vᵀ W V."""
    inner = (columns.T * weight) @ columns
    inner[np.diag_indices_from(inner)] += 1.0
    # Beside a huge weight, rounding errors could exceed the identity.
    inner[np.diag_indices_from(inner)] *= 1.0 + 1e-14
    return np.asarray(cholesky(inner, lower=True, overwrite_a=True, check_finite=False))


@dataclass(frozen=True)
class DenseSum:
    """The functions x ↦ k(x, points) @ vectors."""

    cells: Factored
    kernel: Any
    vectors: Floats

    def __call__(self, inputs: Floats) -> Floats:
        """Values at inputs, (n,)."""
        return self.cells.prior(self.kernel, np.asarray(inputs), self.cells.points) @ self.vectors

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs to ``out`` (n_inputs, r)."""
        out += self(inputs)


@dataclass(frozen=True)
class DenseVariance:
    """The posterior variance: that given the function at the cells, and theirs given the rows.

    Two sums of positive parts, neither of which is a small difference of large numbers if the noise
    is tiny: k − |v|² with L v the covariance with the cells of the triangle L, and vᵀ S⁻¹ v.
    """

    cells: Factored
    kernel: Any
    solver: DenseSolver
    chosen: NDArray[np.intp]

    def __call__(self, inputs: Floats) -> Floats:
        """Variances at inputs, (n,)."""
        inputs = np.asarray(inputs)
        prior = self.cells.prior_variance(self.kernel, inputs)
        if not len(self.chosen):
            return prior
        cross = self.cells.prior(self.kernel, self.cells.points[self.chosen], inputs)
        triangle = self.solver.columns[self.chosen]
        weights = solve_triangular(triangle, cross, lower=True, check_finite=False)
        unknown = solve_triangular(self.solver.inner, weights, lower=True, check_finite=False)
        open_variance = np.maximum(prior - np.einsum("ri,ri->i", weights, weights), 0.0)
        return open_variance + np.einsum("ri,ri->i", unknown, unknown)
