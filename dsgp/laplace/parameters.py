"""Free parameters of a likelihood: dispersion, shape, scale, cutpoints.

With the mode F̂ and the posterior variances v of the rows held, Laplace's evidence is, but for a
constant, Σ w [log p(y | f̂, φ) − ½ v W(f̂, φ)] to first order in φ; the effect of the mode's move is
added as a straight line.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.optimize import minimize

from dsgp.compute import run
from dsgp.laplace.evidence import NodeMode
from dsgp.laplace.linearised import PairTables
from dsgp.laplace.rows import ResponseRows
from dsgp.likelihoods import Likelihood
from dsgp.terms import Floats

_TASK_ROWS = 32_768
_DENSITY = 4e-7  # seconds per row
_STEPS = 10
# Step in an unconstrained parameter for the central difference of the gradient.
_DIFFERENCE = 1e-5


def better_likelihood(
    mode: NodeMode, variance: PairTables, moved: Floats, radius: float, unit: float
) -> tuple[Likelihood, float]:
    """Move the free parameters of the likelihood to where its part of the evidence is largest.

    Parameters
    ----------
    mode : NodeMode
    variance : PairTables
        From which the posterior variance of each row's f is computed.
    moved : ndarray of shape (Σ M_d,)
        As for ``NodeMode.moved``.
    radius : float
        Largest change of an unconstrained parameter.
    unit : float
        As for ``Likelihood.limits``.

    Returns
    -------
    likelihood : Likelihood
    gain : float
        Nats, by this approximation.
    """
    model = mode.model
    likelihood = model.likelihood
    start = likelihood.unconstrained()
    if not len(start):
        return likelihood, 0.0
    rows = model.rows
    flat, level = model.at(mode.values)
    direction = model.basis.at_bins(mode.posterior.values(moved))
    constant = float(direction[-1]) if model.constant else 0.0
    if model.constant:
        flat, direction = flat[:-1], direction[:-1]
    latent = rows.latent(level, flat)
    response = rows.table.gather(direction) + constant
    variances = rows.variances(variance)
    tilt = np.array(
        [
            _total(rows, partial(_gradient_along, likelihood, start, k), latent, response)
            for k in range(len(start))
        ]
    ).ravel()

    return likelihood_at(rows, likelihood, latent, variances, radius, unit, tilt)


def likelihood_at(
    rows: ResponseRows,
    likelihood: Likelihood,
    latent: Floats,
    variances: Floats,
    radius: float,
    unit: float,
    tilt: Floats | None = None,
) -> tuple[Likelihood, float]:
    """Move the free parameters of the likelihood to where Σ w [log p − ½ v W] is largest.

    Parameters
    ----------
    rows : ResponseRows
    likelihood : Likelihood
    latent, variances : ndarray of shape (n_rows,)
        Mean and posterior variance v of each row's f, the former with its offset.
    radius, unit : float
        As for ``better_likelihood``.
    tilt : ndarray of shape (n_parameters,), optional
        Slope of a straight line that is added.

    Returns
    -------
    likelihood : Likelihood
    gain : float
    """
    start = likelihood.unconstrained()
    tilt = np.zeros(len(start)) if tilt is None else tilt

    def objective(parameters: Floats) -> tuple[float, Floats]:
        sums = _total(
            rows, partial(_value, likelihood.from_unconstrained(parameters)), latent, variances
        )
        value = sums[0] + float(tilt @ (parameters - start))
        return -value, -(sums[1:] + tilt)

    low, high = likelihood.limits(unit)
    # An initial value beyond the limits is kept as it is.
    lower = np.minimum(np.maximum(start - radius, low), start)
    upper = np.maximum(np.minimum(start + radius, high), start)
    before = objective(start)[0]
    optimum = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([lower, upper]),
        options={"maxiter": _STEPS},
    )
    gain = before - float(optimum.fun)
    if not gain > 0:
        return likelihood, 0.0
    return likelihood.from_unconstrained(optimum.x), gain


def _total(rows: ResponseRows, function: partial[Floats], latent: Floats, other: Floats) -> Floats:
    """Sum a function of targets, latents and another number of every row."""
    n = rows.n_rows
    tasks = []
    for start in range(0, n, _TASK_ROWS):
        part = slice(start, min(start + _TASK_ROWS, n))
        trials = rows.trials[part] if len(rows.trials) else None
        weight = rows.weight[part] if len(rows.weight) else np.ones(part.stop - start)
        tasks.append(partial(function, rows.y[part], latent[part], trials, weight, other[part]))
    return np.sum(run(tasks, _DENSITY * n, in_place=True), axis=0)


def _value(
    likelihood: Likelihood,
    y: Floats,
    f: Floats,
    trials: Floats | None,
    weight: Floats,
    variance: Floats,
) -> Floats:
    density = likelihood.log_density(y, f, trials)
    _, curvature, _ = likelihood.derivatives(y, f, trials)
    by_density, by_weight = likelihood.by_parameters(y, f, trials)
    value = np.sum(weight * (density - 0.5 * variance * curvature))
    return np.concatenate([[value], (by_density - 0.5 * variance * by_weight) @ weight])


def _gradient_along(
    likelihood: Likelihood,
    start: Floats,
    k: int,
    y: Floats,
    f: Floats,
    trials: Floats | None,
    weight: Floats,
    response: Floats,
) -> Floats:
    """Change of the rows' gradients by a parameter, along the direction of the mode's effect."""
    step = np.zeros(len(start))
    step[k] = _DIFFERENCE
    up, down = (
        likelihood.from_unconstrained(start + sign * step).derivatives(y, f, trials)[0]
        for sign in (1, -1)
    )
    return np.array([np.sum(weight * response * (up - down)) / (2 * _DIFFERENCE)])
