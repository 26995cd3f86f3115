"""Options of ``dsgp update``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Target = Annotated[
    str, Option(metavar="COLUMN", help="What the model predicts, as it is called in DATA.")
]
Out = Annotated[
    Path,
    Option(
        "--out",
        "-o",
        metavar="MODEL2.zarr",
        help="Where the updated model goes; with --overwrite it may be MODEL.zarr itself.",
    ),
]
Weight = Annotated[
    str | None,
    Option(metavar="COLUMN", help="Weights w: a row has noise variance S2 / w, as for dsgp fit."),
]
Relearn = Annotated[
    bool,
    Option("--relearn", help="Learn the hyperparameters again, from those the model has."),
]
HalfLife = Annotated[
    float | None,
    Option(
        metavar="H",
        help="Forget: rows so far count for 2^(-elapsed / H) of what they did, new rows in full.",
    ),
]
Elapsed = Annotated[
    float | None,
    Option(
        metavar="E",
        help="With --half-life: what has passed since the rows before, in its unit. 1 by default, "
        "so that H is a number of updates.",
    ),
]
