"""Kernels, noise variance and parameters of the likelihood, with the directions fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsgp.kernels import Kernel
from dsgp.learning.basis import Basis, Nodes
from dsgp.learning.evidence import Rows as RowSums
from dsgp.learning.evidence import evidence
from dsgp.learning.marginal import maximise
from dsgp.learning.search import NOISE, Search
from dsgp.pursuit.joint import State, lower, shares
from dsgp.pursuit.moments import fill_rows
from dsgp.pursuit.response import best_parameters
from dsgp.pursuit.ridges import MOST_NODES
from dsgp.pursuit.rows import NO_WEIGHT, Block, RowSet
from dsgp.terms import Axis, Floats

# Bounds of a ridge's kernel: lengthscales in standard deviations of the projection, variances in
# those of the target.
LENGTHSCALE = (8.0 / MOST_NODES, 30.0)
VARIANCE = (1e-7, 1e5)
_DESIGN_ROWS = 1024  # per product


def with_hyperparameters(rows: RowSet, state: State, max_iter: int) -> State:
    """Learn kernels and noise variance by the marginal likelihood, with the directions fixed."""
    ridges, n = state.ridges, state.ridges.n_nodes
    if not len(ridges):
        return state
    matrix, residual = state.moments.matrix[:n, :n], state.moments.matrix[:n, -1]
    values = ridges.values
    fit = matrix @ values
    nodes = Nodes(
        Basis([Axis(term.nodes) for term in ridges.terms], ridges.parts, [None] * len(ridges)),
        matrix,
        residual + fit,
    )
    quadratic = state.squares + 2 * float(values @ residual) + float(values @ fit)
    sums = RowSums(quadratic, state.n_rows, state.log_weight)
    noise = state.noise_variance
    learned = maximise(
        nodes,
        sums,
        [_search(term.kernel) for term in ridges.terms],
        [term.kernel for term in ridges.terms],
        noise,
        noise_bounds=(noise, noise) if state.fixed_noise else NOISE,
        tol=0.1,
        max_iter=max_iter,
    )
    values = evidence(nodes, sums, learned.kernels, learned.noise_variance).mean
    if state.response is not None:
        return _nearest(rows, state, learned.kernels, values)
    return replace(
        state.at(rows, ridges.with_kernels(learned.kernels, values)),
        noise_variance=noise if state.fixed_noise else learned.noise_variance,
    )


def _nearest(rows: RowSet, state: State, kernels: list[Kernel], values: Floats) -> State:
    """Give the functions new kernels, and move towards the best values with these.

    These are the best values of the linearised model; with a likelihood the step may be shorter.
    """
    now = state.ridges.values
    # The sums over the rows depend on values and directions only.
    begun = replace(state, ridges=state.ridges.with_kernels(kernels, now))
    for share in shares():
        moved = begun.ridges.with_kernels(kernels, now + share * (values - now))
        better = lower(rows, begun, moved)
        if better is not None:
            return better
    return begun


def with_parameters(rows: RowSet, state: State, some: Block) -> State:
    """Learn the free parameters of the likelihood from some of the rows, with all else fixed.

    They maximise Σ w [log p(y | f) − ½ v W], with v the posterior variance of f: the part of
    Laplace's evidence that depends on them, except for their effect on the mode.
    """
    if state.response is None or not state.response.likelihood.free:
        return state
    response = state.response
    latent = response.latent(some, state.ridges.evaluate(some.inputs)[0].sum(axis=1))
    variance = response.unit**2 * _variances(state, some.inputs)
    better = best_parameters(response.likelihood, some, latent, variance)
    if better is response.likelihood:
        return state
    changed = replace(state, response=replace(response, likelihood=better))
    return changed.at(rows, state.ridges)


def _variances(state: State, inputs: Floats) -> Floats:
    """Posterior variance of the sum of the functions, directions unknown too, (n,)."""
    ridges = state.ridges
    out = np.zeros(len(inputs))
    if not len(ridges):
        return out
    factor = state.factor(np.asarray(np.linalg.cholesky(state.inverse), np.float64))
    design = np.empty((min(_DESIGN_ROWS, len(inputs)), ridges.n_parameters + 1))
    for start in range(0, len(inputs), _DESIGN_ROWS):
        some = inputs[start : start + _DESIGN_ROWS]
        part = design[: len(some)]
        fill_rows(ridges, Block(some, np.zeros(len(some)), NO_WEIGHT), part)
        out[start : start + len(some)] = np.sum((part[:, :-1] @ factor) ** 2, axis=1)
    return out


def _search(kernel: Kernel) -> Search:
    bounds = np.log([LENGTHSCALE, VARIANCE])
    return Search(
        start=kernel,
        middle=kernel,
        others=(),
        width=1.0,
        names=("lengthscale", "variance"),
        lower=bounds[:, 0],
        upper=bounds[:, 1],
    )
