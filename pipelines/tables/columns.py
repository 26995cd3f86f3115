"""Tables for methods that read no dates and no gaps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipelines.datasets import Floats, Split
from pipelines.run.design import DateRange, Design

MISSING = "(missing)"


@dataclass(frozen=True, eq=False)
class Plain:
    """Training and test rows whose dates are numbers.

    Attributes
    ----------
    train, test : DataFrame
        Text stays text.
    text : list of str
        Its columns.
    cyclic : dict of str to float
        Parts of dates among the columns, and their periods.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    text: list[str]
    cyclic: dict[str, float]

    @property
    def numbers(self) -> list[str]:
        """Columns of numbers."""
        return [name for name in self.train if name not in self.text]

    def without_gaps(self) -> "Plain":
        """Fill gaps of numbers by the median of the training rows, and those of text by a level."""
        filling: dict[str, Any] = {name: float(self.train[name].median()) for name in self.numbers}
        filling |= dict.fromkeys(self.text, MISSING)
        return Plain(self.train.fillna(filling), self.test.fillna(filling), self.text, self.cyclic)

    def categories(self) -> tuple[Floats, Floats, list[bool]]:
        """Numbers of all columns, text as codes; and which columns are codes."""
        levels = {
            name: [str(level) for level in self.train[name].value_counts().index]
            for name in self.text
        }
        design = Design(list(self.train), levels, {})
        train, is_code = design.categories(self.train)
        return train, design.categories(self.test)[0], is_code.tolist()


PERIODS = {"day of year": 366.0, "weekday": 7.0, "time of day": 1.0}


def plain(split: Split) -> Plain:
    """Make numbers of the dates of a job: days, and where they are in year, week and day."""
    train, test = split.X_train.copy(), split.X_test.copy()
    cyclic: dict[str, float] = {}
    for name in split.X_train:
        if not pd.api.types.is_datetime64_any_dtype(split.X_train[name]):
            continue
        span = DateRange()
        span.add(str(name), split.X_train[name])
        design = Design([str(name)], {}, {str(name): span.settings()})
        for frame, source in ((train, split.X_train), (test, split.X_test)):
            made = design(source[[name]])
            frame[made.columns] = made
        for part, period in PERIODS.items():
            if part in span.parts():
                cyclic[f"{name} ({part})"] = period
    text = [name for name in train if not pd.api.types.is_numeric_dtype(train[name])]
    for frame in (train, test):
        for name in frame:
            values = frame[name]
            is_text = name in text
            frame[name] = (
                values.astype(object).where(values.notna())
                if is_text
                else (values.astype(np.float64))
            )
    return Plain(train, test, [str(name) for name in text], cyclic)
