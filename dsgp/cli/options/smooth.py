"""Options of ``dsgp smooth``: the field, its model, what is written, and how it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dsgp.cli import choices

# What goes in and out.
Data = Annotated[
    list[str],
    Argument(
        metavar="IN...",
        help="A zarr store, or a file that xarray opens (netCDF), here or at an address. "
        "Several, or a pattern in quotes ('sst-*.nc'), are joined along their dim of times.",
    ),
]
Out = Annotated[
    Path,
    Option(metavar="OUT.zarr|OUT.nc", help="Where mean and standard deviation go."),
]
Variable = Annotated[
    str | None,
    Option(metavar="NAME", help="The field; not needed where only one variable can be it."),
]
Group = Annotated[
    str | None,
    Option(metavar="PATH", help="The group of IN that has it, such as surface/daily."),
]

# The model.
Kernel = Annotated[
    list[str] | None,
    Option(
        metavar="DIM=KERNEL",
        help=f"Covariance along a dim: {choices.GRID_KERNELS}; can be repeated. Others are chosen.",
    ),
]
NoiseVariance = Annotated[
    str | None,
    Option(
        metavar="learn|S2|NAME|NAME^2",
        help="Noise variance, in squared units of the field: learned (the default), a number "
        "where that starts, or a variable of IN with that of each cell, which is known; NAME^2 if "
        "it holds standard deviations.",
    ),
]
FixedNoise = Annotated[
    bool, Option("--fixed-noise", help="Keep the number of --noise-variance as it is.")
]
Mean = Annotated[
    str | None,
    Option(
        metavar="MEAN",
        help="What is taken off before: constant (the default), zero, a number, a dim (average "
        "over it in each cell), DIM.month or another part of dates (climatology), or a "
        "variable of IN.",
    ),
]
Transform = Annotated[
    choices.Transform,
    Option(
        help="What is modelled of a skewed field: its logarithm, or the power transform of Yeo "
        "and Johnson, whose power is learned. mean and std are in the field's units, "
        "--noise-variance is on the scale of the transform.",
    ),
]
Scales = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Terms of the covariance, each with lengthscales of its own; by default "
        "as many as the likelihood says, up to three.",
    ),
]

# Cells that are used, and cells and numbers that are written.
Mask = Annotated[
    str | None,
    Option(
        metavar="NAME[=VALUE]",
        help="A variable of IN: values are used where it is 1 or true, or where it is VALUE "
        "(land=0).",
    ),
]
Domain = Annotated[
    str,
    Option(
        metavar="auto|observed|hull|all|NAME[=VALUE]",
        help="Cells that are given: observed, those that hold a value at some time (not land); "
        "hull, those inside the convex hull of these; all; or where a variable of IN is 1 or "
        "true. auto (the default): observed with several steps of time, else hull.",
    ),
]
KeepObserved = Annotated[
    bool,
    Option(
        "--keep-observed",
        help="Only fill gaps: mean is the observed value where there is one, and std that of "
        "the noise.",
    ),
]
IncludeNoise = Annotated[
    bool, Option("--include-noise", help="std of a new observation, not of the field.")
]
Quantile = Annotated[
    list[float] | None,
    Option(
        metavar="P",
        help="Write NAME_quantiles too: of the field, or with --include-noise of a new "
        "observation; 0.5 is the median. Can be repeated.",
    ),
]

# Models that are kept.
SaveModel = Annotated[
    Path | None,
    Option(metavar="MODEL.zarr", help="Save the fitted model too; see dsgp info."),
]
Model = Annotated[
    Path | None,
    Option(
        metavar="MODEL.zarr",
        help="Take kernels, noise and kind of mean of this one: nothing is learned.",
    ),
]

# How it runs.
MemoryLimit = Annotated[
    str | None,
    Option(
        "--memory",
        metavar="SIZE",
        help="What may be used, such as 1GiB; by default what is free. A field that needs more "
        "is worked through in pieces: exactly if complete, else tile by tile.",
    ),
]
Restart = Annotated[
    bool,
    Option("--restart", help="In pieces: do not go on where a run was interrupted."),
]
RandomState = Annotated[int, Option(metavar="N", help="The same gives the same result.")]
