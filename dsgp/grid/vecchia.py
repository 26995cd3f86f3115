"""Vecchia's approximation on the observed cells of a grid: a sparse inverse Cholesky factor.

The factor is a preconditioner for exact solves, and gives a likelihood to learn by. Cells are
eliminated in a random order; each is regressed on the earlier ones of largest prior covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsgp.compute import run
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.points import amplitude
from dsgp.jit import vecchia as jit
from dsgp.kernels import Periodic
from dsgp.terms import Floats

# Number of nearby cells that a search looks at before it stops.
_OFFSETS = 20000
# The first cells are far apart: for this many of them all earlier ones are searched.
_FIRST = 3000
# Neighbours of a target are searched among these parts of the cells: all, every 6th, every 36th.
_SHARES = (1, 6, 36)
# Number of blocks of cells: sums over them do not depend on the number of threads.
_BLOCKS = 32
_SECONDS_A_CELL = 1e-5

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Cells:
    """Observed cells of a grid, in their order of elimination.

    Attributes
    ----------
    shape : tuple of int
        Of the grid.
    index : ndarray of shape (n, D)
    flat : ndarray of shape (n,)
        The same, into the flattened grid.
    rank : ndarray of shape (n_grid,)
        Place of each cell of the flattened grid in the order; -1 where nothing is observed.
    wrap : ndarray of bool, shape (D,)
        Axes that close on themselves.
    """

    shape: tuple[int, ...]
    index: Ints
    flat: NDArray[np.int64]
    rank: Ints
    wrap: NDArray[np.bool_]

    @classmethod
    def of(cls, observed: NDArray[np.bool_], prior: SeparableSum, seed: int = 0) -> Cells:
        """Order the observed cells at random."""
        flat = np.flatnonzero(observed)
        flat = np.random.default_rng(seed).permutation(flat)
        rank = np.full(observed.size, -1, dtype=np.int32)
        rank[flat] = np.arange(len(flat), dtype=np.int32)
        index = np.stack(np.unravel_index(flat, observed.shape), axis=1).astype(np.int32)
        return cls(observed.shape, index, flat, rank, _closed(prior))

    def __len__(self) -> int:
        return len(self.flat)


def _closed(prior: SeparableSum) -> NDArray[np.bool_]:
    closed = []
    for d, axis_points in enumerate(prior.points):
        step = np.median(np.diff(axis_points)) if len(axis_points) > 1 else np.inf
        extent = axis_points[-1] - axis_points[0] + step
        kernels = [term[d] for term in prior.terms]
        closed.append(
            all(isinstance(k, Periodic) and abs(extent - k.period) < 0.5 * step for k in kernels)
        )
    return np.array(closed)


def earlier_neighbours(
    cells: Cells,
    prior: SeparableSum,
    n_neighbours: int,
    rows: NDArray[np.int64] | None = None,
) -> Ints:
    """Find for every cell the earlier ones it is regressed on, (n, n_neighbours), -1 for none.

    ``rows``, ascending: for these cells only; the rows of others hold anything.
    """
    n = len(cells)
    rows = np.arange(n) if rows is None else rows
    out = np.empty((n, min(n_neighbours, max(n - 1, 1))), dtype=np.int32)
    tables, offsets = prior.tables(), _offsets(prior, cells.wrap)
    first = int(np.searchsorted(rows, _FIRST))
    # Here the work of a cell grows with its rank, and below it falls: blocks are interleaved.
    _blocks(lambda a, b: jit.best_earlier(cells.index, tables, rows, a, b, out), 0, first)
    shape = np.array(cells.shape, dtype=np.int64)
    _blocks(
        lambda a, b: jit.earlier_neighbours(
            cells.index, cells.rank, shape, cells.wrap, offsets, rows, a, b, -1, out
        ),
        first,
        len(rows),
    )
    others = rows[first:]
    _widen(cells, prior, others[out[others, -1] < 0], out)
    return out


def _widen(cells: Cells, prior: SeparableSum, rows: NDArray[np.intp], out: Ints) -> None:
    """Complete rows whose list of steps was too short, as the first cells may be far apart.

    Distances are in the longest lengthscales, which matter at such distances.
    """
    m = out.shape[1]
    lengths = _in_steps(prior, max)
    places = cells.index / lengths
    around = np.where(cells.wrap, np.array(cells.shape) / lengths, 0.0)
    while len(rows):
        # Twice as many cells as the first of the rows has before it: at least half of them are
        # earlier.
        limit = 2 * int(rows[0])
        some, rows = rows[rows < limit], rows[rows >= limit]
        tree = cKDTree(places[:limit], boxsize=around)

        def fill(first: int, last: int, some: NDArray[np.intp] = some, tree: Any = tree) -> None:
            block = some[first:last]
            if len(block):
                near = tree.query(places[block], k=4 * m)[1]
                later = near >= block[:, None]
                order = np.argsort(later, axis=1, kind="stable")[:, :m]
                chosen = np.take_along_axis(near, order, axis=1)
                chosen[np.take_along_axis(later, order, axis=1)] = -1
                out[block] = chosen

        _blocks(fill, 0, len(some))


def candidates_of(cells: Cells, prior: SeparableSum, targets: Ints, n_each: int) -> Ints:
    """Find for target cells (t, D) observed ones of large covariance with them, near and far.

    The nearest ones may all lie on one side of a gap, and be redundant. The first cells in the
    order of elimination are a random sample of all: ``n_each`` are taken from all cells and from
    the first 6th and 36th part of them.

    Returns
    -------
    ndarray of shape (t, at most 3 n_each), -1 for none
    """
    offsets = _offsets(prior, cells.wrap)
    shape = np.array(cells.shape, dtype=np.int64)
    candidates = np.empty((len(targets), 0), dtype=np.int32)
    rows = np.arange(len(targets))
    for share in _SHARES:
        limit = len(cells) // share
        some = np.empty((len(targets), min(n_each, limit)), dtype=np.int32)
        if not some.shape[1]:
            break

        def search(first: int, last: int, limit: int = limit, some: Ints = some) -> None:
            jit.earlier_neighbours(
                targets, cells.rank, shape, cells.wrap, offsets, rows, first, last, limit, some
            )

        _blocks(search, 0, len(targets))
        short = np.flatnonzero(some[:, -1] < 0)
        if len(short):
            some[short] = _with_far(cells, prior, targets[short], limit, some[short])
        both = np.empty((len(targets), candidates.shape[1] + some.shape[1]), dtype=np.int32)
        jit.merge(candidates, some, both)
        candidates = both
    return candidates


def _with_far(
    cells: Cells, prior: SeparableSum, targets: Ints, limit: int, candidates: Ints
) -> Ints:
    """Complete rows of observed cells: deep in a gap, the list of steps may not reach any.

    Distances are in the longest lengthscales, which matter at such distances.
    """
    m = candidates.shape[1]
    lengths = _in_steps(prior, max)
    around = np.where(cells.wrap, np.array(cells.shape) / lengths, 0.0)
    tree = cKDTree(cells.index[:limit] / lengths, boxsize=around)
    out = np.empty((len(targets), 2 * m), dtype=np.int32)

    def fill(first: int, last: int) -> None:
        if first < last:
            near = tree.query(targets[first:last] / lengths, k=m)[1].reshape(last - first, m)
            jit.merge(candidates[first:last], near.astype(np.int32), out[first:last])

    _blocks(fill, 0, len(targets))
    return out[:, :m]


def _offsets(prior: SeparableSum, wrap: NDArray[np.bool_]) -> Ints:
    """List steps to other cells, those of largest prior covariance first, (n_offsets, D)."""
    shape = np.array(prior.shape)
    limit = np.where(wrap, shape // 2, shape - 1)
    # A box of some multiple of the shortest lengthscales, enlarged until it has enough cells.
    lengths = _in_steps(prior, min)
    # The first box is small whatever the lengthscales: one step along the longest of them.
    reach = 1.0 / lengths.max()
    while True:
        window = np.minimum(np.maximum(np.ceil(reach * lengths), 1), limit).astype(np.int64)
        if np.prod(2.0 * window + 1) > 4 * _OFFSETS or (window == limit).all():
            break
        reach *= 1.3
    lags = [
        # Half way round a closed axis, both directions lead to the same cell.
        np.arange(-w + (closed and 2 * w == size), w + 1)
        for w, size, closed in zip(window, shape, wrap, strict=True)
    ]
    total = np.zeros([len(axis_lags) for axis_lags in lags])
    profiles = [prior.by_lag(d, axis_lags) for d, axis_lags in enumerate(lags)]
    for c, term in enumerate(prior.terms):
        part = np.array(amplitude(term))
        for profile in profiles:
            part = np.multiply.outer(part, profile[c])
        total += part
    # Far away, correlations round to the same number: then the nearer cell in steps comes first.
    distance = sum(
        np.meshgrid(
            *[(axis_lags / max(w, 1)) ** 2 for axis_lags, w in zip(lags, window, strict=True)],
            indexing="ij",
            sparse=True,
        ),
        start=np.zeros(()),
    )
    order = np.lexsort((distance.ravel(), -total.ravel()))[:_OFFSETS]
    index = np.stack(np.unravel_index(order, total.shape), axis=1) + [
        axis_lags[0] for axis_lags in lags
    ]
    return np.ascontiguousarray(index, dtype=np.int32)


def _in_steps(prior: SeparableSum, which: Callable[[list[float]], float]) -> Floats:
    """Shortest or longest lengthscale of every axis, in steps of it, (D,)."""
    lengths = [
        which([float(term[d].lengthscale or 1.0) for term in prior.terms])
        / (float(np.median(np.diff(axis_points))) if len(axis_points) > 1 else 1.0)
        for d, axis_points in enumerate(prior.points)
    ]
    return np.clip(np.array(lengths), 1e-6, 1e12)


@dataclass(frozen=True, eq=False)
class Factor:
    """A sparse approximation Bᵀ D⁻¹ B of (K + R)⁻¹ on the observed cells."""

    neighbours: Ints
    coefficients: Floats
    variance: Floats

    @classmethod
    def of(cls, cells: Cells, prior: SeparableSum, noise: Floats, neighbours: Ints) -> Factor:
        """Regress each cell on its neighbours; ``noise`` (n,) has the variances of the cells."""
        coefficients = np.empty(neighbours.shape)
        variance = np.empty(len(cells))
        tables = prior.tables()
        _blocks(
            lambda a, b: jit.factor(
                cells.index, neighbours, noise, tables, a, b, coefficients, variance
            ),
            0,
            len(cells),
        )
        return cls(neighbours, coefficients, variance)

    def apply(self, vector: Floats) -> Floats:
        """Return the approximate (K + R)⁻¹ vector, (n,)."""
        half, out = np.empty_like(vector), np.empty_like(vector)
        jit.apply(self.neighbours, self.coefficients, self.variance, vector, half, out)
        return out

    def log_likelihood(self, y: Floats) -> float:
        """Log density of observations (n,), −½ Σ log(2π D) − ½ yᵀ Bᵀ D⁻¹ B y."""
        return -0.5 * float(np.sum(np.log(2 * np.pi * self.variance)) + y @ self.apply(y))


@dataclass(frozen=True, eq=False)
class VecchiaEvidence:
    """An approximate log likelihood and its gradient by logs of the hyperparameters."""

    value: float
    by_log_lengthscale: Floats  # (C, D)
    by_log_variance: Floats  # (C,)
    by_log_noise: float


def log_likelihood(
    cells: Cells,
    prior: SeparableSum,
    noise: Floats,
    y: Floats,
    neighbours: Ints,
    rows: NDArray[np.int64],
    weight: Floats,
) -> VecchiaEvidence:
    """Return Σ w log p(y_i | y of its neighbours) over some of the cells.

    A sample of the cells, weighted by the inverse of its share, estimates the sum over all.
    """
    tables = prior.tables()
    n_terms, n_dims = tables.start.shape

    def block(first: int, last: int) -> tuple[float, Floats]:
        gradient = np.zeros(n_terms * n_dims + n_terms + 1)
        value = jit.likelihood(
            rows, weight, cells.index, neighbours, noise, y, tables, first, last, gradient
        )
        return value, gradient

    parts = _blocks(block, 0, len(rows))
    gradient = np.sum([part[1] for part in parts], axis=0)
    return VecchiaEvidence(
        value=float(np.sum([part[0] for part in parts])),
        by_log_lengthscale=gradient[: n_terms * n_dims].reshape(n_terms, n_dims),
        by_log_variance=gradient[n_terms * n_dims : -1],
        by_log_noise=float(gradient[-1]),
    )


def local_variance(
    targets: Ints, cells: Cells, prior: SeparableSum, noise: Floats, candidates: Ints, n_best: int
) -> Floats:
    """Variance at target cells (t, D) given only the most informative of candidates (t, q).

    It is never below that given all cells.
    """
    variance = np.empty(len(targets))
    tables = prior.tables()
    n_best = min(n_best, candidates.shape[1])
    _blocks(
        lambda a, b: jit.variance_given_best(
            targets, cells.index, candidates, noise, tables, n_best, a, b, variance
        ),
        0,
        len(targets),
    )
    return variance


def _blocks(function: Callable[[int, int], object], first: int, last: int) -> list:
    """Apply a function to blocks [a, b) on threads."""
    edges = np.linspace(first, last, _BLOCKS + 1).astype(int).tolist()
    return run(
        [partial(function, a, b) for a, b in pairwise(edges)],
        seconds=_SECONDS_A_CELL * (last - first),
        in_place=True,
    )
