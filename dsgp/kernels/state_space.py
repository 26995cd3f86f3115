"""Gauss–Markov processes: the state-space form of a kernel, discretised over any steps.

A process f(x) = hᵀ u(x) whose state moves by du = F u dx + dβ, with dβ of covariance D dx (Sections
``sec:gmp`` and ``sec:multiSSM`` of the paper). Over a step s the state is multiplied by the
transition Φ = exp(F s) and gets noise of covariance Q = ∫₀ˢ exp(F a) D exp(Fᵀ a) da.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from dsgp.errors import ParameterError

Floats = NDArray[np.float64]

# A step is halved until ‖F‖ s is below this, where this many terms of the series are exact to
# rounding.
_SMALL, _TERMS = 0.5, 18


@dataclass(frozen=True, eq=False)
class StateSpace:
    """A Gauss–Markov process with a state of m components.

    Attributes
    ----------
    drift : ndarray of shape (m, m)
        F, per unit of the input.
    diffusion : ndarray of shape (m, m)
        D, covariance of the driving noise per unit of the input.
    observation : ndarray of shape (m,)
        h: the function is hᵀ u.
    initial_covariance : ndarray of shape (m, m)
        Covariance of the state before any observation: P∞ of a stationary process.
    is_stationary : bool
    error : float
        Largest error of the covariance as a share of the variance; 0 where the form is exact.

    Examples
    --------
    >>> from dsgp.kernels import Matern32
    >>> space = Matern32(lengthscale=1.0, variance=2.0).state_space()
    >>> space.covariance([0.0, 1.0]).round(4)
    array([[2.    , 0.9667],
           [0.9667, 2.    ]])
    """

    drift: Floats
    diffusion: Floats
    observation: Floats
    initial_covariance: Floats
    is_stationary: bool = True
    error: float = 0.0

    def transition(self, step: ArrayLike) -> Floats:
        """Φ = exp(F s).

        Parameters
        ----------
        step : array_like of any shape
            Steps of 0 or more, in the units of the input.

        Returns
        -------
        ndarray of that shape, with (m, m) behind it
        """
        return self._discretised(step)[0]

    def process_noise(self, step: ArrayLike) -> Floats:
        """Q = ∫₀ˢ exp(F a) D exp(Fᵀ a) da, by sums of positive parts: no difference cancels.

        Parameters and the result are those of ``transition``.
        """
        return self._discretised(step)[1]

    @property
    def stationary_covariance(self) -> Floats:
        """P∞, (m, m).

        Raises
        ------
        ParameterError
            If the process is not stationary.
        """
        if not self.is_stationary:
            raise ParameterError(
                "the process is not stationary: its variance grows, and has no limit"
            )
        return self.initial_covariance

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> Floats:
        """Covariance of a stationary process between inputs, (n, k): hᵀ Φ(|x − y|) P∞ h."""
        stationary = self.stationary_covariance
        x = np.asarray(x, dtype=float)
        y = x if y is None else np.asarray(y, dtype=float)
        phi = self.transition(np.abs(x[:, None] - y[None, :]))
        return np.asarray(phi @ (stationary @ self.observation) @ self.observation)

    def _discretised(self, step: ArrayLike) -> tuple[Floats, Floats]:
        steps = checked_steps(step)
        phi, noise = discretised(self.drift, self.diffusion, steps.ravel())
        shape = (*steps.shape, *self.drift.shape)
        return phi.reshape(shape), noise.reshape(shape)


def checked_steps(step: ArrayLike) -> Floats:
    """Return steps as an array.

    Raises
    ------
    ParameterError
        If one is negative, infinite or no number.
    """
    steps = np.asarray(step, dtype=float)
    if not (np.isfinite(steps) & (steps >= 0)).all():
        raise ParameterError(f"step: expected finite numbers from 0, got {step!r}")
    return steps


def discretised(drift: Floats, diffusion: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return Φ and Q over steps (k,), each (k, m, m).

    By the Taylor series over a small part of each step, doubled until it is whole: Φ ← Φ Φ,
    Q ← Q + Φ Q Φᵀ. Entries of Q are right to a few units of rounding for tiny steps, where
    P∞ − Φ P∞ Φᵀ has no digit left.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels.state_space import discretised
    >>> phi, noise = discretised(np.array([[-1.0]]), np.array([[2.0]]), np.array([1e-12]))
    >>> noise.item()
    1.999999999998e-12
    """
    size = len(drift)
    norm = float(np.abs(drift).sum(axis=1).max(initial=0.0))
    with np.errstate(divide="ignore"):
        doublings = np.ceil(np.log2(np.maximum(norm * steps / _SMALL, 1.0))).astype(int)
    if norm > 0:  # powers of a huge rate would overflow
        drift, diffusion, steps = drift / norm, diffusion / norm, norm * steps
    small = steps / 2.0**doublings
    phi = np.broadcast_to(np.eye(size), (len(steps), size, size)).copy()
    noise = np.zeros_like(phi)
    power, slope = np.eye(size), diffusion
    factor = small.copy()  # s^k / k!
    for k in range(1, _TERMS + 1):
        noise += factor[:, None, None] * slope
        power = drift @ power
        phi += factor[:, None, None] * power
        slope = drift @ slope + slope @ drift.T
        factor = factor * small / (k + 1)
    for done in range(int(doublings.max(initial=0))):
        going = doublings > done
        own_phi, own_noise = phi[going], noise[going]
        noise[going] = own_noise + own_phi @ own_noise @ np.swapaxes(own_phi, 1, 2)
        phi[going] = own_phi @ own_phi
    return phi, 0.5 * (noise + np.swapaxes(noise, 1, 2))


# ---------------------------------------------------------------------- several processes


def added(parts: Sequence[StateSpace]) -> StateSpace:
    """Return the sum of independent processes: their states side by side."""
    return StateSpace(
        block_diag(*(part.drift for part in parts)),
        block_diag(*(part.diffusion for part in parts)),
        np.concatenate([part.observation for part in parts]),
        block_diag(*(part.initial_covariance for part in parts)),
        all(part.is_stationary for part in parts),
        # Errors are shares of the variances of the parts, which add up.
        _mean_error(parts),
    )


def multiplied(parts: Sequence[StateSpace]) -> StateSpace:
    """Return the product of independent stationary processes: products of their states."""
    if not all(part.is_stationary for part in parts):
        raise ParameterError("a product of processes has a state-space form if all are stationary")
    return reduce(_product, parts)


def _product(first: StateSpace, second: StateSpace) -> StateSpace:
    one, other = np.eye(len(first.drift)), np.eye(len(second.drift))
    before, after = first.initial_covariance, second.initial_covariance
    return StateSpace(
        np.kron(first.drift, other) + np.kron(one, second.drift),
        np.kron(first.diffusion, after) + np.kron(before, second.diffusion),
        np.asarray(np.kron(first.observation, second.observation), dtype=float),
        np.asarray(np.kron(before, after), dtype=float),
        True,
        first.error + second.error + first.error * second.error,
    )


def _mean_error(parts: Sequence[StateSpace]) -> float:
    variances = [
        float(part.observation @ part.initial_covariance @ part.observation) for part in parts
    ]
    total = sum(part.error * variance for part, variance in zip(parts, variances, strict=True))
    return total / sum(variances) if total else 0.0


# ---------------------------------------------------------------------- rational spectra


def from_spectrum(roots: NDArray[np.complex128]) -> StateSpace:
    """Return the unit process whose spectral density is 1 / |Π (iω − root)|², up to its scale.

    Parameters
    ----------
    roots : ndarray of shape (m,), complex
        Of negative real part, in conjugate pairs.
    """
    coefficients = np.real(np.poly(roots))
    size = len(roots)
    drift = np.eye(size, k=1)
    drift[-1] = -coefficients[1:][::-1]
    stationary = _moments(roots)
    # Derivatives are in units of their standard deviations, so that all entries are of the order of
    # the rates.
    scale = np.sqrt(np.diag(stationary))
    drift = drift * scale[None, :] / scale[:, None]
    stationary = stationary / np.outer(scale, scale)
    diffusion = np.zeros((size, size))
    balance = drift @ stationary
    diffusion[-1, -1] = -2.0 * balance[-1, -1]
    observation = np.zeros(size)
    observation[0] = 1.0
    return StateSpace(drift, diffusion, observation, stationary)


def _moments(roots: NDArray[np.complex128]) -> Floats:
    """Covariance of the function and its derivatives, (m, m), with variance 1.

    By partial fractions of the covariance, k(r) = Re Σ c_j exp(root_j r): the covariance of the
    derivatives a and b is (−1)^b k^(a+b)(0), and 0 where a + b is odd.
    """
    size = len(roots)
    weights: NDArray[np.complex128] = np.array(
        [
            1.0
            / (
                np.prod([root - other for k, other in enumerate(roots) if k != j])
                * np.prod([-root - other for other in roots])
            )
            for j, root in enumerate(roots)
        ]
    )
    derivatives = np.array(
        [float(np.real(np.sum(weights * roots**order))) for order in range(2 * size - 1)]
    )
    derivatives /= derivatives[0]
    moments: Floats = np.zeros((size, size))
    for a in range(size):
        for b in range(size):
            if (a + b) % 2 == 0:
                moments[a, b] = (-1) ** ((a - b) // 2) * abs(derivatives[a + b])
    return moments


def largest_error(space: StateSpace, covariance: ArrayLike, distances: ArrayLike) -> float:
    """Largest difference of a covariance of variance 1 and that of a process, at distances."""
    made = space.covariance([0.0], distances)[0]
    return float(np.abs(made - np.asarray(covariance)).max(initial=0.0))


def scaled_process(space: StateSpace, lengthscale: float, variance: float) -> StateSpace:
    """Return ``sqrt(variance)`` times a process, stretched along the input."""
    return replace(
        space,
        drift=space.drift / lengthscale,
        diffusion=space.diffusion / lengthscale,
        observation=math.sqrt(variance) * space.observation,
    )
