"""What estimators of one function f of the rows share: its terms, components, draws, summary."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.errors import ConvergenceWarning
from dsgp.estimators.explaining import Explanation
from dsgp.estimators.framed import ComponentAnswer, answered_frame, columns_of
from dsgp.estimators.saved import with_parameters
from dsgp.estimators.tables import TableEstimator
from dsgp.kernels import Kernel
from dsgp.models import stored
from dsgp.models.additive import Solved
from dsgp.models.base import FittedModel
from dsgp.models.checks import generator, require_count
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.summary import Summary, SummaryText
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats


class HoldsFunction(Protocol):
    """A fitted model around one f."""

    @property
    def latent(self) -> FittedModel:
        """The fitted f."""

    def prepare(self, with_std: bool) -> None:
        """Make once what all tasks of a prediction share."""


class FunctionEstimator(TableEstimator):
    """An estimator whose model is one fitted f, and what observations are around it.

    A ``fit`` calls ``_take``. A class says in ``_summary``, ``_scale``, ``_fitted_settings``
    and ``_model_of`` what its model is beyond f.
    """

    # Parameters of the estimator.
    tol: float
    random_state: int | None

    model_: HoldsFunction

    # Facts of a fit.
    noise_variance_: float | None
    target_variance_: float
    log_marginal_likelihood_: float
    learner_trace_: list[float]
    learner_: str | None
    learner_notes_: list[str]
    effective_dof_: float
    bin_error_: float
    bin_noise_: float
    n_missing_: dict[str, int]
    solver_iterations_: int
    n_iter_: int
    error_bound_: float
    converged_: bool
    constant_columns_: list[str]
    n_rows_: int
    fit_seconds_: dict[str, float]

    def _take(
        self,
        model: HoldsFunction,
        facts: FitFacts,
        columns: Columns,
        fit_seconds: dict[str, float] | None = None,
    ) -> None:
        """Take over what a fit came to; each fact becomes an attribute."""
        self.model_, self._facts = model, facts
        self.__dict__.update(facts.shown())
        if fit_seconds is not None:
            self.fit_seconds_ = fit_seconds
        self._take_columns(columns)

    def _note(self, notes: list[str]) -> None:
        """Add notes to those of the fit."""
        self._facts = self._facts.with_notes(notes)
        self.__dict__.update(self._facts.shown())

    # ------------------------------------------------------------------ what was found

    @property
    def _rows_model(self) -> FittedModel:
        return self.model_.latent

    @property
    def terms_(self) -> list[FittedTerm]:
        """The fitted functions."""
        return self.model_.latent.terms

    @property
    def kernels_(self) -> dict[str, Kernel]:
        """The fitted kernel of each term."""
        return self.model_.latent.kernels

    @property
    def intercept_(self) -> float:
        """The prediction of f where every centred component is 0."""
        return self.model_.latent.intercept

    @property
    def _missing_in_training(self) -> Mapping[str, int]:
        return self._facts.n_missing

    # ------------------------------------------------------------------ components and draws

    def predict_latent(self, X: Any, return_std: bool = False, *, as_frame: bool = False) -> Any:
        """Predict f, on the scale of the transform or the link, without noise and offset.

        Parameters
        ----------
        X : table
            As for ``predict``.
        return_std : bool
        as_frame : bool
            Return columns ``latent`` and ``std`` as a table of the library of X, with its index.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            A dask array where X is a dask collection.
        std : the same, if ``return_std``
            One table with ``as_frame``.
        """
        latent = self._fitted.latent

        def answer(rows: Rows) -> list[Floats]:
            mean, variance = latent.moments(rows, return_std)
            return [mean] if variance is None else [mean, np.sqrt(variance)]

        columns = self._answers(X, answer, 1 + return_std, with_std=return_std)
        return columns_of(X, ["latent", "std"][: 1 + return_std], columns, as_frame)

    @property
    def _fitted(self) -> Any:
        """The model; raises scikit-learn's ``NotFittedError`` where there is none."""
        check_is_fitted(self)
        return self.model_

    def components(self, X: Any, *, as_frame: bool = False) -> Any:
        """Evaluate every term, minus its weighted mean over the training rows.

        Parameters
        ----------
        X : table
            As for ``predict``.
        as_frame : bool
            Return columns ``mean_x`` and ``std_x`` for each term x as a table of the library of X:
            pandas (with its index), polars, pyarrow or dask; pandas for arrays and files.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std`` with dims (row, term), and ``intercept``: a prediction is the
            intercept plus the sum of ``mean`` over the terms. ``std`` is that of the centred
            component, with all other terms and the constant unknown too.
        """
        latent = self._fitted.latent
        if as_frame:
            return answered_frame(X, [self], ComponentAnswer)
        rows = Rows.join(self._loaded_rows(X))
        self._report_rows(rows)
        shape = (len(rows), len(latent.names))
        mean, std = np.empty(shape), np.empty(shape)

        def block(part: slice) -> None:
            mean[part], std[part] = latent.component_moments(rows.part(part))

        latent.prepare(with_std=True)
        latent.by_blocks(block, len(rows), True)
        return xr.Dataset(
            {
                "mean": (("row", "term"), mean, {"long_name": "centred posterior mean"}),
                "std": (("row", "term"), std, {"long_name": "standard deviation of the mean"}),
                "intercept": ((), latent.intercept),
            },
            coords={"row": _index_of(X, len(rows)), "term": latent.names},
        )

    def explain(self, X: Any, *, as_frame: bool = False) -> Any:
        """Explain predictions of f row by row: what each term adds, the largest terms first.

        Parameters
        ----------
        X : table
            As for ``predict``.
        as_frame : bool
            Return columns ``prediction``, then ``contribution_x`` for each term x, then ``std_x``,
            as a table of the library of X: pandas (with its index), polars, pyarrow or dask
            (lazily); pandas for arrays and files. The intercept is ``intercept_``.

        Returns
        -------
        xarray.Dataset
            ``contribution`` and ``std`` with dims (row, term), ``prediction`` with dim (row,), and
            ``intercept``: a prediction is the intercept plus the sum of its contributions, exactly.
            ``contribution`` and ``std`` are ``mean`` and ``std`` of ``components``: the term at the
            row minus its mean over the training rows, and its posterior standard deviation. Terms
            are in the order of their variance over the training rows, so that explanations of
            different rows can be compared; ``kind`` says which are main effects, interactions or
            projections. Lazy if X is a dask collection with a known number of rows.

        Notes
        -----
        Everything is on the scale of f, where contributions add up: that of the target, of its
        transform (``target_transform``) or of the link function, without offsets. With a link
        function the prediction is that of ``predict_latent``.

        A contribution compares the row with the average training row, as a Shapley value does; for
        an additive function it equals the interventional Shapley value. An interaction is a
        separate term here; it is not divided among its columns.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp import AdditiveGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = {"a": rng.uniform(-3, 3, 200), "b": rng.uniform(-3, 3, 200)}
        >>> y = np.sin(X["a"]) + 0.1 * X["b"] + 0.1 * rng.standard_normal(200)
        >>> parts = AdditiveGPRegressor().fit(X, y).explain({"a": [1.5], "b": [2.0]})
        >>> table = parts["contribution"].to_pandas()
        >>> list(table), table.shape
        (['a', 'b'], (1, 2))
        >>> total = float(parts["intercept"]) + table.sum(axis=1)
        >>> bool(np.allclose(total, parts["prediction"]))
        True
        """
        explanation = Explanation(self._fitted.latent)
        if as_frame:
            return answered_frame(X, [self], Explanation)
        answered = self._answers(X, explanation, explanation.n_columns, with_std=True)
        index = X.index if isinstance(X, pd.DataFrame) else None
        return explanation.dataset(answered, index, self._scale)

    @property
    def _scale(self) -> str:
        """What f is on the scale of, for people."""
        raise NotImplementedError

    def sample_components(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
    ) -> xr.DataArray:
        """Draw every term from the joint posterior, minus its weighted mean over the training rows.

        The draws are exact, as those of ``sample``. Use them for functionals of single terms:
        differences of levels, the position of a maximum, bands that hold for a whole curve.

        Parameters
        ----------
        X : table
            Rows at which the draws are evaluated.
        n_samples : int
        random_state : int or numpy.random.Generator, optional
            By default that of the model.

        Returns
        -------
        xarray.DataArray with dims (sample, row, term)
            On the scale of the transform or the link, if there is one. The means that are
            subtracted are those of each draw.

        Raises
        ------
        MemoryLimitError
            If so many draws would not fit.
        """
        latent = self._fitted.latent
        random = self._generator(random_state)
        require_count("n_samples", n_samples)
        pieces = self._loaded_rows(X)
        drawn = self._solved(
            "sample", latent.sample_components(pieces, n_samples, random, self.tol)
        )
        index = _index_of(X, drawn.shape[1])
        return xr.DataArray(drawn, {"row": index, "term": latent.names}, ("sample", "row", "term"))

    def _generator(self, random_state: Any) -> np.random.Generator:
        """Random numbers of a seed; by default that of the model."""
        return generator(self.random_state if random_state is None else random_state)

    def _solved(self, what: str, solved: Solved) -> Floats:
        """Return what solves came to; warn if some stopped short of their tolerance."""
        if not solved.converged:
            warnings.warn(
                f"the solves of {what} stopped above their tolerance, because float64 has too "
                "little precision for so little noise: the result is approximate",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solved.values

    # ------------------------------------------------------------------ reporting and storing

    def summary(self) -> SummaryText:
        """Describe the fit: one line per term, then noise, likelihood, solver and approximations.

        Returns
        -------
        str
            Notebooks show it as a table.
        """
        check_is_fitted(self)
        return self._summary().both()

    def _summary(self) -> Summary:
        """What ``summary`` writes down."""
        raise NotImplementedError

    def _fitted_settings(self) -> dict[str, Any]:
        """What is reported of the fit, and what the model is beyond f, as values for JSON."""
        return self._facts.shown() | {"fit_seconds_": self.fit_seconds_}

    @classmethod
    def _model_of(cls, settings: dict[str, Any], tree: dict[str, Any]) -> HoldsFunction:
        """Return the model of a store."""
        raise NotImplementedError

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        return stored.described(
            self.get_params(deep=False),
            self._columns,
            self._fitted_settings(),
            self.model_.latent,
            getattr(self, "_relevance", None),
        )

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``; raises ``KeyError``, ``TypeError`` or ``ValueError`` if that cannot be."""
        model = with_parameters(cls, stored.parameters(settings))
        fitted = settings["fitted"]
        facts = FitFacts(**{name: fitted[f"{name}_"] for name in FitFacts.names()})
        held = cls._model_of(settings, tree)
        model._take(held, facts, stored.columns(settings), fitted["fit_seconds_"])
        return model


def _index_of(X: Any, n_rows: int) -> Any:
    """Names of the rows of a table."""
    return np.asarray(X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(n_rows))
