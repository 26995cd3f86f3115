"""What all estimators of tables share: columns, blocks of rows, lazy answers, saving."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataWarning, ParameterError, UnseenLevelsWarning
from dsgp.estimators.reported import Reported
from dsgp.estimators.saved import Saved
from dsgp.models.base import FittedModel
from dsgp.models.columns import Columns
from dsgp.models.noise import VaryingNoise
from dsgp.rows.sources import Rows, is_lazy, map_table, matching_source
from dsgp.terms import Floats

# What is asked of some rows: arrays of as many numbers. Called by several threads.
Answer = Callable[[Rows], list[Floats]]
# Takes some rows and the number of the first, and raises ``DataError`` where they will not do.
Check = Callable[[Rows, int], None]


class Prepares(Protocol):
    """A fitted model, whatever it answers."""

    def prepare(self, with_std: bool) -> None:
        """Make once what all tasks of a prediction share."""


class TableEstimator(Reported, Saved, BaseEstimator):
    """An estimator of tables; it holds a fitted model, ``model_``, and asks it row by row.

    A ``fit`` ends with ``_take_columns`` and sets ``model_``. A class says in ``_rows_model`` whose
    columns a prediction needs.
    """

    # A parameter of the estimator.
    missing: str

    model_: Prepares

    # Why no rows can be added to a fitted model.
    _no_update = (
        "the weight of a row depends on f, so that sums over the rows so far do not stay valid"
    )

    def update(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        relearn: bool = False,
        half_life: float | None = None,
        elapsed: float | None = None,
    ) -> Self:
        """Refuse: rows are added to an ``AdditiveGPRegressor`` or a ``SmoothingSpline`` only.

        Raises
        ------
        ParameterError
            Always, with the reason.
        """
        raise ParameterError(
            f"{type(self).__name__} cannot be updated: {self._no_update}; fit it again, on all "
            "rows (AdditiveGPRegressor is updated from sums)"
        )

    @property
    def _rows_model(self) -> FittedModel:
        """The fitted f that names the columns which a prediction depends on."""
        raise NotImplementedError

    # ------------------------------------------------------------------ columns

    def _take_columns(self, columns: Columns) -> None:
        """Take over the columns that a fit was given."""
        self._columns = columns
        self.n_features_in_ = len(columns.names)
        if columns.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """Columns that a prediction depends on; a table to predict needs no others."""
        check_is_fitted(self)
        beside = () if self._noise is None else self._noise.columns
        return tuple(dict.fromkeys([*self._rows_model.used_columns, *beside]))

    @property
    def _noise(self) -> VaryingNoise | None:
        """What the noise variance depends on, where it varies."""
        return None

    def _rows_of(
        self, X: Any, extra: Mapping[str, Any] | None = None
    ) -> Iterator[Callable[[], Rows]]:
        """Chunks of a table to predict, with the columns that are used."""
        needed = self.used_columns_
        chunks = matching_source(
            X,
            self._columns.names,
            needed,
            self._columns.named,
            type(self).__name__,
            self.missing,
            extra=extra,
            missing_values=getattr(self, "missing_values", ()),  # pursuit has none
            kinds=self._columns.kinds,
        ).chunks()
        return (partial(self._loaded, needed, load) for load in chunks)

    def _loaded(self, names: tuple[str, ...], load: Callable[[], Rows]) -> Rows:
        """Rows with the columns of f, and beside them those of the noise."""
        return self._as_read(names, load())

    def _as_read(self, names: tuple[str, ...], rows: Rows) -> Rows:
        """Rows of some columns as the model reads them."""
        if self._noise is None:
            return rows
        by_name = dict(zip(names, rows.columns, strict=True))
        columns = [by_name[name] for name in self._rows_model.used_columns]
        return self._noise.beside(replace(rows, columns=columns, n_rows=len(rows)), by_name)

    def _loaded_rows(self, X: Any, extra: Mapping[str, Any] | None = None) -> list[Rows]:
        """Rows of a table to predict, chunk by chunk."""
        return [load() for load in self._rows_of(X, extra)]

    # ------------------------------------------------------------------ answers, row by row

    def _answers(
        self,
        X: Any,
        answer: Answer,
        n_columns: int,
        *,
        with_std: bool,
        extra: Mapping[str, Any] | None = None,
        check: Check | None = None,
    ) -> Any:
        """Evaluate something row by row: a table, lazy where X is.

        Parameters
        ----------
        X : table
        answer : callable
            Takes some rows; returns ``n_columns`` arrays. Called for blocks of rows, by several
            threads.
        n_columns : int
        with_std : bool
            Whether it needs variances.
        extra : mapping, optional
            Offsets, exposures or trials of the rows, as for ``source_of``.
        check : callable, optional

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            A dask array where X is a dask collection.
        """
        check_is_fitted(self)
        function = partial(self._answer_table, answer, n_columns, with_std, check)
        if is_lazy(X):
            if with_std:
                self.model_.prepare(with_std=True)  # not in every block
            return map_table(X, function, n_columns, extra)
        return function(X, extra)

    def _answer_table(
        self,
        answer: Answer,
        n_columns: int,
        with_std: bool,
        check: Check | None,
        X: Any,
        extra: Mapping[str, Any] | None = None,
    ) -> Floats:
        blocks: list[Floats] = []
        gaps = np.zeros(len(self._rows_model.used_columns), dtype=int)
        unseen = np.zeros(len(self._rows_model.names), dtype=int)
        for load in self._rows_of(X, extra):
            rows = load()
            gaps += _gaps_of(rows)
            unseen += self._rows_model.unseen(rows)
            if check is not None:
                check(rows, sum(map(len, blocks)))
            blocks.append(self._answer_rows(rows, answer, n_columns, with_std))
        self._report_gaps(gaps, sum(map(len, blocks)), stacklevel=5)
        self._report_unseen(unseen, sum(map(len, blocks)), stacklevel=5)
        return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def _answer_rows(self, rows: Rows, answer: Answer, n_columns: int, with_std: bool) -> Floats:
        out = np.empty((n_columns, len(rows)))

        def block(part: slice) -> None:
            for column, values in zip(out, answer(rows.part(part)), strict=True):
                column[part] = values

        self.model_.prepare(with_std)
        self._rows_model.by_blocks(block, len(rows), with_std)
        return out.T

    # ------------------------------------------------------------------ what rows lack

    def _report_rows(self, rows: Rows) -> None:
        """Warn of missing inputs and unseen levels in all rows to predict."""
        self._report_gaps(_gaps_of(rows), len(rows), stacklevel=4)
        self._report_unseen(self._rows_model.unseen(rows), len(rows), stacklevel=4)

    def _report_gaps(self, gaps: NDArray[np.intp], n_rows: int, stacklevel: int) -> None:
        """Warn of inputs that are missing, in so many rows each, and never were in training."""
        centres: dict[str, float] = {}
        for term in self._rows_model.terms:
            for name in term.bound.columns:
                centres[name] = centres.get(name, 0.0) + term.centre
        for name, count in zip(self._rows_model.used_columns, gaps, strict=True):
            if count and name in centres and name not in self._missing_in_training:
                warnings.warn(
                    f"input column {name!r} is missing in {count} of {n_rows} rows to predict, "
                    "and was never missing in training, so the model knows nothing about rows "
                    "without it: its function is taken as 0 there, which is "
                    f"{-centres[name]:+.3g} relative to the function's mean over the training "
                    "rows; fill the value, or train on rows without it, too",
                    DataWarning,
                    stacklevel=stacklevel,
                )

    @property
    def _missing_in_training(self) -> Mapping[str, int]:
        """Rows in which a column was missing."""
        raise NotImplementedError

    def _report_unseen(self, unseen: NDArray[np.intp], n_rows: int, stacklevel: int) -> None:
        """Warn of levels that no training row had."""
        terms = self._rows_model.terms
        if unseen[len(terms) :].any():  # of columns that only a remainder reads
            warnings.warn(
                f"the remainder: {unseen[-1]} of {n_rows} rows to predict have a level that no "
                "training row had; it is as far from all other levels as they are from each other",
                DataWarning,
                stacklevel=stacklevel,
            )
        for term, count in zip(terms, unseen, strict=False):
            if count:
                message = (
                    f"term {term.name!r}: {count} of {n_rows} rows to predict have a level that no "
                    "training row had; its effect is that of an unknown level, 0 with the standard "
                    f"deviation {term.kernel.std:.3g} of the levels"
                )
                warnings.warn(
                    UnseenLevelsWarning(message, term.name, int(count)), stacklevel=stacklevel
                )


def _gaps_of(rows: Rows) -> NDArray[np.intp]:
    """Rows in which each column is missing."""
    return np.array([np.count_nonzero(np.isnan(column)) for column in rows.columns], dtype=np.intp)
