"""Approximate variances compared with exact ones, by a solve each, at a few cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsgp.grid.missing import CellSystem
from dsgp.terms import Floats

# Number of cells at which variances are compared.
_PROBES = 6


def local_excess(system: CellSystem, places: NDArray[np.intp], seed: int) -> float:
    """Mean relative excess of local standard deviations over exact ones, at a sample of cells.

    ``places`` are of the flattened grid; the cells are drawn by ``seed``.
    """
    chosen = _drawn(places, _PROBES, seed)
    where = np.zeros(system.prior.shape, dtype=bool)
    where.reshape(-1)[chosen] = True
    return float(np.mean(_ratios(system, chosen, system.local_variance(where=where))) - 1.0)


def spectral_error(system: CellSystem, places: NDArray[np.intp], seed: int) -> float:
    """Root mean square of the relative error of spectral standard deviations, in the same way.

    From twice as many cells: these errors have both signs, and are larger at few cells.
    """
    assert system.spectral is not None
    ratios = _ratios(system, _drawn(places, 2 * _PROBES, seed), system.spectral.variance())
    return float(np.sqrt(np.mean((ratios - 1.0) ** 2)))


def _drawn(places: NDArray[np.intp], count: int, seed: int) -> NDArray[np.intp]:
    random = np.random.default_rng([seed, 2])
    return random.choice(places, min(count, len(places)), replace=False)


def _ratios(system: CellSystem, chosen: NDArray[np.intp], variance: Floats) -> Floats:
    """Return approximate over exact standard deviations at some cells; 1 where nothing is left."""
    ratios = []
    for flat in chosen:
        index = np.unravel_index(flat, system.prior.shape)
        place = [
            float(axis_points[i]) for axis_points, i in zip(system.prior.points, index, strict=True)
        ]
        exact = system.variance_at(place)
        ratios.append(np.sqrt(variance.reshape(-1)[flat] / exact) if exact > 0 else 1.0)
    return np.array(ratios)
