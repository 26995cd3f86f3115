"""A field of xarray as ascending axes and plain numbers, and the way back to the user's layout.

Reads a ``DataArray`` into memory. Axes alone, without the values, come from ``axes.axes_of``.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import DataError, DataWarning
from dsgp.grid.axes import GridAxis, axes_of, check_dims
from dsgp.grid.coded import (
    Codes,
    read_values,
    report_blanks,
    report_codes,
)
from dsgp.grid.coordinates import Floats
from dsgp.grid.metadata import kept_attributes, kept_encoding, tidied
from dsgp.grid.targets import Targets, own_order
from dsgp.rows.coded import Extremes

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Field:
    """A field on its axes.

    Attributes
    ----------
    axes : tuple of GridAxis
        In the order of the user's dims.
    values : ndarray of shape (n_1, …, n_D)
        Float64, in the field's unit, along ascending axes; NaN where missing or masked.
    observed : ndarray of bool, of the same shape, or None
        None: every cell is observed.
    domain : ndarray of bool that broadcasts against ``values``, or None
        False in cells that stay empty in ``restore`` (land, for instance). Observations there
        still count. None: no such cells.
    template : DataArray
        The user's layout, without its values.
    chunks : mapping of dim to tuple of int
        Of the user's dask array; empty if it was none.
    left_out : mapping of reason to number of cells
        Cells with a value that is not used: what attributes declare missing, and what a mask
        excludes.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> da = xr.DataArray([[1.0, np.nan], [3.0, 4.0]], {"lat": [50, 40], "lon": [0, 1]})
    >>> field = Field.of(da)
    >>> field.values
    array([[ 3.,  4.],
           [ 1., nan]])
    >>> field.restore(field.values).identical(da)
    True
    """

    axes: tuple[GridAxis, ...]
    values: Floats
    observed: Bools | None
    domain: Bools | None
    template: xr.DataArray
    chunks: Mapping[Hashable, tuple[int, ...]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        da: xr.DataArray,
        *,
        mask: Any = None,
        domain: Any = None,
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Read a field.

        Parameters
        ----------
        da : DataArray of any number of dims, each with a coordinate
            Floats or integers; NaN is a missing cell. A whole slice may be missing.
        mask : DataArray or array_like of bool, optional
            True: the cell's value is used. A DataArray can have fewer dims, in any order, and is
            matched by its coordinates; an array has the shape of ``da``. What the mask leaves
            out may hold anything.
        domain : DataArray or array_like of bool, optional
            Given like ``mask``. False: the cell stays empty in ``restore``.
        units : mapping of dim to {"days", "hours", "minutes", "seconds"}, optional
            For dims of times; by default chosen from the steps.

        Raises
        ------
        DataError
            If the values are of a type without an average, one is infinite, no cell is observed,
            many are exactly a number that is in use for missing values, or outside of the valid
            range; if a coordinate, the mask or the domain cannot be used.
        ParameterError
            If ``units`` names another dim or unit.

        Warns
        -----
        DataWarning
            If values count as missing by attributes (``_FillValue``, ``missing_value``, ``nodata``,
            ``valid_range``, …), which are honoured whether the values were decoded or not; and if
            many look like a code for missing ones.
        """
        _require_numbers(da)
        axes = axes_of(da, units)
        codes = Codes.of(da)
        values = codes.decoded(_upward(axes, da.values))
        blanks = codes.blank(values)
        values = _joined(axes, values)
        bare = np.broadcast_to(np.float64(np.nan), da.shape)
        template = da.copy(deep=False, data=bare)
        chunks = dict(da.chunksizes) if da.chunks is not None else {}
        made = cls(axes, values, None, None, template, chunks)
        seen = ~np.isnan(values)
        n_known = int(seen.sum())
        if mask is not None:
            usable = made.align_bool(mask, "mask")
            _warn_if_inverted(usable, seen, "mask", "are not used")
            seen &= usable
            values[~seen] = np.nan
        left_out = {reason: int(count) for reason, count in blanks.items()}
        if n_masked := n_known - int(seen.sum()):
            left_out["excluded by the mask"] = n_masked
        report_blanks(blanks, n_known, da.name)
        report_codes(Extremes().add(values), da.name, is_chosen=mask is not None)
        infinite = np.isinf(values)
        if infinite.any():
            where = _cell(axes, np.unravel_index(int(infinite.argmax()), values.shape))
            raise DataError(
                f"the field is infinite in {int(infinite.sum())} of {values.size} cells, such as "
                f"{where}; expected numbers, or NaN where missing: da.where(numpy.isfinite(da))"
            )
        if not seen.any():
            raise DataError(
                f"no cell of the field is observed: {n_known} of {values.size} hold a value"
                + ("" if mask is None else " and the mask leaves out all of these")
                + "; expected at least one"
                + (
                    ""
                    if mask is None
                    else " (the mask is True where a cell is used; if it marks land, pass ~mask, "
                    "or --mask NAME=0)"
                )
            )
        region = None if domain is None else made.align_bool(domain, "domain")
        if region is not None and not region.any():
            raise DataError(
                "domain leaves no cell; expected True where the output is to be given, False where "
                "it stays empty: pass ~domain if it is the other way round"
            )
        if region is not None:
            _warn_if_inverted(region, seen, "domain", "stay empty")
        observed = None if seen.all() else seen
        return cls(axes, values, observed, region, template, chunks, left_out)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of points by dim."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return self.values.size if self.observed is None else int(self.observed.sum())

    def align_bool(self, array: Any, what: str) -> Bools:
        """Align a mask with the axes, as ``align`` does; raise ``DataError`` if it is not bool."""
        dtype = array.dtype if isinstance(array, xr.DataArray) else np.asarray(array).dtype
        if dtype != np.bool_:
            raise DataError(
                f"{what}: expected True and False, got {dtype}; turn it into bool: "
                f"{what}.astype(bool) (True marks cells to use), where it holds no NaN"
            )
        return self.align(array, what)

    def align(self, array: Any, what: str) -> NDArray[Any]:
        """Align an array with the axes of the field.

        Parameters
        ----------
        array : DataArray or array_like
            A DataArray has some of the field's dims, in any order, and is matched by its
            coordinates (as ``GridAxis.find`` does), which can run another way; without
            coordinates, by position. Any other array has the shape of the user's field.
        what : str
            Its name in messages.

        Returns
        -------
        ndarray of D dims, along ascending axes
            One long where the array lacks the dim, so that it broadcasts against ``values``.

        Raises
        ------
        DataError
            If it has another dim, other coordinates or another shape.
        """
        if not isinstance(array, xr.DataArray):
            plain = np.asarray(array)
            sizes = {axis.name: axis.n_outer for axis in self.axes}
            if plain.shape != tuple(sizes.values()):
                raise DataError(
                    f"{what}: expected the shape of the field, {sizes}, got {plain.shape}; "
                    "give a DataArray to match by dims"
                )
            return _ascending(self.axes, plain)
        for dim in array.dims:
            if dim not in self.dims:
                raise DataError(
                    f"{what}: expected dims among those of the field, {self.dims}, got {dim!r}; "
                    f"select or average: {what}.isel({dim}=0, drop=True)"
                )
        for axis in self.axes:
            if axis.repeated and array.sizes.get(axis.name) == axis.n_outer:
                once = slice(1, None) if axis.descending else slice(None, -1)
                array = array.isel({axis.name: once})
        ordered = array.transpose(*(dim for dim in self.dims if dim in array.dims))
        is_number = ordered.dtype.kind in "iuf"
        values = read_values(ordered) if is_number else np.asarray(ordered.values)
        for position, dim in enumerate(ordered.dims):
            axis = self.axes[self.dims.index(str(dim))]
            order = self._order(axis, array, what)
            if not np.array_equal(order, np.arange(order.size)):
                values = np.take(values, order, axis=position)
        return values.reshape([n if dim in array.dims else 1 for dim, n in self.sizes.items()])

    def restore(
        self,
        values: Any,
        *,
        name: Hashable | None = None,
        attrs: Mapping[Any, Any] | None = None,
        targets: Targets | None = None,
        leading: Sequence[str] = (),
    ) -> xr.DataArray:
        """Give numbers on the axes the layout of the user's field.

        Order and direction of the dims, coordinates with their attributes, and the chunks are the
        user's. So is the encoding, except what describes packed, rounded or integer numbers:
        ``scale_factor`` and ``add_offset``, ``_FillValue`` and ``filters`` of integers, digits to
        round to. Attributes are the user's except ranges (``actual_range``, ``valid_min``, …),
        which need not hold. Cells outside the domain are NaN.

        Parameters
        ----------
        values : array of shape (…, n_1, …, n_D), numpy or dask
            Along ascending axes; in the inner layout of ``targets``, if these are given.
        name : hashable, optional
            Default: the field's name.
        attrs : mapping, optional
            Instead of the field's attributes.
        targets : Targets, optional
            Where the numbers are, if not at the field's own cells. Coordinates of the field that
            run along dims that are elsewhere, and the domain, do not apply then.
        leading : sequence of str
            Names of axes before those of the field, e.g. ``("sample",)``.

        Returns
        -------
        DataArray

        Raises
        ------
        DataError
            If ``values`` has another shape, or a leading name is taken.
        """
        where = Targets.of(self.axes, {}) if targets is None else targets
        return self.placed(where.arranged(values, leading), name, targets, attrs, leading)

    def placed(
        self,
        values: Any,
        name: Hashable | None = None,
        targets: Targets | None = None,
        attrs: Mapping[Any, Any] | None = None,
        leading: Sequence[str] = (),
    ) -> xr.DataArray:
        """Add coordinates to numbers in the order of the user's dims; as ``restore``."""
        where = Targets.of(self.axes, {}) if targets is None else targets
        coords = self.template.coords if targets is None else where.coordinates(self.template)
        self._require_free(leading, where.dims)
        out = xr.DataArray(
            values,
            dims=(*leading, *where.dims),
            coords=coords,
            name=self.template.name if name is None else name,
            attrs=kept_attributes(self.template.attrs) if attrs is None else dict(attrs),
        )
        if self.domain is not None and targets is None:
            out = out.where(self._layout(self.domain))
        chunks = {
            dim: size
            for dim, size in self.chunks.items()
            if dim in where.dims and dim not in where.coords
        }
        if chunks:
            out = out.chunk(chunks)
        elif out.chunks is None and isinstance(values, np.ndarray):
            # A reversed view is slow to read and keeps the array that it belongs to in memory.
            out = out.copy(data=np.asarray(out.values, order="C"))
        same = targets is None and not leading
        out.encoding = kept_encoding(self.template.encoding) if same else {}
        return tidied(out)

    def static_gaps(self, *dims: str) -> Bools:
        """Cells without a value at any step along some dims; see ``static_gaps``."""
        check_dims(dims, self.axes, "static_gaps")
        if self.observed is None:
            return np.zeros([1 if dim in dims else n for dim, n in self.sizes.items()], bool)
        return static_gaps(self.observed, tuple(self.dims.index(dim) for dim in dims))

    # ------------------------------------------------------------------ parts

    def _order(self, axis: GridAxis, array: xr.DataArray, what: str) -> NDArray[np.intp]:
        """Index into ``array`` of each point of an axis."""
        size = array.sizes[axis.name]
        if size != len(axis):
            raise DataError(
                f"{what}: expected {len(axis)} points along {axis.name!r}, as the field has, got "
                f"{size}; select the same: {what}.sel({axis.name}=da.{axis.name})"
            )
        if axis.name not in array.coords:
            order = np.arange(size)
            return order[::-1] if axis.descending else order
        positions = axis.find(array.coords[axis.name].values)
        if np.array_equal(np.sort(positions), np.arange(size)):
            return np.argsort(positions)
        coordinate = array.coords[axis.name].values
        bad = np.flatnonzero(positions < 0)
        got = f"{coordinate[bad[0]]}, which it lacks" if bad.size else "one of them twice"
        raise DataError(
            f"{what}: expected the coordinates of the field along {axis.name!r}, got {got}; if "
            f"the cells are the same, {what}.assign_coords({axis.name}=da.{axis.name})"
        )

    def _require_free(self, leading: Sequence[str], dims: Sequence[str]) -> None:
        for name in leading:
            if name in dims or name in self.template.coords:
                raise DataError(
                    f"the result has a dim {name!r} of its own, and so has the field; rename it: "
                    f"da.rename({{{name!r}: ...}})"
                )

    def _layout(self, array: Bools) -> xr.DataArray:
        """Name the axes of an array that broadcasts, in the user's direction."""
        dims = []
        for d, axis in enumerate(self.axes):
            if array.shape[d] > 1:
                dims.append(axis.name)
                array = np.take(array, np.arange(len(axis))[own_order(axis)], axis=d)
        flat = tuple(slice(None) if axis.name in dims else 0 for axis in self.axes)
        return xr.DataArray(array[flat], dims=dims)


def _warn_if_inverted(inside: Bools, seen: Bools, what: str, outcome: str) -> None:
    """Warn if more observed cells are outside than inside, and a larger share of them."""
    inside = np.broadcast_to(inside, seen.shape)
    n_inside, n_all = int(np.count_nonzero(inside)), int(np.count_nonzero(seen))
    n_seen = int(np.count_nonzero(seen & inside))
    n_outside = n_all - n_seen
    emptier = n_seen * (seen.size - n_inside) < n_outside * n_inside
    if n_outside > n_seen > 0 and emptier:
        warnings.warn(
            f"{what}: {n_outside} of {n_all} cells with a value are where it is false, and "
            f"{outcome}; it is true at {n_inside} cells, {n_inside - n_seen} of them without a "
            f"value. If it marks land, it is the other way round: ~{what} (--{what} NAME=0)",
            DataWarning,
            stacklevel=4,
        )


def static_gaps(observed: Bools, axis: int | tuple[int, ...]) -> Bools:
    """Cells that have no value at any step along the time-like axes: land, as a rule.

    Parameters
    ----------
    observed : ndarray of bool
    axis : int or tuple of int

    Returns
    -------
    ndarray of bool, one long along ``axis``

    Examples
    --------
    >>> static_gaps(np.array([[True, False], [False, False]]), 0)
    array([[False,  True]])
    """
    return np.asarray(~observed.any(axis=axis, keepdims=True))


def _upward(axes: Sequence[GridAxis], values: NDArray[Any]) -> NDArray[Any]:
    """View an array of the user's layout along axes that ascend; repeated ends are there."""
    return values[tuple(slice(None, None, -1 if axis.descending else None) for axis in axes)]


def _ascending(axes: Sequence[GridAxis], values: NDArray[Any]) -> NDArray[Any]:
    """View an array of the user's layout along the points of the axes."""
    once = tuple(slice(None, -1 if axis.repeated else None) for axis in axes)
    return _upward(axes, values)[once]


def _joined(axes: Sequence[GridAxis], values: Floats) -> Floats:
    """Make one of the two ends of axes that repeat their first point; the first one counts."""
    for d, axis in enumerate(axes):
        if not axis.repeated:
            continue
        first, last = (np.take(values, [end], axis=d) for end in (0, -1))
        spread = np.nanstd(values) if np.isfinite(values).any() else 0.0
        differ = np.abs(first - last) > 1e-6 * spread
        if differ.any():
            at, again = axis.points[0], axis.points[0] + (axis.circle or 0.0)
            warnings.warn(
                f"dim {axis.name!r} has one place twice, at {at:g} and {again:g}, and the values "
                f"differ in {int(differ.sum())} cells; those at {at:g} are used",
                DataWarning,
                stacklevel=4,
            )
        start = np.where(np.isnan(first), last, first)
        rest = np.take(values, np.arange(1, len(axis)), axis=d)
        values = np.concatenate([start, rest], axis=d)
    return values


def _cell(axes: Sequence[GridAxis], index: Sequence[Any]) -> str:
    """Name a cell by its position in the user's order."""
    places = (
        f"{axis.name}={len(axis) - 1 - int(i) if axis.descending else int(i)}"
        for axis, i in zip(axes, index, strict=True)
    )
    return f"isel({', '.join(places)})"


def _require_numbers(da: Any) -> None:
    if not isinstance(da, xr.DataArray):
        remedy = (
            f"choose a variable: ds[{next(iter(da.data_vars), '...')!r}]"
            if isinstance(da, xr.Dataset)
            else "wrap it: xarray.DataArray(values, dims=..., coords=...)"
        )
        raise DataError(f"expected a field as xarray.DataArray, got {type(da).__name__}; {remedy}")
    kind = da.dtype.kind
    if kind in "iuf":
        return
    if kind == "b":
        remedy = "da.astype(float) if 0 and 1 are meant as numbers (a mask goes to mask=)"
    elif kind == "c":
        remedy = "use da.real and da.imag one by one"
    elif kind in "Mm":
        remedy = "divide durations by one: da / numpy.timedelta64(1, 'D')"
    else:
        remedy = "da.astype(float) if it holds numbers"
    raise DataError(f"the field has dtype {da.dtype}; expected floats or integers: {remedy}")
