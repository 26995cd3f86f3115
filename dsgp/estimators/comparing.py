"""Models of the same rows, compared by what they say of each row given all others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dsgp.errors import ParameterError
from dsgp.models.remainder import RemainderModel


def compare_models(
    models: Mapping[str, Any], X: Any, y: Any, sample_weight: Any = None
) -> pd.DataFrame:
    """Compare regressors that were fitted to the same rows; the best comes first.

    Parameters
    ----------
    models : mapping of str to fitted regressors with ``leave_one_out``
    X, y, sample_weight
        The rows that all of them were fitted to.

    Returns
    -------
    pandas.DataFrame
        One row per model: ``log_likelihood`` (the log marginal likelihood; NaN with a remainder),
        ``leave_one_out`` (the sum of the log densities of all rows), its ``difference`` to the best
        model, the ``standard_error`` of the difference (from the differences of the rows, as if
        these were independent), and ``effective_dof``.

    Raises
    ------
    ParameterError
        If there is no model, or the models were fitted to different numbers of rows.

    Notes
    -----
    Marginal likelihoods also compare the priors of models with different terms; leave-one-out
    densities compare predictions. A difference of less than two standard errors is not conclusive.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor, Linear, Smooth, compare_models
    >>> rng = np.random.default_rng(0)
    >>> X = {"x": rng.uniform(0, 6, 200)}
    >>> y = np.sin(X["x"]) + 0.2 * rng.standard_normal(200)
    >>> smooth = AdditiveGPRegressor(terms=[Smooth("x")]).fit(X, y)
    >>> line = AdditiveGPRegressor(terms=[Linear("x")]).fit(X, y)
    >>> compared = compare_models({"smooth": smooth, "line": line}, X, y)
    >>> compared.index.tolist()
    ['smooth', 'line']
    >>> bool(compared.loc["line", "difference"] < -5 * compared.loc["line", "standard_error"])
    True
    """
    if not isinstance(models, Mapping):
        raise ParameterError(
            "models must map names to fitted models, e.g. compare_models({'one': first, 'other': "
            f"second}}, X, y), got {type(models).__name__}"
        )
    if not models:
        raise ParameterError("models is empty: name at least one fitted model")
    sizes = {name: model.n_rows_ for name, model in models.items()}
    if len(set(sizes.values())) > 1:
        raise ParameterError(f"the models were fitted to different numbers of rows: {sizes}")
    densities = {name: model.leave_one_out(X, y, sample_weight) for name, model in models.items()}
    sums = {name: float(np.nansum(row_densities)) for name, row_densities in densities.items()}
    best = max(sums, key=lambda name: sums[name])
    rows = []
    for name, model in models.items():
        apart = densities[name] - densities[best]
        apart = apart[np.isfinite(apart)]
        error = float(np.sqrt(len(apart)) * np.std(apart)) if name != best else 0.0
        rows.append(
            {
                "model": name,
                "log_likelihood": _log_likelihood(model),
                "leave_one_out": sums[name],
                "difference": sums[name] - sums[best],
                "standard_error": error,
                "effective_dof": model.effective_dof_,
            }
        )
    table = pd.DataFrame(rows).set_index("model")
    return table.sort_values("leave_one_out", ascending=False)


def _log_likelihood(model: Any) -> float:
    """Return the marginal one; NaN where a remainder is no part of it."""
    if isinstance(getattr(model.model_, "latent", None), RemainderModel):
        return math.nan
    return float(model.log_marginal_likelihood_)
