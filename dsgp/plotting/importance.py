"""How much of f each term accounts for, as bars with intervals."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.estimators.shares import variance_shares
from dsgp.models.shares import rounded_percent
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.panels import link_of
from dsgp.plotting.style import ACCENT, FAINT, GREY, INK, TEXT, frame, label, write_below
from dsgp.terms.bound import INTERACTIONS, MAIN_EFFECTS, PROJECTIONS

# Of the kinds of terms; those that are not here share the last one.
_COLOURS = {MAIN_EFFECTS: INK, INTERACTIONS: ACCENT, PROJECTIONS: "#6b4c9a"}
_OTHER = "#3c7d5a"
# Inches of a bar, and of all around them.
_BAR, _AROUND = 0.24, 1.15
_NAME = 34  # characters


def plot_importance(
    model: Any,
    *,
    most: int = 25,
    level: float = 0.9,
    random_state: int | None = None,
    fig: Figure | SubFigure | None = None,
) -> Figure:
    """Draw the share of the variance of f that each term has, with its interval.

    Shares are those of ``variance_shares``: Cov(term, f) / Var(f) over the training rows, which add
    up to 100 %. A term that mostly cancels others has a share below zero. The colour shows the kind
    of term; it is pale if the interval contains zero.

    Parameters
    ----------
    model : fitted model of terms
        As for ``variance_shares``.
    most : int
        Maximum number of terms, the largest ones; the rest is summed up in a last bar.
    level : float in (0, 1)
        Posterior probability of an interval.
    random_state : int, optional
        Random seed of the posterior draws, 0 by default.
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole figure, if ``fig`` is a part of one.

    Raises
    ------
    ParameterError
        If an option is out of its range, or the model has no terms or functions for each class.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_importance
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 2))
    >>> y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> figure = plot_importance(AdditiveGPRegressor().fit(X, y))
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['x0', 'x1']
    """
    if most < 1:
        raise ParameterError(f"most must be at least 1, got {most}")
    model = model_of_terms(model)
    if not model.model_.latent.names:
        raise ParameterError("there is no term to draw")
    shares = variance_shares(model, level=level, random_state=random_state)
    shares = shares.sort_values("share", ascending=False, kind="stable")
    kinds = variance_shares(model, by="kind", level=level, random_state=random_state)
    shown, rest = shares.iloc[:most], shares.iloc[most:]
    names = list(shown.index)
    if len(rest):
        names.append(f"{len(rest)} other terms")
    if fig is None:
        fig = DisplayedFigure((6.4, _BAR * len(names) + _AROUND), layout="constrained")
    ax = fig.subplots()
    places = range(len(shown))
    clear = (shown["low"] > 0) | (shown["high"] < 0)
    colours = [_COLOURS.get(kind, _OTHER) for kind in shown["kind"]]
    bars = ax.barh(places, 100 * shown["share"], height=0.66, color=colours)
    for bar, is_clear in zip(bars, clear, strict=True):
        bar.set_alpha(0.85 if is_clear else 0.35)
    apart = (shown["share"] - shown["low"], shown["high"] - shown["share"])
    ax.errorbar(
        100 * shown["share"],
        places,
        xerr=[100 * part.clip(lower=0.0) for part in apart],
        fmt="none",
        ecolor="black",
        elinewidth=0.9,
        capsize=2.2,
    )
    if len(rest):
        ax.barh(len(shown), 100 * rest["share"].sum(), height=0.66, color=GREY)
    ax.axvline(0, color=FAINT, linewidth=0.7)
    ax.set_yticks(range(len(names)), [label(name, _NAME) for name in names])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.invert_yaxis()
    ax.margins(y=0.6 / (len(names) + 1))
    link = link_of(model)
    of = "f" if link is None else f"f ({link} link)"
    ax.set_xlabel(f"share of the variance of {of}, %", fontsize=9)
    frame(ax)
    ax.tick_params(axis="y", labelsize=8.5, length=0)
    if len(kinds) > 1:
        _write_kinds(ax, kinds)
    caption = (
        f"bars: posterior mean of Cov(term, f) / Var(f) over the training rows, together 100 %; "
        f"lines: {level:.0%} intervals; pale: the interval contains 0"
    )
    write_below(fig, caption, fig.bbox.width / fig.figure.dpi)
    return fig.figure


def _write_kinds(ax: Any, kinds: pd.DataFrame) -> None:
    """Say which colour is of which kind, and what the kind has in all."""
    patches = [
        Patch(
            color=_COLOURS.get(kind, _OTHER),
            alpha=0.85,
            label=f"{kind}: {rounded_percent(row.share)} "
            f"({rounded_percent(row.low)} to {rounded_percent(row.high)})",
        )
        for kind, row in zip(kinds.index, kinds.itertuples(), strict=True)
    ]
    ax.legend(handles=patches, loc="lower right", fontsize=8, frameon=False, labelcolor=TEXT)
