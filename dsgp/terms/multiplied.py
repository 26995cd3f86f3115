"""A function times a column: varying coefficients, random slopes, and straight lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsgp.terms.base import (
    BinShift,
    Cells,
    Codes,
    Floats,
    Function,
    Neighbours,
    Observations,
    Posterior,
    Scale,
    Solver,
    Sum,
)


class MultipliedCells(Cells):
    """Cells of a function that is multiplied by a number in each row, the last of its inputs.

    At the cells themselves the number is 1.

    Parameters
    ----------
    inner : Cells
        Of the function.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Independent
    >>> from dsgp.terms import LevelCells, MultipliedCells
    >>> slopes = MultipliedCells(LevelCells(np.array([0.0, 1.0])))
    >>> slopes.kernel_sum(Independent(2.0), np.array([1.0, 3.0]))(np.array([[1.0, 10.0]]))
    array([60.])
    """

    def __init__(self, inner: Cells) -> None:
        self.inner = inner
        inner_points = inner.points if inner.points.ndim == 2 else inner.points[:, None]
        self.points = np.column_stack([inner_points, np.ones(len(inner_points))])

    def _inner_inputs(self, inputs: Floats) -> Floats:
        """Inputs of the function itself."""
        inner_inputs = inputs[:, :-1]
        return inner_inputs[:, 0] if self.inner.points.ndim == 1 else inner_inputs

    # ------------------------------------------------------------------ algebra at the cells

    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        return self.inner.prior(kernel, self._inner_inputs(x), self._inner_inputs(y)) * np.outer(
            x[:, -1], y[:, -1]
        )

    @property
    def pieces(self) -> list[tuple[slice, Cells]]:
        return self.inner.pieces

    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        return self.inner.prior_by_log(kernel, name)

    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        return self.inner.multiply(kernel, vector)

    def multiply_each(self, kernel: Any, vectors: Floats) -> Floats:
        return self.inner.multiply_each(kernel, vectors)

    def solver(self, kernel: Any, weight: Floats) -> Solver:
        return self.inner.solver(kernel, weight)

    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        return self.inner.likelihood_terms(kernel, seen)

    def posterior(self, kernel: Any, seen: Observations) -> Posterior:
        return replace(self.inner.posterior(kernel, seen), cells=self)

    def complexity(self, kernel: Any, weight: Floats) -> Callable[[float], tuple[float, float]]:
        return self.inner.complexity(kernel, weight)

    def sample(self, kernel: Any, random: np.random.Generator) -> Floats:
        return self.inner.sample(kernel, random)

    # ------------------------------------------------------------------ anywhere

    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        return _Times(self, self.inner.kernel_sum(kernel, vector), 1)

    def kernel_sums(self, kernel: Any, vectors: Floats) -> Sum:
        return _TimesSums(self, self.inner.kernel_sums(kernel, vectors))

    def variance_function(self, kernel: Any, weight: Floats) -> Function:
        return _Times(self, self.inner.variance_function(kernel, weight), 2)

    def prior_variance(self, kernel: Any, inputs: Floats) -> Floats:
        return self.inner.prior_variance(kernel, self._inner_inputs(inputs)) * inputs[:, -1] ** 2

    def multipliers(self, inputs: Floats) -> Floats | None:
        return inputs[:, -1]

    def is_missing(self, inputs: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.isnan(inputs).any(axis=1))

    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        inner, codes, new = self.inner.with_inputs(self._inner_inputs(inputs))
        return type(self)(inner), codes, new

    # ------------------------------------------------------------------ fewer cells

    def subset(self, chosen: Sequence[int] | Codes) -> Cells:
        return type(self)(self.inner.subset(chosen))

    def bins(self, weight: Floats, n_bins: int) -> Codes:
        return self.inner.bins(weight, n_bins)

    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Cells, Floats]:
        inner, spreads = self.inner.merged(bin_of_cell, weight, spread)
        return type(self)(inner), spreads

    def fewest_bins(self) -> int:
        return self.inner.fewest_bins()

    def chosen(self, weight: Floats, number: int) -> Codes:
        return self.inner.chosen(weight, number)

    def nodes(self, weight: Floats, number: int) -> Codes:
        return self.inner.nodes(weight, number)

    def interpolation(self, nodes: Codes) -> Floats | None:
        return self.inner.interpolation(nodes)

    def interpolated(self, values: Floats, others: Cells) -> Floats:
        assert isinstance(others, MultipliedCells)
        return self.inner.interpolated(values, others.inner)

    def state_bytes(self, kernel: Any) -> float:
        return self.inner.state_bytes(kernel)

    # ------------------------------------------------------------------ resolution and search

    def scale(self, weight: Floats) -> Scale | None:
        return self.inner.scale(weight)

    def slopes(self, values: Floats) -> Floats | None:
        return self.inner.slopes(values)

    def variance_within_bins(self, kernel: Any, spread: Floats) -> Floats:
        return self.inner.variance_within_bins(kernel, spread)

    def bin_shift(self, kernel: Any, dual: Floats, weight: Floats, spread: Floats) -> BinShift:
        return self.inner.bin_shift(kernel, dual, weight, spread)

    @property
    def has_levels(self) -> bool:
        return self.inner.has_levels and len(self.inner) > 1

    def is_known(self, inputs: Floats) -> NDArray[np.bool_]:
        return self.inner.is_known(self._inner_inputs(inputs))

    @property
    def n_curves(self) -> int:
        return self.inner.n_curves

    @property
    def is_interpolated(self) -> bool:
        return self.inner.is_interpolated

    @property
    def is_diagonal(self) -> bool:
        return self.inner.is_diagonal

    @property
    def neighbours(self) -> Neighbours | None:
        return self.inner.neighbours

    @property
    def line(self) -> Floats | None:
        return self.inner.line


@dataclass(frozen=True)
class _Times:
    """A function of the inner inputs times a power of the multiplier."""

    cells: MultipliedCells
    function: Function
    power: int

    def __call__(self, inputs: Floats) -> Floats:
        """Values at inputs, (n,)."""
        inputs = np.asarray(inputs)
        return self.function(self.cells._inner_inputs(inputs)) * inputs[:, -1] ** self.power


@dataclass(frozen=True)
class _TimesSums:
    """Several such functions."""

    cells: MultipliedCells
    sums: Sum

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs to ``out`` (n_inputs, r)."""
        inner_sums = np.zeros_like(out)
        self.sums.add_to(self.cells._inner_inputs(inputs), inner_sums)
        out += inner_sums * inputs[:, -1:]
