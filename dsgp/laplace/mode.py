"""The mode of the posterior by Newton's method, each step a weighted additive system.

Any solver of the system can be used: with backfitting this is local scoring (Hastie and Tibshirani;
Gilboa et al., section ``gamgp``). A step is halved until Ω does not fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from dsgp.additive import SOLVERS, AdditiveSystem, Solution
from dsgp.additive.multigrid import CoarseSpace
from dsgp.kernels import Kernel
from dsgp.laplace.linearised import Linearised
from dsgp.laplace.rows import ResponseRows
from dsgp.likelihoods import Likelihood
from dsgp.terms import Floats

# As in ``AdditiveSystem``. With a likelihood, a row is less informative, and fewer coarse points
# are enough.
LEAST_PRECISION = 0.1
_HALVINGS = 40
# If the log density per row is below minus this at the given initial functions, the iteration
# starts from f = level instead.
_HOPELESS = 1e6
# Share of Ω by which rounding alone may make it fall.
_ROUNDING = 1e-13
# The systems of early steps are solved to this share of the size of the previous step, in prior
# standard deviations, and at worst to the second number.
_SOLVE_SHARE, _LOOSEST = 0.03, 0.1
# Steps share smoothers up to this ratio of their weights. The number of iterations then grows by
# its square root at most.
_NEAR = 2.0
# Sweeps of backfitting in every step but the last. Local scoring converges as well with incomplete
# inner iterations, whose error bound may stay above any tolerance for long.
_SWEEPS = 20
# Number of complete solves allowed once the steps are below the tolerance.
_CLOSINGS = 5


@dataclass(frozen=True)
class Mode:
    """Mode of the posterior, and the linearised system there.

    Attributes
    ----------
    system : AdditiveSystem
        Of noise variance 1, given the constant; its solution is the mode.
    solution : Solution
    level : float
        The constant part of f.
    constant : float or None
        Precision of its prior, 0 for a flat one; None where it was known.
    objective : float
        Ω at the mode.
    trace : list of float
        Ω after each Newton step; it never falls.
    step : float
        Size of the last step: no linear functional of f moved by more posterior standard
        deviations.
    converged : bool
    """

    system: AdditiveSystem
    solution: Solution
    level: float
    constant: float | None
    objective: float
    trace: list[float]
    step: float
    converged: bool


def find_mode(
    rows: ResponseRows,
    likelihood: Likelihood,
    level: float,
    kernels: list[Kernel],
    *,
    spreads: list[Floats] | None,
    shift: Floats | None = None,
    start: Floats | None,
    constant: float | None = None,
    with_pairs: bool,
    solver: str,
    tol: float,
    max_iter: int,
    newton_max_iter: int,
    watch: Callable[[float], None] = lambda value: None,
) -> Mode:
    """Maximise Ω(F) = Σ w log p(y | f) − ½ Fᵀ K̃⁻¹ F (eq. ``laobj``), over a constant too.

    Parameters
    ----------
    rows : ResponseRows
    likelihood : Likelihood
    level : float
        Constant part of f, or its initial value if it is to be found.
    kernels : list of kernels, one per term
    spreads : list of ndarray, or None
        Variance of the inputs in each bin; None where points are distinct values.
    shift : ndarray of shape (Σ U_d,), optional
        Added to the function at each point for its rows: the bias of bins.
    start : ndarray of shape (Σ U_d,), optional
        Functions to linearise around first; by default f is the level.
    constant : float, optional
        Prior precision, around ``level``, of a constant part of f that is to be found: 0 for a flat
        prior, in which case the rows must bound it. None: it is known.
    with_pairs : bool
        Hold the equations as two-way tables of the points, not row by row.
    solver : str
    tol : float
        Newton's iteration ends when a step moves no linear functional of f by more than this many
        posterior standard deviations; the last system is solved to an error of as many prior ones.
    max_iter, newton_max_iter : int
        Largest numbers of iterations of the solver in a step, and of steps.
    watch : callable
        Called with Ω after each step.
    """
    size = rows.table.size
    shift = np.zeros(size) if shift is None else shift
    posterior = _Posterior(
        rows, likelihood, kernels, spreads, shift, level, constant, with_pairs=with_pairs
    )
    at, guessed = posterior.begin(start)
    solve = _StepSolver(solver, kernels, max_iter)
    pair = at.mean, at.dual
    trace: list[float] = []
    solve_tol, step_size, closing = _LOOSEST, math.inf, 0
    while True:
        system, pull = posterior.system(at)
        last = len(trace) >= newton_max_iter
        solution = solve(system, solve_tol, pair, complete=last or closing > 0)
        pair = solution.mean, solution.dual
        level_step = 0.0 if constant is None else system.constant_at(solution.mean)
        step = _Step(solution.mean - at.mean, solution.dual - at.dual, level_step)
        if trace or not guessed:
            step_size = step.size(at, pull)
        complete = closing > 0 or solution.converged
        if last or (step_size <= tol and solve_tol <= tol and complete):
            break
        closing += closing > 0
        if closing > _CLOSINGS and solve.inner < max_iter:
            break
        if step_size <= tol:  # one more step, solved to the full tolerance
            solve_tol, closing = tol, max(closing, 1)
            continue
        better = posterior.along(at, step)
        if better is None:
            # Rounding, or a kernel beyond the range of float64: keep the current functions.
            solution = replace(solution, mean=at.mean, dual=at.dual, converged=False)
            level_step = 0.0
            break
        if not trace and guessed and better.objective < at.rows.log_density:
            # At the first step from given functions Ω is not yet known. If it is below that of F =
            # 0, start there instead.
            zero = posterior.zero()
            if better.objective < zero.objective:
                at, guessed = zero, False
                pair = at.mean, at.dual
                continue
        at = better
        pair = at.mean, at.dual
        trace.append(at.objective)
        watch(at.objective)
        solve_tol = max(tol, min(_LOOSEST, _SOLVE_SHARE * step_size))
    return Mode(
        system.given_constant(level_step),
        solution,
        at.level + level_step,
        constant,
        at.objective,
        trace,
        step_size,
        bool(step_size <= tol),
    )


@dataclass(frozen=True)
class _At:
    """Functions and the constant, the rows linearised there, and Ω.

    ``around`` are the functions that the rows are linearised around: those of ``mean``, but for a
    guess whose dual is not known.
    """

    mean: Floats
    dual: Floats
    around: Floats
    level: float
    rows: Linearised
    objective: float


@dataclass(frozen=True)
class _Step:
    """A Newton step of functions, their dual, and the constant."""

    mean: Floats
    dual: Floats
    level: float

    def size(self, at: _At, pull: float) -> float:
        """Return the largest move of a linear functional of f in its posterior std."""
        slope = float(np.sum(self.mean * (at.rows.gradient - at.dual)))
        gain = 0.5 * (slope + self.level * pull)
        return math.sqrt(2 * abs(gain))  # it is below 0 by rounding only


@dataclass(frozen=True)
class _Posterior:
    """Ω, and the linear systems of its Newton steps; attributes are those of ``find_mode``."""

    likely: ResponseRows
    likelihood: Likelihood
    kernels: list[Kernel]
    spreads: list[Floats] | None
    shift: Floats
    centre: float
    constant: float | None
    with_pairs: bool

    @property
    def precision(self) -> float:
        """That of the prior of the constant."""
        return self.constant or 0.0

    def linearised(self, level: float, functions: Floats) -> Linearised:
        """Linearise the rows around functions."""
        return self.likely.linearised(
            self.likelihood, level, functions + self.shift, with_pairs=self.with_pairs
        )

    def begin(self, start: Floats | None) -> tuple[_At, bool]:
        """Return where the iteration begins, and whether that is a guess whose Ω is not known."""
        if start is None:
            return self.zero(), False
        nothing = np.zeros(len(self.shift))
        rows = self.linearised(self.centre, start)
        if not rows.log_density > -_HOPELESS * self.likely.n_rows:
            zero = self.zero()
            if not rows.log_density > zero.rows.log_density:
                return zero, False
        return _At(nothing, nothing, start, self.centre, rows, -math.inf), True

    def zero(self) -> _At:
        """Functions that are 0, and the constant at its initial value."""
        nothing = np.zeros(len(self.shift))
        rows = self.linearised(self.centre, nothing)
        return _At(nothing, nothing, nothing, self.centre, rows, rows.log_density)

    def system(self, at: _At) -> tuple[AdditiveSystem, float]:
        """Return the system of a step, and Ω's derivative by the constant, its prior included."""
        equations = self.likely.equations(at.rows, at.around, self.spreads)
        gradient, pull = at.rows.total_gradient, 0.0
        if self.constant is not None:
            pull = gradient - self.precision * (at.level - self.centre)
        total = equations.total_information + pull - gradient
        equations = replace(equations, total_information=total)
        return AdditiveSystem(equations, self.kernels, 1.0, LEAST_PRECISION, self.constant), pull

    def along(self, at: _At, step: _Step) -> _At | None:
        """Go along a step, halved until Ω does not fall; None if it always does."""
        fraction = 1.0
        for _ in range(_HALVINGS):
            mean, dual = at.mean + fraction * step.mean, at.dual + fraction * step.dual
            level = at.level + fraction * step.level
            rows = self.linearised(level, mean)
            value = rows.log_density - 0.5 * float(np.sum(mean * dual))
            value -= 0.5 * self.precision * (level - self.centre) ** 2
            if value >= at.objective - _ROUNDING * abs(at.objective):
                return _At(mean, dual, mean, level, rows, value)
            fraction *= 0.5
        return None


class _StepSolver:
    """Solves the systems of steps; coarse space and smoothers serve several of them.

    Terms of many cells take long to make them: they are made again where weights have changed much.
    """

    def __init__(self, solver: str, kernels: list[Kernel], max_iter: int) -> None:
        self._solve, self._max_iter = SOLVERS[solver], max_iter
        self._preconditioned = solver == "multigrid" and bool(kernels)
        self._coarse: Callable[[], CoarseSpace] | None = None
        self._smoother: AdditiveSystem | None = None
        # Iterations of a step that may end before the tolerance is met.
        self.inner = min(max_iter, _SWEEPS) if solver == "backfitting" else max_iter

    def __call__(
        self, system: AdditiveSystem, tol: float, pair: tuple[Floats, Floats], *, complete: bool
    ) -> Solution:
        """Solve a system, starting at the previous solution."""
        extra: dict[str, Any] = {}
        if self._preconditioned:
            if self._smoother is None or not _are_near(self._smoother.weight, system.weight):
                self._smoother, self._coarse = system, cache(partial(CoarseSpace, system))
            assert self._coarse is not None
            extra["coarse"] = cache(partial(_of_system, self._coarse, system, self._smoother))
        iterations = self._max_iter if complete else self.inner
        return self._solve(system, tol=tol, max_iter=iterations, start=pair, **extra)


def _are_near(first: Floats, second: Floats) -> bool:
    """Whether no weight differs from its counterpart by a factor of more than ``_NEAR``."""
    return bool(np.all(first <= _NEAR * second) and np.all(second <= _NEAR * first))


def _of_system(
    coarse: Callable[[], CoarseSpace], system: AdditiveSystem, smoother: AdditiveSystem
) -> CoarseSpace:
    return coarse().with_noise_of(system, smoother)
