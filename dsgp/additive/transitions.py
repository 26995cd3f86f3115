"""Tables of Φ and Q along an axis: once for each distinct step, in tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.compute import run
from dsgp.errors import DataError
from dsgp.kernels import Kernel, StateSpace
from dsgp.terms import Floats

# Distinct steps per task, and seconds per step and entry of the state's matrices.
_STEPS, _SECONDS = 4096, 1e-7


@dataclass(frozen=True)
class TransitionTable:
    """Transitions Φ and process noise Q of a Gauss–Markov process along sorted points.

    Regular axes, and columns of few digits, have few distinct steps, whatever the number of their
    points.

    Attributes
    ----------
    steps : ndarray of shape (k,)
        The distinct steps, increasing, in the units of the input.
    index : ndarray of shape (n_points − 1,)
        Which of them leads from each point to the next.
    transition, process_noise : ndarray of shape (k, m, m)

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Matern32
    >>> from dsgp.additive import TransitionTable
    >>> table = TransitionTable.of(Matern32(1.0, 1.0), np.array([0.0, 0.5, 1.0, 3.0, 3.5]))
    >>> table.steps, table.index, table.transition.shape
    (array([0.5, 2. ]), array([0, 0, 1, 0]), (2, 2, 2))
    """

    steps: Floats
    index: NDArray[np.intp]
    transition: Floats
    process_noise: Floats

    @classmethod
    def of(cls, kernel: Kernel | StateSpace, points: ArrayLike) -> TransitionTable:
        """Build the tables, on the workers of the active client if that is faster, else on threads.

        Parameters
        ----------
        kernel : Kernel with a state-space form, or StateSpace
            A ``StateSpace`` has a chosen order or error.
        points : array_like of shape (n_points,)
            Finite and increasing.

        Raises
        ------
        DataError
            If the points do not increase, or are not finite.
        ParameterError
            If the kernel has no state-space form, or no values of its parameters yet.
        """
        space = kernel if isinstance(kernel, StateSpace) else kernel.state_space()
        points = np.asarray(points, dtype=float)
        if points.ndim != 1 or not np.isfinite(points).all() or not (np.diff(points) > 0).all():
            raise DataError(
                f"points must be finite and increase strictly, in one dimension; got an array of "
                f"shape {points.shape}: sort them and merge ties"
            )
        steps, index = np.unique(np.diff(points), return_inverse=True)
        parts = [steps[first : first + _STEPS] for first in range(0, len(steps), _STEPS)]
        seconds = _SECONDS * len(steps) * space.drift.size
        tables = run([partial(_both, space, part) for part in parts], seconds)
        empty = np.empty((0, *space.drift.shape))
        return cls(
            steps,
            index,
            np.concatenate([phi for phi, _ in tables] or [empty]),
            np.concatenate([noise for _, noise in tables] or [empty]),
        )


def _both(space: StateSpace, steps: Floats) -> tuple[Floats, Floats]:
    return space.transition(steps), space.process_noise(steps)
