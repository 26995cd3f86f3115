"""Options of ``dsgp predict``: where predictions go, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Out = Annotated[
    Path,
    Option(
        metavar="FILE|FOLDER",
        help="Output: a file .csv, .csv.gz, .parquet or .pq. A name without a file extension is a "
        "folder with one file per block, part-00000.parquet and so on.",
    ),
]
Keep = Annotated[
    list[str] | None,
    Option(metavar="A,B", help="Columns to copy from DATA; can be repeated."),
]
Level = Annotated[
    float | None,
    Option(
        metavar="P",
        help="Probability of the interval, between 0 and 1; 0.95 by default. Not for a classifier.",
    ),
]
Quantile = Annotated[
    list[float] | None,
    Option(
        metavar="P",
        help="Also write a column quantile_P, the quantile of a new observation (noise included) "
        "at this probability between 0 and 1; can be repeated. Not for a classifier.",
    ),
]
Statistic = Annotated[
    str | None,
    Option(
        metavar="mean|median",
        help="Not for a classifier: predict the posterior mean (the default) or the median. They "
        "differ for models with a link function or with fit --transform.",
    ),
]
Exposure = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="poisson, negative-binomial, gamma: column of exposures; by default predictions are "
        "per unit of exposure.",
    ),
]
Offset = Annotated[
    str | None,
    Option(metavar="COLUMN", help="bernoulli to student-t: column of offsets; 0 by default."),
]
Trials = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="binomial: column of the number of trials; by default the mean is a probability.",
    ),
]
