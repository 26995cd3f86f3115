"""What estimators with Gaussian noise share: predictions in the unit of their target.

Where the target was transformed, mean, deviations, intervals and draws are those of the target, and
components, kernels and noise stay on the scale of the transform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from dsgp.errors import DataError
from dsgp.estimators.conformal import TARGET
from dsgp.estimators.framed import columns_of
from dsgp.estimators.gaussian_distribution import GaussianTables
from dsgp.models import report, stored
from dsgp.models.checks import require_choice, require_count
from dsgp.models.gaussian.target import (
    is_rounding,
    of_skewness,
    sample_of_rows,
    warn_of_skewness,
)
from dsgp.models.gaussian_mixture import GaussianMixture
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.mixture import MixtureModel
from dsgp.models.noise import VaryingNoise
from dsgp.models.summary import Summary
from dsgp.rows.sources import Rows, Source, computed
from dsgp.terms import Floats
from dsgp.transforms import Transform, from_settings

# Share of the rows that may determine f by themselves where noise varies and is next to nothing.
_MOST_OVERDETERMINED = 0.01
# Role of weights beside rows.
_WEIGHT = "weight"


class GaussianEstimator(RegressorMixin, GaussianTables):
    """An estimator of a target, or of a transform of it, with Gaussian noise."""

    model_: GaussianModel
    noise_variance_: float

    def _warn_of_skewness(self, source: Source) -> None:
        """Warn if residuals of some training rows are strongly skewed, and nothing was done."""
        if self.model_.transform is not None:
            return
        names = self.used_columns_
        rows = self._as_read(names, sample_of_rows(source, names))
        if not len(rows) or rows.y is None:
            return
        latent, noise = self.model_.latent, self._noise
        mean = self._answer_rows(rows, lambda some: [latent.moments(some, False)[0]], 1, False)
        residuals = rows.y - mean[:, 0]
        if is_rounding(residuals, rows.y):
            return
        if noise is not None:
            residuals = residuals / np.sqrt(noise.typical(rows))
        if rows.weight is not None:
            residuals = residuals * np.sqrt(rows.weight)
        what = f"the target {source.target!r}"
        positive = bool((rows.y > 0).all())
        notes = of_skewness(residuals, positive, what, "target_transform")
        self._note(notes)
        warn_of_skewness(notes)

    @property
    def transform_(self) -> Transform | None:
        """The transform of the target with its learned parameters; None without one."""
        transform: Transform | None = self._fitted.transform
        return transform

    @property
    def _noise(self) -> VaryingNoise | None:
        return self.model_.noise

    # ------------------------------------------------------------------ predicting

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        include_noise: bool = False,
        *,
        statistic: str = "mean",
        as_frame: bool = False,
    ) -> Any:
        """Predict the target, and on request its standard deviation, row by row.

        A prediction does not depend on the other rows of the call, except for rounding in the last
        digit of dense standard deviations.

        Parameters
        ----------
        X : table
            A table of any kind that ``fit`` takes. Columns are matched by name if both have names.
            Further columns are ignored, and so are those that were constant in the training
            rows.
        return_std : bool
        include_noise : bool
            Return the standard deviation of a new observation y of weight 1 instead of that of the
            expectation of y.
        statistic : {"mean", "median"}
            Mean or median of the distribution of y. They differ if the target was transformed,
            because the long tail of a skewed distribution moves its mean.
        as_frame : bool
            Return columns ``mean`` (or ``median``) and ``std`` as a table of the library of X, with
            its index.

        Returns
        -------
        mean or median : ndarray of shape (n_rows,)
            A dask array where X is a dask collection: nothing is computed yet.
        std : the same, if ``return_std``
            One table with ``as_frame``.

        Notes
        -----
        With a transform g, y = g⁻¹(f + ε). The expectation of y given f is an average over the
        noise ε. The mean of that expectation over the posterior of f is the mean of y, and its
        standard deviation is returned unless ``include_noise``. Nothing is linearised.
        """
        require_choice("statistic", statistic, ("mean", "median"))
        model: GaussianModel = self._fitted
        needed = model.needs_variance(return_std, statistic)

        def answer(rows: Rows) -> list[Floats]:
            return model.predicted(
                rows, return_std=return_std, include_noise=include_noise, statistic=statistic
            )

        columns = self._answers(X, answer, 1 + return_std, with_std=needed)
        return columns_of(X, [statistic, "std"][: 1 + return_std], columns, as_frame)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the variance of a target that the model explains, R², as in scikit-learn.

        Parameters
        ----------
        X : table
            As for ``predict``.
        y, sample_weight : array_like of shape (n_rows,), or str
            Numbers, or the names of their columns of X; without weights all rows count alike.

        Returns
        -------
        float
            1 at best; 0 as good as the mean of y.
        """
        if not isinstance(y, str) and not isinstance(sample_weight, str):
            return float(super().score(X, y, sample_weight))
        model: GaussianModel = self._fitted

        def answer(rows: Rows) -> list[Floats]:
            weight = rows.extra.get(_WEIGHT, np.ones(len(rows)))
            mean = model.predicted(rows, return_std=False, include_noise=False, statistic="mean")
            return [rows.extra[TARGET], weight, *mean]

        extra = {TARGET: y, _WEIGHT: sample_weight}
        needed = model.needs_variance(False, "mean")
        observed, weight, mean = computed(
            self._answers(X, answer, 3, with_std=needed, extra=extra)
        ).T
        return float(r2_score(observed, mean, sample_weight=weight))

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
            Computed at once, for a dask collection too.

        Raises
        ------
        DataError
            If an observation has no transform.
        """
        if y is None:
            raise DataError("y is None; pass the observations")
        model: GaussianModel = self._fitted

        def answer(rows: Rows, observed: Floats) -> list[Floats]:
            return [model.log_density_at(rows, observed)]

        observed, density = self._beside({TARGET: y}, X, answer, 1)
        model.require_transformable(observed)
        return density

    def leave_one_out(self, X: Any, y: Any, sample_weight: Any = None) -> Floats:
        r"""Log density of each training row given all others, at the fitted hyperparameters.

        .. math:: \log p(y_i \mid y_{-i}), \quad
                  y_i - \mu_{-i} = \frac{y_i - \hat f_i}{1 - h_i}, \quad
                  \sigma^2_{-i} = \frac{\sigma^2}{w_i (1 - h_i)}, \quad h_i = w_i v_i / \sigma^2

        with the posterior variance v of f (Rasmussen and Williams 2006, sec. 5.4.2): no model is
        fitted again. If hyperparameters are draws, it is the harmonic mean over them, as if they
        had been drawn without the row.

        Parameters
        ----------
        X, y, sample_weight
            The rows that the model was fitted to, in any order; y may be the name of a column.

        Returns
        -------
        ndarray of shape (n_rows,)
            Densities are per unit of the target; NaN for rows of weight 0.

        Raises
        ------
        DataError
            If a row alone would determine f, which happens with rows that the model was not fitted
            to.
        """
        model: GaussianModel = self._fitted

        def answer(rows: Rows, observed: Floats, weight: Floats) -> list[Floats]:
            return list(model.leave_one_out_at(rows, observed, weight))

        extra = {TARGET: y, _WEIGHT: sample_weight}
        _, weight, density, left = self._beside(extra, X, answer, 2)
        n_overdetermined = int(np.count_nonzero(left[weight > 0] <= 0))
        if n_overdetermined > (0 if self._noise is None else _MOST_OVERDETERMINED * len(left)):
            raise DataError(
                f"{n_overdetermined} of {len(left)} rows are more informative about f than the "
                "model's posterior: leave_one_out is for the rows that the model was fitted to"
            )
        return density

    def _beside(
        self, extra: dict[str, Any], X: Any, answer: Callable[..., list[Floats]], n_columns: int
    ) -> Floats:
        """Numbers of the rows, ones where none were given, above what is answered of both."""

        def answered(rows: Rows) -> list[Floats]:
            numbers = [rows.extra.get(role, np.ones(len(rows))) for role in extra]
            return [*numbers, *answer(rows, *numbers)]

        columns = computed(
            self._answers(X, answered, len(extra) + n_columns, with_std=True, extra=extra)
        )
        return np.ascontiguousarray(columns.T)

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of the expected target at chosen rows.

        It takes one solve per row. For a transformed target it is that of the joint distribution,
        not linearised. For models with draws or projections it includes their uncertainty.

        Parameters
        ----------
        X : table
            Rows to predict, as for ``predict``; some hundreds.
        include_noise : bool
            Covariance of new observations of weight 1: add the noise to the diagonal.

        Returns
        -------
        ndarray of shape (n_rows, n_rows), in squared units of the target

        Raises
        ------
        MemoryLimitError
            If the tables of so many rows would not fit.
        """
        model: GaussianModel = self._fitted
        return self._solved("covariance", model.covariance(self._loaded_rows(X), include_noise))

    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        include_noise: bool = False,
    ) -> Floats:
        """Draw the expected target from the joint posterior, or new observations.

        The draws are exact: the data are perturbed and the system is solved. If the fit kept draws
        of hyperparameters, some of these are used at random, each at most once while there are
        enough.

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
        model: GaussianModel = self._fitted
        random = self._generator(random_state)
        require_count("n_samples", n_samples)
        rows = self._loaded_rows(X)
        solved = model.sample(rows, n_samples, random, self.tol, include_noise)
        return self._solved("sample", solved)

    # ------------------------------------------------------------------ reporting and storing

    @property
    def _scale(self) -> str:
        transform = self.transform_
        return "target" if transform is None else f"transform {transform.name} of the target"

    def _summary(self) -> Summary:
        return report.of_gaussian(
            type(self).__name__, self.model_, self._facts, self.get_params(deep=False)
        )

    def _fitted_settings(self) -> dict[str, Any]:
        transform = self.model_.transform
        kept = None if transform is None else transform.settings()
        return super()._fitted_settings() | {"_transform_settings": kept}

    @classmethod
    def _model_of(cls, settings: dict[str, Any], tree: dict[str, Any]) -> GaussianModel:
        fitted = settings["fitted"]
        latent = stored.latent_of(settings, tree, least_precision=0.0)
        noise_variance = fitted["noise_variance_"]
        transform = from_settings(fitted.get("_transform_settings"))
        if isinstance(latent, MixtureModel):
            return GaussianMixture(latent, noise_variance, transform)
        return GaussianModel(latent, noise_variance, transform)
