"""Projections beside their directions, and the relevance of the inputs to all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.models.checks import require_choice
from dsgp.plotting.captions import breaking_between
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.panels import (
    Panel,
    draw_curve,
    draw_inputs,
    draw_points,
    limits_of,
    link_of,
    panels_of,
    scale_of,
    shares_of,
    words_of,
)
from dsgp.plotting.style import (
    ACCENT,
    FAINT,
    GREY,
    INK,
    frame,
    label,
    normal_quantile,
    percent,
    tidy,
    write_below,
)
from dsgp.terms import Floats

_NAME = 17  # characters of an input's name, a line
_MANY = 4  # more projections than that are drawn in two columns
_BAR = 0.15  # inches
_NAMED = 3  # terms beside the projections


def plot_projections(
    model: Any,
    *,
    max_terms: int = 12,
    max_inputs: int = 10,
    n_points: int = 200,
    level: float = 0.95,
    target: str | None = None,
    scale: str = "free",
) -> Figure:
    """Draw each projection: its function with the credible band, and its direction as bars.

    The function is drawn over the range of the projection of the training rows, above bars for
    where the rows are. Grey behind a function is one standard deviation of the target (with a
    likelihood, of f) to both sides of 0: where it is a thin line the function is large and cancels
    with others in part, where it fills the panel the function is small. Its title gives the lowest
    and the highest value and the share of the variance of f as in ``variance_shares``.

    Bars are the weights of the standardised inputs in the direction. The sign of a direction is
    arbitrary. With ``method="gibbs"`` functions and directions are the initial ones of the chains.
    Terms beside the projections are drawn by ``plot_components``.

    Parameters
    ----------
    model : fitted ProjectionPursuitGPRegressor
    max_terms : int
        Maximum number of projections; the figure says how many are left out.
    max_inputs : int
        Maximum number of bars per direction. With more inputs, those with the largest weights are
        shown, and one bar for the root of the sum of squares of the others.
    n_points : int
        Number of points of a curve.
    level : float in (0, 1)
        Posterior probability of the band, pointwise, given the directions.
    target : str, optional
        Name and unit of the target, for the label.
    scale : {"common", "free"}
        "free": one vertical scale per function; "common": one for all.

    Returns
    -------
    Figure
        With two axes for each projection.

    Raises
    ------
    ParameterError
        If an option is out of its range, or the model has no projections.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import ProjectionPursuitGPRegressor
    >>> from dsgp.plotting import plot_projections
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 2))
    >>> y = np.sin(3 * X[:, 0] + 3 * X[:, 1]) + 0.1 * rng.standard_normal(300)
    >>> model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X, y)
    >>> function, direction = plot_projections(model).axes
    >>> [text.get_text() for text in direction.get_yticklabels()]
    ['x0', 'x1']
    """
    weights = _projections(model)
    require_choice("scale", scale, ("common", "free"))
    z = normal_quantile(level)
    if min(max_terms, max_inputs) < 1 or n_points < 2:
        raise ParameterError(
            "max_terms and max_inputs must be at least 1 and n_points at least 2, "
            f"got max_terms={max_terms}, max_inputs={max_inputs}, n_points={n_points}"
        )
    if not len(weights):
        raise ParameterError("there is no projection to draw")
    shares = shares_of(model)
    terms = model.terms_[: min(max_terms, len(weights))]
    # One by one: they do not share a scale.
    panels = [
        panels_of(model, [term], [(term.cells.points, term.weight)], n_points, z)[0]
        for term in terms
    ]
    directions = [_largest(weights.loc[term.name], max_inputs) for term in terms]

    n_columns = 1 if len(terms) <= _MANY else 2
    n_rows = math.ceil(len(terms) / n_columns)
    height = max(1.75, 0.75 + _BAR * max(map(len, directions)))
    fig = DisplayedFigure((5.0 * n_columns + 0.3, height * n_rows + 0.5), layout="constrained")
    grid = fig.add_gridspec(n_rows, 2 * n_columns, width_ratios=[1.5, 1.0] * n_columns)
    std = math.sqrt(model.target_variance_)
    for position, (panel, bars) in enumerate(zip(panels, directions, strict=True)):
        row, column = divmod(position, n_columns)
        function = fig.add_subplot(grid[row, 2 * column])
        direction = fig.add_subplot(grid[row, 2 * column + 1])
        _draw_function(function, panel, std, level, words_of(panel, shares))
        function.set_ylim(*limits_of([panel] if scale == "free" else panels))
        _draw_direction(direction, bars)
        if position + n_columns >= len(terms):  # nothing comes below
            function.set_xlabel("projection", fontsize=9)
            direction.set_xlabel("weight", fontsize=9)
    effect = "effect" if target is None else f"effect on {label(target, 40)}"
    effect += scale_of(model)
    fig.supylabel(effect, fontsize=9.5, parse_math=False)
    write_below(fig, _caption(model, panels, directions, shares, level), fig.get_figwidth())
    return fig


def plot_relevance(
    model: Any, *, max_inputs: int = 20, fig: Figure | SubFigure | None = None
) -> Figure:
    """Draw how much every input matters: ``relevance_`` as bars, the largest first.

    Parameters
    ----------
    model : fitted ProjectionPursuitGPRegressor
    max_inputs : int
        Maximum number of bars; with more inputs there is one more, for the sum of the others.
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole figure, if ``fig`` is a part of one.

    Raises
    ------
    ParameterError
        If an option is out of its range, or the model has no relevance.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import ProjectionPursuitGPRegressor
    >>> from dsgp.plotting import plot_relevance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 3))
    >>> y = np.sin(3 * X[:, 1]) + 0.1 * rng.standard_normal(300)
    >>> model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X, y)
    >>> plot_relevance(model).axes[0].get_yticklabels()[0].get_text()
    'x1'
    """
    _projections(model)
    if max_inputs < 1:
        raise ParameterError(f"max_inputs must be at least 1, got {max_inputs}")
    shares = model.relevance_.sort_values(ascending=False, kind="stable")
    shown, rest = shares[:max_inputs], shares[max_inputs:]
    names = [str(name) for name in shown.index]
    values = [*shown]
    if len(rest):
        names.append(_others(len(rest)))
        values.append(float(rest.sum()))
    if fig is None:
        fig = DisplayedFigure((5.2, 0.9 + 0.2 * len(names)), layout="constrained")
    ax = fig.add_subplot()
    bars = ax.barh(np.arange(len(names)), values, 0.72, color=INK)
    if len(rest):
        bars[-1].set_color(GREY)
    room = 0.01 * max(values, default=1.0)
    for place, value in enumerate(values):
        text = "0" if value == 0 else percent(value)
        ax.text(value + room, place, text, fontsize=7.5, va="center", color=FAINT)
    _name_bars(ax, names, 2 * _NAME)
    ax.set_xlim(0, 1.12 * max(values, default=1.0) or 1.0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel("share of the mean squared gradient, inputs in standard units", fontsize=8.5)
    frame(ax)
    ax.tick_params(axis="y", length=0)
    return fig.figure


def _projections(model: Any) -> pd.DataFrame:
    check_is_fitted(model)
    model = model_of_terms(model)
    if not hasattr(model, "projections_"):
        raise ParameterError(
            f"{type(model).__name__} has no projections: plot_components draws its functions"
        )
    projections: pd.DataFrame = model.projections_
    return projections


def _others(count: int) -> str:
    return f"{count} other{'' if count == 1 else 's'}"


def _largest(weights: pd.Series, count: int) -> list[tuple[str, float, bool]]:
    """Name, weight and whether that stands for others; the largest weights, sorted by input."""
    order = np.argsort(-np.abs(weights.to_numpy()), kind="stable")
    shown, rest = np.sort(order[:count]), order[count:]
    bars = [(str(weights.index[j]), float(weights.iloc[j]), False) for j in shown]
    if len(rest):
        bars.append((_others(len(rest)), float(np.linalg.norm(weights.iloc[rest])), True))
    return bars


def _draw_function(ax: Axes, panel: Panel, std: float, level: float, words: str) -> None:
    ax.axhspan(-std, std, color=GREY, alpha=0.22, linewidth=0, zorder=0)
    ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
    (draw_points if panel.few else draw_curve)(ax, panel, level)
    # From the left edge on it is clear of powers of ten; with y it stays where it is.
    title = f"{panel.term.name}: {words}"
    ax.set_title(title, fontsize=8.5, loc="left", x=0.02, y=1.0)
    tidy(ax)
    draw_inputs(ax, panel)


def _draw_direction(ax: Axes, bars: list[tuple[str, float, bool]]) -> None:
    values: Floats = np.array([weight for _, weight, _ in bars])
    colours = [GREY if others else INK if weight >= 0 else ACCENT for _, weight, others in bars]
    ax.barh(np.arange(len(bars)), values, 0.72, color=colours)
    ax.axvline(0, color=FAINT, linewidth=0.7)
    reach = 1.08 * float(np.abs(values).max()) or 1.0
    ax.set_xlim(-reach, reach)
    tidy(ax, x_ticks=3)
    _name_bars(ax, [name for name, _, _ in bars], _NAME)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _name_bars(ax: Axes, names: list[str], width: int) -> None:
    """Name bars from top to bottom."""
    shortened = [
        name if len(name) <= width else f"{name[: width // 2]}…{name[-(width // 2) :]}"
        for name in names
    ]
    ax.set_yticks(np.arange(len(names)), shortened, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)


def _caption(
    model: Any,
    panels: list[Panel],
    directions: list[list[tuple[str, float, bool]]],
    shares: Mapping[str, float],
    level: float,
) -> str:
    few, grey = [panel.few for panel in panels], [not panel.is_clear for panel in panels]
    parts = []
    count = len(model.projections_)
    if left := count - len(panels):
        share = sum(shares[term.name] for term in model.terms_[len(panels) : count])
        parts.append(
            f"not shown: {left} further projection{'' if left == 1 else 's'}, of shares "
            f"{percent(share)} in all"
        )
    if beside := [term.name for term in model.terms_[count:]]:
        named = ", ".join(beside[:_NAMED]) + (" and others" if len(beside) > _NAMED else "")
        parts.append(f"beside the projections, not shown: {named}")
    if getattr(model, "method", None) == "gibbs":
        parts.append("functions and directions: those that the chains began at")
    if not all(few):
        parts.append(f"band: {level:.0%} credible, given the directions")
    if any(few):
        parts.append(f"points (few values): {level:.0%} credible intervals")
    if any(grey):
        parts.append("grey function: the band contains 0 everywhere")
    whole = "target" if link_of(model) is None else "f"
    parts.append("numbers above: lowest to highest effect")
    parts.append("share: of the variance of f, the sum of all functions")
    if any(shares[panel.term.name] <= -0.0005 for panel in panels):
        parts.append("below 0: the function takes back part of what others give")
    parts.append(f"grey behind: ±1 std of {'the target' if whole == 'target' else 'f'}")
    weighting = "" if whole == "target" else ", weighted by information"
    parts.append(f"bars at the bottom: training rows{weighting}")
    parts.append("to the right: weights of the standardised inputs, red where negative")
    if any(others for bars in directions for *_, others in bars):
        parts.append("grey bar: root of the sum of squares of the others' weights")
    total = sum(term.explained_variance for term in model.terms_) / model.target_variance_
    if total > 1.5:
        parts.append(
            f"alone the functions have {percent(total)} of the variance of "
            f"{'the target' if whole == 'target' else 'f'}: they cancel in part"
        )
    return breaking_between(parts)
