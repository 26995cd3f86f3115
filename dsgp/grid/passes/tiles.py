"""Small parts of a stored field, to learn hyperparameters from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import ParameterError
from dsgp.grid.passes.regions import Region
from dsgp.grid.passes.source import StoredField


def sample_tiles(
    source: StoredField, n: int, size: int | Sequence[int]
) -> list[tuple[Region, NDArray[np.float64]]]:
    """Read small parts of a field to learn from: blocks of neighbours, and one coarse grid.

    Blocks are informative about short lengthscales and the noise, the coarse grid about long ones.
    The same in every call.

    Parameters
    ----------
    source : StoredField
    n : int
        Blocks, spread over the field.
    size : int or sequence of int
        Cells along each axis, of a block and of the coarse grid alike; shorter axes are whole.

    Returns
    -------
    list of (region, values)
        n blocks, and last the coarse grid, whose slices have steps; all in ascending order. The
        coarse grid is not there where a block is the whole field, and neither are more blocks
        than one.

    Raises
    ------
    ParameterError
        If `n` is negative or a size is below 1.
    DataError
        If a value is missing or infinite.
    """
    return [(region, source.read(region)) for region in tile_regions(source.shape, n, size)]


def tile_regions(shape: Sequence[int], n: int, size: int | Sequence[int]) -> list[Region]:
    """Return the parts that ``sample_tiles`` reads; arguments and errors are the same."""
    sizes = [size] * len(shape) if isinstance(size, int) else list(size)
    if n < 0 or len(sizes) != len(shape) or min(sizes) < 1:
        raise ParameterError(
            f"n must be 0 or more and size at least 1 along each of {len(shape)} axes; "
            f"got n={n}, size={size}"
        )
    block = [min(b, length) for b, length in zip(sizes, shape, strict=True)]
    if tuple(block) == shape:
        return [tuple(slice(0, length) for length in shape)]
    return [*_spread(shape, block, n), _coarse(shape, block)]


def _spread(shape: Sequence[int], block: Sequence[int], n: int) -> Iterator[Region]:
    """Yield blocks at the points of an additive recurrence (R_d), which leaves no large holes."""
    root = 2.0
    for _ in range(64):  # x^(D+1) = x + 1
        root = (1 + root) ** (1 / (len(shape) + 1))
    for k in range(1, n + 1):
        starts = [
            int((0.5 + k / root ** (axis + 1)) % 1 * (length - b + 1))
            for axis, (length, b) in enumerate(zip(shape, block, strict=True))
        ]
        yield tuple(slice(start, start + b) for start, b in zip(starts, block, strict=True))


def _coarse(shape: Sequence[int], block: Sequence[int]) -> Region:
    """Return every s-th cell along each axis, about the middle."""
    slices = []
    for n, b in zip(shape, block, strict=True):
        step = -(-n // b)
        count = -(-n // step)
        start = (n - 1 - (count - 1) * step) // 2
        slices.append(slice(start, start + (count - 1) * step + 1, step))
    return tuple(slices)
