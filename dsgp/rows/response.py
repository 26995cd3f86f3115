"""Offsets, exposures and trials of rows, beside inputs, target and weight, for all models.

An offset is added to f, an exposure through its logarithm, and trials are those of a binomial
target. A source has them as its ``extra`` numbers, under these roles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from dsgp.errors import DataError, ParameterError
from dsgp.likelihoods import Likelihood
from dsgp.likelihoods.checks import LARGEST_COUNT
from dsgp.terms import Floats

OFFSET, EXPOSURE, TRIALS = ("offset", "exposure", "trials")
# Largest offset: on a logarithmic scale the log of 1e100, on the scale of the target the largest
# target.
_FURTHEST, _LARGEST = float(np.log(1e100)), 1e60
# Largest log of a training row's exposure relative to the geometric mean of all: the information of
# a row about f is proportional to it, and is squared.
_MOST_UNEVEN = float(np.log(1e40))


def beside(offset: Any, exposure: Any, trials: Any) -> dict[str, Any]:
    """Return the user's values by their roles, without those that are None."""
    return {OFFSET: offset, EXPOSURE: exposure, TRIALS: trials}


def require_meaning(likelihood: Likelihood, extra: Mapping[str, Any]) -> None:
    """Raise ``ParameterError`` for numbers of rows that a likelihood does not use."""
    if extra.get(EXPOSURE) is not None and likelihood.link_name != "log":
        raise ParameterError(
            f"exposure is for likelihoods with a log link, and {likelihood!r} has the "
            f"{likelihood.link_name} link; give an offset on the scale of the link"
        )
    if extra.get(TRIALS) is not None and likelihood.name != "binomial":
        raise ParameterError(f"trials are for likelihood='binomial', and this is {likelihood!r}")


def shift_of(extra: Mapping[str, Floats]) -> Floats | float:
    """Return what rows add to f: offsets, and exposures by their logarithms; (n,), or 0.0."""
    shift: Floats | float = extra.get(OFFSET, 0.0)
    if EXPOSURE in extra:
        shift = shift + np.log(extra[EXPOSURE])
    return shift


def require_usable(
    likelihood: Likelihood, extra: Mapping[str, Floats], names: Mapping[str, str], first_row: int
) -> None:
    """Raise ``DataError`` for an exposure, an offset or a number of trials that is not valid.

    Parameters
    ----------
    likelihood : Likelihood
    extra : mapping of role to ndarray of shape (n,)
    names : mapping of role to str
        Their names in messages.
    first_row : int
        Number of the first of the rows in the table.
    """
    if EXPOSURE in extra:
        require_positive(extra[EXPOSURE], names[EXPOSURE], first_row=first_row)
    if extra.keys() & {OFFSET, EXPOSURE}:
        require_shift(likelihood, np.asarray(shift_of(extra)), extra, names, first_row)
    if TRIALS in extra:
        require_trials(extra[TRIALS], names[TRIALS], first_row)


def require_shift(
    likelihood: Likelihood,
    shift: Floats,
    roles: Collection[str],
    names: Mapping[str, str] | None = None,
    first_row: int | Callable[[int], int] = 0,
    *,
    is_training: bool = False,
) -> None:
    """Raise ``DataError`` for offsets and exposures that take f beyond the range of float64.

    Parameters
    ----------
    likelihood : Likelihood
    shift : ndarray of shape (n,)
        As for ``shift_of``.
    roles : collection of str
        Which of offset and exposure were given.
    names : mapping of role to str, optional
        Their names in messages.
    first_row : int or callable
        Number of the first of the rows in the table, or a function that numbers a row.
    is_training : bool
        Whether functions are to be fitted to the rows, of which none may outweigh all others.
    """
    is_identity = likelihood.link_name == "identity"
    limit = _LARGEST if is_identity else _FURTHEST
    if not len(shift):
        return
    low, high, most = shift.min(), shift.max(), limit
    if is_training and likelihood.link_name == "log":
        most = min(limit, float(shift.mean()) + _MOST_UNEVEN)
    if -limit <= low and high <= most:
        return
    position = int(np.argmax(~((shift >= -limit) & (shift <= most))))
    row = first_row(position) if callable(first_row) else first_row + position
    named = {role: role for role in roles} | dict(names or {})
    parts = [named[OFFSET]] if OFFSET in roles else []
    parts += [f"log({named[EXPOSURE]})"] if EXPOSURE in roles else []
    remedy = (
        "rescale it with the target"
        if is_identity
        else "offsets are on the scale of the link, so that the logarithm of an exposure is one, "
        "and not the exposure itself; give exposures in a unit of which rows have about one"
        if likelihood.link_name == "log"
        else f"offsets are on the scale of the {likelihood.link_name} link, where ±10 is next to "
        "certain"
    )
    raise DataError(
        f"{' + '.join(parts)} is {shift[position]:g} in row {row} (counted from 0), and must be "
        f"from {-limit:.3g} to {most:.3g}: {remedy}"
    )


def require_positive(values: Floats, what: str, row: int | None = None, first_row: int = 0) -> None:
    """Raise ``DataError`` where a number of the rows is not positive; ``row`` names the first."""
    bad = ~(values > 0)
    if bad.any():
        position = int(np.argmax(bad))
        raise DataError(
            f"{what} must be positive in every row, got {values[position]:g} in row "
            f"{first_row + position if row is None else row} (counted from 0, {int(bad.sum())} of "
            f"{len(values)} rows): leave those rows out, or correct them"
        )


def require_trials(values: Floats, what: str, first_row: int = 0) -> None:
    """Raise ``DataError`` where a number of trials is no whole number of at least 1."""
    bad = ~((values >= 1) & (values <= LARGEST_COUNT) & (values == np.floor(values)))
    if bad.any():
        position = int(np.argmax(bad))
        raise DataError(
            f"{what} must be whole numbers of at least 1 and at most {LARGEST_COUNT:.0e}, got "
            f"{values[position]:g} in row {first_row + position} (counted from 0): leave out rows "
            "without trials"
        )


def named_roles(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of further numbers in messages: those of their columns, if they have any."""
    return {role: _named(role, values) for role, values in extra.items()}


def _named(role: str, values: Any) -> str:
    name = values if isinstance(values, str) else getattr(values, "name", None)
    return f"{role} {name!r}" if isinstance(name, str) and not hasattr(values, "rechunk") else role
