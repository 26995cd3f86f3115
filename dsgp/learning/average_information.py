"""Approximate curvature of the log marginal likelihood by the logs of hyperparameters.

The average of the observed and the expected information (Gilmour, Thompson and Cullis 1995): with
P the inverse of the covariance of the targets, its entries are ½ yᵀP K′ᵢ P K′ⱼ P y. Traces cancel,
so that it costs only one solve per parameter once the mean is known.
"""

from __future__ import annotations

import numpy as np

from dsgp.learning.node_posterior import NodePosterior
from dsgp.terms import Floats


def average_information(
    posterior: NodePosterior, free: list[tuple[int, str]], squares: float
) -> Floats:
    """Return it of parameters of terms, and of the noise variance last.

    Parameters
    ----------
    posterior : NodePosterior
    free : list of (int, str)
        Terms, and parameters of their kernels.
    squares : float
        Σ w (y − f̂)² / σ².
    """
    directions = np.zeros((posterior.basis.size, len(free) + 1), order="F")
    by_term = {d: posterior.directions(d) for d, _ in free}
    for column, (d, name) in enumerate(free):
        directions[posterior.basis.parts[d], column] = by_term[d][name]
    # At the nodes, the counterpart of the residuals of the rows are the weights themselves.
    directions[:, -1] = posterior.weights
    solved = posterior.solve(directions)
    out = directions.T @ (directions - solved)
    out[:-1, -1] = out[-1, :-1] = directions[:, :-1].T @ solved[:, -1]
    out[-1, -1] = squares - posterior.weights @ solved[:, -1]
    return 0.25 * (out + out.T)
