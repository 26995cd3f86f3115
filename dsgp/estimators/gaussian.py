"""What a fitted regressor with Gaussian noise does: predictions in the unit of its target.

Where the target was transformed, mean, deviations, intervals and draws are those of the target, and
components, kernels and noise stay on the scale of the transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataError
from dsgp.estimators.parameters import require_choice, require_level
from dsgp.estimators.predicting import AdditivePredictor
from dsgp.estimators.summary import Summary
from dsgp.estimators.transforming import Target, sample_of_rows, tell_skewness
from dsgp.rows.sources import Rows, Source, computed
from dsgp.terms import Floats
from dsgp.transforms import Transform, from_settings

# Role of observations that a prediction is compared with.
_TARGET = "y"


class GaussianPredictor(AdditivePredictor):
    """A fitted additive model of a target, or of a transform of it, with Gaussian noise.

    An estimator's ``fit`` makes a ``Target``, fits its rows, and calls ``_keep_target`` after
    ``_keep``.
    """

    _optional_attributes: ClassVar[Mapping[str, Any]] = {"_transform_settings": None}

    _transform_settings: dict[str, Any] | None = None

    # ------------------------------------------------------------------ what a fit leaves

    def _keep_target(self, target: Target) -> None:
        """Take over the transform of the target; log likelihoods become those of the target."""
        transform, unit = target.transform, target.log_jacobian
        self._transform_settings = None if transform is None else transform.settings()
        self.log_marginal_likelihood_ += unit
        self.learner_trace_ = [value + unit for value in self.learner_trace_]

    def _tell_skewness(self, source: Source) -> None:
        """Warn if residuals of some training rows are strongly skewed, and nothing was done."""
        if self._transform_settings is not None:
            return
        rows = sample_of_rows(source, self.used_columns_)
        if not len(rows) or rows.y is None:
            return
        residuals = rows.y - self._evaluate_rows(rows, _only_mean, 1, with_variance=False)[:, 0]
        if rows.weight is not None:
            residuals = residuals * np.sqrt(rows.weight)
        what = f"the target {source.target!r}"
        tell_skewness(residuals, bool((rows.y > 0).all()), what, "target_transform")

    @property
    def transform_(self) -> Transform | None:
        """The transform of the target with its learned parameters; None without one."""
        check_is_fitted(self)
        return from_settings(self._transform_settings)

    # ------------------------------------------------------------------ predicting

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        include_noise: bool = False,
        *,
        statistic: str = "mean",
    ) -> Any:
        """Predict the target, and on request its standard deviation, row by row.

        A prediction does not depend on the other rows of the call, but for rounding in the last
        digit of dense standard deviations.

        Parameters
        ----------
        X : table
            Of any kind that ``fit`` takes. Columns are matched by name where both have names.
            Further columns are ignored, and so are those that were constant in the training
            rows.
        return_std : bool
        include_noise : bool
            Give the standard deviation of a new observation y of weight 1 instead of that of what
            is expected of y.
        statistic : {"mean", "median"}
            Of the distribution of y. They differ where the target was transformed: the mean of a
            skewed distribution lies in its long tail.

        Returns
        -------
        mean or median : ndarray of shape (n_rows,)
            A dask array where X is a dask collection: nothing is computed yet.
        std : the same, if ``return_std``

        Notes
        -----
        With a transform g, y = g⁻¹(f + ε). What is expected of y given f is an average over the
        noise ε; the mean given is the mean of that over f, and so that of y, and the standard
        deviation is what f leaves to it. Nothing is linearised.
        """
        require_choice("statistic", statistic, ("mean", "median"))
        transform = self.transform_

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            if transform is None:
                if variance is None:
                    return [mean]
                return [mean, np.sqrt(self._total(variance, include_noise))]
            if variance is None:
                return [transform.median(mean)]
            noise = 0.0 if include_noise else self.noise_variance_
            average, std = transform.moments(mean, self._total(variance, include_noise), noise)
            middle = transform.median(mean) if statistic == "median" else average
            return [middle, std] if return_std else [middle]

        needed = return_std or (transform is not None and statistic == "mean")
        columns = self._evaluated(X, finish, 1 + return_std, with_variance=needed)
        return (columns[:, 0], columns[:, 1]) if return_std else columns[:, 0]

    def predict_latent(self, X: Any, return_std: bool = False) -> Any:
        """Predict f, on the scale of the transform: its mean, and its standard deviation.

        Parameters
        ----------
        X : table
            As for ``predict``.
        return_std : bool

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            A dask array where X is a dask collection.
        std : the same, if ``return_std``
        """

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            return [mean] if variance is None else [mean, np.sqrt(variance)]

        columns = self._evaluated(X, finish, 1 + return_std, with_variance=return_std)
        return (columns[:, 0], columns[:, 1]) if return_std else columns[:, 0]

    def predict_interval(
        self, X: Any, level: float = 0.95, include_noise: bool = False
    ) -> tuple[Any, Any]:
        """Predict an interval of what is expected of the target, or of a new observation.

        Parameters
        ----------
        X : table
            As for ``predict``.
        level : float
            Probability of the interval, half of the rest on either side.
        include_noise : bool
            The interval of a new observation of weight 1 instead of that of its expectation.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Dask arrays where X is a dask collection.
        """
        require_level("level", level)
        transform = self.transform_
        reach = float(ndtri(0.5 + level / 2))

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            assert variance is not None
            half = reach * np.sqrt(self._total(variance, include_noise))
            ends = mean - half, mean + half
            if transform is None:
                return list(ends)
            if include_noise:
                return [transform.inverse(end) for end in ends]
            # An average over the noise grows with f: its quantiles are those of f.
            return [transform.average(end, self.noise_variance_) for end in ends]

        columns = self._evaluated(X, finish, 2, with_variance=True)
        return columns[:, 0], columns[:, 1]

    def log_predictive_density(self, X: Any, y: Any) -> Floats:
        """Log density of observations of weight 1, row by row, in the unit of the target.

        Parameters
        ----------
        X : table
            As for ``predict``.
        y : array_like of shape (n_rows,), or str
            Observations, or the name of their column of X.

        Returns
        -------
        ndarray of shape (n_rows,)
            Computed at once, of a dask collection too.

        Raises
        ------
        DataError
            If an observation has no transform.
        """
        if y is None:
            raise DataError("y is None; pass the observations")
        transform = self.transform_

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            assert variance is not None
            return [rows.extra[_TARGET], mean, self._total(variance, True)]

        columns = computed(self._evaluated(X, finish, 3, with_variance=True, extra={_TARGET: y}))
        observed, mean, variance = np.ascontiguousarray(columns.T)
        jacobian: Any = 0.0
        if transform is not None:
            if refused := int(np.count_nonzero(~transform.allows(observed))):
                raise DataError(
                    f"y is 0 or negative in {refused} of {len(observed)} rows, and the model is of "
                    f"{transform.described()}: such values have no density"
                )
            jacobian = transform.log_slope(observed)
            observed = transform.forward(observed)
        square = (observed - mean) ** 2 / variance
        return np.asarray(jacobian - 0.5 * (square + np.log(2 * np.pi * variance)))

    def leave_one_out(self, X: Any, y: Any, sample_weight: Any = None) -> Floats:
        r"""Log density of each training row given all others, at the fitted hyperparameters.

        .. math:: \log p(y_i \mid y_{-i}), \quad
                  y_i - \mu_{-i} = \frac{y_i - \hat f_i}{1 - h_i}, \quad
                  \sigma^2_{-i} = \frac{\sigma^2}{w_i (1 - h_i)}, \quad h_i = w_i v_i / \sigma^2

        with the posterior variance v of f (Rasmussen and Williams 2006, sec. 5.4.2): no row is left
        out by a fit of its own.

        Parameters
        ----------
        X, y, sample_weight
            The rows that the model was fitted to, in any order; y may be the name of a column.

        Returns
        -------
        ndarray of shape (n_rows,)
            In the unit of the target; NaN where a row has weight 0.

        Raises
        ------
        DataError
            If a row tells all of f by itself, as rows that the model was not fitted to may.
        """
        transform, noise = self.transform_, self.noise_variance_

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            assert variance is not None
            return [
                rows.extra[_TARGET],
                mean,
                variance,
                rows.extra.get("weight", np.ones(len(mean))),
            ]

        extra = {_TARGET: y, "weight": sample_weight}
        found = computed(self._evaluated(X, finish, 4, with_variance=True, extra=extra))
        observed, mean, variance, weight = np.ascontiguousarray(found.T)
        jacobian: Any = 0.0
        if transform is not None:
            jacobian = transform.log_slope(observed)
            observed = transform.forward(observed)
        left = 1.0 - weight * variance / noise
        if (left[weight > 0] <= 0).any():
            raise DataError(
                f"{int(np.count_nonzero(left[weight > 0] <= 0))} of {len(left)} rows tell more of "
                "f than the model knows: leave_one_out is of the rows that the model was fitted to"
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = noise / (weight * left)
            square = ((observed - mean) / left) ** 2 / spread
            density = jacobian - 0.5 * (square + np.log(2 * np.pi * spread))
        return np.where(weight > 0, density, np.nan)

    def _total(self, variance: Floats, include_noise: bool) -> Floats:
        return variance + self.noise_variance_ if include_noise else variance

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of what is expected of the target at chosen rows.

        One solve a row; of a transformed target by its joint distribution, not linearised. Where
        directions or draws are part of a model, so is what they add.

        Parameters
        ----------
        X : table
            Rows to predict, as for ``predict``; some hundreds.
        include_noise : bool
            Of new observations of weight 1: with the noise on the diagonal.

        Returns
        -------
        ndarray of shape (n_rows, n_rows), in squared units of the target

        Raises
        ------
        MemoryLimitError
            If the tables of so many rows would not fit.
        """
        transform = self.transform_
        if transform is None:
            return super().covariance(X, include_noise)
        latent = super().covariance(X)
        mean = np.asarray(computed(self.predict_latent(X)))
        noise = self.noise_variance_
        if include_noise:
            return transform.covariance(mean, latent, own=noise)
        return transform.covariance(mean, latent, noise)

    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        include_noise: bool = False,
    ) -> Floats:
        """Draw what is expected of the target from the joint posterior, or new observations.

        Exactly, by perturbing the data and solving; where the fit kept draws, some of these at
        random, each at most once while there are enough.

        Parameters
        ----------
        X : table
            Rows at which the draws are evaluated.
        n_samples : int
        random_state : int or numpy.random.Generator, optional
            By default that of the model.
        include_noise : bool
            Draw new observations of weight 1.

        Returns
        -------
        ndarray of shape (n_samples, n_rows)
            In the unit of the target.
        """
        drawn = super().sample(X, n_samples, random_state, include_noise)
        transform = self.transform_
        if transform is None:
            return drawn
        if include_noise:
            return transform.inverse(drawn)
        return transform.average(drawn, self.noise_variance_)

    # ------------------------------------------------------------------ telling

    def _summary(self) -> Summary:
        told = super()._summary()
        transform = self.transform_
        if transform is None:
            return told
        return replace(
            told,
            lines=[
                (
                    "transform",
                    f"{transform.described()} of the target is modelled: terms, noise and "
                    "intercept are on its scale;",
                ),
                ("", "the log likelihood is that of the target, and predictions are in its unit"),
                *told.lines,
            ],
        )


def _only_mean(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
    return [mean]
