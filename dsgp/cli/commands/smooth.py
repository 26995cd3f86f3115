"""The command ``dsgp smooth``, its help and examples; `dsgp.cli.smoothing` does the work."""

from __future__ import annotations

import typer

from dsgp.cli.choices import Transform
from dsgp.cli.options import shared
from dsgp.cli.options import smooth as options
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
SMOOTH_EXAMPLES = """\b
Examples:
  dsgp smooth sst.nc --out smooth.zarr
  dsgp smooth sst.zarr --variable sst --out smooth.zarr \\
      --kernel time=matern32 --kernel lon=periodic:360 --mean time.month
  dsgp smooth image.nc --variable grey --noise-variance 0.01 --fixed-noise \\
      --out image-smooth.nc
  dsgp smooth https://host/sst.zarr --out smooth.zarr
  dsgp smooth 'sst-2024-*.nc' --variable sst \\
      --noise-variance 'error^2' --out smooth.zarr
  dsgp smooth chlorophyll.nc --transform log --quantile 0.05 \\
      --quantile 0.5 --quantile 0.95 --out smooth.nc

\b
Gaps:
  dsgp smooth clouds.nc --variable sst --mask sea --out filled.zarr
  dsgp smooth radar.nc --variable rain --noise-variance rain_variance \\
      --domain all --out filled.zarr

\b
Learn once, use again:
  dsgp smooth may.nc --out may.zarr --save-model model.zarr --report may.html
  dsgp smooth june.nc --out june.zarr --model model.zarr

\b
Larger than memory, with the workers of a cluster:
  dsgp smooth field.zarr --variable t --out smooth.zarr --memory 1GiB
  dsgp smooth field.zarr --variable t --out smooth.zarr \\
      --scheduler tcp://head:8786
"""


def smooth(
    context: typer.Context,
    data: options.Data,
    out: options.Out,
    variable: options.Variable = None,
    group: options.Group = None,
    kernel: options.Kernel = None,
    noise_variance: options.NoiseVariance = None,
    fixed_noise: options.FixedNoise = False,
    mean: options.Mean = None,
    transform: options.Transform = Transform.none,
    scales: options.Scales = None,
    mask: options.Mask = None,
    domain: options.Domain = "auto",
    keep_observed: options.KeepObserved = False,
    include_noise: options.IncludeNoise = False,
    quantile: options.Quantile = None,
    save_model: options.SaveModel = None,
    report: options.Report = None,
    model: options.Model = None,
    memory_limit: options.MemoryLimit = None,
    scheduler: shared.Scheduler = None,
    performance_report: shared.PerformanceReport = None,
    restart: options.Restart = False,
    random_state: options.RandomState = 0,
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Smooth a field on a grid and fill its gaps, with standard deviations.

    Writes the posterior mean of each cell under the name of the field, and its standard deviation
    as NAME_std, in the units of the field and on its grid. Kernels and noise are learned unless
    they are given.

    A field that does not fit into memory is processed in pieces on disk; after an interruption,
    the same command resumes.
    """
    work_of("smoothing", models=[model], fields=data).smooth(
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
        report=report,
        model=model,
        memory_limit=memory_limit,
        scheduler=scheduler,
        performance_report=performance_report,
        restart=restart,
        storage_options=storage_option,
        overwrite=overwrite,
    )
