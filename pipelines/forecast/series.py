"""Series to forecast: births, which come as a table, and two that are made here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsgp import holiday_levels
from dsgp.errors import DataError, ParameterError
from pipelines.datasets import Floats

QUICK_ORIGINS = 2
YEAR = 365.25  # days
# Of series that a year has two dates of at least; months and quarters differ in length.
HALF_YEAR = 184.0


@dataclass(frozen=True, eq=False)
class Series:
    """A series at equal steps.

    Attributes
    ----------
    about : str
        What it is, for the report.
    frame : DataFrame
        ``date``, and ``holiday`` where there are some.
    y : ndarray of shape (n,)
    season : int
        Steps of the season that a naive forecast repeats, and that MASE is measured by.
    horizon : int
        Steps ahead.
    window : int
        Steps of the past that a forecast sees.
    step : int
        From one origin to the next.
    log : bool
        Whether the logarithm of y is forecast.
    terms : tuple of str
        Of models of dsgp beside trend and slope, as text; the usual ones if there are none.
    n_origins : int or None
        So many origins at the end, or all of them.
    """

    about: str
    frame: pd.DataFrame
    y: Floats
    season: int
    horizon: int
    window: int
    step: int
    log: bool = True
    terms: tuple[str, ...] = ()
    n_origins: int | None = None

    def __post_init__(self) -> None:
        for name in ("season", "horizon", "window", "step"):
            if getattr(self, name) < 1:
                option = "origin-step" if name == "step" else name
                raise ParameterError(f"--{option} must be at least 1, got {getattr(self, name)}")
        if self.window < 2 * self.season:
            raise ParameterError(
                f"a window of {self.window} steps has less than two seasons of {self.season}; pass "
                "a longer --window, or a shorter --season"
            )
        if self.window + self.horizon > len(self.y):
            raise ParameterError(
                f"a window of {self.window} and a horizon of {self.horizon} steps need as many "
                f"observations, and there are {len(self.y)}; pass a shorter --window or --horizon"
            )
        if self.log and not (self.y > 0).all():
            row = int(np.argmin(self.y > 0))
            raise DataError(
                f"the value of {self.frame['date'].iloc[row]} is {self.y[row]:g}, which has no "
                "logarithm; pass --transform none"
            )

    @property
    def days(self) -> float:
        """Days from one date to the next, in the middle."""
        return float(self.frame["date"].diff().median() / pd.Timedelta(days=1))

    @property
    def has_year(self) -> bool:
        """Whether the past that a forecast sees has the season of the year."""
        return self.days <= HALF_YEAR and self.window * self.days >= YEAR

    def scaled(self) -> Floats:
        """Return the series on the scale on which it is forecast."""
        return np.log(self.y) if self.log else self.y

    def unscaled(self, values: Any) -> Floats:
        """Return values of that scale on the scale of the series."""
        return np.exp(values) if self.log else np.asarray(values)

    def origins(self) -> list[int]:
        """Numbers of the first steps to be forecast."""
        every = list(range(self.window, len(self.y) - self.horizon + 1, self.step))
        if self.n_origins is None:
            return every
        last = len(self.y) - self.horizon
        return [last - k * self.step for k in range(self.n_origins)][::-1]

    def require_unit(self) -> None:
        """Raise ``DataError`` where differences of seasons are 0, by which MASE is measured."""
        for origin in self.origins():
            seen = self.y[origin - self.window : origin]
            if (seen[self.season :] == seen[: -self.season]).all():
                dates = self.frame["date"].iloc[[origin - self.window, origin - 1]]
                raise DataError(
                    f"all values from {dates.iloc[0]} to {dates.iloc[1]} repeat those of "
                    f"{self.season} steps before, so that errors have no unit and the naive "
                    "forecast no uncertainty; pass a longer --window, another --season, or fewer "
                    "--origins"
                )


@dataclass(frozen=True)
class Design:
    """What is asked of a series in place of its own numbers; None leaves them."""

    horizon: int | None = None
    window: int | None = None
    season: int | None = None
    origins: int | None = None
    step: int | None = None
    transform: str | None = None
    terms: tuple[str, ...] = ()

    def applied_to(self, series: Series) -> Series:
        """Return the series with what is asked for.

        Raises
        ------
        ParameterError
            If there are not as many observations.
        """
        numbers = {name: getattr(self, name) for name in ("horizon", "window", "season")}
        changes: dict[str, Any] = {name: n for name, n in numbers.items() if n is not None}
        if self.transform not in (None, "none", "log"):
            raise ParameterError(f"--transform must be none or log, got {self.transform!r}")
        if self.transform is not None:
            changes["log"] = self.transform == "log"
        if self.terms:
            changes["terms"] = tuple(self.terms)
        series = replace(series, **changes)
        n = self.origins
        if n is None:
            return series if self.step is None else replace(series, step=self.step)
        if n < 1:
            raise ParameterError(f"--origins must be at least 1, got {n}")
        room = len(series.y) - series.window - series.horizon
        # Spread over all that there is, unless their distance is given.
        step = max(room // max(n - 1, 1), 1) if self.step is None else self.step
        if (n - 1) * step > room:
            raise ParameterError(
                f"{n} origins at a distance of {step} steps, with a window of {series.window} and "
                f"a horizon of {series.horizon}, need {series.window + series.horizon} + "
                f"{(n - 1) * step} observations, and there are {len(series.y)}"
            )
        return replace(series, step=step, n_origins=n)


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
    return Series(_about(births), frame, by_day["births"].to_numpy(float), 7, 90, 1095, 180)


def sales(data_dir: Path | None) -> Series:
    """Made: a random walk with drift, a year, a week and moving holidays, on the log scale."""
    rng = np.random.default_rng(1)
    date = pd.date_range("2012-01-01", "2021-12-31", name="date")
    frame = pd.DataFrame({"date": date})
    frame["holiday"] = holiday_levels(date, _american(frame["date"]))
    n = len(date)
    trend = np.cumsum(rng.normal(1e-4, 4e-3, n))
    year = 0.15 * np.cos(2 * np.pi * date.day_of_year / 365.25) + 0.05 * np.sin(
        4 * np.pi * date.day_of_year / 365.25
    )
    week = np.array([0.0, -0.05, -0.05, 0.0, 0.1, 0.3, 0.2])[date.day_of_week]
    effects = {name: rng.normal(0, 0.3) for name in sorted(set(frame["holiday"]) - {"none"})}
    special = frame["holiday"].map(effects).fillna(0.0).to_numpy()
    log = 5 + trend + year + week + special + rng.normal(0, 0.08, n)
    return Series(_about(sales), frame, np.exp(np.asarray(log)), 7, 90, 1095, 180)


def monthly(data_dir: Path | None) -> Series:
    """Made: a slope that wanders, and a year that grows with the level."""
    rng = np.random.default_rng(2)
    date = pd.date_range("1980-01-01", periods=360, freq="MS", name="date")
    slope = 0.004 + np.cumsum(rng.normal(0, 4e-4, len(date)))
    year = 0.2 * np.sin(2 * np.pi * np.arange(len(date)) / 12)
    log = 4 + np.cumsum(slope) + year + rng.normal(0, 0.03, len(date))
    frame = pd.DataFrame({"date": date})
    return Series(_about(monthly), frame, np.exp(log), 12, 24, 120, 12)


SERIES: dict[str, Callable[[Path | None], Series]] = {
    "births": births,
    "sales": sales,
    "monthly": monthly,
}


def _about(made: Callable[..., Any]) -> str:
    return (made.__doc__ or "").splitlines()[0]


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
            ahead = (weekday - start.day_of_week) % 7
            out.setdefault(name, []).append(start + pd.Timedelta(days=ahead))
    return out
