"""Gaussian processes on complete grids by Kronecker products (section ``sec:kron``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsgp.kernels.base import Stationary
from dsgp.terms import LOG_2PI, Floats


def kron_mvprod(matrices: Sequence[Floats], b: Floats) -> Floats:
    """Return (A_1 ⊗ … ⊗ A_D) b by Algorithm ``alg:kron-mvprod``, with its rotations.

    The paper's ``reshape`` and ``vec`` are MATLAB's, in which the first index runs fastest.

    Parameters
    ----------
    matrices : sequence of D arrays of shape (G_d, G_d)
    b : ndarray of shape (N,), N = Π G_d
        The last axis of the grid runs fastest, as in a Kronecker product and in C order.
    """
    x = b
    for A in reversed(matrices):
        G = len(A)
        X = x.reshape(G, -1, order="F")
        Z = A @ X  # matrix-tensor product
        Z = Z.T  # tensor rotation
        x = Z.reshape(-1, order="F")
    return x


@dataclass(frozen=True)
class GridLikelihood:
    """Log marginal likelihood of a field on a grid, and its gradient.

    Attributes
    ----------
    value : float
    weights : ndarray of shape (N,)
        α = (K + σ² I)⁻¹ y, so that K α is the posterior mean.
    by_log : list of dict of str to float
        By the log of each parameter of each axis' kernel.
    by_log_noise : float
    """

    value: float
    weights: Floats
    by_log: list[dict[str, float]]
    by_log_noise: float


def grid_log_likelihood(
    kernels: Sequence[Stationary],
    axes: Sequence[Floats],
    y: Floats,
    noise_variance: float,
) -> GridLikelihood:
    """Compute log Z of a field with covariance K_1 ⊗ … ⊗ K_D and noise, and its gradient.

    ``eq:kroneig``: with K_d = Q_d Λ_d Q_dᵀ, (K + σ² I)⁻¹ y = Q (Λ + σ² I)⁻¹ Qᵀ y, where both
    products are by ``kron_mvprod``. The derivative of log Z by a parameter of axis d,

        ½ αᵀ K' α − ½ tr((K + σ² I)⁻¹ K'),   K' = K_1 ⊗ … ⊗ K_d' ⊗ … ⊗ K_D,

    needs one more such product for its first part. The second part needs only the diagonal of Qᵀ K'
    Q, which is the Kronecker product of the diagonals of the axes.

    Parameters
    ----------
    kernels : sequence of D kernels, one per axis
        Their variances are multiplied.
    axes : sequence of D arrays of shape (G_d,)
    y : ndarray of shape (N,)
        Values of mean 0, the last axis fastest.
    noise_variance : float
    """
    covariances = [kernel.covariance(axis) for kernel, axis in zip(kernels, axes, strict=True)]
    values, vectors = zip(*map(np.linalg.eigh, covariances), strict=True)
    spectrum = kron_diagonal(values) + noise_variance  # Λ + σ² I

    alpha = kron_mvprod([Q.T for Q in vectors], y)
    alpha = alpha / spectrum
    alpha = kron_mvprod(vectors, alpha)

    value = -0.5 * (y @ alpha + np.sum(np.log(spectrum)) + len(y) * LOG_2PI)
    by_log: list[dict[str, float]] = []
    for d, (kernel, axis) in enumerate(zip(kernels, axes, strict=True)):
        gradient = {}
        for name in kernel.parameters:
            slope = kernel.by_log(name, axis)
            changed = [slope if e == d else K for e, K in enumerate(covariances)]
            diagonal = kron_diagonal(
                [np.diag(Q.T @ K @ Q) for Q, K in zip(vectors, changed, strict=True)]
            )
            quadratic = alpha @ kron_mvprod(changed, alpha)
            gradient[name] = float(0.5 * (quadratic - np.sum(diagonal / spectrum)))
        by_log.append(gradient)
    by_log_noise = 0.5 * noise_variance * (alpha @ alpha - np.sum(1.0 / spectrum))
    return GridLikelihood(float(value), alpha, by_log, float(by_log_noise))


def kron_diagonal(diagonals: Sequence[Floats]) -> Floats:
    """Return the diagonal of a Kronecker product of diagonal matrices, of shape (N,)."""
    product: Floats = np.ones(1)
    for diagonal in diagonals:
        product = np.outer(product, diagonal).ravel()
    return product
