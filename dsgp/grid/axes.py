"""One coordinate of a field as an ascending axis of numbers, and further coordinates on it.

Numbers stay in their unit; dates and durations become numbers of days, hours, minutes or seconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.grid.coordinates import (
    EMPTY,
    EQUISPACED,
    EXPECTED,
    PER_DAY,
    Floats,
    Kind,
    best_unit,
    dates_of,
    direction,
    from_objects,
    iso,
    kind_of,
    listed,
    plain,
    require_calendar,
    require_finite,
    resolution_of,
    since,
    spacing_of,
    written,
)
from dsgp.grid.longitude import circle_of, repeats_first, spans, unwrapped, wrapped


@dataclass(frozen=True, eq=False)
class GridAxis:
    """The coordinate of one dim of a field.

    Float32 coordinates whose steps differ by their rounding alone (a step of 0.02 degrees, say)
    are corrected to equal steps between the first and the last.

    Attributes
    ----------
    name : str
        The dim.
    points : ndarray of shape (n_points,)
        Strictly ascending, in ``unit``. Dates are counted from ``epoch``.
    kind : {"number", "datetime", "cftime", "timedelta"}
    unit : str or None
        "days", "hours", "minutes" or "seconds" for times. For numbers it is the attribute
        ``units`` of the coordinate, if there is one.
    descending : bool
        The user's coordinate runs from the last of ``points`` to the first.
    step : float or None
        Distance of neighbours, in ``unit``, if all agree to 1e-6 of it or within the rounding of
        the coordinate; otherwise None.
    epoch : str or None
        The date that is zero (the earliest one), in ISO 8601.
    calendar : str or None
        Of dates: "proleptic_gregorian" for datetime64, or cftime's, e.g. "360_day".
    rounding : float
        Values within this distance of an equispaced point, in ``unit``, count as that point.
    circle : float or None
        Of longitudes: a turn, in ``unit``. New coordinates are taken to the turn of ``points``.
    repeated : bool
        The user's coordinate has the first of ``points`` again, a circle later, at its end.

    Examples
    --------
    >>> import xarray as xr
    >>> days = xr.date_range("2000-01-01", periods=3, freq="6h")
    >>> axis = GridAxis.of(xr.DataArray(days[::-1], dims="time", name="time"))
    >>> axis.points, axis.unit, axis.descending
    (array([ 0.,  6., 12.]), 'hours', True)
    >>> axis.numbers(["2000-01-02"])
    array([24.])
    """

    name: str
    points: Floats
    kind: Kind = "number"
    unit: str | None = None
    descending: bool = False
    step: float | None = None
    epoch: str | None = None
    calendar: str | None = None
    rounding: float = 0.0
    circle: float | None = None
    repeated: bool = False

    @classmethod
    def of(cls, coordinate: xr.DataArray, unit: str | None = None) -> Self:
        """Read the coordinate of a dim.

        Parameters
        ----------
        coordinate : DataArray of shape (n_points,)
            Ascending or descending. Its name is the dim.
        unit : {"days", "hours", "minutes", "seconds"}, optional
            For times only. Default: the largest unit for which the median step is at least one;
            seconds for shorter steps, days for an axis of one point.

        Raises
        ------
        DataError
            If it is empty, text or another type without distances, holds a value that is missing
            or infinite, one value twice, or neither ascends nor descends.
        ParameterError
            If ``unit`` is not one of the four, or the coordinate is no time.
        """
        name = str(coordinate.name)
        values = plain(name, coordinate)
        if not values.size:
            raise DataError(f"dim {name!r} has no points; a field needs at least one along each")
        kind = kind_of(name, values)
        require_finite(name, values, kind)
        if unit is not None and (kind == "number" or unit not in PER_DAY):
            got = "a coordinate of numbers, which stays as it is" if kind == "number" else "times"
            raise ParameterError(
                f"units: dim {name!r} is given {unit!r} and is {got}; a coordinate of times can "
                f"have {listed(PER_DAY)}"
            )
        circle = circle_of(name, coordinate.attrs, values) if kind == "number" else None
        if circle is not None:
            values = unwrapped(values, circle)
        descending = direction(name, values, kind)
        if descending:
            values = values[::-1]
        epoch = calendar = None
        if kind == "number":
            points = values.astype(np.float64)
            unit = str(coordinate.attrs["units"]) if "units" in coordinate.attrs else None
        else:
            if kind == "datetime":
                epoch, calendar = str(np.datetime_as_string(values[0])), "proleptic_gregorian"
            elif kind == "cftime":
                epoch, calendar = iso(values[0]), str(values[0].calendar)
            unit = unit or best_unit(since(values, kind, epoch, "days"))
            points = since(values, kind, epoch, unit)
        if np.any(np.diff(points) <= 0):
            raise DataError(
                f"coordinate {name!r} has neighbours that are the same number in float64; expected "
                "distances above 1e-16 of its values: subtract its first value"
            )
        step, rounding = spacing_of(points, resolution_of(values) if kind == "number" else 0.0)
        if step is not None and rounding:
            points = points[0] + step * np.arange(points.size)
        repeated = circle is not None and repeats_first(points, circle, rounding)
        if repeated:
            points = points[:-1]
        return cls(
            name, points, kind, unit, descending, step, epoch, calendar, rounding, circle, repeated
        )

    @property
    def n_outer(self) -> int:
        """Number of points of the user's coordinate."""
        return self.points.size + self.repeated

    @property
    def is_closed(self) -> bool:
        """Whether the coordinate spans a circle: its ends are neighbours."""
        return self.circle is not None and spans(self.points, self.circle)

    def __len__(self) -> int:
        return self.points.size

    @property
    def is_time(self) -> bool:
        """Whether the coordinate is of dates or durations."""
        return self.kind != "number"

    @property
    def unit_label(self) -> str:
        """The unit in words, as in "days since 1860-06-01 (360_day)"; "" if there is none."""
        if self.epoch is None:
            return self.unit or ""
        start = self.epoch.rstrip("0").rstrip(".") if "." in self.epoch else self.epoch
        start = start.removesuffix("T00:00:00")
        standard = self.calendar == "proleptic_gregorian"
        return f"{self.unit} since {start}" + ("" if standard else f" ({self.calendar})")

    def numbers(self, values: Any) -> Floats:
        """Convert further coordinates of the same kind to numbers in ``unit``.

        Parameters
        ----------
        values : array_like of shape (n,), or scalar
            In any order. Dates may be datetime64, ``datetime.datetime`` or ISO 8601 text; on a
            cftime axis they are cftime objects of its calendar, or such text.

        Returns
        -------
        ndarray of shape (n,), in the order given; n = 1 for a scalar

        Raises
        ------
        DataError
            If they are of another kind or calendar, have several dims, or one is missing or
            infinite.
        """
        array = self.checked(values)
        if self.kind != "number":
            return since(array, self.kind, self.epoch, str(self.unit))
        numbers = array.astype(np.float64)
        if self.circle is not None:
            numbers = wrapped(numbers, self.points, self.circle)
        if self.rounding and self.step:
            near = np.rint((numbers - self.points[0]) / self.step)
            near = np.clip(near, 0, self.points.size - 1).astype(np.intp)
            meant = self.points[near]
            numbers = np.where(np.abs(numbers - meant) <= self.rounding, meant, numbers)
        return numbers

    def written(self, numbers: ArrayLike) -> list[str]:
        """Write numbers in ``unit`` for people: dates of the calendar, and numbers as they are."""
        values = np.asarray(numbers, dtype=np.float64)
        if self.epoch is None:
            return [f"{value:g}" for value in values]
        apart = float(np.median(np.diff(self.points))) if len(self) > 1 else 1.0
        per_day = PER_DAY[str(self.unit)]
        return written(values / per_day, self.epoch, str(self.calendar), apart / per_day)

    def checked(self, values: Any) -> NDArray[Any]:
        """Return further coordinates as an array of the axis' kind: numbers or numpy's dates.

        Arguments and errors are those of ``numbers``.
        """
        array = plain(self.name, values)
        if not array.size:
            return np.empty(0, dtype=EMPTY[self.kind])
        if self.kind in ("datetime", "timedelta") and array.dtype.kind in "OU":
            array = from_objects(self.name, array, self.kind)
        if self.kind == "cftime" and all(isinstance(value, str) for value in array.tolist()):
            array = dates_of(self.name, array, str(self.calendar))
        kind = kind_of(self.name, array)
        if kind != self.kind:
            calendar = f" {self.calendar}" if self.kind == "cftime" else ""
            remedy = (
                f"make them with xarray.date_range(..., calendar={self.calendar!r}, "
                "use_cftime=True)"
                if self.kind == "cftime"
                else "give the same kind as the coordinate of the field"
            )
            raise DataError(
                f"dim {self.name!r}: expected {EXPECTED[self.kind]}{calendar}, got "
                f"{EXPECTED[kind]} ({array.dtype}); {remedy}"
            )
        require_finite(self.name, array, kind)
        if kind == "cftime":
            require_calendar(self.name, array, str(self.calendar))
        return array

    def find(self, values: Any) -> NDArray[np.intp]:
        """Index into ``points`` of each coordinate, −1 for those that are not among them.

        Coordinates match to 1e-6 of the smallest step, or to the rounding of float32 where that
        is larger (at most a tenth of the step): 34.03 finds the float32 of 34.03.

        Parameters
        ----------
        values : array_like of shape (n,), or scalar
            As for ``numbers``.

        Returns
        -------
        ndarray of shape (n,)
        """
        numbers = self.numbers(values)
        right = np.clip(np.searchsorted(self.points, numbers), 1, max(self.points.size - 1, 1))
        right = np.minimum(right, self.points.size - 1)
        left = np.maximum(right - 1, 0)
        closer = np.abs(numbers - self.points[left]) <= np.abs(numbers - self.points[right])
        index = np.where(closer, left, right)
        largest = np.abs(self.points).max()
        gap = np.diff(self.points).min() if self.points.size > 1 else max(largest, 1.0)
        tolerance = EQUISPACED * gap
        if self.kind == "number":
            tolerance = max(tolerance, min(2 * float(np.spacing(np.float32(largest))), 0.1 * gap))
        return np.where(np.abs(numbers - self.points[index]) <= tolerance, index, -1)

    def settings(self) -> dict[str, Any]:
        """Everything but ``points``, as JSON can hold it; see ``from_settings``."""
        names = ("name", "kind", "unit", "descending", "step", "epoch", "calendar", "rounding")
        of_circles = {"circle": self.circle, "repeated": self.repeated}
        return {name: getattr(self, name) for name in names} | of_circles

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], points: Floats) -> Self:
        """Rebuild an axis from ``settings()`` and its points."""
        return cls(points=np.asarray(points, dtype=np.float64), **settings)


def axes_of(da: xr.DataArray, units: Mapping[str, str] | None = None) -> tuple[GridAxis, ...]:
    """Read the coordinates of a field, in the order of its dims; the values are not touched.

    Parameters
    ----------
    da : DataArray
    units : mapping of dim to {"days", "hours", "minutes", "seconds"}, optional
        For dims of times; see ``GridAxis.of``.

    Raises
    ------
    DataError
        If there is no dim, a dim has no coordinate or a stacked one, or a coordinate cannot be
        used (``GridAxis.of``).
    ParameterError
        If ``units`` names another dim or another unit.
    """
    dims = _names(da)
    units = dict(units or {})
    check_dims(units, dims, "units")
    axes = []
    for dim in dims:
        if dim in ("mean", "std"):
            raise DataError(
                f"dim {dim!r} has the name of a result; rename it: da.rename({dim}=...)"
            )
        if dim not in da.coords:
            raise DataError(
                f"dim {dim!r} has no coordinate; expected one that says where its "
                f"{da.sizes[dim]} points are: {_placing(da, dim)}"
            )
        if isinstance(da.indexes.get(dim), pd.MultiIndex):
            raise DataError(
                f"dim {dim!r} is stacked (a MultiIndex); expected a coordinate of numbers or "
                f"times: da.unstack({dim!r})"
            )
        axes.append(GridAxis.of(da.coords[dim], units.get(dim)))
    return tuple(axes)


def why_no_field(ds: xr.Dataset) -> str:
    """Return why the first variable of numbers is not a field; "" if there is no such variable."""
    for name, da in ds.data_vars.items():
        if da.dims and da.dtype.kind in "iuf":
            try:
                axes_of(da)
            except DataError as error:
                return f". For {str(name)!r}: {error}"
    return ""


def _placing(da: xr.DataArray, dim: str) -> str:
    """Return advice on how to give a dim a coordinate."""
    n = da.sizes[dim]
    numbered = f"da.assign_coords({dim}=numpy.arange({n}))"
    along = {str(key): one for key, one in da.coords.items() if dim in one.dims}
    curved = [key for key, one in along.items() if one.ndim > 1 and one.dtype.kind in "iuf"]
    if curved:
        dims = [str(one) for one in along[curved[0]].dims]
        both = ", ".join(f"{one}=numpy.arange({da.sizes[one]})" for one in dims)
        return (
            f"{listed(curved)} run along {listed(dims)} together, a curvilinear grid. Number its "
            f"rows and columns, whose lengthscales then are in cells: da.assign_coords({both}); "
            "or bring it onto a regular grid first"
        )
    places = [key for key, one in along.items() if one.ndim == 1 and one.dtype.kind in "iufMm"]
    if len(places) > 1:
        return (
            f"{listed(places)} run along it, so that it has several coordinates, and a dim of a "
            f"grid has one: da.swap_dims({{{dim!r}: {places[0]!r}}}), sorted by it, or {numbered}; "
            f"or select its members one by one: da.isel({dim}=0)"
        )
    if places:
        return f"{places[0]!r} runs along it: da.swap_dims({{{dim!r}: {places[0]!r}}})"
    return f"da.assign_coords({dim}=...), for instance numpy.arange({n})"


def check_dims(names: Iterable[Any], axes: Sequence[GridAxis | str], what: str) -> None:
    """Raise ``ParameterError`` if a name is not a dim of the field.

    Parameters
    ----------
    names : iterable of str
    axes : sequence of GridAxis or str
    what : str
        The option that names them, e.g. "kernels".
    """
    dims = [axis if isinstance(axis, str) else axis.name for axis in axes]
    for name in names:
        if name in dims:
            continue
        close = difflib.get_close_matches(str(name), dims, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; name one of these"
        raise ParameterError(
            f"{what}: {name!r} is not a dim of the field, whose dims are {listed(dims)}{hint}"
        )


def check_period(axis: GridAxis, period: float) -> None:
    """Raise ``DataError`` if a closed axis holds its first point again at its end.

    Longitudes 0 and 360 are one place under a period of 360, and would be two observations of it.
    An axis longer than the period goes round several times, which is fine (the hours of many
    days); so does an axis of times, whose repeated phase is no repeated point.

    Parameters
    ----------
    axis : GridAxis
    period : float
        In the axis' unit.
    """
    first, last = axis.points[[0, -1]]
    gap = np.diff(axis.points).min() if len(axis) > 1 else 0.0
    tolerance = max(EQUISPACED * gap, axis.rounding)
    if axis.is_time or len(axis) < 2 or abs(last - first - period) > tolerance:
        return
    drop = "slice(1, None)" if axis.descending else "slice(None, -1)"
    raise DataError(
        f"dim {axis.name!r} holds the points {first:.10g} and {last:.10g}, the same one under a "
        f"period of {period:.10g}; expected each point once: drop one with "
        f"da.isel({axis.name}={drop})"
    )


def _names(da: xr.DataArray) -> list[str]:
    """Return the dims, which must be distinct text."""
    if not da.dims:
        raise DataError("the field is a single number; expected at least one dim with a coordinate")
    names = []
    for dim in da.dims:
        if not isinstance(dim, str):
            raise DataError(
                f"the name {dim!r} of a dim is not text; rename it: da.rename({{{dim!r}: 'x'}})"
            )
        if dim in names:
            raise DataError(f"dim {dim!r} occurs twice; each dim needs its own name")
        names.append(dim)
    return names
