"""Warnings of structure that a fit may have missed, whatever its noise is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from dsgp.errors import ConvergenceWarning, DataWarning, ParameterError
from dsgp.kernels import Kernel
from dsgp.terms import BoundTerm, Cells, Floats, TensorCells
from dsgp.terms.dense import MOST_COLUMNS

# Error of the bins, in posterior standard deviations, from which there is a warning.
BIN_ERROR = 0.3


def warn_of_bins(bin_error: float, stacklevel: int) -> None:
    """Warn of bins that change the function; ``stacklevel`` leads to who called ``fit``."""
    if bin_error > BIN_ERROR:
        warnings.warn(
            f"bins change the function by about {bin_error:.2g} of its posterior standard "
            "deviation; pass more bins, or bins=None to keep every distinct value",
            DataWarning,
            stacklevel=stacklevel,
        )


def warn_of_forms(
    terms: Sequence[BoundTerm],
    cells: Sequence[Cells],
    kernels: Sequence[Kernel],
    weights: Sequence[Floats],
    stacklevel: int,
) -> None:
    """Warn of kernels that, as learned, are represented less exactly than was accepted.

    These are state-space forms and products of features of two columns; ``weights`` are those of
    the cells of each term, in units of the noise.
    """
    for term, term_cells, kernel, weight in zip(terms, cells, kernels, weights, strict=True):
        if isinstance(term_cells, TensorCells) and (left := term_cells.left_out(kernel, weight)):
            warnings.warn(
                f"the function of {term.name!r} varies too fast for {MOST_COLUMNS} products of "
                "functions of each column, by which its uncertainty is computed: up to "
                f"{left:.2g} degrees of freedom are counted as not known; take fewer bins, or a "
                "smoother kernel such as Matern52()",
                DataWarning,
                stacklevel=stacklevel,
            )
        if term.family != "markov":
            continue
        try:
            kernel.state_space()
        except ParameterError as reason:
            error = kernel.state_space_family()(kernel).error
            warnings.warn(
                f"the covariance of term {term.name!r} is cut, within {error:.2g} of its variance: "
                f"{reason}",
                DataWarning,
                stacklevel=stacklevel,
            )


def warn_of_structure(
    too_wide: dict[str, int],
    unresolved: tuple[str, ...],
    bins: str | int | None,
    stacklevel: int,
) -> None:
    """Warn of columns with structure that bins hide, or for which nothing was learned."""
    if too_wide:
        remedy = (
            "pass bins=None, which keeps every distinct value"
            if bins == "auto"
            else f'pass bins="auto", or bins={max(too_wide.values())}'
        )
        warnings.warn(
            f"the target varies along {_listed(tuple(too_wide))} by more than noise within "
            f"the bins (bins={bins!r}), and this variation counts as noise: {remedy}",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
    if unresolved:
        warnings.warn(
            f"the residuals still vary along {_listed(unresolved)} by more than noise, at "
            "lengthscales that the learner did not reach: give an initial lengthscale",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def _listed(names: tuple[str, ...]) -> str:
    words = ", ".join(repr(name) for name in names)
    return f"column {words}" if len(names) == 1 else f"columns {words}"
