"""The mode of the posterior by Newton's method, each step a weighted additive system.

Any solver of the system will do: with backfitting this is local scoring (Hastie and Tibshirani;
Gilboa et al., section ``gamgp``). A step is halved until Ω does not fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from dsgp.additive import SOLVERS, AdditiveSystem, Solution
from dsgp.additive.multigrid import CoarseSpace
from dsgp.kernels import Kernel
from dsgp.laplace.rows import Linearised, ResponseRows
from dsgp.likelihoods import Likelihood
from dsgp.terms import Floats

# As of ``AdditiveSystem``: a row of a likelihood says little, and fewer coarse points will do.
UNFELT = 0.1
_HALVINGS = 40
# Log density of a row below which functions to start from are compared with none.
_HOPELESS = 1e6
# Ω may fall by so much of itself through rounding.
_ROUNDING = 1e-13
# Of early steps: the error of their solution, in prior standard deviations, as a share of what the
# step before moved.
_SOLVE_SHARE, _LOOSEST = 0.03, 0.1
# Sweeps of backfitting in a step but the last: local scoring goes on as well with inner iterations
# that are not complete, and their bound may stay above any tolerance for long.
_SWEEPS = 20
# Steps with as many sweeps as are allowed, once the steps are below the tolerance.
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
        Constant part of f, or where it begins if it is to be found.
    kernels : list of kernels, one a term
    spreads : list of ndarray, or None
        Variance of the inputs in each bin; None where points are distinct values.
    shift : ndarray of shape (Σ U_d,), optional
        What the rows of a point see beside the function there: the bias of bins.
    start : ndarray of shape (Σ U_d,), optional
        Functions to linearise around first; by default f is the level.
    constant : float, optional
        The constant part of f is to be found, with so much prior precision around ``level``: 0 for
        a flat prior, which the rows must bound. None: it is known.
    with_pairs : bool
        Hold the equations as two-way tables of the points, not row by row.
    solver : str
    tol : float
        Newton's iteration ends when a step moves nothing by more than this many posterior standard
        deviations; the last system is solved to an error of so many prior ones.
    max_iter, newton_max_iter : int
        Iterations of the solver in a step, and steps.
    watch : callable
        Told Ω after each step.
    """
    shift = np.zeros(rows.table.size) if shift is None else shift
    target = _Target(rows, likelihood, kernels, spreads, shift, level, constant, with_pairs)
    solver_of_steps = _Solver(solver, kernels, max_iter)
    point = target.beginning(start)
    pair = point.mean, point.dual
    trace: list[float] = []
    # Sweeps that are complete are made once steps are below the tolerance.
    solve_tol, step_size, closing = _LOOSEST, math.inf, 0
    while True:
        last = len(trace) >= newton_max_iter
        system, pull = target.system(point)
        solution = solver_of_steps.solve(system, solve_tol, pair, complete=last or closing > 0)
        step = _Step.between(point, solution, system, pull)
        pair = solution.mean, solution.dual
        if not point.is_guess:
            step_size = step.size
        complete = closing > 0 or solution.converged
        if last or (step_size <= tol and solve_tol <= tol and complete):
            break
        closing += closing > 0
        if closing > _CLOSINGS and solver_of_steps.has_limited_sweeps:
            break
        if step_size <= tol:  # once more, as exactly as was asked for
            solve_tol, closing = tol, max(closing, 1)
            continue
        following = target.along(point, step)
        if following is None:
            # Rounding, or a kernel that float64 cannot hold: what there is stays.
            solution = replace(solution, mean=point.mean, dual=point.dual, converged=False)
            step = replace(step, level=0.0)
            break
        if point.is_guess and following.objective < point.linearised.log_density:
            # Of the first step from given functions Ω is not known before; F = 0 is no worse.
            zero = target.zero()
            if following.objective < zero.objective:
                point, pair = zero, (zero.mean, zero.dual)
                continue
        point, pair = following, (following.mean, following.dual)
        trace.append(point.objective)
        watch(point.objective)
        solve_tol = max(tol, min(_LOOSEST, _SOLVE_SHARE * step_size))
    return Mode(
        system=system.given_constant(step.level),
        solution=solution,
        level=point.level + step.level,
        constant=constant,
        objective=point.objective,
        trace=trace,
        step=step_size,
        converged=bool(step_size <= tol),
    )


@dataclass(frozen=True)
class _Point:
    """Functions and a constant, with the likelihood linearised around them.

    Attributes
    ----------
    mean, dual : ndarray of shape (Σ U_d,)
        Functions F, and K̃⁻¹ F.
    level : float
    around : ndarray of shape (Σ U_d,)
        Functions that the likelihood is linearised around: F, but for a guess.
    linearised : Linearised
    objective : float
        Ω; of a guess it is not known, and −∞.
    is_guess : bool
        Whether the likelihood is linearised around functions whose dual is not known.
    """

    mean: Floats
    dual: Floats
    level: float
    around: Floats
    linearised: Linearised
    objective: float
    is_guess: bool = False


@dataclass(frozen=True)
class _Step:
    """A Newton step from a point, and its size in posterior standard deviations."""

    mean: Floats
    dual: Floats
    level: float
    size: float

    @classmethod
    def between(
        cls, point: _Point, solution: Solution, system: AdditiveSystem, pull: float
    ) -> _Step:
        """Return the step to the solution of the system that was linearised at a point."""
        mean, dual = solution.mean - point.mean, solution.dual - point.dual
        level = 0.0 if system.constant is None else system.constant_at(solution.mean)
        gain = 0.5 * (float(np.sum(mean * (point.linearised.gradient - point.dual))) + level * pull)
        # The gain is less than 0 by rounding only.
        return cls(mean, dual, level, math.sqrt(2 * abs(gain)))


@dataclass(frozen=True)
class _Target:
    """Ω as a function of functions and a constant; arguments as of ``find_mode``."""

    rows: ResponseRows
    likelihood: Likelihood
    kernels: list[Kernel]
    spreads: list[Floats] | None
    shift: Floats
    centre: float
    constant: float | None
    with_pairs: bool

    @property
    def precision(self) -> float:
        """Prior precision of the constant around ``centre``."""
        return self.constant or 0.0

    def linearised(self, level: float, functions: Floats) -> Linearised:
        """Linearise the likelihood around functions and a constant."""
        flat = functions + self.shift
        return self.rows.linearised(self.likelihood, level, flat, with_pairs=self.with_pairs)

    def point(self, mean: Floats, dual: Floats, level: float) -> _Point:
        """Return functions and a constant with Ω there."""
        linearised = self.linearised(level, mean)
        value = linearised.log_density - 0.5 * float(np.sum(mean * dual))
        value -= 0.5 * self.precision * (level - self.centre) ** 2
        return _Point(mean, dual, level, mean, linearised, value)

    def zero(self) -> _Point:
        """Return no functions, and the constant at its centre."""
        size = self.rows.table.size
        return self.point(np.zeros(size), np.zeros(size), self.centre)

    def beginning(self, start: Floats | None) -> _Point:
        """Linearise around given functions, or around none if these are hopeless."""
        if start is None:
            return self.zero()
        linearised = self.linearised(self.centre, start)
        if not linearised.log_density > -_HOPELESS * self.rows.n_rows:
            zero = self.zero()
            if not linearised.log_density > zero.objective:
                return zero
        size = self.rows.table.size
        return _Point(
            np.zeros(size),
            np.zeros(size),
            self.centre,
            start,
            linearised,
            -math.inf,
            is_guess=True,
        )

    def system(self, point: _Point) -> tuple[AdditiveSystem, float]:
        """Return the system of a Newton step, and what pulls at the constant, by its prior too."""
        equations = self.rows.equations(point.linearised, point.around, self.spreads)
        gradient = point.linearised.total_gradient
        pull = 0.0
        if self.constant is not None:
            pull = gradient - self.precision * (point.level - self.centre)
        total = equations.total_information + pull - gradient
        equations = replace(equations, total_information=total)
        return AdditiveSystem(equations, self.kernels, 1.0, UNFELT, self.constant), pull

    def along(self, point: _Point, step: _Step) -> _Point | None:
        """Go a step, or a half of it, a quarter, …, where Ω does not fall; None if nowhere."""
        least = point.objective - _ROUNDING * abs(point.objective)
        fraction = 1.0
        for _ in range(_HALVINGS):
            reached = self.point(
                point.mean + fraction * step.mean,
                point.dual + fraction * step.dual,
                point.level + fraction * step.level,
            )
            if reached.objective >= least:
                return reached
            fraction *= 0.5
        return None


class _Solver:
    """Solves the systems of all steps, with one coarse space and sweeps that may be limited."""

    def __init__(self, name: str, kernels: list[Kernel], max_iter: int) -> None:
        self.name = name
        self.is_multigrid = name == "multigrid" and bool(kernels)
        self.max_iter = max_iter
        self.sweeps = min(max_iter, _SWEEPS) if name == "backfitting" else max_iter
        self.coarse: Callable[[], CoarseSpace] | None = None

    @property
    def has_limited_sweeps(self) -> bool:
        """Whether steps but the last have fewer iterations than are allowed."""
        return self.sweeps < self.max_iter

    def solve(
        self, system: AdditiveSystem, tol: float, start: tuple[Floats, Floats], *, complete: bool
    ) -> Solution:
        """Solve the system of one step, with all iterations that are allowed if ``complete``."""
        options = {}
        if self.is_multigrid:
            if self.coarse is None:
                self.coarse = cache(partial(CoarseSpace, system))
            # As a preconditioner that of an earlier step serves as well.
            options["coarse"] = cache(partial(_of_system, self.coarse, system))
        iterations = self.max_iter if complete else self.sweeps
        return SOLVERS[self.name](system, tol=tol, max_iter=iterations, start=start, **options)


def _of_system(coarse: Callable[[], CoarseSpace], system: AdditiveSystem) -> CoarseSpace:
    return coarse().with_noise_of(system)
