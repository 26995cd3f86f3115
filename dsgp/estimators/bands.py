"""Bands that hold for a whole component at once, from joint draws of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dsgp.compute import one_blas_thread
from dsgp.errors import ParameterError
from dsgp.models.base import FittedModel
from dsgp.models.checks import generator

# Draws of fewer would not distinguish a quantile from the largest one.
_FEWEST_BEYOND = 5
# Draws that the factors of a picture are read off at least, and numbers of them held at a time.
_DRAWS = 1000
_NUMBERS = 4e7


def component_bands(
    model: Any,
    X: Any,
    level: float = 0.95,
    n_samples: int = 2000,
    random_state: int | np.random.Generator | None = None,
) -> xr.Dataset:
    """Simultaneous bands, within which a whole component lies with a given probability.

    The band extends so many standard deviations to either side of the mean that the share ``level``
    of joint posterior draws of the component stays within it at all rows of X. It is wider than the
    pointwise band of ``components``, and the wider, the wigglier the function is and the more rows
    there are: pass the values that the statement is about, such as 100 values over a column's
    range, or all levels.

    Parameters
    ----------
    model : fitted additive model
        With ``components`` and ``sample_components``.
    X : table
        Rows at which the bands hold, as for ``predict``; some hundreds.
    level : float in (0, 1)
        Posterior probability that a component is within its band at all rows.
    n_samples : int
        Number of draws from which the width is computed.
    random_state : int or numpy.random.Generator, optional
        By default that of the model.

    Returns
    -------
    xarray.Dataset
        ``mean``, ``low`` and ``high`` with dims (row, term), in the units of ``components``;
        ``factor`` with dim (term,), half the width in standard deviations, and ``factor_error``,
        its standard error due to the finite number of draws. NaN for a term whose input is missing
        in all rows.

    Raises
    ------
    ParameterError
        If the model has no terms to draw, ``level`` is not a probability, or there are too few
        draws for its quantile.
    MemoryLimitError
        If so many draws at so many rows would not fit.

    Notes
    -----
    A band that excludes zero somewhere is strong evidence of an effect, and misses weak ones: where
    a component is small its variance is learned to be small, and the data seldom move the mean away
    from zero. ``term_tests`` asks whether a term is zero; ``compare_models`` with a model without
    the term shows what the term contributes to predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor, component_bands
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 2))
    >>> y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = AdditiveGPRegressor().fit(X, y)
    >>> at = np.column_stack([np.linspace(-3, 3, 50)] * 2)
    >>> bands = component_bands(model, at, random_state=0)
    >>> bool((bands["factor"] > 1.96).all())
    True
    """
    check_is_fitted(model)
    if not hasattr(model, "sample_components"):
        raise ParameterError(
            f"bands are for the terms of one additive model, got {type(model).__name__}: for a "
            "classifier, pass one of its estimators_"
        )
    if not 0 < level < 1:
        raise ParameterError(f"level must be between 0 and 1, got {level!r}")
    if n_samples < (fewest := _fewest_draws(level)):
        raise ParameterError(
            f"n_samples must be at least {fewest} for bands of level {level}, got {n_samples}"
        )
    parts = model.components(X)
    draws = model.sample_components(X, n_samples, random_state)
    mean, std = parts["mean"], parts["std"]
    # A row without the input of a term has no deviation there, and does not count.
    distance = (abs(draws - mean) / std.where(std > 0)).max("row")
    factor = distance.quantile(level, "sample", skipna=False).drop_vars("quantile")
    # The ranks one binomial standard deviation away from the quantile's.
    apart = math.sqrt(level * (1 - level) / n_samples)
    around = [min(max(level + sign * apart, 0.0), 1.0) for sign in (-1, 1)]
    ends = distance.quantile(around, "sample", skipna=False)
    return xr.Dataset(
        {
            "mean": mean,
            "low": mean - factor * std,
            "high": mean + factor * std,
            "factor": factor,
            "factor_error": (ends[1] - ends[0]).drop_vars("quantile", errors="ignore") / 2,
        },
        attrs={"level": level, "n_samples": n_samples},
    )


def band_factors(
    model: Any, inputs: Mapping[str, NDArray[np.float64]], level: float
) -> dict[str, float]:
    """Half the widths, in standard deviations, of bands that hold for whole components.

    As ``component_bands`` has them, at inputs of the cells of single terms. The same call gives
    the same answer, also where the model has no ``random_state``.

    Parameters
    ----------
    model : fitted additive model
    inputs : mapping of str to ndarray of shape (n_inputs,) or (n_inputs, k)
        Of some terms, by their names.
    level : float in (0, 1)
    """
    latent: FittedModel = model._rows_model
    longest = max(map(len, inputs.values()))
    columns, moments = [], {}
    with one_blas_thread():
        for position, term in enumerate(latent.terms):
            points = inputs.get(term.name, term.cells.points[:0])
            gaps = np.full((longest - len(points), *points.shape[1:]), np.nan)
            columns.append(np.concatenate([points, gaps]))
            if term.name in inputs:
                variance = latent.posterior.centred_variance(position, points)
                moments[position] = term.mean(points) - term.centre, np.sqrt(variance)
    random = generator(0 if model.random_state is None else model.random_state)
    n_draws = max(_DRAWS, 2 * _fewest_draws(level))
    size = longest * len(columns) + latent.posterior.system.layout.size
    together = int(np.clip(_NUMBERS / size, 1, n_draws))
    farthest: dict[str, list[NDArray[np.float64]]] = {name: [] for name in inputs}
    for first in range(0, n_draws, together):
        count = min(together, n_draws - first)
        draws = latent.component_draws(columns, longest, count, random, model.tol).values
        for position, (mean, std) in moments.items():
            away = np.abs(draws[:, : len(mean), position] - mean)
            distance = np.divide(away, std, out=np.zeros_like(away), where=std > 0)
            farthest[latent.terms[position].name].append(distance.max(axis=1))
    return {
        name: float(np.quantile(np.concatenate(distances), level))
        for name, distances in farthest.items()
    }


def _fewest_draws(level: float) -> int:
    return math.ceil(_FEWEST_BEYOND / min(level, 1 - level))
