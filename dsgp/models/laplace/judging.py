"""Measures of a fit by Laplace's approximation: units, limits, determinants, residuals."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from dsgp.additive import (
    RowEquations,
)
from dsgp.additive.evidence import Complexity
from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.variance import DENSE_ROWS, DenseCovariance
from dsgp.laplace.binned import counts_of
from dsgp.laplace.mode import Mode
from dsgp.laplace.rows import ResponseRows
from dsgp.laplace.working import working_equations
from dsgp.learning.scales import Start, finer_start
from dsgp.learning.search import VARIANCE
from dsgp.likelihoods import Likelihood
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.rows.table import RowTable

# Largest learned variance of a function on the scale of a logarithm or a logit. If events, or the
# other class, are absent, the evidence increases with the variance, and the posterior, whose W
# vanishes there, is as wide as the prior: means of exp(f) would explode.
LARGEST_VARIANCE = 25.0
# Share of the dispersion that remains when structure no longer counts as dispersion.
_LEAST_DISPERSION = 1e-4
# For an identity link: quantiles of the bulk of the targets, by which their scale is estimated.
_BULK = (0.1, 0.9)


def largest_variance(likelihood: Likelihood) -> float:
    """Largest variance of one function, in units."""
    return VARIANCE[1] if likelihood.link_name == "identity" else LARGEST_VARIANCE


def left_structure(outcome: LaplaceOutcome, *, by_screen: bool = False) -> Start | None:
    """Look for structure in the residuals of the working model, and for kernels that explain it."""
    mode, likelihood = outcome.mode, outcome.likelihood
    equations = working_equations(outcome.responses.rows, mode)
    # Structure that was missed has been counted as dispersion.
    dispersed = len(likelihood.unconstrained()) > 0 and likelihood.name != "ordered"
    return finer_start(
        equations,
        mode.system.kernels,
        1.0,
        mode.solution.mean,
        free=[kernel.free for kernel in mode.system.kernels],
        noise_bounds=(_LEAST_DISPERSION, 1.0) if dispersed else (1.0, 1.0),
        by_screen=by_screen,
    )


def not_resolved(table: RowTable) -> str:
    """Return the error that float64 cannot resolve the functions, with the likeliest column."""
    lines = [cells.line for cells in table.cells]
    points = [np.zeros(1) if line is None else line for line in lines]
    finest = [float(np.diff(axis_points).min(initial=np.inf)) for axis_points in points]
    extents = [float(axis_points[-1] - axis_points[0]) for axis_points in points]
    ratios = [extent / gap for extent, gap in zip(extents, finest, strict=True)]
    worst = int(np.argmax(ratios))
    return (
        "float64 cannot resolve the functions, about which the rows are extremely informative. "
        f"The most unevenly spaced is input column {table.names[worst]!r}, whose values are up "
        f"to {extents[worst]:.2g} apart and as little as {finest[worst]:.2g}: transform it (its "
        "logarithm or ranks) or set far values apart as missing; very large weights do the same, "
        "and can be divided by a constant"
    )


def complexity_of(mode: Mode) -> tuple[Complexity, float, bool]:
    """Degrees of freedom, the log determinant, and whether that is exact."""
    system = mode.system
    coarse = CoarseSpace(system) if len(system.kernels) > 1 else None
    complexity = Complexity.of(system, coarse)
    equations = system.equations
    limit = max((DENSE_ROWS[kernel.order] for kernel in system.kernels), default=0)
    if isinstance(equations, RowEquations) and equations.table.n_rows <= limit:
        return complexity, DenseCovariance.of(system, equations).log_det, True
    return complexity, complexity.log_det, len(system.kernels) < 2


class BinsOfTerms(NamedTuple):
    """The errors of the bins of some terms.

    Attributes
    ----------
    error : float
        Change of the function, in posterior standard deviations, root mean square over the rows:
        what is left of it after the first correction.
    dispersion : float
        Σ W² τ² / Σ W over the rows, τ² the variance of a function within the bin of a row: what the
        squares of the scores are more than the weights W, as a share.
    """

    error: float
    dispersion: float

    @classmethod
    def of(cls, outcome: LaplaceOutcome, names: Collection[str]) -> BinsOfTerms:
        """Estimate both for the terms of these names."""
        if outcome.responses.spreads is None or not names:
            return cls(0.0, 0.0)
        system, rows = outcome.mode.system, outcome.responses.rows
        rest = added = 0.0
        total = float(np.finfo(float).tiny)
        for name, cells, kernel, dual, weight, counts, spread in zip(
            system.layout.names,
            system.layout.cells,
            system.kernels,
            system.layout.parts(outcome.mode.solution.dual),
            system.layout.parts(system.weight),
            counts_of(rows),
            outcome.responses.spreads,
            strict=True,
        ):
            if name in names:
                rest += cells.bin_shift(kernel, dual, weight, spread).rest
                squares = weight**2 / np.maximum(counts, np.finfo(float).tiny)
                noise = cells.bin_shift(kernel, dual, squares, spread).noise
                added += noise * float(squares.sum())
                total = max(total, float(weight.sum()))
        variance = max(outcome.complexity.dof, np.finfo(float).tiny) / total
        return cls(math.sqrt(rest / variance), added / total)


def objective_of(mode: Mode) -> float:
    """Laplace's evidence, and the log density of the kernels' priors: what is learned by."""
    evidence = mode.objective - 0.5 * complexity_of(mode)[1]
    return evidence + sum(kernel.log_prior for kernel in mode.system.kernels)


def unit_of(rows: ResponseRows, likelihood: Likelihood) -> float:
    """Variance that the terms are to explain: 1 on the scale of a logarithm."""
    if likelihood.link_name != "identity":
        return 1.0
    order = np.argsort(rows.y, kind="stable")
    share = np.cumsum(rows.weight[order] if len(rows.weight) else np.ones(rows.n_rows))
    ends = np.minimum(np.searchsorted(share, np.multiply(_BULK, share[-1])), rows.n_rows - 1)
    low, high = rows.y[order[ends]]
    # The distance is that of a normal distribution of unit variance.
    spread = float(high - low) / 2.563 or float(np.ptp(rows.y)) or 1.0
    return spread**2
