"""Searches for projections as estimators ask for them, whatever the target is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.errors import ConvergenceWarning, DataWarning, ParameterError
from dsgp.kernels import Matern, Matern52
from dsgp.models.checks import (
    iterations_of,
    require_bins,
    require_choice,
    require_count,
    require_positive,
)
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
        As for ``pursuit.search.Hyperparameters``.
    """

    state: State
    trace: list[tuple[int, float]]
    n_traced: int
    relevance: Floats
    failed: bool = False
    limited: bool = False

    def is_complete(self, gain: float) -> bool:
        """Whether the search ended where its model is best; ``gain`` is that of its last step."""
        return not self.failed and gain <= step_tolerance(self.state)


@dataclass(frozen=True)
class Search:
    """Parameters that all searches for projections have, checked.

    Attributes
    ----------
    kernel : Matern
        Of all functions, without parameters.
    n_projections : int or None
        None finds their number.
    relevance : bool
        Whether every input has a precision of its own.
    n_starts : int
    verbose : bool
    """

    kernel: Matern
    n_projections: int | None
    relevance: bool
    n_starts: int
    verbose: bool

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Search:
        """Check and take the parameters of an estimator.

        Raises
        ------
        ParameterError
            If one is out of its range.
        """
        kernel: Matern = Matern52() if parameters["kernel"] is None else parameters["kernel"]
        _require_kernel(kernel)
        wanted = parameters["n_projections"]
        if wanted != "auto":
            if isinstance(wanted, (str, bool)):
                raise ParameterError(f'n_projections must be "auto" or an integer, got {wanted!r}')
            require_count("n_projections", wanted)
        require_choice("relevance", parameters["relevance"], (True, False))
        require_choice("direction_uncertainty", parameters["direction_uncertainty"], (True, False))
        require_count("n_starts", parameters["n_starts"])
        require_bins(parameters["bins"])
        require_positive("tol", parameters["tol"])
        iterations_of(parameters["solver"], parameters["max_iter"])
        return cls(
            kernel=kernel,
            n_projections=None if wanted == "auto" else int(wanted),
            relevance=bool(parameters["relevance"]),
            n_starts=int(parameters["n_starts"]),
            verbose=bool(parameters["verbose"]),
        )

    def require_memory(self, n_inputs: int) -> None:
        """Raise ``MemoryLimitError`` if the search would not fit."""
        memory.require(
            f"a search for {'auto' if self.n_projections is None else self.n_projections} "
            f"projections of {n_inputs} columns",
            search_bytes(n_inputs, self.n_projections),
            "use fewer projections, or leave columns out",
        )

    def warn(self, pursued: Pursued, gain: float, n_inputs: int) -> None:
        """Warn of a search that ended early, or found little; called by what ``fit``s call.

        ``gain`` is that of its last step, and ``n_inputs`` the number of columns it looked at.
        """
        if pursued.failed:
            warnings.warn(
                "the search ended early, as float64 could not solve the equations of a round, so "
                "there may be more to find: rescale what is far from 0, or raise noise_variance"
                if pursued.state.response is None
                else "the search ended early, as float64 could not solve the equations of a round, "
                "so there may be more to find: rescale what is far from 0",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif gain > step_tolerance(pursued.state):
            warnings.warn(
                f"the last step of the search still gained {gain:.2g} nats of log evidence: "
                "directions and functions are near their optimum, but not at it",
                ConvergenceWarning,
                stacklevel=4,
            )
        n_taken = len(pursued.state.ridges)
        if self.n_projections is not None and n_taken < self.n_projections and not pursued.failed:
            warnings.warn(
                f"{self.n_projections} projections were requested, but only {n_taken} were found: "
                "more would have no effect",
                DataWarning,
                stacklevel=4,
            )
        elif not n_taken and n_inputs:
            warnings.warn(
                "no projection was found: by the evidence, a constant explains the target as "
                "well; the search cannot find functions that rise and fall more than a dozen "
                "times over the bulk of the rows",
                DataWarning,
                stacklevel=4,
            )


def _require_kernel(kernel: Any) -> None:
    if not isinstance(kernel, Matern):
        hint = " (did you forget the brackets?)" if isinstance(kernel, type) else ""
        raise ParameterError(
            "kernel must be Matern32(), Matern52() or Matern72() of dsgp.kernels, got "
            f"{kernel!r}{hint}"
        )
    if kernel.order < 2:
        raise ParameterError(
            f"kernel={kernel!r} has no derivative, which is needed to learn directions; use "
            "Matern32() or smoother"
        )
    if kernel.priors:
        raise ParameterError(
            f"kernel={kernel!r}: priors of projections are those of the search; leave them out, "
            f"{type(kernel).__name__}()"
        )
    if kernel.lengthscale is not None or kernel.variance is not None:
        raise ParameterError(
            f"kernel={kernel!r}: lengthscale and variance are learned for every projection; "
            f"leave them out, {type(kernel).__name__}()"
        )


def searched(
    prepared: Prepared,
    frame: Frame,
    options: Options,
    random: np.random.Generator,
    bar: Any,
    start: Pursued | None = None,
) -> Pursued:
    """Search with a progress bar, and sort the projections.

    ``start`` is what an earlier search of nearly the same rows found.
    """
    outcome = pursue(
        prepared.levels,
        frame,
        options,
        random,
        watch=lambda terms, value: bar.update(terms=terms, value=value),
        start=None if start is None else start.state,
    )
    level = prepared.levels[-1]
    state = ordered(level, outcome.state)
    return Pursued(
        state,
        [*outcome.trace, (len(state.ridges), state.evidence)],
        outcome.state.n_rows,
        relevance(level, state),
        outcome.failed,
        outcome.limited,
    )
