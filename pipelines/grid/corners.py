"""The paper's Figure ``fig:kron``: one learning iteration at the corners of a hypercube.

The grid {−1, 1}^D has N = 2^D cells, whose values are noise. An iteration is the log marginal
likelihood with its derivatives by all D lengthscales, the amplitude and the noise.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from dsgp import memory
from dsgp.errors import DataError
from dsgp.grid.kronecker import GridEvidence, KroneckerSystem
from dsgp.kernels import Stationary
from dsgp.progress import progress
from dsgp.terms import LOG_2PI, Floats

OURS, FULL = "Kronecker", "full GP"
_LENGTHSCALE, _VARIANCE, _NOISE = 1.0, 1.0, 0.5
# Slopes are those of sizes from here on: below, calls take longer than the arithmetic.
SLOPE_FROM = {OURS: 2**16, FULL: 2**10}
# Repetitions last so long together, in seconds, and are so many at most.
_LASTING, _REPEATS = 0.4, 15


@dataclass(frozen=True)
class Timing:
    """One method at one size.

    Attributes
    ----------
    method : {OURS, FULL}
    dims : int
    n : int
        Corners, 2 to the power of ``dims``.
    seconds : float
        Of one iteration, the least of several.
    log_likelihood : float
    """

    method: str
    dims: int
    n: int
    seconds: float
    log_likelihood: float


def timings_of(
    dims: Sequence[int], full_limit: float, kernel: Callable[..., Stationary], seed: int
) -> tuple[list[Timing], str]:
    """Time both methods; the full GP until it does not fit or would take longer than a limit.

    Parameters
    ----------
    dims : sequence of int, ascending
    full_limit : float
        Seconds of one iteration of the full GP, beyond which there is none; 0: no full GP at all.
    kernel : callable
        Of every dim.
    seed : int
        Of the values.

    Returns
    -------
    timings : list of Timing
    why : str
        Why the full GP ends where it does; empty where it does not.
    """
    timings, why = [], "not asked for" if full_limit <= 0 else ""
    with progress("corners", total=len(dims)) as bar:
        for d in dims:
            y = np.random.default_rng([seed, d]).standard_normal((2,) * d)
            timings.append(_timed(OURS, d, _kronecker(y, kernel)))
            if not why:
                why = _reason(d, timings, full_limit)
            if not why:
                timings.append(_timed(FULL, d, _full(y, kernel)))
            bar.update(1, corners=2**d)
    return sorted(timings, key=lambda timing: (timing.method != OURS, timing.n)), why


def _reason(d: int, timings: Sequence[Timing], limit: float) -> str:
    """Say why there is no full GP at a size; empty if there is."""
    bytes_ = 8.0 * 4**d * 6  # matrices held at once
    if bytes_ > 0.6 * memory.available():
        return f"at 2^{d} corners its matrices would take {bytes_ / 2**30:.1f} GiB"
    past = [timing for timing in timings if timing.method == FULL]
    if past:
        expected = past[-1].seconds * 8.0 ** (d - past[-1].dims)
        if expected > limit:
            return f"at 2^{d} corners an iteration would take about {expected:.0f} s"
    return ""


def _kronecker(y: Floats, kernel: Callable[..., Stationary]) -> Callable[[], float]:
    points, kernels = _axes(y.ndim, kernel)
    return lambda: KroneckerSystem(points, kernels, _NOISE).evidence(y).value


def _full(y: Floats, kernel: Callable[..., Stationary]) -> Callable[[], float]:
    points, kernels = _axes(y.ndim, kernel)
    return lambda: full_evidence(points, kernels, _NOISE, y).value


def full_evidence(
    points: Sequence[Floats], kernels: Sequence[Stationary], noise: float, y: Floats
) -> GridEvidence:
    """What ``KroneckerSystem.evidence`` returns, by the N × N covariance and its inverse.

    Nothing of the grid's structure is used for the inverse; the products with the derivatives use
    it, so that they cost O(N²) a dim and the cubic part is what is seen.

    Raises
    ------
    DataError
        If the covariance is not positive definite in float64.
    """
    own_covariances = [
        kernel.covariance(axis_points) for kernel, axis_points in zip(kernels, points, strict=True)
    ]
    covariance: Any = 1.0
    for own_covariance in own_covariances:
        covariance = np.kron(covariance, own_covariance)
    noisy = covariance + noise * np.eye(y.size)
    factor, failed = dpotrf(noisy, lower=True, overwrite_a=True)
    if failed:
        raise DataError(f"the covariance of {y.size} cells is not positive definite; more noise")
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    inverse, _ = dpotri(factor, lower=True, overwrite_c=True)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    dual = inverse @ y.ravel()
    # d log p = ½ Σ_ab S_ab dK_ab.
    inner = np.outer(dual, dual) - inverse
    by_log_noise = 0.5 * noise * float(np.trace(inner))
    inner *= covariance
    # Rows and columns of every dim beside each other: (a_1, b_1, a_2, b_2, …).
    d = y.ndim
    order = [axis for k in range(d) for axis in (k, d + k)]
    weights = inner.reshape(y.shape * 2).transpose(order)
    by_log_lengthscale = np.empty(d)
    for k, (kernel, axis_points) in enumerate(zip(kernels, points, strict=True)):
        others = tuple(axis for axis in range(2 * d) if axis // 2 != k)
        ratio = kernel.by_log_lengthscale(axis_points) / own_covariances[k]
        by_log_lengthscale[k] = 0.5 * float(np.sum(weights.sum(axis=others) * ratio))
    value = -0.5 * (float(y.ravel() @ dual) + log_det + y.size * LOG_2PI)
    return GridEvidence(value, by_log_lengthscale, 0.5 * float(inner.sum()), by_log_noise)


def _axes(d: int, kernel: Callable[..., Stationary]) -> tuple[list[Floats], list[Stationary]]:
    kernels = [kernel(lengthscale=_LENGTHSCALE, variance=_VARIANCE) for _ in range(d)]
    return [np.array([-1.0, 1.0]) for _ in range(d)], kernels


def _timed(method: str, d: int, iterate: Callable[[], float]) -> Timing:
    log_likelihood, least, spent, runs = 0.0, np.inf, 0.0, 0
    while runs == 0 or (spent < _LASTING and runs < _REPEATS):
        start = time.perf_counter()
        log_likelihood = iterate()
        seconds = time.perf_counter() - start
        least, spent, runs = min(least, seconds), spent + seconds, runs + 1
    return Timing(method, d, 2**d, float(least), float(log_likelihood))


def slopes_of(timings: Sequence[Timing], least: int | None = None) -> dict[str, float]:
    """Exponents b of seconds ∝ N^b by method, from a size or those of ``SLOPE_FROM`` on."""
    slopes = {}
    for method, own_least in SLOPE_FROM.items():
        least_n = own_least if least is None else least
        of_method = [
            timing for timing in timings if timing.method == method and timing.n >= least_n
        ]
        if len(of_method) > 1:
            n, seconds = np.log([(timing.n, timing.seconds) for timing in of_method]).T
            slopes[method] = float(np.polyfit(n, seconds, 1)[0])
    return slopes
