"""Hyperparameters by the marginal likelihood, from sufficient statistics.

Each term is represented by its values at M nodes: between them the function is their cubic spline.
What the rows say of the nodes, G = Cᵀ ZᵀWZ C and Cᵀ ZᵀWy with C the spline's values at the bins, is
computed once and does not depend on the hyperparameters. The log marginal likelihood of that model,

    −½ [N log 2πσ² − Σ log w + log det(I + K̃ G / σ²) + (yᵀWy − bᵀF) / σ²],

its gradient and the posterior mean F at the nodes then cost one Cholesky factor of size Σ M_d: no
row and no bin is looked at again.

This is the collapsed bound of Titsias (2009) without its trace term, and with the nodes' spline in
the place of the kernel's own interpolation, which would have to be computed anew for every
lengthscale. The trace term, W/(2σ²) times the prior variance that the nodes leave open, is not
maximised because it would push every function towards longer lengthscales as soon as N is large
(docs/mathematics.md has the figures). Instead it is measured at the optimum, and terms get
more nodes until what they leave open is far below the noise; where that takes more nodes than there
is a budget for, the caller is told (``resolved``) and should learn otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import LinAlgError, lapack
from scipy.optimize import minimize

from dsgp.additive import TwoWayTables
from dsgp.additive.bins import left_open
from dsgp.additive.tables import spread
from dsgp.axis import LOG_2PI, Axis, Floats, Observations
from dsgp.kernels import Matern
from dsgp.learning.search import Search

# Nodes a term begins with, by the order of its kernel, and all terms together at most: a Cholesky
# factor of that size takes some 50 ms.
NODES = {1: 64, 2: 64, 3: 40, 4: 32}
ALL_NODES = 1200
# Prior variance that the nodes of all terms leave open, as a share of the noise variance.
RESOLUTION = 2e-2
_JITTER = 1e-9
# Lengthscales tried for every single term at the optimum, in widths of the bulk of its rows.
_SCAN = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SCAN_GAIN = 1.0  # nats worth another search
_SCANS = 3
# Updates of the noise alone before anything else moves: it is the parameter known best.
_NOISE_UPDATES = 4
# Rows that the degrees of freedom leave, as a share, while the noise is updated.
_LEAST_LEFT = 0.05


@dataclass(frozen=True)
class Nodes:
    """Statistics of the rows at the nodes of all terms.

    Attributes
    ----------
    positions : list of ndarray of shape (M_d,)
    matrix : ndarray of shape (Σ M_d, Σ M_d)
        G, the weighted normal matrix.
    information : ndarray of shape (Σ M_d,)
    parts : list of slice
        Where each term is.
    splines : list of ndarray of shape (n_bins, M_d), or None
        C; None where the nodes are the bins.
    """

    positions: list[Floats]
    matrix: Floats
    information: Floats
    parts: list[slice]
    splines: list[Floats | None]

    def at_bins(self, values: Floats) -> Floats:
        """Values at the nodes carried to the bins, all terms one after the other."""
        return np.concatenate(
            [
                values[part] if spline is None else spline @ values[part]
                for part, spline in zip(self.parts, self.splines, strict=True)
            ]
        )

    @classmethod
    def of(cls, tables: TwoWayTables, counts: list[int]) -> Nodes:
        """Choose about so many nodes a term among its bins, and move the statistics there."""
        positions, splines = [], []
        for points, weight, count in zip(tables.positions, tables.weights, counts, strict=True):
            nodes = points if len(points) <= count else points[spread(points, weight, count)]
            positions.append(nodes)
            exact = len(nodes) == len(points)
            splines.append(None if exact else CubicSpline(nodes, np.eye(len(nodes)))(points))
        ends = np.cumsum([0, *(len(nodes) for nodes in positions)])
        parts = [slice(a, b) for a, b in pairwise(ends)]
        matrix = np.empty((ends[-1], ends[-1]))
        for d, (part, spline) in enumerate(zip(parts, splines, strict=True)):
            diagonal = np.diag(tables.weights[d])
            matrix[part, part] = _between(spline, diagonal, spline)
            for e in range(d):
                block = _between(splines[e], tables.pairs[e, d], spline)
                matrix[parts[e], part] = block
                matrix[part, parts[e]] = block.T
        information = [
            b if spline is None else spline.T @ b
            for spline, b in zip(splines, tables.information, strict=True)
        ]
        return cls(positions, matrix, np.concatenate(information), parts, splines)


def _between(left: Floats | None, table: Floats, right: Floats | None) -> Floats:
    table = table if left is None else left.T @ table
    return table if right is None else table @ right


@dataclass(frozen=True)
class Evidence:
    """The log marginal likelihood and its derivatives by log ℓ, log s² and log σ²."""

    value: float
    by_log_lengthscale: Floats
    by_log_variance: Floats
    by_log_noise: float
    mean: Floats
    """Posterior mean at the nodes."""
    next_noise: float
    """σ² at which its own derivative would vanish, if fit and degrees of freedom did not move."""


@dataclass(frozen=True)
class Rows:
    """What else the likelihood needs of the rows."""

    quadratic: float
    n_rows: int
    log_weight: float


def evidence(nodes: Nodes, rows: Rows, kernels: list[Matern], noise_variance: float) -> Evidence:
    """Compute the log marginal likelihood, its gradient and the mean at the nodes."""
    size = len(nodes.information)
    lowers = [
        _lower(kernel, points) for kernel, points in zip(kernels, nodes.positions, strict=True)
    ]
    matrix = np.empty((size, size), order="F")
    for part, lower in zip(nodes.parts, lowers, strict=True):
        matrix[part] = lower.T @ nodes.matrix[part]
    for part, lower in zip(nodes.parts, lowers, strict=True):
        matrix[:, part] = matrix[:, part] @ lower
    matrix /= noise_variance
    matrix[np.diag_indices(size)] += 1.0
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    if failed:
        raise LinAlgError("the matrix of the nodes is not positive definite to rounding")
    whitened = np.concatenate(
        [lower.T @ nodes.information[part] for part, lower in zip(nodes.parts, lowers, strict=True)]
    )
    whitened /= noise_variance
    weights, _ = lapack.dpotrs(factor, whitened, lower=1)
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    fit = float(np.sum(whitened * weights))
    value = -0.5 * (
        rows.n_rows * (LOG_2PI + math.log(noise_variance))
        - rows.log_weight
        + log_det
        + rows.quadratic / noise_variance
        - fit
    )
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)  # its lower triangle
    mean = np.empty(size)
    by_lengthscale, by_variance = np.empty(len(kernels)), np.empty(len(kernels))
    for d, (part, lower, points, kernel) in enumerate(
        zip(nodes.parts, lowers, nodes.positions, kernels, strict=True)
    ):
        mean[part] = lower @ weights[part]
        block = np.tril(inverse[part, part])
        learned = np.eye(len(points)) - block - np.tril(block, -1).T
        # L⁻ᵀ (learned, weights): half of the score, and the dual of the mean.
        half, _ = lapack.dtrtrs(
            lower, np.column_stack([learned, weights[part]]), lower=1, trans=1, overwrite_b=1
        )
        dual = half[:, -1]
        score, _ = lapack.dtrtrs(lower, half[:, :-1].T, lower=1, trans=1)
        derivative = kernel.by_log_lengthscale(points)
        by_lengthscale[d] = 0.5 * (dual @ derivative @ dual - np.sum(score * derivative))
        by_variance[d] = 0.5 * (weights[part] @ weights[part] - np.trace(learned))
    squares = (
        rows.quadratic - 2 * nodes.information @ mean + mean @ nodes.matrix @ mean
    ) / noise_variance
    dof = size - float(np.trace(inverse))
    by_noise = 0.5 * (squares + dof - rows.n_rows)
    left = max(rows.n_rows - dof, _LEAST_LEFT * rows.n_rows)
    next_noise = noise_variance * float(squares) / left
    return Evidence(value, by_lengthscale, by_variance, float(by_noise), mean, next_noise)


def _lower(kernel: Matern, points: Floats) -> Floats:
    """Cholesky factor of the prior at the nodes."""
    prior = kernel.covariance(points)
    prior[np.diag_indices_from(prior)] *= 1 + _JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise LinAlgError(f"the prior of {kernel!r} at its nodes is singular to rounding")
    return factor


@dataclass(frozen=True)
class Learned:
    """Hyperparameters found.

    Attributes
    ----------
    kernels : list of kernels, one a term
    noise_variance : float
    trace : list of float
        The log marginal likelihood by the last nodes, whenever an evaluation was the best so far.
    evaluations : int
    converged : bool
    n_nodes : list of int
        Nodes of each term.
    open_variance : list of float
        Prior variance of each term that its nodes leave open, averaged over the rows, as a share of
        the noise variance: the trace term of the bound is N/2 times their sum.
    resolved : bool
        Whether that is small enough to rely on.
    """

    kernels: list[Matern]
    noise_variance: float
    trace: list[float]
    evaluations: int
    converged: bool
    n_nodes: list[int]
    open_variance: list[float]
    resolved: bool


class _Objective:
    """The negative evidence in scaled logs of the free parameters."""

    def __init__(
        self,
        nodes: Nodes,
        rows: Rows,
        searches: list[Search],
        noise_bounds: tuple[float, float],
        watch: Callable[[float], None],
    ) -> None:
        self.nodes, self.rows, self.searches, self.watch = nodes, rows, searches, watch
        self.noise_bounds = np.log(noise_bounds)
        self.evaluations = 0
        self.trace: list[float] = []
        # The first step of L-BFGS-B is as long as the gradient, up to the bounds: of 10⁸ rows it
        # would end in a corner where float64 fails.
        self.size = 1.0
        self.free = [(d, name) for d, search in enumerate(searches) for name in search.names]
        # The noise has N/2 for its curvature, the other parameters about their degrees of freedom.
        self.scale = np.ones(len(self.free) + 1)
        self.scale[-1] = math.sqrt(max(rows.n_rows / 50.0, 1.0))
        lower = [b for search in searches for b in search.lower] + [self.noise_bounds[0]]
        upper = [b for search in searches for b in search.upper] + [self.noise_bounds[1]]
        self.bounds = np.array([lower, upper]) * self.scale

    def pack(self, kernels: list[Matern], noise_variance: float) -> Floats:
        logs = [math.log(getattr(kernels[d], name)) for d, name in self.free]
        return np.clip(np.array([*logs, math.log(noise_variance)]) * self.scale, *self.bounds)

    def unpack(self, x: Floats) -> tuple[list[Matern], float]:
        logs = x / self.scale
        kernels = [search.start for search in self.searches]
        values: list[dict[str, float]] = [{} for _ in kernels]
        for (d, name), log in zip(self.free, logs[:-1], strict=True):
            values[d][name] = math.exp(log)
        return [
            kernel.with_parameters(**given) for kernel, given in zip(kernels, values, strict=True)
        ], math.exp(logs[-1])

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        self.evaluations += 1
        try:
            found = evidence(self.nodes, self.rows, *self.unpack(np.clip(x, *self.bounds)))
        except LinAlgError:
            if not self.trace:
                raise
            # A step too far for float64: the line search comes back.
            return 2 * abs(self.trace[0]) * self.size, np.zeros_like(x)
        self.watch(found.value)
        if not self.trace or found.value > self.trace[-1]:
            self.trace.append(found.value)
        by = {"lengthscale": found.by_log_lengthscale, "variance": found.by_log_variance}
        gradient = np.array([*(by[name][d] for d, name in self.free), found.by_log_noise])
        return -found.value * self.size, -gradient / self.scale * self.size


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
) -> Learned:
    """Maximise the marginal likelihood from sufficient statistics, by L-BFGS.

    Nodes are added to the terms that need them, and lengthscales far from the optimum are tried
    for every term by the 1-D marginal likelihood of its partial residual, until neither changes
    anything.

    Parameters
    ----------
    tables : TwoWayTables
    rows : Rows
    searches : list of Search, one a term
    noise_variance : float
        Start.
    noise_bounds : tuple of float
        Equal ends keep the noise variance as it is.
    tol : float
        A search ends when the gradient, in nats per unit of a scaled log parameter, is below this.
    max_iter : int
        L-BFGS iterations of a search.
    watch : callable
        Told the value at every evaluation.
    """
    kernels = [search.middle for search in searches]
    counts = [
        min(NODES[kernel.order], max(8, ALL_NODES // (2 * max(len(kernels), 1))))
        for kernel in kernels
    ]
    evaluations = 0
    while True:
        nodes = Nodes.of(tables, counts)
        objective = _Objective(nodes, rows, searches, noise_bounds, watch)
        for _ in range(_NOISE_UPDATES):
            better = evidence(nodes, rows, kernels, noise_variance).next_noise
            noise_variance = float(np.clip(better, *noise_bounds))
        best = _search(objective, kernels, noise_variance, tol, max_iter)
        for _ in range(_SCANS):
            others = _scan(tables, nodes, rows, searches, best.kernels, best.noise_variance)
            if others == best.kernels:
                break
            found = _search(objective, others, best.noise_variance, tol, max_iter)
            if found.value <= best.value:
                break
            best = found
        evaluations += objective.evaluations
        kernels, noise_variance = best.kernels, best.noise_variance
        open_variance = _open_variance(tables, nodes, kernels, noise_variance)
        more = _more_nodes(tables, counts, kernels, open_variance)
        if more == counts:
            break
        counts = more
    return Learned(
        kernels=kernels,
        noise_variance=noise_variance,
        trace=objective.trace,  # values for other nodes do not compare
        evaluations=evaluations,
        converged=best.converged,
        n_nodes=[len(points) for points in nodes.positions],
        open_variance=open_variance,
        resolved=sum(open_variance) <= 4 * RESOLUTION,
    )


class Optimum(NamedTuple):
    """Where a search on fixed nodes ended."""

    kernels: list[Matern]
    noise_variance: float
    value: float
    converged: bool


def _search(
    objective: _Objective, kernels: list[Matern], noise_variance: float, tol: float, max_iter: int
) -> Optimum:
    start = objective.pack(kernels, noise_variance)
    objective.size = 1.0
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
    # A line search that ends where rounding hides what is left is no failure.
    small = np.abs(found.get("jac", np.zeros(1))).max(initial=0.0) <= 100 * tol * objective.size
    done = found.get("nit", 0) < max_iter and (bool(found.success) or bool(small))
    return Optimum(*objective.unpack(found.x), -float(found.fun) / objective.size, done)


def maximise(
    nodes: Nodes,
    rows: Rows,
    searches: list[Search],
    kernels: list[Matern],
    noise_variance: float,
    *,
    noise_bounds: tuple[float, float],
    tol: float,
    max_iter: int,
) -> Optimum:
    """Maximise the marginal likelihood on nodes that are given, from a start."""
    objective = _Objective(nodes, rows, searches, noise_bounds, lambda value: None)
    return _search(objective, kernels, noise_variance, tol, max_iter)


def _open_variance(
    tables: TwoWayTables, nodes: Nodes, kernels: list[Matern], noise_variance: float
) -> list[float]:
    """Prior variance given the nodes, averaged over the rows, as a share of the noise variance.

    Between the means of the bins, and within the bins.
    """
    found = []
    for points, bins, weight, squares, kernel in zip(
        nodes.positions, tables.positions, tables.weights, tables.spreads, kernels, strict=True
    ):
        variance = float(kernel.variance or 0.0)
        features, _ = lapack.dtrtrs(
            _lower(kernel, points), kernel.covariance(points, bins), lower=1
        )
        left = np.maximum(variance - np.sum(features**2, axis=0) - 2 * _JITTER * variance, 0.0)
        left += left_open(kernel, np.sqrt(12 * squares))
        found.append(float(np.sum(weight * left) / np.sum(weight)) / noise_variance)
    return found


def _more_nodes(
    tables: TwoWayTables, counts: list[int], kernels: list[Matern], open_variance: list[float]
) -> list[int]:
    """More nodes for the terms that leave too much open, within the budget.

    What M nodes leave open falls like M^(−2ν).
    """
    share = RESOLUTION / max(len(counts), 1)
    granted = list(counts)
    left = ALL_NODES - sum(counts)
    # Those that need them most come first.
    for d in np.argsort(open_variance)[::-1]:
        n_bins, excess = len(tables.positions[d]), open_variance[d] / share
        if excess <= 1 or counts[d] >= n_bins:
            continue
        wanted = math.ceil(1.1 * counts[d] * excess ** (0.5 / kernels[d].smoothness))
        more = min(wanted, n_bins) - counts[d]
        if more <= left:
            granted[d] += more
            left -= more
    return granted


def _scan(
    tables: TwoWayTables,
    nodes: Nodes,
    rows: Rows,
    searches: list[Search],
    kernels: list[Matern],
    noise_variance: float,
) -> list[Matern]:
    """Try other lengthscales for every single term, the other terms as they are."""
    mean = nodes.at_bins(evidence(nodes, rows, kernels, noise_variance).mean)
    fit = tables.multiply(mean[None])[0]
    better = list(kernels)
    for d, (search, kernel) in enumerate(zip(searches, kernels, strict=True)):
        if "lengthscale" not in search.names:
            continue
        part = slice(tables.offsets[d], tables.offsets[d + 1])
        weight = tables.weights[d]
        # A bin whose rows all have weight 0 says nothing.
        rest = (tables.information[d] - fit[part]) / np.where(weight > 0, weight, 1.0)
        target = rest + mean[part]
        value = partial(
            Axis(tables.positions[d]).log_marginal_likelihood,
            seen=Observations(target, weight / noise_variance),
        )
        best_value = value(kernel) + _SCAN_GAIN
        for factor in _SCAN:
            length = factor * search.width
            if not search.allows("lengthscale", length):
                continue
            # A term that has shrunk to nothing gains by no lengthscale unless its variance comes
            # back.
            for start in (kernel, search.start) if "variance" in search.names else (kernel,):
                tried = start.with_parameters(lengthscale=length)
                if (found := value(tried)) > best_value:
                    better[d], best_value = tried, found
    return better
