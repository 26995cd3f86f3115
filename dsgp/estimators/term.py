"""One fitted term of an additive model: everything needed to predict with it, in user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dsgp.axis import Axis, Floats, KernelSum, VarianceFunction
from dsgp.kernels import Matern


@dataclass(frozen=True)
class Term:
    """A fitted function of one column.

    Its variance is that of the factorised posterior: the other terms count as known. Weighted sums
    are numpy's own, which do not depend on the number of cores as those of BLAS do.

    Attributes
    ----------
    name : str
        The column.
    kernel : kernel
    axis : Axis
        Distinct values of the column in the training rows.
    dual : ndarray of shape (n_points,)
        K⁻¹ f: the posterior mean anywhere is k(x, points) @ dual.
    weight : ndarray of shape (n_points,)
        Precision of the rows at each point.
    centre : float
        Weighted mean of the function over the training rows.
    explained_variance : float
        Weighted variance of the function over the training rows.
    effective_dof : float
        tr(V W), V its posterior covariance: how many free parameters the term amounts to.
    """

    name: str
    kernel: Matern
    axis: Axis
    dual: Floats
    weight: Floats
    centre: float
    explained_variance: float
    effective_dof: float

    @cached_property
    def mean(self) -> KernelSum:
        """The posterior mean as a function of the input, not centred."""
        return self.axis.kernel_sum(self.kernel, self.dual)

    @cached_property
    def variance(self) -> VarianceFunction:
        """The posterior variance as a function of the input, not centred."""
        return self.axis.variance_function(self.kernel, self.weight)

    @cached_property
    def _with_centre(self) -> tuple[KernelSum, float]:
        """Covariance of the function with its own weighted mean, and that mean's variance."""
        share = self.weight / self.weight.sum()
        covariance, dual = self.axis.solver(self.kernel, self.weight).solve(share)
        return self.axis.kernel_sum(self.kernel, dual), float(np.sum(share * covariance))

    def centred_variance(self, inputs: Floats) -> Floats:
        """Variance of f(x) minus the weighted mean of f over the training rows."""
        covariance, variance_of_centre = self._with_centre
        return np.maximum(self.variance(inputs) - 2 * covariance(inputs) + variance_of_centre, 0.0)
