"""Where the search for hyperparameters starts and where it may go.

Lengthscales are in the units of the data; the target has variance 1 and the weights mean 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dsgp.axis import Floats
from dsgp.errors import ParameterError
from dsgp.kernels import Matern
from dsgp.kernels.base import PARAMETERS

# Variances relative to that of the target. The lower end of a term's variance is as good as
# no term at all.
VARIANCE = (1e-8, 1e4)
# With less, a target without any noise leaves a system that float64 cannot solve to the tolerance.
NOISE = (1e-6, 1e2)
NOISE_START = 0.1
# In extents of the column: a function this long is a polynomial of low degree, and longer ones only
# cost digits.
LONGEST = 10.0
# In widths of the bulk of the rows.
SHORTEST = 1e-2
LENGTHSCALE_START = 8.0
MIDDLE_LENGTHSCALE = 1.0
# Gaps that are no part of a column's width: so many at most, and so many times the other gaps
# together.
_MOST_GAPS = 8
_EXTRAORDINARY = 3.0
OTHER_LENGTHSCALES = (0.5,)


@dataclass(frozen=True)
class Search:
    """Start and bounds of the free parameters of one kernel, as logs.

    Attributes
    ----------
    start : kernel with all its parameters
    middle : kernel with all its parameters
        The start of a learner that changes all terms at once.
    others : tuple of kernels
        Further starts, tried when the learner begins and again when it would end: the likelihood
        of one term often has an optimum at a long and one at a short lengthscale.
    width : float
        Of the bulk of the rows; see ``typical_width``.
    names : tuple of str
        The free ones among "lengthscale" and "variance".
    lower, upper : ndarray of shape (len(names),)
    """

    start: Matern
    middle: Matern
    others: tuple[Matern, ...]
    width: float
    names: tuple[str, ...]
    lower: Floats
    upper: Floats

    def allows(self, name: str, value: float) -> bool:
        """Whether a value of a free parameter is within the bounds."""
        position = self.names.index(name)
        return bool(self.lower[position] <= np.log(value) <= self.upper[position])

    def kernel(self, log_values: Floats) -> Matern:
        """Return the kernel with other values of its free parameters."""
        values = np.exp(np.clip(log_values, self.lower, self.upper))
        return self.start.with_parameters(
            **{name: float(value) for name, value in zip(self.names, values, strict=True)}
        )


def typical_width(points: Floats, counts: Floats) -> float:
    """Distance between the 10 % and the 90 % quantile of the rows, without extraordinary gaps.

    Outliers and heavy tails do not move it, unlike a standard deviation. Gaps that by far exceed
    all others together do not count: a number that stands for a missing value, or clusters far
    apart, say nothing of how a function varies where the rows are. It is the range if the quantiles
    are equal.
    """
    share = np.cumsum(counts) / np.sum(counts)
    ends = np.searchsorted(share, [0.1, 0.9])
    if ends[0] == ends[1]:
        ends = np.array([0, len(points) - 1])
    gaps = np.diff(points[ends[0] : ends[1] + 1])
    n_most = min(_MOST_GAPS, len(gaps) // 4)
    if n_most:
        largest = np.sort(gaps)[::-1]
        rest = np.cumsum(largest[::-1])[::-1][1 : n_most + 1]
        extraordinary = np.flatnonzero(largest[:n_most] > _EXTRAORDINARY * rest)
        if len(extraordinary):
            return float(rest[extraordinary[-1]])
    return float(points[ends[1]] - points[ends[0]])


def spacing(points: Floats) -> float:
    """Distance of neighbouring points where they are close: a quarter are no farther apart."""
    return float(np.quantile(np.diff(points), 0.25))


def search_for(
    kernel: Matern,
    points: Floats,
    counts: Floats,
    n_terms: int,
    unit: float = 1.0,
    largest: float = VARIANCE[1],
    shortest: float | None = None,
) -> Search:
    """Make the search for one term, from points of its axis and the rows (weights) there.

    ``unit`` is the variance of what all terms together are to explain, and ``largest`` how many of
    it the variance of one may be. Lengthscales are no shorter than ``shortest``, by default a share
    of the width.

    Given parameters are starts, and are left alone where the kernel says ``fixed``. Without one
    the lengthscale starts far beyond the width of the bulk of the rows, so that a term becomes
    rougher only as the data ask for it, and the variance at an equal share of the target's.
    """
    width = typical_width(points, counts)
    extent = float(points[-1] - points[0])
    bounds = {
        "lengthscale": (SHORTEST * width if shortest is None else shortest, LONGEST * extent),
        "variance": (VARIANCE[0] * unit, largest * unit),
    }
    default = {"lengthscale": LENGTHSCALE_START * width, "variance": unit / n_terms}
    values, names, lower, upper = {}, [], [], []
    for name, (low, high) in bounds.items():
        given = getattr(kernel, name)
        values[name] = default[name] if given is None else given
        if name not in kernel.fixed:
            names.append(name)
            # A given start outside the usual range widens it.
            lower.append(min(low, values[name]))
            upper.append(max(high, values[name]))
    start = kernel.with_parameters(**values)
    middle = start
    if kernel.lengthscale is None:
        middle = start.with_parameters(lengthscale=MIDDLE_LENGTHSCALE * width)
    others = [
        start.with_parameters(lengthscale=factor * width)
        for factor in OTHER_LENGTHSCALES
        if "lengthscale" in names
    ]
    return Search(
        start=start,
        middle=middle,
        width=width,
        others=tuple(others),
        names=tuple(names),
        lower=np.log(lower),
        upper=np.log(upper),
    )


def require_complete(kernels: Mapping[str, Matern]) -> None:
    """Raise ``ParameterError`` unless every kernel is complete (``learner=None``)."""
    for column, kernel in kernels.items():
        if missing := [name for name in PARAMETERS if getattr(kernel, name) is None]:
            raise ParameterError(
                f"learner=None keeps the given hyperparameters, but the kernel of column "
                f"{column!r}, {kernel!r}, has no {' and no '.join(missing)}: give it"
            )
