"""The posterior mean of additive models: one linear system and its solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from dsgp.additive.backfitting import backfitting
from dsgp.additive.conjugate_gradients import conjugate_gradients
from dsgp.additive.equations import BinEquations, Equations, RowEquations
from dsgp.additive.multigrid import multigrid
from dsgp.additive.system import AdditiveSystem, Pair, Solution
from dsgp.additive.tables import TwoWayTables
from dsgp.additive.transitions import TransitionTable
from dsgp.errors import ConvergenceWarning

SOLVERS: dict[str, Callable[..., Solution]] = {
    "multigrid": multigrid,
    "cg": conjugate_gradients,
    "backfitting": backfitting,
}
MAX_ITER = {"multigrid": 500, "cg": 2000, "backfitting": 500}

__all__ = [
    "MAX_ITER",
    "SOLVERS",
    "AdditiveSystem",
    "BinEquations",
    "Equations",
    "Pair",
    "RowEquations",
    "Solution",
    "TransitionTable",
    "TwoWayTables",
    "warn_unless_converged",
]


def warn_unless_converged(
    solution: Solution, solver: str, tol: float, max_iter: int, stacklevel: int
) -> None:
    """Warn with the bound that a solver reached and the remedy, at a ``stacklevel``."""
    if solution.converged:
        return
    if solver == "backfitting":
        remedy = (
            "raise max_iter, or use solver='multigrid', which needs a handful of iterations; the "
            "bound holds for the raw components: sum and centred components are usually much closer"
        )
    elif solution.iterations >= max_iter:
        remedy = "raise max_iter or tol"
    else:
        remedy = (
            "more iterations would not help, because float64 has too little precision for so "
            "little noise: raise tol, or give a larger noise_variance"
        )
    warnings.warn(
        f"solver={solver!r} stopped after {solution.iterations} iterations with an error bound of "
        f"{solution.error_bound:.3g} prior standard deviations per component, above tol={tol:g}; "
        f"{remedy}",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
