"""How generalized additive models are fitted: hyperparameters, then the mode by local scoring."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.additive import (
    SOLVERS,
    AdditiveSystem,
    Pair,
    Solution,
    warn_unless_converged,
)
from dsgp.additive.bins import BinError
from dsgp.compute import one_blas_thread
from dsgp.errors import ConvergenceWarning, DataError, DataWarning
from dsgp.kernels import Kernel
from dsgp.laplace.binned import BINS, BinnedRows, counts_of
from dsgp.laplace.learner import Learned, learn
from dsgp.laplace.mode import Mode, find_mode
from dsgp.laplace.rows import ResponseRows
from dsgp.laplace.working import Climb, State, climb
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.nodes import has_too_many_levels
from dsgp.learning.search import Search, search_for
from dsgp.likelihoods import Likelihood, by_name
from dsgp.models.cautions import warn_of_bins, warn_of_structure
from dsgp.models.checks import (
    iterations_of,
    require_bins,
    require_choice,
    require_count,
    require_number,
    require_positive,
)
from dsgp.models.clock import Clock, Reading
from dsgp.models.gaussian.fit import E_STEP_TOL
from dsgp.models.gaussian.structure import (
    ROUNDS,
    lengthscales_given,
    shortest_of,
)
from dsgp.models.laplace.judging import (
    complexity_of,
    largest_variance,
    left_structure,
    not_resolved,
    unit_of,
)
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses, prepare_responses
from dsgp.progress import progress
from dsgp.terms import BoundTerm, Floats

# Precision of the constant's prior, around the level of half an event more (or less), where all
# targets are at the edge of their support (no event at all) and a flat one would have no mode, or
# all rows together count less than one.
EDGE_PRECISION = 0.5
# Sum of the weights, as a share of the number of rows, below which that is warned of.
_FEW_COUNTED = 0.1
# Sum of the weights that cannot be meant, and that the system would not be solved with.
_MOST_COUNTED = 1e12
LEARNERS = ("marginal", "independent", None)
# Lengthscales, in widths of the column, that the nodes of the learner do not lose.
_NODES_KEEP = 0.1
# Bias of the bins, in posterior standard deviations, that is worth being taken off.
_BIAS = 0.01
# Of an identity link that nobody has said anything of, in standard deviations of the targets.
_START_SCALE = 0.5


@dataclass(frozen=True)
class LaplaceFit:
    """The steps of a fit, and the parameters that all generalized models have for them.

    Attributes
    ----------
    intercept : float or None
        The constant part of f; None finds it.
    level : float or None
        Where a constant that is found begins; None begins at that of highest likelihood.
    solver, learner, bins, tol, newton_max_iter, learner_tol, learner_max_iter, verbose
        As of ``GeneralizedAdditiveGP``.
    max_iter : int
        Iterations of the solver in a Newton step at most.
    """

    intercept: float | None
    solver: str
    learner: str | None
    bins: str | int | None
    tol: float
    max_iter: int
    newton_max_iter: int
    learner_tol: float
    learner_max_iter: int
    random_state: Any
    verbose: bool
    level: float | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        max_iter = iterations_of(parameters["solver"], parameters["max_iter"])
        require_choice("learner", parameters["learner"], LEARNERS)
        require_bins(parameters["bins"])
        require_positive("tol", parameters["tol"])
        require_positive("learner_tol", parameters["learner_tol"])
        require_count("learner_max_iter", parameters["learner_max_iter"])
        require_count("newton_max_iter", parameters["newton_max_iter"])
        if parameters["intercept"] is not None:
            require_number("intercept", parameters["intercept"])
        return cls(
            intercept=None if parameters["intercept"] is None else float(parameters["intercept"]),
            solver=parameters["solver"],
            learner=parameters["learner"],
            bins=parameters["bins"],
            tol=parameters["tol"],
            max_iter=max_iter,
            newton_max_iter=int(parameters["newton_max_iter"]),
            learner_tol=parameters["learner_tol"],
            learner_max_iter=int(parameters["learner_max_iter"]),
            random_state=parameters["random_state"],
            verbose=bool(parameters["verbose"]),
        )

    def prepare(
        self, source: Any, terms: list[BoundTerm], clock: Clock, n_functions: int = 1
    ) -> Responses:
        """Read the rows and make them ready for so many functions beside each other."""
        with progress("reading", source.n_rows, enabled=self.verbose) as bar:
            return prepare_responses(
                source, terms, self.bins, Reading(bar, clock), n_functions=n_functions
            )

    def __call__(
        self,
        responses: Responses,
        likelihood: Likelihood,
        clock: Clock,
        before: LaplaceOutcome | None = None,
    ) -> LaplaceOutcome:
        """Fit to rows made ready.

        Parameters
        ----------
        responses : Responses
            Kernels of their terms are complete where there is no learner.
        likelihood : Likelihood
            Its free parameters are starts; all that are missing are set from the targets.
        clock : Clock
        before : LaplaceOutcome, optional
            A fit of the same rows with other targets or offsets, to start from.

        Raises
        ------
        DataError
            If a target is none of the likelihood's, or there are too few rows to learn from.
        """
        rows = responses.rows
        if rows.total_weight > _MOST_COUNTED:
            raise DataError(
                f"sample_weight (with class_weight, if any) sums to {rows.total_weight:.3g}, more "
                "rows than float64 can tell from one another: a weight is how often a row counts; "
                "divide weights that are relative by their mean"
            )
        likelihood.check_target(
            rows.y, rows.trials if len(rows.trials) else None, f"the target {responses.target!r}"
        )
        likelihood = likelihood.completed(rows.y, rows.weight if len(rows.weight) else None)
        if self.learner is not None and rows.n_rows < 2:
            raise DataError(
                "cannot learn hyperparameters from 1 sample (n_samples = 1): at least 2 rows of "
                "positive weight are needed; or give the hyperparameters and learner=None"
            )
        with one_blas_thread():
            level, constant = self._constant(rows, likelihood)
            given = [term.kernel for term in responses.terms]
            used = given
            learned = None
            if self.learner is not None and has_too_many_levels(rows.table.cells):
                clock.stage("learn")
                outcome = self._learned_at_points(responses, likelihood, level, constant, before)
                return self.without_structure(outcome, clock)
            if self.learner is not None:
                clock.stage("learn")
                learned = self._learn(responses, likelihood, used, level, before)
                used, likelihood = learned.kernels, learned.likelihood
                if not constant:  # a prior of the constant is around where it began
                    level = learned.level
                if self.intercept is None:
                    likelihood, level = likelihood.absorbed(level)
            clock.stage("solve")
            start = None if before is None else before.mode.solution.mean
            if learned is not None:
                start = learned.functions(rows.table.cells)
            outcome = self._finish(responses, likelihood, used, level, constant, learned, start)
            if learned is None:
                return outcome
            outcome = self._from_start(outcome, given)
            if before is not None and before.learned is not None and before.learned.at_points:
                outcome = self._climbed(outcome, before.learned.kernels, before.mode.solution.mean)
            return self.without_structure(outcome, clock)

    def _constant(self, rows: ResponseRows, likelihood: Likelihood) -> tuple[float, float | None]:
        """Where the constant begins, and the precision of its prior; None if it is known."""
        if self.intercept is not None:
            return self.intercept, None
        # Cutpoints that are kept say where the level is.
        if self.level is None and not likelihood.has_level and self.learner is None:
            return 0.0, None
        level = rows.level(likelihood) if self.level is None else self.level
        flat = rows.total_weight >= 1.0 and rows.bound_level(likelihood)
        return level, 0.0 if flat else EDGE_PRECISION

    def _learn(
        self,
        responses: Responses,
        likelihood: Likelihood,
        kernels: list[Kernel],
        level: float,
        before: LaplaceOutcome | None,
    ) -> Learned:
        rows = responses.rows
        unit = unit_of(rows, likelihood)
        likelihood = self._scaled(rows, likelihood)
        largest = largest_variance(likelihood)
        order = min((kernel.order for kernel in kernels), default=4)
        binned = BinnedRows.of(rows, responses.spreads, BINS, order)
        searches = [
            search_for(kernel, cells, counts, len(kernels), unit, largest)
            for kernel, cells, counts in zip(
                kernels, binned.rows.table.cells, binned.counts, strict=True
            )
        ]
        if before is not None and before.learned is not None and not before.learned.at_points:
            searches = [
                replace(search, middle=kernel)
                for search, kernel in zip(searches, before.learned.kernels, strict=True)
            ]
        n_free = sum(len(search.names) for search in searches)
        n_free += len(likelihood.unconstrained())
        with progress("learning", enabled=self.verbose) as bar:
            try:
                return learn(
                    binned,
                    likelihood,
                    searches,
                    level,
                    constant=unit if self.intercept is None else 0.0,
                    alone=self.learner == "independent",
                    tol=self.learner_tol * max(n_free, 1),
                    max_iter=self.learner_max_iter,
                    random=np.random.default_rng(0),
                    unit=unit,
                    watch=lambda value: bar.update(value=value),
                )
            except LinAlgError as error:
                raise DataError(not_resolved(rows.table)) from error

    def _scaled(self, rows: ResponseRows, likelihood: Likelihood) -> Likelihood:
        """Begin the scale of real targets in their units, where nobody has said anything of it."""
        if likelihood.link_name != "identity" or likelihood != by_name(likelihood.name):
            return likelihood
        return likelihood.with_parameters(scale=_START_SCALE * math.sqrt(unit_of(rows, likelihood)))

    def _learned_at_points(
        self,
        responses: Responses,
        likelihood: Likelihood,
        level: float,
        constant: float | None,
        before: LaplaceOutcome | None,
    ) -> LaplaceOutcome:
        """Learn by working models on every point: levels are too many for nodes together."""
        rows = responses.rows
        likelihood = self._scaled(rows, likelihood)
        begun = [term.kernel for term in responses.terms]
        if before is not None and before.learned is not None:
            begun = before.learned.kernels
        kernels = [search.start for search in self._searches(responses, likelihood, begun)]
        start = None if before is None else before.mode.solution.mean
        mode = self._mode(responses, likelihood, kernels, constant, level, start, None)
        state = State(kernels, likelihood, mode, mode.objective - 0.5 * complexity_of(mode)[1])
        climbed = self._climb(responses, state, level, constant)
        best = climbed.best
        likelihood, level = best.likelihood, level if constant else best.mode.level
        if self.intercept is None:
            likelihood, level = likelihood.absorbed(level)
        learned = Learned(
            kernels=best.kernels,
            likelihood=likelihood,
            level=level,
            mode=None,
            trace=climbed.trace,
            evaluations=climbed.evaluations,
            passes=0,
            converged=climbed.converged,
            n_nodes=[],
            open_variance=[],
            resolved=True,
            at_points=True,
        )
        return self._finish(
            responses, likelihood, best.kernels, level, constant, learned, best.mode.solution.mean
        )

    def _finish(
        self,
        responses: Responses,
        likelihood: Likelihood,
        kernels: list[Kernel],
        level: float,
        constant: float | None,
        learned: Learned | None,
        start: Floats | None,
    ) -> LaplaceOutcome:
        spreads = responses.spreads
        find = partial(self._mode, responses, likelihood, kernels, constant)
        mode = find(level, start, None)
        bin_error = 0.0
        complexity, log_det, exact = complexity_of(mode)
        if spreads is not None and kernels and complexity.dof > 0:
            total = float(mode.system.weight.sum()) / len(kernels)
            std = math.sqrt(complexity.dof / max(total, np.finfo(float).tiny))
            error = BinError.of(mode.system, mode.solution.dual, spreads)
            if error.size(mode.system) > _BIAS * std:
                # A prior of the constant is around where it began.
                begin = level if constant else mode.level
                mode = find(begin, mode.solution.mean, error.bias)
                again = BinError.of(mode.system, mode.solution.dual, spreads)
                bias = replace(again, bias=again.bias - error.bias).size(mode.system)
                error = again
                complexity, log_det, exact = complexity_of(mode)
            else:
                bias = error.size(mode.system)
            bin_error = math.hypot(bias, error.rest) / std
        return LaplaceOutcome(
            responses=responses,
            likelihood=likelihood,
            mode=mode,
            complexity=complexity,
            log_likelihood=mode.objective - 0.5 * log_det,
            exact_determinant=exact,
            bin_error=bin_error,
            learned=learned,
        )

    def without_structure(self, outcome: LaplaceOutcome, clock: Clock) -> LaplaceOutcome:
        """Learn again from what explains structure in the residuals, while that is better."""
        outcome = replace(outcome, too_wide=outcome.responses.too_wide)
        for _ in range(ROUNDS):
            start = left_structure(outcome)
            if start is None:
                return outcome
            clock.stage("learn fine structure")
            better = self._climbed(outcome, start.kernels, start.mean)
            if better is outcome:
                return outcome
            outcome = better
        start = left_structure(outcome)
        names = outcome.responses.rows.table.names
        missed = () if start is None else tuple(names[term] for term in start.terms)
        return replace(outcome, unresolved=missed)

    def _from_start(self, outcome: LaplaceOutcome, kernels: list[Kernel]) -> LaplaceOutcome:
        """Learn again from the user's start if nodes cannot have kept it, if that is better."""
        given = [lengthscales_given(kernel) for kernel in kernels]
        if not any(given):
            return outcome
        searches = self._searches(outcome.responses, outcome.likelihood, kernels)
        start = [search.start for search in searches]
        if all(
            length > _NODES_KEEP * search.width
            for lengths, search in zip(given, searches, strict=True)
            for length in lengths
        ):
            return outcome
        return self._climbed(outcome, start, None)

    def _climbed(
        self, outcome: LaplaceOutcome, kernels: list[Kernel], mean: Floats | None
    ) -> LaplaceOutcome:
        """Return the better of an outcome and what working models give from other kernels."""
        responses, learned = outcome.responses, outcome.learned
        begin, constant = self._constant(responses.rows, outcome.likelihood)

        level = begin if constant else outcome.level
        mode = self._mode(responses, outcome.likelihood, kernels, constant, level, mean, None)
        value = mode.objective - 0.5 * complexity_of(mode)[1]
        state = State(kernels, outcome.likelihood, mode, value)
        climbed = self._climb(responses, state, begin, constant)
        best = climbed.best
        if best.value < outcome.log_likelihood + SCAN_GAIN:
            return outcome
        likelihood, level = best.likelihood, begin if constant else best.mode.level
        if self.intercept is None:
            likelihood, level = likelihood.absorbed(level)
        if learned is not None:
            learned = replace(
                learned,
                kernels=best.kernels,
                likelihood=likelihood,
                level=level,
                trace=climbed.trace,
                evaluations=learned.evaluations + climbed.evaluations,
                converged=climbed.converged,
                resolved=True,
                at_points=True,
            )
        better = self._finish(
            responses, likelihood, best.kernels, level, constant, learned, best.mode.solution.mean
        )
        return replace(better, too_wide=outcome.too_wide)

    def _climb(
        self, responses: Responses, state: State, level: float, constant: float | None
    ) -> Climb:
        """Alternate modes and EM on their working models from a state."""

        def find(state: State) -> State:
            mode = self._mode(
                responses,
                state.likelihood,
                state.kernels,
                constant,
                level if constant else state.mode.level,
                state.mode.solution.mean,
                None,
            )
            return replace(state, mode=mode, value=mode.objective - 0.5 * complexity_of(mode)[1])

        with progress("learning", enabled=self.verbose) as bar:
            return climb(
                responses.rows,
                state,
                find,
                self._searches(responses, state.likelihood, state.kernels, fine=True),
                solve=self._solve_roughly,
                tol=self.learner_tol,
                max_iter=self.learner_max_iter,
                unit=unit_of(responses.rows, state.likelihood),
                watch=lambda value: bar.update(value=value),
            )

    def _searches(
        self,
        responses: Responses,
        likelihood: Likelihood,
        kernels: list[Kernel],
        *,
        fine: bool = False,
    ) -> list[Search]:
        """Searches on every point; ``fine`` down to the distance of neighbouring points."""
        rows = responses.rows
        unit = unit_of(rows, likelihood)
        return [
            search_for(
                kernel,
                cells,
                counts,
                len(kernels),
                unit,
                largest_variance(likelihood),
                shortest_of(cells, counts) if fine else None,
            )
            for kernel, cells, counts in zip(
                kernels, rows.table.cells, counts_of(rows), strict=True
            )
        ]

    def _solve_roughly(self, system: AdditiveSystem, start: Pair | None) -> Solution:
        return SOLVERS[self.solver](
            system, tol=max(self.tol, E_STEP_TOL), max_iter=self.max_iter, start=start
        )

    def _mode(
        self,
        responses: Responses,
        likelihood: Likelihood,
        kernels: list[Kernel],
        constant: float | None,
        level: float,
        start: Floats | None,
        shift: Floats | None,
    ) -> Mode:
        with progress("solving", enabled=self.verbose) as bar:
            return find_mode(
                responses.rows,
                likelihood,
                level,
                kernels,
                spreads=responses.spreads,
                shift=shift,
                start=start,
                constant=constant,
                with_pairs=responses.with_pairs,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                newton_max_iter=self.newton_max_iter,
                watch=lambda value: bar.update(value=value),
            )

    def warn(self, outcome: LaplaceOutcome, stacklevel: int = 3) -> None:
        """Warn of what did not converge, and of bins that are too wide.

        ``stacklevel`` leads to who called ``fit``.
        """
        warn_unless_converged(
            outcome.mode.solution, self.solver, self.tol, self.max_iter, stacklevel + 1
        )
        if not outcome.mode.converged:
            warnings.warn(
                f"Newton's iteration stopped after {len(outcome.mode.trace)} steps, the last of "
                f"which still moved f by {outcome.mode.step:.2g} posterior standard deviations "
                f"(tol={self.tol:g}); raise newton_max_iter or tol",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        rows = outcome.responses.rows
        if rows.total_weight < _FEW_COUNTED * rows.n_rows:
            warnings.warn(
                f"sample_weight (with class_weight, if any) sums to {rows.total_weight:.3g} over "
                f"{rows.n_rows} rows: a weight is how often a row counts, so that this is a fit to "
                f"about {rows.total_weight:.3g} rows, with uncertainties to match; divide weights "
                "that are relative by their mean",
                DataWarning,
                stacklevel=stacklevel,
            )
        learned = outcome.learned
        if learned is not None and not learned.converged:
            warnings.warn(
                f"learner={self.learner!r} stopped after {self.learner_max_iter} modes, short of "
                f"learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        warn_of_structure(outcome.too_wide, outcome.unresolved, self.bins, stacklevel + 1)
        warn_of_bins(outcome.bin_error, stacklevel + 1)
