"""Nearest neighbours of rows: exactly, by a tree in few dimensions and by all distances in many."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsgp.compute import run
from dsgp.terms import Floats

Places = NDArray[np.int64]

# Number of dimensions beyond which a tree would visit nearly every row.
MOST_TREE_DIMENSIONS = 24
_BLOCK = 2048
# Numbers in one block of the table of all distances. A thread holds three such arrays.
_DISTANCES = 2**21
_SECONDS = 1e-4  # per query


class Finder:
    """Finds the nearest of some rows.

    Parameters
    ----------
    coordinates : ndarray of shape (n, D)
    """

    def __init__(self, coordinates: Floats) -> None:
        self.coordinates = np.ascontiguousarray(coordinates)

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def _by_tree_is_quick(self) -> bool:
        return self.coordinates.shape[1] <= MOST_TREE_DIMENSIONS

    def prepare(self) -> None:
        """Prepare what all searches share."""
        if self._by_tree_is_quick:
            self._tree  # noqa: B018
        else:
            self._squares  # noqa: B018

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.coordinates, balanced_tree=False, compact_nodes=True)

    def nearest(self, points: Floats, count: int) -> Places:
        """Return the ``count`` nearest rows of each point, nearest first, (k, count).

        -1 where there are fewer rows.
        """
        out = np.full((len(points), count), -1, dtype=np.int64)
        if not len(self):
            return out
        by_tree = self._by_tree_is_quick
        self.prepare()
        block = _BLOCK if by_tree else max(min(_BLOCK, _DISTANCES // len(self)), 1)
        fill = self._by_tree if by_tree else self._by_distances
        tasks = [
            partial(fill, points[start : start + block], out[start : start + block])
            for start in range(0, len(points), block)
        ]
        run(tasks, _SECONDS * len(points), in_place=True)
        return out

    def _by_tree(self, points: Floats, out: Places) -> None:
        count = min(out.shape[1], len(self))
        _, found = self._tree.query(points, k=np.arange(1, count + 1))
        out[:, :count] = found

    def _by_distances(self, points: Floats, out: Places) -> None:
        count = min(out.shape[1], len(self))
        squares = self._squares - 2.0 * (points @ self.coordinates.T)
        if count < len(self):
            some = np.argpartition(squares, count - 1, axis=1)[:, :count]
        else:
            some = np.broadcast_to(np.arange(count), (len(points), count))
        some = np.sort(some, axis=1)  # rows at the same distance keep their order
        order = np.argsort(np.take_along_axis(squares, some, axis=1), axis=1, kind="stable")
        out[:, :count] = np.take_along_axis(some, order, axis=1)

    @cached_property
    def _squares(self) -> Floats:
        return np.einsum("ij,ij->i", self.coordinates, self.coordinates)


def others(finder: Finder, rows: Places, count: int) -> Places:
    """Return the nearest other rows of some rows, (k, count), -1 where there are fewer."""
    found = finder.nearest(finder.coordinates[rows], count + 1)
    found[found == rows[:, None]] = -1
    return _first(found, count)


def earlier(coordinates: Floats, count: int) -> Places:
    """Return the nearest of the rows before each row, (n, count), -1 where there are fewer.

    Fast if rows are in random order: neighbours are searched among twice as many rows at a time.
    """
    n = len(coordinates)
    out = np.full((n, count), -1, dtype=np.int64)
    start = min(n, 2 * count)
    head = Finder(coordinates[:start])
    found = head.nearest(head.coordinates, max(start, count))
    found[found >= np.arange(start)[:, None]] = -1
    out[:start] = _first(found, count)
    while start < n:
        stop = min(2 * start, n)
        finder = Finder(coordinates[:stop])
        rows, asked = np.arange(start, stop), 3 * count
        while len(rows):
            asked = min(asked, stop)
            found = finder.nearest(coordinates[rows], asked)
            found[found >= rows[:, None]] = -1
            enough = np.count_nonzero(found >= 0, axis=1) >= count
            if asked == stop:
                enough[:] = True
            out[rows[enough]] = _first(found[enough], count)
            rows, asked = rows[~enough], 2 * asked
        start = stop
    return out


def _first(found: Places, count: int) -> Places:
    """Return the first ``count`` that are not -1 of each row, in their order."""
    order = np.argsort(found < 0, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(found, order, axis=1)
