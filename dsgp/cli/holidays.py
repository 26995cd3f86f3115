"""Holidays that commands are given: those of a file, or of a country."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dsgp.addresses import Place
from dsgp.cli.reaching import Reach
from dsgp.cli.work import HOLIDAY, file_of
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.calendars import holiday_levels, holidays_of_country
from dsgp.rows.sources import CsvFormat, StoredTable, read_table

DATE = "date"
# What all other days are called.
NO_HOLIDAY = "none"
_USUAL = CsvFormat()


@dataclass(frozen=True)
class Holidays:
    """Holidays of a country, or by their names.

    Attributes
    ----------
    named : str or mapping
        A country that the package holidays knows, or dates by the name of their holiday.
    """

    named: str | Mapping[str, Any]

    @classmethod
    def of(cls, text: str, reach: Reach, form: CsvFormat) -> Holidays:
        """Read what ``--holidays`` says; a CSV file has the format of DATA, or the usual one."""
        file = file_of(text)
        return cls(text if file is None else read_holidays(reach.place(file), form))

    def levels(
        self, dates: Any, before: int, after: int, other: str = NO_HOLIDAY
    ) -> NDArray[np.object_]:
        """Name the holiday of each date, as ``dsgp.holiday_levels`` does."""
        days = pd.DatetimeIndex(dates)
        with self._package():
            return holiday_levels(days, self.named, before=before, after=after, other=other)

    def _by_name(self, days: pd.DatetimeIndex) -> Mapping[str, Any]:
        """Dates by the name of their holiday, in the years of some days."""
        if not isinstance(self.named, str):
            return self.named
        with self._package():
            return holidays_of_country(self.named, days)

    @contextmanager
    def _package(self) -> Iterator[None]:
        """Say what the holidays of a country need where that is absent."""
        try:
            yield
        except ImportError as error:
            raise ParameterError(
                f"--holidays {self.named}: the holidays of a country need the package holidays: "
                'pip install holidays (in a checkout of dsgp, pip install ".[holidays]"); or pass '
                "a file with the columns date and holiday"
            ) from error

    def as_in_the_fit(self, dates: Any, column: str, model: Any, other: str) -> NDArray[np.object_]:
        """Name the holidays of dates as the fit did, with days beside them where it had some.

        Parameters
        ----------
        dates : array_like of dates
        column : str
            The column of holidays.
        model : fitted estimator
        other : str
            What other days are called.
        """
        days = pd.DatetimeIndex(dates)
        named = self._by_name(days)
        kind = model._columns.kinds.get(column)
        known = [label for label in (() if kind is None else kind.labels) if isinstance(label, str)]
        if other not in known:
            raise ParameterError(
                f"the model's column {column!r} has no level {other!r} for dates without a "
                f"holiday, but {_some(known)}; pass the right one as --no-holiday"
            )
        common = set(named) & set(known)
        if not common:
            raise ParameterError(
                f"--holidays: none of its holidays, {_some(sorted(named))}, is a level of the "
                f"model's column {column!r}, which are {_some(known)}; use the names of the fit"
            )
        steps = [
            int(match[1])
            for label in known
            for name in common
            if (match := re.fullmatch(rf"{re.escape(name)} ([+-]\d+)", label))
        ]
        before, after = max([0, *(-step for step in steps)]), max([0, *steps])
        return self.levels(days, before, after, other)


@dataclass(frozen=True)
class ForModel:
    """The column of holidays that a table lacks, and a fitted model reads.

    Attributes
    ----------
    holidays : Holidays
    column, dates : str
        The column of holidays, and that of dates.
    """

    holidays: Holidays
    column: str
    dates: str

    @classmethod
    def of(
        cls, given: tuple[str, str] | None, reach: Reach, form: CsvFormat, model: Any
    ) -> ForModel | None:
        """Return what ``--holidays`` and ``--holiday-column`` say; None where they are not given.

        Raises
        ------
        ParameterError
            If the model has no such column, or not one column of dates.
        """
        if given is None:
            return None
        text, column = given
        used = list(model.used_columns_) if hasattr(model, "feature_names_in_") else []
        if column not in used:
            raise ParameterError(
                f"--holidays: the model reads no column {column!r}; it reads {_some(used)}: name "
                "that of the holidays, --holiday-column, or leave --holidays out"
            )
        kinds = model._columns.kinds
        dates = [name for name in used if name in kinds and kinds[name].is_date]
        if len(dates) != 1:
            raise ParameterError(
                "--holidays needs a model with one column of dates, and this one has "
                f"{_some(dates)}: write a column of holidays (dsgp.holiday_levels) into the table"
            )
        return cls(Holidays.of(text, reach, form), column, dates[0])

    def stored(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that a table has to have."""
        return list(dict.fromkeys([*(name for name in names if name != self.column), self.dates]))

    def to(self, table: pd.DataFrame, model: Any) -> pd.DataFrame:
        """Return rows with the column."""
        gaps = table[self.dates].isna().to_numpy()
        if gaps.any():
            row = int(gaps.argmax())
            raise DataError(
                f"--holidays: column {self.dates!r} is missing in row {row} (counted from 0); fill "
                "it, or leave the row out"
            )
        dates = column_of_dates("DATA", table[self.dates])
        named = self.holidays.as_in_the_fit(dates, self.column, model, NO_HOLIDAY)
        return table.assign(**{self.column: named})


def require_inputs(
    stored: StoredTable, names: Sequence[str], model: Any, added: ForModel | None
) -> None:
    """Raise ``DataError`` if a table lacks columns, with a hint where --holidays would add one.

    Raises
    ------
    ParameterError
        If the table has the column that --holidays would add.
    """
    if added is not None and added.column in stored.names:
        raise ParameterError(
            f"--holidays adds the column {added.column!r}, which DATA has: leave --holidays out to "
            "use it as it is, or take it out of DATA"
        )
    try:
        stored.require(names)
    except DataError as error:
        absent = set(names) - set(stored.names)
        kinds = model._columns.kinds if hasattr(model, "feature_names_in_") else {}
        lacks = [name for name in kinds if name in absent and NO_HOLIDAY in kinds[name].labels]
        if added is not None or not lacks:
            raise
        raise DataError(
            f"{error}; if 'dsgp fit --holidays' made {lacks[0]!r}, pass the same --holidays here"
        ) from error


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "none"


def read_holidays(place: Place, form: CsvFormat = _USUAL) -> dict[str, list[Any]]:
    """Return dates by the name of their holiday, of a table with the columns date and holiday."""
    table = _read(place, form)
    for name in (DATE, HOLIDAY):
        absent = table[name].isna() | (table[name].astype(str).str.strip() == "")
        if absent.any():
            row = int(absent.to_numpy().argmax()) + 1
            raise DataError(f"{str(place)!r}: row {row} has no {name}; fill it, or delete the row")
    if not len(table):
        raise DataError(f"{str(place)!r} has no holiday: expected rows of a date and a name")
    dates = column_of_dates(str(place), table[DATE])
    names = table[HOLIDAY].astype(str).str.strip()
    return {str(name): list(on) for name, on in dates.groupby(names)}


def _read(place: Place, form: CsvFormat) -> pd.DataFrame:
    try:
        return read_table(place, [DATE, HOLIDAY], **asdict(form))
    except DataError:
        with suppress(DataError):  # not in the format of DATA
            return read_table(place, [DATE, HOLIDAY])
        raise


def column_of_dates(file: str, column: pd.Series) -> pd.Series:
    """Return a column of a file as dates; text must be as in ISO 8601, which has one reading.

    Raises
    ------
    DataError
        If a value is none.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        raise DataError(f"{file!r}: column {column.name!r} holds numbers; expected dates")
    is_text = pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)
    try:
        dates = pd.to_datetime(column, format="ISO8601" if is_text else None)
    except (ValueError, TypeError) as error:
        reason = str(error).partition(". You might want")[0]  # advice on arguments of pandas
        raise DataError(
            f"{file!r}: column {column.name!r} holds values that are no dates such as 2024-12-31: "
            f"{reason}; write all of them like that"
        ) from error
    if dates.isna().any():
        row = int(dates.isna().to_numpy().argmax()) + 1
        raise DataError(f"{file!r}: column {column.name!r} is missing in row {row}")
    return dates
