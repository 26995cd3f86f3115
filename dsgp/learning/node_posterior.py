"""The posterior of additive models at their nodes: one Cholesky factor of size Σ M_d."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag, lapack
from scipy.sparse import csc_array, issparse, vstack

from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.jit.sparse import quadratic_forms, subtract_outer
from dsgp.kernels import Kernel
from dsgp.learning import leading_blocks
from dsgp.learning.basis import Nodes
from dsgp.learning.prior_factors import Blocks, Scalar, factor_of, moved
from dsgp.terms import Floats

# Loops over pairs of entries within the columns of a sparse coupling are faster than matrix
# products up to this number of pairs, as a share of the products' multiplications.
_THIN = 0.3


class NodePosterior:
    """Posterior of the values at the nodes, in coordinates α = L⁻¹ F in which the prior is white.

    An eliminated term ℓ, with K_ℓ = v I and weights w_ℓ, has the diagonal D = 1 + v w_ℓ / σ² in
    these coordinates, so that with B the coupling the others' matrix is S = A − B D⁻¹ Bᵀ:
    log determinants add up, and nothing of the size of U² is ever made.

    Attributes
    ----------
    lowers : dict of int to Blocks or Scalar
        L of each term that is not eliminated, K_d = L Lᵀ.
    whitened : ndarray of shape (Σ M_d,)
        Lᵀ times the information.
    weights : ndarray of shape (Σ M_d,)
        α, the posterior mean in these coordinates.
    log_det : float
        log det(I + K̃ G / σ²).
    """

    def __init__(self, nodes: Nodes, kernels: list[Kernel], noise_variance: float) -> None:
        self.nodes, self.kernels, self.noise_variance = nodes, kernels, noise_variance
        self._derivatives: dict[tuple[int, str], list[Floats]] = {}
        self.basis = nodes.basis
        kept, cells = [(d, self.basis.parts[d]) for d in self.basis.kept], self.basis.cells
        self.lowers = {d: factor_of(kernels[d], cells[d]) for d, _ in kept}
        # Only its lower triangle is used: the part above stays 0.
        matrix = np.zeros(nodes.matrix.shape)
        for d, part in kept:
            self.lowers[d].whiten_lower(matrix, nodes.matrix, part)
        for d, part in kept:
            self.lowers[d].whiten_columns(matrix, part)
        matrix /= noise_variance
        self._blocks = {d: matrix[part, part].copy() for d, part in kept}
        matrix[np.diag_indices_from(matrix)] += 1.0
        self._size = len(matrix)
        log_det = 0.0
        if self.basis.eliminated is not None:
            self._eliminate(matrix)
            log_det = float(np.sum(np.log(self._diagonal)))
        self._factor = leading_blocks.cholesky(matrix, self._pieces)
        self.whitened = self.whiten(nodes.information) / noise_variance
        self.weights = self.solve(self.whitened)
        self.log_det = log_det + 2 * float(np.sum(np.log(np.diag(self._factor))))

    @property
    def _pieces(self) -> list[slice]:
        """Nodes of the curves of the term that comes first, if nothing couples them."""
        if self.basis.eliminated is not None or not self.basis.kept:
            return []
        first = next(d for d in self.basis.kept if self.basis.parts[d].start == 0)
        return [piece for piece, _ in self.basis.cells[first].pieces]

    def _eliminate(self, matrix: Floats) -> None:
        """Subtract B D⁻¹ Bᵀ, in place."""
        assert self.basis.eliminated is not None
        assert self.nodes.coupling is not None
        assert self.nodes.weights is not None
        self._std = self.kernels[self.basis.eliminated].std
        self._diagonal = 1.0 + self.nodes.weights * (self._std**2 / self.noise_variance)
        coupling, scale = self.nodes.coupling, self._std / self.noise_variance
        blocks = [
            lower.transposed(coupling[self.basis.parts[d]]) for d, lower in self.lowers.items()
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
            out[part] = lower.transposed(information[part])
        if self.basis.eliminated is not None:
            out[self._size :] = self._std * information[self._size :]
        return out

    def values(self, weights: Floats) -> Floats:
        """L times a vector: from white coordinates to values at the nodes."""
        out = np.empty(self.basis.size)
        for d, lower in self.lowers.items():
            part = self.basis.parts[d]
            out[part] = lower.times(weights[part])
        if self.basis.eliminated is not None:
            out[self._size :] = self._std * weights[self._size :]
        return out

    def whites(self, values: Floats) -> Floats:
        """L⁻¹ times values at the nodes."""
        out = np.empty(self.basis.size)
        for d, lower in self.lowers.items():
            part = self.basis.parts[d]
            out[part] = lower.solved(values[part])
        if self.basis.eliminated is not None:
            out[self._size :] = values[self._size :] / self._std
        return out

    def solve(self, whitened: Floats) -> Floats:
        """(I + Lᵀ G L / σ²)⁻¹ times a vector or matrix."""
        if self.basis.eliminated is None:
            return self._solve_kept(whitened)
        kept, others = whitened[: self._size], whitened[self._size :]
        diagonal = self._diagonal if whitened.ndim == 1 else self._diagonal[:, None]
        first = self._solve_kept(kept - self._coupling @ (others / diagonal))
        second = (others - self._coupling.T @ first) / diagonal
        return np.concatenate([first, second])

    def _solve_kept(self, whitened: Floats) -> Floats:
        if not len(whitened):  # LAPACK does not accept an empty matrix
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
    def _inverse_factor(self) -> Floats:
        """R, with the inverse RᵀR: blocks of it cost less than all of it does."""
        return leading_blocks.inverse(self._factor, self._pieces)

    def _inverse_block(self, rows: slice) -> Floats:
        """Block of ``inverse`` on the diagonal."""
        if self.basis.eliminated is not None or "inverse" in self.__dict__:
            return self.inverse[rows, rows]
        columns = self._inverse_factor[rows.start :, rows]
        return columns.T @ columns

    @cached_property
    def _trace(self) -> float:
        """Trace of ``inverse``."""
        if self.basis.eliminated is not None or "inverse" in self.__dict__:
            return float(np.trace(self.inverse))
        factor = self._inverse_factor
        return float(np.einsum("ij,ij->", factor, factor))

    @cached_property
    def _variances(self) -> Floats:
        """Posterior variances of the eliminated term in white coordinates, (U,)."""
        if issparse(self._coupling) and _is_thin(self._coupling):
            coupled = np.empty(self._coupling.shape[1])
            quadratic_forms(*_columns(self._coupling), self.inverse, coupled)
        elif issparse(self._coupling):
            # U vectors of M numbers, of which only those at nonzero entries are used.
            coupled = self._coupling.multiply(self.inverse @ self._coupling).sum(axis=0)
        else:
            coupled = np.einsum("ku,ku->u", self._coupling, self.inverse @ self._coupling)
        return 1.0 / self._diagonal + coupled / self._diagonal**2

    @property
    def dof(self) -> float:
        """Degrees of freedom of all terms."""
        dof = self._size - self._trace
        if self.basis.eliminated is not None:
            dof += float(np.sum(1.0 - self._variances))
        return dof

    @cached_property
    def _factors_alone(self) -> dict[int, Floats]:
        """Cholesky factors of every such term by itself."""
        return {
            d: cholesky_to_rounding(block + np.eye(len(block))) for d, block in self._blocks.items()
        }

    @cached_property
    def inverses_alone(self) -> dict[int, Floats]:
        """The posterior covariance of every such term by itself, the others known."""
        found = {}
        for d, factor in self._factors_alone.items():
            inverse, _ = lapack.dpotri(factor, lower=1)
            found[d] = np.tril(inverse) + np.tril(inverse, -1).T
        return found

    @cached_property
    def log_det_alone(self) -> float:
        """Σ_d log det(I + K_d G_d / σ²): the determinant of terms as if independent."""
        total = sum(
            2 * float(np.sum(np.log(np.diag(factor)))) for factor in self._factors_alone.values()
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
            crossed = self._std * self.lowers[other].times(crossed)
            return crossed.T if d == last else crossed
        if alone:
            inverse = self.inverses_alone[d]
        else:
            inverse = self.inverse[self.basis.parts[d], self.basis.parts[e]]
        return self.lowers[e].times(self.lowers[d].times(inverse).T).T

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
        return block_diag(*self._derivative_of(d, name))

    def duals(self, weights: Floats) -> list[Floats]:
        """L⁻ᵀ times a vector, term by term: K_d⁻¹ of the values."""
        found = []
        for d, part in enumerate(self.basis.parts):
            if d == self.basis.eliminated:
                found.append(weights[part] / self._std)
            else:
                found.append(self.lowers[d].solved(weights[part], trans=1))
        return found

    def gradients(self, *, alone: bool = False) -> list[dict[str, float]]:
        """Derivatives by the logs of parameters of −½ (log determinant + αᵀα) where F stays.

        That of the log marginal likelihood, as the fit is stationary in F; ``alone`` with the
        determinant of terms as if independent.
        """
        found: list[dict[str, float]] = []
        for d, part in enumerate(self.basis.parts):
            if d == self.basis.eliminated:
                own = 1.0 / self._diagonal if alone else self._variances
                weights = self.weights[part]
                found.append({"variance": 0.5 * float(weights @ weights - np.sum(1.0 - own))})
                continue
            found.append(self._gradient(d, alone))
        return found

    def _gradient(self, d: int, alone: bool) -> dict[str, float]:
        """Derivatives by the parameters of a term that is not eliminated, curve by curve."""
        kernel, part, lower = self.kernels[d], self.basis.parts[d], self.lowers[d]
        weights = self.weights[part]
        by_log = dict.fromkeys(kernel.parameters, 0.0)
        others = [name for name in kernel.parameters if name != "variance"]
        pieces = lower.pieces if isinstance(lower, Blocks) else [slice(0, len(weights))]
        for position, piece in enumerate(pieces):
            if alone:
                block = self.inverses_alone[d][piece, piece]
            else:
                block = self._inverse_block(moved(piece, part))
            learned, own = np.eye(len(block)) - block, weights[piece]
            if "variance" in by_log:
                by_log["variance"] += 0.5 * float(own @ own - np.trace(learned))
            if not others:
                continue
            assert isinstance(lower, Blocks)
            factor = lower.blocks[position]
            # L⁻ᵀ (learned, weights): half of the score, and the dual of the mean.
            half, _ = lapack.dtrtrs(factor, np.column_stack([learned, own]), lower=1, trans=1)
            dual = half[:, -1]
            score, _ = lapack.dtrtrs(factor, half[:, :-1].T, lower=1, trans=1)
            for name in others:
                derivative = self._derivative_of(d, name)[position]
                by_log[name] += 0.5 * float(dual @ derivative @ dual - np.vdot(score, derivative))
        return by_log

    def _derivative_of(self, d: int, name: str) -> list[Floats]:
        """``derivative``, block by block of the curves."""
        key, kept = (d, name), self._derivatives
        if key not in kept:
            pieces = self.basis.cells[d].pieces
            kept[key] = [own.prior_by_log(self.kernels[d], name) for _, own in pieces]
        return kept[key]

    def directions(self, d: int) -> dict[str, Floats]:
        """L⁻¹ (∂K_d / ∂ log of a parameter) K_d⁻¹ F_d of each parameter, (M_d,).

        How the weights would move with a parameter, were the dual of the mean to stay.
        """
        weights = self.weights[self.basis.parts[d]]
        if d == self.basis.eliminated or isinstance(self.lowers[d], Scalar):
            return {"variance": weights}
        lower = self.lowers[d]
        dual = lower.solved(weights, trans=1)
        found = {}
        for name in self.kernels[d].parameters:
            if name == "variance":
                found[name] = weights
                continue
            blocks = self._derivative_of(d, name)
            pieces = [piece for piece, _ in self.basis.cells[d].pieces]
            products = [block @ dual[piece] for piece, block in zip(pieces, blocks, strict=True)]
            found[name] = lower.solved(np.concatenate(products))
        return found


def _columns(coupling: Any) -> tuple[Any, Any, Floats]:
    """Where the columns of a sparse matrix start, the rows of their numbers, and these."""
    return coupling.indptr, coupling.indices, coupling.data


def _is_thin(coupling: Any) -> bool:
    """Whether pairs of numbers within columns are few beside dense products of these."""
    counts = np.diff(coupling.indptr).astype(np.float64)
    return float(np.sum(counts**2)) < _THIN * coupling.nnz * coupling.shape[0]
