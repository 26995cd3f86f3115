"""The posterior of additive models at their nodes: one Cholesky factor of size Σ M_d."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack
from scipy.sparse import csc_array, issparse, vstack

from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.jit.sparse import quadratic_forms, subtract_outer
from dsgp.kernels import Kernel
from dsgp.learning.basis import Nodes
from dsgp.terms import Cells, Floats

# Of the diagonal of a prior, added to it.
JITTER = 1e-9
# Pairs of numbers within the columns of a sparse coupling, as a share of those of its numbers with
# all rows, up to which loops over pairs are quicker than products.
_THIN = 0.3


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
            self._coupling = csc_array(vstack(blocks)) * scale
            if _is_thin(self._coupling):
                subtract_outer(*_columns(self._coupling), self._diagonal, matrix)
            else:
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
        if issparse(self._coupling) and _is_thin(self._coupling):
            coupled = np.empty(self._coupling.shape[1])
            quadratic_forms(*_columns(self._coupling), self.inverse, coupled)
        elif issparse(self._coupling):
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


def _columns(coupling: Any) -> tuple[Any, Any, Floats]:
    """Where the columns of a sparse matrix start, the rows of their numbers, and these."""
    return coupling.indptr, coupling.indices, coupling.data


def _is_thin(coupling: Any) -> bool:
    """Whether pairs of numbers within columns are few beside dense products of these."""
    counts = np.diff(coupling.indptr).astype(np.float64)
    return float(np.sum(counts**2)) < _THIN * coupling.nnz * coupling.shape[0]


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


def prior_factor(kernel: Kernel, nodes: Cells) -> Floats:
    """Cholesky factor of the prior at the nodes."""
    prior = nodes.prior(kernel, nodes.points, nodes.points)
    prior[np.diag_indices_from(prior)] *= 1 + JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise LinAlgError(f"the prior of {kernel!r} at its nodes is singular to rounding")
    return factor
