"""Test whether a complete field has other scales than those of the kernel it was fitted with."""

from __future__ import annotations

import math

import numpy as np

from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.products import kron_mvprod
from dsgp.terms import Floats

# Lengthscales of a second kernel that are tried, relative to those of the first, and the score, in
# standard deviations, from which a search is worth its time.
_OTHERS, _SCORE = (0.2, 5.0), 3.0


def other_scales_show(system: KroneckerSystem, y: Floats) -> bool:
    r"""Test a kernel against the sum with a second one, of shorter or longer lengthscales.

    The derivative of the log likelihood by the variance of the second kernel :math:`K_2`, where
    that is 0, over its standard deviation (Rao's score test), with :math:`A = K + \sigma^2 I`:

    .. math:: \frac{\alpha^\top K_2 \alpha - \mathrm{tr}\, A^{-1} K_2}
                   {\sqrt{2\, \mathrm{tr}\, A^{-1} K_2 A^{-1} K_2}}, \qquad \alpha = A^{-1} y

    Six products with the axes' matrices, in the eigenbasis of K.

    Parameters
    ----------
    system : KroneckerSystem
    y : ndarray of shape (G_1, …, G_D)
        Residuals.
    """
    bases = system.bases
    vectors = [basis.vectors for basis in bases]
    precision = np.ones(())
    for basis in bases:
        precision = np.multiply.outer(precision, basis.values)
    precision = 1.0 / (system.noise_variance + system.variance * precision)
    dual = precision * kron_mvprod([q.T for q in vectors], np.asarray(y, dtype=float))
    for factor in _OTHERS:
        turned = []
        for axis_points, kernel, q in zip(system.points, system.kernels, vectors, strict=True):
            length = factor * float(kernel.lengthscale or 1.0)
            other = kernel.with_parameters(lengthscale=length, variance=1.0)
            turned.append(q.T @ other.covariance(axis_points) @ q)
        trace = precision
        for matrix in turned[::-1]:
            trace = trace @ np.diag(matrix)
        spread = float(np.vdot(precision, kron_mvprod([matrix**2 for matrix in turned], precision)))
        score = float(np.vdot(dual, kron_mvprod(turned, dual))) - float(trace)
        if score > _SCORE * math.sqrt(2.0 * max(spread, 0.0)):
            return True
    return False
