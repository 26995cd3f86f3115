"""Targets of predictions: a grid, points, or points along some axes and a grid along others.

The semantics are those of xarray's indexing: every axis has an array of new coordinates with dims,
and axes whose arrays share a dim go together, point by point.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp import memory
from dsgp.errors import DataError, DataWarning
from dsgp.grid.axes import GridAxis, check_dims
from dsgp.grid.coordinates import Floats


@dataclass(frozen=True)
class _Indexer:
    """New coordinates of one axis, with the dims that they run along."""

    axis: GridAxis
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    values: NDArray[Any] | None  # flat; None: those of the axis
    source: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Targets:
    """Cells of another grid, or points, at which a field is predicted.

    Numbers are computed in an inner layout: where axes go ``together``, a first dim of points and
    then one dim for each other axis in its order; else one dim for each axis. ``arranged`` converts
    them to the outer layout: ``dims`` and ``shape``, in xarray's order.

    Attributes
    ----------
    points : tuple of ndarray
        One per axis, in its unit. Of axes that go together: as many as there are points.
    coords : mapping of dim to ndarray
        The same as coordinates of their kind (for example dates), for axes with new points.
    together : tuple of int
        Axes that go together, point by point; at least two, or none: a grid.
    dims : tuple of str
    shape : tuple of int
    """

    points: tuple[Floats, ...]
    coords: Mapping[str, NDArray[Any]]
    together: tuple[int, ...]
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    _indexers: tuple[_Indexer, ...]
    _common: tuple[str, ...]
    _sizes: Mapping[str, int]

    @classmethod
    def of(cls, axes: Sequence[GridAxis], coords: Mapping[str, Any]) -> Self:
        """Read coordinates by dim.

        Parameters
        ----------
        axes : sequence of GridAxis
            Those of the field.
        coords : mapping of dim to scalar, list, or DataArray
            A scalar removes the dim; a list, or a DataArray along the dim itself, is its new
            coordinate. A DataArray along other dims replaces the dim by these: axes that share
            such a dim are predicted point by point. Other dims keep the field's coordinates.

        Raises
        ------
        DataError
            If a coordinate cannot be used, or a dim has different sizes or labels.
        ParameterError
            If a dim is none of the field's.
        """
        check_dims(coords, axes, "coords")
        indexers = tuple(_indexer(axis, coords) for axis in axes)
        sizes = _sizes_of(indexers)
        together = _sharing(indexers)
        common = tuple(dict.fromkeys(dim for d in together for dim in indexers[d].dims))
        points, new = [], {}
        for d, one in enumerate(indexers):
            axis = one.axis
            if one.values is None:
                # The inner layout is along ascending axes, with points in the order of their dim.
                numbers = axis.points
                if d in together:
                    numbers = numbers[own_order(axis)]
            else:
                numbers = axis.numbers(one.values)
            if d in together:
                numbers = _spread(numbers, one.dims, common, sizes)
            points.append(np.ascontiguousarray(numbers))
            if one.values is not None:
                spread = d in together
                new[axis.name] = (
                    _spread(one.values, one.dims, common, sizes) if spread else one.values
                )
        dims = tuple(dict.fromkeys(dim for one in indexers for dim in one.dims))
        shape = tuple(sizes[dim] for dim in dims)
        return cls(tuple(points), new, together, dims, shape, indexers, common, sizes)

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Of the numbers before ``arranged``."""
        outer = [
            len(axis_points) for d, axis_points in enumerate(self.points) if d not in self.together
        ]
        if not self.together:
            return tuple(outer)
        return (math.prod(self._sizes[dim] for dim in self._common), *outer)

    def arranged(self, values: Any, leading: Sequence[str] = ()) -> Any:
        """Convert numbers (…, inner layout), numpy or dask, to the outer layout.

        ``leading`` has the names of the axes before.
        """
        outer = [one for d, one in enumerate(self._indexers) if d not in self.together]
        n_leading, got = len(leading), tuple(values.shape)
        if len(got) != n_leading + len(self.inner_shape) or got[n_leading:] != self.inner_shape:
            before = "".join(f"{name}, " for name in leading)
            raise DataError(
                f"restore: expected values of shape ({before}{str(self.inner_shape)[1:]}, got {got}"
            )
        for position, one in enumerate(reversed(outer)):
            if one.values is None and (one.axis.descending or one.axis.repeated):
                places = own_order(one.axis)
                values = values[(..., places, *[slice(None)] * position)]
        dims = [*self._common, *(dim for one in outer for dim in one.dims)]
        shape = (*got[:n_leading], *(self._sizes[dim] for dim in dims))
        values = values if values.shape == shape else values.reshape(shape)
        order = [n_leading + dims.index(dim) for dim in self.dims]
        return values.transpose(*range(n_leading), *order)

    def coordinates(self, template: xr.DataArray) -> xr.Coordinates:
        """Coordinates of the result: those of the field that hold, and the new ones."""
        moved = {one.axis.name for one in self._indexers if one.values is not None}
        out: dict[Hashable, Any] = {
            key: coordinate
            for key, coordinate in template.coords.items()
            if not set(coordinate.dims) & moved
        }
        for one in self._indexers:
            if one.values is None:
                continue
            name = one.axis.name
            attrs = {**template.coords[name].attrs, **getattr(one.source, "attrs", {})}
            new = xr.Variable(one.dims, one.values.reshape(one.shape), attrs)
            out[name] = new
        for one in self._indexers:
            for key, beside in getattr(one.source, "coords", {}).items():
                if key not in out and key not in template.dims and set(beside.dims) <= {*one.dims}:
                    out[key] = beside.variable
        variables = {
            key: value.variable if isinstance(value, xr.DataArray) else value
            for key, value in out.items()
        }
        return xr.Dataset(coords=variables).coords

    def warn_beyond(self) -> None:
        """Warn of the number of targets more than half a step beyond the ends of the field."""
        for one in self._indexers:
            axis = one.axis
            if one.values is None or not one.size or axis.is_closed:
                continue
            numbers = axis.numbers(one.values)
            first, last = axis.points[[0, -1]]
            margin = 0.5 * float(np.median(np.diff(axis.points))) if len(axis) > 1 else 0.0
            margin = margin * (1 + 1e-9) + axis.rounding
            beyond = (numbers < first - margin) | (numbers > last + margin)
            if beyond.any():
                unit = f" {axis.unit}" if axis.unit and axis.epoch is None else ""
                low, high = numbers[beyond].min(), numbers[beyond].max()
                start, stop, lowest, highest = axis.written([first, last, low, high])
                warnings.warn(
                    f"{int(beyond.sum())} of {one.size} targets lie beyond the field along "
                    f"{axis.name!r}, which has {start} to {stop}{unit}; they are "
                    f"{lowest} to {highest}. There the mean "
                    "returns to the prior mean and std to the prior's, because the data say "
                    "little",
                    DataWarning,
                    stacklevel=4,
                )

    def require_memory(self, shape: Sequence[int]) -> None:
        """Raise ``MemoryLimitError`` if a prediction would not fit beside a field of some shape."""
        n_cells = math.prod(self.shape)
        sizes = ", ".join(f"{dim} {n}" for dim, n in zip(self.dims, self.shape, strict=True))
        memory.require(
            f"a prediction at {n_cells} cells ({sizes})",
            self._bytes_needed(shape),
            "predict fewer at a time; for points instead of a grid, give DataArrays that share a "
            "dim: "
            'lat=DataArray(..., dims="obs"), lon=DataArray(..., dims="obs")',
        )

    def _bytes_needed(self, shape: Sequence[int]) -> float:
        cells = math.prod(self.inner_shape)
        if not self.together:
            largest = math.prod(
                max(n, len(axis_points)) for n, axis_points in zip(shape, self.points, strict=True)
            )
            crosses = sum(
                n * len(axis_points) for n, axis_points in zip(shape, self.points, strict=True)
            )
            return 8.0 * (4 * largest + 2 * cells + 3 * crosses)
        kept = math.prod(
            n if d in self.together else max(n, len(self.points[d])) for d, n in enumerate(shape)
        )
        return 8.0 * (6 * cells + 3 * kept + 4 * len(shape) * len(self.points[self.together[0]]))


def own_order(axis: GridAxis) -> slice | NDArray[np.intp]:
    """Index of the user's own points into those of an axis."""
    back = slice(None, None, -1 if axis.descending else None)
    return np.append(np.arange(len(axis)), 0)[back] if axis.repeated else back


def _indexer(axis: GridAxis, coords: Mapping[str, Any]) -> _Indexer:
    name = axis.name
    if name not in coords:
        return _Indexer(axis, (name,), (axis.n_outer,), None)
    value = coords[name]
    if isinstance(value, xr.Variable):
        value = xr.DataArray(value)
    if not isinstance(value, xr.DataArray):
        values = axis.checked(value)
        scalar = np.ndim(value) == 0
        return _Indexer(axis, () if scalar else (name,), () if scalar else values.shape, values)
    values = axis.checked(np.asarray(value.values).ravel())
    return _Indexer(axis, tuple(map(str, value.dims)), value.shape, values, value)


def _sizes_of(indexers: Sequence[_Indexer]) -> dict[str, int]:
    """Return the size of every dim; raise where two coordinates do not agree on it."""
    sizes: dict[str, int] = {}
    first: dict[str, _Indexer] = {}
    for one in indexers:
        for dim, size in zip(one.dims, one.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise DataError(
                    f"coords: dim {dim!r} has {sizes[dim]} points for {first[dim].axis.name!r} and "
                    f"{size} for {one.axis.name!r}; expected the same number, to predict point by "
                    "point: give arrays of one length, or plain lists for a grid"
                )
            before = first.setdefault(dim, one)
            _require_same_labels(dim, before, one)
    return sizes


def _require_same_labels(dim: str, first: _Indexer, second: _Indexer) -> None:
    """Raise where two coordinates have different labels along a dim that they share."""
    labels = []
    for one in (first, second):
        if one.values is None:
            labels.append(one.axis)
        elif isinstance(one.source, xr.DataArray) and dim in one.source.coords:
            labels.append(one.source.coords[dim].values)
    if first is second or len(labels) < 2:
        return
    a, b = labels
    if isinstance(b, GridAxis):
        a, b = b, a
    if isinstance(a, GridAxis):
        same = np.array_equal(a.find(b), np.arange(len(a))[own_order(a)])
    else:
        same = np.array_equal(a, b)
    if not same:
        raise DataError(
            f"coords: {first.axis.name!r} and {second.axis.name!r} have different labels along "
            f"{dim!r}, which they share; bring them into one order: xarray.align(..., "
            "join='inner'), or drop the labels: .drop_vars(...)"
        )


def _sharing(indexers: Sequence[_Indexer]) -> tuple[int, ...]:
    """Return the axes that share a dim with another one."""
    return tuple(
        d
        for d, one in enumerate(indexers)
        if any(set(one.dims) & set(other.dims) for other in indexers if other is not one)
    )


def _spread(
    values: NDArray[Any], dims: Sequence[str], common: Sequence[str], sizes: Mapping[str, int]
) -> NDArray[Any]:
    """Repeat values along the dims that they lack; flat."""
    inner = values.reshape([sizes[dim] for dim in dims])
    order = [dims.index(dim) for dim in common if dim in dims]
    inner = inner.transpose(order)
    inner = inner.reshape([sizes[dim] if dim in dims else 1 for dim in common])
    return np.broadcast_to(inner, [sizes[dim] for dim in common]).ravel()
