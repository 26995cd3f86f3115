"""Columns that a fit was given, with which a table to predict is matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsgp.rows.sources import Kind, Source


@dataclass(frozen=True)
class Columns:
    """Names and kinds of columns.

    Attributes
    ----------
    names : tuple of str
    named : bool
        Whether the names came with the data.
    kinds : mapping of str to Kind
        Of the columns that are no numbers.
    """

    names: tuple[str, ...]
    named: bool
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> Columns:
        """Return those of a source."""
        kinds = {name: kind for name, kind in source.kinds.items() if not kind.is_number}
        return cls(tuple(source.names), source.named, kinds)
