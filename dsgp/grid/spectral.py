"""A preconditioner of complete fields with several separable kernels: one eigenbasis per axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.eigen import Eigenbasis
from dsgp.grid.points import amplitude
from dsgp.grid.products import kron_mvprod
from dsgp.terms import Floats


@dataclass(frozen=True, eq=False)
class SpectralInverse:
    r"""An approximation of the inverse of :math:`\sum_c K_c + \sigma^2 I` on a complete grid.

    The terms' covariances along an axis have nearly the same eigenvectors, as all are stationary:
    those of their mean, weighted by the terms' variances, are taken for all of them. In this basis
    the matrix is replaced by its diagonal. With a single term that is exact.

    Attributes
    ----------
    vectors : list of D ndarrays of shape (G_d, G_d)
    diagonal : ndarray of shape (G_1, …, G_D)
    noise : float
        σ², which is in the diagonal.
    flat : ndarray of int, shape (n,)
        Places on the flattened grid of the entries of the vectors it is applied to.
    """

    vectors: list[Floats]
    diagonal: Floats
    noise: float
    flat: NDArray[np.integer]

    @classmethod
    def of(cls, prior: SeparableSum, noise: float, flat: NDArray[np.integer]) -> SpectralInverse:
        """Decompose the axes; they must not be longer than ``LONG``."""
        weights = [amplitude(term) for term in prior.terms]
        vectors, spectra = [], []
        for d, points in enumerate(prior.points):
            matrices = [
                term[d].with_parameters(variance=1.0).covariance(points) for term in prior.terms
            ]
            mean = sum(w * matrix for w, matrix in zip(weights, matrices, strict=True))
            basis = Eigenbasis.of(mean).vectors
            vectors.append(basis)
            spectra.append([np.einsum("ij,ij->j", basis, matrix @ basis) for matrix in matrices])
        diagonal = np.full(prior.shape, float(noise))
        for c, weight in enumerate(weights):
            diagonal += weight * reduce(np.multiply.outer, [of_axis[c] for of_axis in spectra])
        return cls(vectors, diagonal, float(noise), flat)

    def apply(self, vector: Floats) -> Floats:
        """Return the approximate inverse times a vector (n,)."""
        grid = np.empty(self.diagonal.size)
        grid[self.flat] = vector
        turned = kron_mvprod([q.T for q in self.vectors], grid.reshape(self.diagonal.shape))
        turned /= self.diagonal
        return np.asarray(kron_mvprod(self.vectors, turned).reshape(-1)[self.flat])

    def variance(self) -> Floats:
        """Posterior variance on the grid, were the basis the right one; exact with one term."""
        left = (1.0 - self.noise / self.diagonal) * self.noise
        return np.asarray(kron_mvprod([q**2 for q in self.vectors], left))


def has_spectrum(shape: Sequence[int], noise: Floats) -> bool:
    """Whether all cells are observed, with one noise variance, and no axis is too long."""
    complete = len(noise) == np.prod(shape, dtype=np.int64)
    return bool(complete and max(shape) <= LONG and noise.min() == noise.max())
