"""Digests of training rows, by which they are recognised without their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsgp.additive.survey import of_positive_weight
from dsgp.compute import over_chunks
from dsgp.rows.sources import Rows, Source
from dsgp.terms import Floats

# Number of digests that are kept, the smallest ones. Of any other rows, the same share has digests
# as small.
_KEPT = 256
# Digests are whole numbers that float64 represents exactly.
_BITS = 52
_LIMIT = np.uint64(1 << _BITS)
_Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class RowsSeen:
    """Digests of rows, in any order.

    Attributes
    ----------
    n_rows : int
    total : int
        Sum of all digests, modulo 2⁵².
    smallest : tuple of int
        The smallest ones, ascending.
    """

    n_rows: int
    total: int
    smallest: tuple[int, ...]

    @classmethod
    def of(cls, source: Source, names: tuple[str, ...]) -> Self | None:
        """Digest the rows of a source that count; None of one whose reading would cost a pass."""
        if not source.in_memory:
            return None
        digest = partial(_of_rows, tuple(source.names), names)
        parts = list(over_chunks(source.chunks(), digest, "digest"))
        return cls.of_digests(np.concatenate(parts))

    @classmethod
    def of_digests(cls, digests: Floats) -> Self:
        """Make it of the digests of all rows."""
        hashes = digests.astype(np.uint64)
        total = int(hashes.sum(dtype=np.uint64) % _LIMIT)
        kept = np.sort(hashes)[:_KEPT]
        return cls(len(hashes), total, tuple(map(int, kept)))

    def together(self, other: RowsSeen) -> RowsSeen:
        """Return the digests of both sets of rows together."""
        total = (self.total + other.total) % int(_LIMIT)
        smallest = sorted([*self.smallest, *other.smallest])[:_KEPT]
        return RowsSeen(self.n_rows + other.n_rows, total, tuple(smallest))

    def is_same(self, digests: Floats) -> bool:
        """Return whether rows are exactly these, in any order."""
        other = RowsSeen.of_digests(digests)
        return other.n_rows == self.n_rows and other.total == self.total

    def known(self, digests: Floats) -> tuple[int, int]:
        """Count rows that are among these, and rows that can be recognised."""
        if not self.smallest:
            return 0, 0
        small = digests[digests <= self.smallest[-1]]
        return int(np.isin(small, np.array(self.smallest, dtype=np.float64)).sum()), len(small)

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return {"n_rows": self.n_rows, "total": self.total, "smallest": list(self.smallest)}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Undo ``to_settings``."""
        smallest = tuple(map(int, settings["smallest"]))
        return cls(int(settings["n_rows"]), int(settings["total"]), smallest)


def digests_of(columns: list[Floats], y: Floats) -> Floats:
    """Digest rows of some columns with their targets, (n,): whole numbers below 2⁵²."""
    state = np.zeros(len(y), dtype=np.uint64)
    for values in [*columns, y]:
        # one bit pattern for NaN, and one for 0
        plain = np.where(np.isnan(values), np.nan, values + 0.0)
        state = _mixed(state * np.uint64(31) + plain.view(np.uint64))
    return (state >> np.uint64(64 - _BITS)).astype(np.float64)


def _of_rows(source: tuple[str, ...], names: tuple[str, ...], rows: Rows) -> Floats:
    rows = of_positive_weight(rows)
    assert rows.y is not None
    by_name = dict(zip(source, rows.columns, strict=True))
    return digests_of([by_name[name] for name in names], rows.y)


def _mixed(state: _Hashes) -> _Hashes:
    """Spread differences over all bits (splitmix64, Steele et al. 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
