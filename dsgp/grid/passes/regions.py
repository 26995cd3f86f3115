"""Boxes of cells of a field: which regions blocks of a given shape make, and how large to make one.

Numbers only: nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

Region = tuple[slice, ...]


def n_blocks(shape: Sequence[int], block: Sequence[int]) -> tuple[int, ...]:
    """Count the blocks along each axis; the last ones may be cut off."""
    return tuple(-(-n // b) for n, b in zip(shape, block, strict=True))


def region(index: int, shape: Sequence[int], block: Sequence[int]) -> Region:
    """Return the region of one block, counted in C order.

    Examples
    --------
    >>> from dsgp.grid.passes.regions import region
    >>> region(3, shape=(5, 4), block=(2, 2))
    (slice(2, 4, None), slice(2, 4, None))
    """
    slices = []
    for n, b, count in zip(shape[::-1], block[::-1], n_blocks(shape, block)[::-1], strict=True):
        index, k = divmod(index, count)
        slices.append(slice(k * b, min(k * b + b, n)))
    return tuple(slices[::-1])


def regions(shape: Sequence[int], block: Sequence[int]) -> Iterator[Region]:
    """Yield every region, in C order."""
    for index in range(math.prod(n_blocks(shape, block))):
        yield region(index, shape, block)


def pieces(within: Region, block: Sequence[int]) -> Iterator[Region]:
    """Yield the parts of a region that lie in one block each, whatever the region's bounds."""
    first = [part.start // b for part, b in zip(within, block, strict=True)]
    last = [-(-part.stop // b) for part, b in zip(within, block, strict=True)]
    counts = [stop - start for start, stop in zip(first, last, strict=True)]
    for index in range(math.prod(counts)):
        slices = []
        for part, b, start, count in list(zip(within, block, first, counts, strict=True))[::-1]:
            index, k = divmod(index, count)
            at = (start + k) * b
            slices.append(slice(max(at, part.start), min(at + b, part.stop)))
        yield tuple(slices[::-1])


def relative(part: Region, whole: Region) -> Region:
    """Return a region's place within a larger one."""
    return tuple(
        slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, whole, strict=True)
    )


def lengths(part: Region) -> tuple[int, ...]:
    """Return the shape of a region."""
    return tuple(p.stop - p.start for p in part)


def shrunk(length: int, at_most: int) -> int:
    """Return a divisor of a length, unless even the best is below half of what is allowed."""
    at_most = max(min(at_most, length), 1)
    for divisor in range(at_most, (at_most + 1) // 2, -1):
        if length % divisor == 0:
            return divisor
    return at_most


def filled(shape: Sequence[int], unit: Sequence[int], cells: float) -> tuple[int, ...]:
    """Choose a block of about ``cells`` cells, in whole units where they fit.

    Parameters
    ----------
    shape : sequence of int
        Of the axes that are cut.
    unit : sequence of int
        What is best kept whole along each of them.
    cells : float
        Largest number, unless a single cell per axis is more.

    Returns
    -------
    tuple of int
        The last axes are the first to be whole: they lie together in memory.

    Examples
    --------
    >>> from dsgp.grid.passes.regions import filled
    >>> filled((1024, 1024), unit=(1, 1), cells=65536)
    (64, 1024)
    >>> filled((512,), unit=(64,), cells=32)
    (32,)
    """
    block = [min(u, n) for u, n in zip(unit, shape, strict=True)]
    for axis, length in enumerate(block):
        excess = math.prod(block) / cells
        if excess > 1:
            block[axis] = shrunk(length, int(length / excess))
    for axis in reversed(range(len(block))):
        n, step = shape[axis], block[axis]
        most = max(min(int(cells / math.prod(block)) * step, n), step)
        parts = -(-n // most)  # of equal size, so that no thin part is left at the end
        even = -(-n // parts)
        block[axis] = min(-(-even // step) * step, n)
    return tuple(block)
