"""Which algebra a grid gets, by its gaps, noise and size; all answer the same questions.

Complete, one separable kernel, one noise: ``kronecker``, or ``fibres`` where that is cheaper, along
an axis of many points.
Everything else: ``dense`` for few observed cells, ``missing`` for more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from dsgp.axis import Floats
from dsgp.errors import ParameterError
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.missing import Bools, CellSystem, Solve
from dsgp.kernels import Kernel, Matern

Method = Literal["kronecker", "fibres", "dense", "conjugate gradients"]
VarianceMethod = Literal["exact", "local", "draws"]

# Seconds of an evaluation of likelihood and gradient: of an axis of n points by dense algebra, n³;
# by smoothing along it, for each cell and for each fibre.
_CUBED, _CELL, _FIBRE = 1e-10, 1e-7, 5e-5

# Up to so many observed cells all is done by dense algebra.
DENSE_CELLS = 1500
# Exact variances of gappy fields by dense algebra are chosen up to so many multiplications.
_DENSE_WORK = 2e10
# Targets at which local variances are compared with exact ones.
_PROBES = 4


class System(Protocol):
    """What every algebra answers; ``y`` is the field minus its prior mean."""

    def posterior(self, y: Floats) -> tuple[Floats, Floats]:
        """Mean and variance on the grid."""

    def predict(self, points: Sequence[Floats], y: Floats) -> tuple[Floats, Floats]:
        """Mean and variance on another grid."""

    def sample(
        self, y: Floats, n: int, rng: np.random.Generator, points: Sequence[Floats] | None = None
    ) -> Floats:
        """Draws of the field, (n, …)."""


def complete_system(
    points: Sequence[Floats], kernels: Sequence[Kernel], noise: float
) -> KroneckerSystem | FibreSystem:
    """Return the algebra of a complete grid with one separable kernel and one noise variance.

    Both are exact; the cheaper one is taken. Axes of more than 4096 points are always smoothed.

    Raises
    ------
    ParameterError
        If so long an axis has no Matérn kernel.
    """
    longest = max(range(len(points)), key=lambda d: len(points[d]))
    n_cells = math.prod(len(own) for own in points)
    decomposing = _CUBED * len(points[longest]) ** 3
    smoothing = _CELL * n_cells + _FIBRE * n_cells / len(points[longest])
    has_states = isinstance(kernels[longest], Matern)
    if len(points[longest]) <= LONG and not (has_states and decomposing > 2 * smoothing):
        return KroneckerSystem(points, kernels, noise)
    if not has_states:
        raise ParameterError(
            f"axis {longest} has {len(points[longest])} points, more than {LONG}, and the kernel "
            f"{kernels[longest]!r}; expected a Matérn kernel on so long an axis"
        )
    return FibreSystem(points, kernels, noise, long=longest)


class GappySystem:
    """A grid with gaps, several separable kernels, or noise that differs between cells.

    Parameters
    ----------
    prior : SeparableSum
    observed : ndarray of bool, shape (G_1, …, G_D)
    noise : float or ndarray that broadcasts to it
    domain : ndarray of bool of that shape, or None
        Cells whose variance is wanted; the others' is NaN. None: all.
    variance : {"auto", "exact", "local", "draws"}
        "exact": dense algebra. "local": given the ``n_neighbours`` most telling observed cells
        around each target, never below the exact one. "draws": the scatter of ``n_draws``
        posterior draws, whose standard deviation has a relative error of 1/√(2 n_draws).
    """

    def __init__(
        self,
        prior: SeparableSum,
        observed: Bools,
        noise: float | Floats,
        *,
        domain: Bools | None = None,
        variance: str = "auto",
        n_neighbours: int = 30,
        n_draws: int = 64,
        tol: float = 1e-6,
        max_iter: int = 1000,
        seed: int = 0,
    ) -> None:
        self.prior = prior
        self.observed = observed
        self.noise = noise
        self.domain = domain
        self.n_draws = n_draws
        self.seed = seed
        self.options = {
            "n_neighbours": n_neighbours,
            "tol": tol,
            "max_iter": max_iter,
            "seed": seed,
        }
        n = int(np.count_nonzero(observed))
        n_targets = observed.size if domain is None else int(np.count_nonzero(domain))
        if variance == "auto":
            exact = n <= DENSE_CELLS and float(n) ** 2 * n_targets <= _DENSE_WORK
            variance = "exact" if exact else "local"
        elif variance == "exact" and n > DENSE_CELLS:
            raise ParameterError(
                f"variance='exact' is by dense algebra of the observed cells, of which there are "
                f"{n}, more than {DENSE_CELLS}; take 'local' (an upper bound), 'draws', or 'auto'"
            )
        self.variance_method = variance
        self.is_dense = n <= DENSE_CELLS

    @cached_property
    def dense(self) -> DenseSystem:
        """By dense algebra."""
        return DenseSystem(self.prior, self.observed, self.noise)

    @cached_property
    def cells(self) -> CellSystem:
        """By conjugate gradients."""
        return CellSystem(self.prior, self.observed, self.noise, **self.options)  # type: ignore[arg-type]

    def dual(self, y: Floats) -> Floats:
        """α = (K + R)⁻¹ y on the grid, 0 where nothing is observed."""
        return self.solve(y)[0]

    def solve(self, y: Floats) -> tuple[Floats, Solve | None]:
        """Return α on the grid, and how it was reached if not by dense algebra."""
        grid = np.zeros(self.observed.shape)
        if self.is_dense:
            grid[self.observed] = self.dense.dual(y)
            return grid, None
        done = self.cells.dual(y)
        grid.reshape(-1)[self.cells.cells.flat] = done.solution
        return grid, done

    def log_marginal_likelihood(self, y: Floats) -> float:
        """Exact by dense algebra, else Vecchia's."""
        if self.is_dense:
            return self.dense.evidence(y).value
        return self.cells.factor.log_likelihood(y.reshape(-1)[self.cells.cells.flat])

    def mean(self, dual: Floats, points: Sequence[Floats] | None = None) -> Floats:
        """Posterior mean from α on the grid."""
        return self.prior.multiply(dual) if points is None else self.prior.cross(points, dual)

    def variance(self, points: Sequence[Floats] | None = None) -> Floats:
        """Posterior variance on the grid, or on another."""
        where = self.domain if points is None else None
        if self.variance_method == "exact":
            return self.dense.posterior(np.zeros(self.observed.shape), points, where)[1]
        if self.variance_method == "local":
            return self.cells.local_variance(points, where)
        random = np.random.default_rng([self.seed, 1])
        total: Floats = np.zeros(self.observed.shape if points is None else
                                 tuple(len(own) for own in points))  # fmt: skip
        for deviation in self._deviations(self.n_draws, random, points):
            total += deviation**2
        total /= self.n_draws
        return total if where is None else np.where(where, total, np.nan)

    def variance_error(self) -> float | None:
        """Mean relative excess of the local standard deviation at a few targets; None if exact."""
        if self.variance_method == "exact":
            return None
        if self.variance_method == "draws":
            return float(1 / np.sqrt(2 * self.n_draws))
        places = np.flatnonzero(
            ~self.observed if self.domain is None else self.domain & ~self.observed
        )
        if not len(places):
            places = np.arange(self.observed.size)
        chosen = np.random.default_rng([self.seed, 2]).choice(places, min(_PROBES, len(places)))
        where = np.zeros(self.observed.size, dtype=bool)
        where[chosen] = True
        local = self.cells.local_variance(where=where.reshape(self.observed.shape)).reshape(-1)
        ratios = []
        for flat in chosen:
            index = np.unravel_index(flat, self.observed.shape)
            place = [float(own[i]) for own, i in zip(self.prior.points, index, strict=True)]
            exact = self.cells.variance_at(place)
            ratios.append(np.sqrt(local[flat] / exact) if exact > 0 else 1.0)
        return float(np.mean(ratios) - 1.0)

    def posterior(self, y: Floats) -> tuple[Floats, Floats]:
        return self.mean(self.dual(y)), self.variance()

    def predict(self, points: Sequence[Floats], y: Floats) -> tuple[Floats, Floats]:
        return self.mean(self.dual(y), points), self.variance(points)

    def sample(
        self, y: Floats, n: int, rng: np.random.Generator, points: Sequence[Floats] | None = None
    ) -> Floats:
        mean = self.mean(self.dual(y), points)
        return np.array([mean + deviation for deviation in self._deviations(n, rng, points)])

    def _deviations(self, n: int, random: np.random.Generator, points: Sequence[Floats] | None):  # type: ignore[no-untyped-def]
        """Draw the posterior's deviation from its mean, n times."""
        if points is None:
            system: DenseSystem | CellSystem = self.dense if self.is_dense else self.cells
            for _ in range(n):
                yield system.deviation(random)
            return
        union = [np.union1d(own, new) for own, new in zip(self.prior.points, points, strict=True)]
        own = np.ix_(*map(np.searchsorted, union, self.prior.points))
        new = np.ix_(*map(np.searchsorted, union, points))
        observed = np.zeros([len(axis) for axis in union], dtype=bool)
        observed[own] = self.observed
        noise = np.ones(observed.shape)
        noise[own] = self.noise
        larger = SeparableSum(tuple(union), self.prior.terms)
        on_union: DenseSystem | CellSystem = (
            DenseSystem(larger, observed, noise)
            if self.is_dense
            else CellSystem(larger, observed, noise, **self.options)  # type: ignore[arg-type]
        )
        for _ in range(n):
            yield on_union.deviation(random)[new]
