"""Joint posterior of an additive model: covariances of chosen points, and exact samples."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from dsgp.additive.multigrid import CoarseSpace, multigrid
from dsgp.additive.system import AdditiveSystem, Solution
from dsgp.compute import run
from dsgp.kernels import Kernel
from dsgp.terms import Cells, Floats

_SAMPLE = 2e-7  # seconds of compiled work per point and sample
# Number of vectors that are solved at once. More need more memory and save no time.
_TOGETHER = 64
_SOLVE_BYTES = 1e9


def joint_covariance(
    system: AdditiveSystem, columns: list[Floats], *, tol: float, max_iter: int
) -> tuple[Floats, bool]:
    """Posterior covariance of the sum at some rows, by one solve per row.

    With c_x the prior covariance of f(x) with the terms at their points, the posterior mean given
    the noise-free data Z c_x is what the rows determine of c_x: subtracting it from the prior
    leaves the covariance.

    Parameters
    ----------
    system : AdditiveSystem
    columns : list of ndarray of shape (r,) or (r, k), one per term
        Its inputs; NaN is a missing one.
    tol : float
        On the error bound of the solves; entries are good to its square.

    Returns
    -------
    covariance : ndarray of shape (r, r)
    converged : bool
    """
    n = len(columns[0]) if columns else 0
    layout = system.layout
    prior = np.zeros((n, n))
    cross = np.zeros((n, layout.size))
    for cells, kernel, inputs, part in zip(
        layout.cells, system.kernels, columns, layout.parts(cross), strict=True
    ):
        seen = ~cells.is_missing(inputs)
        prior[np.ix_(seen, seen)] += cells.prior(kernel, inputs[seen], inputs[seen])
        part[seen] = cells.prior(kernel, inputs[seen], cells.points)
    rhs = system.multiply(cross)
    solutions = _solved(system, rhs, tol, max_iter)
    mean = np.concatenate([solution.mean for solution in solutions])
    dual = np.concatenate([solution.dual for solution in solutions])
    # The correction by the residual makes the error the product of the errors of the two solves.
    residual = rhs - system.multiply(mean) - dual
    explained = cross @ dual.T + (cross - mean) @ residual.T
    covariance = prior - 0.5 * (explained + explained.T)
    return covariance, all(solution.converged for solution in solutions)


def joint_samples(
    system: AdditiveSystem,
    information: Floats,
    columns: list[Floats],
    n_samples: int,
    random: np.random.Generator,
    *,
    tol: float,
    max_iter: int,
    by_term: bool = False,
) -> tuple[Floats, bool]:
    """Exact draws of the sum at some rows, by perturbing the data and solving.

    A draw of the prior plus the posterior mean of what the data minus that draw and a draw of the
    noise say is a draw of the posterior.

    Parameters
    ----------
    system : AdditiveSystem
    information : ndarray of shape (Σ U_d,)
        Zᵀ W y of the data.
    columns : list of ndarray of shape (n_rows,), one per term
    by_term : bool
        Give the draws of every term, not those of the sum.

    Returns
    -------
    samples : ndarray of shape (n_samples, n_rows), or (n_terms, n_samples, n_rows)
    converged : bool
    """
    layout = system.layout
    n = len(columns[0]) if columns else 0
    # Every sample has its own random stream, so that the first samples do not depend on their
    # number.
    streams = random.spawn(n_samples)
    out = np.zeros((n_samples, n))
    terms = np.zeros((layout.n_terms if by_term else 0, n_samples, n))
    converged = True
    coarse = cache(partial(CoarseSpace, system))
    together = together_of(system)
    for first in range(0, n_samples, together):
        some = streams[first : first + together]
        noises = [stream.spawn(layout.n_terms + 1) for stream in some]
        prior = np.empty((len(some), layout.size))
        tasks = [
            partial(
                _draw_prior,
                cells,
                kernel,
                inputs,
                [noise[term] for noise in noises],
                part,
                out[first : first + len(some)],
            )
            for term, (cells, kernel, inputs, part) in enumerate(
                zip(layout.cells, system.kernels, columns, layout.parts(prior), strict=True)
            )
        ]
        here = slice(first, first + len(some))
        seconds = _SAMPLE * len(some) * (layout.size + n)
        for term, drawn in enumerate(run(tasks, seconds, in_place=True)):
            (terms[term] if by_term else out)[here] += drawn
        noise = np.stack([system.equations.noise(streams_[-1]) for streams_ in noises])
        rhs = information - system.multiply(prior) - noise / np.sqrt(system.noise_variance)
        solved = multigrid(system, rhs, tol=tol, max_iter=max_iter, coarse=coarse)
        converged &= solved.converged
        for term, (cells, kernel, inputs, duals) in enumerate(
            zip(layout.cells, system.kernels, columns, layout.parts(solved.dual), strict=True)
        ):
            seen = ~cells.is_missing(inputs)
            values = np.zeros((int(seen.sum()), len(some)))
            cells.kernel_sums(kernel, duals).add_to(inputs[seen], values)
            (terms[term] if by_term else out)[here, seen] += values.T
    return (terms if by_term else out), converged


def together_of(system: AdditiveSystem) -> int:
    """How many vectors are solved at once, within a budget of memory."""
    return int(np.clip(_SOLVE_BYTES / vector_bytes(system), 1, _TOGETHER))


def vector_bytes(system: AdditiveSystem) -> float:
    """Memory that one right-hand side takes while it is solved and evaluated."""
    return 8.0 * 30 * max(system.layout.size, 1)


def _draw_prior(
    cells: Cells,
    kernel: Kernel,
    inputs: Floats,
    streams: list[np.random.Generator],
    at_cells: Floats,
    out: Floats,
) -> Floats:
    """Draw one term at its cells, into ``at_cells``, and return what rows get of it."""
    seen = ~cells.is_missing(inputs)
    joint, codes, new_codes = cells.with_inputs(inputs[seen])
    multipliers = cells.multipliers(inputs[seen])
    drawn = np.zeros_like(out)
    for k, stream in enumerate(streams):
        values = joint.sample(kernel, stream)
        at_cells[k] = values[codes]
        new = values[new_codes]
        drawn[k, seen] = new if multipliers is None else new * multipliers
    return drawn


def _solved(system: AdditiveSystem, rhs: Floats, tol: float, max_iter: int) -> list[Solution]:
    coarse = cache(partial(CoarseSpace, system))
    together = together_of(system)
    return [
        multigrid(system, rhs[first : first + together], tol=tol, max_iter=max_iter, coarse=coarse)
        for first in range(0, len(rhs), together)
    ]
