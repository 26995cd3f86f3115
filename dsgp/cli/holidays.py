"""Files of holidays, of ``dsgp forecast`` and of the pipeline of forecasts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsgp.addresses import Place
from dsgp.errors import DataError
from dsgp.rows.sources import read_table

DATE, HOLIDAY = "date", "holiday"


def read_holidays(place: Place) -> dict[str, list[Any]]:
    """Return dates by the name of their holiday, of a table with the columns date and holiday."""
    table = read_table(place, [DATE, HOLIDAY])
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
        raise DataError(
            f"{file!r}: column {column.name!r} holds values that are no dates such as 2024-12-31: "
            f"{error}"
        ) from error
    if dates.isna().any():
        row = int(dates.isna().to_numpy().argmax()) + 1
        raise DataError(f"{file!r}: column {column.name!r} is missing in row {row}")
    return dates
