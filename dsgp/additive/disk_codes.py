"""Codes of rows in a temporary zarr store."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dsgp.rows.table import BLOCK
from dsgp.scratch import Scratch


class DiskCodes:
    """Codes (n_terms, n_rows) on disk, deleted when no longer used; sliced as an array is."""

    def __init__(self, codes: Any, n_rows: int, folder: Scratch) -> None:
        self._codes, self._folder = codes, folder
        self.shape, self.dtype = (codes.shape[0], n_rows), codes.dtype

    @classmethod
    def empty(cls, shape: tuple[int, int], dtype: Any) -> DiskCodes:
        """Make room for codes."""
        folder = Scratch("codes")
        codes = zarr.create_array(
            folder.path / "codes.zarr",
            shape=shape,
            chunks=(max(shape[0], 1), BLOCK),
            dtype=np.dtype(dtype).name,
            compressors=None,
        )
        return cls(codes, shape[1], folder)

    def first(self, n_rows: int) -> DiskCodes:
        """Return the codes of the first rows."""
        return DiskCodes(self._codes, n_rows, self._folder)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[Any]:
        terms, rows = key
        start, stop, _ = rows.indices(self.shape[1])
        return np.asarray(self._codes[terms, start:stop])

    def __setitem__(self, key: tuple[slice, slice], codes: NDArray[Any]) -> None:
        self._codes[key] = codes
