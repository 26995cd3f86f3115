"""Numbers made of the inputs, for baselines that read nothing else.

Levels become columns of zeros and ones, dates become days and where they are in the year, the week
and the day. Trees get levels as categories.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.rows.sources.kinds import Dates
from dsgp.terms.inputs import day_of_week, day_of_year, time_of_day
from pipelines.datasets import Floats

# Levels with a column each; the others of an input have zeros in all of them.
MOST_INDICATORS = 100
# Levels that scikit-learn's trees take, the others as one more.
MOST_CATEGORIES = 254
PARTS = {"day of year": day_of_year, "weekday": day_of_week, "time of day": time_of_day}


class DateRange:
    """What parts of a date differ, seen block by block."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.has_times = False
        self.zone: str | None = None

    def add(self, name: str, values: pd.Series) -> None:
        zone = getattr(values.dt, "tz", None)
        self.zone = None if zone is None else str(zone)
        days = Dates(self.zone).encode(name, values)
        days = days[np.isfinite(days)]
        self.low = min(self.low, float(days.min(initial=np.inf)))
        self.high = max(self.high, float(days.max(initial=-np.inf)))
        self.has_times |= bool((days % 1 != 0).any())

    def parts(self) -> list[str]:
        """Parts that are worth a column: longer periods say no more than the days themselves."""
        extent = self.high - self.low
        lengths = {
            "day of year": 366.0,
            "weekday": 7.0,
            "time of day": 1.0 if self.has_times else np.inf,
        }
        return [part for part, length in lengths.items() if extent > length]

    def settings(self) -> dict[str, Any]:
        return {"zone": self.zone, "parts": self.parts()}


@dataclass(frozen=True, eq=False)
class Design:
    """How the columns of the encoded table become numbers.

    Attributes
    ----------
    inputs : list of str
    levels : dict of str to list of str
        Of text columns, those of most training rows first.
    dates : dict of str to dict
        Of date columns: "zone" and "parts".
    """

    inputs: list[str]
    levels: Mapping[str, list[str]]
    dates: Mapping[str, Mapping[str, Any]]

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are numbers as they are."""
        return not self.levels and not self.dates

    @property
    def names(self) -> list[str]:
        """Names of the numbers.

        Raises
        ------
        DataError
            If one is the name of an input, too.
        """
        names = [made for name in self.inputs for made in self._made_of(name)]
        if twice := [name for name, n in Counter(names).items() if n > 1]:
            raise DataError(
                f"input column {twice[0]!r} has the name of a column that is made from another "
                "one; rename it"
            )
        return names

    @property
    def indicators(self) -> NDArray[np.bool_]:
        """Which of the numbers are zeros and ones that stand for levels."""
        return np.array(
            [name in self.levels for name in self.inputs for _ in self._made_of(name)], dtype=bool
        )

    def _made_of(self, name: str) -> list[str]:
        if name in self.levels:
            return [f"{name}={level}" for level in self.levels[name][:MOST_INDICATORS]]
        if name in self.dates:
            return [name, *(f"{name} ({part})" for part in self.dates[name]["parts"])]
        return [name]

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Turn rows of the encoded table into numbers."""
        if self.is_plain:
            return frame[self.inputs]
        columns: list[Any] = []
        for name in self.inputs:
            if name in self.levels:
                values = frame[name].to_numpy(dtype=object)
                columns += [values == level for level in self.levels[name][:MOST_INDICATORS]]
            else:
                columns += self._numbers(frame, name)
        made = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
        return pd.DataFrame(made, frame.index, self.names)

    def categories(self, frame: pd.DataFrame) -> tuple[Floats, NDArray[np.bool_]]:
        """Turn rows into numbers, levels into codes; say which columns are codes."""
        columns: list[Any] = []
        is_code: list[bool] = []
        for name in self.inputs:
            if name in self.levels:
                codes = pd.Index(self.levels[name]).get_indexer(frame[name]).astype(np.float64)
                # A level of no training row counts as missing, as a gap does.
                made = [np.where(codes < 0, np.nan, np.minimum(codes, MOST_CATEGORIES))]
            else:
                made = self._numbers(frame, name)
            columns += made
            is_code += [name in self.levels] * len(made)
        return np.column_stack(columns), np.array(is_code, dtype=bool)

    def _numbers(self, frame: pd.DataFrame, name: str) -> list[Floats]:
        if name not in self.dates:
            return [frame[name].to_numpy(np.float64)]
        days = Dates(self.dates[name]["zone"]).encode(name, frame[name])
        return [days, *(PARTS[part](days) for part in self.dates[name]["parts"])]

    def descriptions(self) -> list[str]:
        """Say for people what is made of which column."""
        lines = []
        for name, levels in self.levels.items():
            shown = min(len(levels), MOST_INDICATORS)
            more = len(levels) - shown
            rest = f" (the other {more} of {len(levels)} levels: zeros)" if more else ""
            text = f"{name}: a column of zeros and ones for each of {shown} levels{rest}"
            if len(levels) > MOST_CATEGORIES:
                text += f"; trees: {MOST_CATEGORIES} levels and one for the others"
            lines.append(text)
        for name, date in self.dates.items():
            lines.append(f"{name}: {', '.join(['days since 1970-01-01', *date['parts']])}")
        return lines
