"""Series by name: one that comes as a table, and two that are made here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dsgp import holiday_levels
from dsgp.errors import DataError
from pipelines.datasets import Floats


@dataclass(frozen=True, eq=False)
class Series:
    """A positive series at equal steps.

    Attributes
    ----------
    frame : DataFrame
        ``date``, and ``holiday`` of daily ones.
    y : ndarray of shape (n,)
    season : int
        Steps of the season that a naive forecast repeats, and that MASE is measured by.
    horizon : int
        Steps ahead.
    window : int
        Steps of the past that a forecast sees.
    step : int
        From one origin to the next.
    """

    frame: pd.DataFrame
    y: Floats
    season: int
    horizon: int
    window: int
    step: int

    @property
    def daily(self) -> bool:
        return "holiday" in self.frame

    def origins(self, quick: bool) -> list[int]:
        """Numbers of the first steps to be forecast."""
        every = list(range(self.window, len(self.y) - self.horizon + 1, self.step))
        return every[:: max(len(every) // 2, 1)][:2] if quick else every


def births(data_dir: Path | None) -> Series:
    """Births per day in the United States, of ``birthdays.parquet``."""
    places = [] if data_dir is None else [data_dir / "tables", data_dir]
    for place in places:
        if (path := place / "birthdays.parquet").exists():
            table = pd.read_parquet(path, columns=["date", "births"])
            break
    else:
        raise DataError("births needs birthdays.parquet in --data-dir, or in tables/ within it")
    by_day = table.groupby("date", as_index=False)["births"].sum()
    frame = pd.DataFrame({"date": pd.to_datetime(by_day["date"])})
    frame["holiday"] = holiday_levels(frame["date"], _american(frame["date"]), before=1, after=1)
    return Series(frame, by_day["births"].to_numpy(float), 7, 90, 1095, 180)


def sales(data_dir: Path | None) -> Series:
    """Made: a random walk with drift, a year, a week and moving holidays, on the log scale."""
    rng = np.random.default_rng(1)
    date = pd.date_range("2012-01-01", "2021-12-31", name="date")
    frame = pd.DataFrame({"date": date})
    frame["holiday"] = holiday_levels(date, _american(frame["date"]))
    n = len(date)
    trend = np.cumsum(rng.normal(1e-4, 4e-3, n))
    year = 0.15 * np.cos(2 * np.pi * date.dayofyear / 365.25) + 0.05 * np.sin(
        4 * np.pi * date.dayofyear / 365.25
    )
    week = np.array([0.0, -0.05, -0.05, 0.0, 0.1, 0.3, 0.2])[date.dayofweek]
    effects = {name: rng.normal(0, 0.3) for name in sorted(set(frame["holiday"]) - {"none"})}
    special = frame["holiday"].map(effects).fillna(0.0).to_numpy()
    log = 5 + trend + year + week + special + rng.normal(0, 0.08, n)
    return Series(frame, np.exp(np.asarray(log)), 7, 90, 1095, 180)


def monthly(data_dir: Path | None) -> Series:
    """Made: a slope that wanders, and a year that grows with the level."""
    rng = np.random.default_rng(2)
    date = pd.date_range("1980-01-01", periods=360, freq="MS", name="date")
    slope = 0.004 + np.cumsum(rng.normal(0, 4e-4, len(date)))
    year = 0.2 * np.sin(2 * np.pi * np.arange(len(date)) / 12)
    log = 4 + np.cumsum(slope) + year + rng.normal(0, 0.03, len(date))
    return Series(pd.DataFrame({"date": date}), np.exp(log), 12, 24, 120, 12)


SERIES: dict[str, Callable[[Path | None], Series]] = {
    "births": births,
    "sales": sales,
    "monthly": monthly,
}


def _american(dates: pd.Series) -> dict[str, list[pd.Timestamp]]:
    """Dates of some holidays of the United States in the years of a series."""
    out: dict[str, list[pd.Timestamp]] = {}
    for year in range(dates.min().year - 1, dates.max().year + 2):
        fixed = {"New Year": (1, 1), "Independence Day": (7, 4), "Christmas": (12, 25)}
        for name, (month, day) in fixed.items():
            out.setdefault(name, []).append(pd.Timestamp(year, month, day))
        # Weekday, counted from Monday, and the first day of the month that it can be.
        moving = {"Memorial Day": (5, 25, 0), "Labor Day": (9, 1, 0), "Thanksgiving": (11, 22, 3)}
        for name, (month, first, weekday) in moving.items():
            start = pd.Timestamp(year, month, first)
            ahead = (weekday - start.dayofweek) % 7
            out.setdefault(name, []).append(start + pd.Timedelta(days=ahead))
    return out
