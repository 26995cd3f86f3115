"""``AdditiveGPClassifier``: additive Gaussian processes for two or more classes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import ConvergenceWarning, ParameterError
from dsgp.estimators.classes import OF_ONE, ClassEstimator
from dsgp.estimators.generalized import GeneralizedAdditiveGP
from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.kernels import Matern32
from dsgp.models.calendar import warn_of_calendar, with_calendar
from dsgp.models.checks import require_choice, require_numbers
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.interactions.asked import require_interactions
from dsgp.models.interactions.search import Found, with_interactions
from dsgp.models.laplace.class_interactions import ClassLaplaceFits, ClassOutcome
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.softmax import require_classes
from dsgp.models.response_model import ResponseModel
from dsgp.rows.sources import classes_of, source_of


class AdditiveGPClassifier(ClassEstimator):
    r"""Additive Gaussian process classification.

    With two classes

    .. math:: P(y_i = 1) = \sigma(f_i), \quad f_i = b + \sum_d f_d(x_{id}), \quad
              f_d \sim \mathcal{GP}(0, k_d),

    with more than two classes one function per class, and by default their softmax. The posterior
    is Laplace's approximation, as in ``GeneralizedAdditiveGP``; probabilities are averaged over
    it.

    Parameters
    ----------
    kernel : kernel, optional
        Kernel of every smooth term without a kernel; None means ``Matern32()``, because boundaries
        between classes are seldom very smooth.
    link : {"logit", "probit"}
        Link function, for two classes and for one class against the rest.
    multi_class : {"softmax", "ovr"}
        With more than two classes: a joint model, fitted class by class in rounds; or one model per
        class against the rest, whose probabilities are divided by their sum.
    class_weight : mapping of label to float, "balanced" or None
        Factor of the weights of the rows of each class; "balanced" gives all classes the same total
        weight. Probabilities are then those of data with such shares of classes.
    interactions : "auto", int, or list of pairs of names
        As in ``GeneralizedAdditiveGP``. With more than two classes, a pair is a term of every
        class, with separate hyperparameters, and pairs are ranked by the total gain of all classes
        (docs/howto/interactions.md).
    terms, intercept, solver, learner, bins, missing, missing_values, tol, max_iter
        As in ``GeneralizedAdditiveGP``.
    newton_max_iter, learner_tol, learner_max_iter, random_state, verbose
        As in ``GeneralizedAdditiveGP``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    estimators_ : list of GeneralizedAdditiveGP
        The fitted functions: with two classes that of the second class, otherwise one per class.
    interactions_, interaction_scores_
        As in ``GeneralizedAdditiveGP``, for all classes together.
    terms_, kernels_, intercept_, log_marginal_likelihood_, learner_trace_, newton_trace_
        With two classes, those of the function; with more, see ``estimators_``.
    effective_dof_, error_bound_, bin_error_, solver_iterations_, newton_iterations_
        Likewise.
    n_rounds_ : int
        Number of rounds over the classes.
    converged_ : bool
    n_iter_ : int
        Number of modes that the learner computed, for all classes.
    n_features_in_, feature_names_in_, used_columns_, constant_columns_, fit_seconds_
        As in ``GeneralizedAdditiveGP``.

    Notes
    -----
    With a softmax, the posterior of the function of each class is conditional on the others, a
    block of the joint posterior: standard deviations of differences of two classes are too large by
    a factor of up to sqrt(C / (C − 1)). Averages over several functions use a fixed rule of 256
    quasi-random points, with an error of about 10⁻³.

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

    _kind = GeneralizedAdditiveGP
    _of_one = OF_ONE

    def __init__(
        self,
        kernel: Any = None,
        *,
        link: str = "logit",
        multi_class: str = "softmax",
        class_weight: Mapping[Any, float] | str | None = None,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        interactions: str | int | Sequence[Sequence[str]] = 0,
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
        self.interactions = interactions
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

    @property
    def interactions_(self) -> list[tuple[str, str]]:
        """Pairs of terms that interact, of all classes, in the order in which they were added."""
        check_is_fitted(self)
        pairs: list[tuple[str, str]] = self.estimators_[0].interactions_
        return pairs

    @property
    def interaction_scores_(self) -> pd.DataFrame:
        """The pairs that a search for interactions considered, one row per pair."""
        check_is_fitted(self)
        return self.estimators_[0].interaction_scores_

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            A table of any kind that ``AdditiveGPRegressor.fit`` takes, with finite numbers; NaN is
            allowed with ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            Labels (text, numbers or booleans), or the name of the target if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            How often a row counts; a row of weight 0 is ignored.

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
        fit = LaplaceFit.of(self.get_params(deep=False))
        require_interactions(self.interactions, self.learner)
        require_choice("missing", self.missing, ("error", "ignore"))
        require_numbers("missing_values", self.missing_values)
        require_choice("link", self.link, ("logit", "probit"))
        require_choice("multi_class", self.multi_class, ("softmax", "ovr"))
        asked = GivenTerms.of(self.kernel, self.terms, Matern32())
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
            wanted=asked.wanted,
        )
        terms = asked.bound(source, priors_count=self.learner is not None)
        if self.learner is None:
            require_complete(terms)
        if self.link == "probit" and self.multi_class == "softmax" and len(classes) > 2:
            raise ParameterError(
                f"link='probit' is for two classes, and the target has {len(classes)}: a softmax "
                "has the logit link; use multi_class='ovr', or leave link out"
            )
        fits = ClassLaplaceFits(
            fit,
            classes,
            self.link,
            self.multi_class == "softmax",
            self.class_weight,
            source,
            clock,
        )
        found = with_calendar(fits, with_interactions(fits, terms, self.interactions))
        fitted, classes = found.outcome.fits, found.outcome.labels.classes
        clock.stage("keep")
        columns = Columns.of(source)
        settled = bool(fitted.change <= fit.tol)
        self._take_classes(
            classes.astype(str) if classes.dtype.kind == "O" else classes,
            [self._held(outcome, columns, found) for outcome in fitted.outcomes],
            clock.finish(),
            fitted.rounds,
            settled,
        )
        for outcome in fitted.outcomes:
            fit.warn(outcome)
        warn_of_calendar(found.notes)
        if not settled:
            warnings.warn(
                f"the softmax stopped after {fitted.rounds} rounds over the classes, the last of "
                f"which still changed a probability by {fitted.change:.2g} (tol={fit.tol:g}); "
                "raise tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _held(
        self, outcome: LaplaceOutcome, columns: Columns, found: Found[ClassOutcome]
    ) -> GeneralizedAdditiveGP:
        """One fitted f as an estimator."""
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("link", "multi_class", "class_weight")
        }
        estimator = GeneralizedAdditiveGP(outcome.likelihood, **shared)
        model = ResponseModel.of(outcome)
        # The offset of a softmax is nobody's but the fit's.
        model = replace(model, facts={**model.facts, "offset": False})
        facts = FitFacts.of_laplace(outcome, self.learner).with_notes(found.notes)
        estimator._take(model, facts, columns)
        estimator._take_mode(outcome)
        estimator._take_interactions(found)
        return estimator
