"""Options of ``dsgp fit``: the table, the model and how it is learned.

Most are of some models only; `dsgp.cli.models` has which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dsgp.cli import choices

# What goes in and out.
Target = Annotated[str, Option(metavar="COLUMN", help="What is to be predicted.")]
Out = Annotated[Path, Option(metavar="MODEL.zarr", help="Where the model goes.")]

# The model.
Model = Annotated[
    choices.Model,
    Option(
        metavar="NAME",
        help="additive: a number, by a function of every input. pursuit: a number, by "
        "functions of projections of the inputs, which know interactions. classifier: two or "
        "more classes, text or numbers. bernoulli: 0 or 1. binomial: successes in --trials. "
        "poisson, negative-binomial: counts. gamma: positive numbers. ordered: levels 0, 1, … "
        "in their order. student-t: a number with outliers.",
    ),
]

# Columns and rows of the table.
Columns = Annotated[
    str | None, Option(metavar="A,B,C", help="Input columns; all others by default.")
]
Drop = Annotated[list[str] | None, Option(metavar="A,B", help="No inputs; can be repeated.")]
DropMissing = Annotated[bool, Option("--drop-missing", help="Leave out rows with a missing value.")]
Weight = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="Weights w: a row has noise variance S2 / w (additive, pursuit), or counts w "
        "times (all others).",
    ),
]
Exposure = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="poisson, negative-binomial, gamma: what a row was observed for (time, area, "
        "people); the mean is proportional to it.",
    ),
]
Offset = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="bernoulli to student-t: added to the function, on the scale of the link.",
    ),
]
Trials = Annotated[
    str | None,
    Option(metavar="COLUMN", help="binomial: of how many the target counts successes."),
]

# What the target is to the model.
Link = Annotated[
    choices.Link,
    Option(help="classifier, bernoulli, binomial, ordered: from function to probability."),
]
ClassWeight = Annotated[
    choices.ClassWeight | None,
    Option(help="classifier: balanced makes all classes count alike, however rare."),
]
MultiClass = Annotated[
    choices.MultiClass,
    Option(help="classifier of more than two: one model of all, or ovr, each against the rest."),
]

# Terms and their hyperparameters.
Kernel = Annotated[
    choices.Kernel | None,
    Option(
        help="Covariance of every function, from rough to smooth; matern52 by default, of a "
        "classifier matern32; no matern12 for pursuit."
    ),
]
Term = Annotated[
    list[str] | None,
    Option(
        metavar="'COLUMN: TERM'",
        help="A term of an input instead of its own, e.g. 'town: Levels', "
        "'carat: Smooth(by=clarity)', 'date: Periodic(year)', 'age: Linear' or 'x: "
        "Matern32(lengthscale=2)'; can be repeated, for one input too. Without it text has an "
        "effect of each level, and numbers and dates have a smooth function; of pursuit, numbers "
        "without one are projected.",
    ),
]
Interactions = Annotated[
    list[str] | None,
    Option(
        metavar="auto|N|'A:B'",
        help="All but pursuit: what inputs do together. auto: as many pairs as the rows tell of; "
        "N: so many; 'hour:day': these two, can be repeated.",
    ),
]
Remainder = Annotated[
    list[str] | None,
    Option(
        metavar="all|INPUT",
        help="additive: a function of all inputs at once beside the terms, for what interacts "
        "beyond pairs. all, or the name of an input, once for each. Keeps all rows in memory.",
    ),
]
Lengthscale = Annotated[
    float | None,
    Option(metavar="L", help="All but pursuit: start for every input, in its units."),
]
Variance = Annotated[
    float | None,
    Option(
        metavar="V",
        help="All but pursuit: start for every function, in squared units of the target, or of "
        "the link.",
    ),
]
NoiseVariance = Annotated[
    float | None,
    Option(
        metavar="S2",
        help="additive, pursuit: start for the noise, in squared units of the target, or of "
        "its transform.",
    ),
]
Transform = Annotated[
    choices.Transform,
    Option(
        help="additive, pursuit: what is modelled of a skewed target: its logarithm, or the "
        "power transform of Yeo and Johnson, whose power is learned. Predictions are in the "
        "target's units."
    ),
]
Learner = Annotated[
    choices.Learner,
    Option(
        help="All but pursuit: marginal learns L and V per input, and S2 or what the "
        "likelihood has; so do vbem and em (additive) and independent (all others), the paper's. "
        "none keeps those given."
    ),
]
LearnerMaxIter = Annotated[
    int | None,
    Option(
        metavar="N",
        help="All but pursuit: limit of iterations; by default 100 of additive, else 50.",
    ),
]
NewtonMaxIter = Annotated[
    int,
    Option(metavar="N", help="classifier to student-t: limit of Newton steps."),
]
Missing = Annotated[
    choices.Missing,
    Option(
        help="All but pursuit: what a missing value of an input is: an error, or no contribution."
    ),
]
MissingValue = Annotated[
    list[float] | None,
    Option(
        metavar="X",
        help="All but pursuit: a number that stands for a missing input, such as -999; can be "
        "repeated.",
    ),
]

# Projection pursuit.
Projections = Annotated[
    str | None,
    Option(
        metavar="auto|M",
        help="How many functions of mixtures of inputs; auto: as many as help, the default of "
        "pursuit. additive: so many beside the terms of inputs; none by default.",
    ),
]
Method = Annotated[
    choices.Method | None,
    Option(
        help="pursuit: refit (default) learns all directions together; greedy one after the other, "
        "as in the paper; gibbs draws them from the posterior. additive: gibbs, the paper's "
        "sampler, plain-gibbs or collapsed draw kernels and noise; without it they are learned."
    ),
]
NoRelevance = Annotated[
    bool,
    Option("--no-relevance", help="pursuit: do not look for inputs that are not needed."),
]
Starts = Annotated[
    int, Option(metavar="N", help="pursuit: directions a projection is fitted from.")
]
Draws = Annotated[
    int, Option(metavar="N", help="By gibbs or collapsed: draws kept, of all chains.")
]
Warmup = Annotated[
    int, Option(metavar="N", help="By gibbs or collapsed: sweeps of each chain before them.")
]
Chains = Annotated[int, Option(metavar="N", help="By gibbs or collapsed: independent chains.")]
Seed = Annotated[
    int,
    Option(
        metavar="N",
        help="pursuit: of the starts; additive: of the chains. The same gives the same model.",
    ),
]

# How the mean is computed.
Bins = Annotated[
    str,
    Option(
        metavar="auto|none|N",
        help="Distinct values kept of an input or projection; none keeps all.",
    ),
]
Solver = Annotated[choices.Solver, Option(help="How the mean is computed.")]
Tol = Annotated[float, Option(metavar="TOL", help="Error of the mean at most, in prior std.")]
MaxIter = Annotated[int | None, Option(metavar="N", help="Limit; by default 500, or 2000 of cg.")]
