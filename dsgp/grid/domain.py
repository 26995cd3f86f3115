"""Cells that a fill outputs: those observed at some time, or the hull of the observed ones.

With several steps of time, a cell without a value at any of them may be land, and stays empty. With
one step, or no time, that would be all gaps: then those inside the hull of the data are filled.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from dsgp.errors import DataWarning, ParameterError
from dsgp.grid.axes import GridAxis
from dsgp.grid.coordinates import Floats
from dsgp.grid.field import Field, static_gaps

Bools = NDArray[np.bool_]

CHOICES = ("auto", "observed", "hull")
# With more dims of space than this, a box replaces the hull, which would have too many facets.
_HULL_DIMS = 4
# Relative to the extent of each axis: cells this close to a facet count as inside.
_TOUCHES = 1e-9
# Distances of cells from facets that are in memory at a time.
_BLOCK = 2**22


def times_of(axes: Sequence[GridAxis]) -> tuple[int, ...]:
    """Return the axes of times: dates, durations, or called "time"."""
    return tuple(d for d, axis in enumerate(axes) if axis.is_time or axis.name == "time")


def require_choice(choice: str) -> None:
    """Raise ``ParameterError`` if a domain is not one of the named ones."""
    if choice not in CHOICES:
        raise ParameterError(
            f'domain must be an array, "auto", "observed", "hull" or None, got {choice!r}'
        )


def domain_of(
    choice: str, field: Field, usable: Bools | None = None, known: Bools | None = None
) -> Bools | None:
    """Return the cells to output, in a shape that broadcasts against the field; None: all.

    Parameters
    ----------
    choice : {"auto", "observed", "hull"}
        "observed": cells with a value at some step of time; without times, all. "hull": cells
        inside the convex hull of those with a value. "auto": "observed" with several steps of
        time, else "hull", and a ``DataWarning`` reports the choice.
    field : Field
    usable, known : ndarray of bool that broadcasts against the field, optional
        Its mask, and the cells that hold a value before it. If the mask is true at some cells
        without a value, then those without a value where it is false are land, and stay empty in
        the hull.
    """
    require_choice(choice)
    times = times_of(field.axes)
    observed = choice == "observed" or (choice == "auto" and _n_steps(field.shape, times) > 1)
    if field.observed is None or (observed and not times):
        return None
    ever = ~static_gaps(field.observed, times) if times else field.observed
    if observed:
        domain = ever
    else:
        domain = hull_of(ever, field.axes)
        if usable is not None and known is not None and (usable & ~known).any():
            sea = np.broadcast_to(usable | known, field.shape)
            domain = domain & sea.any(axis=times, keepdims=True)
    if choice == "auto":
        say(ever, domain, observed)
    return domain


def _n_steps(shape: Sequence[int], times: Sequence[int]) -> int:
    return int(np.prod([shape[d] for d in times])) if times else 1


def several_steps(shape: Sequence[int], axes: Sequence[GridAxis]) -> bool:
    """Whether "auto" is "observed"; else it is "hull"."""
    return _n_steps(shape, times_of(axes)) > 1


def say(ever: Bools, domain: Bools, observed: bool) -> None:
    """Warn of cells that were never observed: how many stay empty, how many are invented.

    Parameters
    ----------
    ever, domain : ndarray of bool
        Cells with a value at some time, and those that are output.
    observed : bool
        Whether the domain is that of the observed cells; else it is the hull.
    """
    n_filled = int(np.count_nonzero(domain & ~ever))
    n_empty = int(np.count_nonzero(~domain))
    if observed and n_empty:
        warnings.warn(
            f"{n_empty} of {ever.size} places have no value at any time and stay empty, as land "
            'does; domain="observed" (--domain observed) confirms this, domain=None (--domain all) '
            "fills them, and a DataArray of bool (a variable) selects cells",
            DataWarning,
            stacklevel=2,
        )
    elif not observed and n_filled + n_empty:
        warnings.warn(
            f"{n_filled} of {ever.size} places have no value and are filled, because they are "
            f"inside the convex hull of those that have one (land, too); {n_empty} beyond it stay "
            'empty. domain="hull" (--domain hull) confirms this, domain=None (--domain all) fills '
            "all, and a DataArray of bool (a variable) selects cells",
            DataWarning,
            stacklevel=2,
        )


def hull_of(observed: Bools, axes: Sequence[GridAxis]) -> Bools:
    """Cells inside the convex hull of the observed ones, in coordinates; edges belong to it.

    With more than four dims of several points a box stands in for the hull.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.axes import GridAxis
    >>> axis = GridAxis("x", np.arange(3.0))
    >>> seen = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
    >>> hull_of(seen, [axis, axis]).astype(int)
    array([[1, 1, 1],
           [1, 1, 0],
           [1, 0, 0]])
    """
    wide = [d for d, n in enumerate(observed.shape) if n > 1]
    inside = observed.copy()
    if not wide:
        return inside
    places = [_scaled(axes[d].points) for d in wide]
    corners = _outermost(observed.reshape([observed.shape[d] for d in wide]))
    corner_places = np.stack(
        [one[index] for one, index in zip(places, corners.T, strict=True)], axis=1
    )
    gaps = np.flatnonzero(~observed)
    index = np.unravel_index(gaps, [observed.shape[d] for d in wide])
    planes, flat = _planes(corner_places)
    step = max(_BLOCK // max(len(planes), 1), 1)
    for start in range(0, len(gaps), step):
        some = slice(start, start + step)
        cells = np.stack(
            [one[place[some]] for one, place in zip(places, index, strict=True)], axis=1
        )
        within = np.abs(cells @ flat[:, :-1].T + flat[:, -1]).max(axis=1, initial=0.0) <= _TOUCHES
        within &= (cells @ planes[:, :-1].T + planes[:, -1]).max(axis=1, initial=-1.0) <= _TOUCHES
        inside.reshape(-1)[gaps[some]] = within
    return inside


def _scaled(points: Floats) -> Floats:
    return (points - points[0]) / (points[-1] - points[0])


def _outermost(observed: Bools) -> NDArray[np.intp]:
    """First and last observed cell of every fibre along the last axis, which have the same hull."""
    any_there = observed.any(axis=-1)
    fibres = np.argwhere(any_there)
    rows = observed[any_there]
    first, last = rows.argmax(axis=1), rows.shape[1] - 1 - rows[:, ::-1].argmax(axis=1)
    both = [np.column_stack([fibres, end]) for end in (first, last)]
    return np.unique(np.concatenate(both), axis=0)


def _planes(cells: Floats) -> tuple[Floats, Floats]:
    """Return (normal, offset) of half spaces that bound some cells, and of planes they lie in."""
    middle = cells.mean(axis=0)
    _, sizes, directions = np.linalg.svd(cells - middle, full_matrices=True)
    rank = int(np.count_nonzero(sizes > 1e-9))
    across = directions[rank:]
    flat = np.column_stack([across, -across @ middle])
    basis = directions[:rank]
    inner = (cells - middle) @ basis.T
    if rank == 0:
        return np.empty((0, cells.shape[1] + 1)), flat
    if rank == 1 or rank > _HULL_DIMS:
        if rank > _HULL_DIMS:  # along the axes
            basis, inner, middle = np.eye(cells.shape[1]), cells, np.zeros(cells.shape[1])
        eye = np.eye(len(basis))
        normals = np.concatenate([eye, -eye])
        offsets = np.concatenate([-inner.max(axis=0), inner.min(axis=0)])
    else:
        try:
            equations = ConvexHull(inner).equations
        except QhullError:  # nearly flat: rounding decides; Qhull works on joggled input
            equations = ConvexHull(inner, qhull_options="QJ").equations
        normals, offsets = equations[:, :-1], equations[:, -1]
    turned = normals @ basis
    return np.column_stack([turned, offsets - turned @ middle]), flat
