"""What charts of a report share: colours, sizes, rows of data, axes and what a pointer shows.

Charts are specifications of Vega-Lite: plain dictionaries, nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsgp.report.words import GROUPED, fine
from dsgp.terms import Floats

Spec = dict[str, Any]

INK, FAINT, BAND, GREY, TEXT, ACCENT = (
    *("#1f5a94", "#77818b", "#1f5a94", "#b9c0c7", "#30363c", "#c1432e"),
)
# Colour-blind readers can distinguish them (Okabe and Ito 2008, without yellow).
CURVES = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31"),
)
# From below to above zero, as the maps of dsgp.plotting.
BELOW_ABOVE = ("#005393", "#708db9", "#c3ccdf", "#f9f9f9", "#f0cbbb", "#d78863", "#b24509")
# What a map shows where no row is near.
NO_ROWS = "#d5d9dc"
# Pixels of a chart as it is printed; on a screen it is as wide as there is room.
WIDTH, HEIGHT = 440, 230
ROW = 17
# Name of layers that only answer to a pointer: no picture has them.
POINTER = "pointer"
# How a pointer shows an effect: no powers of ten, as effects on prices would have.
_SIGNED = "+,.4~r"
# Days along an axis up to which a pointer shows the time of day.
_WITH_CLOCK = 60
HISTOGRAM = 8.0  # heights of the bars of the inputs that a panel is high

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
    "legend": {
        "orient": "top",
        "title": None,
        "labelLimit": 110,
        "columns": 4,
        "labelColor": TEXT,
        "symbolOpacity": 1,
    },
}


def records(**columns: Any) -> list[dict[str, Any]]:
    """Return rows of columns of equal length; numbers are rounded, and NaN is left out."""
    names = list(columns)
    rounded = [
        list(column) if len(column) and isinstance(column[0], str) else fine(column)
        for column in columns.values()
    ]
    return [
        {
            name: value
            for name, value in zip(names, row, strict=True)
            if isinstance(value, str) or np.isfinite(value)
        }
        for row in zip(*rounded, strict=True)
    ]


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal: a number follows those that were there before."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def names_downwards(padding: int, limit: int) -> Spec:
    """Return the encoding of names one below another; ``limit`` is their width in pixels."""
    return {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": None,
        "axis": {"labelPadding": padding, "labelLimit": limit},
    }


def axis_of(column: Spec | None, title: str, inputs: Floats | None = None) -> Spec:
    """Return the encoding of inputs along an axis of numbers, or of what ``column`` says."""
    small = inputs is not None and np.abs(inputs).max(initial=0.0) < GROUPED
    form = {"format": "f"} if small else {}  # without it thousands are set apart, of years too
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": False},
        "axis": {"tickCount": 6, **form},
        **(column or {}),
    }


def date_axis(title: str, n_days: float) -> Spec:
    """Return the encoding of dates, in milliseconds since 1970, that span some days."""
    clock = "" if n_days > _WITH_CLOCK else ", %H:%M"
    return axis_of(
        {
            "type": "temporal",
            "scale": {"type": "utc", "nice": False},
            "axis": {"tickCount": 6, "labelOverlap": True},
            "tooltip": {"type": "temporal", "format": f"%d %b %Y{clock}", "formatType": "utc"},
        },
        title,
    )


def chart(height: int, description: str, **body: Any) -> Spec:
    """Return a whole chart around its marks."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "description": description,
        "config": _CONFIG,
        **body,
    }


def tooltip_of(x: str, y: str, level: float, x_type: Spec | None = None) -> list[Spec]:
    """Return what a pointer shows of a place: the input and the effect there."""
    # Without a format: as many digits as there are rows apart by them.
    shown = {"field": "x", "type": "quantitative", "title": x}
    if x_type is not None and "tooltip" in x_type:
        shown = {"field": "x", "title": x, **x_type["tooltip"]}
    return [shown, *effect_tooltip(y, level)]


def effect_tooltip(y: str, level: float) -> list[Spec]:
    """Return what a pointer shows of an effect."""
    return [
        {"field": "m", "type": "quantitative", "title": y, "format": _SIGNED},
        {
            "field": "l",
            "type": "quantitative",
            "title": f"{level:.0%} band from",
            "format": _SIGNED,
        },
        {"field": "h", "type": "quantitative", "title": f"{level:.0%} band to", "format": _SIGNED},
    ]


def zero_line() -> Spec:
    """Return a line where the effect is zero."""
    return {
        "data": {"values": [{"zero": 0}]},
        "mark": {"type": "rule", "color": FAINT, "strokeWidth": 0.8},
        "encoding": {"y": {"field": "zero", "type": "quantitative"}},
    }


def without_tooltip(axis: Spec) -> Spec:
    """Return the encoding of an axis without what is for the pointer only."""
    return {name: value for name, value in axis.items() if name != "tooltip"}
