"""The command ``dsgp fit``, its help and examples; `dsgp.cli.fitting` does the work."""

from __future__ import annotations

import typer

from dsgp.cli.choices import (
    Learner,
    Link,
    Missing,
    Model,
    MultiClass,
    Solver,
    Transform,
)
from dsgp.cli.options import fit as options
from dsgp.cli.options import shared
from dsgp.cli.work import HOLIDAY, file_of, work_of

# \b keeps the lines of the paragraph that follows as they are.
FIT_EXAMPLES = """\b
Examples:
  dsgp fit train.csv --target price --out price.zarr
  dsgp fit train.parquet --target price --columns area,age \\
      --weight n_sales --kernel matern32 --out price.zarr
  dsgp fit train.csv --target price --transform log --out price.zarr
  dsgp fit 'sales/*.parquet' --target price --bins auto --out price.zarr
  dsgp fit 's3://sales/*.parquet' --target price --out price.zarr
  dsgp fit '/shared/sales/*.parquet' --target price --out price.zarr \\
      --scheduler tcp://head:8786
  dsgp fit train.csv --target price --drop id --learner none \\
      --lengthscale 10 --variance 4 --noise-variance 1 --out price.zarr

\b
Categories, groups and seasons (text is recognised automatically):
  dsgp fit diamonds.csv --target price --out price.zarr
  dsgp fit diamonds.csv --target price --term carat \\
      --term 'carat: Smooth(by=clarity)' --out price.zarr
  dsgp fit births.csv --target births --term date \\
      --term 'date: Periodic(year)' \\
      --term 'date: Levels(part=weekday)' --out births.zarr
  dsgp fit sales.csv --target sales --holidays US --out sales.zarr

\b
Interactions, by pairs of inputs and by projections:
  dsgp fit train.csv --target price --interactions auto --out price.zarr
  dsgp fit train.csv --target price --model pursuit --out price.zarr
  dsgp fit train.csv --target price --model pursuit --projections 10 \\
      --starts 20 --seed 1 --out price.zarr

\b
Classes (labels may be text):
  dsgp fit train.csv --target churned --model classifier --out churn.zarr
  dsgp fit train.csv --target species --model classifier \\
      --class-weight balanced --out species.zarr

\b
Counts, rates and other targets:
  dsgp fit claims.csv --target n_claims --model poisson \\
      --exposure years --out claims.zarr
  dsgp fit claims.csv --target amount --model gamma --out amount.zarr
  dsgp fit trials.csv --target cured --model binomial \\
      --trials treated --out cured.zarr
"""


def fit(
    context: typer.Context,
    data: shared.Data,
    target: options.Target,
    out: options.Out,
    model: options.Model = Model.additive,
    columns: options.Columns = None,
    drop: options.Drop = None,
    drop_missing: options.DropMissing = False,
    weight: options.Weight = None,
    exposure: options.Exposure = None,
    offset: options.Offset = None,
    trials: options.Trials = None,
    holidays: options.Holidays = None,
    holiday_column: options.HolidayColumn = HOLIDAY,
    days_before: options.DaysBefore = 0,
    days_after: options.DaysAfter = 0,
    link: options.Link = Link.logit,
    class_weight: options.ClassWeight = None,
    multi_class: options.MultiClass = MultiClass.softmax,
    kernel: options.Kernel = None,
    term: options.Term = None,
    interactions: options.Interactions = None,
    remainder: options.Remainder = None,
    noise_terms: options.NoiseTerms = None,
    lengthscale: options.Lengthscale = None,
    variance: options.Variance = None,
    noise_variance: options.NoiseVariance = None,
    transform: options.Transform = Transform.none,
    learner: options.Learner = Learner.marginal,
    learner_max_iter: options.LearnerMaxIter = None,
    newton_max_iter: options.NewtonMaxIter = 100,
    missing: options.Missing = Missing.error,
    missing_value: options.MissingValue = None,
    projections: options.Projections = None,
    method: options.Method = None,
    no_relevance: options.NoRelevance = False,
    starts: options.Starts = 10,
    draws: options.Draws = 400,
    warmup: options.Warmup = 200,
    chains: options.Chains = 2,
    seed: options.Seed = 0,
    bins: options.Bins = "auto",
    solver: options.Solver = Solver.multigrid,
    tol: options.Tol = 1e-4,
    max_iter: options.MaxIter = None,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    scheduler: shared.Scheduler = None,
    performance_report: shared.PerformanceReport = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Fit a model to a table and save it.

    The model is a sum of smooth functions, one per input column, or of learned projections of the
    inputs (pursuit); for classes, counts and other targets it is combined with a link function. An
    option whose help names models is available for these models only. "The paper" is Gilboa, Saatçi
    and Cunningham, Scaling Multidimensional Inference for Structured Gaussian Processes.
    """
    work_of("fitting", tables=[data, file_of(holidays)]).fit(
        context,
        data,
        target,
        out,
        model=model,
        columns=columns,
        drop=drop,
        drop_missing=drop_missing,
        weight=weight,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        holidays=(holidays, holiday_column, days_before, days_after),
        learner=learner,
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        scheduler=scheduler,
        performance_report=performance_report,
        overwrite=overwrite,
    )
