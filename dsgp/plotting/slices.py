"""Slices of an interaction: what one column does, where the other has some values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure

from dsgp.compute import one_blas_thread
from dsgp.dates import dates_of_days, written_dates
from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.models.base import FittedModel
from dsgp.models.term import FittedTerm
from dsgp.plotting.captions import effect_label
from dsgp.plotting.dates import write_dates
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.pair_panels import weights_along
from dsgp.plotting.panels import inputs_at, shown_range
from dsgp.plotting.style import (
    CURVES,
    GREY,
    characters,
    label,
    name_artists,
    normal_quantile,
    tidy,
    write_below,
)
from dsgp.rows.sources import numbers_of
from dsgp.terms import Floats
from dsgp.terms.inputs import Input

# Quantiles of the other column, and levels of it drawn at most.
QUANTILES, _LEVELS = (0.1, 0.5, 0.9), 6


def plot_slices(
    model: Any,
    columns: Sequence[str],
    *,
    at: Sequence[Any] | None = None,
    with_main: bool = True,
    n_points: int = 120,
    level: float = 0.95,
    target: str | None = None,
    fig: Figure | SubFigure | None = None,
) -> Figure:
    """Draw the effect of one column at several values of another with which it interacts.

    A curve is the sum of the terms that read the first column and no other, and of its interaction
    with the second one at that value, with a pointwise band of the sum. Parallel curves mean that
    there is no interaction; otherwise the distance of two curves shows how much the effects differ.

    Parameters
    ----------
    model : fitted model of terms
        With an interaction (``Tensor``) of the two columns.
    columns : two of str
        The column along the axis, of numbers or dates, and the column whose values are selected.
    at : sequence, optional
        Values of the second column: numbers, dates or levels. By default its quantiles of 10, 50
        and 90 % over the training rows, or its levels with most rows, 6 at most.
    with_main : bool
        False draws only the interaction.
    n_points : int
        Number of inputs at which a curve is evaluated.
    level : float in (0, 1)
        Posterior probability of a band.
    target : str, optional
        Name and unit of the target, for the label.
    fig : Figure or SubFigure, optional
        Draw into it; its size is kept.

    Returns
    -------
    Figure
        The whole figure, if ``fig`` is a part of one.

    Raises
    ------
    ParameterError
        If the model has no interaction of these columns, the first one holds levels, or an option
        is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_slices
    >>> rng = np.random.default_rng(0)
    >>> X = {"a": rng.uniform(-1, 1, 200), "b": rng.uniform(-1, 1, 200)}
    >>> y = X["a"] * X["b"] + 0.1 * rng.standard_normal(200)
    >>> model = AdditiveGPRegressor(interactions=[("a", "b")]).fit(X, y)
    >>> figure = plot_slices(model, ("a", "b"), at=[-0.5, 0.5])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['b = -0.5', 'b = 0.5']
    """
    model = model_of_terms(model)
    z = normal_quantile(level)
    if n_points < 2:
        raise ParameterError(f"n_points must be at least 2, got {n_points}")
    term, first, other = _found(model, columns)
    summed = [term]
    if with_main:
        summed += [each for each in model.terms_ if _is_of(each, first)]
    kind = model._columns.kinds.get(other.column)
    if at is None:
        values = _usual(term, other)
    else:
        values = other.of(_encoded(kind, other.column, at))
        if kind is not None and kind.labels and (values < 0).any():
            raise ParameterError(
                f"at has levels that column {other.column!r} had not in the training rows: "
                f"{[one for one, value in zip(at, values, strict=True) if value < 0]}; it had "
                f"{list(kind.labels)}"
            )
    names = [f"{other.column} = {name}" for name in _names(kind, other, values)]
    points, weight = weights_along(term, term.bound.inputs.index(first))
    along = np.linspace(*shown_range(points, weight), n_points)
    mean, std = _moments(model, summed, first, other, along, values)

    if fig is None:
        fig = DisplayedFigure((6.2, 3.6), layout="constrained")
    inches = fig.bbox.width / fig.figure.dpi
    ax = fig.subplots()
    ax.axhline(0, color=GREY, linewidth=0.7, zorder=1)
    for k, (middle, reach) in enumerate(zip(mean, z * std, strict=True)):
        colour = CURVES[k % len(CURVES)]
        ax.fill_between(along, middle - reach, middle + reach, color=colour, alpha=0.16, lw=0)
        ax.plot(along, middle, color=colour, linewidth=1.5)
    name_artists(
        ax, ax.lines[-len(names) :], [label(name, 28) for name in names],
        fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0),
    )  # fmt: skip
    tidy(ax, 5)
    write_dates(ax.xaxis, model, first)
    ax.set_xlabel(label(first.column, characters(0.8 * inches, 9)), fontsize=9, parse_math=False)
    ax.set_ylabel(effect_label(model, target), fontsize=9, parse_math=False)
    what = " + ".join(each.name for each in summed)
    caption = f"{what}, less their means over the training rows; bands: {level:.0%}, pointwise"
    write_below(fig, caption, inches)
    return fig.figure


def _found(model: Any, columns: Sequence[str]) -> tuple[FittedTerm, Input, Input]:
    """Return the interaction of two columns, and what it reads of either."""
    if isinstance(columns, str) or len(columns) != 2:
        raise ParameterError(f"columns must be two names, got {columns!r}")
    pairs = [term for term in model.terms_ if term.bound.other is not None]
    for term in pairs:
        by_column = {read.column: read for read in term.bound.inputs}
        if set(by_column) == set(columns):
            first, other = by_column[columns[0]], by_column[columns[1]]
            if first in term.bound.level_inputs:
                raise ParameterError(
                    f"column {columns[0]!r} holds levels, and slices are curves: "
                    + (
                        f"plot_components(model, terms=[{term.name!r}]) draws a table of both"
                        if other in term.bound.level_inputs
                        else f"name it second, ({columns[1]!r}, {columns[0]!r})"
                    )
                )
            return term, first, other
    having = [term.name for term in pairs] or (
        "none: fit it with interactions='auto', or plot_components(model) draws its curves"
    )
    raise ParameterError(f"the model has no interaction of {tuple(columns)}; it has {having}")


def _is_of(term: FittedTerm, read: Input) -> bool:
    """Whether a term is a function of the same input and nothing else."""
    bound = term.bound
    if bound.family == "constant" and bound.multiplier is not None:  # a straight line
        return bound.multiplier.column == read.column and read == Input(read.column)
    return bound.inputs == (read,)


def _usual(term: FittedTerm, other: Input) -> Floats:
    """Quantiles of a number over the training rows, or the levels with most of them."""
    points, weight = weights_along(term, term.bound.inputs.index(other))
    if other in term.bound.level_inputs:
        most: Floats = np.sort(points[np.argsort(-weight, kind="stable")[:_LEVELS]])
        return most
    below = np.cumsum(weight) / weight.sum()
    return np.unique(points[np.searchsorted(below, QUANTILES)])


def _encoded(kind: Any, column: str, at: Sequence[Any]) -> Floats:
    """Values of a column as numbers: dates may be text."""
    given = pd.Series(list(at))
    if kind is not None and kind.is_date:
        given = pd.to_datetime(given)
    encode = numbers_of if kind is None else kind.encode
    return np.asarray(encode(f"at, of column {column!r},", given), dtype=np.float64)


def _names(kind: Any, read: Input, values: Floats) -> list[str]:
    """Write values of the second column."""
    if kind is not None and (kind.labels or read.part is not None):
        return [read.label(value, kind.labels) for value in values]
    if kind is not None and kind.is_date and read.period is None:
        apart = np.diff(np.unique(values)).min(initial=np.inf)
        return written_dates(dates_of_days(values), float(apart))
    return [f"{value:.4g}" for value in values]


def _moments(
    model: Any,
    summed: list[FittedTerm],
    first: Input,
    other: Input,
    along: Floats,
    values: Floats,
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the sum, (n_values, n_points) each."""
    latent: FittedModel = model.model_.latent
    at = {
        first: np.tile(along, len(values)),
        other: np.repeat(values, len(along)),
    }
    columns = [
        term.bound.joined([at[read] for read in term.bound.inputs])
        if term.bound.other is not None
        else inputs_at(term, at[first])
        for term in summed
    ]
    pairs = zip(summed, columns, strict=True)
    mean = np.sum([term.mean(inputs) - term.centre for term, inputs in pairs], axis=0)
    places = [latent.names.index(term.name) for term in summed]
    with one_blas_thread():
        variance = latent.posterior.centred_variance_of(places, columns)
    shape = (len(values), len(along))
    return mean.reshape(shape), np.sqrt(variance).reshape(shape)
