"""A Gauss–Markov process at sorted inputs as a chain of states (section ``sec:gmp``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from dsgp.errors import DataError
from dsgp.kernels import Matern
from dsgp.terms import Floats


@dataclass(frozen=True)
class GaussMarkovChain:
    """The system equations of n states of m components (``eq:initst`` and those after it).

    z_1 ~ N(μ_1, V_1), z_t = Φ_t z_{t−1} + noise of covariance Q_t, and f_t = hᵀ z_t. The paper
    numbers a step by the state it starts from; here it is numbered by the state it leads to.

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


def chain_of(kernel: Matern, points: ArrayLike) -> GaussMarkovChain:
    """Return the chain of a kernel at inputs in ascending order, which may be tied.

    The states are in the kernel's own coordinates, the function first; at the first input they
    have their stationary covariance.

    Raises
    ------
    DataError
        If the points are not finite numbers (n,) in ascending order.
    """
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all():
        raise DataError(f"points must be finite numbers (n,), got shape {points.shape}")
    steps = np.diff(points, prepend=points[0])
    if (steps < 0).any():
        raise DataError("points must be in ascending order: sort them first")
    m = kernel.order
    return GaussMarkovChain(
        transition=np.array([kernel.transition(step) for step in steps]),
        process_noise=np.array([process_noise(kernel, step) for step in steps]),
        initial_mean=np.zeros(m),
        initial_covariance=kernel.stationary_covariance(),
        observation=np.eye(m)[0],
    )


def process_noise(kernel: Matern, step: float) -> Floats:
    """Return Q, the covariance that a step adds to the state, of shape (m, m).

    State u_i is white noise filtered by e^{−s} s^a / a! with a = m − 1 − i, so that Q_ij is an
    integral of e^{−2s} s^{a+b} over the step. The difference P∞ − Φ P∞ Φᵀ is the same number, but
    it has no correct digit where the step is tiny and Q_ij is a high power of it.
    """
    if hasattr(kernel, "process_noise"):
        return np.asarray(kernel.process_noise(step))
    tau = kernel.rate * step
    a = np.arange(kernel.order)[::-1]
    power = a[:, None] + a[None, :]
    factorials = np.array([math.factorial(k) for k in range(kernel.order)], dtype=np.float64)
    chosen = np.vectorize(math.factorial)(power) / (factorials[a][:, None] * factorials[a])
    intensity = 2.0 * kernel.stationary_covariance()[-1, -1]
    noise: Floats = intensity * chosen / 2.0 ** (power + 1) * gammainc(power + 1, 2.0 * tau)
    return noise
