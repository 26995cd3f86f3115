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
        help="A zarr store, or a file that xarray opens (netCDF); a path or an address. Several "
        "files, or a pattern in quotes ('sst-*.nc'), are joined along time.",
    ),
]
Out = Annotated[
    Path,
    Option(metavar="OUT.zarr|OUT.nc", help="Output: mean and standard deviation."),
]
Variable = Annotated[
    str | None,
    Option(metavar="NAME", help="Variable to smooth; not needed if only one is possible."),
]
Group = Annotated[
    str | None,
    Option(metavar="PATH", help="Group of IN that has the variable, such as surface/daily."),
]

# The model.
Kernel = Annotated[
    list[str] | None,
    Option(
        metavar="DIM=KERNEL",
        help=f"Kernel along a dimension: {choices.GRID_KERNELS}; can be repeated. Dimensions "
        "that are not named have a default kernel.",
    ),
]
NoiseVariance = Annotated[
    str | None,
    Option(
        metavar="learn|S2|NAME|NAME^2",
        help="Noise variance, in squared units of the field: learn (the default), a number (the "
        "initial value), or a variable of IN with the known noise variance of each cell; NAME^2 if "
        "it holds standard deviations.",
    ),
]
FixedNoise = Annotated[
    bool, Option("--fixed-noise", help="Keep the number of --noise-variance: do not learn it.")
]
Mean = Annotated[
    str | None,
    Option(
        metavar="MEAN",
        help="Prior mean: constant (the default), zero, a number, a dimension (average over it "
        "in each cell), DIM.month or another part of dates (climatology), or a variable of IN.",
    ),
]
Transform = Annotated[
    choices.Transform,
    Option(
        help="Transform of a skewed field: its logarithm, or the power transform of Yeo and "
        "Johnson, whose power is learned. mean and std are in the units of the field, "
        "--noise-variance is on the scale of the transform.",
    ),
]
Scales = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Number of kernels in the sum, each with its own lengthscales; by default chosen by "
        "the likelihood, up to three.",
    ),
]

# Cells that are used, and cells and numbers that are written.
Mask = Annotated[
    str | None,
    Option(
        metavar="NAME[=VALUE]",
        help="A variable of IN: values are used where it is 1 or true, or where it equals VALUE "
        "(land=0).",
    ),
]
Domain = Annotated[
    str,
    Option(
        metavar="auto|observed|hull|all|NAME[=VALUE]",
        help="Cells to output: observed, those with a value at some time (not land); hull, those "
        "inside the convex hull of these; all; or those where a variable of IN is 1 or true. auto "
        "(the default): observed if there are several time steps, otherwise hull.",
    ),
]
KeepObserved = Annotated[
    bool,
    Option(
        "--keep-observed",
        help="Only fill gaps: at observed cells, mean is the observed value and std the standard "
        "deviation of the noise.",
    ),
]
IncludeNoise = Annotated[
    bool, Option("--include-noise", help="Write the std of a new observation, not of the field.")
]
Quantile = Annotated[
    list[float] | None,
    Option(
        metavar="P",
        help="Also write NAME_quantiles, of the field or with --include-noise of a new "
        "observation; 0.5 is the median. Can be repeated.",
    ),
]

# Models that are kept.
SaveModel = Annotated[
    Path | None,
    Option(metavar="MODEL.zarr", help="Also save the fitted model; see dsgp info."),
]
Report = Annotated[
    Path | None,
    Option(
        metavar="FILE.html",
        help="Also write a page about the model: maps, curves, covariance, data; see dsgp report.",
    ),
]
Model = Annotated[
    Path | None,
    Option(
        metavar="MODEL.zarr",
        help="Use the kernels, noise and kind of prior mean of this model: nothing is learned.",
    ),
]

# How it runs.
MemoryLimit = Annotated[
    str | None,
    Option(
        "--memory",
        metavar="SIZE",
        help="Memory limit, such as 1GiB; by default the free memory. A field that needs more is "
        "processed in pieces: exactly if it has no gaps, otherwise tile by tile.",
    ),
]
Restart = Annotated[
    bool,
    Option("--restart", help="In pieces: do not resume an interrupted run."),
]
RandomState = Annotated[
    int, Option(metavar="N", help="Random seed; the same seed gives the same result.")
]
