"""Fields with gaps, several kernels, or noise that varies: exact means by conjugate gradients.

The system (K + R) α = y is that of the observed cells. A product with K is one on the whole grid,
masked; the preconditioner is Vecchia's factor, or ``spectral`` where all cells are observed with
the same noise. Few cells are solved by dense algebra: ``dense``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import ConvergenceWarning, ParameterError
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.scattered import indices, inner_shape
from dsgp.grid.spectral import SpectralInverse, has_spectrum
from dsgp.grid.vecchia import (
    Cells,
    Factor,
    Ints,
    VecchiaEvidence,
    candidates_of,
    earlier_neighbours,
    local_variance,
    log_likelihood,
)
from dsgp.kernels import Matern
from dsgp.progress import progress
from dsgp.terms import Floats

Bools = NDArray[np.bool_]
# Number of candidates of a target's neighbours: from all cells, and from each of the smaller
# samples.
_CANDIDATES = 30
# Target cells whose neighbours are in memory at a time, 30 MB of them.
_TARGETS = 2**17
# The same along an axis whose covariances are in a table.
_SCATTERED = 1024
# Share of a variance by which a solve for it may exceed the exact one.
_PROBE = 5e-3


@dataclass(frozen=True)
class Solve:
    """A solution, and how accurate it is.

    Attributes
    ----------
    solution : ndarray of shape (n,)
    iterations : int
    residual : float
        Norm of the residual over that of the right-hand side.
    converged : bool
    """

    solution: Floats
    iterations: int
    residual: float
    converged: bool


class CellSystem:
    """A Gaussian process on a grid of which some cells are observed.

    Parameters
    ----------
    prior : SeparableSum
    observed : ndarray of bool, shape (G_1, …, G_D)
    noise : float or ndarray that broadcasts to the grid
        Noise variances; positive where observed.
    n_neighbours : int
        Earlier cells on which Vecchia's factor regresses each one.
    tol : float
        Tolerance of a solve: norm of the residual divided by that of the right-hand side. Where the
        noise variance is at least σ², the root mean square error of the mean over the observed
        cells is at most the root mean square of the residual.
    max_iter : int
    seed : int
        Random seed of the order of elimination.
    rows : ndarray of int, ascending, optional
        Places in that order of the cells whose likelihood is wanted, if that is all.

    Notes
    -----
    Memory: 12 bytes per observed cell and neighbour, and about six arrays of the grid's size.
    """

    def __init__(
        self,
        prior: SeparableSum,
        observed: Bools,
        noise: float | Floats,
        *,
        n_neighbours: int = 30,
        tol: float = 1e-6,
        max_iter: int = 1000,
        seed: int = 0,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.prior = prior
        self.rows = rows
        self.cells = Cells.of(observed, prior, seed)
        self.noise = at_cells(noise, self.cells)
        self.n_neighbours = n_neighbours
        self.tol = tol
        self.max_iter = max_iter

    def with_prior(self, prior: SeparableSum, factor: float) -> CellSystem:
        """Return the same cells and neighbours with another prior, and the noise times a factor."""
        other = copy(self)
        for name in ("factor", "spectral"):
            other.__dict__.pop(name, None)
        other.__dict__["neighbours"] = self.neighbours
        other.prior = prior
        other.noise = factor * self.noise
        return other

    # ------------------------------------------------------------------ the linear system

    @cached_property
    def neighbours(self) -> Ints:
        """Earlier neighbours of every cell."""
        return earlier_neighbours(self.cells, self.prior, self.n_neighbours, self.rows)

    @cached_property
    def factor(self) -> Factor:
        """Vecchia's approximation of the inverse of K + R."""
        return Factor.of(self.cells, self.prior, self.noise, self.neighbours)

    @cached_property
    def spectral(self) -> SpectralInverse | None:
        """The approximation in one eigenbasis per axis; None if a cell or an axis prevents it."""
        if not has_spectrum(self.cells.shape, self.noise):
            return None
        return SpectralInverse.of(self.prior, float(self.noise[0]), self.cells.flat)

    @property
    def preconditioner(self) -> Factor | SpectralInverse:
        """What the iterations of a solve are preconditioned by."""
        return self.factor if self.spectral is None else self.spectral

    def multiply(self, vector: Floats) -> Floats:
        """Return (K + R) vector, (n,)."""
        product = self.prior.multiply(self._on_grid(vector)).reshape(-1)[self.cells.flat]
        product += self.noise * vector
        return product

    def solve(self, rhs: Floats, tol: float | None = None, what: str = "solving") -> Solve:
        """Return (K + R)⁻¹ rhs, (n,)."""
        tol = self.tol if tol is None else tol
        return conjugate_gradients(
            self.multiply,
            self.preconditioner.apply,
            rhs,
            tol=tol,
            max_iter=self.max_iter,
            what=what,
        )

    def _on_grid(self, vector: Floats) -> Floats:
        grid = np.zeros(self.cells.shape)
        grid.reshape(-1)[self.cells.flat] = vector
        return grid

    def _observations(self, y: Floats) -> Floats:
        return y.reshape(-1)[self.cells.flat]

    # ------------------------------------------------------------------ likelihood

    def evidence(
        self, y: Floats, rows: NDArray[np.int64] | None = None, weight: Floats | None = None
    ) -> VecchiaEvidence:
        """Vecchia's log likelihood and its gradient, from all cells or a weighted sample."""
        if rows is None:
            rows = np.arange(len(self.cells))
        if weight is None:
            weight = np.ones(len(rows))
        seen = self._observations(y)
        return log_likelihood(
            self.cells, self.prior, self.noise, seen, self.neighbours, rows, weight
        )

    # ------------------------------------------------------------------ posterior

    def dual(self, y: Floats, tol: float | None = None) -> Solve:
        """Return α = (K + R)⁻¹ y for a field on the grid, whose missing cells are not read."""
        return self.solve(self._observations(y), tol)

    def mean(self, dual: Floats, points: Sequence[Floats] | None = None) -> Floats:
        """Posterior mean on the grid, or on that of other points, from α."""
        grid = self._on_grid(dual)
        return self.prior.multiply(grid) if points is None else self.prior.cross(points, grid)

    def local_variance(
        self, points: Sequence[Floats] | None = None, where: Bools | None = None
    ) -> Floats:
        """Posterior variance given the most informative observed cells near each target.

        It is never below the exact one. ``n_neighbours`` cells are chosen one after the other, by
        how much they explain, from candidates near and far.

        Parameters
        ----------
        points : sequence of ndarrays, optional
            Another grid; by default the cells' own.
        where : ndarray of bool on that grid, optional
            Targets; elsewhere the result is NaN.

        Returns
        -------
        ndarray on that grid
        """
        targets = _Targets.of(self.prior, points)
        out = np.full(targets.shape, np.nan)
        flat = np.arange(out.size) if where is None else np.flatnonzero(where)
        cells = targets.cells(self.cells)
        with progress("variances", total=len(flat)) as bar:
            for start in range(0, len(flat), _TARGETS):
                some = flat[start : start + _TARGETS]
                index = np.stack(np.unravel_index(some, targets.shape), axis=1)
                near = candidates_of(self.cells, self.prior, targets.nearest(index), _CANDIDATES)
                out.reshape(-1)[some] = local_variance(
                    targets.index(index), cells, targets.prior, self.noise, near, self.n_neighbours
                )
                bar.update(len(some))
        return out

    def local_variance_at(self, points: Sequence[Floats], together: Sequence[int]) -> Floats:
        """As ``local_variance`` at points, (n, H_o, …): some axes point by point, others a grid."""
        shape = inner_shape(points, together)
        out = np.empty(shape)
        per_point = math.prod(shape[1:])
        step = max(_TARGETS // max(per_point, 1), 1)
        for d in together:
            if not all(isinstance(term[d], Matern) for term in self.prior.terms):
                # The kernel of such an axis is in a table of all pairs of old and new points.
                step = max(min(step, _SCATTERED, LONG - len(self.prior.points[d])), 1)
        with progress("variances", total=shape[0]) as bar:
            for start in range(0, shape[0], step):
                some = [
                    axis_points[start : start + step] if d in together else axis_points
                    for d, axis_points in enumerate(points)
                ]
                targets = _Targets.of(self.prior, some, direct=True)
                block = inner_shape(some, together)
                index = indices(np.arange(math.prod(block)), block, len(points), together)
                near = candidates_of(self.cells, self.prior, targets.nearest(index), _CANDIDATES)
                out[start : start + step] = local_variance(
                    targets.index(index),
                    targets.cells(self.cells),
                    targets.prior,
                    self.noise,
                    near,
                    self.n_neighbours,
                ).reshape(block)
                bar.update(block[0])
        return out

    def variance_at(self, points: Sequence[float]) -> float:
        """Posterior variance at one place, by a solve, to about 1 %; never below the exact.

        Conjugate gradients minimise xᵀAx − 2xᵀb for the covariances b with the place, and every
        iteration reduces the variance by what it gains. The remaining gain, rᵀA⁻¹r, is estimated by
        the preconditioner.
        """
        residual = np.zeros(len(self.cells))
        for term in self.prior.terms:
            part = np.ones(len(self.cells))
            for d, kernel in enumerate(term):
                profile = kernel.covariance(self.prior.points[d], [points[d]])[:, 0]
                part *= profile[self.cells.index[:, d]]
            residual += part
        variance = self.prior.variance
        direction = np.zeros_like(residual)
        before = 1.0
        for _ in range(self.max_iter):
            smoothed = self.preconditioner.apply(residual)
            left = float(residual @ smoothed)
            if left <= _PROBE * variance:
                break
            direction *= left / before
            direction += smoothed
            before = left
            product = self.multiply(direction)
            length = left / float(direction @ product)
            variance = max(variance - length * left, 0.0)
            residual -= length * product
        return variance

    def deviation(self, random: np.random.Generator, tol: float | None = None) -> Floats:
        """Draw the posterior's deviation from its mean on the grid (Matheron's rule)."""
        field = self.prior.sample(random)
        noise = np.sqrt(self.noise) * random.standard_normal(len(self.cells))
        seen = field.reshape(-1)[self.cells.flat] + noise
        solution = self.solve(seen, tol, what="drawing").solution
        field -= self.prior.multiply(self._on_grid(solution))
        return field


def at_cells(noise: float | Floats, cells: Cells) -> Floats:
    """Return a quantity of the grid, or one number, at the observed cells."""
    full = np.broadcast_to(np.asarray(noise, dtype=float), cells.shape)
    return full[tuple(cells.index.T)]


@dataclass(frozen=True, eq=False)
class _Targets:
    """Cells of another grid beside the observed ones, on the union of their axes."""

    prior: SeparableSum
    old: tuple[NDArray[np.intp], ...] | None  # positions of the old points in the union
    new: tuple[NDArray[np.intp], ...] | None
    closest: tuple[NDArray[np.intp], ...] | None  # the old point nearest to each new one
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls, prior: SeparableSum, points: Sequence[Floats] | None, direct: bool = False
    ) -> _Targets:
        if points is None:
            return cls(prior, None, None, None, prior.shape)
        union = [np.union1d(old, new) for old, new in zip(prior.points, points, strict=True)]
        for d, axis_points in enumerate(union):
            dense = [term[d] for term in prior.terms if not isinstance(term[d], Matern)]
            if len(axis_points) > LONG and dense:
                raise ParameterError(
                    f"axis {d} has {len(axis_points)} points, old and new together, more than "
                    f"{LONG}, and the kernel {dense[0]!r}; predict at fewer new points at a time"
                )
        return cls(
            SeparableSum(tuple(union), prior.terms, direct),
            tuple(np.searchsorted(u, old) for u, old in zip(union, prior.points, strict=True)),
            tuple(np.searchsorted(u, new) for u, new in zip(union, points, strict=True)),
            tuple(_closest(old, new) for old, new in zip(prior.points, points, strict=True)),
            tuple(len(new) for new in points),
        )

    def cells(self, cells: Cells) -> Cells:
        if self.old is None:
            return cells
        index = _mapped(cells.index, self.old)
        return Cells(self.prior.shape, index, cells.flat, cells.rank, cells.wrap)

    def index(self, index: NDArray[np.intp]) -> Ints:
        return index.astype(np.int32) if self.new is None else _mapped(index, self.new)

    def nearest(self, index: NDArray[np.intp]) -> Ints:
        return index.astype(np.int32) if self.closest is None else _mapped(index, self.closest)


def _mapped(index: NDArray[np.integer], places: Sequence[NDArray[np.intp]]) -> Ints:
    return np.stack(
        [place[index[:, d]] for d, place in enumerate(places)], axis=1
    ).astype(np.int32)  # fmt: skip


def _closest(old: Floats, new: Floats) -> NDArray[np.intp]:
    right = np.clip(np.searchsorted(old, new), 1, max(len(old) - 1, 1))
    right = np.minimum(right, len(old) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(new - old[left]) <= np.abs(old[right] - new), left, right)


def conjugate_gradients(
    multiply: Callable[[Floats], Floats],
    precondition: Callable[[Floats], Floats],
    rhs: Floats,
    *,
    tol: float,
    max_iter: int,
    what: str = "solving",
) -> Solve:
    """Solve A x = rhs for a symmetric positive A; warn if that stops above ``tol``.

    The residual is that of the solution, not of the recurrence: where the two differ, it starts
    again from there.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> done = conjugate_gradients(
    ...     lambda v: matrix @ v, lambda v: v / 2, np.array([3.0, 4.0]), tol=1e-12, max_iter=10
    ... )
    >>> done.solution.round(6), done.converged
    (array([1., 1.]), True)
    """
    scale = float(np.linalg.norm(rhs))
    target = tol * scale
    solution = np.zeros_like(rhs)
    residual = rhs.copy()
    norm = float(np.linalg.norm(residual))
    iteration = 0
    best = np.inf
    with progress(what) as bar:
        while norm > target and iteration < max_iter and norm < 0.5 * best:
            best = norm
            smoothed = precondition(residual)
            direction = smoothed.copy()
            rho = float(residual @ smoothed)
            while float(np.linalg.norm(residual)) > target and iteration < max_iter:
                iteration += 1
                product = multiply(direction)
                length = rho / float(direction @ product)
                solution += length * direction
                residual -= length * product
                smoothed = precondition(residual)
                rho, before = float(residual @ smoothed), rho
                direction *= rho / before
                direction += smoothed
                bar.update(residual=float(np.linalg.norm(residual)) / scale, until=tol)
            residual = rhs - multiply(solution)
            norm = float(np.linalg.norm(residual))
    relative = norm / scale if scale > 0 else 0.0
    converged = relative <= 1.1 * tol
    if not converged:
        warnings.warn(
            f"conjugate gradients stopped after {iteration} iterations at a relative residual of "
            f"{relative:.2g}, above tol={tol:g}; raise max_iter, use more neighbours, or give a "
            "noise variance that is less tiny compared with the field's",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Solve(solution, iteration, relative, converged)
