"""``AdditiveGPClassifier``: additive Gaussian processes for two or more classes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.errors import ConvergenceWarning, DataError, ParameterError
from dsgp.estimators import persistence
from dsgp.estimators.classes import average_softmax, fit_softmax, row_weights, softmax
from dsgp.estimators.generalized import GeneralizedAdditiveGP
from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.estimators.inference import Clock
from dsgp.estimators.parameters import (
    require_choice,
    require_numbers,
)
from dsgp.estimators.responses import Responses
from dsgp.estimators.saved import Saved
from dsgp.estimators.scoring import Scoring, ScoringOutcome
from dsgp.kernels import Matern32
from dsgp.likelihoods import Bernoulli
from dsgp.rows.sources import Rows, classes_of, source_of
from dsgp.terms import Floats

# The log of a probability that has none counts as this.
_LEAST = -745.0


# Mean and variance of f of each class, or of the second of two, at some rows.
Moments = list[tuple[Floats, Floats]]


class AdditiveGPClassifier(Saved, ClassifierMixin, BaseEstimator):
    r"""Additive Gaussian process classification.

    With two classes

    .. math:: P(y_i = 1) = \sigma(f_i), \quad f_i = b + \sum_d f_d(x_{id}), \quad
              f_d \sim \mathcal{GP}(0, k_d),

    with more an f a class and a softmax of them, by default. The posterior is Laplace's
    approximation, computed as by ``GeneralizedAdditiveGP``; probabilities are averaged over it.

    Parameters
    ----------
    kernel : kernel, optional
        Of every smooth function without one; None means ``Matern32()``: boundaries between
        classes are seldom very smooth.
    link : {"logit", "probit"}
        σ of two classes, and of one class against the rest.
    multi_class : {"softmax", "ovr"}
        With more than two classes: one model of all of them, fitted class after class, round after
        round; or a model of each class against the rest, whose probabilities are divided by their
        sum.
    class_weight : mapping of label to float, "balanced" or None
        What the weights of the rows of a class are multiplied by; "balanced" makes all classes
        count alike. Probabilities are then those of such data.
    terms, intercept, solver, learner, bins, missing, missing_values, tol, max_iter
        As of ``GeneralizedAdditiveGP``.
    newton_max_iter, learner_tol, learner_max_iter, random_state, verbose
        As of ``GeneralizedAdditiveGP``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    estimators_ : list of GeneralizedAdditiveGP
        The fitted f: one with two classes (of the second one), else one a class.
    terms_, kernels_, intercept_, log_marginal_likelihood_, learner_trace_, newton_trace_
        Of the f of two classes; with more see ``estimators_``.
    effective_dof_, error_bound_, bin_error_, solver_iterations_, newton_iterations_
        Likewise.
    n_rounds_ : int
        Rounds over the classes.
    converged_ : bool
    n_iter_ : int
        Modes that the learner found, of all classes.
    n_features_in_, feature_names_in_, used_columns_, constant_columns_, fit_seconds_
        As of ``GeneralizedAdditiveGP``.

    Notes
    -----
    With a softmax the posterior of each f is that given the others, a block of the joint one:
    standard deviations of differences of two classes are too large by a factor of up to
    sqrt(C / (C − 1)) where the rows decide. Averages over several f are taken by a fixed rule of
    256 quasi-random points, good to about 10⁻³.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, section ``sec:gamgp``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 2))
    >>> y = np.where(rng.random(500) < 1 / (1 + np.exp(-4 * np.sin(X[:, 0]))), "up", "down")
    >>> model = AdditiveGPClassifier().fit(X, y)
    >>> model.classes_
    array(['down', 'up'], dtype='<U4')
    >>> bool(model.predict_proba([[1.5, 0.0]])[0, 1] > 0.9)
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        link: str = "logit",
        multi_class: str = "softmax",
        class_weight: Mapping[Any, float] | str | None = None,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        intercept: float | None = None,
        solver: str = "multigrid",
        learner: str | None = "marginal",
        bins: str | int | None = "auto",
        missing: str = "error",
        missing_values: Sequence[float] = (),
        tol: float = 1e-4,
        max_iter: int | None = None,
        newton_max_iter: int = 100,
        learner_tol: float = 1e-3,
        learner_max_iter: int = 50,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.link = link
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.terms = terms
        self.intercept = intercept
        self.solver = solver
        self.learner = learner
        self.bins = bins
        self.missing = missing
        self.missing_values = missing_values
        self.tol = tol
        self.max_iter = max_iter
        self.newton_max_iter = newton_max_iter
        self.learner_tol = learner_tol
        self.learner_max_iter = learner_max_iter
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            Of any kind that ``AdditiveGPRegressor.fit`` takes. Finite numbers; NaN where
            ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            Labels: text, numbers or booleans. The name of the target where it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            How often a row counts; 0 is the same as no row.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If there are fewer than two classes, or as ``GeneralizedAdditiveGP.fit`` does.
        ParameterError
            If a parameter is out of its range.
        MemoryLimitError
            If the fit would not fit into memory.
        """
        scoring = Scoring.of(self)
        require_choice("missing", self.missing, ("error", "ignore"))
        require_numbers("missing_values", self.missing_values)
        require_choice("link", self.link, ("logit", "probit"))
        require_choice("multi_class", self.multi_class, ("softmax", "ovr"))
        given = GivenTerms.of(self.kernel, self.terms, Matern32())
        clock = Clock()
        classes = classes_of(X, y)
        require_classes(classes)
        source = source_of(
            X,
            y,
            sample_weight,
            missing=self.missing,
            missing_values=self.missing_values,
            labels=classes,
            wanted=given.wanted,
        )
        terms = given.bound(source)
        if self.learner is None:
            require_complete(terms)
        if self.link == "probit" and self.multi_class == "softmax" and len(classes) > 2:
            raise ParameterError(
                f"link='probit' is for two classes, and the target has {len(classes)}: a softmax "
                "has the logit link; take multi_class='ovr', or leave link out"
            )
        n_functions = 1 if len(classes) == 2 else len(classes)
        responses = scoring.prepare(source, terms, clock, n_functions)
        responses, classes = present_classes(responses, classes)
        responses = row_weights(responses, self.class_weight, classes)
        outcomes, rounds, change = self._fit_classes(scoring, responses, len(classes), clock)
        clock.stage("keep")
        self.classes_ = classes.astype(str) if classes.dtype.kind == "O" else classes
        self.n_rounds_ = rounds
        self._settled = bool(change <= scoring.tol)
        self.estimators_ = [self._kept(outcome, source) for outcome in outcomes]
        self._take_columns()
        self.fit_seconds_ = clock.finish()
        for model in self.estimators_:
            model.fit_seconds_ = self.fit_seconds_
        for outcome in outcomes:
            scoring.warn(outcome)
        if not self._settled:
            warnings.warn(
                f"the softmax stopped after {rounds} rounds over the classes, the last of which "
                f"still changed a probability by {change:.2g} (tol={scoring.tol:g}); raise tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _fit_classes(
        self,
        scoring: Scoring,
        responses: Responses,
        n_classes: int,
        clock: Clock,
    ) -> tuple[list[ScoringOutcome], int, float]:
        """Fits, rounds over the classes, and the change of a probability in the last of them."""
        likelihood = Bernoulli(link=self.link)
        labels = responses.rows.y
        if n_classes > 2 and self.multi_class == "softmax":
            found = fit_softmax(scoring, responses, n_classes, clock)
            return found.outcomes, found.rounds, found.change
        targets = [1] if n_classes == 2 else range(n_classes)
        outcomes = [
            scoring.fit(responses.with_target(labels == c), likelihood, clock) for c in targets
        ]
        return outcomes, 1, 0.0

    def _kept(self, outcome: ScoringOutcome, source: Any) -> GeneralizedAdditiveGP:
        """One fitted f as a model of its own."""
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("link", "multi_class", "class_weight")
        }
        model = GeneralizedAdditiveGP(outcome.likelihood, **shared)
        model._keep_scoring(outcome)
        model._told["offset"] = False  # that of a softmax is nobody's but the fit's
        model._set_columns(source)
        return model

    def _take_columns(self) -> None:
        """Take over what all classes share."""
        first = self.estimators_[0]
        self.n_features_in_ = first.n_features_in_
        self.constant_columns_ = first.constant_columns_
        self.n_rows_ = first.n_rows_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    # ------------------------------------------------------------------ what was found

    @property
    def converged_(self) -> bool:
        """Whether all fits met their tolerances."""
        check_is_fitted(self)
        return self._settled and all(model.converged_ for model in self.estimators_)

    @property
    def n_iter_(self) -> int:
        """Modes found while learning, or Newton steps without a learner, of all classes."""
        check_is_fitted(self)
        return max(sum(model.n_iter_ for model in self.estimators_), 1)

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        check_is_fitted(self)
        return self.estimators_[0].used_columns_

    def __getattr__(self, name: str) -> Any:
        # Of two classes there is one f, and what is known of it is known of the classifier.
        if name in _OF_ONE and "estimators_" in self.__dict__:
            if len(self.estimators_) == 1:
                return getattr(self.estimators_[0], name)
            raise AttributeError(
                f"with {len(self.classes_)} classes there is a {name} for each: "
                f"model.estimators_[k].{name}, of the class model.classes_[k]"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ------------------------------------------------------------------ predicting

    def predict_proba(self, X: Any) -> Any:
        """Predict probabilities, averaged over the posterior of f.

        Parameters
        ----------
        X : table
            Of any kind that ``fit`` takes.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In the order of ``classes_``. A dask array where X is a dask collection: nothing is
            computed yet.
        """
        check_is_fitted(self)
        return self._evaluated(X, self._probabilities, len(self.classes_))

    def predict(self, X: Any) -> Any:
        """Predict the most probable class.

        Parameters
        ----------
        X : table
            Of any kind that ``fit`` takes.

        Returns
        -------
        ndarray of shape (n_rows,), of labels
            A dask array where X is a dask collection.
        """
        check_is_fitted(self)

        def most(moments: Moments) -> list[Floats]:
            best = np.argmax(np.stack(self._probabilities(moments)), axis=0)
            return [best.astype(np.float64)]

        index = self._evaluated(X, most, 1)[:, 0]
        if isinstance(index, np.ndarray):
            return self.classes_[index.astype(np.intp)]
        classes = self.classes_
        return index.map_blocks(lambda block: classes[block.astype(np.intp)], dtype=classes.dtype)

    def decision_function(self, X: Any) -> Any:
        """Log odds of ``predict_proba``: the largest, or the sign, is what ``predict`` says.

        The mean of f itself is ``estimators_[k].predict_latent(X)``.

        Parameters
        ----------
        X : table

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_classes) with more than two
            Log odds of the second of two classes; of more, the log of each probability. A dask
            array where X is a dask collection.
        """
        check_is_fitted(self)
        if len(self.estimators_) > 1:

            def logs(moments: Moments) -> list[Floats]:
                with np.errstate(divide="ignore"):
                    return [np.maximum(np.log(p), _LEAST) for p in self._probabilities(moments)]

            return self._evaluated(X, logs, len(self.classes_))
        likelihood = self.estimators_[0].likelihood_

        def odds(moments: Moments) -> list[Floats]:
            yes, no = (likelihood.log_predictive(y, *moments[0]) for y in (1.0, 0.0))
            return [yes - no]

        return self._evaluated(X, odds, 1)[:, 0]

    def _evaluated(self, X: Any, function: Any, n_columns: int) -> Any:
        """Evaluate a function of mean and variance of all f, row by row."""
        first, *others = self.estimators_
        for model in others:
            model._prepare(with_std=True)

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            rest = [model._moments(rows, with_variance=True) for model in others]
            return list(function([(mean, variance), *rest]))

        return first._evaluated(X, finish, n_columns, with_variance=True)

    def _probabilities(self, moments: Moments) -> list[Floats]:
        if len(moments) == 1:
            likelihood = self.estimators_[0].likelihood_
            return list(likelihood.class_probabilities(*moments[0]).T)
        if self.multi_class == "ovr":
            # By logs: far from all classes every one of them may be 0.
            logs = [
                model.likelihood_.log_predictive(1.0, mean, variance)
                for model, (mean, variance) in zip(self.estimators_, moments, strict=True)
            ]
            return list(softmax(np.stack(logs)))
        return list(average_softmax(*map(np.stack, zip(*moments, strict=True))))

    def components(self, X: Any) -> xr.Dataset:
        """Evaluate every term on the scale of the link, minus its mean over the training rows.

        Parameters
        ----------
        X : table

        Returns
        -------
        xarray.Dataset
            As of ``AdditiveGPRegressor.components``; with more than two classes there is a further
            dimension, ``class``.
        """
        check_is_fitted(self)
        found = [model.components(X) for model in self.estimators_]
        if len(found) == 1:
            return found[0]
        together = xr.concat(found, dim="class", data_vars="all")
        return together.assign_coords({"class": self.classes_})

    # ------------------------------------------------------------------ telling and keeping

    def summary(self) -> str:
        """Describe the fit, class by class."""
        check_is_fitted(self)
        shown = [str(label) for label in self.classes_]
        if len(self.estimators_) == 1:
            heading = f"f is that of class {shown[1]!r}, against {shown[0]!r}"
            return f"{type(self).__name__}: {heading}\n{self.estimators_[0].summary()}"
        how = "softmax" if self.multi_class == "softmax" else "each class against the rest"
        parts = [
            f"{type(self).__name__}: {len(shown)} classes, {how}, "
            f"{self.n_rounds_} round{'' if self.n_rounds_ == 1 else 's'}"
        ]
        parts += [
            f"class {label!r}\n{model.summary()}"
            for label, model in zip(shown, self.estimators_, strict=True)
        ]
        return "\n\n".join(parts)

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        return persistence.classes_described(self)

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``."""
        model = cls(**persistence.parameters(settings))
        model.classes_ = persistence.classes(settings)
        model.n_rounds_ = settings["n_rounds"]
        model._settled = settings["settled"]
        model.estimators_ = [
            GeneralizedAdditiveGP._restore(own, tree[f"class{k}"])
            for k, own in enumerate(settings["models"])
        ]
        expected = 1 if len(model.classes_) == 2 else len(model.classes_)
        if len(model.estimators_) != expected:
            raise ValueError("the classes and the models do not agree")
        model.fit_seconds_ = model.estimators_[0].fit_seconds_
        model._take_columns()
        return model


_OF_ONE = frozenset(
    {
        "terms_",
        "kernels_",
        "intercept_",
        "likelihood_",
        "log_marginal_likelihood_",
        "learner_trace_",
        "learner_notes_",
        "learner_",
        "newton_trace_",
        "newton_iterations_",
        "solver_iterations_",
        "effective_dof_",
        "error_bound_",
        "bin_error_",
        "n_missing_",
        "target_variance_",
    }
)


def present_classes(responses: Responses, classes: Any) -> tuple[Responses, Any]:
    """Leave out classes that no row of positive weight has."""
    labels = responses.rows.y.astype(np.intp)
    present = np.bincount(labels, minlength=len(classes)) > 0
    if present.all():
        return responses, classes
    require_classes(classes[present])
    return responses.with_target((np.cumsum(present) - 1)[labels]), classes[present]


def require_classes(classes: Any) -> None:
    """Raise ``DataError`` unless there are two classes at least."""
    if len(classes) < 2:
        only = f"only one class: {classes.tolist()[0]!r}" if len(classes) else "no class"
        raise DataError(
            "a classifier needs rows of at least 2 classes, but the target holds " + only
        )
