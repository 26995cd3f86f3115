"""From hyperparameters to the posterior mean, in the units of ``Training``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from dsgp.additive import SOLVERS, AdditiveSystem, Equations, Pair, Solution
from dsgp.additive.bins import BinError
from dsgp.additive.evidence import Complexity
from dsgp.additive.multigrid import CoarseSpace
from dsgp.kernels import Kernel
from dsgp.models.checks import require_resolvable
from dsgp.models.gaussian.learner import Hyperparameters
from dsgp.terms import Floats

# If a noise variance changes by less than this share, nothing is solved again.
_SAME_NOISE = 1e-3
# Tolerance of a mean that only corrects the next system, relative to that of the next one.
_ROUGHER = 30.0
# Above this share, the estimate by slopes is not reliable.
_MOST_BIN_NOISE = 0.9
# Smallest share of the rows that the degrees of freedom must leave.
_FEWEST_LEFT = 0.05


@dataclass(frozen=True)
class Fit:
    """The posterior mean, and facts about it.

    Attributes
    ----------
    system : AdditiveSystem
        Of the targets less the constant.
    constant : float
        Posterior mean of the constant, in units of the equations' targets.
    solution : Solution
    complexity : Complexity
    log_likelihood : float
    bin_error : float
        Error of the bins in posterior standard deviations of the sum, root mean squares over the
        rows; 0 without bins.
    bin_noise : float
        Share of the system's noise variance that comes from the slopes within bins.
    refinable : tuple of two float
        Both, without terms whose number of bins is settled.
    """

    system: AdditiveSystem
    constant: float
    solution: Solution
    complexity: Complexity
    log_likelihood: float
    bin_error: float
    bin_noise: float
    refinable: tuple[float, float]


def solve(
    equations: Equations,
    hyper: Hyperparameters,
    spreads: list[Floats] | None,
    *,
    solver: str,
    tol: float,
    max_iter: int,
) -> Fit:
    """Compute the posterior mean, and the noise variance to all digits.

    The marginal likelihood was maximised on nodes and bins, where a small part of the functions
    counts as noise. At its maximum σ² = Σ w (y − f̂)² / (N − dof): that is computed again from the
    full posterior, less the variance due to the slopes within bins. A noise variance that was given
    is increased by that variance: rows of a bin scatter by both.
    """
    attempt = partial(
        _attempt,
        kernels=hyper.kernels,
        solver=solver,
        max_iter=max_iter,
        coarse=cache(partial(CoarseSpace, AdditiveSystem(equations, hyper.kernels, 1.0))),
    )
    first_tol = tol if spreads is None else _ROUGHER * tol
    system, constant, solution, complexity = attempt(
        equations, hyper.noise_variance, hyper.pair, tol=first_tol
    )
    error = None if spreads is None else BinError.of(system, solution.dual, spreads)
    noise = hyper.noise_variance
    if hyper.learner == "marginal":
        noise = _noise(system, solution, complexity, hyper.noise_bounds)
    if error is not None:
        equations = error.corrected(equations)
        if not hyper.noise_holds_bins:
            noise = min(noise + error.extra_noise, noise / (1 - _MOST_BIN_NOISE))
    if error is not None or noise != hyper.noise_variance:
        pair = (solution.mean, solution.dual)
        system, constant, solution, complexity = attempt(equations, noise, pair, tol=tol)
    require_resolvable(hyper.kernels, noise)
    bin_error = 0.0
    bin_noise = 0.0 if hyper.noise_holds_bins else 1 - hyper.noise_variance / noise
    refinable = (0.0, 0.0)
    if error is not None and spreads is not None and complexity.dof > 0:
        unit = math.sqrt(noise * complexity.dof / equations.n_rows)
        again = BinError.of(system, solution.dual, spreads)
        left = math.hypot(replace(again, bias=again.bias - error.bias).size(system), again.rest)
        bin_error = left / unit
        if hyper.noise_holds_bins:
            bin_noise = min(again.extra_noise / noise, _MOST_BIN_NOISE)
        refinable = (bin_error, bin_noise)
        if not all(cells.is_resolved for cells in system.layout.cells):
            some = BinError.of(system, solution.dual, spreads, lambda cells: cells.is_resolved)
            earlier = np.where(some.bias == 0, 0.0, error.bias)
            left = math.hypot(replace(some, bias=some.bias - earlier).size(system), some.rest)
            refinable = (left / unit, some.extra_noise / noise)
    likelihood = complexity.log_marginal_likelihood(system, solution)
    return Fit(system, constant, solution, complexity, likelihood, bin_error, bin_noise, refinable)


def _attempt(
    equations: Equations,
    noise_variance: float,
    start: Pair | None,
    *,
    kernels: list[Kernel],
    solver: str,
    tol: float,
    max_iter: int,
    coarse: Callable[[], CoarseSpace],
) -> tuple[AdditiveSystem, float, Solution, Complexity]:
    system = AdditiveSystem(equations, kernels, noise_variance, constant=0.0)
    coarse_of_system = cache(lambda: coarse().with_noise_of(system))
    extra = {"coarse": coarse_of_system} if solver == "multigrid" else {}
    solution = SOLVERS[solver](system, tol=tol, max_iter=max_iter, start=start, **extra)
    constant = system.constant_at(solution.mean)
    with_constant = system.given_constant(constant)
    coupled = coarse().with_noise_of(with_constant) if len(kernels) > 1 else None
    return with_constant, constant, solution, Complexity.of(with_constant, coupled)


def _noise(
    system: AdditiveSystem,
    solution: Solution,
    complexity: Complexity,
    bounds: tuple[float, float],
) -> float:
    equations, noise = system.equations, system.noise_variance
    n_rows = equations.n_rows
    left = n_rows - complexity.dof - complexity.constant_dof
    if left < _FEWEST_LEFT * n_rows:
        return noise
    better = min(max(equations.squares(solution.mean) / left, bounds[0]), bounds[1])
    return noise if abs(better / noise - 1) < _SAME_NOISE else better
