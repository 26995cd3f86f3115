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
        "quotes ('data/*.csv'), or a zarr store, here or at an address (s3://bucket/data/*.csv). "
        "All but small files are read block by block.",
    ),
]
Delimiter = Annotated[
    str,
    Option(metavar="CHARACTER", help="CSV: what separates the fields, such as ';'; or tab."),
]
Decimal = Annotated[str, Option(metavar=".|,", help="CSV: the decimal point of numbers.")]
Encoding = Annotated[
    str, Option(metavar="NAME", help="CSV: such as utf-8, utf-16, latin-1 or cp1252.")
]
StorageOption = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="Of addresses, such as anon=true of s3://…: what fsspec takes; can be repeated. What "
        "gives access is better in the environment or in fsspec's configuration.",
    ),
]
Scheduler = Annotated[
    str | None,
    Option(
        metavar="ADDRESS",
        help="Use the workers of a dask cluster (tcp://head:8786, tls://…); threads of this "
        "machine without.",
    ),
]
PerformanceReport = Annotated[
    Path | None,
    Option(
        metavar="FILE.html",
        help="With --scheduler: write dask's page of what its workers did, task by task.",
    ),
]
Overwrite = Annotated[
    bool, Option("--overwrite", help="Replace what is at --out, if dsgp wrote it.")
]
Model = Annotated[
    Path,
    Argument(metavar="MODEL.zarr", help="A model written by dsgp fit; a path or an address."),
]
