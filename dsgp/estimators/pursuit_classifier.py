"""``ProjectionPursuitGPClassifier``: projection pursuit for two or more classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import over_chunks
from dsgp.estimators import persistence
from dsgp.estimators.classes import row_weights
from dsgp.estimators.classifier import AdditiveGPClassifier, require_classes
from dsgp.estimators.generalized_pursuit import GeneralizedPursuitGP, require_pursuit
from dsgp.estimators.inference import Clock
from dsgp.estimators.parameters import generator, require_choice
from dsgp.estimators.responses import Responses
from dsgp.estimators.searching import warn_of_search
from dsgp.kernels import Matern
from dsgp.laplace.rows import ResponseRows
from dsgp.likelihoods import Bernoulli
from dsgp.rows.sources import Rows, Source, classes_of, source_of
from dsgp.rows.table import RowTable
from dsgp.terms import Floats


class ProjectionPursuitGPClassifier(AdditiveGPClassifier):
    r"""Projection pursuit Gaussian process classification.

    With two classes

    .. math:: P(y_i = 1) = \sigma(f_i), \quad f_i = b + \sum_m f_m(x_i \cdot w_m), \quad
              f_m \sim \mathcal{GP}(0, k_m),

    with more such a model of each class against the rest, whose probabilities are divided by their
    sum. Directions, functions and their number are found as by ``GeneralizedPursuitGP``, and
    probabilities are averaged over the posterior of f, directions unknown too.

    Parameters
    ----------
    kernel : kernel, optional
        Its type is that of all functions: ``Matern32()``, ``Matern52()`` (the default) or
        ``Matern72()``. Lengthscales and variances are learned and must be left open.
    link : {"logit", "probit"}
        σ.
    class_weight : mapping of label to float, "balanced" or None
        What the weights of the rows of a class are multiplied by; "balanced" makes all classes
        count alike. Probabilities are then those of such data.
    n_projections, relevance, n_starts, direction_uncertainty
        As of ``GeneralizedPursuitGP``, of each f.
    solver, bins, tol, max_iter, newton_max_iter, random_state, verbose
        Likewise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    estimators_ : list of GeneralizedPursuitGP
        The fitted f: one with two classes (of the second one), else one a class.
    projections_, relevance_, n_projections_, evidence_, evidence_trace_, search_limited_, ...
        Of the f of two classes; with more see ``estimators_``.
    terms_, kernels_, intercept_, log_marginal_likelihood_, newton_trace_, effective_dof_, ...
        Likewise.
    converged_, n_features_in_, feature_names_in_, constant_columns_, fit_seconds_
        As of ``AdditiveGPClassifier``.

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
    method = "refit"

    def __init__(
        self,
        kernel: Matern | None = None,
        *,
        link: str = "logit",
        class_weight: Mapping[Any, float] | str | None = None,
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

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            Of any kind that ``AdditiveGPRegressor.fit`` takes. Finite numbers.
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
            If there are fewer than two classes, or as ``GeneralizedPursuitGP.fit`` does.
        ParameterError
            If a parameter is out of its range.
        MemoryLimitError
            If the fit would not fit into memory.
        """
        require_pursuit(self)
        require_choice("link", self.link, ("logit", "probit"))
        clock = Clock()
        random = generator(self.random_state)
        classes = classes_of(X, y)
        require_classes(classes)
        source = source_of(X, y, sample_weight, labels=classes)
        totals = _totals(source, len(classes))
        present = np.flatnonzero(totals)
        require_classes(classes[present])
        factors = np.ones(len(classes))
        factors[present] = self._factors(totals[present], classes[present])
        models, fits = [], []
        for code in present[1:] if len(present) == 2 else present:
            view = OneClass(int(code), factors)
            model = GeneralizedPursuitGP(Bernoulli(self.link), **self._shared)
            fit = model._pursue(source, Bernoulli(self.link), random, clock, view, view.responses)
            models.append(model)
            fits.append(fit)
        self.classes_ = classes[present]
        self.n_rounds_ = 1
        self._settled = True
        self.estimators_ = models
        self._take_columns()
        self.fit_seconds_ = clock.finish()
        for model in models:
            model.fit_seconds_ = self.fit_seconds_
        for model, fit in zip(models, fits, strict=True):
            fit.scoring.warn(fit.outcome)
            warn_of_search(model, fit.pursued)
        return self

    @property
    def _shared(self) -> dict[str, Any]:
        """Parameters of each f."""
        own = ("link", "class_weight")
        return {k: v for k, v in self.get_params(deep=False).items() if k not in own}

    def _factors(self, totals: Floats, classes: Any) -> Floats:
        """What the weights of the rows of each class are multiplied by."""
        codes = np.arange(len(totals), dtype=np.float64)
        table = RowTable((), (), np.empty((0, len(totals)), np.uint16))
        # One row a class stands for all of its rows.
        rows = Responses(
            (), False, [], [], ResponseRows(table, codes, totals), None, False, {}, "y"
        )
        return row_weights(rows, self.class_weight, classes).rows.weight / totals

    # ------------------------------------------------------------------ what was found

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        leader: tuple[str, ...] = self._leader.used_columns_
        return leader

    @property
    def _leader(self) -> GeneralizedPursuitGP:
        """An f with projections, where there is one: it asks for all columns that others need."""
        found: GeneralizedPursuitGP = max(self.estimators_, key=lambda model: bool(model.terms_))
        return found

    def __getattr__(self, name: str) -> Any:
        if name in _OF_SEARCH and len(self.__dict__.get("estimators_", ())) == 1:
            return getattr(self.estimators_[0], name)
        return super().__getattr__(name)

    # ------------------------------------------------------------------ predicting

    def _evaluated(self, X: Any, function: Any, n_columns: int) -> Any:
        for model in self.estimators_:
            model._prepare(with_std=True)

        def finish(rows: Rows, mean: Floats, variance: Floats | None) -> list[Floats]:
            moments = [
                (mean, variance) if model is self._leader else model._moments(rows, True)
                for model in self.estimators_
            ]
            return list(function(moments))

        return self._leader._evaluated(X, finish, n_columns, with_variance=True)

    # ------------------------------------------------------------------ telling and keeping

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``."""
        model = cls(**persistence.parameters(settings))
        model.classes_ = persistence.classes(settings)
        model.n_rounds_ = settings["n_rounds"]
        model._settled = settings["settled"]
        model.estimators_ = [
            GeneralizedPursuitGP._restore(own, tree[f"class{k}"])
            for k, own in enumerate(settings["models"])
        ]
        expected = 1 if len(model.classes_) == 2 else len(model.classes_)
        if len(model.estimators_) != expected:
            raise ValueError("the classes and the models do not agree")
        model.fit_seconds_ = model.estimators_[0].fit_seconds_
        model._take_columns()
        return model


_OF_SEARCH = frozenset(
    {
        "projections_",
        "relevance_",
        "n_projections_",
        "evidence_",
        "evidence_trace_",
        "search_gain_",
        "search_limited_",
        "_posterior",  # for pictures of the functions
    }
)


@dataclass(frozen=True)
class OneClass:
    """Rows of a class against all others; it travels to workers.

    Attributes
    ----------
    code : int
        Of the class; targets are codes of classes.
    factors : ndarray of shape (n_classes,)
        Of the weights of the rows of each class.
    """

    code: int
    factors: Floats

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows with targets 0 and 1."""
        assert rows.y is not None
        target, weight = self._seen(rows.y, rows.weight)
        return replace(rows, y=target, weight=weight, n_rows=len(rows))

    def responses(self, responses: Responses) -> Responses:
        """Return rows made ready for a likelihood with targets 0 and 1."""
        rows = responses.rows
        target, weight = self._seen(rows.y, rows.weight if len(rows.weight) else None)
        weight = np.empty(0) if weight is None else weight
        return replace(responses, rows=replace(rows, y=target, weight=weight))

    def _seen(self, y: Floats, weight: Floats | None) -> tuple[Floats, Floats | None]:
        if not (self.factors == 1.0).all():
            factors = self.factors[y.astype(np.intp)]
            weight = factors if weight is None else weight * factors
        return (y == self.code).astype(np.float64), weight


def _totals(source: Source, n_classes: int) -> Floats:
    """Sum of the weights of each class, (n_classes,)."""
    count = partial(_class_totals, n_classes)
    return np.sum(list(over_chunks(source.chunks(), count)), axis=0)


def _class_totals(n_classes: int, rows: Rows) -> NDArray[np.float64]:
    assert rows.y is not None
    return np.bincount(rows.y.astype(np.intp), rows.weight, n_classes).astype(np.float64)
