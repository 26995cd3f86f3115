"""Options of ``dsgp plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

Out = Annotated[
    Path,
    Option(
        metavar="FILE",
        help="Output: a file .pdf, or NAME.png, which becomes NAME-1.png and so on.",
    ),
]
Target = Annotated[
    str | None,
    Option(metavar="TEXT", help="Name and unit of the target, for the labels."),
]
Level = Annotated[float, Option(metavar="P", help="Probability of the bands, between 0 and 1.")]
