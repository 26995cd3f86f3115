"""Inputs that the panels of terms show: those of the training rows, or of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsgp.errors import DataError
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows, numbers_of, plain_table
from dsgp.terms import Floats
from dsgp.terms.bound import PROJECTIONS


def seen_inputs(model: Any, terms: list[FittedTerm], X: Any) -> list[tuple[Floats, Floats]]:
    """Distinct inputs of each term, ascending, and the weight of each."""
    if X is None:
        return [_of_training(term) for term in terms]
    X = plain_table(X)
    roles = zip(model.terms_, model._rows_model.roles, strict=False)  # a remainder is no term
    projected = [term.name for term, role in roles if role == PROJECTIONS]
    columns: list[Floats] = []
    if projected:  # inputs of these terms are made of all columns
        rows = Rows.join([load() for load in model._rows_of(X)])
        columns = model._rows_model.inputs(rows.columns)
    values = [
        columns[projected.index(term.name)] if term.name in projected else _column(model, term, X)
        for term in terms
    ]
    if any(len(column) == 0 for column in values):
        raise DataError("X has no row to draw")
    counted = (np.unique(column, return_counts=True) for column in values)
    return [(points, count.astype(np.float64)) for points, count in counted]


def _of_training(term: FittedTerm) -> tuple[Floats, Floats]:
    """Inputs in the training rows and their weights; of a straight line a range around its mean."""
    points = term.cells.points
    if term.bound.family == "constant":
        line = term.bound.multiplier
        assert line is not None
        return line.centre + line.scale * np.linspace(-2.0, 2.0, 41), np.ones(41)
    return (points if points.ndim == 1 else points[:, 0]), term.weight


def _column(model: Any, term: FittedTerm, X: Any) -> Floats:
    if not term.bound.is_plain:
        rows = Rows.join([load() for load in model._rows_of(X)])
        by_name = dict(zip(model._rows_model.used_columns, rows.columns, strict=True))
        term_input = term.bound.value or term.bound.multiplier
        assert term_input is not None
        values = (
            by_name[term_input.column]
            if term_input is term.bound.multiplier
            else term_input.of(by_name[term_input.column])
        )
        return values[np.isfinite(values)]
    if isinstance(X, pd.DataFrame):
        if term.name not in X.columns:
            raise DataError(f"X has no column {term.name!r}; it has {list(X.columns)}")
        values = numbers_of(f"column {term.name!r}", X[term.name])
    else:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != model.n_features_in_:
            raise DataError(
                f"X must have shape (n_rows, {model.n_features_in_}), got {array.shape}"
            )
        values = array[:, _column_names(model).index(term.name)]
    if not np.isfinite(values).all():
        raise DataError(f"X must have finite numbers in column {term.name!r}")
    return values


def _column_names(model: Any) -> list[str]:
    if hasattr(model, "feature_names_in_"):
        return list(model.feature_names_in_)
    return [f"x{position}" for position in range(model.n_features_in_)]
