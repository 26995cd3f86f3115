"""How well a model predicts rows that it was not fitted to: what is compared with what."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp import memory
from dsgp.errors import DataError, DataWarning, ParameterError, UnseenLevelsWarning
from dsgp.estimators.classes import ClassEstimator
from dsgp.estimators.response import ResponseEstimator
from dsgp.estimators.spline import SmoothingSpline
from dsgp.estimators.spline_updating import as_table
from dsgp.report.held_out_classes import of_categories, of_classes
from dsgp.report.held_out_numbers import of_numbers
from dsgp.report.measures import HeldOut
from dsgp.report.rendering import Charts
from dsgp.report.words import listed_names
from dsgp.rows.sources import numbers_of, plain_table
from dsgp.terms import Floats

# Numbers of 8 bytes that predictions and measures take per row, beside its inputs and the
# probabilities of classes: measured, most for counts.
_NUMBERS_A_ROW = 32


def held_out_of(
    model: Any, X: Any, y: Any, extra: Mapping[str, Any], drawn: Charts, target: str
) -> HeldOut:
    """Compare predictions with held-out observations.

    Parameters
    ----------
    model : fitted estimator
    X : table
    y : array_like of shape (n_rows,) or str
        Observations, or the name of their column of X. Rows without one are left out.
    extra : mapping
        Offsets, exposures and trials that are given.
    drawn : Charts
        Charts are added to it.
    target : str
        Name of the target, for axes.

    Raises
    ------
    DataError
        If the table does not have the columns of the fit, or no row has an observation.
    ParameterError
        If the model has nothing to do with the numbers in ``extra``.
    MemoryLimitError
        If the rows are too many for their predictions to fit into memory.
    """
    if isinstance(model, SmoothingSpline):
        X = as_table(X)
    X, observed, n_without = _observed(X, y)
    _require_memory(model, X, copied=bool(n_without))
    given = {role: _values_of(X, role, value, observed) for role, value in extra.items()}
    if n_without:
        kept = ~pd.isna(observed)
        X, observed = X[kept], observed[kept]
        given = {role: value[kept] for role, value in given.items()}
    if not len(observed):
        raise DataError("no held-out row has an observation; pass rows with the target")
    notes = []
    if n_without:
        notes.append(f"{n_without:,} held-out rows without an observed target were left out.")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DataWarning)
        if isinstance(model, ClassEstimator):
            _refuse(given, model)
            found = of_classes(observed, model.predict_proba(X), model.classes_, drawn)
        elif isinstance(model, ResponseEstimator) and model.likelihood_.name in (
            "bernoulli",
            "ordered",
        ):
            found = of_categories(model, X, observed, given, drawn)
        else:
            if not isinstance(model, ResponseEstimator):
                _refuse(given, model)
            numbers = numbers_of("the held-out target", observed)
            found = of_numbers(model, X, numbers, given, drawn, target)
    notes += _notes_of([one.message for one in said if issubclass(one.category, DataWarning)])
    return HeldOut(**{**found, "notes": [*notes, *found["notes"]], "n_rows": len(observed)})


def _require_memory(model: Any, X: Any, copied: bool) -> None:
    """Refuse rows whose predictions and measures do not fit into memory."""
    n_classes = len(model.classes_) if isinstance(model, ClassEstimator) else 0
    per_row = 8.0 * (_NUMBERS_A_ROW + model.n_features_in_ + 2 * n_classes)
    memory.require(
        f"the accuracy on {len(X):,} held-out rows",
        per_row * len(X) + (memory.held(X) if copied else 0),
        "pass fewer held-out rows",
    )


def _notes_of(messages: Sequence[Any]) -> list[str]:
    """Say each once, as several predictions of the same rows warn alike, and levels together."""
    unseen = {
        message.term: message.count
        for message in messages
        if isinstance(message, UnseenLevelsWarning)
    }
    texts = [str(one) for one in messages if not isinstance(one, UnseenLevelsWarning)]
    notes = [f"{text[:1].upper()}{text[1:]}." for text in dict.fromkeys(texts)]
    if unseen:
        listed = listed_names(f"{name} ({count:,})" for name, count in unseen.items())
        notes.append(
            f"Some held-out rows have a level that no training row had, in {listed}. Its effect is "
            "taken to be 0, with the standard deviation of the levels."
        )
    return notes


def _observed(X: Any, y: Any) -> tuple[Any, NDArray[Any], int]:
    """Return rows that can be selected, their observations, and how many have none."""
    X = plain_table(X)
    if not isinstance(X, (pd.DataFrame, np.ndarray)):
        try:
            X = X.compute() if hasattr(X, "compute") else np.asarray(X)
        except Exception as error:
            raise DataError(
                "held-out rows must be a table in memory, such as a data frame or an array, got "
                f"{type(X).__name__}; read them first"
            ) from error
    if isinstance(y, str):
        if not isinstance(X, pd.DataFrame) or y not in X.columns:
            raise DataError(f"the held-out table has no column {y!r} with the target")
        values = X[y].to_numpy()
    else:
        values = np.asarray(y)
    if values.shape != (len(X),):
        raise DataError(
            f"y must have an observation for each of the {len(X)} held-out rows, got the shape "
            f"{values.shape}"
        )
    return X, values, int(np.count_nonzero(pd.isna(values)))


def _values_of(X: Any, role: str, value: Any, observed: NDArray[Any]) -> Floats:
    if isinstance(value, str):
        if not isinstance(X, pd.DataFrame) or value not in X.columns:
            raise DataError(f"the held-out table has no column {value!r} for {role}")
        value = X[value]
    values = numbers_of(role, value)
    if values.shape != observed.shape:
        raise DataError(
            f"{role} must have a number for each of the {len(observed)} held-out rows, got the "
            f"shape {values.shape}"
        )
    return values


def _refuse(given: Mapping[str, Any], model: Any) -> None:
    for role in given:
        raise ParameterError(
            f"{role} is of models of counts, rates and the like, and the model is a "
            f"{type(model).__name__}; leave it out"
        )
