"""Natural cubic splines, and the choice of their nodes."""

from __future__ import annotations

import numpy as np

from dsgp.jit.ridge import evaluate_ridges
from dsgp.terms import Floats

# Share of the range by which nodes extend beyond the rows.
_MARGIN = 0.02
# Quantiles at the ends and the middle of the bulk. Distances from the middle, in widths of the
# bulk: the reach of an even grid, its least value as a share of the range, and the largest distance
# that counts. For normal values the reach is four standard deviations.
_BULK = (0.05, 0.5, 0.95)
_REACH, _LEAST_REACH, _WIDE = 1.2, 0.01, 5.0


def place_nodes(values: Floats, low: float, high: float, count: int) -> Floats:
    """Choose nodes that cover a projection: half by values, half by distance, and a margin.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Some projections, in increasing order.
    low, high : float
        The range of all.
    count : int

    Returns
    -------
    ndarray of shape (count,), strictly increasing
    """
    margin = _MARGIN * (high - low) + 1e-3
    share = np.linspace(0.0, 1.0, len(values))
    first, middle, last = (values[int(part * (len(values) - 1))] for part in _BULK)
    # Distance counts only within the dense part of the values: between it and a value far away a
    # straight line is enough.
    wide = max(_WIDE * (last - first), _LEAST_REACH * (high - low) + 1e-3)
    start, stop = max(low, middle - wide), min(high, middle + wide)
    distance = (np.clip(values, start, stop) - start) / max(stop - start, np.finfo(float).tiny)
    position = np.concatenate([[0.0], 0.5 * share + 0.5 * distance, [1.0]])
    values = np.concatenate([[low], values, [high]])
    nodes = np.interp(np.linspace(0.0, 1.0, count), position, values)
    # Where many values are close, nodes would coincide: a tenth of an even grid is mixed in to
    # separate them. It is no wider than the bulk, so that a few values far away do not spread all
    # nodes.
    reach = max(_REACH * (last - first), _LEAST_REACH * (high - low) + 1e-3)
    even = np.linspace(max(low - margin, middle - reach), min(high + margin, middle + reach), count)
    nodes = 0.9 * nodes + 0.1 * even
    nodes[0], nodes[-1] = low - margin, high + margin
    return nodes


def natural_splines(nodes: Floats, values: Floats) -> Floats:
    """Coefficients of natural cubic splines, all at once.

    Parameters
    ----------
    nodes, values : ndarray of shape (..., K)

    Returns
    -------
    ndarray of shape (..., K − 1, 4)
        Coefficients of 1, d, d² and d³, d the distance to the lower node.
    """
    width = np.diff(nodes, axis=-1)
    rise = np.diff(values, axis=-1) / width
    # Solve the tridiagonal equations of the second derivatives by elimination along the last axis.
    bend = np.zeros_like(values)
    ratio = np.zeros_like(values)
    for k in range(1, nodes.shape[-1] - 1):
        below, above = width[..., k - 1], width[..., k]
        pivot = 2 * (below + above) - below * ratio[..., k - 1]
        ratio[..., k] = above / pivot
        known = 6 * (rise[..., k] - rise[..., k - 1]) - below * bend[..., k - 1]
        bend[..., k] = known / pivot
    for k in range(nodes.shape[-1] - 2, 0, -1):
        bend[..., k] -= ratio[..., k] * bend[..., k + 1]
    lower, upper = bend[..., :-1], bend[..., 1:]
    return np.stack(
        [
            values[..., :-1],
            rise - width * (2 * lower + upper) / 6,
            lower / 2,
            (upper - lower) / (6 * width),
        ],
        axis=-1,
    )


def evaluate_splines(inputs: Floats, directions: Floats, nodes: Floats, cubics: Floats) -> Floats:
    """Evaluate splines of projections of rows; beyond its ends each is a straight line.

    Parameters
    ----------
    inputs : ndarray of shape (n, D)
    directions : ndarray of shape (M, D)
    nodes : ndarray of shape (M, K)
    cubics : ndarray of shape (M, K − 1, 4)
        As for ``natural_splines``.

    Returns
    -------
    ndarray of shape (n, M)
    """
    n_terms, n_nodes = nodes.shape
    starts = np.arange(n_terms + 1, dtype=np.int64) * n_nodes
    value, slope = np.empty((len(inputs), n_terms)), np.empty((len(inputs), n_terms))
    evaluate_ridges(inputs, directions, nodes.ravel(), starts, cubics.ravel(), value, slope)
    return value
