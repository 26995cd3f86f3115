"""``ProjectionPursuitGPClassifier``: functions of projections for two or more classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dsgp.estimators.classes import OF_ONE, ClassEstimator
from dsgp.estimators.generalized_pursuit import GeneralizedPursuitGP
from dsgp.estimators.given_terms import GivenTerms
from dsgp.kernels import Matern
from dsgp.likelihoods import Bernoulli
from dsgp.models.checks import generator, require_choice
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.laplace.softmax import require_classes
from dsgp.models.pursuit.classes import OneClass, class_factors, class_totals
from dsgp.models.pursuit.response import ResponsePursuit
from dsgp.rows.sources import classes_of, source_of


class ProjectionPursuitGPClassifier(ClassEstimator):
    r"""Projection pursuit Gaussian process classification.

    With two classes

    .. math:: P(y_i = 1) = \sigma(f_i), \quad f_i = b + \sum_m f_m(x_i \cdot w_m), \quad
              f_m \sim \mathcal{GP}(0, k_m),

    with more than two classes one such model per class against the rest, whose probabilities are
    divided by their sum. Directions, functions and their number are learned as in
    ``GeneralizedPursuitGP``, and probabilities are averaged over the posterior of f, including the
    uncertainty of the directions.

    Parameters
    ----------
    kernel : kernel, optional
        Kernel of all functions: ``Matern32()``, ``Matern52()`` (the default) or ``Matern72()``.
        Lengthscales and variances are learned and must not be given.
    link : {"logit", "probit"}
        Link function.
    class_weight : mapping of label to float, "balanced" or None
        Factor of the weights of the rows of each class; "balanced" gives all classes the same total
        weight. Probabilities are then those of data with such shares of classes.
    terms, n_projections, relevance, n_starts, direction_uncertainty
        As in ``GeneralizedPursuitGP``, for each class.
    solver, bins, tol, max_iter, newton_max_iter, random_state, verbose
        Likewise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    estimators_ : list of GeneralizedPursuitGP
        The fitted functions: with two classes that of the second class, otherwise one per class.
    projections_, relevance_, n_projections_, evidence_, evidence_trace_, search_limited_, ...
        With two classes, those of the function; with more, see ``estimators_``.
    terms_, kernels_, intercept_, log_marginal_likelihood_, newton_trace_, effective_dof_, ...
        Likewise.
    converged_, n_features_in_, feature_names_in_, constant_columns_, fit_seconds_
        As in ``AdditiveGPClassifier``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import ProjectionPursuitGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (600, 3))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = ProjectionPursuitGPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[0.6, 0.6, 0.0], [0.6, -0.6, 0.0]]).tolist()
    ['same', 'other']
    """

    missing = "error"  # a projection needs all its inputs
    multi_class = "ovr"

    _kind = GeneralizedPursuitGP
    _of_one = OF_ONE | {
        "projections_",
        "relevance_",
        "n_projections_",
        "evidence_",
        "evidence_trace_",
        "search_gain_",
        "search_limited_",
    }

    def __init__(
        self,
        kernel: Matern | None = None,
        *,
        link: str = "logit",
        class_weight: Mapping[Any, float] | str | None = None,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        n_projections: str | int = "auto",
        relevance: bool = True,
        n_starts: int = 10,
        direction_uncertainty: bool = True,
        solver: str = "multigrid",
        bins: str | int | None = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        newton_max_iter: int = 100,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.link = link
        self.class_weight = class_weight
        self.terms = terms
        self.n_projections = n_projections
        self.relevance = relevance
        self.n_starts = n_starts
        self.direction_uncertainty = direction_uncertainty
        self.solver = solver
        self.bins = bins
        self.tol = tol
        self.max_iter = max_iter
        self.newton_max_iter = newton_max_iter
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``direction_uncertainty`` takes effect in a fitted model, too."""
        super().set_params(**params)
        if "direction_uncertainty" in params and hasattr(self, "model_"):
            for model in self.estimators_:
                model.set_params(direction_uncertainty=params["direction_uncertainty"])
            self.model_ = replace(self.model_, models=[each.model_ for each in self.estimators_])
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            A table of any kind that ``AdditiveGPRegressor.fit`` takes, with finite numbers.
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
            If there are fewer than two classes, or as ``GeneralizedPursuitGP.fit`` does.
        ParameterError
            If a parameter is out of its range.
        MemoryLimitError
            If the fit would not fit into memory.
        """
        fit = ResponsePursuit.of(self.get_params(deep=False))
        require_choice("link", self.link, ("logit", "probit"))
        asked = GivenTerms.of(None, self.terms)
        clock = Clock()
        random = generator(self.random_state)
        classes = classes_of(X, y)
        require_classes(classes)
        source = source_of(X, y, sample_weight, labels=classes, wanted=asked.wanted_beside)
        beside = asked.beside(source)
        totals = class_totals(source, len(classes))
        present = np.flatnonzero(totals)
        require_classes(classes[present])
        factors = np.ones(len(classes))
        factors[present] = class_factors(totals[present], self.class_weight, classes[present])
        fits = []
        for code in present[1:] if len(present) == 2 else present:
            view = OneClass(int(code), factors)
            likelihood = Bernoulli(self.link)
            fits.append(fit(source, beside, likelihood, random, clock, view, view.responses))
        fit_seconds = clock.finish()
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("link", "class_weight")
        }
        estimators = []
        for fitted in fits:
            estimator = GeneralizedPursuitGP(Bernoulli(self.link), **shared)
            estimator._take_fitted(fitted, Columns.of(source), fit_seconds)
            estimators.append(estimator)
        self._take_classes(classes[present], estimators, fit_seconds)
        for fitted in fits:
            fit.warn(fitted)
        return self
