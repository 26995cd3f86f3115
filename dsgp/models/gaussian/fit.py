"""How additive models are fitted, whatever their columns are: from a source to an outcome."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from dsgp.additive import (
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
from dsgp.kernels import Kernel
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.search import NOISE, NOISE_START
from dsgp.models.cautions import warn_of_bins, warn_of_forms, warn_of_structure
from dsgp.models.checks import (
    iterations_of,
    require_bins,
    require_choice,
    require_count,
    require_positive,
    require_resolvable,
)
from dsgp.models.clock import Clock, Reading
from dsgp.models.gaussian.learner import Hyperparameters, learn
from dsgp.models.gaussian.mean import Fit, solve
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.rows import Training, prepare
from dsgp.models.gaussian.structure import (
    ROUNDS,
    learn_from,
    left_structure,
    one_alone,
    start_beyond_nodes,
)
from dsgp.progress import progress
from dsgp.rows.encode import MOST_BINS
from dsgp.rows.sources import Source
from dsgp.terms import BoundTerm

# During learning, E-steps need the mean only to this tolerance in prior standard deviations; the
# solver continues from its last result.
E_STEP_TOL = 1e-2
_E_STEP_SWEEPS = 20
# Error of the bins, in posterior standard deviations, above which there are more bins.
_BIN_LIMIT = 0.1
# The same for the variance that bins add to the noise, as a share of it.
_BIN_NOISE_LIMIT = 0.05


@dataclass(frozen=True)
class GaussianFit:
    """The steps of a fit, and the parameters that all estimators have for them.

    Calling it does all steps. ``prepare`` and ``finish`` are for callers that find the
    hyperparameters in another way than ``learn``.

    Attributes
    ----------
    noise_variance : float or None
        Of a row of weight 1, in the user's units: a start for the learner.
    fixed_noise, solver, learner, bins, tol, learner_tol, learner_max_iter, verbose
        As for ``AdditiveGPRegressor``.
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
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        max_iter = iterations_of(parameters["solver"], parameters["max_iter"])
        require_choice("learner", parameters["learner"], ("marginal", "vbem", "em", None))
        require_bins(parameters["bins"])
        require_positive("tol", parameters["tol"])
        require_positive("learner_tol", parameters["learner_tol"])
        require_count("learner_max_iter", parameters["learner_max_iter"])
        if parameters["noise_variance"] is not None:
            require_positive("noise_variance", parameters["noise_variance"])
        elif parameters["fixed_noise"]:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")
        return cls(
            noise_variance=parameters["noise_variance"],
            fixed_noise=parameters["fixed_noise"],
            solver=parameters["solver"],
            learner=parameters["learner"],
            bins=parameters["bins"],
            tol=parameters["tol"],
            max_iter=max_iter,
            learner_tol=parameters["learner_tol"],
            learner_max_iter=parameters["learner_max_iter"],
            verbose=parameters["verbose"],
        )

    def __call__(self, source: Source, terms: list[BoundTerm], clock: Clock) -> GaussianOutcome:
        """Fit a sum of terms to the rows of a source.

        Parameters
        ----------
        source : Source
        terms : list of BoundTerm
            Their kernels in the user's units; complete where there is no learner, and the noise
            variance too.
        clock : Clock
            Informed of the stages.

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
            hyper = self.learn(training)
            clock.stage("solve")
            outcome = self._of(training, hyper)
            outcome = self._from_start(outcome, *self._start(training))
            return self._resolved(source, outcome, hyper.noise_bounds, clock)

    def prepare(self, source: Source, terms: list[BoundTerm], clock: Clock) -> Training:
        """Read and prepare the rows."""
        with progress("reading", source.n_rows, enabled=self.verbose) as bar:
            return prepare(source, terms, self.bins, Reading(bar, clock))

    def learn(self, training: Training) -> Hyperparameters:
        """Find hyperparameters in the units of ``training``."""
        starts, noise = self._start(training)
        bounds = (noise, noise) if self.fixed_noise else (min(NOISE[0], noise), NOISE[1])
        assert self.learner is not None
        with progress("learning", enabled=self.verbose) as bar:
            hyper = learn(
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
        return replace(hyper, noise_holds_bins=not self.fixed_noise)

    def _start(self, training: Training) -> tuple[list[Kernel], float]:
        """Kernels and noise variance as the user gave them, in the units of ``training``."""
        starts = [term.kernel.scaled(1 / training.scale) for term in training.terms]
        if self.noise_variance is None:
            return starts, NOISE_START
        return starts, float(self.noise_variance) / training.noise_scale

    def _kept(self, training: Training) -> Hyperparameters:
        """Use the hyperparameters as given."""
        starts, noise = self._start(training)
        require_resolvable(starts, noise)
        return Hyperparameters(starts, noise, (noise, noise), None, noise_holds_bins=False)

    def finish(
        self,
        source: Source,
        training: Training,
        hyper: Hyperparameters,
        clock: Clock,
        noise_bounds: tuple[float, float] | None = None,
    ) -> GaussianOutcome:
        """Compute the posterior mean; with ``bins="auto"`` in more bins where they are too few.

        With bounds of the noise, hyperparameters are learned again if the residuals hold structure.
        """
        clock.stage("solve")
        outcome = self._of(training, hyper)
        return self._resolved(source, outcome, noise_bounds, clock)

    def _of(self, training: Training, hyper: Hyperparameters) -> GaussianOutcome:
        return GaussianOutcome(training, hyper, self._solve(training, hyper))

    def _resolved(
        self,
        source: Source,
        outcome: GaussianOutcome,
        noise_bounds: tuple[float, float] | None,
        clock: Clock,
    ) -> GaussianOutcome:
        """Leave no structure in the residuals, and no bins that are too coarse, if possible."""
        if noise_bounds is not None:
            # With given hyperparameters, nothing more was requested.
            outcome = replace(outcome, too_wide=outcome.training.too_wide)
            outcome = self._without_structure(outcome, noise_bounds, clock)
        if self.bins == "auto" and _too_coarse(outcome.fit):
            clock.stage("refine bins")
            n_before = outcome.training.equations.layout.size
            outcome = self._refined(source, outcome)
            if noise_bounds is not None and outcome.training.equations.layout.size > n_before:
                outcome = replace(outcome, too_wide=outcome.training.too_wide)
                if outcome.hyper.learner in ("vbem", "em"):
                    # The part of the functions that the wider bins did not represent is in the
                    # noise.
                    hyper = outcome.hyper
                    outcome = self._relearned(
                        outcome, hyper.kernels, hyper.noise_variance, noise_bounds
                    )
                outcome = self._without_structure(outcome, noise_bounds, clock)
        return outcome.at_home()

    def _without_structure(
        self, outcome: GaussianOutcome, noise_bounds: tuple[float, float], clock: Clock
    ) -> GaussianOutcome:
        """Learn again from what explains structure in the residuals, or few rows by itself."""
        outcome = self._with_finer_terms(outcome, noise_bounds, clock)
        if (start := one_alone(outcome, noise_bounds)) is None:
            return outcome
        better = self._relearned(outcome, start.kernels, start.noise_variance, noise_bounds)
        if better is outcome:
            return outcome
        return self._with_finer_terms(better, noise_bounds, clock)

    def _with_finer_terms(
        self, outcome: GaussianOutcome, noise_bounds: tuple[float, float], clock: Clock
    ) -> GaussianOutcome:
        """Learn again from kernels of single terms that explain more, while that is better."""
        for _ in range(ROUNDS):
            start = left_structure(outcome.fit, noise_bounds)
            if start is None:
                return outcome
            clock.stage("learn fine structure")
            better = self._relearned(outcome, start.kernels, start.noise_variance, noise_bounds)
            if better is outcome:
                return outcome
            outcome = better
        start = left_structure(outcome.fit, noise_bounds, by_screen=True)
        names = outcome.training.equations.layout.names
        missed = () if start is None else tuple(names[term] for term in start.terms)
        return replace(outcome, unresolved=missed)

    def _from_start(
        self, outcome: GaussianOutcome, starts: list[Kernel], noise_variance: float
    ) -> GaussianOutcome:
        """Learn again from the user's start if the learner could not keep it, if that is better."""
        if self.learner != "marginal" or not starts:
            return outcome
        equations, bounds = outcome.training.equations, outcome.hyper.noise_bounds
        beyond = start_beyond_nodes(equations, starts, noise_variance)
        if beyond is None:
            return outcome
        return self._relearned(outcome, beyond, noise_variance, bounds)

    def _relearned(
        self,
        outcome: GaussianOutcome,
        kernels: list[Kernel],
        noise_variance: float,
        noise_bounds: tuple[float, float],
    ) -> GaussianOutcome:
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
        learned = replace(learned, noise_holds_bins=not self.fixed_noise)
        kept = ["a second search found no better hyperparameters than those that it began at"]
        start = Hyperparameters(
            kernels,
            noise_variance,
            (noise_variance, noise_variance),
            learned.learner,
            trace=learned.trace,
            n_iter=learned.n_iter,
            notes=kept,
            noise_holds_bins=not self.fixed_noise,
        )
        others = [self._of(training, learned)]
        if others[0].log_posterior < outcome.log_posterior + SCAN_GAIN:
            others.append(self._of(training, start))
        best = max(others, key=lambda other: other.log_posterior)
        if best.log_posterior < outcome.log_posterior + SCAN_GAIN:
            return outcome
        return replace(best, too_wide=outcome.too_wide)

    def _solve(self, training: Training, hyper: Hyperparameters) -> Fit:
        return solve(
            training.equations,
            hyper,
            training.spreads,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _solve_roughly(self, system: AdditiveSystem, start: Pair | None) -> Solution:
        max_iter = self.max_iter
        if self.solver == "backfitting":
            # The error bound may stay above any tolerance for long; an E-step need not be complete.
            max_iter = min(max_iter, _E_STEP_SWEEPS)
        return SOLVERS[self.solver](
            system, tol=max(self.tol, E_STEP_TOL), max_iter=max_iter, start=start
        )

    def _refined(self, source: Source, outcome: GaussianOutcome) -> GaussianOutcome:
        """Solve again with enough bins for a small error, or with all distinct values."""
        training, hyper, fit = outcome.training, outcome.hyper, outcome.fit
        cells = training.equations.layout.cells
        lines = [line for line in cells if line.is_interpolated and line.is_resolved]
        largest = max((len(line) // line.n_curves for line in lines), default=0)
        # The error falls at least with the number of bins, and the noise with its square.
        error, noise = fit.refinable
        excess = max(error / _BIN_LIMIT, (noise / _BIN_NOISE_LIMIT) ** 0.5)
        n_bins = min(int(1.5 * largest * excess), MOST_BINS)
        if n_bins <= largest:
            return outcome
        earlier_terms = training.terms
        terms = [
            term.with_kernel(kernel.scaled(training.scale))
            for term, kernel in zip(earlier_terms, hyper.kernels, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # there was a warning already
            try:
                training = prepare(source, terms, n_bins)
            except MemoryLimitError:  # what there is is kept, and there is a warning
                return outcome
        return self._of(training, replace(hyper, pair=None))  # its vectors are for other bins

    def solved(self, training: Training, hyper: Hyperparameters) -> GaussianOutcome:
        """Return the posterior at hyperparameters, with the present bins."""
        require_resolvable(hyper.kernels, hyper.noise_variance)
        return self._of(training, hyper).at_home()

    def relearned(self, training: Training, clock: Clock) -> GaussianOutcome:
        """Learn hyperparameters from those of the terms, with the present bins."""
        clock.stage("learn")
        hyper = self.learn(training)
        clock.stage("solve")
        outcome = self._from_start(self._of(training, hyper), *self._start(training))
        return self._without_structure(outcome, hyper.noise_bounds, clock).at_home()

    def warn(self, outcome: GaussianOutcome, stacklevel: int = 3) -> None:
        """Warn of what did not converge, and of bins that are too wide.

        ``stacklevel`` leads to who called ``fit``.
        """
        warn_unless_converged(
            outcome.fit.solution, self.solver, self.tol, self.max_iter, stacklevel + 1
        )
        if not outcome.hyper.converged:
            by_em = outcome.hyper.learner == "em"
            iterations = outcome.hyper.n_iter if by_em else self.learner_max_iter
            other = ', or use learner="vbem", which has the same optimum' if by_em else ""
            warnings.warn(
                f"learner={outcome.hyper.learner!r} stopped after {iterations} iterations, before "
                f"it reached learner_tol={self.learner_tol:g}; raise learner_max_iter{other}",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        warn_of_structure(outcome.too_wide, outcome.unresolved, self.bins, stacklevel + 1)
        warn_of_bins(outcome.fit.bin_error, stacklevel + 1)
        system = outcome.fit.system
        weights = system.layout.parts(system.weight)
        layout, terms = system.layout, outcome.training.terms
        warn_of_forms(terms, layout.cells, system.kernels, weights, stacklevel + 1)


def _too_coarse(fit: Fit) -> bool:
    error, noise = fit.refinable
    return error > _BIN_LIMIT or noise > _BIN_NOISE_LIMIT
