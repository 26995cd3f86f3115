"""Initial directions of a new projection: candidates from the residual, and the best of them.

A linear regression, as in the paper, finds nothing where the linear part of the residual is zero.
Principal Hessian directions, the eigenvectors of Σ r x xᵀ (Li 1992), find curvature and products of
inputs. Random directions cover other structure. All are screened by how much of the residual a step
function of their projection explains; the best ones are fitted and compared by the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.compute import run
from dsgp.kernels import Matern
from dsgp.pursuit.hyperparameters import with_hyperparameters
from dsgp.pursuit.joint import Frame, State, improved, renewed, with_values
from dsgp.pursuit.response import Response
from dsgp.pursuit.ridges import Ridge, Ridges, nodes_for
from dsgp.pursuit.rows import Block, MemoryRows
from dsgp.terms import Floats, sum_by

_HESSIAN_DIRECTIONS = 4
_RANDOM_DIRECTIONS = 48
_SPARSE_INPUTS = 2.5  # expected number of inputs of the sparse random directions, with relevance
_BINS = 24  # of the step function
_FAR = 10.0  # standard deviations
_PRIOR_ROWS = 5.0  # of the prior that shrinks each of its steps to zero
_RIDGE = 1e-3
# Largest prior precision of a new direction in an input, even if the earlier terms do not use that
# input: a new direction must be free to depend on it.
_OPEN_PRECISION = 1.0
# Initial lengthscales of the functions in a race, in turn: smooth functions are optimised more
# easily from far away. The most promising direction is also tried with shorter ones.
_LENGTHSCALES = (4.0, 4.0, 1.0)
_SHORT = (1.0, 0.3)
_SHARE = 0.3  # prior variance of a new function, as a share of the residual's
_RACE_STEPS, _FINAL_STEPS, _SEARCH_STEPS = 10, 8, 5
_FINALISTS = 2
_RACE_ROWS = 10_240  # at most, chosen at random; finalists use all rows
_STEP_TOL = 1.0  # nats
_FIT = 2e-5  # seconds per row of fitting one start


def best_start(
    block: Block,
    frame: Frame,
    precision: Floats,
    kernel: Matern,
    n_starts: int,
    random: np.random.Generator,
    response: Response | None = None,
) -> Ridges:
    """Find the ridge function that explains most of a residual.

    Parameters
    ----------
    block : Block
        Inputs, residual and weights of the rows to search; with a likelihood, targets, and the sum
        of the functions so far as offsets.
    frame : Frame
    precision : ndarray of shape (r,)
        Of the prior of directions.
    kernel : kernel
        Its type is that of the new function.
    n_starts : int
        Directions that are fitted.
    random : Generator
    response : Response, optional
        The likelihood.

    Returns
    -------
    Ridges with one term, or none where no direction has variance or every fit failed
    """
    if not frame.size:
        return Ridges((), block.inputs.shape[1])  # no input varies
    precision = open_precision(frame, precision)
    residual = block if response is None else response.working(block)
    directions = _screened(_near(residual), frame, precision, n_starts, random)
    rows = MemoryRows(block)
    racing = rows
    if len(block) > _RACE_ROWS:
        chosen = np.sort(random.choice(len(block), _RACE_ROWS, replace=False))
        racing = MemoryRows(block.part(chosen))
    begins = list(zip(directions, cycle(_LENGTHSCALES), strict=False))
    begins += [(direction, short) for direction in directions[:1] for short in _SHORT]
    raced = _run(
        [
            partial(_raced, racing, frame, precision, kernel, response, direction, lengthscale)
            for direction, lengthscale in begins
        ],
        racing.n_rows,
    )
    raced.sort(key=lambda state: state.objective)
    finals = _run([partial(_fitted, rows, state) for state in raced[:_FINALISTS]], len(block))
    if not finals:
        return Ridges((), block.inputs.shape[1])
    return max(finals, key=lambda state: state.evidence).ridges


def open_precision(frame: Frame, precision: Floats) -> Floats:
    """Precision of the prior of new directions: they may depend on inputs that no term uses yet."""
    return np.minimum(precision, _OPEN_PRECISION) if frame.relevance else precision


def _run(tasks: list[Callable[[], State | None]], n_rows: int) -> list[State]:
    return [state for state in run(tasks, _FIT * n_rows * len(tasks)) if state is not None]


def _near(block: Block) -> Block:
    """Clip inputs that are far from all others: candidates are for the bulk."""
    if np.abs(block.inputs).max(initial=0.0) <= _FAR:
        return block
    return replace(block, inputs=np.clip(block.inputs, -_FAR, _FAR))


def _screened(
    block: Block, frame: Frame, precision: Floats, n_starts: int, random: np.random.Generator
) -> Sequence[Floats]:
    """Directions of unit variance, the most promising first."""
    candidates = np.vstack(
        [
            linear_direction(block),
            _hessian_directions(block, frame),
            random_directions(block, frame, precision, _RANDOM_DIRECTIONS, random),
        ]
    )
    variances = np.einsum("md,de,me->m", candidates, frame.covariance, candidates)
    candidates = candidates[variances > 0] / np.sqrt(variances[variances > 0])[:, None]
    scores = [_explained(block, block.inputs @ w) for w in candidates]
    best = np.argsort(scores, kind="stable")[::-1][:n_starts]
    return [candidates[position] for position in best]


def linear_direction(block: Block) -> Floats:
    """Coefficients of a slightly penalised linear regression of the target, (D,)."""
    weighted = block.inputs * block.weight[:, None]
    matrix = weighted.T @ block.inputs
    # The penalty is a multiple of the matrix's own size, so that rotated inputs give the rotated
    # direction.
    matrix[np.diag_indices_from(matrix)] += _RIDGE * max(np.trace(matrix) / len(matrix), 1e-300)
    return np.asarray(np.linalg.solve(matrix, weighted.T @ block.target))


def _hessian_directions(block: Block, frame: Frame) -> Floats:
    white = block.inputs @ frame.basis
    weighted = block.weight * (block.target - np.average(block.target, weights=block.weight))
    values, vectors = np.linalg.eigh((white * weighted[:, None]).T @ white)
    largest = np.argsort(-np.abs(values), kind="stable")[:_HESSIAN_DIRECTIONS]
    return (frame.basis @ vectors[:, largest]).T


def random_directions(
    block: Block, frame: Frame, precision: Floats, n: int, random: np.random.Generator
) -> Floats:
    """Draw directions, (n, D)."""
    if not frame.relevance:
        # Steps from one row to another, which rotate with the inputs.
        pairs = random.integers(len(block), size=(2, n))
        steps = block.inputs[pairs[0]] - block.inputs[pairs[1]]
        # Where the inputs are white, the gradient along a step has the direction of the step.
        return steps @ frame.inverse.T @ frame.basis.T
    drawn = random.standard_normal((n, frame.size))
    drawn[::2] /= np.sqrt(precision)
    n_sparse = n // 4
    kept = random.random((n_sparse, frame.size)) < min(1.0, _SPARSE_INPUTS / frame.size)
    drawn[:n_sparse] *= kept
    return drawn @ frame.basis.T


def _explained(block: Block, projection: Floats) -> float:
    """Squares of the target explained by a slightly shrunk step function of the projection."""
    low, high = float(projection.min()), float(projection.max())
    if not high > low:
        return 0.0
    codes = ((projection - low) * (_BINS / (high - low))).astype(np.intp)
    codes = np.minimum(codes, _BINS - 1)
    rows = sum_by(codes, _BINS, block.weight)
    sums = sum_by(codes, _BINS, block.weight * block.target)
    return float(np.sum(sums**2 / (rows + _PRIOR_ROWS)))


def _raced(
    rows: MemoryRows,
    frame: Frame,
    precision: Floats,
    kernel: Matern,
    response: Response | None,
    direction: Floats,
    lengthscale: float,
) -> State | None:
    """Improve a direction with a function of fixed hyperparameters, which noise cannot explain."""
    block = rows.block
    projection = block.inputs @ direction
    low, high = float(projection.min()), float(projection.max())
    if response is None:
        variance = float(np.average(block.target**2, weights=block.weight))
        noise = (1 - _SHARE) * variance
    else:
        variance, noise = response.left(block), 1.0
    if not (high > low and variance > 0):
        return None
    nodes = nodes_for(projection, low, high, lengthscale)
    prior = kernel.with_parameters(lengthscale=lengthscale, variance=_SHARE * variance)
    ridges = Ridges((Ridge(direction, nodes, np.zeros(len(nodes)), prior),), len(direction))
    try:
        state = State.of(rows, ridges, frame, precision, noise, response is not None, response)
        return improved(rows, with_values(rows, state), _RACE_STEPS, _STEP_TOL)
    except LinAlgError:
        return None  # beyond float64; the other directions remain


def _fitted(rows: MemoryRows, state: State) -> State | None:
    """Improve a direction and learn the hyperparameters of its function."""
    try:
        for _ in range(2):
            state = renewed(rows, state, rows.block.inputs)
            if not len(state.ridges):
                return None
            state = with_hyperparameters(rows, state, _SEARCH_STEPS)
            state = improved(rows, state, _FINAL_STEPS, _STEP_TOL)
        return state if math.isfinite(state.evidence) else None
    except LinAlgError:
        return None
