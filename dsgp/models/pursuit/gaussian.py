"""Fits of functions of projections with Gaussian noise: search, joint posterior, draws."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, DataWarning, MemoryLimitError, ParameterError
from dsgp.learning.search import NOISE
from dsgp.models.checks import iterations_of, require_choice, require_count, require_positive
from dsgp.models.clock import Clock, Reading
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.learner import Hyperparameters
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.beside import (
    ROUNDS,
    SETTLED,
    Beside,
    TermSum,
    left_by,
    warn_unless_settled,
)
from dsgp.models.pursuit.outcome import PursuitOutcome, SearchFacts
from dsgp.models.pursuit.projections import Projections, held, kernels_of
from dsgp.models.pursuit.sampling import Sampled, sampled
from dsgp.models.pursuit.search import Pursued, Search, searched
from dsgp.models.rows.columns import plain_terms
from dsgp.models.sampled import DrawsModel
from dsgp.progress import progress
from dsgp.pursuit.greedy import greedy
from dsgp.pursuit.joint import Frame, State
from dsgp.pursuit.levels import Prepared, prepare_rows
from dsgp.pursuit.projection import Rows as ProjectionRows
from dsgp.pursuit.rows import MemoryRows, Standard
from dsgp.pursuit.search import Options, from_directions, ordered, relevance
from dsgp.rows.sources import Source

_METHODS = ("refit", "greedy", "gibbs")
_NOISE_START = 0.5
# Smallest noise that a change of terms is compared with, as a share of the target's spread.
_LEAST_NOISE = 1e-3
# Tolerance in nats, and largest number of iterations, where functions of the final fit are learned
# again.
FINAL_TOL, FINAL_MAX_ITER = 0.1, 200


@dataclass(frozen=True)
class Searched:
    """Prepared rows, and the projections that were found in them."""

    prepared: Prepared
    pursued: Pursued
    projections: Projections


@dataclass(frozen=True)
class GaussianPursuit:
    """The steps of a fit, and the parameters that it has for them.

    Attributes
    ----------
    search : Search
    fit : GaussianFit
        Of the functions for directions that are known.
    method, n_draws, n_warmup, n_chains, noise_variance, direction_uncertainty
        As for ``ProjectionPursuitGPRegressor``.
    fixed_noise : bool
    """

    search: Search
    fit: GaussianFit
    method: str
    n_draws: int
    n_warmup: int
    n_chains: int
    noise_variance: float | None
    fixed_noise: bool
    direction_uncertainty: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> GaussianPursuit:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        search = Search.of(parameters)
        require_choice("method", parameters["method"], _METHODS)
        counts = {name: parameters[name] for name in ("n_draws", "n_warmup", "n_chains")}
        for name, value in counts.items():
            require_count(name, value)
        noise_variance, fixed_noise = parameters["noise_variance"], parameters["fixed_noise"]
        if noise_variance is not None:
            require_positive("noise_variance", noise_variance)
        elif fixed_noise:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")
        fit = GaussianFit(
            noise_variance=None,
            fixed_noise=True,
            solver=parameters["solver"],
            learner=None,
            bins=parameters["bins"],
            tol=parameters["tol"],
            max_iter=iterations_of(parameters["solver"], parameters["max_iter"]),
            learner_tol=FINAL_TOL,
            learner_max_iter=FINAL_MAX_ITER,
            verbose=search.verbose,
        )
        return cls(
            search=search,
            fit=fit,
            method=parameters["method"],
            noise_variance=None if noise_variance is None else float(noise_variance),
            fixed_noise=bool(fixed_noise),
            direction_uncertainty=bool(parameters["direction_uncertainty"]),
            **{name: int(value) for name, value in counts.items()},
        )

    def __call__(
        self,
        source: Source,
        beside: Beside,
        log_jacobian: float,
        random: np.random.Generator,
        clock: Clock,
    ) -> PursuitOutcome:
        """Fit to the rows of a source, all but the warnings that ``warn`` gives.

        Parameters
        ----------
        source : Source
        beside : Beside
            Which of its columns are projected, and the terms of the others.
        log_jacobian : float
            Converts log densities of the transformed target to those of the target.
        random : Generator
        clock : Clock
            Informed of the stages.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``ProjectionPursuitGPRegressor.fit`` does.
        """
        if beside.terms and self.method == "gibbs":
            raise ParameterError(
                f"method='gibbs' draws functions of projections only, and {beside.terms[0].name!r} "
                "is a term beside them: use method='refit', or leave its columns out"
            )
        with one_blas_thread():
            try:
                if beside.terms:
                    return self._in_turn(source, beside, log_jacobian, random, clock)
                search_result = self._searched(source, random, clock)
                run = None
                if self.method == "gibbs":
                    clock.stage("sample")
                    prepared, pursued = search_result.prepared, search_result.pursued
                    run = self._sampled(prepared, pursued, random).shifted(log_jacobian)
                outcome = self._posterior(source, beside, search_result, clock)
            except LinAlgError as error:
                raise ParameterError(
                    "float64 cannot resolve noise that is so small compared with the functions: "
                    "raise noise_variance, or leave it out"
                ) from error
        clock.stage("keep")
        return self._kept(beside, search_result, outcome, run, log_jacobian)

    def _in_turn(
        self,
        source: Source,
        beside: Beside,
        log_jacobian: float,
        random: np.random.Generator,
        clock: Clock,
    ) -> PursuitOutcome:
        """Search for directions in the terms' residuals, and fit both, until the terms settle."""
        clock.stage("terms alone")
        alone = self._learning(None)(source, beside.all_terms(self.search.kernel), clock)
        names = tuple(source.names)
        contribution = TermSum(names, beside.of(alone.terms()))
        pursued = None
        for _ in range(ROUNDS):
            left = left_by(source, beside, contribution)
            search_result = self._searched(left, random, clock, pursued)
            pursued = search_result.pursued
            outcome = self._jointly(source, beside, search_result, clock)
            before = contribution
            contribution = TermSum(names, beside.of(outcome.terms()))
            scale = max(math.sqrt(outcome.noise_variance), _LEAST_NOISE * outcome.training.scale)
            change = contribution.change(before, source) / scale
            if change <= SETTLED:
                break
        clock.stage("keep")
        kept = self._kept(beside, search_result, outcome, None, log_jacobian)
        return replace(kept, change=change)

    def _searched(
        self,
        source: Source,
        random: np.random.Generator,
        clock: Clock,
        start: Pursued | None = None,
    ) -> Searched:
        """Search for directions among all columns of a source."""
        with progress("reading", source.n_rows, enabled=self.search.verbose) as bar:
            prepared = prepare_rows(source, random, Reading(bar, clock))
        if prepared.n_rows < 2:
            raise DataError(
                "cannot learn directions from 1 sample (n_samples = 1): at least 2 rows of "
                "positive weight are needed"
            )
        if self.method != "refit":
            _rows_in_memory(prepared, self.method)
        clock.stage("search")
        pursued = self._pursued(prepared, random, start)
        return Searched(
            prepared, pursued, Projections.of(prepared, pursued.state, self.search.relevance)
        )

    def _pursued(
        self, prepared: Prepared, random: np.random.Generator, start: Pursued | None
    ) -> Pursued:
        """Search for projections."""
        standard, level = prepared.standard, prepared.levels[-1]
        greedily = self.method == "greedy"
        frame = Frame.of(prepared.covariance, self.search.relevance and not greedily)
        noise = _NOISE_START
        if self.noise_variance is not None:
            noise = self.noise_variance / (standard.spread**2 * standard.weight_scale)
        search = self.search
        search.require_memory(len(standard.varying))
        with progress("searching", enabled=search.verbose) as bar:
            if not greedily:
                options = Options(
                    search.kernel, search.n_projections, search.n_starts, noise, self.fixed_noise
                )
                return searched(prepared, frame, options, random, bar, start)
            fitted = greedy(
                _rows_in_memory(prepared, self.method),
                search.kernel,
                n_projections=search.n_projections,
                n_starts=search.n_starts,
                noise_variance=noise if self.fixed_noise else None,
                random=random,
                watch=lambda step: bar.update(terms=step.terms, value=step.validation),
            )
            noise = noise if self.fixed_noise else max(fitted.noise_variance, NOISE[0])
            state = from_directions(
                level, frame, fitted.directions, fitted.kernels, noise, self.fixed_noise
            )
        state = ordered(level, state)
        trace = [(step.terms, float(step.evidence)) for step in fitted.trace]
        return Pursued(state, trace, fitted.n_searched, relevance(level, state))

    def _sampled(
        self, prepared: Prepared, pursued: Pursued, random: np.random.Generator
    ) -> Sampled:
        with progress("sampling", enabled=self.search.verbose) as bar:
            return sampled(
                _rows_in_memory(prepared, self.method),
                pursued.state,
                prepared.standard,
                self.search.kernel,
                n_draws=self.n_draws,
                n_warmup=self.n_warmup,
                n_chains=self.n_chains,
                random=random,
                watch=lambda sweeps: bar.update(sweeps=sweeps),
            )

    def _posterior(
        self, source: Source, beside: Beside, search_result: Searched, clock: Clock
    ) -> GaussianOutcome:
        """Compute the joint posterior of the functions for the directions that were found.

        The search uses smooth functions: if they leave structure, hyperparameters are learned
        again.
        """
        standard, state = search_result.prepared.standard, search_result.pursued.state
        mapped = beside.projected_source(source, search_result.prepared, search_result.projections)
        kernels = kernels_of(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # there was a warning already
            training = self.fit.prepare(mapped, plain_terms(kernels), clock)
        ratio = (standard.spread / training.scale) ** 2
        noise = _noise_of(state, standard) / training.noise_scale
        n_rows = training.equations.n_rows
        if not state.fixed_noise and not len(state.ridges) and n_rows > 1:
            # the constant takes one degree of freedom, and nothing else does
            noise *= n_rows / (n_rows - 1)
        bounds = (noise, noise) if self.fixed_noise else (min(NOISE[0], noise), NOISE[1])
        kept = [kernels[name] for name in training.equations.layout.names]
        hyper = Hyperparameters(
            [
                kernel.with_parameters(variance=ratio * float(kernel.variance or 0.0))
                for kernel in kept
            ],
            noise,
            (noise, noise),
            None,
            noise_holds_bins=False,
        )
        return self.fit.finish(mapped, training, hyper, clock, bounds)

    def _jointly(
        self, source: Source, beside: Beside, search_result: Searched, clock: Clock
    ) -> GaussianOutcome:
        """Learn and fit the functions of projections and the terms beside them together."""
        standard, state = search_result.prepared.standard, search_result.pursued.state
        mapped = beside.projected_source(source, search_result.prepared, search_result.projections)
        along = plain_terms(held(kernels_of(state, standard.spread**2)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # there was a warning already
            fit = self._learning(_noise_of(state, standard))
            return fit(mapped, [*along, *beside.terms], clock)

    def _learning(self, noise_variance: float | None) -> GaussianFit:
        """Return the fit with a learner, which begins with a noise variance."""
        if self.noise_variance is not None and (self.fixed_noise or noise_variance is None):
            noise_variance = self.noise_variance
        return replace(
            self.fit,
            learner="marginal",
            noise_variance=noise_variance,
            fixed_noise=self.fixed_noise,
        )

    def _kept(
        self,
        beside: Beside,
        search_result: Searched,
        outcome: GaussianOutcome,
        run: Sampled | None,
        log_jacobian: float,
    ) -> PursuitOutcome:
        """Return the result of a fit."""
        prepared, pursued = search_result.prepared, search_result.pursued
        standard, state = prepared.standard, pursued.state
        facts = FitFacts.of_gaussian(outcome, log_jacobian)
        unit = math.log(standard.spread)
        search_facts = SearchFacts(
            evidence=float(state.evidence - state.n_rows * unit) + log_jacobian,
            evidence_trace=[
                [int(terms), float(value - pursued.n_traced * unit) + log_jacobian]
                for terms, value in pursued.trace
            ],
            # Greedy terms are found one by one, and meet the tolerance of their own searches.
            search_gain=0.0 if self.method == "greedy" else float(state.gain),
            search_limited=pursued.limited,
        )
        latent: Any = ProjectedModel.around(
            outcome.model(),
            search_result.projections,
            tuple(beside.projected[j] for j in standard.varying),
            math.sqrt(facts.target_variance),
            self.direction_uncertainty,
        )
        noise_variance = outcome.noise_variance
        if run is not None:
            latent = DrawsModel.of(latent, run, standard.offset)
            noise_variance = float(run.draws.noise_variance.mean())
        facts = replace(
            facts,
            noise_variance=noise_variance,
            constant_columns=[*prepared.constant, *facts.constant_columns],
            n_missing=facts.n_missing if beside.terms else {},
            converged=facts.converged
            and pursued.is_complete(search_facts.search_gain)
            and (run is None or run.mixed),
        )
        return PursuitOutcome(latent, facts, search_facts, pursued.relevance, pursued, outcome, run)

    def warn(self, fitted: PursuitOutcome) -> None:
        """Warn of what did not converge; called by ``fit``s."""
        self.fit.warn(fitted.outcome, stacklevel=4)
        gain = fitted.search_facts.search_gain
        self.search.warn(fitted.pursued, gain, len(fitted.relevance))
        warn_unless_settled(fitted.change)
        if fitted.run is not None:
            fitted.run.warn(stacklevel=4)


def _noise_of(state: State, standard: Standard) -> float:
    """Noise variance of a state, in units of the target, for weights as they are."""
    return state.noise_variance * standard.spread**2 * standard.weight_scale


def _rows_in_memory(prepared: Prepared, method: str) -> ProjectionRows:
    rows = prepared.levels[-1].rows
    if not isinstance(rows, MemoryRows):
        raise MemoryLimitError(
            f"method={method!r} needs all rows in memory, and {prepared.n_rows} rows of "
            f"{len(prepared.standard.varying)} columns are too many: method='refit' streams"
        )
    block = rows.block
    return ProjectionRows(
        block.inputs, block.target, block.weight if len(block.root_weight) else np.empty(0)
    )
