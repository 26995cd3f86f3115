"""Searches for projections as estimators ask for them, whatever the target is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive import SOLVERS
from dsgp.errors import ConvergenceWarning, DataWarning, ParameterError
from dsgp.estimators.parameters import (
    require_bins,
    require_choice,
    require_count,
    require_positive,
)
from dsgp.kernels import Matern, Matern52
from dsgp.pursuit.joint import Frame, State
from dsgp.pursuit.levels import Prepared
from dsgp.pursuit.search import (
    Options,
    ordered,
    pursue,
    relevance,
    search_bytes,
    step_tolerance,
)
from dsgp.terms import Floats


@dataclass(frozen=True)
class Pursued:
    """What a search found, in standard units.

    Attributes
    ----------
    state : State
    trace : list of (int, float)
        Projections and log evidence after each round.
    n_traced : int
        Rows that the trace is of.
    relevance : ndarray of shape (D,)
    failed, limited : bool
        As of ``pursuit.search.Found``.
    """

    state: State
    trace: list[tuple[int, float]]
    n_traced: int
    relevance: Floats
    failed: bool = False
    limited: bool = False


def kernel_of(model: Any) -> Matern:
    """Kernel of all functions of an estimator, without parameters."""
    kernel: Matern = Matern52() if model.kernel is None else model.kernel
    return kernel


def wanted_of(model: Any) -> int | None:
    """Return the number of projections asked for, or None for "auto"."""
    return None if model.n_projections == "auto" else int(model.n_projections)


def require_search(model: Any) -> None:
    """Raise ``ParameterError`` if a parameter that all searches have is out of its range."""
    kernel = kernel_of(model)
    if not isinstance(kernel, Matern):
        hint = " (did you forget the brackets?)" if isinstance(kernel, type) else ""
        raise ParameterError(
            "kernel must be Matern32(), Matern52() or Matern72() of dsgp.kernels, got "
            f"{kernel!r}{hint}"
        )
    if kernel.order < 2:
        raise ParameterError(
            f"kernel={kernel!r} has no derivative, which directions are learned by; take "
            "Matern32() or smoother"
        )
    if kernel.lengthscale is not None or kernel.variance is not None:
        raise ParameterError(
            f"kernel={kernel!r}: lengthscale and variance are learned for every projection; "
            f"leave them out, {type(kernel).__name__}()"
        )
    if model.n_projections != "auto":
        if isinstance(model.n_projections, (str, bool)):
            raise ParameterError(
                f'n_projections must be "auto" or an integer, got {model.n_projections!r}'
            )
        require_count("n_projections", model.n_projections)
    require_choice("relevance", model.relevance, (True, False))
    require_choice("direction_uncertainty", model.direction_uncertainty, (True, False))
    require_choice("solver", model.solver, tuple(SOLVERS))
    require_count("n_starts", model.n_starts)
    require_bins(model.bins)
    require_positive("tol", model.tol)
    if model.max_iter is not None:
        require_count("max_iter", model.max_iter)


def require_memory(model: Any, n_inputs: int) -> None:
    """Raise ``MemoryLimitError`` if the search would not fit."""
    memory.require(
        f"a search for {model.n_projections} projections of {n_inputs} columns",
        search_bytes(n_inputs, wanted_of(model)),
        "ask for fewer projections, or leave columns out",
    )


def searched(
    prepared: Prepared, frame: Frame, options: Options, random: np.random.Generator, bar: Any
) -> Pursued:
    """Search, telling a progress bar, and put the projections in order."""
    found = pursue(
        prepared.levels,
        frame,
        options,
        random,
        watch=lambda terms, value: bar.update(terms=terms, value=value),
    )
    level = prepared.levels[-1]
    state = ordered(level, found.state)
    return Pursued(
        state,
        [*found.trace, (len(state.ridges), state.evidence)],
        found.state.n_rows,
        relevance(level, state),
        found.failed,
        found.limited,
    )


def found_all(model: Any, pursued: Pursued) -> bool:
    """Whether a search ended where its model is best."""
    return not pursued.failed and model.search_gain_ <= step_tolerance(pursued.state)


def warn_of_search(model: Any, pursued: Pursued) -> None:
    """Warn of a search that ended early, or found little; called by ``fit``s."""
    if pursued.failed:
        warnings.warn(
            "the search ended early, as float64 could not solve the equations of a round, so "
            "there may be more to find: rescale what is far from 0, or raise noise_variance"
            if pursued.state.response is None
            else "the search ended early, as float64 could not solve the equations of a round, so "
            "there may be more to find: rescale what is far from 0",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif model.search_gain_ > step_tolerance(pursued.state):
        warnings.warn(
            f"the last step of the search still gained {model.search_gain_:.2g} nats: "
            "directions and functions are near their best ones, not there",
            ConvergenceWarning,
            stacklevel=3,
        )
    wanted, found = model.n_projections, len(pursued.state.ridges)
    if wanted != "auto" and found < int(wanted) and not pursued.failed:
        warnings.warn(
            f"n_projections={wanted}, but only {found} found: further ones would do nothing",
            DataWarning,
            stacklevel=3,
        )
    elif not found and model._used:
        warnings.warn(
            "no projection found: by the evidence a constant explains the target as well; "
            "functions that go up and down more than a dozen times over the bulk of the rows "
            "are beyond the search",
            DataWarning,
            stacklevel=3,
        )
