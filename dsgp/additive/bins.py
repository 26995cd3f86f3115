"""What bins cost: the error of a fit whose rows stand at the means of their bins.

A bin's rows are informative about the mean of f over the bin, which is f at their mean input plus ½
f″ times their variance. That bias is estimated from the posterior mean and subtracted from the
targets (deferred correction), which leaves an error of the fourth order in the bins' widths. What
the slopes within bins add to the scatter of the rows stays: it counts as noise of the rows, though
not of new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dsgp.additive.equations import Equations
from dsgp.additive.system import AdditiveSystem
from dsgp.terms import Cells, Floats


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
    def of(
        cls,
        system: AdditiveSystem,
        dual: Floats,
        spreads: list[Floats],
        of_term: Callable[[Cells], bool] = lambda cells: True,
    ) -> BinError:
        """Estimate from the posterior mean, of all terms or of some."""
        bias = np.zeros(system.layout.size)
        rest = noise = 0.0
        for cells, kernel, part, weight, spread, shift in zip(
            system.layout.cells,
            system.kernels,
            system.layout.parts(dual),
            system.layout.parts(system.weight),
            spreads,
            system.layout.parts(bias),
            strict=True,
        ):
            if not of_term(cells):
                continue
            bin_shift = cells.bin_shift(kernel, part, weight, spread)
            shift[:] = bin_shift.bias
            rest += bin_shift.rest
            noise += bin_shift.noise
        return cls(bias, math.sqrt(rest), noise)

    def size(self, system: AdditiveSystem) -> float:
        """Root mean square over the rows of the bias, the terms as if independent."""
        parts = zip(system.layout.parts(self.bias), system.layout.parts(system.weight), strict=True)
        return math.sqrt(sum(float(np.average(b**2, weights=w)) for b, w in parts))

    def corrected(self, equations: Equations) -> Equations:
        """Subtract the bias from the targets: functions at the bins' means are left to fit."""
        return replace(
            equations,
            information=equations.information - equations.multiply(self.bias),
            quadratic=equations.squares(self.bias),
            total_information=equations.total_information
            - float(np.sum(equations.ones * self.bias)),
        )
