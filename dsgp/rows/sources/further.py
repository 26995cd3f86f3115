"""Rows that come after those of a fit: the same columns, and levels that may be new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.sources.kinds import (
    NUMBER,
    Categories,
    Dates,
    Kind,
    Wanted,
    merged_levels,
)
from dsgp.rows.sources.mapped import MappedSource
from dsgp.rows.sources.memory import listed
from dsgp.rows.sources.rows import Source
from dsgp.rows.sources.stream import source_of
from dsgp.terms import Codes, Floats


@dataclass(frozen=True)
class Further:
    """Further rows, and the kinds of the columns of all rows with these.

    Attributes
    ----------
    source : Source
        Its columns are those requested, in that order; levels have the numbers of ``kinds``.
    kinds : dict of str to Kind
        Kinds of the columns that are not numbers.
    moves : dict of str to ndarray of int
        For columns with new levels: the new number of each level, and of a missing one at the end.
    """

    source: Source
    kinds: dict[str, Kind]
    moves: dict[str, Codes]


def further_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    names: Sequence[str],
    needed: Sequence[str],
    named: bool,
    kinds: Mapping[str, Kind],
    missing: str,
    missing_values: Sequence[float],
) -> Further:
    """Describe further rows of the table that a model was fitted to.

    Parameters
    ----------
    X, y, sample_weight, missing, missing_values
        As for ``source_of``.
    names : sequence of str
        Columns that the fit was given.
    needed : sequence of str
        Those whose values are wanted.
    named : bool
        Whether the names came with the data; columns without are taken by their positions.
    kinds : mapping of str to Kind
        What they held.

    Raises
    ------
    DataError
        As for ``source_of``; and if columns are absent or hold something else than in the fit.
    """
    levels = {name: kind.missing for name, kind in kinds.items() if isinstance(kind, Categories)}
    source = source_of(
        X,
        y,
        sample_weight,
        missing=missing,
        missing_values=missing_values,
        wanted=Wanted(levels, tuple(needed) if named else None, kinds, "the model reads"),
    )
    found = tuple(source.names)
    if named and not source.named:
        raise DataError(
            f"the model was fitted to columns with names, {listed(needed)}, and the new rows have "
            "none: pass a data frame"
        )
    if not named and len(found) != len(names):
        raise DataError(
            f"the model was fitted to {len(names)} columns, and the new rows have {len(found)}"
        )
    places = [(found if named else tuple(names)).index(name) for name in needed]
    known, moves = dict(kinds), {}
    to: dict[int, NDArray[Any]] = {}
    undated: dict[int, str] = {}
    for position, (name, place) in enumerate(zip(needed, places, strict=True)):
        what, before = f"input column {name!r}", kinds.get(name, NUMBER)
        now = source.kinds.get(found[place], NUMBER)
        if isinstance(before, Dates) and now.is_number:
            undated[position] = _unlike(what, before, now)
            continue
        _require_alike(what, before, now)
        if isinstance(before, Categories) and isinstance(now, Categories):
            merged = merged_levels(what, [np.array(k.names, dtype=object) for k in (before, now)])
            to[position] = _numbers(now.names, merged)
            if merged != before.names:
                known[name] = replace(before, names=merged)
                moves[name] = _numbers(before.names, merged)
    read = partial(_read, places, to, undated)
    return Further(MappedSource(source, tuple(needed), read), known, moves)


def _numbers(levels: Sequence[Any], among: Sequence[Any]) -> Codes:
    """Number of each level among others, and of a missing one."""
    index = {level: number for number, level in enumerate(among)}
    return np.array([*(index[level] for level in levels), len(among)], dtype=np.int64)


def _read(
    places: Sequence[int],
    to: Mapping[int, Codes],
    undated: Mapping[int, str],
    columns: list[Floats],
) -> list[Floats]:
    """Read the columns that are needed, with the numbers of the levels.

    A column of dates without any date has no type that says so: where ``undated`` has a message, a
    value is an error.
    """
    out = []
    for position, place in enumerate(places):
        values = columns[place]
        if position in undated and not np.isnan(values).all():
            raise DataError(undated[position])
        if position in to:
            seen = ~np.isnan(values)
            values = values.copy()
            values[seen] = to[position][values[seen].astype(np.int64)]
        out.append(values)
    return out


def _require_alike(what: str, before: Kind, now: Kind) -> None:
    """Raise ``DataError`` if the kind of a column has changed."""
    if type(before) is not type(now):
        raise DataError(_unlike(what, before, now))
    if isinstance(before, Dates) and isinstance(now, Dates) and before.zone != now.zone:
        zones = ["no time zone" if k.zone is None else f"time zone {k.zone}" for k in (before, now)]
        raise DataError(
            f"{what} had {zones[0]} when the model was fitted, and has {zones[1]} in the new rows: "
            "make both alike, e.g. by tz_localize or tz_convert"
        )


def _unlike(what: str, before: Kind, now: Kind) -> str:
    return (
        f"{what} held {_named(before)} when the model was fitted, and holds {_named(now)} in the "
        "new rows: convert it"
    )


def _named(kind: Kind) -> str:
    return "dates" if kind.is_date else "numbers" if kind.is_number else "levels"
