"""Cells of an interaction: pairs of values of two inputs that rows have together.

The covariance is a product of centred kernels (``CentredProduct``), so that values at new inputs
need one matrix of each input alone: rows of k̂₁ D k̂₂ᵀ, with D the pairs as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dsgp.kernels import CentredProduct, Matern52
from dsgp.terms.base import BinShift, Cells, Codes, Floats, Function, Scale, Solver, sum_by
from dsgp.terms.dense import Factored
from dsgp.terms.line import FOURTH_MOMENT
from dsgp.terms.pair_features import PairFeatures, PairSolver, PairVariance
from dsgp.terms.spreading import bins_of, measure, spacing, typical_width

# Nodes of an interaction of two smooth inputs, as a multiple of those of a curve.
_LINES = 4
# The same for curves by levels, at most, and for more pairs of levels than the second number.
_MOST_LINES, _FEW_PAIRS = 8, 200
# Between nodes the function is interpolated with the least norm for this kernel, whose inputs are
# the shares of rows along each axis.
_BETWEEN = Matern52(0.5, 1.0)
_ROUNDING = 1e-10
# Share of a cell's variance that is a rounding error once the other cells are known.
_ROUNDING_OF_PIVOTS = 1e-12
# Number of distinct values of an input up to which features are products of those of each input.
_MOST_VALUES = 128
# Number of pairs up to which their covariance is factored directly.
_FEW_CELLS = 512
# Degrees of freedom that features may leave out: for determinants (in nats), and for variances,
# where they count as unknown.
_LEFT_OF_DETERMINANT, _LEFT_OF_VARIANCE = 0.01, 0.1
# For sums of kernels at inputs, cell by cell: the cost of a cell relative to that of one number of
# a vector, and the number of cells times inputs at a time.
_PER_CELL, _AT_ONCE = 16, 2**18

_Made = TypeVar("_Made")


class TensorCells(Factored):
    """Pairs of values of two inputs, for a function without main effects.

    Parameters
    ----------
    points : ndarray of shape (n_cells, 2)
        Sorted by the first value, then the second.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import CentredProduct, Independent, Margin
    >>> from dsgp.terms import LevelPairs, Observations
    >>> two = Margin((0.0, 1.0), (0.5, 0.5))
    >>> kernel = CentredProduct((Independent(1.0), Independent()), (two, two))
    >>> pairs = LevelPairs(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
    >>> seen = Observations(target=np.array([1.0, -1.0, -1.0, 1.0]), weight=np.full(4, 1.0))
    >>> pairs.posterior(kernel, seen).mean.round(6)
    array([ 0.8, -0.8, -0.8,  0.8])
    """

    are_levels: ClassVar[tuple[bool, bool]] = (False, False)

    def __init__(self, points: Floats) -> None:
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self._within: Floats | None = None
        self._bin_widths = np.zeros(2)

    def with_within(self, within: Floats, widths: Floats | None = None) -> Self:
        """Return bins, with the variances of both inputs within each, (n_cells, 2).

        Bins of bins are as wide as these, where lengthscales are looked for.
        """
        bins = type(self)(self.points)
        bins._within = within if within.any() else None
        bins._bin_widths = np.median(np.sqrt(12 * within), axis=0) if widths is None else widths
        return bins

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        if x is self.points and y is self.points:
            return self._of_values(kernel, self._factors(kernel))
        return np.asarray(kernel.covariance(x, y))

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        (first, _), (second, _) = self._values
        return self._of_values(kernel, kernel.slope_factors(name, first, second))

    def _of_values(self, kernel: Any, factors: tuple[Floats, Floats]) -> Floats:
        """Return factors among the pairs, from those among the fewer distinct values of each."""
        (_, rows), (_, columns) = self._values
        product = factors[0][np.ix_(rows, rows)]
        product *= factors[1][np.ix_(columns, columns)]
        product *= kernel.std**2
        return product

    def _factors(self, kernel: Any) -> tuple[Floats, Floats]:
        """k̂ of each input among its distinct values."""
        (first, _), (second, _) = self._values
        return self._of_kernel(
            kernel, "factors", lambda: (kernel.factor(0, first), kernel.factor(1, second))
        )

    # ------------------------------------------------------------------ the factor

    @cached_property
    def _is_a_table(self) -> bool:
        """Whether pairs are many, of values that are few."""
        sizes = [len(values) for values, _ in self._values]
        if all(self.are_levels) and math.prod(size - 1 for size in sizes) > len(self):
            return False  # all features of levels matter alike, and the pairs are fewer
        return len(self) > _FEW_CELLS and max(sizes) <= _MOST_VALUES

    def _factored(self, kernel: Any) -> tuple[Floats, NDArray[np.intp]]:
        if not self._is_a_table:
            return super()._factored(kernel)
        return self._features(kernel).at(self.points), np.empty(0, dtype=np.intp)

    def _of_kernel(self, kernel: Any, name: str, make: Callable[[], _Made]) -> _Made:
        """Return what ``make`` computes for a kernel; results are kept for the last kernel."""
        kept: dict[tuple[Any, str], Any] = self.__dict__.setdefault("_made", {})
        if (made := kept.get((kernel, name))) is None:
            made = make()
            # Another thread may use another kernel at the same time: what is returned is not looked
            # up again.
            for key in [key for key in list(kept) if key[0] != kernel]:
                kept.pop(key, None)
            kept[kernel, name] = made
        return made

    def _features(self, kernel: Any) -> PairFeatures:
        (first, _), (second, _) = self._values
        return self._of_kernel(kernel, "features", lambda: PairFeatures.of(kernel, first, second))

    def left_out(self, kernel: Any, weight: Floats) -> float:
        """Degrees of freedom that all features leave out, if more than variances may."""
        if not self._is_a_table:
            return 0.0  # ``Factored`` itself warns of columns that it leaves out
        features = self._features(kernel)
        _, left = features.leading(self.points, weight, _LEFT_OF_VARIANCE, of_trace=True)
        return left if left > _LEFT_OF_VARIANCE else 0.0

    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        if not self._is_a_table:
            return super().multiply(kernel, vector)
        (_, rows), (_, columns) = self._values
        left, right = self._factors(kernel)
        table = np.zeros((len(left), len(right)))
        table[rows, columns] = vector
        return np.asarray(kernel.std**2 * (left @ table @ right)[rows, columns])

    def solver(self, kernel: Any, weight: Floats) -> Solver:
        if not self._is_a_table:
            return super().solver(kernel, weight)
        product = partial(self.multiply, kernel)
        return PairSolver.of(product, self._features(kernel), self.points, weight)

    def _columns_beside(self, kernel: Any, weight: Floats) -> Floats:
        if not self._is_a_table:
            return super()._columns_beside(kernel, weight)
        features = self._features(kernel)
        return features.leading(self.points, weight, _LEFT_OF_DETERMINANT, of_trace=True)[0]

    def variance_function(self, kernel: Any, weight: Floats) -> Function:
        if not self._is_a_table:
            return super().variance_function(kernel, weight)
        features = self._features(kernel)
        columns, _ = features.leading(self.points, weight, _LEFT_OF_VARIANCE, of_trace=True)
        return PairVariance(features, columns, weight)

    # ------------------------------------------------------------------ anywhere

    @cached_property
    def _values(self) -> tuple[tuple[Floats, Codes], tuple[Floats, Codes]]:
        """Distinct values of each input, and where those of the cells are among them."""
        first, second = (np.unique(self.points[:, k], return_inverse=True) for k in (0, 1))
        return (first[0], first[1].ravel()), (second[0], second[1].ravel())

    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        return PairSum(self, kernel, vector[None])

    def kernel_sums(self, kernel: Any, vectors: Floats) -> PairSum:
        return PairSum(self, kernel, vectors)

    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        union, where = np.unique(np.concatenate([self.points, inputs]), axis=0, return_inverse=True)
        where = where.ravel()
        return type(self)(union), where[: len(self)], where[len(self) :]

    # ------------------------------------------------------------------ fewer cells

    def subset(self, chosen: Sequence[int] | Codes) -> Self:
        some = type(self)(self.points[chosen])
        if self._within is None:
            return some
        return some.with_within(self._within[chosen], self._bin_widths)

    def bins(self, weight: Floats, n_bins: int) -> Codes:
        if len(self) <= n_bins:
            return np.arange(len(self))
        smooth = [k for k in (0, 1) if not self.are_levels[k]]
        if not smooth:
            return np.arange(len(self))  # levels are not merged
        sizes = [len(values) for values, _ in self._values]
        for_smooth = n_bins / np.prod([sizes[k] for k in (0, 1) if k not in smooth])
        each = max(int(for_smooth ** (1 / len(smooth))), 2)
        codes = [
            places if k not in smooth else self._bins_of_input(k, weight, each)[places]
            for k, (_, places) in enumerate(self._values)
        ]
        pairs = codes[0] * (int(codes[1].max()) + 1) + codes[1]
        return np.asarray(np.unique(pairs, return_inverse=True)[1].ravel())

    def _bins_of_input(self, k: int, weight: Floats, n_bins: int) -> Codes:
        values, places = self._values[k]
        total = np.maximum(sum_by(places, len(values), weight), _least(weight))
        return bins_of(values, total, n_bins)

    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Self, Floats]:
        n_bins = int(bin_of_cell.max()) + 1
        zeros = np.zeros(len(self)) if spread is None else spread
        if n_bins == len(self):
            return self, zeros
        counted = np.maximum(weight, _least(weight))
        total = sum_by(bin_of_cell, n_bins, counted)
        points = np.column_stack(
            [sum_by(bin_of_cell, n_bins, counted * self.points[:, k]) / total for k in (0, 1)]
        )
        for k in (0, 1):
            if self.are_levels[k]:  # the mean of equal numbers may have a rounding error
                points[bin_of_cell, k] = self.points[:, k]
        within = (self.points - points[bin_of_cell]) ** 2
        if self._within is not None:
            within += self._within
        merged_within = np.column_stack(
            [sum_by(bin_of_cell, n_bins, counted * within[:, k]) / total for k in (0, 1)]
        )
        return type(self)(points).with_within(merged_within, self._bin_widths), np.zeros(n_bins)

    def fewest_bins(self) -> int:
        return len(self) if all(self.are_levels) else min(len(self), 4 * self.n_lines)

    def _shares(self, points: Floats, weight: Floats | None = None) -> Floats:
        """Positions of inputs along those of the cells, from 0 to 1; levels are unchanged."""
        out = np.empty((len(points), 2))
        for k, (values, places) in enumerate(self._values):
            if self.are_levels[k] or len(values) < 2:
                out[:, k] = points[:, k]
                continue
            total = np.ones(len(self)) if weight is None else np.maximum(weight, _least(weight))
            share = measure(values, sum_by(places, len(values), total))
            out[:, k] = np.interp(points[:, k], values, share)
        return out

    def _alike(self, first: Floats, second: Floats) -> Floats:
        """Covariances by which values are interpolated from some cells to others."""
        out = np.ones((len(first), len(second)))
        for k in (0, 1):
            x, y = first[:, k], second[:, k]
            is_line = not self.are_levels[k]
            out *= _BETWEEN.covariance(x, y) if is_line else x[:, None] == y[None, :]
        return out

    def chosen(self, weight: Floats, number: int) -> Codes:
        if len(self) <= number:
            return np.arange(len(self))
        places = self._shares(self.points, weight)
        # A pivoted Cholesky factor chooses the cells that are most informative about the others;
        # those of few rows matter less. Only as many columns are computed as are wanted.
        rows = np.sqrt(np.maximum(weight, _least(weight)))
        left = rows**2
        columns = np.zeros((number, len(self)))
        found: list[int] = []
        for k in range(number):
            pivot = int(np.argmax(left))
            if not left[pivot] > _ROUNDING_OF_PIVOTS * rows[pivot] ** 2:
                break
            column = rows * rows[pivot] * self._alike(places[pivot : pivot + 1], places)[0]
            column -= columns[:k, pivot] @ columns[:k]
            columns[k] = column / np.sqrt(left[pivot])
            left = np.maximum(left - columns[k] ** 2, 0.0)
            left[pivot] = 0.0
            found.append(pivot)
        return np.sort(np.array(found))

    def nodes(self, weight: Floats, number: int) -> Codes:
        return self.chosen(weight, number)

    def interpolation(self, nodes: Codes) -> Floats | None:
        if len(nodes) == len(self):
            return None
        places = self._shares(self.points)
        return self._carried(places[nodes], places)

    def interpolated(self, values: Floats, others: Cells) -> Floats:
        known, new = self._shares(self.points), self._shares(others.points)
        return self._carried(known, new) @ values

    def _carried(self, known: Floats, new: Floats) -> Floats:
        """C, (n_new, n_known): interpolation by the function of least norm through known places."""
        prior = self._alike(known, known)
        prior[np.diag_indices_from(prior)] += _ROUNDING
        lower = np.linalg.cholesky(prior)
        half = solve_triangular(lower, self._alike(known, new), lower=True, check_finite=False)
        carried = solve_triangular(lower, half, lower=True, trans=1, check_finite=False).T
        # At the known places themselves the values are exact, without the rounding errors of the
        # factor.
        same = (new[:, None, :] == known[None]).all(axis=2)
        at_known = same.any(axis=1)
        carried[at_known] = same[at_known]
        return np.ascontiguousarray(carried)

    # ------------------------------------------------------------------ resolution and search

    @property
    def n_lines(self) -> int:
        smooth = [k for k in (0, 1) if not self.are_levels[k]]
        if len(smooth) == 2:
            return _LINES
        return min(len(self._values[1 - smooth[0]][0]), _MOST_LINES) if smooth else _MOST_LINES

    @property
    def is_resolved(self) -> bool:
        return False

    @property
    def is_interpolated(self) -> bool:
        return not all(self.are_levels) or len(self) > _FEW_PAIRS

    @property
    def has_levels(self) -> bool:
        return any(self.are_levels)

    def is_known(self, inputs: Floats) -> NDArray[np.bool_]:
        known = np.ones(len(inputs), dtype=bool)
        for k in (0, 1):
            if self.are_levels[k]:
                levels = self._values[k][0]
                place = np.minimum(np.searchsorted(levels, inputs[:, k]), len(levels) - 1)
                known &= levels[place] == inputs[:, k]
        return known

    def scale_of(self, name: str, weight: Floats) -> Scale | None:
        k = {"lengthscale_1": 0, "lengthscale_2": 1}.get(name)
        if k is None or self.are_levels[k]:
            return None
        values, places = self._values[k]
        return Scale(
            typical_width(values, sum_by(places, len(values), weight)),
            float(values[-1] - values[0]),
            spacing(values) if len(values) > 1 else 0.0,
            float(self._bin_widths[k]),
        )

    def variance_within_bins(self, kernel: Any, spread: Floats) -> Floats:
        """Prior variance midway between known points a bin's width apart, along each input."""
        out = np.zeros(len(self))
        if self._within is None:
            return out
        for k, part in enumerate(kernel.parts):
            width = np.sqrt(12 * self._within[:, k])
            half, whole = (
                part.covariance(np.zeros(1), width * factor)[0] / part.std**2
                for factor in (0.5, 1.0)
            )
            out += np.maximum(1 - 2 * half**2 / (1 + whole), 0.0) * (width > 0)
        return out * np.asarray(kernel.diagonal(self.points))

    def bin_shift(self, kernel: Any, dual: Floats, weight: Floats, spread: Floats) -> BinShift:
        """Estimate from differences of the posterior mean over the spread of the bins."""
        bias, rest, noise = np.zeros(len(self)), np.zeros(len(self)), np.zeros(len(self))
        if self._within is None:
            return BinShift(bias, 0.0, 0.0)
        mean = self.kernel_sum(kernel, dual)
        middle = mean(self.points)
        for k in (0, 1):
            step = np.zeros(self.points.shape)
            step[:, k] = np.sqrt(self._within[:, k])
            down2, down, up, up2 = (mean(self.points + n * step) for n in (-2, -1, 1, 2))
            noise += ((up - down) / 2) ** 2
            if kernel.order >= 3:
                bias += (up - 2 * middle + down) / 2
                rest += (FOURTH_MOMENT / 24 * (down2 - 4 * (down + up) + 6 * middle + up2)) ** 2
        if kernel.order < 3:
            rest = self.variance_within_bins(kernel, spread)
            noise += rest if kernel.order == 1 else 0.0
        share = weight / weight.sum()
        return BinShift(bias, float(np.sum(share * rest)), float(np.sum(share * noise)))


class SmoothByLevels(TensorCells):
    """Pairs of a value and a level, for a curve of each level less their common curve."""

    are_levels = (False, True)


class LevelPairs(TensorCells):
    """Pairs of levels of two columns."""

    are_levels = (True, True)


@dataclass(frozen=True)
class PairSum:
    """The functions x ↦ k(x, points) @ vector of several vectors (r, n_cells)."""

    cells: TensorCells
    kernel: CentredProduct
    vectors: Floats

    @cached_property
    def _tables(self) -> Floats:
        """The vectors by values of the first input and of the second, (r, n_first, n_second)."""
        (first, rows), (second, columns) = self.cells._values
        out = np.zeros((len(self.vectors), len(first), len(second)))
        out[:, rows, columns] = self.kernel.std**2 * self.vectors
        return out

    def __call__(self, inputs: Floats) -> Floats:
        """Values at inputs, (n,)."""
        out = np.zeros((len(inputs), 1))
        self.add_to(np.asarray(inputs), out)
        return out[:, 0]

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs to ``out`` (n_inputs, r)."""
        (first, rows), (second, columns) = self.cells._values
        left = self.kernel.factor(0, inputs[:, 0], first)
        right = self.kernel.factor(1, inputs[:, 1], second)
        n_vectors, n_cells = self.vectors.shape
        if n_cells * (n_vectors + _PER_CELL) > len(first) * len(second) * n_vectors:
            for r, table in enumerate(self._tables):
                out[:, r] += np.einsum("ik,ik->i", left @ table, right)
            return
        # Most pairs of values are not cells: sum cell by cell, for some inputs at a time.
        weights = self.kernel.std**2 * self.vectors.T
        step = max(_AT_ONCE // max(n_cells, 1), 1)
        for start in range(0, len(inputs), step):
            part = slice(start, start + step)
            out[part] += (left[part][:, rows] * right[part][:, columns]) @ weights


def _least(weight: Floats) -> float:
    """A negligible weight for cells that have none, as these need a mean too."""
    return max(float(weight.max(initial=0.0)) * 1e-12, np.finfo(float).tiny)
