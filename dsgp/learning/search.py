"""Initial values and bounds of the search for hyperparameters.

Lengthscales are in the units of the data; the target has variance 1 and the weights mean 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dsgp.kernels import Kernel
from dsgp.terms import Cells, Floats, Scale

# Bounds of variances, relative to that of the target. At its lower bound a term is as good as
# absent.
VARIANCE = (1e-8, 1e4)
# With less noise than the lower bound, a target without any noise gives a system that float64
# cannot solve to the tolerance.
NOISE = (1e-6, 1e2)
NOISE_START = 0.1
# In extents of the column. A function of this lengthscale is a polynomial of low degree, and longer
# ones only cost digits.
LONGEST = 10.0
# In widths of the bulk of the rows.
SHORTEST = 1e-2
LENGTHSCALE_START = 8.0
MIDDLE_LENGTHSCALE = 1.0
# For a kernel with several lengthscales: each one's initial value, relative to the one before.
NEXT_LENGTHSCALE = 0.125
OTHER_LENGTHSCALES = (0.5,)


@dataclass(frozen=True)
class Search:
    """Initial values and bounds of the free parameters of one kernel, as logs.

    Attributes
    ----------
    start : kernel with all its parameters
    middle : kernel with all its parameters
        The initial value for a learner that changes all terms at once.
    others : tuple of kernels
        Further initial values, tried when the learner begins and again before it ends: the
        likelihood of one term often has one optimum at a long and one at a short lengthscale.
    width : float
        Width of the bulk of the rows; see ``Cells.scale``.
    widths : dict of str to float
        For each lengthscale, the width over which its function varies.
    names : tuple of str
        The free parameters.
    lower, upper : ndarray of shape (len(names),)
    """

    start: Kernel
    middle: Kernel
    others: tuple[Kernel, ...]
    width: float
    names: tuple[str, ...]
    lower: Floats
    upper: Floats
    widths: dict[str, float] = field(default_factory=dict)

    def allows(self, name: str, value: float) -> bool:
        """Whether a value of a free parameter is within the bounds."""
        position = self.names.index(name)
        return bool(self.lower[position] <= np.log(value) <= self.upper[position])

    def held(self, kernel: Kernel) -> Search:
        """Return a search without free parameters, which ends where it starts."""
        nothing = np.empty(0)
        return replace(
            self, start=kernel, middle=kernel, others=(), names=(), lower=nothing, upper=nothing
        )

    def kernel(self, log_values: Floats) -> Kernel:
        """Return the kernel with other values of its free parameters."""
        values = np.exp(np.clip(log_values, self.lower, self.upper))
        return self.start.with_parameters(
            **{name: float(value) for name, value in zip(self.names, values, strict=True)}
        )


def search_for(
    kernel: Kernel,
    cells: Cells,
    counts: Floats,
    n_terms: int,
    unit: float = 1.0,
    largest: float = VARIANCE[1],
    shortest: float | None = None,
) -> Search:
    """Make the search for one term, from its cells and the rows (weights) there.

    ``unit`` is the variance that all terms together are to explain, and ``largest`` the largest
    multiple of it that the variance of one term may be. Lengthscales are no shorter than
    ``shortest``, by default a share of the width, nor than a typical bin of an interaction: bins
    are not informative about a shorter one at a new row.

    Given parameters are initial values, and do not change where the kernel says ``fixed``. By
    default the initial lengthscale is far beyond the width of the bulk of the rows, so that a term
    becomes rougher only as the data require, and the initial variance is an equal share of the
    target's. With several lengthscales of one input, each initial value is a fraction of the one
    before; those of several inputs are the widths.
    """
    whole, _ = _width_and_longest(kernel, cells.scale(counts), kernel.natural_width())
    widths: dict[str, float] = {}
    lengthscales = [name for name in kernel.parameters if name.startswith("lengthscale")]
    variances = [name for name in kernel.parameters if name.startswith("variance")]
    values, middles, names, lower, upper = {}, {}, [], [], []
    for name in kernel.parameters:
        given = kernel.value(name)
        if name in lengthscales:
            scale = cells.scale_of(name, counts)
            width, high = _width_and_longest(kernel, scale, kernel.natural_width_of(name))
            low = SHORTEST * width if shortest is None else shortest
            low = max(low, 0.0 if scale is None else min(scale.bin_width, width))
            start, middle = LENGTHSCALE_START * width, MIDDLE_LENGTHSCALE * width
            if kernel.is_layered:
                fraction = NEXT_LENGTHSCALE ** lengthscales.index(name)
                start, middle = fraction * start, fraction * middle
                widths[name] = fraction * width
            else:
                start, widths[name] = middle, width
        elif name in variances:
            low, high = VARIANCE[0] * unit, largest * unit
            start = middle = unit / n_terms / len(variances)
        else:
            low, start, high = kernel.limits(name)
            middle = start
        values[name] = start if given is None else given
        middles[name] = middle if given is None else given
        if name not in kernel.fixed:
            names.append(name)
            # An initial value outside the usual range widens it.
            lower.append(min(low, values[name]))
            upper.append(max(high, values[name]))
    start_kernel = kernel.with_parameters(**values)
    others = [
        start_kernel.with_parameters(lengthscale=factor * whole)
        for factor in OTHER_LENGTHSCALES
        if "lengthscale" in names
    ]
    return Search(
        start=start_kernel,
        middle=kernel.with_parameters(**middles),
        width=whole,
        others=tuple(others),
        names=tuple(names),
        lower=np.log(lower),
        upper=np.log(upper),
        widths=widths,
    )


def _width_and_longest(
    kernel: Kernel, scale: Scale | None, natural: float | None
) -> tuple[float, float]:
    """Return the width over which a lengthscale's function varies, and the longest lengthscale."""
    width, extent = (1.0, 1.0) if scale is None else (scale.width, scale.extent)
    longest = LONGEST * extent
    if natural is not None:
        shaped = LENGTHSCALE_START * natural
        width, longest = natural, max(shaped, longest) if kernel.is_damped else shaped
    return width, longest


def without_starts(kernel: Kernel) -> Kernel:
    """Return the kernel without values of its free parameters, for a search from the beginning."""
    unknown: Any = dict.fromkeys(kernel.free)
    return kernel.with_parameters(**unknown)
