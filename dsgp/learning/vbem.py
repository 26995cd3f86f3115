"""Variational Bayes EM for additive models (Gilboa et al., section "gpvb").

The posterior is approximated by independent terms, q(F) = Π_d q(f_d). Its optimal covariances are
those of each 1-D smoother, and with these the lower bound on the log marginal likelihood is, for
any means f̂_d,

    −½ [N log 2π − Σ log w_i + Σ w_i (y_i − f̂_i)² + Σ_d (f̂_dᵀ K_d⁻¹ f̂_d + log det(I + K_d W_d))],

largest at the exact joint posterior means. A solver that stops at an error bound of b prior
standard deviations leaves it at most b²/2 below that.

For fixed other terms and noise, the bound as a function of θ_d with q(f_d) optimised out is the
1-D log marginal likelihood of the partial residual plus a constant: maximising that is the M-step
of a term ("collapsed": it has the same fixed points as the paper's expected statistics, which are
in ``em``, and never gives a smaller bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from dsgp.additive import AdditiveSystem, Equations, Pair, Solution
from dsgp.compute import run
from dsgp.kernels import Kernel
from dsgp.learning.search import Search
from dsgp.terms import LOG_2PI, Cells, Floats, Observations, Posterior

_SMOOTH = 1e-7  # seconds of compiled work per point
# The M-step of a term ends after this many L-BFGS iterations, or at a gradient, in nats per unit of
# a log parameter, that promises next to nothing: the other terms will change too.
_M_STEP_ITERATIONS = 8
_M_STEP_GRADIENT = 0.05


@dataclass(frozen=True)
class Expectation:
    """The variational posterior for one set of hyperparameters (E-step).

    Not the system itself, whose smoothers would stay in memory.
    """

    noise_variance: float
    solution: Solution
    posteriors: list[Posterior]
    bound: float


Solve = Callable[[AdditiveSystem, Pair | None], Solution]


def expectation(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    solve: Solve,
    start: Pair | None = None,
) -> Expectation:
    """Compute the variational posterior and its bound.

    Parameters
    ----------
    equations : Equations
        Of centred targets.
    kernels : list of kernels, one per term
    noise_variance : float
        Of a row of weight 1.
    solve : callable (system, start) -> Solution
    start : (mean, dual), each ndarray of shape (Σ U_d,), optional
        Initial value of the solver.
    """
    system = AdditiveSystem(equations, kernels, noise_variance)
    layout = equations.layout
    solution = solve(system, start)
    residual = system.information - system.multiply(solution.mean)
    target = residual / np.where(system.weight > 0, system.weight, 1.0) + solution.mean
    tasks = [
        partial(cells.posterior, kernel, Observations(t, w))
        for cells, kernel, t, w in zip(
            layout.cells, kernels, layout.parts(target), layout.parts(system.weight), strict=True
        )
    ]
    posteriors = run(tasks, _SMOOTH * layout.size)
    bound = -0.5 * (
        equations.n_rows * (LOG_2PI + math.log(noise_variance))
        - equations.log_weight
        + equations.squares(solution.mean) / noise_variance
        + float(np.sum(solution.mean * solution.dual))
        + sum(p.log_det for p in posteriors)
    )
    return Expectation(noise_variance, solution, posteriors, bound)


@dataclass(frozen=True)
class Learned:
    """Hyperparameters found by VBEM.

    Attributes
    ----------
    kernels : list of kernels, one per term
    noise_variance : float
    trace : list of float
        The bound after each E-step; it never falls.
    pair : (mean, dual), each ndarray of shape (Σ U_d,)
        An initial value for the solver.
    converged : bool
    """

    kernels: list[Kernel]
    noise_variance: float
    trace: list[float]
    pair: Pair
    converged: bool


def vbem(
    equations: Equations,
    searches: list[Search],
    noise_variance: float,
    solve: Solve,
    *,
    noise_bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None] = lambda bound: None,
) -> Learned:
    """Alternate E-steps and M-steps until the bound gains less than ``tol``.

    Parameters
    ----------
    equations : Equations
    searches : list of Search, one per term
    noise_variance : float
        Start.
    solve : callable (system, start) -> Solution
    noise_bounds : tuple of float
        Equal ends keep the noise variance as it is.
    tol : float
        Smallest gain of the bound, in nats, worth another iteration.
    max_iter : int
    watch : callable
        Called with the bound after every E-step.
    """
    start = [search.start for search in searches]
    state = expectation(equations, start, noise_variance, solve)
    trace = [state.bound]
    watch(state.bound)
    converged = False
    everywhere = True  # try the other initial values in this sweep
    for _ in range(max_iter):
        step = _m_step(equations, searches, state, everywhere)
        for noise_variance in step.noise_variances:
            found = expectation(
                equations,
                step.kernels,
                float(np.clip(noise_variance, *noise_bounds)),
                solve,
                step.pair,
            )
            # The bound falls where only rounding, or a solve that had to stop early, is left to
            # gain.
            if found.bound >= state.bound:
                state = found
                break
        trace.append(state.bound)
        watch(state.bound)
        converged = trace[-1] - trace[-2] < tol
        if converged and everywhere:
            break
        everywhere = converged
    return Learned(
        kernels=[posterior.kernel for posterior in state.posteriors],
        noise_variance=state.noise_variance,
        trace=trace,
        pair=(state.solution.mean, state.solution.dual),
        converged=converged,
    )


class _Step(NamedTuple):
    """Result of an M-step: kernels, noise variances to try in turn, the solver's initial value."""

    kernels: list[Kernel]
    noise_variances: tuple[float, float]
    pair: Pair


def _m_step(
    equations: Equations,
    searches: list[Search],
    state: Expectation,
    everywhere: bool,
) -> _Step:
    """Improve every term in turn, then the noise.

    The bound's own noise update, σ² = (Σ w (y − f̂)² + Σ v) / N, keeps the variances v of the terms
    where they are and therefore creeps when the terms have many degrees of freedom. As v is nearly
    proportional to σ², the limit of these steps, Σ w (y − f̂)² / (N − Σ v / σ²), is tried first.
    """
    layout, noise = equations.layout, state.noise_variance
    kernels: list[Kernel] = []
    mean, dual = state.solution.mean.copy(), state.solution.dual.copy()
    fitted = equations.fitted(mean)
    dof = 0.0  # Σ v / σ²
    for term, search in enumerate(searches):
        old = layout.part(mean, term)
        weight = layout.part(equations.weight, term)
        seen = Observations(
            fitted.residual(term) / np.where(weight > 0, weight, 1.0) + old, weight / noise
        )
        starts = [state.posteriors[term].kernel, *(search.others if everywhere else ())]
        kernel, posterior = max(
            (maximise(search, start, layout.cells[term], seen) for start in starts),
            key=lambda found: found[1].evidence.value + found[0].log_prior,
        )
        kernels.append(kernel)
        fitted.add(term, posterior.mean - old)
        old[:] = posterior.mean
        layout.part(dual, term)[:] = posterior.dual
        dof += float(np.sum(seen.weight * posterior.variance))
    squares, n_rows = equations.squares(mean), equations.n_rows
    own = (squares + noise * dof) / n_rows
    ahead = squares / max(n_rows - dof, 0.05 * n_rows)
    return _Step(kernels, (ahead, own), (mean, dual))


def maximise(
    search: Search, kernel: Kernel, cells: Cells, seen: Observations
) -> tuple[Kernel, Posterior]:
    """Improve one kernel by the 1-D log marginal likelihood of its partial residual.

    The result is never worse than the kernel it starts from.
    """
    best: tuple[float, Posterior] | None = None

    def loss(log_values: Floats) -> tuple[float, Floats]:
        nonlocal best
        kernel = search.kernel(log_values)
        posterior, slopes = cells.posterior(kernel, seen), kernel.log_prior_slopes()
        value = posterior.evidence.value + kernel.log_prior
        if best is None or value > best[0]:
            best = value, posterior
        by_log = posterior.evidence.by_log
        gradient = [by_log[name] + slopes.get(name, (0.0, 0.0))[0] for name in search.names]
        return -value, -np.array(gradient)

    start = np.log([float(kernel.value(name) or 1.0) for name in search.names])
    if search.names:
        minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(search.lower, search.upper, strict=True)),
            options={"maxiter": _M_STEP_ITERATIONS, "gtol": _M_STEP_GRADIENT},
        )
    else:
        loss(start)
    assert best is not None  # the first evaluation is at the initial value
    return best[1].kernel, best[1]
