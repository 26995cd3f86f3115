"""A field with gaps on disk, tile by tile: each with a halo of neighbours, as if that were all.

An approximation, named "tiles": what lies beyond the halo is not seen. How much that changes is
told by one tile computed again with twice the halo.
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
from dsgp.kernels import Kernel

_MIB = 2.0**20
# Bytes a cell of a tile and its halo takes: the neighbours and coefficients of an observed one, and
# the arrays of a solve.
_CELL_BYTES = 12 * 30 + 120
# Cells of a tile without its halo, where memory allows: more are no faster.
_TILE_CELLS = 2**19
# A halo reaches over so many of the longest lengthscales, and over so many cells at most.
_REACH, _MOST = 1.0, 24


@dataclass(frozen=True)
class Tiles:
    """The model of a field with gaps and how its tiles are solved; small, it travels with tasks.

    Parameters
    ----------
    points : tuple of ndarray
        Of the axes, ascending, in the order in which the field is stored.
    terms : tuple of tuple of Kernel
    noise_variance : float
    halo : tuple of int
        Cells on either side of a tile, along each axis.
    n_neighbours, tol, max_iter, seed
        Of a ``CellSystem``.
    """

    points: tuple[NDArray[np.float64], ...]
    terms: tuple[tuple[Kernel, ...], ...]
    noise_variance: float
    halo: tuple[int, ...]
    n_neighbours: int
    tol: float
    max_iter: int
    seed: int

    def posterior(
        self, source: StoredField, region: Region, prior_mean: float, chain: str, halo: int = 1
    ) -> NDArray[np.float64]:
        """Mean, or variance, of a region given what is observed in it and its halo.

        Parameters
        ----------
        source : StoredField
        region : tuple of slice
            In the order in which the field is stored.
        prior_mean : float
        chain : "mean" or "variance"
        halo : int
            How many halos wide the surroundings are.
        """
        wide = tuple(
            slice(max(part.start - halo * reach, 0), min(part.stop + halo * reach, n))
            for part, reach, n in zip(region, self.halo, source.shape, strict=True)
        )
        values = source.read_stored(wide)
        observed = np.isfinite(values)
        inner = relative(region, wide)
        prior = SeparableSum(
            tuple(own[part] for own, part in zip(self.points, wide, strict=True)), self.terms
        )
        if not observed.any():
            return np.full(lengths(region), 0.0 if chain == MEAN else prior.variance)
        system = CellSystem(
            prior,
            observed,
            self.noise_variance,
            n_neighbours=self.n_neighbours,
            tol=self.tol,
            max_iter=self.max_iter,
            seed=self.seed,
        )
        if chain == MEAN:
            y = np.where(observed, values - prior_mean, 0.0)
            return system.mean(system.dual(y).solution)[inner]
        where = np.zeros(observed.shape, dtype=bool)
        where[inner] = True
        return system.local_variance(where=where)[inner]


def halo_of(
    points: Sequence[NDArray[np.float64]], terms: Sequence[Sequence[Kernel]]
) -> tuple[int, ...]:
    """Choose how many cells around a tile are seen with it, along each axis."""
    out = []
    for d, own in enumerate(points):
        step = float(np.median(np.diff(own))) if len(own) > 1 else np.inf
        longest = max(float(term[d].lengthscale or 0.0) for term in terms)
        out.append(int(min(math.ceil(_REACH * longest / step), _MOST, len(own) - 1)))
    return tuple(out)


def plan_tiles(layout: Layout, halo: tuple[int, ...], memory: float, dtype: str) -> Plan:
    """Choose tiles: whole chunks, as near to cubes as the memory allows.

    Raises
    ------
    MemoryLimitError
        If a chunk and its halo do not fit.
    """
    shape = layout.shape
    unit = tuple(min(c, n) for c, n in zip(layout.chunks or _unchunked(shape), shape, strict=True))
    block = list(unit)
    if _bytes(block, halo, shape) > memory:
        raise MemoryLimitError(
            f"a tile of one chunk {unit} and its halo {halo} needs "
            f"{_bytes(block, halo, shape) / _MIB:.3g} MiB, and a task may take "
            f"{memory / _MIB:.3g} MiB: give workers more memory or fewer threads, or store the "
            "field in smaller chunks"
        )
    while True:
        # The axis on which the halo weighs most, among those that can still grow.
        order = sorted(
            (d for d in range(len(shape)) if block[d] < shape[d]),
            key=lambda d: block[d] / (halo[d] + 1),
        )
        for d in order:
            grown = list(block)
            grown[d] = min(block[d] + unit[d], shape[d])
            if math.prod(grown) <= _TILE_CELLS and _bytes(grown, halo, shape) <= memory:
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
        task_bytes=int(_bytes(block, halo, shape)),
        bytes_read=2 * n_tiles * _wide(block, halo, shape) * layout.itemsize,
        bytes_written=2 * cells * size,
        disk_bytes=2 * cells * size,
    )


def _unchunked(shape: tuple[int, ...]) -> tuple[int, ...]:
    return regions.filled(shape, (1,) * len(shape), 2**17)


def _wide(block: Sequence[int], halo: Sequence[int], shape: Sequence[int]) -> int:
    return math.prod(min(b + 2 * h, n) for b, h, n in zip(block, halo, shape, strict=True))


def _bytes(block: Sequence[int], halo: Sequence[int], shape: Sequence[int]) -> float:
    return float(_CELL_BYTES * _wide(block, halo, shape))


def tile_error(
    source: StoredField, tiles: Tiles, plan: Plan, prior_mean: float
) -> dict[str, float]:
    """Compare one tile with itself under twice the halo.

    Returns
    -------
    dict
        "mean": root mean square difference of the means over the root mean square standard
        deviation. "std": largest relative excess of the standard deviation.
    """
    region = plan.region(0, plan.n_regions(0) // 2)
    one, two = (tiles.posterior(source, region, prior_mean, MEAN, halo) for halo in (1, 2))
    v_one, v_two = (tiles.posterior(source, region, prior_mean, VARIANCE, halo) for halo in (1, 2))
    return {
        "mean": float(np.sqrt(np.mean((one - two) ** 2) / np.mean(v_two))),
        "std": float(np.sqrt(np.max(v_one / np.maximum(v_two, 1e-300))) - 1.0),
    }
