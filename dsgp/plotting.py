"""Pictures of fitted models: components, predictions, learning. Needs the extra ``plot``.

Every function draws on a ``matplotlib.figure.Figure`` of its own and returns it: no pyplot, hence
no global state, no display and no thread to mind.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dsgp.axis import Floats
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.term import Term
from dsgp.metrics import coverage, nmse

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter
except ImportError as error:
    raise ImportError(
        'dsgp.plotting needs matplotlib: pip install ".[plot]" in a checkout of dsgp'
    ) from error

__all__ = ["plot_components", "plot_learning", "plot_predictions"]

_INK = "#1f5a94"
_FAINT = "#8a949e"  # of what the data do not tell from zero
_GREY = "#b9c0c7"
_ACCENT = "#c1432e"
_LINE = "#30363c"  # references: identity, borders of the intervals
_TEXT = "#58626b"  # captions

# Without their palest third: a single row must be seen on white.
_DENSITY = LinearSegmentedColormap.from_list("density", ["#b7d0e8", "#4a8ac4", "#0b3a6b"])
_MISSED = LinearSegmentedColormap.from_list("missed", ["#e9b3a8", "#c1432e", "#7a1f10"])

_TAILS = 0.005  # weight that may be cut off at either end of an axis …
_LONG = 2.0  # … when the whole range is longer than this many times the rest …
_OPEN = 1.5  # … or its band higher than this many times the bands of the rest
_FEW_VALUES = 10  # at most as many distinct inputs are points: a curve between them means nothing
_BINS = 40
_MARGINAL = 0.11  # height of the bars of the inputs, as a share of the panel

_ERROR_BAR_ROWS = 200
_HEXBIN_ROWS = 2000
_RESIDUALS = (3.0, 8.0)  # standard deviations shown at least and at most


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
    z = _normal_quantile(level)
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
        ax.axhline(0, color=_GREY, linewidth=0.7, zorder=1)
        (_draw_points if panel.few else _draw_curve)(ax, panel, level)
        ax.set_title(_title(panel, model.target_variance_), fontsize=8.5)
        ax.set_xlabel(
            _label(panel.term.name, _characters(0.85 * inches / n_columns, 9)),
            fontsize=9,
            parse_math=False,
        )
        _tidy(ax)
        _draw_inputs(ax, panel)
        if position % n_columns:
            ax.tick_params(labelleft=False)
    if first is not None:
        first.set_ylim(*_common_limits(panels))
    effect = "effect" if target is None else f"effect on {_label(target, 40)}"
    fig.supylabel(effect, fontsize=9.5, parse_math=False)
    caption = _caption(panels, level, "training rows" if X is None else "rows of X")
    _write_below(fig, caption, inches)
    return fig.figure


def plot_predictions(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    ax: Axes | None = None,
    level: float = 0.95,
    y_train_mean: float | None = None,
    target: str | None = None,
) -> Figure:
    """Draw predicted against observed targets, and what is left over in standard deviations.

    The left panel has the NMSE and the coverage of the intervals as its title; up to 200 rows have
    error bars. The right one shows (observed − predicted) / std against the prediction, between
    the borders of the interval. Rows outside their interval are red; many rows become a density.

    Parameters
    ----------
    y, mean, std : array_like of shape (n_rows,)
        Observed targets, predictive means and standard deviations (with the noise).
    ax : Axes, optional
        Draw the left panel only, into it.
    level : float in (0, 1)
        Of the intervals.
    y_train_mean : float, optional
        Mean of the training targets, the reference of the NMSE; by default that of ``y``.
    target : str, optional
        Name and unit of the target, for the labels.

    Returns
    -------
    Figure
        The figure of ``ax``, if given.

    Raises
    ------
    DataError
        If shapes differ or a value is not finite.

    Examples
    --------
    >>> from dsgp.plotting import plot_predictions
    >>> figure = plot_predictions([1.0, 2.0, 3.0], [1.1, 2.0, 2.8], [0.2, 0.2, 0.2])
    >>> figure.axes[0].get_ylabel()
    'predicted'
    """
    z = _normal_quantile(level)
    y, mean, std = (np.asarray(values, dtype=np.float64) for values in (y, mean, std))
    covered = coverage(y, mean, std, level)  # checks shapes and values
    reference = float(np.mean(y)) if y_train_mean is None else y_train_mean
    try:
        error = f"NMSE {nmse(y, mean, reference):.3g}"
    except DataError:  # one row, or a constant target: there is no variance to compare with
        error = f"MSE {np.mean((y - mean) ** 2):.3g}"

    whole = ax is None
    if ax is None:
        ax, right = Figure((8.6, 4.1), layout="constrained").subplots(1, 2)
        _draw_residuals(right, y, mean, std, z)
    _draw_predictions(ax, y, mean, std, z)
    ax.set_title(
        f"{error},  {covered:.1%} in {level:.0%} intervals,  {len(y):,} rows", fontsize=8.5
    )
    suffix = "" if target is None else f" {target}"
    for set_label, word in ((ax.set_xlabel, "observed"), (ax.set_ylabel, "predicted")):
        set_label(_label(f"{word}{suffix}", 48), fontsize=9.5, parse_math=False)
    entries = _legend_entries(level, len(y) > _HEXBIN_ROWS)
    if whole:
        right.set_xlabel(_label(f"predicted{suffix}", 48), fontsize=9.5, parse_math=False)
        ax.figure.legend(handles=entries, loc="outside lower center", ncols=4, **_LEGEND)
        if len(y) > _HEXBIN_ROWS:
            _add_rows_bar(ax, right)
    else:
        ax.legend(handles=entries, loc="lower right", **_LEGEND)
    return ax.figure.figure


def plot_learning(model: Any) -> Figure:
    """Draw the learner's bound after each iteration, and what each iteration gained.

    After a gain below the tolerance the learner looks once more from other starting lengthscales,
    so that gains may rise again; it ends when that look gains little as well.

    Parameters
    ----------
    model : fitted estimator
        With ``learner_trace_`` and ``learner_tol``.

    Returns
    -------
    Figure

    Raises
    ------
    ParameterError
        If the model was fitted without a learner.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_learning
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> figure = plot_learning(AdditiveGPRegressor().fit(X, y))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['iteration', 'iteration']
    """
    check_is_fitted(model)
    trace = np.asarray(model.learner_trace_, dtype=np.float64)
    if len(trace) == 0:
        raise ParameterError(
            f"the model was fitted with learner={model.learner!r}: there is no learning to draw"
        )
    fig = Figure((6.6, 3.0), layout="constrained")
    bound, gain = fig.subplots(1, 2)
    bound.plot(np.arange(len(trace)), trace, "o-", color=_INK, markersize=3.5, linewidth=1.2)
    bound.set_ylabel("bound (nats)", fontsize=9)
    bound.set_title(f"{_likelihood(model)}: {trace[-1]:.6g}".replace("-", "−"), fontsize=8.5)

    gains = np.diff(trace)
    iterations = np.arange(1, len(trace))
    positive = gains > 0  # a last iteration may gain nothing, which a logarithm cannot show
    gain.plot(
        iterations[positive], gains[positive], "o-", color=_INK, markersize=3.5, linewidth=1.2
    )
    gain.axhline(model.learner_tol, color=_ACCENT, linewidth=1.0, linestyle="--")
    gain.set_yscale("log")
    gain.set_ylabel("gain (nats)", fontsize=9)
    gain.set_title(f"tolerance {model.learner_tol:g}", fontsize=8.5, color=_ACCENT)
    shown = [*gains[positive], model.learner_tol]
    if max(shown) > 100 * min(shown):  # over fewer decades the ticks between them are needed
        gain.yaxis.set_major_locator(LogLocator(numticks=7))
        gain.yaxis.set_minor_locator(NullLocator())
    for ax in (bound, gain):
        ax.set_xlabel("iteration", fontsize=9)
        ax.set_xlim(-0.5, len(trace) - 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _frame(ax)
    note = (
        "A gain below the tolerance is followed by one more look from other starting lengthscales; "
        "the run ends when that gains as little."
    )
    _write_below(fig, note, fig.get_figwidth())
    return fig


# ---- what a panel shows


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
        return _INK if self.told else _FAINT

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


# ---- drawing


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
    style: dict[str, Any] = {"color": _GREY, "alpha": 0.8, "transform": ax.get_xaxis_transform()}
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


_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 1.6}


def _draw_predictions(ax: Axes, y: Floats, mean: Floats, std: Floats, z: float) -> None:
    low, high = _limits(np.concatenate([y, mean]))
    missed = np.abs(y - mean) > z * std
    ax.plot([low, high], [low, high], color=_LINE, linewidth=1.0, zorder=3, label="identity")
    ax.set(xlim=(low, high), ylim=(low, high))
    if len(y) > _HEXBIN_ROWS:
        _draw_density(ax, y, mean, missed, (low, high, low, high))
    else:
        _draw_dots(ax, y, mean, missed)
    if len(y) <= _ERROR_BAR_ROWS:
        bottom, top = mean - z * std, mean + z * std
        for rows, colour in ((~missed, _GREY), (missed, _ACCENT)):
            ax.vlines(y[rows], bottom[rows], top[rows], colour, linewidth=0.8, zorder=1.5)
        ax.set_ylim(*_limits(np.concatenate([y, bottom, top])))
    _tidy(ax, x_ticks=5)


def _draw_residuals(ax: Axes, y: Floats, mean: Floats, std: Floats, z: float) -> None:
    """Draw (y − mean) / std against the mean; what is too far out stays at the edge."""
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.nan_to_num((y - mean) / std, nan=0.0)  # exact, and certain of it
    missed = np.abs(y - mean) > z * std
    least, most = _RESIDUALS
    reach = float(np.clip(np.abs(residual).max(), max(least, 1.2 * z), max(most, 1.2 * z)))
    n_beyond = int(np.count_nonzero(np.abs(residual) > reach))
    residual = np.clip(residual, -reach, reach)
    low, high = _limits(mean)
    ax.axhline(0, color=_GREY, linewidth=0.8, zorder=1)
    for border in (-z, z):
        ax.axhline(border, color=_LINE, linewidth=0.9, linestyle="--", zorder=3, label="border")
    if len(y) > _HEXBIN_ROWS:
        _draw_density(ax, mean, residual, missed, (low, high, -reach, reach))
    else:
        _draw_dots(ax, mean, residual, missed)
    ax.set(xlim=(low, high), ylim=(-1.06 * reach, 1.06 * reach))
    ax.set_ylabel("(observed − predicted) / std", fontsize=9.5)
    beyond = f",  {n_beyond:,} rows beyond ±{reach:g} at the edge" if n_beyond else ""
    ax.set_title(f"residuals, interval ±{z:.3g}{beyond}", fontsize=8.5)
    _tidy(ax, x_ticks=5)


def _draw_dots(ax: Axes, x: Floats, y: Floats, missed: Any) -> None:
    faint = 1.0 if len(x) <= _ERROR_BAR_ROWS else 0.45
    for rows, colour, alpha, label in (
        (~missed, _INK, faint, "covered"),
        (missed, _ACCENT, 1.0, "missed"),
    ):
        ax.plot(
            x[rows], y[rows], "o", color=colour, markersize=3.2, alpha=alpha,
            markeredgewidth=0, label=label,
        )  # fmt: skip


def _draw_density(
    ax: Axes, x: Floats, y: Floats, missed: Any, extent: tuple[float, float, float, float]
) -> None:
    """Hexagons; red are those in which every row is missed, so these come first."""
    for rows, cmap in ((missed, _MISSED), (~missed, _DENSITY)):
        if rows.any():
            ax.hexbin(
                x[rows],
                y[rows],
                gridsize=50,
                extent=extent,
                norm=LogNorm(),
                mincnt=1,
                cmap=cmap,
                linewidths=0.1,
            )


def _add_rows_bar(left: Axes, right: Axes) -> None:
    """One scale of rows a hexagon for both panels."""
    hexagons = [*left.collections, *right.collections]
    most = max(float(np.max(each.get_array())) for each in hexagons)  # type: ignore[arg-type]
    for each in hexagons:
        each.set_clim(1, max(most, 2.0))
    bar = right.figure.colorbar(hexagons[-1], ax=right, shrink=0.75, pad=0.02)
    bar.set_label("rows", fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)


def _legend_entries(level: float, hexagons: bool) -> list[Line2D]:
    dots: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linestyle": ""}
    entries = [Line2D([], [], color=_LINE, linewidth=1.0, label="observed = predicted")]
    entries.append(Line2D([], [], color=_INK, label=f"in its {level:.0%} interval", **dots))
    entries.append(
        Line2D([], [], color=_ACCENT, label="all rows outside" if hexagons else "outside", **dots)
    )
    return entries


def _limits(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def _n_columns(n_panels: int) -> int:
    """Panels side by side: few gaps in the last row, and a page a bit wider than high."""
    if n_panels <= 3:
        return n_panels
    if n_panels == 4:
        return 2
    ideal = math.sqrt(1.6 * n_panels)
    return min((3, 4, 5, 6), key=lambda n: math.ceil(n_panels / n) * n - n_panels + abs(n - ideal))


def _tidy(ax: Axes, x_ticks: int = 4) -> None:
    for axis, n_ticks in ((ax.xaxis, x_ticks), (ax.yaxis, 5)):
        axis.set_major_locator(MaxNLocator(n_ticks, steps=[1, 2, 5, 10], min_n_ticks=2))
        formatter = ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-2, 4))
        axis.set_major_formatter(formatter)
        axis.get_offset_text().set_fontsize(7)
    ax.yaxis.get_offset_text().set_horizontalalignment("right")  # clear of the title
    _frame(ax)


def _frame(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(_FAINT)
    ax.tick_params(labelsize=7.5, color=_FAINT, length=2.5)


def _likelihood(model: Any) -> str:
    return "log marginal likelihood" if len(model.terms_) <= 1 else "variational lower bound"


def _title(panel: _Panel, target_variance: float) -> str:
    title = f"share {_percent(panel.term.explained_variance / target_variance)}"
    lengthscale = panel.term.kernel.lengthscale
    return title if panel.few or lengthscale is None else f"{title},  ℓ = {_short(lengthscale)}"


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


def _write_below(fig: Figure | SubFigure, text: str, inches: float) -> None:
    width = _characters(0.95 * inches, 7.5)
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    text = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    fig.supxlabel(text, fontsize=7.5, color=_TEXT, parse_math=False)


def _characters(inches: float, size: float) -> int:
    """Characters of a line of text of a size in points."""
    return max(8, int(inches * 72 / (0.58 * size)))


def _label(name: str, width: int) -> str:
    """Break a name into two lines of ``width`` at most, shortened in the middle if need be."""
    name = str(name)
    if len(name) <= width:
        return name
    if len(name) > 2 * width:
        name = f"{name[: width - 1]}…{name[-width:]}"
    # The last break that leaves a second line short enough, else wherever it fits.
    breaks = [match.end() for match in re.finditer(r"[\s_./-]|[a-z](?=[A-Z])", name[:width])]
    fitting = [at for at in breaks if len(name) - at <= width]
    at = fitting[-1] if fitting else width
    return f"{name[:at].rstrip()}\n{name[at:]}"


def _percent(share: float) -> str:
    if share < 0.0005:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def _short(value: float) -> str:
    return f"{value:.3g}" if 1e-3 <= value < 1e4 else _power_of_ten(value)


def _power_of_ten(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return rf"${mantissa}\times 10^{{{int(exponent)}}}$"


def _normal_quantile(level: float) -> float:
    if not 0 < level < 1:
        raise ParameterError(f"level must be a share between 0 and 1, such as 0.95, got {level!r}")
    return float(ndtri((1 + level) / 2))
