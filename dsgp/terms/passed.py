"""Points of a line for compiled passes, and the positions of other inputs among them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.terms.base import Floats
from dsgp.terms.line import Line

# An axis of more points does not fit into the cache, and sorting the inputs halves the time.
_LONG = 2**14


class PassedLine(Line):
    """Strictly increasing points of one input, for kernels with a state-space form."""

    @cached_property
    def step(self) -> Floats:
        """Distance to the point before, (n_points,); 0 for the first."""
        with np.errstate(over="ignore"):  # an infinite step only resets the state
            return np.diff(self.points, prepend=self.points[:1])

    @property
    def coordinates(self) -> Floats:
        """Where along the axis each point is, (n_points,)."""
        return self.points

    def ordered(self, inputs: ArrayLike) -> tuple[Floats, NDArray[np.intp] | None]:
        """Sort inputs if that saves time: neighbours on a long axis are then close in memory."""
        inputs = np.ascontiguousarray(inputs, dtype=np.float64)
        if len(self) < _LONG or len(inputs) < _LONG // 16:
            return inputs, None
        order = np.argsort(inputs)
        return inputs[order], order

    def locate(self, inputs: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        """Return where inputs are along the axis, and the points before and after; -1 for none."""
        after = np.searchsorted(self.points, inputs, side="right")
        return inputs, after - 1, np.where(after < len(self), after, -1)


def in_order(values: Floats, order: NDArray[np.intp] | None) -> Floats:
    """Put values at sorted inputs back into the order that these came in; ``order`` sorts them."""
    if order is None:
        return values
    out = np.empty_like(values)
    out[order] = values
    return out
