"""The result of a fit of functions of projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dsgp.models.base import FittedModel
from dsgp.models.facts import FitFacts
from dsgp.models.pursuit.sampling import Sampled
from dsgp.models.pursuit.search import Pursued
from dsgp.terms import Floats


@dataclass(frozen=True)
class SearchFacts:
    """Numbers of a search; an estimator shows each with a ``_``.

    Attributes
    ----------
    evidence : float
        Log evidence by Laplace's approximation, directions and functions integrated out.
    evidence_trace : list of [int, float]
        Projections and log evidence after each round.
    search_gain : float
        Nats that the last step gained.
    search_limited : bool
        Whether it ended at the limit of projections, not by the evidence.
    """

    evidence: float
    evidence_trace: list[list[float]]
    search_gain: float
    search_limited: bool

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all facts."""
        return [field.name for field in fields(cls)]

    @classmethod
    def of_settings(cls, fitted: Mapping[str, Any]) -> SearchFacts:
        """Return the facts of a stored fit."""
        return cls(**{name: fitted[f"{name}_"] for name in cls.names()})

    @classmethod
    def shown_names(cls) -> list[str]:
        """Return the names that an estimator has for them."""
        return [f"{name}_" for name in cls.names()]

    def shown(self) -> dict[str, Any]:
        """Return the facts under the names that an estimator has for them."""
        return {f"{name}_": getattr(self, name) for name in self.names()}


@dataclass(frozen=True)
class PursuitOutcome:
    """A fitted model, and facts of the search for it.

    Attributes
    ----------
    latent : FittedModel
    facts : FitFacts
    search_facts : SearchFacts
    relevance : ndarray of shape (D,)
        Of the columns of the projections.
    pursued : Pursued
    outcome : GaussianOutcome or LaplaceOutcome
        Of the functions for the directions that were found.
    run : Sampled or None
        A sampler's, where there was one.
    change : float
        Of what terms beside the projections contribute, in the last round of fits in turn, in
        standard deviations of the noise.
    """

    latent: FittedModel
    facts: FitFacts
    search_facts: SearchFacts
    relevance: Floats
    pursued: Pursued
    outcome: Any
    run: Sampled | None = None
    change: float = 0.0
