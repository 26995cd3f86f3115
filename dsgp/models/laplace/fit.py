"""How generalized additive models are fitted: hyperparameters, then the mode by local scoring."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.additive import (
    warn_unless_converged,
)
from dsgp.compute import one_blas_thread
from dsgp.errors import ConvergenceWarning, DataError, DataWarning
from dsgp.kernels import Kernel
from dsgp.laplace.binned import BINS, BinnedRows
from dsgp.laplace.learner import Learned, learn
from dsgp.laplace.working import State
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.nodes import has_too_many_levels
from dsgp.learning.search import search_for
from dsgp.likelihoods import Likelihood
from dsgp.models.cautions import warn_of_bins, warn_of_forms, warn_of_structure
from dsgp.models.clock import Clock
from dsgp.models.gaussian.structure import (
    ROUNDS,
    lengthscales_given,
)
from dsgp.models.laplace.judging import (
    largest_variance,
    left_structure,
    not_resolved,
    objective_of,
    unit_of,
)
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses
from dsgp.models.laplace.steps import LaplaceSteps
from dsgp.progress import progress
from dsgp.terms import Floats

# Sum of the weights, as a share of the number of rows, below which there is a warning.
_FEW_COUNTED = 0.1
# Largest sum of the weights: a larger one must be a mistake, and the system could not be solved.
_MOST_COUNTED = 1e12
# Smallest lengthscales, in widths of the column, that the nodes of the learner represent.
_NODES_KEEP = 0.1


@dataclass(frozen=True)
class LaplaceFit(LaplaceSteps):
    """A fit from prepared rows to an outcome.

    Attributes
    ----------
    finer : bool
        Whether structure in the residuals that the learner's nodes miss is learned on all points,
        which takes several times as long as the rest; the other parameters are those of the steps.
    """

    finer: bool = True

    def __call__(
        self,
        responses: Responses,
        likelihood: Likelihood,
        clock: Clock,
        before: LaplaceOutcome | None = None,
    ) -> LaplaceOutcome:
        """Fit to prepared rows.

        Parameters
        ----------
        responses : Responses
            Kernels of their terms are complete where there is no learner.
        likelihood : Likelihood
            Its free parameters are initial values; missing ones are set from the targets.
        clock : Clock
        before : LaplaceOutcome, optional
            A fit of the same rows with other targets or offsets, or with some of the terms, to
            start from.

        Raises
        ------
        DataError
            If a target is none of the likelihood's, or there are too few rows to learn from.
        """
        rows = responses.rows
        if rows.total_weight > _MOST_COUNTED:
            raise DataError(
                f"sample_weight (with class_weight, if any) sums to {rows.total_weight:.3g}, more "
                "rows than float64 can count: a weight is how often a row counts; divide weights "
                "that are relative by their mean"
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
            start_kernels = [term.kernel for term in responses.terms]
            used = start_kernels
            learned = None
            if self.learner is not None and has_too_many_levels(rows.table.cells):
                clock.stage("learn")
                outcome = self._learned_at_points(responses, likelihood, level, constant, before)
                return self.without_structure(outcome, clock) if self.finer else outcome
            if self.learner is not None:
                clock.stage("learn")
                learned = self._learn(responses, likelihood, used, level, before)
                used, likelihood = learned.kernels, learned.likelihood
                if not constant:  # the prior of a constant is centred at its initial value
                    level = learned.level
                if self.intercept is None:
                    likelihood, level = likelihood.absorbed(level)
            clock.stage("solve")
            start = None if before is None else before.functions(responses)
            if learned is not None:
                start = learned.functions(rows.table.cells)
                learned = replace(learned, mode=None)  # it holds tables of all pairs of terms
            outcome = self._finish(responses, likelihood, used, level, constant, learned, start)
            if learned is None:
                return outcome
            outcome = self._from_start(outcome, start_kernels)
            if before is not None and before.learned is not None and before.learned.at_points:
                known = before.kernels(responses, outcome.mode.system.kernels)
                outcome = self._climbed(outcome, known, before.functions(responses))
            return self.without_structure(outcome, clock) if self.finer else outcome

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
            known = before.kernels(responses, [search.middle for search in searches])
            searches = [
                replace(search, middle=kernel)
                for search, kernel in zip(searches, known, strict=True)
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
            begun = before.kernels(responses, begun)
        kernels = [search.start for search in self._searches(responses, likelihood, begun)]
        start = None if before is None else before.functions(responses)
        mode = self._mode(responses, likelihood, kernels, constant, level, start, None)
        state = State(kernels, likelihood, mode, objective_of(mode))
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

    def without_structure(self, outcome: LaplaceOutcome, clock: Clock) -> LaplaceOutcome:
        """Learn again from what explains structure in the residuals, while that is better."""
        outcome = replace(outcome, too_wide=outcome.responses.too_wide)
        for _ in range(ROUNDS):
            start = left_structure(outcome)
            if start is None:
                return outcome
            clock.stage("learn fine structure")
            better = self._climbed(outcome, start.kernels, start.mean, pairs_kept=True)
            if better is outcome:
                return outcome
            outcome = better
        start = left_structure(outcome, by_screen=True)
        names = outcome.responses.rows.table.names
        missed = () if start is None else tuple(names[term] for term in start.terms)
        return replace(outcome, unresolved=missed)

    def _from_start(self, outcome: LaplaceOutcome, kernels: list[Kernel]) -> LaplaceOutcome:
        """Learn again from the user's start if nodes cannot have kept it, if that is better."""
        given_lengthscales = [lengthscales_given(kernel) for kernel in kernels]
        if not any(given_lengthscales):
            return outcome
        searches = self._searches(outcome.responses, outcome.likelihood, kernels)
        start = [search.start for search in searches]
        if all(
            length > _NODES_KEEP * search.width
            for lengths, search in zip(given_lengthscales, searches, strict=True)
            for length in lengths
        ):
            return outcome
        return self._climbed(outcome, start, None)

    def _climbed(
        self,
        outcome: LaplaceOutcome,
        kernels: list[Kernel],
        mean: Floats | None,
        *,
        pairs_kept: bool = False,
    ) -> LaplaceOutcome:
        """Return the better of an outcome and the result of working models from other kernels."""
        responses, learned = outcome.responses, outcome.learned
        begin, constant = self._constant(responses.rows, outcome.likelihood)

        level = begin if constant else outcome.level
        mode = self._mode(responses, outcome.likelihood, kernels, constant, level, mean, None)
        state = State(kernels, outcome.likelihood, mode, objective_of(mode))
        climbed = self._climb(responses, state, begin, constant, pairs_kept=pairs_kept)
        best = climbed.best
        before = sum(kernel.log_prior for kernel in outcome.mode.system.kernels)
        if best.value < outcome.log_likelihood + before + SCAN_GAIN:
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
                f"{rows.n_rows} rows: a weight is how often a row counts, so this is a fit to "
                f"about {rows.total_weight:.3g} rows, with uncertainties to match; divide weights "
                "that are relative by their mean",
                DataWarning,
                stacklevel=stacklevel,
            )
        learned = outcome.learned
        if learned is not None and not learned.converged:
            warnings.warn(
                f"learner={self.learner!r} stopped after {self.learner_max_iter} modes, before it "
                f"reached learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        warn_of_structure(outcome.too_wide, outcome.unresolved, self.bins, stacklevel + 1)
        warn_of_bins(outcome.bin_error, stacklevel + 1)
        system = outcome.mode.system
        weights = system.layout.parts(system.weight)
        layout, terms = system.layout, outcome.responses.terms
        warn_of_forms(terms, layout.cells, system.kernels, weights, stacklevel + 1)
