"""``SmoothingSpline``: one function of one column, with a flat prior of its trend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from html import escape
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.conformal import TARGET, without_scores
from dsgp.estimators.framed import columns_of
from dsgp.estimators.gaussian_distribution import GaussianDistribution
from dsgp.estimators.reported import Reported
from dsgp.estimators.saved import Saved, with_parameters
from dsgp.estimators.spline_updating import UpdatedSpline, as_table, rows_of
from dsgp.models.checks import require_choice, require_positive
from dsgp.models.columns import Columns
from dsgp.models.seen import digests_of
from dsgp.models.spline import SplineData, SplineModel
from dsgp.models.spline_rows import SplinePlace
from dsgp.models.store_schema import check_spline
from dsgp.models.summary import SummaryText
from dsgp.rows.sources import (
    Rows,
    Wanted,
    is_lazy,
    kind_from_settings,
    map_table,
    matching_source,
    source_of,
    target_of,
)
from dsgp.terms import LOG_2PI, Floats

# What a store keeps of where the rows are.
_PLACE = [one.name for one in fields(SplinePlace)]
# Noise variance in squared ranges of the target that is rounding.
_NO_NOISE = 1e-26


class SmoothingSpline(
    UpdatedSpline, RegressorMixin, GaussianDistribution, Reported, Saved, BaseEstimator
):
    r"""Smoothing spline of one column, as a Gaussian process, in linear time.

    .. math:: y = f(x) + \varepsilon, \quad \varepsilon \sim N(0, \sigma^2 / w), \quad
              f = \text{polynomial of degree } m - 1 + \text{integrated Wiener process}

    The posterior mean minimises
    :math:`\sum_i w_i (y_i - f(x_i))^2 + \lambda \int (f^{(m)}(x))^2 dx`: with m = 2 it is the cubic
    smoothing spline. λ is learned by restricted maximum likelihood, or given. Beyond the rows the
    function continues as a polynomial of degree m − 1, and its standard deviation grows.

    Parameters
    ----------
    order : {2, 1, 3}
        m: 1 for piecewise linear functions, 2 for cubic splines, 3 for quintic splines.
    smoothing : float, optional
        λ, in the units of the column to the power of 2m − 1. By default it is learned.

    Attributes
    ----------
    smoothing_ : float
        λ = σ² / s², with s² the variance of the change of f^(m−1) over a unit of the column.
    noise_variance_ : float
        σ², the noise variance of a row of weight 1, in squared units of the target.
    log_marginal_likelihood_ : float
        Restricted likelihood: that of all contrasts orthogonal to polynomials of degree m − 1.
        Comparable between fits of the same rows and order.
    effective_dof_ : float
        Trace of the smoother: how many parameters the function amounts to.
    converged_ : bool
        False if the rows have no detectable noise, because the likelihood is largest for a function
        through all points, or because a polynomial goes through them: standard deviations and
        ``noise_variance_`` are then meaningless, and ``fit`` warns.
    n_rows_, n_features_in_ : int
        Number of rows of positive weight, those of updates included, and 1.
    n_updates_ : int
        How many times rows were added since ``fit``.
    n_calibrated_ : int
        Rows that ``calibrate`` was given; 0 without it.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import SmoothingSpline
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 10, 500)
    >>> y = np.sin(x) + 0.3 * rng.standard_normal(500)
    >>> model = SmoothingSpline().fit(x, y)
    >>> mean, std = model.predict([2.0, 12.0], return_std=True)
    >>> bool(abs(mean[0] - np.sin(2.0)) < 0.1), bool(std[1] > 5 * std[0])
    (True, True)
    >>> model.predict([3.0], derivative=1).round(1)
    array([-1.])

    References
    ----------
    Wahba, *Improper priors, spline smoothing and the problem of guarding against model errors in
    regression*, JRSS B 40 (1978). Kohn and Ansley, *A new algorithm for spline smoothing*, SIAM J.
    Sci. Stat. Comput. 8 (1987).
    """

    def __init__(self, order: int = 2, *, smoothing: float | None = None) -> None:
        self.order = order
        self.smoothing = smoothing

    _columns: Columns
    model_: SplineModel

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the function.

        Parameters
        ----------
        X : array_like of shape (n_rows,) or (n_rows, 1), or table of one column
            Finite numbers, or dates, which count in days. Of any kind of table that
            ``AdditiveGPRegressor.fit`` takes; it is read into memory.
        y : array_like of shape (n_rows,), dask collection or str
            Targets; the name of the target where it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            A row of weight w has noise variance σ²/w; of weight 0 it is left out.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If there is not one column, a value is missing or no number, or there are no more than
            ``order`` distinct values.
        ParameterError
            If a parameter is out of its range.

        Warns
        -----
        ConvergenceWarning
            If the likelihood still rises at functions that go through all points.
        """
        if isinstance(self.order, bool) or not isinstance(self.order, (int, np.integer)):
            raise ParameterError(f"order must be 1, 2 or 3, got {self.order!r}")
        require_choice("order", self.order, (1, 2, 3))
        if self.smoothing is not None:
            require_positive("smoothing", self.smoothing)
        source = source_of(as_table(X), y, sample_weight, wanted=Wanted())
        if len(source.names) != 1:
            raise DataError(
                f"SmoothingSpline fits one column, and X has {len(source.names)}: "
                f"{list(source.names)}; take one of them, or AdditiveGPRegressor"
            )
        name = source.names[0]
        columns = Columns.of(source)
        if any(kind.labels for kind in columns.kinds.values()):
            raise DataError(f"input column {name!r} holds categories; expected numbers or dates")
        rows = rows_of(source)
        place = SplinePlace.of(rows, self.order, name)
        data = place.data(rows, self.order)
        if len(data.points) <= self.order:
            raise DataError(
                f"input column {name!r} has {len(data.points)} distinct values; a spline of order "
                f"{self.order} needs more than that order, and there are {len(rows.inputs)} "
                "sample(s) (rows)"
            )
        unit = place.unit(self.order)
        if self.smoothing is None:
            model = SplineModel.learned(data)
        else:
            least = unit / data.largest_rate
            if self.smoothing < least:
                raise ParameterError(
                    f"smoothing={self.smoothing!r} is so small that the function goes through all "
                    f"{len(data.points)} points and float64 cannot resolve the remaining noise: "
                    f"give at least {least:.3g} for these rows"
                )
            model = SplineModel.of(data, unit / float(self.smoothing))
        self.model_, self._columns, self._place = model, columns, place
        self._scores, self._seen = None, rows.seen()
        self.n_features_in_, self.n_rows_, self.n_updates_ = 1, len(rows.inputs), 0
        if columns.named:
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self._show()
        self._warn_unless_converged()
        return self

    def _show(self) -> None:
        """Set what the model says of itself, in the units of the data."""
        model, place = self.model_, self._place
        heaviest, scale = place.heaviest, place.scale
        self.noise_variance_ = model.noise_variance * scale**2 * heaviest
        diffusion = model.rate / place.extent ** (2 * self.order - 1)
        self.smoothing_ = heaviest / diffusion if diffusion else math.inf
        degrees = model.data.degrees
        self.converged_ = not (model.at_bound or model.noise_variance < _NO_NOISE)
        # Densities of targets in their unit; those of weights cancel against the noise. The flat
        # prior is that of coefficients in units of the range, which further rows may have left.
        span = math.log(model.data.points[-1] - model.data.points[0])
        prior = 0.5 * self.order * (self.order - 1) * span
        self.log_marginal_likelihood_ = model.log_likelihood - degrees * math.log(scale) + prior

    @property
    def effective_dof_(self) -> float:
        """Trace of the smoother."""
        check_is_fitted(self)
        return self.model_.effective_dof

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """The column, as other models of tables name those that a prediction depends on."""
        check_is_fitted(self)
        return self._columns.names

    def _points(self) -> tuple[Floats, Floats, Floats]:
        """Distinct inputs, their mean targets and total weights, in the units of the rows."""
        data, place = self.model_.data, self._place
        return (
            place.offset + place.extent * data.points,
            place.centre + place.scale * data.target,
            place.heaviest * data.weight,
        )

    # ------------------------------------------------------------------ predicting

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        include_noise: bool = False,
        derivative: int = 0,
        *,
        as_frame: bool = False,
    ) -> Any:
        """Predict the function or a derivative.

        Parameters
        ----------
        X : array_like of shape (n_rows,) or (n_rows, 1), or table
            As for ``fit``; a table may have other columns.
        return_std : bool
        include_noise : bool
            The standard deviation of a new observation of weight 1.
        derivative : int
            Less than ``order``: in units of the target by the column's to that power.
        as_frame : bool
            Return columns ``mean`` and ``std`` as a table of the library of X, with its index.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            A dask array where X is a dask collection.
        std : ndarray of shape (n_rows,)
            With ``return_std``. One table with ``as_frame``.
        """
        check_is_fitted(self)
        whole = isinstance(derivative, (int, np.integer)) and not isinstance(derivative, bool)
        if not whole or not 0 <= derivative < self.order:
            raise ParameterError(
                f"derivative must be an integer from 0 to {self.order - 1}: the function has no "
                f"others; got {derivative!r}"
            )
        if include_noise and derivative:
            raise ParameterError("include_noise is for the function itself, not for a derivative")
        answers = self._answers(X, int(derivative), self.noise_variance_ if include_noise else 0.0)
        names = ["mean", "std"][: 1 + return_std]
        return columns_of(X, names, answers[:, : len(names)], as_frame)

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """Log density of observations of weight 1, row by row, (n_rows,)."""
        check_is_fitted(self)
        residual, std = self._standardised(X, y)
        return -0.5 * (LOG_2PI + residual**2) - np.log(std)

    def _ends(self, X: Any, level: float, include_noise: bool, factor: float | None) -> Any:
        score = float(ndtri((1 + level) / 2)) if factor is None else factor
        return self._at_scores(X, np.array([-score, score]), include_noise)

    def _quantiles(self, X: Any, probabilities: Sequence[float], include_noise: bool) -> Any:
        return self._at_scores(X, ndtri(np.array(probabilities)), include_noise)

    def _at_scores(self, X: Any, scores: Floats, include_noise: bool) -> Any:
        """Add multiples of the standard deviation to the mean, (n_rows, n_scores)."""
        mean, std = self.predict(X, return_std=True, include_noise=include_noise)
        return mean[:, None] + std[:, None] * scores

    def _probabilities(self, X: Any, y: Any) -> Floats:
        return np.asarray(ndtr(self._standardised(X, y)[0]))

    def _conformity(self, X: Any, y: Any, **extra: Any) -> Floats:
        return np.abs(self._standardised(X, y)[0])

    def _digests(self, X: Any, y: Any) -> Floats:
        inputs, target = self._observed(X, y)
        return digests_of([inputs], target)

    def _standardised(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        """Residuals of observations in standard deviations of a new one, and those, (n_rows,)."""
        inputs, target = self._observed(X, y)
        mean, variance = self._moments(inputs, 0)
        std = np.sqrt(variance + self.noise_variance_)
        return (target - mean) / std, std

    def _observed(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        """Inputs and observations of rows, (n_rows,)."""
        table = as_table(X)
        if isinstance(y, str):
            rows = self._rows_of(table, {TARGET: y})
            return rows.columns[0], rows.extra[TARGET]
        inputs = self._rows_of(table).columns[0]
        return inputs, target_of(y, len(inputs))

    def _answers(self, X: Any, derivative: int, noise_variance: float) -> Any:
        """Mean and standard deviation of rows, (n_rows, 2); lazy where X is."""
        table = as_table(X)
        function = partial(self._answer_table, derivative, noise_variance)
        return map_table(table, function, 2) if is_lazy(table) else function(table)

    def _answer_table(
        self, derivative: int, noise_variance: float, X: Any, extra: Any = None
    ) -> Floats:
        mean, variance = self._moments(self._rows_of(X).columns[0], derivative)
        return np.column_stack([mean, np.sqrt(variance + noise_variance)])

    def _rows_of(self, X: Any, extra: Mapping[str, Any] | None = None) -> Rows:
        columns = self._columns
        source = matching_source(
            X, columns.names, columns.names, columns.named, type(self).__name__,
            extra=extra, kinds=columns.kinds,
        )  # fmt: skip
        return Rows.join([load() for load in source.chunks()])

    def _moments(self, inputs: Floats, derivative: int) -> tuple[Floats, Floats]:
        """Mean and variance in the units of the data, (n_rows,)."""
        place = self._place
        mean, variance = self.model_.moments((inputs - place.offset) / place.extent, derivative)
        unit = place.scale / place.extent**derivative
        return mean * unit + (0.0 if derivative else place.centre), variance * unit**2

    # ------------------------------------------------------------------ reporting and storing

    def summary(self) -> SummaryText:
        """Describe the fitted model in a few lines."""
        check_is_fitted(self)
        kind = {1: "broken line", 2: "cubic spline", 3: "quintic spline"}[self.order]
        how = "learned by restricted likelihood" if self.smoothing is None else "given"
        text = "\n".join(
            [
                f"SmoothingSpline of {self._columns.names[0]}: {kind}, {self.n_rows_} rows at "
                f"{len(self.model_.data.points)} points",
                f"smoothing: {self.smoothing_:.6g} ({how})",
                f"noise: standard deviation {math.sqrt(self.noise_variance_):.6g}"
                + ("" if self.converged_ else " (the rows show none: stds are meaningless)"),
                f"effective degrees of freedom: {self.effective_dof_:.1f}",
                f"log restricted likelihood: {self.log_marginal_likelihood_:.2f}",
            ]
        )
        return SummaryText(text, f"<pre>{escape(text)}</pre>")

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        data, columns = self.model_.data, self._columns
        settings: dict[str, Any] = {
            "parameters": {"order": int(self.order), "smoothing": self.smoothing},
            "place": asdict(self._place),
            "columns": {
                "names": list(columns.names),
                "named": columns.named,
                "kinds": {name: kind.to_settings() for name, kind in columns.kinds.items()},
            },
            "rate": self.model_.rate,
            "at_bound": self.model_.at_bound,
            "n_rows": data.n_rows,
            "n_all_rows": self.n_rows_,
            "n_updates": self.n_updates_,
            "within": data.within,
            "log_weights": data.log_weights,
        }
        if self._seen is not None:
            settings["rows_seen"] = self._seen.to_settings()
        arrays = {"points": data.points, "weight": data.weight, "target": data.target}
        return settings, {"data": arrays, **self._kept_scores()}

    @classmethod
    def _restore(cls, settings: Mapping[str, Any], tree: Mapping[str, Any]) -> Self:
        check_spline(settings, without_scores(tree))
        model = with_parameters(cls, settings["parameters"])
        require_choice("order", model.order, (1, 2, 3))
        stored, arrays = settings["columns"], tree["data"]
        points, weight, target = (
            np.asarray(arrays[name], dtype=float) for name in ("points", "weight", "target")
        )
        if not len(points) == len(weight) == len(target) > model.order:
            raise ValueError("the points, weights and targets do not agree")
        data = SplineData(
            model.order, points, weight, target, settings["n_rows"],
            float(settings["within"]), float(settings["log_weights"]),
        )  # fmt: skip
        model.model_ = SplineModel.of(data, float(settings["rate"]), bool(settings["at_bound"]))
        kinds = {name: kind_from_settings(kind) for name, kind in stored["kinds"].items()}
        model._columns = Columns(tuple(stored["names"]), bool(stored["named"]), kinds)
        model._place = SplinePlace(**{name: float(settings["place"][name]) for name in _PLACE})
        # Stores of earlier releases have no updates.
        model.n_features_in_, model.n_updates_ = 1, int(settings.get("n_updates", 0))
        model.n_rows_ = int(settings.get("n_all_rows", settings["n_rows"]))
        if model._columns.named:
            model.feature_names_in_ = np.array(model._columns.names, dtype=object)
        model._show()
        model._restore_calibration(tree, settings.get("rows_seen"))
        return model
