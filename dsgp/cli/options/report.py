"""Options of ``dsgp report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Out = Annotated[Path, Option("--out", "-o", metavar="FILE.html", help="Path of the page.")]
HeldOut = Annotated[
    Path | None,
    Option(
        "--data",
        metavar="DATA",
        help="A table of held-out rows, which the model was not fitted to, as for dsgp predict; "
        "for a model of a field a zarr store or a netCDF file. Read into memory. The page has the "
        "accuracy and the calibration of their predictions.",
    ),
]
Target = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Column (or variable of a field) of --data with the target; without --data, the name "
        "of the target on the page.",
    ),
]
Title = Annotated[str | None, Option(metavar="TEXT", help="Title of the page.")]
