"""Every term of a model as a panel: the curve or points, their band, the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
from dsgp.plotting.captions import BANDS, components_caption, effect_label
from dsgp.plotting.curve_panels import CurvesPanel, curves_panel
from dsgp.plotting.dates import write_dates
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.inputs import seen_inputs
from dsgp.plotting.level_panels import LevelsPanel, levels_panel
from dsgp.plotting.pair_panels import MapPanel, pair_panel
from dsgp.plotting.panels import (
    Panel,
    draw_curve,
    draw_inputs,
    draw_points,
    limits_of,
    panels_of,
    shares_of,
    words_of,
)
from dsgp.plotting.style import GREY, characters, normal_quantile, tidy, write_below, write_title

# Terms drawn at most, if it is not said which.
_MOST = 24


def plot_components(
    model: Any,
    X: Any = None,
    *,
    terms: Iterable[str] | None = None,
    n_points: int = 200,
    level: float = 0.95,
    bands: str = "pointwise",
    sort: str = "share",
    max_terms: int | None = None,
    columns: int | None = None,
    target: str | None = None,
    scale: str = "free",
    fig: Figure | SubFigure | None = None,
) -> Figure:
    """Draw each fitted function with its credible band: one panel per term.

    A panel shows the centred component in the units of the data, above bars for the distribution of
    its inputs. Above it are the name of the term, its lowest and highest effect, in the units of
    the target, and its share of the variance of f as in ``variance_shares``. Up to 10 distinct
    values are points with error bars, without a curve. A term is grey if its band contains 0
    everywhere. At most 0.5 % of the weight is cut off at an end, if the tail is long or the band is
    so wide there that it would flatten the rest.

    An interaction of two columns of numbers is a map: the colour is the effect, blue below zero and
    orange above, hatched where the band contains zero, grey where no row is near, with dots where
    rows are. Two categories give a table, with crosses where the interval contains zero. A number
    and a category give a curve for each level; a number and a count of up to 8 values give a curve
    for each value, since there is nothing between them.

    Effects of levels are points in ascending order, with their names where these are few. With more
    than 8 curves in a panel the 5 of the levels with most rows have colours and bands, and 40
    others are grey lines. A function that is multiplied by a column is drawn as its coefficient.
    Dates have a calendar axis.

    For a ``ProjectionPursuitGPRegressor`` the panels are functions of projections;
    ``plot_projections`` draws them beside their directions. For a generalized model, or a
    classifier with two classes, they are on the scale of the link function; with more classes, pass
    one of its ``estimators_``.

    Parameters
    ----------
    model : fitted estimator
        With ``terms_`` and ``components``.
    X : array_like of shape (n_rows, n_columns), or pandas.DataFrame, optional
        Rows whose inputs set the range and the distribution drawn; the training rows by default.
    terms : iterable of str, optional
        Draw only these columns.
    n_points : int
        Number of inputs at which a curve is evaluated.
    level : float in (0, 1)
        Posterior probability of the band.
    bands : {"pointwise", "simultaneous", "both"}
        The function is within a pointwise band with that probability at each single input, and
        within a simultaneous band at all inputs of its panel at once (all levels, or all curves
        drawn). Simultaneous bands are wider, and need 1000 joint draws of the terms (as in
        ``component_bands``).
    sort : {"share", "column"}
        Largest share first, or the order of the columns (of ``terms``, if given).
    max_terms : int, optional
        Maximum number of terms, those with the largest shares; the caption names the others. By
        default 24, or all of ``terms``. ``plot_report`` draws all, on several pages if needed.
    columns : int, optional
        Number of panels per row.
    target : str, optional
        Name and unit of the target, for the label.
    scale : {"common", "free"}
        "free": one scale per panel, so that the shape of small effects is visible. "common": one
        vertical scale for all panels, and one colour scale for all maps, so that sizes can be
        compared.
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole figure, if ``fig`` is a part of one.

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
    >>> [ax.get_title() for ax in figure.axes]
    ['x0', 'x1']
    >>> figure.savefig("components.png")  # doctest: +SKIP
    """
    check_is_fitted(model)
    model = model_of_terms(model)
    z = normal_quantile(level)
    if n_points < 2 or min(one for one in (columns, max_terms, 1) if one is not None) < 1:
        raise ParameterError(
            "n_points must be at least 2, columns at least 1 and max_terms at least 1, "
            f"got n_points={n_points}, columns={columns}, max_terms={max_terms}"
        )
    require_choice("scale", scale, ("common", "free"))
    require_choice("bands", bands, tuple(BANDS))
    shares = shares_of(model)
    if max_terms is None and terms is None:
        max_terms = _MOST
    chosen, left = _chosen_terms(model, terms, sort, shares, max_terms)
    panels = _panels(model, chosen, X, n_points, z, scale)
    if bands != "pointwise":
        panels = _simultaneous(model, panels, level, z, keep=bands == "both")

    n_columns = _n_columns(len(panels)) if columns is None else min(columns, len(panels))
    if fig is None:
        fig = DisplayedFigure(_size(panels, n_columns), layout="constrained")
    _draw_all(fig, model, panels, shares, n_columns, level, scale)
    fig.supylabel(effect_label(model, target), fontsize=9.5, parse_math=False)
    caption = components_caption(model, panels, shares, level, bands, scale, X is None, left)
    write_below(fig, caption, fig.bbox.width / fig.figure.dpi)
    return fig.figure


AnyPanel = Panel | LevelsPanel | CurvesPanel | MapPanel


def _size(panels: list[AnyPanel], n_columns: int) -> tuple[float, float]:
    """Inches of a figure: names of levels and legends take room below their rows of panels."""
    width = {1: 4.6, 2: 3.4, 3: 2.8}.get(n_columns, 2.45)
    height = {1: 3.4, 2: 2.7, 3: 2.4}.get(n_columns, 2.1)
    rows = [panels[start : start + n_columns] for start in range(0, len(panels), n_columns)]
    return width * n_columns, height * len(rows) + room_below(rows) + 0.3


def room_below(rows: Iterable[list[AnyPanel]]) -> float:
    """Inches that legends and names of levels take in rows of panels."""
    return sum(max(0.0 if isinstance(p, Panel) else p.room_below for p in row) for row in rows)


def _draw_all(
    fig: Figure | SubFigure,
    model: Any,
    panels: list[AnyPanel],
    shares: Mapping[str, float],
    n_columns: int,
    level: float,
    scale: str,
) -> None:
    """Draw panels side by side, on scales of their own or on a common one."""
    n_rows = math.ceil(len(panels) / n_columns)
    width = characters(0.8 * fig.bbox.width / fig.figure.dpi / n_columns, 9)
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
        _draw(ax, model, panel, shares, level, width)
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


def _panels(
    model: Any, terms: list[FittedTerm], X: Any, n_points: int, z: float, scale: str
) -> list[AnyPanel]:
    """Evaluate all terms; functions that share a scale also share what is cut off at their ends."""
    lines = [term for term in terms if _is_line(term)]
    panel_by_name: dict[str, AnyPanel] = {}
    if lines:
        seen = seen_inputs(model, lines, X)
        each = zip(lines, seen, strict=True)
        groups = [([t], [s]) for t, s in each] if scale == "free" else [(lines, seen)]
        panel_by_name = {
            panel.term.name: panel
            for some, inputs in groups
            for panel in panels_of(model, some, inputs, n_points, z)
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


def _draw(
    ax: Axes, model: Any, panel: AnyPanel, shares: Mapping[str, float], level: float, width: int
) -> None:
    """Draw one panel; ``width`` is that of its label, in characters."""
    if not isinstance(panel, MapPanel):
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
    if isinstance(panel, Panel):
        (draw_points if panel.few else draw_curve)(ax, panel, level)
    else:
        panel.draw(ax, level)
    write_title(ax, panel.term.name, words_of(panel, shares), width)
    tidy(ax)
    bound = panel.term.bound
    if isinstance(panel, Panel):
        draw_inputs(ax, panel)
    else:
        panel.write_inputs(ax, width)
    if not isinstance(panel, LevelsPanel):
        write_dates(ax.xaxis, model, bound.value or bound.multiplier)
    if isinstance(panel, MapPanel):
        write_dates(ax.yaxis, model, bound.other)


def _is_line(term: FittedTerm) -> bool:
    return term.bound.family in ("axis", "markov", "dense", "constant") and term.bound.group is None


def _chosen_terms(
    model: Any,
    names: Iterable[str] | None,
    sort: str,
    shares: Mapping[str, float],
    most: int | None,
) -> tuple[list[FittedTerm], list[str]]:
    """Terms to draw, in order, and the names of those that are left out."""
    if sort not in ("share", "column"):
        raise ParameterError(f"sort must be 'share' or 'column', got {sort!r}")
    by_name = {term.name: term for term in model.terms_}
    wanted = list(by_name) if names is None else list(names)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise ParameterError(f"terms names {unknown}; the model has the terms {list(by_name)}")
    if not wanted:
        raise ParameterError("there is no term to draw")
    largest = sorted(wanted, key=lambda name: -shares[name])
    shown = set(largest[:most])
    order = largest if sort == "share" else wanted
    chosen = [by_name[name] for name in order if name in shown]
    return chosen, [name for name in largest if name not in shown]


def _n_columns(n_panels: int) -> int:
    """Panels side by side: few gaps in the last row, and no wider than can be read on a page."""
    if n_panels <= 3:
        return n_panels
    if n_panels == 4:
        return 2
    ideal = math.sqrt(1.6 * n_panels)
    return min((3, 4), key=lambda n: math.ceil(n_panels / n) * n - n_panels + abs(n - ideal))
