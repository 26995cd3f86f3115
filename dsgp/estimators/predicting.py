"""What a fitted additive model does, whatever its terms are functions of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dsgp import memory, storage
from dsgp.additive import MAX_ITER, AdditiveSystem, Equations
from dsgp.additive.posterior import (
    joint_covariance,
    joint_samples,
    together_of,
    vector_bytes,
)
from dsgp.compute import one_blas_thread, run
from dsgp.errors import ConvergenceWarning, DataWarning
from dsgp.estimators import persistence
from dsgp.estimators.fitting import Outcome
from dsgp.estimators.inference import Posterior
from dsgp.estimators.parameters import generator, require_count
from dsgp.estimators.saved import Saved
from dsgp.estimators.summary import Summary, summarise
from dsgp.estimators.term import Term
from dsgp.rows.sources import Kind, Rows, Source, is_lazy, map_table, matching_source
from dsgp.terms import Floats

_ROW_BLOCK = 4_096  # rows of one prediction task
# Seconds of compiled work per row and term.
_PREDICT = 1e-7
_PREDICT_STD = 1e-6
# Tolerance beyond which float64 has nothing to give.
_FINEST = 1e-11


Finish = Callable[[Rows, Floats, Floats | None], list[Floats]]
Check = Callable[[Rows, int], None]


class AdditivePredictor(Saved):
    """A fitted sum of functions of one input each: predictions, draws, summary, store.

    An estimator inherits from it, and from scikit-learn's classes after it. Its ``fit`` ends with
    ``_keep``, ``_set_columns`` and ``fit_seconds_``. In this class the inputs of the terms are
    columns of the table. Where they are made of columns, a class overrides ``used_columns_`` and
    ``_inputs``; ``_deviations``, ``_prepare`` and ``_summary`` where there is more to each. Fitted
    attributes of its own that are to be saved it names in ``_plain_attributes`` (values that JSON
    can hold) and ``_array_attributes``.
    """

    _plain_attributes: ClassVar[tuple[str, ...]] = persistence.PLAIN_ATTRIBUTES
    _array_attributes: ClassVar[tuple[str, ...]] = ()
    # The same as ``_plain_attributes``, with the value of stores that lack them.
    _optional_attributes: ClassVar[Mapping[str, Any]] = {}
    _unfelt: ClassVar[float] = 0.0  # as of ``AdditiveSystem``

    # Parameters of the estimator.
    missing: str
    tol: float
    noise_variance_: float
    n_missing_: dict[str, int]
    random_state: int | None

    # ------------------------------------------------------------------ what a fit leaves

    def _keep(self, outcome: Outcome) -> None:
        """Take over the outcome of a fit."""
        training, found, fit = outcome.training, outcome.found, outcome.fit
        terms = outcome.terms()
        self.noise_variance_ = outcome.noise_variance
        self.target_variance_ = training.scale**2
        self.log_marginal_likelihood_ = outcome.log_likelihood(fit.log_likelihood)
        self.learner_trace_ = [float(outcome.log_likelihood(value)) for value in found.trace]
        self.learner_ = found.learner
        self.learner_notes_ = found.notes
        self.effective_dof_ = fit.complexity.dof
        self.bin_error_, self.bin_noise_ = fit.bin_error, fit.bin_noise
        self.n_missing_ = training.n_missing
        self.solver_iterations_ = fit.solution.iterations
        self.n_iter_ = outcome.n_iter
        self.error_bound_ = fit.solution.error_bound
        self.converged_ = outcome.converged
        self.intercept_ = outcome.constant + sum(term.centre for term in terms)
        self.constant_columns_ = training.constant
        self.n_rows_ = training.equations.n_rows
        self._row_variance = fit.system.noise_variance * training.scale**2
        self._information_scale = training.scale
        self._set_terms(terms, fit.system.equations, 0.0)

    def _set_terms(self, terms: list[Term], equations: Equations, constant: float | None) -> None:
        """Take over terms and equations; ``constant`` as of ``AdditiveSystem``."""
        self.terms_ = terms
        self._constant = constant
        self.kernels_ = {term.name: term.kernel for term in terms}
        self._equations = equations
        self._made: dict[str, Posterior] = {}  # when first asked for

    def _set_columns(self, source: Source) -> None:
        """Take over names and kinds of the columns that a fit was given."""
        self._name_columns(
            tuple(source.names),
            source.named,
            {name: kind for name, kind in source.kinds.items() if not kind.is_number},
        )

    def _name_columns(self, names: tuple[str, ...], named: bool, kinds: dict[str, Kind]) -> None:
        self._columns = names
        self._kinds = kinds
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    @property
    def _posterior(self) -> Posterior:
        """What variances, covariances and samples need; made when first asked for."""
        if "posterior" not in self._made:
            self._made["posterior"] = self._make_posterior()
        return self._made["posterior"]

    def _make_posterior(self) -> Posterior:
        system = AdditiveSystem(
            self._equations,
            [term.kernel for term in self.terms_],
            self._row_variance,
            self._unfelt,
        )
        with one_blas_thread():
            return Posterior.of(system, self._constant)

    # ------------------------------------------------------------------ what a class may override

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """Columns that a prediction depends on; a table to predict needs no others."""
        return tuple(dict.fromkeys(own for term in self.terms_ for own in term.bound.columns))

    def _inputs(self, columns: list[Floats]) -> list[Floats]:
        """Turn ``used_columns_`` of some rows into the inputs of the terms, in their order.

        Called for blocks of rows, by several threads. Where an input is NaN its term gives nothing.
        """
        by_name = dict(zip(self.used_columns_, columns, strict=True))
        return [term.bound.joined(term.bound.read(by_name)) for term in self.terms_]

    def _variance(self, rows: Rows, inputs: list[Floats]) -> Floats:
        """Variance of f at some rows, without the noise; a new array."""
        variance = self._posterior.variance(inputs, len(rows))
        deviations = self._deviations(rows.columns)
        if deviations is not None:
            variance += np.einsum("ij,ij->i", deviations, deviations)
        return variance

    def _deviations(self, columns: list[Floats]) -> Floats | None:
        """What f may deviate by beyond constant and terms, (n, k), in units of the target.

        Each column is a function of the row, times a standard normal variable of its own.
        """
        return None

    def _moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean of f at some rows, and on request its variance, without the noise; new arrays."""
        inputs = self._inputs(rows.columns)
        mean = np.full(len(rows), self.intercept_)
        for term, values in zip(self.terms_, inputs, strict=True):
            mean += _mean(term, values)
        if not with_variance:
            return mean, None
        return mean, self._variance(rows, inputs)

    def _component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each centred term at some rows, (n, n_terms)."""
        shape = (len(rows), len(self.terms_))
        mean, std = np.empty(shape), np.zeros(shape)
        inputs = self._inputs(rows.columns)
        for position, (term, values) in enumerate(zip(self.terms_, inputs, strict=True)):
            mean[:, position] = _mean(term, values)
            seen = ~term.cells.is_missing(values)
            centred = self._posterior.centred_variance(position, values[seen])
            std[seen, position] = np.sqrt(centred)
        return mean, std

    @property
    def _std_note(self) -> str:
        """How standard deviations are computed, for people."""
        covariance = self._posterior.covariance
        return "exact" if covariance is None else covariance.name

    def _prepare(self, with_std: bool) -> None:
        """Make once what all tasks of a prediction share."""
        for term in self.terms_:
            term.mean  # noqa: B018
        if with_std:
            self._posterior  # noqa: B018

    def _summary(self) -> Summary:
        """What ``summary`` writes down."""
        return summarise(self)

    # ------------------------------------------------------------------ predicting

    def _evaluated(
        self,
        X: Any,
        finish: Finish,
        n_columns: int,
        *,
        with_variance: bool,
        extra: Mapping[str, Any] | None = None,
        check: Check | None = None,
    ) -> Any:
        """Evaluate something of mean and variance of f, row by row: a table, lazy where X is.

        Parameters
        ----------
        X : table
        finish : callable
            Takes some rows, and mean and variance of f there (None without ``with_variance``);
            returns ``n_columns`` arrays. Called for blocks of rows, by several threads.
        n_columns : int
        with_variance : bool
        extra : mapping, optional
            Further numbers of the rows, as of ``source_of``.
        check : callable, optional
            Takes some rows and the number of the first, and raises ``DataError`` where they will
            not do.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            A dask array where X is a dask collection.
        """
        check_is_fitted(self)
        function = partial(self._evaluate_table, finish, n_columns, with_variance, check)
        if is_lazy(X):
            if with_variance:
                self._prepare(with_std=True)  # not in every block
            return map_table(X, function, n_columns, extra)
        return function(X, extra)

    def _evaluate_table(
        self,
        finish: Finish,
        n_columns: int,
        with_variance: bool,
        check: Check | None,
        X: Any,
        extra: Mapping[str, Any] | None = None,
    ) -> Floats:
        blocks: list[Floats] = []
        gaps = np.zeros(len(self.used_columns_), dtype=int)
        unseen = np.zeros(len(self.terms_), dtype=int)
        for load in self._rows_of(X, extra):
            rows = load()
            gaps += _gaps_of(rows)
            unseen += self._unseen_in(rows)
            if check is not None:
                check(rows, sum(map(len, blocks)))
            blocks.append(self._evaluate_rows(rows, finish, n_columns, with_variance))
        self._report_gaps(gaps, sum(map(len, blocks)))
        self._report_unseen(unseen, sum(map(len, blocks)))
        return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def _report_gaps(self, gaps: NDArray[np.intp], n_rows: int) -> None:
        """Warn of inputs that are missing, in so many rows each, and never were in training."""
        centres: dict[str, float] = {}
        for term in self.terms_:
            for name in term.bound.columns:
                centres[name] = centres.get(name, 0.0) + term.centre
        for name, count in zip(self.used_columns_, gaps, strict=True):
            if count and name in centres and name not in self.n_missing_:
                warnings.warn(
                    f"input column {name!r} is missing in {count} of {n_rows} rows to predict, and "
                    "never was in training, so nothing is known of rows without it: its function "
                    f"counts as 0 there, and f is {-centres[name]:+.3g} against the function's "
                    "mean over the training rows; fill the value, or train on rows without it too",
                    DataWarning,
                    stacklevel=4,
                )

    def _unseen_in(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term."""
        counts = np.zeros(len(self.terms_), dtype=np.intp)
        if any(term.cells.has_levels for term in self.terms_):
            for position, inputs in enumerate(self._inputs(rows.columns)):
                cells = self.terms_[position].cells
                if cells.has_levels:
                    known = cells.is_known(inputs) | cells.is_missing(inputs)
                    counts[position] = np.count_nonzero(~known)
        return counts

    def _report_unseen(self, unseen: NDArray[np.intp], n_rows: int) -> None:
        """Warn of levels that no training row had."""
        for term, count in zip(self.terms_, unseen, strict=True):
            if count:
                warnings.warn(
                    f"term {term.name!r}: {count} of {n_rows} rows to predict have a level that no "
                    "training row had; its effect is that of an unknown level, 0 with the standard "
                    f"deviation {term.kernel.std:.3g} of the levels",
                    DataWarning,
                    stacklevel=4,
                )

    def _rows_of(
        self, X: Any, extra: Mapping[str, Any] | None = None
    ) -> Iterator[Callable[[], Rows]]:
        check_is_fitted(self)
        return matching_source(
            X,
            self._columns,
            self.used_columns_,
            hasattr(self, "feature_names_in_"),
            type(self).__name__,
            self.missing,
            extra=extra,
            missing_values=getattr(self, "missing_values", ()),  # pursuit has none
            kinds=self._kinds,
        ).chunks()

    def _evaluate_rows(
        self, rows: Rows, finish: Finish, n_columns: int, with_variance: bool
    ) -> Floats:
        out = np.empty((n_columns, len(rows)))

        def block(part: slice) -> None:
            some = rows.part(part)
            mean, variance = self._moments(some, with_variance)
            for column, values in zip(out, finish(some, mean, variance), strict=True):
                column[part] = values

        self._by_blocks(block, len(rows), with_variance)
        return out.T

    def components(self, X: Any) -> xr.Dataset:
        """Evaluate every term, minus its weighted mean over the training rows.

        Parameters
        ----------
        X : table
            As for ``predict``.

        Returns
        -------
        xarray.Dataset
            ``mean`` and ``std`` with dims (row, term), and ``intercept``: a prediction is the
            intercept plus the sum of ``mean`` over the terms. ``std`` is that of the centred
            component, with all other terms and the constant unknown too.
        """
        rows = Rows.join([load() for load in self._rows_of(X)])
        self._report_gaps(_gaps_of(rows), len(rows))
        self._report_unseen(self._unseen_in(rows), len(rows))
        shape = (len(rows), len(self.terms_))
        mean, std = np.empty(shape), np.empty(shape)

        def block(part: slice) -> None:
            mean[part], std[part] = self._component_moments(rows.part(part))

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

    def _by_blocks(self, block: Callable[[slice], None], n_rows: int, with_std: bool) -> None:
        self._prepare(with_std)
        tasks = [partial(block, part) for part in _blocks(n_rows)]
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
        found = self._joint_covariance(X)
        if include_noise:
            found += np.eye(len(found)) * self.noise_variance_
        return found

    def _joint_covariance(self, X: Any) -> Floats:
        """Covariance of f at chosen rows; to be called by a public method."""
        pieces = list(self._pieces_of(X))
        rows = self._inputs_of(pieces)
        posterior = self._posterior
        memory.require(
            f"the covariance of {len(rows)} rows",
            8.0 * len(rows) * (25 * posterior.system.layout.size + 6 * len(rows)),
            "pass fewer rows",
        )
        found, converged = np.zeros((len(rows), len(rows))), True
        with one_blas_thread():
            if self.terms_:
                variance = posterior.given_constant(rows.columns, len(rows))
                smallest = variance[variance > 0].min(initial=np.inf)
                largest = max(term.kernel.std**2 for term in self.terms_)
                found, converged = joint_covariance(
                    posterior.system,
                    rows.columns,
                    tol=max(math.sqrt(1e-4 * min(smallest, largest)), _FINEST),
                    max_iter=MAX_ITER["multigrid"],
                )
            deviations = [self._all_deviations(piece) for piece in pieces]
            known = [each for each in deviations if each is not None]
            if known:
                joined = np.concatenate(known)
                found += joined @ joined.T
        self._warn_solves("covariance", converged)
        return found

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
        random = generator(self.random_state if random_state is None else random_state)
        drawn = self._joint_sample(X, n_samples, random)
        if include_noise:
            drawn += math.sqrt(self.noise_variance_) * random.standard_normal(drawn.shape)
        return drawn

    def sample_components(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
    ) -> xr.DataArray:
        """Draw every term from the joint posterior, minus its weighted mean over the training rows.

        Exactly, as ``sample`` draws their sum: functionals of single terms (differences of levels,
        where a curve has its maximum, bands that hold for a whole curve) are read off the draws.

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
            On the scale of the transform or the link, if there is one. The means that are taken off
            are those of each draw.

        Raises
        ------
        MemoryLimitError
            If so many draws would not fit.
        """
        random = generator(self.random_state if random_state is None else random_state)
        require_count("n_samples", n_samples)
        rows = self._inputs_of(list(self._pieces_of(X)))
        out = self._component_draws(rows.columns, len(rows), n_samples, random)
        index = X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(rows))
        names = [term.name for term in self.terms_]
        return xr.DataArray(
            out, {"row": np.asarray(index), "term": names}, ("sample", "row", "term")
        )

    def _component_draws(
        self, columns: list[Floats], n_rows: int, n_samples: int, random: np.random.Generator
    ) -> Floats:
        """Draw the centred terms, each at inputs of its own, (n_samples, n_rows, n_terms).

        ``columns`` are n_rows inputs of each term; a missing one gives a draw minus its mean alone.
        """
        system, posterior = self._posterior.system, self._posterior
        n_terms = len(self.terms_)
        memory.require(
            f"{n_samples} samples of {n_terms} terms at {n_rows} rows",
            8.0 * (2 * n_samples * (n_rows + system.layout.size) * n_terms)
            + together_of(system) * vector_bytes(system),
            "ask for fewer samples or rows",
        )
        # The cells come along: the mean over the training rows is that of a draw there.
        joined = [
            np.concatenate([inputs, term.cells.points])
            for inputs, term in zip(columns, self.terms_, strict=True)
        ]
        longest = max((len(own) for own in joined), default=0)
        padded = [_padded(own, longest) for own in joined]
        drawn, converged = np.zeros((0, n_samples, longest)), True
        normal = np.random.default_rng(random.integers(2**63)).standard_normal(n_samples)
        with one_blas_thread():
            if n_terms:
                drawn, converged = joint_samples(
                    system,
                    system.information * self._information_scale,
                    padded,
                    n_samples,
                    random,
                    tol=0.1 * self.tol,
                    max_iter=MAX_ITER["multigrid"],
                    by_term=True,
                )
        self._warn_solves("sample", converged)
        out = np.zeros((n_samples, n_rows, n_terms))
        for d, term in enumerate(self.terms_):
            at_cells = drawn[d][:, n_rows : len(joined[d])]
            share = system.equations.share(d)
            out[:, :, d] = drawn[d][:, :n_rows] - (at_cells @ share)[:, None]
            constant = posterior.constant
            if constant is not None:  # the term answers to the constant, which is unknown
                seen = ~term.cells.is_missing(columns[d])
                moved = np.zeros(n_rows)
                moved[seen] = constant.centred_deviation(d, columns[d][seen])
                out[:, :, d] -= np.outer(normal, moved)
        return out

    def _joint_sample(self, X: Any, n_samples: int, random: np.random.Generator) -> Floats:
        """Draw f at the rows of a table; to be called by a public method."""
        require_count("n_samples", n_samples)
        pieces = list(self._pieces_of(X))
        rows = self._inputs_of(pieces)
        level = self.intercept_ - sum(term.centre for term in self.terms_)
        system = self._posterior.system
        memory.require(
            f"{n_samples} samples at {len(rows)} rows",
            8.0 * (3 * n_samples + len(self.terms_)) * len(rows)
            + together_of(system) * vector_bytes(system),
            "ask for fewer samples or rows",
        )
        drawn, converged = np.zeros((n_samples, len(rows))), True
        with one_blas_thread():
            deviated = self._deviated(pieces, n_samples, random)
            if self.terms_:
                drawn, converged = joint_samples(
                    system,
                    system.information * self._information_scale,
                    rows.columns,
                    n_samples,
                    random,
                    tol=0.1 * self.tol,
                    max_iter=MAX_ITER["multigrid"],
                )
        if deviated is not None:
            drawn += deviated
        self._warn_solves("sample", converged)
        return level + drawn

    def _pieces_of(self, X: Any) -> Iterator[Rows]:
        """Rows of a table in blocks as those of ``predict``."""
        for load in self._rows_of(X):
            rows = load()
            yield from map(rows.part, _blocks(len(rows)) or [slice(0, 0)])

    def _inputs_of(self, pieces: list[Rows]) -> Rows:
        """Inputs of the terms at all rows together, made block by block as in ``predict``."""
        return Rows.join([replace(piece, columns=self._inputs(piece.columns)) for piece in pieces])

    def _all_deviations(self, rows: Rows) -> Floats | None:
        """What f may deviate by beyond the terms' posterior given the constant, (n, k)."""
        known = []
        constant = self._posterior.constant
        if constant is not None:
            deviation = constant.deviation(self._inputs(rows.columns), len(rows))
            known.append(deviation[:, None])
        deviations = self._deviations(rows.columns)
        if deviations is not None:
            known.append(deviations)
        return np.concatenate(known, axis=1) if known else None

    def _deviated(
        self, pieces: list[Rows], n_samples: int, random: np.random.Generator
    ) -> Floats | None:
        """Draw ``_all_deviations`` at all rows, (n_samples, n_rows)."""
        drawn: list[Floats] = []
        normal: Floats | None = None
        for piece in pieces:
            deviations = self._all_deviations(piece)
            if deviations is None:
                return None
            if normal is None:  # of a generator of its own: a draw does not depend on their number
                own = np.random.default_rng(random.integers(2**63))
                normal = own.standard_normal((n_samples, deviations.shape[1]))
            # Not by BLAS, which would round by the number of samples.
            drawn.append(np.einsum("sk,nk->sn", normal, deviations))
        return np.concatenate(drawn, axis=1)

    def _warn_solves(self, what: str, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"the solves of {what} stopped short of their tolerance, as float64 cannot do "
                "better beside so little noise: take the result as approximate",
                ConvergenceWarning,
                stacklevel=4,
            )

    # ------------------------------------------------------------------ telling and keeping

    def summary(self) -> str:
        """Describe the fit: a line a term, then noise, likelihood, solver and approximations."""
        check_is_fitted(self)
        return self._summary().text()

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        return persistence.described(self)

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        """Undo ``save``; see ``persistence.restore``."""
        model = cls(**persistence.parameters(settings))
        persistence.restore(model, settings, tree)
        kinds = persistence.kinds(settings)
        model._name_columns(tuple(settings["columns"]), settings["named"], kinds)
        terms = persistence.terms(settings, tree)
        equations = persistence.equations(settings, tree, terms)
        model._set_terms(terms, equations, persistence.constant(settings))
        return model


def _padded(inputs: Floats, length: int) -> Floats:
    """Append missing inputs."""
    gaps = np.full((length - len(inputs), *inputs.shape[1:]), np.nan)
    return np.concatenate([inputs, gaps])


def _gaps_of(rows: Rows) -> NDArray[np.intp]:
    """Rows in which each column is missing."""
    return np.array([np.count_nonzero(np.isnan(column)) for column in rows.columns], dtype=np.intp)


def _blocks(n_rows: int) -> list[slice]:
    return [slice(start, min(start + _ROW_BLOCK, n_rows)) for start in range(0, n_rows, _ROW_BLOCK)]


def _mean(term: Term, inputs: Floats) -> Floats:
    """Centred mean of a term; where its input is missing the function itself is 0."""
    seen = ~term.cells.is_missing(inputs)
    if seen.all():
        return term.mean(inputs) - term.centre
    out = np.full(len(inputs), -term.centre)
    out[seen] += term.mean(inputs[seen])
    return out
