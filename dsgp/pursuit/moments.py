"""Sums over the rows of a pursuit around given ridge functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import add

import numpy as np
from scipy.linalg import blas

from dsgp.jit.ridge import fill_design, projection_range
from dsgp.pursuit.response import Response
from dsgp.pursuit.ridges import Ridges
from dsgp.pursuit.rows import Block, RowSet
from dsgp.terms import Floats

# Rows per matrix product: the design of this many stays in the cache of a core.
_PRODUCT_ROWS = 1024
_FLOP = 4e-11  # seconds of one multiplication and addition within a matrix product
_FILL = 3e-9  # seconds of one entry of the design
_EVALUATE, _LIKELIHOOD = 2e-9, 1e-7  # per input of a function, and per row of a likelihood
# Rows whose gradient and weight are both below this are fitted with near certainty. They count in
# the deviance and are left out of the matrix: often half of the rows of a classifier, and less than
# a tenth of a nat.
_CERTAIN = 1e-5
# Weights are at least this, so that nothing is divided by 0. Gradients are not changed.
_LEAST_WEIGHT = 1e-10


@dataclass(frozen=True)
class Moments:
    """All that the linearised model needs of the rows.

    Attributes
    ----------
    matrix : ndarray of shape (P + 1, P + 1)
        Jᵀ W J with J of a row as in ``jit.ridge.fill_design``: nodes, directions, and the residual
        in place of the target. Functions may be far larger than their sum: squares of residuals
        computed from those of the target would lose all their digits. With a likelihood, W is its
        curvature, and the residual its gradient divided by that.
    low, high : ndarray of shape (M,)
        Range of each projection.
    deviance : float
        −2 Σ w log p(y | f) of a likelihood, over all rows.
    """

    matrix: Floats
    low: Floats
    high: Floats
    deviance: float = 0.0


def moments(
    rows: RowSet,
    ridges: Ridges,
    response: Response | None = None,
    around: Ridges | None = None,
) -> Moments:
    """Sum the linearised model over all rows: O(N P²) in matrix products, one pass.

    A likelihood may be linearised ``around`` other functions than those of the ridges.
    """
    size = ridges.n_parameters + 1
    work = rows.n_rows * size * (_FILL + size * _FLOP)
    total, low, high, deviance = rows.total(
        partial(_block_moments, ridges, around or ridges, response), _add_moments, work
    )
    upper = np.triu(total, 1)
    return Moments(np.diag(np.diag(total)) + upper + upper.T, low, high, deviance)


def deviance(rows: RowSet, ridges: Ridges, response: Response) -> float:
    """Sum −2 w log p(y | f) over all rows: O(N M D), one pass."""
    work = rows.n_rows * (_LIKELIHOOD + _EVALUATE * (ridges.directions.size + 8 * len(ridges)))
    return rows.total(partial(_block_deviance, ridges, response), add, work)


def _block_deviance(ridges: Ridges, response: Response, block: Block) -> float:
    return response.deviance(block, ridges.evaluate(block.inputs)[0].sum(axis=1))


Sums = tuple[Floats, Floats, Floats, float]


def _add_moments(total: Sums, more: Sums) -> Sums:
    total[0][:] += more[0]
    low, high = _add_ranges(total[1:3], more[1:3])
    return total[0], low, high, total[3] + more[3]


def ranges(rows: RowSet, ridges: Ridges) -> tuple[Floats, Floats]:
    """Range of each projection over all rows, each (M,)."""
    work = 1e-9 * rows.n_rows * ridges.directions.size
    return rows.total(partial(_block_ranges, ridges), _add_ranges, work)


def _add_ranges(total: tuple[Floats, Floats], more: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return np.minimum(total[0], more[0]), np.maximum(total[1], more[1])


def _block_ranges(ridges: Ridges, block: Block) -> tuple[Floats, Floats]:
    low, high = np.full(len(ridges), np.inf), np.full(len(ridges), -np.inf)
    projection_range(block.inputs, ridges.directions, low, high)
    return low, high


def _block_moments(ridges: Ridges, around: Ridges, response: Response | None, block: Block) -> Sums:
    size = ridges.n_parameters + 1
    total = np.zeros((size, size), order="F")
    low, high = _block_ranges(ridges, block)
    own_deviance = 0.0
    if response is not None:
        block, own_deviance = _linearised(around, response, block, around is not ridges)
    design = np.empty((min(_PRODUCT_ROWS, len(block)), size))
    for start in range(0, len(block), _PRODUCT_ROWS):
        part = block.part(slice(start, start + _PRODUCT_ROWS))
        out = design[: len(part)]
        fill_rows(ridges, part, out)
        if response is None or around is not ridges:
            out[:, -1] -= out[:, : ridges.n_nodes] @ ridges.values
        total = blas.dsyrk(1.0, out.T, beta=1.0, c=total, overwrite_c=1)
    return total, low, high, own_deviance


def _linearised(
    ridges: Ridges, response: Response, block: Block, whole: bool
) -> tuple[Block, float]:
    """Informative rows, their residuals and curvatures, and the deviance of all.

    ``whole`` adds the functions to the residuals.
    """
    f = ridges.evaluate(block.inputs)[0].sum(axis=1)
    density, gradient, weight = response.linearised(block, f)
    informative = np.flatnonzero(np.maximum(np.abs(gradient), weight) > _CERTAIN)
    weight = np.maximum(weight[informative], _LEAST_WEIGHT)
    target = gradient[informative] / weight + (f[informative] if whole else 0.0)
    rows = Block(block.inputs[informative], target, np.sqrt(weight))
    return rows, -2 * float(density.sum())


def fill_rows(ridges: Ridges, block: Block, out: Floats) -> None:
    """Write the linearised model of each row, times the root of its weight, to ``out``."""
    flat, starts = ridges.cardinal
    fill_design(
        block.inputs,
        block.target,
        block.root_weight,
        ridges.directions,
        ridges.nodes,
        ridges.starts,
        flat,
        starts,
        ridges.functions,
        out,
    )
