"""Intervals with a guarantee: conformal calibration on rows that a model was not fitted to."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.estimators.functions import FunctionEstimator
from dsgp.models.checks import require_level
from dsgp.models.seen import RowsSeen, digests_of
from dsgp.rows.sources import Rows, Source, computed
from dsgp.storage.schemas import Array, check_arrays
from dsgp.terms import Floats

# Key of the scores in a stored model, and of what is remembered of training rows.
_KEY, _SEEN = "calibration", "_rows_seen"
# A product of n + 1 and a level that is this near to a whole number is meant to be it.
_ROUNDING = 1e-9
# Role of observations beside rows.
TARGET = "y"


class Conformal:
    """What can be calibrated: scores of rows that were held out, and what is known of others.

    A ``fit`` sets both to None, and then what is remembered of its rows. A class says in
    ``_conformity`` how far observations are from what is predicted.
    """

    _scores: Floats | None = None
    _seen: RowsSeen | None = None

    @property
    def n_calibrated_(self) -> int:
        """Rows that intervals are calibrated by; 0 if they are those of the model."""
        return 0 if self._scores is None else len(self._scores)

    def _conformity(self, X: Any, y: Any, **extra: Any) -> Floats:
        """Distance of observations from their predictions, (n_rows,)."""
        raise NotImplementedError

    def _digests(self, X: Any, y: Any) -> Floats:
        """Return what rows are known by, (n_rows,)."""
        raise NotImplementedError

    def _calibrated(self, X: Any, y: Any, **extra: Any) -> Self:
        """Take over the scores of rows."""
        if y is None:
            raise DataError("y is None; pass the observations")
        self._require_new(X, y)
        scores = self._conformity(X, y, **extra)
        if not np.isfinite(scores).all():
            raise DataError(
                f"{np.count_nonzero(~np.isfinite(scores))} of {len(scores)} rows have no "
                "prediction that their observation could be compared with; leave them out"
            )
        self._scores = np.sort(scores)
        return self

    def _require_new(self, X: Any, y: Any) -> None:
        """Refuse the training rows; warn where some are among them."""
        if self._seen is None:
            return
        digests = self._digests(X, y)
        if len(digests) and self._seen.is_same(digests):
            raise DataError(
                "these are the rows that the model was fitted to, whose residuals are smaller than "
                "those of new ones: calibrate with rows that were held out of the fit"
            )
        known, n_compared = self._seen.known(digests)
        if known:
            warnings.warn(
                f"{known} of {n_compared} rows that can be compared are the same as rows that the "
                "model was fitted to: intervals have their guarantee only if rows were held out of "
                "the fit",
                DataWarning,
                stacklevel=4,
            )

    def _conformal(self, level: float) -> float:
        """The score that new observations stay below with a probability of ``level`` at least."""
        require_level("level", level)
        assert self._scores is not None
        n = len(self._scores)
        rank = math.ceil((n + 1) * level - _ROUNDING)
        if rank > n:
            raise ParameterError(
                f"level={level:g} needs more rows than the {n} that the model was calibrated by: "
                f"calibrate by {math.ceil(level / (1 - level) - _ROUNDING)} or more, or use a "
                f"level of {n / (n + 1):.4g} or less"
            )
        return float(self._scores[rank - 1])

    # ------------------------------------------------------------------ keeping

    def _kept_scores(self) -> dict[str, Any]:
        """Return scores as a part of a stored tree."""
        return {} if self._scores is None else {_KEY: {"scores": self._scores}}

    def _restore_calibration(self, tree: Mapping[str, Any], seen: Any) -> None:
        """Take over what a store holds of scores, and of training rows."""
        if _KEY in tree:
            declared = {f"{_KEY}/scores": Array(("rows",), values="not negative")}
            check_arrays({_KEY: tree[_KEY]}, declared)
            self._scores = np.sort(np.asarray(tree[_KEY]["scores"], dtype=np.float64))
        self._seen = None if seen is None else RowsSeen.from_settings(seen)


def warn_of_ended_calibration(n_rows: int) -> None:
    """Warn that an update ended a calibration; called by ``update``."""
    if n_rows:
        warnings.warn(
            f"the calibration by {n_rows} rows was that of the model before the update, and "
            "intervals are now those of the model alone: calibrate again, with rows that were "
            "held out of the fit and of all updates",
            DataWarning,
            stacklevel=3,
        )


def without_scores(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored tree without the scores of a calibration."""
    return {name: node for name, node in tree.items() if name != _KEY}


class ConformalEstimator(Conformal, FunctionEstimator):
    """An estimator of functions of tables whose intervals can be calibrated.

    A ``fit`` calls ``_take`` and then ``_remember``.
    """

    def _take(self, *arguments: Any, **named: Any) -> None:
        self._scores, self._seen = None, None
        super()._take(*arguments, **named)

    def _remember(self, source: Source) -> None:
        """Remember training rows, as far as ``calibrate`` needs to know them."""
        self._seen = RowsSeen.of(source, self.used_columns_)

    def _remember_further(self, before: RowsSeen | None, source: Source) -> None:
        """Remember further rows beside those of before, as far as they are in memory."""
        further = RowsSeen.of(source, self.used_columns_)
        if before is not None and further is not None:
            further = before.together(further)
        self._seen = further or before

    def _digests(self, X: Any, y: Any) -> Floats:
        def answer(rows: Rows) -> list[Floats]:
            inputs = dict(zip(self._rows_model.used_columns, rows.columns, strict=True))
            if self._noise is not None:
                inputs |= self._noise.inputs(rows)
            return [digests_of([inputs[name] for name in self.used_columns_], rows.extra[TARGET])]

        answers = computed(self._answers(X, answer, 1, with_std=False, extra={TARGET: y}))
        return np.asarray(answers[:, 0])

    def _fitted_settings(self) -> dict[str, Any]:
        kept = {} if self._seen is None else {_SEEN: self._seen.to_settings()}
        return super()._fitted_settings() | kept

    def _described(self) -> Any:
        settings, tree = super()._described()
        return settings, {**tree, **self._kept_scores()}

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        model = super()._restore(settings, without_scores(tree))
        model._restore_calibration(tree, settings["fitted"].get(_SEEN))
        return model
