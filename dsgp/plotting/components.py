"""Every term of a model as a panel: the curve or points, their band, the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, SubFigure
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataError, ParameterError
from dsgp.models.term import FittedTerm
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.level_panels import CurvesPanel, LevelsPanel, curves_panel, levels_panel
from dsgp.plotting.panels import (
    Panel,
    draw_curve,
    draw_inputs,
    draw_points,
    limits_of,
    link_of,
    model_of_terms,
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
from dsgp.rows.sources import Rows, numbers_of, plain_table
from dsgp.terms import Floats
from dsgp.terms.inputs import MONTHS, WEEKDAYS

# Days of a leap year at which months begin.
_MONTH_STARTS = np.cumsum([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30])


def plot_components(
    model: Any,
    X: Any = None,
    *,
    terms: Iterable[str] | None = None,
    n_points: int = 200,
    level: float = 0.95,
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
        Posterior probability of the band, pointwise.
    sort : {"share", "column"}
        Largest share first, or the order of the columns (of ``terms``, if given).
    columns : int, optional
        Panels side by side.
    target : str, optional
        Name and unit of the target, for the label.
    scale : {"common", "free"}
        One vertical scale for all panels, so that effects compare; or one for each, so that small
        effects are seen.
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
    if scale not in ("common", "free"):
        raise ParameterError(f"scale must be 'common' or 'free', got {scale!r}")
    chosen = _chosen_terms(model, terms, sort)
    panels = _panels(model, chosen, X, n_points, z)

    n_columns = _n_columns(len(panels)) if columns is None else min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    if fig is None:
        width = {1: 4.6, 2: 3.3, 3: 2.7}.get(n_columns, 2.25)
        height = {1: 3.4, 2: 2.6, 3: 2.3}.get(n_columns, 1.95)
        fig = DisplayedFigure((width * n_columns, height * n_rows + 0.3), layout="constrained")
    inches = fig.bbox.width / fig.figure.dpi
    first: Axes | None = None
    for position, panel in enumerate(panels):
        ax = fig.add_subplot(
            n_rows, n_columns, position + 1, sharey=first if scale == "common" else None
        )
        first = first or ax
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
        if isinstance(panel, Panel):
            (draw_points if panel.few else draw_curve)(ax, panel, level)
        else:
            panel.draw(ax, level)
        ax.set_title(title_of(panel, model.target_variance_), fontsize=8.5)
        ax.set_xlabel(
            label(_xlabel(panel), characters(0.85 * inches / n_columns, 9)),
            fontsize=9,
            parse_math=False,
        )
        tidy(ax)
        if isinstance(panel, Panel):
            draw_inputs(ax, panel)
            _write_dates(ax, model, panel)
        else:
            panel.write_inputs(ax)
        if scale == "free":
            ax.set_ylim(*limits_of([panel]))
        elif position % n_columns:
            ax.tick_params(labelleft=False)
    if first is not None and scale == "common":
        first.set_ylim(*limits_of(panels))
    link = link_of(model)
    effect = "effect" if target is None else f"effect on {label(target, 40)}"
    if link is not None:
        of = "" if target is None else f" of {label(target, 40)}"
        effect = f"effect on f ({link} link){of}"
    effect += scale_of(model)
    fig.supylabel(effect, fontsize=9.5, parse_math=False)
    told = "training rows" if link is None else "training rows, by how much each tells"
    rows = told if X is None else "rows of X"
    caption = _caption(panels, level, rows, "the target's variance" if link is None else "var f")
    write_below(fig, caption, inches)
    return fig.figure


AnyPanel = Panel | LevelsPanel | CurvesPanel


def _panels(model: Any, terms: list[FittedTerm], X: Any, n_points: int, z: float) -> list[AnyPanel]:
    """Evaluate all terms; functions of one input share what is cut off at their ends."""
    lines = [term for term in terms if _is_line(term)]
    found: dict[str, AnyPanel] = {}
    if lines:
        seen = _seen(model, lines, X)
        found = {panel.term.name: panel for panel in panels_of(model, lines, seen, n_points, z)}
    for term in terms:
        if term.name in found:
            continue
        if term.bound.group is not None:
            found[term.name] = curves_panel(model, term, n_points, z)
        else:
            found[term.name] = levels_panel(model, term, z)
    return [found[term.name] for term in terms]


def _is_line(term: FittedTerm) -> bool:
    return term.bound.family in ("axis", "dense", "constant") and term.bound.group is None


def _xlabel(panel: AnyPanel) -> str:
    return panel.term.name if isinstance(panel, Panel) else panel.xlabel


def _write_dates(ax: Axes, model: Any, panel: Panel) -> None:
    """Write dates, or parts of them, along an axis of days."""
    value = panel.term.bound.value or panel.term.bound.multiplier
    kind = None if value is None else model._columns.kinds.get(value.column)
    if value is None or kind is None or not kind.is_date:
        return
    if value.period == "year":
        ax.set_xticks(_MONTH_STARTS, [month[0] for month in MONTHS])
    elif value.period == "week":
        ax.set_xticks(np.arange(7) + 0.5, [day[:2] for day in WEEKDAYS])
    elif value.period == "day":
        ax.set_xticks(np.arange(0, 25, 6) / 24, [str(hour) for hour in range(0, 25, 6)])
    else:
        locator = AutoDateLocator(minticks=3, maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


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


def _column_names(model: Any) -> list[str]:
    if hasattr(model, "feature_names_in_"):
        return list(model.feature_names_in_)
    return [f"x{position}" for position in range(model.n_features_in_)]


def _seen(model: Any, terms: list[FittedTerm], X: Any) -> list[tuple[Floats, Floats]]:
    """Distinct inputs of each term, ascending, and the weight of each."""
    if X is None:
        return [_of_training(term) for term in terms]
    X = plain_table(X)
    if hasattr(model, "projections_"):  # inputs of terms are made of all columns
        names = [term.name for term in model.terms_]
        rows = Rows.join([load() for load in model._rows_of(X)])
        columns = model._rows_model.inputs(rows.columns)
        values = [columns[names.index(term.name)] for term in terms]
    else:
        values = [_column(model, term, X) for term in terms]
    if any(len(column) == 0 for column in values):
        raise DataError("X has no row to draw")
    counted = (np.unique(column, return_counts=True) for column in values)
    return [(points, count.astype(np.float64)) for points, count in counted]


def _of_training(term: FittedTerm) -> tuple[Floats, Floats]:
    """Inputs in the training rows and their weights; of a straight line a range around its mean."""
    points = term.cells.points
    if term.bound.family == "constant":
        line = term.bound.multiplier
        assert line is not None
        return line.centre + line.scale * np.linspace(-2.0, 2.0, 41), np.ones(41)
    return (points if points.ndim == 1 else points[:, 0]), term.weight


def _column(model: Any, term: FittedTerm, X: Any) -> Floats:
    if not term.bound.is_plain:
        rows = Rows.join([load() for load in model._rows_of(X)])
        by_name = dict(zip(model.used_columns_, rows.columns, strict=True))
        own = term.bound.value or term.bound.multiplier
        assert own is not None
        values = (
            by_name[own.column] if own is term.bound.multiplier else own.of(by_name[own.column])
        )
        return values[np.isfinite(values)]
    if isinstance(X, pd.DataFrame):
        if term.name not in X.columns:
            raise DataError(f"X has no column {term.name!r}; it has {list(X.columns)}")
        values = numbers_of(f"column {term.name!r}", X[term.name])
    else:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != model.n_features_in_:
            raise DataError(
                f"X must have shape (n_rows, {model.n_features_in_}), got {array.shape}"
            )
        values = array[:, _column_names(model).index(term.name)]
    if not np.isfinite(values).all():
        raise DataError(f"X must have finite numbers in column {term.name!r}")
    return values


def _n_columns(n_panels: int) -> int:
    """Panels side by side: few gaps in the last row, and a page a bit wider than high."""
    if n_panels <= 3:
        return n_panels
    if n_panels == 4:
        return 2
    ideal = math.sqrt(1.6 * n_panels)
    return min((3, 4, 5, 6), key=lambda n: math.ceil(n_panels / n) * n - n_panels + abs(n - ideal))


def _caption(panels: list[AnyPanel], level: float, rows: str, whole: str) -> str:
    few, grey = [panel.few for panel in panels], [not panel.told for panel in panels]
    parts = []
    if not all(few):
        parts.append(f"band: {level:.0%} credible")
    if any(few):
        parts.append(f"points (few values): {level:.0%} credible intervals")
    if any(grey):
        parts.append("grey: the band contains 0 everywhere, no visible effect")
    parts.append(f"bars at the bottom: {rows}")
    parts.append(f"share: of {whole}")
    if not all(few):
        parts.append("ℓ: lengthscale")
    # Lines break between the parts.
    return ";  ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
