"""A sum of ridge functions Σ_m f_m(x·w_m), each a cubic spline through a few nodes.

The inputs are in standard units (mean 0, variance 1), and every direction is scaled so that its
projection has variance 1: the lengthscale of a kernel is in standard deviations of the projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.linalg import lapack

from dsgp.jit.ridge import evaluate_ridges
from dsgp.kernels import Matern
from dsgp.pursuit.splines import natural_splines, place_nodes
from dsgp.terms import Floats

# Bounds of the number of nodes of a function, and their number per lengthscale.
FEWEST_NODES, MOST_NODES = 16, 64
_NODES_PER_LENGTHSCALE = 2.0
# Largest range of a projection, in standard deviations, over which nodes are counted.
_WIDEST = 8.0
_JITTER = 1e-9


class Ridge(NamedTuple):
    """One function of one projection.

    Attributes
    ----------
    direction : ndarray of shape (D,)
    nodes : ndarray of shape (K,)
    values : ndarray of shape (K,)
        The function at its nodes; it is a natural cubic spline.
    kernel : kernel with all its parameters
        The prior of the values.
    """

    direction: Floats
    nodes: Floats
    values: Floats
    kernel: Matern


@dataclass(frozen=True)
class Ridges:
    """Some ridge functions, in the arrays that compiled loops need."""

    terms: tuple[Ridge, ...]
    n_features: int

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def n_nodes(self) -> int:
        """Nodes of all terms."""
        return int(self.starts[-1])

    @property
    def n_parameters(self) -> int:
        """Nodes of all terms and entries of all directions."""
        return self.n_nodes + len(self) * self.n_features

    @cached_property
    def directions(self) -> Floats:
        """All directions, (M, D)."""
        if not self.terms:
            return np.empty((0, self.n_features))
        return np.ascontiguousarray([term.direction for term in self.terms])

    @cached_property
    def values(self) -> Floats:
        """All functions at their nodes, one after the other."""
        return _joined([term.values for term in self.terms])

    @cached_property
    def nodes(self) -> Floats:
        """Nodes of all terms, one after the other."""
        return _joined([term.nodes for term in self.terms])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the nodes of each term begin, and the end; (M + 1,)."""
        return np.cumsum([0, *(len(term.nodes) for term in self.terms)], dtype=np.int64)

    @cached_property
    def parts(self) -> list[slice]:
        """Where the nodes of each term are."""
        return [
            slice(int(a), int(b)) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)
        ]

    @cached_property
    def factors(self) -> list[Floats]:
        """Lower Cholesky factor of the prior of each term's values."""
        return [_factor(term.kernel, term.nodes) for term in self.terms]

    @cached_property
    def cardinal(self) -> tuple[Floats, NDArray[np.int64]]:
        """Splines that are 1 at one node and 0 at the others, in the layout of ``jit.ridge``."""
        tables = [_cardinal(term.nodes) for term in self.terms]
        starts = np.cumsum([0, *(table.size for table in tables)], dtype=np.int64)
        return _joined([table.ravel() for table in tables]), starts

    @cached_property
    def functions(self) -> Floats:
        """The functions as cubics, in the layout of ``jit.ridge``."""
        flat, starts = self.cardinal
        pieces = []
        for m, term in enumerate(self.terms):
            size = len(term.nodes)
            table = flat[starts[m] : starts[m + 1]].reshape(size - 1, 4, size)
            pieces.append((table @ term.values).ravel())
        return _joined(pieces)

    def evaluate(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Evaluate the functions and their derivatives by the projections, each (n, M).

        Parameters
        ----------
        inputs : ndarray of shape (n, D)
        """
        shape = (len(inputs), len(self))
        value, slope = np.empty(shape), np.empty(shape)
        evaluate_ridges(
            inputs, self.directions, self.nodes, self.starts, self.functions, value, slope
        )
        return value, slope

    def moved(self, directions: Floats, values: Floats) -> Ridges:
        """Return ridges of the same nodes with other directions (M, D) and values (Σ K,)."""
        terms = tuple(
            term._replace(direction=direction, values=values[part])
            for term, direction, part in zip(self.terms, directions, self.parts, strict=True)
        )
        ridges = replace(self, terms=terms)
        # Cached properties that depend on the nodes alone are copied.
        for name in ("nodes", "starts", "parts", "factors", "cardinal"):
            if name in self.__dict__:
                ridges.__dict__[name] = self.__dict__[name]
        return ridges

    def with_kernels(self, kernels: Sequence[Any], values: Floats) -> Ridges:
        """Return ridges with other priors, and other values (Σ K,)."""
        terms = tuple(
            term._replace(kernel=kernel, values=values[part])
            for term, kernel, part in zip(self.terms, kernels, self.parts, strict=True)
        )
        ridges = replace(self, terms=terms)
        for name in ("directions", "nodes", "starts", "parts", "cardinal"):
            if name in self.__dict__:
                ridges.__dict__[name] = self.__dict__[name]
        return ridges

    def joined(self, other: Ridges) -> Ridges:
        """Append other terms."""
        return replace(self, terms=self.terms + other.terms)

    def kept(self, wanted: NDArray[np.bool_]) -> Ridges:
        """Return some of the terms."""
        terms = tuple(term for term, keep in zip(self.terms, wanted, strict=True) if keep)
        return replace(self, terms=terms)


def normalised(term: Ridge, std: float, sample: Floats, low: float, high: float) -> Ridge:
    """Scale a term so that its projection has variance 1, and place the nodes that it then needs.

    Parameters
    ----------
    term : Ridge
    std : float
        Standard deviation of its projection, over all rows.
    sample : ndarray of shape (n,)
        Some of its projections.
    low, high : float
        The range of all of them.
    """
    lengthscale = float(term.kernel.lengthscale or 1.0) / std
    kernel = term.kernel.with_parameters(lengthscale=lengthscale)
    old = term.nodes / std
    nodes = nodes_for(sample / std, low / std, high / std, lengthscale)
    spline = CubicSpline(old, term.values, bc_type="natural")
    inside = np.clip(nodes, old[0], old[-1])
    values = spline(inside) + (nodes - inside) * spline(inside, 1)
    return Ridge(term.direction / std, nodes, values, kernel)


def nodes_for(sample: Floats, low: float, high: float, lengthscale: float) -> Floats:
    """Choose nodes that cover a projection: half by rows, half by distance."""
    wanted = _NODES_PER_LENGTHSCALE * min(high - low, _WIDEST) / lengthscale
    count = int(np.clip(np.ceil(wanted) + 1, FEWEST_NODES, MOST_NODES))
    return place_nodes(np.sort(np.clip(sample, low, high)), low, high, count)


def _factor(kernel: Matern, nodes: Floats) -> Floats:
    prior = kernel.covariance(nodes)
    prior[np.diag_indices_from(prior)] *= 1 + _JITTER
    factor, failed = lapack.dpotrf(prior, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError(f"the prior of {kernel!r} at its nodes is singular")
    return np.asarray(factor)


def _cardinal(nodes: Floats) -> Floats:
    """Coefficients (K − 1, 4, K) of the cardinal splines, from constant to cubic."""
    size = len(nodes)
    table = natural_splines(np.broadcast_to(nodes, (size, size)), np.eye(size))
    return np.ascontiguousarray(table.transpose(1, 2, 0))


def _joined(arrays: list[Floats]) -> Floats:
    return np.concatenate(arrays) if arrays else np.empty(0)
