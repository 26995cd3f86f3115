"""Options of ``dsgp evaluate`` and ``dsgp calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Target = Annotated[
    str, Option(metavar="COLUMN", help="Column of DATA with the target of the model.")
]
Level = Annotated[
    float, Option(metavar="P", help="Probability of the intervals whose coverage is counted.")
]
Table = Annotated[
    Path | None,
    Option("--out", metavar="FILE.csv", help="Also write the coverage of groups of rows."),
]
Picture = Annotated[
    Path | None,
    Option(
        "--plot",
        metavar="FILE",
        help="Also draw the calibration: a file .png, .pdf or .svg. Needs matplotlib.",
    ),
]
Out = Annotated[
    Path,
    Option(metavar="MODEL", help="Path of the calibrated model: a folder, usually *.zarr."),
]
