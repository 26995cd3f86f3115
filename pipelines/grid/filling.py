"""A field with gaps: cells held out, the gaps filled with and without a process, and the errors.

Files and masks of cells are in ``pipelines.datasets.fields``, peers in ``pipelines.peers.gaps``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.ndimage import gaussian_filter

from dsgp import GridGP
from dsgp.metrics import coverage
from dsgp.progress import progress
from dsgp.terms import Floats
from pipelines.datasets.fields import HeldOut
from pipelines.peers.gaps import Dineof, linear
from pipelines.reporting import Stopwatch

OURS, LINEAR, DINEOF = "GridGP", "linear interpolation", "DINEOF"
SYNTHETIC = "synthetic"
LEVEL = 0.95


@dataclass(frozen=True)
class Known:
    """A field of the data folder, and its default treatment.

    Attributes
    ----------
    file : str
        Its name there.
    side : int
        Cells along a side of the blocks held out.
    mean : str
        Of the process, see ``GridGP``.
    """

    file: str
    side: int = 20
    mean: str = "constant"


FIELDS = {
    "alboran": Known("alboran_sst_avhrr"),
    "ersst": Known("ersst_v5_monthly", 6),
    "ostia": Known("ostia_tropics_monthly", 6),
    SYNTHETIC: Known(SYNTHETIC, 8),
}
OTHER = Known("")


@dataclass(frozen=True, eq=False)
class Filling:
    """What the methods made of the held-out cells.

    Attributes
    ----------
    model : GridGP
    posterior : Dataset
        ``mean`` and ``std`` of the field, empty where nothing was ever observed.
    table : DataFrame
        Of the held-out cells: ``kind`` ("points" or "clouds"), ``observed``, and ``mean`` and
        ``std`` of ours, with the noise of an observation.
    scores : dict of str to dict
        By method: ``rmse_points`` and ``rmse_clouds``, of ours ``coverage_points`` and
        ``coverage_clouds`` too, and ``filled``, the share of held-out cells with an answer.
    cpu_seconds : dict of str to float
        By method.
    details : dict of str to dict
        Of the peers.
    """

    model: GridGP
    posterior: xr.Dataset
    table: pd.DataFrame
    scores: dict[str, dict[str, float]]
    cpu_seconds: dict[str, float]
    details: dict[str, dict[str, Any]] = field(default_factory=dict)


def fill(da: xr.DataArray, held: HeldOut, options: Mapping[str, Any], clock: Stopwatch) -> Filling:
    """Fill a field of (time, two dims) by all methods, from the same cells.

    Parameters
    ----------
    da : DataArray
    held : HeldOut
    options : mapping
        Of ``GridGP``.
    clock : Stopwatch
        Receives the seconds of every method.
    """
    values = da.to_numpy()
    ever = da.notnull().any(str(da.dims[0]))
    model = GridGP(**options)
    start = time.process_time()
    with clock.stage("fit", shown=False):
        model.fit(da, mask=held.fit, domain=ever)
    with clock.stage("posterior"):
        posterior = model.posterior()
    cpu = {OURS: time.process_time() - start}
    mean = posterior["mean"].to_numpy()
    std = np.sqrt(posterior["std"].to_numpy() ** 2 + float(model.noise_variance_ or 0.0))
    scores = {OURS: scored(values, mean, held, std)}
    details = {}
    for name, method in ((LINEAR, linear), (DINEOF, Dineof())):
        start = time.process_time()
        with clock.stage(name):
            answer = method(values, held.fit, held.held)
        cpu[name] = time.process_time() - start
        scores[name] = scored(values, answer.values, held)
        details[name] = answer.details
    kinds = np.where(held.points, "points", "clouds")[held.held]
    chosen = held.held
    table = pd.DataFrame(
        {"kind": kinds, "observed": values[chosen], "mean": mean[chosen], "std": std[chosen]}
    )
    return Filling(model, posterior, table, scores, cpu, details)


def scored(
    values: Floats, mean: Floats, held: HeldOut, std: Floats | None = None
) -> dict[str, float]:
    """Errors at the held-out cells that have an answer, and the share that has."""
    scores = {}
    for kind, cells in (("points", held.points), ("clouds", held.clouds)):
        answered = cells & np.isfinite(mean)
        if not answered.any():
            continue
        scores[f"rmse_{kind}"] = float(np.sqrt(np.mean((mean - values)[answered] ** 2)))
        if std is not None:
            scores[f"coverage_{kind}"] = coverage(
                values[answered], mean[answered], std[answered], LEVEL
            )
    scores["filled"] = float(np.isfinite(mean[held.held]).mean()) if held.held.any() else 1.0
    return scores


def facts_of(name: str, da: xr.DataArray, held: HeldOut, side: int, blocks: int) -> dict[str, Any]:
    """Size of a field, and how many of its cells are what."""
    return {
        "name": name,
        "sizes": {str(dim): n for dim, n in da.sizes.items()},
        "unit": str(da.attrs.get("units", "")),
        "n_cells": da.size,
        "n_observed": int(np.isfinite(da.to_numpy()).sum()),
        "n_fit": int(held.fit.sum()),
        "n_points": int(held.points.sum()),
        "n_clouds": int(held.clouds.sum()),
        "side": side,
        "blocks": blocks,
    }


def under_clouds(da: xr.DataArray, truth: Any, filled: Filling) -> dict[str, float]:
    """Compare with the truth of a synthetic field where it was never observed."""
    mean, std = (filled.posterior[one].to_numpy() for one in ("mean", "std"))
    cells = np.isfinite(truth) & ~np.isfinite(da.to_numpy()) & np.isfinite(mean)
    error = (mean - truth)[cells]
    return {
        "rmse_truth": float(np.sqrt(np.mean(error**2))),
        "coverage_truth": coverage(truth[cells], mean[cells], std[cells], LEVEL),
    }


def chosen_times(da: xr.DataArray, n: int) -> list[Any]:
    """Times to draw: from that with the most observed cells to that with the fewest, in order."""
    seen = np.isfinite(da.to_numpy()).sum(axis=(1, 2))
    ranks = np.argsort(-seen, kind="stable")
    places = np.unique(np.round(np.linspace(0, len(ranks) - 1, min(n, len(ranks)))).astype(int))
    return [da[da.dims[0]].values[i] for i in sorted(ranks[places])]


def synthetic_field(
    seed: int, shape: tuple[int, int, int] = (10, 60, 80)
) -> tuple[xr.DataArray, Floats]:
    """Make a cloudy sea-surface temperature: a front, eddies, fine structure, noise, a coast.

    It is no draw of the models that are fitted: smoothed white noise and a tanh.

    Returns
    -------
    field : DataArray of (time, lat, lon), degC
        NaN under clouds and on land; latitude descends.
    truth : ndarray of that shape
        Without noise; NaN on land.
    """
    rng = np.random.default_rng([seed, 6])
    n_times, n_rows, n_columns = shape
    with progress("synthetic field"):
        north, east = np.meshgrid(
            np.linspace(1, -1, n_rows), np.linspace(-1, 1, n_columns), indexing="ij"
        )
        days = np.arange(n_times)[:, None, None]
        front = -2.0 * np.tanh(3 * (north - 0.3 * np.sin(2 * east + 0.15 * days)))
        eddies = _smooth(rng, shape, (3.0, 6.0, 6.0))
        fine = _smooth(rng, shape, (1.0, 1.2, 1.2))
        truth = 18 + 0.05 * days + front + 0.7 * eddies + 0.12 * fine
        clouds = _smooth(rng, shape, (0.8, 7.0, 9.0))
        # Some days are clear, some nearly all cloud.
        cover = np.linspace(0.1, 0.85, n_times)[rng.permutation(n_times)]
        levels = [np.quantile(day, 1 - share) for day, share in zip(clouds, cover, strict=True)]
        cloudy = clouds > np.array(levels)[:, None, None]
        coast = 0.75 + 0.12 * _smooth(rng, (n_columns,), (6.0,))
        land = north > coast
    truth = np.where(land, np.nan, truth)
    seen = truth + 0.05 * rng.standard_normal(shape)
    coords = {
        "time": np.datetime64("2020-06-01", "ns") + np.arange(n_times) * np.timedelta64(1, "D"),
        "lat": ("lat", 40 - 0.05 * np.arange(n_rows), {"units": "degrees_north"}),
        "lon": ("lon", 5 + 0.05 * np.arange(n_columns), {"units": "degrees_east"}),
    }
    attrs = {"long_name": "sea surface temperature", "units": "degC"}
    da = xr.DataArray(np.where(cloudy, np.nan, seen), coords, ("time", "lat", "lon"), "sst", attrs)
    return da, truth


def _smooth(rng: np.random.Generator, shape: tuple[int, ...], widths: tuple[float, ...]) -> Floats:
    """White noise, smoothed, of variance 1."""
    values = gaussian_filter(rng.standard_normal(shape), widths, mode="reflect")
    return values / values.std()
