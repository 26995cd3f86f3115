"""Methods that cells on a line have in common, whatever their kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dsgp.terms.base import BinShift, Cells, Codes, Floats, Scale, sum_by
from dsgp.terms.splines import interpolated, spline_matrix
from dsgp.terms.spreading import (
    bins_of,
    increasing,
    spacing,
    spread,
    spread_beside_gaps,
    typical_width,
)

# Fourth central moment of a uniform density over its squared variance.
FOURTH_MOMENT = 9 / 5


class Line(Cells):
    """Strictly increasing points of one input."""

    def __init__(self, points: Floats) -> None:
        self.points = points

    # ------------------------------------------------------------------ covariances

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        """Covariances of the function between two sets of inputs, (n, k)."""
        return np.asarray(kernel.covariance(x, y))

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        """Derivative of the prior covariance of the points by the log of a parameter."""
        return np.asarray(kernel.by_log(name, self.points))

    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        """Return a line with inputs among its points, and the codes of points and inputs."""
        union, where = np.unique(np.concatenate([self.points, inputs]), return_inverse=True)
        return type(self)(union), where[: len(self)], where[len(self) :]

    # ------------------------------------------------------------------ fewer cells

    def subset(self, chosen: Sequence[int] | Codes) -> Self:
        """Return some of the points, by increasing codes."""
        return type(self)(self.points[chosen])

    def bins(self, weight: Floats, n_bins: int) -> Codes:
        """Bin of each point: its own while there are few."""
        return bins_of(self.points, weight, n_bins)

    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Self, Floats]:
        """Return the means of bins, and the variance of the inputs within each."""
        size = int(bin_of_cell[-1]) + 1
        within = np.zeros(len(self)) if spread is None else spread
        if size == len(self):
            return self, within
        # Sums are taken around one of the points, so that inputs far from 0 lose no digits.
        origin = self.points[np.searchsorted(bin_of_cell, np.arange(size))]
        away = self.points - origin[bin_of_cell]
        total = sum_by(bin_of_cell, size, weight)
        total = np.where(total > 0, total, 1.0)  # all its rows may have weight 0
        shift = sum_by(bin_of_cell, size, weight * away) / total
        squares = sum_by(bin_of_cell, size, weight * (away**2 + within)) / total
        return type(self)(increasing(origin + shift)), np.maximum(squares - shift**2, 0.0)

    def chosen(self, weight: Floats, number: int) -> Codes:
        """Codes of points, both ends among them."""
        return spread(self.points, weight, number)

    def nodes(self, weight: Floats, number: int) -> Codes:
        """Codes of points, few in wide gaps; all while there are few."""
        if len(self) <= number:
            return np.arange(len(self))
        return spread_beside_gaps(self.points, weight, number)

    def interpolation(self, nodes: Codes) -> Floats | None:
        """Return the cardinal splines of the nodes at the points; None for all points."""
        return None if len(nodes) == len(self) else spline_matrix(self.points[nodes], self.points)

    def interpolated(self, values: Floats, others: Cells) -> Floats:
        """Carry values at these points to those of another line by a spline."""
        return interpolated(self.points, values, others.points)

    # ------------------------------------------------------------------ resolution and search

    @property
    def line(self) -> Floats | None:
        return self.points

    def scale(self, weight: Floats) -> Scale | None:
        """How the points spread."""
        return Scale(
            typical_width(self.points, weight),
            float(self.points[-1] - self.points[0]),
            spacing(self.points) if len(self) > 1 else 0.0,
        )

    def slopes(self, values: Floats) -> Floats | None:
        """Derivatives of functions (r, n_points) by differences."""
        return np.gradient(values, self.points, axis=1) if len(self) > 1 else None

    def variance_within_bins(self, kernel: Any, spread: Floats) -> Floats:
        """Prior variance midway between two known points a bin's width apart."""
        width = np.sqrt(12 * spread)
        variance = kernel.std**2
        half, whole = (
            kernel.covariance(np.zeros(1), width * factor)[0] / variance for factor in (0.5, 1.0)
        )
        return np.maximum(variance * (1 - 2 * half**2 / (1 + whole)), 0.0)

    def bin_shift(self, kernel: Any, dual: Floats, weight: Floats, spread: Floats) -> BinShift:
        """Estimate from slopes and curvatures of the posterior mean at the points."""
        share = weight / weight.sum()
        slope, bent, fourth = self._derivatives(kernel, dual)
        noise = float(np.sum(share * slope**2 * spread))
        bias = np.zeros(len(self))
        if kernel.order < 3:
            left = self.variance_within_bins(kernel, spread)
            noise += float(np.sum(share * left)) if kernel.order == 1 else 0.0
        else:
            bias = 0.5 * bent * spread
            left = (FOURTH_MOMENT / 24 * fourth * spread**2) ** 2
        return BinShift(bias, float(np.sum(share * left)), noise)

    def _derivatives(self, kernel: Any, dual: Floats) -> tuple[Floats, Floats, Floats]:
        """First, second and fourth derivative of the mean at the points."""
        if len(self) < 3:
            return np.zeros(len(self)), np.zeros(len(self)), np.zeros(len(self))
        slope = self._slope(kernel, dual)
        bent = np.gradient(slope, self.points)
        return slope, bent, np.gradient(np.gradient(bent, self.points), self.points)

    def _slope(self, kernel: Any, dual: Floats) -> Floats:
        return np.gradient(self.kernel_sum(kernel, dual)(self.points), self.points)
