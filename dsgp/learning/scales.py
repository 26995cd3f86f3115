"""Structure at scales that the search for hyperparameters has not covered.

The learners start at lengthscales of the column's width, on few nodes: a function that goes up and
down a hundred times is noise to them, and the likelihood is flat around there. What they miss is
left in the residuals. *Screen*: along each axis, neighbouring blocks of 1, 2, 4, … points
have means that differ by noise alone if nothing is left (Haar's wavelets, O(n) for all scales).
*Scan*: where they differ by more, the exact likelihood along the axis is computed for lengthscales
from the spacing of the points to the width of the column. Curves of several levels are one axis,
and no block spans two of them. ``learning.bin_widths`` looks for structure within bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from scipy.stats import f as f_distribution

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.terms import Cells, Codes, DenseCells, Floats, Observations

# Significance level of the screen, for all scales and terms together, if the residuals are white
# noise.
SIGNIFICANCE = 1e-3
# Smallest number of differences of blocks at a scale that is tested.
FEWEST_DIFFERENCES = 4
# Smallest gain of a lengthscale in the scan, in nats, with the other terms fixed.
LEAST_GAIN = 5.0
# Largest number of kernels that are changed before all terms are learned again.
_MOST_CHANGES = 32
# Lengthscales tried per octave, and the factor between the ratios of variance to noise that are
# tried.
_PER_OCTAVE = 2
_RATIO_STEP = 4.0
_SMALLEST_RATIO, _LARGEST_RATIO = 1e-6, 1e6
_SMALLEST_START = 1e-2
# The shortest lengthscale tried, in distances of the blocks that differ.
_SHORTER = 0.25
# On axes of at most so many points, lengthscales are tried whatever the result of the screen: it
# has little power with few points, and trying is cheap. A clear wave that was attributed to the
# noise varies least between neighbours, and only blocks of a quarter of its period show it.
_SCANNED_POINTS = 1024
_SCANNED_DENSE_POINTS = 256  # for kernels whose covariances are full matrices
# On axes of few points, where even a real wave may gain little, this gain is enough. What is
# learned from it is kept only if the whole likelihood gains.
_FEW_POINTS, _LEAST_GAIN_OF_FEW = 256, 2.0
# Largest number of points in a scan. Beyond, neighbours are merged as far as the scale allows.
_SCAN_POINTS = 2**16


class Structure(NamedTuple):
    """The finest scale at which residuals along an axis differ by more than noise.

    Attributes
    ----------
    level : int
        Blocks are of 2^level points.
    distance : float
        Typical distance of neighbouring blocks that differ, in units of the axis.
    """

    level: int
    distance: float


def structure(
    points: Floats, weight: Floats, score: Floats, n_axes: int, curve: Codes | None = None
) -> Structure | None:
    """Screen the residuals of a fit along one axis, in O(n_points).

    Parameters
    ----------
    points, weight, score : ndarray of shape (n_points,)
        Increasing; Σ w/σ² and Σ w/σ² (y − fit) of the rows at each.
    n_axes : int
        How many are screened.
    curve : ndarray of int, shape (n_points,), optional
        Of each point, where there are several curves one after the other: points increase within
        each, and no block belongs to two.

    Notes
    -----
    The difference of the weighted means of two neighbouring blocks of weights W₁ and W₂ has the
    variance 1/W₁ + 1/W₂ if residuals are noise, and all differences, of all scales, are
    independent: their squares over their variances add up to a χ² at each scale. Where the noise
    variance includes what was missed, the differences of neighbouring points are more informative:
    residuals of a fit that misses nothing vary most at the finest scale, so that the ratio of
    another scale to that one exceeds the F distribution only by chance.
    """
    used = weight > 0
    position, total, sums = points[used], weight[used], score[used]
    of_curve = np.zeros(len(total), dtype=np.int64) if curve is None else curve[used]
    tests = max(n_axes, 1) * max(len(position), 2).bit_length()
    for level in range(64):
        left = places_in_curves(of_curve) % 2 == 0
        even = np.flatnonzero(left[:-1] & ~left[1:])
        odd, n_pairs = even + 1, len(even)
        if n_pairs < FEWEST_DIFFERENCES:
            return None
        with np.errstate(over="ignore"):
            difference = sums[even] / total[even] - sums[odd] / total[odd]
            squares = difference**2 / (1 / total[even] + 1 / total[odd])
        size = float(np.sum(squares))
        if level == 0:
            finest = size, n_pairs
        if _tail(size, n_pairs, *finest) < SIGNIFICANCE / tests:
            # The squares in excess of the noise show where the structure is; gaps and outliers do
            # not affect this.
            distance = position[odd] - position[even]
            order = np.argsort(distance)
            share = np.cumsum(np.maximum(squares - 1.0, 0.0)[order])
            middle = min(int(np.searchsorted(share, 0.5 * share[-1])), n_pairs - 1)
            return Structure(level, float(distance[order[middle]]))
        # The last block of a curve may have no partner: it stays as it is.
        share = total[odd] / (total[even] + total[odd])
        position[even] = position[even] * (1 - share) + position[odd] * share
        sums[even] += sums[odd]
        total[even] += total[odd]
        position, sums, total, of_curve = position[left], sums[left], total[left], of_curve[left]
    return None


def places_in_curves(curve: Codes) -> Codes:
    """Count the points of each curve from 0, (n_points,); those of a curve are neighbours."""
    place = np.arange(len(curve))
    begins = np.flatnonzero(np.diff(curve, prepend=-1))
    return place - np.repeat(begins, np.diff(np.append(begins, len(curve))))


def _tail(size: float, n_pairs: int, finest_size: float, n_finest: int) -> float:
    """Approximate tail probability of a scale's sum of squares if the residuals are noise."""
    probability = 1.0
    # Below twice the standard deviation the exact probability is not needed.
    if size - n_pairs > math.sqrt(8 * n_pairs):
        probability = float(chi2.sf(size, n_pairs))
    ratio = size / n_pairs / max(finest_size / n_finest, np.finfo(float).tiny)
    if ratio - 1 > math.sqrt(8 / n_pairs + 8 / n_finest):
        probability = min(probability, float(f_distribution.sf(ratio, n_pairs, n_finest)))
    return 2 * probability


@dataclass(frozen=True)
class Start:
    """Where a search should start again.

    Attributes
    ----------
    kernels : list of kernels, one per term
    noise_variance : float
    mean : ndarray of shape (Σ U_d,)
        Approximate functions at the points.
    terms : list of int
        The terms whose kernels have changed.
    gain : float
        In nats, with the other terms fixed.
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
    by_screen: bool = False,
) -> Start | None:
    """Look for structure that a fit has left in its residuals, and for kernels that explain it.

    Term after term, the one that gains most first: its kernel and the noise maximise the likelihood
    of its partial residual, and what it explains is subtracted before the others are screened
    again.

    Parameters
    ----------
    equations : Equations
    kernels : list of kernels, one per term
    noise_variance : float
    mean : ndarray of shape (Σ U_d,)
        Functions of the fit.
    free : list of tuples of str
        For each term, which parameters of its kernel may change.
    noise_bounds : tuple of float
    squares : float, optional
        Weighted sum of squared residuals, where the equations do not know.
    by_screen : bool
        On axes of few points too, try lengthscales only if the screen shows structure.

    Returns
    -------
    Start or None
        None where the residuals are noise, or no lengthscale explains them.
    """
    layout = equations.layout
    mean, kernels = mean.copy(), list(kernels)
    fitted = equations.fitted(mean)
    squares = equations.squares(mean) if squares is None else squares
    changed: list[int] = []
    gained = 0.0
    for _ in range(min(2 * layout.n_terms, _MOST_CHANGES)):
        best: tuple[float, int, Candidate] | None = None
        for term in range(layout.n_terms):
            if not lengthscales_of(free[term]):
                continue
            cells, weight = layout.cells[term], layout.part(equations.weight, term)
            neighbours = cells.neighbours
            if neighbours is None or cells.scale(weight) is None:
                continue
            score = fitted.residual(term)
            seen = structure(
                neighbours.position,
                weight / noise_variance,
                score / noise_variance,
                layout.n_terms,
                neighbours.curve,
            )
            least = LEAST_GAIN
            if seen is None:
                is_dense = isinstance(cells, DenseCells)
                if by_screen or len(cells) > (
                    _SCANNED_DENSE_POINTS if is_dense else _SCANNED_POINTS
                ):
                    continue
                seen = Structure(0, 0.0)
                if len(cells) <= _FEW_POINTS:
                    least = _LEAST_GAIN_OF_FEW
            scan = Scan.of(
                cells, weight, score, layout.part(mean, term), squares, equations.n_rows, seen.level
            )
            gain, candidate = scan.best(
                kernels[term], noise_variance, seen, free[term], noise_bounds
            )
            if gain > max(least, best[0] if best else 0.0):
                best = gain, term, candidate
        if best is None:
            break
        gain, term, candidate = best
        cells, weight = layout.cells[term], layout.part(equations.weight, term)
        before = layout.part(mean, term).copy()
        information = fitted.residual(term) + weight * before
        kernels[term], noise_variance = candidate.kernel, candidate.noise_variance
        solver = cells.solver(candidate.kernel, weight / noise_variance)
        after, _ = solver.solve(information / noise_variance)
        residual = information - weight * before
        change = after - before
        squares += float(np.sum(weight * change**2) - 2 * np.sum(residual * change))
        squares = max(squares, 0.0)
        fitted.add(term, change)
        layout.part(mean, term)[:] = after
        changed.append(term)
        gained += gain
    if not changed:
        return None
    return Start(kernels, noise_variance, mean, sorted(set(changed)), gained)


class Candidate(NamedTuple):
    """A kernel and a noise variance, and their log likelihood up to a constant."""

    kernel: Kernel
    noise_variance: float
    value: float


@dataclass(frozen=True)
class Scan:
    """Exact likelihoods of a partial residual along an axis, the noise maximised out.

    To these the log densities of priors are added, where kernels have them.

    With K = s² C and r = s²/σ², log det(I + r C W) and the quadratic form q(r) do not depend on σ²
    otherwise, and σ² = (q + scatter within points) / N is best.
    """

    cells: Cells
    seen: Observations
    within: float
    n_rows: float

    @classmethod
    def of(
        cls,
        cells: Cells,
        weight: Floats,
        score: Floats,
        mean: Floats,
        squares: float,
        n_rows: float,
        level: int,
    ) -> Scan:
        used = weight > 0
        cells, weight = cells.subset(np.flatnonzero(used)), weight[used]
        rest = score[used] / weight
        target = rest + mean[used]
        within = squares - float(np.sum(weight * rest**2))
        # Blocks of a quarter of the points of those that differ still show the structure.
        merge = min(max(level - 2, 0), (len(cells) // _SCAN_POINTS).bit_length())
        if merge:
            neighbours = cells.neighbours
            assert neighbours is not None
            first = np.flatnonzero(places_in_curves(neighbours.curve) % 2**merge == 0)
            total = np.add.reduceat(weight, first)
            merged = np.add.reduceat(weight * target, first) / total
            within += float(np.sum(weight * target**2) - np.sum(total * merged**2))
            # Rounding may move a mean to a neighbouring point; the first point of the block serves
            # as well.
            cells, weight, target = cells.subset(first), total, merged
        return cls(cells, Observations(target, weight), max(within, 0.0), n_rows)

    def best(
        self,
        kernel: Kernel,
        noise_variance: float,
        seen: Structure,
        free: tuple[str, ...],
        noise_bounds: tuple[float, float],
    ) -> tuple[float, Candidate]:
        """Return the best of all lengthscales, and what it gains over the kernel's own."""
        scale = self.cells.scale(self.seen.weight)
        assert scale is not None
        width, shortest = scale.width, max(_SHORTER * seen.distance, scale.spacing)
        n_steps = max(math.ceil(_PER_OCTAVE * math.log2(max(width / shortest, 2.0))), 1)
        is_free = moves_freely(kernel, free)
        trial = self._free if is_free else self._fixed
        ratio = kernel.std**2 / noise_variance
        as_it_is = noise_bounds if is_free else (noise_variance, noise_variance)
        before = self._value(_with_variance(kernel, ratio), as_it_is)[1] + kernel.log_prior
        # The search does not begin at a term that has shrunk to nothing.
        ratio = min(max(ratio, _SMALLEST_START), 1 / _SMALLEST_START)
        best = Candidate(kernel, noise_variance, before)
        lengths = np.geomspace(shortest, max(width, 2 * shortest), n_steps + 1).tolist()
        # If a kernel has several lengthscales, one changes and the others stay.
        for name in lengthscales_of(free):
            for length in (kernel.value(name) or width, *lengths):
                tried = trial(kernel.with_parameters(**{name: length}), ratio, noise_bounds)
                if tried.value > best.value:
                    best = tried
                    ratio = tried.kernel.std**2 / tried.noise_variance
                    ratio = min(max(ratio, _SMALLEST_START), 1 / _SMALLEST_START)
        return best.value - before, best

    def _free(self, kernel: Kernel, ratio: float, noise_bounds: tuple[float, float]) -> Candidate:
        """Climb in the ratio of the variance to the noise."""

        def scaled(ratio: float, noise: float) -> Kernel:
            return _with_variance(kernel, ratio * noise)

        def at(ratio: float) -> tuple[float, float]:
            noise, value = self._value(_with_variance(kernel, ratio), noise_bounds)
            # Without priors the kernel itself need not be made.
            return noise, value + scaled(ratio, noise).log_prior if kernel.priors else value

        ratio, noise, value = _climbed(at, ratio)
        return Candidate(scaled(ratio, noise), noise, value)

    def _fixed(self, kernel: Kernel, ratio: float, noise_bounds: tuple[float, float]) -> Candidate:
        """Climb in the noise alone."""
        variance = kernel.std**2

        def at(ratio: float) -> tuple[float, float]:
            noise = min(max(variance / ratio, noise_bounds[0]), noise_bounds[1])
            _, value = self._value(_with_variance(kernel, variance / noise), (noise, noise))
            return noise, value + kernel.log_prior

        _, noise, value = _climbed(at, ratio)
        return Candidate(kernel, noise, value)

    def _value(self, unit: Kernel, noise_bounds: tuple[float, float]) -> tuple[float, float]:
        """Best noise, and the log likelihood up to a constant; ``unit`` is of noise 1."""
        quadratic, log_det = self.cells.likelihood_terms(unit, self.seen)
        total = quadratic + self.within
        noise = min(max(total / self.n_rows, noise_bounds[0]), noise_bounds[1])
        return noise, -0.5 * (self.n_rows * math.log(noise) + total / noise + log_det)


def lengthscales_of(names: tuple[str, ...]) -> list[str]:
    """Return those of a kernel's parameters that are lengthscales."""
    return [name for name in names if name.startswith("lengthscale")]


def moves_freely(kernel: Kernel, free: tuple[str, ...]) -> bool:
    """Whether all variances that scale the function may change."""
    scaled = kernel.scaled(2.0)
    changed = {name for name in kernel.parameters if scaled.value(name) != kernel.value(name)}
    return bool(changed) and changed <= set(free)


def _with_variance(kernel: Kernel, variance: float) -> Kernel:
    """Return the kernel of such a prior variance, the shares of its parts as they are."""
    return kernel.scaled(math.sqrt(variance) / kernel.std)


def _climbed(
    at: Callable[[float], tuple[float, float]], start: float
) -> tuple[float, float, float]:
    """Return the best ratio, and the noise variance and the value there, which ``at`` gives."""
    ratio = min(max(start, _SMALLEST_RATIO), _LARGEST_RATIO)
    noise, value = at(ratio)
    for factor in (_RATIO_STEP, 1 / _RATIO_STEP):
        moved = False
        while _SMALLEST_RATIO <= ratio * factor <= _LARGEST_RATIO:
            tried_noise, tried_value = at(ratio * factor)
            if tried_value <= value:
                break
            ratio, noise, value, moved = ratio * factor, tried_noise, tried_value, True
        if moved:
            break
    return ratio, noise, value
