"""Cholesky factors of matrices that are positive definite but for rounding."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from dsgp.terms import Floats

# Shares of the diagonal that are added, in turn, until a matrix is positive definite. They are of
# the size of the relative errors that sums over many rows have.
_SHARES = (0.0, 1e-14, 1e-12, 1e-10)


def cholesky_to_rounding(matrix: Floats) -> Floats:
    """Lower Cholesky factor, zeros above, of a matrix that is positive definite but for rounding.

    Where the factorisation fails, the diagonal grows by shares of the size of its rounding errors.
    Directions about which the matrix says little, with small entries on the diagonal, stay as they
    are beside large ones.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric; only the lower triangle is read. It is left as it is.

    Raises
    ------
    LinAlgError
        If it is further from positive definite than rounding explains, or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.additive.cholesky import cholesky_to_rounding
    >>> huge = 1e17 * np.ones((2, 2)) + np.eye(2)  # singular in float64
    >>> np.round(cholesky_to_rounding(huge) / 1e8, 2)
    array([[3.16, 0.  ],
           [3.16, 0.  ]])
    """
    if not len(matrix):  # LAPACK does not accept an empty matrix
        return matrix.copy()
    diagonal = np.diag(matrix)
    for share in _SHARES:
        tried = matrix
        if share:
            tried = matrix.copy()
            np.fill_diagonal(tried, diagonal * (1 + share))
        with suppress(LinAlgError):
            factor = cholesky(tried, lower=True, check_finite=False)
            if np.isfinite(factor[-1, -1]):
                return factor
    raise LinAlgError("a covariance matrix is not positive definite to rounding")
