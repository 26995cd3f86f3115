"""Columns of a source as the inputs of terms."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from dsgp.additive.survey import Survey
from dsgp.errors import DataWarning
from dsgp.kernels import CentredProduct, Kernel
from dsgp.rows.coding import placed, with_margins
from dsgp.rows.encode import Sketch
from dsgp.rows.sources import MappedSource, Source
from dsgp.terms import BoundTerm, Floats, Input

# Largest number of different whole numbers that may stand for levels.
_FEW_CODES = 20


@dataclass(frozen=True)
class TermRows:
    """Rows of a source as the inputs of terms.

    Attributes
    ----------
    column_source : Source
        Of the columns.
    terms : list of BoundTerm
    """

    column_source: Source
    terms: list[BoundTerm]

    @cached_property
    def source(self) -> Source:
        """Its columns are the inputs of all terms, one after the other."""
        plain = tuple(term.name for term in self.terms if term.is_plain)
        if len(plain) == len(self.terms) and plain == tuple(self.column_source.names):
            return self.column_source
        names = tuple(
            f"{term.name}: {term_input.column}" for term in self.terms for term_input in term.inputs
        )
        read = partial(_inputs_of, tuple(self.column_source.names), tuple(self.terms))
        return MappedSource(self.column_source, names, read)

    @cached_property
    def parts(self) -> list[slice]:
        """Where the inputs of each term are among the columns."""
        ends = np.cumsum([0, *(len(term.inputs) for term in self.terms)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    @property
    def levels(self) -> list[int]:
        """Positions of inputs that are levels."""
        return [
            part.start + k
            for term, part in zip(self.terms, self.parts, strict=True)
            for k, term_input in enumerate(term.inputs)
            if term_input in term.level_inputs
        ]

    def column(self, position: int) -> str:
        """Return the column of an input."""
        return [term_input.column for term in self.terms for term_input in term.inputs][position]

    def what(self, position: int) -> str:
        """Name an input for messages."""
        return f"input column {self.column(position)!r}"

    def is_number(self, position: int) -> bool:
        """Whether an input is a column of numbers as it is."""
        term_input = [each for term in self.terms for each in term.inputs][position]
        as_it_is = term_input == Input(term_input.column) and position not in self.levels
        kind = self.column_source.kinds.get(term_input.column)
        return as_it_is and (kind is None or kind.is_number)

    def with_terms(self, terms: list[BoundTerm]) -> TermRows:
        """Return the same rows for other terms."""
        return replace(self, terms=terms)


def _inputs_of(
    names: tuple[str, ...], terms: tuple[BoundTerm, ...], columns: list[Floats]
) -> list[Floats]:
    by_name = dict(zip(names, columns, strict=True))
    return [values for term in terms for values in term.read(by_name)]


def plain_terms(kernels: Mapping[str, Kernel]) -> list[BoundTerm]:
    """Return a function of each column of numbers."""
    return [BoundTerm.of_column(name, kernel) for name, kernel in kernels.items()]


def varies(term: BoundTerm, n_cells: int, multiplier: Floats | None) -> bool:
    """Whether the value of a term can differ between rows."""
    if isinstance(term.kernel, CentredProduct) and term.kernel.margins:
        return all(len(margin.points) > 1 for margin in term.kernel.margins)
    if multiplier is not None:
        return bool(np.ptp(multiplier) > 0) or (n_cells > 1 and bool(multiplier.any()))
    return n_cells > 1


def warn_of_codes_as_multiplier(term: BoundTerm, values: Floats) -> None:
    """Warn of a column that a function is multiplied by, if it seems to hold levels.

    ``values`` are its distinct values.
    """
    is_code = 2 < len(values) <= _FEW_CODES and (values == np.floor(values)).all()
    if term.family != "constant" and is_code and term.multiplier is not None:
        warnings.warn(
            f"term {term.name!r}: input column {term.multiplier.column!r} holds {len(values)} "
            "different whole numbers, by which the function is multiplied; if they stand for "
            "levels, convert them to text or a category, for one function per level",
            DataWarning,
            stacklevel=2,
        )


def placed_by_rows(term: BoundTerm, columns: dict[str, Floats], weight: Floats | None) -> BoundTerm:
    """Centre a straight line, or an interaction, at the rows of its columns."""
    if term.other is not None:
        sketches = zip(term.inputs, map(Sketch.of, term.read(columns)), strict=True)
        return with_margins(term, dict(sketches))
    if term.family != "constant" or term.multiplier is None:
        return term
    values = columns[term.multiplier.column]
    seen = ~np.isnan(values)
    if not seen.any():
        return term
    shares = None if weight is None else weight[seen]
    location = float(np.average(values[seen], weights=shares))
    spread = float(np.sqrt(np.average((values[seen] - location) ** 2, weights=shares)))
    return placed(term, location, spread)


def missing_of(rows: TermRows, surveyed: Survey) -> dict[str, int]:
    """Count missing values of the columns that terms read."""
    columns = [term_input.column for term in rows.terms for term_input in term.inputs]
    if not columns:
        columns = list(rows.source.names)
    return {
        name: int(count) for name, count in zip(columns, surveyed.n_missing, strict=True) if count
    }
