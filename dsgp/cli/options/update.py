"""Options of ``dsgp update``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Target = Annotated[
    str, Option(metavar="COLUMN", help="Name of the target in DATA, the column the model predicts.")
]
Out = Annotated[
    Path,
    Option(
        "--out",
        "-o",
        metavar="MODEL2.zarr",
        help="Where to save the updated model; with --overwrite it may be MODEL.zarr itself.",
    ),
]
Weight = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="Weights w: a row has noise variance S2 / w, in the same unit as for dsgp fit.",
    ),
]
Relearn = Annotated[
    bool,
    Option(
        "--relearn",
        help="Learn the hyperparameters again from all rows; the initial values are those of the "
        "model. By default they are kept.",
    ),
]
HalfLife = Annotated[
    float | None,
    Option(
        metavar="H",
        help="Forget: the weight of every earlier row is multiplied by 2^(-E / H), with E of "
        "--elapsed. By default all rows count in full.",
    ),
]
Elapsed = Annotated[
    float | None,
    Option(
        metavar="E",
        help="With --half-life and in its unit (days, rows): what has passed since the earlier "
        "rows. 1 by default, so that H is a number of updates.",
    ),
]
