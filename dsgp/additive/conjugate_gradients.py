"""Preconditioned conjugate gradients on the additive system, for several right-hand sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsgp.additive.system import AdditiveSystem, Candidate, Pair, Solution, dot
from dsgp.terms import Floats

# After this many consecutive checks in which the error bound was mostly rounding and did not fall,
# the iteration has reached what float64 can do.
_PATIENCE = 3
# A check costs about one iteration. There are at most this many iterations between checks, or a
# quarter of the number made so far.
_CHECK_EVERY = 25


def conjugate_gradients(
    system: AdditiveSystem,
    rhs: Floats | None = None,
    *,
    tol: float,
    max_iter: int,
    start: Pair | None = None,
    precondition: Callable[[Floats], Pair] | None = None,
) -> Solution:
    """Solve the additive system by preconditioned conjugate gradients.

    The D smoothers of an iteration are independent tasks. Started from an earlier solution, the
    quadratic form of the system never rises above its value there, but for rounding.

    Parameters
    ----------
    system : AdditiveSystem
    rhs : ndarray of shape (Σ U_d,) or (k, Σ U_d), optional
        Right-hand sides; Zᵀ W y by default.
    tol : float
        On the error bound of every right-hand side, in prior standard deviations.
    max_iter : int
    start : (mean, dual), each of the shape of ``rhs``, optional
        An earlier solution.
    precondition : callable, optional
        A symmetric positive operator near the inverse of the system: from residuals (k, Σ U_d) to
        pairs (mean, dual). The smoothers of all terms by default.

    Returns
    -------
    Solution
        ``converged`` is False where ``max_iter`` or the floor of rounding came first.
    """
    if precondition is None:
        precondition = system.smooth
    if rhs is None:
        rhs = system.information
    shape = rhs.shape
    rhs = np.atleast_2d(rhs)
    best = Candidate.start(system, rhs, start)
    active = best.bound > tol
    if not active.any():
        return best.solution(0, tol, shape)
    mean, dual = best.mean.copy(), best.dual.copy()
    residual = best.residual.copy()
    direction, direction_dual = precondition(residual)
    norm = dot(residual, direction)
    # If M approximates the system well, rᵀ M⁻¹ r ≤ rᵀ K̃ r (exactly so for the smoothers): while
    # the left side is above tol² the bound cannot meet tol.
    check_below = np.full(len(rhs), tol)
    next_check = _CHECK_EVERY
    at_floor = np.zeros(len(rhs), dtype=int)
    iteration = 0
    active &= norm > 0.0
    while iteration < max_iter and active.any():
        iteration += 1
        product = direction_dual + system.multiply(direction)
        curvature = dot(direction, product)
        length = np.divide(norm, curvature, out=np.zeros_like(norm), where=active)[:, None]
        mean += length * direction
        dual += length * direction_dual
        residual -= length * product
        smoothed, smoothed_dual = precondition(residual)
        new_norm = dot(residual, smoothed)
        promising = active & (np.sqrt(np.maximum(new_norm, 0.0)) <= check_below)
        if promising.any() or iteration >= next_check or iteration == max_iter:
            checked = Candidate.of(system, rhs, mean, dual)
            better = checked.bound < 0.9 * best.bound
            best = best.where(checked.bound < best.bound, checked)
            active &= best.bound > tol
            if not active.any():
                break
            drifted = checked.mismatch_bound > 0.5 * checked.bound
            rounded = system.prior_norm(residual - checked.residual) > 0.5 * checked.bound
            at_floor = np.where((drifted | rounded) & ~better, at_floor + 1, 0)
            active &= at_floor < _PATIENCE
            if drifted.any():
                # Mean and dual no longer match. Iterative refinement: make them match and continue,
                # which corrects the residual by a small pair with a small mismatch.
                checked = checked.where(drifted, checked.matched(system, rhs))
                mean, dual = checked.mean.copy(), checked.dual.copy()
                # Restart there: old directions are not conjugate to this residual.
                norm = np.where(drifted, np.inf, norm)
            # Continue with the computed residual, which has none of the drift of the recurrence.
            residual = checked.residual.copy()
            smoothed, smoothed_dual = precondition(residual)
            new_norm = dot(residual, smoothed)
            share = tol / np.maximum(checked.bound, 2 * tol)
            check_below = np.sqrt(np.maximum(new_norm, 0.0)) * share
            next_check = iteration + max(_CHECK_EVERY, iteration // 4)
        active &= new_norm > 0.0
        turn = np.divide(new_norm, norm, out=np.zeros_like(norm), where=active)[:, None]
        direction = smoothed + turn * direction
        direction_dual = smoothed_dual + turn * direction_dual
        norm = new_norm
    return best.solution(iteration, tol, shape)
