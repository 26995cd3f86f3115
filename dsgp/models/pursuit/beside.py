"""Terms that stay additive beside projections: levels, dates, and columns that a user names.

Directions are searched for in the residuals of these terms, and the terms are fitted together with
the functions of the projections that were found, alternately, until the contributions of the terms
settle.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern
from dsgp.models.gaussian.target import sample_of_rows
from dsgp.models.pursuit.projections import Projections
from dsgp.models.rows.columns import plain_terms
from dsgp.models.term import FittedTerm
from dsgp.pursuit.levels import Prepared
from dsgp.rows.response import OFFSET
from dsgp.rows.sources import MappedSource, Rows, Source, ViewedSource
from dsgp.terms import BoundTerm, Floats

# Largest number of searches for directions, and the change of the terms' contribution, in standard
# deviations of the noise, at which they end: its square adds 0.25 % to the noise variance.
ROUNDS, SETTLED = 4, 0.05
# Change from which there is a warning.
_UNSETTLED = 0.2


@dataclass(frozen=True)
class Beside:
    """Which columns are projected, and what the others are.

    Attributes
    ----------
    projected : tuple of str
    terms : list of BoundTerm
        Their kernels in the user's units.
    """

    projected: tuple[str, ...]
    terms: list[BoundTerm] = field(default_factory=list)

    @classmethod
    def nothing(cls, source: Source) -> Beside:
        """Return that all columns of a source are projected."""
        return cls(tuple(source.names))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the terms read."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.columns))

    def all_terms(self, kernel: Matern) -> list[BoundTerm]:
        """Return the terms, and a smooth function of every other projected column."""
        others = [name for name in self.projected if name not in self.columns]
        return [*self.terms, *plain_terms(dict.fromkeys(others, kernel))]

    def of(self, terms: list[FittedTerm]) -> list[FittedTerm]:
        """Return those of fitted terms that are beside the projections."""
        names = {term.name for term in self.terms}
        return [term for term in terms if term.name in names]

    def projected_source(
        self, source: Source, prepared: Prepared, projections: Projections
    ) -> MappedSource:
        """Return the rows of a source with projections as columns, and what the terms read."""
        names = tuple(source.names)
        used = [names.index(self.projected[j]) for j in prepared.standard.varying]
        others = [names.index(name) for name in self.columns]
        count = len(projections.directions)
        return MappedSource(
            source,
            (*(f"projection {m + 1}" for m in range(count)), *self.columns),
            _Project(used, others, projections),
        )


@dataclass(frozen=True)
class _Project:
    """From all columns of a source to projections and others; it travels to workers."""

    used: list[int]
    others: list[int]
    projections: Projections

    def __call__(self, columns: list[Floats]) -> list[Floats]:
        along = self.projections([columns[j] for j in self.used])
        return [*along, *(columns[j] for j in self.others)]


@dataclass(frozen=True)
class TermSum:
    """The contribution of fitted terms to rows of a source; it travels to workers.

    Attributes
    ----------
    names : tuple of str
        Columns of the rows.
    terms : list of FittedTerm
    """

    names: tuple[str, ...]
    terms: list[FittedTerm]

    def __call__(self, columns: list[Floats]) -> Floats:
        """Return the sum of the centred terms, (n,); a term gives nothing where it has no input."""
        by_name = dict(zip(self.names, columns, strict=True))
        total = np.zeros(len(columns[0]))
        for term in self.terms:
            inputs = term.bound.joined(term.bound.read(by_name))
            seen = ~term.cells.is_missing(inputs)
            total[seen] += term.mean(inputs[seen])
            total -= term.centre
        return total

    def change(self, before: TermSum, source: Source) -> float:
        """Root mean square of the change of the sum, over some rows of a source."""
        rows = sample_of_rows(source, source.names)
        if not len(rows):
            return 0.0
        change = self(rows.columns) - before(rows.columns)
        return float(np.sqrt(np.average(change**2, weights=rows.weight)))


def left_by(source: Source, beside: Beside, contribution: TermSum) -> Source:
    """Return the projected columns of a source, with the target less what terms contribute."""
    return _view(source, beside, contribution, as_offset=False)


def offset_by(source: Source, beside: Beside, contribution: TermSum) -> Source:
    """Return the projected columns of a source, with what terms contribute added to the offset."""
    return _view(source, beside, contribution, as_offset=True)


def _view(source: Source, beside: Beside, contribution: TermSum, *, as_offset: bool) -> Source:
    positions = [source.names.index(name) for name in beside.projected]
    view = _Less(positions, contribution, as_offset)
    return ViewedSource(source, beside.projected, view, (OFFSET,) if as_offset else ())


@dataclass(frozen=True)
class _Less:
    """Rows with projected columns only, and what terms contribute subtracted; it travels."""

    positions: list[int]
    contribution: TermSum
    as_offset: bool

    def __call__(self, rows: Rows) -> Rows:
        columns = [rows.columns[j] for j in self.positions]
        if not self.contribution.terms:
            shift = np.zeros(len(rows))
        else:
            shift = self.contribution(rows.columns)
        if self.as_offset:
            extra = {**rows.extra, OFFSET: rows.extra.get(OFFSET, 0.0) + shift}
            return replace(rows, columns=columns, extra=extra, n_rows=len(rows))
        assert rows.y is not None
        return replace(rows, columns=columns, y=rows.y - shift, n_rows=len(rows))


def warn_unless_settled(change: float) -> None:
    """Warn of terms that still moved in the last round; called by what ``fit``s call."""
    if change > _UNSETTLED:
        warnings.warn(
            f"the terms beside the projections still moved by {change:.2g} of the noise's "
            f"standard deviation in the last of {ROUNDS} searches: the rows hardly determine "
            "which part of the target belongs to these terms and which to the projections",
            ConvergenceWarning,
            stacklevel=4,
        )
