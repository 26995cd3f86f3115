"""Charts of what should lie on a diagonal: calibration, predictions and observations."""

from __future__ import annotations

import numpy as np

from dsgp.report.marks import (
    FAINT,
    HEIGHT,
    INK,
    TEXT,
    Spec,
    chart,
    records,
)
from dsgp.report.words import fine
from dsgp.terms import Floats


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
    # Shares from zero on, but not beyond what there is: rare classes have small probabilities.
    first = 0.0 if as_percent else float(min(map(np.nanmin, ends)))
    last = float(max(map(np.nanmax, ends)))
    ends_shown = fine([first, last])
    scale = {"domain": ends_shown, "nice": True}
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
    shown = {"format": ".1%"} if as_percent else {}
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
            "data": {"values": [{"x": end} for end in ends_shown]},
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
                    {"field": "x", "type": "quantitative", "title": titles[0], **shown},
                    {"field": "m", "type": "quantitative", "title": titles[1], **shown},
                ],
            },
        }
    )
    return chart(
        HEIGHT + 70,
        f"{titles[1]} against {titles[0]}; ideal is the dashed diagonal",
        data={"values": records(**columns)},
        layer=layers,
    )
