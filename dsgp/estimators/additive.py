"""``AdditiveGPRegressor``: a Gaussian process a column, added up, with scikit-learn's manners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dsgp import memory
from dsgp.additive import (
    MAX_ITER,
    SOLVERS,
    AdditiveSystem,
    Equations,
    Pair,
    Solution,
    warn_unless_converged,
)
from dsgp.additive.posterior import (
    joint_covariance,
    joint_samples,
    together_of,
    vector_bytes,
)
from dsgp.additive.variance import covariance_of
from dsgp.axis import Floats
from dsgp.compute import one_blas_thread, run
from dsgp.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MemoryLimitError,
    ParameterError,
)
from dsgp.estimators import persistence
from dsgp.estimators.inference import Clock, Fit, Found, Posterior, learn, solve
from dsgp.estimators.parameters import (
    require_bins,
    require_choice,
    require_count,
    require_kernels,
    require_positive,
    require_resolvable,
)
from dsgp.estimators.summary import summarise
from dsgp.estimators.term import Term
from dsgp.estimators.training import Training, prepare
from dsgp.kernels import Matern, Matern52
from dsgp.learning.search import NOISE, NOISE_START, require_complete
from dsgp.progress import Bar, progress
from dsgp.rows.encode import MOST_BINS
from dsgp.rows.sources import Rows, Source, is_lazy, map_rows, matching_source, source_of

_ROW_BLOCK = 4_096  # rows of one prediction task
# Seconds of compiled work per row and term.
_PREDICT = 1e-7
_PREDICT_STD = 1e-6
# E-steps on the way need the mean to so many prior standard deviations only; their solver starts
# where the last one stopped.
_E_STEP_TOL = 1e-2
_E_STEP_SWEEPS = 20
# Error of the bins in posterior standard deviations: more than this and there are more bins, or
# (if there cannot be) a warning.
BIN_LIMIT = 0.1
BIN_WARNING = 0.3
# Likewise what they add to the noise variance, as a share.
BIN_NOISE_LIMIT = 0.05
# Tolerance beyond which float64 has nothing to give.
_FINEST = 1e-11


class _Reading:
    """Tells a bar and a clock how far reading has come."""

    def __init__(self, bar: Bar, clock: Clock) -> None:
        self.bar, self.clock, self.stage, self.rows = bar, clock, "", 0

    def __call__(self, stage: str, rows: int) -> None:
        if stage != self.stage:
            self.clock.stage(stage)
            self.stage, self.rows = stage, 0
        self.bar.update(rows - self.rows, stage=stage)
        self.rows = rows


class AdditiveGPRegressor(RegressorMixin, BaseEstimator):
    r"""Additive Gaussian process regression.

    .. math:: y_i = \sum_d f_d(x_{id}) + \varepsilon_i, \quad
              f_d \sim \mathcal{GP}(0, k_d), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The cost is linear in the number of rows: every step works along one sorted column at a time.
    Large tables are read twice, block by block, into bins; learning and solving then no longer
    depend on the number of rows. Hyperparameters, inputs and outputs are in the units of the data
    throughout.

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
    learner : {"marginal", "vbem", None}
        Maximise the marginal likelihood from sufficient statistics; or the paper's variational
        Bayes EM, which also takes over where functions are too rough for the former (``learner_``
        tells); or keep the given hyperparameters.
    bins : "auto", int or None
        Values of a column that are told apart. None keeps every distinct one, and all rows in
        memory; "auto" does so while that is quick, and takes bins beyond, as many as keep their
        error far below the posterior standard deviation (``bin_error_``). A column with fewer
        distinct values keeps them in any case.
    missing : {"error", "ignore"}
        What NaN in an input means: an error, or that the row gets nothing from that term, as if its
        function were 0 there.
    tol : float
        The solver stops when the error of every component is below ``tol`` of its prior standard
        deviation, by a rigorous bound.
    max_iter : int, optional
        Iterations of the solver at most; by default 500 of "multigrid", 2000 of "cg", 500 sweeps of
        "backfitting".
    learner_tol : float
        "marginal" stops when no gradient by the log of a hyperparameter is above so many nats (by
        that of the noise, over the square root of N/50);
        "vbem" when an iteration gains fewer.
    learner_max_iter : int
    random_state : int, optional
        Seed of ``sample``. Fitting draws nothing.
    verbose : bool
        Show a progress bar while reading and learning, where stderr is a terminal.

    Attributes
    ----------
    kernels_ : dict of str to kernel
        The fitted kernel of each column; ``covariance(x, y)`` is its dense matrix.
    noise_variance_ : float
    log_marginal_likelihood_ : float
        Exact with one term; with several the determinant in it is that of a mean field and the
        coarse spaces, for smooth kernels good to a fraction of a nat.
    effective_dof_ : float
        Of all terms together.
    learner_ : str or None
        The learner that was relied on; ``learner_notes_`` says more.
    learner_trace_ : list of float
        What the learner maximised, as it grew; it never falls. Empty without a learner.
    solver_iterations_ : int
        Of the final solve; 0 where an earlier one was good enough.
    n_iter_ : int
        Evaluations or iterations of the learner, or iterations of the solver without one.
    error_bound_ : float
        The error of any component at any input is at most this many prior standard deviations.
    bin_error_ : float
        About how much bins change the function, in posterior standard deviations; 0 without bins.
    bin_noise_ : float
        Share of the rows' noise that comes from inputs differing within bins. It widens the
        standard deviation of f, and is no part of ``noise_variance_``.
    converged_ : bool
        Whether solver and learner met their tolerances.
    intercept_ : float
        The prediction where every centred component is 0.
    terms_ : list of Term
        The fitted functions.
    constant_columns_ : list of str
        Columns with one value only: they contribute nothing.
    n_missing_ : dict of str to int
        Rows in which a column was missing.
    fit_seconds_ : dict of str to float
        Wall seconds of each stage of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    Notes
    -----
    Standard deviations are those of the joint posterior: of the sum, and of components with all
    other terms unknown as well. Up to 1000 rows they are exact; beyond, the terms are coupled on
    coarse spaces and in a mean field (docs/mathematics.md has the measured errors: below 1 % for
    smooth kernels). Far from the data they revert to those of the prior.

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
        learner: str | None = "marginal",
        bins: str | int | None = "auto",
        missing: str = "error",
        tol: float = 1e-4,
        max_iter: int | None = None,
        learner_tol: float = 0.1,
        learner_max_iter: int = 100,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.terms = terms
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
        self.solver = solver
        self.learner = learner
        self.bins = bins
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
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
            An array of shape (n_rows, n_columns), a pandas data frame, a dask array or data frame,
            an xarray dataset of one dimension, or the path of a table on disk: a CSV or Parquet
            file, a folder of Parquet files, a glob, or a zarr store of columns. What is not in
            memory streams block by block. Finite numbers; NaN where ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            The name of the target where it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
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
        MemoryLimitError
            If the fit would not fit into memory.
        """
        self._check_parameters()
        clock = Clock()
        source = source_of(X, y, sample_weight, missing=self.missing)
        prior = self._prior_kernels(tuple(source.names))
        orders = {name: kernel.order for name, kernel in prior.items()}
        with one_blas_thread():
            with progress("reading", source.n_rows, enabled=self.verbose) as bar:
                training = prepare(source, orders, self.bins, _Reading(bar, clock))
            if self.learner is not None and training.equations.n_rows < 2:
                raise DataError(
                    "cannot learn hyperparameters from 1 sample (n_samples = 1): at least 2 rows "
                    "of positive weight are needed; or give the hyperparameters and learner=None"
                )
            clock.stage("learn")
            found = self._learn(training, prior)
            clock.stage("solve")
            state = self._solve(training, found)
            if self.bins == "auto" and _too_coarse(state):
                clock.stage("refine bins")
                training, state = self._refine(source, orders, training, found, state)
            clock.stage("keep")
            self._keep(training, found, state)
        self.fit_seconds_ = clock.finish()
        self._warn(found, state)
        return self

    def _check_parameters(self) -> None:
        require_choice("solver", self.solver, tuple(SOLVERS))
        require_choice("learner", self.learner, ("marginal", "vbem", None))
        require_choice("missing", self.missing, ("error", "ignore"))
        require_bins(self.bins)
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

    def _prior_kernels(self, names: tuple[str, ...]) -> dict[str, Matern]:
        """Kernels of all columns in the user's units, complete or not."""
        terms = dict(self.terms or {})
        if unknown := [name for name in terms if name not in names]:
            raise ParameterError(
                f"terms names {unknown}, which are not among the columns {list(names)}"
            )
        default = Matern52() if self.kernel is None else self.kernel
        prior = {name: terms.get(name, default) for name in names}
        if self.learner is None:
            require_complete(prior, self.noise_variance)
        return prior

    def _learn(self, training: Training, prior: dict[str, Matern]) -> Found:
        """Find hyperparameters, in the units of ``Training``."""
        equations = training.equations
        kernels = [_rescaled(prior[name], 1 / training.scale) for name in equations.layout.names]
        noise = NOISE_START
        if self.noise_variance is not None:
            noise = float(self.noise_variance) / training.noise_scale
        if self.learner is None:
            require_resolvable(kernels, noise)
            return Found(kernels, noise, (noise, noise), None)
        bounds = (noise, noise) if self.fixed_noise else (min(NOISE[0], noise), NOISE[1])
        with progress("learning", enabled=self.verbose) as bar:
            return learn(
                equations,
                kernels,
                noise,
                bounds,
                learner=self.learner,
                solve=self._solve_roughly,
                tol=self.learner_tol,
                max_iter=self.learner_max_iter,
                watch=lambda value: bar.update(value=value),
            )

    @property
    def _max_iter(self) -> int:
        return MAX_ITER[self.solver] if self.max_iter is None else int(self.max_iter)

    def _solve_roughly(self, system: AdditiveSystem, start: Pair | None) -> Solution:
        max_iter = self._max_iter
        if self.solver == "backfitting":
            # Its bound may stay above any tolerance for long; an E-step need not be complete.
            max_iter = min(max_iter, _E_STEP_SWEEPS)
        return SOLVERS[self.solver](
            system, tol=max(self.tol, _E_STEP_TOL), max_iter=max_iter, start=start
        )

    def _solve(self, training: Training, found: Found) -> Fit:
        return solve(
            training.equations,
            found,
            training.spreads,
            solver=self.solver,
            tol=self.tol,
            max_iter=self._max_iter,
        )

    def _refine(
        self,
        source: Source,
        orders: dict[str, int],
        training: Training,
        found: Found,
        state: Fit,
    ) -> tuple[Training, Fit]:
        """Take as many bins as bring their error down, or all distinct values, and solve again."""
        largest = max(map(len, training.equations.layout.axes))
        # What they cost falls at least with their number, and noise with its square.
        excess = max(state.bin_error / BIN_LIMIT, (state.bin_noise / BIN_NOISE_LIMIT) ** 0.5)
        n_bins = min(int(1.5 * largest * excess), MOST_BINS)
        if n_bins <= largest:
            return training, state
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # said already
            try:
                training = prepare(source, orders, n_bins)
            except MemoryLimitError:  # what there is stays, and is warned of
                return training, state
        return training, self._solve(training, found)

    def _keep(self, training: Training, found: Found, state: Fit) -> None:
        """Store the fitted terms in the user's units."""
        equations, layout = training.equations, training.equations.layout
        scale = training.scale
        terms = []
        for name, axis, kernel, mean, dual, weight, dof in zip(
            layout.names,
            layout.axes,
            state.system.kernels,
            layout.parts(state.solution.mean),
            layout.parts(state.solution.dual),
            layout.parts(state.system.weight),
            state.complexity.dof_of_terms,
            strict=True,
        ):
            share = weight / weight.sum()
            centre = float(np.sum(share * mean))
            terms.append(
                Term(
                    name=name,
                    kernel=_rescaled(kernel, scale),
                    axis=axis,
                    dual=dual / scale,
                    weight=weight / scale**2,
                    centre=scale * centre,
                    explained_variance=scale**2 * float(np.sum(share * (mean - centre) ** 2)),
                    effective_dof=float(dof),
                )
            )
        unit = equations.n_rows * math.log(scale)
        solution = state.solution
        noise = state.system.noise_variance * training.noise_scale
        self.noise_variance_ = noise * (1 - state.bin_noise)
        self.target_variance_ = scale**2
        self.log_marginal_likelihood_ = state.log_likelihood - unit
        self.learner_trace_ = [float(value - unit) for value in found.trace]
        self.learner_ = found.learner
        self.learner_notes_ = found.notes
        self.effective_dof_ = state.complexity.dof
        self.bin_error_, self.bin_noise_ = state.bin_error, state.bin_noise
        self.n_missing_ = training.n_missing
        self.solver_iterations_ = solution.iterations
        self.n_iter_ = found.n_iter if found.learner else solution.iterations
        self.error_bound_ = solution.error_bound
        self.converged_ = solution.converged and found.converged
        self.intercept_ = training.offset + sum(term.centre for term in terms)
        self.constant_columns_ = training.constant
        self.n_rows_ = equations.n_rows
        self._row_variance = state.system.noise_variance * scale**2
        self._information_scale = scale
        self._set_terms(terms, state.system.equations)
        self._set_columns(training.names, training.named)

    def _warn(self, found: Found, state: Fit) -> None:
        warn_unless_converged(state.solution, self.solver, self.tol, self._max_iter)
        if not found.converged:
            warnings.warn(
                f"learner={found.learner!r} stopped after {self.learner_max_iter} iterations, "
                f"short of learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        if self.bin_error_ > BIN_WARNING:
            warnings.warn(
                f"bins change the function by about {self.bin_error_:.2g} of its posterior "
                "standard deviation; pass more bins, or bins=None to keep every distinct value",
                DataWarning,
                stacklevel=3,
            )

    def _set_terms(self, terms: list[Term], equations: Equations) -> None:
        self.terms_ = terms
        self.kernels_ = {term.name: term.kernel for term in terms}
        self._equations = equations
        self.__dict__.pop("_posterior", None)  # of an earlier fit

    def _set_columns(self, names: tuple[str, ...], named: bool) -> None:
        self._columns = names
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    @cached_property
    def _posterior(self) -> Posterior:
        """What variances, covariances and samples need; made when first asked for."""
        system = AdditiveSystem(
            self._equations,
            [term.kernel for term in self.terms_],
            self._row_variance,
        )
        with one_blas_thread():
            return Posterior(system, covariance_of(system))

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Any, return_std: bool = False, include_noise: bool = False) -> Any:
        """Predict the mean, and on request the standard deviation, row by row.

        A prediction does not depend on the other rows of the call, but for rounding in the last
        digit of dense standard deviations.

        Parameters
        ----------
        X : table
            Of any kind that ``fit`` takes. Columns are matched by name where both have names.
            Further columns are left aside, and so are those that were constant in the training
            rows.
        return_std : bool
        include_noise : bool
            Give the standard deviation of a new observation y of weight 1 instead of that of f.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            A dask array where X is a dask collection: nothing is computed yet.
        std : the same, if ``return_std``
        """
        check_is_fitted(self)
        if is_lazy(X):
            if return_std:
                self._posterior  # noqa: B018  # once, not in every block
            means = map_rows(X, partial(self._block, return_std, include_noise), 1 + return_std)
            return means if return_std else means[0]
        blocks = [
            self._predict_rows(rows, return_std, include_noise)
            for rows in (load() for load in self._rows_of(X))
        ]
        out = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        return (out[:, 0], out[:, 1]) if return_std else out[:, 0]

    def _block(self, return_std: bool, include_noise: bool, X: Any) -> Floats:
        (load,) = self._rows_of(X)
        return self._predict_rows(load(), return_std, include_noise)

    def _rows_of(self, X: Any) -> Iterator[Callable[[], Rows]]:
        check_is_fitted(self)
        return matching_source(
            X,
            self._columns,
            [term.name for term in self.terms_],
            hasattr(self, "feature_names_in_"),
            type(self).__name__,
            self.missing,
        ).chunks()

    def _predict_rows(self, rows: Rows, return_std: bool, include_noise: bool) -> Floats:
        out = np.empty((len(rows), 1 + return_std))

        def block(part: slice) -> None:
            columns = [column[part] for column in rows.columns]
            mean = np.full(len(out[part]), self.intercept_)
            for term, inputs in zip(self.terms_, columns, strict=True):
                mean += _mean(term, inputs)
            out[part, 0] = mean
            if return_std:
                variance = np.zeros(len(mean))
                if columns:
                    variance = self._posterior.covariance.variance(columns)
                if include_noise:
                    variance += self.noise_variance_
                out[part, 1] = np.sqrt(variance)

        self._by_blocks(block, len(rows), return_std)
        return out

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
            component, with all other terms unknown too.
        """
        rows = Rows.join([load() for load in self._rows_of(X)])
        shape = (len(rows), len(self.terms_))
        mean, std = np.empty(shape), np.zeros(shape)

        def block(part: slice) -> None:
            for position, (term, column) in enumerate(zip(self.terms_, rows.columns, strict=True)):
                inputs = column[part]
                mean[part, position] = _mean(term, inputs)
                seen = ~np.isnan(inputs)
                centred = self._posterior.covariance.centred_variance(position, inputs[seen])
                std[part, position][seen] = np.sqrt(centred)

        self._by_blocks(block, len(rows), True)
        index = X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(rows))
        return xr.Dataset(
            {
                "mean": (("row", "term"), mean, {"long_name": "centred posterior mean"}),
                "std": (("row", "term"), std, {"long_name": "standard deviation of the mean"}),
                "intercept": ((), self.intercept_),
            },
            coords={"row": np.asarray(index), "term": [term.name for term in self.terms_]},
        )

    def _by_blocks(self, block: Any, n_rows: int, with_std: bool) -> None:
        for term in self.terms_:  # prepared once, not by every task
            term.mean  # noqa: B018
        if with_std and self.terms_:
            self._posterior  # noqa: B018
        tasks = [
            partial(block, slice(start, min(start + _ROW_BLOCK, n_rows)))
            for start in range(0, n_rows, _ROW_BLOCK)
        ]
        work = _PREDICT_STD if with_std else _PREDICT
        with one_blas_thread():
            run(tasks, work * n_rows * len(self.terms_), in_place=True)

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of f at chosen rows, exact: one solve a row.

        Parameters
        ----------
        X : table
            Rows to predict, as for ``predict``; some hundreds.
        include_noise : bool
            Add σ² on the diagonal: the covariance of new observations of weight 1.

        Returns
        -------
        ndarray of shape (n_rows, n_rows), in squared units of the target

        Raises
        ------
        MemoryLimitError
            If the tables of so many rows would not fit.
        """
        rows = Rows.join([load() for load in self._rows_of(X)])
        size = self._posterior.system.layout.size if self.terms_ else 0
        memory.require(
            f"the covariance of {len(rows)} rows",
            8.0 * len(rows) * (25 * size + 6 * len(rows)),
            "pass fewer rows",
        )
        noise = np.eye(len(rows)) * (self.noise_variance_ if include_noise else 0.0)
        if not self.terms_:
            return noise
        with one_blas_thread():
            variance = self._posterior.covariance.variance(rows.columns)
            smallest = variance[variance > 0].min(initial=np.inf)
            largest = max(term.kernel.std**2 for term in self.terms_)
            found, converged = joint_covariance(
                self._posterior.system,
                rows.columns,
                tol=max(math.sqrt(1e-4 * min(smallest, largest)), _FINEST),
                max_iter=MAX_ITER["multigrid"],
            )
        self._warn_solves("covariance", converged)
        return found + noise

    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        include_noise: bool = False,
    ) -> Floats:
        """Draw functions from the joint posterior, exactly, by perturbing the data and solving.

        Parameters
        ----------
        X : table
            Rows at which the draws are evaluated.
        n_samples : int
        random_state : int or numpy.random.Generator, optional
            By default that of the model.
        include_noise : bool
            Draw new observations of weight 1 instead of f.

        Returns
        -------
        ndarray of shape (n_samples, n_rows)
        """
        require_count("n_samples", n_samples)
        random = np.random.default_rng(self.random_state if random_state is None else random_state)
        rows = Rows.join([load() for load in self._rows_of(X)])
        level = self.intercept_ - sum(term.centre for term in self.terms_)
        drawn: Floats = np.zeros((n_samples, 0 if self.terms_ else len(rows)))
        if self.terms_:
            system = self._posterior.system
            memory.require(
                f"{n_samples} samples at {len(rows)} rows",
                16.0 * n_samples * len(rows) + together_of(system) * vector_bytes(system),
                "ask for fewer samples or rows",
            )
            with one_blas_thread():
                drawn, converged = joint_samples(
                    system,
                    system.information * self._information_scale,
                    rows.columns,
                    n_samples,
                    random,
                    tol=0.1 * self.tol,
                    max_iter=MAX_ITER["multigrid"],
                )
            self._warn_solves("sample", converged)
        if include_noise:
            drawn += math.sqrt(self.noise_variance_) * random.standard_normal(drawn.shape)
        return level + drawn

    def _warn_solves(self, what: str, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"the solves of {what} stopped short of their tolerance, as float64 cannot do "
                "better beside so little noise: take the result as approximate",
                ConvergenceWarning,
                stacklevel=3,
            )

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
        terms = persistence.terms(settings, tree)
        model._set_terms(terms, persistence.equations(settings, tree, terms))
        return model


def _rescaled(kernel: Matern, scale: float) -> Matern:
    """Return the kernel of ``scale`` times the function."""
    if kernel.variance is None:
        return kernel
    return kernel.with_parameters(variance=kernel.variance * scale**2)


def _too_coarse(state: Fit) -> bool:
    return state.bin_error > BIN_LIMIT or state.bin_noise > BIN_NOISE_LIMIT


def _mean(term: Term, inputs: Floats) -> Floats:
    """Centred mean of a term; where its input is missing the function itself is 0."""
    seen = ~np.isnan(inputs)
    if seen.all():
        return term.mean(inputs) - term.centre
    out = np.full(len(inputs), -term.centre)
    out[seen] += term.mean(inputs[seen])
    return out
