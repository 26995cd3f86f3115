"""Climatologies and averages over a dim as unknowns: terms of the covariance beside the field's.

A mean of each cell is a field that does not vary along the dim; a climatology is one that repeats.
Their variances and lengthscales are learned, so that what the data do not show shrinks to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dsgp.grid.axes import GridAxis
from dsgp.grid.coordinates import PER_DAY
from dsgp.grid.covariance import LONG
from dsgp.kernels import Matern12, Periodic, Stationary
from dsgp.terms import Floats

# Larger grids have plain averages, because the terms make each solve several times as expensive.
LARGEST = 2**18
# Days of a year, by calendar; others are treated as the Gregorian one.
_YEARS = {
    "julian": 365.25, "noleap": 365.0, "365_day": 365.0, "all_leap": 366.0, "366_day": 366.0,
    "360_day": 360.0,
}  # fmt: skip
_GREGORIAN = 365.2425
# Days after which a part of a date recurs; None: a year.
_PERIODS: Mapping[str, float | None] = {
    "quarter": None, "season": None, "month": None, "dayofyear": None, "dayofweek": 7.0,
    "hour": 1.0, "minute": 1.0 / 24.0,
}  # fmt: skip
# In extents of the dim: a field with this lengthscale counts as not varying along it.
_ENDLESS = 1e4
# Initial lengthscales as shares of the period and of the extent, and the initial variance as a
# share of the field's.
_OF_PERIOD, _OF_EXTENT, _OF_VARIANCE = 1 / 6, 1 / 4, 0.3


def effects_of(
    spec: object,
    axes: Sequence[GridAxis],
    kernels: Sequence[Stationary],
    variance: float,
) -> tuple[tuple[Stationary, ...], ...]:
    """Return the initial terms of a mean such as "time" or "time.month"; () if it has none.

    Parameters
    ----------
    spec : object
        Checked before, by ``Mean.of``.
    axes : sequence of D GridAxis
    kernels : sequence of D kernels
        Of the field. Where one is periodic, so are those of the terms.
    variance : float
        Of the field.
    """
    if not isinstance(spec, str) or int(np.prod([len(axis) for axis in axes])) > LARGEST:
        return ()
    names = [axis.name for axis in axes]
    dim, part = (spec, "") if spec in names else spec.rpartition(".")[::2]
    if dim not in names or (part and part not in _PERIODS):
        return ()
    d = names.index(dim)
    height = _OF_VARIANCE * variance
    extent = float(np.ptp(axes[d].points)) or 1.0
    along: list[Stationary] = [Matern12(_ENDLESS * extent, 1.0, fixed=("lengthscale",))]
    if part:
        if len(axes[d]) > LONG:
            return ()
        days = _PERIODS[part] or _YEARS.get(str(axes[d].calendar), _GREGORIAN)
        period = days * PER_DAY[str(axes[d].unit)]
        along.append(Periodic(period, _OF_PERIOD * period, 1.0, smoothness=1.5))
    others = [_across(axis.points, kernel) for axis, kernel in zip(axes, kernels, strict=True)]
    terms = [(*others[:d], kernel, *others[d + 1 :]) for kernel in along]
    return tuple((term[0].with_parameters(variance=height), *term[1:]) for term in terms)


def _across(points: Floats, kernel: Stationary) -> Stationary:
    """Return the kernel along another dim: rough, as maps of means are."""
    extent = float(np.ptp(points)) or 1.0
    if isinstance(kernel, Periodic):
        return Periodic(
            kernel.period, _OF_EXTENT * extent, 1.0, smoothness=min(kernel.smoothness, 1.5)
        )
    return Matern12(_OF_EXTENT * extent, 1.0)
