"""One series by one method from all origins, in a process of its own.

``python -m pipelines.forecast.cell`` reads a request as ``pipelines.scaling.run`` does, and writes
NAME.npz with what each step ahead costs and then NAME.json, whole or not at all.
"""

import hashlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dsgp.interrupt import exit_on_termination
from dsgp.places import replace_text
from pipelines.datasets import Floats
from pipelines.forecast.methods import METHODS, Forecast
from pipelines.forecast.series import SERIES, Series
from pipelines.reporting import environment, gathered_warnings, plain_errors, plain_json

FORMAT = 1  # of the files; another number makes every cell anew
LEVELS = (0.8, 0.95)


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a cell does."""

    series: str
    method: str
    data_dir: str | None
    digest: str
    quick: bool

    @classmethod
    def of(cls, name: str, series: Series, method: str, data_dir: Path | None, quick: bool) -> Any:
        """Take the digest of the series itself."""
        digest = hashlib.sha256(series.y.tobytes()).hexdigest()[:12]
        return cls(name, method, None if data_dir is None else str(data_dir), digest, quick)

    @property
    def told(self) -> str:
        """What this is, for people."""
        return f"{self.series}, {METHODS[self.method].label}"

    @property
    def file_name(self) -> str:
        parts = {"format": FORMAT, "dsgp": environment()["dsgp"], **asdict(self)}
        del parts["data_dir"]  # the same series from elsewhere is the same
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.series}-{self.method}-{key}.json"


def main() -> None:
    """Run what the standard input asks for."""
    asked = json.load(sys.stdin)
    exit_on_termination()
    with plain_errors():
        settings, path = Settings(**asked["settings"]), Path(asked["path"])
        with gathered_warnings() as messages:
            record, arrays = measure(settings)
        record |= {
            "settings": asdict(settings),
            "arrays": path.with_suffix(".npz").name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "warnings": messages,
            "versions": environment(),
            "machine": {"processors": os.cpu_count(), "system": platform.platform()},
        }
        aside = path.with_suffix(".npz.part")
        with aside.open("wb") as file:
            np.savez_compressed(file, **arrays)
        aside.replace(path.with_suffix(".npz"))
        replace_text(path, json.dumps(plain_json(record), indent=2, allow_nan=False))


def measure(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Forecast from every origin; return the record, and costs of shape (n_origins, horizon)."""
    series = SERIES[settings.series](None if settings.data_dir is None else Path(settings.data_dir))
    method = METHODS[settings.method]
    log_y, origins = np.log(series.y), series.origins(settings.quick)
    costs: list[dict[str, Floats]] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for origin in origins:
        past = slice(origin - series.window, origin)
        future = slice(origin, origin + series.horizon)
        forecast = method.forecast(
            series, series.frame[past], log_y[past], series.frame[future].reset_index(drop=True)
        )
        costs.append(scores(forecast, log_y[past], log_y[future], series.season))
    record = {
        "n_origins": len(origins),
        "horizon": series.horizon,
        "window": series.window,
        "seconds": {"fit": time.perf_counter() - wall},
        "cpu_seconds": time.process_time() - cpu,
    }
    stacked = {name: np.stack([cost[name] for cost in costs]) for name in costs[0]}
    last = {"past": series.y[past], "future": series.y[future], "origin": np.array([origin])}
    return record, stacked | last


def scores(forecast: Forecast, past: Floats, future: Floats, season: int) -> dict[str, Floats]:
    """Costs of each step of a forecast of the log.

    ``mase`` is of the series itself: the error of the median by the mean absolute difference of
    seasons in the past (Hyndman and Koehler 2006). ``crps`` and ``mnlp`` are of the log (Gneiting
    and Raftery 2007, eq. 21).
    """
    scale = np.abs(np.exp(past[season:]) - np.exp(past[:-season])).mean()
    z = (future - forecast.mean) / forecast.std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    out = {
        "mean": forecast.mean,
        "std": forecast.std,
        "mase": np.abs(np.exp(future) - np.exp(forecast.mean)) / scale,
        "crps": forecast.std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)),
        "mnlp": 0.5 * (z**2 + np.log(2 * np.pi * forecast.std**2)),
    }
    for level in LEVELS:
        out[f"within{level:g}"] = (np.abs(z) <= ndtri(0.5 + level / 2)).astype(float)
    return out


if __name__ == "__main__":
    main()
