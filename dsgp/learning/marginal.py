"""Hyperparameters by the marginal likelihood, from sufficient statistics.

The log marginal likelihood of the model at its nodes (``learning.evidence``) is maximised, plus the
log densities of the priors that kernels have.

It is the collapsed bound of Titsias (2009) without its trace term, and with the nodes' spline in
the place of the kernel's own interpolation, which would have to be computed again for every
lengthscale. The trace term, W/(2σ²) times the prior variance that the nodes do not represent, is
not maximised because it would push every function towards longer lengthscales as soon as N is large
(docs/mathematics.md has the figures). Instead it is measured at the optimum, and terms get more
nodes until what they do not represent is far below the noise; where that takes more nodes than the
budget allows, the result says so (``resolved``) and the caller should use another learner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.optimize import minimize

from dsgp.additive import TwoWayTables
from dsgp.kernels import Kernel
from dsgp.learning.average_information import average_information
from dsgp.learning.basis import Basis, Nodes
from dsgp.learning.evidence import Evidence, Rows, evidence
from dsgp.learning.lengthscales import other_lengthscales
from dsgp.learning.newton import trust_region
from dsgp.learning.nodes import RESOLUTION, eliminated_of, first_nodes, more_nodes, open_variances
from dsgp.learning.search import Search
from dsgp.terms import Floats

_SCANS = 3
# Other lengthscales may begin this many nats below the optimum. If bins promise a gain and the
# nodes show a larger loss, the nodes are too few to represent them, and the search would only
# return.
_FAR = 20.0
# Largest first step in logs: from initial values, from which long steps lead to other optima, and
# from the optimum with fewer nodes.
_RADIUS, _RADIUS_AGAIN = 0.5, 1.0
# A step must promise this many nats per unit of the tolerance of the gradient.
_ENOUGH = 0.01
# Factor on the tolerance of a first search, which only determines the number of nodes.
_ROUGHER = 100.0
# If a search from other lengthscales gains fewer nats, it has returned to the same optimum.
_GAIN = 0.1
# Updates of the noise alone before anything else changes (it is the best known parameter), and the
# relative change at which they end.
_NOISE_UPDATES = 4
_SAME_NOISE = 0.05


@dataclass(frozen=True)
class Learned:
    """Hyperparameters found.

    Attributes
    ----------
    kernels : list of kernels, one per term
    noise_variance : float
    trace : list of float
        The log marginal likelihood by the last nodes, whenever an evaluation was the best so far.
    evaluations : int
    converged : bool
    n_nodes : list of int
        Nodes of each term.
    open_variance : list of float
        Prior variance of each term that its nodes do not represent, averaged over the rows, as a
        share of the noise variance: the trace term of the bound is N/2 times their sum.
    resolved : bool
        Whether that is small enough for the result to be used.
    """

    kernels: list[Kernel]
    noise_variance: float
    trace: list[float]
    evaluations: int
    converged: bool
    n_nodes: list[int]
    open_variance: list[float]
    resolved: bool


@dataclass(frozen=True)
class Tilt:
    """A linear function that corrects the gradient of a working model's evidence.

    Attributes
    ----------
    kernels : list of kernels
        Where it is 0.
    slopes : list of dict of str to float
        Of each term, by the logs of its parameters.
    alone : bool
        Whether the determinant is that of terms as if independent.
    """

    kernels: list[Kernel]
    slopes: list[dict[str, float]]
    alone: bool = False

    def value(self, kernels: list[Kernel]) -> float:
        """Return it at other kernels."""
        total = 0.0
        for now, then, slopes in zip(kernels, self.kernels, self.slopes, strict=True):
            for name, slope in slopes.items():
                if slope:
                    total += slope * math.log(_value(now, name) / _value(then, name))
        return total


class _Objective:
    """The negative evidence in scaled logs of the free parameters."""

    def __init__(
        self,
        nodes: Nodes,
        rows: Rows,
        searches: list[Search],
        noise_bounds: tuple[float, float],
        watch: Callable[[float], None],
        tilt: Tilt | None = None,
    ) -> None:
        self.nodes, self.rows, self.searches, self.watch = nodes, rows, searches, watch
        self.tilt = tilt
        self.noise_bounds = np.log(noise_bounds)
        self.evaluations = 0
        self.trace: list[float] = []
        self.last: Evidence
        self.of_priors: list[dict[str, tuple[float, float]]] = []
        self.best: tuple[float, Floats] | None = None
        """Value and mean of the best evaluation of a search."""
        # The first step of L-BFGS-B is as long as the gradient, up to the bounds: with 10⁸ rows it
        # would end in a corner where float64 fails.
        self.size = 1.0
        self.free = [(d, name) for d, search in enumerate(searches) for name in search.names]
        # The curvature by the log of the noise is N/2, that of the other parameters about their
        # degrees of freedom.
        self.scale = np.ones(len(self.free) + 1)
        self.scale[-1] = math.sqrt(max(rows.n_rows / 50.0, 1.0))
        lower = [b for search in searches for b in search.lower] + [self.noise_bounds[0]]
        upper = [b for search in searches for b in search.upper] + [self.noise_bounds[1]]
        self.bounds = np.array([lower, upper]) * self.scale

    def pack(self, kernels: list[Kernel], noise_variance: float) -> Floats:
        logs = [math.log(_value(kernels[d], name)) for d, name in self.free]
        return np.clip(np.array([*logs, math.log(noise_variance)]) * self.scale, *self.bounds)

    def unpack(self, x: Floats) -> tuple[list[Kernel], float]:
        logs = x / self.scale
        kernels = [search.start for search in self.searches]
        values: list[dict[str, float]] = [{} for _ in kernels]
        for (d, name), log in zip(self.free, logs[:-1], strict=True):
            values[d][name] = math.exp(log)
        return [
            kernel.with_parameters(**given) for kernel, given in zip(kernels, values, strict=True)
        ], math.exp(logs[-1])

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        try:
            value, gradient = self.at(x)
        except LinAlgError:
            if not self.trace:
                raise
            # The step was too long for float64: the line search shortens it.
            return 2 * abs(self.trace[0]) * self.size, np.zeros_like(x)
        return value * self.size, gradient * self.size

    def at(self, x: Floats) -> tuple[float, Floats]:
        """Value and gradient; ``LinAlgError`` where float64 fails."""
        self.evaluations += 1
        kernels, noise = self.unpack(np.clip(x, *self.bounds))
        alone = self.tilt is not None and self.tilt.alone
        found = evidence(self.nodes, self.rows, kernels, noise, alone=alone)
        _require_finite(found)
        value = found.value + sum(kernel.log_prior for kernel in kernels)
        slopes = [found.by_log[d][name] for d, name in self.free]
        self.of_priors = [kernel.log_prior_slopes() for kernel in kernels]
        for position, (d, name) in enumerate(self.free):
            slopes[position] += self.of_priors[d].get(name, (0.0, 0.0))[0]
        if self.tilt is not None:
            value += self.tilt.value(kernels)
            tilts = [self.tilt.slopes[d].get(name, 0.0) for d, name in self.free]
            slopes = [slope + tilt for slope, tilt in zip(slopes, tilts, strict=True)]
        self.watch(value)
        if not self.trace or value > self.trace[-1]:
            self.trace.append(value)
        if self.best is None or value > self.best[0]:
            self.best = value, found.mean
        self.last = found
        gradient = np.array([*slopes, found.by_log_noise])
        return -value, -gradient / self.scale

    def logs_at(self, logs: Floats) -> tuple[float, Floats]:
        """Value and gradient by logs that are not scaled; infinite where float64 fails."""
        try:
            value, gradient = self.at(logs * self.scale)
        except LinAlgError:
            if not self.trace:
                raise
            return math.inf, np.zeros_like(logs)
        return value, gradient * self.scale

    @property
    def mean(self) -> Floats:
        """Posterior mean at the nodes where the search was best."""
        assert self.best is not None
        return self.best[1]

    def curvature(self) -> Floats:
        """Nearly the second derivatives by the logs, where it was computed last."""
        curvature = average_information(self.last.posterior, self.free, self.last.squares)
        for position, (d, name) in enumerate(self.free):
            curvature[position, position] -= self.of_priors[d].get(name, (0.0, 0.0))[1]
        return curvature


def marginal(
    tables: TwoWayTables,
    rows: Rows,
    searches: list[Search],
    noise_variance: float,
    *,
    noise_bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None] = lambda value: None,
    counts: list[int] | None = None,
) -> Learned:
    """Maximise the marginal likelihood from sufficient statistics, by its average information.

    Nodes are added to the terms that need them, and lengthscales far from the optimum are tried
    for every term by the 1-D marginal likelihood of its partial residual, until neither changes
    anything.

    Parameters
    ----------
    tables : TwoWayTables
    rows : Rows
    searches : list of Search, one per term
    noise_variance : float
        Start.
    noise_bounds : tuple of float
        Equal ends keep the noise variance as it is.
    tol : float
        A search ends when the gradient, in nats per unit of a scaled log parameter, is below this.
    max_iter : int
        Iterations of a search.
    watch : callable
        Called with the value at every evaluation.
    counts : list of int, optional
        Nodes of each term to begin with; see ``enough_nodes``.
    """
    kernels = [search.middle for search in searches]
    if counts is None:
        counts = first_nodes(kernels, tables)
    eliminated = eliminated_of(tables)
    evaluations = 0

    while True:
        basis = Basis.of(tables, counts, eliminated)
        nodes = basis.nodes(tables)
        objective = _Objective(nodes, rows, searches, noise_bounds, watch)
        for _ in range(0 if evaluations else _NOISE_UPDATES):
            before = noise_variance
            better = evidence(nodes, rows, kernels, noise_variance).next_noise
            noise_variance = float(np.clip(better, *noise_bounds))
            if abs(noise_variance / before - 1) < _SAME_NOISE:
                break
        radius = _RADIUS_AGAIN if evaluations else _RADIUS
        # A rough search is enough to show that there are too few nodes.
        best = _newton(objective, kernels, noise_variance, _ROUGHER * tol, max_iter, radius)
        more, open_variance = _wanted(tables, basis, counts, best)
        if more == counts:
            best = _newton(
                objective, best.kernels, best.noise_variance, tol, max_iter, _RADIUS_AGAIN
            )
            best = _elsewhere(objective, tables, basis, best, tol, max_iter)
            more, open_variance = _wanted(tables, basis, counts, best)
        evaluations += objective.evaluations
        kernels, noise_variance = best.kernels, best.noise_variance
        if more == counts:
            break
        counts = more
    return Learned(
        kernels=kernels,
        noise_variance=noise_variance,
        trace=objective.trace,  # values with other nodes are not comparable
        evaluations=evaluations,
        converged=best.converged,
        n_nodes=[len(nodes) for nodes in basis.cells],
        open_variance=open_variance,
        resolved=_open_of_resolved(tables, open_variance) <= 4 * RESOLUTION,
    )


def _open_of_resolved(tables: TwoWayTables, open_variance: list[float]) -> float:
    """Sum of the variances not represented, over terms that must represent all of theirs."""
    return sum(
        left for left, cells in zip(open_variance, tables.cells, strict=True) if cells.is_resolved
    )


def _wanted(
    tables: TwoWayTables, basis: Basis, counts: list[int], best: Optimum
) -> tuple[list[int], list[float]]:
    """Return how many nodes an optimum needs, and the variances that these do not represent."""
    open_variance = open_variances(tables, basis, best.kernels, best.noise_variance)
    return more_nodes(tables, counts, best.kernels, open_variance), open_variance


def _elsewhere(
    objective: _Objective,
    tables: TwoWayTables,
    basis: Basis,
    best: Optimum,
    tol: float,
    max_iter: int,
) -> Optimum:
    """Return the best of an optimum and those that lengthscales far from it lead to."""
    for _ in range(_SCANS):
        others = other_lengthscales(
            tables, basis.at_bins(best.mean), objective.searches, best.kernels, best.noise_variance
        )
        if others == best.kernels:
            break
        start = objective.pack(others, best.noise_variance)
        if -objective.logs_at(start / objective.scale)[0] < best.value - _FAR:
            break
        found = _newton(objective, others, best.noise_variance, tol, max_iter)
        gain = found.value - best.value
        best = found if gain > 0 else best
        if gain < _GAIN:
            break
    return best


def _require_finite(result: Evidence) -> None:
    """Raise ``LinAlgError`` where a number has overflowed: L-BFGS would continue with NaN."""
    slopes = [result.by_log_noise, *(v for term in result.by_log for v in term.values())]
    if not (math.isfinite(result.value) and np.isfinite(slopes).all()):
        raise LinAlgError("the likelihood at the nodes has overflowed")


def _value(kernel: Kernel, name: str) -> float:
    value = kernel.value(name)
    assert value is not None  # all parameters of kernels in a search have values
    return value


class Optimum(NamedTuple):
    """Where a search on fixed nodes ended."""

    kernels: list[Kernel]
    noise_variance: float
    value: float
    converged: bool
    mean: Floats
    """Posterior mean at the nodes."""


def _newton(
    objective: _Objective,
    kernels: list[Kernel],
    noise_variance: float,
    tol: float,
    max_iter: int,
    radius: float = _RADIUS,
) -> Optimum:
    """Search by the average information, then by L-BFGS if that makes no further progress."""
    lower, upper = objective.bounds / objective.scale
    objective.best = None
    found = trust_region(
        objective.logs_at,
        objective.curvature,
        objective.pack(kernels, noise_variance) / objective.scale,
        lower,
        upper,
        tol=tol * objective.scale,
        enough=_ENOUGH * tol,
        radius=radius,
        max_iter=max_iter,
    )
    kernels, noise_variance = objective.unpack(found.x * objective.scale)
    if not found.converged:
        return _search(objective, kernels, noise_variance, tol, max_iter)
    return Optimum(kernels, noise_variance, -found.value, True, objective.mean)


def _search(
    objective: _Objective, kernels: list[Kernel], noise_variance: float, tol: float, max_iter: int
) -> Optimum:
    start = objective.pack(kernels, noise_variance)
    objective.size, objective.best = 1.0, None
    slope = float(np.linalg.norm(objective(start)[1]))
    objective.size = 1 / max(slope, 1.0)
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=objective.bounds.T,
        options={"maxiter": max_iter, "gtol": tol * objective.size, "ftol": 1e-14, "maxcor": 20},
    )
    # A line search that stops because rounding hides the remaining gain has not failed.
    small = np.abs(found.get("jac", np.zeros(1))).max(initial=0.0) <= 100 * tol * objective.size
    done = found.get("nit", 0) < max_iter and (bool(found.success) or bool(small))
    value = -float(found.fun) / objective.size
    return Optimum(*objective.unpack(found.x), value, done, objective.mean)


def maximise(
    nodes: Nodes,
    rows: Rows,
    searches: list[Search],
    kernels: list[Kernel],
    noise_variance: float,
    *,
    noise_bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    tilt: Tilt | None = None,
) -> Optimum:
    """Maximise the marginal likelihood on given nodes, from an initial value."""
    objective = _Objective(nodes, rows, searches, noise_bounds, lambda value: None, tilt)
    return _search(objective, kernels, noise_variance, tol, max_iter)
