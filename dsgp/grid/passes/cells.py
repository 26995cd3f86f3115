"""Cells of a field on disk: their axes, which of them have values, and which are to be filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dsgp.errors import DataError
from dsgp.grid.axes import GridAxis, axes_of
from dsgp.grid.coded import report_blanks, report_codes
from dsgp.grid.domain import hull_of, say, several_steps, times_of
from dsgp.grid.passes.regions import regions
from dsgp.grid.passes.source import StoredField
from dsgp.rows.coded import Extremes


def axes_on_disk(whole: StoredField, units: Any) -> tuple[GridAxis, ...]:
    """Return the axes of a field on disk.

    Raises
    ------
    DataError
        If an axis has its first point again at its end.
    """
    with whole.open(decode_times=True, decode_timedelta=True, decode_coords=True) as opened:
        axes = axes_of(opened[whole.variable], units)
    for axis in axes:
        if axis.repeated:
            raise DataError(
                f"dim {axis.name!r} repeats its first point at its end, one period later; expected "
                "each point once in a store: write the store without it, "
                f"ds.isel({axis.name}=slice({'1, None' if axis.descending else 'None, -1'}))"
            )
    return axes


def cells_with_values(source: StoredField, axes: Sequence[GridAxis]) -> tuple[Any, int]:
    """Return which cells of a stored field have a value at any time, in its order, and how many.

    Raises and warns where numbers stand for missing values, as ``Field.of`` does.
    """
    times = times_of(axes)
    inside = np.zeros([1 if d in times else n for d, n in enumerate(source.shape)], dtype=bool)
    count, blanks, extremes = 0, Counter[str](), Extremes()
    for region in regions(source.shape, source.piece()):
        values = source.read_stored(region, blanks)
        extremes.add(values)
        there = ~np.isnan(values)
        count += int(there.sum())
        place = tuple(slice(0, 1) if d in times else part for d, part in enumerate(region))
        inside[place] |= there.any(axis=times, keepdims=True) if times else there
    report_blanks(blanks, count, source.variable)
    report_codes(extremes, source.variable, is_chosen=False)
    return inside, count


def domain_on_disk(choice: str | None, ever: Any, axes: Sequence[GridAxis]) -> Any:
    """Return the cells to output, in the order of the store; None: all."""
    observed = choice == "observed" or several_steps([len(axis) for axis in axes], axes)
    if choice is None or (choice == "observed" and not times_of(axes)):
        return None
    if choice == "hull" or not observed:
        turned = tuple(slice(None, None, -1 if axis.descending else None) for axis in axes)
        domain, observed = hull_of(ever[turned], axes)[turned], False
    else:
        domain = ever
    if choice == "auto":
        say(ever, domain, observed)
    return domain
