"""Backfitting (Gilboa et al., Algorithm ``alg:bfgp``): block Gauss–Seidel on the additive system.

Kept because it is the paper's. In directions that two terms share, smooth trends where inputs are
correlated and the constant where it counts as known, it moves by a tiny amount a sweep. The sum and
the centred components are soon within a hundredth of their prior standard deviation where inputs
are independent; full accuracy takes them about as long as the raw ones.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.additive.system import AdditiveSystem, Candidate, Pair, Solution


def backfitting(
    system: AdditiveSystem,
    *,
    tol: float,
    max_iter: int,
    start: Pair | None = None,
) -> Solution:
    """Sweep over the terms, each fitted to the partial residual of the others.

    Parameters and result are those of ``conjugate_gradients``; an iteration is one sweep.
    """
    layout, noise = system.layout, system.noise_variance
    rhs = system.information[None]
    best = Candidate.start(system, rhs, start)
    mean, dual = best.mean[0].copy(), best.dual[0].copy()
    fitted = system.equations.fitted(mean)
    sweep = 0
    next_check = 1
    while best.bound[0] > tol and sweep < max_iter:
        sweep += 1
        for term in range(layout.n_terms):
            old = layout.part(mean, term)
            weight = layout.part(system.weight, term)
            information = fitted.residual(term) / noise + weight * old
            if system.constant is not None:
                # The part of the residual that the constant would explain without this term.
                without = mean.copy()
                layout.part(without, term)[:] = 0.0
                information -= system.constant_at(without) * weight
            solved, solved_dual = system.solve_term(term, information[None])
            new, layout.part(dual, term)[:] = solved[0], solved_dual[0]
            fitted.add(term, new - old)
            old[:] = new
        if sweep >= next_check or sweep == max_iter:
            # A check costs about as much as a sweep.
            next_check = sweep + math.ceil(0.1 * sweep)
            checked = Candidate.of(system, rhs, mean[None], dual[None])
            # Computed again, without the rounding errors of the updates.
            fitted = system.equations.fitted(mean)
            if checked.bound[0] <= best.bound[0] or sweep == max_iter:
                best = checked
    return best.solution(sweep, tol, np.shape(mean))
