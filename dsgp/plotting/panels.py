"""One function of a model as a panel: the curve or points, their band, the inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dsgp.compute import one_blas_thread
from dsgp.estimators.shares import variance_shares
from dsgp.models.term import FittedTerm
from dsgp.plotting.style import FAINT, GREY, INK, percent, span
from dsgp.terms import Floats

_TAILS = 0.005  # weight that may be cut off at either end of an axis …
_LONG = 2.0  # … when the whole range is longer than this many times the rest …
_OPEN = 1.5  # … or its band higher than this many times the bands of the rest
FEW_VALUES = 10  # at most as many distinct inputs are points: a curve between them means nothing
_BINS = 40
_MARGINAL = 0.11  # height of the bars of the inputs, as a share of the panel


@dataclass(frozen=True)
class Panel:
    """What is drawn of one term.

    Attributes
    ----------
    term : FittedTerm
    points, weight : ndarray of shape (n_distinct,)
        Distinct inputs, ascending, and the weight of each.
    few : bool
        Whether ``inputs`` are the distinct ones.
    inputs, mean, low, high : ndarray of shape (n_inputs,)
        Component and borders of its band, of the wider one if there are two.
    inner : ndarray of shape (2, n_inputs), optional
        Borders of the narrower one.
    """

    term: FittedTerm
    points: Floats
    weight: Floats
    few: bool
    inputs: Floats
    mean: Floats
    low: Floats
    high: Floats
    inner: Floats | None = None

    @property
    def cell_inputs(self) -> Floats:
        """Inputs of the term's cells that the panel shows."""
        return inputs_at(self.term, self.inputs)

    def widened(self, factor: float, keep: bool) -> Panel:
        """Return the panel with a wider band; ``keep`` the old one within it."""
        (low, high), inner = wider(self.mean, self.low, self.high, factor)
        return replace(self, low=low, high=high, inner=inner if keep else None)

    @property
    def is_clear(self) -> bool:
        """Whether the band of the component excludes zero somewhere."""
        return bool(np.any((self.low > 0) | (self.high < 0)))

    @property
    def effects(self) -> Floats:
        """All values that are drawn."""
        return self.mean

    @property
    def colour(self) -> str:
        """Grey where it may be zero."""
        return INK if self.is_clear else FAINT

    def bulk(self) -> slice:
        """Inputs without those in the tails of the distribution."""
        low, high = _quantiles(self.points, self.weight, _TAILS)
        return slice(
            int(np.searchsorted(self.inputs, low)), int(np.searchsorted(self.inputs, high, "right"))
        )


def panels_of(
    model: Any, terms: list[FittedTerm], seen: list[tuple[Floats, Floats]], n_points: int, z: float
) -> list[Panel]:
    """Evaluate terms for a scale they share; where a band opens wide in the tails, the bulk only.

    Parameters
    ----------
    model : fitted estimator
    terms : list of FittedTerm
    seen : list of (points, weight)
        Distinct inputs of each term that are to be shown, ascending, and their weights.
    n_points : int
        Inputs a curve is evaluated at.
    z : float
        Half the width of a band, in standard deviations.
    """
    few = [
        max(len(term.cells), len(points)) <= FEW_VALUES
        for term, (points, _) in zip(terms, seen, strict=True)
    ]

    def evaluated(ranges: list[tuple[float, float]]) -> list[Panel]:
        inputs = [
            points if few_values else np.linspace(*shown, n_points)
            for (points, _), few_values, shown in zip(seen, few, ranges, strict=True)
        ]
        return [
            Panel(term, *rows, few_values, at, mean, mean - z * std, mean + z * std)
            for term, rows, few_values, at, (mean, std) in zip(
                terms, seen, few, inputs, _evaluate(model, terms, inputs), strict=True
            )
        ]

    ranges = [shown_range(points, weight) for points, weight in seen]
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


def shown_range(points: Floats, weight: Floats) -> tuple[float, float]:
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


def _evaluate(
    model: Any, terms: list[FittedTerm], inputs: list[Floats]
) -> list[tuple[Floats, Floats]]:
    """Mean and standard deviation of each centred function at inputs of its own."""
    position = {term.name: position for position, term in enumerate(model.terms_)}
    posterior = model._rows_model.posterior
    with one_blas_thread():
        return [
            (
                _level_free(term, at),
                np.sqrt(posterior.centred_variance(position[term.name], at)),
            )
            for term, at in zip(terms, map(inputs_at, terms, inputs), strict=True)
        ]


def inputs_at(term: FittedTerm, values: Floats) -> Floats:
    """Inputs of the cells of a term at values along its panel."""
    bound = term.bound
    if bound.multiplier is None:
        return values
    if bound.family == "constant":
        slope = bound.multiplier
        return np.column_stack([np.zeros(len(values)), (values - slope.centre) / slope.scale])
    return np.column_stack([values, np.ones(len(values))])


def _level_free(term: FittedTerm, at: Floats) -> Floats:
    """The centred function; a coefficient, which multiplies a column, is not centred."""
    is_coefficient = term.bound.multiplier is not None and term.bound.family != "constant"
    return term.mean(at) - (0.0 if is_coefficient else term.centre)


def wider(mean: Floats, low: Floats, high: Floats, factor: float) -> tuple[Floats, Floats]:
    """Borders of a band that is wider by a factor, and those of the band itself, (2, n) each."""
    inner = np.stack([low, high])
    return mean + factor * (inner - mean), inner


def draw_curve(ax: Axes, panel: Panel, level: float) -> None:
    """Draw mean and band, or the one within the other."""
    both = panel.inner is not None
    ax.fill_between(
        panel.inputs,
        panel.low,
        panel.high,
        color=panel.colour,
        alpha=0.13 if both else 0.22,
        linewidth=0,
        label=f"{level:.0%} band",
    )
    if panel.inner is not None:
        name = f"{level:.0%} pointwise"
        ax.fill_between(
            panel.inputs, *panel.inner, color=panel.colour, alpha=0.25, linewidth=0, label=name
        )
    ax.plot(panel.inputs, panel.mean, color=panel.colour, linewidth=1.5, label="mean")


def draw_points(ax: Axes, panel: Panel, level: float) -> None:
    """Draw the few values there are, with their intervals."""
    # Small, for intervals are often short on the common scale.
    draw_intervals(ax, panel, panel.inputs, level, panel.colour, size=2.2)


def draw_intervals(
    ax: Axes, panel: Any, at: Floats, level: float, colour: str, *, size: float, thin: bool = False
) -> None:
    """Draw points with intervals; of two of each the wider ones have caps.

    Parameters
    ----------
    ax : Axes
    panel : Panel or LevelsPanel
    at : ndarray of shape (n_points,)
        Where the points are.
    level : float
    colour : str
    size : float
        Of the markers, in points.
    thin : bool
        Where there are many.
    """
    ax.errorbar(
        at,
        panel.mean,
        (panel.mean - panel.low, panel.high - panel.mean),
        fmt="o",
        color=colour,
        markersize=size,
        elinewidth=0.4 if thin else 0.9,
        capsize=0 if thin else 2.5,
        label=f"{level:.0%} interval",
    )
    if panel.inner is not None:
        ax.vlines(
            at,
            *panel.inner,
            color=colour,
            linewidth=1.0 if thin else 2.4,
            alpha=0.6,
            label=f"{level:.0%} pointwise",
        )


def draw_inputs(ax: Axes, panel: Panel) -> None:
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
        edges = bin_edges(points[inside], low, high)
        counts, _ = np.histogram(points[inside], edges, weights=weight[inside])
        ax.stairs(_MARGINAL * counts / (counts.max() or 1.0), edges, fill=True, **style)
    ax.set_xlim(low - room, high + room)


def bin_edges(points: Floats, low: float, high: float) -> Floats:
    """Edges of a histogram; values on a coarse grid, such as whole years, share bins evenly."""
    n_bins = min(_BINS, max(FEW_VALUES, round(2 * math.sqrt(len(points)))))
    if len(points) > 1:
        step = float(np.diff(points).min())
        cells = (points[-1] - points[0]) / step + 1
        if cells <= 10 * _BINS:
            width = step * math.ceil(cells / _BINS)
            first = float(points[0]) - step / 2
            return first + width * np.arange(math.ceil((points[-1] - first) / width) + 1)
    return np.linspace(low, high, n_bins + 1)


def limits_of(panels: Sequence[Any]) -> tuple[float, float]:
    """Limits that hold every band, above room for the distribution of the inputs."""
    bottom = min(float(panel.low.min()) for panel in panels)
    top = max(float(panel.high.max()) for panel in panels)
    height = (top - bottom) or 1.0
    return bottom - (_MARGINAL + 0.05) * height, top + 0.05 * height


def words_of(panel: Any, shares: Mapping[str, float]) -> str:
    """Say from where to where a function goes, and what share of the variance of f it has."""
    bound = panel.term.bound
    is_coefficient = bound.multiplier is not None and bound.family != "constant"
    drawn = panel.effects[np.isfinite(panel.effects)]
    what = "coefficient " if is_coefficient else ""
    share = percent(shares[panel.term.name])
    return f"{what}{span(float(drawn.min()), float(drawn.max()))},  share {share}"


def shares_of(model: Any) -> dict[str, float]:
    """Shares of the variance of f that the terms have, by name."""
    shares = variance_shares(model)["share"]
    return {str(name): float(share) for name, share in shares.items()}


def link_of(model: Any) -> str | None:
    """Name of the link on whose scale a model's functions are; None for the target's own."""
    likelihood = getattr(model, "likelihood_", None)
    return None if likelihood is None else str(likelihood.link_name)


def scale_of(model: Any) -> str:
    """What to add to the label of an effect where the target was transformed."""
    transform = getattr(model, "transform_", None)
    return "" if transform is None else f" (on the scale of transform {transform.name})"
