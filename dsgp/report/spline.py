"""What a page says of a smoothing spline: one function of one column instead of terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp.dates import dates_of_days, written_dates
from dsgp.estimators.spline import SmoothingSpline
from dsgp.plotting.panels import bin_edges
from dsgp.plotting.style import normal_quantile
from dsgp.report.curve_charts import curve
from dsgp.report.drawing import Drawing, short_name
from dsgp.report.facts import Caution, Column
from dsgp.report.measures import Figure
from dsgp.report.rendering import Charts
from dsgp.report.words import digits_of, number
from dsgp.terms.inputs import Input

# Values along the curve, and mean targets beside it at most.
_POINTS, _MOST_ROWS = 400, 500
_KINDS = {1: "a broken line", 2: "a cubic spline", 3: "a quintic spline"}


@dataclass(frozen=True)
class Function:
    """The one function of a model.

    Attributes
    ----------
    facts : list of (name, value, meaning)
    figures : list of Figure
    """

    facts: list[tuple[str, str, str]]
    figures: list[Figure]


def function_of(model: SmoothingSpline, drawn: Charts, target: str, level: float) -> Function:
    """Describe and draw the function of a fitted spline, and its slope where it has one."""
    name = _name_of(model)
    points, targets, weight = model._points()
    x = np.linspace(points[0], points[-1], _POINTS)
    z = normal_quantile(level)
    edges = bin_edges(points, float(points[0]), float(points[-1]))
    counts, edges = np.histogram(points, edges, weights=weight)
    edges = np.clip(edges, points[0], points[-1])
    drawing = Drawing(model, drawn, target, level)
    axis, unit = drawing._axis(Input(name), name, x)
    some = np.linspace(0, len(points) - 1, min(len(points), _MOST_ROWS)).round().astype(int)
    shared: dict[str, Any] = {"axis": axis, "level": level}
    figures = []
    for derivative in range(min(model.order, 2)):
        mean, variance = model._moments(x, derivative)
        std = np.sqrt(variance)
        low, high = mean - z * std, mean + z * std
        if not derivative:
            beside = "the rows" if len(points) == model.n_rows_ else "mean targets of equal inputs"
            more = f", evenly spread over the {len(points):,}" if len(some) < len(points) else ""
            chart = curve(
                unit * x, mean, low, high, (unit * edges, counts.astype(np.float64)),
                y=target, is_clear=True, rows=(unit * points[some], targets[some]), **shared,
            )  # fmt: skip
            text = (
                f"The shaded band holds the function with probability {level:.0%} at each point. "
                f"Grey points: {beside}{more}. Bars at the bottom show where the rows are."
            )
            figures.append(Figure(f"{target} along {name}", drawn.add(chart), text))
        else:
            is_clear = bool(((low > 0) | (high < 0)).any())
            per = "day" if unit != 1.0 else f"unit of {name}"
            figure = f"Slope: change of {target} per {per}"
            chart = curve(
                unit * x, mean, low, high, (np.zeros(0), np.zeros(0)),
                y=f"slope, per {short_name(per, 24)}", is_clear=is_clear, **shared,
            )  # fmt: skip
            text = (
                f"Above zero {target} rises along {name}, below zero it falls; where the band "
                "holds zero, neither is clear."
            )
            figures.append(Figure(figure, drawn.add(chart), text))
    return Function(_facts(model, target), figures)


def _facts(model: SmoothingSpline, target: str) -> list[tuple[str, str, str]]:
    learned = model.smoothing is None
    return [
        ("degrees of freedom", f"{model.effective_dof_:.1f}",
         "how many parameters the function amounts to; a straight line has 2"),
        ("noise, standard deviation", number(math.sqrt(model.noise_variance_)),
         f"of a row of weight 1 around the function, in units of {target}"),
        ("smoothing λ", number(model.smoothing_),
         "learned by restricted maximum likelihood" if learned else "given, not learned"),
        ("log restricted likelihood", number(model.log_marginal_likelihood_, 6),
         "comparable between fits of the same rows and order"),
    ]  # fmt: skip


def columns_of_spline(model: SmoothingSpline) -> list[Column]:
    """Describe the column."""
    points = model._points()[0]
    name = _name_of(model)
    is_date = _is_date(model)
    ends = [float(points[0]), float(points[-1])]
    digits = digits_of(ends, 4)
    low, high = (
        written_dates(dates_of_days(ends), ends[1] - ends[0])
        if is_date
        else [number(end, digits) for end in ends]
    )
    kind = "date" if is_date else "number"
    return [Column(name, kind, f"{low} to {high}; {len(points):,} points", "0", "the function")]


def treatment_of_spline(model: SmoothingSpline) -> list[str]:
    """Say in sentences what was done to the data."""
    said = [
        f"The function is {_KINDS[model.order]}. Rows with the same input are one point, of their "
        "total weight; no input is missing, and there are no bins.",
    ]
    if _is_date(model):
        said.append("Dates count in days.")
    return said


def cautions_of_spline(model: SmoothingSpline) -> list[Caution]:
    """Say what to know before the model is trusted."""
    said = []
    if not model.converged_:
        said.append(
            Caution(
                "The rows show no noise that could be detected: standard deviations, bands and "
                "intervals say nothing. Fit with smoothing=.",
                True,
            )
        )
    degree = {1: "a constant", 2: "a straight line", 3: "a parabola"}[model.order]
    said.append(
        Caution(
            f"Beyond the rows the function continues as {degree}, and its standard deviation "
            "grows quickly."
        )
    )
    said.append(
        Caution(
            "One column only: what other columns do is part of the noise, or of the function where "
            "they go along with this one."
        )
    )
    return said


def headlines_of_spline(model: SmoothingSpline) -> list[tuple[str, str]]:
    """Return the numbers that a page begins with, and what they are."""
    return [
        ("rows", f"{model.n_rows_:,}"),
        ("distinct inputs", f"{len(model._points()[0]):,}"),
        ("degrees of freedom", f"{model.effective_dof_:.1f}"),
        ("noise, standard deviation", number(math.sqrt(model.noise_variance_))),
    ]


def _name_of(model: SmoothingSpline) -> str:
    return str(model._columns.names[0])


def _is_date(model: SmoothingSpline) -> bool:
    kind = model._columns.kinds.get(_name_of(model))
    return kind is not None and kind.is_date
