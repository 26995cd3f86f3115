"""What classifiers share: an f of two classes, or one of each, and probabilities of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.errors import ParameterError
from dsgp.estimators.explaining import Explanation, of_classes
from dsgp.estimators.framed import ComponentAnswer, answered_frame, columns_of
from dsgp.estimators.response import ResponseEstimator
from dsgp.estimators.saved import with_parameters
from dsgp.estimators.tables import TableEstimator
from dsgp.models import stored
from dsgp.models.base import FittedModel
from dsgp.models.class_model import ClassModel
from dsgp.models.store_schema import check_classes
from dsgp.models.summary import SummaryText
from dsgp.rows.sources import Rows, computed, frame_like, labels_in
from dsgp.terms import Floats

# Role of the weights that a score counts by.
_WEIGHT = "weight"


class ClassEstimator(ClassifierMixin, TableEstimator):
    """A classifier that holds a fitted estimator of each f.

    A ``fit`` ends with ``_take_classes``. A class says in ``_kind`` what estimates an f.
    """

    _kind: ClassVar[type[ResponseEstimator]]
    # Attributes of an f that a classifier of two classes has too.
    _of_one: ClassVar[frozenset[str]]

    # A parameter of some classifiers.
    multi_class: str

    model_: ClassModel
    classes_: Any
    estimators_: Sequence[Any]
    fit_seconds_: dict[str, float]

    def _take_classes(
        self,
        classes: Any,
        estimators: Sequence[ResponseEstimator],
        fit_seconds: dict[str, float],
        n_rounds: int = 1,
        settled: bool = True,
    ) -> None:
        """Take over the classes and an estimator of each f.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
        estimators : sequence of ResponseEstimator
        fit_seconds : dict of str to float
        n_rounds : int
            Over the classes.
        settled : bool
            Whether the last round changed no probability by more than the tolerance.

        Raises
        ------
        ValueError
            If the classes and the estimators do not agree.
        """
        if len(estimators) != (1 if len(classes) == 2 else len(classes)):
            raise ValueError("the classes and the models do not agree")
        self.classes_, self.estimators_ = classes, estimators
        self.n_rounds_, self._settled = n_rounds, settled
        self.model_ = ClassModel(
            [model.model_ for model in estimators], self.multi_class == "softmax"
        )
        first = estimators[0]
        self.constant_columns_, self.n_rows_ = first.constant_columns_, first.n_rows_
        self.fit_seconds_ = fit_seconds
        for model in estimators:
            model.fit_seconds_ = fit_seconds
        self._take_columns(first._columns)

    # ------------------------------------------------------------------ what was found

    @property
    def _rows_model(self) -> FittedModel:
        return self.model_.leader

    @property
    def _missing_in_training(self) -> Mapping[str, int]:
        missing: Mapping[str, int] = self.estimators_[0].n_missing_
        return missing

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
    def _several(self) -> Any:
        """The classes, where each has a function of its own."""
        return self.classes_ if len(self.estimators_) > 1 else None

    def __getattr__(self, name: str) -> Any:
        # Of two classes there is one f, and what is known of it is known of the classifier.
        if name in self._of_one and "estimators_" in self.__dict__:
            if len(self.estimators_) == 1:
                return getattr(self.estimators_[0], name)
            raise AttributeError(
                f"with {len(self.classes_)} classes there is a {name} per class: "
                f"model.estimators_[k].{name} for the class model.classes_[k]"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ------------------------------------------------------------------ predicting

    def predict_proba(self, X: Any, *, as_frame: bool = False) -> Any:
        """Predict probabilities, averaged over the posterior of f.

        Parameters
        ----------
        X : table
            A table of any kind that ``fit`` takes.
        as_frame : bool
            Return a column for each class, named by its label, as a table of the library of X, with
            its index.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In the order of ``classes_``. A dask array where X is a dask collection: nothing is
            computed yet. A table with ``as_frame``.
        """
        check_is_fitted(self)
        model = self.model_
        answered = self._answers(X, model.probabilities, model.n_classes, with_std=True)
        return frame_like(X, list(map(str, self.classes_)), answered) if as_frame else answered

    def predict(self, X: Any, *, as_frame: bool = False) -> Any:
        """Predict the most probable class.

        Parameters
        ----------
        X : table
            A table of any kind that ``fit`` takes.
        as_frame : bool
            Return a column ``predicted`` as a table of the library of X, with its index.

        Returns
        -------
        ndarray of shape (n_rows,), of labels
            A dask array where X is a dask collection. A table with ``as_frame``.
        """
        check_is_fitted(self)
        model = self.model_

        def most(rows: Rows) -> list[Floats]:
            best = np.argmax(np.stack(model.probabilities(rows)), axis=0)
            return [best.astype(np.float64)]

        index, classes = self._answers(X, most, 1, with_std=True), self.classes_
        if isinstance(index, np.ndarray):
            labels = classes[index.astype(np.intp)]
        else:
            labels = index.map_blocks(
                lambda block: classes[block.astype(np.intp)], dtype=classes.dtype
            )
        return columns_of(X, ["predicted"], labels, as_frame)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted, as in scikit-learn.

        Parameters
        ----------
        X : table
            As for ``predict``.
        y, sample_weight : array_like of shape (n_rows,), or str
            Labels and numbers, or the names of their columns of X; without weights all rows count
            alike.

        Returns
        -------
        float
        """
        if not isinstance(y, str) and not isinstance(sample_weight, str):
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        model = self.model_

        def answer(rows: Rows) -> list[Floats]:
            best = np.argmax(np.stack(model.probabilities(rows)), axis=0)
            weight = rows.extra.get(_WEIGHT, np.ones(len(rows)))
            return [best.astype(np.float64), weight]

        extra = {_WEIGHT: sample_weight}
        best, weight = computed(self._answers(X, answer, 2, with_std=True, extra=extra)).T
        observed = labels_in(X, y) if isinstance(y, str) else y
        predicted = self.classes_[best.astype(np.intp)]
        return float(accuracy_score(observed, predicted, sample_weight=weight))

    def decision_function(self, X: Any) -> Any:
        """Log odds of ``predict_proba``; their sign, or the largest of them, decides ``predict``.

        The mean of f itself is ``estimators_[k].predict_latent(X)``.

        Parameters
        ----------
        X : table

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_classes) with more than two
            With two classes the log odds of the second one; with more, the log of each probability.
            A dask array if X is a dask collection.
        """
        check_is_fitted(self)
        several = len(self.model_.models) > 1
        n_columns = self.model_.n_classes if several else 1
        odds = self._answers(X, self.model_.log_odds, n_columns, with_std=True)
        return odds if several else odds[:, 0]

    def components(self, X: Any, *, as_frame: bool = False) -> Any:
        """Evaluate every term on the scale of the link, minus its mean over the training rows.

        Parameters
        ----------
        X : table
        as_frame : bool
            As for ``AdditiveGPRegressor.components``; with more than two classes names of columns
            end with that of the class.

        Returns
        -------
        xarray.Dataset
            As for ``AdditiveGPRegressor.components``; with more than two classes there is a further
            dimension, ``class``.
        """
        check_is_fitted(self)
        if as_frame:
            return answered_frame(X, self.estimators_, ComponentAnswer, self._several)
        parts = [model.components(X) for model in self.estimators_]
        if len(parts) == 1:
            return parts[0]
        together = xr.concat(parts, dim="class", data_vars="all")
        return together.assign_coords({"class": self.classes_})

    def explain(self, X: Any, *, as_frame: bool = False) -> Any:
        """Explain f row by row on the scale of the link: what each term adds.

        Parameters
        ----------
        X : table
        as_frame : bool
            As for ``AdditiveGPRegressor.explain``; with more than two classes names of columns end
            with that of the class, and terms are in the order of each.

        Returns
        -------
        xarray.Dataset
            As for ``AdditiveGPRegressor.explain``: ``contribution``, ``std``, ``prediction`` (the f
            from which probabilities are computed) and ``intercept``, with two classes for the
            second one; with more there is a further dimension, ``class``, and the terms are in the
            order of the first class.
        """
        check_is_fitted(self)
        if as_frame:
            return answered_frame(X, self.estimators_, Explanation, self._several)
        parts = [model.explain(X) for model in self.estimators_]
        return parts[0] if len(parts) == 1 else of_classes(parts, self.classes_)

    # ------------------------------------------------------------------ reporting and storing

    def summary(self) -> SummaryText:
        """Describe the fit, class by class.

        Returns
        -------
        str
            Notebooks show it as tables.
        """
        check_is_fitted(self)
        shown = [str(label) for label in self.classes_]
        if len(self.estimators_) == 1:
            heading = f"f is that of class {shown[1]!r}, against {shown[0]!r}"
            one = self.estimators_[0].summary()
            text = f"{type(self).__name__}: {heading}"
            return SummaryText(f"{text}\n{one}", f"<p>{escape(text)}</p>{one.html}")
        how = "softmax" if self.multi_class == "softmax" else "each class against the rest"
        text = (
            f"{type(self).__name__}: {len(shown)} classes, {how}, "
            f"{self.n_rounds_} round{'' if self.n_rounds_ == 1 else 's'}"
        )
        html = f"<p>{escape(text)}</p>"
        for label, model in zip(shown, self.estimators_, strict=True):
            one = model.summary()
            text += f"\n\nclass {label!r}\n{one}"
            html += f"<h4>class {escape(repr(label))}</h4>{one.html}"
        return SummaryText(text, html)

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        parts = [model._described() for model in self.estimators_]
        settings = {
            "parameters": stored.parameters_settings(self.get_params(deep=False)),
            "classes": stored.classes_settings(self.classes_),
            "n_rounds": self.n_rounds_,
            "settled": self._settled,
            "models": [part for part, _ in parts],
        }
        return settings, {f"class{k}": arrays for k, (_, arrays) in enumerate(parts)}

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``."""
        check_classes(settings, tree)
        model = with_parameters(cls, stored.parameters(settings))
        estimators = [
            cls._kind._restore(part, tree[f"class{k}"]) for k, part in enumerate(settings["models"])
        ]
        model._take_classes(
            stored.classes(settings),
            estimators,
            estimators[0].fit_seconds_,
            settings["n_rounds"],
            settings["settled"],
        )
        return model


def model_of_terms(model: Any) -> Any:
    """Return the model that has the functions: that of a classifier of two classes, or itself.

    Raises
    ------
    ParameterError
        If there are more classes, with functions for each, or it has no terms.
    """
    check_is_fitted(model)
    models = getattr(model, "estimators_", [model])
    if len(models) > 1:
        raise ParameterError(
            f"the model has functions for each of its {len(model.classes_)} classes: pass "
            "model.estimators_[k], of the class model.classes_[k]"
        )
    if not hasattr(models[0], "terms_"):
        raise ParameterError(
            f"a model of terms is needed, such as AdditiveGPRegressor, got {type(model).__name__}"
        )
    return models[0]


# Attributes of every f.
OF_ONE = frozenset(
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
