"""Projections and a remainder: parts of a model beyond terms of columns and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from dsgp.errors import ParameterError
from dsgp.models.base import FittedModel
from dsgp.models.clock import Clock
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.projections import pursuit_of, with_projections
from dsgp.models.gaussian.remainder import RemainderOutcome, with_remainder
from dsgp.models.gaussian.target import Target
from dsgp.models.interactions.search import Found
from dsgp.models.pursuit.gaussian import GaussianPursuit
from dsgp.models.pursuit.outcome import PursuitOutcome
from dsgp.remainder import Remainder
from dsgp.rows.sources import Source, Wanted
from dsgp.terms import BoundTerm


@dataclass(frozen=True)
class Whole:
    """A fitted sum with all of its parts.

    Attributes
    ----------
    latent : FittedModel
    noise_variance : float
        Of a row of weight 1.
    facts : FitFacts
    found : Found
        Terms and interactions by themselves.
    pursued : PursuitOutcome or None
    beside : RemainderOutcome or None
    """

    latent: FittedModel
    noise_variance: float
    facts: FitFacts
    found: Found[GaussianOutcome]
    pursued: PursuitOutcome | None = None
    beside: RemainderOutcome | None = None


@dataclass(frozen=True)
class Beyond:
    """Parts to be fitted beyond terms of columns and pairs.

    Attributes
    ----------
    pursuit : GaussianPursuit or None
    remainder : Remainder or None
    fixed_noise : bool
        Whether the noise variance is known, as it also is without a learner.
    verbose : bool
        As for the estimator.
    """

    pursuit: GaussianPursuit | None
    remainder: Remainder | None
    fixed_noise: bool
    verbose: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range, or they do not go together.
        """
        remainder = Remainder.of(parameters["remainder"])
        if remainder is not None and parameters["method"] is not None:
            raise ParameterError(
                f"method={parameters['method']!r} draws the hyperparameters of terms, and cannot "
                "draw those of a remainder: leave one of them out"
            )
        fixed_noise = parameters["fixed_noise"] or parameters["learner"] is None
        return cls(pursuit_of(parameters), remainder, fixed_noise, parameters["verbose"])

    def wanted(self, wanted: Wanted) -> Wanted:
        """Return the required columns of a table, if the terms require some."""
        if self.pursuit is not None:
            return replace(wanted, columns=None)
        return wanted if self.remainder is None else self.remainder.widened(wanted)

    def __call__(
        self,
        found: Found[GaussianOutcome],
        source: Source,
        target: Target,
        terms: list[BoundTerm],
        clock: Clock,
    ) -> Whole:
        """Fit projections and remainder, after and together with terms and interactions.

        Parameters
        ----------
        found : Found
        source : Source
            Its target is that of the user.
        target : Target
        terms : list of BoundTerm
            As they were specified.
        clock : Clock
        """
        outcome = found.outcome
        facts = FitFacts.of_gaussian(outcome, target.log_jacobian)
        whole = Whole(outcome.model(), outcome.noise_variance, facts, found)
        rows = target.of_rows(source)
        if self.pursuit is not None:
            fitted = with_projections(self.pursuit, outcome, rows, target.log_jacobian, clock)
            noise_variance = fitted.outcome.noise_variance
            whole = Whole(fitted.latent, noise_variance, fitted.facts, found, fitted)
        whole = replace(whole, facts=whole.facts.with_notes(found.notes))
        if self.remainder is None:
            return whole
        beside = with_remainder(
            whole.latent,
            whole.noise_variance,
            rows,
            terms,
            self.remainder,
            clock,
            fixed_noise=self.fixed_noise,
            verbose=self.verbose,
        )
        return replace(
            whole,
            latent=beside.model,
            noise_variance=beside.noise_variance,
            facts=beside.added_to(whole.facts),
            beside=beside,
        )

    def warn(self, whole: Whole, fit: GaussianFit) -> None:
        """Warn of what did not converge; called by ``fit``s."""
        if self.pursuit is not None and whole.pursued is not None:
            self.pursuit.warn(whole.pursued)
        else:
            fit.warn(whole.found.outcome, stacklevel=4)
        if whole.beside is not None:
            whole.beside.warn()
