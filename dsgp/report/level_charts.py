"""Charts of effects one below another, and of two inputs by colour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgp.report.marks import (
    BELOW_ABOVE,
    FAINT,
    HEIGHT,
    INK,
    NO_ROWS,
    ROW,
    Spec,
    chart,
    distinct,
    effect_tooltip,
    names_downwards,
    records,
    tooltip_of,
    without_tooltip,
)
from dsgp.report.words import significant
from dsgp.terms import Floats


def levels(
    names: Sequence[str],
    mean: Floats,
    low: Floats,
    high: Floats,
    *,
    x: str,
    name: str,
    level: float,
    is_clear: bool,
) -> Spec:
    """An effect with its interval for each level, one below another."""
    colour = INK if is_clear else FAINT
    y_encoding = names_downwards(6, 150)
    quantity = {"type": "quantitative", "title": x, "axis": {"tickCount": 5, "grid": True}}
    tooltip = [{"field": "name", "type": "nominal", "title": name}, *effect_tooltip(x, level)]
    return chart(
        ROW * len(names) + 50,
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
                "encoding": {
                    "y": y_encoding,
                    "x": {"field": "l", **quantity},
                    "x2": {"field": "h"},
                },
            },
            {
                "mark": {
                    "type": "point",
                    "filled": True,
                    "size": 50,
                    "color": colour,
                    "opacity": 1,
                },
                "encoding": {
                    "y": y_encoding,
                    "x": {"field": "m", **quantity},
                    "tooltip": tooltip,
                },
            },
        ],
    )


def shares_chart(
    names: Sequence[str], share: Floats, low: Floats, high: Floats, level: float, of: str
) -> Spec:
    """Bars of shares of the variance, with intervals; the last may be of all others (NaN ends)."""
    y_encoding = names_downwards(4, 190)
    quantity = {
        "type": "quantitative",
        "title": f"share of the variance of {of}",
        "axis": {"format": ".0%", "grid": True, "tickCount": 6},
    }
    return chart(
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
                "encoding": {
                    "y": y_encoding,
                    "x": {"field": "l", **quantity},
                    "x2": {"field": "h"},
                },
            },
        ],
    )  # fmt: skip


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
        quantities[channel] = {**without_tooltip(axis), "field": field, "scale": ends}
    doubtful = {"test": "datum.l <= 0 && datum.h >= 0", "value": 0.45}
    tooltip = [
        *tooltip_of(str(first.get("title")), y, level, first)[:1],
        {**tooltip_of(str(other.get("title")), y, level, other)[0], "field": "z"},
        *effect_tooltip(y, level),
    ]
    return chart(
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
    """A map of the effects of pairs of levels; (n_other, n_first) of each array."""
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
    return chart(
        max(ROW * len(names[1]) + 110, HEIGHT),
        f"{y} of {titles[0]} and {titles[1]} together, by colour",
        view={"fill": NO_ROWS, "stroke": None},
        data={"values": values},
        mark={"type": "rect"},
        encoding={
            "x": {
                "field": "x", "type": "nominal", "title": titles[0], "scale": {"domain": first},
                "axis": {"labelAngle": -50, "labelLimit": 90},
            },
            "y": {
                "field": "z", "type": "nominal", "title": titles[1], "scale": {"domain": other},
            },
            "color": _colour(float(np.nanmax(np.abs(mean))) or 1.0, y),
            "opacity": {"condition": doubtful, "value": 1},
            "tooltip": [
                {"field": "x", "type": "nominal", "title": titles[0]},
                {"field": "z", "type": "nominal", "title": titles[1]},
                *effect_tooltip(y, level),
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
            "format": "+,.3~r",
        },
    }
