"""Options of ``dsgp report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Out = Annotated[Path, Option("--out", "-o", metavar="FILE.html", help="Where the page goes.")]
HeldOut = Annotated[
    Path | None,
    Option(
        "--data",
        metavar="DATA",
        help="A table of held-out rows, which the model was not fitted to, as for dsgp predict; "
        "read into memory. The page has the accuracy and the calibration of their predictions.",
    ),
]
Target = Annotated[
    str | None,
    Option(metavar="NAME", help="The column of --data with the target; without, its name."),
]
Title = Annotated[str | None, Option(metavar="TEXT", help="Title of the page.")]
