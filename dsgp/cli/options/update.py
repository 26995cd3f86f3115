"""Options of ``dsgp update``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Target = Annotated[
    str, Option(metavar="COLUMN", help="Column of DATA with the target of the model.")
]
Out = Annotated[
    Path,
    Option(
        "--out",
        "-o",
        metavar="MODEL2.zarr",
        help="Path of the updated model; with --overwrite it may be MODEL.zarr itself.",
    ),
]
Weight = Annotated[
    str | None,
    Option(metavar="COLUMN", help="Weights w: a row has noise variance S2 / w, as for dsgp fit."),
]
Relearn = Annotated[
    bool,
    Option(
        "--relearn",
        help="Learn the hyperparameters again; those of the model are the initial values.",
    ),
]
HalfLife = Annotated[
    float | None,
    Option(
        metavar="H",
        help="Half-life: the weights of all rows so far are multiplied by 2^(-elapsed / H).",
    ),
]
Elapsed = Annotated[
    float | None,
    Option(
        metavar="E",
        help="With --half-life: time since the previous update, in the unit of H. By default 1, "
        "so that H is a number of updates.",
    ),
]
