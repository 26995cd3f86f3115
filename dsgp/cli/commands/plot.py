"""The command ``dsgp plot``, its help and examples; `dsgp.cli.pictures` does the work."""

from __future__ import annotations

from dsgp.cli.options import plot as options
from dsgp.cli.options import shared
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
PLOT_EXAMPLES = """\b
Examples:
  dsgp plot price.zarr --out price.pdf
  dsgp plot price.zarr --out price.png --target 'price, EUR'
  dsgp plot price.zarr --out price.pdf --max-terms 12 --scale common
"""


def plot(
    model: shared.Model,
    out: options.Out,
    target: options.Target = None,
    level: options.Level = 0.95,
    max_terms: options.MaxTerms = None,
    scale: options.Scale = "free",
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Plot a saved model: shares of its terms, main effects, interactions or projections.

    The first page has the share of each term in the variance, with an interval, and the largest
    main effects with their bands. The following pages have the other main effects, and the
    interactions or the projections of a pursuit model, if there are any. With more than two
    classes, there are such pages for each class. Needs matplotlib.
    """
    work_of("pictures", models=[model]).plot(
        model,
        out,
        target=target,
        level=level,
        max_terms=max_terms,
        scale=scale,
        storage_options=storage_option,
        overwrite=overwrite,
    )
