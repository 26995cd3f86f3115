"""Maps of a field as pictures, and their numbers, which a pointer shows."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dsgp.grid.axes import GridAxis
from dsgp.plotting.maps import (
    axis_of,
    draw_blanks,
    draw_map,
    edges_of,
    is_latitude,
    line_of,
    name_axis,
    name_blanks,
    scale_of,
    shape_of,
)
from dsgp.plotting.style import DEVIATION, FAINT, label
from dsgp.report.grid_view import GridView
from dsgp.report.words import digits_of, number
from dsgp.terms import Floats

# Inches of a picture, pixels per inch of the page, and those of the cells in a picture.
_WIDTH, _DPI, _CELL_DPI = 3.9, 100, 180
_SIZE = 9.5  # points of text
# Numbers below a map are kept as integers of 16 bits; the largest of these is an empty cell.
_STEPS = 2**16 - 2
_TITLES = {"observed": "Observed", "mean": "Posterior mean", "std": "Standard deviation"}


@dataclass(frozen=True)
class MapPicture:
    """A map of a page.

    Attributes
    ----------
    key : str
        By which the script of the page knows it.
    title : str
    picture : str
        Its ``data:`` address.
    width, height : int
        In pixels.
    description : str
    """

    key: str
    title: str
    picture: str
    width: int
    height: int
    description: str


@dataclass
class MapNumbers:
    """The numbers of the maps of a page, as its script reads them.

    Attributes
    ----------
    maps : dict
        For each map the box of its axes, the edges of its cells, names of these, and the keys of
        the arrays that a pointer shows.
    arrays : dict
    """

    maps: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def add(self, values: Floats) -> str:
        """Pack an array, which is rounded to 1/65534 of its range; return its key."""
        key = f"array-{len(self.arrays)}"
        finite = np.isfinite(values)
        low, high = (
            (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0, 0)
        )
        step = (high - low) / _STEPS
        codes = np.full(values.shape, _STEPS + 1, dtype="<u2")
        codes[finite] = np.rint((values[finite] - low) / (step or 1.0)).astype("<u2")
        digits = min(digits_of(values[finite], 4), 15) if finite.any() else 4
        text = base64.b64encode(codes.tobytes()).decode("ascii")
        self.arrays[key] = {"low": low, "step": step, "digits": digits, "codes": text}
        return key


@dataclass(frozen=True)
class SliceMaps:
    """The maps of one slice."""

    title: str
    maps: list[MapPicture]


def slice_maps(
    view: GridView,
    parts: list[tuple[dict[str, int], xr.Dataset]],
    numbers: MapNumbers,
    target: str,
) -> list[SliceMaps]:
    """Draw all slices, with one scale of values and one of standard deviations."""
    words = [word for word in _TITLES if word in parts[0][1]]
    if not any(np.isfinite(part["mean"].values).any() for _, part in parts):
        return []  # few cells have a posterior, and none of them is drawn
    values = [part[word] for _, part in parts for word in words if word != "std"]
    scales = {
        "mean": scale_of(values, None),
        "std": scale_of([part["std"] for _, part in parts], DEVIATION, positive=True),
    }
    found = []
    for chosen, part in parts:
        title = view.title_of(chosen)
        keys = {word: numbers.add(part[word].values) for word in words}
        maps = []
        for word in words:
            scale = scales["std" if word == "std" else "mean"]
            key = f"map-{len(numbers.maps)}"
            picture = _drawn(view, part, word, scale, target)
            numbers.maps[key] = {
                **picture.box,
                **_cells(part),
                "dims": list(map(str, part["mean"].dims)),
                "rows": [[_TITLES[each].lower(), keys[each]] for each in words],
            }
            name = f"{_TITLES[word]}{f', {title}' if title else ''}"
            text = f"{name}: a map of {target} along {' and '.join(map(str, part['mean'].dims))}"
            maps.append(MapPicture(key, name, picture.address, picture.width, picture.height, text))
        found.append(SliceMaps(title, maps))
    return found


@dataclass(frozen=True)
class _Picture:
    address: str
    width: int
    height: int
    box: dict[str, float]  # of the axes, in parts of the picture, from its left and its top


def _drawn(
    view: GridView,
    part: xr.Dataset,
    word: str,
    scale: tuple[ScalarMappable, str],
    target: str,
) -> _Picture:
    """Draw one map with its bar of colours."""
    mean = part["mean"]
    down, across = map(str, mean.dims)
    aspect, width, height = shape_of(mean)
    tall = height / width
    fig = Figure((_WIDTH, (_WIDTH - 0.75) * min(tall, 1.15) + 1.25), dpi=_DPI, layout="constrained")
    ax = fig.subplots()
    draw_map(ax, part[word], scale[0])
    blanks = draw_blanks(ax, part[word], mean, word == "observed")
    for layer in ax.collections:  # a long coast as lines would be larger than all pixels
        layer.set_rasterized(True)
    ax.set_aspect(aspect)
    if _runs_down(view, down):
        ax.invert_yaxis()
    name_axis(ax.xaxis, line_of(mean, across))
    name_axis(ax.yaxis, line_of(mean, down))
    ax.tick_params(labelsize=_SIZE)
    ax.xaxis.label.set_fontsize(_SIZE)
    ax.yaxis.label.set_fontsize(_SIZE)
    for axis, dim in ((ax.xaxis, across), (ax.yaxis, down)):
        if not line_of(mean, dim).dates:
            axis.set_major_locator(MaxNLocator(5))
    _add_bar(fig, ax, scale, f"std of {target}" if word == "std" else target)
    name_blanks(fig, np.array(blanks), is_latitude(mean, down))
    buffer = io.BytesIO()
    # Fixed names of its parts: the same page twice is the same file.
    with mpl.rc_context({"svg.hashsalt": "dsgp"}):
        fig.savefig(buffer, format="svg", dpi=_CELL_DPI, metadata={"Date": None})
    text = base64.b64encode(buffer.getvalue()).decode("ascii")
    place = ax.get_position()
    size = fig.get_size_inches() * _DPI
    box = {
        "left": place.x0, "right": place.x1, "top": 1 - place.y1, "bottom": 1 - place.y0,
        "up": float(not ax.yaxis_inverted()),
    }  # fmt: skip
    return _Picture(f"data:image/svg+xml;base64,{text}", round(size[0]), round(size[1]), box)


def _runs_down(view: GridView, dim: str) -> bool:
    """Return whether a vertical coordinate ascends downwards: a depth, by CF's attribute."""
    return str(view.posterior.coords[dim].attrs.get("positive", "")).lower() == "down"


def _add_bar(fig: Figure, ax: Axes, scale: tuple[ScalarMappable, str], text: str) -> None:
    bar = fig.colorbar(
        scale[0], ax=ax, location="bottom", extend=scale[1], pad=0.02, shrink=0.92, aspect=28
    )
    bar.set_label(label(text, 42), fontsize=_SIZE)
    bar.ax.xaxis.label.set_parse_math(False)
    bar.ax.tick_params(labelsize=_SIZE, color=FAINT, length=2.5)
    bar.ax.xaxis.set_major_locator(MaxNLocator(5))
    bar.outline.set_visible(False)


def _cells(part: xr.Dataset) -> dict[str, Any]:
    """Return edges of cells as parts of the axes, from low to high, and the names of cells."""
    axes: dict[str, Any] = {}
    for side, dim in zip("yx", map(str, part["mean"].dims), strict=True):
        edges = edges_of(line_of(part["mean"], dim).values)
        if backwards := bool(edges[-1] < edges[0]):
            edges = edges[::-1]
        shares = (edges - edges[0]) / (edges[-1] - edges[0])
        axes[side] = [round(float(share), 5) for share in shares]
        axes[f"{side}_backwards"] = backwards
        axes[f"{side}_names"] = names_of(part["mean"].coords[dim])
    return axes


def distance_unit(axis: GridAxis, value: float = 0.0) -> str:
    """Return what follows a distance along a dim: its unit, with a space where it is a word."""
    unit = axis.unit or ""
    if axis.is_time and value == 1:
        return f" {unit.removesuffix('s')}"
    if unit in ("degrees_north", "degrees_east", "degrees", "degree"):
        return "°"
    return f" {unit}" if unit else ""


def names_of(coordinate: xr.DataArray) -> list[str]:
    """Write the values of a coordinate: dates without what is zero in all of them."""
    values = coordinate.values
    axis = axis_of(coordinate, str(coordinate.dims[0]))
    if axis.kind == "datetime":
        texts = [str(text) for text in np.datetime_as_string(values, unit="s")]
    elif axis.kind == "cftime":
        texts = [value.strftime("%Y-%m-%dT%H:%M:%S") for value in values]
    else:
        numbers = axis.numbers(values) if axis.is_time else values.astype(np.float64)
        digits = digits_of(numbers, 4)
        unit = f" {axis.unit}" if axis.unit else ""
        unit = unit.replace("degrees_north", "°N").replace("degrees_east", "°E")
        return [number(float(value), digits) + unit for value in numbers]
    for zero, rest in (("T00:00:00", ""), (":00", "")):
        if all(text.endswith(zero) for text in texts):
            return [text.removesuffix(zero).replace("T", " ") + rest for text in texts]
    return [text.replace("T", " ") for text in texts]
