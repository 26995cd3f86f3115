"""The constant of a field is one of the unknowns: generalised least squares beside any system.

Its prior is flat, and its posterior uncertainty adds to every variance and draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsgp.terms import Floats


@dataclass(frozen=True, eq=False)
class UnknownConstant:
    r"""The constant β of y = β + f + ε, given kernels and noise.

    With A = K + R on the observed cells and 1 a vector of ones there,

    .. math:: \hat\beta = \frac{1^\top A^{-1} y}{1^\top A^{-1} 1}, \qquad
              u = 1 - K_* A^{-1} 1, \qquad
              \text{Var} = \text{Var}(f | \beta) + \frac{u^2}{1^\top A^{-1} 1}

    One solve beyond those of a known constant, whatever the field.

    Attributes
    ----------
    dual : ndarray of shape (G_1, …, G_D)
        A⁻¹ 1, 0 where nothing is observed.
    precision : float
        1ᵀ A⁻¹ 1, the reciprocal of the variance of β.
    """

    dual: Floats
    precision: float

    @classmethod
    def of(cls, dual: Floats) -> UnknownConstant:
        """Compute it from A⁻¹ 1."""
        return cls(dual, float(np.sum(dual)))

    def estimate(self, y: Floats) -> float:
        """Return β̂ of a field (G_1, …, G_D) whose missing cells hold any finite number."""
        return float(np.vdot(self.dual, y)) / self.precision

    def share(self, mean: Callable[[Floats], Floats]) -> Floats:
        """Return u, the share of the constant's error in each cell.

        Parameters
        ----------
        mean : callable
            The posterior mean K_* α of a field whose dual α is passed, on the wanted grid.
        """
        return 1.0 - mean(self.dual)

    def add_variance(self, variance: Floats, share: Floats) -> Floats:
        """Add u² / 1ᵀ A⁻¹ 1 to posterior variances, in place."""
        variance += share**2 / self.precision
        return variance

    def deviations(self, n: int, random: np.random.Generator, share: Floats) -> Floats:
        """Draw what the constant's error adds to n draws of the field, (n, …)."""
        errors = random.standard_normal(n) / np.sqrt(self.precision)
        return np.asarray(np.multiply.outer(errors, share))
