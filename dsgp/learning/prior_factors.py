"""Cholesky factors of the priors of terms at their nodes, a block for each curve of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, lapack

from dsgp.kernels import Kernel
from dsgp.terms import Cells, Floats

# Share of the diagonal of a prior that is added to it.
JITTER = 1e-9


class Scalar:
    """L of a prior that is a variance times the identity."""

    def __init__(self, std: float) -> None:
        self.std = std

    def times(self, values: Any) -> Any:
        """L times a vector or matrix."""
        return values * self.std

    transposed = times

    def solved(self, values: Floats, trans: int = 0) -> Floats:
        """L⁻¹ times a vector."""
        return values / self.std

    def whiten_lower(self, matrix: Floats, given: Floats, part: slice) -> None:
        """Set rows of the lower triangle of a matrix to Lᵀ times given ones."""
        np.multiply(given[part, : part.stop], self.std, out=matrix[part, : part.stop])

    def whiten_columns(self, matrix: Floats, part: slice) -> None:
        """Multiply columns of the lower triangle of a matrix by L."""
        matrix[part.start :, part] *= self.std


class Blocks:
    """L of curves that have nothing in common, one block each; of one curve a single block.

    Attributes
    ----------
    pieces : list of slice
        Nodes of each curve.
    blocks : list of ndarray of shape (n, n)
        L of each curve.
    """

    def __init__(self, kernel: Kernel, cells: Cells) -> None:
        self.pieces = [piece for piece, _ in cells.pieces]
        self.blocks = [prior_factor(kernel, own) for _, own in cells.pieces]

    def times(self, values: Any) -> Any:
        """L times a vector or matrix."""
        out = np.empty(values.shape)
        for piece, lower in zip(self.pieces, self.blocks, strict=True):
            out[piece] = lower @ values[piece]
        return out

    def transposed(self, values: Any) -> Any:
        """Lᵀ times values, which may be sparse."""
        if len(self.blocks) == 1:
            return self.blocks[0].T @ values
        parts = [
            lower.T @ values[piece] for piece, lower in zip(self.pieces, self.blocks, strict=True)
        ]
        return np.concatenate([p if isinstance(p, np.ndarray) else p.toarray() for p in parts])

    def solved(self, values: Floats, trans: int = 0) -> Floats:
        """L⁻¹, or L⁻ᵀ, times a vector."""
        out = np.empty(values.shape)
        for piece, lower in zip(self.pieces, self.blocks, strict=True):
            out[piece] = lapack.dtrtrs(lower, values[piece], lower=1, trans=trans)[0].ravel()
        return out

    def whiten_lower(self, matrix: Floats, given: Floats, part: slice) -> None:
        """Set rows of the lower triangle of a matrix to Lᵀ times given ones."""
        for piece, lower in zip(self.pieces, self.blocks, strict=True):
            rows = moved(piece, part)
            np.matmul(lower.T, given[rows, : rows.stop], out=matrix[rows, : rows.stop])

    def whiten_columns(self, matrix: Floats, part: slice) -> None:
        """Multiply columns of the lower triangle of a matrix by L."""
        for piece, lower in zip(self.pieces, self.blocks, strict=True):
            columns = moved(piece, part)
            matrix[columns.start :, columns] = matrix[columns.start :, columns] @ lower


def factor_of(kernel: Kernel, cells: Cells) -> Scalar | Blocks:
    """Factor of the prior of a term at its nodes."""
    return Scalar(kernel.std) if cells.is_diagonal else Blocks(kernel, cells)


def moved(piece: slice, part: slice) -> slice:
    """Place the nodes of a curve among those of all terms."""
    return slice(part.start + piece.start, part.start + piece.stop)


def prior_factor(kernel: Kernel, nodes: Cells) -> Floats:
    """Cholesky factor of the prior at the nodes."""
    prior = nodes.prior(kernel, nodes.points, nodes.points)
    prior[np.diag_indices_from(prior)] *= 1 + JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise LinAlgError(f"the prior of {kernel!r} at its nodes is singular to rounding")
    return factor
