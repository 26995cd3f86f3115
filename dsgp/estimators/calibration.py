"""Whether the predictive distributions of a model are as wide as they should be, and where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dsgp.dates import dates_of_days
from dsgp.errors import DataError, ParameterError
from dsgp.metrics.uncertainty import CalibrationReport, calibration_of
from dsgp.rows.sources import Rows, computed, plain_table

# What rows are grouped by beside their columns.
MEAN, STD = "predicted mean", "predicted standard deviation"


def calibration_report(
    model: Any,
    X: Any,
    y: Any,
    *,
    level: float = 0.95,
    n_groups: int = 10,
    **further: Any,
) -> CalibrationReport:
    """Check the predictive distributions of a model on rows that it was not fitted to.

    Parameters
    ----------
    model : fitted model of numbers
        With ``pit``: all regressors, models of counts, rates and other responses, splines.
    X : table
        Rows that were held out, as for ``predict``.
    y : array_like of shape (n_rows,), or str
        Observations of weight 1, or the name of their column of X.
    level : float
        Probability of the intervals of new observations whose coverage is counted; after
        ``calibrate`` they are the conformal ones.
    n_groups : int
        Maximum number of groups per column, with equally many rows each.
    **further
        ``offset``, ``exposure`` and ``trials``, for models that have them.

    Returns
    -------
    CalibrationReport
        ``coverage``: the share of rows in their interval, over all rows, by deciles of each column
        of numbers or dates, by levels of the others, and by deciles of the predicted mean and
        standard deviation of new observations; with exact binomial bands, which show what chance
        alone would give. ``histogram``: of the PIT values, those before calibration where the model
        is calibrated. ``summary()`` in words;
        ``dsgp.plotting.plot_calibration_report`` draws both.

    Notes
    -----
    For counts, PIT values are randomised, and coverage is counted by them: intervals of counts end
    at whole numbers, and contain more than their nominal probability even if the distribution is
    right.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor, calibration_report
    >>> rng = np.random.default_rng(0)
    >>> X = {"x": rng.uniform(-3, 3, 900)}
    >>> y = np.sin(X["x"]) + 0.3 * rng.standard_normal(900)
    >>> model = AdditiveGPRegressor().fit({"x": X["x"][:500]}, y[:500])
    >>> report = calibration_report(model, {"x": X["x"][500:]}, y[500:])
    >>> "x" in set(report.coverage["by"])
    True
    """
    if not hasattr(model, "pit"):
        raise ParameterError(
            f"a {type(model).__name__} predicts no distribution of a number: for classes, "
            "dsgp.metrics.calibration_curve judges the probabilities"
        )
    if isinstance(y, str):
        X, y = _apart(plain_table(X), y)
    further = {name: values for name, values in further.items() if values is not None}
    pit = model.pit(X, y, **further)
    mean, std = (
        computed(part) for part in model.predict(X, return_std=True, include_noise=True, **further)
    )
    covered, n_calibrated = None, getattr(model, "n_calibrated_", 0)
    if n_calibrated:
        lower, upper = model.predict_interval(X, level, include_noise=True, **further)
        target = np.asarray(y, dtype=np.float64).reshape(-1)
        covered = (target >= computed(lower)) & (target <= computed(upper))
    groups = _columns(model, X) | {MEAN: np.asarray(mean), STD: np.asarray(std)}
    report = calibration_of(pit, level=level, by=groups, covered=covered, n_groups=n_groups)
    return replace(report, n_calibrated=n_calibrated)


def _apart(X: Any, name: str) -> tuple[Any, Any]:
    """Take the target out of a table."""
    if not isinstance(X, pd.DataFrame) or name not in X:
        raise DataError(f"y names the column {name!r}, which X does not have")
    return X.drop(columns=name), X[name].to_numpy()


def _columns(model: Any, X: Any) -> dict[str, Any]:
    """Columns that the model uses: numbers, dates, or labels as text."""
    if not hasattr(model, "_loaded_rows"):
        return {}
    kinds = model._columns.kinds
    rows = Rows.join(model._loaded_rows(X))
    columns = dict(zip(model._rows_model.used_columns, rows.columns, strict=True))
    if model._noise is not None:
        columns |= model._noise.inputs(rows)
    return {name: _readable(kinds.get(name), values) for name, values in columns.items()}


def _readable(kind: Any, values: Any) -> Any:
    """Write numbers of a column as what they stand for."""
    if kind is not None and kind.labels:
        return _labels(kind, values)
    return dates_of_days(values) if kind is not None and kind.is_date else values


def _labels(kind: Any, codes: Any) -> Any:
    """Labels of codes; of levels that were never seen, and of gaps, what they are."""
    labels = np.array([*map(str, kind.labels), "missing or never seen"], dtype=object)
    known = np.isfinite(codes) & (codes >= 0) & (codes < len(kind.labels))
    return labels[np.where(known, codes, len(kind.labels)).astype(int)]
