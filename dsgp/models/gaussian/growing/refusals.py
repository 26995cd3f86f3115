"""What further rows must not be, and what is counted of them whatever the cells are."""

from __future__ import annotations

from dsgp.errors import DataError
from dsgp.models.gaussian.rows import Constant

REMEDY = "fit the model again, on all rows"


def still_constant(before: list[Constant], further: list[Constant]) -> list[Constant]:
    """Return the ends of inputs that did not vary and still do not; refuse such as now do."""
    together = [one.merged(other) for one, other in zip(before, further, strict=True)]
    for one in together:
        if one.varies:
            columns = " and ".join(repr(name) for name in one.term.columns)
            raise DataError(
                f"term {one.term.name!r}: input column {columns} did not vary in the rows that the "
                f"model was fitted to, and has other values in the new ones, so that the model has "
                f"no function of it that could be updated: {REMEDY}"
            )
    return together


def added_counts(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Add up the numbers of rows in which columns are missing."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in {**counts, **more}}
