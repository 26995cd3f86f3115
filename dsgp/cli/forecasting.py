"""The work of ``dsgp forecast``: the dates that follow those of a saved model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from dsgp.addresses import name_of, without_secrets
from dsgp.cli.holidays import NO_HOLIDAY, Holidays, column_of_dates
from dsgp.cli.outputs import LEVEL, outputs_of, require_answers
from dsgp.cli.reaching import Reach
from dsgp.cli.tables import read
from dsgp.cli.work import file_of
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.estimators import GridGP, future_dates, load
from dsgp.estimators.calendars import distance_of
from dsgp.estimators.classes import ClassEstimator
from dsgp.estimators.forecasting import DatesSeen, dates_seen
from dsgp.places import made_aside, require_apart, require_folder
from dsgp.rows.sinks import table_writer, written_aside
from dsgp.rows.sources import CsvFormat, numbers_of

PICTURES = (".png", ".pdf", ".svg")
# Dates of the past in a picture, for each one to come.
_SHOWN = 2


def forecast(
    model: Path,
    ahead: int,
    out: Path,
    *,
    freq: str | None,
    after: str | None,
    holidays: str | None,
    holiday_column: str | None,
    no_holiday: str,
    level: float | None,
    quantiles: Sequence[float] | None,
    statistic: str | None,
    history: Path | None,
    target: str | None,
    plot: Path | None,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Forecast the dates to come; `dsgp.cli.commands.forecast` describes the options."""
    _require_numbers(ahead, level, quantiles, statistic)
    if history is not None and after is not None:
        raise ParameterError("--history has the last date; leave out --after")
    if history is None and target is not None:
        raise ParameterError("--target is a column of --history; give it, too")
    if holidays is None and (holiday_column is not None or no_holiday != NO_HOLIDAY):
        raise ParameterError("--holiday-column and --no-holiday are of --holidays; give it, too")
    inputs = [model, file_of(holidays), history]
    require_apart(out, inputs)
    if plot is not None:
        _require_picture(plot, [*inputs, out], overwrite)
    reach = Reach.of(storage_options, [*inputs, out])
    with written_aside(reach.place(out), overwrite) as aside:
        fitted = _loaded(reach, model)
        seen = dates_seen(fitted)
        observed = None
        form = CsvFormat(*csv_format)
        if history is not None:
            seen, observed = _of_history(reach, history, seen, target, form)
        others = [name for name in fitted.used_columns_ if name != seen.column]
        of_holidays = None if holidays is None else _holiday_column(others, holiday_column)
        unknown = [name for name in others if name != of_holidays]
        _require_known_ahead(unknown, seen.column, holidays is not None)
        dates = _dates(seen, ahead, freq, after)
        table = pd.DataFrame({seen.column: dates})
        if holidays is not None and of_holidays is not None:
            named = Holidays.of(holidays, reach, form)
            table[of_holidays] = named.as_in_the_fit(dates, of_holidays, fitted, no_holiday)
        outputs = outputs_of(fitted, level, (), statistic, quantiles or ())
        predicted = table.assign(**outputs.of(table, {}))
        with table_writer(name_of(out), aside) as write:
            write(predicted)
    first, last = dates[[0, -1]].astype(str)  # without the time of day if all are midnight
    typer.echo(f"{ahead} dates from {first} to {last} saved in {without_secrets(str(out))}")
    if plot is not None:
        _draw(plot, predicted, seen.column, statistic, level, observed, target)
        typer.echo(f"picture saved in {plot}")


def _require_numbers(
    ahead: int,
    level: float | None,
    quantiles: Sequence[float] | None,
    statistic: str | None,
) -> None:
    if ahead < 1:
        raise ParameterError(f"--ahead must be at least 1, got {ahead}")
    require_answers(level, statistic, quantiles)


def _require_picture(plot: Path, others: Sequence[Path | None], overwrite: bool) -> None:
    try:
        import_module("dsgp.plotting")
    except ImportError as error:  # Matplotlib is an extra.
        raise ParameterError(str(error)) from error
    if plot.suffix.lower() not in PICTURES:
        raise ParameterError(f"--plot must end in {' or '.join(PICTURES)}, got {str(plot)!r}")
    require_apart(plot, others, "--plot")
    require_folder(plot)
    if plot.exists() and not overwrite:
        raise ParameterError(f"{str(plot)!r} exists; choose another path, or --overwrite")


def _loaded(reach: Reach, model: Path) -> Any:
    fitted = load(reach.place(model))
    if isinstance(fitted, (GridGP, ClassEstimator)):
        raise ParameterError(
            f"{str(model)!r} is a {type(fitted).__name__}, and dsgp forecast is for models of a "
            "number in a table; classes of dates to come are predicted by dsgp predict"
        )
    if not hasattr(fitted, "feature_names_in_"):
        raise ParameterError(
            f"{str(model)!r} was fitted to an array, whose columns have no names and no dates; fit "
            "it to a table with a column of dates"
        )
    return fitted


def _of_history(
    reach: Reach, history: Path, seen: DatesSeen, target: str | None, form: CsvFormat
) -> tuple[DatesSeen, Any]:
    """Return the dates of a table in place of the model's, and with ``target`` its values."""
    wanted = [seen.column] if target is None else [seen.column, target]
    table = read(reach.place(history), wanted, True, form)
    dates = column_of_dates(str(history), table[seen.column])
    zone = getattr(dates.dt, "tz", None)
    if (zone is None) != (seen.zone is None):
        words = ["no time zone" if each is None else f"{each}" for each in (zone, seen.zone)]
        raise DataError(
            f"{str(history)!r}: column {seen.column!r} has {words[0]}, and had {words[1]} when the "
            "model was fitted; make both alike"
        )
    if zone is not None:
        dates = dates.dt.tz_convert(seen.zone)
    index = pd.DatetimeIndex(dates)
    try:
        step = distance_of(index)
    except DataError:
        step = None
    observed = None
    if target is not None:
        observed = (index, numbers_of(f"column {target!r} of {str(history)!r}", table[target]))
    return replace(seen, first=index.min(), last=index.max(), step=step), observed


def _dates(seen: DatesSeen, ahead: int, freq: str | None, after: str | None) -> pd.DatetimeIndex:
    last = seen.last if after is None else _date_of(after, seen.zone)
    if last is None:
        raise ParameterError(
            f"the model does not hold the last date of column {seen.column!r} that it was fitted "
            "to: pass it as --after DATE, or the table as --history"
        )
    step = seen.step if freq is None else freq
    if step is None:
        raise ParameterError(
            f"the dates of column {seen.column!r} have no common distance, or the model does not "
            "hold it: pass --freq, such as D, h, W-MON or MS"
        )
    dates = future_dates(last, ahead, step)
    if seen.first is not None and dates[-1] - dates[0] > seen.last - seen.first:
        warnings.warn(
            f"the forecast, to {dates[-1]:%Y-%m-%d}, is longer than the series that it follows, "
            f"{seen.first:%Y-%m-%d} to {seen.last:%Y-%m-%d}: its trend, and seasons that were not "
            "seen whole, follow from the prior",
            DataWarning,
            stacklevel=2,
        )
    return dates


def _date_of(text: str, zone: str | None) -> pd.Timestamp:
    try:
        date = pd.Timestamp(text)
    except ValueError as error:
        raise ParameterError(f"--after must be a date, such as 2024-12-31, got {text!r}") from error
    if date is pd.NaT:
        raise ParameterError(f"--after must be a date, such as 2024-12-31, got {text!r}")
    if date.tz is None:
        return date if zone is None else date.tz_localize(zone)
    if zone is None:
        raise ParameterError(f"--after has a time zone, and the model's dates have none: {text!r}")
    return date.tz_convert(zone)


# ---------------------------------------------------------------- what is known ahead


def _require_known_ahead(others: Sequence[str], dates: str, has_holidays: bool) -> None:
    if not others:
        return
    names = ", ".join(map(repr, others))
    columns, them = ("column", "it") if len(others) == 1 else ("columns", "them")
    one_of_holidays = (
        f", or, if {names} has names of holidays, pass --holidays FILE or COUNTRY"
        if len(others) == 1 and not has_holidays
        else ""
    )
    raise ParameterError(
        f"the model needs the {columns} {names} besides the dates {dates!r}, which cannot be "
        f"known from dates to come: make a table of these dates with {them}, and use dsgp predict "
        f"MODEL TABLE --out FILE{one_of_holidays}"
    )


def _holiday_column(others: Sequence[str], asked: str | None) -> str:
    """Return the column of the model that holidays are for."""
    names = ", ".join(map(repr, others))
    if asked is not None:
        if asked not in others:
            raise ParameterError(
                f"--holiday-column: the model reads no column {asked!r} besides its dates; it "
                f"reads {names or 'none'}"
            )
        return asked
    if len(others) != 1:
        raise ParameterError(
            f"--holidays: the model reads the columns {names} besides its dates; name that of the "
            "holidays, --holiday-column"
            if others
            else "--holidays: the model reads no column besides its dates; leave it out"
        )
    return others[0]


# ---------------------------------------------------------------- picture


def _draw(
    plot: Path,
    predicted: pd.DataFrame,
    column: str,
    statistic: str | None,
    level: float | None,
    observed: tuple[pd.DatetimeIndex, Any] | None,
    target: str | None,
) -> None:
    dates = pd.DatetimeIndex(predicted[column])
    if observed is not None:
        start = dates[0] - _SHOWN * (dates[-1] - dates[0]) - pd.Timedelta(days=1)
        seen, values = observed
        shown = np.asarray(seen >= start)
        observed = (seen[shown], values[shown])
    name = "median" if statistic == "median" else "mean"
    figure = import_module("dsgp.plotting").plot_forecast(
        dates,
        predicted[name],
        predicted["lower"],
        predicted["upper"],
        observed=observed,
        level=LEVEL if level is None else level,
        statistic=name,
        target=target,
    )
    with made_aside(plot) as aside:
        figure.savefig(aside, format=plot.suffix[1:].lower(), dpi=150)
