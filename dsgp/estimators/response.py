"""What estimators with a likelihood share: predictions on the scale of the response."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import RegressorTags

from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.estimators.conformal import TARGET
from dsgp.estimators.framed import columns_of
from dsgp.estimators.response_distribution import CATEGORIES, Response, ResponseDistribution
from dsgp.laplace.mode import LEAST_PRECISION
from dsgp.likelihoods import Likelihood, by_name, from_settings
from dsgp.models import report, stored
from dsgp.models.checks import require_choice, require_count
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.response_model import ResponseModel
from dsgp.models.summary import Summary
from dsgp.rows.response import (
    TRIALS,
    beside,
    named_roles,
    require_meaning,
    require_usable,
    shift_of,
)
from dsgp.rows.sources import Rows, computed, is_lazy
from dsgp.terms import Floats

# Of f on the scale of a logarithm: beyond, an average is more than e times the median.
_DOUBTFUL_VARIANCE = 2.0


class ResponseEstimator(ResponseDistribution):
    """An estimator of any response, with a likelihood around f.

    The functions are those of an additive model around the mode: ``components``, ``covariance`` and
    draws are theirs, on the scale of the link.
    """

    # A parameter of the estimator.
    likelihood: str | Likelihood

    model_: ResponseModel
    newton_trace_: list[float]
    newton_iterations_: int

    @property
    def likelihood_(self) -> Likelihood:
        """The likelihood with its fitted parameters."""
        likelihood: Likelihood = self._fitted.likelihood
        return likelihood

    def _take_mode(self, outcome: LaplaceOutcome) -> None:
        """Take over how the mode was found."""
        self.newton_trace_ = [float(value) for value in outcome.mode.trace]
        self.newton_iterations_ = len(outcome.mode.trace)

    def __sklearn_tags__(self) -> Any:
        """Declare what is predicted: numbers, or probabilities and mean categories."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        name = getattr(self.likelihood, "name", self.likelihood)
        if name not in CATEGORIES:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.positive_only = _refuses_negative(self.likelihood)
        return tags

    # ------------------------------------------------------------------ predicting

    def _responses(
        self,
        X: Any,
        response: Response,
        n_columns: int,
        extra: Mapping[str, Any],
        y: Any = None,
    ) -> Any:
        """Evaluate a function of f with its offset, row by row.

        With ``y``, its values are one more column before those.
        """
        model: ResponseModel = self._fitted
        require_meaning(model.likelihood, extra)
        names = named_roles(extra)

        def answer(rows: Rows) -> list[Floats]:
            shift = shift_of(rows.extra)
            mean, variance = model.latent.moments(rows, True)
            assert variance is not None
            columns = response(mean + shift, variance, rows.extra.get(TRIALS), shift)
            return columns if y is None else [rows.extra[TARGET], *columns]

        return self._answers(
            X,
            answer,
            n_columns + (y is not None),
            with_std=True,
            extra=dict(extra) if y is None else {**extra, TARGET: y},
            check=lambda rows, first_row: require_usable(
                model.likelihood, rows.extra, names, first_row
            ),
        )

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        include_noise: bool = False,
        *,
        statistic: str = "mean",
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
        as_frame: bool = False,
    ) -> Any:
        """Predict the mean response, averaged over f, and on request a standard deviation.

        Parameters
        ----------
        X : table
            A table of any kind that ``fit`` takes.
        return_std : bool
        include_noise : bool
            Return the standard deviation of a new observation instead of that of the mean given f.
        statistic : {"mean", "median"}
            Which summary of the mean response given f is predicted (it is uncertain because f is):
            its average over f, or its median. The median is the inverse link at the mean of f,
            which other packages predict; it does not depend on the uncertainty of f.
        offset, exposure, trials : array_like of shape (n_rows,) or str, optional
            As for ``fit``. Without exposure the prediction is per unit of exposure, and without
            trials it is a probability; the values of the fit are not used.
        as_frame : bool
            Return columns ``mean`` (or ``median``) and ``std`` as a table of the library of X, with
            its index.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            A dask array where X is a dask collection: nothing is computed yet.
        std : the same, if ``return_std``
            One table with ``as_frame``.

        Warns
        -----
        DataWarning
            If, with a log link, the average is more than e times the median in some rows, because
            half of the variance of f exceeds 1 there.

        Notes
        -----
        With a log link, averages and standard deviations leave out a tail of f that no row
        supports: f counts as no higher than the highest of the training rows, or than three above
        its mean, whichever is more (docs/mathematics.md). Draws and intervals are those of the
        whole posterior.
        """
        require_choice("statistic", statistic, ("mean", "median"))
        model: ResponseModel = self._fitted
        averaged = statistic == "mean" and model.likelihood.link_name == "log"
        doubt = Doubt(is_lazy(X))

        def response(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> list[Floats]:
            if averaged:
                doubt.see(variance)
            return model.point(
                mean,
                variance,
                number,
                shift,
                return_std=return_std,
                include_noise=include_noise,
                statistic=statistic,
            )

        columns = self._responses(X, response, 1 + return_std, beside(offset, exposure, trials))
        doubt.warn()
        return columns_of(X, [statistic, "std"][: 1 + return_std], columns, as_frame)

    def log_predictive_density(
        self,
        X: Any,
        y: Any,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Floats:
        """Log density of observations, averaged over f, row by row.

        Parameters
        ----------
        X, offset, exposure, trials
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
            If an observation is not allowed by the likelihood.
        """
        y, mean, variance, number, _ = self._observed(X, y, beside(offset, exposure, trials))
        return self.model_.likelihood.log_predictive(y, mean, variance, number)

    def _observed(
        self, X: Any, y: Any, extra: Mapping[str, Any]
    ) -> tuple[Floats, Floats, Floats, Floats | None, Floats]:
        """Observations, checked, with mean and variance of f, trials and what is added to f."""

        def moments(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> list[Floats]:
            size = np.ones(len(mean)) if number is None else number
            return [mean, variance, size, np.zeros(len(mean)) + shift]

        if y is None:
            raise DataError("y is None; pass the observations")
        columns = computed(self._responses(X, moments, 4, extra, y))
        targets, mean, variance, number, shift = np.ascontiguousarray(columns.T)
        counted = None if extra[TRIALS] is None else number
        name = y if isinstance(y, str) else getattr(y, "name", None)
        shown = f"the target {name!r}" if isinstance(name, str) else "y"
        self.model_.likelihood.check_target(targets, counted, shown)
        return targets, mean, variance, counted, shift

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> float:
        r"""Share of the deviance that the model explains, D².

        .. math:: D^2 = 1 - \frac{\sum_i w_i\, [\ell^*_i - \log p(y_i \mid \hat\mu_i)]}
                               {\sum_i w_i\, [\ell^*_i - \log p(y_i \mid \bar\mu_i)]}

        with the predicted mean μ̂, the best constant μ̄ (in addition to the offsets given) and the
        largest log density ℓ* of any mean. It is 1 at best, 0 if the model is as good as a
        constant, and R² with Gaussian noise; scikit-learn's ``PoissonRegressor.score`` is the same.
        For ordered categories, the averaged probability replaces that at the mean.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``.
        y : array_like of shape (n_rows,), or str
            Observations, or the name of their column of X.
        sample_weight : array_like of shape (n_rows,), optional

        Returns
        -------
        float
            NaN where the observations do not differ.
        """
        extra = beside(offset, exposure, trials)
        y, mean, variance, number, shift = self._observed(X, y, extra)
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        if weight.shape != y.shape:
            raise DataError(f"sample_weight must have shape ({len(y)},), got {weight.shape}")
        return self.model_.explained(y, mean, variance, number, shift, weight)

    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        include_noise: bool = False,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Floats:
        """Draw f, on the scale of the link, or new observations from Laplace's posterior.

        Parameters
        ----------
        X : table
            Rows at which the draws are evaluated.
        n_samples : int
        random_state : int or numpy.random.Generator, optional
            By default that of the model.
        include_noise : bool
            Draw new observations instead of f, with the offsets, exposures and trials given.
        offset, exposure, trials
            As for ``predict``; they matter for new observations only.

        Returns
        -------
        ndarray of shape (n_samples, n_rows)
        """
        model: ResponseModel = self._fitted
        extra = beside(offset, exposure, trials)
        require_meaning(model.likelihood, extra)
        random = self._generator(random_state)
        require_count("n_samples", n_samples)
        rows = self._loaded_rows(X, extra if include_noise else None)
        drawn = self._solved("sample", model.latent.sample(rows, n_samples, random, self.tol))
        if not include_noise:
            return drawn
        joined = Rows.join(rows)
        require_usable(model.likelihood, joined.extra, named_roles(extra), 0)
        shift = shift_of(joined.extra)
        return model.likelihood.sample(drawn + shift, random, joined.extra.get(TRIALS))

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of f at chosen rows, on the scale of the link.

        Parameters
        ----------
        X : table
            Rows to predict, some hundreds.
        include_noise : bool
            Must be False: noise has no covariance on the scale of the link.

        Returns
        -------
        ndarray of shape (n_rows, n_rows)
        """
        if include_noise:
            raise ParameterError(
                "include_noise=True has no meaning on the scale of the link; "
                "sample(include_noise=True) draws new observations"
            )
        return self._solved("covariance", self._fitted.latent.covariance(self._loaded_rows(X)))

    # ------------------------------------------------------------------ reporting and storing

    @property
    def _scale(self) -> str:
        return f"{self.likelihood_.link_name} link"

    def _summary(self) -> Summary:
        return report.of_response(
            type(self).__name__,
            self.model_,
            self._facts,
            self.newton_iterations_,
            self.get_params(deep=False),
        )

    def _fitted_settings(self) -> dict[str, Any]:
        return super()._fitted_settings() | {
            "newton_iterations_": self.newton_iterations_,
            "newton_trace_": self.newton_trace_,
            "_likelihood_settings": dict(self.model_.settings),
            "_told": dict(self.model_.facts),
        }

    @classmethod
    def _model_of(cls, settings: dict[str, Any], tree: dict[str, Any]) -> ResponseModel:
        fitted = settings["fitted"]
        from_settings(fitted["_likelihood_settings"])  # which says so if it is none
        return ResponseModel(
            stored.latent_of(settings, tree, LEAST_PRECISION),
            fitted["_likelihood_settings"],
            fitted["_told"],
        )

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Any:
        model = super()._restore(settings, tree)
        # Stores of earlier versions have 0 for any likelihood.
        noise_variance = model.likelihood_.noise_variance
        model._facts = replace(model._facts, noise_variance=noise_variance)
        model.noise_variance_ = noise_variance
        model.newton_iterations_ = settings["fitted"]["newton_iterations_"]
        model.newton_trace_ = settings["fitted"]["newton_trace_"]
        return model


class Doubt:
    """Rows whose average on a log link is that of half the variance of f, not of its mean."""

    def __init__(self, lazy: bool) -> None:
        self.lazy = lazy  # blocks are computed later, elsewhere
        self.seen: list[tuple[int, int, float]] = []

    def see(self, variance: Floats) -> None:
        """Look at the variances of f in some rows; of a lazy table, warn at once."""
        wide = int(np.count_nonzero(variance > _DOUBTFUL_VARIANCE))
        self.seen.append((len(variance), wide, float(variance.max(initial=0.0))))
        if self.lazy:
            self.warn()
            self.seen.clear()

    def warn(self) -> None:
        """Warn of the rows seen."""
        n_rows, wide = sum(n for n, _, _ in self.seen), sum(n for _, n, _ in self.seen)
        if wide:
            std = math.sqrt(max(variance for _, _, variance in self.seen))
            warnings.warn(
                f"in {wide} of {n_rows} rows f is so uncertain (a standard deviation of up to "
                f"{std:.2g} on the scale of the logarithm) that its uncertainty dominates the "
                "mean: predict(..., statistic='median') does not depend on it, and "
                "predict_interval shows it",
                DataWarning,
                stacklevel=3,
            )


def _refuses_negative(likelihood: Any) -> bool:
    """Return whether a target must not be negative; a likelihood that is none is for ``fit``."""
    try:
        likelihood_of(likelihood).check_target(np.array([-1.0]))
    except DataError:
        return True
    except ParameterError:
        pass
    return False


def likelihood_of(likelihood: Any) -> Likelihood:
    """Return a likelihood given by name or as it is."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if isinstance(likelihood, str):
        return by_name(likelihood)
    hint = " (did you forget the brackets?)" if isinstance(likelihood, type) else ""
    raise ParameterError(
        f"likelihood must be a name or an object of dsgp.likelihoods, got {likelihood!r}{hint}"
    )
