"""Structure at scales where the search for hyperparameters has not looked.

The learners start at lengthscales of the column's width, on few nodes: a function that goes up and
down a hundred times is noise to them, and the likelihood is flat around there. What they leave
behind shows in the residuals. *Screen*: along each axis, neighbouring blocks of 1, 2, 4, … points
have means that differ by noise alone if nothing is left (Haar's wavelets, O(n) for all scales).
*Scan*: where they differ by more, the exact likelihood along the axis is computed for lengthscales
from the spacing of the points to the width of the column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import f as f_distribution

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.learning.scan import Candidate, Scan
from dsgp.terms import Floats

# Probability that the screen stops at white noise, for all scales and terms together.
SIGNIFICANCE = 1e-3
# Differences of blocks that a scale needs at least.
_FEWEST_DIFFERENCES = 4
# Nats that a lengthscale must gain by the scan, the other terms as they are.
LEAST_GAIN = 5.0
# Kernels that are changed before all terms are learned again.
_MOST_CHANGES = 32


class Structure(NamedTuple):
    """The finest scale at which residuals along an axis differ by more than noise.

    Attributes
    ----------
    level : int
        Blocks are of 2^level points.
    distance : float
        Between neighbouring blocks, averaged over what they show; in units of the axis.
    """

    level: int
    distance: float


def structure(points: Floats, weight: Floats, score: Floats, n_axes: int) -> Structure | None:
    """Screen the residuals of a fit along one axis, in O(n_points).

    Parameters
    ----------
    points, weight, score : ndarray of shape (n_points,)
        Increasing; Σ w/σ² and Σ w/σ² (y − fit) of the rows at each.
    n_axes : int
        How many are screened.

    Notes
    -----
    The difference of the weighted means of two neighbouring blocks of weights W₁ and W₂ has the
    variance 1/W₁ + 1/W₂ if residuals are noise, and all differences, of all scales, are
    independent: their squares over their variances add up to a χ² at each scale. Where the noise
    variance holds what was missed, the differences of neighbouring points tell better: residuals of
    a fit that misses nothing vary most at the finest scale, so that the ratio of another scale to
    that one exceeds Fisher's by chance only.
    """
    used = weight > 0
    position, total, sums = points[used], weight[used], score[used]
    tests = max(n_axes, 1) * max(len(position), 2).bit_length()
    for level in range(64):
        n_pairs = len(position) // 2
        if n_pairs < _FEWEST_DIFFERENCES:
            return None
        even, odd = slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
        with np.errstate(over="ignore"):
            difference = sums[even] / total[even] - sums[odd] / total[odd]
            squares = difference**2 / (1 / total[even] + 1 / total[odd])
        size = float(np.sum(squares))
        if level == 0:
            finest = size, n_pairs
        if _tail(size, n_pairs, *finest) < SIGNIFICANCE / tests:
            # What exceeds noise says where the structure is; gaps and outliers have no say.
            distance = position[odd] - position[even]
            order = np.argsort(distance)
            share = np.cumsum(np.maximum(squares - 1.0, 0.0)[order])
            middle = min(int(np.searchsorted(share, 0.5 * share[-1])), n_pairs - 1)
            return Structure(level, float(distance[order[middle]]))
        merged = total[even] + total[odd]
        share = total[odd] / merged
        rest = slice(2 * n_pairs, None)
        position = np.append(position[even] * (1 - share) + position[odd] * share, position[rest])
        sums = np.append(sums[even] + sums[odd], sums[rest])
        total = np.append(merged, total[rest])
    return None


def _tail(size: float, n_pairs: int, finest_size: float, n_finest: int) -> float:
    """Probability of such a sum of squares of one scale, if residuals are noise, about."""
    probability = 1.0
    # Below twice the standard deviation there is no need of more digits.
    if size - n_pairs > math.sqrt(8 * n_pairs):
        probability = float(chi2.sf(size, n_pairs))
    ratio = size / n_pairs / max(finest_size / n_finest, np.finfo(float).tiny)
    if ratio - 1 > math.sqrt(8 / n_pairs + 8 / n_finest):
        probability = min(probability, float(f_distribution.sf(ratio, n_pairs, n_finest)))
    return 2 * probability


# Bins must resolve the finest scale with this share of the strongest differences within bins, by so
# many bins a block.
_FELT = 0.1
_BINS_PER_BLOCK = 2
_ROUNDING = 1e-10


def bins_too_wide(
    weights: Floats, information: Floats, squares: Floats, weight_scale: float, n_columns: int
) -> int:
    """Screen a target within the bins of one column.

    Parameters
    ----------
    weights, information : ndarray of shape (n_bins, n_cells)
        Σ w and Σ w y by equal parts of the bins.
    squares : ndarray of shape (n_bins,)
        Σ w y².
    weight_scale : float
        Mean weight of a row.
    n_columns : int
        How many are screened.

    Returns
    -------
    int
        Into how many parts each bin must be cut for the structure there; 1 where there is none.

    Notes
    -----
    As ``structure``, less each bin's own straight line, with the variance of the targets in the bin
    as that of the noise.
    """
    n_cells = weights.shape[1]
    if n_cells < 2:
        return 1
    total = np.maximum(weights.sum(axis=1), np.finfo(float).tiny)
    mean = information.sum(axis=1) / total
    noise = squares / total - mean**2
    # What rounding leaves of targets far from 0 is no variance.
    noise = np.where(noise > _ROUNDING * mean**2, noise, 0.0) * weight_scale
    position = np.arange(n_cells) - (weights @ np.arange(n_cells) / total)[:, None]
    rest = information - weights * mean[:, None]
    spread = np.maximum(np.sum(weights * position**2, axis=1), np.finfo(float).tiny)
    slope = np.sum(rest * position, axis=1) / spread
    rest = rest - weights * position * slope[:, None]
    n_levels = n_cells.bit_length() - 1
    significant, amplitudes = False, np.zeros(n_levels)
    for level in range(n_levels):
        even, odd = weights[:, ::2], weights[:, 1::2]
        seen = (even > 0) & (odd > 0) & (noise > 0)[:, None]
        n_pairs = int(np.count_nonzero(seen))
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = rest[:, ::2] / even - rest[:, 1::2] / odd
            expected = noise[:, None] * (1 / even + 1 / odd)
            total_squares = float(np.sum((difference**2 / expected)[seen]))
        if n_pairs >= _FEWEST_DIFFERENCES:
            amplitudes[level] = float(np.mean((difference**2 - expected)[seen]))
            tail = chi2.sf(total_squares, n_pairs)
            significant |= bool(tail < SIGNIFICANCE / (n_levels * max(n_columns, 1)))
        weights, rest = even + odd, rest[:, ::2] + rest[:, 1::2]
    if not significant or amplitudes.max() <= 0:
        return 1
    finest = int(np.argmax(amplitudes >= _FELT * amplitudes.max()))
    return _BINS_PER_BLOCK * n_cells // 2**finest


@dataclass(frozen=True)
class Start:
    """Where a search should start again.

    Attributes
    ----------
    kernels : list of kernels, one a term
    noise_variance : float
    mean : ndarray of shape (Σ U_d,)
        Functions at the points, roughly.
    terms : list of int
        Those whose kernels are others than before.
    gain : float
        Nats, the other terms as they are.
    """

    kernels: list[Kernel]
    noise_variance: float
    mean: Floats
    terms: list[int]
    gain: float


def finer_start(
    equations: Equations,
    kernels: list[Kernel],
    noise_variance: float,
    mean: Floats,
    *,
    free: list[tuple[str, ...]],
    noise_bounds: tuple[float, float],
    squares: float | None = None,
) -> Start | None:
    """Look for structure that a fit has left in its residuals, and for kernels that explain it.

    Term after term, the one that gains most first: its kernel and the noise maximise the likelihood
    of its partial residual, and what it explains is taken off before the others are screened again.

    Parameters
    ----------
    equations : Equations
    kernels : list of kernels, one a term
    noise_variance : float
    mean : ndarray of shape (Σ U_d,)
        Functions of the fit.
    free : list of tuples of str
        For each term, which of "lengthscale" and "variance" may change.
    noise_bounds : tuple of float
    squares : float, optional
        Weighted sum of squared residuals, where the equations do not know.

    Returns
    -------
    Start or None
        None where the residuals are noise, or no lengthscale explains them.
    """
    kernels = list(kernels)
    residuals = _Residuals(equations, mean.copy(), noise_variance, squares)
    changed: list[int] = []
    gained = 0.0
    for _ in range(min(2 * equations.layout.n_terms, _MOST_CHANGES)):
        best = residuals.best_change(kernels, free, noise_bounds)
        if best is None:
            break
        kernels[best.term] = best.candidate.kernel
        residuals.explain(best.term, best.candidate)
        changed.append(best.term)
        gained += best.gain
    if not changed:
        return None
    return Start(kernels, residuals.noise_variance, residuals.mean, sorted(set(changed)), gained)


class _Change(NamedTuple):
    """Another kernel and noise for one term, and the nats they gain."""

    gain: float
    term: int
    candidate: Candidate


class _Residuals:
    """What functions leave of the targets, while one term after the other changes."""

    def __init__(
        self, equations: Equations, mean: Floats, noise_variance: float, squares: float | None
    ) -> None:
        self.equations, self.layout = equations, equations.layout
        self.mean, self.noise_variance = mean, noise_variance
        self.fitted = equations.fitted(mean)
        self.squares = equations.squares(mean) if squares is None else squares

    def best_change(
        self,
        kernels: list[Kernel],
        free: list[tuple[str, ...]],
        noise_bounds: tuple[float, float],
    ) -> _Change | None:
        """Return the change of one term that gains most; None if none gains enough."""
        best: _Change | None = None
        for term in range(self.layout.n_terms):
            if "lengthscale" not in free[term]:
                continue
            cells, weight = self.layout.cells[term], self._weight(term)
            points = cells.line
            if points is None or cells.scale(weight) is None:
                continue
            noise = self.noise_variance
            score = self.fitted.residual(term)
            seen = structure(points, weight / noise, score / noise, self.layout.n_terms)
            if seen is None:
                continue
            scan = Scan.of(
                cells,
                weight,
                score,
                self.layout.part(self.mean, term),
                self.squares,
                self.equations.n_rows,
                seen.level,
            )
            gain, candidate = scan.best(
                kernels[term], noise, seen.distance, free[term], noise_bounds
            )
            if gain > max(LEAST_GAIN, best.gain if best else 0.0):
                best = _Change(gain, term, candidate)
        return best

    def explain(self, term: int, candidate: Candidate) -> None:
        """Give a term the posterior mean of its partial residual by another kernel and noise."""
        self.noise_variance = candidate.noise_variance
        cells, weight = self.layout.cells[term], self._weight(term)
        before = self.layout.part(self.mean, term).copy()
        information = self.fitted.residual(term) + weight * before
        solver = cells.solver(candidate.kernel, weight / self.noise_variance)
        after, _ = solver.solve(information / self.noise_variance)
        residual = information - weight * before
        change = after - before
        self.squares += float(np.sum(weight * change**2) - 2 * np.sum(residual * change))
        self.squares = max(self.squares, 0.0)
        self.fitted.add(term, change)
        self.layout.part(self.mean, term)[:] = after

    def _weight(self, term: int) -> Floats:
        return self.layout.part(self.equations.weight, term)
