"""A Gauss–Markov process at sorted inputs as a chain of states (section ``sec:gmp``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dsgp.errors import DataError
from dsgp.kernels import Kernel, StateSpace
from dsgp.terms import Floats


@dataclass(frozen=True)
class GaussMarkovChain:
    """The system equations of n states of m components (``eq:initst`` and those after it).

    z_1 ~ N(μ_1, V_1), z_t = Φ_t z_{t−1} + noise of covariance Q_t, and f_t = hᵀ z_t. The paper
    numbers per step by the state it starts from; here it is numbered by the state it leads to.

    Attributes
    ----------
    transition : ndarray of shape (n, m, m)
        Φ_t leads from state t − 1 to state t; the first is not used.
    process_noise : ndarray of shape (n, m, m)
        Q_t, which may be singular; the first is not used.
    initial_mean : ndarray of shape (m,)
    initial_covariance : ndarray of shape (m, m)
    observation : ndarray of shape (m,)
        h.
    """

    transition: Floats
    process_noise: Floats
    initial_mean: Floats
    initial_covariance: Floats
    observation: Floats

    def __len__(self) -> int:
        return len(self.transition)


def chain_of(kernel: Kernel | StateSpace, points: ArrayLike) -> GaussMarkovChain:
    """Return the chain of a kernel at inputs in ascending order, which may be tied.

    The states are in the kernel's own coordinates; at the first input they have their stationary
    covariance, or that of a process that is not stationary.

    Raises
    ------
    DataError
        If the points are not finite numbers (n,) in ascending order.
    ParameterError
        If the kernel has no state-space form.
    """
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all():
        raise DataError(f"points must be finite numbers (n,), got shape {points.shape}")
    steps = np.diff(points, prepend=points[0])
    if (steps < 0).any():
        raise DataError("points must be in ascending order: sort them first")
    space = kernel if isinstance(kernel, StateSpace) else kernel.state_space()
    return GaussMarkovChain(
        transition=space.transition(steps),
        process_noise=space.process_noise(steps),
        initial_mean=np.zeros(len(space.drift)),
        initial_covariance=space.initial_covariance,
        observation=space.observation,
    )
