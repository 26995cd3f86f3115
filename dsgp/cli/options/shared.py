"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="A table: a file .csv, .csv.gz, .parquet or .pq, a folder of such files, a pattern in "
        "quotes ('data/*.csv'), or a zarr store; a path or an address (s3://bucket/data/*.csv). "
        "Large tables are read block by block.",
    ),
]
Holidays = Annotated[
    str | None,
    Option(
        metavar="FILE|COUNTRY",
        help="Holidays, as for dsgp fit --holidays, if DATA has no column of them: a table with "
        "the columns date and holiday, or a country such as US (needs the package holidays).",
    ),
]
HolidayColumn = Annotated[
    str, Option(metavar="COLUMN", help="--holidays: the model's column of holidays.")
]
Delimiter = Annotated[
    str,
    Option(metavar="CHARACTER", help="CSV: separator of fields, such as ';', or tab."),
]
Decimal = Annotated[str, Option(metavar=".|,", help="CSV: decimal point of numbers.")]
Encoding = Annotated[
    str, Option(metavar="NAME", help="CSV: encoding, such as utf-8, utf-16, latin-1 or cp1252.")
]
StorageOption = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="Option of fsspec for addresses, such as anon=true for s3://…; can be repeated. Give "
        "credentials in the environment or in fsspec's configuration instead.",
    ),
]
Scheduler = Annotated[
    str | None,
    Option(
        metavar="ADDRESS",
        help="Use the workers of a dask cluster (tcp://head:8786, tls://…); by default threads of "
        "this machine are used.",
    ),
]
PerformanceReport = Annotated[
    Path | None,
    Option(
        metavar="FILE.html",
        help="With --scheduler: write dask's report on the tasks of its workers.",
    ),
]
Overwrite = Annotated[
    bool, Option("--overwrite", help="Replace an existing output of dsgp at --out.")
]
Model = Annotated[
    Path,
    Argument(metavar="MODEL.zarr", help="A model written by dsgp fit; a path or an address."),
]
