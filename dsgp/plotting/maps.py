"""Maps of fields on grids: values by colour, land and gaps, and the axes of their dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.grid.axes import GridAxis
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import DEVIATION, DIVERGING, FAINT, SEQUENTIAL, label
from dsgp.terms import Floats

# Of cells where there is no field, such as land, and of those where nothing was observed.
_NO_FIELD, _NOT_OBSERVED, _COAST = "#b7b4ac", "#ffffff", "#5d5a52"
_MOST_CELLS = 1000  # along a side of a map: a panel has fewer pixels
_SHOWN = (0.5, 99.5)  # percentiles between which colours change
_SIDE = 3.1  # inches, of the longer side of a map
_FEW_YEARS = 3  # below which dates of other calendars are counted in days
_LATITUDES = ("lat", "latitude", "nav_lat")


@dataclass(frozen=True)
class Line:
    """One dim as numbers to draw along: dates as matplotlib counts them.

    Attributes
    ----------
    values : ndarray of shape (n_points,), in the dataset's order
    name : str
        With its unit.
    dates : bool
    """

    values: Floats
    name: str
    dates: bool


def axis_of(pair: xr.Dataset | xr.DataArray, dim: str) -> GridAxis:
    """Coordinate of a dim as an axis."""
    if dim not in pair.coords:
        raise DataError(f"dim {dim!r} has no coordinate; give it one: assign_coords({dim}=...)")
    return GridAxis.of(pair.coords[dim])


def line_of(array: xr.DataArray, dim: str) -> Line:
    """Coordinate of a dim as numbers to draw along."""
    axis = axis_of(array, dim)
    attrs = array.coords[dim].attrs
    if axis.kind == "datetime":
        return Line(date2num(array.coords[dim].values), "", True)
    if axis.kind == "cftime" and (years := _years(array.coords[dim].values)) is not None:
        return Line(years, f"{attrs.get('long_name', dim)} (year, {axis.calendar})", False)
    values = axis.points
    if axis.repeated:  # the place at both ends of a circle
        values = np.append(values, values[0] + (axis.circle or 0.0))
    values = values[::-1] if axis.descending else values
    unit = axis.unit_label.replace("degrees_north", "°N").replace("degrees_east", "°E")
    name = str(attrs.get("long_name", dim))
    return Line(values, f"{name} ({unit})" if unit else name, False)


def _years(dates: NDArray[Any]) -> Floats | None:
    """Return dates of a calendar of cftime as years and parts of them, if these are several."""
    if abs(dates[-1].year - dates[0].year) < _FEW_YEARS:
        return None
    starts = [
        date.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0) for date in dates
    ]
    return np.array(
        [
            date.year + (date - start) / (start.replace(year=start.year + 1) - start)
            for date, start in zip(dates, starts, strict=True)
        ]
    )


def draw_maps(
    rows: Sequence[tuple[str, xr.Dataset, xr.DataArray | None]],
    drawn: Sequence[str],
    cmap: str | None,
    y_down: bool,
    name: str,
) -> Figure:
    """Draw a row of maps for each slice, with one scale of values and one of deviations.

    Parameters
    ----------
    rows : sequence of (title, posterior, observed)
        The last one may be None.
    drawn : sequence of two str
        Dims, vertical and horizontal.
    cmap : str, optional
        Of values.
    y_down : bool
        Whether the vertical coordinate ascends downwards.
    name : str
        Name and unit of the field.
    """
    columns: list[list[tuple[str, str, xr.DataArray]]] = [
        [
            *([] if beside is None else [(title, "observed", beside)]),
            (title, "mean", pair["mean"]),
            (title, "std", pair["std"]),
        ]
        for title, pair, beside in rows
    ]
    first = rows[0][1]["mean"].transpose(*drawn)
    aspect, width, height = shape_of(first)
    n_columns = len(columns[0])
    fig = DisplayedFigure(
        (n_columns * (width + 0.5) + 0.5, len(rows) * (height + 0.5) + 1.1), layout="constrained"
    )
    panels = fig.subplots(len(rows), n_columns, squeeze=False, sharex=True, sharey=True)
    means = [part for row in columns for _, word, part in row if word != "std"]
    stds = [part for row in columns for _, word, part in row if word == "std"]
    scales = {"mean": scale_of(means, cmap), "std": scale_of(stds, DEVIATION, positive=True)}
    blanks = np.zeros(2, dtype=bool)
    for row, axes in zip(columns, panels, strict=True):
        field = _thinned(row[-2][2].transpose(*drawn))
        for (title, word, part), ax in zip(row, axes, strict=True):
            scale, _ = scales["std" if word == "std" else "mean"]
            part = _thinned(part.transpose(*drawn))
            draw_map(ax, part, scale)
            blanks |= draw_blanks(ax, part, field, word == "observed")
            ax.set_title(f"{word}, {title}" if title else word, fontsize=8.5)
            ax.set_aspect(aspect)
    for ax in panels[-1]:
        name_axis(ax.xaxis, line_of(first, drawn[1]))
    for ax in panels[:, 0]:
        name_axis(ax.yaxis, line_of(first, drawn[0]))
    if y_down:
        panels[0, 0].invert_yaxis()
    for word, axes in (("mean", panels[:, :-1]), ("std", panels[:, -1:])):
        scale, extend = scales[word]
        bar = fig.colorbar(
            scale, ax=axes, location="bottom", extend=extend, pad=0.02,
            shrink=0.9 if axes.shape[1] == 1 else 0.6, aspect=30 if axes.shape[1] == 1 else 40,
        )  # fmt: skip
        text = (f"std of {name}" if name else "std") if word == "std" else name or "value"
        bar.set_label(label(text, 48), fontsize=8.5)
        bar.ax.xaxis.label.set_parse_math(False)
        bar.ax.tick_params(labelsize=7.5, color=FAINT, length=2.5)
        bar.ax.xaxis.set_major_locator(MaxNLocator(5 if axes.shape[1] == 1 else 7))
        bar.outline.set_visible(False)
    name_blanks(fig, blanks, is_latitude(first, drawn[0]))
    return fig


def draw_blanks(
    ax: Axes, part: xr.DataArray, field: xr.DataArray, is_observed: bool
) -> tuple[bool, bool]:
    """Distinguish cells without a field from those not observed; return which there are.

    Of observed values on another grid than the field it is not known which is which.
    """
    if part.shape != field.shape:
        return False, False
    land = np.isnan(field.values)
    gaps = np.isnan(part.values) & ~land if is_observed else np.zeros(land.shape, dtype=bool)
    if gaps.any():
        down, across = (edges_of(line_of(part, str(dim)).values) for dim in part.dims)
        values = np.ma.masked_where(~gaps, np.ones(gaps.shape))
        ax.pcolormesh(across, down, values, cmap=ListedColormap([_NOT_OBSERVED]), rasterized=True)
    if land.any() and not land.all() and min(land.shape) > 1:
        ax.add_collection(_coast(field, land), autolim=False)
    return bool(land.any()), bool(gaps.any())


def _coast(field: xr.DataArray, land: NDArray[np.bool_]) -> LineCollection:
    """Sides of cells between those with a field and those without."""
    down, across = (edges_of(line_of(field, str(dim)).values) for dim in field.dims)
    row, column = np.nonzero(land[:, 1:] != land[:, :-1])
    upright = [
        [(across[j + 1], down[i]), (across[j + 1], down[i + 1])]
        for i, j in zip(row, column, strict=True)
    ]
    row, column = np.nonzero(land[1:] != land[:-1])
    level = [
        [(across[j], down[i + 1]), (across[j + 1], down[i + 1])]
        for i, j in zip(row, column, strict=True)
    ]
    return LineCollection([*upright, *level], colors=_COAST, linewidths=0.6, capstyle="projecting")


def name_blanks(fig: Figure, blanks: NDArray[np.bool_], on_earth: bool) -> None:
    """Say what grey and white cells are, where there are any."""
    looks = (
        (_NO_FIELD, _COAST, "no field there" + ", such as land" * on_earth),
        (_NOT_OBSERVED, FAINT, "not observed" + ", such as clouds" * on_earth),
    )
    patches = [
        Patch(facecolor=face, edgecolor=edge, linewidth=0.6, label=text)
        for (face, edge, text), there in zip(looks, blanks, strict=True)
        if there
    ]
    if patches:
        fig.legend(
            handles=patches, loc="outside lower center", ncols=2, fontsize=8, frameon=False,
            handlelength=1.4,
        )  # fmt: skip


def _thinned(part: xr.DataArray) -> xr.DataArray:
    """Leave out cells of which there are more than pixels."""
    return part.isel(
        {dim: slice(None, None, -(-n // _MOST_CELLS)) for dim, n in part.sizes.items()}
    )


def shape_of(part: xr.DataArray) -> tuple[Any, float, float]:
    """Return aspect, width and height in inches: those of the earth, of an image, or square."""
    down, across = (line_of(part, str(dim)) for dim in part.dims)
    ratio = np.ptp(down.values) / max(np.ptp(across.values), 1e-300)
    aspect: Any = "auto"
    on_earth = is_latitude(part, str(part.dims[0]))
    if on_earth and axis_of(part, str(part.dims[1])).circle is not None:
        middle = math.radians(min(abs(float(down.values.mean())), 75.0))
        aspect = 1 / math.cos(middle)
    elif not (down.dates or across.dates) and _unit(down) == _unit(across) and 0.2 < ratio < 5:
        aspect = 1.0
    tall = float(np.clip(ratio * aspect, 0.25, 4.0)) if aspect != "auto" else 0.8
    return aspect, _SIDE / max(tall, 1.0), _SIDE * min(tall, 1.0)


def is_latitude(part: xr.DataArray, dim: str) -> bool:
    """Return whether a dim is one of latitudes, by its name or its unit."""
    return dim.lower() in _LATITUDES or "°N" in line_of(part, dim).name


def _unit(line: Line) -> str:
    return line.name.rpartition(" (")[2] if line.name.endswith(")") else ""


def scale_of(
    parts: Sequence[xr.DataArray], cmap: str | Colormap | None, positive: bool = False
) -> tuple[ScalarMappable, str]:
    """Return colours for the values, and which ends are open ("min", "max", ...)."""
    values = np.concatenate([np.asarray(part.values, dtype=float).ravel() for part in parts])
    values = values[np.isfinite(values)]
    if not values.size:
        raise DataError("there is no value to draw: every cell of the slices is empty")
    low, high = np.percentile(values, _SHOWN)
    if positive:
        low = 0.0  # so that small differences look small
    elif low < 0 < high and min(-low, high) > 0.3 * max(-low, high):
        low, high = min(low, -high), max(high, -low)
        cmap = cmap or DIVERGING
    if not high > low:
        margin = 0.05 * abs(high) or 1.0
        low, high = low - margin, high + margin
    below, above = bool(values.min() < low), bool(values.max() > high)
    extend = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]
    return ScalarMappable(Normalize(low, high), cmap or SEQUENTIAL), extend


def draw_map(ax: Axes, part: xr.DataArray, scale: ScalarMappable) -> None:
    """Draw cells between the midpoints of their coordinates."""
    down, across = (line_of(part, str(dim)) for dim in part.dims)
    ax.set_facecolor(_NO_FIELD)
    values = np.ma.masked_invalid(np.asarray(part.values, dtype=float))
    edges = (edges_of(across.values), edges_of(down.values))
    ax.pcolormesh(*edges, values, cmap=scale.cmap, norm=scale.norm, rasterized=True)  # type: ignore[arg-type]
    ax.set(
        xlim=(edges[0].min(), edges[0].max()),
        ylim=(edges[1].min(), edges[1].max()),
    )
    ax.spines[:].set(color=FAINT, linewidth=0.6)
    ax.tick_params(labelsize=7.5, color=FAINT, length=2.5)


def edges_of(points: Floats) -> Floats:
    """Return the borders of the cells of a coordinate."""
    if points.size == 1:
        return points[0] + np.array([-0.5, 0.5])
    middle = (points[1:] + points[:-1]) / 2
    return np.concatenate([[2 * points[0] - middle[0]], middle, [2 * points[-1] - middle[-1]]])


def name_axis(axis: Axis, line: Line) -> None:
    """Write name and unit of a dim along an axis, or dates."""
    axis.set_label_text(line.name, fontsize=8.5)
    axis.label.set_parse_math(False)
    if line.dates:
        locator = AutoDateLocator(maxticks=6)
        axis.set_major_locator(locator)
        axis.set_major_formatter(ConciseDateFormatter(locator))
        axis.get_offset_text().set_fontsize(7.5)
