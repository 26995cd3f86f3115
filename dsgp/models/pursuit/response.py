"""Fits of functions of projections with any likelihood: search, then Laplace's posterior."""

from __future__ import annotations

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
from dsgp.models.pursuit.gaussian import FINAL_MAX_ITER, FINAL_TOL
from dsgp.models.pursuit.outcome import PursuitOutcome, SearchFacts
from dsgp.models.pursuit.projections import Projections, projected_source
from dsgp.models.pursuit.search import Pursued, Search, searched
from dsgp.models.rows.columns import plain_terms
from dsgp.progress import progress
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.levels import Prepared, prepare_rows
from dsgp.pursuit.rows import View
from dsgp.pursuit.search import Options
from dsgp.rows.sources import Source


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
        likelihood : Likelihood
        random : Generator
        clock : Clock
            Told the stages.
        view, seen : callable, optional
            Another target and other weights of the rows: of those of the search, and of those made
            ready for the likelihood.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``GeneralizedPursuitGP.fit`` does.
        """
        search = self.search
        with one_blas_thread():
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
            try:
                with progress("searching", enabled=search.verbose) as bar:
                    pursued = searched(prepared, frame, options, random, bar)
                projections = Projections.of(prepared, pursued.state, search.relevance)
                outcome = self._posterior(source, prepared, projections, pursued, clock, seen)
            except LinAlgError as error:
                raise ParameterError(
                    "float64 cannot resolve the functions beside what the rows tell of them: "
                    "rescale columns that are far from 0, or ask for fewer projections"
                ) from error
        clock.stage("keep")
        return self._kept(source, prepared, pursued, projections, outcome)

    def _posterior(
        self,
        source: Source,
        prepared: Prepared,
        projections: Projections,
        pursued: Pursued,
        clock: Clock,
        seen: Callable[[Responses], Responses],
    ) -> LaplaceOutcome:
        """Compute the posterior of the functions for the directions that were found."""
        standard, response = prepared.standard, pursued.state.response
        assert response is not None
        mapped, kernels = projected_source(
            source, standard, projections, pursued.state, response.unit**2
        )
        fit = replace(self.fit, level=standard.offset)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # said already
            responses = seen(fit.prepare(mapped, plain_terms(kernels), clock))
        outcome = fit(responses, response.likelihood, clock)
        return fit.without_structure(outcome, clock)

    def _kept(
        self,
        source: Source,
        prepared: Prepared,
        pursued: Pursued,
        projections: Projections,
        outcome: LaplaceOutcome,
    ) -> PursuitOutcome:
        """Take what a fit came to."""
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
            projections,
            tuple(source.names[j] for j in prepared.standard.varying),
            float(response.unit),
            self.direction_uncertainty,
        )
        facts = FitFacts.of_laplace(outcome, None)
        facts = replace(
            facts,
            constant_columns=prepared.constant,
            n_missing={},
            converged=facts.converged and pursued.is_complete(search_facts.search_gain),
        )
        return PursuitOutcome(latent, facts, search_facts, pursued.relevance, pursued, outcome)

    def warn(self, fitted: PursuitOutcome) -> None:
        """Warn of what did not converge; called by ``fit``s."""
        self.fit.warn(fitted.outcome)
        gain = fitted.search_facts.search_gain
        self.search.warn(fitted.pursued, gain, len(fitted.relevance))
