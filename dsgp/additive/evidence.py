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
from scipy.linalg import cho_solve, lapack

from dsgp.additive.meanfield import MeanField
from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.system import AdditiveSystem, Solution
from dsgp.compute import run
from dsgp.terms import LOG_2PI, Floats

_SMOOTH = 1e-7  # seconds of compiled work per point


@dataclass(frozen=True)
class Complexity:
    """Degrees of freedom and determinant of an additive model, at given hyperparameters.

    Attributes
    ----------
    log_det : float
        log det(I + K̃A).
    dof : float
        tr(V A), V the joint posterior covariance.
    dof_of_terms : ndarray of shape (n_terms,)
        The same of each term by itself, the others known.
    constant_dof : float
        Degrees of freedom of an unknown constant in addition to the terms, from 0 to 1.
    """

    log_det: float
    dof: float
    dof_of_terms: Floats
    constant_dof: float

    @classmethod
    def of(cls, system: AdditiveSystem, coarse: CoarseSpace | None) -> Complexity:
        """Compute it; without coarse space (no term, or one) there is nothing to couple."""
        field = mean_field(system)
        log_det, dof = field.log_det, field.dof
        if coarse is not None:
            joint_log_det, joint_dof = _joint(coarse)
            coarse_field = coarse_mean_field(coarse, system)
            log_det += joint_log_det - coarse_field.log_det
            dof += joint_dof - coarse_field.dof
        return cls(log_det, dof, field.dofs, _constant_dof(system, coarse))

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
    triples = zip(layout.cells, system.kernels, layout.parts(system.weight), strict=True)
    prepared = [partial(cells.complexity, kernel, weight) for cells, kernel, weight in triples]
    terms = run(prepared, _SMOOTH * layout.size)

    def alone(factor: Floats) -> tuple[Floats, Floats]:
        tasks = [partial(term, omega) for term, omega in zip(terms, factor, strict=True)]
        log_dets_and_dofs = np.array(run(tasks, _SMOOTH * layout.size)).reshape(-1, 2)
        return log_dets_and_dofs[:, 0], log_dets_and_dofs[:, 1]

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


def _constant_dof(system: AdditiveSystem, coarse: CoarseSpace | None) -> float:
    """hᵀ W h / 1ᵀ W h: h = 1 − Z u is what functions u fitted to ones leave of these."""
    total = system.total_weight
    if coarse is not None:
        sums, noise = coarse.sums / system.noise_variance, system.noise_variance
        solved = cho_solve(coarse.factor, sums, check_finite=False)
        taken, squared = float(sums @ solved), float(solved @ (coarse.normal @ solved)) / noise
    elif system.layout.n_terms:
        mean, _ = system.solvers[0].solve(system.ones)
        taken, squared = float(system.ones @ mean), float(system.weight @ mean**2)
    else:
        taken = squared = 0.0
    left = total - taken
    return min(max((total - 2 * taken + squared) / left, 0.0), 1.0) if left > 0 else 0.0


def _joint(coarse: CoarseSpace) -> tuple[float, float]:
    """Exact log det and degrees of freedom of the coarse spaces together."""
    factor = coarse.factor[0]
    inverse, _ = lapack.dpotri(factor, lower=1)
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    return log_det, len(factor) - float(np.trace(inverse))
