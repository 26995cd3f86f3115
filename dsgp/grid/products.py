"""Products of a grid with one matrix per axis, and its sums over all axes but one.

Axes are not moved: a pass is one matrix product, or a batch of them, on a reshaped view. Nothing
here depends on covariances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError

Array = NDArray[np.floating[Any]]

# Neighbouring axes are joined up to this many points: a pass over them costs no more than moving
# the grid through the caches (2^20 cells, one core: 1.0 ms with 4 to 16 points, 1.8 with 32).
_JOINED = 16
# A product with fewer columns than this is not worth its call; then the axis before is joined too,
_NARROW, _JOINED_IF_NARROW = 8, 64
# or moved to the end, if its matrix is so large that packing it for every product would cost more.
_SHORT, _LARGE = 32, 256


def kron_mvprod(matrices: Sequence[Array | None], x: Array) -> Array:
    r"""Multiply a vector on a grid by a Kronecker product, never formed.

    .. math:: \alpha = (A_1 \otimes \dots \otimes A_D) \, x

    Algorithm ``alg:kron-mvprod`` without its rotations: :math:`A_d` is applied to axis d where it
    lies. The cost is :math:`N \sum_d G_d` multiplications for N cells; neighbouring axes of a few
    points count as one, so that the 2²⁰ corners of a hypercube take 5 passes rather than 20.

    Parameters
    ----------
    matrices : sequence of D arrays of shape (H_d, G_d), or None
        None skips the axis. Transposed views are not copied.
    x : ndarray of shape (G_1, ..., G_D)
        The product is computed in float32 if x is float32, and in float64 otherwise.

    Returns
    -------
    ndarray of shape (H_1, ..., H_D), in C order
        A new array. With square matrices one more array of its size is needed temporarily.

    Raises
    ------
    DataError
        If the matrices do not fit the grid.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.kronecker import kron_mvprod
    >>> a, b = np.array([[1.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> kron_mvprod([a, b], np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[10.,  7.]])
    >>> np.kron(a, b) @ np.array([1.0, 2.0, 3.0, 4.0])
    array([10.,  7.])
    """
    return multiply(matrices, x, None)


class Workspace:
    """Two grids between which a chain of products alternates; made when first written to."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    def grid(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Array of some shape, to be filled and multiplied; its contents are arbitrary."""
        return self.free(math.prod(shape), np.empty(0, dtype), dtype).reshape(shape)

    def free(self, size: int, occupied: Array, dtype: np.dtype[Any]) -> Array:
        """Flat array of some size that shares nothing with an occupied one."""
        for k in range(len(self._arrays)):
            if not np.may_share_memory(self._arrays[k], occupied):
                if self._arrays[k].size != size or self._arrays[k].dtype != dtype:
                    self._arrays[k] = np.empty(0)  # released before another is allocated
                    self._arrays[k] = np.empty(size, dtype)
                return self._arrays[k]
        fresh: Array = np.empty(size, dtype)
        if len(self._arrays) < 2:
            self._arrays.append(fresh)
        return fresh


def multiply(matrices: Sequence[Array | None], x: Array, workspace: Workspace | None) -> Array:
    """Do ``kron_mvprod`` within a workspace; its other contents, results included, are lost."""
    x = np.asarray(x)
    dtype = np.dtype(np.float32 if x.dtype == np.float32 else np.float64)
    _require_fit(matrices, x)
    shape = tuple(
        size if matrix is None else len(matrix)
        for matrix, size in zip(matrices, x.shape, strict=True)
    )
    groups = _grouped(matrices, x.shape, dtype)
    workspace = Workspace() if workspace is None else workspace
    sizes = [group.columns for group in groups]
    current: Array = np.ascontiguousarray(x, dtype=dtype).ravel()
    # Axes that shrink come first.
    order = sorted(range(len(groups)), key=lambda k: groups[k].rows / groups[k].columns)
    written = False
    for k in order:
        group = groups[k]
        if group.matrix is None:
            continue
        before, after = math.prod(sizes[:k]), math.prod(sizes[k + 1 :])
        out = workspace.free(before * group.rows * after, current, dtype)
        _apply(group.matrix, current.reshape(before, group.columns, after), out)
        current, written = out, True
        sizes[k] = group.rows
    if not written:
        current = current.copy()
    return current.reshape(shape)


def _require_fit(matrices: Sequence[Array | None], x: Array) -> None:
    shapes = [None if matrix is None else matrix.shape for matrix in matrices]
    fit = len(shapes) == x.ndim and all(
        shape is None or (len(shape) == 2 and shape[1] == size)
        for shape, size in zip(shapes, x.shape, strict=True)
    )
    if not fit:
        raise DataError(
            f"a grid of shape {x.shape} needs one matrix per axis with as many columns as the axis "
            f"has points; got matrices of shapes {shapes}"
        )


def _apply(matrix: Array, x: Array, out: Array) -> None:
    """Multiply the middle axis of x (before, columns, after) by a matrix, into a flat array."""
    before, columns, after = x.shape
    rows = len(matrix)
    if after == 1:
        np.matmul(x.reshape(before, columns), matrix.T, out=out.reshape(before, rows))
    elif before > 1 and after < _SHORT and columns >= _LARGE:
        last = np.ascontiguousarray(x.swapaxes(1, 2)).reshape(before * after, columns) @ matrix.T
        out.reshape(before, rows, after)[:] = last.reshape(before, after, rows).swapaxes(1, 2)
    else:
        np.matmul(matrix, x, out=out.reshape(before, rows, after))


# ---------------------------------------------------------------------- joined axes


@dataclass(frozen=True)
class _Group:
    """Neighbouring axes as one; no matrix leaves them alone."""

    matrix: Array | None
    rows: int
    columns: int


def _grouped(
    matrices: Sequence[Array | None], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> list[_Group]:
    """Join small neighbours, the last first, so that all passes but the last have long rows."""
    groups: list[_Group] = []
    for matrix, size in zip(reversed(matrices), reversed(shape), strict=True):
        converted = None if matrix is None else matrix.astype(dtype, copy=False)
        first = _Group(converted, size if converted is None else len(converted), size)
        if groups and (both := _joined(first, groups[-1])) is not None:
            groups[-1] = both
        else:
            groups.append(first)
    return groups[::-1]


def _joined(first: _Group, second: _Group) -> _Group | None:
    """Two neighbours as one, or None if they are better kept separate."""
    rows, columns = first.rows * second.rows, first.columns * second.columns
    a, b = first.matrix, second.matrix
    if a is None and b is None:
        return _Group(None, rows, columns)
    narrow = min(second.rows, second.columns) < _NARROW
    if max(rows, columns) > (_JOINED_IF_NARROW if narrow else _JOINED):
        return None
    a = np.eye(first.rows) if a is None else a
    b = np.eye(second.rows) if b is None else b
    product = a[:, None, :, None] * b[None, :, None, :]
    return _Group(
        product.reshape(rows, columns).astype((a if b is None else b).dtype), rows, columns
    )


# ---------------------------------------------------------------------- all axes but one


def grams(x: Array) -> list[Array]:
    """Inner products of the slices of a grid along every axis.

    Parameters
    ----------
    x : ndarray of shape (G_1, ..., G_D), in C order

    Returns
    -------
    list of D arrays of shape (G_d, G_d)
        The d-th holds Σ x[.., i, ..] x[.., j, ..] over the other axes.
    """
    per_axis: list[Array] = []
    after = x.size
    for axes in _neighbours(x.shape):
        size = math.prod(axes)
        after //= size
        gram = _gram(x.reshape(-1, size, after))
        per_axis += _one_axis_each(
            gram,
            axes,
            lambda m, first: np.trace(
                m.reshape(first, len(m) // first, first, -1), axis1=1, axis2=3
            ),
            lambda m, first: np.trace(
                m.reshape(first, len(m) // first, first, -1), axis1=0, axis2=2
            ),
        )
    return per_axis


def marginals(x: Array, shape: tuple[int, ...]) -> list[Any]:
    """Sums of a grid over all axes but one, for every axis: D arrays of shape (G_d,)."""
    return _one_axis_each(
        x.ravel(),
        shape,
        lambda v, first: v.reshape(first, -1).sum(axis=1),
        lambda v, first: v.reshape(first, -1).sum(axis=0),
    )


def _one_axis_each(
    table: Array,
    axes: tuple[int, ...],
    left: Callable[[Array, int], Any],
    right: Callable[[Array, int], Any],
) -> list[Array]:
    """Halve the axes until one is left; each half costs as little as the other half is large."""
    if len(axes) < 2:
        return [table] if axes else []
    half = len(axes) // 2
    first = math.prod(axes[:half])
    return [
        *_one_axis_each(left(table, first), axes[:half], left, right),
        *_one_axis_each(right(table, first), axes[half:], left, right),
    ]


def _gram(x: Array) -> Array:
    """Σ_lr x[l, i, r] x[l, j, r]."""
    before, size, after = x.shape
    if after == 1:
        x = x.reshape(before, size)
        return np.asarray(x.T @ x)
    if before == 1:
        return np.asarray(x[0] @ x[0].T)
    if after >= size:
        return np.asarray(np.matmul(x, x.swapaxes(1, 2)).sum(axis=0))
    x = np.ascontiguousarray(x.swapaxes(0, 1)).reshape(size, before * after)
    return np.asarray(x @ x.T)


def _neighbours(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Group the sizes of small neighbours."""
    groups: list[tuple[int, ...]] = []
    for size in reversed(shape):
        if groups and size * math.prod(groups[-1]) <= _JOINED:
            groups[-1] = (size, *groups[-1])
        else:
            groups.append((size,))
    return groups[::-1]
