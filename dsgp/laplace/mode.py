"""The mode of the posterior by Newton's method, each step a weighted additive system.

Any solver of the system will do: with backfitting this is local scoring (Hastie and Tibshirani;
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
from dsgp.laplace.rows import ResponseRows
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
    size = rows.table.size
    shift = np.zeros(size) if shift is None else shift
    linearise = partial(rows.linearised, likelihood, with_pairs=with_pairs)
    mean, dual = np.zeros(size), np.zeros(size)
    centre, precision = level, constant or 0.0
    pair = mean, dual
    around = mean if start is None else start
    found = linearise(level, around + shift)
    objective = found.log_density if start is None else -math.inf

    def from_zero() -> tuple[Any, float]:
        zero = linearise(level, shift)
        return zero, zero.log_density - 0.5 * precision * (level - centre) ** 2

    if start is not None and not found.log_density > -_HOPELESS * rows.n_rows:
        begun = from_zero()
        if not found.log_density > begun[1]:
            start, around, (found, objective) = None, mean, begun
    trace: list[float] = []
    coarse: Callable[[], CoarseSpace] | None = None
    solve_tol, step_size, closing = _LOOSEST, math.inf, 0
    inner = min(max_iter, _SWEEPS) if solver == "backfitting" else max_iter
    while True:
        equations = rows.equations(found, around, spreads)
        # What pulls at the constant, by its prior too.
        pull = 0.0 if constant is None else found.total_gradient - precision * (level - centre)
        total = equations.total_information + pull - found.total_gradient
        equations = replace(equations, total_information=total)
        system = AdditiveSystem(equations, kernels, 1.0, UNFELT, constant)
        if solver == "multigrid" and kernels:
            # As a preconditioner that of an earlier step serves as well.
            coarse = cache(partial(CoarseSpace, system)) if coarse is None else coarse
            own = cache(partial(_of_system, coarse, system))
        extra = {"coarse": own} if solver == "multigrid" and kernels else {}
        last = len(trace) >= newton_max_iter
        iterations = max_iter if last or closing else inner
        solution = SOLVERS[solver](system, tol=solve_tol, max_iter=iterations, start=pair, **extra)
        pair = solution.mean, solution.dual
        step, step_dual = solution.mean - mean, solution.dual - dual
        level_step = 0.0 if constant is None else system.constant_at(solution.mean)
        if trace or start is None:
            gain = 0.5 * (float(np.sum(step * (found.gradient - dual))) + level_step * pull)
            step_size = math.sqrt(2 * abs(gain))  # less than 0 by rounding only
        complete = closing > 0 or solution.converged
        if last or (step_size <= tol and solve_tol <= tol and complete):
            break
        closing += closing > 0
        if closing > _CLOSINGS and inner < max_iter:
            break
        if step_size <= tol:  # once more, as exactly as was asked for
            solve_tol, closing = tol, max(closing, 1)
            continue
        fraction = 1.0
        for _ in range(_HALVINGS):
            tried_mean, tried_dual = mean + fraction * step, dual + fraction * step_dual
            tried_level = level + fraction * level_step
            tried = linearise(tried_level, tried_mean + shift)
            value = tried.log_density - 0.5 * float(np.sum(tried_mean * tried_dual))
            value -= 0.5 * precision * (tried_level - centre) ** 2
            if value >= objective - _ROUNDING * abs(objective):
                break
            fraction *= 0.5
        else:
            # Rounding, or a kernel that float64 cannot hold: what there is stays.
            solution = replace(solution, mean=mean, dual=dual, converged=False)
            level_step = 0.0
            break
        if not trace and start is not None and value < found.log_density:
            # Of the first step from given functions Ω is not known before; F = 0 is no worse.
            begun = from_zero()
            if value < begun[1]:
                start, around, pair, (found, objective) = None, mean, (mean, dual), begun
                continue
        mean, dual, found, objective, around = tried_mean, tried_dual, tried, value, tried_mean
        level = tried_level
        pair = mean, dual
        trace.append(objective)
        watch(objective)
        solve_tol = max(tol, min(_LOOSEST, _SOLVE_SHARE * step_size))
    given = system.given_constant(level_step)
    return Mode(
        given,
        solution,
        level + level_step,
        constant,
        objective,
        trace,
        step_size,
        bool(step_size <= tol),
    )


def _of_system(coarse: Callable[[], CoarseSpace], system: AdditiveSystem) -> CoarseSpace:
    return coarse().with_noise_of(system)
