"""Make the pictures of the pages from the code of the pages themselves: ``python docs/images.py``.

A picture is drawn after the Python blocks of its page up to the one that is named, which run as a
reader would run them. Names of pictures may follow, to make these only.
"""

import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from re import DOTALL, MULTILINE, compile
from typing import Any

from matplotlib.figure import Figure
from PIL import Image, ImageChops

DOCS = Path(__file__).parent
BLOCK = compile(r"^```python\n(.*?)^```$", MULTILINE | DOTALL)
MOST_BYTES = 150_000
MOST_OFF = 16  # of 255


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes
    ----------
    page : str
        Whose code makes it.
    blocks : int
        Python blocks of the page that are run.
    code : str
        An expression that is a figure, with ``plotting`` for ``dsgp.plotting``.
    dpi : int
    """

    page: str
    blocks: int
    code: str
    dpi: int = 110


PICTURES = {
    "terms": Picture(
        "../README.md", 1, "plotting.plot_components(model, target='rent', columns=3)"
    ),
    "components": Picture(
        "index.md", 1, "plotting.plot_components(model, target='progression')", 80
    ),
    "grid": Picture(
        "howto/grids.md",
        1,
        "plotting.plot_field(filled, sst, n_slices=1, target='temperature (°C)')",
    ),
    "summary": Picture("howto/summary.md", 1, "plotting.plot_report(model)[0]", 100),
    "interactions": Picture(
        "howto/interactions.md",
        1,
        "plotting.plot_components(model, target='minutes', columns=3)",
    ),
    "slices": Picture(
        "howto/interactions.md", 1, "plotting.plot_slices(model, ('hour', 'day'), target='minutes')"
    ),
    "uncertainty": Picture(
        "howto/uncertainty.md", 1, "plotting.plot_components(model, bands='both', target='y')"
    ),
    "compare": Picture(
        "howto/compare.md",
        1,
        "plotting.plot_components(curves, target='y', columns=3)",
    ),
    "classification": Picture(
        "howto/classification.md",
        2,
        "plotting.plot_classification(y.iloc[test], probability, classes=model.classes_)",
    ),
    "projections": Picture(
        "howto/projection-pursuit.md", 1, "plotting.plot_projections(model, target='y')"
    ),
    "forecast": Picture(
        "howto/forecast.md",
        1,
        "plotting.plot_forecast(ahead.day, median, low, high, "
        "observed=(day[-180:], sales[-180:]), target='sales')",
    ),
    "dates": Picture(
        "howto/dates.md", 1, "plotting.plot_components(model, target='sales', columns=3)"
    ),
}


def figure_of(picture: Picture) -> Figure:
    """Run the code of a page in an empty folder, and draw."""
    text = (DOCS / picture.page).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for block in BLOCK.findall(text)[: picture.blocks]:
            exec(block, namespace)
        exec("import dsgp.plotting as plotting", namespace)
        figure = eval(picture.code, namespace)
    assert isinstance(figure, Figure)
    return figure


def save(figure: Figure, path: Path, dpi: int) -> int:
    """Save; with a palette of 256 colours where that is hardly seen, not of scales of colours."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    image = Image.open(buffer).convert("RGB")
    small = image.quantize(256, dither=Image.Dither.NONE)
    off = max(high for _, high in ImageChops.difference(image, small.convert("RGB")).getextrema())
    (small if off <= MOST_OFF else image).save(path, optimize=True)
    return path.stat().st_size


def main(names: list[str]) -> None:
    """Make pictures, all without names."""
    for name in names or list(PICTURES):
        picture = PICTURES[name]
        size = save(figure_of(picture), DOCS / "images" / f"{name}.png", picture.dpi)
        print(f"{name}.png: {size / 1e3:.0f} kB")
        if size > MOST_BYTES:
            sys.exit(f"{name}.png is larger than {MOST_BYTES / 1e3:.0f} kB: lower its dpi")


if __name__ == "__main__":
    main(sys.argv[1:])
