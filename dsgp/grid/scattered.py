"""Sums over a grid at scattered points: along some axes point by point, along others as a grid.

Blocks of points bound the memory; what is computed does not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import run
from dsgp.grid.products import Array, kron_mvprod
from dsgp.terms import Floats

# Covariances of new points (h,) of one axis with its own, (h, G_d).
Cross = Callable[[Floats], Floats]

# Numbers that a block of points has in memory at a time: 32 MB.
_BLOCK = 2**22
# Points, and fibres, of a block along a long axis.
_POINTS, _FIBRES = 2**16, 64


def squared(cross: Cross) -> Cross:
    """Return a function of the squares."""
    return lambda new: cross(new) ** 2


def sums_at(
    crosses: Sequence[Cross | None],
    points: Sequence[Floats],
    together: Sequence[int],
    grid: Array,
) -> Floats:
    """Return Σ_g Π_d C_d[·, g_d] grid[g], (n, H_o, …).

    Parameters
    ----------
    crosses : sequence of D functions, or None
        None: the grid has its targets along this axis already; not of those that go together.
    points : sequence of D ndarrays
        (n,) along the axes that go together, (H_o,) along the others.
    together : sequence of int
    grid : ndarray of shape (G_1, …, G_D)
    """
    outer = [d for d in range(grid.ndim) if d not in together]
    matrices = [
        cross(points[d]) if d in outer and cross is not None else None
        for d, cross in enumerate(crosses)
    ]
    reduced = kron_mvprod(matrices, grid) if outer else grid
    # The longest axis first: it leaves the least for each point.
    order = sorted(together, key=lambda d: -grid.shape[d])
    sizes = [reduced.shape[d] for d in order]
    shape = tuple(reduced.shape[d] for d in outer)
    moved = np.ascontiguousarray(reduced.transpose([*order, *outer])).reshape(sizes[0], -1)
    n = len(points[order[0]])
    out = np.empty((n, math.prod(shape)))
    step = max(_BLOCK // max(moved.shape[1], sum(sizes)), 1)
    for start in range(0, n, step):
        some = slice(start, min(start + step, n))
        part = _cross(crosses, points, order[0], some) @ moved
        for d, size in zip(order[1:], sizes[1:], strict=True):
            here = _cross(crosses, points, d, some)
            part = np.matmul(here[:, None, :], part.reshape(len(part), size, -1))
        out[some] = part.reshape(len(part), -1)
    return out.reshape(n, *shape)


def _cross(
    crosses: Sequence[Cross | None], points: Sequence[Floats], d: int, some: slice
) -> Floats:
    cross = crosses[d]
    assert cross is not None
    return cross(points[d][some])


def sums_along(
    evaluate: Callable[[int, Floats], Floats],
    crosses: Sequence[Cross],
    points: Sequence[Floats],
    together: Sequence[int],
    long: int,
    shape: Sequence[int],
    seconds: float,
) -> Floats:
    """Return the sums of ``sums_at`` if one of the ``together`` axes is too long for matrices.

    Parameters
    ----------
    evaluate : function of (j, x)
        Sum along the long axis of fibre j, at its new points x.
    crosses : sequence of D functions
        That of the long axis is not called.
    points, together : as for ``sums_at``
    long : int
    shape : sequence of int
        Of the grid; fibres are counted along the other axes, in C order.
    seconds : float
        Work of one fibre, which decides whether threads are worth their cost.
    """
    others = [d for d in range(len(shape)) if d != long]
    n_fibres = math.prod(shape[d] for d in others)
    outer = {d: crosses[d](points[d]) for d in others if d not in together}
    n = len(points[long])
    out = np.zeros((n, math.prod(len(matrix) for matrix in outer.values())))
    for start in range(0, n, _POINTS):
        some = slice(start, min(start + _POINTS, n))
        here = {d: crosses[d](points[d][some]) for d in others if d in together}
        for first in range(0, n_fibres, _FIBRES):
            fibres = np.arange(first, min(first + _FIBRES, n_fibres))
            values = run(
                [partial(evaluate, j, points[long][some]) for j in fibres.tolist()],
                seconds * len(fibres),
                in_place=True,
            )
            index = np.unravel_index(fibres, [shape[d] for d in others])
            columns = dict(zip(others, index, strict=True))
            weights = np.array(values).T
            for d, cross in here.items():
                weights = weights * cross[:, columns[d]]
            out[some] += weights @ _joined([outer[d][:, columns[d]] for d in outer], len(fibres)).T
    return out.reshape(n, *(len(matrix) for matrix in outer.values()))


def _joined(parts: Sequence[Floats], n_columns: int) -> Floats:
    """Products of all rows of some matrices, column by column, (Π H_o, n_columns)."""
    joined = np.ones((1, n_columns))
    for part in parts:
        joined = (joined[:, None, :] * part).reshape(-1, n_columns)
    return joined


def inner_shape(points: Sequence[Floats], together: Sequence[int]) -> tuple[int, ...]:
    """Shape of the sums at points, (n, H_o, …)."""
    outer = (len(axis_points) for d, axis_points in enumerate(points) if d not in together)
    return (len(points[together[0]]), *outer)


def indices(
    flat: NDArray[np.intp], shape: Sequence[int], n_axes: int, together: Sequence[int]
) -> NDArray[np.intp]:
    """Position of targets on each axis' points, (t, D), from those in the flattened (n, H_o, …)."""
    places = np.unravel_index(flat, tuple(shape))
    outer = iter(places[1:])
    return np.stack([places[0] if d in together else next(outer) for d in range(n_axes)], axis=1)
