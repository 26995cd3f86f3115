"""Whether a single term explains few rows better than all terms together do.

With few rows, the likelihood of several terms has optima at which each explains a little of what
one of them explains, and the rest is noise. No term gains there while the others are fixed.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.learning.scales import (
    Candidate,
    Scan,
    Start,
    Structure,
    lengthscales_of,
    moves_freely,
)
from dsgp.terms import LOG_2PI

# Number of rows up to which this is done: it takes a search per term.
FEW_ROWS = 256
# Prior variance of the other terms, as a share of the noise variance.
_OTHERS = 1e-2
# Learning all terms again may gain if a single term is at most this many nats below all of them.
_SLACK = 2.0


def alone(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    *,
    free: list[tuple[str, ...]],
    noise_bounds: tuple[float, float],
    least: float,
) -> Start | None:
    """Return where to learn all terms again: from the one that explains most by itself.

    Parameters
    ----------
    equations, kernels, noise_variance, free, noise_bounds
        As for ``finer_start``.
    least : float
        Log marginal likelihood of all terms, with the log densities of their priors.

    Returns
    -------
    Start or None
        None if no single term comes near ``least``.
    """
    layout = equations.layout
    if layout.n_terms < 2 or equations.n_rows > FEW_ROWS:
        return None
    nothing = np.zeros(layout.size)
    fitted, squares = equations.fitted(nothing), equations.squares(nothing)
    constant = 0.5 * (equations.log_weight - equations.n_rows * LOG_2PI)
    best: tuple[int, Candidate] | None = None
    for term in range(layout.n_terms):
        cells, weight = layout.cells[term], layout.part(equations.weight, term)
        if not lengthscales_of(free[term]) or cells.scale(weight) is None:
            continue
        scan = Scan.of(
            cells,
            weight,
            fitted.residual(term),
            layout.part(nothing, term),
            squares,
            equations.n_rows,
            0,
        )
        _, tried = scan.best(
            kernels[term], noise_variance, Structure(0, 0.0), free[term], noise_bounds
        )
        if best is None or tried.value > best[1].value:
            best = term, tried
    if best is None or best[1].value + constant < least - _SLACK:
        return None
    term, chosen = best
    share = math.sqrt(_OTHERS * chosen.noise_variance)
    # A variance that the user has fixed stays as it is.
    start = [
        kernel.scaled(min(share / kernel.std, 1.0)) if moves_freely(kernel, names) else kernel
        for kernel, names in zip(kernels, free, strict=True)
    ]
    start[term] = chosen.kernel
    return Start(start, chosen.noise_variance, nothing, [term], 0.0)
