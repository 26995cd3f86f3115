"""Every term of a model as a panel: the curve or points, their band, the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from sklearn.utils.validation import check_is_fitted

from dsgp.axis import Floats
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.term import Term
from dsgp.plotting.style import (
    FAINT,
    GREY,
    INK,
    characters,
    label,
    normal_quantile,
    percent,
    short,
    tidy,
    write_below,
)

_TAILS = 0.005  # weight that may be cut off at either end of an axis …
_LONG = 2.0  # … when the whole range is longer than this many times the rest …
_OPEN = 1.5  # … or its band higher than this many times the bands of the rest
_FEW_VALUES = 10  # at most as many distinct inputs are points: a curve between them means nothing
_BINS = 40
_MARGINAL = 0.11  # height of the bars of the inputs, as a share of the panel


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
    fig: Figure | SubFigure | None = None,
) -> Figure:
    """Draw each fitted function with its credible band: a panel a term, one scale for all.

    A panel shows the centred component in the units of the data, above bars for the distribution
    of its inputs. Its title gives the share of the target's variance that the term explains, and
    the lengthscale ℓ. Up to 10 distinct values are points with error bars, without a curve or ℓ. A
    grey term is one whose band contains 0 throughout. At most 0.5 % of the weight is cut off at an
    end, where the tail is long or the band opens so wide there that it would flatten the rest.

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
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole one, if ``fig`` is a part.

    Raises
    ------
    ParameterError
        If an option is out of its range or a term unknown.
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
    z = normal_quantile(level)
    if n_points < 2 or (columns is not None and columns < 1):
        raise ParameterError(
            "n_points must be at least 2 and columns at least 1, "
            f"got n_points={n_points}, columns={columns}"
        )
    chosen = _chosen_terms(model, terms, sort)
    panels = _panels(model, chosen, X, n_points, z)

    n_columns = _n_columns(len(panels)) if columns is None else min(columns, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    if fig is None:
        width = {1: 4.6, 2: 3.3, 3: 2.7}.get(n_columns, 2.25)
        height = {1: 3.4, 2: 2.6, 3: 2.3}.get(n_columns, 1.95)
        fig = Figure((width * n_columns, height * n_rows + 0.3), layout="constrained")
    inches = fig.bbox.width / fig.figure.dpi
    first: Axes | None = None
    for position, panel in enumerate(panels):
        ax = fig.add_subplot(n_rows, n_columns, position + 1, sharey=first)
        first = first or ax
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
        (_draw_points if panel.few else _draw_curve)(ax, panel, level)
        ax.set_title(_title(panel, model.target_variance_), fontsize=8.5)
        ax.set_xlabel(
            label(panel.term.name, characters(0.85 * inches / n_columns, 9)),
            fontsize=9,
            parse_math=False,
        )
        tidy(ax)
        _draw_inputs(ax, panel)
        if position % n_columns:
            ax.tick_params(labelleft=False)
    if first is not None:
        first.set_ylim(*_common_limits(panels))
    effect = "effect" if target is None else f"effect on {label(target, 40)}"
    fig.supylabel(effect, fontsize=9.5, parse_math=False)
    caption = _caption(panels, level, "training rows" if X is None else "rows of X")
    write_below(fig, caption, inches)
    return fig.figure


@dataclass(frozen=True)
class _Panel:
    """What is drawn of one term.

    Attributes
    ----------
    term : Term
    points, weight : ndarray of shape (n_distinct,)
        Distinct inputs, ascending, and the weight of each.
    few : bool
        Whether ``inputs`` are the distinct ones.
    inputs, mean, low, high : ndarray of shape (n_inputs,)
        Component and borders of its band.
    """

    term: Term
    points: Floats
    weight: Floats
    few: bool
    inputs: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def told(self) -> bool:
        """Whether the data tell the component from zero somewhere."""
        return bool(np.any((self.low > 0) | (self.high < 0)))

    @property
    def colour(self) -> str:
        return INK if self.told else FAINT

    def bulk(self) -> slice:
        """Inputs without those in the tails of the distribution."""
        low, high = _quantiles(self.points, self.weight, _TAILS)
        return slice(
            int(np.searchsorted(self.inputs, low)), int(np.searchsorted(self.inputs, high, "right"))
        )


def _panels(model: Any, terms: list[Term], X: Any, n_points: int, z: float) -> list[_Panel]:
    """Evaluate the terms; where a band opens wide in the tails, over the bulk only."""
    seen = [_seen(model, term, X) for term in terms]
    few = [
        max(len(term.axis), len(points)) <= _FEW_VALUES
        for term, (points, _) in zip(terms, seen, strict=True)
    ]

    def evaluated(ranges: list[tuple[float, float]]) -> list[_Panel]:
        inputs = [
            points if few_values else np.linspace(*shown, n_points)
            for (points, _), few_values, shown in zip(seen, few, ranges, strict=True)
        ]
        return [
            _Panel(term, *rows, few_values, at, mean, mean - z * std, mean + z * std)
            for term, rows, few_values, at, (mean, std) in zip(
                terms, seen, few, inputs, _evaluate(model, terms, inputs), strict=True
            )
        ]

    ranges = [_shown_range(points, weight) for points, weight in seen]
    panels = evaluated(ranges)
    bottoms, tops = [], []
    for panel in panels:
        bulk = slice(None) if panel.few else panel.bulk()
        bottoms += [panel.mean.min(), *panel.low[bulk]]
        tops += [panel.mean.max(), *panel.high[bulk]]
    limit = _OPEN * (max(tops) - min(bottoms))
    cut = [
        not panel.few and max(*tops, panel.high.max()) - min(*bottoms, panel.low.min()) > limit
        for panel in panels
    ]
    if not any(cut):
        return panels
    bulks = [_quantiles(points, weight, _TAILS) for points, weight in seen]
    return evaluated(
        [
            bulk if too_wide and bulk[0] < bulk[1] else shown
            for shown, bulk, too_wide in zip(ranges, bulks, cut, strict=True)
        ]
    )


def _chosen_terms(model: Any, names: Iterable[str] | None, sort: str) -> list[Term]:
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


def _seen(model: Any, term: Term, X: Any) -> tuple[Floats, Floats]:
    """Distinct inputs of a term, ascending, and the weight of each."""
    if X is None:
        return term.axis.points, term.weight
    if isinstance(X, pd.DataFrame):
        if term.name not in X.columns:
            raise DataError(f"X has no column {term.name!r}; it has {list(X.columns)}")
        values = X[term.name].to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != model.n_features_in_:
            raise DataError(
                f"X must have shape (n_rows, {model.n_features_in_}), got {array.shape}"
            )
        values = array[:, _column_names(model).index(term.name)]
    if len(values) == 0 or not np.isfinite(values).all():
        raise DataError(f"X must have rows, and finite numbers in column {term.name!r}")
    points, count = np.unique(values, return_counts=True)
    return points, count.astype(np.float64)


def _shown_range(points: Floats, weight: Floats) -> tuple[float, float]:
    """The whole range, or that without its tails where these take most of the room."""
    low, high = _quantiles(points, weight, _TAILS)
    first, last = float(points[0]), float(points[-1])
    if high > low and last - first > _LONG * (high - low):
        return low, high
    if first == last:  # X may have one value only
        return first - 0.5, last + 0.5
    return first, last


def _quantiles(points: Floats, weight: Floats, tail: float) -> tuple[float, float]:
    below = np.cumsum(weight) / weight.sum()
    low, high = np.searchsorted(below, [tail, 1 - tail])
    return float(points[low]), float(points[min(high, len(points) - 1)])


def _evaluate(model: Any, terms: list[Term], inputs: list[Floats]) -> list[tuple[Floats, Floats]]:
    """Mean and standard deviation of each centred component at its own inputs."""
    names = _column_names(model)
    # Columns that are not drawn take a value of the training rows; none is mixed with another.
    table = np.zeros((max(map(len, inputs)), len(names)))
    for term in model.terms_:
        table[:, names.index(term.name)] = term.axis.points[0]
    for term, values in zip(terms, inputs, strict=True):
        table[: len(values), names.index(term.name)] = values
    named = hasattr(model, "feature_names_in_")
    evaluated = model.components(pd.DataFrame(table, columns=names) if named else table)
    picked = evaluated.sel(term=[term.name for term in terms])
    mean, std = picked["mean"].to_numpy(), picked["std"].to_numpy()
    return [
        (mean[: len(values), position], std[: len(values), position])
        for position, values in enumerate(inputs)
    ]


def _common_limits(panels: list[_Panel]) -> tuple[float, float]:
    """Limits that hold every band, above room for the distribution of the inputs."""
    bottom = min(float(panel.low.min()) for panel in panels)
    top = max(float(panel.high.max()) for panel in panels)
    height = (top - bottom) or 1.0
    return bottom - (_MARGINAL + 0.05) * height, top + 0.05 * height


def _draw_curve(ax: Axes, panel: _Panel, level: float) -> None:
    ax.fill_between(
        panel.inputs,
        panel.low,
        panel.high,
        color=panel.colour,
        alpha=0.22,
        linewidth=0,
        label=f"{level:.0%} band",
    )
    ax.plot(panel.inputs, panel.mean, color=panel.colour, linewidth=1.5, label="mean")


def _draw_points(ax: Axes, panel: _Panel, level: float) -> None:
    ax.errorbar(
        panel.inputs,
        panel.mean,
        (panel.mean - panel.low, panel.high - panel.mean),
        fmt="o",
        color=panel.colour,
        markersize=2.2,  # small, for intervals are often short on the common scale
        elinewidth=0.9,
        capsize=2.5,
        label=f"{level:.0%} interval",
    )


def _draw_inputs(ax: Axes, panel: _Panel) -> None:
    """Bars for the inputs along the lower edge, in shares of the panel's height; sets xlim."""
    points, weight = panel.points, panel.weight
    low, high = float(panel.inputs[0]), float(panel.inputs[-1])
    room = 0.02 * (high - low)
    style: dict[str, Any] = {"color": GREY, "alpha": 0.8, "transform": ax.get_xaxis_transform()}
    if panel.few:
        gaps = np.diff(points)
        narrowest = float(gaps.min()) if len(gaps) else 1.0
        room = 0.15 * (high - low) or 0.5
        width = max(min(0.5 * narrowest, 0.4 * room), 0.02 * (high - low))
        # A value of a single row is still seen.
        ax.bar(points, _MARGINAL * np.maximum(weight / weight.max(), 0.06), width, **style)
        if len(points) <= 6 and narrowest >= 0.15 * (high - low):  # labels do not collide
            ax.set_xticks(points, [f"{value:g}" for value in points])
    else:
        inside = (points >= low) & (points <= high)
        edges = _bin_edges(points[inside], low, high)
        counts, _ = np.histogram(points[inside], edges, weights=weight[inside])
        ax.stairs(_MARGINAL * counts / (counts.max() or 1.0), edges, fill=True, **style)
    ax.set_xlim(low - room, high + room)


def _bin_edges(points: Floats, low: float, high: float) -> Floats:
    """Edges of a histogram; values on a coarse grid, such as whole years, share bins evenly."""
    n_bins = min(_BINS, max(_FEW_VALUES, round(2 * math.sqrt(len(points)))))
    if len(points) > 1:
        step = float(np.diff(points).min())
        cells = (points[-1] - points[0]) / step + 1
        if cells <= 10 * _BINS:
            width = step * math.ceil(cells / _BINS)
            first = float(points[0]) - step / 2
            return first + width * np.arange(math.ceil((points[-1] - first) / width) + 1)
    return np.linspace(low, high, n_bins + 1)


def _n_columns(n_panels: int) -> int:
    """Panels side by side: few gaps in the last row, and a page a bit wider than high."""
    if n_panels <= 3:
        return n_panels
    if n_panels == 4:
        return 2
    ideal = math.sqrt(1.6 * n_panels)
    return min((3, 4, 5, 6), key=lambda n: math.ceil(n_panels / n) * n - n_panels + abs(n - ideal))


def _title(panel: _Panel, target_variance: float) -> str:
    title = f"share {percent(panel.term.explained_variance / target_variance)}"
    lengthscale = panel.term.kernel.lengthscale
    return title if panel.few or lengthscale is None else f"{title},  ℓ = {short(lengthscale)}"


def _caption(panels: list[_Panel], level: float, rows: str) -> str:
    few, grey = [panel.few for panel in panels], [not panel.told for panel in panels]
    parts = []
    if not all(few):
        parts.append(f"band: {level:.0%} credible")
    if any(few):
        parts.append(f"points (few values): {level:.0%} credible intervals")
    if any(grey):
        parts.append("grey: the band contains 0 everywhere, no visible effect")
    parts.append(f"bars at the bottom: {rows}")
    parts.append("share: of the target's variance")
    if not all(few):
        parts.append("ℓ: lengthscale")
    # Lines break between the parts.
    return ";  ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
