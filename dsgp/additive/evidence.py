"""The log marginal likelihood of the additive model and its degrees of freedom.

    log Z = −½ [N log 2πσ² − Σ log w + log det(I + K̃A) + (y − Zf̂)ᵀW(y − Zf̂) + f̂ᵀK̃⁻¹f̂]

All but the determinant is exact. log det(I + K̃A), A = ZᵀWZ, is the sum of those of the 1-D
smoothers, exact, and of what the terms do to each other on the coarse spaces of multigrid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lapack

from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.system import AdditiveSystem, Solution
from dsgp.axis import LOG_2PI, Axis, Floats, Observations
from dsgp.compute import run
from dsgp.kernels import Matern

_SMOOTH = 1e-7  # seconds of compiled work per point


@dataclass(frozen=True)
class Complexity:
    """How much of the data an additive model takes up, at given hyperparameters.

    Attributes
    ----------
    log_det : float
        log det(I + K̃A).
    dof : float
        tr(V A), V the joint posterior covariance.
    dof_of_terms : ndarray of shape (n_terms,)
        The same of each term by itself, the others known.
    """

    log_det: float
    dof: float
    dof_of_terms: Floats

    @classmethod
    def of(cls, system: AdditiveSystem, coarse: CoarseSpace | None) -> Complexity:
        """Compute it; without coarse space (no term, or one) there is nothing to couple."""
        layout = system.layout
        tasks = [
            partial(_alone, axis, kernel, weight)
            for axis, kernel, weight in zip(
                layout.axes, system.kernels, layout.parts(system.weight), strict=True
            )
        ]
        alone = np.array(run(tasks, _SMOOTH * layout.size)).reshape(-1, 2)
        log_det, dof = float(alone[:, 0].sum()), float(alone[:, 1].sum())
        if coarse is not None:
            more_log_det, more_dof = _coupled(system, coarse)
            log_det += more_log_det
            dof += more_dof
        return cls(log_det, dof, alone[:, 1])

    def log_marginal_likelihood(self, system: AdditiveSystem, solution: Solution) -> float:
        """Log density of the rows at the solution of the system."""
        equations = system.equations
        return -0.5 * (
            equations.n_rows * (LOG_2PI + math.log(system.noise_variance))
            - equations.log_weight
            + self.log_det
            + equations.squares(solution.mean) / system.noise_variance
            + float(np.sum(solution.mean * solution.dual))
        )


def _alone(axis: Axis, kernel: Matern, weight: Floats) -> tuple[float, float]:
    posterior = axis.posterior(kernel, Observations(np.zeros(len(axis)), weight))
    return posterior.log_det, float(np.sum(weight * posterior.variance))


def _coupled(system: AdditiveSystem, coarse: CoarseSpace) -> tuple[float, float]:
    """What the joint coarse system has beyond its diagonal blocks: log det and dof."""
    factor = coarse.factor[0]
    inverse, _ = lapack.dpotri(factor, lower=1)
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    dof = -float(np.trace(inverse))
    for gram in coarse.grams:
        values = np.linalg.eigvalsh(gram / system.noise_variance) + 1.0
        log_det -= float(np.sum(np.log(values)))
        dof += float(np.sum(1 / values))
    return log_det, dof
