"""The log marginal likelihood of the additive model and its degrees of freedom.

    log Z = −½ [N log 2πσ² − Σ log w + log det(I + K̃A) + (y − Zf̂)ᵀW(y − Zf̂) + f̂ᵀK̃⁻¹f̂]

All but the determinant is exact. log det(I + K̃A), A = ZᵀWZ, is that of the mean field of the 1-D
smoothers, plus what the coarse spaces of multigrid know better: their exact determinant minus the
one of their own mean field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lapack

from dsgp.additive.meanfield import MeanField
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
        field = mean_field(system)
        log_det, dof = field.log_det, field.dof
        if coarse is not None:
            joint_log_det, joint_dof = _joint(coarse)
            own = coarse_mean_field(coarse, system)
            log_det += joint_log_det - own.log_det
            dof += joint_dof - own.dof
        return cls(log_det, dof, field.dofs)

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


def mean_field(system: AdditiveSystem) -> MeanField:
    """Mean field of the smoothers of all terms."""
    layout = system.layout

    def alone(factor: Floats) -> tuple[Floats, Floats]:
        tasks = [
            partial(_alone, axis, kernel, weight / omega)
            for axis, kernel, weight, omega in zip(
                layout.axes, system.kernels, layout.parts(system.weight), factor, strict=True
            )
        ]
        found = np.array(run(tasks, _SMOOTH * layout.size)).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    return MeanField.of(alone, layout.n_terms, system.equations.n_rows)


def coarse_mean_field(coarse: CoarseSpace, system: AdditiveSystem) -> MeanField:
    """Mean field of the coarse spaces of all terms."""
    spectra = [
        np.maximum(np.linalg.eigvalsh(gram), 0.0) / system.noise_variance for gram in coarse.grams
    ]

    def alone(factor: Floats) -> tuple[Floats, Floats]:
        pairs = list(zip(spectra, factor, strict=True))
        return (
            np.array([np.sum(np.log1p(values / omega)) for values, omega in pairs]),
            np.array([np.sum(values / (omega + values)) for values, omega in pairs]),
        )

    return MeanField.of(alone, len(spectra), system.equations.n_rows)


def _alone(axis: Axis, kernel: Matern, weight: Floats) -> tuple[float, float]:
    posterior = axis.posterior(kernel, Observations(np.zeros(len(axis)), weight))
    return posterior.log_det, float(np.sum(weight * posterior.variance))


def _joint(coarse: CoarseSpace) -> tuple[float, float]:
    """Exact log det and degrees of freedom of the coarse spaces together."""
    factor = coarse.factor[0]
    inverse, _ = lapack.dpotri(factor, lower=1)
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    return log_det, len(factor) - float(np.trace(inverse))
