"""A series of a file: a column of dates, one of values, and the holidays among the dates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dsgp import holiday_levels
from dsgp.cli.holidays import column_of_dates, read_holidays
from dsgp.cli.work import file_of
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.calendars import distance_of
from dsgp.rows.sources import numbers_of, read_table
from pipelines.forecast.series import Series

# Steps of the season that is usual at a frequency.
SEASONS = {"D": 7, "B": 5, "h": 24, "MS": 12, "ME": 12, "3MS": 4, "3ME": 4, "7D": 52}
ORIGINS = 7


@dataclass(frozen=True)
class Table:
    """Where a series is.

    Attributes
    ----------
    path : str
        A file of CSV or Parquet.
    date, value : str
        Its columns.
    add_up : bool
        Whether values of the same date are added up.
    holidays : str or None
        A file with the columns date and holiday, or a country.
    before, after : int
        Days beside each holiday with effects of their own.
    """

    path: str
    date: str
    value: str
    add_up: bool = False
    holidays: str | None = None
    before: int = 0
    after: int = 0

    @property
    def name(self) -> str:
        """What the series is called, in names of files too."""
        stem = Path(self.path).name.split(".")[0]
        return "".join(letter if letter.isalnum() else "-" for letter in stem) or "series"

    def series(
        self, horizon: int | None, season: int | None, window: int | None, log: bool = True
    ) -> Series:
        """Read it.

        Raises
        ------
        DataError
            If a date or a value is missing, a date occurs twice or steps are not equal.
        ParameterError
            If the horizon or the season is not given, and cannot be known.
        """
        if horizon is None:
            raise ParameterError("--data needs --horizon, the number of steps to forecast")
        by_date = self._read()
        dates = pd.DatetimeIndex(by_date.index)
        step = distance_of(dates)
        self._require_equal_steps(dates, step)
        if season is None:
            if step.freqstr not in SEASONS:
                raise ParameterError(
                    f"{self.path!r} has dates at a distance of {step.freqstr!r}, of which no "
                    "season is known; pass --season, a number of steps, or 1 for none"
                )
            season = SEASONS[step.freqstr]
        frame = pd.DataFrame({"date": dates})
        if self.holidays is not None:
            file = file_of(self.holidays)
            days: Any = self.holidays if file is None else read_holidays(file)
            try:
                frame["holiday"] = holiday_levels(dates, days, before=self.before, after=self.after)
            except ImportError as error:
                raise ParameterError(str(error)) from error
        y = by_date.to_numpy(dtype=float)
        window = max((len(y) - horizon) // 2, 1) if window is None else window
        origins = max((len(y) - window - horizon) // (ORIGINS - 1), 1)
        about = f"{self.value} by {self.date}, of {Path(self.path).name}."
        return Series(about, frame, y, season, horizon, window, origins, log)

    def _read(self) -> pd.Series:
        """Values by date, in the order of the dates."""
        table = read_table(self.path, [self.date, self.value])
        if not len(table):
            raise DataError(f"{self.path!r} has no row")
        dates = column_of_dates(self.path, table[self.date])
        values = numbers_of(f"column {self.value!r} of {self.path!r}", table[self.value])
        by_row = pd.Series(values, index=pd.DatetimeIndex(dates))
        if by_row.isna().any():
            when = by_row.index[by_row.isna()][0]
            raise DataError(f"{self.path!r}: {self.value!r} is missing on {when}; fill it")
        if self.add_up:
            return by_row.groupby(level=0).sum()
        again = by_row.index.duplicated()
        if again.any():
            raise DataError(
                f"{self.path!r}: the date {by_row.index[again][0]} occurs more than once; keep one "
                "row per date, or pass --sum, which adds up the values of each date"
            )
        return by_row.sort_index()

    def _require_equal_steps(self, dates: pd.DatetimeIndex, step: Any) -> None:
        absent = pd.date_range(dates[0], dates[-1], freq=step).difference(dates)
        if len(absent):
            raise DataError(
                f"{self.path!r} lacks {len(absent)} dates at a distance of {step.freqstr!r}, the "
                f"first one {absent[0]}: baselines and MASE need equal steps; add these rows, or "
                "sums over longer steps"
            )
