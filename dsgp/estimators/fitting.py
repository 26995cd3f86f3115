"""How additive models are fitted, whatever their columns are: from a source to an outcome."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dsgp.additive import (
    MAX_ITER,
    SOLVERS,
    AdditiveSystem,
    Pair,
    Solution,
    warn_unless_converged,
)
from dsgp.compute import one_blas_thread
from dsgp.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MemoryLimitError,
    ParameterError,
)
from dsgp.estimators.inference import Clock, Fit, Found, learn, solve
from dsgp.estimators.parameters import (
    require_bins,
    require_choice,
    require_count,
    require_positive,
    require_resolvable,
)
from dsgp.estimators.refining import (
    ROUNDS,
    learn_from,
    left_structure,
    start_beyond_nodes,
    warn_of_structure,
)
from dsgp.estimators.term import Term
from dsgp.estimators.training import Training, prepare
from dsgp.kernels import Kernel
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.search import NOISE, NOISE_START
from dsgp.progress import Bar, progress
from dsgp.rows.encode import MOST_BINS
from dsgp.rows.sources import Source
from dsgp.terms import BoundTerm

# E-steps on the way need the mean to so many prior standard deviations only; their solver starts
# where the last one stopped.
E_STEP_TOL = 1e-2
_E_STEP_SWEEPS = 20
# Error of the bins in posterior standard deviations: more than this and there are more bins, or
# (if there cannot be) a warning.
BIN_LIMIT = 0.1
BIN_WARNING = 0.3
# Likewise what they add to the noise variance, as a share.
BIN_NOISE_LIMIT = 0.05


@dataclass(frozen=True)
class Outcome:
    """What a fit comes to, in the units of its training rows.

    Attributes
    ----------
    training : Training
    found : Found
        Hyperparameters, and how they were found.
    fit : Fit
        The posterior mean, and the noise variance to all digits.
    unresolved : tuple of str
        Columns in which there is structure that hyperparameters were not learned for.
    too_wide : dict of str to int
        As of ``Training``, where hyperparameters were learned.
    """

    training: Training
    found: Found
    fit: Fit
    unresolved: tuple[str, ...] = ()
    too_wide: dict[str, int] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether solver and learner met their tolerances, and nothing was seen to be missed."""
        met = self.fit.solution.converged and self.found.converged
        return met and not self.unresolved and not self.too_wide

    @property
    def n_iter(self) -> int:
        """Evaluations or iterations of the learner, or of the solver where there was none."""
        return self.found.n_iter if self.found.learner else self.fit.solution.iterations

    @property
    def noise_variance(self) -> float:
        """Of a row of weight 1, without what bins add; in the user's units."""
        noise = self.fit.system.noise_variance * self.training.noise_scale
        return noise * (1 - self.fit.bin_noise)

    def log_likelihood(self, value: float) -> float:
        """Turn the log likelihood of the scaled target into that of the user's."""
        return value - self.training.equations.n_rows * math.log(self.training.scale)

    @property
    def constant(self) -> float:
        """What is added to the terms, in the user's units."""
        return self.training.offset + self.training.scale * self.fit.constant

    def terms(self) -> list[Term]:
        """Return the fitted terms in the user's units."""
        layout, scale = self.training.equations.layout, self.training.scale
        terms = []
        equations = self.fit.system.equations
        for d, (name, cells, kernel, mean, dual, weight, dof) in enumerate(
            zip(
                layout.names,
                layout.cells,
                self.fit.system.kernels,
                layout.parts(self.fit.solution.mean),
                layout.parts(self.fit.solution.dual),
                layout.parts(self.fit.system.weight),
                self.fit.complexity.dof_of_terms,
                strict=True,
            )
        ):
            centre, variance = equations.moments(d, mean)
            terms.append(
                Term(
                    name=name,
                    kernel=kernel.scaled(scale),
                    bound=self.training.terms[d].with_kernel(kernel.scaled(scale)),
                    cells=cells,
                    dual=dual / scale,
                    weight=weight / scale**2,
                    centre=scale * centre,
                    explained_variance=scale**2 * variance,
                    effective_dof=float(dof),
                )
            )
        return terms


@dataclass(frozen=True)
class Procedure:
    """The steps of a fit, and the parameters that all estimators have for them.

    ``fit`` takes them all. ``prepare`` and ``finish`` are for who finds the hyperparameters
    otherwise than by ``learn``.

    Attributes
    ----------
    noise_variance : float or None
        Of a row of weight 1, in the user's units: a start for the learner.
    fixed_noise, solver, learner, bins, tol, learner_tol, learner_max_iter, verbose
        As of ``AdditiveGPRegressor``.
    max_iter : int
        Iterations of the solver at most.
    """

    noise_variance: float | None
    fixed_noise: bool
    solver: str
    learner: str | None
    bins: str | int | None
    tol: float
    max_iter: int
    learner_tol: float
    learner_max_iter: int
    verbose: bool

    @classmethod
    def of(cls, model: Any) -> Self:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        require_choice("solver", model.solver, tuple(SOLVERS))
        require_choice("learner", model.learner, ("marginal", "vbem", None))
        require_bins(model.bins)
        require_positive("tol", model.tol)
        require_positive("learner_tol", model.learner_tol)
        require_count("learner_max_iter", model.learner_max_iter)
        if model.max_iter is not None:
            require_count("max_iter", model.max_iter)
        if model.noise_variance is not None:
            require_positive("noise_variance", model.noise_variance)
        elif model.fixed_noise:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")
        return cls(
            noise_variance=model.noise_variance,
            fixed_noise=model.fixed_noise,
            solver=model.solver,
            learner=model.learner,
            bins=model.bins,
            tol=model.tol,
            max_iter=MAX_ITER[model.solver] if model.max_iter is None else int(model.max_iter),
            learner_tol=model.learner_tol,
            learner_max_iter=model.learner_max_iter,
            verbose=model.verbose,
        )

    def fit(self, source: Source, terms: list[BoundTerm], clock: Clock) -> Outcome:
        """Fit a sum of terms to the rows of a source.

        Parameters
        ----------
        source : Source
        terms : list of BoundTerm
            Their kernels in the user's units; complete where there is no learner, and the noise
            variance too.
        clock : Clock
            Told the stages.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``AdditiveGPRegressor.fit`` does.
        """
        with one_blas_thread():
            training = self.prepare(source, terms, clock)
            if self.learner is not None and training.equations.n_rows < 2:
                raise DataError(
                    "cannot learn hyperparameters from 1 sample (n_samples = 1): at least 2 rows "
                    "of positive weight are needed; or give the hyperparameters and learner=None"
                )
            if self.learner is None:
                return self.finish(source, training, self._kept(training), clock)
            clock.stage("learn")
            found = self.learn(training)
            clock.stage("solve")
            outcome = self._of(training, found)
            outcome = self._from_start(outcome, *self._start(training))
            return self._resolved(source, outcome, found.noise_bounds, clock)

    def prepare(self, source: Source, terms: list[BoundTerm], clock: Clock) -> Training:
        """Read the rows and make them ready."""
        with progress("reading", source.n_rows, enabled=self.verbose) as bar:
            return prepare(source, terms, self.bins, Reading(bar, clock))

    def learn(self, training: Training) -> Found:
        """Find hyperparameters in the units of ``training``."""
        starts, noise = self._start(training)
        bounds = (noise, noise) if self.fixed_noise else (min(NOISE[0], noise), NOISE[1])
        assert self.learner is not None
        with progress("learning", enabled=self.verbose) as bar:
            return learn(
                training.equations,
                starts,
                noise,
                bounds,
                learner=self.learner,
                solve=self._solve_roughly,
                tol=self.learner_tol,
                max_iter=self.learner_max_iter,
                watch=lambda value: bar.update(value=value),
            )

    def _start(self, training: Training) -> tuple[list[Kernel], float]:
        """Kernels and noise variance as the user gave them, in the units of ``training``."""
        starts = [term.kernel.scaled(1 / training.scale) for term in training.terms]
        if self.noise_variance is None:
            return starts, NOISE_START
        return starts, float(self.noise_variance) / training.noise_scale

    def _kept(self, training: Training) -> Found:
        """Take the hyperparameters as they are."""
        starts, noise = self._start(training)
        require_resolvable(starts, noise)
        return Found(starts, noise, (noise, noise), None)

    def finish(
        self,
        source: Source,
        training: Training,
        found: Found,
        clock: Clock,
        noise_bounds: tuple[float, float] | None = None,
    ) -> Outcome:
        """Compute the posterior mean; with ``bins="auto"`` in more bins where they are too few.

        With bounds of the noise, hyperparameters are learned again if the residuals hold structure.
        """
        clock.stage("solve")
        outcome = self._of(training, found)
        return self._resolved(source, outcome, noise_bounds, clock)

    def _of(self, training: Training, found: Found) -> Outcome:
        return Outcome(training, found, self._solve(training, found))

    def _resolved(
        self,
        source: Source,
        outcome: Outcome,
        noise_bounds: tuple[float, float] | None,
        clock: Clock,
    ) -> Outcome:
        """Leave no structure in the residuals, and no coarse bins where that can be helped."""
        if noise_bounds is not None:
            # Whoever gives the hyperparameters has not asked for more.
            outcome = replace(outcome, too_wide=outcome.training.too_wide)
            outcome = self._without_structure(outcome, noise_bounds, clock)
        if self.bins == "auto" and _too_coarse(outcome.fit):
            clock.stage("refine bins")
            n_before = outcome.training.equations.layout.size
            outcome = self._refined(source, outcome)
            if noise_bounds is not None and outcome.training.equations.layout.size > n_before:
                outcome = replace(outcome, too_wide=outcome.training.too_wide)
                if outcome.found.learner == "vbem":
                    # What the wider bins left of the functions is in its noise.
                    found = outcome.found
                    outcome = self._relearned(
                        outcome, found.kernels, found.noise_variance, noise_bounds
                    )
                outcome = self._without_structure(outcome, noise_bounds, clock)
        return outcome

    def _without_structure(
        self, outcome: Outcome, noise_bounds: tuple[float, float], clock: Clock
    ) -> Outcome:
        """Learn again from what explains the structure in the residuals, while that is better."""
        for _ in range(ROUNDS):
            start = left_structure(outcome.fit, noise_bounds)
            if start is None:
                return outcome
            clock.stage("learn fine structure")
            better = self._relearned(outcome, start.kernels, start.noise_variance, noise_bounds)
            if better is outcome:
                return outcome
            outcome = better
        start = left_structure(outcome.fit, noise_bounds)
        names = outcome.training.equations.layout.names
        missed = () if start is None else tuple(names[term] for term in start.terms)
        return replace(outcome, unresolved=missed)

    def _from_start(self, outcome: Outcome, starts: list[Kernel], noise_variance: float) -> Outcome:
        """Learn again from the user's start if the learner could not keep it, if that is better."""
        if self.learner != "marginal" or not starts:
            return outcome
        equations, bounds = outcome.training.equations, outcome.found.noise_bounds
        beyond = start_beyond_nodes(equations, starts, noise_variance)
        if beyond is None:
            return outcome
        return self._relearned(outcome, beyond, noise_variance, bounds)

    def _relearned(
        self,
        outcome: Outcome,
        kernels: list[Kernel],
        noise_variance: float,
        noise_bounds: tuple[float, float],
    ) -> Outcome:
        """Return the best of an outcome, what is learned from a start, and the start itself."""
        training = outcome.training
        with progress("learning", enabled=self.verbose) as bar:
            learned = learn_from(
                training.equations,
                kernels,
                noise_variance,
                noise_bounds,
                solve=self._solve_roughly,
                tol=self.learner_tol,
                max_iter=self.learner_max_iter,
                watch=lambda value: bar.update(value=value),
            )
        kept = ["the hyperparameters where this search began: it came to nothing better"]
        start = Found(
            kernels,
            noise_variance,
            (noise_variance, noise_variance),
            learned.learner,
            notes=kept,
        )
        others = [self._of(training, learned)]
        if others[0].fit.log_likelihood < outcome.fit.log_likelihood + SCAN_GAIN:
            others.append(self._of(training, start))
        best = max(others, key=lambda other: other.fit.log_likelihood)
        if best.fit.log_likelihood < outcome.fit.log_likelihood + SCAN_GAIN:
            return outcome
        return replace(best, too_wide=outcome.too_wide)

    def _solve(self, training: Training, found: Found) -> Fit:
        return solve(
            training.equations,
            found,
            training.spreads,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _solve_roughly(self, system: AdditiveSystem, start: Pair | None) -> Solution:
        max_iter = self.max_iter
        if self.solver == "backfitting":
            # Its bound may stay above any tolerance for long; an E-step need not be complete.
            max_iter = min(max_iter, _E_STEP_SWEEPS)
        return SOLVERS[self.solver](
            system, tol=max(self.tol, E_STEP_TOL), max_iter=max_iter, start=start
        )

    def _refined(self, source: Source, outcome: Outcome) -> Outcome:
        """Take as many bins as bring their error down, or all distinct values, and solve again."""
        training, found, fit = outcome.training, outcome.found, outcome.fit
        lines = [own for own in training.equations.layout.cells if own.is_interpolated]
        largest = max((len(own) // own.n_curves for own in lines), default=0)
        # What they cost falls at least with their number, and noise with its square.
        excess = max(fit.bin_error / BIN_LIMIT, (fit.bin_noise / BIN_NOISE_LIMIT) ** 0.5)
        n_bins = min(int(1.5 * largest * excess), MOST_BINS)
        if n_bins <= largest:
            return outcome
        given = training.terms
        terms = [
            term.with_kernel(kernel.scaled(training.scale))
            for term, kernel in zip(given, found.kernels, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # said already
            try:
                training = prepare(source, terms, n_bins)
            except MemoryLimitError:  # what there is stays, and is warned of
                return outcome
        return self._of(training, replace(found, pair=None))  # its vectors are of other bins

    def warn(self, outcome: Outcome) -> None:
        """Warn of what did not converge, and of bins that are too wide; called by ``fit``s."""
        warn_unless_converged(outcome.fit.solution, self.solver, self.tol, self.max_iter)
        if not outcome.found.converged:
            warnings.warn(
                f"learner={outcome.found.learner!r} stopped after {self.learner_max_iter} "
                f"iterations, short of learner_tol={self.learner_tol:g}; raise learner_max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
        warn_of_structure(outcome.too_wide, outcome.unresolved, self.bins)
        if outcome.fit.bin_error > BIN_WARNING:
            warnings.warn(
                f"bins change the function by about {outcome.fit.bin_error:.2g} of its posterior "
                "standard deviation; pass more bins, or bins=None to keep every distinct value",
                DataWarning,
                stacklevel=3,
            )


class Reading:
    """Tells a bar and a clock how far reading has come."""

    def __init__(self, bar: Bar, clock: Clock) -> None:
        self.bar, self.clock, self.stage, self.rows = bar, clock, "", 0

    def __call__(self, stage: str, rows: int) -> None:
        if stage != self.stage:
            self.clock.stage(stage)
            self.stage, self.rows = stage, 0
        self.bar.update(rows - self.rows, stage=stage)
        self.rows = rows


def _too_coarse(fit: Fit) -> bool:
    return fit.bin_error > BIN_LIMIT or fit.bin_noise > BIN_NOISE_LIMIT
