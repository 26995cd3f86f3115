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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack
from scipy.sparse import csr_array, issparse, vstack

from dsgp.additive import TwoWayTables
from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.kernels import Kernel
from dsgp.learning.search import Search
from dsgp.terms import LOG_2PI, Cells, Floats, Observations

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
# Cells of a term that are worth eliminating, and nodes of all other terms that a factor is made of.
_ELIMINATED = 64
# Nodes of a curve at least.
_FEWEST = 8
MOST_NODES = 2600
# Share of entries that a coupling to an eliminated term has at most to be kept sparse.
_SPARSE = 0.15
# Rows that the degrees of freedom leave, as a share, while the noise is updated.
_LEAST_LEFT = 0.05


@dataclass(frozen=True)
class Basis:
    """Where the nodes of all terms are, and their splines at the bins.

    Attributes
    ----------
    cells : list of Cells
        The nodes of each term.
    parts : list of slice
        Where each term is among all nodes. One that is eliminated comes last.
    splines : list of ndarray of shape (n_bins, M_d), or None
        C; None where the nodes are the bins.
    eliminated : int or None
        A term whose prior is a variance times the identity, which is solved for first: its nodes
        are all of its cells, however many.
    """

    cells: list[Cells]
    parts: list[slice]
    splines: list[Floats | None]
    eliminated: int | None = None

    @classmethod
    def of(cls, tables: TwoWayTables, counts: list[int], eliminated: int | None = None) -> Basis:
        """Choose about so many nodes a term among its bins."""
        nodes, splines = [], []
        for bins, weight, count in zip(tables.cells, tables.weights, counts, strict=True):
            chosen = bins.nodes(weight, count)
            nodes.append(bins if len(chosen) == len(bins) else bins.subset(chosen))
            splines.append(bins.interpolation(chosen))
        order = [d for d in range(len(nodes)) if d != eliminated]
        order += [] if eliminated is None else [eliminated]
        ends = np.cumsum([0, *(len(nodes[d]) for d in order)])
        parts = dict(zip(order, (slice(int(a), int(b)) for a, b in pairwise(ends)), strict=True))
        return cls(nodes, [parts[d] for d in range(len(nodes))], splines, eliminated)

    @property
    def size(self) -> int:
        """Nodes of all terms together."""
        return max((part.stop for part in self.parts), default=0)

    @property
    def kept(self) -> list[int]:
        """Terms that are not eliminated."""
        return [d for d in range(len(self.parts)) if d != self.eliminated]

    @property
    def kept_size(self) -> int:
        """Nodes of the terms that are not eliminated."""
        return sum(len(self.cells[d]) for d in self.kept)

    def nodes(self, tables: TwoWayTables) -> Nodes:
        """Move statistics from the bins to the nodes."""
        size = self.kept_size
        matrix = np.empty((size, size))
        kept = self.kept
        for position, d in enumerate(kept):
            part = self.parts[d]
            matrix[part, part] = self.within(d, tables.weights[d])
            for e in kept[:position]:
                block = self.between(e, tables.pairs[e, d], d)
                matrix[self.parts[e], part] = block
                matrix[part, self.parts[e]] = block.T
        information = self.at_nodes(tables.information)
        if self.eliminated is None:
            return Nodes(self, matrix, information)
        last = self.eliminated
        blocks = []
        for d in kept:
            table = tables.pairs[d, last] if d < last else tables.pairs[last, d].T
            spline = self.splines[d]
            blocks.append(table if spline is None else spline.T @ table)
        coupling = _stacked(blocks, len(self.cells[last]))
        return Nodes(self, matrix, information, coupling, tables.weights[last])

    def within(self, d: int, weights: Floats) -> Floats:
        """C_dᵀ times a diagonal matrix of the bins of a term times C_d."""
        spline = self.splines[d]
        if spline is None:
            return np.diag(weights)
        table = np.diag(weights)
        return (spline.T @ table) @ spline

    def between(self, d: int, table: Any, e: int) -> Floats:
        """C_dᵀ times a table of the bins of two terms times C_e."""
        left, right = self.splines[d], self.splines[e]
        table = table if left is None else left.T @ table
        table = table if right is None else table @ right
        return table.toarray() if issparse(table) else table

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
        out = np.empty(self.size)
        for part, spline, b in zip(self.parts, self.splines, sums, strict=True):
            out[part] = b if spline is None else spline.T @ b
        return out


@dataclass(frozen=True)
class Nodes:
    """Statistics of the rows at the nodes of all terms.

    Attributes
    ----------
    basis : Basis
    matrix : ndarray of shape (M, M)
        G, the weighted normal matrix, of the terms that are not eliminated.
    information : ndarray of shape (Σ M_d,)
        Of all terms.
    coupling : ndarray of shape (M, U), a sparse one, or None
        The part of G between them and the eliminated term.
    weights : ndarray of shape (U,), or None
        The diagonal of G that belongs to it.
    """

    basis: Basis
    matrix: Floats
    information: Floats
    coupling: Any = None
    weights: Floats | None = None

    def squares(self, values: Floats) -> float:
        """Valuesᵀ G values, of all nodes."""
        size = len(self.matrix)
        kept, others = values[:size], values[size:]
        total = kept @ self.matrix @ kept
        if self.coupling is not None and self.weights is not None:
            total += 2 * (kept @ self.coupling @ others) + np.sum(self.weights * others**2)
        return float(total)


def _stacked(blocks: list[Any], n_columns: int) -> Any:
    """Put blocks (M_d, U) one below the other; sparse where most of it is 0."""
    if not blocks:
        return np.empty((0, n_columns))
    filled = [b.nnz if issparse(b) else np.count_nonzero(b) for b in blocks]
    n_rows = sum(block.shape[0] for block in blocks)
    if sum(filled) < _SPARSE * n_rows * n_columns:
        return csr_array(vstack([csr_array(block) for block in blocks]))
    return np.concatenate([b.toarray() if issparse(b) else b for b in blocks])


@dataclass(frozen=True)
class Rows:
    """What else the likelihood needs of the rows."""

    quadratic: float
    n_rows: int
    log_weight: float


class NodePosterior:
    """Posterior of the values at the nodes, in coordinates α = L⁻¹ F in which the prior is white.

    An eliminated term ℓ, with K_ℓ = v I and weights w_ℓ, has the diagonal D = 1 + v w_ℓ / σ² in
    these coordinates, so that with B the coupling the others' matrix is S = A − B D⁻¹ Bᵀ:
    log determinants add up, and nothing of the size of U² is ever made.

    Attributes
    ----------
    lowers : dict of int to ndarray of shape (M_d, M_d), or float
        L of each term that is not eliminated, K_d = L Lᵀ; a number where K_d is its square times
        the identity.
    whitened : ndarray of shape (Σ M_d,)
        Lᵀ times the information.
    weights : ndarray of shape (Σ M_d,)
        α, the posterior mean in these coordinates.
    log_det : float
        log det(I + K̃ G / σ²).
    """

    def __init__(self, nodes: Nodes, kernels: list[Kernel], noise_variance: float) -> None:
        self.nodes, self.kernels, self.noise_variance = nodes, kernels, noise_variance
        self.basis = nodes.basis
        kept, cells = [(d, self.basis.parts[d]) for d in self.basis.kept], self.basis.cells
        self.lowers = {
            d: kernels[d].std if cells[d].is_diagonal else prior_factor(kernels[d], cells[d])
            for d, _ in kept
        }
        matrix = np.empty(nodes.matrix.shape, order="F")
        for d, part in kept:
            matrix[part] = _transposed(self.lowers[d], nodes.matrix[part])
        for d, part in kept:
            lower = self.lowers[d]
            if isinstance(lower, float):
                matrix[:, part] *= lower
            else:
                matrix[:, part] = matrix[:, part] @ lower
        matrix /= noise_variance
        self._blocks = {d: matrix[part, part].copy() for d, part in kept}
        matrix[np.diag_indices_from(matrix)] += 1.0
        self._size = len(matrix)
        log_det = 0.0
        if self.basis.eliminated is not None:
            self._eliminate(matrix)
            log_det = float(np.sum(np.log(self._diagonal)))
        self._factor = cholesky_to_rounding(matrix)
        self.whitened = self.whiten(nodes.information) / noise_variance
        self.weights = self.solve(self.whitened)
        self.log_det = log_det + 2 * float(np.sum(np.log(np.diag(self._factor))))

    def _eliminate(self, matrix: Floats) -> None:
        """Subtract B D⁻¹ Bᵀ, in place."""
        assert self.basis.eliminated is not None
        assert self.nodes.coupling is not None
        assert self.nodes.weights is not None
        self._std = self.kernels[self.basis.eliminated].std
        self._diagonal = 1.0 + self.nodes.weights * (self._std**2 / self.noise_variance)
        coupling, scale = self.nodes.coupling, self._std / self.noise_variance
        blocks = [
            _transposed(lower, coupling[self.basis.parts[d]]) for d, lower in self.lowers.items()
        ]
        if issparse(coupling):
            self._coupling = csr_array(vstack(blocks)) * scale
            divided = self._coupling.multiply(1.0 / self._diagonal).tocsr()
            matrix -= (divided @ self._coupling.T).toarray()
        else:
            self._coupling = np.concatenate([*blocks, coupling[:0]]) * scale
            matrix -= (self._coupling / self._diagonal) @ self._coupling.T

    def whiten(self, information: Floats) -> Floats:
        """Lᵀ times a vector of the nodes."""
        out = np.empty(self.basis.size)
        for d, lower in self.lowers.items():
            part = self.basis.parts[d]
            out[part] = _transposed(lower, information[part])
        if self.basis.eliminated is not None:
            out[self._size :] = self._std * information[self._size :]
        return out

    def values(self, weights: Floats) -> Floats:
        """L times a vector: from white coordinates to values at the nodes."""
        out = np.empty(self.basis.size)
        for d, lower in self.lowers.items():
            part = self.basis.parts[d]
            out[part] = _times(lower, weights[part])
        if self.basis.eliminated is not None:
            out[self._size :] = self._std * weights[self._size :]
        return out

    def whites(self, values: Floats) -> Floats:
        """L⁻¹ times values at the nodes."""
        out = np.empty(self.basis.size)
        for d, lower in self.lowers.items():
            part = self.basis.parts[d]
            out[part] = _solved(lower, values[part])
        if self.basis.eliminated is not None:
            out[self._size :] = values[self._size :] / self._std
        return out

    def solve(self, whitened: Floats) -> Floats:
        """(I + Lᵀ G L / σ²)⁻¹ times a vector."""
        if self.basis.eliminated is None:
            return self._solve_kept(whitened)
        kept, others = whitened[: self._size], whitened[self._size :]
        first = self._solve_kept(kept - self._coupling @ (others / self._diagonal))
        second = (others - self._coupling.T @ first) / self._diagonal
        return np.concatenate([first, second])

    def _solve_kept(self, whitened: Floats) -> Floats:
        if not len(whitened):  # LAPACK takes no empty matrix
            return whitened
        return lapack.dpotrs(self._factor, whitened, lower=1)[0]

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean at the nodes."""
        return self.values(self.weights)

    @cached_property
    def inverse(self) -> Floats:
        """(I + Lᵀ G L / σ²)⁻¹ of the terms that are not eliminated: their posterior covariance."""
        if not len(self._factor):
            return self._factor
        lower, _ = lapack.dpotri(self._factor, lower=1)
        lower = np.tril(lower)
        return lower + np.tril(lower, -1).T

    @cached_property
    def _variances(self) -> Floats:
        """Posterior variances of the eliminated term in white coordinates, (U,)."""
        if issparse(self._coupling):
            # U vectors of M numbers, of which those that meet a row count.
            coupled = self._coupling.multiply(self.inverse @ self._coupling).sum(axis=0)
        else:
            coupled = np.einsum("ku,ku->u", self._coupling, self.inverse @ self._coupling)
        return 1.0 / self._diagonal + coupled / self._diagonal**2

    @property
    def dof(self) -> float:
        """Degrees of freedom of all terms."""
        dof = self._size - float(np.trace(self.inverse))
        if self.basis.eliminated is not None:
            dof += float(np.sum(1.0 - self._variances))
        return dof

    @cached_property
    def inverses_alone(self) -> dict[int, Floats]:
        """The posterior covariance of every such term by itself, the others known."""
        found = {}
        for d, block in self._blocks.items():
            factor = cholesky_to_rounding(block + np.eye(len(block)))
            inverse, _ = lapack.dpotri(factor, lower=1)
            found[d] = np.tril(inverse) + np.tril(inverse, -1).T
        return found

    @cached_property
    def log_det_alone(self) -> float:
        """Σ_d log det(I + K_d G_d / σ²): the determinant of terms as if independent."""
        total = sum(
            float(np.linalg.slogdet(block + np.eye(len(block)))[1])
            for block in self._blocks.values()
        )
        if self.basis.eliminated is not None:
            total += float(np.sum(np.log(self._diagonal)))
        return total

    def covariance(self, d: int, e: int, *, alone: bool = False) -> Floats:
        """Posterior covariance of the values of two terms at their nodes, of two that differ.

        That of an eliminated term with itself has only its diagonal: see ``variances``.
        """
        last = self.basis.eliminated
        if alone and d != e:
            return np.zeros((len(self.basis.cells[d]), len(self.basis.cells[e])))
        if last is not None and last in (d, e):
            assert d != e
            other = e if d == last else d
            part = self.basis.parts[other]
            crossed = -(self.inverse[part] @ self._coupling) / self._diagonal
            crossed = self._std * _times(self.lowers[other], crossed)
            return crossed.T if d == last else crossed
        if alone:
            inverse = self.inverses_alone[d]
        else:
            inverse = self.inverse[self.basis.parts[d], self.basis.parts[e]]
        return _times(self.lowers[e], _times(self.lowers[d], inverse).T).T

    def variances(self, d: int, *, alone: bool = False) -> Floats:
        """Posterior variances of a term at the bins, (n_bins,)."""
        spline = self.basis.splines[d]
        if d == self.basis.eliminated:
            own = 1.0 / self._diagonal if alone else self._variances
            return self._std**2 * own
        block = self.covariance(d, d, alone=alone)
        if spline is not None:
            block = (spline @ block) @ spline.T
        return np.diag(block).copy()

    def derivative(self, d: int, name: str) -> Floats:
        """∂K_d / ∂ log of a parameter, at the nodes of a term that is not eliminated."""
        key = (d, name)
        kept: dict[tuple[int, str], Floats] = self.__dict__.setdefault("_derivatives", {})
        if key not in kept:
            kept[key] = self.basis.cells[d].prior_by_log(self.kernels[d], name)
        return kept[key]

    def duals(self, weights: Floats) -> list[Floats]:
        """L⁻ᵀ times a vector, term by term: K_d⁻¹ of the values."""
        found = []
        for d, part in enumerate(self.basis.parts):
            if d == self.basis.eliminated:
                found.append(weights[part] / self._std)
            else:
                found.append(_solved(self.lowers[d], weights[part], trans=1))
        return found

    def gradients(self, *, alone: bool = False) -> list[dict[str, float]]:
        """Derivatives by the logs of parameters of −½ (log determinant + αᵀα) where F stays.

        That of the log marginal likelihood, as the fit is stationary in F; ``alone`` with the
        determinant of terms as if independent.
        """
        found: list[dict[str, float]] = []
        for d, (kernel, part) in enumerate(zip(self.kernels, self.basis.parts, strict=True)):
            if d == self.basis.eliminated:
                own = 1.0 / self._diagonal if alone else self._variances
                weights = self.weights[part]
                found.append({"variance": 0.5 * float(weights @ weights - np.sum(1.0 - own))})
                continue
            lower = self.lowers[d]
            block = self.inverses_alone[d] if alone else self.inverse[part, part]
            learned = np.eye(len(block)) - block
            by_log: dict[str, float] = {}
            others = [name for name in kernel.parameters if name != "variance"]
            if others:
                assert not isinstance(lower, float)
                # L⁻ᵀ (learned, weights): half of the score, and the dual of the mean.
                half, _ = lapack.dtrtrs(
                    lower, np.column_stack([learned, self.weights[part]]), lower=1, trans=1
                )
                dual = half[:, -1]
                score, _ = lapack.dtrtrs(lower, half[:, :-1].T, lower=1, trans=1)
                for name in others:
                    derivative = self.derivative(d, name)
                    by_log[name] = 0.5 * float(
                        dual @ derivative @ dual - np.sum(score * derivative)
                    )
            if "variance" in kernel.parameters:
                by_log["variance"] = 0.5 * float(
                    self.weights[part] @ self.weights[part] - np.trace(learned)
                )
            found.append(by_log)
        return found


def _times(lower: Floats | float, values: Any) -> Any:
    """L times values."""
    return lower * values if isinstance(lower, float) else lower @ values


def _transposed(lower: Floats | float, values: Any) -> Any:
    """Lᵀ times values, which may be sparse."""
    if isinstance(lower, float):
        return values * lower
    return lower.T @ values


def _solved(lower: Floats | float, values: Floats, trans: int = 0) -> Floats:
    """L⁻¹, or L⁻ᵀ, times a vector."""
    if isinstance(lower, float):
        return values / lower
    return lapack.dtrtrs(lower, values, lower=1, trans=trans)[0].ravel()


@dataclass(frozen=True)
class Evidence:
    """The log marginal likelihood and its derivatives by the logs of parameters and of σ²."""

    value: float
    by_log: list[dict[str, float]]
    """Of each term, by the names of its parameters."""
    by_log_noise: float
    mean: Floats
    """Posterior mean at the nodes."""
    next_noise: float
    """σ² at which its own derivative would vanish, if fit and degrees of freedom did not move."""


def evidence(
    nodes: Nodes,
    rows: Rows,
    kernels: list[Kernel],
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
    mean = posterior.mean
    squares = (rows.quadratic - 2 * nodes.information @ mean + nodes.squares(mean)) / noise_variance
    dof = posterior.dof
    by_noise = 0.5 * (squares + dof - rows.n_rows)
    left = max(rows.n_rows - dof, _LEAST_LEFT * rows.n_rows)
    next_noise = noise_variance * float(squares) / left
    return Evidence(value, posterior.gradients(alone=alone), float(by_noise), mean, next_noise)


def prior_factor(kernel: Kernel, nodes: Cells) -> Floats:
    """Cholesky factor of the prior at the nodes."""
    prior = nodes.prior(kernel, nodes.points, nodes.points)
    prior[np.diag_indices_from(prior)] *= 1 + _JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise LinAlgError(f"the prior of {kernel!r} at its nodes is singular to rounding")
    return factor


# ---------------------------------------------------------------- are nodes and kernels enough


def open_variances(
    tables: TwoWayTables, basis: Basis, kernels: list[Kernel], noise_variance: float
) -> list[float]:
    """Prior variance given the nodes, averaged over the rows, as a share of the noise variance.

    Between the means of the bins, and within the bins.
    """
    found = []
    for d, (nodes, bins, weight, squares, kernel) in enumerate(
        zip(basis.cells, tables.cells, tables.weights, tables.spreads, kernels, strict=True)
    ):
        if d == basis.eliminated or not bins.is_interpolated:
            found.append(0.0)  # every cell is a node
            continue
        variance = kernel.std**2
        features, _ = lapack.dtrtrs(
            prior_factor(kernel, nodes), bins.prior(kernel, nodes.points, bins.points), lower=1
        )
        left = np.maximum(variance - np.sum(features**2, axis=0) - 2 * _JITTER * variance, 0.0)
        left += bins.left_open(kernel, squares)
        # The weights of confident rows may all vanish.
        total = max(float(np.sum(weight)), np.finfo(float).tiny)
        found.append(float(np.sum(weight * left)) / total / noise_variance)
    return found


def first_nodes(kernels: list[Kernel], tables: TwoWayTables | None = None) -> list[int]:
    """Nodes that the terms begin with; cells that are no points of a line are all nodes."""
    if tables is None:
        most = max(8, ALL_NODES // (2 * max(len(kernels), 1)))
        return [min(NODES[kernel.order], most) for kernel in kernels]
    return spread_nodes(kernels, tables.cells, NODES)


def spread_nodes(
    kernels: list[Kernel], cells: Sequence[Cells], wanted: Mapping[int, int]
) -> list[int]:
    """Share half of all nodes among the terms; ``wanted`` by the order of a kernel, for a curve."""
    fixed = [0 if own.is_interpolated else len(own) for own in cells]
    n_curves = [own.n_curves if own.is_interpolated else 0 for own in cells]
    left = ALL_NODES - min(sum(n for n in fixed if n < _ELIMINATED), ALL_NODES // 2)
    most = max(_FEWEST, left // (2 * max(sum(n_curves), 1)))
    return [
        size or n * min(wanted[kernel.order], most)
        for size, n, kernel in zip(fixed, n_curves, kernels, strict=True)
    ]


def are_too_many(cells: Sequence[Cells]) -> bool:
    """Whether levels and curves are more than a factor of all nodes can be made of.

    The largest term of levels is eliminated, and does not count.
    """
    last = eliminated_among(cells)
    return _fewest_nodes(cells) - (0 if last is None else len(cells[last])) > MOST_NODES


def has_too_many_levels(cells: Sequence[Cells]) -> bool:
    """Whether they are too many where no term is eliminated."""
    return _fewest_nodes(cells) > MOST_NODES


def _fewest_nodes(cells: Sequence[Cells]) -> int:
    """Nodes of all terms at least."""
    return sum(
        min(len(term), _FEWEST * term.n_curves) if term.is_interpolated else len(term)
        for term in cells
    )


def eliminated_of(tables: TwoWayTables) -> int | None:
    """The term that is worth eliminating; see ``eliminated_among``."""
    return eliminated_among(tables.cells)


def eliminated_among(cells: Sequence[Cells]) -> int | None:
    """The term that is worth eliminating: of cells whose prior is diagonal, the one with most."""
    sizes = [len(bins) if bins.is_diagonal else 0 for bins in cells]
    largest = int(np.argmax(sizes)) if sizes else 0
    return largest if sizes and sizes[largest] >= _ELIMINATED else None


def enough_nodes(
    tables: TwoWayTables, kernels: list[Kernel], noise_variance: float
) -> list[int] | None:
    """Nodes that resolve functions of given kernels, or None if the budget does not allow it."""
    counts = first_nodes(kernels, tables)
    eliminated = eliminated_of(tables)
    while True:
        basis = Basis.of(tables, counts, eliminated)
        left = open_variances(tables, basis, kernels, noise_variance)
        if sum(left) <= RESOLUTION:
            return counts
        more = more_nodes(tables, counts, kernels, left)
        if more == counts:
            return counts if sum(left) <= 4 * RESOLUTION else None
        counts = more


def more_nodes(
    tables: TwoWayTables, counts: list[int], kernels: list[Kernel], open_variance: list[float]
) -> list[int]:
    """More nodes for the terms that leave too much open, within the budget.

    What M nodes leave open falls like M^(−2ν).
    """
    share = RESOLUTION / max(len(counts), 1)
    granted = list(counts)
    free = [d for d in range(len(counts)) if tables.cells[d].is_interpolated]
    left = ALL_NODES - sum(counts[d] for d in free)
    # Those that need them most come first.
    for d in np.argsort(open_variance)[::-1]:
        n_bins, excess = len(tables.cells[d]), open_variance[d] / share
        if excess <= 1 or counts[d] >= n_bins:
            continue
        wanted = math.ceil(1.1 * counts[d] * excess ** (1 / (2 * kernels[d].order - 1)))
        more = min(wanted, n_bins) - counts[d]
        if more <= left:
            granted[d] += more
            left -= more
    return granted


def other_lengthscales(
    tables: TwoWayTables,
    mean: Floats,
    searches: list[Search],
    kernels: list[Kernel],
    noise_variance: float,
) -> list[Kernel]:
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
            tables.cells[d].log_marginal_likelihood,
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
