"""Functions of projections beside the terms of a sum: `projections=` of an additive model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern
from dsgp.models.clock import Clock
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.pursuit.beside import Beside, TermSum, left_by
from dsgp.models.pursuit.gaussian import GaussianPursuit
from dsgp.models.pursuit.outcome import PursuitOutcome
from dsgp.rows.sources import Source
from dsgp.rows.sources.kinds import NUMBER
from dsgp.terms import BoundTerm

# Number of random directions in each search, as in the estimators with projections.
_STARTS = 10
_SEED = 0


def require_projections(value: Any) -> None:
    """Raise ``ParameterError`` if it is not "auto" or a number of projections."""
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not (value == "auto" if isinstance(value, str) else is_number and value >= 0):
        raise ParameterError(f'projections must be "auto" or a number of them, got {value!r}')


def pursuit_of(parameters: Mapping[str, Any]) -> GaussianPursuit | None:
    """Return the search that the parameters of an additive model ask for; None for none.

    Raises
    ------
    ParameterError
        If ``projections`` is nothing of the kind, or does not go with the other parameters.
    """
    wanted = parameters["projections"]
    require_projections(wanted)
    if not wanted:
        return None
    if parameters["learner"] != "marginal" or parameters["method"] is not None:
        raise ParameterError(
            "projections are learned together with the terms by the marginal likelihood: leave "
            'learner="marginal" and method=None, or projections=0'
        )
    if parameters["missing"] != "error":
        raise ParameterError(
            "a projection needs all its columns, and missing='ignore' lets them be incomplete: "
            "fill the gaps, or use remainder=[...] of complete columns instead of projections"
        )
    kernel = parameters["kernel"]
    plain = kernel if isinstance(kernel, Matern) else None
    if plain is not None:
        plain = type(plain)()
    return GaussianPursuit.of(
        {
            **parameters,
            "kernel": plain,
            "n_projections": wanted,
            "relevance": True,
            "direction_uncertainty": True,
            "n_starts": _STARTS,
            "method": "refit",
        }
    )


def with_projections(
    pursuit: GaussianPursuit,
    outcome: GaussianOutcome,
    source: Source,
    log_jacobian: float,
    clock: Clock,
) -> PursuitOutcome:
    """Search for projections in what fitted terms leave, and fit both together.

    Parameters
    ----------
    pursuit : GaussianPursuit
    outcome : GaussianOutcome
        Of the terms by themselves; learning begins at their hyperparameters.
    source : Source
    log_jacobian : float
        As for ``GaussianPursuit``.
    clock : Clock

    Raises
    ------
    DataError
        If there is no column of numbers to project.
    """
    terms = [term.bound for term in outcome.terms()]
    projected = _projected(source, terms)
    if not projected:
        raise DataError(
            "projections= mixes columns of numbers, and none of the table's varies; leave it out, "
            "or use interactions= of the others"
        )
    random = np.random.default_rng(_SEED)
    if not terms:  # other columns are not used
        nothing = TermSum(tuple(source.names), [])
        source = left_by(source, Beside(projected), nothing)
    fitted = pursuit(source, Beside(projected, terms), log_jacobian, random, clock)
    found = len(fitted.pursued.state.ridges)
    note = f"{found} projections of {len(projected)} columns of numbers beside the terms"
    facts = replace(fitted.facts, learner_notes=[*fitted.facts.learner_notes, note])
    return replace(fitted, facts=facts)


def _projected(source: Source, terms: list[BoundTerm]) -> tuple[str, ...]:
    """Columns of numbers; neither dates nor levels, by their types or because a term says so."""
    levels = {one.column for term in terms for one in term.level_inputs}
    numbers = [name for name in source.names if source.kinds.get(name, NUMBER).is_number]
    return tuple(name for name in numbers if name not in levels)
