"""Hyperparameters of a Gaussian process of many inputs, from some rows and their neighbours.

Vecchia's likelihood: the density of each of the sampled rows given its nearest neighbours among
*all* rows. Neighbours are nearest in the metric that is learned, so that they change with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import minimize

from dsgp.compute import run
from dsgp.jit import nearest as loops
from dsgp.remainder.metric import SMOOTHNESSES, Metric
from dsgp.remainder.search import Finder, Places, others
from dsgp.terms import Floats

# Number of rows of the likelihood, of neighbours of each, and of repeated searches for neighbours.
SAMPLED, NEIGHBOURS, ROUNDS = 2000, 24, 8
# Gain in the log density per row, after a new search for neighbours, that is not worth another
# round.
_SETTLED = 3e-3
# Gain in the log density of all rows over that of noise alone, in nats, below which there is
# nothing to learn.
LEAST_GAIN = 4.0
# Bounds of the initial values of an ascent. Beyond them the likelihood is so flat in the log of a
# parameter that the ascent would not move.
_LEAST_NOISE, _LONGEST = 0.03, 30.0
_BLOCK = 125
_SECONDS = 1e-5  # per row, with 24 neighbours
# Bounds, relative to the target's variance and to the inputs' standard deviations. A remainder of
# much more variance and longer lengthscales is practically a polynomial: neighbours hardly
# distinguish the two.
_NOISE, _VARIANCE, _LENGTHSCALE = (1e-7, 4.0), (1e-4, 4.0), (1e-2, 3e3)


@dataclass(frozen=True)
class Learned:
    """What was learned.

    Attributes
    ----------
    metric : Metric
    log_density : float
        Mean over the rows, each given its neighbours.
    rounds : int
        Number of searches for neighbours.
    converged : bool
        Whether the metric no longer changed.
    gain : float
        Log density of all rows minus that of noise alone, in nats.
    """

    metric: Metric
    log_density: float
    rounds: int
    converged: bool
    gain: float

    @property
    def is_noise(self) -> bool:
        """Whether noise alone explains the rows as well."""
        return self.gain < LEAST_GAIN


@dataclass(frozen=True)
class Problem:
    """Rows from which hyperparameters are learned, in units where targets and inputs are about 1.

    Attributes
    ----------
    inputs : ndarray of shape (n, D)
    target : ndarray of shape (n,)
    relative_noise : ndarray of shape (n,)
        Noise variances of the rows as multiples of that of a row of weight 1.
    sample : ndarray of int, shape (k,)
        Rows whose densities are summed.
    n_neighbours : int
    """

    inputs: Floats
    target: Floats
    relative_noise: Floats
    sample: Places
    n_neighbours: int

    def neighbours(self, metric: Metric) -> Places:
        """Find the neighbours of the sampled rows."""
        finder = Finder(metric.coordinates(metric.scaled(self.inputs)))
        return others(finder, self.sample, self.n_neighbours)

    def compact(self, neighbours: Places) -> tuple[Problem, Places]:
        """Keep only the sampled rows and their neighbours."""
        used, places = np.unique(
            np.concatenate([self.sample[:, None], neighbours], axis=1), return_inverse=True
        )
        places = places.reshape(len(self.sample), -1)
        if used[0] < 0:
            used, places = used[1:], places - 1
        some = replace(
            self,
            inputs=self.inputs[used],
            target=self.target[used],
            relative_noise=self.relative_noise[used],
            sample=np.ascontiguousarray(places[:, 0]),
        )
        return some, np.ascontiguousarray(places[:, 1:])

    def of_noise(self, noise_variance: float | None) -> float:
        """Mean log density of the sampled rows were they noise, by default of the best variance."""
        relative = self.relative_noise[self.sample]
        squares = self.target[self.sample] ** 2 / relative
        best = float(np.mean(squares)) if noise_variance is None else noise_variance
        if not best > 0.0:
            return math.inf
        return -0.5 * float(np.mean(np.log(2.0 * math.pi * best * relative) + squares / best))

    def log_density(self, metric: Metric, neighbours: Places) -> tuple[float, Floats]:
        """Return the mean log density of the sampled rows, and its derivatives by logs (D + 2,)."""
        x = metric.scaled(self.inputs)
        noise = metric.noise_variance * self.relative_noise
        n = len(self.sample)
        starts = range(0, n, _BLOCK)
        slopes = np.zeros((len(starts), x.shape[1] + 2))
        tasks = [
            partial(
                loops.likelihood, *metric.arguments(x), noise, self.target, self.sample,
                neighbours, start, min(start + _BLOCK, n), slope,
            )
            for start, slope in zip(starts, slopes, strict=True)
        ]  # fmt: skip
        values = run(tasks, _SECONDS * n, in_place=True)
        return math.fsum(values) / n, slopes.sum(axis=0) / n


def learn(
    problem: Problem,
    start: Metric,
    *,
    fixed_noise: bool = False,
    smoothness: int | None = None,
    or_noise: bool = False,
    watch: Callable[[float], None] = lambda value: None,
) -> Learned:
    """Maximise the likelihood, with neighbours that are nearest in the final metric.

    Parameters
    ----------
    problem : Problem
    start : Metric
    fixed_noise : bool
    smoothness : {1, 3, 5}, optional
        None: that of the largest likelihood.
    or_noise : bool
        Whether to end after the first round if noise alone explains the rows as well, both with
        the neighbours of that round and with those in the metric that it learned.
    watch : callable
        Called with the mean log density of the rows.
    """
    metric = start if smoothness is None else replace(start, smoothness=smoothness)
    noise = problem.of_noise(start.noise_variance if fixed_noise else None)
    best: tuple[Metric, float] | None = None

    def learned(found: tuple[Metric, float], rounds: int, converged: bool) -> Learned:
        return Learned(*found, rounds, converged, len(problem.target) * (found[1] - noise))

    ascent = -math.inf
    for rounds in range(ROUNDS + 1):
        neighbours = problem.neighbours(metric)
        value, _ = problem.log_density(metric, neighbours)
        watch(value)
        if or_noise and rounds == 1:
            first = learned((metric, max(value, ascent)), rounds, True)
            if first.is_noise:
                return first
        if best is not None and not value > best[1] + _SETTLED:
            return learned(max(best, (metric, value), key=lambda pair: pair[1]), rounds, True)
        best = (metric, value)
        choices = [metric.smoothness]
        if smoothness is None and rounds == 1:  # the neighbours are approximately right by now
            choices = list(SMOOTHNESSES)
        ascended = [
            _ascended(problem, neighbours, replace(metric, smoothness=one), fixed_noise)
            for one in choices
        ]
        metric, ascent = max(ascended, key=lambda pair: pair[1])
    assert best is not None
    return learned(best, ROUNDS, False)


def _ascended(
    problem: Problem, neighbours: Places, start: Metric, fixed_noise: bool
) -> tuple[Metric, float]:
    """Maximise with the same neighbours."""
    some, places = problem.compact(neighbours)

    def metric_at(logs: Floats) -> Metric:
        values = np.exp(logs)
        noise = start.noise_variance if fixed_noise else float(values[-1])
        return replace(
            start, lengthscales=values[:-2], variance=float(values[-2]), noise_variance=noise
        )

    def objective(logs: Floats) -> tuple[float, Floats]:
        value, slopes = some.log_density(metric_at(logs), places)
        if fixed_noise:
            slopes[-1] = 0.0
        if not math.isfinite(value):
            return 1e10, np.zeros_like(slopes)
        return -value, -slopes

    bounds = [_LENGTHSCALE] * len(start.lengthscales) + [_VARIANCE, _NOISE]
    noise = start.noise_variance
    if not fixed_noise:
        noise = max(noise, _LEAST_NOISE)
    logs = np.log([*np.minimum(start.lengthscales, _LONGEST), start.variance, noise])
    limits = np.log(bounds)
    result = minimize(
        objective,
        np.clip(logs, limits[:, 0], limits[:, 1]),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": 40, "ftol": 1e-6, "gtol": 1e-4},
    )
    return metric_at(result.x), float(-result.fun)
