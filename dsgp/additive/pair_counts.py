"""Sums of the weights of rows by the pairs of their codes on two axes, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from dsgp.jit.sketch import count_pairs
from dsgp.terms import Floats


class PairCounts:
    """A table of two axes that rows are added to, dense or sparse.

    Rows whose code on an axis is the length of that axis (they have no value there) are left out.

    Parameters
    ----------
    shape : (int, int)
        Lengths of the axes.
    is_sparse : bool

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.additive.pair_counts import PairCounts
    >>> counts = PairCounts((2, 3), is_sparse=False)
    >>> counts.add(np.array([0, 1, 1]), np.array([2, 0, 3]), np.array([0.5, 2.0, 1.0]))
    >>> counts.table()
    array([[0. , 0. , 0.5],
           [2. , 0. , 0. ]])
    """

    def __init__(self, shape: tuple[int, int], *, is_sparse: bool) -> None:
        self.shape = shape
        self._dense = None if is_sparse else np.zeros(shape)
        self._entries: list[tuple[Floats, NDArray[np.int32], NDArray[np.int32]]] = []

    def add(self, first: NDArray[np.integer], second: NDArray[np.integer], weight: Floats) -> None:
        """Add rows with codes on the two axes, and weights; those of length 0 are ones."""
        if self._dense is not None:
            count_pairs(first, second, weight, self._dense)
            return
        seen = (first < self.shape[0]) & (second < self.shape[1])
        rows, columns = (codes[seen].astype(np.int32) for codes in (first, second))
        self._entries.append((weight[seen] if len(weight) else np.ones(len(rows)), rows, columns))

    def table(self) -> Any:
        """Return the sums, as an array or as a ``csr_array``."""
        if self._dense is not None:
            return self._dense
        nothing = (np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32))
        entries = self._entries or [nothing]
        values, rows, columns = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        return coo_array((values, (rows, columns)), self.shape).tocsr()
