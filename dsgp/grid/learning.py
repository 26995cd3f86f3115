"""Learning the hyperparameters of a field: from all of it, from a sample of cells, or from parts.

Likelihoods and searches are in `dsgp.grid.fit` and `dsgp.grid.fit_cells`; this module chooses among
them, and the cells that they use.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.errors import DataWarning, ParameterError
from dsgp.grid.axes import GridAxis
from dsgp.grid.field import Field
from dsgp.grid.fit import (
    DENSE,
    Hyperparameters,
    NoiseStart,
    below_step,
    learn_complete,
    starts,
    step_of,
)
from dsgp.grid.fit_cells import Piece, learn_cells
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.passes import tile_regions
from dsgp.grid.scales import other_scales_show
from dsgp.grid.systems import complete_system
from dsgp.kernels import Stationary
from dsgp.terms import Floats

# Complete fields of more cells than the first number are learned from parts: their number, and the
# cells of each.
LEARN_CELLS = 2**22
TILES, _TILE_CELLS = 4, 2**18
# Complete fields of more cells have one scale, because sums of several are solved iteratively.
LARGEST_SUM = 2**20

Sums = Sequence[Sequence[Sequence[Stationary]]]


@dataclass(frozen=True)
class Learned:
    """Hyperparameters, and a description of what they were learned from."""

    hyperparameters: Hyperparameters
    source: str


@dataclass(frozen=True)
class GridLearner:
    """What a fit learns, and how.

    Attributes
    ----------
    keeps_given : bool
        Nothing is learned.
    scales : int, "auto" or None
        Number of terms of the covariance; with a number, all terms are used.
    n_neighbours, seed : int
        Of Vecchia's likelihood.
    constant_is_unknown : bool
        Whether the prior mean has a constant that is integrated out.
    """

    keeps_given: bool
    scales: int | str | None
    n_neighbours: int
    seed: int
    constant_is_unknown: bool

    def of_field(
        self,
        field: Field,
        y: Floats,
        sums: Sums,
        effects: Sequence[Sequence[Stationary]],
        noise: NoiseStart | Floats,
    ) -> Learned:
        """Learn from a field in memory.

        Parameters
        ----------
        field : Field
        y : ndarray of the field's shape
            Residuals of the prior mean; 0 where missing.
        sums : sequence of sums of kernels
            Those among which it chooses, by their number of terms.
        effects : sequence of terms
            Of a climatology.
        noise : NoiseStart, or ndarray of the field's shape
            An array: the variance at each cell, which is known.
        """
        points = [axis.points for axis in field.axes]
        several = isinstance(self.scales, (int, np.integer)) and self.scales > 1
        gaps = field.observed is not None
        if isinstance(noise, np.ndarray) or gaps or several or effects or len(sums[0]) != 1:
            return self._of_cells(field, y, sums, effects, noise)
        one = self._of_complete(field.axes, y, sums[0][0], noise)
        if len(sums) > 1 and self._may_be_a_sum(one.hyperparameters, points, y):
            more = self._of_cells(field, y, sums, effects, noise, one.hyperparameters)
            if len(more.hyperparameters.terms) > 1:
                return more
        return one

    def of_parts(
        self,
        parts: Sequence[tuple[Any, Floats]],
        axes: Sequence[GridAxis],
        mean: float,
        sums: Sums,
        noise: NoiseStart,
        gaps: bool,
    ) -> Learned:
        """Learn from parts of a field on disk.

        Parameters
        ----------
        parts : sequence of (region, values)
            NaN where missing.
        axes : sequence of GridAxis
        mean : float
            The prior mean.
        sums : sequence of sums of kernels
        noise : NoiseStart
        gaps : bool
            Whether values may be missing.
        """
        points = [axis.points for axis in axes]
        if self.keeps_given:
            return _keep_given(sums[-1], axes, noise)
        whole = len(parts) == 1
        source = "the whole field" if whole else f"{len(parts)} parts of {parts[0][1].size} cells"
        residuals = [
            ([p[part] for p, part in zip(points, region, strict=True)], values - mean)
            for region, values in parts
        ]
        if not gaps:
            hyperparameters = learn_complete(
                sums[0][0], residuals, points, noise, unknown_constant=self.constant_is_unknown
            )
            return Learned(hyperparameters, source)
        pieces = [
            Piece(p, np.nan_to_num(values), ~np.isnan(values))
            for p, values in residuals
            if not np.isnan(values).all()
        ]
        variance = float(np.nanvar(np.concatenate([values.ravel() for _, values in residuals])))
        begin = [starts(terms, points, variance, noise) for terms in sums]
        return Learned(self._from_pieces(begin, pieces, points), source)

    def _of_complete(
        self, axes: Sequence[GridAxis], y: Floats, term: Sequence[Stationary], noise: NoiseStart
    ) -> Learned:
        points = [axis.points for axis in axes]
        if self.keeps_given:
            return _keep_given([term], axes, noise)
        pieces: list[tuple[Sequence[Floats], Floats]] = [(points, y)]
        source = "the whole field"
        if y.size > LEARN_CELLS and max(y.shape) ** 2 < y.size:
            regions = tile_regions(y.shape, TILES, tile_size(y.shape))
            pieces = [
                ([p[part] for p, part in zip(points, region, strict=True)], y[region].copy())
                for region in regions
            ]
            source = f"{len(regions)} parts of {pieces[0][1].size} cells"
        hyperparameters = learn_complete(
            term, pieces, points, noise, unknown_constant=self.constant_is_unknown
        )
        return Learned(hyperparameters, source)

    def _may_be_a_sum(self, one: Hyperparameters, points: list[Floats], y: Floats) -> bool:
        """Whether a complete field is to be tried with several scales."""
        if y.size > LARGEST_SUM or bytes_with_gaps(y.size, self.n_neighbours) > memory.available():
            return False
        system = complete_system(points, one.terms[0], one.noise)
        return not isinstance(system, KroneckerSystem) or other_scales_show(system, y)

    def _of_cells(
        self,
        field: Field,
        y: Floats,
        sums: Sums,
        effects: Sequence[Sequence[Stationary]],
        noise: NoiseStart | Floats,
        first: Hyperparameters | None = None,
    ) -> Learned:
        """Learn from observed cells; ``first`` has initial values of one term, if known."""
        points = [axis.points for axis in field.axes]
        shape: float | Floats = 1.0
        if isinstance(noise, np.ndarray):
            shape, noise = noise, NoiseStart(1.0, is_fixed=True)
        if self.keeps_given:
            return _keep_given(sums[-1], field.axes, noise)
        seen = np.ones(field.shape, dtype=bool) if field.observed is None else field.observed
        variance = float(np.var(y[seen]))
        begin = [starts(terms, points, variance, noise) for terms in sums]
        if first is not None:
            begin[0] = first
        of_effects: Sequence[Sequence[Stationary]] = ()
        if effects:
            of_effects = starts(effects, points, variance, noise).terms
        source = (
            "all observed cells"
            if field.n_observed <= DENSE
            else "a sample of the observed cells, given their neighbours (Vecchia)"
        )
        piece = Piece(points, y, seen, shape)
        return Learned(self._from_pieces(begin, [piece], points, of_effects), source)

    def _from_pieces(
        self,
        begin: list[Hyperparameters],
        pieces: list[Piece],
        points: list[Floats],
        effects: Sequence[Sequence[Stationary]] = (),
    ) -> Hyperparameters:
        return learn_cells(
            begin,
            pieces,
            points,
            n_neighbours=self.n_neighbours,
            seed=self.seed,
            unknown_constant=self.constant_is_unknown,
            all_scales=isinstance(self.scales, (int, np.integer)),
            effects=effects,
        )


def bytes_with_gaps(n_cells: int, n_neighbours: int) -> float:
    """Memory that iterative solves of a field of ``n_cells`` cells take."""
    return 8.0 * n_cells * (10 + 1.5 * n_neighbours)


def tile_size(shape: Sequence[int]) -> list[int]:
    """Cells along each axis of a part to learn from, as a cube as far as the axes allow."""
    size = [1] * len(shape)
    left = float(_TILE_CELLS)
    for rank, d in enumerate(np.argsort(shape)):
        size[d] = int(min(shape[d], max(left ** (1 / (len(shape) - rank)), 1)))
        left /= size[d]
    return size


def warn_of_short(hyperparameters: Hyperparameters, axes: Sequence[GridAxis]) -> None:
    """Warn of learned lengthscales below the step of their axis."""
    points = [axis.points for axis in axes]
    below = below_step(hyperparameters, points)
    for d, axis in enumerate(axes):
        lengths = [hyperparameters.terms[c][d].lengthscale for c in np.flatnonzero(below[:, d])]
        if lengths:
            listed = ", ".join(f"{length:.3g}" for length in lengths)
            warnings.warn(
                f"dim {axis.name!r}: the learned lengthscale {listed} is below the step of "
                f"{step_of(points[d]):.3g} {axis.unit or ''}".rstrip()
                + ": that part of the field is nearly independent from step to step, and nothing "
                "is known about it between steps; if that is wrong, give a kernel with a fixed "
                "lengthscale, or fewer scales",
                DataWarning,
                stacklevel=5,
            )


def _keep_given(
    terms: Sequence[Sequence[Stationary]], axes: Sequence[GridAxis], noise: NoiseStart
) -> Learned:
    """Return the given hyperparameters unchanged.

    Raises
    ------
    ParameterError
        If one of them is not given.
    """
    for term in terms:
        for axis, kernel in zip(axes, term, strict=True):
            if len(axis) > 1 and kernel.lengthscale is None:
                raise ParameterError(
                    f"learner=None keeps the given values, and the kernel of dim {axis.name!r}, "
                    f"{kernel!r}, has no lengthscale; give it one"
                )
        if all(kernel.variance is None for kernel in term):
            raise ParameterError(
                "learner=None keeps the given values, and no kernel has a variance; give it to "
                f"that of {axes[0].name!r}"
            )
    if noise.variance is None:
        raise ParameterError("learner=None keeps the given values; give noise_variance=")
    return Learned(starts(terms, [axis.points for axis in axes], 1.0, noise), "nothing: given")
