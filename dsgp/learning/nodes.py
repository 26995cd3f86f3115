"""Additive models by their values at nodes, and what statistics of the rows say of these.

Each term is represented by its values at M nodes: between them the function is their cubic spline
(bounded, see ``learning.splines``).
What the rows say of the nodes, G = Cᵀ ZᵀWZ C and Cᵀ ZᵀWy with C the spline's values at the bins, is
computed once and does not depend on the hyperparameters. The log marginal likelihood of that model,

    −½ [N log 2πσ² − Σ log w + log det(I + K̃ G / σ²) + (yᵀWy − bᵀF) / σ²],

its gradient and the posterior mean F at the nodes then cost one Cholesky factor of size Σ M_d: no
row and no bin is looked at again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from scipy.linalg import LinAlgError, lapack

from dsgp.additive import TwoWayTables
from dsgp.additive.bins import left_open
from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.additive.tables import spread_beside_gaps
from dsgp.axis import LOG_2PI, Axis, Floats, Observations
from dsgp.kernels import Matern
from dsgp.learning.search import Search
from dsgp.learning.splines import spline_matrix

# Nodes a term begins with, by the order of its kernel, and all terms together at most: a Cholesky
# factor of that size takes some 50 ms.
NODES = {1: 64, 2: 64, 3: 40, 4: 32}
ALL_NODES = 1200
# Prior variance that the nodes of all terms leave open, as a share of the noise variance.
RESOLUTION = 2e-2
_JITTER = 1e-9
# Lengthscales tried for every single term at the optimum, in widths of the bulk of its rows.
_SCAN = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SCAN_GAIN = 1.0  # nats worth another search
# Rows that the degrees of freedom leave, as a share, while the noise is updated.
_LEAST_LEFT = 0.05


@dataclass(frozen=True)
class Basis:
    """Where the nodes of all terms are, and their splines at the bins.

    Attributes
    ----------
    positions : list of ndarray of shape (M_d,)
    parts : list of slice
        Where each term is among all nodes.
    splines : list of ndarray of shape (n_bins, M_d), or None
        C; None where the nodes are the bins.
    """

    positions: list[Floats]
    parts: list[slice]
    splines: list[Floats | None]

    @classmethod
    def of(cls, tables: TwoWayTables, counts: list[int]) -> Basis:
        """Choose about so many nodes a term among its bins."""
        positions, splines = [], []
        for points, weight, count in zip(tables.positions, tables.weights, counts, strict=True):
            nodes = (
                points
                if len(points) <= count
                else points[spread_beside_gaps(points, weight, count)]
            )
            positions.append(nodes)
            exact = len(nodes) == len(points)
            splines.append(None if exact else spline_matrix(nodes, points))
        ends = np.cumsum([0, *(len(nodes) for nodes in positions)])
        return cls(positions, [slice(a, b) for a, b in pairwise(ends)], splines)

    @property
    def size(self) -> int:
        """Nodes of all terms together."""
        return self.parts[-1].stop if self.parts else 0

    def nodes(self, tables: TwoWayTables) -> Nodes:
        """Move statistics from the bins to the nodes."""
        matrix = np.empty((self.size, self.size))
        for d, part in enumerate(self.parts):
            diagonal = np.diag(tables.weights[d])
            matrix[part, part] = self.between(d, diagonal, d)
            for e in range(d):
                block = self.between(e, tables.pairs[e, d], d)
                matrix[self.parts[e], part] = block
                matrix[part, self.parts[e]] = block.T
        return Nodes(self, matrix, self.at_nodes(tables.information))

    def between(self, d: int, table: Floats, e: int) -> Floats:
        """C_dᵀ times a table of the bins of two terms times C_e."""
        left, right = self.splines[d], self.splines[e]
        table = table if left is None else left.T @ table
        return table if right is None else table @ right

    def at_bins(self, values: Floats) -> Floats:
        """Values at the nodes carried to the bins, all terms one after the other."""
        return np.concatenate(
            [
                values[part] if spline is None else spline @ values[part]
                for part, spline in zip(self.parts, self.splines, strict=True)
            ]
            or [np.zeros(0)]
        )

    def at_nodes(self, sums: list[Floats]) -> Floats:
        """Cᵀ times sums by bins of each term."""
        return np.concatenate(
            [
                b if spline is None else spline.T @ b
                for spline, b in zip(self.splines, sums, strict=True)
            ]
            or [np.zeros(0)]
        )


@dataclass(frozen=True)
class Nodes:
    """Statistics of the rows at the nodes of all terms.

    Attributes
    ----------
    basis : Basis
    matrix : ndarray of shape (Σ M_d, Σ M_d)
        G, the weighted normal matrix.
    information : ndarray of shape (Σ M_d,)
    """

    basis: Basis
    matrix: Floats
    information: Floats


@dataclass(frozen=True)
class Rows:
    """What else the likelihood needs of the rows."""

    quadratic: float
    n_rows: int
    log_weight: float


class NodePosterior:
    """Posterior of the values at the nodes, in coordinates α = L⁻¹ F in which the prior is white.

    Attributes
    ----------
    lowers : list of ndarray of shape (M_d, M_d)
        L of each term, K_d = L Lᵀ.
    whitened : ndarray of shape (Σ M_d,)
        Lᵀ times the information.
    weights : ndarray of shape (Σ M_d,)
        α, the posterior mean in these coordinates.
    log_det : float
        log det(I + K̃ G / σ²).
    """

    def __init__(self, nodes: Nodes, kernels: list[Matern], noise_variance: float) -> None:
        self.nodes, self.kernels, self.noise_variance = nodes, kernels, noise_variance
        self.basis = nodes.basis
        parts = self.basis.parts
        self.lowers = [
            prior_factor(kernel, points)
            for kernel, points in zip(kernels, self.basis.positions, strict=True)
        ]
        matrix = np.empty(nodes.matrix.shape, order="F")
        for part, lower in zip(parts, self.lowers, strict=True):
            matrix[part] = lower.T @ nodes.matrix[part]
        for part, lower in zip(parts, self.lowers, strict=True):
            matrix[:, part] = matrix[:, part] @ lower
        matrix /= noise_variance
        self._blocks = [matrix[part, part].copy() for part in parts]
        matrix[np.diag_indices_from(matrix)] += 1.0
        self._factor = cholesky_to_rounding(matrix)
        self.whitened = self.whiten(nodes.information) / noise_variance
        self.weights = self.solve(self.whitened)
        self.log_det = 2 * float(np.sum(np.log(np.diag(self._factor))))

    def whiten(self, information: Floats) -> Floats:
        """Lᵀ times a vector of the nodes."""
        return np.concatenate(
            [
                lower.T @ information[part]
                for part, lower in zip(self.basis.parts, self.lowers, strict=True)
            ]
            or [np.zeros(0)]
        )

    def values(self, weights: Floats) -> Floats:
        """L times a vector: from white coordinates to values at the nodes."""
        return np.concatenate(
            [lower @ weights[part] for part, lower in self._terms()] or [np.zeros(0)]
        )

    def whites(self, values: Floats) -> Floats:
        """L⁻¹ times values at the nodes."""
        return np.concatenate(
            [
                lapack.dtrtrs(lower, values[part], lower=1)[0].ravel()
                for part, lower in self._terms()
            ]
        )

    def solve(self, whitened: Floats) -> Floats:
        """(I + Lᵀ G L / σ²)⁻¹ times a vector."""
        if not len(whitened):  # LAPACK takes no empty matrix
            return whitened
        return lapack.dpotrs(self._factor, whitened, lower=1)[0]

    def _terms(self) -> list[tuple[slice, Floats]]:
        return list(zip(self.basis.parts, self.lowers, strict=True))

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean at the nodes."""
        return self.values(self.weights)

    @cached_property
    def inverse(self) -> Floats:
        """(I + Lᵀ G L / σ²)⁻¹: the posterior covariance in white coordinates."""
        if not len(self._factor):
            return self._factor
        lower, _ = lapack.dpotri(self._factor, lower=1)
        lower = np.tril(lower)
        return lower + np.tril(lower, -1).T

    @cached_property
    def inverses_alone(self) -> list[Floats]:
        """The same of every term by itself, the others known."""
        found = []
        for block in self._blocks:
            factor = cholesky_to_rounding(block + np.eye(len(block)))
            inverse, _ = lapack.dpotri(factor, lower=1)
            found.append(np.tril(inverse) + np.tril(inverse, -1).T)
        return found

    @cached_property
    def log_det_alone(self) -> float:
        """Σ_d log det(I + K_d G_d / σ²): the determinant of terms as if independent."""
        return sum(
            float(np.linalg.slogdet(block + np.eye(len(block)))[1]) for block in self._blocks
        )

    def covariance(self, d: int, e: int, *, alone: bool = False) -> Floats:
        """Posterior covariance of the values of two terms at their nodes."""
        if alone:
            inverse = self.inverses_alone[d] if d == e else None
        else:
            inverse = self.inverse[self.basis.parts[d], self.basis.parts[e]]
        left, right = self.lowers[d], self.lowers[e]
        if inverse is None:
            return np.zeros((len(left), len(right)))
        return left @ inverse @ right.T

    @cached_property
    def derivatives(self) -> list[Floats]:
        """∂K_d / ∂ log ℓ_d at the nodes."""
        return [
            kernel.by_log_lengthscale(points)
            for kernel, points in zip(self.kernels, self.basis.positions, strict=True)
        ]

    def duals(self, weights: Floats) -> list[Floats]:
        """L⁻ᵀ times a vector, term by term: K_d⁻¹ of the values."""
        return [
            lapack.dtrtrs(lower, weights[part], lower=1, trans=1)[0].ravel()
            for part, lower in self._terms()
        ]

    def gradients(self, *, alone: bool = False) -> tuple[Floats, Floats]:
        """Derivatives by log ℓ and log s² of −½ (log determinant + αᵀα) where F stays.

        That of the log marginal likelihood, as the fit is stationary in F; ``alone`` with the
        determinant of terms as if independent.
        """
        by_lengthscale, by_variance = np.empty(len(self.kernels)), np.empty(len(self.kernels))
        for d, (part, lower) in enumerate(self._terms()):
            block = self.inverses_alone[d] if alone else self.inverse[part, part]
            learned = np.eye(len(block)) - block
            # L⁻ᵀ (learned, weights): half of the score, and the dual of the mean.
            half, _ = lapack.dtrtrs(
                lower, np.column_stack([learned, self.weights[part]]), lower=1, trans=1
            )
            dual = half[:, -1]
            score, _ = lapack.dtrtrs(lower, half[:, :-1].T, lower=1, trans=1)
            derivative = self.derivatives[d]
            by_lengthscale[d] = 0.5 * (dual @ derivative @ dual - np.sum(score * derivative))
            by_variance[d] = 0.5 * (self.weights[part] @ self.weights[part] - np.trace(learned))
        return by_lengthscale, by_variance


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


def evidence(
    nodes: Nodes,
    rows: Rows,
    kernels: list[Matern],
    noise_variance: float,
    *,
    alone: bool = False,
) -> Evidence:
    """Compute the log marginal likelihood, its gradient and the mean at the nodes.

    ``alone`` takes the determinant of the terms as if independent.
    """
    posterior = NodePosterior(nodes, kernels, noise_variance)
    fit = float(np.sum(posterior.whitened * posterior.weights))
    value = -0.5 * (
        rows.n_rows * (LOG_2PI + math.log(noise_variance))
        - rows.log_weight
        + (posterior.log_det_alone if alone else posterior.log_det)
        + rows.quadratic / noise_variance
        - fit
    )
    by_lengthscale, by_variance = posterior.gradients(alone=alone)
    mean = posterior.mean
    squares = (
        rows.quadratic - 2 * nodes.information @ mean + mean @ nodes.matrix @ mean
    ) / noise_variance
    dof = nodes.basis.size - float(np.trace(posterior.inverse))
    by_noise = 0.5 * (squares + dof - rows.n_rows)
    left = max(rows.n_rows - dof, _LEAST_LEFT * rows.n_rows)
    next_noise = noise_variance * float(squares) / left
    return Evidence(value, by_lengthscale, by_variance, float(by_noise), mean, next_noise)


def prior_factor(kernel: Matern, points: Floats) -> Floats:
    """Cholesky factor of the prior at the nodes."""
    prior = kernel.covariance(points)
    prior[np.diag_indices_from(prior)] *= 1 + _JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise LinAlgError(f"the prior of {kernel!r} at its nodes is singular to rounding")
    return factor


# ---------------------------------------------------------------- are nodes and kernels enough


def open_variances(
    tables: TwoWayTables, basis: Basis, kernels: list[Matern], noise_variance: float
) -> list[float]:
    """Prior variance given the nodes, averaged over the rows, as a share of the noise variance.

    Between the means of the bins, and within the bins.
    """
    found = []
    for points, bins, weight, squares, kernel in zip(
        basis.positions, tables.positions, tables.weights, tables.spreads, kernels, strict=True
    ):
        variance = float(kernel.variance or 0.0)
        features, _ = lapack.dtrtrs(
            prior_factor(kernel, points), kernel.covariance(points, bins), lower=1
        )
        left = np.maximum(variance - np.sum(features**2, axis=0) - 2 * _JITTER * variance, 0.0)
        left += left_open(kernel, np.sqrt(12 * squares))
        # The weights of confident rows may all vanish.
        total = max(float(np.sum(weight)), np.finfo(float).tiny)
        found.append(float(np.sum(weight * left)) / total / noise_variance)
    return found


def first_nodes(kernels: list[Matern]) -> list[int]:
    """Nodes that the terms begin with."""
    most = max(8, ALL_NODES // (2 * max(len(kernels), 1)))
    return [min(NODES[kernel.order], most) for kernel in kernels]


def enough_nodes(
    tables: TwoWayTables, kernels: list[Matern], noise_variance: float
) -> list[int] | None:
    """Nodes that resolve functions of given kernels, or None if the budget does not allow it."""
    counts = first_nodes(kernels)
    while True:
        basis = Basis.of(tables, counts)
        left = open_variances(tables, basis, kernels, noise_variance)
        if sum(left) <= RESOLUTION:
            return counts
        more = more_nodes(tables, counts, kernels, left)
        if more == counts:
            return counts if sum(left) <= 4 * RESOLUTION else None
        counts = more


def more_nodes(
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


def other_lengthscales(
    tables: TwoWayTables,
    mean: Floats,
    searches: list[Search],
    kernels: list[Matern],
    noise_variance: float,
) -> list[Matern]:
    """Try lengthscales far from the optimum for every single term, the other terms as they are.

    By the 1-D marginal likelihood of the term's partial residual; ``mean`` is that at the bins,
    (Σ n_bins,).
    """
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
        best_value = value(kernel) + SCAN_GAIN
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
