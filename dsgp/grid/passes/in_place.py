"""Products along the axes of an array in place, block by block: a region is in memory only once.

The blocks are of a size at which a matrix product runs at the machine's full speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Results of a block of this size wait beside the array until their place is free.
BLOCK_BYTES = 2**23
# A product with fewer columns than this is slow; with the block transposed, it has fast rows
# instead.
_FEW = 64


def rotate(x: Floats, matrix: Floats, axis: int) -> None:
    """Multiply an array along one axis by a square matrix, in place.

    Parameters
    ----------
    x : ndarray of shape (n_0, n_1, …), C-contiguous
    matrix : ndarray of shape (n_axis, n_axis)
        The new x along the axis is ``matrix @ x``.
    axis : int

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.passes.in_place import rotate
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> rotate(x, np.array([[0.0, 1.0], [1.0, 0.0]]), axis=0)
    >>> x
    array([[3., 4.],
           [1., 2.]])
    """
    n = x.shape[axis]
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    cells = max(BLOCK_BYTES // 8, n)
    if after == 1:
        rows = _view(x, (before, n))
        for some in _steps(before, cells // n):
            rows[some] = rows[some] @ matrix.T
        return
    planes = _view(x, (before, n, after))
    if after < _FEW:
        for some in _steps(before, max(cells // (n * after), 1)):
            turned = planes[some].transpose(0, 2, 1).reshape(-1, n) @ matrix.T
            planes[some] = turned.reshape(-1, after, n).transpose(0, 2, 1)
    elif n * after <= cells:
        for some in _steps(before, cells // (n * after)):
            planes[some] = matrix @ planes[some]
    else:
        for plane in planes:
            for some in _steps(after, max(cells // n, _FEW)):
                plane[:, some] = matrix @ plane[:, some]


def shrink(x: Floats, eigenvalues: Sequence[Floats], noise_variance: float) -> None:
    """Multiply by λ / (λ + σ²), in place; λ is the outer product of the axes' eigenvalues."""
    for part, values in _eigenvalues(x, eigenvalues):
        part *= values
        values += noise_variance
        part /= values


def fill_variances(x: Floats, eigenvalues: Sequence[Floats], noise_variance: float) -> None:
    """Write λ σ² / (λ + σ²), the posterior variance in the eigenbasis, into an array."""
    for part, values in _eigenvalues(x, eigenvalues):
        np.multiply(values, noise_variance, out=part)
        values += noise_variance
        part /= values


def _eigenvalues(x: Floats, eigenvalues: Sequence[Floats]):  # type: ignore[no-untyped-def]
    """Yield parts of an array and the eigenvalues there."""
    split = x.ndim - 1
    while split and math.prod(x.shape[split - 1 :]) <= BLOCK_BYTES // 8:
        split -= 1
    first, last = _outer(eigenvalues[:split]), _outer(eigenvalues[split:])
    rows = _view(x, (len(first), len(last)))
    for some in _steps(len(first), max(BLOCK_BYTES // 8 // len(last), 1)):
        yield rows[some], first[some, None] * last


def _outer(vectors: Sequence[Floats]) -> Floats:
    product = np.ones(1)
    for vector in vectors:
        product = np.multiply.outer(product, vector).ravel()
    return product


def _view(x: Floats, shape: tuple[int, ...]) -> Floats:
    view = x.view()
    view.shape = shape  # unlike reshape, this never copies
    return view


def _steps(n: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]
