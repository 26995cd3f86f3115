"""The constant beside the terms, which is unknown: what that adds to standard deviations and draws.

With a flat prior of the constant μ (or one of precision τ), V the covariance of the targets given μ
and u_d the functions that a target of ones would give, the posterior is

    μ ~ N(μ̂, 1/s),  s = 1ᵀ V⁻¹ 1 + τ,    f(x) = f̂(x) + deviation given μ + (μ − μ̂) h(x),
    h(x) = 1 − Σ_d u_d(x_d):

far from the rows all of the constant's uncertainty is seen, among them what the terms cannot make
up for. The estimate μ̂ itself comes from ``AdditiveSystem``, which integrates the constant out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsgp.additive.multigrid import CoarseSpace, multigrid
from dsgp.additive.system import AdditiveSystem
from dsgp.additive.variance import Covariance, DenseCovariance
from dsgp.errors import ConvergenceWarning
from dsgp.terms import Cells, Floats, Function

# Relative to prior standard deviations of the widest term: the tolerance of the solve for u_d, and
# the largest error that is still accepted.
_TOLERANCE, _ACCEPTED = 1e-7, 1e-4
_MAX_ITER = 500
_SMALLEST = np.finfo(float).tiny


@dataclass(frozen=True)
class UnknownConstant:
    """Posterior of the constant, and how the terms change with it.

    Attributes
    ----------
    precision : float
        s, of the constant with all terms unknown.
    cells : tuple of Cells
    functions : list of callables
        u_d.
    centres : list of float
        Weighted means of u_d over the training rows.
    """

    precision: float
    cells: tuple[Cells, ...]
    functions: list[Function]
    centres: list[float]

    @property
    def std(self) -> float:
        """Standard deviation of the constant."""
        return 1 / math.sqrt(self.precision)

    def deviation(self, columns: list[Floats], n_rows: int) -> Floats:
        """Return the change of f if the constant changes by one standard deviation, (n,).

        Parameters
        ----------
        columns : list of ndarray of shape (n,)
            Inputs of every term; where one is missing (NaN) its term gives nothing.
        n_rows : int
            n, which no column determines if there is no term.
        """
        left = np.ones(n_rows)
        for cells, function, inputs in zip(self.cells, self.functions, columns, strict=True):
            seen = ~cells.is_missing(inputs)
            if seen.all():
                left -= function(inputs)
            else:
                left[seen] -= function(inputs[seen])
        return left * self.std

    def centred_deviation(self, term: int, inputs: Floats) -> Floats:
        """The same of one term minus its weighted mean over the training rows, (n,)."""
        return (self.functions[term](inputs) - self.centres[term]) * self.std


def unknown_constant(
    system: AdditiveSystem,
    covariance: Covariance | None,
    prior_precision: float = 0.0,
    coarse: Callable[[], CoarseSpace] | None = None,
) -> UnknownConstant:
    """Solve for the posterior of the constant.

    Parameters
    ----------
    system : AdditiveSystem
        Of the terms, given the constant.
    covariance : Covariance or None
        That of the same system; its factor is used where it is dense. None if there is no term.
    prior_precision : float
        τ; 0 for a flat prior.
    coarse : callable, optional
        Returns the coarse space of the system, where the caller uses it for other purposes too.
    """
    layout = system.layout
    total = system.total_weight
    if isinstance(covariance, DenseCovariance):
        dual, information = covariance.ones()
    elif covariance is None:
        dual, information = np.zeros(0), total
    else:
        mean, dual = _functions_of_ones(system, coarse)
        # This is correct to second order in the remaining residual.
        residual = system.ones - system.multiply(mean[None])[0] - dual
        information = total - float(np.sum(mean * (system.ones + residual)))
    # The precision is at least that of the plain average of the rows.
    variance = sum(kernel.std**2 for kernel in system.kernels)
    least = 1 / (1 / total + variance) if total > 0 else 0.0
    precision = max(information, least) + prior_precision
    functions, centres = [], []
    for term, (cells, kernel, part) in enumerate(
        zip(layout.cells, system.kernels, layout.parts(dual), strict=True)
    ):
        functions.append(cells.kernel_sum(kernel, part))
        share = system.equations.share(term)
        centres.append(float(np.sum(share * cells.multiply(kernel, part))))
    return UnknownConstant(max(precision, _SMALLEST), layout.cells, functions, centres)


def _functions_of_ones(
    system: AdditiveSystem, coarse: Callable[[], CoarseSpace] | None
) -> tuple[Floats, Floats]:
    """Posterior mean, and its dual, of a target of ones in all rows."""
    # Error bounds are in prior standard deviations of the widest term.
    unit = max(kernel.std for kernel in system.kernels)
    solution = multigrid(
        system, unit * system.ones, tol=_TOLERANCE, max_iter=_MAX_ITER, coarse=coarse
    )
    if solution.error_bound > _ACCEPTED:
        warnings.warn(
            "the solve for the uncertainty of the constant stopped above its tolerance (its "
            f"error bound is {solution.error_bound:.2g}), because float64 has too little "
            "precision for so little noise: standard deviations far from the rows are approximate",
            ConvergenceWarning,
            stacklevel=2,
        )
    return solution.mean / unit, solution.dual / unit
