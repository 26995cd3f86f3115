"""Quantiles, intervals and their calibration, of models with Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataError
from dsgp.estimators.conformal import TARGET, Conformal, ConformalEstimator
from dsgp.estimators.framed import interval_of, quantiles_of
from dsgp.models.checks import require_level
from dsgp.models.gaussian_model import GaussianModel
from dsgp.rows.sources import Rows
from dsgp.terms import Floats
from dsgp.transforms import require_quantiles


class GaussianDistribution(Conformal):
    """The distribution of a target around f, as users ask for it; a subclass answers for rows."""

    def _ends(self, X: Any, level: float, include_noise: bool, factor: float | None) -> Any:
        """Ends of intervals, (n_rows, 2): of a level, or standard deviations on either side."""
        raise NotImplementedError

    def _quantiles(self, X: Any, probabilities: Sequence[float], include_noise: bool) -> Any:
        """Quantiles of rows, (n_rows, n_quantiles)."""
        raise NotImplementedError

    def _probabilities(self, X: Any, y: Any) -> Floats:
        """Predictive probabilities of values up to observations, (n_rows,)."""
        raise NotImplementedError

    def predict_interval(
        self, X: Any, level: float = 0.95, include_noise: bool = False, *, as_frame: bool = False
    ) -> Any:
        """Predict an interval of what is expected of the target, or of a new observation.

        Parameters
        ----------
        X : table
            As for ``predict``.
        level : float
            Probability of the interval, half of the rest on either side.
        include_noise : bool
            The interval of a new observation of weight 1 instead of that of its expectation. After
            ``calibrate`` it is the conformal one, with its guarantee.
        as_frame : bool
            Return columns ``lower`` and ``upper`` as a table of the library of X, with its index.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Dask arrays where X is a dask collection; one table with ``as_frame``.
        """
        check_is_fitted(self)
        require_level("level", level)
        factor = self._conformal(level) if include_noise and self.n_calibrated_ else None
        return interval_of(X, self._ends(X, level, include_noise, factor), as_frame)

    def predict_quantiles(
        self,
        X: Any,
        quantiles: float | Sequence[float] = (0.05, 0.5, 0.95),
        include_noise: bool = False,
        *,
        as_frame: bool = False,
    ) -> Any:
        """Predict quantiles of what is expected of the target, or of a new observation.

        Parameters
        ----------
        X : table
            As for ``predict``.
        quantiles : float or sequence of float
            Probabilities between 0 and 1; 0.5 is the median.
        include_noise : bool
            Of a new observation of weight 1. ``calibrate`` changes intervals only.
        as_frame : bool
            Return columns such as ``quantile_0.5`` as a table of the library of X, with its index.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles)
            In the unit of the target; a dask array where X is a dask collection. A table with
            ``as_frame``.
        """
        check_is_fitted(self)
        probabilities = require_quantiles(quantiles)
        answered = self._quantiles(X, probabilities, include_noise)
        return quantiles_of(X, probabilities, answered, as_frame)

    def pit(self, X: Any, y: Any) -> Floats:
        r"""Probability integral transform of observations: their predictive probabilities.

        .. math:: u_i = P(Y_i \le y_i \mid x_i)

        They are uniform on (0, 1) if the predictive distribution is right, whatever it is:
        ``calibration_report`` judges them.

        Parameters
        ----------
        X : table
            As for ``predict``.
        y : array_like of shape (n_rows,), or str
            Observations of weight 1, or the name of their column of X.

        Returns
        -------
        ndarray of shape (n_rows,)
            Computed at once, of a dask collection too.
        """
        check_is_fitted(self)
        if y is None:
            raise DataError("y is None; pass the observations")
        return self._probabilities(X, y)

    def calibrate(self, X: Any, y: Any) -> Self:
        r"""Calibrate intervals of new observations on held-out rows, by split conformal prediction.

        .. math:: s_i = |y_i - m_i| / \sigma_i, \quad
                  m \pm \sigma\, s_{(k)}, \quad k = \lceil (n + 1)\, \text{level}\rceil

        with mean m and standard deviation σ of a new observation, on the scale of the transform if
        there is one, and the k-th smallest score of the n rows given. From then on
        ``predict_interval(..., include_noise=True)`` has

        .. math:: \text{level} \le P(\text{lower} \le Y \le \text{upper})
                  \le \text{level} + \frac{1}{n + 1}

        whatever is wrong with the model, if these rows and new ones are exchangeable (drawn from
        the same distribution, and none of them used in the fit; the upper bound also needs scores
        without ties). The guarantee is of the average over rows and calibrations, not for each
        part of the table: ``calibration_report`` shows parts. Everything else stays as it was.

        Parameters
        ----------
        X : table
            Rows that the model was not fitted to, as for ``predict``; a level of 0.95 needs 19.
        y : array_like of shape (n_rows,), or str
            Observations of weight 1, or the name of their column of X.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the rows are those that the model was fitted to, as far as the model remembers: rows
            that were streamed are not remembered.

        Warns
        -----
        DataWarning
            If some of the rows are the same as training rows.

        References
        ----------
        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, *Distribution-free predictive inference for
        regression*, JASA 113 (2018), sections 2.2 and 5.2.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp import AdditiveGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (500, 1))
        >>> y = np.sin(X[:, 0]) + 0.3 * rng.standard_t(3, 500)
        >>> model = AdditiveGPRegressor().fit(X[:300], y[:300])
        >>> lower, upper = model.calibrate(X[300:], y[300:]).predict_interval(
        ...     X[:5], include_noise=True
        ... )
        >>> model.n_calibrated_
        200
        """
        return self._calibrated(X, y)


class GaussianTables(GaussianDistribution, ConformalEstimator):
    """That of functions of tables; a subclass says how rows are compared with numbers of theirs."""

    model_: GaussianModel

    def _beside(
        self, extra: dict[str, Any], X: Any, answer: Callable[..., list[Floats]], n_columns: int
    ) -> Floats:
        """Numbers of the rows, ones where none were given, above what is answered of both."""
        raise NotImplementedError

    def _ends(self, X: Any, level: float, include_noise: bool, factor: float | None) -> Any:
        model: GaussianModel = self._fitted

        def answer(rows: Rows) -> list[Floats]:
            if factor is not None:
                return model.widened_at(rows, factor)
            return model.interval_at(rows, level, include_noise)

        return self._answers(X, answer, 2, with_std=True)

    def _quantiles(self, X: Any, probabilities: Sequence[float], include_noise: bool) -> Any:
        model: GaussianModel = self._fitted

        def answer(rows: Rows) -> list[Floats]:
            return model.quantiles_at(rows, probabilities, include_noise)

        return self._answers(X, answer, len(probabilities), with_std=True)

    def _probabilities(self, X: Any, y: Any) -> Floats:
        model: GaussianModel = self._fitted

        def answer(rows: Rows, observed: Floats) -> list[Floats]:
            return [model.cdf_at(rows, observed)]

        observed, probability = self._beside({TARGET: y}, X, answer, 1)
        model.require_transformable(observed)
        return probability

    def _conformity(self, X: Any, y: Any, **extra: Any) -> Floats:
        model: GaussianModel = self._fitted

        def answer(rows: Rows, observed: Floats) -> list[Floats]:
            return [np.abs(model.standardised_at(rows, observed))]

        observed, scores = self._beside({TARGET: y}, X, answer, 1)
        model.require_transformable(observed)
        return scores
