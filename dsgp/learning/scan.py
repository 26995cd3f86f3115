"""The exact likelihood of one term's partial residual, for lengthscales from fine to coarse.

Whether and where a scan is worth its time is said by the screen in `dsgp.learning.scales`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsgp.kernels import Kernel
from dsgp.terms import Cells, Floats, Observations

# Lengthscales tried per octave; factor between the ratios of variance to noise that are tried.
_PER_OCTAVE = 2
_RATIO_STEP = 4.0
_SMALLEST_RATIO, _LARGEST_RATIO = 1e-6, 1e6
# A variance relative to the noise that a search begins from, at least; its inverse at most.
_SMALLEST_START = 1e-2
# The shortest lengthscale worth trying, in distances of the blocks that differ.
_SHORTER = 0.25
# Points of an axis that is scanned; beyond, neighbours are merged as far as the scale allows.
_SCAN_POINTS = 2**16


class Candidate(NamedTuple):
    """A kernel and a noise variance, and their log likelihood but for a constant."""

    kernel: Kernel
    noise_variance: float
    value: float


@dataclass(frozen=True)
class Scan:
    """Exact likelihoods of a partial residual along an axis, the noise maximised out.

    With K = s² C and r = s²/σ², log det(I + r C W) and the quadratic form q(r) do not depend on σ²
    otherwise, and σ² = (q + scatter within points) / N is best.
    """

    cells: Cells
    seen: Observations
    within: float
    n_rows: int

    @classmethod
    def of(
        cls,
        cells: Cells,
        weight: Floats,
        score: Floats,
        mean: Floats,
        squares: float,
        n_rows: int,
        level: int,
    ) -> Scan:
        """Prepare the partial residual of a term.

        Parameters
        ----------
        cells : Cells
        weight, score, mean : ndarray of shape (n_cells,)
            Σ w, Σ w (y − fit) and the term's function at each.
        squares : float
            Weighted sum of squared residuals.
        n_rows : int
        level : int
            Blocks of 2^level cells differ by more than noise.
        """
        used = weight > 0
        cells, weight = cells.subset(np.flatnonzero(used)), weight[used]
        rest = score[used] / weight
        target = rest + mean[used]
        within = squares - float(np.sum(weight * rest**2))
        # Blocks of fewer points than those that differ by a factor of four still show it.
        merge = min(max(level - 2, 0), (len(cells) // _SCAN_POINTS).bit_length())
        if merge:
            first = np.arange(0, len(cells), 2**merge)
            total = np.add.reduceat(weight, first)
            merged = np.add.reduceat(weight * target, first) / total
            within += float(np.sum(weight * target**2) - np.sum(total * merged**2))
            # Rounding of a mean may leave it at a neighbour; the first point will do as well.
            cells, weight, target = cells.subset(first), total, merged
        return cls(cells, Observations(target, weight), max(within, 0.0), n_rows)

    def best(
        self,
        kernel: Kernel,
        noise_variance: float,
        distance: float,
        free: tuple[str, ...],
        noise_bounds: tuple[float, float],
    ) -> tuple[float, Candidate]:
        """Return the best of all lengthscales, and what it gains over the kernel's own.

        ``distance`` is that between the blocks that differ; ``free`` are the kernel's parameters
        that may change.
        """
        scale = self.cells.scale(self.seen.weight)
        assert scale is not None
        width, shortest = scale.width, max(_SHORTER * distance, scale.spacing)
        n_steps = max(math.ceil(_PER_OCTAVE * math.log2(max(width / shortest, 2.0))), 1)
        trial = self._free if "variance" in free else self._fixed
        ratio = kernel.std**2 / noise_variance
        as_it_is = noise_bounds if "variance" in free else (noise_variance, noise_variance)
        before = self._value(kernel.with_parameters(variance=ratio), as_it_is)[1]
        # A term that has shrunk to nothing is no place to start from.
        ratio = min(max(ratio, _SMALLEST_START), 1 / _SMALLEST_START)
        best = Candidate(kernel, noise_variance, before)
        lengths = np.geomspace(shortest, max(width, 2 * shortest), n_steps + 1)
        for length in (float(kernel.value("lengthscale") or width), *lengths):
            tried = trial(kernel.with_parameters(lengthscale=float(length)), ratio, noise_bounds)
            if tried.value > best.value:
                best = tried
                ratio = tried.kernel.std**2 / tried.noise_variance
                ratio = min(max(ratio, _SMALLEST_START), 1 / _SMALLEST_START)
        return best.value - before, best

    def _free(self, kernel: Kernel, ratio: float, noise_bounds: tuple[float, float]) -> Candidate:
        """Climb in the ratio of the variance to the noise."""

        def at(ratio: float) -> Candidate:
            noise, value = self._value(kernel.with_parameters(variance=ratio), noise_bounds)
            return Candidate(kernel.with_parameters(variance=ratio * noise), noise, value)

        return _climbed(at, ratio)

    def _fixed(self, kernel: Kernel, ratio: float, noise_bounds: tuple[float, float]) -> Candidate:
        """Climb in the noise alone."""
        variance = kernel.std**2

        def at(ratio: float) -> Candidate:
            noise = min(max(variance / ratio, noise_bounds[0]), noise_bounds[1])
            _, value = self._value(
                kernel.with_parameters(variance=variance / noise), (noise, noise)
            )
            return Candidate(kernel, noise, value)

        return _climbed(at, ratio)

    def _value(self, unit: Kernel, noise_bounds: tuple[float, float]) -> tuple[float, float]:
        """Best noise, and the log likelihood but for a constant; ``unit`` is of noise 1."""
        quadratic, log_det = self.cells.likelihood_terms(unit, self.seen)
        total = quadratic + self.within
        noise = min(max(total / self.n_rows, noise_bounds[0]), noise_bounds[1])
        return noise, -0.5 * (self.n_rows * math.log(noise) + total / noise + log_det)


def _climbed(at: Callable[[float], Candidate], start: float) -> Candidate:
    start = min(max(start, _SMALLEST_RATIO), _LARGEST_RATIO)
    best, ratio = at(start), start
    for factor in (_RATIO_STEP, 1 / _RATIO_STEP):
        moved = False
        while _SMALLEST_RATIO <= ratio * factor <= _LARGEST_RATIO:
            tried = at(ratio * factor)
            if tried.value <= best.value:
                break
            best, ratio, moved = tried, ratio * factor, True
        if moved:
            break
    return best
