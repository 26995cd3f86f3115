"""Intervals with a guarantee: conformal calibration on rows that a model was not fitted to."""

from __future__ import annotations

import math
import warnings
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


class ConformalEstimator(FunctionEstimator):
    """An estimator whose intervals can be calibrated.

    A ``fit`` calls ``_take`` and then ``_remember``. A class says in ``_conformity`` how far
    observations are from what is predicted.
    """

    _scores: Floats | None = None
    _seen: RowsSeen | None = None

    @property
    def n_calibrated_(self) -> int:
        """Rows that intervals are calibrated by; 0 if they are those of the model."""
        return 0 if self._scores is None else len(self._scores)

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

    def _conformity(self, X: Any, y: Any, **extra: Any) -> Floats:
        """Distance of observations from their predictions, (n_rows,)."""
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

        def answer(rows: Rows) -> list[Floats]:
            inputs = dict(zip(self._rows_model.used_columns, rows.columns, strict=True))
            if self._noise is not None:
                inputs |= self._noise.inputs(rows)
            return [digests_of([inputs[name] for name in self.used_columns_], rows.extra[TARGET])]

        if self._seen is None:
            return
        digests = computed(self._answers(X, answer, 1, with_std=False, extra={TARGET: y}))[:, 0]
        if len(digests) and self._seen.is_same(digests):
            raise DataError(
                "these are the rows that the model was fitted to, whose residuals are smaller than "
                "those of new ones: calibrate with rows that were held out of the fit"
            )
        known, told = self._seen.known(digests)
        if known:
            warnings.warn(
                f"{known} of {told} rows that can be compared are the same as rows that the model "
                "was fitted to: intervals have their guarantee only if rows were held out of the "
                "fit",
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

    def _fitted_settings(self) -> dict[str, Any]:
        kept = {} if self._seen is None else {_SEEN: self._seen.to_settings()}
        return super()._fitted_settings() | kept

    def _described(self) -> Any:
        settings, tree = super()._described()
        if self._scores is None:
            return settings, tree
        return settings, {**tree, _KEY: {"scores": self._scores}}

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        kept = tree.get(_KEY)
        model = super()._restore(settings, {k: node for k, node in tree.items() if k != _KEY})
        if kept is not None:
            declared = {f"{_KEY}/scores": Array(("rows",), values="not negative")}
            check_arrays({_KEY: kept}, declared)
            model._scores = np.sort(np.asarray(kept["scores"], dtype=np.float64))
        seen = settings["fitted"].get(_SEEN)
        model._seen = None if seen is None else RowsSeen.from_settings(seen)
        return model
