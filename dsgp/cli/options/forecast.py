"""Options of ``dsgp forecast``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Ahead = Annotated[int, Option(metavar="N", help="Number of dates to forecast.")]
Out = Annotated[Path, Option(metavar="FILE", help="Output: a file .csv, .csv.gz, .parquet or .pq.")]
Freq = Annotated[
    str | None,
    Option(
        metavar="FREQ",
        help="Distance of the dates, as pandas calls it: D (days), h, W-MON, MS (first days of "
        "months), …; by default that of the dates of the fit or of --history.",
    ),
]
After = Annotated[
    str | None,
    Option(
        metavar="DATE",
        help="The last date before the forecast; by default the last one of the fit or of "
        "--history.",
    ),
]
Holidays = Annotated[
    str | None,
    Option(
        metavar="FILE|COUNTRY",
        help="Holidays to come, for a model with a column of them: a table with the columns date "
        "and holiday, whose names are those of the fit, or a country such as US (needs the package "
        "holidays). Levels such as 'Easter -1' of the fit are the days beside them.",
    ),
]
HolidayColumn = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="--holidays: the column of the model; by default its only column beside the dates.",
    ),
]
NoHoliday = Annotated[
    str, Option(metavar="LEVEL", help="--holidays: what all other dates are called in the fit.")
]
History = Annotated[
    Path | None,
    Option(
        metavar="DATA",
        help="Rows up to now, with the dates of the model: the forecast follows their last date. "
        "With --target, --plot shows them.",
    ),
]
Target = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="--history: its column of observed values; also the label of the picture.",
    ),
]
Picture = Annotated[
    Path | None,
    Option(
        "--plot",
        metavar="FILE",
        help="Plot the forecast: a file .png, .pdf or .svg. Needs matplotlib.",
    ),
]
