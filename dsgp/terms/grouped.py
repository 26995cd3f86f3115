"""A curve for each level: cells are pairs of level and value, and levels are independent.

The cells are sorted by level, then value, so that for a Matérn kernel they are one axis whose steps
are infinite between levels: compiled passes reset the state there, and all levels take one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.terms.axis import Axis
from dsgp.terms.base import (
    BinShift,
    Cells,
    Codes,
    Floats,
    Neighbours,
    Observations,
    Scale,
    sum_by,
)
from dsgp.terms.dense import DenseCells
from dsgp.terms.line import Line
from dsgp.terms.markov import MarkovCells
from dsgp.terms.passed import PassedLine

# Smallest number of bins of each level, and largest number of bins of all levels together.
_FEWEST_BINS = 16
_MOST_BINS = 4096


class _Grouped(Cells):
    """Methods that groups of points of lines have in common, whatever their kernel."""

    line_type: type[Line]

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)

    @cached_property
    def levels(self) -> Floats:
        """The levels, increasing."""
        return self.points[self.starts[:-1], 0]

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where the cells of each level begin, and the end, (n_levels + 1,)."""
        new = np.flatnonzero(np.diff(self.points[:, 0])) + 1
        return np.concatenate([[0], new, [len(self.points)]]).astype(np.intp)

    @property
    def n_curves(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def pieces(self) -> list[tuple[slice, Cells]]:
        return list(self._each())

    def _each(self) -> Iterator[tuple[slice, Line]]:
        """Yield the cells of each level, and the line that they are on."""
        for start, stop in zip(self.starts[:-1], self.starts[1:], strict=True):
            yield slice(start, stop), self.line_type(self.points[start:stop, 1])

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        same = x[:, 0][:, None] == y[:, 0][None, :]
        return np.asarray(kernel.covariance(x[:, 1], y[:, 1])) * same

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        same = self.points[:, 0][:, None] == self.points[:, 0][None, :]
        return np.asarray(kernel.by_log(name, self.points[:, 1])) * same

    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        union, where = np.unique(np.concatenate([self.points, inputs]), axis=0, return_inverse=True)
        where = where.ravel()
        return type(self)(union), where[: len(self)], where[len(self) :]

    # ------------------------------------------------------------------ fewer cells

    def subset(self, chosen: Sequence[int] | Codes) -> Self:
        return type(self)(self.points[chosen])

    def bins(self, weight: Floats, n_bins: int) -> Codes:
        each = max(n_bins // self.n_curves, min(_FEWEST_BINS, _MOST_BINS // self.n_curves), 1)
        out, first = np.empty(len(self), dtype=np.int64), 0
        for part, line in self._each():
            out[part] = first + line.bins(np.maximum(weight[part], _least(weight)), each)
            first = int(out[part.stop - 1]) + 1
        return out

    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Self, Floats]:
        if int(bin_of_cell[-1]) + 1 == len(self):
            return self, np.zeros(len(self)) if spread is None else spread
        points, spreads = [], []
        for part, line in self._each():
            codes = bin_of_cell[part] - bin_of_cell[part.start]
            merged_line, within = line.merged(
                codes, weight[part], None if spread is None else spread[part]
            )
            level = np.full(len(merged_line), self.points[part.start, 0])
            points.append(np.column_stack([level, merged_line.points]))
            spreads.append(within)
        return type(self)(np.concatenate(points)), np.concatenate(spreads)

    def fewest_bins(self) -> int:
        return min(
            len(self), self.n_curves * max(min(_FEWEST_BINS, _MOST_BINS // self.n_curves), 1)
        )

    def _picked(self, weight: Floats, number: int, how: str) -> Codes:
        """Choose cells of every level, or of the levels with most rows where there are many."""
        total = np.add.reduceat(weight, self.starts[:-1])
        chosen = np.argsort(-total, kind="stable")[: max(number, 1)]
        each = max(number // self.n_curves, 1)
        parts = []
        lines = list(self._each()) if len(chosen) == self.n_curves else None
        for level in np.sort(chosen):
            start, stop = self.starts[level], self.starts[level + 1]
            line = self.line_type(self.points[start:stop, 1]) if lines is None else lines[level][1]
            level_weight = np.maximum(weight[start:stop], _least(weight))
            if each == 1:
                middle = np.searchsorted(np.cumsum(level_weight), 0.5 * level_weight.sum())
                parts.append(np.array([start + min(int(middle), stop - start - 1)]))
            else:
                parts.append(start + getattr(line, how)(level_weight, each))
        return np.concatenate(parts)

    def chosen(self, weight: Floats, number: int) -> Codes:
        return self._picked(weight, number, "chosen")

    def nodes(self, weight: Floats, number: int) -> Codes:
        if len(self) <= number:
            return np.arange(len(self))
        parts = []
        each = max(number // self.n_curves, 2)
        for part, line in self._each():
            parts.append(part.start + line.nodes(np.maximum(weight[part], _least(weight)), each))
        return np.concatenate(parts)

    def interpolation(self, nodes: Codes) -> Floats | None:
        if len(nodes) == len(self):
            return None
        out = np.zeros((len(self), len(nodes)))
        for part, line in self._each():
            first, last = np.searchsorted(nodes, (part.start, part.stop))
            line_interpolation = line.interpolation(nodes[first:last] - part.start)
            out[part, first:last] = (
                np.eye(len(line)) if line_interpolation is None else line_interpolation
            )
        return out

    def interpolated(self, values: Floats, others: Cells) -> Floats:
        assert isinstance(others, _Grouped)
        out = np.zeros(len(others))
        line_by_level = {
            float(level): (part, line)
            for level, (part, line) in zip(self.levels, self._each(), strict=True)
        }
        for part, line in others._each():
            known = line_by_level.get(float(others.points[part.start, 0]))
            if known is not None:
                out[part] = known[1].interpolated(values[known[0]], line)
        return out

    # ------------------------------------------------------------------ resolution and search

    @property
    def has_levels(self) -> bool:
        return True

    def is_known(self, inputs: Floats) -> NDArray[np.bool_]:
        place = np.minimum(np.searchsorted(self.levels, inputs[:, 0]), len(self.levels) - 1)
        return self.levels[place] == inputs[:, 0]

    @property
    def is_interpolated(self) -> bool:
        return True

    @property
    def line(self) -> Floats | None:
        return None

    @property
    def neighbours(self) -> Neighbours | None:
        curve = np.repeat(np.arange(self.n_curves), np.diff(self.starts))
        return Neighbours(self.points[:, 1], curve)

    def scale(self, weight: Floats) -> Scale | None:
        """That of all levels together."""
        values, codes = np.unique(self.points[:, 1], return_inverse=True)
        return self.line_type(values).scale(sum_by(codes.ravel(), len(values), weight))

    def slopes(self, values: Floats) -> Floats | None:
        out = np.zeros_like(values)
        for part, line in self._each():
            line_slopes = line.slopes(values[:, part])
            if line_slopes is not None:
                out[:, part] = line_slopes
        return out

    def variance_within_bins(self, kernel: Any, spread: Floats) -> Floats:
        return np.concatenate(
            [line.variance_within_bins(kernel, spread[part]) for part, line in self._each()]
        )

    def bin_shift(self, kernel: Any, dual: Floats, weight: Floats, spread: Floats) -> BinShift:
        bias, rest, noise = np.zeros(len(self)), 0.0, 0.0
        total = float(weight.sum())
        for part, line in self._each():
            share = float(weight[part].sum()) / total if total > 0 else 0.0
            if share > 0:
                line_shift = line.bin_shift(kernel, dual[part], weight[part], spread[part])
                bias[part] = line_shift.bias
                rest, noise = rest + share * line_shift.rest, noise + share * line_shift.noise
        return BinShift(bias, rest, noise)


def _least(weight: Floats) -> float:
    """A negligible weight for levels that have none, as these need a distribution too."""
    return max(float(weight.max(initial=0.0)) * 1e-12, np.finfo(float).tiny)


class _GroupedPasses(_Grouped, PassedLine):
    """Pairs of level and value for compiled passes: one line, with infinite steps."""

    @cached_property
    def coordinates(self) -> Floats:
        """Values, (n_cells,)."""
        return np.ascontiguousarray(self.points[:, 1])

    @cached_property
    def step(self) -> Floats:
        """Distance to the cell before; infinite where the level is another one."""
        with np.errstate(over="ignore"):
            step = np.diff(self.points[:, 1], prepend=self.points[:1, 1])
        step[self.starts[1:-1]] = np.inf
        return step

    def ordered(self, inputs: ArrayLike) -> tuple[Floats, NDArray[np.intp] | None]:
        return np.ascontiguousarray(inputs, dtype=np.float64), None

    def locate(self, inputs: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
        inputs = np.atleast_2d(inputs)
        # Complex numbers are ordered by their real parts first.
        after = np.searchsorted(
            self.points[:, 0] + 1j * self.points[:, 1],
            inputs[:, 0] + 1j * inputs[:, 1],
            side="right",
        )
        level = np.minimum(np.searchsorted(self.levels, inputs[:, 0]), len(self.levels) - 1)
        known = self.levels[level] == inputs[:, 0]
        before = np.where(known & (after > self.starts[level]), after - 1, -1)
        after = np.where(known & (after < self.starts[level + 1]), after, -1)
        return np.ascontiguousarray(inputs[:, 1]), before, after

    def _slope(self, kernel: Any, dual: Floats) -> Floats:
        raise NotImplementedError  # each level is a line of its own


class GroupedAxis(_GroupedPasses, Axis):
    """Pairs of level and value, for kernels with a state-space form.

    Parameters
    ----------
    points : ndarray of shape (n_cells, 2)
        Levels by their numbers, and values; sorted by the first, then by the second.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Matern32
    >>> from dsgp.terms import GroupedAxis, Observations
    >>> cells = GroupedAxis(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0]]))
    >>> seen = Observations(target=np.array([1.0, 0.0, 3.0]), weight=np.array([1.0, 0.0, 1.0]))
    >>> posterior = cells.posterior(Matern32(1.0, 1.0), seen)
    >>> posterior.mean.round(3)
    array([0.5  , 0.242, 1.5  ])
    """

    line_type = Axis


class GroupedDense(_Grouped, DenseCells):
    """Pairs of level and value, for kernels that have a dense covariance only."""

    line_type = DenseCells

    def prior_variance(self, kernel: Any, inputs: Floats) -> Floats:
        return np.asarray(kernel.diagonal(inputs[:, 1]))

    def prior_by_log_to(self, kernel: Any, name: str, chosen: NDArray[np.intp]) -> Floats:
        some = self.points[chosen]
        same = self.points[:, 0][:, None] == some[:, 0][None, :]
        return np.asarray(kernel.by_log(name, self.points[:, 1], some[:, 1])) * same

    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        # Level by level, as there are no covariances between levels.
        parts = [
            line.likelihood_terms(kernel, Observations(seen.target[part], seen.weight[part]))
            for part, line in self._each()
        ]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)


class GroupedMarkov(_GroupedPasses, MarkovCells):
    """Pairs of level and value, for any stationary kernel with a state-space form."""

    line_type = MarkovCells

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        same = x[:, 0][:, None] == y[:, 0][None, :]
        return self._along(kernel, x[:, 1], y[:, 1]) * same

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        same = self.points[:, 0][:, None] == self.points[:, 0][None, :]
        return self._along_by_log(kernel, name) * same
