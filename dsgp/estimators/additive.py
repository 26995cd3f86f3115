"""``AdditiveGPRegressor``: a Gaussian process a column, added up, with scikit-learn's manners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dsgp.additive import (
    MAX_ITER,
    SOLVERS,
    AdditiveSystem,
    Solution,
    TwoWayTables,
    warn_unless_converged,
)
from dsgp.axis import Floats, sum_by
from dsgp.compute import one_blas_thread, run
from dsgp.errors import ConvergenceWarning, DataError, ParameterError
from dsgp.estimators import persistence
from dsgp.estimators.parameters import (
    require_choice,
    require_count,
    require_kernels,
    require_positive,
    require_resolvable,
)
from dsgp.estimators.summary import summarise
from dsgp.estimators.term import Term
from dsgp.estimators.training import Training
from dsgp.kernels import Matern, Matern52
from dsgp.learning.search import NOISE, NOISE_START, require_complete, search_for
from dsgp.learning.vbem import Expectation, Pair, expectation, vbem
from dsgp.progress import progress
from dsgp.rows.sources import Columns, matching_columns

_ROW_BLOCK = 65_536  # rows of one prediction task
_PREDICT = 3e-7  # seconds of compiled work per row and term
# E-steps on the way need the mean to so many prior standard deviations only; their solver starts
# where the last one stopped.
_E_STEP_TOL = 1e-2
_E_STEP_SWEEPS = 20


class AdditiveGPRegressor(RegressorMixin, BaseEstimator):
    r"""Additive Gaussian process regression.

    .. math:: y_i = \sum_d f_d(x_{id}) + \varepsilon_i, \quad
              f_d \sim \mathcal{GP}(0, k_d), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The cost is linear in the number of rows: every step works along one sorted column at a time.
    Hyperparameters, inputs and outputs are in the units of the data throughout.

    Parameters
    ----------
    kernel : kernel, optional
        Of every column that ``terms`` does not name; None means ``Matern52()``. Parameters given
        are starts for the learner, kept where the kernel marks them ``fixed``.
    terms : mapping of str to kernel, optional
        Kernels of single columns (``x0``, ``x1``, … where the data have no names).
    noise_variance : float, optional
        σ² of a row of weight 1: a start for the learner, which goes down to 10⁻⁶ of the target's
        variance, or to this value if it is smaller.
    fixed_noise : bool
        Keep ``noise_variance`` as given.
    solver : {"multigrid", "cg", "backfitting"}
        How the joint posterior mean is computed: conjugate gradients with a two-level
        preconditioner, or with the smoothers of all terms alone, or the paper's backfitting.
    learner : {"vbem", None}
        Variational Bayes EM, or None to keep the given hyperparameters.
    tol : float
        The solver stops when the error of every component is below ``tol`` of its prior standard
        deviation, by a rigorous bound.
    max_iter : int, optional
        Iterations of the solver at most; by default 500 of "multigrid", 2000 of "cg", 500 sweeps of
        "backfitting".
    learner_tol : float
        The learner stops when an iteration gains fewer nats than this.
    learner_max_iter : int
    verbose : bool
        Show a progress bar while learning, where stderr is a terminal.

    Attributes
    ----------
    kernels_ : dict of str to kernel
        The fitted kernel of each column; ``covariance(x, y)`` is its dense matrix.
    noise_variance_ : float
    log_marginal_likelihood_ : float
        Exact with one term; with several the variational lower bound on it.
    learner_trace_ : list of float
        The bound after each iteration of the learner; it never falls. Empty without a learner.
    solver_iterations_ : int
        Of the final solve; 0 where the learner's last one was good enough.
    n_iter_ : int
        Iterations of the learner, or of the solver without one.
    error_bound_ : float
        The error of any component at any input is at most this many prior standard deviations.
    converged_ : bool
        Whether solver and learner met their tolerances.
    intercept_ : float
        The prediction where every centred component is 0.
    terms_ : list of Term
        The fitted functions.
    constant_columns_ : list of str
        Columns with one value only: they contribute nothing.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    Notes
    -----
    Standard deviations are those of the factorised posterior, in which every term counts the others
    as known (the paper, section "gpvb"). They are close to the exact ones for nearly independent
    inputs. For strongly correlated ones those of the components are too small, and that of the sum
    may be off either way. Far from the data they revert to those of the prior.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*: Algorithm ``alg:bfgp``, section ``sec:gpvb``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 2))
    >>> y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(300)
    >>> model = AdditiveGPRegressor().fit(X, y)
    >>> mean, std = model.predict([[1.0, 0.0], [0.0, 2.0]], return_std=True)
    >>> bool(np.all(np.abs(mean - [np.sin(1.0), 0.6]) < 0.1))
    True
    """

    def __init__(
        self,
        kernel: Matern | None = None,
        *,
        terms: Mapping[str, Matern] | None = None,
        noise_variance: float | None = None,
        fixed_noise: bool = False,
        solver: str = "multigrid",
        learner: str | None = "vbem",
        tol: float = 1e-4,
        max_iter: int | None = None,
        learner_tol: float = 1e-2,
        learner_max_iter: int = 100,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.terms = terms
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
        self.solver = solver
        self.learner = learner
        self.tol = tol
        self.max_iter = max_iter
        self.learner_tol = learner_tol
        self.learner_max_iter = learner_max_iter
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_columns), or pandas.DataFrame
            Finite numbers.
        y : array_like of shape (n_rows,)
        sample_weight : array_like of shape (n_rows,), optional
            Precision weights: row i has noise variance σ²/w_i. 0 is the same as no row; a factor
            common to all changes σ² and nothing else.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If a value is missing, infinite, not a number or beyond what float64 can square, or
            shapes do not agree (scikit-learn's own ValueError for arrays without rows or columns).
        ParameterError
            If a parameter is out of its range.
        """
        self._check_parameters()
        training = Training.of(X, y, sample_weight)
        if self.learner is not None and len(training.y) < 2:
            raise DataError(
                "cannot learn hyperparameters from 1 sample (n_samples = 1): at least 2 rows of "
                "positive weight are needed; or give the hyperparameters and learner=None"
            )
        prior = self._prior_kernels(training)
        with one_blas_thread():
            state, trace, learned = self._infer(training, prior)
            self._keep(training, state)
        unit = len(training.y) * math.log(training.scale)
        self.learner_trace_ = [float(bound - unit) for bound in trace]
        solution = state.solution
        warn_unless_converged(solution, self.solver, self.tol, self._max_iter)
        if not learned:
            warnings.warn(
                f"learner={self.learner!r} stopped after {self.learner_max_iter} iterations, the "
                f"last of which still gained {trace[-1] - trace[-2]:.3g} nats, above "
                f"learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.solver_iterations_ = solution.iterations
        self.n_iter_ = len(trace) - 1 if trace else solution.iterations
        self.error_bound_ = solution.error_bound
        self.converged_ = solution.converged and learned
        return self

    def _check_parameters(self) -> None:
        require_choice("solver", self.solver, tuple(SOLVERS))
        require_choice("learner", self.learner, ("vbem", None))
        require_positive("tol", self.tol)
        require_positive("learner_tol", self.learner_tol)
        require_count("learner_max_iter", self.learner_max_iter)
        if self.max_iter is not None:
            require_count("max_iter", self.max_iter)
        if self.noise_variance is not None:
            require_positive("noise_variance", self.noise_variance)
        elif self.fixed_noise:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")
        require_kernels(self.kernel, self.terms)

    def _prior_kernels(self, training: Training) -> dict[str, Matern]:
        """Kernels of the terms in the user's units, complete or not."""
        terms = dict(self.terms or {})
        names = training.columns.names
        if unknown := [name for name in terms if name not in names]:
            raise ParameterError(
                f"terms names {unknown}, which are not among the columns {list(names)}"
            )
        default = Matern52() if self.kernel is None else self.kernel
        prior = {name: terms.get(name, default) for name in training.table.names}
        if self.learner is None:
            require_complete(prior, self.noise_variance)
        return prior

    def _infer(
        self, training: Training, prior: dict[str, Matern]
    ) -> tuple[Expectation, list[float], bool]:
        """Learn and solve, in the units of ``Training``."""
        table = training.table
        rows = (training.y, training.weight)
        kernels = [_rescaled(prior[name], 1 / training.scale) for name in table.names]
        noise = NOISE_START
        if self.noise_variance is not None:
            noise = float(self.noise_variance) / training.noise_scale
        start, trace, learned = None, [], True
        # Counted once: they do not depend on the hyperparameters.
        extra = (
            {"tables": TwoWayTables.of(table, kernels, training.weight)}
            if self.solver == "multigrid"
            else {}
        )
        if self.learner is not None:
            searches = [
                search_for(kernel, axis, sum_by(codes, len(axis), training.weight), table.n_terms)
                for kernel, axis, codes in zip(kernels, table.axes, table.codes, strict=True)
            ]
            require_resolvable([search.start for search in searches], noise)
            bounds = (noise, noise) if self.fixed_noise else (min(NOISE[0], noise), NOISE[1])
            with progress("learning", self.learner_max_iter + 1, enabled=self.verbose) as bar:
                result = vbem(
                    table,
                    searches,
                    noise,
                    *rows,
                    partial(self._solve_roughly, extra),
                    noise_bounds=bounds,
                    tol=self.learner_tol,
                    max_iter=self.learner_max_iter,
                    watch=lambda bound: bar.update(bound=bound),
                )
            kernels, noise = result.kernels, result.noise_variance
            start, trace, learned = result.pair, result.trace, result.converged
        else:
            require_resolvable(kernels, noise)
        state = expectation(table, kernels, noise, *rows, partial(self._solve, extra), start)
        return state, trace, learned

    @property
    def _max_iter(self) -> int:
        return MAX_ITER[self.solver] if self.max_iter is None else int(self.max_iter)

    def _solve(
        self, extra: dict[str, Any], system: AdditiveSystem, y: Floats, start: Pair | None
    ) -> Solution:
        return SOLVERS[self.solver](
            system, y, tol=self.tol, max_iter=self._max_iter, start=start, **extra
        )

    def _solve_roughly(
        self, extra: dict[str, Any], system: AdditiveSystem, y: Floats, start: Pair | None
    ) -> Solution:
        max_iter = self._max_iter
        if self.solver == "backfitting":
            # Its bound may stay above any tolerance for long; an E-step need not be complete.
            max_iter = min(max_iter, _E_STEP_SWEEPS)
        return SOLVERS[self.solver](
            system, y, tol=max(self.tol, _E_STEP_TOL), max_iter=max_iter, start=start, **extra
        )

    def _keep(self, training: Training, state: Expectation) -> None:
        """Store the fitted terms in the user's units."""
        table, scale = training.table, training.scale
        parts = zip(
            table.names,
            table.axes,
            state.posteriors,
            table.parts(state.solution.mean),
            table.parts(state.solution.dual),
            strict=True,
        )
        terms = []
        for name, axis, posterior, mean, dual in parts:
            weight = posterior.seen.weight
            share = weight / weight.sum()
            centre = float(np.sum(share * mean))
            terms.append(
                Term(
                    name=name,
                    kernel=_rescaled(posterior.kernel, scale),
                    axis=axis,
                    dual=dual / scale,
                    weight=weight / scale**2,
                    centre=scale * centre,
                    explained_variance=scale**2 * float(np.sum(share * (mean - centre) ** 2)),
                    effective_dof=float(np.sum(weight * posterior.variance)),
                )
            )
        self.noise_variance_ = state.noise_variance * training.noise_scale
        self.target_variance_ = scale**2
        self.log_marginal_likelihood_ = state.bound - table.n_rows * math.log(scale)
        self.intercept_ = training.offset + sum(term.centre for term in terms)
        self.constant_columns_ = training.constant
        self.n_rows_ = table.n_rows
        self._set_terms(terms)
        self._set_columns(training.columns.names, training.columns.named)

    def _set_terms(self, terms: list[Term]) -> None:
        self.terms_ = terms
        self.kernels_ = {term.name: term.kernel for term in terms}

    def _set_columns(self, names: tuple[str, ...], named: bool) -> None:
        self._columns = names
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    # ------------------------------------------------------------------ predicting

    def predict(
        self, X: Any, return_std: bool = False, include_noise: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Predict the mean, and on request the standard deviation, row by row.

        A prediction does not depend on the other rows of the call.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_columns), or pandas.DataFrame
            Columns of a frame are matched by name. Further columns are left aside, and so are
            those that were constant in the training rows.
        return_std : bool
        include_noise : bool
            Give the standard deviation of a new observation y of weight 1 instead of that of f.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
        std : ndarray of shape (n_rows,), if ``return_std``
        """
        columns = self._matched(X)
        mean = np.full(columns.n_rows, self.intercept_)
        variance = np.full(
            columns.n_rows if return_std else 0, self.noise_variance_ if include_noise else 0.0
        )

        def block(rows: slice) -> None:
            for term in self.terms_:
                inputs, order = _ascending(columns.finite_column(term.name, rows))
                mean[rows][order] += term.mean(inputs) - term.centre
                if return_std:
                    variance[rows][order] += term.variance(inputs)

        self._by_blocks(block, columns.n_rows)
        return (mean, np.sqrt(variance)) if return_std else mean

    def components(self, X: Any) -> xr.Dataset:
        """Evaluate every term, minus its weighted mean over the training rows.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_columns), or pandas.DataFrame

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std`` with dims (row, term), and ``intercept``: a prediction is the
            intercept plus the sum of ``mean`` over the terms. ``std`` is that of the centred
            component.
        """
        columns = self._matched(X)
        shape = (columns.n_rows, len(self.terms_))
        mean, std = np.empty(shape), np.empty(shape)

        def block(rows: slice) -> None:
            for position, term in enumerate(self.terms_):
                inputs, order = _ascending(columns.finite_column(term.name, rows))
                mean[rows, position][order] = term.mean(inputs) - term.centre
                std[rows, position][order] = np.sqrt(term.centred_variance(inputs))

        self._by_blocks(block, columns.n_rows)
        index = pd.RangeIndex(columns.n_rows) if columns.index is None else columns.index
        return xr.Dataset(
            {
                "mean": (("row", "term"), mean, {"long_name": "centred posterior mean"}),
                "std": (("row", "term"), std, {"long_name": "standard deviation of the mean"}),
                "intercept": ((), self.intercept_),
            },
            coords={"row": np.asarray(index), "term": [term.name for term in self.terms_]},
        )

    def _matched(self, X: Any) -> Columns:
        check_is_fitted(self)
        named = hasattr(self, "feature_names_in_")
        needed = [term.name for term in self.terms_]
        return matching_columns(X, self._columns, needed, named, type(self).__name__)

    def _by_blocks(self, block: Any, n_rows: int) -> None:
        for term in self.terms_:  # prepared once, not by every task
            term.mean, term.variance  # noqa: B018
        tasks = [
            partial(block, slice(start, min(start + _ROW_BLOCK, n_rows)))
            for start in range(0, n_rows, _ROW_BLOCK)
        ]
        run(tasks, _PREDICT * n_rows * len(self.terms_))

    # ------------------------------------------------------------------ telling and keeping

    def summary(self) -> str:
        """Describe the fit: a line a term, then noise, likelihood, solver and approximations."""
        check_is_fitted(self)
        return summarise(self)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the model to a zarr store, to be read by ``dsgp.load``.

        Parameters
        ----------
        path : str or Path
            A folder to be, usually named ``*.zarr``. It is written aside and moved into place.
        overwrite : bool
            Replace a dsgp store that is there.

        Raises
        ------
        StorageError
            If something is there already, or the place cannot be written.
        """
        check_is_fitted(self)
        persistence.save(self, path, overwrite)

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``; see ``persistence.restore``."""
        model = cls(**persistence.parameters(settings))
        persistence.restore(model, settings)
        model._set_columns(tuple(settings["columns"]), settings["named"])
        model._set_terms(persistence.terms(settings, tree))
        return model


def _ascending(inputs: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Sort inputs: neighbours on an axis are neighbours in memory then, which halves the time."""
    order = np.argsort(inputs)
    return inputs[order], order


def _rescaled(kernel: Matern, scale: float) -> Matern:
    """Return the kernel of ``scale`` times the function."""
    if kernel.variance is None:
        return kernel
    return kernel.with_parameters(variance=kernel.variance * scale**2)
