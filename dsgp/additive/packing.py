"""Tables of counts made small on their way to other processes, and back, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

_INTEGERS = (np.uint8, np.uint16, np.uint32)


def packed(table: Any) -> Any:
    """Return a dense table of whole numbers from 0 as integers, and any other as it is.

    Examples
    --------
    >>> from dsgp.additive.packing import packed, unpacked
    >>> counts = np.array([[3.0, 0.0], [250.0, 1.0]])
    >>> packed(counts).dtype, unpacked(packed(counts)).dtype
    (dtype('uint8'), dtype('float64'))
    """
    if issparse(table) or not table.size:
        return table
    most = table.max()
    for integers in _INTEGERS:
        if most <= np.iinfo(integers).max:
            if np.signbit(table).any():  # also of −0, which integers do not have
                return table
            small = table.astype(integers)
            return small if np.array_equal(small, table) else table
    return table


def unpacked(table: Any) -> Any:
    """Undo ``packed``."""
    return table if issparse(table) or table.dtype == np.float64 else table.astype(np.float64)
