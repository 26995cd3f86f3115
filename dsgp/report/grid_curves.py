"""Curves of a field: through time at a place, correlations by distance, shares observed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from dsgp.estimators.grid import GridGP
from dsgp.grid.axes import GridAxis
from dsgp.grid.points import amplitude
from dsgp.plotting.maps import line_of
from dsgp.plotting.style import normal_quantile
from dsgp.report.curve_charts import curve
from dsgp.report.grid_maps import distance_unit, names_of
from dsgp.report.grid_view import GridView
from dsgp.report.marks import (
    FAINT,
    HEIGHT,
    INK,
    Spec,
    axis_of,
    chart,
    date_axis,
    records,
    tooltip_of,
    without_tooltip,
)
from dsgp.report.measures import Figure
from dsgp.report.rendering import Charts
from dsgp.report.words import number
from dsgp.terms import Floats

# Observations beside a curve at most, distances along a curve of correlations, and where it ends.
_MOST_ROWS, _LAGS, _FAINT_CORRELATION = 500, 120, 0.02
_DAY_IN_MS = 86_400_000.0


def series(
    model: GridGP,
    view: GridView,
    maps: list[tuple[dict[str, int], xr.Dataset]],
    drawn: Charts,
    target: str,
    level: float,
) -> list[Figure]:
    """Draw the posterior along one dim, at one or two places."""
    dim = view.series_dim
    if dim is None:
        return []
    figures = []
    for k, place in enumerate(view.places(maps)):
        part = view.curve_at(place, dim)
        low, high = _band(model, view, part, place, dim, level)
        axis, x = along(part["mean"], dim)
        mean = part["mean"].values
        inside = np.isfinite(mean)
        rows = None
        if "observed" in part:
            seen = part["observed"].values
            some = np.flatnonzero(np.isfinite(seen))
            if len(some) > _MOST_ROWS:
                some = some[np.linspace(0, len(some) - 1, _MOST_ROWS).round().astype(int)]
            rows = x[some], seen[some]
        empty = (np.zeros(0), np.zeros(0))
        spec = curve(
            x[inside], mean[inside], low[inside], high[inside], empty,
            axis=axis, y=target, level=level, is_clear=True, rows=rows or empty,
        )  # fmt: skip
        stride = view.stride_along(dim)
        words = [
            f"The shaded band holds the field, without noise, with probability {level:.0%} at each "
            "point."
        ]
        if rows is not None:
            noise = model.noise_variance_
            size = "" if noise is None else f" of standard deviation {number(math.sqrt(noise), 3)}"
            scale = "" if model.transform_ is None else f" on the {model.transform_.name} scale"
            words.append(f"Grey points: observed values, which have noise{size}{scale}.")
        if stride > 1:
            words.append(
                f"One in {stride:,} of the {view.sizes[dim]:,} cells along {dim} is drawn."
            )
        where = ", ".join(
            f"{each} {names_of(view.posterior.coords[each][[position]])[0]}"
            for each, position in place.items()
        )
        less = ", where less was observed" if k else ""
        title = f"{target} along {dim}{f', at {where}' if where else ''}{less}"
        figures.append(Figure(title, drawn.add(spec), " ".join(words)))
    return figures


def _band(
    model: GridGP, view: GridView, part: xr.Dataset, place: dict[str, int], dim: str, level: float
) -> tuple[Floats, Floats]:
    """Ends of the band: quantiles, which for a transformed field are not symmetric."""
    if model.transform_ is None or not hasattr(model, "field_"):
        reach = normal_quantile(level) * part["std"].values
        return part["mean"].values - reach, part["mean"].values + reach
    coords = {each: view.posterior.coords[each].values[k] for each, k in place.items()}
    coords[dim] = part.coords[dim].values
    ends = [(1 - level) / 2, (1 + level) / 2]
    found = model.predict(quantiles=ends, **coords)["quantiles"].values
    return found[0], found[1]


def along(array: xr.DataArray, dim: str) -> tuple[Spec, Floats]:
    """Return the encoding of an axis along a dim, and the inputs in its numbers."""
    values = array.coords[dim].values
    if values.dtype.kind == "M":
        x = (values - np.datetime64(0, "s")) / np.timedelta64(1, "ms")
        return date_axis(dim, float(np.ptp(x)) / _DAY_IN_MS), x.astype(np.float64)
    line = line_of(array, dim)
    return axis_of(None, line.name, line.values), line.values


# ---------------------------------------------------------------------- what is observed


def observed_share(view: GridView, share: Floats, drawn: Charts) -> Figure | None:
    """Draw the share of observed cells at each time; None if it is the same at all of them."""
    dim = view.series_dim
    if dim is None or not np.ptp(share):
        return None
    stride = view.stride_along(dim)
    some = view.posterior["mean"].isel({dim: slice(None, None, stride)})
    axis, x = along(some, dim)
    rows = records(x=x, m=share[::stride])
    height: Spec = {"field": "m", "type": "quantitative", "title": "observed cells"}
    height |= {"axis": {"format": ".0%", "tickCount": 4}, "scale": {"domainMin": 0}}
    where = tooltip_of(str(axis.get("title")), "", 0.5, axis)[0]
    spec = chart(
        HEIGHT - 60,
        f"Share of the cells that are observed, along {dim}",
        data={"values": rows},
        layer=[
            {
                "mark": {"type": "line", "color": INK, "strokeWidth": 1},
                "encoding": {"x": without_tooltip(axis), "y": {**height}},
            },
            {
                "mark": {"type": "point", "filled": True, "color": INK, "size": 22, "opacity": 1},
                "encoding": {
                    "x": without_tooltip(axis),
                    "y": {**height},
                    "tooltip": [where, {**height, "format": ".1%"}],
                },
            },
        ],
    )
    text = "Of the cells that have a posterior; those that are empty at all times do not count."
    return Figure(f"How much is observed along {dim}", drawn.add(spec), text)


# ---------------------------------------------------------------------- correlations


def correlations(model: GridGP, drawn: Charts) -> list[Figure]:
    """Draw the prior correlation of two cells by their distance along each dim."""
    terms = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    weights = np.array([float(amplitude(list(term.values()))) for term in terms])
    weights = weights / weights.sum()
    figures = []
    for axis in model._axes:
        if len(axis) < 2:
            continue
        lags, total = _correlation(axis, [term[axis.name] for term in terms], weights)
        unit = f" ({distance_unit(axis).strip()})" if axis.unit else ""
        encoding = axis_of(None, f"distance along {axis.name}{unit}", lags)
        step = float(np.median(np.diff(axis.points)))
        spec = chart(
            HEIGHT - 40,
            f"Prior correlation of two cells by their distance along {axis.name}",
            data={"values": records(x=lags, m=total)},
            layer=[
                {
                    "mark": {"type": "line", "color": INK, "strokeWidth": 2},
                    "encoding": {"x": without_tooltip(encoding), "y": _OF_CORRELATION},
                },
                {
                    "mark": {"type": "point", "size": 40, "opacity": 0.01, "color": FAINT},
                    "encoding": {
                        "x": without_tooltip(encoding),
                        "y": _OF_CORRELATION,
                        "tooltip": [
                            {"field": "x", "type": "quantitative", "title": "distance"},
                            {**_OF_CORRELATION, "title": "correlation", "format": ".2f"},
                        ],
                    },
                },
            ],
        )
        figures.append(
            Figure(
                f"Correlation along {axis.name}", drawn.add(spec),
                _reach_of(axis, lags, total, step),
            )
        )  # fmt: skip
    return figures


_OF_CORRELATION: dict[str, Any] = {
    "field": "m",
    "type": "quantitative",
    "title": "correlation",
    "scale": {"domainMax": 1},
    "axis": {"tickCount": 5},
}


def _correlation(axis: GridAxis, kernels: list[Any], weights: Floats) -> tuple[Floats, Floats]:
    """Correlation at distances from zero to where it has faded, or to the extent of the field."""

    def at(lags: Floats) -> Floats:
        parts = [
            weight * kernel.covariance(np.zeros(1), lags)[0] / float(kernel.variance or 1.0)
            for kernel, weight in zip(kernels, weights, strict=True)
        ]
        return np.sum(parts, axis=0)

    extent = float(axis.points[-1] - axis.points[0])
    if axis.is_closed and axis.circle is not None:
        extent = axis.circle / 2
    step = float(np.median(np.diff(axis.points)))
    coarse = np.geomspace(min(step, extent) / 8, extent, _LAGS)
    still = np.flatnonzero(np.abs(at(coarse)) > _FAINT_CORRELATION)
    last = coarse[min(still[-1] + 1, _LAGS - 1)] if len(still) else extent
    lags = np.linspace(0.0, max(float(last), min(3 * step, extent)), _LAGS)
    return lags, np.asarray(at(lags))


def _reach_of(axis: GridAxis, lags: Floats, total: Floats, step: float) -> str:
    """Say at which distance the correlation is a half, beside the step of the grid."""
    below = np.flatnonzero(total < 0.5)
    spacing = f"The cells are {number(step, 3)}{distance_unit(axis, step)} apart"
    if not len(below):
        return f"Above one half over the whole extent of the field. {spacing}."
    k = int(below[0])
    half = lags[k - 1] + (total[k - 1] - 0.5) / (total[k - 1] - total[k]) * (lags[k] - lags[k - 1])
    close = math.isfinite(half) and half < step
    return f"One half at a distance of {number(float(half), 3)}{distance_unit(axis)}. {spacing}" + (
        ", so that a cell says little about its neighbours." if close else "."
    )
