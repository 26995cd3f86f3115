"""Every term of a model as a panel: the curve or points, their band, the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import ParameterError
from dsgp.estimators.bands import band_factors
from dsgp.estimators.classes import model_of_terms
from dsgp.models.checks import require_choice
from dsgp.models.term import FittedTerm
from dsgp.plotting.dates import write_dates
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.inputs import seen_inputs
from dsgp.plotting.level_panels import CurvesPanel, LevelsPanel, curves_panel, levels_panel
from dsgp.plotting.pair_panels import MapPanel, pair_panel
from dsgp.plotting.panels import (
    Panel,
    draw_curve,
    draw_inputs,
    draw_points,
    limits_of,
    link_of,
    panels_of,
    scale_of,
    title_of,
)
from dsgp.plotting.style import (
    GREY,
    characters,
    label,
    normal_quantile,
    tidy,
    write_below,
)

# What bands and intervals are drawn, in the words of a caption.
_BANDS = {
    "pointwise": ("pointwise", "pointwise"),
    "simultaneous": ("for a whole panel at once", "for a whole panel at once"),
    "both": (
        "dark pointwise, light for a whole panel at once",
        "thick pointwise, thin for a whole panel at once",
    ),
}


def plot_components(
    model: Any,
    X: Any = None,
    *,
    terms: Iterable[str] | None = None,
    n_points: int = 200,
    level: float = 0.95,
    bands: str = "pointwise",
    sort: str = "share",
    columns: int | None = None,
    target: str | None = None,
    scale: str = "common",
    fig: Figure | SubFigure | None = None,
) -> Figure:
    """Draw each fitted function with its credible band: a panel a term, one scale for all.

    A panel shows the centred component in the units of the data, above bars for the distribution
    of its inputs. Its title gives the share of the target's variance that the term explains, and
    the lengthscale ℓ. Up to 10 distinct values are points with error bars, without a curve or ℓ. A
    grey term is one whose band contains 0 throughout. At most 0.5 % of the weight is cut off at an
    end, where the tail is long or the band opens so wide there that it would flatten the rest.

    An interaction of two columns of numbers is a map: the colour is the effect, blue below zero and
    orange above, hatched where the band holds zero, grey where no row is near, with dots where rows
    are. One of two categories is a table, with crosses where the interval holds zero, and one of a
    number and a category a curve for each level.

    Effects of levels are points in ascending order, with their names where these are few, and
    curves by group are drawn over one another, those of the groups with most rows. A function that
    is multiplied by a column is drawn as its coefficient. Dates have a calendar axis.

    Of a ``ProjectionPursuitGPRegressor`` the panels are functions of projections;
    ``plot_projections`` draws them beside their directions. Of a generalized model, or a classifier
    of two classes, they are on the scale of the link, and shares are of the variance of f; with
    more classes pass one of its ``estimators_``.

    Parameters
    ----------
    model : fitted estimator
        With ``terms_`` and ``components``.
    X : array_like of shape (n_rows, n_columns), or pandas.DataFrame, optional
        Rows whose inputs set the range and the distribution drawn; the training rows by default.
    terms : iterable of str, optional
        Draw only these columns.
    n_points : int
        Inputs a curve is evaluated at.
    level : float in (0, 1)
        Posterior probability of the band.
    bands : {"pointwise", "simultaneous", "both"}
        The function is within a pointwise band with that probability at each input by itself, and
        within a simultaneous one at all inputs of its panel at once: all levels, or all curves
        drawn. It is wider, and takes 1000 joint draws of the terms (as ``component_bands``).
    sort : {"share", "column"}
        Largest share first, or the order of the columns (of ``terms``, if given).
    columns : int, optional
        Panels side by side.
    target : str, optional
        Name and unit of the target, for the label.
    scale : {"common", "free"}
        One vertical scale for all panels and one of colours for all maps, so that effects compare;
        or one for each, so that small effects are seen.
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole one, if ``fig`` is a part.

    Raises
    ------
    ParameterError
        If an option is out of its range, a term unknown, or the model has functions for each class.
    DataError
        If X does not have the columns of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_components
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 2))
    >>> y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = AdditiveGPRegressor().fit(X, y)
    >>> figure = plot_components(model)
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['x0', 'x1']
    >>> figure.savefig("components.png")  # doctest: +SKIP
    """
    check_is_fitted(model)
    model = model_of_terms(model)
    z = normal_quantile(level)
    if n_points < 2 or (columns is not None and columns < 1):
        raise ParameterError(
            "n_points must be at least 2 and columns at least 1, "
            f"got n_points={n_points}, columns={columns}"
        )
    require_choice("scale", scale, ("common", "free"))
    require_choice("bands", bands, tuple(_BANDS))
    chosen = _chosen_terms(model, terms, sort)
    panels = _panels(model, chosen, X, n_points, z)
    if bands != "pointwise":
        panels = _simultaneous(model, panels, level, z, keep=bands == "both")

    n_columns = _n_columns(len(panels)) if columns is None else min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    if fig is None:
        width = {1: 4.6, 2: 3.3, 3: 2.7}.get(n_columns, 2.25)
        height = {1: 3.4, 2: 2.6, 3: 2.3}.get(n_columns, 1.95)
        fig = DisplayedFigure((width * n_columns, height * n_rows + 0.3), layout="constrained")
    inches = fig.bbox.width / fig.figure.dpi
    maps = [panel for panel in panels if isinstance(panel, MapPanel)]
    if maps and scale == "common":
        size = max(panel.size for panel in maps)
        panels = [replace(p, size=size) if isinstance(p, MapPanel) else p for p in panels]
    first: Axes | None = None
    numbered: set[int] = set()  # rows whose effects have numbers at their left
    for position, panel in enumerate(panels):
        is_map = isinstance(panel, MapPanel)
        shared = None if is_map or scale == "free" else first
        ax = fig.add_subplot(n_rows, n_columns, position + 1, sharey=shared)
        _draw(ax, model, panel, level, characters(0.85 * inches / n_columns, 9))
        if is_map:
            continue
        first = first or ax
        if scale == "free":
            ax.set_ylim(*limits_of([panel]))
        elif position // n_columns in numbered:
            ax.tick_params(labelleft=False)
        numbered.add(position // n_columns)
    if first is not None and scale == "common":
        first.set_ylim(*limits_of([p for p in panels if not isinstance(p, MapPanel)]))
    fig.supylabel(effect_label(model, target), fontsize=9.5, parse_math=False)
    write_below(fig, _caption(panels, level, bands, link_of(model), X is None), inches)
    return fig.figure


AnyPanel = Panel | LevelsPanel | CurvesPanel | MapPanel


def _panels(model: Any, terms: list[FittedTerm], X: Any, n_points: int, z: float) -> list[AnyPanel]:
    """Evaluate all terms; functions of one input share what is cut off at their ends."""
    lines = [term for term in terms if _is_line(term)]
    panel_by_name: dict[str, AnyPanel] = {}
    if lines:
        seen = seen_inputs(model, lines, X)
        panel_by_name = {
            panel.term.name: panel for panel in panels_of(model, lines, seen, n_points, z)
        }
    for term in terms:
        if term.name in panel_by_name:
            continue
        if term.bound.other is not None:
            panel_by_name[term.name] = pair_panel(model, term, n_points, z)
        elif term.bound.group is not None:
            panel_by_name[term.name] = curves_panel(model, term, n_points, z)
        else:
            panel_by_name[term.name] = levels_panel(model, term, z)
    return [panel_by_name[term.name] for term in terms]


def _simultaneous(
    model: Any, panels: list[AnyPanel], level: float, z: float, keep: bool
) -> list[AnyPanel]:
    """Widen pointwise bands to those that hold for all that a panel shows at once."""
    factors = band_factors(model, {panel.term.name: panel.cell_inputs for panel in panels}, level)
    # The draws are finitely many: of a single value the band is the pointwise one.
    return [panel.widened(max(factors[panel.term.name] / z, 1.0), keep) for panel in panels]


def _draw(ax: Axes, model: Any, panel: AnyPanel, level: float, width: int) -> None:
    """Draw one panel; ``width`` is that of its label, in characters."""
    if not isinstance(panel, MapPanel):
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
    if isinstance(panel, Panel):
        (draw_points if panel.few else draw_curve)(ax, panel, level)
    else:
        panel.draw(ax, level)
    ax.set_title(title_of(panel, model.target_variance_), fontsize=8.5)
    ax.set_xlabel(label(_xlabel(panel), width), fontsize=9, parse_math=False)
    tidy(ax)
    bound = panel.term.bound
    if isinstance(panel, Panel):
        draw_inputs(ax, panel)
    else:
        panel.write_inputs(ax)
    if not isinstance(panel, LevelsPanel):
        write_dates(ax.xaxis, model, bound.value or bound.multiplier)
    if isinstance(panel, MapPanel):
        write_dates(ax.yaxis, model, bound.other)


def effect_label(model: Any, target: str | None) -> str:
    """Label of the vertical axes."""
    name = "" if target is None else label(target, 40)
    link = link_of(model)
    if link is None:
        effect = f"effect on {name}" if name else "effect"
    else:
        effect = f"effect on f ({link} link)" + (f" of {name}" if name else "")
    return effect + scale_of(model)


def _is_line(term: FittedTerm) -> bool:
    return term.bound.family in ("axis", "markov", "dense", "constant") and term.bound.group is None


def _xlabel(panel: AnyPanel) -> str:
    return panel.term.name if isinstance(panel, Panel) else panel.xlabel


def _chosen_terms(model: Any, names: Iterable[str] | None, sort: str) -> list[FittedTerm]:
    if sort not in ("share", "column"):
        raise ParameterError(f"sort must be 'share' or 'column', got {sort!r}")
    by_name = {term.name: term for term in model.terms_}
    wanted = list(by_name) if names is None else list(names)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise ParameterError(f"terms names {unknown}; the model has the terms {list(by_name)}")
    if not wanted:
        raise ParameterError("there is no term to draw")
    chosen = [by_name[name] for name in wanted]
    if sort == "share":
        chosen.sort(key=lambda term: -term.explained_variance)
    return chosen


def _n_columns(n_panels: int) -> int:
    """Panels side by side: few gaps in the last row, and a page a bit wider than high."""
    if n_panels <= 3:
        return n_panels
    if n_panels == 4:
        return 2
    ideal = math.sqrt(1.6 * n_panels)
    return min((3, 4, 5, 6), key=lambda n: math.ceil(n_panels / n) * n - n_panels + abs(n - ideal))


def _caption(
    panels: list[AnyPanel], level: float, bands: str, link: str | None, of_training: bool
) -> str:
    is_map = [isinstance(panel, MapPanel) for panel in panels]
    which, which_intervals = _BANDS[bands]
    parts = []
    if any(is_map):
        wide = "wide band" if bands == "both" else "band"
        parts.append(f"colour: effect, hatched or crossed where its {level:.0%} {wide} holds 0")
        maps = [panel for panel in panels if isinstance(panel, MapPanel)]
        if any(panel.has_gaps for panel in maps):
            parts.append("grey ground: no rows near")
        if not all(any(panel.names) for panel in maps):
            parts.append("dots: rows")
    rest = [panel for panel in panels if not isinstance(panel, MapPanel)]
    if not rest:
        return _breaking_between(parts)
    few, grey = [panel.few for panel in rest], [not panel.told for panel in rest]
    if not all(few):
        parts.append(f"band: {level:.0%} credible, {which}")
    if any(few):
        parts.append(f"points (few values): {level:.0%} credible intervals, {which_intervals}")
    if any(grey):
        wide = "the wide band" if bands == "both" else "the band"
        parts.append(f"grey: {wide} contains 0 everywhere, no visible effect")
    has_bars = any(isinstance(panel, Panel) for panel in rest)
    if not of_training:
        rows = "rows of X"
    else:
        rows = "training rows" if link is None else "training rows, weighted by information"
    if has_bars:
        parts.append(f"bars at the bottom: {rows}")
    parts.append("share: of the target's variance" if link is None else "share: of var f")
    if not all(few):
        parts.append("ℓ: lengthscale")
    return _breaking_between(parts)


def _breaking_between(parts: list[str]) -> str:
    """Join parts of a caption, whose lines break between them."""
    return ";  ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
