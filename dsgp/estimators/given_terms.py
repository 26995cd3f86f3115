"""The terms that a user specifies, by ``kernel`` and ``terms`` of an estimator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Independent, Kernel, Matern52, kernel_of
from dsgp.models.pursuit.beside import Beside
from dsgp.rows.sources import Source, Wanted
from dsgp.rows.sources.kinds import NUMBER
from dsgp.terms import BoundTerm, Default, Smooth, Term, parse_term, term_of

# What functions of projections are called.
_PROJECTION = re.compile(r"projection \d+")


@dataclass(frozen=True)
class GivenTerms:
    """What ``kernel`` and ``terms`` of an estimator say, before any column is seen.

    Attributes
    ----------
    default : Kernel
        Of smooth functions without a kernel.
    by_column : dict of str to list of Term
        Terms of single columns; all other columns have one each, by their types.
    listed : list of Term or None
        All terms, where they were listed.
    """

    default: Kernel
    by_column: dict[str, list[Term]]
    listed: list[Term] | None

    @classmethod
    def of(
        cls, kernel: Any, terms: Any, default: Kernel | None = None, *, may_be_empty: bool = False
    ) -> Self:
        """Check and take the parameters; an empty list where there may be no term.

        Raises
        ------
        ParameterError
            If one of them is no kernel or term.
        """
        fallback = Matern52() if default is None else default
        if kernel is not None:
            try:
                fallback = kernel_of(kernel)
            except ParameterError as error:
                raise ParameterError(f"kernel: {error}") from error
            if isinstance(kernel, Term):
                raise ParameterError(f"kernel must be a kernel of dsgp.kernels, got {kernel!r}")
        if terms is None:
            return cls(fallback, {}, None)
        if isinstance(terms, Mapping):
            by_column = {}
            for column, value in terms.items():
                values = value if isinstance(value, (list, tuple)) else [value]
                by_column[column] = [_checked(one, column) for one in values]
            return cls(fallback, by_column, None)
        if isinstance(terms, (list, tuple)):
            listed = [
                parse_term(one) if isinstance(one, str) else _checked(one, None) for one in terms
            ]
            for one in listed:
                one.label  # noqa: B018 - which says so if it names no column
            if not listed and not may_be_empty:
                raise ParameterError("terms is an empty list; None gives every column a term")
            return cls(fallback, {}, listed)
        raise ParameterError(
            "terms must map columns to kernels or terms, e.g. {'age': Matern52(), 'town': "
            f"Levels()}}, or list terms, e.g. [Smooth('age'), Levels('town')], got {terms!r}"
        )

    @property
    def wanted_beside(self) -> Wanted:
        """What is asked of the columns of a table whose other columns are projected."""
        return Wanted(self.wanted.levels)

    def beside(self, source: Source) -> Beside:
        """Return which columns of a source are projected, and the terms of the others.

        Columns that a mapping has terms for are not projected, nor are those that hold no numbers:
        they have terms by their types. A sequence names all terms there are, and the columns that
        they read are not projected.

        Raises
        ------
        ParameterError, DataError
            As ``bound`` does; and if no column is left to project.
        """
        self._require_columns(tuple(source.names))
        named = set(self.by_column)
        named |= {column for term in self.listed or [] for column in term.columns}
        others = [name for name in source.names if name not in named]
        projected = [name for name in others if source.kinds.get(name, NUMBER).is_number]
        by_type = [name for name in others if name not in projected]
        asked = self.listed or [*self._of_named(source), *map(Default, by_type)]
        if not projected:
            raise DataError(
                "no column of numbers is left to project; the additive estimators, such as "
                "AdditiveGPRegressor, need no projections"
            )
        if not asked:
            return Beside(tuple(projected))
        terms = replace(self, by_column={}, listed=asked).bound(source)
        for term in terms:
            for name in (term.name, *term.columns):
                if _PROJECTION.fullmatch(name):
                    raise DataError(f"{name!r} is the name of a projection: rename it")
        return Beside(tuple(projected), terms)

    def _of_named(self, source: Source) -> list[Term]:
        """Terms of the columns that a mapping names, with their columns."""
        return [
            term.of_column(name)
            for name in source.names
            if name in self.by_column
            for term in self.by_column[name]
        ]

    @property
    def _all(self) -> list[Term]:
        if self.listed is not None:
            return self.listed
        return [term for terms in self.by_column.values() for term in terms]

    @property
    def wanted(self) -> Wanted:
        """What is asked of the columns of a table."""
        levels: dict[str, str | None] = {}
        for term in self._all:
            for column in term.level_columns:
                levels[column] = getattr(term, "missing", None) or levels.get(column)
        if self.listed is None:
            return Wanted(levels)
        columns = dict.fromkeys(column for term in self.listed for column in term.columns)
        return Wanted(levels, tuple(columns))

    def bound(self, source: Source, priors_count: bool = False) -> list[BoundTerm]:
        """Return the terms of a source, by what its columns hold.

        ``priors_count``: whether the learner uses priors of kernels.

        Raises
        ------
        ParameterError, DataError
            If a column is not there or does not fit its term, or two terms are the same.
        """
        names = tuple(source.names)
        self._require_columns(names)
        specs = self._all if self.listed is not None else self._of_columns(source)
        kinds = {name: source.kinds.get(name, NUMBER) for name in names}
        bound_terms = [term.bind(kinds, self.default) for term in specs]
        twice = [label for label, n in Counter(term.name for term in bound_terms).items() if n > 1]
        if twice:
            raise ParameterError(
                f"two terms are called {twice[0]!r}: if they are not the same, give one a name=, "
                "otherwise leave one out"
            )
        if not priors_count:
            for term in bound_terms:
                require_no_priors(term.kernel, f"term {term.name!r}")
        return bound_terms

    def _require_columns(self, names: tuple[str, ...]) -> None:
        """Raise ``ParameterError`` if a column that is named is absent."""
        if unknown := [column for column in self.by_column if column not in names]:
            raise ParameterError(
                f"terms names {unknown}, which are not among the columns {list(names)}"
            )
        for term in self._all:
            for column in term.columns:
                if column not in names:
                    raise ParameterError(
                        f"{term!r} names {column!r}, which is not among the columns {list(names)}"
                    )

    def _of_columns(self, source: Source) -> list[Term]:
        specs: list[Term] = []
        for name in source.names:
            if name in self.by_column:
                specs += [term.of_column(name) for term in self.by_column[name]]
            else:
                specs.append(Default(name))
        return specs


def _checked(value: Any, column: str | None) -> Term:
    what = "terms" if column is None else f"terms, column {column!r}"
    try:
        made = term_of(value, column)
    except ParameterError as error:
        raise ParameterError(f"{what}: {error}") from error
    if isinstance(made, Smooth) and isinstance(made.kernel, Independent):
        raise ParameterError(f"{what}: Independent is the kernel of Levels(); use that")
    return made


def require_complete(terms: Sequence[BoundTerm]) -> None:
    """Raise ``ParameterError`` unless every kernel is complete (``learner=None``)."""
    for term in terms:
        if missing := term.kernel.missing:
            raise ParameterError(
                f"learner=None keeps the given hyperparameters, but the kernel of term "
                f"{term.name!r}, {term.kernel!r}, has no {' and no '.join(missing)}: give it"
            )


def require_no_priors(kernel: Kernel, what: str) -> None:
    """Raise ``ParameterError`` if a kernel has priors where nothing would use them."""
    if kernel.priors:
        raise ParameterError(
            f"{what}: {kernel!r} has priors, which only learners that maximise a marginal "
            'likelihood use (learner="marginal" and "vbem" of AdditiveGPRegressor without method, '
            'whose draws have HyperPriors, and "marginal" and "independent" of other likelihoods): '
            "leave them out"
        )
