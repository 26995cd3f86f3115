"""The mean field of the terms: what they cost each other when they share nothing but the rows.

Functions that are rough, or many, share no direction in particular; the only effect of the others
on a term is that they use up degrees of freedom. With A_d = W^½ K_d W^½ as if *free* of one
another, the posterior of term d is that of a single term with its noise variance multiplied by ω_d,
where

    Σ_d ω_d = 1 + (D − 1) / η,    tr (ω_d + A_d)⁻¹ = N η  for all d

(Voiculescu's free convolution, by subordination). With δ_d = tr A_d (ω_d + A_d)⁻¹ / N it is the
fixed point of ω_d = 1 + Σ_{e≠d} ω_e δ_e / (1 − δ_e), which is approached from below; the share of
the rows that is left is η = 1 − Σ_d δ_d, and

    log det (1 + Σ_d A_d) = Σ_d log det (ω_d + A_d) + N (D − 1) log η.

It is exact for one term and ignores the directions that terms do share; coarse spaces add those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsgp.terms import Floats

_TOLERANCE = 1e-3
_MAX_ITER = 100
# Smallest share of the rows that the effective degrees of freedom leave.
_LEAST_LEFT = 1e-6


@dataclass(frozen=True)
class MeanField:
    """The fixed point.

    Attributes
    ----------
    factor : ndarray of shape (n_terms,)
        ω_d: what the noise variance of a term by itself is multiplied by.
    dofs : ndarray of shape (n_terms,)
        Of each term by itself, the others known: at ω = 1.
    dof : float
        N (1 − η): degrees of freedom of all terms together.
    log_det : float
        log det (1 + Σ_d A_d).
    """

    factor: Floats
    dofs: Floats
    dof: float
    log_det: float

    @classmethod
    def of(
        cls, alone: Callable[[Floats], tuple[Floats, Floats]], n_terms: int, n_rows: float
    ) -> MeanField:
        """Iterate.

        Parameters
        ----------
        alone : callable
            From factors ω (n_terms,) to log det (1 + A_d / ω_d) and tr A_d (ω_d + A_d)⁻¹ of every
            term by itself, each (n_terms,).
        """
        omega = np.ones(n_terms)
        log_dets, dofs = alone(omega)
        by_itself = dofs
        before = np.zeros(n_terms)
        for iteration in range(_MAX_ITER if n_terms > 1 else 0):
            share = np.minimum(dofs / n_rows, 1 - _LEAST_LEFT)
            taken = omega * share / (1 - share)
            step = np.log((1 + taken.sum() - taken) / omega)
            # Late steps shrink by a constant ratio: every third one is extrapolated to the limit.
            ratio = float(np.clip(step @ before / max(before @ before, 1e-300), 0.0, 0.98))
            if np.abs(step).max() < _TOLERANCE * (1 - ratio):
                break
            before = step
            if iteration % 3 == 2:
                step = step / (1 - ratio)
            omega = omega * np.exp(step)
            log_dets, dofs = alone(omega)
        dof = min(float(dofs.sum()), (1 - _LEAST_LEFT) * n_rows)
        log_det = float(log_dets.sum())
        if n_terms > 1:
            # With η at its own optimum this is stationary, so that errors of ω enter quadratically.
            over = float(np.sum(omega - 1)) / (n_terms - 1)
            log_det += n_rows * (float(np.sum(np.log(omega))) - (n_terms - 1) * math.log1p(over))
        return cls(omega, by_itself, dof, log_det)
