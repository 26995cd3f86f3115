"""Quantiles, intervals and their calibration, of models with a likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from dsgp.errors import ParameterError
from dsgp.estimators.conformal import ConformalEstimator
from dsgp.estimators.framed import interval_of, quantiles_of
from dsgp.models.checks import generator, require_level
from dsgp.models.response_model import ResponseModel
from dsgp.rows.response import beside
from dsgp.terms import Floats
from dsgp.transforms import require_quantiles

# Likelihoods of categories: what is predicted is no target.
CATEGORIES = ("bernoulli", "ordered")
# Likelihoods of real targets, no value of which has a probability.
_REAL = ("gamma", "gaussian", "student_t")
# Levels of intervals stay within (0, 1).
_LEAST_SCORE = 1e-12

# Of mean and variance of f with its offset, trials, and the offset.
Response = Callable[[Floats, Floats, Floats | None, Any], list[Floats]]


class ResponseDistribution(ConformalEstimator):
    """The distribution of a response around f; a subclass says how rows are answered."""

    model_: ResponseModel

    def _responses(
        self,
        X: Any,
        response: Response,
        n_columns: int,
        extra: Mapping[str, Any],
        y: Any = None,
    ) -> Any:
        """Evaluate a function of f with its offset, row by row."""
        raise NotImplementedError

    def _observed(
        self, X: Any, y: Any, extra: Mapping[str, Any]
    ) -> tuple[Floats, Floats, Floats, Floats | None, Floats]:
        """Observations, checked, with mean and variance of f, trials and what is added to f."""
        raise NotImplementedError

    def predict_interval(
        self,
        X: Any,
        level: float = 0.95,
        include_noise: bool = False,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
        as_frame: bool = False,
    ) -> Any:
        """Predict an interval of the mean response, or of a new observation.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``.
        level : float
            Probability of the interval.
        include_noise : bool
            The interval of a new observation (quantiles of the likelihood, averaged over f)
            instead of that of the mean given f. After ``calibrate`` it is the conformal one, with
            its guarantee.
        as_frame : bool
            Return columns ``lower`` and ``upper`` as a table of the library of X, with its index.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Dask arrays where X is a dask collection; one table with ``as_frame``.
        """
        require_level("level", level)
        model: ResponseModel = self._fitted
        if include_noise and self.n_calibrated_:
            level = self._conformal(level)

        def interval(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> list[Floats]:
            return model.interval(mean, variance, number, level, include_noise)

        columns = self._responses(X, interval, 2, beside(offset, exposure, trials))
        return interval_of(X, columns, as_frame)

    def predict_quantiles(
        self,
        X: Any,
        quantiles: float | Sequence[float] = (0.05, 0.5, 0.95),
        include_noise: bool = False,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
        as_frame: bool = False,
    ) -> Any:
        """Predict quantiles of the mean response, or of a new observation.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``.
        quantiles : float or sequence of float
            Probabilities between 0 and 1; 0.5 is the median.
        include_noise : bool
            Of a new observation (of counts the smallest whose probability reaches them) instead of
            the mean given f. ``calibrate`` changes intervals only.
        as_frame : bool
            Return columns such as ``quantile_0.5`` as a table of the library of X, with its index.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles)
            A dask array where X is a dask collection. A table with ``as_frame``.
        """
        probabilities = require_quantiles(quantiles)
        model: ResponseModel = self._fitted

        def response(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> list[Floats]:
            return [model.quantile(mean, variance, number, p, include_noise) for p in probabilities]

        extra = beside(offset, exposure, trials)
        answered = self._responses(X, response, len(probabilities), extra)
        return quantiles_of(X, probabilities, answered, as_frame)

    def pit(
        self,
        X: Any,
        y: Any,
        random_state: int | np.random.Generator | None = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Floats:
        r"""Probability integral transform of observations, randomised where they are whole numbers.

        .. math:: u_i = P(Y_i < y_i) + r_i\, P(Y_i = y_i), \quad r_i \sim U(0, 1)

        averaged over f. They are uniform on (0, 1) if the predictive distribution is right:
        ``calibration_report`` judges them.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``.
        y : array_like of shape (n_rows,), or str
            Observations, or the name of their column of X.
        random_state : int or numpy.random.Generator, optional
            Of r; by default that of the model, or 0. It does not matter for real targets.

        Returns
        -------
        ndarray of shape (n_rows,)
            Computed at once, of a dask collection too.
        """
        y, mean, variance, number, _ = self._observed(X, y, beside(offset, exposure, trials))
        if random_state is None:
            random_state = 0 if self.random_state is None else self.random_state
        share = generator(random_state).random(len(y))
        likelihood = self.model_.likelihood
        upper = likelihood.response_cdf(y, mean, variance, number)
        if likelihood.name in _REAL:
            return upper
        return upper - (1 - share) * (
            upper - likelihood.response_cdf(y - 1, mean, variance, number)
        )

    def calibrate(
        self, X: Any, y: Any, *, offset: Any = None, exposure: Any = None, trials: Any = None
    ) -> Self:
        r"""Calibrate intervals of new observations on held-out rows, by split conformal prediction.

        .. math:: s_i = |2 u_i - 1|, \quad
                  \left[ F^{-1}\!\left(\tfrac{1 - s_{(k)}}{2}\right),
                         F^{-1}\!\left(\tfrac{1 + s_{(k)}}{2}\right)\right], \quad
                  k = \lceil (n + 1)\, \text{level}\rceil

        with the probability integral transforms u of ``pit``, the predictive distribution F of a
        row, and the k-th smallest score of the n rows given: the model's interval of another
        level. From then on ``predict_interval(..., include_noise=True)`` holds a new observation
        with a probability of ``level`` at least, whatever is wrong with the model, if these rows
        and new ones are exchangeable (drawn from the same distribution, and none of them used in
        the fit); of real targets with ``level + 1/(n + 1)`` at most, of counts with more, as their
        intervals end at whole numbers. The guarantee is of the average over rows and calibrations.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``: rows that the model was not fitted to; a level of 0.95 needs 19.
        y : array_like of shape (n_rows,), or str
            Observations, or the name of their column of X.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the rows are those that the model was fitted to, as far as the model remembers: rows
            that were streamed are not remembered.
        ParameterError
            If the target is a category, which has no interval.

        Warns
        -----
        DataWarning
            If some of the rows are the same as training rows.
        """
        if self.model_.likelihood.name in CATEGORIES:
            raise ParameterError(
                "calibrate is of intervals of numbers, and the target is a category, whose "
                "probabilities predict gives: dsgp.metrics.calibration_curve judges them"
            )
        return self._calibrated(X, y, offset=offset, exposure=exposure, trials=trials)

    def _conformity(self, X: Any, y: Any, **extra: Any) -> Floats:
        score = np.abs(2 * self.pit(X, y, **extra) - 1)
        return np.clip(score, _LEAST_SCORE, 1 - _LEAST_SCORE)
