"""The log marginal likelihood of additive models at their nodes, and its gradient.

    −½ [N log 2πσ² − Σ log w + log det(I + K̃ G / σ²) + (yᵀWy − bᵀF) / σ²]

with the statistics G and b of the nodes (`dsgp.learning.basis`) and the posterior mean F there
costs one Cholesky factor of size Σ M_d, whatever the number of rows and bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsgp.kernels import Kernel
from dsgp.learning.basis import Nodes
from dsgp.learning.node_posterior import NodePosterior
from dsgp.terms import LOG_2PI, Floats

# Smallest share of the rows that the degrees of freedom leave in an update of the noise.
_LEAST_LEFT = 0.05


@dataclass(frozen=True)
class Rows:
    """What else the likelihood needs of the rows."""

    quadratic: float
    n_rows: float
    log_weight: float


@dataclass(frozen=True)
class Evidence:
    """The log marginal likelihood and its derivatives by the logs of parameters and of σ²."""

    value: float
    by_log: list[dict[str, float]]
    """Of each term, by the names of its parameters."""
    by_log_noise: float
    mean: Floats
    """Posterior mean at the nodes."""
    next_noise: float
    """σ² at which its own derivative would vanish, if fit and degrees of freedom did not move."""
    squares: float
    """Σ w (y − f̂)² / σ²."""
    posterior: NodePosterior


def evidence(
    nodes: Nodes,
    rows: Rows,
    kernels: list[Kernel],
    noise_variance: float,
    *,
    alone: bool = False,
) -> Evidence:
    """Compute the log marginal likelihood, its gradient and the mean at the nodes.

    ``alone`` uses the determinant of the terms as if they were independent.
    """
    posterior = NodePosterior(nodes, kernels, noise_variance)
    fit = float(np.sum(posterior.whitened * posterior.weights))
    value = -0.5 * (
        rows.n_rows * (LOG_2PI + math.log(noise_variance))
        - rows.log_weight
        + (posterior.log_det_alone if alone else posterior.log_det)
        + rows.quadratic / noise_variance
        - fit
    )
    mean = posterior.mean
    squares = (rows.quadratic - 2 * nodes.information @ mean + nodes.squares(mean)) / noise_variance
    dof = posterior.dof
    by_noise = 0.5 * (squares + dof - rows.n_rows)
    left = max(rows.n_rows - dof, _LEAST_LEFT * rows.n_rows)
    next_noise = noise_variance * float(squares) / left
    return Evidence(
        value=value,
        by_log=posterior.gradients(alone=alone),
        by_log_noise=float(by_noise),
        mean=mean,
        next_noise=next_noise,
        squares=float(squares),
        posterior=posterior,
    )
