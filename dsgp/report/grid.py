"""What a page says of a field on a grid: maps, curves, covariance, data and how it was solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsgp.estimators.grid import GridGP
from dsgp.report.grid_again import again_of_grid
from dsgp.report.grid_cautions import cautions_of_grid
from dsgp.report.grid_curves import correlations, observed_share, series
from dsgp.report.grid_facts import (
    Component,
    Counts,
    Dim,
    components_of,
    dims_of,
    headlines_of_grid,
    solved_of,
    treatment_of,
)
from dsgp.report.grid_left import left_of
from dsgp.report.grid_maps import MapNumbers, SliceMaps, slice_maps
from dsgp.report.grid_view import GridView
from dsgp.report.measures import Figure
from dsgp.report.rendering import Charts


@dataclass(frozen=True)
class Grid:
    """What the page of a field has beside what all pages have.

    Attributes
    ----------
    maps : list of SliceMaps
    chosen : str
        Which slices and cells are drawn.
    numbers : MapNumbers
    curves : list of Figure
        Through time, or along the only dim.
    components : list of Component
    correlations : list of Figure
    solved : list of (name, value, meaning)
    dims : list of Dim
    share : Figure or None
        How much is observed at each time.
    """

    maps: list[SliceMaps]
    chosen: str
    numbers: MapNumbers
    curves: list[Figure]
    components: list[Component]
    correlations: list[Figure]
    solved: list[tuple[str, str, str]]
    dims: list[Dim]
    share: Figure | None


def grid_page(
    model: GridGP, view: GridView, drawn: Charts, target: str, level: float
) -> dict[str, Any]:
    """Return the parts of a page about a fitted ``GridGP``."""
    counts, left = Counts.of(model, view), left_of(model, view)
    numbers = MapNumbers()
    parts = [] if view.map_dims is None else [(one, view.map_at(one)) for one in view.slices()]
    maps = slice_maps(view, parts, numbers, target) if parts else []
    curves = series(model, view, parts, drawn, target, level)
    share = None if counts.shares is None else observed_share(view, counts.shares, drawn)
    grid = Grid(
        maps,
        _chosen(view, drawn_any=bool(maps)),
        numbers,
        curves,
        components_of(model),
        correlations(model, drawn),
        solved_of(model, left),
        dims_of(model, view),
        share,
    )
    sections = [
        *([("maps", "Maps")] if maps else []),
        *([("curves", "Curves")] if curves else []),
        ("covariance", "Covariance"),
    ]
    return {
        "lead": _lead(model, target),
        "headlines": headlines_of_grid(model, counts, left),
        "cautions": cautions_of_grid(model, view, counts, left),
        "sections": sections,
        "columns": [],
        "treatment": treatment_of(model, counts),
        "grid": grid,
        "again": again_of_grid(model),
    }


def _lead(model: GridGP, target: str) -> str:
    names = [axis.name for axis in model._axes]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return (
        f"{target} along {listed}: what a Gaussian process makes of the observed cells, with its "
        "standard deviation everywhere."
    )


def _chosen(view: GridView, drawn_any: bool) -> str:
    """Say in sentences which part of the field the maps are."""
    if view.map_dims is None:
        return ""
    if not drawn_any:
        return "No cell of the slices that would be drawn has a posterior."
    said = []
    for dim in view.across_dims:
        n = view.sizes[dim]
        if dim == view.across_dims[0] and n > 1:
            which = "first and last" if n == 2 else "first, middle and last"
            said.append(f"Maps are of the {which} of {n:,} steps along {dim}.")
        elif n > 1:
            said.append(f"Along {dim} they are of the middle one of {n:,} steps.")
    for dim, stride in view.strides().items():
        if stride > 1:
            said.append(
                f"Along {dim} one in {stride} of {view.sizes[dim]:,} cells is drawn, not an "
                "average."
            )
    return " ".join(said)
