"""Grids as fibres along one axis, and products over the other axes, block by block of steps.

Fibres are the rows of an array (n_fibres, n_steps), whichever axis they run along in the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeVar

import numpy as np

from dsgp.compute import run
from dsgp.errors import DataError
from dsgp.grid.kronecker import Eigenbasis, kron_mvprod
from dsgp.terms import Floats

Result = TypeVar("Result")

# Cells of a block of steps, whose temporaries stay in the cache.
_BLOCK = 2**18
# Seconds of compiled work per cell, which decide whether threads are worth their cost.
_TURNING = 5e-9


class Rotation:
    """Eigenbases of all axes but one, applied to fields that are held fibre by fibre.

    Results do not depend on the number of threads, where callers hold BLAS to one of its own.
    Temporaries are of 2¹⁸ cells per thread.

    Parameters
    ----------
    bases : sequence of Eigenbasis
        Of the other axes, in their order.
    long : int
        The axis that fibres run along.
    n_steps : int
        Its length.
    """

    def __init__(self, bases: Sequence[Eigenbasis], long: int, n_steps: int) -> None:
        self.bases = list(bases)
        self.long = long
        self.n_steps = n_steps
        self.others = tuple(len(basis.values) for basis in self.bases)
        # Eigenvalue of every fibre.
        self.scales: Floats = self._outer([basis.values for basis in self.bases]).ravel()

    @property
    def vectors(self) -> list[Floats]:
        """Eigenvectors of each other axis, (G_d, G_d)."""
        return [basis.vectors for basis in self.bases]

    @property
    def squares(self) -> list[Floats]:
        """Squares of the eigenvectors, which sum the variances of independent fibres."""
        return [basis.vectors**2 for basis in self.bases]

    def fibres(self, y: Floats) -> Floats:
        """Rotate a field by the eigenvectors, into a new array (n_fibres, n_steps).

        Raises
        ------
        DataError
            If the field is of another shape or not finite.
        """
        y = np.asarray(y)
        shape = (*self.others[: self.long], self.n_steps, *self.others[self.long :])
        if y.shape != shape:
            raise DataError(f"y must have the shape of the grid, {shape}; got {y.shape}")
        moved = np.moveaxis(y, self.long, -1)
        out = np.empty((len(self.scales), self.n_steps))
        matrices = [*(vectors.T for vectors in self.vectors), None]

        def rotate(steps: slice) -> bool:
            block = np.ascontiguousarray(moved[..., steps], dtype=np.float64)
            turned = kron_mvprod(matrices, block)
            out[:, steps] = turned.reshape(len(out), -1)
            return bool(np.isfinite(turned).all())

        if not all(self._over_steps(rotate, self.n_steps)):
            raise DataError(
                "y must be finite at every cell; fill its gaps, or use the solver of observed cells"
            )
        return out

    def field(self, matrices: Sequence[Floats], fibres: Floats, in_place: bool = False) -> Floats:
        """Multiply the other axes of fibres by matrices (H_d, G_d), and put the axes in order.

        In place, where every H_d is G_d, the field is a view of what were the fibres.
        """
        shape = tuple(len(matrix) for matrix in matrices)
        rows, n = math.prod(shape), fibres.shape[1]
        out = fibres if in_place else np.empty((rows, n))

        def turn(steps: slice) -> None:
            block = np.ascontiguousarray(fibres[:, steps]).reshape(*self.others, -1)
            turned = kron_mvprod([*matrices, None], block)
            out[:, steps] = turned.reshape(rows, block.shape[-1])

        self._over_steps(turn, n)
        return np.moveaxis(out.reshape(*shape, n), -1, self.long)

    def score(
        self, position: int, slope: Floats, duals: Floats, products: Floats, traces: Floats
    ) -> float:
        """Derivative of a log marginal likelihood by a parameter of one other axis.

        ½ Σ_jk B_jk λ (α_jᵀ K_t α_k − [j = k] tr_j), B = Qᵀ ∂K Q of that axis and λ of the rest.

        Parameters
        ----------
        position : int
            Which of the other axes.
        slope : ndarray of shape (G_d, G_d)
            ∂K, derivative of its covariance.
        duals, products : ndarray of shape (n_fibres, n_steps)
            α_j = (λ_j K_t + σ² I)⁻¹ y_j, and K_t α_j.
        traces : ndarray of shape (n_fibres,)
            tr (λ_j K_t + σ² I)⁻¹ K_t.
        """
        vectors = self.bases[position].vectors
        values = [basis.values for basis in self.bases]
        values[position] = np.ones(len(vectors))
        rest = self._outer(values)
        contracted = [axis for axis in range(rest.ndim + 1) if axis != position]

        def inner(steps: slice) -> Floats:
            left = rest[..., None] * duals[:, steps].reshape(*self.others, -1)
            right = products[:, steps].reshape(*self.others, -1)
            return np.tensordot(left, right, axes=(contracted, contracted))

        pairs = sum(self._over_steps(inner, self.n_steps), np.zeros_like(slope))
        weighed = np.moveaxis(rest * traces.reshape(self.others), position, 0)
        turned = vectors.T @ slope @ vectors
        trace = float(np.sum(np.diag(turned) * weighed.reshape(len(turned), -1).sum(axis=1)))
        return 0.5 * (float(np.sum(turned * pairs)) - trace)

    def _over_steps(self, task: Callable[[slice], Result], n_steps: int) -> list[Result]:
        """Run a task for every block of steps, on threads."""
        block = max(1, _BLOCK // len(self.scales))
        starts = range(0, n_steps, block)
        return run(
            [partial(task, slice(start, start + block)) for start in starts],
            _TURNING * n_steps * len(self.scales),
            in_place=True,
        )

    @staticmethod
    def _outer(values: list[Floats]) -> Floats:
        return np.asarray(reduce(np.multiply.outer, values, np.ones(())))
