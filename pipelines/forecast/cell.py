"""One series by one method from all origins, in a process of its own.

``python -m pipelines.forecast.cell`` reads a request as ``pipelines.scaling.run`` does, and writes
NAME.npz with what each step ahead costs and then NAME.json, whole or not at all.
"""

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from pipelines.cells import run_cell
from pipelines.datasets import Floats
from pipelines.forecast.methods import METHODS, Forecast
from pipelines.forecast.series import QUICK_ORIGINS, SERIES, Design, Series
from pipelines.forecast.tables import Table
from pipelines.reporting import release

FORMAT = 2  # of the files; another number runs every cell again
LEVELS = (0.8, 0.95)


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a cell does.

    Attributes
    ----------
    series, method : str
    data_dir : str or None
        Where the data of ``SERIES`` are.
    table, design : dict
        A file with the series, or nothing where it is one of ``SERIES``; and what is asked of it.
    digest : str
        Of the values and dates.
    quick : bool
        Two origins.
    """

    series: str
    method: str
    data_dir: str | None
    table: dict[str, Any]
    design: dict[str, Any]
    digest: str
    quick: bool

    @property
    def description(self) -> str:
        """What this is, for people."""
        return f"{self.series}, {METHODS[self.method].label}"

    @property
    def file_name(self) -> str:
        parts = {"format": FORMAT, "dsgp": release(), **asdict(self)}
        # The same series from elsewhere is the same.
        del parts["data_dir"], parts["table"]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.series}-{self.method}-{key}.json"


def series_of(
    name: str, data_dir: Path | None, table: Table | None, design: Design, quick: bool
) -> Series:
    """Read or make a series, with what is asked of it."""
    if table is None:
        series = SERIES[name](data_dir)
    else:
        log = design.transform != "none"
        series = table.series(design.horizon, design.season, design.window, log)
    series = design.applied_to(series)
    if quick:
        room = len(series.y) - series.window - series.horizon
        n = min(QUICK_ORIGINS, room // series.step + 1)
        series = Design(origins=n).applied_to(series)
    series.require_unit()
    return series


def settings_of(
    name: str,
    series: Series,
    method: str,
    data_dir: Path | None,
    table: Table | None,
    design: Design,
    quick: bool,
) -> Settings:
    """Take the digest of the series itself."""
    digest = hashlib.sha256(series.y.tobytes())
    digest.update(pd.util.hash_pandas_object(series.frame, index=False).to_numpy().tobytes())
    return Settings(
        name,
        method,
        None if data_dir is None else str(data_dir.absolute()),
        {} if table is None else asdict(table),
        asdict(design),
        digest.hexdigest()[:12],
        quick,
    )


def measure(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Forecast from every origin; return the record, and costs of shape (n_origins, horizon)."""
    series = series_of(
        settings.series,
        None if settings.data_dir is None else Path(settings.data_dir),
        Table(**settings.table) if settings.table else None,
        Design(**settings.design),
        settings.quick,
    )
    method = METHODS[settings.method]
    scaled, origins = series.scaled(), series.origins()
    costs: list[dict[str, Floats]] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for origin in origins:
        past = slice(origin - series.window, origin)
        future = slice(origin, origin + series.horizon)
        forecast = method.forecast(
            series, series.frame[past], scaled[past], series.frame[future].reset_index(drop=True)
        )
        costs.append(scores(forecast, scaled[past], scaled[future], series))
    record = {
        "about": series.about,
        "log": series.log,
        "season": series.season,
        "n_origins": len(origins),
        "first_origin": str(series.frame["date"].iloc[origins[0]]),
        "last_origin": str(series.frame["date"].iloc[origins[-1]]),
        "horizon": series.horizon,
        "window": series.window,
        "seconds": {"fit": time.perf_counter() - wall},
        "cpu_seconds": time.process_time() - cpu,
    }
    stacked = {name: np.stack([cost[name] for cost in costs]) for name in costs[0]}
    last = {"past": series.y[past], "future": series.y[future], "origin": np.array([origin])}
    return record, stacked | last


def scores(forecast: Forecast, past: Floats, future: Floats, series: Series) -> dict[str, Floats]:
    """Costs of each step of a forecast, on the scale on which it is made.

    ``mase`` and ``width`` are of the series itself: the error of the median, and the length of the
    95 % interval, by the mean absolute difference of seasons in the past (Hyndman and Koehler
    2006). ``crps`` and ``mnlp`` are of the scale of the forecast (Gneiting and Raftery 2007,
    eq. 21).
    """
    seen = series.unscaled(past)
    scale = np.abs(seen[series.season :] - seen[: -series.season]).mean()
    z = (future - forecast.mean) / forecast.std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    median = series.unscaled(forecast.mean)
    half = ndtri(0.5 + LEVELS[-1] / 2) * forecast.std
    ends = [series.unscaled(forecast.mean + sign * half) for sign in (-1, 1)]
    out = {
        "median": median,
        "mean": forecast.mean,
        "std": forecast.std,
        "mase": np.abs(series.unscaled(future) - median) / scale,
        "width": (ends[1] - ends[0]) / scale,
        "crps": forecast.std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)),
        "mnlp": 0.5 * (z**2 + np.log(2 * np.pi * forecast.std**2)),
    }
    for level in LEVELS:
        half = ndtri(0.5 + level / 2) * forecast.std
        out[f"lower{level:g}"] = series.unscaled(forecast.mean - half)
        out[f"upper{level:g}"] = series.unscaled(forecast.mean + half)
        out[f"within{level:g}"] = (np.abs(z) <= ndtri(0.5 + level / 2)).astype(float)
    return out


if __name__ == "__main__":
    run_cell(Settings, measure)
