"""Options of ``dsgp predict``: where predictions go, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Out = Annotated[
    Path,
    Option(
        metavar="FILE|FOLDER",
        help="Where predictions go: a file .csv, .csv.gz, .parquet or .pq. A name without an "
        "ending is a folder of files part-00000.parquet, …, one for each block.",
    ),
]
Keep = Annotated[list[str] | None, Option(metavar="A,B", help="Copied from DATA; can be repeated.")]
Level = Annotated[
    float | None,
    Option(
        metavar="P",
        help="Probability of the interval, between 0 and 1; 0.95 by default. Not of a classifier.",
    ),
]
Statistic = Annotated[
    str | None,
    Option(
        metavar="mean|median",
        help="Not of a classifier: predict the mean response averaged over what is unknown, "
        "the default, or its median. They differ behind a link and with fit's --transform.",
    ),
]
Exposure = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="poisson, negative-binomial, gamma: exposure of each row; without it predictions "
        "are per unit of it.",
    ),
]
Offset = Annotated[
    str | None,
    Option(metavar="COLUMN", help="bernoulli to student-t: offset of each row; else 0."),
]
Trials = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="binomial: trials of each row; without them the mean is a probability.",
    ),
]
