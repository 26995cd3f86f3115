"""Learning the hyperparameters of a grid: initial values, and ascent of a marginal likelihood.

Complete fields; those with gaps are learned in ``fit_cells``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize

from dsgp.grid.constant import UnknownConstant
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.kronecker import GridEvidence, KroneckerSystem
from dsgp.grid.missing import Bools
from dsgp.grid.points import amplitude
from dsgp.grid.systems import complete_system
from dsgp.kernels import Stationary
from dsgp.progress import progress
from dsgp.terms import LOG_2PI, Floats

# A learner stops when an iteration gains less than this, in nats.
_GAIN = 1e-2
# With fewer observed cells than this, the likelihood is computed by dense algebra.
DENSE = 1000
# Smallest gain of a field over noise alone, in nats, and the share of the variance that the field
# gets if it gains less.
_WORTH, _NO_FIELD = 2.0, 1e-4
# Initial values of a single lengthscale, as a share of the axis' extent and in steps (the larger
# counts); the likeliest one is used. Steps matter on axes of many points.
_STARTS = ((0.3, 0.5), (0.1, 0.5), (0.03, 0.5), (0.0, 50.0), (0.0, 5.0))


# A lengthscale below the step of its axis is tried again from this many steps.
_RAISED = 1.5


class GridEvidenceLike(Protocol):
    """A log likelihood with its gradient by the logs of the hyperparameters."""

    @property
    def value(self) -> float: ...
    @property
    def by_log_lengthscale(self) -> Floats: ...
    @property
    def by_log_variance(self) -> float | Floats: ...
    @property
    def by_log_noise(self) -> float: ...


@dataclass(frozen=True)
class NoiseStart:
    """Initial value of the noise variance, and whether it is fixed.

    Attributes
    ----------
    variance : float or None
        None: a share of the field's variance.
    is_fixed : bool
    """

    variance: float | None = None
    is_fixed: bool = False


@dataclass(frozen=True)
class Hyperparameters:
    """Kernels and noise of a grid, and which of their parameters are free.

    Attributes
    ----------
    terms : tuple of C tuples of D kernels
        The amplitude of a term is in its first kernel; the others have variance 1.
    noise : float
        Noise variance, or the factor of those given per cell.
    learn_noise : bool
    sizes : tuple of int
        Points of each axis: one of a single point has no lengthscale to learn.
    held : tuple of bool
        Which of ``logs`` a search does not change, beside those that are fixed; () for none.
    """

    terms: tuple[tuple[Stationary, ...], ...]
    noise: float
    learn_noise: bool
    sizes: tuple[int, ...]
    held: tuple[bool, ...] = ()

    def free(self) -> tuple[Bools, Bools, bool]:
        """Return which lengthscales (C, D), amplitudes (C,) and noise are free."""
        lengthscales = [
            [
                "lengthscale" not in kernel.fixed and size > 1
                for kernel, size in zip(term, self.sizes, strict=True)
            ]
            for term in self.terms
        ]
        amplitudes = [all("variance" not in kernel.fixed for kernel in term) for term in self.terms]
        return np.array(lengthscales), np.array(amplitudes), self.learn_noise

    def values(self) -> Floats:
        """All parameters: lengthscales (C D), amplitudes (C), noise (1)."""
        lengthscales = [kernel.lengthscale for term in self.terms for kernel in term]
        heights = [amplitude(term) for term in self.terms]
        return np.array([*lengthscales, *heights, self.noise], dtype=float)

    def logs(self) -> Floats:
        """Return their logs."""
        return np.log(self.values())

    def with_logs(self, logs: Floats) -> Hyperparameters:
        """Return a copy with other values."""
        n_terms, n_dims = len(self.terms), len(self.sizes)
        # Unchanged parameters keep their bits.
        values = np.where(logs == self.logs(), self.values(), np.exp(logs))
        lengthscales = values[: n_terms * n_dims].reshape(n_terms, n_dims)
        terms = tuple(
            tuple(
                kernel.with_parameters(
                    lengthscale=float(lengthscales[c, d]),
                    variance=float(values[n_terms * n_dims + c]) if d == 0 else 1.0,
                )
                for d, kernel in enumerate(term)
            )
            for c, term in enumerate(self.terms)
        )
        return replace(self, terms=terms, noise=float(values[-1]))

    def mask(self) -> Bools:
        """Which of ``logs`` are free."""
        lengthscales, amplitudes, noise = self.free()
        free = np.array([*lengthscales.ravel(), *amplitudes, noise])
        return free & ~np.array(self.held) if self.held else free


def starts(
    kernels: Sequence[Sequence[Stationary]],
    points: Sequence[Floats],
    variance: float,
    noise: NoiseStart,
    single: tuple[float, float] = (0.1, 0.5),
) -> Hyperparameters:
    """Give every parameter without one an initial value, by the axes and the field's variance.

    Parameters
    ----------
    kernels : sequence of C sequences of D kernels
    points : sequence of D ndarrays
    variance : float
        Of the observed cells.
    noise : NoiseStart
    single : (float, float)
        For the lengthscales of a single term: share of an axis' extent, and steps at least. Those
        of several are spread from a quarter of the extent down to three steps.
    """
    n_terms = len(kernels)
    variance = variance if variance > 0 else 1.0
    terms = []
    for c, term in enumerate(kernels):
        position = c / (n_terms - 1) if n_terms > 1 else 0.0
        variances = [kernel.variance for kernel in term if kernel.variance is not None]
        height = float(np.prod(variances)) if variances else _amplitude(variance, c, n_terms)
        filled = []
        for d, (kernel, axis_points) in enumerate(zip(term, points, strict=True)):
            length = kernel.lengthscale or _length(axis_points, position, n_terms, single)
            filled.append(
                kernel.with_parameters(lengthscale=length, variance=height if d == 0 else 1.0)
            )
        terms.append(tuple(filled))
    start = noise.variance
    if start is None:
        start = variance * (0.1 if n_terms == 1 else 0.01)
    sizes = tuple(len(axis_points) for axis_points in points)
    return Hyperparameters(tuple(terms), start, not noise.is_fixed, sizes)


def _amplitude(variance: float, c: int, n_terms: int) -> float:
    """The longest term has nearly all of the variance, each shorter one less."""
    return variance * (0.9 if n_terms == 1 else 0.1 ** (2 * c / n_terms))


def _length(
    axis_points: Floats, position: float, n_terms: int, single: tuple[float, float]
) -> float:
    if len(axis_points) < 2:
        return 1.0
    extent, step = float(axis_points[-1] - axis_points[0]), float(np.median(np.diff(axis_points)))
    if n_terms == 1:
        return min(max(single[0] * extent, single[1] * step), extent)
    long = max(extent / 4, step)
    short = min(3 * step, long)
    return float(long ** (1 - position) * short**position)


def maximise(
    evidence: Callable[[Hyperparameters], GridEvidenceLike],
    start: Hyperparameters,
    points: Sequence[Floats],
    variance: float,
    n_cells: float,
    *,
    gain: float = _GAIN,
    max_iter: int = 100,
    what: str = "learning",
) -> tuple[Hyperparameters, float]:
    """Ascend a log likelihood by L-BFGS over the logs of the free hyperparameters.

    Parameters
    ----------
    evidence : callable
    start : Hyperparameters
    points : sequence of D ndarrays
    variance : float
        Of the observed cells; with the axes it bounds the search.
    n_cells : float
        Cells that the likelihood is of.
    gain : float
        Stop when an iteration gains less, in nats.

    Returns
    -------
    hyperparameters : Hyperparameters
    value : float
        The log likelihood there.
    """
    free, logs = start.mask(), start.logs()
    if not free.any():
        return start, evidence(start).value
    low, high = _bounds(start, points, variance)
    # The search counts from the first value: its tolerance is relative above 1.
    first: list[float] = []
    with progress(what) as bar:

        def negative(chosen: Floats) -> tuple[float, Floats]:
            full = logs.copy()
            full[free] = chosen
            likelihood = evidence(start.with_logs(full))
            gradient = np.concatenate(
                [
                    np.ravel(likelihood.by_log_lengthscale),
                    np.atleast_1d(likelihood.by_log_variance),
                    [likelihood.by_log_noise],
                ]
            )
            bar.update(log_likelihood=likelihood.value)
            if not first:
                first.append(likelihood.value)
            return (first[0] - likelihood.value) / n_cells, -gradient[free] / n_cells

        bounds = list(zip(low[free], high[free], strict=True))
        done = minimize(
            negative,
            np.clip(logs[free], low[free], high[free]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iter, "ftol": gain / n_cells, "gtol": 1e-9},
        )
    logs[free] = done.x
    return start.with_logs(logs), first[0] - float(done.fun) * n_cells


def _bounds(
    start: Hyperparameters, points: Sequence[Floats], variance: float
) -> tuple[Floats, Floats]:
    """Bounds of the logs in a search."""
    variance = variance if variance > 0 else 1.0
    low, high = [], []
    for _ in start.terms:
        for axis_points in points:
            extent = float(axis_points[-1] - axis_points[0]) if len(axis_points) > 1 else 1.0
            step = float(np.diff(axis_points).min()) if len(axis_points) > 1 else 1.0
            low.append(np.log(0.2 * step))
            high.append(np.log(10 * extent))
    for _ in start.terms:
        low.append(np.log(1e-6 * variance))
        high.append(np.log(1e2 * variance))
    low.append(np.log(1e-8 * variance))
    high.append(np.log(10 * variance))
    return np.array(low), np.array(high)


def likely_starts(
    evidence: Callable[[Hyperparameters], GridEvidenceLike],
    kernels: Sequence[Stationary],
    points: Sequence[Floats],
    variance: float,
    noise: NoiseStart,
) -> list[Hyperparameters]:
    """Return initial values of a single term, the likeliest first."""
    if all(kernel.lengthscale is not None for kernel in kernels):
        return [starts([kernels], points, variance, noise)]
    longest = max(len(axis_points) for axis_points in points)
    # In steps only if that differs from the shares.
    candidates = [
        starts([kernels], points, variance, noise, single)
        for single in _STARTS
        if single[0] or 2 * single[1] < 0.03 * longest
    ]
    return sorted(candidates, key=lambda start: -evidence(start).value)


def noise_alone(
    evidence: Callable[[Hyperparameters], GridEvidenceLike],
    hyperparameters: Hyperparameters,
    value: float,
    variance: float,
) -> Hyperparameters:
    """Return noise without a field if that is as likely.

    A field of a tiny lengthscale has the same likelihood as white noise, but would reproduce it.
    """
    _, amplitudes, noise = hyperparameters.free()
    if not (noise and amplitudes.all() and variance > 0):
        return hyperparameters
    logs = hyperparameters.logs()
    n_lengthscales = len(logs) - len(hyperparameters.terms) - 1
    logs[n_lengthscales:-1] = np.log(_NO_FIELD * variance)
    logs[-1] = np.log(variance)
    alone = hyperparameters.with_logs(logs)
    return alone if evidence(alone).value > value - _WORTH else hyperparameters


def step_of(axis_points: Floats) -> float:
    """Median step of an axis; 1 for a single point."""
    return float(np.median(np.diff(axis_points))) if len(axis_points) > 1 else 1.0


def below_step(hyperparameters: Hyperparameters, points: Sequence[Floats]) -> Bools:
    """Return which learned lengthscales (C, D) are below the step of their axis."""
    lengths = np.array(
        [[float(k.lengthscale or 1.0) for k in term] for term in hyperparameters.terms]
    )
    steps = np.array([step_of(axis_points) for axis_points in points])
    free = hyperparameters.mask()[: lengths.size].reshape(lengths.shape)
    return np.asarray(free & (lengths < steps * (1 - 1e-9)))


def raised_from(
    hyperparameters: Hyperparameters, points: Sequence[Floats]
) -> Hyperparameters | None:
    """Return longer initial lengthscales where some are below the step; None if none is."""
    below = below_step(hyperparameters, points)
    if not below.any():
        return None
    logs = hyperparameters.logs()
    steps = np.tile([step_of(axis_points) for axis_points in points], len(hyperparameters.terms))
    logs[: below.size] = np.where(below.ravel(), np.log(_RAISED * steps), logs[: below.size])
    return hyperparameters.with_logs(logs)


def _at_bound(hyperparameters: Hyperparameters, points: Sequence[Floats], variance: float) -> bool:
    """Whether a free lengthscale is at its lower bound."""
    n_lengthscales = len(hyperparameters.terms) * len(points)
    low = _bounds(hyperparameters, points, variance)[0][:n_lengthscales]
    free = hyperparameters.mask()[:n_lengthscales]
    return bool((free & (hyperparameters.logs()[:n_lengthscales] < low + 0.01)).any())


def learn_complete(
    kernels: Sequence[Stationary],
    pieces: Sequence[tuple[Sequence[Floats], Floats]],
    points: Sequence[Floats],
    noise: NoiseStart,
    *,
    unknown_constant: bool = False,
) -> Hyperparameters:
    """Learn one separable kernel from a complete field, or from complete pieces of it.

    Several pieces count as independent: their log likelihoods add up (a composite likelihood).

    Parameters
    ----------
    kernels : sequence of D kernels
    pieces : sequence of (points, y)
        The axes of a piece and its residuals.
    points : sequence of D ndarrays
        The axes of the whole field.
    noise : NoiseStart
    unknown_constant : bool
        The residuals are about an average, not about a known constant. In fields of up to
        ``DENSE`` cells it is integrated out; beyond, an average is as good.
    """
    n = sum(y.size for _, y in pieces)
    variance = float(sum(np.sum(y**2) for _, y in pieces)) / degrees(n, unknown_constant)
    evidence_of = restricted if unknown_constant and n <= DENSE else plain

    def evidence(hyperparameters: Hyperparameters) -> GridEvidence:
        parts = [
            evidence_of(complete_system(piece, hyperparameters.terms[0], hyperparameters.noise), y)
            for piece, y in pieces
        ]
        return GridEvidence(
            float(sum(part.value for part in parts)),
            np.sum([part.by_log_lengthscale for part in parts], axis=0),
            float(sum(part.by_log_variance for part in parts)),
            float(sum(part.by_log_noise for part in parts)),
        )

    best: tuple[Hyperparameters, float] | None = None
    for start in likely_starts(evidence, kernels, points, variance, noise):
        optimum, value = maximise(evidence, start, points, variance, n)
        if best is None or value > best[1]:
            best = optimum, value
        # At a bound the search may have passed over the maximum: try another initial value.
        if not _at_bound(optimum, points, variance):
            break
    assert best is not None
    again = raised_from(best[0], points)
    if again is not None:
        best = max(best, maximise(evidence, again, points, variance, n), key=lambda one: one[1])
    return noise_alone(evidence, best[0], best[1], variance)


def degrees(n: int, unknown_constant: bool) -> int:
    """Degrees of freedom of n residuals."""
    return max(n - unknown_constant, 1)


def plain(system: KroneckerSystem | FibreSystem, y: Floats) -> GridEvidence:
    """Log likelihood of residuals, and its gradient."""
    return system.evidence(y)


def restricted(system: KroneckerSystem | FibreSystem, y: Floats) -> GridEvidence:
    """Log likelihood of a field up to a constant, which is integrated out, and its gradient.

    With v = A⁻¹ 1 and s = 1ᵀ v, log p = log N(y − β̂) − ½ log s + ½ log 2π, and the derivative of
    −½ log s is ½ vᵀ dA v / s: that of the log likelihood of 1/√s, without its trace.
    """
    constant = UnknownConstant.of(np.asarray(system.solve(np.ones(y.shape))))
    parts = [
        system.evidence(residuals)
        for residuals in (
            y - constant.estimate(y),
            np.full(y.shape, constant.precision**-0.5),
            np.zeros(y.shape),
        )
    ]
    signs = (1.0, 1.0, -1.0)

    def total(name: str) -> Any:
        return sum(sign * getattr(part, name) for sign, part in zip(signs, parts, strict=True))

    value = parts[0].value + 0.5 * (LOG_2PI - math.log(constant.precision))
    return GridEvidence(
        value,
        total("by_log_lengthscale"),
        total("by_log_variance"),
        total("by_log_noise"),
    )
