"""Splines through nodes: cubic, and bounded however unevenly the nodes lie.

A cubic spline is linear in its values at the nodes, but where neighbouring gaps between nodes
differ by orders of magnitude it overshoots by about their ratio. Statistics of rows that such a
spline carries to the nodes lose every digit. The splines here are the usual ones while these are
bounded; elsewhere they are cut into pieces at gaps without points, and have limited slopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline, CubicSpline
from scipy.linalg import solve_banded

from dsgp.terms.base import Floats

# Largest Lebesgue constant (maximum of the sum of the absolute values of all cardinal splines) of a
# spline that is used unchanged. On even nodes it is below 2.
LEBESGUE_BOUND = 10.0
# A gap without points is left out of the spline if it is this many times as long as a neighbouring
# gap: always (first factor), or if the spline is not bounded (second factor).
_ALWAYS_SPLIT, _SPLIT = 1e3, 3.0
# Nodes whose two gaps differ by more than this ratio get limited slopes. The ratios are tried in
# turn until the spline is bounded. With all slopes limited (ratio 0) the constant is below 2.
_RATIOS = (100.0, 30.0, 10.0, 5.0, 3.0, 2.0, 0.0)
# Positions, in every gap between nodes that has points, at which the Lebesgue function is
# evaluated.
_WITHIN_GAP = np.array([0.15, 0.5, 0.85])


@dataclass(frozen=True)
class BoundedSpline:
    """How the splines through given nodes are made.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes,)
        Ascending.
    parts : list of slice
        Nodes of each piece; one spline through each.
    limited : ndarray of shape (n_nodes,)
        Whether the slope at a node is that of the secant through its neighbours, which is bounded,
        rather than the one that makes the second derivative continuous.
    """

    nodes: Floats
    parts: list[slice]
    limited: NDArray[np.bool_]

    @classmethod
    def through(cls, nodes: Floats, points: Floats) -> BoundedSpline:
        """Choose pieces and slopes for a spline that is bounded at points.

        Parameters
        ----------
        nodes : ndarray of shape (n_nodes,)
            Ascending.
        points : ndarray of shape (n_points,)
            Where the spline will be evaluated, in any order, between the first and the last node.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp.terms.splines import BoundedSpline
        >>> nodes = np.array([-1e4, 0.0, 0.1, 0.2, 0.3, 0.4])
        >>> points = np.array([0.05, 0.15, 0.25])
        >>> spline = BoundedSpline.through(nodes, points)
        >>> spline.parts
        [slice(0, 1, None), slice(1, 6, None)]
        >>> bool(np.allclose(spline(np.sin(nodes), points), np.sin(points), atol=1e-4))
        True
        """
        return cls._with_cardinals(nodes, points)[0]

    @classmethod
    def _with_cardinals(
        cls, nodes: Floats, points: Floats
    ) -> tuple[BoundedSpline, list[Callable[[Floats], Floats]]]:
        """Return the spline, and the pieces of those through 1 at one node and 0 at others."""
        gaps = np.diff(nodes)
        unit = np.eye(len(nodes))
        if len(nodes) < 3:
            spline = cls(nodes, [slice(0, len(nodes))], np.zeros(len(nodes), dtype=bool))
            return spline, spline._pieces(unit)
        interval = np.clip(np.searchsorted(nodes, points, side="right") - 1, 0, len(gaps) - 1)
        inner = (points > nodes[interval]) & (points < nodes[interval + 1])
        occupied = np.zeros(len(gaps), dtype=bool)
        occupied[interval[inner]] = True
        probes = (nodes[:-1, None] + gaps[:, None] * _WITHIN_GAP)[occupied].ravel()
        relative = np.ones(len(gaps))  # relative to the shorter neighbour
        relative[1:] = gaps[1:] / gaps[:-1]
        relative[:-1] = np.maximum(relative[:-1], gaps[:-1] / gaps[1:])
        for split, limit in [(_ALWAYS_SPLIT, np.inf), *((_SPLIT, ratio) for ratio in _RATIOS)]:
            parts = _parts(len(nodes), ~occupied & (relative > split))
            uneven = np.concatenate([unevenness(nodes[part]) for part in parts])
            spline = cls(nodes, parts, uneven > limit)
            pieces = spline._pieces(unit)
            if _bounded(spline._evaluated(pieces, unit, probes)):
                break
        return spline, pieces

    def __call__(self, values: Floats, points: Floats) -> Floats:
        """Evaluate the spline through values at the nodes.

        Parameters
        ----------
        values : ndarray of shape (n_nodes,) or (n_nodes, k)
        points : ndarray of shape (n_points,)
            Those that the spline was chosen for, or some of them.

        Returns
        -------
        ndarray of shape (n_points,) or (n_points, k)
        """
        return self._evaluated(self._pieces(values), values, points)

    def _pieces(self, values: Floats) -> list[Callable[[Floats], Floats]]:
        return [_piece(self.nodes[part], values[part], self.limited[part]) for part in self.parts]

    def _evaluated(
        self, pieces: list[Callable[[Floats], Floats]], values: Floats, points: Floats
    ) -> Floats:
        result = np.empty((len(points), *values.shape[1:]))
        first_nodes = self.nodes[[part.start for part in self.parts]]
        piece = np.maximum(np.searchsorted(first_nodes, points, side="right") - 1, 0)
        for number, part in enumerate(self.parts):
            here, nodes = piece == number, self.nodes[part]
            result[here] = pieces[number](np.clip(points[here], nodes[0], nodes[-1]))
        return result


def spline_matrix(nodes: Floats, points: Floats) -> Floats:
    """Return C, (n_points, n_nodes): C @ values is the bounded spline through them at points."""
    spline, pieces = BoundedSpline._with_cardinals(nodes, points)
    return spline._evaluated(pieces, np.eye(len(nodes)), points)


def interpolated(nodes: Floats, values: Floats, inputs: Floats) -> Floats:
    """Bounded spline through values at nodes, at any inputs; a constant beyond the nodes."""
    inside = np.clip(inputs, nodes[0], nodes[-1])
    return BoundedSpline.through(nodes, inside)(values, inside)


def unevenness(nodes: Floats) -> Floats:
    """Ratio of the larger to the smaller gap beside each node; ends take their neighbours'."""
    if len(nodes) < 3:
        return np.ones(len(nodes))
    gaps = np.diff(nodes)
    ratio = np.maximum(gaps[1:] / gaps[:-1], gaps[:-1] / gaps[1:])
    return np.concatenate([ratio[:1], ratio, ratio[-1:]])


def _parts(n_nodes: int, split: NDArray[np.bool_]) -> list[slice]:
    """Pieces of so many nodes, cut at some of the gaps between them."""
    ends = [0, *(np.flatnonzero(split) + 1).tolist(), n_nodes]
    return [slice(a, b) for a, b in pairwise(ends)]


def _bounded(cardinal: Floats) -> bool:
    return bool(np.abs(cardinal).sum(axis=1).max(initial=0.0) <= LEBESGUE_BOUND)


def _piece(nodes: Floats, values: Floats, limited: NDArray[np.bool_]) -> Callable[[Floats], Floats]:
    if len(nodes) == 1:
        return lambda points: np.broadcast_to(values[0], (len(points), *values.shape[1:]))
    if not limited.any():
        return CubicSpline(nodes, values)
    return CubicHermiteSpline(nodes, values, _slopes(nodes, values, limited))


def _slopes(nodes: Floats, values: Floats, limited: NDArray[np.bool_]) -> Floats:
    """Slopes at the nodes: limited ones, and between these a continuous second derivative."""
    gaps = np.diff(nodes)
    columns = (-1,) + (1,) * (values.ndim - 1)
    secants = np.diff(values, axis=0) / gaps.reshape(columns)
    if len(nodes) == 2:
        return np.concatenate([secants, secants])
    bands = np.zeros((3, len(nodes)))  # a tridiagonal matrix, in the layout of solve_banded
    right = np.empty_like(values, dtype=float)
    before, after = 1 / gaps[:-1], 1 / gaps[1:]
    scale = before + after
    bands[0, 2:], bands[1, 1:-1], bands[2, :-2] = after / scale, 2.0, before / scale
    share = (before / scale).reshape(columns)
    right[1:-1] = 3 * (share * secants[:-1] + (1 - share) * secants[1:])
    # The first and the last gap have parabolas.
    bands[1, [0, -1]] = bands[0, 1] = bands[2, -2] = 1.0
    right[0], right[-1] = 2 * secants[0], 2 * secants[-1]

    fixed = np.flatnonzero(limited)
    bands[1, fixed] = 1.0
    bands[0, np.minimum(fixed + 1, len(nodes) - 1)[fixed < len(nodes) - 1]] = 0.0
    bands[2, np.maximum(fixed - 1, 0)[fixed > 0]] = 0.0
    low, high = np.maximum(fixed - 1, 0), np.minimum(fixed + 1, len(nodes) - 1)
    right[fixed] = (values[high] - values[low]) / (nodes[high] - nodes[low]).reshape(columns)
    return solve_banded((1, 1), bands, right)
