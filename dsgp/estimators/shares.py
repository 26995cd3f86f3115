"""Shares of the variance of a fitted function that its terms have, with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dsgp.estimators.classes import model_of_terms
from dsgp.models.checks import generator, require_choice, require_count, require_level
from dsgp.models.shares import Shares


def variance_shares(
    model: Any,
    by: str = "term",
    level: float = 0.9,
    n_samples: int = 2000,
    random_state: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    r"""Shares of the variance of f over the training rows that its terms have, with intervals.

    .. math:: s_k = \frac{\operatorname{Cov}(f_k, f)}{\operatorname{Var}(f)}, \qquad
              f = \mu + \sum_k f_k, \qquad \sum_k s_k = 1

    with covariances over the training rows. A term's share is its own variance and half of what it
    shares with others by correlation: it is negative where a term mostly cancels others. The table
    has the posterior mean and a central interval of each share.

    Parameters
    ----------
    model : fitted model of terms
        A regression model, a model with a likelihood, a classifier with two classes, or one of the
        ``estimators_`` of a classifier with more; additive or of projections; also one that was
        loaded.
    by : {"term", "kind"}
        One row per term, or per kind of term: main effects, interactions, projections, remainder.
    level : float in (0, 1)
        Posterior probability of the intervals.
    n_samples : int
        Number of posterior draws.
    random_state : int or numpy.random.Generator, optional
        Random seed, 0 by default.

    Returns
    -------
    pandas.DataFrame
        One row per term (index ``term``) or kind (index ``kind``), with ``share``, ``low`` and
        ``high``; for terms also their ``kind``. Shares add up to 1; the ends of intervals do not.

    Raises
    ------
    ParameterError
        If the model has functions for more than two classes, or an option is out of its range.

    Notes
    -----
    f does not include noise and offsets; it is on the scale of the transform or of the link
    function. Rows count by their weights; in a model with a likelihood by how informative they are
    about f, which is all that such a model keeps. They are binned as in the fit. With a remainder
    they are up to 1000 training rows, evenly spread.

    Hyperparameters are as fitted; in models that draw them, the samples are divided among up to 16
    of the draws. Directions of projections are as fitted. Each sample is the posterior mean, which
    is exact, plus a deviation in the coarse spaces of the solver, in which the posterior is normal;
    details that are too fine for them count by their expected variance. Neither time nor memory of
    a sample depends on the number of rows, and the rows are passed over once for each term.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor, variance_shares
    >>> rng = np.random.default_rng(0)
    >>> X = {"a": rng.uniform(-3, 3, 300), "b": rng.uniform(-3, 3, 300)}
    >>> y = np.sin(X["a"]) + 0.3 * X["b"] + 0.1 * rng.standard_normal(300)
    >>> shares = variance_shares(AdditiveGPRegressor().fit(X, y))
    >>> bool((shares["low"] > 0.2).all()), float(shares["share"].sum().round(6))
    (True, 1.0)
    """
    model = model_of_terms(model)
    require_choice("by", by, ("term", "kind"))
    require_level("level", level)
    require_count("n_samples", n_samples)
    random = generator(0 if random_state is None else random_state)
    shares = Shares.of(model.model_.latent, n_samples, random)
    chosen = shares if by == "term" else shares.by_role()
    low, high = chosen.interval(level)
    table = pd.DataFrame(
        {"kind": chosen.roles, "share": chosen.mean, "low": low, "high": high},
        index=pd.Index(chosen.names, name=by),
    )
    return table if by == "term" else table.drop(columns="kind")
