"""Levels of a category: independent effects, in O(n) for any number of levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsgp.terms.base import (
    Cells,
    Codes,
    Evidence,
    Floats,
    Function,
    Observations,
    Posterior,
    Solver,
)

# Largest number of entries in the tables of a coarse space, which has a row for each of its levels.
_COARSE_ENTRIES = 2e7


class LevelCells(Cells):
    """Levels by their numbers, with K = v I: their effects are independent.

    Parameters
    ----------
    points : ndarray of shape (n_levels,)
        Increasing numbers. An input that is not among them is an unknown level, whose effect is
        distributed as its prior.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Independent
    >>> from dsgp.terms import LevelCells, Observations
    >>> levels = LevelCells(np.array([0.0, 1.0]))
    >>> seen = Observations(target=np.array([1.0, 3.0]), weight=np.array([1.0, 0.0]))
    >>> mean, variance = levels.posterior(Independent(3.0), seen).predict(np.array([0.0, 1.0, 7.0]))
    >>> mean, variance
    (array([0.75, 0.  , 0.  ]), array([0.75, 3.  , 3.  ]))
    """

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)

    # ------------------------------------------------------------------ algebra at the cells

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        return np.asarray(kernel.covariance(x, y))

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        return np.asarray(kernel.by_log(name, self.points))

    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        return kernel.std**2 * vector

    def multiply_each(self, kernel: Any, vectors: Floats) -> Floats:
        return self.multiply(kernel, vectors)

    def solver(self, kernel: Any, weight: Floats) -> LevelSolver:
        return LevelSolver(kernel.std**2, 1.0 + kernel.std**2 * weight)

    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        ratio = 1.0 + kernel.std**2 * seen.weight
        quadratic = float(np.sum(seen.weight * seen.target**2 / ratio))
        return quadratic, float(np.sum(np.log(ratio)))

    def posterior(self, kernel: Any, seen: Observations) -> Posterior:
        variance = kernel.std**2
        ratio = 1.0 + variance * seen.weight
        dual = seen.weight * seen.target / ratio
        quadratic = float(np.sum(dual * seen.target))
        log_det = float(np.sum(np.log(ratio)))
        observed = seen.weight > 0
        # Where the weight is 0, dual and shrinkage are 0 and add nothing.
        by_noise = float(np.sum(dual * seen.target / ratio) - np.sum(1.0 / ratio[observed]))
        by_variance = float(variance * np.sum(dual**2) - np.sum(1.0 - 1.0 / ratio))
        evidence = Evidence(
            value=seen.log_likelihood(quadratic, log_det),
            by_log={"variance": 0.5 * by_variance},
            by_log_noise=0.5 * by_noise + seen.remainder_by_log_noise,
        )
        return Posterior(
            cells=self,
            kernel=kernel,
            seen=seen,
            mean=variance * dual,
            variance=variance / ratio,
            dual=dual,
            evidence=evidence,
            log_det=log_det,
        )

    def sample(self, kernel: Any, random: np.random.Generator) -> Floats:
        return kernel.std * random.standard_normal(len(self))

    # ------------------------------------------------------------------ anywhere

    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        return Lookup(self, kernel.std**2 * vector, 0.0)

    def kernel_sums(self, kernel: Any, vectors: Floats) -> Lookups:
        return Lookups(self, kernel.std**2 * np.ascontiguousarray(vectors.T))

    def variance_function(self, kernel: Any, weight: Floats) -> Function:
        return Lookup(self, kernel.std**2 / (1.0 + kernel.std**2 * weight), kernel.std**2)

    def codes(self, inputs: Floats) -> Codes:
        """Code of each input, (n,); the number of levels where it is none of them."""
        place = np.searchsorted(self.points, inputs)
        known = self.points[np.minimum(place, len(self) - 1)] == inputs
        return np.where(known, place, len(self))

    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        union, where = np.unique(np.concatenate([self.points, inputs]), return_inverse=True)
        return type(self)(union), where[: len(self)], where[len(self) :]

    # ------------------------------------------------------------------ fewer cells

    def subset(self, chosen: Sequence[int] | Codes) -> Self:
        return type(self)(self.points[chosen])

    def bins(self, weight: Floats, n_bins: int) -> Codes:
        return np.arange(len(self))  # levels do not merge

    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Self, Floats]:
        return self, np.zeros(len(self)) if spread is None else spread

    def fewest_bins(self) -> int:
        return len(self)

    def chosen(self, weight: Floats, number: int) -> Codes:
        number = max(8, min(number, int(_COARSE_ENTRIES / len(self))))
        if len(self) <= number:
            return np.arange(len(self))
        # The levels with the most rows: for the others, the solvers' own steps converge fast.
        return np.sort(np.argsort(-weight, kind="stable")[:number])

    def nodes(self, weight: Floats, number: int) -> Codes:
        return np.arange(len(self))

    def interpolation(self, nodes: Codes) -> Floats | None:
        return None

    def interpolated(self, values: Floats, others: Cells) -> Floats:
        return Lookup(self, values, 0.0)(others.points)

    @property
    def has_levels(self) -> bool:
        return True

    def is_known(self, inputs: Floats) -> NDArray[np.bool_]:
        return self.codes(inputs) < len(self)

    @property
    def is_diagonal(self) -> bool:
        return True


@dataclass(frozen=True)
class LevelSolver(Solver):
    """Applies (I / v + W)⁻¹."""

    variance: float
    ratio: Floats

    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        dual = information / self.ratio
        return self.variance * dual, dual


@dataclass(frozen=True)
class Lookup:
    """Values of the levels, and another one of any level that is not among them."""

    cells: LevelCells
    values: Floats
    otherwise: float

    def __call__(self, inputs: Floats) -> Floats:
        """Values at inputs, (n,)."""
        return np.append(self.values, self.otherwise)[self.cells.codes(np.asarray(inputs))]


@dataclass(frozen=True)
class Lookups:
    """Several values of each level, 0 of any other."""

    cells: LevelCells
    values: Floats

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs to ``out`` (n_inputs, r)."""
        codes = self.cells.codes(inputs)
        known = codes < len(self.cells)
        out[known] += self.values[codes[known]]
