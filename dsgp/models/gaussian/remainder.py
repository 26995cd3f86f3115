"""Fits of a remainder and terms as one posterior, alternating with learning hyperparameters."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive import AdditiveSystem
from dsgp.additive.survey import of_positive_weight
from dsgp.compute import one_blas_thread, over_chunks
from dsgp.errors import ConvergenceWarning, DataError, ParameterError
from dsgp.models.additive import AdditiveModel
from dsgp.models.clock import Clock
from dsgp.models.facts import FitFacts
from dsgp.models.remainder import (
    FittedRemainder,
    RemainderInputs,
    RemainderModel,
    example_places,
)
from dsgp.progress import progress
from dsgp.remainder import (
    LEAST_GAIN,
    NEIGHBOURS,
    Learned,
    Metric,
    NeighbourFunction,
    Precision,
    Problem,
    Remainder,
    RowTerm,
    learn,
    solve,
)
from dsgp.rows.sources import Rows, Source
from dsgp.rows.usable import warn_of_constant
from dsgp.terms import BoundTerm, Floats

# Number of neighbours in the factor by which terms and remainder have a joint posterior.
_FACTOR_NEIGHBOURS = 30
# Number of times that hyperparameters of the remainder are learned, from the residuals of the
# terms.
_ROUNDS = 2
# Change of these residuals, as a share of their size, at which that ends.
_SETTLED = 0.02
# Number of rows over which the mean and the share of variance of the remainder are computed.
_MEASURED = 5000
_SEED = 0
# Error of the nearest-neighbour approximation from which there is a warning.
_NEIGHBOUR_LIMIT = 0.5


@dataclass(frozen=True)
class RemainderOutcome:
    """The result of a fit with a remainder.

    Attributes
    ----------
    model : RemainderModel or AdditiveModel or ProjectedModel
        The terms alone if there is nothing for a remainder to explain.
    noise_variance : float
        Of a row of weight 1.
    notes : list of str
    converged : bool
    neighbour_error : float
        As for ``NeighbourFunction.checked``.
    """

    model: Any
    noise_variance: float
    notes: list[str]
    converged: bool
    neighbour_error: float

    def added_to(self, facts: FitFacts) -> FitFacts:
        """Return the facts of the fit of the terms with those of the remainder."""
        converged = facts.converged and self.converged
        return replace(
            facts.with_notes(self.notes), noise_variance=self.noise_variance, converged=converged
        )

    def warn(self) -> None:
        """Warn of what did not converge; called by ``fit``."""
        if not self.converged:
            warnings.warn(
                "the hyperparameters of the remainder had not settled, or terms and remainder had "
                "not converged as one posterior: see learner_notes_",
                ConvergenceWarning,
                stacklevel=4,
            )
        if self.neighbour_error > _NEIGHBOUR_LIMIT:
            warnings.warn(
                f"twice as many neighbours change predictions by {self.neighbour_error:.2g} of "
                "their standard deviations: use more, remainder=Remainder(n_neighbours=...)",
                ConvergenceWarning,
                stacklevel=4,
            )


class _NoNumbers(DataError):
    """There are no distances for a remainder."""


def with_remainder(
    structure: Any,
    noise_variance: float,
    source: Source,
    terms: list[BoundTerm],
    asked: Remainder,
    clock: Clock,
    *,
    fixed_noise: bool,
    verbose: bool,
) -> RemainderOutcome:
    """Fit a remainder beside fitted terms.

    Parameters
    ----------
    structure : AdditiveModel or ProjectedModel
        The terms by themselves, in the user's units.
    noise_variance : float
        Noise variance of that fit, in which the remainder counts as noise.
    source : Source
    terms : list of BoundTerm
        Columns that one of them treats as levels are levels here.
    asked : Remainder
    clock : Clock
    fixed_noise : bool
        Whether the noise variance is known.
    verbose : bool

    Raises
    ------
    DataError, ParameterError, MemoryLimitError
        As ``AdditiveGPRegressor.fit`` does.
    """
    clock.stage("read rows of the remainder")
    levels = _levels_of(source, terms)
    try:
        columns = _columns_of(source, asked, levels)
        rows = _read(source, len(columns))
        fit = _Fit.of(source, rows, columns, levels)
    except _NoNumbers:
        if not (asked.if_it_gains and structure.terms):
            raise
        note = "remainder: left out, because no column of numbers varies"
        return RemainderOutcome(structure, noise_variance, [note], True, 0.0)
    read = {name for term in terms for name in term.columns}  # the terms have warned of these
    kept = fit.standardise.columns
    warn_of_constant([name for name in columns if name not in kept and name not in read])
    with one_blas_thread():
        return fit.run(structure, noise_variance, asked, clock, fixed_noise, verbose)


def _levels_of(source: Source, terms: list[BoundTerm]) -> set[str]:
    """Columns that hold levels, by their types or because a term treats them so."""
    by_type = {name for name, kind in source.kinds.items() if kind.labels}
    by_term = {one.column for term in terms for one in term.level_inputs}
    return (by_type | by_term) & set(source.names)


def _columns_of(source: Source, asked: Remainder, levels: set[str]) -> list[str]:
    """Columns of the remainder, numbers first."""
    names = list(source.names) if asked.columns is None else list(asked.columns)
    for name in names:
        if name not in source.names:
            raise ParameterError(
                f"remainder names the column {name!r}, and the table has {list(source.names)}; "
                "True (--remainder all) takes all of them"
            )
    numbers = [name for name in names if name not in levels]
    if not numbers:
        raise _NoNumbers(
            f"a remainder of {names} has levels only, and levels have no distances: use "
            "interactions of them, or add a column of numbers"
        )
    return [*numbers, *(name for name in names if name in levels)]


def _read(source: Source, n_columns: int) -> Rows:
    """Read all rows into memory; raise an error if they and the fit would not fit into it."""
    per_row = 8.0 * (len(source.names) + 6 * n_columns + 6 * _FACTOR_NEIGHBOURS + 2 * NEIGHBOURS)
    remedy = "fit fewer rows, or leave the remainder out"

    def require(n_rows: int) -> None:
        what = f"a remainder of {n_rows} rows or more, all of which are kept in memory,"
        memory.require(what, per_row * n_rows, remedy)

    if source.n_rows is not None:
        require(source.n_rows)
    parts, n_rows = [], 0
    for part in over_chunks(source.chunks(), of_positive_weight, "read"):
        if len(part):
            parts.append(part)
            n_rows += len(part)
        if source.n_rows is None:
            require(n_rows)
    if n_rows < 2:
        raise DataError("a remainder needs 2 rows of positive weight at least")
    return Rows.join(parts)


def _levels_in(values: Floats) -> Floats:
    """Return the different levels of a column, without the missing one."""
    return np.unique(values[~np.isnan(values)])


@dataclass(frozen=True)
class _Fit:
    """Rows in memory, and the columns of the remainder.

    Weights are divided by ``weight_scale``, their mean: noise variances are those of a row of mean
    weight, so that a factor common to all weights changes nothing.
    """

    rows: Rows
    by_name: dict[str, Floats]
    standardise: RemainderInputs
    inputs: Floats
    relative_noise: Floats
    weight_scale: float

    @classmethod
    def of(cls, source: Source, rows: Rows, columns: list[str], levels: set[str]) -> _Fit:
        by_name = dict(zip(source.names, rows.columns, strict=True))
        gaps = {
            name: int(np.count_nonzero(np.isnan(by_name[name])))
            for name in columns
            if name not in levels and np.isnan(by_name[name]).any()
        }
        if gaps:
            listed = ", ".join(f"{name!r} ({count} rows)" for name, count in gaps.items())
            raise DataError(
                f"the remainder needs complete columns of numbers, and values are missing in "
                f"{listed}: fill them, or name the columns that are complete (remainder=[...])"
            )
        kept = [name for name in columns if len(np.unique(by_name[name])) > 1]
        numbers = [name for name in kept if name not in levels]
        if not numbers:
            raise _NoNumbers(
                "no column of numbers varies, and a remainder needs one: leave it out, "
                "or add a column"
            )
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        offsets, spreads = np.zeros(len(numbers)), np.ones(len(numbers))
        for d, name in enumerate(numbers):
            offsets[d] = np.average(by_name[name], weights=weight)
            squares = (by_name[name] - offsets[d]) ** 2
            spreads[d] = math.sqrt(np.average(squares, weights=weight))
        known = tuple(_levels_in(by_name[name]) for name in kept[len(numbers) :])
        standardise = RemainderInputs(tuple(kept), offsets, spreads, known)
        scale = float(np.mean(weight))
        return cls(rows, by_name, standardise, standardise(by_name), scale / weight, scale)

    @property
    def target(self) -> Floats:
        assert self.rows.y is not None
        return self.rows.y

    def run(
        self,
        structure: AdditiveModel,
        noise_variance: float,
        asked: Remainder,
        clock: Clock,
        fixed_noise: bool,
        verbose: bool,
    ) -> RemainderOutcome:
        """Learn, and solve for terms and remainder, until the residuals of the terms settle."""
        n, d = self.inputs.shape
        noise_variance /= self.weight_scale
        row_terms = [
            RowTerm.of(term.cells, term.kernel, inputs, term.bound.level_axes)
            for term, inputs in zip(structure.terms, self._inputs_of(structure), strict=True)
        ]
        left = alone = self._left_by(structure)
        sample = np.sort(
            np.random.default_rng(_SEED).choice(n, min(asked.n_sampled, n), replace=False)
        )
        metric: Metric | None = None
        solved = learned = None
        for _ in range(_ROUNDS):
            clock.stage("learn the remainder")
            may_be_left_out = asked.if_it_gains and bool(structure.terms) and metric is None
            scale = math.sqrt(float(np.average(left**2, weights=1 / self.relative_noise))) or 1.0
            start = self._start(metric, noise_variance / scale**2, scale, d, fixed_noise)
            problem = Problem(
                self.inputs, left / scale, self.relative_noise, sample, min(NEIGHBOURS, n - 1)
            )
            with progress("learning the remainder", enabled=verbose) as bar:
                learned = learn(
                    problem,
                    start,
                    fixed_noise=fixed_noise,
                    smoothness=asked.twice_smoothness if metric is None else metric.smoothness,
                    or_noise=may_be_left_out,
                    watch=partial(_shown, bar),
                )
            if may_be_left_out and learned.is_noise:
                return self._without(structure, noise_variance, learned)
            metric = learned.metric.in_units(scale)
            if not fixed_noise:
                # The terms fit the targets better than they will fit new ones.
                left_over = n / max(n - sum(term.effective_dof for term in structure.terms), 1.0)
                metric = replace(metric, noise_variance=metric.noise_variance * left_over)
            clock.stage("solve for terms and remainder")
            precision = Precision.of(
                self.inputs, metric, self.relative_noise, _FACTOR_NEIGHBOURS, _SEED
            )
            solved = solve(
                precision,
                row_terms,
                self.target,
                start=None if solved is None else solved.solutions,
            )
            structure = _moved(structure, row_terms, solved.alpha, solved.constant)
            before, left = left, self._left_by(structure)
            if np.sqrt(np.mean((left - before) ** 2)) <= _SETTLED * np.sqrt(np.mean(left**2)):
                break
        assert metric is not None
        assert learned is not None
        assert solved is not None
        clock.stage("keep")
        function = NeighbourFunction(
            self.inputs, left, self.relative_noise, metric, min(asked.n_neighbours, n)
        )
        return self._outcome(structure, function, alone, noise_variance, learned.converged, solved)

    def _without(
        self, structure: AdditiveModel, noise_variance: float, learned: Learned
    ) -> RemainderOutcome:
        """Keep the terms as they are."""
        note = (
            f"remainder: left out, because it gains {max(learned.gain, 0.0):.2g} nats of log "
            f"likelihood over noise, less than {LEAST_GAIN:g}"
        )
        return RemainderOutcome(structure, noise_variance * self.weight_scale, [note], True, 0.0)

    def _start(
        self,
        metric: Metric | None,
        noise: float,
        scale: float,
        n_columns: int,
        fixed_noise: bool,
    ) -> Metric:
        """Initial hyperparameters, in units of the target's scale."""
        if metric is not None:
            return metric.in_units(1 / scale)
        wide = 1.5 * math.sqrt(n_columns)
        return Metric(
            smoothness=3,
            variance=1.0,
            lengthscales=np.full(n_columns, wide),
            noise_variance=noise if fixed_noise else min(0.2, noise),
            n_levels=self.standardise.n_levels,
        )

    def _inputs_of(self, structure: AdditiveModel) -> list[Floats]:
        """Inputs of the terms at all rows."""
        return structure.inputs([self.by_name[name] for name in structure.used_columns])

    def _left_by(self, structure: AdditiveModel) -> Floats:
        """Residuals of the terms, (n,)."""
        rows = replace(
            self.rows,
            columns=[self.by_name[name] for name in structure.used_columns],
            n_rows=len(self.rows),
        )
        return self.target - structure.moments(rows, False)[0]

    def _outcome(
        self,
        structure: AdditiveModel,
        function: NeighbourFunction,
        alone: Floats,
        noise_before: float,
        learned: bool,
        solved: Any,
    ) -> RemainderOutcome:
        """Measure the function, and compare predictions of rows left out with those without it."""
        random = np.random.default_rng(_SEED)
        n = len(self.target)
        some = np.sort(random.choice(n, min(_MEASURED, n), replace=False))
        values = function.moments(self.inputs[some])[0]
        weight = 1.0 / self.relative_noise[some]
        centre = float(np.average(values, weights=weight))
        share = float(np.average((values - centre) ** 2, weights=weight))
        function = replace(function, centre=centre, share=share)
        rows, mean, variance, error = function.checked(random)
        noise = function.metric.noise_variance
        with_it = _log_density(
            function.target[rows] - mean, variance + noise * self.relative_noise[rows]
        )
        without = _log_density(alone[rows], noise_before * self.relative_noise[rows])
        gained = with_it - without
        spread = float(np.std(gained)) / math.sqrt(len(gained))
        notes = [
            f"remainder: Matérn {function.metric.smoothness}/2 of {self.inputs.shape[1]} columns, "
            f"{function.n_neighbours} neighbours; twice as many change a prediction by "
            f"{error:.2g} of its standard deviation",
            "remainder: leave-one-out log density per row, with the remainder minus without: "
            f"{float(np.mean(gained)):.3g} ± {spread:.2g} ({len(rows)} rows)",
            f"remainder: {solved.iterations} iterations of conjugate gradients with the terms",
        ]
        some = example_places(n)
        examples = [self.by_name[name][some] for name in structure.used_columns]
        remainder = FittedRemainder(
            self.standardise,
            function,
            np.stack(examples, axis=1) if examples else np.zeros((len(some), 0)),
        )
        if float(np.mean(gained)) < spread:
            notes.append(
                "remainder: it does not improve leave-one-out predictions by more than the "
                "standard error: the terms alone (remainder=False) predict as well"
            )
        return RemainderOutcome(
            RemainderModel(structure, remainder),
            noise * self.weight_scale,
            notes,
            learned and solved.converged,
            error,
        )


def _shown(bar: Any, value: float) -> None:
    bar.update(value=value)


def _log_density(errors: Floats, variance: Floats) -> Floats:
    return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + errors**2 / variance))


def _moved(
    structure: AdditiveModel, row_terms: list[RowTerm], alpha: Floats, constant: float
) -> AdditiveModel:
    """Return the terms with their means in the joint posterior, from which draws are made too."""
    equations = structure.equations
    terms, duals, means = [], [], []
    for d, (term, row_term) in enumerate(zip(structure.terms, row_terms, strict=True)):
        dual = row_term.dual(alpha)
        mean = term.cells.multiply(term.kernel, dual)
        centre, variance = equations.moments(d, mean)
        terms.append(replace(term, dual=dual, centre=centre, explained_variance=variance))
        duals.append(dual)
        means.append(mean)
    if terms:
        # The targets for which these means are the posterior mean given white noise.
        system = AdditiveSystem(
            equations,
            [term.kernel for term in terms],
            structure.row_variance,
            structure.least_precision,
        )
        mean = np.concatenate(means)
        information = np.concatenate(duals) + system.multiply(mean[None])[0]
        information *= structure.row_variance / structure.information_scale
        equations = replace(equations, information=information)
    return replace(
        structure,
        terms=terms,
        equations=equations,
        intercept=constant + sum(term.centre for term in terms),
    )
