"""Rows of a class against all others, for fits of functions of projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import over_chunks
from dsgp.laplace.rows import ResponseRows
from dsgp.models.laplace.rows import Responses
from dsgp.models.laplace.softmax import row_weights
from dsgp.rows.sources import Rows, Source
from dsgp.rows.table import RowTable
from dsgp.terms import Floats


@dataclass(frozen=True)
class OneClass:
    """Rows of a class against all others; it travels to workers.

    Attributes
    ----------
    code : int
        Of the class; targets are codes of classes.
    factors : ndarray of shape (n_classes,)
        Of the weights of the rows of each class.
    """

    code: int
    factors: Floats

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows with targets 0 and 1."""
        assert rows.y is not None
        target, weight = self._seen(rows.y, rows.weight)
        return replace(rows, y=target, weight=weight, n_rows=len(rows))

    def responses(self, responses: Responses) -> Responses:
        """Return prepared rows for a likelihood with targets 0 and 1."""
        rows = responses.rows
        target, weight = self._seen(rows.y, rows.weight if len(rows.weight) else None)
        weight = np.empty(0) if weight is None else weight
        return replace(responses, rows=replace(rows, y=target, weight=weight))

    def _seen(self, y: Floats, weight: Floats | None) -> tuple[Floats, Floats | None]:
        if not (self.factors == 1.0).all():
            factors = self.factors[y.astype(np.intp)]
            weight = factors if weight is None else weight * factors
        return (y == self.code).astype(np.float64), weight


def class_totals(source: Source, n_classes: int) -> Floats:
    """Sum of the weights of each class, (n_classes,)."""
    count = partial(_class_totals, n_classes)
    return np.sum(list(over_chunks(source.chunks(), count, "classes")), axis=0)


def _class_totals(n_classes: int, rows: Rows) -> NDArray[np.float64]:
    assert rows.y is not None
    return np.bincount(rows.y.astype(np.intp), rows.weight, n_classes).astype(np.float64)


def class_factors(
    totals: Floats, class_weight: Mapping[Any, float] | str | None, classes: Any
) -> Floats:
    """What the weights of the rows of each class are multiplied by, (n_classes,).

    ``totals`` are the sums of their weights.
    """
    codes = np.arange(len(totals), dtype=np.float64)
    table = RowTable((), (), np.empty((0, len(totals)), np.uint16))
    # One row per class represents all of its rows.
    rows = Responses((), False, [], [], ResponseRows(table, codes, totals), None, False, {}, "y")
    return row_weights(rows, class_weight, classes).rows.weight / totals
