"""The options of ``dsgp fit``; `dsgp.cli.fitting` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dsgp.cli.arguments import Data, Decimal, Delimiter, Encoding, Overwrite, StorageOption
from dsgp.cli.choices import (
    ClassWeight,
    Kernel,
    Learner,
    Link,
    Method,
    Missing,
    Model,
    MultiClass,
    Solver,
    Transform,
)
from dsgp.cli.work import work_of

# \b keeps the lines of the paragraph that follows as they are.
FIT_EXAMPLES = """\b
Examples:
  dsgp fit train.csv --target price --out price.zarr
  dsgp fit train.parquet --target price --columns area,age \\
      --weight n_sales --kernel matern32 --out price.zarr
  dsgp fit train.csv --target price --transform log --out price.zarr
  dsgp fit 'sales/*.parquet' --target price --bins auto --out price.zarr
  dsgp fit 's3://sales/*.parquet' --target price --out price.zarr
  dsgp fit train.csv --target price --drop id --learner none \\
      --lengthscale 10 --variance 4 --noise-variance 1 --out price.zarr

\b
Categories, groups and seasons (text needs nothing said):
  dsgp fit diamonds.csv --target price --out price.zarr
  dsgp fit diamonds.csv --target price --term carat \\
      --term 'carat: Smooth(by=clarity)' --out price.zarr
  dsgp fit births.csv --target births --term date \\
      --term 'date: Periodic(year)' \\
      --term 'date: Levels(part=weekday)' --out births.zarr

\b
Interactions, by projections:
  dsgp fit train.csv --target price --model pursuit --out price.zarr
  dsgp fit train.csv --target price --model pursuit --projections 10 \\
      --starts 20 --seed 1 --out price.zarr

\b
Classes, whose labels may be text:
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
    data: Data,
    target: Annotated[str, Option(metavar="COLUMN", help="What is to be predicted.")],
    out: Annotated[Path, Option(metavar="MODEL.zarr", help="Where the model goes.")],
    model: Annotated[
        Model,
        Option(
            metavar="NAME",
            help="additive: a number, by a function of every input. pursuit: a number, by "
            "functions of projections of the inputs, which know interactions. classifier: two or "
            "more classes, text or numbers. bernoulli: 0 or 1. binomial: successes in --trials. "
            "poisson, negative-binomial: counts. gamma: positive numbers. ordered: levels 0, 1, … "
            "in their order. student-t: a number with outliers.",
        ),
    ] = Model.additive,
    columns: Annotated[
        str | None, Option(metavar="A,B,C", help="Input columns; all others by default.")
    ] = None,
    drop: Annotated[
        list[str] | None, Option(metavar="A,B", help="No inputs; can be repeated.")
    ] = None,
    drop_missing: Annotated[
        bool, Option("--drop-missing", help="Leave out rows with a missing value.")
    ] = False,
    weight: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Weights w: a row has noise variance S2 / w (additive, pursuit), or counts w "
            "times (all others).",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="poisson, negative-binomial, gamma: what a row was observed for (time, area, "
            "people); the mean is proportional to it.",
        ),
    ] = None,
    offset: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="bernoulli to student-t: added to the function, on the scale of the link.",
        ),
    ] = None,
    trials: Annotated[
        str | None,
        Option(metavar="COLUMN", help="binomial: of how many the target counts successes."),
    ] = None,
    link: Annotated[
        Link, Option(help="classifier, bernoulli, binomial, ordered: from function to probability.")
    ] = Link.logit,
    class_weight: Annotated[
        ClassWeight | None,
        Option(help="classifier: balanced makes all classes count alike, however rare."),
    ] = None,
    multi_class: Annotated[
        MultiClass,
        Option(
            help="classifier of more than two: one model of all, or ovr, each against the rest."
        ),
    ] = MultiClass.softmax,
    kernel: Annotated[
        Kernel | None,
        Option(
            help="Covariance of every function, from rough to smooth; matern52 by default, of a "
            "classifier matern32; no matern12 for pursuit."
        ),
    ] = None,
    term: Annotated[
        list[str] | None,
        Option(
            metavar="'COLUMN: TERM'",
            help="A term of an input instead of its own, e.g. 'town: Levels', "
            "'carat: Smooth(by=clarity)', 'date: Periodic(year)', 'age: Linear' or 'x: "
            "Matern32(lengthscale=2)'; can be repeated, for one input too. Without it text has an "
            "effect of each level, and numbers and dates have a smooth function; of pursuit, "
            "numbers without one are projected.",
        ),
    ] = None,
    lengthscale: Annotated[
        float | None,
        Option(metavar="L", help="All but pursuit: start for every input, in its units."),
    ] = None,
    variance: Annotated[
        float | None,
        Option(
            metavar="V",
            help="All but pursuit: start for every function, in squared units of the target, or of "
            "the link.",
        ),
    ] = None,
    noise_variance: Annotated[
        float | None,
        Option(
            metavar="S2",
            help="additive, pursuit: start for the noise, in squared units of the target, or of "
            "its transform.",
        ),
    ] = None,
    transform: Annotated[
        Transform,
        Option(
            help="additive, pursuit: what is modelled of a skewed target: its logarithm, or the "
            "power transform of Yeo and Johnson, whose power is learned. Predictions are in the "
            "target's units."
        ),
    ] = Transform.none,
    learner: Annotated[
        Learner,
        Option(
            help="All but pursuit: marginal learns L and V per input, and S2 or what the "
            "likelihood has; so do vbem (additive) and independent (all others), the paper's. none "
            "keeps those given."
        ),
    ] = Learner.marginal,
    learner_max_iter: Annotated[
        int | None,
        Option(
            metavar="N",
            help="All but pursuit: limit of iterations; by default 100 of additive, else 50.",
        ),
    ] = None,
    newton_max_iter: Annotated[
        int,
        Option(metavar="N", help="classifier to student-t: limit of Newton steps."),
    ] = 100,
    missing: Annotated[
        Missing,
        Option(
            help="All but pursuit: what a missing value of an input is: an error, or no "
            "contribution."
        ),
    ] = Missing.error,
    missing_value: Annotated[
        list[float] | None,
        Option(
            metavar="X",
            help="All but pursuit: a number that stands for a missing input, such as -999; can be "
            "repeated.",
        ),
    ] = None,
    projections: Annotated[
        str,
        Option(metavar="auto|M", help="pursuit: how many; auto as many as help."),
    ] = "auto",
    method: Annotated[
        Method,
        Option(
            help="pursuit: refit learns all directions together; greedy one after the other, as "
            "in the paper; gibbs draws them from the posterior."
        ),
    ] = Method.refit,
    no_relevance: Annotated[
        bool,
        Option("--no-relevance", help="pursuit: do not look for inputs that are not needed."),
    ] = False,
    starts: Annotated[
        int, Option(metavar="N", help="pursuit: directions a projection is fitted from.")
    ] = 10,
    draws: Annotated[
        int, Option(metavar="N", help="pursuit by gibbs: draws kept, of all chains.")
    ] = 400,
    warmup: Annotated[
        int, Option(metavar="N", help="pursuit by gibbs: sweeps of each chain before them.")
    ] = 200,
    chains: Annotated[int, Option(metavar="N", help="pursuit by gibbs: independent chains.")] = 2,
    seed: Annotated[
        int, Option(metavar="N", help="pursuit: of the starts; the same gives the same model.")
    ] = 0,
    bins: Annotated[
        str,
        Option(
            metavar="auto|none|N",
            help="Distinct values kept of an input or projection; none keeps all.",
        ),
    ] = "auto",
    solver: Annotated[Solver, Option(help="How the mean is computed.")] = Solver.multigrid,
    tol: Annotated[
        float, Option(metavar="TOL", help="Error of the mean at most, in prior std.")
    ] = 1e-4,
    max_iter: Annotated[
        int | None, Option(metavar="N", help="Limit; by default 500, or 2000 of cg.")
    ] = None,
    delimiter: Delimiter = ",",
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    storage_option: StorageOption = None,
    overwrite: Overwrite = False,
) -> None:
    """Fit a model to a table and save it.

    The target, or what its distribution depends on through a link, is a sum of smooth functions:
    one of each input column, or of projections of the inputs that are learned (pursuit). Options
    that say which models they are of are of those only.
    """
    work_of("fitting").fit(
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
        learner=learner,
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )
