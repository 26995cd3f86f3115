"""The options of ``dsgp predict``; `dsgp.cli.prediction` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dsgp.cli.arguments import (
    Data,
    Decimal,
    Delimiter,
    Encoding,
    Model,
    Overwrite,
    StorageOption,
)
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
PREDICT_EXAMPLES = """\b
Examples:
  dsgp predict price.zarr new.csv --out predictions.csv
  dsgp predict price.zarr new.parquet --keep id,date --level 0.9 \\
      --out predictions.parquet
  dsgp predict price.zarr sales/ --out predictions/
  dsgp predict species.zarr new.csv --keep id --out classes.csv
  dsgp predict claims.zarr new.csv --exposure years --out claims.csv
  dsgp predict s3://models/price.zarr 's3://sales/*.parquet' \\
      --storage-option anon=true --out predictions.parquet
"""


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path,
        Option(
            metavar="FILE|FOLDER",
            help="Where predictions go: a file .csv, .csv.gz, .parquet or .pq. A name without an "
            "ending is a folder of files part-00000.parquet, …, one for each block.",
        ),
    ],
    keep: Annotated[
        list[str] | None, Option(metavar="A,B", help="Copied from DATA; can be repeated.")
    ] = None,
    level: Annotated[
        float | None,
        Option(
            metavar="P",
            help="Probability of the interval, between 0 and 1; 0.95 by default. Not of a "
            "classifier.",
        ),
    ] = None,
    statistic: Annotated[
        str | None,
        Option(
            metavar="mean|median",
            help="Not of a classifier: predict the mean response averaged over what is unknown, "
            "the default, or its median. They differ behind a link and with fit's --transform.",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="poisson, negative-binomial, gamma: exposure of each row; without it predictions "
            "are per unit of it.",
        ),
    ] = None,
    offset: Annotated[
        str | None,
        Option(metavar="COLUMN", help="bernoulli to student-t: offset of each row; else 0."),
    ] = None,
    trials: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="binomial: trials of each row; without them the mean is a probability.",
        ),
    ] = None,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    storage_option: StorageOption = None,
    overwrite: Overwrite = False,
) -> None:
    """Predict every row of a table, in its order.

    Writes the columns mean (or median, by --statistic) and std of the mean, without noise, and
    lower and upper: the interval of a new observation, noise included. All are in units of the
    target, transformed or not. Of an ordered target there is also probability_LEVEL, a column a
    level.

    A classifier writes predicted, the most probable class, probability_LABEL, a column a class, and
    mean and std of the function on the scale of the link: latent and std of the second of two
    classes, or latent_LABEL and std_LABEL.

    Inputs are matched by name; further columns are ignored. Columns to keep are copied as they are:
    the text of a CSV file, the types of other tables.
    """
    work_of("prediction").predict(
        model,
        data,
        out,
        keep=keep,
        level=level,
        statistic=statistic,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )
