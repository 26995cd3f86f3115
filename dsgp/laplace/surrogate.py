"""The surrogate of Laplace's evidence near a mode, and better hyperparameters by it.

The likelihood is replaced by the Gaussian working model of the mode, whose weights W move with the
hyperparameters along a straight line (``Tilt``). `dsgp.laplace.learner` decides which of its steps
are tried, and checks them by the evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dsgp.additive import TwoWayTables
from dsgp.kernels import Kernel
from dsgp.laplace.evidence import NodeMode, constant_kernel
from dsgp.laplace.parameters import better_likelihood
from dsgp.learning.evidence import Rows, evidence
from dsgp.learning.lengthscales import other_lengthscales
from dsgp.learning.marginal import Tilt, maximise
from dsgp.learning.search import Search
from dsgp.likelihoods import Likelihood
from dsgp.terms import Floats

# Evaluations of one surrogate. It is replaced by the next one before its maximum is worth more.
_EVALUATIONS = 7


@dataclass(frozen=True)
class State:
    """Hyperparameters, and the mode at them.

    Attributes
    ----------
    kernels : list of kernels, one per term
    mode : NodeMode
    value : float
        The evidence, and the log density of the kernels' priors.
    tables : TwoWayTables
        Of the working model at the mode.
    """

    kernels: list[Kernel]
    mode: NodeMode
    value: float
    tables: TwoWayTables

    @property
    def rows(self) -> Rows:
        """Rows of the working model; their scatter does not affect any comparison."""
        return Rows(0.0, self.mode.model.rows.n_counted, 0.0)

    def predicted(self, kernels: list[Kernel]) -> Floats:
        """Values at the nodes by the working model with other kernels: where Newton starts."""
        nodes, terms = self.mode.posterior.nodes, self.mode.model.kernels(kernels)
        return evidence(nodes, self.rows, terms, 1.0).mean


class Promise(NamedTuple):
    """The surrogate's maximum within some distance: its gain in nats, and hyperparameters there."""

    gain: float
    kernels: list[Kernel]
    likelihood: Likelihood


def best_of_surrogate(
    state: State, searches: list[Search], radius: float, *, alone: bool, tol: float, unit: float
) -> Promise:
    """Maximise the surrogate at a mode.

    Parameters
    ----------
    state : State
    searches : list of Search, one per term
    radius : float
        Largest change of the log of a hyperparameter.
    alone : bool
        Use the determinant of terms as if they were independent.
    tol : float
        Nats.
    unit : float
        Variance of what the terms are to explain.
    """
    mode, model = state.mode, state.mode.model
    variance = mode.variance_tables(alone=alone)
    moved = mode.moved(variance)
    tilt = Tilt(model.kernels(state.kernels), mode.through_mode(moved), alone)
    near = [
        _within(search, kernel, radius)
        for search, kernel in zip(searches, state.kernels, strict=True)
    ]
    if model.constant:
        near.append(_kept(constant_kernel(model.constant)))
    start = tilt.kernels
    before = evidence(mode.posterior.nodes, state.rows, start, 1.0, alone=alone).value
    before += sum(kernel.log_prior for kernel in start)
    maximum = maximise(
        mode.posterior.nodes,
        state.rows,
        near,
        start,
        1.0,
        noise_bounds=(1.0, 1.0),
        tol=tol,
        max_iter=_EVALUATIONS,
        tilt=tilt,
    )
    promised = maximum.value - before
    likelihood, more = better_likelihood(mode, variance, moved, radius, unit)
    return Promise(promised + more, maximum.kernels[: len(state.kernels)], likelihood)


def scanned(state: State, searches: list[Search]) -> list[Kernel]:
    """Kernels with other lengthscales, where the working model has a better one far away."""
    model = state.mode.model
    flat = model.at(state.mode.values)[0]
    searches = [
        *searches,
        *([_kept(constant_kernel(model.constant))] if model.constant else []),
    ]
    kernels = other_lengthscales(state.tables, flat, searches, model.kernels(state.kernels), 1.0)
    return kernels[: len(state.kernels)]


def largest_move(state: State, kernels: list[Kernel], likelihood: Likelihood) -> float:
    """Largest change of the log of a hyperparameter."""
    logs = [
        abs(math.log(float(b.value(name) or 1.0) / float(a.value(name) or 1.0)))
        for a, b in zip(state.kernels, kernels, strict=True)
        for name in a.parameters
    ]
    before = state.mode.model.likelihood.unconstrained()
    return max([*logs, *np.abs(likelihood.unconstrained() - before)], default=0.0)


def _kept(kernel: Kernel) -> Search:
    """Return the search of a kernel that stays as it is."""
    return Search(kernel, kernel, (), 1.0, (), np.empty(0), np.empty(0))


def _within(search: Search, kernel: Kernel, radius: float) -> Search:
    """Restrict a search to some distance from a kernel."""
    if not search.names:
        return search
    here = np.log([float(kernel.value(name) or 1.0) for name in search.names])
    return replace(
        search,
        lower=np.minimum(np.maximum(search.lower, here - radius), here),
        upper=np.maximum(np.minimum(search.upper, here + radius), here),
    )
