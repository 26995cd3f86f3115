"""From equations to hyperparameters and posterior, in the units of ``Training``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.additive import SOLVERS, AdditiveSystem, Equations, Pair, Solution
from dsgp.additive.bins import BinError
from dsgp.additive.constant import UnknownConstant, unknown_constant
from dsgp.additive.evidence import Complexity
from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.tables import BINS, TwoWayTables
from dsgp.additive.variance import Covariance, covariance_of
from dsgp.estimators.parameters import require_resolvable
from dsgp.kernels import Kernel
from dsgp.learning.evidence import Rows
from dsgp.learning.marginal import Learned, marginal
from dsgp.learning.nodes import are_too_many
from dsgp.learning.search import Search, search_for
from dsgp.learning.vbem import vbem
from dsgp.terms import Floats

# A noise variance that moves by less than this share need not be solved for again.
_SAME_NOISE = 1e-3
# Beyond, an estimate by slopes is none.
_MOST_BIN_NOISE = 0.9
# Rows that the degrees of freedom must leave, as a share.
_FEWEST_LEFT = 0.05


class Clock:
    """Wall seconds of each stage of a fit."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since = "read", time.perf_counter()

    def stage(self, name: str) -> None:
        """End the stage before and begin another."""
        now = time.perf_counter()
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now

    def finish(self) -> dict[str, float]:
        """End the last stage."""
        self.stage("")
        return self.seconds


@dataclass(frozen=True)
class Found:
    """Hyperparameters, and how they were found.

    Attributes
    ----------
    kernels : list of kernels, one a term
    noise_variance : float
    noise_bounds : tuple of float
    learner : str or None
        The one that was relied on.
    trace : list of float
        What it maximised, after each iteration.
    n_iter : int
    converged : bool
    notes : list of str
        For people.
    pair : (mean, dual), optional
        Where a solver may start.
    """

    kernels: list[Kernel]
    noise_variance: float
    noise_bounds: tuple[float, float]
    learner: str | None
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = True
    notes: list[str] = field(default_factory=list)
    pair: Pair | None = None


def learn(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    noise_bounds: tuple[float, float],
    *,
    learner: str,
    solve: Callable[[AdditiveSystem, Pair | None], Solution],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None],
) -> Found:
    """Learn hyperparameters by the marginal likelihood or VBEM.

    Where the marginal likelihood's nodes cannot resolve the functions, VBEM takes over from what it
    found, and the notes say so.
    """
    notes: list[str] = []
    if not kernels:  # all columns are constant
        left = max(equations.n_rows - 1, 1)  # the constant takes up one
        noise = min(max(equations.quadratic / left, noise_bounds[0]), noise_bounds[1])
        return Found([], noise, (noise, noise), learner)
    if learner == "marginal" and are_too_many(equations.layout.cells):
        notes.append(
            "the levels are too many for the determinant of all terms together: variational Bayes "
            "EM, which takes the terms as independent a posteriori, took over"
        )
    elif learner == "marginal":
        wanted = max((BINS[kernel.order] for kernel in kernels), default=1)
        tables = equations.tables(wanted)
        searches = [
            search_for(kernel, cells, weight, len(kernels))
            for kernel, cells, weight in zip(kernels, tables.cells, tables.weights, strict=True)
        ]
        require_resolvable([search.middle for search in searches], noise_variance)
        result = _at_nodes(
            tables,
            equations,
            searches,
            noise_variance,
            noise_bounds=noise_bounds,
            tol=tol,
            max_iter=max_iter,
            watch=watch,
        )
        if result is None:
            notes.append(
                "float64 cannot resolve the likelihood at the nodes: variational Bayes EM took over"
            )
        else:
            notes.append(note_of_nodes(result))
            if result.resolved:
                return by_nodes(result, noise_bounds, notes)
            notes.append(
                "the functions are too rough for the nodes that the budget allows: "
                "variational Bayes EM took over"
            )
            kernels, noise_variance = result.kernels, result.noise_variance
    return by_vbem(
        equations,
        kernels,
        noise_variance,
        noise_bounds,
        solve=solve,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
        notes=notes,
    )


def note_of_nodes(result: Learned) -> str:
    """Say how many nodes there were, and how much they leave open."""
    fewest, most = min(result.n_nodes, default=0), max(result.n_nodes, default=0)
    nodes = f"{fewest} nodes a term" if fewest == most else f"{fewest} to {most} nodes a term"
    return (
        f"{nodes}; the prior variance they leave open adds "
        f"{sum(result.open_variance):.2g} of the noise variance"
    )


def by_nodes(result: Learned, noise_bounds: tuple[float, float], notes: list[str]) -> Found:
    """Take what the marginal likelihood at nodes gave."""
    return Found(
        result.kernels,
        result.noise_variance,
        noise_bounds,
        "marginal",
        result.trace,
        result.evaluations,
        result.converged,
        notes,
    )


def by_vbem(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    noise_bounds: tuple[float, float],
    *,
    solve: Callable[[AdditiveSystem, Pair | None], Solution],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None],
    notes: list[str],
    shortest: list[float | None] | None = None,
) -> Found:
    """Learn by variational Bayes EM, on every point of all axes.

    ``shortest`` are the least lengthscales of the terms; see ``search_for``.
    """
    layout = equations.layout
    searches = [
        search_for(
            kernel,
            cells,
            weight,
            len(kernels),
            shortest=None if shortest is None else shortest[d],
        )
        for d, (kernel, cells, weight) in enumerate(
            zip(kernels, layout.cells, layout.parts(equations.weight), strict=True)
        )
    ]
    require_resolvable([search.start for search in searches], noise_variance)
    learned = vbem(
        equations,
        searches,
        noise_variance,
        solve,
        noise_bounds=noise_bounds,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
    )
    return Found(
        learned.kernels,
        learned.noise_variance,
        noise_bounds,
        "vbem",
        learned.trace,
        len(learned.trace) - 1,
        learned.converged,
        notes,
        learned.pair,
    )


def _at_nodes(
    tables: TwoWayTables,
    equations: Equations,
    searches: list[Search],
    noise_variance: float,
    **options: Any,
) -> Learned | None:
    """Maximise the marginal likelihood at nodes; None where float64 cannot resolve it."""
    rows = Rows(equations.quadratic, equations.n_rows, equations.log_weight)
    try:
        return marginal(tables, rows, searches, noise_variance, **options)
    except LinAlgError:
        return None


@dataclass(frozen=True)
class Fit:
    """The posterior mean and what is told of it.

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
    """

    system: AdditiveSystem
    constant: float
    solution: Solution
    complexity: Complexity
    log_likelihood: float
    bin_error: float
    bin_noise: float


def solve(
    equations: Equations,
    found: Found,
    spreads: list[Floats] | None,
    *,
    solver: str,
    tol: float,
    max_iter: int,
) -> Fit:
    """Compute the posterior mean, and the noise variance to all digits.

    The marginal likelihood was maximised on nodes and bins, which leave a little of the functions
    to the noise. At its maximum σ² = Σ w (y − f̂)² / (N − dof): that is computed again from the
    full posterior, less what the slopes within bins add.
    """
    attempt = partial(
        _attempt,
        kernels=found.kernels,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        coarse=cache(partial(CoarseSpace, AdditiveSystem(equations, found.kernels, 1.0))),
    )
    system, constant, solution, complexity = attempt(equations, found.noise_variance, found.pair)
    error = None if spreads is None else BinError.of(system, solution.dual, spreads)
    noise = found.noise_variance
    if found.learner == "marginal":
        noise = _noise(system, solution, complexity, found.noise_bounds)
    if error is not None:
        equations = error.corrected(equations)
    if error is not None or noise != found.noise_variance:
        pair = (solution.mean, solution.dual)
        system, constant, solution, complexity = attempt(equations, noise, pair)
    require_resolvable(found.kernels, noise)
    bin_error = bin_noise = 0.0
    if error is not None and spreads is not None and complexity.dof > 0:
        again = BinError.of(system, solution.dual, spreads)
        left = math.hypot(replace(again, bias=again.bias - error.bias).size(system), again.rest)
        bin_error = left / math.sqrt(noise * complexity.dof / equations.n_rows)
        if found.learner is not None and found.noise_bounds[0] < found.noise_bounds[1]:
            # It was learned as noise.
            bin_noise = min(again.extra_noise / noise, _MOST_BIN_NOISE)
    likelihood = complexity.log_marginal_likelihood(system, solution)
    return Fit(system, constant, solution, complexity, likelihood, bin_error, bin_noise)


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
    own = cache(lambda: coarse().with_noise_of(system))
    extra = {"coarse": own} if solver == "multigrid" else {}
    solution = SOLVERS[solver](system, tol=tol, max_iter=max_iter, start=start, **extra)
    constant = system.constant_at(solution.mean)
    given = system.given_constant(constant)
    coupled = coarse().with_noise_of(given) if len(kernels) > 1 else None
    return given, constant, solution, Complexity.of(given, coupled)


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


@dataclass(frozen=True)
class Posterior:
    """The system of a fitted model in the user's units, and its variances.

    Attributes
    ----------
    system : AdditiveSystem
    covariance : Covariance or None
        Of the terms, were the constant known; None where there is no term.
    constant : UnknownConstant or None
        What its uncertainty adds; None where the user gave it.
    """

    system: AdditiveSystem
    covariance: Covariance | None
    constant: UnknownConstant | None

    @classmethod
    def of(cls, system: AdditiveSystem, constant: float | None) -> Posterior:
        """Make it; ``constant`` as of ``AdditiveSystem``."""
        coarse = cache(partial(CoarseSpace, system))
        covariance = covariance_of(system, coarse) if system.kernels else None
        unknown = None
        if constant is not None:
            unknown = unknown_constant(system, covariance, constant, coarse)
        return cls(system, covariance, unknown)

    def variance(self, inputs: list[Floats], n_rows: int) -> Floats:
        """Of constant and terms together at rows given by the inputs of the terms, (n,)."""
        variance = self.given_constant(inputs, n_rows)
        if self.constant is not None:
            variance += self.constant.deviation(inputs, n_rows) ** 2
        return variance

    def given_constant(self, inputs: list[Floats], n_rows: int) -> Floats:
        """Variance of the sum of the terms, were the constant known, (n,)."""
        return np.zeros(n_rows) if self.covariance is None else self.covariance.variance(inputs)

    def centred_variance(self, term: int, inputs: Floats) -> Floats:
        """Of one term minus its weighted mean over the training rows, (n,)."""
        assert self.covariance is not None
        variance = self.covariance.centred_variance(term, inputs)
        if self.constant is not None:
            variance = variance + self.constant.centred_deviation(term, inputs) ** 2
        return variance
