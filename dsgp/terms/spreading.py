"""How points of a line are chosen or merged into bins (half by rows, half by distance), and how far
they spread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsgp.terms.base import Floats

# Gaps that do not count in a column's width: at most this many, each longer than this multiple of
# all shorter gaps together.
_MOST_GAPS = 8
_EXTRAORDINARY = 3.0


def measure(points: Floats, weight: Floats) -> Floats:
    """Share of the axis up to each point: half by weight of rows, half by distance.

    Bins by rows alone would be too wide in the tails, and bins by distance alone in the bulk where
    there are outliers.
    """
    share = np.cumsum(weight) / weight.sum()
    extent = points[-1] - points[0]
    distance = (points - points[0]) / extent if extent > 0 else share
    return 0.5 * share + 0.5 * distance


def bins_of(points: Floats, weight: Floats, n_bins: int) -> NDArray[np.int64]:
    """Bin of each point: its own if there are few points, else equal parts of ``measure``."""
    if len(points) <= n_bins:
        return np.arange(len(points))
    bins = np.minimum((measure(points, weight) * n_bins).astype(np.int64), n_bins - 1)
    return np.unique(bins, return_inverse=True)[1]


def spread(points: Floats, weight: Floats, n_points: int) -> NDArray[np.int64]:
    """Indices of ``n_points`` points at most, both ends among them, evenly by ``measure``."""
    chosen = np.searchsorted(measure(points, weight), np.linspace(0.0, 1.0, n_points))
    return np.unique(np.concatenate([[0], np.minimum(chosen, len(points) - 1)]))


def spread_beside_gaps(points: Floats, weight: Floats, n_points: int) -> NDArray[np.int64]:
    """Indices of about ``n_points`` points as ``spread`` has them, but few for wide gaps.

    A gap counts for at most the distance between two chosen points, as nothing is to be gained
    within it. The points on both sides of such a gap are among those chosen.
    """
    gaps = np.diff(points)
    widest = _widest_gap(gaps, n_points)
    sides = np.flatnonzero(gaps > widest)
    shortened = np.concatenate([[0.0], np.cumsum(np.minimum(gaps, widest))])
    chosen = spread(shortened, weight, max(n_points - len(sides), 2))
    return np.unique(np.concatenate([chosen, sides, sides + 1]))


def _widest_gap(gaps: Floats, n_points: int) -> float:
    """Solve g = 2 Σ min(gap, g) / n_points for the length that longer gaps are shortened to."""
    if len(gaps) <= n_points // 2:
        return float(np.max(gaps, initial=0.0))
    longest = np.sort(gaps)[::-1]
    rest = np.cumsum(longest[::-1])[::-1]  # this gap and all shorter ones
    n_longer = np.arange(min(n_points // 2, len(gaps) - 1))
    lengths = 2 * rest[n_longer] / np.maximum(n_points - 2 * n_longer, 1)
    fits = longest[n_longer] <= lengths
    return float(lengths[np.argmax(fits)] if fits.any() else longest[n_longer[-1]])


def typical_width(points: Floats, counts: Floats) -> float:
    """Distance between the 10 % and the 90 % quantile of the rows, without extraordinary gaps.

    Unlike a standard deviation, it is robust against outliers and heavy tails. Gaps that by far
    exceed all others together do not count: a number that stands for a missing value, or clusters
    far apart, are not informative about how a function varies where the rows are. It is the range
    if the quantiles are equal.
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
    """Distance of close neighbouring points: the lower quartile of the distances."""
    return float(np.quantile(np.diff(points), 0.25))


def increasing(points: Floats) -> Floats:
    """Separate means of neighbouring bins that rounding has made equal, in place."""
    if (np.diff(points) <= 0).any():
        for i in range(1, len(points)):
            points[i] = max(points[i], np.nextafter(points[i - 1], np.inf))
    return points
