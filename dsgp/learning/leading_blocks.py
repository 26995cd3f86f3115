"""Cholesky factors of matrices whose leading part is block diagonal, and their inverses.

Curves of a group share no row, so that their nodes come first and each curve has a block of its
own: for n nodes in k curves, the cost of factor and inverse falls from n³ to n³/k².
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, blas, lapack

from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.terms import Floats


def cholesky(matrix: Floats, pieces: list[slice]) -> Floats:
    """Lower Cholesky factor, zeros above.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric; only the lower triangle is read. It is left as it is.
    pieces : list of slice
        Of the rows from the first on: between two of them the matrix is 0.
    """
    if len(pieces) < 2:
        return cholesky_to_rounding(matrix)
    end = pieces[-1].stop
    factor = np.zeros(matrix.shape, order="F")
    below = np.asfortranarray(matrix[end:, :end])
    for piece in pieces:
        own, failed = lapack.dpotrf(matrix[piece, piece], lower=1, clean=1)
        if failed:
            return cholesky_to_rounding(matrix)
        factor[piece, piece] = own
        below[:, piece] = blas.dtrsm(1.0, own, below[:, piece], side=1, lower=1, trans_a=1)
    factor[end:, :end] = below
    if end == len(matrix):
        return factor
    left = blas.dsyrk(-1.0, below, beta=1.0, c=np.asfortranarray(matrix[end:, end:]), lower=1)
    try:
        factor[end:, end:] = cholesky_to_rounding(left)
    except LinAlgError:
        return cholesky_to_rounding(matrix)
    return factor


def inverse(factor: Floats, pieces: list[slice]) -> Floats:
    """Inverse of such a factor, zeros above."""
    if not len(factor):  # LAPACK does not accept an empty matrix
        return factor
    if len(pieces) < 2:
        return lapack.dtrtri(factor, lower=1)[0]
    end = pieces[-1].stop
    out = np.zeros(factor.shape, order="F")
    products = np.empty((len(factor) - end, end), order="F")
    for piece in pieces:
        own = lapack.dtrtri(factor[piece, piece], lower=1)[0]
        out[piece, piece] = own
        products[:, piece] = factor[end:, piece] @ own
    if end < len(factor):
        rest = lapack.dtrtri(factor[end:, end:], lower=1)[0]
        out[end:, end:] = rest
        out[end:, :end] = blas.dtrmm(-1.0, rest, products, lower=1, overwrite_b=1)
    return out
