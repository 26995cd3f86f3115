"""The steps of a fit by Laplace's approximation, and the parameters that all of them have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from dsgp.additive import (
    SOLVERS,
    AdditiveSystem,
    Pair,
    Solution,
)
from dsgp.additive.bins import BinError
from dsgp.kernels import Kernel
from dsgp.laplace.binned import counts_of
from dsgp.laplace.learner import Learned
from dsgp.laplace.mode import Mode, find_mode
from dsgp.laplace.rows import ResponseRows
from dsgp.laplace.working import Climb, State, climb
from dsgp.learning.search import Search, search_for
from dsgp.likelihoods import Likelihood, by_name
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
    shortest_of,
)
from dsgp.models.laplace.judging import (
    complexity_of,
    largest_variance,
    objective_of,
    unit_of,
)
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses, prepare_responses
from dsgp.progress import progress
from dsgp.terms import BoundTerm, Floats, TensorCells

# Precision of the constant's prior, around the level of half an event more (or less). It is used if
# all targets are at the edge of their support (no event at all), where a flat prior would have no
# mode, or if all rows together count less than one.
EDGE_PRECISION = 0.5
LEARNERS = ("marginal", "independent", None)
# Bias of the bins, in posterior standard deviations, above which it is subtracted.
_BIAS = 0.01
# Initial scale of a likelihood with an identity link, in standard deviations of the targets.
_START_SCALE = 0.5


@dataclass(frozen=True)
class LaplaceSteps:
    """Modes, posteriors and working models, with the user's parameters.

    Attributes
    ----------
    intercept : float or None
        The constant part of f; None finds it.
    level : float or None
        Initial value of a constant that is found; None is that of the highest likelihood.
    solver, learner, bins, tol, newton_max_iter, learner_tol, learner_max_iter, verbose
        As for ``GeneralizedAdditiveGP``.
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
        """Read and prepare the rows, for a number of functions at the same time."""
        with progress("reading", source.n_rows, enabled=self.verbose) as bar:
            return prepare_responses(
                source, terms, self.bins, Reading(bar, clock), n_functions=n_functions
            )

    def _constant(self, rows: ResponseRows, likelihood: Likelihood) -> tuple[float, float | None]:
        """Initial value of the constant, and the precision of its prior; None if it is known."""
        if self.intercept is not None:
            return self.intercept, None
        # Given cutpoints determine the level.
        if self.level is None and not likelihood.has_level and self.learner is None:
            return 0.0, None
        level = rows.level(likelihood) if self.level is None else self.level
        flat = rows.total_weight >= 1.0 and rows.bound_level(likelihood)
        return level, 0.0 if flat else EDGE_PRECISION

    def _scaled(self, rows: ResponseRows, likelihood: Likelihood) -> Likelihood:
        """Set the initial scale of real targets in their units, if the user has not given it."""
        if likelihood.link_name != "identity" or likelihood != by_name(likelihood.name):
            return likelihood
        return likelihood.with_parameters(scale=_START_SCALE * math.sqrt(unit_of(rows, likelihood)))

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
                # The prior of a constant is centred at its initial value.
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

    def _climb(
        self,
        responses: Responses,
        state: State,
        level: float,
        constant: float | None,
        *,
        pairs_kept: bool = False,
    ) -> Climb:
        """Alternate modes and EM on their working models from a state.

        Where the kernels of functions of two columns are kept, only those of one are learned: a
        step of EM takes minutes where there are thousands of pairs of values.
        """
        searches = self._searches(responses, state.likelihood, state.kernels, fine=True)
        if pairs_kept:
            searches = [
                search.held(kernel) if isinstance(cells, TensorCells) else search
                for search, kernel, cells in zip(
                    searches, state.kernels, responses.rows.table.cells, strict=True
                )
            ]

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
            return replace(state, mode=mode, value=objective_of(mode))

        with progress("learning", enabled=self.verbose) as bar:
            return climb(
                responses.rows,
                state,
                find,
                searches,
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
