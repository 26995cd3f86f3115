"""Rows of a smoothing spline in its units, and further rows added to them.

Rows at the same input enter through sums: their weight, their mean, the squares about it. Those of
rows that come later are added, and an update knows no more than that of the rows before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dsgp.errors import DataError
from dsgp.models.seen import RowsSeen, digests_of
from dsgp.models.spline import SplineData
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Weights below this share of the largest are treated as a mistake.
LEAST_WEIGHT = 1e-10


@dataclass(frozen=True)
class SplineRows:
    """Rows of positive weight: each array has shape (n_rows,)."""

    inputs: Floats
    target: Floats
    weight: Floats

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Take the rows that count.

        Raises
        ------
        DataError
            If none does, or one counts for next to nothing.
        """
        assert rows.y is not None
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        kept = weight > 0
        if not kept.any():
            raise DataError("sample_weight is 0 in every row: no row is left")
        weight = weight[kept]
        if weight.min() < LEAST_WEIGHT * weight.max():
            raise DataError(
                f"sample_weight: {weight.min():.3g} is less than {LEAST_WEIGHT:g} of the "
                f"largest, {weight.max():.3g}; rows that are to be left out have weight 0"
            )
        return cls(rows.columns[0][kept], rows.y[kept], weight)

    def seen(self) -> RowsSeen:
        """Return their digests."""
        return RowsSeen.of_digests(digests_of([self.inputs], self.target))


@dataclass(frozen=True)
class SplinePlace:
    """Where inputs and targets of a spline are, and their units.

    Attributes
    ----------
    offset, extent : float
        Inputs are (x − offset) / extent.
    centre, scale : float
        Targets are (y − centre) / scale.
    heaviest : float
        Unit of the weights.
    """

    offset: float
    extent: float
    centre: float
    scale: float
    heaviest: float

    @classmethod
    def of(cls, rows: SplineRows, order: int, name: str) -> Self:
        """Take the units in which rows are about 1; ``name`` is that of the column.

        Raises
        ------
        DataError
            If squares and powers of the rows would leave float64.
        """
        offset, extent = float(rows.inputs.min()), float(np.ptp(rows.inputs)) or 1.0
        if not np.isfinite(extent):
            raise DataError(f"input column {name!r} spans more than float64 holds: scale it")
        centre, scale = float(rows.target.mean()), float(np.ptp(rows.target)) or 1.0
        place = cls(offset, extent, centre, scale, float(rows.weight.max()))
        place.require_units(order, name)
        return place

    def require_units(self, order: int, name: str) -> None:
        """Raise ``DataError`` where powers of the units, or those times weights, leave float64."""
        sizes = ((f"input column {name!r}", self.extent, 2 * order - 1), ("target", self.scale, 2))
        for what, extent, power in sizes:
            if abs(power * math.log10(extent)) + abs(math.log10(self.heaviest)) > 280:
                raise DataError(
                    f"{what} has a range of {extent:.3g}, whose powers float64 cannot hold: scale "
                    "it"
                )

    def require_alike(self, rows: SplineRows, order: int, name: str) -> None:
        """Raise ``DataError`` if further rows are of sizes that rows of one fit may not be."""
        low, high = float(rows.weight.min()), float(rows.weight.max())
        if min(low, self.heaviest) < LEAST_WEIGHT * max(high, self.heaviest):
            raise DataError(
                f"sample_weight: {low:.3g} to {high:.3g} in the new rows, and up to "
                f"{self.heaviest:.3g} in those of the fit, differ by more than "
                f"{1 / LEAST_WEIGHT:g}: pass weights in the unit of the fit"
            )
        farthest = float(np.abs(rows.target - self.centre).max())
        replace(self, scale=max(self.scale, farthest)).require_units(order, name)

    def unit(self, order: int) -> float:
        """What the ratio of roughness to noise is a multiple of, over that of the user's units."""
        return float(self.extent ** (2 * order - 1) * self.heaviest)

    def data(self, rows: SplineRows, order: int) -> SplineData:
        """Sort and merge rows."""
        return SplineData.of(
            order,
            (rows.inputs - self.offset) / self.extent,
            (rows.target - self.centre) / self.scale,
            rows.weight / self.heaviest,
        )

    def holding(self, inputs: Floats, points: Floats) -> tuple[Self, float]:
        """Return a place in which further inputs and the points so far span 1 at most.

        Returns
        -------
        place : SplinePlace
        factor : float
            Points so far are to be divided by it: a power of 2, so that the same inputs stay the
            same points to the last digit.
        """
        with np.errstate(over="ignore"):
            new = (inputs[[inputs.argmin(), inputs.argmax()]] - self.offset) / self.extent
        span = max(float(new[1]), float(points[-1])) - min(float(new[0]), float(points[0]))
        if not math.isfinite(span):
            raise DataError("with the new rows the input spans more than float64 holds: scale it")
        factor = 2.0 ** max(math.ceil(math.log2(span)), 0) if span > 1.0 else 1.0
        return replace(self, extent=self.extent * factor), factor


def faded(data: SplineData, share: float) -> SplineData:
    """Return rows whose log likelihoods count for a share each; points that vanish are dropped."""
    if share == 1.0:
        return data
    weight = share * data.weight
    of_rows = share * (data.log_weights + _half_log(data.weight))
    kept = weight >= LEAST_WEIGHT * share * data.weight.max()
    return replace(
        data,
        points=data.points[kept],
        weight=weight[kept],
        target=data.target[kept],
        n_rows=share * data.n_rows,
        within=share * data.within,
        log_weights=of_rows - _half_log(weight[kept]),
    )


def together(first: SplineData, second: SplineData) -> SplineData:
    """Add further rows in the same units."""
    points, codes = np.unique(np.concatenate([first.points, second.points]), return_inverse=True)
    weight = np.concatenate([first.weight, second.weight])
    target = np.concatenate([first.target, second.target])
    total = np.asarray(np.bincount(codes, weight), dtype=float)
    mean = np.bincount(codes, weight * target) / total
    between = float(np.sum(weight * (target - mean[codes]) ** 2))
    of_rows = sum(each.log_weights + _half_log(each.weight) for each in (first, second))
    return SplineData(
        first.order,
        points,
        total,
        mean,
        first.n_rows + second.n_rows,
        first.within + second.within + between,
        of_rows - _half_log(total),
    )


def require_enough(data: SplineData) -> None:
    """Raise ``DataError`` if too little is left of rows that have faded for a noise variance."""
    if data.degrees < 1:
        raise DataError(
            f"with half_life the rows count for {data.n_rows:.3g} rows, and a spline of order "
            f"{data.order} needs {data.order + 1} at least: take a longer half_life, or more new "
            "rows"
        )


def _half_log(weight: Floats) -> float:
    return 0.5 * float(np.sum(np.log(weight)))
