"""The options of ``dsgp smooth``; `dsgp.cli.smoothing` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dsgp.cli.arguments import Overwrite, StorageOption
from dsgp.cli.choices import GRID_KERNELS, Transform
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
SMOOTH_EXAMPLES = """\b
Examples:
  dsgp smooth sst.nc --out smooth.zarr
  dsgp smooth sst.zarr --variable sst --out smooth.zarr \\
      --kernel time=matern32 --kernel lon=periodic:360 --mean time.month
  dsgp smooth image.nc --variable grey --noise 0.01 --out image-smooth.nc
  dsgp smooth https://host/sst.zarr --out smooth.zarr
  dsgp smooth 'sst-2024-*.nc' --variable sst --noise 'error^2' \\
      --out smooth.zarr
  dsgp smooth chlorophyll.nc --transform log --quantile 0.05 \\
      --quantile 0.5 --quantile 0.95 --out smooth.nc

\b
Gaps:
  dsgp smooth clouds.nc --variable sst --mask sea --out filled.zarr
  dsgp smooth radar.nc --variable rain --noise rain_variance \\
      --domain all --out filled.zarr

\b
Learn once, use again:
  dsgp smooth may.nc --out may.zarr --save-model model.zarr
  dsgp smooth june.nc --out june.zarr --model model.zarr

\b
Larger than memory, with the workers of a cluster:
  dsgp smooth field.zarr --variable t --out smooth.zarr --memory 1GiB
  dsgp smooth field.zarr --variable t --out smooth.zarr \\
      --scheduler tcp://head:8786
"""


def smooth(
    context: typer.Context,
    data: Annotated[
        list[str],
        Argument(
            metavar="IN...",
            help="A zarr store, or a file that xarray opens (netCDF), here or at an address. "
            "Several, or a pattern in quotes ('sst-*.nc'), are joined along their dim of times.",
        ),
    ],
    out: Annotated[
        Path,
        Option(metavar="OUT.zarr|OUT.nc", help="Where mean and standard deviation go."),
    ],
    variable: Annotated[
        str | None,
        Option(metavar="NAME", help="The field; not needed where only one variable can be it."),
    ] = None,
    group: Annotated[
        str | None,
        Option(metavar="PATH", help="The group of IN that has it, such as surface/daily."),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        Option(
            metavar="DIM=KERNEL",
            help=f"Covariance along a dim: {GRID_KERNELS}; can be repeated. Others are chosen.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        Option(
            metavar="learn|S2|NAME|NAME^2",
            help="Noise variance, in squared units of the field: learned (the default), a number, "
            "or a variable of IN with that of each cell; NAME^2 if it holds standard deviations.",
        ),
    ] = None,
    mean: Annotated[
        str | None,
        Option(
            metavar="MEAN",
            help="What is taken off before: constant (the default), zero, a number, a dim (average "
            "over it in each cell), DIM.month or another part of dates (climatology), or a "
            "variable of IN.",
        ),
    ] = None,
    transform: Annotated[
        Transform,
        Option(
            help="What is modelled of a skewed field: its logarithm, or the power transform of Yeo "
            "and Johnson, whose power is learned. mean and std are in the field's units, --noise "
            "is on the scale of the transform.",
        ),
    ] = Transform.none,
    scales: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Terms of the covariance, each with lengthscales of its own; by default "
            "as many as the likelihood says, up to three.",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        Option(
            metavar="NAME[=VALUE]",
            help="A variable of IN: values are used where it is 1 or true, or where it is VALUE "
            "(land=0).",
        ),
    ] = None,
    domain: Annotated[
        str,
        Option(
            metavar="auto|observed|hull|all|NAME[=VALUE]",
            help="Cells that are given: observed, those that hold a value at some time (not land); "
            "hull, those inside the convex hull of these; all; or where a variable of IN is 1 or "
            "true. auto (the default): observed with several steps of time, else hull.",
        ),
    ] = "auto",
    keep_observed: Annotated[
        bool,
        Option(
            "--keep-observed",
            help="Only fill gaps: mean is the observed value where there is one, and std that of "
            "the noise.",
        ),
    ] = False,
    include_noise: Annotated[
        bool, Option("--include-noise", help="std of a new observation, not of the field.")
    ] = False,
    quantile: Annotated[
        list[float] | None,
        Option(
            metavar="P",
            help="Write NAME_quantiles too: of the field, or with --include-noise of a new "
            "observation; 0.5 is the median. Can be repeated.",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        Option(metavar="MODEL.zarr", help="Save the fitted model too; see dsgp info."),
    ] = None,
    model: Annotated[
        Path | None,
        Option(
            metavar="MODEL.zarr",
            help="Take kernels, noise and kind of mean of this one: nothing is learned.",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        Option(
            "--memory",
            metavar="SIZE",
            help="What may be used, such as 1GiB; by default what is free. A field that needs more "
            "is worked through in pieces: exactly if complete, else tile by tile.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Use the workers of a dask cluster for the pieces."),
    ] = None,
    restart: Annotated[
        bool,
        Option("--restart", help="In pieces: do not go on where a run was interrupted."),
    ] = False,
    random_state: Annotated[int, Option(metavar="N", help="The same gives the same result.")] = 0,
    storage_option: StorageOption = None,
    overwrite: Overwrite = False,
) -> None:
    """Smooth a field on a grid, fill its gaps, and say how sure that is.

    Writes the mean of each cell under the name of the field, and its standard deviation as
    NAME_std, in the units of the field and on its grid. What is not given is learned from it.

    A field that does not fit into memory is worked through in pieces on disk; if that is
    interrupted, the same command goes on.
    """
    work_of("smoothing").smooth(
        context,
        data,
        out,
        variable=variable,
        group=group,
        mask=mask,
        domain=domain,
        keep_observed=keep_observed,
        include_noise=include_noise,
        quantile=quantile,
        save_model=save_model,
        model=model,
        memory_limit=memory_limit,
        scheduler=scheduler,
        restart=restart,
        storage_options=storage_option,
        overwrite=overwrite,
    )
