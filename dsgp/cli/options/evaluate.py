"""Options of ``dsgp evaluate`` and ``dsgp calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Target = Annotated[str, Option(metavar="COLUMN", help="The target that the model predicts.")]
Level = Annotated[
    float, Option(metavar="P", help="Probability of the intervals whose coverage is counted.")
]
Table = Annotated[
    Path | None,
    Option("--out", metavar="FILE.csv", help="Write the coverage of all groups of rows."),
]
Picture = Annotated[
    Path | None,
    Option("--plot", metavar="FILE", help="Draw it: a file .png, .pdf or .svg. Needs matplotlib."),
]
Out = Annotated[
    Path,
    Option(metavar="MODEL", help="Where the calibrated model goes: a folder, usually *.zarr."),
]
