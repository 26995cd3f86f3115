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
MaxTerms = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Maximum number of main effects and interactions to draw; those with the largest "
        "shares are drawn, the others are named. By default all are drawn.",
    ),
]
Scale = Annotated[
    str,
    Option(
        metavar="SCALE",
        help="free: a vertical scale per panel, so that small effects are seen; common: one per "
        "page, so that sizes compare.",
    ),
]
Level = Annotated[float, Option(metavar="P", help="Probability of the bands, between 0 and 1.")]
