"""Hyperparameters by working models on every point of all axes: for functions beyond nodes.

At a mode the likelihood is that of a Gaussian working model, whose hyperparameters are learned by
variational Bayes EM on the points themselves (which is exact with one term). Mode and model are
computed in turn, and the parameters of the likelihood are updated in between. The dependence of the
mode's weights on the hyperparameters is neglected, so that Laplace's evidence need not increase:
the best state is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dsgp.additive import AdditiveSystem, Equations, Pair, Solution
from dsgp.kernels import Kernel
from dsgp.laplace.linearised import PairTables
from dsgp.laplace.mode import Mode
from dsgp.laplace.parameters import likelihood_at
from dsgp.laplace.rows import ResponseRows
from dsgp.learning.search import Search
from dsgp.learning.vbem import vbem
from dsgp.likelihoods import Likelihood
from dsgp.terms import Floats, Observations

# Iterations of EM on one working model. It is replaced by the next one before more are worth their
# time.
_EM_STEPS = 4
# Largest change of an unconstrained parameter of a likelihood from one mode to the next.
_RADIUS = 2.0

Solve = Callable[[AdditiveSystem, Pair | None], Solution]


@dataclass(frozen=True)
class State:
    """Hyperparameters with the mode and Laplace's evidence at them.

    Attributes
    ----------
    kernels : list of kernels, one per term
    likelihood : Likelihood
    mode : Mode
        It includes the constant.
    value : float
        Log marginal likelihood, and the log density of the kernels' priors.
    """

    kernels: list[Kernel]
    likelihood: Likelihood
    mode: Mode
    value: float


@dataclass(frozen=True)
class Climb:
    """The best state, and the course of the search.

    Attributes
    ----------
    best : State
    trace : list of float
        The evidence, whenever it was the best so far.
    evaluations : int
    converged : bool
    """

    best: State
    trace: list[float]
    evaluations: int
    converged: bool


def climb(
    rows: ResponseRows,
    state: State,
    find: Callable[[State], State],
    searches: list[Search],
    *,
    solve: Solve,
    tol: float,
    max_iter: int,
    unit: float,
    watch: Callable[[float], None] = lambda value: None,
) -> Climb:
    """Alternate modes and EM on their working models until the evidence gains less than ``tol``.

    Parameters
    ----------
    rows : ResponseRows
    state : State
        Where it starts, its mode and value included.
    find : callable
        Finds mode and value of a state's hyperparameters, from the mode it has.
    searches : list of Search, one per term
    solve : callable (system, start) -> Solution
    tol : float
        In nats.
    max_iter : int
        Largest number of modes.
    unit : float
        As for ``Likelihood.limits``.
    watch : callable
        Called with the evidence at every mode.
    """
    best, trace = state, [state.value]
    watch(state.value)
    converged, evaluations = False, 0
    while evaluations < max_iter and not converged:
        evaluations += 1
        state = find(_moved(rows, state, searches, solve, unit))
        watch(state.value)
        gain = state.value - best.value
        if gain > 0:
            best = state
            trace.append(state.value)
        converged = gain < tol
    return Climb(best, trace, evaluations, converged)


def working_equations(rows: ResponseRows, mode: Mode) -> Equations:
    """Equations of the working model at a mode, for noise variance 1.

    Residuals of working targets have a variance of 1; a weight that vanishes has no target, so that
    the sum of their squares is taken to be the number of rows.
    """
    equations = mode.system.equations
    mean = mode.solution.mean
    fit = float(np.sum(mean * (2 * equations.information - equations.multiply(mean))))
    return replace(
        equations, quadratic=fit + rows.total_weight, n_rows=max(round(rows.total_weight), 1)
    )


def _moved(
    rows: ResponseRows,
    state: State,
    searches: list[Search],
    solve: Solve,
    unit: float,
) -> State:
    """Return better hyperparameters by the working model; mode and value are not yet updated."""
    equations = working_equations(rows, state.mode)
    starts = [
        replace(search, start=kernel, others=())
        for search, kernel in zip(searches, state.kernels, strict=True)
    ]
    learned = vbem(
        equations,
        starts,
        1.0,
        solve,
        noise_bounds=(1.0, 1.0),
        tol=0.0,
        max_iter=_EM_STEPS,
    )
    likelihood = state.likelihood
    if len(likelihood.unconstrained()):
        latent = rows.latent(state.mode.level, state.mode.solution.mean)
        likelihood, _ = likelihood_at(
            rows, likelihood, latent, _row_variances(rows, state.mode), _RADIUS, unit
        )
    return replace(state, kernels=learned.kernels, likelihood=likelihood)


def _row_variances(rows: ResponseRows, mode: Mode) -> Floats:
    """Posterior variances of f of all rows, the terms as if independent."""
    system = mode.system
    layout = system.layout
    variances = [
        cells.posterior(kernel, Observations(np.zeros(len(cells)), weight)).variance
        for cells, kernel, weight in zip(
            layout.cells, system.kernels, layout.parts(system.weight), strict=True
        )
    ]
    return rows.variances(PairTables(0.0, np.concatenate(variances), {}))
