"""What stands below and beside panels of terms: captions, and the label of effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsgp.plotting.curve_panels import CurvesPanel
from dsgp.plotting.pair_panels import MapPanel
from dsgp.plotting.panels import Panel, link_of, scale_of
from dsgp.plotting.style import label, short_name

# What bands and intervals are drawn, in the words of a caption.
BANDS = {
    "pointwise": ("pointwise", "pointwise"),
    "simultaneous": ("for a whole panel at once", "for a whole panel at once"),
    "both": (
        "dark pointwise, light for a whole panel at once",
        "thick pointwise, thin for a whole panel at once",
    ),
}
_NAMED = 30  # terms that are not drawn


def effect_label(model: Any, target: str | None) -> str:
    """Label of the vertical axes."""
    name = "" if target is None else label(target, 40)
    link = link_of(model)
    if link is None:
        effect = f"effect on {name}" if name else "effect"
    else:
        effect = f"effect on f ({link} link)" + (f" of {name}" if name else "")
    return effect + scale_of(model)


def components_caption(
    model: Any,
    panels: Sequence[Any],
    shares: Mapping[str, float],
    level: float,
    bands: str,
    scale: str,
    of_training: bool,
    left: Sequence[str],
) -> str:
    """Say what colours, bands, bars and numbers of panels of terms mean.

    Parameters
    ----------
    model : fitted estimator
    panels : sequence of panels
    shares : mapping of str to float
        Of the variance of f, by the names of terms.
    level, bands, scale
        As for ``plot_components``.
    of_training : bool
        Whether bars are of the training rows.
    left : sequence of str
        Names of terms that are not drawn.
    """
    link = link_of(model)
    rest = [panel for panel in panels if not isinstance(panel, MapPanel)]
    parts = [
        "numbers above a panel: lowest to highest effect"
        + ("" if link is None else f", on the scale of the {link} link"),
        "share: of the variance of f, the sum of all terms",
    ]
    if any(shares[panel.term.name] <= -0.0005 for panel in panels):
        parts.append("below 0: the term takes back part of what others give")
    if scale == "free" and len(panels) > 1:
        parts.append("each panel has its own scale")
    parts += _of_maps([panel for panel in panels if isinstance(panel, MapPanel)], level, bands)
    parts += _of_bands(rest, level, bands)
    if any(isinstance(panel, Panel) for panel in rest):
        rows = "training rows" if of_training else "rows of X"
        weighting = ", weighted by information" if of_training and link is not None else ""
        parts.append(f"bars at the bottom: {rows}{weighting}")
    if left:
        named = ", ".join(short_name(name, 40) for name in left[:_NAMED])
        more = len(left) - _NAMED
        parts.append(f"not drawn: {named}" + (f" and {more} others" if more > 0 else ""))
    return breaking_between(parts)


def _of_maps(maps: Sequence[MapPanel], level: float, bands: str) -> list[str]:
    if not maps:
        return []
    wide = "wide band" if bands == "both" else "band"
    parts = [f"colour: effect, hatched or crossed where its {level:.0%} {wide} contains 0"]
    if any(panel.has_gaps for panel in maps):
        parts.append("grey ground: no rows near")
    if not all(any(panel.names) for panel in maps):
        parts.append("dots: rows")
    return parts


def _of_bands(rest: Sequence[Any], level: float, bands: str) -> list[str]:
    which, which_intervals = BANDS[bands]
    few, grey = [panel.few for panel in rest], [not panel.is_clear for panel in rest]
    parts = []
    if not all(few):
        parts.append(f"band: {level:.0%} credible, {which}")
    if any(few):
        parts.append(f"points (few values): {level:.0%} credible intervals, {which_intervals}")
    # Curves over one another keep their colours.
    if any(
        is_grey and not isinstance(panel, CurvesPanel)
        for panel, is_grey in zip(rest, grey, strict=True)
    ):
        wide = "the wide band" if bands == "both" else "the band"
        parts.append(f"grey: {wide} contains 0 everywhere, no visible effect")
    return parts


def breaking_between(parts: Sequence[str]) -> str:
    """Join parts of a caption, whose lines break between them where they are short."""
    return ";  ".join(
        part.replace(" ", "\N{NO-BREAK SPACE}") if len(part) < 90 else part for part in parts
    )
