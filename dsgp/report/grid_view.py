"""Slices of a field on a grid: which ones a page draws, and their numbers.

A posterior may be in a store and larger than memory: only the slices that are drawn are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp import memory
from dsgp.errors import DataError, StorageError
from dsgp.estimators.grid import GridGP
from dsgp.grid.axes import GridAxis
from dsgp.grid.coded import read_values
from dsgp.plotting.grids import moments_of, slice_title
from dsgp.plotting.maps import is_latitude

# Cells along a side of a map; of more every second, third, … is drawn.
_MOST_CELLS = 256
# Numbers of 8 bytes per cell that a posterior and residuals take beside the field: measured, 9.
_NUMBERS_A_CELL = 12
# Cells along a curve.
_MOST_POINTS = 400

Index = Mapping[str, Any]


@dataclass(frozen=True)
class GridView:
    """A posterior of a field, and what was observed of it.

    Attributes
    ----------
    axes : tuple of GridAxis
    posterior : Dataset
        With ``mean`` and ``std``.
    observed : DataArray or None
        On the same grid; None if it is not known.
    """

    axes: tuple[GridAxis, ...]
    posterior: xr.Dataset
    observed: xr.DataArray | None

    @classmethod
    def of(cls, model: GridGP, posterior: xr.Dataset | None, observed: Any) -> Self:
        """Take what is given; for a model that holds its field, the rest is computed.

        Raises
        ------
        StorageError
            If a model that smoothed a field on disk is given no posterior.
        DataError
            If the posterior or the observations are not on the grid of the model.
        MemoryLimitError
            If the field is too large for a posterior beside it.
        """
        holds = hasattr(model, "field_")
        if holds:
            _require_memory(model)
        if posterior is None:
            if not holds:
                raise StorageError(
                    "the model smoothed a field on disk and does not hold it; pass what it wrote, "
                    "posterior=xarray.open_zarr(...), and observed=, the field"
                )
            posterior = model.posterior()
        pair = moments_of(posterior, None)
        if observed is None and holds:
            values = model.field_.values
            if model.transform_ is not None:
                values = model.transform_.inverse(values)
            observed = model.field_.restore(values)
        for what, array in (("posterior", pair["mean"]), ("observed", observed)):
            if array is not None:
                _require_grid(what, array, model._axes)
        return cls(model._axes, pair, observed)

    # ------------------------------------------------------------------ what is drawn

    @property
    def quantity(self) -> str:
        """Name and unit of the field, by its attributes."""
        named = self.posterior["mean"] if self.observed is None else self.observed
        name = str(named.attrs.get("long_name", named.name or "the field"))
        unit = named.attrs.get("units")
        return f"{name} ({unit})" if unit else name

    @property
    def sizes(self) -> dict[str, int]:
        """Number of cells by dim, in the order of the field."""
        return {axis.name: axis.n_outer for axis in self.axes}

    @property
    def map_dims(self) -> tuple[str, str] | None:
        """The vertical and the horizontal dim of the maps; None if there is one dim only."""
        long = [axis for axis in self.axes if len(axis) > 1]
        if len(long) < 2:
            return None
        mean = self.posterior["mean"]
        across = [axis.name for axis in long if axis.circle is not None]
        down = [axis.name for axis in long if is_latitude(mean, axis.name)]
        if across and down and across[-1] != down[-1]:
            return down[-1], across[-1]
        space = [axis.name for axis in long if not axis.is_time]
        times = [axis.name for axis in long if axis.is_time]
        if len(space) > 1:
            return space[-2], space[-1]
        return (space[-1], times[-1]) if space else (times[-2], times[-1])

    @property
    def series_dim(self) -> str | None:
        """The dim along which the page has curves: times, or one that no map has."""
        long = [axis for axis in self.axes if len(axis) > 1]
        times = [axis.name for axis in long if axis.is_time]
        drawn = self.map_dims or ()
        others = [axis.name for axis in long if axis.name not in drawn and len(axis) > 2]
        return next(iter([*times, *others]), None)

    @property
    def across_dims(self) -> list[str]:
        """Dims that maps are slices across, that of the series first."""
        drawn = self.map_dims or ()
        others = [axis.name for axis in self.axes if axis.name not in drawn]
        return sorted(others, key=lambda dim: dim != self.series_dim)

    def slices(self) -> list[dict[str, int]]:
        """Return positions of the slices that are drawn: first, middle and last of one dim."""
        fixed = {dim: self.sizes[dim] // 2 for dim in self.across_dims}
        if not fixed:
            return [{}]
        first, n = self.across_dims[0], self.sizes[self.across_dims[0]]
        return [{**fixed, first: k} for k in sorted({0, n // 2, n - 1})]

    def strides(self) -> dict[str, int]:
        """Every how many of the cells along the dims of a map there is one in it."""
        return {dim: -(-self.sizes[dim] // _MOST_CELLS) for dim in self.map_dims or ()}

    def map_at(self, chosen: Index) -> xr.Dataset:
        """Return the numbers of a map: ``mean``, ``std`` and, if known, ``observed``."""
        assert self.map_dims is not None
        cuts = {dim: slice(None, None, stride) for dim, stride in self.strides().items()}
        return self.at({**chosen, **cuts}).transpose(*self.map_dims)

    def curve_at(self, chosen: Index, dim: str) -> xr.Dataset:
        """Return the numbers along one dim, thinned where there are many."""
        return self.at({**chosen, dim: slice(None, None, self.stride_along(dim))})

    def stride_along(self, dim: str) -> int:
        """Every how many of the cells along a curve there is a point of it."""
        return -(-self.sizes[dim] // _MOST_POINTS)

    def at(self, chosen: Index) -> xr.Dataset:
        """Read a part of the field."""
        part = self.posterior.isel(chosen)
        if self.observed is not None:
            # By position: float32 and float64 coordinates of one grid need not be equal.
            seen = self.observed.transpose(*self.sizes).isel(chosen)
            part = part.assign(observed=(seen.dims, read_values(seen)))
        return part.load()

    def title_of(self, chosen: Mapping[str, int]) -> str:
        """Name a slice by its coordinates."""
        return slice_title(self.posterior, chosen)

    def places(self, maps: list[tuple[dict[str, int], xr.Dataset]]) -> list[dict[str, int]]:
        """Choose the places of curves: central, and one that was observed less where there is one.

        Parameters
        ----------
        maps : list of (slice, numbers)
            Those that are drawn.

        Returns
        -------
        list of dicts of dim to position, for all dims but that of the series
        """
        series, drawn = self.series_dim, self.map_dims
        assert series is not None
        if drawn is None:
            return [{dim: k for dim, k in self.slices()[0].items() if dim != series}]
        there = np.stack([np.isfinite(part["mean"].values) for _, part in maps])
        seen = there
        if self.observed is not None:
            seen = np.stack([np.isfinite(part["observed"].values) for _, part in maps])
        # Along one axis of the map, or across the maps.
        across = (0, 1 + drawn.index(series)) if series in drawn else (0,)
        dims = [dim for dim in drawn if dim != series]
        known = np.asarray(there.any(axis=across))
        counts = np.asarray(seen.sum(axis=across))
        if not known.any():
            return []
        chosen = [_nearest_to_centre(known & (counts == counts[known].max()))]
        if counts[known].min() < counts[known].max():
            chosen.append(_nearest_to_centre(known & (counts == counts[known].min())))
        fixed = {dim: k for dim, k in maps[0][0].items() if dim != series}
        strides = self.strides()
        return [
            fixed | {dim: int(k) * strides[dim] for dim, k in zip(dims, place, strict=True)}
            for place in chosen
        ]


def _nearest_to_centre(which: NDArray[np.bool_]) -> tuple[int, ...]:
    """Position of the true cell that is nearest to the centre of an array."""
    places = np.argwhere(which)
    size = np.array(which.shape)
    distance = (((places + 0.5) / size - 0.5) ** 2).sum(axis=1)
    return tuple(int(k) for k in places[distance.argmin()])


def _require_memory(model: GridGP) -> None:
    """Refuse a field that has no room for its posterior beside it."""
    n_cells = model.field_.values.size
    # A loaded model makes the factor of its cells with gaps once more, as its fit did.
    solved = model.field_.observed is None or "system" in vars(model._model)
    per_cell = _NUMBERS_A_CELL + (0.0 if solved else 1.5 * model.n_neighbours)
    memory.require(
        f"the report of a field of {n_cells:,} cells",
        8.0 * per_cell * n_cells,
        "fit a part of it, or smooth it from disk to disk: dsgp smooth --report",
    )


def _require_grid(what: str, array: Any, axes: tuple[GridAxis, ...]) -> None:
    wanted = {axis.name: axis.n_outer for axis in axes}
    sizes = getattr(array, "sizes", {})
    if not isinstance(array, xr.DataArray) or {str(k): n for k, n in sizes.items()} != wanted:
        got = dict(sizes) or type(array).__name__
        raise DataError(f"{what}: expected a field on the grid of the model, {wanted}, got {got}")
    for axis in axes:
        order = axis.find(array.coords[axis.name].values) if axis.name in array.coords else None
        upwards = np.arange(axis.n_outer) % len(axis)
        if order is None or not np.array_equal(
            order, upwards[::-1] if axis.descending else upwards
        ):
            raise DataError(
                f"{what}: expected the coordinates of the model along {axis.name!r}, in their "
                "order; select the same cells"
            )
