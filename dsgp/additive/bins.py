"""What bins cost: the error of a fit whose rows stand at the means of their bins.

A bin's rows tell of the mean of f over the bin, which is f at their mean input plus ½ f″ times
their variance. That bias is estimated from the posterior mean and taken off the targets (deferred
correction), which leaves an error of the fourth order in the bins' widths. What the slopes within
bins add to the scatter of the rows stays: it counts as noise of the rows, though not of new ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dsgp.additive.equations import Equations
from dsgp.additive.system import AdditiveSystem
from dsgp.axis import Axis, Floats
from dsgp.kernels import Matern

# Of a uniform density: its fourth central moment over its squared variance.
_FOURTH_MOMENT = 9 / 5


@dataclass(frozen=True)
class BinError:
    """How the sum of all terms differs from what the bins see of it, in the solver's units.

    Attributes
    ----------
    bias : ndarray of shape (Σ n_bins,)
        Mean of f_d over a bin minus f_d at the mean input of the bin: ½ f″ times the variance of
        the inputs there, from the posterior mean; 0 where the kernel is too rough for it.
    rest : float
        Root mean square over the rows of what that leaves out: the next even derivative, and for
        rough kernels the prior variance within a bin.
    extra_noise : float
        What the slopes within bins add to the variance of the residuals.
    """

    bias: Floats
    rest: float
    extra_noise: float

    @classmethod
    def of(cls, system: AdditiveSystem, dual: Floats, spreads: list[Floats]) -> BinError:
        """Estimate from the posterior mean."""
        bias = np.zeros(system.layout.size)
        rest = noise = 0.0
        for axis, kernel, part, weight, spread, shift in zip(
            system.layout.axes,
            system.kernels,
            system.layout.parts(dual),
            system.layout.parts(system.weight),
            spreads,
            system.layout.parts(bias),
            strict=True,
        ):
            share = weight / weight.sum()
            slope, bent, fourth = _slopes(axis, kernel, part)
            noise += float(np.sum(share * slope**2 * spread))
            if kernel.order < 3:
                left = left_open(kernel, np.sqrt(12 * spread))
                noise += float(np.sum(share * left)) if kernel.order == 1 else 0.0
            else:
                shift[:] = 0.5 * bent * spread
                left = (_FOURTH_MOMENT / 24 * fourth * spread**2) ** 2
            rest += float(np.sum(share * left))
        return cls(bias, math.sqrt(rest), noise)

    def size(self, system: AdditiveSystem) -> float:
        """Root mean square over the rows of the bias, the terms as if independent."""
        parts = zip(system.layout.parts(self.bias), system.layout.parts(system.weight), strict=True)
        return math.sqrt(sum(float(np.average(b**2, weights=w)) for b, w in parts))

    def corrected(self, equations: Equations) -> Equations:
        """Take the bias off the targets: what is left to fit are functions at the bins' means."""
        return replace(
            equations,
            information=equations.information - equations.multiply(self.bias),
            quadratic=equations.squares(self.bias),
            total_information=equations.total_information
            - float(np.sum(equations.weight * self.bias)),
        )


def _slopes(axis: Axis, kernel: Matern, dual: Floats) -> tuple[Floats, Floats, Floats]:
    """First, second and fourth derivative of the mean at the points."""
    mean = axis.kernel_sum(kernel, dual)
    if len(axis) < 3:
        return np.zeros(len(axis)), np.zeros(len(axis)), np.zeros(len(axis))
    if kernel.order == 1:
        slope = np.gradient(mean(axis.points), axis.points)
    else:
        slope = mean.slope(axis.points)
    bent = np.gradient(slope, axis.points)
    return slope, bent, np.gradient(np.gradient(bent, axis.points), axis.points)


def left_open(kernel: Matern, width: Floats) -> Floats:
    """Prior variance midway between two known points a bin's width apart."""
    variance = kernel.std**2
    half, whole = (
        kernel.covariance(np.zeros(1), width * factor)[0] / variance for factor in (0.5, 1.0)
    )
    return np.maximum(variance * (1 - 2 * half**2 / (1 + whole)), 0.0)
