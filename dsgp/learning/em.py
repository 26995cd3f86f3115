"""Variational EM for additive models as the paper has it (Gilboa et al., section "gpvb").

The posterior is approximated as in ``vbem``, and the E-step is the same. The M-step uses the
expected sufficient statistics of each term's chain of states, and maximises the expected log
density of that chain in lengthscale and variance, with the states fixed. The bound never falls, and
its steps are short: n states of m components determine the variance of the process noise to a
relative sqrt(2 / (n m)), however little informative the targets are, so that the share of the
remaining distance that a step covers falls as 1 / n. ``vbem`` maximises the bound of a term itself,
with the states integrated out: the same optima, in a fraction of the iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dsgp.additive import Equations
from dsgp.compute import run
from dsgp.errors import ParameterError
from dsgp.kernels import Kernel, Matern
from dsgp.learning.search import Search
from dsgp.learning.vbem import Expectation, Learned, Solve, expectation
from dsgp.rows.table import Layout
from dsgp.terms import Axis, Cells, ExpectedChain, Floats, Posterior

_M_STEP = 2e-5  # seconds of compiled work per point
_M_STEP_ITERATIONS = 10
# The M-step of a term ends at this share of its initial gradient.
_M_STEP_SHARE = 0.02
# Step in the log of a lengthscale for the second derivative by a difference of gradients.
_AHEAD = 1e-3
# Initial lengthscales, relative to the width of the bulk of the rows.
_WIDTHS = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05)
# The log of a parameter is at its bound if it is this close to it.
_EDGE = 1e-9
# Up to this number of rows the noise has to meet the tolerance as it is; beyond, its slope is
# scaled as in ``marginal``.
_FEW_ROWS = 50


def em(
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
    """Alternate E-steps and M-steps until the bound is nearly flat.

    Parameters and result are those of ``vbem``, with two exceptions. The search starts at the best
    of a few multiples of the widths of all columns. And ``tol`` is, as for ``marginal``, a bound on
    the derivatives of the bound by the logs of the hyperparameters, in nats: small gains mean small
    steps, and not that an optimum is near.

    Raises
    ------
    ParameterError
        If a term is not a Matérn process along one column.
    """
    require_chains(equations.layout, [search.start for search in searches])
    state = max(
        (expectation(equations, start, noise_variance, solve) for start in _starts(searches)),
        key=lambda state: state.bound,
    )
    trace = [state.bound]
    watch(state.bound)
    converged = _steepest(equations, searches, state, noise_bounds) <= tol
    for _ in range(max_iter):
        if converged:
            break
        kernels = _m_step(equations.layout.cells, searches, state)
        found = expectation(
            equations,
            kernels,
            float(np.clip(_noise_variance(equations, state), *noise_bounds)),
            solve,
            (state.solution.mean, state.solution.dual),
        )
        if found.bound < state.bound:
            # Rounding, or a solve that had to stop early, exceeds what there was to gain.
            break
        state = found
        trace.append(state.bound)
        watch(state.bound)
        converged = _steepest(equations, searches, state, noise_bounds) <= tol
    return Learned(
        kernels=[posterior.kernel for posterior in state.posteriors],
        noise_variance=state.noise_variance,
        trace=trace,
        pair=(state.solution.mean, state.solution.dual),
        converged=converged,
    )


def require_chains(layout: Layout, kernels: list[Kernel]) -> None:
    """Raise unless every term is a chain of states along one column.

    Raises
    ------
    ParameterError
        With the name of the first term that is not.
    """
    for name, cells, kernel in zip(layout.names, layout.cells, kernels, strict=True):
        if type(cells) is not Axis or not isinstance(kernel, Matern):
            raise ParameterError(
                'learner="em" learns Matérn functions of one column without `by`, and the term '
                f'{name!r} with the kernel {kernel!r} is not one; use learner="vbem"'
            )


def _starts(searches: list[Search]) -> list[list[Kernel]]:
    """Initial kernels of all terms: the same multiple of the width of each column.

    Lengthscales that were given are kept.
    """
    starts: list[list[Kernel]] = []
    for width in _WIDTHS:
        kernels = []
        for search in searches:
            kernel = search.middle
            given = kernel.value("lengthscale") == search.start.value("lengthscale")
            if "lengthscale" in search.names and not given:
                kernel = kernel.with_parameters(lengthscale=width * search.width)
            kernels.append(kernel)
        if kernels not in starts:
            starts.append(kernels)
    return starts


def _m_step(
    cells: tuple[Cells, ...] | list[Cells], searches: list[Search], state: Expectation
) -> list[Kernel]:
    """Improve the kernels of all terms, each by the statistics of its own chain."""
    tasks = [
        partial(_improved, search, own, posterior)
        for search, own, posterior in zip(searches, cells, state.posteriors, strict=True)
    ]
    return run(tasks, _M_STEP * sum(map(len, cells)))


def _improved(search: Search, cells: Cells, posterior: Posterior) -> Kernel:
    assert isinstance(cells, Axis)
    if not search.names:
        return posterior.kernel
    return maximise_expected(search, cells.expected_chain(posterior.kernel, posterior.seen))


def _noise_variance(equations: Equations, state: Expectation) -> float:
    """Noise variance of the M-step: (Σ w (y − f̂)² + Σ w v) / N, v the variances of the terms."""
    dof = sum(float(np.sum(p.seen.weight * p.variance)) for p in state.posteriors)
    squares = equations.squares(state.solution.mean)
    return (squares + state.noise_variance * dof) / equations.n_rows


def _steepest(
    equations: Equations,
    searches: list[Search],
    state: Expectation,
    noise_bounds: tuple[float, float],
) -> float:
    """Largest derivative of the bound by the log of a hyperparameter that may still move.

    The bound's derivatives by those of a term are those of its 1-D log marginal likelihood. That by
    the noise is divided by sqrt(N / 50) where there are more rows, as by ``marginal``.
    """
    noise, n_rows = state.noise_variance, equations.n_rows
    slopes = [0.5 * n_rows * (_noise_variance(equations, state) / noise - 1)]
    if _is_stuck(noise, slopes[0], *np.log(noise_bounds)):
        slopes = [0.0]
    slopes[0] /= math.sqrt(max(n_rows / _FEW_ROWS, 1.0))
    for search, posterior in zip(searches, state.posteriors, strict=True):
        for name, lower, upper in zip(search.names, search.lower, search.upper, strict=True):
            slope = posterior.evidence.by_log[name]
            stuck = _is_stuck(posterior.kernel.value(name), slope, lower, upper)
            slopes.append(0.0 if stuck else slope)
    return max(map(abs, slopes))


def _is_stuck(value: float, slope: float, lower: float, upper: float) -> bool:
    """Whether a parameter is at a bound of its log that its slope points beyond."""
    log_value = math.log(value)
    return log_value >= upper - _EDGE if slope > 0 else log_value <= lower + _EDGE


def maximise_expected(search: Search, chain: ExpectedChain) -> Kernel:
    """Maximise the expected log density of a chain by conjugate gradients.

    In the logs of the lengthscale ℓ, and of the intensity s² / ℓ^(2m − 1) of the white noise that
    moves the states if both are free: the states are by far the most informative about that one,
    and nearly the same for any ℓ. The result is never worse than the kernel it starts from.
    """
    m = chain.kernel.order
    # How precisely the log of the intensity is known.
    unit = 0.5 * m * len(chain.tau)
    origin = np.log([float(chain.kernel.value(name) or 1.0) for name in search.names])
    # From the parameters of the search to the logs of the kernel's parameters.
    basis = np.eye(len(origin))
    if len(origin) == 2:
        basis[search.names.index("variance"), search.names.index("lengthscale")] = 2 * m - 1
    best: tuple[float, Floats] = (-math.inf, origin)

    def loss(moved: Floats) -> tuple[float, Floats]:
        nonlocal best
        logs = origin + basis @ moved
        kernel: Any = search.kernel(logs)
        density = chain.log_density(kernel)
        if density.value > best[0]:
            best = (density.value, logs)
        gradient = np.array([density.by_log[name] for name in search.names])
        # A parameter stays at a bound that it would cross.
        inside = (logs >= search.lower) & (logs <= search.upper)
        return -density.value / unit, -(basis.T @ (gradient * inside)) / unit

    here = np.zeros(len(origin))
    start = loss(here)[1]
    if "lengthscale" in search.names:
        # Scaled so that the curvature of the loss is the same in both directions.
        along = search.names.index("lengthscale")
        ahead = here.copy()
        ahead[along] = _AHEAD
        bend = (loss(ahead)[1][along] - start[along]) / _AHEAD
        scale = 1 / math.sqrt(min(max(bend, 1e-4), 1e4))
        basis[:, along] *= scale
        start[along] *= scale
    minimize(
        loss,
        here,
        jac=True,
        method="CG",
        options={"maxiter": _M_STEP_ITERATIONS, "gtol": _M_STEP_SHARE * np.abs(start).max()},
    )
    return search.kernel(best[1])
