"""The linear system of the additive posterior mean, and its error bound.

With f = Σ_d Z_d f_d and precisions W of the rows, the tables F = (f_1 … f_D) solve

    (K̃⁻¹ + Zᵀ W Z) F = Zᵀ W y,    K̃ = blockdiag(K_1 … K_D).

K_d⁻¹ is never formed: every vector travels with its dual K̃⁻¹ F, which a smoothing step yields for
free. Rows do not move; only tables do. Vectors are flat tables (k, Σ U_d), k right-hand sides at
once: they share the smoothers' gains, the coarse matrix and every pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.equations import Equations
from dsgp.compute import run
from dsgp.kernels import Kernel
from dsgp.terms import Floats, Solver

# Seconds of compiled work per point. They only decide whether a task graph is worth its cost.
_SOLVE = 2e-8
_FILTER = 4e-8
_SMALLEST = np.finfo(float).tiny

Pair = tuple[Floats, Floats]
"""Mean and dual of all tables."""


@dataclass(frozen=True)
class Solution:
    """Posterior mean of an additive model, as tables, and how well it is known.

    Attributes
    ----------
    mean : ndarray of shape (Σ U_d,) or (k, Σ U_d)
        f_d at the points of its axis, term after term.
    dual : ndarray of the same shape
        K_d⁻¹ f_d: the posterior mean at any input x is k_d(x, points) @ dual.
    iterations : int
    error_bound : float
        The error of f_d anywhere is at most this many prior standard deviations of f_d.
    converged : bool
        Whether the bound met the tolerance.
    """

    mean: Floats
    dual: Floats
    iterations: int
    error_bound: float
    converged: bool


class AdditiveSystem:
    """The system for one set of equations, one kernel per term and a noise variance.

    Parameters
    ----------
    equations : Equations
    kernels : list of kernels, one per term, with all their parameters
    noise_variance : float
        That of a row of weight 1.
    least_precision : float
        Coarse spaces leave out directions about which the rows together add less than this share
        of the prior's precision.
    constant : float, optional
        Precision of the prior of a constant that is unknown beside the terms: 0 for a flat one.
        It is integrated out of the system. None: the targets have no such constant.
    """

    def __init__(
        self,
        equations: Equations,
        kernels: list[Kernel],
        noise_variance: float,
        least_precision: float = 0.0,
        constant: float | None = None,
    ) -> None:
        self.equations = equations
        self.layout = equations.layout
        self.kernels = kernels
        self.noise_variance = noise_variance
        self.least_precision = least_precision
        self.constant = constant
        self.weight = equations.weight / noise_variance
        """Sum of the precisions in each cell, (Σ U_d,)."""
        same = equations.multiplied is None
        self.ones = self.weight if same else equations.ones / noise_variance
        """ZᵀW1, (Σ U_d,): the same where no term has multipliers."""

    @property
    def total_weight(self) -> float:
        """Precision of the constant, were all terms known."""
        return self.equations.total_weight / self.noise_variance + (self.constant or 0.0)

    @cached_property
    def information(self) -> Floats:
        """Zᵀ W y, (Σ U_d,), with the constant projected out of W if there is one."""
        information = self.equations.information / self.noise_variance
        if self.constant is None:
            return information
        total = self.equations.total_information / self.noise_variance
        return information - (total / max(self.total_weight, _SMALLEST)) * self.ones

    def constant_at(self, mean: Floats) -> float:
        """Posterior mean of the constant, where that of the terms is (Σ U_d,)."""
        total = self.equations.total_information / self.noise_variance
        return float((total - np.sum(self.ones * mean)) / max(self.total_weight, _SMALLEST))

    def given_constant(self, constant: float) -> AdditiveSystem:
        """Return the system of the targets less a constant that is known."""
        return AdditiveSystem(
            self.equations.less(constant), self.kernels, self.noise_variance, self.least_precision
        )

    @cached_property
    def solvers(self) -> list[Solver]:
        """The smoother of each term, its gains computed."""
        tasks = [
            partial(cells.solver, kernel, weight)
            for cells, kernel, weight in zip(
                self.layout.cells, self.kernels, self.layout.parts(self.weight), strict=True
            )
        ]
        return run(tasks, _FILTER * self.layout.size)

    @cached_property
    def _constants(self) -> list[tuple[Floats, Floats, float]]:
        """What each smoother makes of a target of ones, its dual, and 1ᵀ V_d⁻¹ 1."""
        constants = []
        for solver, weight, ones in zip(
            self.solvers,
            self.layout.parts(self.weight),
            self.layout.parts(self.ones),
            strict=True,
        ):
            mean, dual = solver.solve(ones)
            if self.equations.multiplied is None:
                left = max(self.total_weight - float(weight.sum()), 0.0) + float(dual.sum())
            else:
                left = max(self.total_weight - float(np.sum(ones * mean)), 0.0)
            constants.append((mean, dual, left))
        return constants

    # ------------------------------------------------------------------ operators on (k, Σ U_d)

    def multiply(self, flat: Floats) -> Floats:
        """Zᵀ W Z times vectors, with the constant projected out of W if there is one."""
        product = self.equations.multiply(flat) / self.noise_variance
        if self.constant is not None:
            sums = np.einsum("...i,i->...", flat, self.ones) / max(self.total_weight, _SMALLEST)
            product -= sums[..., None] * self.ones
        return product

    def solve_term(self, term: int, information: Floats) -> Pair:
        """Return (K_d⁻¹ + W_d)⁻¹ b of a single term, and its dual, for vectors b (k, U_d)."""
        return self._beside_constant(term, _each(self.solvers[term].solve, information))

    def _beside_constant(self, term: int, pair: Pair) -> Pair:
        """Correct the result of a smoother for W_d from which the constant is projected out."""
        if self.constant is None:
            return pair
        # By the Sherman–Morrison formula: W_d lacks b bᵀ / Σ w, with b = ZᵀW1.
        means, duals = pair
        mean, dual, left = self._constants[term]
        ones = self.layout.part(self.ones, term)
        share = np.einsum("ki,i->k", means, ones)[:, None] / max(left, _SMALLEST)
        return means + share * mean, duals + share * dual

    def smooth(self, information: Floats) -> Pair:
        """Block-Jacobi: blockdiag(K_d⁻¹ + W_d)⁻¹ b, every term by itself, and its dual."""
        tasks = [
            partial(_each, solver.smooth, part)
            for solver, part in zip(self.solvers, self.layout.parts(information), strict=True)
        ]
        solved = run(tasks, _SOLVE * information.size)
        if not solved:
            return np.zeros_like(information), np.zeros_like(information)
        pairs = [self._beside_constant(term, pair) for term, pair in enumerate(solved)]
        means, duals = zip(*pairs, strict=True)
        return np.concatenate(means, axis=1), np.concatenate(duals, axis=1)

    def multiply_prior(self, flat: Floats) -> Floats:
        """K̃ times vectors."""
        tasks = [
            partial(cells.multiply_each, kernel, part)
            for cells, kernel, part in zip(
                self.layout.cells, self.kernels, self.layout.parts(flat), strict=True
            )
        ]
        parts = run(tasks, _SOLVE * flat.size)
        return np.concatenate(parts, axis=1) if parts else np.zeros_like(flat)

    def prior_norm(self, flat: Floats) -> Floats:
        """sqrt(rᵀ K̃ r) of each vector, (k,)."""
        return np.sqrt(np.maximum(dot(flat, self.multiply_prior(flat)), 0.0))


def dot(a: Floats, b: Floats) -> Floats:
    """Inner product of each pair of vectors, (k,)."""
    return np.einsum("ki,ki->k", a, b)


def _each(solve: Callable[[Floats], Pair], information: Floats) -> Pair:
    means, duals = np.empty(information.shape), np.empty(information.shape)
    for k, vector in enumerate(information):
        means[k], duals[k] = solve(vector)
    return means, duals


@dataclass(frozen=True)
class Candidate:
    """Pairs (mean, dual), their residuals, and bounds on their errors.

    The system matrix is at least K̃⁻¹, so with r the residual of the system the error of f_d at any
    input is at most s_d sqrt(rᵀ K̃ r), s_d its prior standard deviation, where mean = K̃ dual
    exactly. Rounding leaves a mismatch δ = mean − K̃ dual. It is worth δ itself and a posterior mean
    of the data Z δ, whose components are at most s_d sqrt(δᵀ Zᵀ W Z δ): both are added.
    """

    mean: Floats
    dual: Floats
    residual: Floats
    mismatch_bound: Floats
    bound: Floats

    @classmethod
    def of(cls, system: AdditiveSystem, rhs: Floats, mean: Floats, dual: Floats) -> Candidate:
        """Compute residuals and bounds of pairs (k, Σ U_d); the pairs are copied."""
        residual = rhs - system.multiply(mean) - dual
        mismatch = mean - system.multiply_prior(dual)
        mismatch_bound = np.sqrt(np.maximum(dot(mismatch, system.multiply(mismatch)), 0.0))
        if system.kernels:
            mismatch_bound += np.max(
                [
                    np.abs(part).max(axis=1) / kernel.std
                    for part, kernel in zip(
                        system.layout.parts(mismatch), system.kernels, strict=True
                    )
                ],
                axis=0,
            )
        bound = system.prior_norm(residual) + mismatch_bound
        return cls(mean.copy(), dual.copy(), residual, mismatch_bound, bound)

    def matched(self, system: AdditiveSystem, rhs: Floats) -> Candidate:
        """Return the pairs (K̃ dual, dual): no mismatch is left, but a larger residual."""
        return Candidate.of(system, rhs, system.multiply_prior(self.dual), self.dual)

    @classmethod
    def start(cls, system: AdditiveSystem, rhs: Floats, start: Pair | None) -> Candidate:
        """Where a solver begins: an earlier pair, or 0."""
        if start is not None:
            return cls.of(system, rhs, *(vectors.reshape(rhs.shape) for vectors in start))
        nothing = np.zeros_like(rhs)
        exact = np.zeros(len(rhs))
        return cls(nothing, nothing, rhs.copy(), exact, system.prior_norm(rhs))

    def where(self, better: NDArray[np.bool_], other: Candidate) -> Candidate:
        """Take the other's vectors where ``better``, (k,)."""
        row = better[:, None]
        return Candidate(
            np.where(row, other.mean, self.mean),
            np.where(row, other.dual, self.dual),
            np.where(row, other.residual, self.residual),
            np.where(better, other.mismatch_bound, self.mismatch_bound),
            np.where(better, other.bound, self.bound),
        )

    def solution(self, iterations: int, tol: float, shape: tuple[int, ...]) -> Solution:
        """Freeze it; vectors take the shape of the right-hand side."""
        bound = float(self.bound.max(initial=0.0))
        return Solution(
            mean=self.mean.reshape(shape),
            dual=self.dual.reshape(shape),
            iterations=iterations,
            error_bound=bound,
            converged=bound <= tol,
        )
