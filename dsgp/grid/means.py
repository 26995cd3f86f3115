"""The mean that is subtracted from a field before it is modelled: one number, a field, or averages.

A mean is a small table along the axes, with length 1 along axes on which it does not depend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.grid.axes import GridAxis, check_dims
from dsgp.grid.coordinates import Floats
from dsgp.grid.field import Field
from dsgp.grid.targets import Targets

# Parts of a date by which its steps can be grouped.
PARTS = (
    "year", "quarter", "season", "month", "dayofyear", "day", "dayofweek", "hour", "minute",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Mean:
    """Mean of a field, on its grid and on others.

    Attributes
    ----------
    spec : str
        What it is: "constant", "zero", "field", a dim, or a dim and a part of its dates.
    axes : tuple of GridAxis
        Those of the field.
    table : ndarray of D dims
        In the field's unit. Along each axis: as long as the axis, or one where the mean does not
        vary; along the axis of a group, one a label, and a last one for labels not seen.
    constant : float
        Average of the observed cells (the given number, for a number).
    group : str or None
        Part of the dates by which the last dim named in ``spec`` is grouped.
    labels : tuple of int or str
        Of the groups.
    codes : ndarray of int, shape (n_points,), or None
        Index into ``labels`` of each point of the grouped axis; None without a group.
    shares : ndarray of the table's shape, or None
        For averages, 1 over the number of observations in each; 1 where another value is used.

    Examples
    --------
    >>> import xarray as xr
    >>> months = xr.date_range("2000-01-01", periods=24, freq="MS")
    >>> da = xr.DataArray(range(24), {"time": months})
    >>> mean = Mean.of("time.month", Field.of(da))
    >>> mean.on_field()[:3]
    array([6., 7., 8.])
    >>> mean.at({"time": ["2010-02-14"]})
    array([7.])
    """

    spec: str
    axes: tuple[GridAxis, ...]
    table: Floats
    constant: float
    group: str | None = None
    labels: tuple[int | str, ...] = ()
    codes: NDArray[np.intp] | None = None
    shares: Floats | None = None

    @classmethod
    def of(cls, spec: Any, field: Field) -> Self:
        """Make the mean of a field.

        Parameters
        ----------
        spec : "constant", "zero", float, DataArray, or text
            "constant" is the average of the observed cells. A DataArray, in the field's unit, has
            some of its dims and its coordinates there. "time" (any dim) is each cell's average
            over that dim, a field without the dim. "time.month" is each cell's average over the
            steps of the same month; ``PARTS`` lists the other parts of dates.
        field : Field

        Returns
        -------
        Mean
            Where a cell has no observation in a group, its average over all steps stands in;
            where it has none at all, the average of the group over all cells; where the group
            has none, the average of the field.

        Raises
        ------
        ParameterError
            If ``spec`` is none of these or not finite, or names another dim or part.
        DataError
            If a DataArray does not fit the field, or has no number at an observed cell.
        """
        one = [1] * len(field.axes)
        if isinstance(spec, xr.DataArray):
            table = _from_array(spec, field)
            return cls("field", field.axes, table, _average(field))
        if isinstance(spec, str) and spec not in ("constant", "zero"):
            return cls._averages(spec, field)
        if isinstance(spec, str):
            constant = _average(field) if spec == "constant" else 0.0
        elif isinstance(spec, Real) and not isinstance(spec, bool) and np.isfinite(float(spec)):
            constant = float(spec)
        else:
            raise ParameterError(
                f"mean: expected {_CHOICES}, got {spec!r}"
                + ("; give a DataArray with the field's dims" if np.ndim(spec) else "")
            )
        name = spec if isinstance(spec, str) else "number"
        return cls(name, field.axes, np.full(one, constant), constant)

    @classmethod
    def _averages(cls, spec: str, field: Field) -> Self:
        dim, _, part = (spec, "", "") if spec in field.dims else spec.partition(".")
        if dim not in field.dims and not part:
            raise ParameterError(
                f"mean: expected {_CHOICES}, got {spec!r}; the dims are {field.dims}"
            )
        check_dims([dim], field.axes, "mean")
        d = field.dims.index(dim)
        constant = _average(field)
        sums, counts = _sums(field, d)
        per_cell = _ratio(sums, counts)
        shares = [1.0 / np.maximum(counts, 1)]
        # A cell that is never observed has the average of the others.
        everywhere = np.where(np.isnan(per_cell), constant, per_cell)
        if not part:
            return cls(spec, field.axes, everywhere, constant, shares=shares[0])
        axis = field.axes[d]
        steps = field.template.coords[dim].values
        by_step = _labels(axis, part, steps[::-1] if axis.descending else steps)
        labels, codes = np.unique(by_step, return_inverse=True)
        pieces = []
        for code in range(labels.size):
            total, count = _sums(field, d, codes == code)
            group = total.sum() / count.sum() if count.sum() else constant
            piece = _ratio(total, count)
            shares.insert(-1, 1.0 / np.maximum(count, 1))
            stand_in = np.where(np.isnan(per_cell), group, per_cell)
            pieces.append(np.where(np.isnan(piece), stand_in, piece))
        table = np.concatenate([*pieces, everywhere], axis=d)
        return cls(
            spec,
            field.axes,
            table,
            constant,
            part,
            tuple(labels.tolist()),
            codes,
            np.concatenate(shares, axis=d),
        )

    @property
    def dim(self) -> str | None:
        """The grouped dim."""
        return None if self.group is None else self.spec.removesuffix(f".{self.group}")

    def on_field(self) -> Floats:
        """Mean at the cells of the field.

        Returns
        -------
        ndarray of the shape of ``Field.values``
            Read-only: a view of the table where that is enough. NaN at cells that a DataArray
            gave no number for; none of these is observed.
        """
        return self.at({})

    def at(self, coords: Mapping[str, Any]) -> Floats:
        """Mean on another grid.

        Linear along each axis between the points of the field, constant beyond the first and the
        last. A grouped axis goes by the labels of the new dates; where a label did not occur, the
        cell's average over all steps is taken.

        Parameters
        ----------
        coords : mapping of dim to array_like of shape (n,)
            As for ``GridAxis.numbers``. Dims not named keep the points of the field.

        Returns
        -------
        ndarray of one dim for each axis of the field; read-only

        Raises
        ------
        ParameterError
            If a dim is none of the field's.
        DataError
            If a coordinate cannot be used.
        """
        check_dims(coords, self.axes, "coords")
        out = self.table
        shape = []
        for d, axis in enumerate(self.axes):
            numbers = axis.numbers(coords[axis.name]) if axis.name in coords else axis.points
            shape.append(numbers.size)
            if axis.name == self.dim:
                out = np.take(out, self._codes(axis, coords), axis=d)
            elif axis.name in coords and out.shape[d] > 1:
                out = _interpolated(out, d, axis.points, numbers)
        return np.broadcast_to(out, shape)

    def uncertain(self) -> Self | None:
        """Return ``shares`` as a table that can be read like the mean; None if it is known."""
        return None if self.shares is None else replace(self, table=self.shares)

    def drawn(self, random: np.random.Generator, variance: float) -> Self:
        """Return errors of the averages, if a single observation has some variance."""
        assert self.shares is not None
        errors = np.sqrt(variance * self.shares) * random.standard_normal(self.table.shape)
        return replace(self, table=errors)

    def shifted(self, by: float) -> Self:
        """Return the same mean plus a number."""
        return replace(self, table=self.table + by, constant=self.constant + by)

    def at_points(self, targets: Targets) -> Floats:
        """Mean at points, as ``at`` has it, in the inner layout of the targets, (n, H_o, …)."""
        together = targets.together
        out = self.table
        for d, axis in enumerate(self.axes):
            if d in together:
                continue
            if axis.name == self.dim:
                out = np.take(out, self._codes(axis, targets.coords), axis=d)
            elif axis.name in targets.coords and out.shape[d] > 1:
                out = _interpolated(out, d, axis.points, targets.points[d])
        corners = []
        for d in together:
            axis, new = self.axes[d], targets.points[d]
            if axis.name == self.dim:
                # At the field's own steps, the points are in another order than the codes.
                dates = targets.coords.get(axis.name)
                codes = self._codes(axis, {} if dates is None else {axis.name: dates})
                code = codes if dates is not None else codes[np.searchsorted(axis.points, new)]
                corners.append([(code, np.ones(len(new)))])
            elif out.shape[d] == 1:
                corners.append([(np.zeros(len(new), np.intp), np.ones(len(new)))])
            else:
                low, high, weight = _between(axis.points, new)
                corners.append([(low, 1 - weight), (high, weight)])
        moved = np.moveaxis(out, together, range(len(together)))
        total = np.zeros((len(targets.points[together[0]]), *moved.shape[len(together) :]))
        for corner in product(*corners):
            weight = np.prod([one for _, one in corner], axis=0)
            part = moved[tuple(index for index, _ in corner)]
            weight = weight.reshape(-1, *[1] * (part.ndim - 1))
            # A cell without a value does not count where its weight is 0.
            total += np.where(weight > 0, weight * part, 0.0)
        return np.broadcast_to(total, targets.inner_shape)

    def settings(self) -> dict[str, Any]:
        """Everything but the arrays and the axes, as JSON can hold it; see ``from_settings``."""
        return {
            "spec": self.spec,
            "constant": self.constant,
            "group": self.group,
            "labels": list(self.labels),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to be stored beside ``settings``."""
        optional = {"codes": self.codes, "shares": self.shares}
        return {"table": self.table} | {k: v for k, v in optional.items() if v is not None}

    @classmethod
    def from_settings(
        cls,
        settings: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        axes: Sequence[GridAxis],
    ) -> Self:
        """Rebuild a mean from ``settings()``, ``arrays()`` and the axes of its field."""
        return cls(
            axes=tuple(axes),
            table=arrays["table"],
            codes=arrays.get("codes"),
            shares=arrays.get("shares"),
            **{**settings, "labels": tuple(settings["labels"])},
        )

    def _codes(self, axis: GridAxis, coords: Mapping[str, Any]) -> NDArray[np.intp]:
        """Return the row of the table for each step; the last one for labels not seen."""
        if axis.name not in coords and self.codes is not None:
            return self.codes
        known = {label: code for code, label in enumerate(self.labels)}
        labels = _labels(axis, str(self.group), axis.checked(coords[axis.name]))
        return np.array([known.get(label, len(known)) for label in labels.tolist()], dtype=np.intp)


_CHOICES = (
    "'constant', 'zero', a finite number, a DataArray, a dim ('time': average over it), or a dim "
    "and a part of its dates ('time.month')"
)


def _average(field: Field) -> float:
    return float(field.values.mean() if field.observed is None else np.nanmean(field.values))


def _sums(
    field: Field, d: int, steps: NDArray[np.bool_] | slice = slice(None)
) -> tuple[Floats, NDArray[np.intp]]:
    """Sum and number of the observed values over some steps of axis d, which is kept."""
    some = (slice(None),) * d + (steps,)
    values = field.values[some]
    if field.observed is None:
        count = np.full([1 if k == d else n for k, n in enumerate(values.shape)], values.shape[d])
        return values.sum(axis=d, keepdims=True), count
    seen = field.observed[some]
    total = np.sum(values, axis=d, keepdims=True, where=seen)
    return total, seen.sum(axis=d, keepdims=True)


def _ratio(total: Floats, count: NDArray[np.intp]) -> Floats:
    """Return the average, NaN where nothing was summed."""
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _from_array(spec: xr.DataArray, field: Field) -> Floats:
    if spec.dtype.kind not in "iuf":
        raise DataError(f"mean: expected floats or integers, got dtype {spec.dtype}")
    table = field.align(spec, "mean").astype(np.float64)
    bad = ~np.isfinite(table) if field.observed is None else ~np.isfinite(table) & field.observed
    if bad.any() or np.isinf(table).any():
        n_bad = int(np.broadcast_to(bad, field.shape).sum())
        raise DataError(
            f"mean: expected a finite number at each observed cell, got NaN or infinity at {n_bad} "
            f"of {field.n_observed} (and infinity nowhere); fill them, or leave these cells out by "
            "mask="
        )
    return table


def _labels(axis: GridAxis, part: str, steps: NDArray[Any]) -> NDArray[Any]:
    """Return the part of each date, through xarray's virtual coordinates."""
    if axis.kind not in ("datetime", "cftime"):
        raise ParameterError(
            f"mean: '{axis.name}.{part}' groups dates, and {axis.name!r} is of kind {axis.kind}; "
            f"give dates, or mean={axis.name!r}"
        )
    known = part in PARTS and not (part == "quarter" and axis.kind == "cftime")
    if not known:
        raise ParameterError(
            f"mean: {axis.name!r} of kind {axis.kind} has no part {part!r}; expected one of "
            f"{', '.join(p for p in PARTS if p != 'quarter' or axis.kind != 'cftime')}"
        )
    dates = xr.DataArray(steps, dims="step")
    return np.asarray(getattr(dates.dt, part).values)


def _interpolated(table: Floats, d: int, points: Floats, numbers: Floats) -> Floats:
    """Interpolate along axis d, constant outside; at a point, its neighbours do not matter."""
    low, high, weight = _between(points, numbers)
    shape = [-1 if k == d else 1 for k in range(table.ndim)]
    start = np.take(table, low, axis=d)
    return start + weight.reshape(shape) * (np.take(table, high, axis=d) - start)


def _between(points: Floats, numbers: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return the points on either side of each number, and the weight of the upper one."""
    inside = np.clip(numbers, points[0], points[-1])
    left = np.clip(np.searchsorted(points, inside, side="right") - 1, 0, points.size - 2)
    weight = (inside - points[left]) / (points[left + 1] - points[left])
    return np.where(weight < 1, left, left + 1), np.where(weight > 0, left + 1, left), weight
