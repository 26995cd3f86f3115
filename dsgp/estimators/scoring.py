"""How generalized additive models are fitted: hyperparameters, then the mode by local scoring."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.additive import (
    MAX_ITER,
    SOLVERS,
    AdditiveSystem,
    Pair,
    RowEquations,
    Solution,
    warn_unless_converged,
)
from dsgp.additive.bins import BinError
from dsgp.additive.evidence import Complexity
from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.variance import DENSE_ROWS, DenseCovariance
from dsgp.compute import one_blas_thread
from dsgp.errors import ConvergenceWarning, DataError, DataWarning
from dsgp.estimators.fitting import BIN_WARNING, E_STEP_TOL, Reading
from dsgp.estimators.inference import Clock
from dsgp.estimators.parameters import (
    require_bins,
    require_choice,
    require_count,
    require_number,
    require_positive,
)
from dsgp.estimators.refining import ROUNDS, lengthscales_given, shortest_of, warn_of_structure
from dsgp.estimators.responses import Responses, prepare_responses
from dsgp.estimators.term import Term
from dsgp.kernels import Kernel
from dsgp.laplace.binned import BINS, BinnedRows, counts_of
from dsgp.laplace.learner import Learned, learn
from dsgp.laplace.mode import Mode, find_mode
from dsgp.laplace.rows import ResponseRows
from dsgp.laplace.working import State, climb, working_equations
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.scales import Start, finer_start
from dsgp.learning.search import VARIANCE, Search, search_for
from dsgp.likelihoods import Likelihood, by_name
from dsgp.progress import progress
from dsgp.rows.table import RowTable
from dsgp.terms import BoundTerm, Floats

# Variance that a function may be learned to have on the scale of a logarithm or a logit. Where
# events or the other class are absent the evidence asks for ever more, and the posterior, whose W
# vanishes there, is as wide as the prior: means of exp(f) would explode.
LARGEST_VARIANCE = 25.0
# Precision of the constant's prior, around the level of half an event more (or less), where all
# targets are at the edge of their support (no event at all) and a flat one would have no mode, or
# all rows together count less than one.
EDGE_PRECISION = 0.5
# Sum of the weights, as a share of the number of rows, below which that is warned of.
_FEW_COUNTED = 0.1
# Sum of the weights that cannot be meant, and that the system would not be solved with.
_MOST_COUNTED = 1e12
LEARNERS = ("marginal", "independent", None)
# Share of the dispersion that may be left when structure is no longer taken for it.
_LEAST_DISPERSION = 1e-4
# Lengthscales, in widths of the column, that the nodes of the learner do not lose.
_NODES_KEEP = 0.1
# Bias of the bins, in posterior standard deviations, that is worth being taken off.
_BIAS = 0.01
# Of an identity link, the bulk of the targets that tells their scale.
_BULK = (0.1, 0.9)
# Of an identity link that nobody has said anything of, in standard deviations of the targets.
_START_SCALE = 0.5


@dataclass(frozen=True)
class ScoringOutcome:
    """What a fit comes to.

    Attributes
    ----------
    responses : Responses
    likelihood : Likelihood
        With all its parameters.
    mode : Mode
    complexity : Complexity
    log_likelihood : float
        Laplace's approximation of the log marginal likelihood, all terms' determinant together.
    exact_determinant : bool
        Whether that determinant is exact.
    bin_error : float
        Error of the bins in posterior standard deviations, root mean squares over the rows.
    learned : Learned or None
    unresolved : tuple of str
        Columns in which there is structure that hyperparameters were not learned for.
    too_wide : dict of str to int
        As of ``Responses``, where hyperparameters were learned.
    """

    responses: Responses
    likelihood: Likelihood
    mode: Mode
    complexity: Complexity
    log_likelihood: float
    exact_determinant: bool
    bin_error: float
    learned: Learned | None
    unresolved: tuple[str, ...] = ()
    too_wide: dict[str, int] = field(default_factory=dict)

    @property
    def level(self) -> float:
        """The constant part of f."""
        return self.mode.level

    @property
    def converged(self) -> bool:
        """Whether solver, Newton's iteration and learner met their tolerances."""
        learned = self.learned is None or self.learned.converged
        resolved = not self.unresolved and not self.too_wide
        return self.mode.converged and self.mode.solution.converged and learned and resolved

    def latent(self) -> Floats:
        """Return f of every row, without its offset, (n_rows,)."""
        table = self.responses.rows.table
        return self.level + table.gather(self.mode.solution.mean)

    def terms(self) -> list[Term]:
        """Return the fitted terms."""
        system, solution = self.mode.system, self.mode.solution
        layout, rows = system.layout, self.responses.rows
        ones = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
        terms = []
        for d, (name, cells, kernel, mean, dual, weight, dof) in enumerate(
            zip(
                layout.names,
                layout.cells,
                system.kernels,
                layout.parts(solution.mean),
                layout.parts(solution.dual),
                layout.parts(system.weight),
                self.complexity.dof_of_terms,
                strict=True,
            )
        ):
            centre, _ = system.equations.moments(d, mean)
            terms.append(
                Term(
                    name=name,
                    kernel=kernel,
                    bound=self.responses.terms[d].with_kernel(kernel),
                    cells=cells,
                    dual=dual,
                    weight=weight,
                    centre=centre,
                    explained_variance=_variance(mean, rows, d, ones),
                    effective_dof=float(dof),
                )
            )
        return terms


@dataclass(frozen=True)
class Scoring:
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
    def of(cls, model: Any) -> Self:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        require_choice("solver", model.solver, tuple(SOLVERS))
        require_choice("learner", model.learner, LEARNERS)
        require_bins(model.bins)
        require_positive("tol", model.tol)
        require_positive("learner_tol", model.learner_tol)
        require_count("learner_max_iter", model.learner_max_iter)
        require_count("newton_max_iter", model.newton_max_iter)
        if model.max_iter is not None:
            require_count("max_iter", model.max_iter)
        if model.intercept is not None:
            require_number("intercept", model.intercept)
        return cls(
            intercept=None if model.intercept is None else float(model.intercept),
            solver=model.solver,
            learner=model.learner,
            bins=model.bins,
            tol=model.tol,
            max_iter=MAX_ITER[model.solver] if model.max_iter is None else int(model.max_iter),
            newton_max_iter=int(model.newton_max_iter),
            learner_tol=model.learner_tol,
            learner_max_iter=int(model.learner_max_iter),
            random_state=model.random_state,
            verbose=bool(model.verbose),
        )

    def prepare(
        self, source: Any, terms: list[BoundTerm], clock: Clock, n_functions: int = 1
    ) -> Responses:
        """Read the rows and make them ready for so many functions beside each other."""
        with progress("reading", source.n_rows, enabled=self.verbose) as bar:
            return prepare_responses(
                source, terms, self.bins, Reading(bar, clock), n_functions=n_functions
            )

    def fit(
        self,
        responses: Responses,
        likelihood: Likelihood,
        clock: Clock,
        before: ScoringOutcome | None = None,
    ) -> ScoringOutcome:
        """Fit to rows made ready.

        Parameters
        ----------
        responses : Responses
            Kernels of their terms are complete where there is no learner.
        likelihood : Likelihood
            Its free parameters are starts; all that are missing are set from the targets.
        clock : Clock
        before : ScoringOutcome, optional
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
        before: ScoringOutcome | None,
    ) -> Learned:
        rows = responses.rows
        unit = _unit(rows, likelihood)
        if likelihood.link_name == "identity" and likelihood == by_name(likelihood.name):
            # Nobody has said anything of its scale, which is in the units of the targets.
            likelihood = likelihood.with_parameters(scale=_START_SCALE * math.sqrt(unit))
        largest = _largest(likelihood)
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
                raise DataError(_not_resolved(rows.table)) from error

    def _finish(
        self,
        responses: Responses,
        likelihood: Likelihood,
        kernels: list[Kernel],
        level: float,
        constant: float | None,
        learned: Learned | None,
        start: Floats | None,
    ) -> ScoringOutcome:
        spreads = responses.spreads
        find = partial(self._mode, responses, likelihood, kernels, constant)
        mode = find(level, start, None)
        bin_error = 0.0
        complexity, log_det, exact = _complexity(mode)
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
                complexity, log_det, exact = _complexity(mode)
            else:
                bias = error.size(mode.system)
            bin_error = math.hypot(bias, error.rest) / std
        return ScoringOutcome(
            responses=responses,
            likelihood=likelihood,
            mode=mode,
            complexity=complexity,
            log_likelihood=mode.objective - 0.5 * log_det,
            exact_determinant=exact,
            bin_error=bin_error,
            learned=learned,
        )

    def without_structure(self, outcome: ScoringOutcome, clock: Clock) -> ScoringOutcome:
        """Learn again from what explains structure in the residuals, while that is better."""
        outcome = replace(outcome, too_wide=outcome.responses.too_wide)
        for _ in range(ROUNDS):
            start = _left_structure(outcome)
            if start is None:
                return outcome
            clock.stage("learn fine structure")
            better = self._climbed(outcome, start.kernels, start.mean)
            if better is outcome:
                return outcome
            outcome = better
        start = _left_structure(outcome)
        names = outcome.responses.rows.table.names
        missed = () if start is None else tuple(names[term] for term in start.terms)
        return replace(outcome, unresolved=missed)

    def _from_start(self, outcome: ScoringOutcome, kernels: list[Kernel]) -> ScoringOutcome:
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
        self, outcome: ScoringOutcome, kernels: list[Kernel], mean: Floats | None
    ) -> ScoringOutcome:
        """Return the better of an outcome and what working models give from other kernels."""
        responses, learned = outcome.responses, outcome.learned
        begin, constant = self._constant(responses.rows, outcome.likelihood)

        def find(state: State) -> State:
            mode = self._mode(
                responses,
                state.likelihood,
                state.kernels,
                constant,
                begin if constant else state.mode.level,
                state.mode.solution.mean,
                None,
            )
            return replace(state, mode=mode, value=mode.objective - 0.5 * _complexity(mode)[1])

        level = begin if constant else outcome.level
        mode = self._mode(responses, outcome.likelihood, kernels, constant, level, mean, None)
        value = mode.objective - 0.5 * _complexity(mode)[1]
        state = State(kernels, outcome.likelihood, mode, value)
        with progress("learning", enabled=self.verbose) as bar:
            climbed = climb(
                responses.rows,
                state,
                find,
                self._searches(responses, outcome.likelihood, kernels, fine=True),
                solve=self._solve_roughly,
                tol=self.learner_tol,
                max_iter=self.learner_max_iter,
                unit=_unit(responses.rows, outcome.likelihood),
                watch=lambda value: bar.update(value=value),
            )
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
        unit = _unit(rows, likelihood)
        return [
            search_for(
                kernel,
                cells,
                counts,
                len(kernels),
                unit,
                _largest(likelihood),
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

    def warn(self, outcome: ScoringOutcome) -> None:
        """Warn of what did not converge, and of bins that are too wide; called by ``fit``s."""
        warn_unless_converged(outcome.mode.solution, self.solver, self.tol, self.max_iter)
        if not outcome.mode.converged:
            warnings.warn(
                f"Newton's iteration stopped after {len(outcome.mode.trace)} steps, the last of "
                f"which still moved f by {outcome.mode.step:.2g} posterior standard deviations "
                f"(tol={self.tol:g}); raise newton_max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        rows = outcome.responses.rows
        if rows.total_weight < _FEW_COUNTED * rows.n_rows:
            warnings.warn(
                f"sample_weight (with class_weight, if any) sums to {rows.total_weight:.3g} over "
                f"{rows.n_rows} rows: a weight is how often a row counts, so that this is a fit to "
                f"about {rows.total_weight:.3g} rows, with uncertainties to match; divide weights "
                "that are relative by their mean",
                DataWarning,
                stacklevel=3,
            )
        learned = outcome.learned
        if learned is not None and not learned.converged:
            warnings.warn(
                f"learner={self.learner!r} stopped after {self.learner_max_iter} modes, short of "
                f"learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        warn_of_structure(outcome.too_wide, outcome.unresolved, self.bins)
        if outcome.bin_error > BIN_WARNING:
            warnings.warn(
                f"bins change the function by about {outcome.bin_error:.2g} of its posterior "
                "standard deviation; pass more bins, or bins=None to keep every distinct value",
                DataWarning,
                stacklevel=3,
            )


def _largest(likelihood: Likelihood) -> float:
    """How many units the variance of one function may be."""
    return VARIANCE[1] if likelihood.link_name == "identity" else LARGEST_VARIANCE


def _left_structure(outcome: ScoringOutcome) -> Start | None:
    """Look for structure in the residuals of the working model, and for kernels that explain it."""
    mode, likelihood = outcome.mode, outcome.likelihood
    equations = working_equations(outcome.responses.rows, mode)
    # Structure that was missed has been taken for dispersion.
    dispersed = len(likelihood.unconstrained()) > 0 and likelihood.name != "ordered"
    return finer_start(
        equations,
        mode.system.kernels,
        1.0,
        mode.solution.mean,
        free=[kernel.free for kernel in mode.system.kernels],
        noise_bounds=(_LEAST_DISPERSION, 1.0) if dispersed else (1.0, 1.0),
    )


def _variance(values: Floats, rows: ResponseRows, term: int, ones: Floats) -> float:
    """Variance of what rows get of a term, (U_d,) at its cells."""
    counts = rows.table.scatter(term, ones, 0)
    share = counts / max(float(counts.sum()), np.finfo(float).tiny)
    if term not in rows.table.multipliers:
        return float(np.sum(share * (values - np.sum(share * values)) ** 2))
    total = max(float(ones.sum()), np.finfo(float).tiny)
    first, second = (
        float(np.sum(rows.table.scatter(term, ones, power) * values**power)) / total
        for power in (1, 2)
    )
    return max(second - first**2, 0.0)


def _not_resolved(table: RowTable) -> str:
    """Say that float64 cannot tell what rows say of functions; name the likeliest column."""
    lines = [cells.line for cells in table.cells]
    points = [np.zeros(1) if line is None else line for line in lines]
    finest = [float(np.diff(own).min(initial=np.inf)) for own in points]
    extents = [float(own[-1] - own[0]) for own in points]
    ratios = [extent / gap for extent, gap in zip(extents, finest, strict=True)]
    worst = int(np.argmax(ratios))
    return (
        "float64 cannot resolve the functions beside what the rows tell of them. Most uneven is "
        f"input column {table.names[worst]!r}, whose values are up to {extents[worst]:.2g} apart "
        f"and as little as {finest[worst]:.2g}: transform it (its logarithm or ranks) or set far "
        "values apart as missing; very large weights do the same, and can be divided by a constant"
    )


def _complexity(mode: Mode) -> tuple[Complexity, float, bool]:
    """Degrees of freedom, the log determinant, and whether that is exact."""
    system = mode.system
    coarse = CoarseSpace(system) if len(system.kernels) > 1 else None
    complexity = Complexity.of(system, coarse)
    equations = system.equations
    limit = max((DENSE_ROWS[kernel.order] for kernel in system.kernels), default=0)
    if isinstance(equations, RowEquations) and equations.table.n_rows <= limit:
        return complexity, DenseCovariance.of(system, equations).log_det, True
    return complexity, complexity.log_det, len(system.kernels) < 2


def _unit(rows: ResponseRows, likelihood: Likelihood) -> float:
    """Variance of what the terms are to explain: 1 on the scale of a logarithm."""
    if likelihood.link_name != "identity":
        return 1.0
    order = np.argsort(rows.y, kind="stable")
    share = np.cumsum(rows.weight[order] if len(rows.weight) else np.ones(rows.n_rows))
    ends = np.minimum(np.searchsorted(share, np.multiply(_BULK, share[-1])), rows.n_rows - 1)
    low, high = rows.y[order[ends]]
    # The distance is that of a normal distribution of unit variance.
    spread = float(high - low) / 2.563 or float(np.ptp(rows.y)) or 1.0
    return spread**2
