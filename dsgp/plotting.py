"""Pictures of fitted models: components, predictions, learning. Needs the extra ``plot``.

Every function draws on a ``matplotlib.figure.Figure`` of its own and returns it: no pyplot, hence
no global state, no display and no thread to mind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
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
    from matplotlib.ticker import MaxNLocator, ScalarFormatter
except ImportError as error:
    raise ImportError('dsgp.plotting needs matplotlib: pip install "dsgp[plot]"') from error

__all__ = ["plot_components", "plot_learning", "plot_predictions"]

_INK = "#1f5a94"
_FAINT = "#8a949e"  # of what the data do not tell from zero
_GREY = "#b9c0c7"
_ACCENT = "#c1432e"

# Blues without their palest third: a single row must be seen on white.
_DENSITY = LinearSegmentedColormap.from_list("density", ["#b7d0e8", "#4a8ac4", "#0b3a6b"])

_TAILS = 0.005  # weight that may be cut off at either end of an axis …
_LONG = 2.0  # … when the whole range is longer than this many times the rest
_FEW_POINTS = 12  # distinct inputs that get a marker each
_RUG_POINTS = 150  # distinct inputs drawn as a rug; more are drawn as a density
_BINS = 40
_MARGINAL = 0.11  # height of rug and density, as a share of the panel

_ERROR_BAR_ROWS = 200
_HEXBIN_ROWS = 2000


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

    A panel shows the centred component in the units of the data, above the distribution of its
    inputs (a rug, or a density where there are many). Its title gives the share of the target's
    variance that the term explains, and the lengthscale ℓ. A grey term is one whose band contains
    0 throughout. Long tails are cut where they hold at most 0.5 % of the weight at an end.

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
    seen = [_seen(model, term, X) for term in chosen]
    grids = np.column_stack(
        [np.linspace(*_shown_range(points, weight), n_points) for points, weight in seen]
    )  # (n_points, n_terms)
    mean, std = _evaluate(model, chosen, grids)
    low, high = mean - z * std, mean + z * std

    n_columns = _n_columns(len(chosen)) if columns is None else min(columns, len(chosen))
    n_rows = math.ceil(len(chosen) / n_columns)
    if fig is None:
        width = {1: 4.6, 2: 3.3, 3: 2.7}.get(n_columns, 2.25)
        height = {1: 3.4, 2: 2.6, 3: 2.3}.get(n_columns, 1.95)
        fig = Figure((width * n_columns, height * n_rows), layout="constrained")
    axes: list[Axes] = []
    for position, (term, (points, weight)) in enumerate(zip(chosen, seen, strict=True)):
        ax = fig.add_subplot(n_rows, n_columns, position + 1, sharey=axes[0] if axes else None)
        axes.append(ax)
        # What the data leave at zero takes no part in the eye's comparison.
        told = bool(np.any((low[:, position] > 0) | (high[:, position] < 0)))
        colour = _INK if told else _FAINT
        grid = grids[:, position]
        ax.axhline(0, color=_GREY, linewidth=0.7, zorder=1)
        ax.fill_between(
            grid,
            low[:, position],
            high[:, position],
            color=colour,
            alpha=0.22,
            linewidth=0,
            label=f"{level:.0%} band",
        )
        ax.plot(grid, mean[:, position], color=colour, linewidth=1.5, label="mean")
        _draw_inputs(ax, points, weight, grid[0], grid[-1])
        ax.set_title(_title(term, model.target_variance_), fontsize=8.5)
        ax.set_xlabel(term.name, fontsize=9)
        ax.margins(x=0.02)
        _tidy(ax)
        if position % n_columns:
            ax.tick_params(labelleft=False)
    _draw_few(model, chosen, seen, axes, z)
    axes[0].set_ylim(*_common_limits(seen, grids, mean, low, high))
    fig.supylabel("effect" if target is None else f"effect on {target}", fontsize=9.5)
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
    """Draw predicted against observed targets, with the NMSE and the coverage of the intervals.

    Few rows get error bars, red where they miss the observation; many become a density.

    Parameters
    ----------
    y, mean, std : array_like of shape (n_rows,)
        Observed targets, predictive means and standard deviations (with the noise).
    ax : Axes, optional
        Draw into it.
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

    if ax is None:
        ax = Figure((4.2, 4.0), layout="constrained").add_subplot()
    bars = len(y) <= _ERROR_BAR_ROWS
    reach = z * std if bars else np.zeros(len(y))
    low = float(min(y.min(), (mean - reach).min()))
    high = float(max(y.max(), (mean + reach).max()))
    margin = 0.03 * (high - low) or 1.0
    low, high = low - margin, high + margin
    ax.plot([low, high], [low, high], color=_ACCENT, linewidth=1.0, zorder=3, label="identity")
    if bars:
        missed = np.abs(y - mean) > reach
        for rows, colour in ((~missed, _GREY), (missed, _ACCENT)):
            ax.vlines(y[rows], (mean - reach)[rows], (mean + reach)[rows], colour, linewidth=0.8)
        ax.plot(y, mean, "o", color=_INK, markersize=3.2)
    elif len(y) <= _HEXBIN_ROWS:
        ax.plot(y, mean, "o", color=_INK, markersize=3, alpha=0.35, markeredgewidth=0)
    else:
        hexagons = ax.hexbin(
            y,
            mean,
            gridsize=50,
            extent=(low, high, low, high),
            norm=LogNorm(),
            mincnt=1,
            cmap=_DENSITY,
            linewidths=0.1,
        )
        bar = ax.figure.colorbar(hexagons, ax=ax, shrink=0.75, pad=0.02)
        bar.set_label("rows", fontsize=8.5)
        bar.ax.tick_params(labelsize=7.5)
        bar.outline.set_visible(False)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    suffix = "" if target is None else f" {target}"
    ax.set_xlabel(f"observed{suffix}", fontsize=9.5)
    ax.set_ylabel(f"predicted{suffix}", fontsize=9.5)
    ax.text(
        0.04,
        0.96,
        f"{error}\n{covered:.1%} in {level:.0%} intervals\n{len(y):,} rows",
        transform=ax.transAxes,
        va="top",
        fontsize=8.5,
        linespacing=1.4,
    )
    _tidy(ax, x_ticks=5)
    return ax.figure.figure


def plot_learning(model: Any) -> Figure:
    """Draw the learner's bound after each iteration, and what each iteration gained.

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
    fig = Figure((6.6, 2.7), layout="constrained")
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
    for ax in (bound, gain):
        ax.set_xlabel("iteration", fontsize=9)
        ax.set_xlim(-0.5, len(trace) - 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _frame(ax)
    return fig


# ---- what a panel shows


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


def _evaluate(model: Any, terms: list[Term], inputs: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each centred component at its own column of inputs."""
    names = _column_names(model)
    # Columns that are not drawn take a value of the training rows; none is mixed with another.
    table = np.zeros((len(inputs), len(names)))
    for term in model.terms_:
        table[:, names.index(term.name)] = term.axis.points[0]
    for position, term in enumerate(terms):
        table[:, names.index(term.name)] = inputs[:, position]
    named = hasattr(model, "feature_names_in_")
    evaluated = model.components(pd.DataFrame(table, columns=names) if named else table)
    picked = evaluated.sel(term=[term.name for term in terms])
    return picked["mean"].to_numpy(), picked["std"].to_numpy()


def _common_limits(
    seen: list[tuple[Floats, Floats]], grids: Floats, mean: Floats, low: Floats, high: Floats
) -> tuple[float, float]:
    """Limits that hold every curve, and every band over the bulk of its inputs.

    Bands open wide where there are next to no data; to show those openings in full would flatten
    everything else.
    """
    bottoms, tops = [float(mean.min())], [float(mean.max())]
    for position, (points, weight) in enumerate(seen):
        start, stop = _quantiles(points, weight, _TAILS)
        bulk = (grids[:, position] >= start) & (grids[:, position] <= stop)
        if bulk.any():
            bottoms.append(float(low[bulk, position].min()))
            tops.append(float(high[bulk, position].max()))
    bottom, top = min(bottoms), max(tops)
    height = (top - bottom) or 1.0
    # Room below for the distribution of the inputs.
    return bottom - (_MARGINAL + 0.05) * height, top + 0.05 * height


# ---- drawing


def _draw_inputs(ax: Axes, points: Floats, weight: Floats, low: float, high: float) -> None:
    """Rug or density of the inputs along the lower edge, in shares of the panel's height."""
    inside = (points >= low) & (points <= high)
    points, weight = points[inside], weight[inside]
    edge = ax.get_xaxis_transform()
    if len(points) <= _RUG_POINTS:
        # Higher where there are more rows, yet a single row is still seen.
        heights = _MARGINAL * (0.25 + 0.75 * weight / weight.max())
        ax.vlines(points, 0, heights, color=_FAINT, linewidth=0.7, alpha=0.8, transform=edge)
        return
    counts, edges = np.histogram(points, _BINS, (low, high), weights=weight)
    ax.stairs(
        _MARGINAL * counts / counts.max(), edges, fill=True, color=_GREY, alpha=0.8, transform=edge
    )


def _draw_few(
    model: Any,
    terms: list[Term],
    seen: list[tuple[Floats, Floats]],
    axes: list[Axes],
    z: float,
) -> None:
    """Mark the distinct inputs where they are few: between them there is nothing but the prior."""
    for term, (points, _), ax in zip(terms, seen, axes, strict=True):
        if len(points) > _FEW_POINTS:
            continue
        mean, std = _evaluate(model, [term], points[:, None])
        colour = ax.lines[-1].get_color()
        ax.errorbar(
            points,
            mean[:, 0],
            z * std[:, 0],
            fmt="o",
            color=colour,
            markersize=3,
            elinewidth=0.9,
        )


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


def _title(term: Term, target_variance: float) -> str:
    title = f"share {_percent(term.explained_variance / target_variance)}"
    lengthscale = term.kernel.lengthscale
    return title if lengthscale is None else f"{title},  ℓ = {_short(lengthscale)}"


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
