"""Cells of any kernel with a state-space form, in O(n) time and O(n m²) memory.

As ``Axis``, for any states: sums and products of Matérn kernels, damped oscillations, and kernels
that are approximated by finitely many states with a stated error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import ArrayLike

from dsgp.errors import DataError, ParameterError
from dsgp.jit.exponential import N_TERMS
from dsgp.jit.markov import filter_process, process_gains, smooth_process, solve_process
from dsgp.jit.markov_sums import (
    accumulate_process,
    covariance_between,
    evaluate_process,
    multiply_process,
    process_covariance,
    process_variance,
    simulate_process,
)
from dsgp.terms.base import Evidence, Floats, Function, Observations, Posterior, Solver
from dsgp.terms.passed import PassedLine, in_order
from dsgp.terms.process import Process, Transitions, by_log

_NONE = np.empty(0)
_LEAST_VARIANCE = 1e-200
_NONE_2D = np.empty((0, 0))
_NONE_3D = np.empty((0, 0, 0))


class MarkovCells(PassedLine):
    """Points of a line with any stationary kernel that has a state-space form.

    If that form is an approximation, everything here uses the covariance of the approximation.

    Parameters
    ----------
    points : array_like of shape (n_points,)
        Finite, strictly increasing, in the units of the input.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import DampedOscillation, Matern52
    >>> from dsgp.terms import MarkovCells, Observations
    >>> cells = MarkovCells(np.array([0.0, 1.0]))
    >>> seen = Observations(target=np.array([1.0, 3.0]), weight=np.array([1.0, 2.0]))
    >>> kernel = DampedOscillation(4.0, 10.0, 1.0) + Matern52(1.0, 2.0)
    >>> cells.posterior(kernel, seen).mean.round(4)
    array([0.9857, 2.5737])
    """

    def __init__(self, points: ArrayLike) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        if self.points.ndim != 1 or self.points.size == 0:
            raise DataError(f"a line needs points of shape (n,), got {self.points.shape}")
        if not np.isfinite(self.points).all() or not (np.diff(self.points) > 0).all():
            raise DataError("the points of a line must be finite and increase strictly")

    # ------------------------------------------------------------------ covariances

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        return self._along(kernel, x, y)

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        return self._along_by_log(kernel, name)

    def _along(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        """Covariances between coordinates of one line, (n, k)."""
        process = self._process(kernel)[0]
        if process.is_exact:
            return np.asarray(kernel.covariance(x, y))
        return _covariance(process, np.asarray(x), np.asarray(y))

    def _along_by_log(self, kernel: Any, name: str) -> Floats:
        """Derivative of those of the coordinates of the cells by the log of a parameter."""
        process, x = self._process(kernel)[0], self.coordinates
        if process.is_exact:
            return np.asarray(kernel.by_log(name, x))
        slope = by_log(kernel, name, lambda near: _covariance(process.of(near), x, x))
        return np.asarray(slope)

    def prior_variance(self, kernel: Any, inputs: Floats) -> Floats:
        return np.full(len(inputs), self._process(kernel)[0].variance)

    def _process(self, kernel: Any) -> tuple[Process, Transitions]:
        """Return the process of a kernel, and its transitions; the last ones are kept."""
        kept: tuple[Any, tuple[Process, Transitions]] | None = self.__dict__.get("_kept")
        if kept is not None and kept[0] == kernel:
            return kept[1]
        process = Process.of_kernel(kernel)
        made = process, Transitions.of(process, self.step)
        # One assignment, because chains on several threads share the cells.
        self.__dict__["_kept"] = kernel, made
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def state_bytes(self, kernel: Any) -> float:
        size = len(self._process(kernel)[0].h)
        # Transitions, predicted covariances and the results of the backward pass, gains and
        # moments.
        return 8.0 * len(self) * (size**2 + size * (size + 1) + 6 * size)

    # ------------------------------------------------------------------ algebra at the cells

    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        process, moves = self._process(kernel)
        out = np.empty(len(self))
        multiply_process(*process.observed, *moves.table, vector, out)
        return out

    def solver(self, kernel: Any, weight: Floats) -> MarkovSolver:
        process, moves = self._process(kernel)
        shrinkage, gains = np.empty(len(self)), np.empty((len(self), len(process.h)))
        process_gains(*process.prior, *moves.table, weight, shrinkage, gains)
        _require_digits(kernel, shrinkage, gains)
        return MarkovSolver(process, moves, weight, shrinkage, gains)

    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        process, moves = self._process(kernel)
        quadratic, log_det = filter_process(
            *process.prior, *moves.table, seen.weight, seen.target, _NONE_2D, _NONE_2D
        )
        _require_digits(kernel, np.array([quadratic, log_det]))
        return float(quadratic), float(log_det)

    def posterior(self, kernel: Any, seen: Observations) -> Posterior:
        n, m = len(self), len(self._process(kernel)[0].h)
        mean, variance, dual = np.empty(n), np.empty(n), np.empty(n)
        slopes = (np.zeros((N_TERMS, m, m)), np.zeros((m, m)), np.zeros(m))
        moments = (mean, variance, dual)
        _, sums = self._smooth(kernel, seen.weight, seen.target, moments, _NONE_2D, slopes)
        quadratic, log_det, noise_score = sums
        process = self._process(kernel)[0]
        _require_digits(kernel, mean, dual, variance=variance, prior=process.variance)
        evidence = Evidence(
            value=seen.log_likelihood(quadratic, log_det),
            by_log={
                name: process.score(by_log(kernel, name, process.numbers_of), *slopes)
                for name in kernel.parameters
            },
            by_log_noise=0.5 * noise_score + seen.remainder_by_log_noise,
        )
        return Posterior(self, kernel, seen, mean, variance, dual, evidence, log_det)

    def _smooth(
        self,
        kernel: Any,
        weight: Floats,
        target: Floats,
        moments: tuple[Floats, Floats, Floats],
        adjoint: Floats,
        slopes: tuple[Floats, Floats, Floats],
    ) -> tuple[Floats, tuple[float, float, float]]:
        """Run both passes; return the predicted covariances and the three sums of the passes."""
        process, moves = self._process(kernel)
        n, m = len(self), len(process.h)
        passes = (*process.prior, *moves.table, weight, target)
        means, covariances = np.empty((n, m)), np.empty((n, m * (m + 1) // 2))
        quadratic, log_det = filter_process(*passes, means, covariances)
        series = (process.terms, process.norm, moves.steps)
        noise = smooth_process(*passes, means, covariances, *moments, adjoint, *series, *slopes)
        return covariances, (float(quadratic), float(log_det), float(noise))

    def sample(self, kernel: Any, random: np.random.Generator) -> Floats:
        process, moves = self._process(kernel)
        out = np.empty(len(self))
        normal = random.standard_normal((len(self), len(process.h)))
        simulate_process(
            *process.prior,
            *moves.table,
            process.terms,
            process.noise_terms,
            process.norm,
            moves.steps,
            normal,
            out,
        )
        return out

    # ------------------------------------------------------------------ anywhere

    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        return self.kernel_sums(kernel, vector[None])

    def kernel_sums(self, kernel: Any, vectors: Floats) -> MarkovSums:
        process, moves = self._process(kernel)
        shape = (len(self), len(vectors), len(process.h))
        forward, backward = np.empty(shape), np.empty(shape)
        columns = np.ascontiguousarray(vectors.T)
        accumulate_process(*process.observed, *moves.table, columns, forward, backward)
        return MarkovSums(self, process, forward, backward)

    def variance_function(self, kernel: Any, weight: Floats) -> MarkovVariance:
        n, m = len(self), len(self._process(kernel)[0].h)
        adjoint = np.empty((n, m * (m + 1) // 2))
        moments, slopes = (_NONE, _NONE, _NONE), (_NONE_3D, _NONE_2D, _NONE)
        covariances, _ = self._smooth(kernel, weight, np.zeros(n), moments, adjoint, slopes)
        return MarkovVariance(self, self._process(kernel)[0], weight, covariances, adjoint)


class DigitsError(ParameterError, LinAlgError):
    """So many points within a lengthscale, with so little noise, that float64 fails.

    A learner treats it as a step that was too long.
    """


def _require_digits(
    kernel: Any, *numbers: Floats, variance: Floats | None = None, prior: float = 0.0
) -> None:
    """Raise ``DigitsError`` where the results of the passes are lost to rounding errors."""
    lost = not all(np.isfinite(each).all() for each in numbers)
    if variance is not None:
        # If the prior variance itself is nearly 0, this one may be 0 too.
        lost = lost or (not (variance > 0).all() and prior > _LEAST_VARIANCE)
    if lost:
        raise DigitsError(
            f"float64 has too little precision for {kernel!r} in state-space form with so little "
            "noise and so many values within a lengthscale: give its term form='dense', use "
            "fewer bins, or more noise"
        )


@dataclass(frozen=True)
class MarkovSolver(Solver):
    """Applies (K⁻¹ + W)⁻¹ for one kernel and one set of weights, vector by vector."""

    process: Process
    moves: Transitions
    weight: Floats
    shrinkage: Floats
    gains: Floats

    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        mean, dual = np.empty(len(self.weight)), np.empty(len(self.weight))
        process = self.process
        solve_process(
            process.low,
            process.high,
            process.h,
            *self.moves.table,
            self.weight,
            self.shrinkage,
            self.gains,
            information,
            mean,
            dual,
        )
        return mean, dual


@dataclass(frozen=True)
class MarkovSums:
    """The functions x ↦ k(x, points) @ vector of several vectors; called, that of the first."""

    cells: MarkovCells
    process: Process
    forward: Floats
    backward: Floats

    def __call__(self, inputs: ArrayLike) -> Floats:
        """Values at inputs of any order, (n_inputs,)."""
        inputs, order = self.cells.ordered(inputs)
        out = np.zeros((len(inputs), 1))
        self.add_to(inputs, out)
        return in_order(out[:, 0], order)

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs of any order to ``out`` (n_inputs, r)."""
        process = self.process
        evaluate_process(
            *process.observed,
            process.terms,
            process.norm,
            self.cells.coordinates,
            self.forward,
            self.backward,
            *self.cells.locate(inputs),
            out,
        )


@dataclass(frozen=True)
class MarkovVariance:
    """The posterior variance as a function of the input."""

    cells: MarkovCells
    process: Process
    weight: Floats
    covariances: Floats
    adjoint: Floats

    def __call__(self, inputs: ArrayLike) -> Floats:
        """Variances at inputs of any order, (n_inputs,)."""
        inputs, order = self.cells.ordered(inputs)
        variance = np.empty(len(inputs))
        process_variance(
            *self.process.prior,
            self.process.terms,
            self.process.norm,
            self.cells.coordinates,
            self.weight,
            self.covariances,
            self.adjoint,
            *self.cells.locate(inputs),
            variance,
        )
        return in_order(variance, order)


def _covariance(process: Process, x: Floats, y: Floats) -> Floats:
    """Covariances of a process between two sets of inputs, (n, k)."""
    if not np.array_equal(x, y):
        # A prediction must not depend on the other inputs that are predicted.
        between = np.empty((len(x), len(y)))
        inputs = np.ascontiguousarray(x), np.ascontiguousarray(y)
        covariance_between(*process.observed, process.terms, process.norm, *inputs, between)
        return between
    points, where = np.unique(x, return_inverse=True)
    out = np.empty((len(points), len(points)))
    moves = Transitions.of(process, np.diff(points, prepend=points[:1]))
    process_covariance(*process.observed, *moves.table, out)
    return out[np.ix_(where, where)]
