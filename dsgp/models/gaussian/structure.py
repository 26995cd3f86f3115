"""Hyperparameters learned again, from values that a learner of smooth functions does not reach.

There are two reasons: the residuals of a fit have structure (``learning.scales``), or the user gave
initial values for which the usual number of nodes cannot resolve the functions. The result is kept
if it increases the likelihood of the fit, at every point of all axes.
"""

from __future__ import annotations

from collections.abc import Callable

from scipy.linalg import LinAlgError

from dsgp.additive import AdditiveSystem, Equations, Pair, Solution
from dsgp.additive.tables import BINS
from dsgp.kernels import Kernel
from dsgp.learning.alone import alone
from dsgp.learning.evidence import Rows
from dsgp.learning.marginal import marginal
from dsgp.learning.nodes import are_too_many, enough_nodes, first_nodes
from dsgp.learning.scales import Start, finer_start
from dsgp.learning.search import SHORTEST, search_for
from dsgp.models.gaussian.learner import Hyperparameters, by_nodes, by_vbem, note_of_nodes
from dsgp.models.gaussian.mean import Fit
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.terms import Cells, Floats

# Largest number of nodes of all terms for which the joint marginal likelihood is worth its time,
# and largest number of bins of a term from which they are chosen.
_MOST_NODES = 600
_MORE_BINS = 1024
# Number of times that hyperparameters are learned again because of structure in the residuals.
ROUNDS = 3


def learn_from(
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
    """Learn from kernels with all their parameters, at enough resolution not to lose them.

    With several terms by the marginal likelihood, if a moderate number of nodes resolves the
    kernels. Otherwise by variational Bayes EM, on every point; with one term that is exact.
    """
    layout = equations.layout
    weights = layout.parts(equations.weight)
    shortest = [
        shortest_of(cells, weight) for cells, weight in zip(layout.cells, weights, strict=True)
    ]
    for wanted in (max(BINS[kernel.order] for kernel in kernels), _MORE_BINS):
        if len(kernels) == 1 or are_too_many(layout.cells):
            break
        tables = equations.tables(wanted)
        try:
            counts = enough_nodes(tables, kernels, noise_variance)
            if counts is None or sum(counts) > _MOST_NODES:
                continue
            result = marginal(
                tables,
                Rows(equations.quadratic, equations.n_rows, equations.log_weight),
                [
                    search_for(kernel, cells, weight, len(kernels), shortest=low)
                    for kernel, cells, weight, low in zip(
                        kernels, tables.cells, tables.weights, shortest, strict=True
                    )
                ],
                noise_variance,
                noise_bounds=noise_bounds,
                tol=tol,
                max_iter=max_iter,
                watch=watch,
                counts=counts,
            )
        except LinAlgError:  # the points themselves need no factor of a prior
            break
        if result.resolved:
            return by_nodes(result, noise_bounds, [note_of_nodes(result)])
        break
    return by_vbem(
        equations,
        kernels,
        noise_variance,
        noise_bounds,
        solve=solve,
        tol=tol,
        max_iter=max_iter,
        watch=watch,
        notes=["by variational Bayes EM, on every point of the columns"],
        shortest=shortest,
    )


def shortest_of(cells: Cells, counts: Floats) -> float | None:
    """Least lengthscale where there may be fine structure: the distance of neighbouring points."""
    scale = cells.scale(counts)
    return None if scale is None else min(SHORTEST * scale.width, scale.spacing)


def left_structure(
    fit: Fit, noise_bounds: tuple[float, float], *, by_screen: bool = False
) -> Start | None:
    """Look for structure in the residuals of a fit, and for kernels that explain it."""
    system = fit.system
    return finer_start(
        system.equations,
        system.kernels,
        system.noise_variance,
        fit.solution.mean,
        free=[kernel.free for kernel in system.kernels],
        noise_bounds=noise_bounds,
        by_screen=by_screen,
    )


def one_alone(outcome: GaussianOutcome, noise_bounds: tuple[float, float]) -> Start | None:
    """Look for a term that explains few rows by itself, where all terms together explain less."""
    system = outcome.fit.system
    return alone(
        system.equations,
        system.kernels,
        system.noise_variance,
        free=[kernel.free for kernel in system.kernels],
        noise_bounds=noise_bounds,
        least=outcome.log_posterior,
    )


def lengthscales_given(kernel: Kernel) -> list[float]:
    """Return the lengthscales of a kernel that have values."""
    names = [name for name in kernel.parameters if name.startswith("lengthscale")]
    return [value for name in names if (value := kernel.value(name)) is not None]


def start_beyond_nodes(
    equations: Equations, kernels: list[Kernel], noise_variance: float
) -> list[Kernel] | None:
    """Return the kernels at the user's initial values, if the usual nodes do not resolve them.

    None if no lengthscale was given, or the nodes are enough.
    """
    if not any(lengthscales_given(kernel) for kernel in kernels):
        return None
    layout = equations.layout
    if are_too_many(layout.cells):
        return None
    start = [
        search_for(kernel, cells, weight, len(kernels)).start
        for kernel, cells, weight in zip(
            kernels, layout.cells, layout.parts(equations.weight), strict=True
        )
    ]
    tables = equations.tables(max(BINS[kernel.order] for kernel in kernels))
    try:
        enough = enough_nodes(tables, start, noise_variance)
    except LinAlgError:
        enough = None
    return None if enough == first_nodes(start, tables) else start
