"""What a page says of a field on a grid: maps, curves, covariance, data and how it was solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import xarray as xr

from dsgp.estimators.grid import GridGP
from dsgp.report.facts import Again, again_with, called
from dsgp.report.grid_curves import correlations, observed_share, series
from dsgp.report.grid_facts import (
    Component,
    Counts,
    Dim,
    cautions_of_grid,
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
        "again": again_of_grid(model, target),
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


def again_of_grid(model: GridGP, target: str) -> Again:
    """Describe how to make a model of a field again."""
    field = getattr(model, "field_", None)
    name = None if field is None else field.template.name
    variable = str(name or "field")
    text = f'da = xr.open_dataset("field.nc")[{variable!r}]  # the field of the fit'
    given = []
    if field is not None and "excluded by the mask" in field.left_out:
        given.append("mask")
    if field is not None and field.domain is not None:
        given.append("domain")
    extra = "".join(f", {word}={word}" for word in given)
    note = f"# The {' and the '.join(given)} of the fit are to be given again.\n" if given else ""
    # Of a loaded model the kernels are those that were learned, not those that were given; arrays
    # have names instead of their numbers.
    without = ["kernels"] if model.kernels is model.kernels_ and model.learner is not None else []
    without += [
        name
        for name in ("mean", "noise_variance")
        if isinstance(getattr(model, name), xr.DataArray)
    ]
    code = (
        f"import xarray as xr\n\nimport dsgp\nfrom dsgp import GridGP\nfrom dsgp.kernels import *\n"
        f"from dsgp.transforms import *\n\n{text}\n{note}"
        f"# Learned from the beginning:\nmodel = {called(model, without)}\nmodel.fit(da{extra})\n\n"
        f"# With the hyperparameters of this page, to six digits; nothing is learned:\n"
        f"model = {_known(model)}\nmodel.fit(da{extra})\n\n"
        f"# A saved model holds the field:\n"
        f'model = dsgp.load("model.zarr")\nposterior = model.posterior()\n\n'
        f"# From the command line:\n#   dsgp smooth field.nc --variable {_quoted(variable)} "
        f"--out smooth.zarr --save-model model.zarr\n#   dsgp report model.zarr -o report.html\n"
    )
    return again_with(model, code)


def _known(model: GridGP) -> str:
    """Write the call that makes a model with the hyperparameters that were learned."""
    parts = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    lines = ["GridGP(", "    ["]
    for part in parts:
        lines += ["        {"]
        lines += [f"            {dim!r}: {kernel!r}," for dim, kernel in part.items()]
        lines += ["        },"]
    noise = model.noise_variance_
    lines += [
        "    ],",
        f"    noise_variance={'noise_variance' if noise is None else f'{noise:.6g}'},",
    ]
    if isinstance(model.mean, xr.DataArray):
        lines.append("    mean=mean,")
    elif model.mean != "constant":
        lines.append(f"    mean={model.mean!r},")
    for name in ("transform_", "units"):
        if getattr(model, name) is not None:
            lines.append(f"    {name.rstrip('_')}={getattr(model, name)!r},")
    return "\n".join([*lines, "    learner=None,", ")"])


def _quoted(name: str) -> str:
    return name if name.isidentifier() else repr(name)
