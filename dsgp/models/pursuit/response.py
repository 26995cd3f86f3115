"""Fits of functions of projections with any likelihood: search, then Laplace's posterior."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.likelihoods import Likelihood
from dsgp.models.checks import iterations_of, require_count
from dsgp.models.clock import Clock, Reading
from dsgp.models.facts import FitFacts
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.beside import (
    ROUNDS,
    SETTLED,
    Beside,
    TermSum,
    offset_by,
    warn_unless_settled,
)
from dsgp.models.pursuit.gaussian import FINAL_MAX_ITER, FINAL_TOL, Searched
from dsgp.models.pursuit.outcome import PursuitOutcome, SearchFacts
from dsgp.models.pursuit.projections import Projections, held, kernels_of
from dsgp.models.pursuit.search import Pursued, Search, searched
from dsgp.models.rows.columns import plain_terms
from dsgp.progress import progress
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.levels import prepare_rows
from dsgp.pursuit.rows import View
from dsgp.pursuit.search import Options
from dsgp.rows.sources import Source

# A positive number below all that matter.
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class ResponsePursuit:
    """The steps of a fit, and the parameters that it has for them.

    Attributes
    ----------
    search : Search
    fit : LaplaceFit
        Of the functions for directions that are known; where the constant begins is set later.
    direction_uncertainty : bool
    """

    search: Search
    fit: LaplaceFit
    direction_uncertainty: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> ResponsePursuit:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        search = Search.of(parameters)
        require_count("newton_max_iter", parameters["newton_max_iter"])
        fit = LaplaceFit(
            intercept=None,
            solver=parameters["solver"],
            learner=None,
            bins=parameters["bins"],
            tol=parameters["tol"],
            max_iter=iterations_of(parameters["solver"], parameters["max_iter"]),
            newton_max_iter=int(parameters["newton_max_iter"]),
            learner_tol=FINAL_TOL,
            learner_max_iter=FINAL_MAX_ITER,
            random_state=parameters["random_state"],
            verbose=search.verbose,
        )
        return cls(search, fit, bool(parameters["direction_uncertainty"]))

    def __call__(
        self,
        source: Source,
        beside: Beside,
        likelihood: Likelihood,
        random: np.random.Generator,
        clock: Clock,
        view: View | None = None,
        seen: Callable[[Responses], Responses] = lambda responses: responses,
    ) -> PursuitOutcome:
        """Fit to the rows of a source, all but the warnings that ``warn`` gives.

        Parameters
        ----------
        source : Source
        beside : Beside
            Which of its columns are projected, and the terms of the others.
        likelihood : Likelihood
        random : Generator
        clock : Clock
            Informed of the stages.
        view, seen : callable, optional
            Another target and other weights of the rows: of those of the search, and of those made
            ready for the likelihood.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``GeneralizedPursuitGP.fit`` does.
        """
        with one_blas_thread():
            try:
                if beside.terms:
                    return self._in_turn(source, beside, likelihood, random, clock, view, seen)
                search_result = self._searched(source, likelihood, random, clock, view)
                outcome = self._posterior(source, beside, search_result, clock, seen)
            except LinAlgError as error:
                raise ParameterError(
                    "float64 cannot resolve the functions, about which the rows are extremely "
                    "informative: rescale columns that are far from 0, or use fewer projections"
                ) from error
        clock.stage("keep")
        return self._kept(beside, search_result, outcome)

    def _in_turn(
        self,
        source: Source,
        beside: Beside,
        likelihood: Likelihood,
        random: np.random.Generator,
        clock: Clock,
        view: View | None,
        seen: Callable[[Responses], Responses],
    ) -> PursuitOutcome:
        """Search for directions beside the terms, and fit both, until the terms settle."""
        clock.stage("terms alone")
        learning = replace(self.fit, learner="marginal")
        everything = beside.all_terms(self.search.kernel)
        alone = learning(seen(learning.prepare(source, everything, clock)), likelihood, clock)
        names = tuple(source.names)
        contribution = TermSum(names, beside.of(alone.terms()))
        pursued = None
        for _ in range(ROUNDS):
            other = offset_by(source, beside, contribution)
            search_result = self._searched(other, likelihood, random, clock, view, pursued)
            pursued = search_result.pursued
            outcome = self._jointly(source, beside, search_result, clock, seen)
            before = contribution
            contribution = TermSum(names, beside.of(outcome.terms()))
            # Approximate posterior uncertainty of f in a row.
            system, rows = outcome.mode.system, outcome.responses.rows
            n_terms = max(system.layout.n_terms, 1)
            scale = math.sqrt(rows.n_rows * n_terms / max(float(system.weight.sum()), _TINY))
            change = contribution.change(before, source) / scale
            if change <= SETTLED:
                break
        clock.stage("keep")
        return replace(self._kept(beside, search_result, outcome), change=change)

    def _searched(
        self,
        source: Source,
        likelihood: Likelihood,
        random: np.random.Generator,
        clock: Clock,
        view: View | None,
        start: Pursued | None = None,
    ) -> Searched:
        """Search for directions among all columns of a source."""
        search = self.search
        with progress("reading", source.n_rows, enabled=search.verbose) as bar:
            prepared = prepare_rows(source, random, Reading(bar, clock), likelihood, view)
        if prepared.n_rows < 2:
            raise DataError(
                "cannot learn directions from 1 sample (n_samples = 1): at least 2 rows of "
                "positive weight are needed"
            )
        clock.stage("search")
        search.require_memory(len(prepared.standard.varying))
        options = Options(
            search.kernel, search.n_projections, search.n_starts, 1.0, True, prepared.response
        )
        frame = Frame.of(prepared.covariance, search.relevance)
        with progress("searching", enabled=search.verbose) as bar:
            pursued = searched(prepared, frame, options, random, bar, start)
        projections = Projections.of(prepared, pursued.state, search.relevance)
        return Searched(prepared, pursued, projections)

    def _posterior(
        self,
        source: Source,
        beside: Beside,
        search_result: Searched,
        clock: Clock,
        seen: Callable[[Responses], Responses],
    ) -> LaplaceOutcome:
        """Compute the posterior of the functions for the directions that were found."""
        response = search_result.pursued.state.response
        assert response is not None
        fit = replace(self.fit, level=search_result.prepared.standard.offset)
        responses = seen(self._rows(fit, source, beside, search_result, clock))
        outcome = fit(responses, response.likelihood, clock)
        return fit.without_structure(outcome, clock)

    def _jointly(
        self,
        source: Source,
        beside: Beside,
        search_result: Searched,
        clock: Clock,
        seen: Callable[[Responses], Responses],
    ) -> LaplaceOutcome:
        """Learn and fit the functions of projections and the terms beside them together."""
        response = search_result.pursued.state.response
        assert response is not None
        fit = replace(self.fit, learner="marginal")
        responses = seen(self._rows(fit, source, beside, search_result, clock))
        return fit(responses, response.likelihood, clock)

    def _rows(
        self, fit: LaplaceFit, source: Source, beside: Beside, search_result: Searched, clock: Clock
    ) -> Responses:
        """Prepared rows for functions of projections and the terms beside them."""
        state = search_result.pursued.state
        assert state.response is not None
        mapped = beside.projected_source(source, search_result.prepared, search_result.projections)
        kernels = kernels_of(state, state.response.unit**2)
        along = plain_terms(held(kernels) if beside.terms else kernels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # there was a warning already
            return fit.prepare(mapped, [*along, *beside.terms], clock)

    def _kept(
        self, beside: Beside, search_result: Searched, outcome: LaplaceOutcome
    ) -> PursuitOutcome:
        """Return the result of a fit."""
        prepared, pursued = search_result.prepared, search_result.pursued
        response = pursued.state.response
        assert response is not None
        search_facts = SearchFacts(
            evidence=float(pursued.state.evidence),
            evidence_trace=[[int(terms), float(value)] for terms, value in pursued.trace],
            search_gain=float(pursued.state.gain),
            search_limited=pursued.limited,
        )
        latent = ProjectedModel.around(
            outcome.model(),
            search_result.projections,
            tuple(beside.projected[j] for j in prepared.standard.varying),
            float(response.unit),
            self.direction_uncertainty,
        )
        facts = FitFacts.of_laplace(outcome, None)
        facts = replace(
            facts,
            constant_columns=[*prepared.constant, *facts.constant_columns],
            n_missing=facts.n_missing if beside.terms else {},
            converged=facts.converged and pursued.is_complete(search_facts.search_gain),
        )
        return PursuitOutcome(latent, facts, search_facts, pursued.relevance, pursued, outcome)

    def warn(self, fitted: PursuitOutcome) -> None:
        """Warn of what did not converge; called by ``fit``s."""
        self.fit.warn(fitted.outcome, stacklevel=4)
        gain = fitted.search_facts.search_gain
        self.search.warn(fitted.pursued, gain, len(fitted.relevance))
        warn_unless_settled(fitted.change)
