"""Charts of functions of one input: a curve, its values where they are few, a curve a level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgp.report.marks import (
    CURVES,
    FAINT,
    GREY,
    HEIGHT,
    HISTOGRAM,
    INK,
    POINTER,
    Spec,
    chart,
    records,
    tooltip_of,
    without_tooltip,
    zero_line,
)
from dsgp.report.words import fine
from dsgp.terms import Floats

# Single rows that are drawn larger.
_FEW = 150


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
    is_clear: bool,
    rows: tuple[Floats, Floats] | None = None,
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
    is_clear : bool
        Whether the band excludes zero somewhere; grey otherwise.
    rows : (inputs, targets), optional
        What the function was fitted to, (n_points,) each: it is no effect, and its axis need not
        have zero.
    """
    colour = INK if is_clear else FAINT
    x_encoding = without_tooltip(axis)
    quantity: Spec = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    below = [zero_line()]
    if rows is not None:
        quantity["scale"] = {"zero": False}
        below = [
            {
                "data": {"values": _beside(x, rows)},
                "mark": {
                    "type": "circle",
                    "size": 12 if len(rows[0]) > _FEW else 36,
                    "opacity": 0.4 if len(rows[0]) > _FEW else 0.6,
                    "color": FAINT,
                },
                "encoding": {"x": x_encoding, "y": {"field": "m", **quantity}},
            }
        ]
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
            *below,
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
                    "tooltip": tooltip_of(str(axis.get("title")), y, level, axis),
                },
            },
        ],
    }
    edges, counts = bars
    layers: list[Spec] = [function]
    if len(counts):
        top = HISTOGRAM * float(counts.max() or 1.0)
        layers.insert(
            0,
            {
                "data": {"values": records(x=edges[:-1], z=edges[1:], n=counts)},
                "mark": {"type": "rect", "color": GREY, "opacity": 0.75},
                "encoding": {
                    "x": x_encoding,
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
    return chart(
        HEIGHT,
        f"{y} along {axis.get('title')}, with its {level:.0%} band",
        layer=layers,
        resolve={"scale": {"y": "independent"}},
    )


def _beside(x: Floats, rows: tuple[Floats, Floats]) -> list[dict[str, float]]:
    """Return single rows, whose inputs have the digits of those of the curve: one may be alone."""
    inputs = fine(np.concatenate([x, rows[0]]))[len(x) :]
    return [{"x": at, "m": value} for at, value in zip(inputs, fine(rows[1]), strict=True)]


def few_values(
    x: Floats,
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    axis: Spec,
    y: str,
    level: float,
    is_clear: bool,
) -> Spec:
    """Points with intervals, where there are few distinct inputs."""
    colour = INK if is_clear else FAINT
    x_encoding = without_tooltip(axis)
    if "type" not in axis or axis["type"] == "quantitative":
        margin = 0.06 * float(np.ptp(x)) or 0.5
        x_encoding |= {
            "scale": {"domain": [float(x[0]) - margin, float(x[-1]) + margin], "nice": False}
        }
        if "values" not in axis["axis"]:
            x_encoding["axis"] = {"values": fine(x), "format": "", "labelOverlap": True}
    tooltip = tooltip_of(str(axis.get("title")), y, level, axis)
    quantity = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    return chart(
        HEIGHT,
        f"{y} at each value of {axis.get('title')}, with {level:.0%} intervals",
        data={"values": records(x=x, m=mean, l=low, h=high)},
        layer=[
            zero_line(),
            {
                "mark": {"type": "rule", "color": colour, "strokeWidth": 1.5},
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "l", **quantity},
                    "y2": {"field": "h"},
                },
            },
            {
                "mark": {
                    "type": "point",
                    "filled": True,
                    "size": 55,
                    "color": colour,
                    "opacity": 1,
                },
                "encoding": {
                    "x": x_encoding,
                    "y": {"field": "m", **quantity},
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
    x_encoding = without_tooltip(axis)
    colour = {
        "field": "g",
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(CURVES[: len(names)])},
    }
    quantity = {"type": "quantitative", "title": y, "axis": {"tickCount": 5}}
    tooltip = [
        {"field": "g", "type": "nominal", "title": "level"},
        *tooltip_of(str(axis.get("title")), y, level, axis),
    ]
    return chart(
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
            zero_line(),
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
