"""Accumulated local effects: what f does along one column, by whatever terms or projections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.models.base import FittedModel
from dsgp.models.checks import generator, require_count, require_level
from dsgp.rows.sources import Rows
from dsgp.terms import Floats
from dsgp.terms.base import Codes

# Rows that draws of f are evaluated at, twice each.
_MOST_ROWS = 1000


def accumulated_effects(
    model: Any,
    column: str,
    X: Any,
    n_intervals: int = 40,
    *,
    level: float = 0.95,
    n_samples: int = 0,
    random_state: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    r"""Accumulate the local effects of one column of numbers on f (ALE).

    The range of the column is cut at quantiles z_0 < z_1 < … of the rows. Within an interval, the
    column of each of its rows is set to either end while all other columns keep their values, and
    the average differences of f are summed up:

    .. math:: \operatorname{ALE}(z_m) = \sum_{l \le m} \frac{1}{n_l}
              \sum_{i: x_i \in (z_{l-1}, z_l]}
              \big[f(z_l, x_{i,\text{others}}) - f(z_{l-1}, x_{i,\text{others}})\big] - c,

    with c such that the mean over the rows is 0. Only rows near z are used, so that, unlike in
    partial dependence, correlated columns are never combined in ways that do not occur.

    If a column has one additive term, the effect is that component. Use it for columns that enter
    through projections, or through a term of their own and interactions.

    Parameters
    ----------
    model : fitted model of terms or projections
        A regression model, a model with a likelihood, a classifier with two classes, or one of the
        ``estimators_`` of a classifier with more.
    column : str
        A column of numbers; "x0", "x1", … where the model was fitted to an array.
    X : table
        Rows that the averages are over, such as the training rows, as for ``predict``.
    n_intervals : int
        Number of intervals, with equally many rows each; fewer where values are tied.
    level : float in (0, 1)
        Posterior probability of the band.
    n_samples : int
        Joint posterior draws of f for a band, 100 or more; by default there is no band. They use at
        most 1000 rows, evenly spread over X, to which the band then refers.
    random_state : int or numpy.random.Generator, optional
        Random seed of the draws, 0 by default.

    Returns
    -------
    pandas.DataFrame
        The index has the ends of the intervals, in the units of the column. ``effect`` is on the
        scale of f: that of the target, its transform or the link function. ``n_rows`` is the number
        of rows in the interval that ends there. With draws there are also ``low`` and ``high``,
        pointwise.

    Raises
    ------
    ParameterError
        If the model does not use the column, or an option is out of its range.
    DataError
        If the column holds no numbers, or one value only.

    References
    ----------
    Apley and Zhu, *Visualizing the effects of predictor variables in black box supervised learning
    models*, JRSS B 82 (2020), eq. 15 and 16.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import ProjectionPursuitGPRegressor, accumulated_effects
    >>> rng = np.random.default_rng(0)
    >>> X = {"a": rng.uniform(-1, 1, 200), "b": rng.uniform(-1, 1, 200)}
    >>> y = X["a"] + X["b"] + 0.05 * rng.standard_normal(200)
    >>> model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X, y)
    >>> effect = accumulated_effects(model, "a", X)["effect"]
    >>> bool(abs(effect.iloc[-1] - effect.iloc[0] - 2) < 0.2)  # from -1 to 1
    True
    """
    model = model_of_terms(model)
    require_count("n_intervals", n_intervals)
    require_level("level", level)
    if n_samples and n_samples < 100:
        raise ParameterError(f"n_samples must be 0 or at least 100, got {n_samples}")
    used = model._rows_model.used_columns
    if column not in used:
        raise ParameterError(f"the model does not use a column {column!r}; it uses {list(used)}")
    if column in model._columns.kinds:
        raise DataError(
            f"column {column!r} holds no numbers, and accumulated effects are along a number: "
            "components has the effects of levels and dates"
        )
    position = used.index(column)
    rows = Rows.join(model._loaded_rows(X))
    known = np.flatnonzero(np.isfinite(rows.columns[position]))
    rows = _some(rows, known)
    values = rows.columns[position]
    if not len(values) or values.min() == values.max():
        raise DataError(
            f"column {column!r} has one value or none in X: there is no effect along it"
        )
    ends = np.unique(np.quantile(values, np.linspace(0, 1, n_intervals + 1), method="inverted_cdf"))
    effect, counts = _accumulated(model, rows, position, ends)
    table = pd.DataFrame({"effect": effect, "n_rows": counts}, index=pd.Index(ends, name=column))
    if n_samples:
        few = np.linspace(0, len(values) - 1, min(len(values), _MOST_ROWS)).astype(int)
        drawn = _drawn(model, _some(rows, few), position, ends, n_samples, random_state)
        spread = drawn - drawn.mean(axis=0)
        low, high = np.quantile(spread, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        table["low"], table["high"] = effect + low, effect + high
    return table


def _some(rows: Rows, chosen: Codes) -> Rows:
    """Some of the rows, without what is beside their columns."""
    return Rows([values[chosen] for values in rows.columns])


def _moved(rows: Rows, position: int, values: Floats) -> Rows:
    """The rows with other values of one column."""
    columns = list(rows.columns)
    columns[position] = values
    return Rows(columns)


def _intervals(values: Floats, ends: Floats) -> Codes:
    """Number of the interval (z_{l-1}, z_l] of each value, from 1; the first has z_0 too."""
    return np.clip(np.searchsorted(ends, values), 1, len(ends) - 1)


def _accumulated(model: Any, rows: Rows, position: int, ends: Floats) -> tuple[Floats, Codes]:
    """Effect at the ends, and the rows of each interval."""
    latent: FittedModel = model.model_.latent
    place = _intervals(rows.columns[position], ends)

    def answer(some: Rows) -> list[Floats]:
        at = _intervals(some.columns[position], ends)
        upper, lower = (
            latent.moments(_moved(some, position, ends[at - shift]), False)[0] for shift in (0, 1)
        )
        return [upper - lower]

    difference = model._answer_rows(rows, answer, 1, False)[:, 0]
    effect = _summed(difference[None], rows.columns[position], place, ends)[0]
    return effect, np.bincount(place, minlength=len(ends))


def _drawn(
    model: Any,
    rows: Rows,
    position: int,
    ends: Floats,
    n_samples: int,
    random_state: Any,
) -> Floats:
    """Draws of the effect at the ends, (n_samples, n_ends)."""
    latent: FittedModel = model.model_.latent
    place = _intervals(rows.columns[position], ends)
    pieces = [_moved(rows, position, ends[place - shift]) for shift in (0, 1)]
    random = generator(0 if random_state is None else random_state)
    with one_blas_thread():
        drawn = model._solved("sample", latent.sample(pieces, n_samples, random, model.tol))
    n = len(place)
    return _summed(drawn[:, :n] - drawn[:, n:], rows.columns[position], place, ends)


def _summed(differences: Floats, values: Floats, place: Codes, ends: Floats) -> Floats:
    """Sum of the mean differences up to each end, less its mean over the rows, (k, n_ends)."""
    counts = np.bincount(place, minlength=len(ends))
    effects = np.zeros((len(differences), len(ends)))
    for effect, difference in zip(effects, differences, strict=True):
        total = np.bincount(place, difference, len(ends))
        # Of a sample of rows an interval may have none: f counts as level there.
        steps = np.divide(total, counts, out=np.zeros(len(ends)), where=counts > 0)
        effect[:] = np.cumsum(steps)
        effect -= np.interp(values, ends, effect).mean()
    return effects
