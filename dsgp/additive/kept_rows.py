"""Codes of all rows, kept in memory or in a temporary zarr store, block after block."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dsgp.additive.block_sums import UNWEIGHTED, CodedRows, codes_type
from dsgp.rows.coding import TermCut
from dsgp.rows.table import BLOCK
from dsgp.scratch import Scratch
from dsgp.terms import Floats


class KeptRows:
    """Codes of all rows, in memory or on disk, their weights and other numbers."""

    def __init__(
        self,
        cuts: list[TermCut],
        n_rows: int,
        weighted: bool,
        on_disk: bool,
        keep: tuple[str, ...],
    ) -> None:
        self.folder = Scratch("codes") if on_disk else None
        self.n = 0
        shape, kind = (len(cuts), n_rows), codes_type(cuts)
        self.codes: Any = (
            np.empty(shape, dtype=kind)
            if self.folder is None
            else zarr.create_array(
                self.folder.path / "codes.zarr",
                shape=shape,
                chunks=(max(len(cuts), 1), BLOCK),
                dtype=np.dtype(kind).name,
                compressors=None,
            )
        )
        self.weight = np.empty(n_rows) if weighted else UNWEIGHTED
        self._numbers = {name: np.empty(n_rows) for name in keep}
        self._multipliers = {
            d: np.empty(n_rows) for d, cut in enumerate(cuts) if cut.term.multiplier is not None
        }

    def append(self, coded: CodedRows) -> None:
        """Keep the rows of the next block."""
        rows = slice(self.n, self.n + coded.codes.shape[1])
        self.codes[:, rows] = coded.codes
        if len(self.weight):
            self.weight[rows] = coded.weight
        for name, values in coded.numbers.items():
            self._numbers[name][rows] = values
        for d, z in coded.multipliers.items():
            self._multipliers[d][rows] = z
        self.n = rows.stop

    def multipliers(self) -> dict[int, Floats]:
        """Return the multipliers of terms that have some, of all rows."""
        return {d: z[: self.n] for d, z in self._multipliers.items()}

    def numbers(self) -> dict[str, Floats]:
        """Return the numbers kept, of all rows."""
        return {name: values[: self.n] for name, values in self._numbers.items()}

    def finished(self, filled: list[NDArray[np.bool_]], weight_scale: float) -> tuple[Any, Floats]:
        """Renumber the codes, so that empty bins are no points."""
        kind = self.codes.dtype
        missing = np.iinfo(kind).max
        moves: list[NDArray[Any] | None] = []
        for kept in filled:
            # The last entry is where a missing input goes, and so does an empty bin.
            move = np.full(len(kept) + 1, missing, dtype=kind)
            move[:-1][kept] = np.arange(kept.sum())
            moves.append(None if kept.all() else move)
        if not all(kept.all() for kept in filled):
            for start in range(0, self.n, BLOCK):
                rows = slice(start, min(start + BLOCK, self.n))
                block = np.asarray(self.codes[:, rows])
                for d, renumbered in enumerate(moves):
                    if renumbered is not None:
                        block[d] = renumbered[np.minimum(block[d], len(renumbered) - 1)]
                self.codes[:, rows] = block
        weight = self.weight[: self.n] / weight_scale
        if self.folder is None:
            return self.codes[:, : self.n], weight
        return _RowsOnDisk(self.codes, self.n, self.folder), weight


class _RowsOnDisk:
    """The first rows of codes on disk, which go with the folder when nobody needs them."""

    def __init__(self, codes: Any, n_rows: int, folder: Any) -> None:
        self.codes, self.shape, self.folder = codes, (codes.shape[0], n_rows), folder
        self.dtype = codes.dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[Any]:
        terms, rows = key
        start, stop, _ = rows.indices(self.shape[1])
        return np.asarray(self.codes[terms, start:stop])
