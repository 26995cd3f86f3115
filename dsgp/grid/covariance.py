"""Sums of separable covariances on a grid: products with them, tables for compiled loops, draws.

Axes of up to ``LONG`` points have dense matrices; longer ones go through the state-space engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import run
from dsgp.errors import ParameterError
from dsgp.grid.points import amplitude
from dsgp.grid.products import kron_mvprod
from dsgp.grid.scattered import Cross, sums_along, sums_at
from dsgp.jit.sampler import simulate
from dsgp.jit.vecchia import Tables
from dsgp.kernels import Matern, Stationary
from dsgp.terms import Axis, Floats

# Number of points of an axis beyond which its dense matrix is not made (128 MB at this size).
LONG = 4096
# Relative tolerance within which steps count as the same lag.
_EQUISPACED = 1e-9
_SECONDS_A_POINT = 2e-8  # for a product by state-space passes


@dataclass(frozen=True, eq=False)
class SeparableSum:
    """The covariance Σ_c Π_d k_cd(x_d, x'_d) on the grid of some axes.

    Parameters
    ----------
    points : sequence of D ndarrays of shape (G_d,)
        Strictly ascending.
    terms : sequence of C sequences of D kernels
        The amplitude of a term is the product of its kernels' variances.
    direct : bool
        ``tables`` leaves out axes whose kernels are all Matérn: these are evaluated pair by pair.

    Raises
    ------
    ParameterError
        If an axis of more than 4096 points has a kernel without a state-space form.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.covariance import SeparableSum
    >>> from dsgp.kernels import Matern32
    >>> unit = Matern32(lengthscale=1.0, variance=1.0)
    >>> prior = SeparableSum((np.arange(2.0), np.arange(2.0)), ((unit, unit),))
    >>> prior.multiply(np.eye(2)).round(4)
    array([[1.2336, 0.9667],
           [0.9667, 1.2336]])
    """

    points: tuple[Floats, ...]
    terms: tuple[tuple[Stationary, ...], ...]
    direct: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "points", tuple(np.asarray(axis_points, float) for axis_points in self.points)
        )
        object.__setattr__(self, "terms", tuple(tuple(term) for term in self.terms))
        for term in self.terms:
            for d, kernel in enumerate(term):
                if len(self.points[d]) > LONG and not isinstance(kernel, Matern):
                    raise ParameterError(
                        f"axis {d} has {len(self.points[d])} points, more than {LONG}, and the "
                        f"kernel {kernel!r}; expected a Matérn kernel on so long an axis"
                    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the grid."""
        return tuple(len(axis_points) for axis_points in self.points)

    @property
    def variance(self) -> float:
        """Prior variance at every cell."""
        return float(sum(amplitude(term) for term in self.terms))

    def multiply(self, grid: Floats) -> Floats:
        """Return the covariance times a vector on the grid, as such a one (G_1, …, G_D)."""
        total: Any = None
        for term, matrices in zip(self.terms, self._matrices, strict=True):
            product: Any = kron_mvprod(matrices, grid)
            for d, matrix in enumerate(matrices):
                if matrix is None:
                    product = along(
                        _multiplied(self.points[d], term[d]), product, d, len(self.points[d])
                    )
            total = product if total is None else np.add(total, product, out=total)
        return total

    def cross(self, points: Sequence[Floats], grid: Floats) -> Floats:
        """Return the covariance of another grid with this one, times a vector on this one."""
        total: Any = None
        for term in self.terms:
            product: Any = kron_mvprod(
                [
                    None if len(axis_points) > LONG else kernel.covariance(new, axis_points)
                    for kernel, axis_points, new in zip(term, self.points, points, strict=True)
                ],
                grid,
            )
            for d, axis_points in enumerate(self.points):
                if len(axis_points) > LONG:
                    product = along(
                        _evaluated(axis_points, term[d], points[d]), product, d, len(points[d])
                    )
            total = product if total is None else np.add(total, product, out=total)
        return total

    def cross_at(self, points: Sequence[Floats], together: Sequence[int], grid: Floats) -> Floats:
        """Return the covariance of points with this grid, times a vector on it, (n, H_o, …).

        Parameters
        ----------
        points : sequence of D ndarrays
            (n,) along the axes that go ``together``, (H_d,) along the others.
        together : sequence of int
        grid : ndarray of shape (G_1, …, G_D)
        """
        longest = max(together, key=lambda d: len(self.points[d]))
        total: Any = None
        for term in self.terms:
            crosses: list[Cross | None] = [
                _crossed(kernel, axis_points)
                for kernel, axis_points in zip(term, self.points, strict=True)
            ]
            product: Any = grid
            for d, axis_points in enumerate(self.points):
                if len(axis_points) > LONG and d not in together:
                    product = along(
                        _evaluated(axis_points, term[d], points[d]), product, d, len(points[d])
                    )
                    crosses[d] = None
            if len(self.points[longest]) > LONG:
                rows = np.ascontiguousarray(np.moveaxis(product, longest, -1))
                product = sums_along(
                    _summed(self.points[longest], term[longest], rows.reshape(-1, rows.shape[-1])),
                    # Without such axes, the grid has its targets already.
                    [cross or (lambda new: np.eye(len(new))) for cross in crosses],
                    points,
                    together,
                    longest,
                    product.shape,
                    _SECONDS_A_POINT * len(self.points[longest]),
                )
            else:
                product = sums_at(crosses, points, together, product)
            total = product if total is None else np.add(total, product, out=total)
        return total

    def sample(self, random: np.random.Generator) -> Floats:
        """Draw the field on the grid from the prior."""
        total = np.zeros(self.shape)
        for term, roots in zip(self.terms, self._roots, strict=True):
            long = [d for d, root in enumerate(roots) if root is None]
            orders = [term[d].order for d in long]
            draw = random.standard_normal((*self.shape, *orders))
            for d in long:
                draw = _simulated(self.points[d], term[d], draw, d, len(self.shape))
            total += kron_mvprod(roots, draw)
        return total

    @cached_property
    def _roots(self) -> list[list[Floats | None]]:
        return [
            [None if matrix is None else _root(matrix) for matrix in row] for row in self._matrices
        ]

    @cached_property
    def _matrices(self) -> list[list[Floats | None]]:
        return [
            [
                None if len(axis_points) > LONG else kernel.covariance(axis_points)
                for kernel, axis_points in zip(term, self.points, strict=True)
            ]
            for term in self.terms
        ]

    def tables(self) -> Tables:
        """Return covariances and their derivatives by log lengthscale for compiled loops."""
        shape = (len(self.terms), len(self.points))
        start = np.zeros(shape, dtype=np.int64)
        rate = np.zeros(shape)
        polynomial, slopes = np.zeros((*shape, 4)), np.zeros((*shape, 5))
        strides = [
            -1 if self.direct and all(isinstance(term[d], Matern) for term in self.terms)
            else _stride(axis_points)
            for d, axis_points in enumerate(self.points)
        ]  # fmt: skip
        values, rises = [], []
        length = 0
        for c, term in enumerate(self.terms):
            for d, (kernel, axis_points) in enumerate(zip(term, self.points, strict=True)):
                start[c, d] = length
                if strides[d] < 0:
                    assert isinstance(kernel, Matern)
                    variance = float(kernel.variance or 0.0)
                    rate[c, d] = kernel.rate
                    polynomial[c, d, : kernel.order] = kernel.coefficients
                    slopes[c, d, : kernel.order + 1] = kernel.slope_coefficients
                    polynomial[c, d] *= variance
                    slopes[c, d] *= variance
                    continue
                if strides[d] == 0:
                    value = kernel.covariance(axis_points[:1], axis_points).ravel()
                    rise = kernel.by_log_lengthscale(axis_points[:1], axis_points).ravel()
                else:
                    value = _by_lag(kernel.covariance(axis_points))
                    rise = _by_lag(kernel.by_log_lengthscale(axis_points))
                values.append(value)
                rises.append(rise)
                length += len(value)
        direct = [
            axis_points if stride < 0 else axis_points[:0]
            for axis_points, stride in zip(self.points, strides, strict=True)
        ]
        origin = np.cumsum([0, *(len(axis_points) for axis_points in direct[:-1])]).astype(np.int64)
        return Tables(
            value=np.concatenate([*values, np.zeros(1)]),
            slope=np.concatenate([*rises, np.zeros(1)]),
            start=start,
            stride=np.array(strides, dtype=np.int64),
            points=np.concatenate([*direct, np.zeros(1)]),
            origin=origin,
            rate=rate,
            polynomial=polynomial,
            slope_polynomial=slopes,
        )

    def by_lag(self, d: int, lags: NDArray[np.integer]) -> list[Floats]:
        """Correlations of every term along one axis at a typical distance of so many steps."""
        axis_points = self.points[d]
        step = float(np.median(np.diff(axis_points))) if len(axis_points) > 1 else 1.0
        return [
            term[d].with_parameters(variance=1.0).covariance([0.0], np.abs(lags) * step).ravel()
            for term in self.terms
        ]


def along(function: Callable[[Floats], Floats], grid: Floats, d: int, size: int) -> Floats:
    """Apply a function of vectors, to vectors of some size, to every fibre along one axis."""
    fibres = np.ascontiguousarray(np.moveaxis(grid, d, -1))
    rows = fibres.reshape(math.prod(fibres.shape[:-1]), fibres.shape[-1])
    done = run(
        [partial(function, row) for row in rows],
        seconds=_SECONDS_A_POINT * rows.size,
        in_place=True,
    )
    out = np.array(done).reshape(*fibres.shape[:-1], size)
    return np.ascontiguousarray(np.moveaxis(out, -1, d))


def _multiplied(axis_points: Floats, kernel: Stationary) -> Callable[[Floats], Floats]:
    axis = Axis(axis_points)
    return lambda row: axis.multiply(kernel, row)  # type: ignore[arg-type]


def _evaluated(axis_points: Floats, kernel: Stationary, new: Floats) -> Callable[[Floats], Floats]:
    axis = Axis(axis_points)
    return lambda row: axis.kernel_sum(kernel, row)(new)  # type: ignore[arg-type]


def _crossed(kernel: Stationary, axis_points: Floats) -> Cross:
    return lambda new: kernel.covariance(new, axis_points)


def _summed(
    axis_points: Floats, kernel: Stationary, rows: Floats
) -> Callable[[int, Floats], Floats]:
    axis = Axis(axis_points)
    return lambda j, new: axis.kernel_sum(kernel, rows[j])(new)  # type: ignore[arg-type]


def _simulated(
    axis_points: Floats, kernel: Stationary, normal: Floats, d: int, state: int
) -> Floats:
    """Draw fibres along a long axis from normals, which have an axis ``state`` for the states."""
    assert isinstance(kernel, Matern)
    step = Axis(axis_points).step
    fibres = np.ascontiguousarray(np.moveaxis(normal, (d, state), (-2, -1)))
    out = np.empty(fibres.shape[:-1])
    no_states = np.empty((0, 0))
    dynamics = kernel.inverse_factorials, kernel.stationary_covariance(), kernel.rate
    run(
        [
            partial(simulate, *dynamics, step, row, to, no_states, no_states)
            for row, to in zip(
                fibres.reshape(-1, *fibres.shape[-2:]),
                out.reshape(-1, len(axis_points)),
                strict=True,
            )
        ],
        seconds=_SECONDS_A_POINT * fibres.size,
        in_place=True,
    )
    return np.ascontiguousarray(np.moveaxis(out, -1, d))


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _stride(axis_points: Floats) -> int:
    """Layout of the table of an axis; see ``Tables``."""
    steps = np.diff(axis_points)
    if len(axis_points) < 3 or np.ptp(steps) <= _EQUISPACED * steps.mean():
        return 0
    return len(axis_points) if len(axis_points) <= LONG else -1


def _by_lag(matrix: Floats) -> Floats:
    """Rows i of a symmetric matrix from their diagonal on, each in a row of full length."""
    n = len(matrix)
    out = np.zeros((n, n))
    for i in range(n):
        out[i, : n - i] = matrix[i, i:]
    return out.ravel()
