"""Which coordinates are longitudes, and how they continue across the seam of the circle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.grid.coordinates import EQUISPACED, Floats

_EAST = {"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"}
_DEGREES = {"degrees", "degree", "deg", "°"}
_RADIANS = {"radians", "radian", "rad"}
_STANDARD_NAMES = {"longitude", "grid_longitude"}
_NAMES = {"lon", "lons", "long", "longitude", "longitudes", "nav_lon", "xlong", "rlon"}
# Ends at most this many typical steps apart, across the seam, are neighbours.
_NEIGHBOURS = 1.5


def circle_of(name: str, attrs: Mapping[Any, Any], values: NDArray[Any]) -> float | None:
    """Return the circumference of a coordinate's circle, in its unit; None if it is no longitude.

    It is one by its units (``degrees_east``), its ``standard_name`` or ``long_name``, or its
    name (``lon``), where its units are not of something else; and if it has no more than one turn.
    """
    units = str(attrs.get("units", "")).strip().lower()
    called = str(attrs.get("standard_name", "")).strip().lower() in _STANDARD_NAMES or (
        "standard_name" not in attrs
        and (
            name.lower() in _NAMES
            or str(attrs.get("long_name", "")).strip().lower() in _STANDARD_NAMES
        )
    )
    if units in _EAST or (called and (units in _DEGREES or not units)):
        circle = 360.0
    elif called and units in _RADIANS:
        circle = 2 * math.pi
    else:
        return None
    lowest, highest = float(values.min()), float(values.max())
    plausible = max(abs(lowest), abs(highest)) <= 2 * circle
    return circle if plausible and highest - lowest <= circle * (1 + 1e-5) else None


def unwrapped(values: NDArray[Any], circle: float) -> NDArray[Any]:
    """Continue across the seam: 170, 180, −170 become 170, 180, 190; only if that is one turn."""
    if values.dtype.kind in "iu":
        values = values.astype(np.int64)
        circle = int(circle) if circle == int(circle) else circle
    turns = np.concatenate([[0], -np.cumsum(np.rint(np.diff(values) / circle))])
    if not turns.any():
        return values
    along = values + (turns * circle).astype(values.dtype)
    steps = np.diff(along)
    one_way = (steps > 0).all() or (steps < 0).all()
    return along if one_way and abs(along[-1] - along[0]) <= circle * (1 + 1e-5) else values


def wrapped(numbers: Floats, points: Floats, circle: float) -> Floats:
    """Shift numbers beyond the points of an axis to the turn of these points."""
    outside = (numbers < points[0]) | (numbers > points[-1])
    if not outside.any():
        return numbers
    middle = 0.5 * (points[0] + points[-1])
    turned = numbers + circle * np.rint((middle - numbers) / circle)
    return np.where(outside, turned, numbers)


def repeats_first(points: Floats, circle: float, rounding: float) -> bool:
    """Whether the last point is the first one, a circle later."""
    if points.size < 3:
        return False
    tolerance = max(EQUISPACED * float(np.diff(points).min()), 2.0 * rounding)
    return bool(abs(points[-1] - points[0] - circle) <= tolerance)


def spans(points: Floats, circle: float) -> bool:
    """Whether the ends are neighbours across the seam."""
    if points.size < 3:
        return False
    gap = circle - float(points[-1] - points[0])
    return gap <= _NEIGHBOURS * float(np.median(np.diff(points)))
