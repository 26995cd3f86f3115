"""Charts of a report as specifications of Vega-Lite: plain dictionaries, nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsgp.report.words import significant
from dsgp.terms import Floats

Spec = dict[str, Any]

INK, FAINT, BAND, GREY, TEXT, ACCENT = (
    *("#1f5a94", "#77818b", "#1f5a94", "#b9c0c7", "#30363c", "#c1432e"),
)
# Told apart by colour-blind readers (Okabe and Ito 2008, without yellow).
CURVES = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31"),
)
# From below to above zero, as the maps of dsgp.plotting.
BELOW_ABOVE = ("#005393", "#708db9", "#c3ccdf", "#f9f9f9", "#f0cbbb", "#d78863", "#b24509")
# What a map shows where no row is near.
NO_ROWS = "#d5d9dc"
# Pixels of a chart as it is printed; on a screen it is as wide as there is room.
WIDTH, HEIGHT = 440, 230
_ROW = 17
# Name of layers that only answer to a pointer: no picture has them.
POINTER = "pointer"
_HISTOGRAM = 8.0  # heights of the bars of the inputs that a panel is high

_CONFIG: Spec = {
    "font": "Helvetica, Arial, 'Liberation Sans', sans-serif",
    "background": "white",
    "aria": False,  # labels of every mark; the picture has one of the whole
    "view": {"stroke": None},
    "axis": {
        "labelColor": TEXT,
        "titleColor": TEXT,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "gridColor": "#eceff1",
        "domainColor": FAINT,
        "tickColor": FAINT,
        "labelLimit": 150,
        "titleLimit": 380,
    },
    "axisX": {"grid": False},
    "legend": {"orient": "top", "title": None, "labelLimit": 110, "columns": 4, "labelColor": TEXT},
}


def records(**columns: Any) -> list[dict[str, Any]]:
    """Return rows of columns of equal length; numbers are rounded, and NaN is left out."""
    names = list(columns)
    return [
        {
            name: value if isinstance(value, str) else significant(float(value))
            for name, value in zip(names, row, strict=True)
            if isinstance(value, str) or np.isfinite(value)
        }
        for row in zip(*columns.values(), strict=True)
    ]


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal: a number follows those that were there before."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _names_downwards(padding: int, limit: int) -> Spec:
    return {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": None,
        "axis": {"labelPadding": padding, "labelLimit": limit},
    }


def axis_of(column: Spec | None, title: str) -> Spec:
    """Return the encoding of inputs along an axis of numbers, or of what ``column`` says."""
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": False},
        "axis": {"tickCount": 6},
        **(column or {}),
    }


def _chart(height: int, description: str, **body: Any) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "description": description,
        "config": _CONFIG,
        **body,
    }


def _tooltip(x: str, y: str, level: float, x_type: Spec | None = None) -> list[Spec]:
    shown = {"field": "x", "type": "quantitative", "title": x, "format": ".5~g"}
    if x_type is not None and "tooltip" in x_type:
        shown = {"field": "x", "title": x, **x_type["tooltip"]}
    return [shown, *_effect_tooltip(y, level)]


def _effect_tooltip(y: str, level: float) -> list[Spec]:
    return [
        {"field": "m", "type": "quantitative", "title": y, "format": "+.4~g"},
        {"field": "l", "type": "quantitative", "title": f"{level:.0%} from", "format": "+.4~g"},
        {"field": "h", "type": "quantitative", "title": "to", "format": "+.4~g"},
    ]


def _zero() -> Spec:
    return {
        "data": {"values": [{"zero": 0}]},
        "mark": {"type": "rule", "color": FAINT, "strokeWidth": 0.8},
        "encoding": {"y": {"field": "zero", "type": "quantitative"}},
    }


def _without_tooltip(axis: Spec) -> Spec:
    return {name: value for name, value in axis.items() if name != "tooltip"}


def curve(
    x: Floats,
    mean: Floats,
    low: Floats,
    high: Floats,
    bars: tuple[Floats, Floats],
    *,
    axis: Spec,
    y: str,
    level: float,
    told: bool,
) -> Spec:
    """A curve with its band above a histogram of the inputs.

    Parameters
    ----------
    x, mean, low, high : ndarray of shape (n,)
    bars : (edges, counts)
        Of the histogram, (n_bins + 1,) and (n_bins,); empty without.
    axis : dict
        Encoding of x; ``axis["tooltip"]`` says how a value is written.
    y : str
        Title of the vertical axis.
    level : float
    told : bool
        Whether the band excludes zero somewhere; grey otherwise.
    """
    colour = INK if told else FAINT
    x_encoding = _without_tooltip(axis)
    bare = {key: value for key, value in x_encoding.items() if key != "title"} | {"title": None}
    quantity = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    hover: Spec = {
        "name": "hover",
        "select": {
            "type": "point",
            "on": "pointermove",
            "nearest": True,
            "encodings": ["x"],
            "clear": "pointerout",
        },
    }
    seen = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    function: Spec = {
        "data": {"values": records(x=x, m=mean, l=low, h=high)},
        "layer": [
            {
                "mark": {"type": "area", "color": colour, "opacity": 0.2},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "l", **quantity},
                    "y2": {"field": "h"},
                },
            },
            _zero(),
            {
                "mark": {"type": "line", "color": colour, "strokeWidth": 2},
                "encoding": {"x": x_encoding, "y": {"field": "m", **quantity}},
            },
            {
                "name": POINTER,
                "params": [hover],
                "mark": {"type": "point", "filled": True, "size": 60, "color": colour},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "m", **quantity},
                    "opacity": seen,
                    "tooltip": _tooltip(str(axis.get("title")), y, level, axis),
                },
            },
        ],
    }
    edges, counts = bars
    layers: list[Spec] = [function]
    if len(counts):
        top = _HISTOGRAM * float(counts.max() or 1.0)
        layers.insert(
            0,
            {
                "data": {"values": records(x=edges[:-1], z=edges[1:], n=counts)},
                "mark": {"type": "rect", "color": GREY, "opacity": 0.75},
                "encoding": {
                    "x": bare,
                    "x2": {"field": "z"},
                    "y": {
                        "field": "n",
                        "type": "quantitative",
                        "axis": None,
                        "scale": {"domain": [0, top]},
                    },
                    "y2": {"datum": 0},
                },
            },
        )
    return _chart(
        HEIGHT,
        f"{y} along {axis.get('title')}, with its {level:.0%} band",
        layer=layers,
        resolve={"scale": {"y": "independent"}},
    )


def few_values(
    x: Floats,
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    axis: Spec,
    y: str,
    level: float,
    told: bool,
) -> Spec:
    """Points with intervals, where there are few distinct inputs."""
    colour = INK if told else FAINT
    x_encoding = _without_tooltip(axis)
    if "type" not in axis or axis["type"] == "quantitative":
        margin = 0.06 * float(np.ptp(x)) or 0.5
        x_encoding |= {
            "scale": {"domain": [float(x[0]) - margin, float(x[-1]) + margin], "nice": False}
        }
    tooltip = _tooltip(str(axis.get("title")), y, level, axis)
    quantity = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    return _chart(
        HEIGHT,
        f"{y} at each value of {axis.get('title')}, with {level:.0%} intervals",
        data={"values": records(x=x, m=mean, l=low, h=high)},
        layer=[
            _zero(),
            {
                "mark": {"type": "rule", "color": colour, "strokeWidth": 1.5},
                "encoding": {"x": x_encoding, "y": {"field": "l", **quantity}, "y2": {"field": "h"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 55, "color": colour, "opacity": 1},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "m", **quantity},
                    "tooltip": tooltip,
                },
            },
        ],
    )


def levels(
    names: Sequence[str],
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    x: str,
    name: str,
    level: float,
    told: bool,
) -> Spec:
    """An effect with its interval for each level, one below another."""
    colour = INK if told else FAINT
    y_encoding = _names_downwards(6, 150)
    quantity = {"type": "quantitative", "title": x, "axis": {"tickCount": 5, "grid": True}}
    tooltip = [{"field": "name", "type": "nominal", "title": name}, *_effect_tooltip(x, level)]
    return _chart(
        _ROW * len(names) + 50,
        f"{x} of each level of {name}, with {level:.0%} intervals",
        data={"values": records(name=distinct(names), m=mean, l=low, h=high)},
        layer=[
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "color": FAINT, "strokeWidth": 0.8},
                "encoding": {"x": {"datum": 0, "type": "quantitative"}},
            },
            {
                "mark": {"type": "rule", "color": colour, "strokeWidth": 1.5},
                "encoding": {"y": y_encoding, "x": {"field": "l", **quantity}, "x2": {"field": "h"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "color": colour, "opacity": 1},
                "encoding": {
                    "y": y_encoding,
                    "x": {"field": "m", **quantity},
                    "tooltip": tooltip,
                },
            },
        ],
    )


def curves(
    names: Sequence[str],
    inputs: Sequence[Floats],
    means: Sequence[Floats],
    lows: Sequence[Floats],
    highs: Sequence[Floats],
    *,
    axis: Spec,
    y: str,
    level: float,
) -> Spec:
    """A curve with its band for each of some levels."""
    values = [
        row
        for name, x, mean, low, high in zip(names, inputs, means, lows, highs, strict=True)
        for row in records(g=[name] * len(x), x=x, m=mean, l=low, h=high)
    ]
    x_encoding = _without_tooltip(axis)
    colour = {
        "field": "g",
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(CURVES[: len(names)])},
    }
    quantity = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    tooltip = [
        {"field": "g", "type": "nominal", "title": "level"},
        *_tooltip(str(axis.get("title")), y, level, axis),
    ]
    return _chart(
        HEIGHT + 40,
        f"{y} along {axis.get('title')}: a curve for each level, with {level:.0%} bands",
        data={"values": values},
        layer=[
            {
                "mark": {"type": "area", "opacity": 0.1},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "l", **quantity},
                    "y2": {"field": "h"},
                    "color": colour,
                },
            },
            _zero(),
            {
                "mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "m", **quantity},
                    "color": colour,
                },
            },
            {
                "name": POINTER,
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.01},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "m", **quantity},
                    "color": colour,
                    "tooltip": tooltip,
                },
            },
        ],
    )


def surface(
    x: Floats,
    z: Floats,
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    axes: tuple[Spec, Spec],
    y: str,
    level: float,
) -> Spec:
    """A map of an effect over two inputs; ``mean``, ``low`` and ``high`` are (n_z, n_x)."""
    half = [np.diff(v).mean() / 2 if len(v) > 1 else 0.5 for v in (x, z)]
    grid_x, grid_z = np.meshgrid(x, z)
    known = np.isfinite(mean).ravel()
    columns = {"x": grid_x, "z": grid_z, "m": mean, "l": low, "h": high}
    flat = {key: value.ravel()[known] for key, value in columns.items()}
    first, other = axes
    quantities: dict[str, Spec] = {}
    for channel, field, axis, values, reach in (
        ("x", "x0", first, x, half[0]),
        ("y", "z0", other, z, half[1]),
    ):
        ends = {"domain": [float(values[0] - reach), float(values[-1] + reach)], "nice": False}
        quantities[channel] = {**_without_tooltip(axis), "field": field, "scale": ends}
    doubtful = {"test": "datum.l <= 0 && datum.h >= 0", "value": 0.45}
    tooltip = [
        *_tooltip(str(first.get("title")), y, level, first)[:1],
        {**_tooltip(str(other.get("title")), y, level, other)[0], "field": "z"},
        *_effect_tooltip(y, level),
    ]
    return _chart(
        HEIGHT + 90,
        f"{y} of {first.get('title')} and {other.get('title')} together, by colour",
        view={"fill": NO_ROWS, "stroke": None},
        data={"values": records(**flat)},
        transform=[
            {"calculate": f"datum.{field} {sign} {significant(reach)}", "as": f"{field}{k}"}
            for field, reach in zip("xz", half, strict=True)
            for k, sign in enumerate("-+")
        ],
        mark={"type": "rect", "strokeWidth": 0},
        encoding={
            **quantities,
            "x2": {"field": "x1"},
            "y2": {"field": "z1"},
            "color": _colour(float(np.nanmax(np.abs(mean))) or 1.0, y),
            "opacity": {"condition": doubtful, "value": 1},
            "tooltip": tooltip,
        },
    )


def table_of_levels(
    names: tuple[Sequence[str], Sequence[str]],
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    titles: tuple[str, str],
    y: str,
    level: float,
) -> Spec:
    """A map of the effects of pairs of levels; ``mean``, ``low``, ``high`` are (n_other, n_first)."""
    known = np.isfinite(mean).ravel()
    first, other = distinct(names[0]), distinct(names[1])
    values = records(
        x=np.tile(np.array(first), len(other))[known].tolist(),
        z=np.repeat(np.array(other), len(first))[known].tolist(),
        m=mean.ravel()[known],
        l=low.ravel()[known],
        h=high.ravel()[known],
    )
    doubtful = {"test": "datum.l <= 0 && datum.h >= 0", "value": 0.45}
    return _chart(
        max(_ROW * len(names[1]) + 110, HEIGHT),
        f"{y} of {titles[0]} and {titles[1]} together, by colour",
        view={"fill": NO_ROWS, "stroke": None},
        data={"values": values},
        mark={"type": "rect"},
        encoding={
            "x": {
                "field": "x", "type": "nominal", "title": titles[0], "sort": first,
                "axis": {"labelAngle": -50, "labelLimit": 90},
            },
            "y": {"field": "z", "type": "nominal", "title": titles[1], "sort": other},
            "color": _colour(float(np.nanmax(np.abs(mean))) or 1.0, y),
            "opacity": {"condition": doubtful, "value": 1},
            "tooltip": [
                {"field": "x", "type": "nominal", "title": titles[0]},
                {"field": "z", "type": "nominal", "title": titles[1]},
                *_effect_tooltip(y, level),
            ],
        },
    )  # fmt: skip


def _colour(size: float, title: str) -> Spec:
    return {
        "field": "m",
        "type": "quantitative",
        "scale": {"domain": [-size, size], "range": list(BELOW_ABOVE), "interpolate": "lab"},
        "legend": {
            "title": title,
            "orient": "top",
            "gradientLength": 260,
            "titleLimit": 320,
            "titleFontWeight": "normal",
            "format": "+.3~g",
        },
    }


def shares(
    names: Sequence[str], share: Floats, low: Floats, high: Floats, level: float, of: str
) -> Spec:
    """Bars of shares of the variance, with intervals; the last may be of all others (NaN ends)."""
    y_encoding = _names_downwards(4, 190)
    quantity = {
        "type": "quantitative",
        "title": f"share of the variance of {of}",
        "axis": {"format": ".0%", "grid": True, "tickCount": 6},
    }
    return _chart(
        20 * len(names) + 50,
        f"Share of the variance of {of} that each term has",
        data={"values": records(name=distinct(names), m=share, l=low, h=high)},
        layer=[
            {
                "mark": {"type": "bar", "color": INK, "opacity": 0.8},
                "encoding": {
                    "y": y_encoding,
                    "x": {"field": "m", **quantity},
                    "tooltip": [
                        {"field": "name", "type": "nominal", "title": "term"},
                        {"field": "m", "type": "quantitative", "title": "share", "format": ".1%"},
                        {
                            "field": "l", "type": "quantitative", "format": ".1%",
                            "title": f"{level:.0%} interval from",
                        },
                        {"field": "h", "type": "quantitative", "title": "to", "format": ".1%"},
                    ],
                },
            },
            {
                "mark": {"type": "rule", "color": "black"},
                "encoding": {"y": y_encoding, "x": {"field": "l", **quantity}, "x2": {"field": "h"}},
            },
        ],
    )  # fmt: skip


def diagonal(
    x: Floats,
    y: Floats,
    low: Floats | None,
    high: Floats | None,
    *,
    titles: tuple[str, str],
    as_percent: bool = False,
    line: bool = True,
    cloud: tuple[Floats, Floats] | None = None,
) -> Spec:
    """Points beside the diagonal on which they should lie, with intervals and single rows."""
    ends = [x, y]
    if cloud is not None:
        ends += list(cloud)
    if low is not None and high is not None:
        ends += [low, high]
    first, last = (
        (0.0, 1.0)
        if as_percent
        else (min(map(np.nanmin, ends)), max(map(np.nanmax, ends)))
    )  # fmt: skip
    scale = {"domain": [significant(float(first)), significant(float(last))], "nice": True}
    form = {"format": ".0%"} if as_percent else {}
    quantities = [
        {
            "type": "quantitative",
            "title": title,
            "scale": scale,
            "axis": {"tickCount": 5, "grid": True, **form},
        }
        for title in titles
    ]
    shown = ".1%" if as_percent else ".4~g"
    layers: list[Spec] = []
    if cloud is not None:
        layers.append(
            {
                "data": {"values": records(x=cloud[0], m=cloud[1])},
                "mark": {"type": "circle", "size": 12, "opacity": 0.3, "color": FAINT},
                "encoding": {
                    "x": {"field": "x", **quantities[0]},
                    "y": {"field": "m", **quantities[1]},
                },
            }
        )
    layers.append(
        {
            "data": {"values": [{"x": scale["domain"][0]}, {"x": scale["domain"][1]}]},
            "mark": {"type": "line", "strokeDash": [4, 3], "color": TEXT, "strokeWidth": 1},
            "encoding": {
                "x": {"field": "x", **quantities[0]},
                "y": {"field": "x", **quantities[1]},
            },
        }
    )
    columns = {"x": x, "m": y}
    if low is not None and high is not None:
        columns |= {"l": low, "h": high}
        layers.append(
            {
                "mark": {"type": "rule", "color": INK},
                "encoding": {
                    "x": {"field": "x", **quantities[0]},
                    "y": {"field": "l", **quantities[1]},
                    "y2": {"field": "h"},
                },
            }
        )
    mark: Spec = {"type": "line" if line else "point", "color": INK}
    mark |= {"point": {"color": INK, "size": 45}} if line else {"filled": True, "size": 45}
    layers.append(
        {
            "mark": {**mark, "opacity": 1},
            "encoding": {
                "x": {"field": "x", **quantities[0]},
                "y": {"field": "m", **quantities[1]},
                "tooltip": [
                    {"field": "x", "type": "quantitative", "title": titles[0], "format": shown},
                    {"field": "m", "type": "quantitative", "title": titles[1], "format": shown},
                ],
            },
        }
    )
    return _chart(
        HEIGHT + 70,
        f"{titles[1]} against {titles[0]}; ideal is the dashed diagonal",
        data={"values": records(**columns)},
        layer=layers,
    )
