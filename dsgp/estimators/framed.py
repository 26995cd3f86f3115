"""Answers as tables of the library that the rows came from: ``as_frame`` of the estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsgp.estimators.explaining import Explanation
from dsgp.models.base import FittedModel
from dsgp.rows.sources import Rows, frame_like
from dsgp.terms import Floats


def columns_of(X: Any, names: Sequence[str], columns: Any, as_frame: bool) -> Any:
    """Return columns, (n_rows, n_names), as an array each or as a table like X."""
    if as_frame:
        return frame_like(X, names, columns)
    return columns[:, 0] if len(names) == 1 else tuple(columns[:, k] for k in range(len(names)))


def interval_of(X: Any, ends: Any, as_frame: bool) -> Any:
    """Return lower and upper ends, (n_rows, 2), as a pair or as a table like X."""
    return columns_of(X, ["lower", "upper"], ends, as_frame)


def quantiles_of(X: Any, probabilities: Sequence[float], columns: Any, as_frame: bool) -> Any:
    """Return quantiles, (n_rows, n_probabilities), as they are or as a table like X."""
    return frame_like(X, names_of_quantiles(probabilities), columns) if as_frame else columns


def names_of_quantiles(probabilities: Sequence[float]) -> list[str]:
    """Name the column of each quantile: by all digits, so that near ones differ."""
    return [f"quantile_{float(p)}" for p in probabilities]


class ComponentAnswer:
    """Mean and standard deviation of every term at some rows.

    Parameters
    ----------
    latent : FittedModel
    """

    def __init__(self, latent: FittedModel) -> None:
        self.latent = latent

    @property
    def names(self) -> list[str]:
        """What the numbers of each row are."""
        return [f"{what}_{name}" for what in ("mean", "std") for name in self.latent.names]

    @property
    def n_columns(self) -> int:
        """Numbers of each row."""
        return len(self.names)

    def __call__(self, rows: Rows) -> list[Floats]:
        """Answer some rows."""
        mean, std = self.latent.component_moments(rows)
        return [*mean.T, *std.T]


def answered_frame(
    X: Any,
    models: Sequence[Any],
    answer: type[Explanation] | type[ComponentAnswer],
    classes: Sequence[Any] | None = None,
) -> Any:
    """Put what each model answers of the rows of X side by side, as a table like X.

    Parameters
    ----------
    X : table
    models : sequence of fitted estimators of one f
    answer : Explanation or ComponentAnswer
    classes : sequence, optional
        Of the models, which then end the names of columns.
    """
    names: list[str] = []
    answered = []
    for number, model in enumerate(models):
        of_model = answer(model._rows_model)
        ending = "" if classes is None else f"_{classes[number]}"
        names += [f"{name}{ending}" for name in of_model.names]
        answered.append(model._answers(X, of_model, of_model.n_columns, with_std=True))
    # The only one is not copied: it has as many rows as X.
    whole = answered[0] if len(answered) == 1 else np.concatenate(answered, axis=1)
    return frame_like(X, names, whole)
