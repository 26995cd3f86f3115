"""A field with gaps on disk, tile by tile, each given only the cells in it and a halo around it.

An approximation, named "tiles": cells beyond the halo are ignored. Its error is measured on one
tile, which is computed again with twice the halo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import MemoryLimitError
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.missing import CellSystem
from dsgp.grid.passes import regions
from dsgp.grid.passes.plan import MEAN, VARIANCE, Pass, Plan
from dsgp.grid.passes.regions import Region, lengths, relative
from dsgp.grid.passes.source import Layout, StoredField
from dsgp.grid.probes import local_excess
from dsgp.kernels import Periodic, Stationary

_MIB = 2.0**20
# Memory per cell of a tile and its halo: neighbours and coefficients of an observed cell, and the
# arrays of a solve.
_CELL_BYTES, _NEIGHBOUR_BYTES = 120, 12
# Cells of a tile without its halo, where memory allows: larger tiles are no faster.
_TILE_CELLS = 2**19
# Width of a halo in the longest lengthscales, and its largest width in cells.
_REACH, _MOST = 1.0, 24


@dataclass(frozen=True)
class Tiles:
    """The model of a field with gaps and how its tiles are solved; small, it travels with tasks.

    Parameters
    ----------
    points : tuple of ndarray
        Of the axes, ascending, in the order in which the field is stored.
    terms : tuple of tuple of Stationary
    noise_variance : float
    halo : tuple of int
        Cells on either side of a tile, along each axis.
    n_neighbours, tol, max_iter, seed
        Of a ``CellSystem``.
    constant_precision : float or None
        Reciprocal of the variance of the prior mean; None: it is known.
    """

    points: tuple[NDArray[np.float64], ...]
    terms: tuple[tuple[Stationary, ...], ...]
    noise_variance: float
    halo: tuple[int, ...]
    n_neighbours: int
    tol: float
    max_iter: int
    seed: int
    constant_precision: float | None = None

    def posterior(
        self, source: StoredField, region: Region, prior_mean: float, chain: str, halo: int = 1
    ) -> tuple[NDArray[np.float64], float]:
        """Mean, or variance, of a region given what is observed in it and its halo.

        Parameters
        ----------
        source : StoredField
        region : tuple of slice
            In the order in which the field is stored.
        prior_mean : float
        chain : "mean" or "variance"
        halo : int
            Width of the surroundings, in halos.

        Returns
        -------
        values : ndarray of the region's shape
            The mean is that of the residual.
        residual : float
            Of conjugate gradients; 0 for variances about a known constant.
        """
        system, inner = self._system(source, region, halo)
        if isinstance(system, SeparableSum):
            prior = system.variance + 1.0 / (self.constant_precision or math.inf)
            return np.full(lengths(region), 0.0 if chain == MEAN else prior), 0.0
        if chain == MEAN:
            values = source.read_stored(_widened(region, self.halo, halo, source.shape))
            done = system.dual(np.nan_to_num(values - prior_mean))
            return system.mean(done.solution)[inner], done.residual
        where = np.zeros(system.prior.shape, dtype=bool)
        where[inner] = True
        variance = system.local_variance(where=where)[inner]
        if self.constant_precision is None:
            return variance, 0.0
        done = system.dual(np.ones(system.prior.shape))
        share = 1.0 - system.mean(done.solution)[inner]
        variance += share**2 / self.constant_precision
        return variance, done.residual

    def excess(self, source: StoredField, region: Region) -> float:
        """Mean relative excess of local standard deviations at a few cells of a region."""
        system, inner = self._system(source, region, 1)
        if isinstance(system, SeparableSum):
            return 0.0
        where = np.zeros(system.prior.shape, dtype=bool)
        where[inner] = True
        return local_excess(system, np.flatnonzero(where), self.seed)

    def _system(
        self, source: StoredField, region: Region, halo: int
    ) -> tuple[CellSystem | SeparableSum, Region]:
        """Make the system of a region and its halo; where nothing is observed, it is the prior."""
        wide = _widened(region, self.halo, halo, source.shape)
        observed = np.isfinite(source.read_stored(wide))
        prior = SeparableSum(
            tuple(axis_points[part] for axis_points, part in zip(self.points, wide, strict=True)),
            self.terms,
        )
        if not observed.any():
            return prior, relative(region, wide)
        system = CellSystem(
            prior,
            observed,
            self.noise_variance,
            n_neighbours=self.n_neighbours,
            tol=self.tol,
            max_iter=self.max_iter,
            seed=self.seed,
        )
        return system, relative(region, wide)


def _widened(
    region: Region, halo: tuple[int, ...], times: int, shape: tuple[int, ...]
) -> tuple[slice, ...]:
    return tuple(
        slice(max(part.start - times * reach, 0), min(part.stop + times * reach, n))
        for part, reach, n in zip(region, halo, shape, strict=True)
    )


def halo_of(
    points: Sequence[NDArray[np.float64]], terms: Sequence[Sequence[Stationary]]
) -> tuple[int, ...]:
    """Choose how many cells around a tile are used with it, along each axis.

    An axis with a periodic kernel is used as a whole: its ends are near each other.
    """
    out = []
    for d, axis_points in enumerate(points):
        if any(isinstance(term[d], Periodic) for term in terms):
            out.append(len(axis_points) - 1)
            continue
        step = float(np.median(np.diff(axis_points))) if len(axis_points) > 1 else np.inf
        longest = max(float(term[d].lengthscale or 0.0) for term in terms)
        out.append(int(min(math.ceil(_REACH * longest / step), _MOST, len(axis_points) - 1)))
    return tuple(out)


def plan_tiles(
    layout: Layout, halo: tuple[int, ...], memory: float, dtype: str, n_neighbours: int = 30
) -> Plan:
    """Choose tiles: whole chunks, as near to cubes as the memory allows.

    An axis that is used as a whole is not cut.

    Raises
    ------
    MemoryLimitError
        If a chunk and its halo do not fit.
    """
    shape = layout.shape
    unit = tuple(min(c, n) for c, n in zip(layout.chunks or _unchunked(shape), shape, strict=True))
    block = [n if h >= n - 1 else u for u, h, n in zip(unit, halo, shape, strict=True)]
    cell = _CELL_BYTES + _NEIGHBOUR_BYTES * n_neighbours
    if cell * _wide(block, halo, shape) > memory:
        raise MemoryLimitError(
            f"a tile of one chunk {unit} and its halo {halo} needs "
            f"{cell * _wide(block, halo, shape) / _MIB:.3g} MiB, and a task may take "
            f"{memory / _MIB:.3g} MiB: give workers more memory or fewer threads, or store the "
            "field in smaller chunks"
        )
    while True:
        # The axis along which the halo is largest, among those along which the tile can still grow.
        order = sorted(
            (d for d in range(len(shape)) if block[d] < shape[d]),
            key=lambda d: block[d] / (halo[d] + 1),
        )
        for d in order:
            grown = list(block)
            grown[d] = min(block[d] + unit[d], shape[d])
            if math.prod(grown) <= _TILE_CELLS and cell * _wide(grown, halo, shape) <= memory:
                block = grown
                break
        else:
            break
    cells = math.prod(shape)
    size = np.dtype(dtype).itemsize
    n_tiles = math.prod(regions.n_blocks(shape, block))
    axes = tuple(range(len(shape)))
    return Plan(
        shape=shape,
        groups=(axes,),
        chunks=unit,
        output_chunks=unit,
        passes=(Pass(axes, tuple(block), (MEAN, VARIANCE)),),
        dtype=dtype,
        intermediate_dtype=dtype,
        task_bytes=cell * _wide(block, halo, shape),
        bytes_read=2 * n_tiles * _wide(block, halo, shape) * layout.itemsize,
        bytes_written=2 * cells * size,
        disk_bytes=2 * cells * size,
    )


def _unchunked(shape: tuple[int, ...]) -> tuple[int, ...]:
    return regions.filled(shape, (1,) * len(shape), 2**17)


def _wide(block: Sequence[int], halo: Sequence[int], shape: Sequence[int]) -> int:
    return math.prod(min(b + 2 * h, n) for b, h, n in zip(block, halo, shape, strict=True))


def tile_error(
    source: StoredField, tiles: Tiles, plan: Plan, prior_mean: float
) -> dict[str, float]:
    """Compare the middle of one tile with itself under twice the halo, and local variances.

    Returns
    -------
    dict
        "mean": root mean square difference of the means over the root mean square standard
        deviation. "std": mean relative change of the standard deviation. "local": mean relative
        excess of local standard deviations over exact ones at a few cells.
    """
    region = _checked(source, tiles, plan)
    (one, _), (two, _) = (
        tiles.posterior(source, region, prior_mean, MEAN, halo) for halo in (1, 2)
    )
    (v_one, _), (v_two, _) = (
        tiles.posterior(source, region, prior_mean, VARIANCE, halo) for halo in (1, 2)
    )
    return {
        "mean": float(np.sqrt(np.mean((one - two) ** 2) / np.mean(v_two))),
        "std": float(abs(np.sqrt(np.mean(v_one) / np.mean(v_two)) - 1.0)),
        "local": tiles.excess(source, region),
    }


def _checked(source: StoredField, tiles: Tiles, plan: Plan) -> Region:
    """Choose a region whose double halo takes no more memory than a task, and that has values."""
    n_tiles = plan.n_regions(0)
    cells = _wide(plan.passes[0].block, tiles.halo, plan.shape)
    twice = tuple(2 * reach for reach in tiles.halo)
    best: tuple[int, Region] | None = None
    for index in sorted({n_tiles // 2, n_tiles // 4, 3 * n_tiles // 4, 0, n_tiles - 1}):
        region = list(plan.region(0, index))
        while _wide(lengths(tuple(region)), twice, plan.shape) > cells:
            d = max(range(len(region)), key=lambda axis: region[axis].stop - region[axis].start)
            size = region[d].stop - region[d].start
            if size == 1:
                break
            start = region[d].start + size // 4
            region[d] = slice(start, start + size // 2)
        chosen = tuple(region)
        count = int(np.isfinite(source.read_stored(chosen)).sum())
        if best is None or count > best[0]:
            best = count, chosen
    assert best is not None
    return best[1]
