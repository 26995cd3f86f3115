"""What a fitted generalized model does: predictions on the scale of the response."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logit, ndtri
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataError, ParameterError
from dsgp.estimators.parameters import generator, require_level
from dsgp.estimators.predicting import AdditivePredictor
from dsgp.estimators.responses import (
    EXPOSURE,
    OFFSET,
    TRIALS,
    named_role,
    require_positive,
    require_trials,
)
from dsgp.estimators.scoring import ScoringOutcome
from dsgp.estimators.summary import Summary, count_of, tell_columns, terms_table
from dsgp.laplace.mode import UNFELT
from dsgp.likelihoods import Likelihood, from_settings
from dsgp.likelihoods.lognormal import supported_moments
from dsgp.rows.sources import Rows, computed
from dsgp.terms import Floats

_LEGEND = (
    "lengthscale is in the column's units, std (prior standard deviation of the function) on the",
    "scale of the link; points: distinct values or bins; edf: effective degrees of freedom;",
    "share: variance of the term / variance of f over the rows (shares add up to more or less than",
    "100 % where terms correlate)",
)
# Latents at which every density is at its edge: of a mean of 0, or of one trial's 0 or 1.
_EDGE = 700.0
# Role of observations that a prediction is compared with.
_TARGET = "y"


class ResponsePredictor(AdditivePredictor):
    """A fitted generalized additive model.

    The functions are those of an additive model around the mode: ``components``, ``covariance`` and
    draws are theirs, on the scale of the link. An estimator's ``fit`` ends with ``_keep_scoring``,
    ``_set_columns`` and ``fit_seconds_``.
    """

    _plain_attributes: ClassVar[tuple[str, ...]] = (
        *AdditivePredictor._plain_attributes,
        "newton_iterations_",
        "newton_trace_",
        "_likelihood_settings",
        "_told",
    )

    # Parameters of the estimator.
    solver: str
    learner: str | None
    bins: str | int | None

    _unfelt: ClassVar[float] = UNFELT
    _likelihood_settings: dict[str, Any]
    _told: dict[str, Any]

    # ------------------------------------------------------------------ what a fit leaves

    def _keep_scoring(self, outcome: ScoringOutcome) -> None:
        """Take over the outcome of a fit."""
        terms = outcome.terms()
        learned, mode = outcome.learned, outcome.mode
        rows = outcome.responses.rows
        latent = rows.table.gather(mode.solution.mean) if terms else np.zeros(rows.n_rows)
        self.target_variance_ = max(float(np.var(latent)), np.finfo(float).tiny)
        self.noise_variance_ = 0.0  # of f: observations are the likelihood's
        self.log_marginal_likelihood_ = float(outcome.log_likelihood)
        self.learner_trace_ = [] if learned is None else [float(v) for v in learned.trace]
        self.learner_ = None if learned is None else str(self.learner)
        self.learner_notes_ = _notes(outcome)
        self.effective_dof_ = float(outcome.complexity.dof)
        self.bin_error_, self.bin_noise_ = float(outcome.bin_error), 0.0
        self.n_missing_ = outcome.responses.n_missing
        self.solver_iterations_ = mode.solution.iterations
        self.newton_iterations_ = len(mode.trace)
        self.newton_trace_ = [float(value) for value in mode.trace]
        self.n_iter_ = len(mode.trace) if learned is None else learned.evaluations
        self.error_bound_ = float(mode.solution.error_bound)
        self.converged_ = outcome.converged
        self.intercept_ = float(outcome.level + sum(term.centre for term in terms))
        self.constant_columns_ = outcome.responses.constant
        self.n_rows_ = rows.n_rows
        self._row_variance = self._information_scale = 1.0
        self._likelihood_settings = outcome.likelihood.to_settings()
        # Higher than that no training row says that f is.
        self._told = {
            "highest": float(outcome.level + latent.max(initial=0.0)),
            "exact_determinant": outcome.exact_determinant,
            "passes": 0 if learned is None else learned.passes,
            "target": outcome.responses.target,
            "offset": len(rows.offset) > 0,
        }
        self._set_terms(terms, mode.system.equations, mode.constant)

    @property
    def likelihood_(self) -> Likelihood:
        """The likelihood with its fitted parameters."""
        check_is_fitted(self)
        return from_settings(self._likelihood_settings)

    # ------------------------------------------------------------------ predicting

    def predict_latent(self, X: Any, return_std: bool = False) -> Any:
        """Predict f, on the scale of the link: its mean, and on request its standard deviation.

        Parameters
        ----------
        X : table
            As for ``predict``.
        return_std : bool

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            Without offset. A dask array where X is a dask collection.
        std : the same, if ``return_std``
        """
        found = self._evaluated(X, _latent, 1 + return_std, with_variance=return_std)
        return (found[:, 0], found[:, 1]) if return_std else found[:, 0]

    def _supported(self, mean: Floats, variance: Floats, shift: Any) -> tuple[Floats, Floats]:
        """Moments of f for averages of the response: on a log link without an unknown tail."""
        highest = self._told.get("highest")  # stores of earlier versions lack it
        if self.likelihood_.link_name != "log" or highest is None:
            return mean, variance
        return supported_moments(mean, variance, highest + shift)

    def _responses(
        self, X: Any, function: Any, n_columns: int, extra: Mapping[str, Any], y: Any = None
    ) -> Any:
        """Evaluate ``function(mean, variance, trials, shift)`` of f with its offset, row by row.

        With ``y``, its values are one more column before those.
        """
        require_meaning(self.likelihood_, extra)

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            shift, number = offsets_of(rows.extra)
            assert variance is not None
            found = list(function(mean + shift, variance, number, shift))
            return found if y is None else [rows.extra[_TARGET], *found]

        wanted = dict(extra) if y is None else {**extra, _TARGET: y}
        return self._evaluated(
            X,
            finish,
            n_columns + (y is not None),
            with_variance=True,
            extra=wanted,
            check=partial(_check_extra, {role: named_role(role, extra[role]) for role in extra}),
        )

    def predict_interval(
        self,
        X: Any,
        level: float = 0.95,
        include_noise: bool = False,
        *,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> tuple[Any, Any]:
        """Predict an interval of the mean response, or of a new observation.

        Parameters
        ----------
        X, offset, exposure, trials
            As for ``predict``.
        level : float
            Probability of the interval.
        include_noise : bool
            The interval of a new observation (quantiles of the likelihood, averaged over f)
            instead of that of the mean given f.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
        """
        require_level("level", level)
        likelihood = self.likelihood_

        def interval(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> tuple[Floats, ...]:
            if include_noise:
                return likelihood.interval(mean, variance, level, number)
            # The link is monotone: quantiles of f become those of the mean.
            reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(variance)
            ends = likelihood.inverse_link(mean - reach), likelihood.inverse_link(mean + reach)
            scale = 1.0 if number is None else number
            return tuple(scale * end for end in ends)

        found = self._responses(X, interval, 2, _extra(offset, exposure, trials))
        return found[:, 0], found[:, 1]

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
            Computed at once, of a dask collection too.

        Raises
        ------
        DataError
            If an observation is none of the likelihood's.
        """
        y, mean, variance, number, _ = self._observed(X, y, _extra(offset, exposure, trials))
        return self.likelihood_.log_predictive(y, mean, variance, number)

    def _observed(
        self, X: Any, y: Any, extra: Mapping[str, Any]
    ) -> tuple[Floats, Floats, Floats, Floats | None, Floats]:
        """Observations, checked, with mean and variance of f, trials and what is added to f."""

        def moments(
            mean: Floats, variance: Floats, number: Floats | None, shift: Any
        ) -> tuple[Floats, ...]:
            size = np.ones(len(mean)) if number is None else number
            return mean, variance, size, np.zeros(len(mean)) + shift

        if y is None:
            raise DataError("y is None; pass the observations")
        found = computed(self._responses(X, moments, 4, extra, y))
        targets, mean, variance, number, shift = np.ascontiguousarray(found.T)
        given = None if extra[TRIALS] is None else number
        name = y if isinstance(y, str) else getattr(y, "name", None)
        shown = f"the target {name!r}" if isinstance(name, str) else "y"
        self.likelihood_.check_target(targets, given, shown)
        return targets, mean, variance, given, shift

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

        with the predicted mean μ̂, the best constant μ̄ (beside the offsets given) and the largest
        log density ℓ* that any mean gives. It is 1 at best, 0 as good as a constant, and R² with
        Gaussian noise; scikit-learn's ``PoissonRegressor.score`` is the same. Of ordered categories
        the averaged probability takes the place of that at the mean.

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
        likelihood = self.likelihood_
        extra = _extra(offset, exposure, trials)
        y, mean, variance, number, shift = self._observed(X, y, extra)
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        if weight.shape != y.shape:
            raise DataError(f"sample_weight must have shape ({len(y)},), got {weight.shape}")
        constant = shift + likelihood.start(y, weight, shift, number)
        null = likelihood.log_density(y, constant, number)
        if likelihood.name == "ordered":
            best: Any = 0.0
            model = likelihood.log_predictive(y, mean, variance)
        else:
            best = likelihood.log_density(
                y, _linked(likelihood, y if number is None else y / number), number
            )
            average = likelihood.response_mean(*self._supported(mean, variance, shift))
            model = likelihood.log_density(y, _linked(likelihood, average), number)
        total = float(np.sum(weight * (best - null)))
        return 1.0 - float(np.sum(weight * (best - model))) / total if total > 0 else np.nan

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
        extra = _extra(offset, exposure, trials)
        require_meaning(self.likelihood_, extra)
        random = generator(self.random_state if random_state is None else random_state)
        drawn = self._joint_sample(X, n_samples, random)
        if not include_noise:
            return drawn
        rows = Rows.join([load() for load in self._rows_of(X, extra)])
        _check_extra({role: named_role(role, extra[role]) for role in extra}, rows, 0)
        shift, number = offsets_of(rows.extra)
        return self.likelihood_.sample(drawn + shift, random, number)

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of f at chosen rows, on the scale of the link.

        Parameters
        ----------
        X : table
            Some hundreds of rows.
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
        return self._joint_covariance(X)

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``; raises ``ValueError`` or ``TypeError`` if the likelihood is none."""
        model = super()._restore(settings, tree)
        from_settings(model._likelihood_settings)
        return model

    # ------------------------------------------------------------------ telling

    def _summary(self) -> Summary:
        likelihood = self.likelihood_
        exact = self._told["exact_determinant"]
        offset = ", with an offset or exposure" if self._told["offset"] else ""
        fields = {
            "target": f"{self._told['target']}{offset}",
            "likelihood": f"{likelihood!r}, {likelihood.link_name} link",
            "intercept": f"{self.intercept_:.6g} on the scale of the link",
            "effective dof": f"{self.effective_dof_:.1f} of all terms together",
            "log likelihood": f"{self.log_marginal_likelihood_:.6g} (marginal, by Laplace; "
            + ("exact determinant)" if exact else "determinant on coarse spaces)"),
            "mode": f"{count_of(self.newton_iterations_, 'Newton step')}; "
            f"{self.solver}, error of any component at most {self.error_bound_:.2g} prior std "
            f"(tol {self.tol:g})",
            "learner": f"{self.learner_}, {count_of(self.n_iter_, 'mode')}"
            if self.learner_
            else "none: hyperparameters as given",
            "converged": "yes" if self.converged_ else "NO",
            "bins": f"change the function by about {self.bin_error_:.2g} posterior std "
            f"(bins={self.bins!r})"
            if self.bin_error_
            else "none: every distinct value is a point",
            "std of f": self._std_note,
        }
        lines = [*fields.items(), *tell_columns(self)]
        return Summary(
            f"{type(self).__name__}: {self.n_rows_} rows, {len(self.terms_)} terms",
            terms_table(self),
            _LEGEND,
            lines,
        )


def _latent(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
    return [mean] if variance is None else [mean, np.sqrt(variance)]


def offsets_of(extra: Mapping[str, Floats]) -> tuple[Floats | float, Floats | None]:
    """What is added to f, and the trials, by the further numbers of some rows."""
    shift: Floats | float = extra.get(OFFSET, 0.0)
    if EXPOSURE in extra:
        shift = shift + np.log(extra[EXPOSURE])
    return shift, extra.get(TRIALS)


def _extra(offset: Any, exposure: Any, trials: Any) -> dict[str, Any]:
    return {OFFSET: offset, EXPOSURE: exposure, TRIALS: trials}


def _check_extra(names: Mapping[str, str], rows: Rows, first_row: int) -> None:
    """Raise ``DataError`` for an exposure or a number of trials that is none."""
    if EXPOSURE in rows.extra:
        require_positive(rows.extra[EXPOSURE], names[EXPOSURE], first_row=first_row)
    if TRIALS in rows.extra:
        require_trials(rows.extra[TRIALS], names[TRIALS], first_row)


def _linked(likelihood: Likelihood, mean: Floats) -> Floats:
    """Latent of a mean (of one trial); finite at the edges."""
    with np.errstate(divide="ignore"):
        link = {"log": np.log, "logit": logit, "probit": ndtri, "identity": np.asarray}
        found = link[likelihood.link_name](mean)
    return found if likelihood.link_name == "identity" else np.clip(found, -_EDGE, _EDGE)


def require_meaning(likelihood: Likelihood, extra: Mapping[str, Any]) -> None:
    """Raise ``ParameterError`` for numbers of rows that a likelihood does not know."""
    if extra.get(EXPOSURE) is not None and likelihood.link_name != "log":
        raise ParameterError(
            f"exposure is for likelihoods with a log link, and {likelihood!r} has the "
            f"{likelihood.link_name} link; give an offset on the scale of the link"
        )
    if extra.get(TRIALS) is not None and likelihood.name != "binomial":
        raise ParameterError(f"trials are for likelihood='binomial', and this is {likelihood!r}")


def _notes(outcome: ScoringOutcome) -> list[str]:
    learned = outcome.learned
    if learned is None:
        return []
    if learned.at_points:
        return ["by working models, on every point of the columns: nodes could not resolve it"]
    fewest, most = min(learned.n_nodes, default=0), max(learned.n_nodes, default=0)
    nodes = f"{fewest} nodes a term" if fewest == most else f"{fewest} to {most} nodes a term"
    rows = outcome.responses.rows.n_rows
    notes = [
        f"{nodes}; with the prior variance they leave open the evidence's determinant would change "
        f"by at most {0.5 * rows * sum(learned.open_variance):.2g} nats"
    ]
    if not learned.resolved:
        notes.append(
            "the functions are too rough for the nodes that the budget allows: hyperparameters are "
            "those of smoother functions"
        )
    return notes
