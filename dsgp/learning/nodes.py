"""The number of nodes of a term, and whether they are enough for functions of its kernel.

Nodes themselves are in `dsgp.learning.basis`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import lapack

from dsgp.additive import TwoWayTables
from dsgp.kernels import Kernel
from dsgp.learning.basis import Basis
from dsgp.learning.prior_factors import JITTER, prior_factor
from dsgp.terms import Cells

# Initial number of nodes of a term, by the order of its kernel, and the largest number for all
# terms together. A Cholesky factor of that size takes about 50 ms.
NODES = {1: 64, 2: 64, 3: 40, 4: 32}
ALL_NODES = 1200
# Prior variance that the nodes of all terms may fail to represent, as a share of the noise
# variance.
RESOLUTION = 2e-2
# A term gets more nodes if it exceeds its share of that by this factor.
_WORTH = 1.5
# Number of cells of a term from which it is worth eliminating.
_ELIMINATED = 64
# Smallest number of nodes of a curve.
_FEWEST = 8
# Largest number of nodes of all terms that are not eliminated, for which a factor is computed.
MOST_NODES = 2600


def open_variances(
    tables: TwoWayTables, basis: Basis, kernels: list[Kernel], noise_variance: float
) -> list[float]:
    """Prior variance given the nodes, averaged over the rows, as a share of the noise variance.

    It is the sum of the variance between the means of the bins and that within the bins.
    """
    found = []
    for d, (nodes, bins, weight, squares, kernel) in enumerate(
        zip(basis.cells, tables.cells, tables.weights, tables.spreads, kernels, strict=True)
    ):
        if d == basis.eliminated or not bins.is_interpolated:
            found.append(0.0)  # every cell is a node
            continue
        variance, held = np.empty(len(bins)), np.empty(len(bins))
        for (_, few), (piece, own) in zip(nodes.pieces, bins.pieces, strict=True):
            cross = own.prior(kernel, few.points, own.points)
            features, _ = lapack.dtrtrs(prior_factor(kernel, few), cross, lower=1)
            held[piece] = np.sum(features**2, axis=0)
            variance[piece] = kernel.diagonal(own.points)
        left = np.maximum(variance - held - 2 * JITTER * variance, 0.0)
        left += bins.variance_within_bins(kernel, squares)
        # If all rows are fitted with certainty, all weights may be 0.
        total = max(float(np.sum(weight)), np.finfo(float).tiny)
        found.append(float(np.sum(weight * left)) / total / noise_variance)
    return found


def first_nodes(kernels: list[Kernel], tables: TwoWayTables | None = None) -> list[int]:
    """Initial numbers of nodes; of cells that are not points of a line, all are nodes."""
    if tables is None:
        most = max(8, ALL_NODES // (2 * max(len(kernels), 1)))
        return [min(NODES[kernel.order], most) for kernel in kernels]
    return spread_nodes(kernels, tables.cells, NODES)


def spread_nodes(
    kernels: list[Kernel], cells: Sequence[Cells], wanted: Mapping[int, int]
) -> list[int]:
    """Share half of all nodes among the terms; ``wanted`` by the order of a kernel, for a curve."""
    fixed = [0 if own.is_interpolated else len(own) for own in cells]
    n_lines = [own.n_lines if own.is_interpolated else 0 for own in cells]
    left = ALL_NODES - min(sum(n for n in fixed if n < _ELIMINATED), ALL_NODES // 2)
    most = max(_FEWEST, left // (2 * max(sum(n_lines), 1)))
    return [
        size or n * min(wanted[kernel.order], most)
        for size, n, kernel in zip(fixed, n_lines, kernels, strict=True)
    ]


def are_too_many(cells: Sequence[Cells]) -> bool:
    """Whether levels and curves are more than the nodes for which a factor is feasible.

    The largest term of levels is eliminated, and does not count.
    """
    last = eliminated_among(cells)
    return _fewest_nodes(cells) - (0 if last is None else len(cells[last])) > MOST_NODES


def has_too_many_levels(cells: Sequence[Cells]) -> bool:
    """Whether they are too many where no term is eliminated."""
    return _fewest_nodes(cells) > MOST_NODES


def _fewest_nodes(cells: Sequence[Cells]) -> int:
    """Smallest number of nodes of all terms together."""
    return sum(
        min(len(term), _FEWEST * term.n_lines) if term.is_interpolated else len(term)
        for term in cells
    )


def eliminated_of(tables: TwoWayTables) -> int | None:
    """The term that is worth eliminating; see ``eliminated_among``."""
    return eliminated_among(tables.cells)


def eliminated_among(cells: Sequence[Cells]) -> int | None:
    """The term that is worth eliminating: among those with a diagonal prior, the largest."""
    sizes = [len(bins) if bins.is_diagonal else 0 for bins in cells]
    largest = int(np.argmax(sizes)) if sizes else 0
    return largest if sizes and sizes[largest] >= _ELIMINATED else None


def enough_nodes(
    tables: TwoWayTables, kernels: list[Kernel], noise_variance: float
) -> list[int] | None:
    """Nodes that resolve functions of given kernels, or None if the budget does not allow it."""
    counts = first_nodes(kernels, tables)
    eliminated = eliminated_of(tables)
    while True:
        basis = Basis.of(tables, counts, eliminated)
        left = open_variances(tables, basis, kernels, noise_variance)
        if sum(left) <= RESOLUTION:
            return counts
        more = more_nodes(tables, counts, kernels, left)
        if more == counts:
            return counts if sum(left) <= 4 * RESOLUTION else None
        counts = more


def more_nodes(
    tables: TwoWayTables, counts: list[int], kernels: list[Kernel], open_variance: list[float]
) -> list[int]:
    """More nodes for the terms whose nodes represent too little, within the budget.

    The variance that M nodes do not represent falls like M^(−2ν).
    """
    share = RESOLUTION / max(len(counts), 1)
    granted = list(counts)
    free = [d for d in range(len(counts)) if tables.cells[d].is_interpolated]
    left = ALL_NODES - sum(counts[d] for d in free)
    # The terms that need nodes most come first.
    for d in np.argsort(open_variance)[::-1]:
        n_bins, excess = len(tables.cells[d]), open_variance[d] / share
        if excess <= _WORTH or counts[d] >= n_bins or not tables.cells[d].is_resolved:
            continue
        wanted = math.ceil(1.1 * counts[d] * excess ** (1 / (2 * kernels[d].order - 1)))
        more = min(wanted, n_bins) - counts[d]
        if more <= left:
            granted[d] += more
            left -= more
    return granted
