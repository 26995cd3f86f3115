"""The likelihood of a target given the sum of the functions, and its linearisation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from dsgp.likelihoods import Likelihood
from dsgp.pursuit.rows import Block
from dsgp.rows.response import (
    EXPOSURE,
    OFFSET,
    TRIALS,
    require_positive,
    require_shift,
    shift_of,
)
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Smallest weight of a working residual, so that rows that are not informative stay finite.
_LEAST_WEIGHT = 1e-6
# Bounds of the variance that is left to explain, in units of the functions.
_VARIANCE = (1e-6, 1e4)
# Largest change of an unconstrained parameter of a likelihood in one update, and iterations of
# that.
_RADIUS, _ITERATIONS = 2.0, 20
# For the initial parameters: number of rows, of rounds, and the change at which these end.
_START_ROWS, _ROUNDS, _SETTLED = 2**14, 20, 0.01
# For an identity link: quantiles of the bulk of the targets, by which their scale is estimated, and
# the width of the same bulk of a standard normal distribution.
_BULK, _NORMAL_BULK = (0.1, 0.9), 2.563


@dataclass(frozen=True)
class Response:
    """A likelihood, with the functions in a unit of their own.

    Attributes
    ----------
    likelihood : Likelihood
        With all its parameters.
    unit : float
        Unit of the functions and offsets on the scale of the link, chosen so that functions are of
        the order of 1.
    """

    likelihood: Likelihood
    unit: float = 1.0

    def linearised(self, block: Block, f: Floats) -> tuple[Floats, Floats, Floats]:
        """Log density, its gradient and curvature by f, times the weights; each (n,)."""
        latent, trials = self.latent(block, f), trials_of(block)
        density = self.likelihood.log_density(block.target, latent, trials)
        gradient, weight, _ = self.likelihood.derivatives(block.target, latent, trials)
        gradient, weight = self.unit * gradient, self.unit**2 * weight
        if len(block.root_weight):
            count = block.weight
            density, gradient, weight = count * density, count * gradient, count * weight
        return density, gradient, weight

    def deviance(self, block: Block, f: Floats) -> float:
        """−2 Σ w log p(y | f)."""
        density = self.likelihood.log_density(block.target, self.latent(block, f), trials_of(block))
        return -2 * float(density @ block.weight)

    def latent(self, block: Block, f: Floats) -> Floats:
        """The argument of the likelihood, (n,)."""
        return self.unit * (f + block.offset)

    def working(self, block: Block) -> Block:
        """Least-squares targets and weights that approximate the likelihood around the offsets."""
        _, gradient, weight = self.linearised(block, np.zeros(len(block)))
        weight = np.maximum(weight, _LEAST_WEIGHT)
        return Block(block.inputs, gradient / weight, np.sqrt(weight))

    def left(self, block: Block) -> float:
        """Approximate variance that the offsets leave to explain."""
        bare = replace(block, root_weight=block.root_weight[:0])
        _, gradient, weight = self.linearised(bare, np.zeros(len(block)))
        squares = float(np.average(gradient**2, weights=block.weight))
        curvature = float(np.average(weight, weights=block.weight))
        return float(np.clip(squares / max(curvature, _LEAST_WEIGHT) ** 2, *_VARIANCE))


def trials_of(block: Block) -> Floats | None:
    """Trials of some rows; None for one each."""
    return block.trials if len(block.trials) else None


def require_response(likelihood: Likelihood, rows: Rows, target: str) -> None:
    """Raise ``DataError`` if a target is none of the likelihood's, or an exposure not positive."""
    assert rows.y is not None
    for role in (EXPOSURE, TRIALS):
        if role in rows.extra:
            require_positive(rows.extra[role], role)
    if rows.extra.keys() & {OFFSET, EXPOSURE}:
        require_shift(likelihood, np.asarray(shift_of(rows.extra)), rows.extra, is_training=True)
    likelihood.check_target(rows.y, rows.extra.get(TRIALS), f"the target {target!r}")


def response_of(
    likelihood: Likelihood, rows: Rows, highest: float | None = None
) -> tuple[Response, float]:
    """Set the parameters of a likelihood from the targets alone, and find the constant part of f.

    A search later improves the parameters (``hyperparameters.with_parameters``).

    Parameters
    ----------
    likelihood : Likelihood
    rows : Rows
        Some or all.
    highest : float, optional
        The largest target of all rows: a level that none of these has.
    """
    assert rows.y is not None
    y, trials, weight, offset = (
        rows.y,
        rows.extra.get(TRIALS),
        rows.weight,
        np.zeros(len(rows)) + shift_of(rows.extra),
    )
    if highest is None:
        likelihood = likelihood.completed(y, weight)
    else:
        known = np.ones(len(y)) if weight is None else weight
        likelihood = likelihood.completed(np.append(y, highest), np.append(known, 0.0))
    unit = 1.0
    if likelihood.link_name == "identity":
        low, high = np.quantile(y - offset, _BULK)
        unit = float(high - low) / _NORMAL_BULK or float(np.std(y - offset)) or 1.0

    def level() -> float:
        return likelihood.start(y, weight, offset, trials) if likelihood.has_level else 0.0

    constant = level()
    some = slice(None, None, -(-len(y) // _START_ROWS))
    block = Block(
        np.empty((len(y[some]), 0)),
        y[some],
        np.empty(0) if weight is None else np.sqrt(weight[some]),
        trials=np.empty(0) if trials is None else trials[some],
    )
    for _ in range(_ROUNDS if likelihood.free else 0):
        latent = constant + offset[some]
        better = best_parameters(likelihood, block, latent, np.zeros(len(latent)))
        change = np.abs(better.unconstrained() - likelihood.unconstrained()).max()
        likelihood = better
        constant = level()
        if change < _SETTLED:
            break
    return Response(likelihood, unit), constant


def best_parameters(
    likelihood: Likelihood, block: Block, latent: Floats, variance: Floats
) -> Likelihood:
    """Maximise Σ w [log p(y | f) − ½ v W] over the free parameters, within a distance.

    Parameters
    ----------
    likelihood : Likelihood
    block : Block
        Targets, weights and trials.
    latent, variance : ndarray of shape (n,)
        Of f, on the scale of the link.
    """
    y, trials, weight = block.target, trials_of(block), block.weight
    start = likelihood.unconstrained()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        there = likelihood.from_unconstrained(parameters)
        density = there.log_density(y, latent, trials)
        _, curvature, _ = there.derivatives(y, latent, trials)
        by_density, by_curvature = there.by_parameters(y, latent, trials)
        value = weight @ (density - 0.5 * variance * curvature)
        return -float(value), -((by_density - 0.5 * variance * by_curvature) @ weight)

    optimum = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack([start - _RADIUS, start + _RADIUS]),
        options={"maxiter": _ITERATIONS},
    )
    better = np.isfinite(optimum.fun) and optimum.fun < loss(start)[0]
    return likelihood.from_unconstrained(optimum.x) if better else likelihood
