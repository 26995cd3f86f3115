"""The state-space form of a kernel in the arrays that compiled passes use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dsgp.jit.exponential import N_TERMS, transitions
from dsgp.kernels import StateSpace
from dsgp.terms.base import Floats

# Step in the log of a parameter for derivatives by four values, which are accurate to about 1e-13.
_STEP = 1e-3
_WEIGHTS = {1: 2 / 3, -1: -2 / 3, 2: -1 / 12, -2: 1 / 12}
# Norm for a block whose drift is 0.
_STILL = 1e-300


class Numbers(NamedTuple):
    """F, P∞ and h, side by side."""

    drift: Floats
    stationary: Floats
    h: Floats


def by_log(kernel: Any, name: str, function: Callable[[Any], Any]) -> Any:
    """Derivative of an array, or of a tuple of arrays, by the log of a parameter of the kernel."""
    value = kernel.value(name)
    weighted = []
    for count, weight in _WEIGHTS.items():
        near = kernel.with_parameters(**{name: value * math.exp(count * _STEP)})
        result = function(near)
        parts = result if isinstance(result, tuple) else (result,)
        weighted.append([weight / _STEP * part for part in parts])
    slopes = [np.sum(parts, axis=0) for parts in zip(*weighted, strict=True)]
    return Numbers(*slopes) if isinstance(result, Numbers) else slopes[0]


@dataclass(frozen=True, eq=False)
class Process:
    """A stationary Gauss–Markov process whose drift is block diagonal.

    Attributes
    ----------
    space : StateSpace
        With components of a block side by side.
    family : callable
        From a kernel with other parameters to its process of the same states.
    order : ndarray of int, shape (m,)
        Where its components are in those of the kernel.
    low, high : ndarray of int, shape (m,)
        First component of the block of each, and the one after its last.
    norm : ndarray of shape (m,)
        Norm of the drift of that block, per unit of the input.
    """

    space: StateSpace
    family: Callable[[Any], StateSpace]
    order: NDArray[np.intp]
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    norm: Floats

    @classmethod
    def of_kernel(cls, kernel: Any) -> Process:
        """Return the process of a kernel.

        Raises
        ------
        ParameterError
            If it has no state-space form, or none that is stationary.
        """
        family = kernel.state_space_family()
        space = family(kernel)
        together = np.abs(space.drift) + np.abs(space.diffusion)
        together = together + np.abs(space.stationary_covariance)
        _, label = connected_components(together != 0, directed=False)
        order = np.argsort(label, kind="stable")
        starts = np.flatnonzero(np.diff(label[order], prepend=-1))
        sizes = np.diff(np.append(starts, len(order)))
        low = np.repeat(starts, sizes)
        space = _reordered(space, order)
        rows = np.abs(space.drift).sum(axis=1)
        norm = np.repeat(np.maximum(np.maximum.reduceat(rows, starts), _STILL), sizes)
        return cls(space, family, order, low, low + np.repeat(sizes, sizes), norm)

    def of(self, kernel: Any) -> Process:
        """Return the process of the same states of a kernel with slightly other parameters."""
        space = _reordered(self.family(kernel), self.order)
        return Process(space, self.family, self.order, self.low, self.high, self.norm)

    def numbers_of(self, kernel: Any) -> Numbers:
        """Return what the likelihood depends on, of a kernel with slightly other parameters."""
        space = self.of(kernel).space
        return Numbers(space.drift, space.initial_covariance, space.observation)

    # ------------------------------------------------------------------ for the passes

    @property
    def is_exact(self) -> bool:
        """Whether its covariance is that of the kernel."""
        return self.space.error == 0.0

    @property
    def h(self) -> Floats:
        """The function is hᵀ u, (m,)."""
        return self.space.observation

    @cached_property
    def through(self) -> Floats:
        """P∞ h, (m,)."""
        return self.space.initial_covariance @ self.h

    @property
    def variance(self) -> float:
        """Prior variance of the function."""
        return float(self.h @ self.through)

    @property
    def prior(self) -> tuple[Any, ...]:
        """Blocks, h and P∞."""
        return self.low, self.high, self.h, self.space.initial_covariance

    @property
    def observed(self) -> tuple[Any, ...]:
        """Blocks, h and P∞ h."""
        return self.low, self.high, self.h, self.through

    @cached_property
    def terms(self) -> Floats:
        """(F / norm)^k / k!, (N_TERMS, m, m)."""
        scaled = self.space.drift / self.norm[:, None]
        out = np.empty((N_TERMS, *scaled.shape))
        out[0] = np.eye(len(scaled))
        for k in range(1, N_TERMS):
            out[k] = scaled @ out[k - 1] / k
        return out

    @cached_property
    def noise_terms(self) -> Floats:
        """Coefficients of the powers of τ = norm · step in Q, (N_TERMS, m, m)."""
        scaled = self.space.drift / self.norm[:, None]
        out = np.zeros((N_TERMS, *scaled.shape))
        term = self.space.diffusion / self.norm[:, None]
        for k in range(1, N_TERMS):
            out[k] = term / math.factorial(k)
            term = scaled @ term + term @ scaled.T
        return out

    def score(self, slope: Numbers, by_terms: Floats, by_stationary: Floats, by_h: Floats) -> float:
        """Derivative of the log likelihood, from those of F, P∞ and h and the passes' results."""
        scaled, moved = self.space.drift / self.norm[:, None], slope.drift / self.norm[:, None]
        term = np.zeros_like(scaled)
        total = float(np.sum(by_stationary * slope.stationary) + by_h @ slope.h)
        for k in range(1, N_TERMS):
            term = (moved @ self.terms[k - 1] + scaled @ term) / k
            total += float(np.sum(by_terms[k] * term))
        return total


def _reordered(space: StateSpace, order: NDArray[np.intp]) -> StateSpace:
    grid = np.ix_(order, order)
    return StateSpace(
        np.ascontiguousarray(space.drift[grid]),
        np.ascontiguousarray(space.diffusion[grid]),
        np.ascontiguousarray(space.observation[order]),
        np.ascontiguousarray(space.initial_covariance[grid]),
        space.is_stationary,
        space.error,
    )


@dataclass(frozen=True, eq=False)
class Transitions:
    """Φ over the steps between points, once for each distinct step.

    Attributes
    ----------
    steps : ndarray of shape (u,)
        Distinct steps, increasing.
    phi : ndarray of shape (u, m, m)
    which : ndarray of int32, shape (n,)
        Which of them leads to each point.
    """

    steps: Floats
    phi: Floats
    which: NDArray[np.int32]

    @classmethod
    def of(cls, process: Process, step: Floats) -> Transitions:
        """Return those of steps (n,), which may be infinite."""
        steps, which = np.unique(step, return_inverse=True)
        phi = np.empty((len(steps), *process.space.drift.shape))
        transitions(process.terms, process.norm, process.high, steps, phi)
        return cls(steps, phi, which.astype(np.int32).ravel())

    @property
    def table(self) -> tuple[Floats, NDArray[np.int32]]:
        """Φ, and which leads to each point."""
        return self.phi, self.which
