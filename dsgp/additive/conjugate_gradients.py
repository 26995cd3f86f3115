"""Preconditioned conjugate gradients on the additive system."""

from __future__ import annotations

import math
from collections.abc import Callable

from dsgp.additive.system import AdditiveSystem, Candidate, Solution
from dsgp.axis import Floats

# After so many checks in a row at which rounding made up the bound and it did not fall, the floor
# of what float64 can do is met.
_PATIENCE = 3
# A check costs about one iteration; this many iterations without one are made at most, or a
# quarter of those made so far.
_CHECK_EVERY = 25


def conjugate_gradients(
    system: AdditiveSystem,
    y: Floats,
    *,
    tol: float,
    max_iter: int,
    start: tuple[Floats, Floats] | None = None,
    precondition: Callable[[Floats], tuple[Floats, Floats]] | None = None,
) -> Solution:
    """Solve the additive system by preconditioned conjugate gradients.

    The D smoothers of an iteration are independent tasks. Started from an earlier solution, the
    quadratic form of the system never rises above its value there, but for rounding.

    Parameters
    ----------
    system : AdditiveSystem
    y : ndarray of shape (n_rows,)
    tol : float
        On the error bound, in prior standard deviations.
    max_iter : int
    start : (mean, dual), each ndarray of shape (Σ U_d,), optional
        An earlier solution.
    precondition : callable, optional
        A symmetric positive operator near the inverse of the system: from a residual to a pair
        (mean, dual). The smoothers of all terms by default.

    Returns
    -------
    Solution
        ``converged`` is False where ``max_iter`` or the floor of rounding came first.
    """
    if precondition is None:
        precondition = system.smooth
    best = Candidate.start(system, y, start)
    if best.bound <= tol:
        return best.solution(0, tol)
    mean, dual = best.mean.copy(), best.dual.copy()
    residual = best.residual.copy()
    direction, direction_dual = precondition(residual)
    norm = float(residual @ direction)
    # Near the inverse of the system means rᵀ M⁻¹ r ≤ rᵀ K̃ r (exactly so for the smoothers): while
    # the left side is above tol² the bound cannot meet tol.
    check_below = tol
    next_check = _CHECK_EVERY
    at_floor = 0
    iteration = 0
    while iteration < max_iter and at_floor < _PATIENCE and norm > 0.0:
        iteration += 1
        product = direction_dual + system.scatter(system.gather(direction))
        length = norm / float(direction @ product)
        mean += length * direction
        dual += length * direction_dual
        residual -= length * product
        smoothed, smoothed_dual = precondition(residual)
        new_norm = float(residual @ smoothed)
        if (
            math.sqrt(max(new_norm, 0.0)) <= check_below
            or iteration >= next_check
            or iteration == max_iter
        ):
            checked = Candidate.of(system, y, mean, dual)
            better = checked.bound < 0.9 * best.bound
            if checked.bound < best.bound:
                best = checked
            if best.bound <= tol:
                break
            drifted = checked.mismatch_bound > 0.5 * checked.bound
            rounded = system.prior_norm(residual - checked.residual) > 0.5 * checked.bound
            at_floor = at_floor + 1 if (drifted or rounded) and not better else 0
            if drifted:
                # Mean and dual have drifted apart. Iterative refinement: match them and go on,
                # which corrects the residual by a small pair with a small mismatch.
                checked = checked.matched(system, y)
                mean, dual = checked.mean.copy(), checked.dual.copy()
                norm = math.inf  # a new start: old directions are not conjugate to this residual
            # Go on with the residual as it is, without the drift of the recurrence.
            residual = checked.residual.copy()
            smoothed, smoothed_dual = precondition(residual)
            new_norm = float(residual @ smoothed)
            check_below = math.sqrt(max(new_norm, 0.0)) * min(0.5, tol / checked.bound)
            next_check = iteration + max(_CHECK_EVERY, iteration // 4)
        direction = smoothed + (new_norm / norm) * direction
        direction_dual = smoothed_dual + (new_norm / norm) * direction_dual
        norm = new_norm
    return best.solution(iteration, tol)
