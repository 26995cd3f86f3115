"""The first pass over rows that stream: what values every column and the target have.

It sketches every column; sketches merge in any order, so that bins do not depend on how the rows
come. The second pass is in `dsgp.additive.streaming`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import over_chunks
from dsgp.errors import DataError
from dsgp.memory import held
from dsgp.rows.coded import Extremes
from dsgp.rows.encode import Sketch
from dsgp.rows.sources import Rows, Source
from dsgp.terms import Floats


@dataclass(frozen=True)
class Survey:
    """What the first pass finds out about the rows of positive weight.

    Attributes
    ----------
    sketches : list of Sketch
        Of every column.
    target : Sketch
    lengths : list of int
        Rows of every chunk.
    levels : dict of int to ndarray
        Distinct values, increasing, of the columns whose distinct values are all needed.
    n_missing : ndarray of int, shape (n_columns,)
        Rows in which each column is missing.
    extremes : list of Extremes
        Of every column, and of the target.
    """

    sketches: list[Sketch]
    levels: dict[int, Floats]
    target: Sketch
    lengths: list[int]
    n_missing: NDArray[np.int64]
    extremes: list[Extremes]

    @property
    def n_rows(self) -> int:
        """All rows, those without weight too."""
        return sum(self.lengths)

    def __sizeof__(self) -> int:
        return held(vars(self))

    def merge(self, other: Survey) -> Survey:
        """Put two parts together."""
        return Survey(
            [a.merge(b) for a, b in zip(self.sketches, other.sketches, strict=True)],
            {j: np.union1d(values, other.levels[j]) for j, values in self.levels.items()},
            self.target.merge(other.target),
            self.lengths + other.lengths,
            self.n_missing + other.n_missing,
            [a.merge(b) for a, b in zip(self.extremes, other.extremes, strict=True)],
        )


def survey(
    source: Source,
    watch: Callable[[int], None] = lambda rows: None,
    levels: Sequence[int] = (),
) -> Survey:
    """Read all rows once.

    Parameters
    ----------
    source : Source
    levels : sequence of int
        Positions of the columns whose distinct values are all needed.
    watch : callable
        Called with the number of rows read so far.

    Raises
    ------
    DataError
        If there is no row of positive weight, or as the source says.
    """
    watch(0)
    total: Survey | None = None
    for part in over_chunks(source.chunks(), partial(_survey, tuple(levels)), "sketch"):
        total = part if total is None else total.merge(part)
        watch(total.n_rows)
    if total is None or total.n_rows == 0:
        raise DataError("the table is empty: 0 sample(s) (rows); at least 1 is required")
    if not len(total.target.values):
        raise DataError("sample_weight is zero in every row; at least one row must count")
    return total


def _survey(levels: tuple[int, ...], rows: Rows) -> Survey:
    assert rows.y is not None
    kept = of_positive_weight(rows)
    missing = np.array([np.count_nonzero(np.isnan(column)) for column in kept.columns])
    assert kept.y is not None
    return Survey(
        [Sketch.of(column) for column in kept.columns],
        {j: np.unique(kept.columns[j][~np.isnan(kept.columns[j])]) for j in levels},
        Sketch.of(kept.y),
        [len(rows)],
        missing,
        [Extremes().add(values) for values in (*kept.columns, kept.y)],
    )


def of_positive_weight(rows: Rows) -> Rows:
    """Return the rows that count."""
    if rows.weight is None or (rows.weight > 0).all():
        return rows
    kept = rows.weight > 0
    assert rows.y is not None
    return replace(
        rows,
        columns=[column[kept] for column in rows.columns],
        y=rows.y[kept],
        weight=rows.weight[kept],
        n_rows=int(kept.sum()),
        extra={name: values[kept] for name, values in rows.extra.items()},
    )
