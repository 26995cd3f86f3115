"""From equations to hyperparameters, in the units of ``Training``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.linalg import LinAlgError

from dsgp.additive import AdditiveSystem, Equations, Pair, Solution
from dsgp.additive.tables import BINS, TwoWayTables
from dsgp.kernels import Kernel
from dsgp.learning.em import em, require_chains
from dsgp.learning.evidence import Rows
from dsgp.learning.marginal import Learned, marginal
from dsgp.learning.nodes import are_too_many
from dsgp.learning.search import Search, search_for
from dsgp.learning.vbem import Learned as LearnedByBound
from dsgp.learning.vbem import vbem
from dsgp.models.checks import require_resolvable


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters, and how they were found.

    Attributes
    ----------
    kernels : list of kernels, one per term
    noise_variance : float
    noise_bounds : tuple of float
    learner : str or None
        The learner that was used.
    trace : list of float
        Its objective after each iteration.
    n_iter : int
    converged : bool
    notes : list of str
        For people.
    pair : (mean, dual), optional
        Initial value for a solver.
    noise_holds_bins : bool
        Whether the noise variance is that of rows that stand at the means of their bins, as it is
        when it was learned from them; a given one is that of the rows, to which bins add.
    """

    kernels: list[Kernel]
    noise_variance: float
    noise_bounds: tuple[float, float]
    learner: str | None
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = True
    notes: list[str] = field(default_factory=list)
    pair: Pair | None = None
    noise_holds_bins: bool = True


def learn(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    noise_bounds: tuple[float, float],
    *,
    learner: str,
    solve: Callable[[AdditiveSystem, Pair | None], Solution],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None],
) -> Hyperparameters:
    """Learn hyperparameters by the marginal likelihood, VBEM or EM.

    If the nodes of the marginal likelihood cannot resolve the functions, VBEM continues from its
    result, and the notes say so.
    """
    notes: list[str] = []
    if not kernels:  # all columns are constant
        left = max(equations.n_rows - 1, 1)  # the constant takes one degree of freedom
        noise = min(max(equations.quadratic / left, noise_bounds[0]), noise_bounds[1])
        return Hyperparameters([], noise, (noise, noise), learner)
    if learner == "em":
        return by_em(
            equations,
            kernels,
            noise_variance,
            noise_bounds,
            solve=solve,
            tol=tol,
            max_iter=max_iter,
            watch=watch,
        )
    if learner == "marginal" and are_too_many(equations.layout.cells):
        notes.append(
            "the levels are too many for the determinant of all terms together: variational Bayes "
            "EM, which treats the terms as independent a posteriori, was used instead"
        )
    elif learner == "marginal":
        wanted = max((BINS[kernel.order] for kernel in kernels), default=1)
        tables = equations.tables(wanted)
        searches = [
            search_for(kernel, cells, weight, len(kernels))
            for kernel, cells, weight in zip(kernels, tables.cells, tables.weights, strict=True)
        ]
        require_resolvable([search.middle for search in searches], noise_variance)
        result = _at_nodes(
            tables,
            equations,
            searches,
            noise_variance,
            noise_bounds=noise_bounds,
            tol=tol,
            max_iter=max_iter,
            watch=watch,
        )
        if result is None:
            notes.append(
                "float64 cannot resolve the likelihood at the nodes: variational Bayes EM was used "
                "instead"
            )
        else:
            notes.append(note_of_nodes(result))
            if result.resolved:
                return by_nodes(result, noise_bounds, notes)
            notes.append(
                "the functions are too rough for the nodes that the budget allows: "
                "variational Bayes EM was used instead"
            )
            kernels, noise_variance = result.kernels, result.noise_variance
    return by_vbem(
        equations,
        kernels,
        noise_variance,
        noise_bounds,
        solve=solve,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
        notes=notes,
    )


def note_of_nodes(result: Learned) -> str:
    """Return a note on the number of nodes, and on the variance that they do not represent."""
    fewest, most = min(result.n_nodes, default=0), max(result.n_nodes, default=0)
    nodes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"{nodes} nodes per term; the prior variance that they do not represent adds "
        f"{sum(result.open_variance):.2g} of the noise variance"
    )


def by_nodes(
    result: Learned, noise_bounds: tuple[float, float], notes: list[str]
) -> Hyperparameters:
    """Return the result of the marginal likelihood at nodes."""
    return Hyperparameters(
        result.kernels,
        result.noise_variance,
        noise_bounds,
        "marginal",
        result.trace,
        result.evaluations,
        result.converged,
        notes,
    )


def by_vbem(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    noise_bounds: tuple[float, float],
    *,
    solve: Callable[[AdditiveSystem, Pair | None], Solution],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None],
    notes: list[str],
    shortest: list[float | None] | None = None,
) -> Hyperparameters:
    """Learn by variational Bayes EM, on every point of all axes.

    ``shortest`` are the least lengthscales of the terms; see ``search_for``.
    """
    searches = _searches(equations, kernels, shortest or [None] * len(kernels))
    require_resolvable([search.start for search in searches], noise_variance)
    learned = vbem(
        equations,
        searches,
        noise_variance,
        solve,
        noise_bounds=noise_bounds,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
    )
    return _by_bound(learned, noise_bounds, "vbem", notes)


def by_em(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    noise_bounds: tuple[float, float],
    *,
    solve: Callable[[AdditiveSystem, Pair | None], Solution],
    tol: float,
    max_iter: int,
    watch: Callable[[float], None],
) -> Hyperparameters:
    """Learn by the paper's EM with expected statistics, on every point of all axes."""
    require_chains(equations.layout, kernels)
    searches = _searches(equations, kernels, [None] * len(kernels))
    require_resolvable([search.middle for search in searches], noise_variance)
    learned = em(
        equations,
        searches,
        noise_variance,
        solve,
        noise_bounds=noise_bounds,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
    )
    return _by_bound(learned, noise_bounds, "em", [])


def _by_bound(
    learned: LearnedByBound, noise_bounds: tuple[float, float], learner: str, notes: list[str]
) -> Hyperparameters:
    """Return the result of maximising the bound."""
    return Hyperparameters(
        learned.kernels,
        learned.noise_variance,
        noise_bounds,
        learner,
        learned.trace,
        len(learned.trace) - 1,
        learned.converged,
        notes,
        learned.pair,
    )


def _searches(
    equations: Equations, kernels: list[Kernel], shortest: Sequence[float | None]
) -> list[Search]:
    """Searches on every point of all axes."""
    layout = equations.layout
    return [
        search_for(kernel, cells, weight, len(kernels), shortest=least)
        for kernel, cells, weight, least in zip(
            kernels, layout.cells, layout.parts(equations.weight), shortest, strict=True
        )
    ]


def _at_nodes(
    tables: TwoWayTables,
    equations: Equations,
    searches: list[Search],
    noise_variance: float,
    **options: Any,
) -> Learned | None:
    """Maximise the marginal likelihood at nodes; None where float64 cannot resolve it."""
    rows = Rows(equations.quadratic, equations.n_rows, equations.log_weight)
    try:
        return marginal(tables, rows, searches, noise_variance, **options)
    except LinAlgError:
        return None
