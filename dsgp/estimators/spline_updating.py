"""Rows of a smoothing spline read from a table, and rows that are added to a fitted one."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dsgp import memory
from dsgp.errors import ConvergenceWarning, ParameterError
from dsgp.estimators.conformal import Conformal, warn_of_ended_calibration
from dsgp.estimators.forgetting import share_of_rows_before
from dsgp.models.checks import require_choice
from dsgp.models.columns import Columns
from dsgp.models.spline import SplineModel
from dsgp.models.spline_rows import SplinePlace, SplineRows, faded, require_enough, together
from dsgp.rows.sources import Rows, Source, further_rows, is_lazy

# Numbers of 8 bytes a row: targets, weights, inputs, sorting, and states of the filter twice.
_NUMBERS_A_ROW = 30


class UpdatedSpline(Conformal):
    """A spline whose rows enter through sums, to which those of further rows are added."""

    # Parameters of the estimator.
    order: int
    smoothing: float | None

    # What a fit sets.
    model_: SplineModel
    _columns: Columns
    _place: SplinePlace
    n_rows_: int
    n_updates_: int
    smoothing_: float
    converged_: bool

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
        r"""Add rows to the fitted function.

        The result is that of a fit to all rows: with the smoothing parameter that the model has, or
        with the one that is learned from all rows. The noise variance is always that of all rows.

        Parameters
        ----------
        X, y, sample_weight
            New rows, as for ``fit``.
        relearn : bool
            Learn the smoothing parameter again.
        half_life, elapsed : float, optional
            Forget, as for ``AdditiveGPRegressor.update``: every row so far counts for
            :math:`2^{-\text{elapsed} / \text{half\_life}}` of what it did.

        Returns
        -------
        self

        Raises
        ------
        DataError
            As for ``fit``; or if the column holds something else than in the fit.
        ParameterError
            If a parameter is out of its range, or ``relearn`` is asked of a given smoothing.

        Notes
        -----
        Points whose weight has faded to less than 1e-10 of the largest are dropped. An update that
        fails leaves the model as it was.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp import SmoothingSpline
        >>> x = np.linspace(0, 10, 200)
        >>> y = np.sin(x) + 0.3 * np.random.default_rng(0).standard_normal(200)
        >>> model = SmoothingSpline(smoothing=0.1).fit(x[::2], y[::2]).update(x[1::2], y[1::2])
        >>> whole = SmoothingSpline(smoothing=0.1).fit(x, y)
        >>> bool(np.allclose(model.predict(x), whole.predict(x))), model.n_rows_
        (True, 200)
        """
        check_is_fitted(self)
        share = share_of_rows_before(half_life, elapsed)
        require_choice("relearn", relearn, (True, False))
        if relearn and self.smoothing is not None:
            raise ParameterError(
                "relearn=True learns the smoothing parameter, and smoothing= keeps the one that "
                "was given: leave one of them out"
            )
        columns = self._columns
        further = further_rows(
            as_table(X),
            y,
            sample_weight,
            names=columns.names,
            needed=columns.names,
            named=columns.named,
            kinds=columns.kinds,
            missing="error",
            missing_values=(),
        )
        rows, before = rows_of(further.source), self.model_.data
        place, factor = self._place.holding(rows.inputs, before.points)
        place.require_alike(rows, self.order, columns.names[0])
        before = faded(replace(before, points=before.points / factor), share)
        data = together(before, place.data(rows, self.order))
        require_enough(data)
        if relearn:
            model = SplineModel.learned(data)
        else:
            rate = self.model_.rate * factor ** (2 * self.order - 1)
            if rate > data.largest_rate:
                raise ParameterError(
                    f"smoothing_={self.smoothing_:.3g} is so small that with the new rows float64 "
                    "cannot resolve the remaining noise: update with relearn=True, or fit again"
                )
            model = SplineModel.of(data, rate, self.model_.at_bound)
        self.model_, self._place = model, place
        self.n_rows_, self.n_updates_ = self.n_rows_ + len(rows.inputs), self.n_updates_ + 1
        self._seen = rows.seen() if self._seen is None else self._seen.together(rows.seen())
        calibrated, self._scores = self.n_calibrated_, None
        self._show()  # before warnings, which may be errors
        warn_of_ended_calibration(calibrated)
        self._warn_unless_converged()
        return self

    def _warn_unless_converged(self) -> None:
        """Warn of rows without noise; called by ``fit`` and ``update``."""
        if not self.converged_:
            warnings.warn(
                f"the rows show no noise: the likelihood still rises where the function goes "
                f"through all {len(self.model_.data.points)} points, or a polynomial does; "
                "standard deviations say nothing; give smoothing=",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _show(self) -> None:
        """Set what the model says of itself, in the units of the data."""
        raise NotImplementedError


def rows_of(source: Source) -> SplineRows:
    """Read all rows."""
    rows = Rows.join([load() for load in source.chunks()])
    memory.require(
        f"a smoothing spline of {len(rows)} rows",
        8.0 * _NUMBERS_A_ROW * len(rows),
        "take fewer rows, or AdditiveGPRegressor, which counts rows in bins",
    )
    return SplineRows.of(rows)


def as_table(X: Any) -> Any:
    """Make a table of one column of an array of one dimension, or of a series."""
    if isinstance(X, pd.Series):
        return X.to_frame("x" if X.name is None else X.name)
    if isinstance(X, (pd.Index, range)) or (isinstance(X, np.ndarray) and X.dtype.kind == "M"):
        return pd.Series(X).to_frame("x")
    if isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.ndim == 1):
        values = np.asarray(X)
        return values[:, None] if values.ndim == 1 else values
    if is_lazy(X) and getattr(X, "ndim", 2) == 1:
        return X.to_frame() if hasattr(X, "to_frame") else X[:, None]
    return X
