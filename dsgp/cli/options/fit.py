"""Options of ``dsgp fit``: the table, the model and how it is learned.

Most are of some models only; `dsgp.cli.models` has which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from dsgp.cli import choices

# What goes in and out.
Target = Annotated[str, Option(metavar="COLUMN", help="Column to predict.")]
Out = Annotated[Path, Option(metavar="MODEL.zarr", help="Path of the saved model.")]

# The model.
Model = Annotated[
    choices.Model,
    Option(
        metavar="NAME",
        help="Type of the target and of the model. additive: a number; one function per input. "
        "pursuit: a number; functions of learned projections (weighted sums) of the inputs, which "
        "express interactions. classifier: two or more classes, text or numbers. bernoulli: 0 or "
        "1. binomial: successes among --trials. poisson, negative-binomial: counts. gamma: "
        "positive numbers. ordered: levels 0, 1, … in their order. student-t: a number with "
        "outliers.",
    ),
]

# Columns and rows of the table.
Columns = Annotated[
    str | None, Option(metavar="A,B,C", help="Input columns; by default all except the target.")
]
Drop = Annotated[
    list[str] | None, Option(metavar="A,B", help="Columns that are not inputs; can be repeated.")
]
DropMissing = Annotated[bool, Option("--drop-missing", help="Drop rows with a missing value.")]
Weight = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="Column of weights w. additive, pursuit: the noise variance of a row is S2 / w. All "
        "other models: the row counts w times.",
    ),
]
Exposure = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="poisson, negative-binomial, gamma: column of exposures (time, area, people); the "
        "mean is proportional to it.",
    ),
]
Offset = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="bernoulli to student-t: column of offsets, which are added to the function, on the "
        "scale of the link function.",
    ),
]
Trials = Annotated[
    str | None,
    Option(metavar="COLUMN", help="binomial: column of the number of trials."),
]

# Holidays of a column of dates.
Holidays = Annotated[
    str | None,
    Option(
        metavar="FILE|COUNTRY",
        help="Add an input with the name of the holiday of each date: of a table with the columns "
        "date and holiday, or of a country such as US (needs the package holidays). The table must "
        "be one file with one column of dates.",
    ),
]
HolidayColumn = Annotated[
    str, Option(metavar="COLUMN", help="--holidays: name of the input that is added.")
]
DaysBefore = Annotated[
    int,
    Option(metavar="N", min=0, help="--holidays: days before each holiday with their own effects."),
]
DaysAfter = Annotated[
    int,
    Option(metavar="N", min=0, help="--holidays: days after each holiday with their own effects."),
]

# How the target depends on the functions.
Link = Annotated[
    choices.Link,
    Option(help="classifier, bernoulli, binomial, ordered: link function of probabilities."),
]
ClassWeight = Annotated[
    choices.ClassWeight | None,
    Option(help="classifier: balanced gives all classes the same total weight."),
]
MultiClass = Annotated[
    choices.MultiClass,
    Option(
        help="classifier with more than two classes: softmax, a joint model, or ovr, one model per "
        "class against the rest."
    ),
]

# Terms and their hyperparameters.
Kernel = Annotated[
    choices.Kernel | None,
    Option(
        help="Kernel (covariance function) of every function, from rough to smooth; by default "
        "matern32 for a classifier and matern52 otherwise. matern12 is not available for pursuit."
    ),
]
Term = Annotated[
    list[str] | None,
    Option(
        metavar="'COLUMN: TERM'",
        help="Term of an input in place of the default, such as 'town: Levels', "
        "'carat: Smooth(by=clarity)', 'date: Periodic(year)', 'age: Linear' or 'x: "
        "Matern32(lengthscale=2)'; can be repeated, also for the same input. By default, text has "
        "one effect per level, and numbers and dates have a smooth function; pursuit projects "
        "numbers without a term.",
    ),
]
Interactions = Annotated[
    list[str] | None,
    Option(
        metavar="auto|N|'A:B'",
        help="All except pursuit: interactions of pairs of inputs. auto: all pairs that raise the "
        "marginal likelihood by more than chance would; N: the best N pairs; 'hour:day': this "
        "pair, can be repeated.",
    ),
]
Remainder = Annotated[
    list[str] | None,
    Option(
        metavar="all|auto|INPUT",
        help="additive: add one function of all inputs, for interactions beyond pairs. all; auto, "
        "which leaves it out where it does not gain over noise; or the name of an input; can be "
        "repeated. Keeps all rows in memory.",
    ),
]
NoiseTerms = Annotated[
    list[str] | None,
    Option(
        metavar="all|INPUT|TERM",
        help="additive: the noise variance varies: its logarithm is a sum of functions of all "
        "inputs (all), or of the inputs that are given by name or by term, as for --term; can be "
        "repeated.",
    ),
]
Lengthscale = Annotated[
    float | None,
    Option(
        metavar="L", help="All except pursuit: initial lengthscale of every input, in its units."
    ),
]
Variance = Annotated[
    float | None,
    Option(
        metavar="V",
        help="All except pursuit: initial prior variance of every function, in squared units of "
        "the target or of the scale of the link function.",
    ),
]
NoiseVariance = Annotated[
    float | None,
    Option(
        metavar="S2",
        help="additive, pursuit: initial noise variance, in squared units of the target or of "
        "its transform.",
    ),
]
Transform = Annotated[
    choices.Transform,
    Option(
        help="additive, pursuit: transform of a skewed target: its logarithm, or the power "
        "transform of Yeo and Johnson, whose power is learned. Predictions are in the units of "
        "the target."
    ),
]
Learner = Annotated[
    choices.Learner,
    Option(
        help="All except pursuit: how hyperparameters (L and V per input, and S2 or the parameters "
        "of the likelihood) are learned. marginal: by the marginal likelihood; vbem and em "
        "(additive) and independent (all others): as in the paper; none: keep the given values."
    ),
]
LearnerMaxIter = Annotated[
    int | None,
    Option(
        metavar="N",
        help="All except pursuit: maximum number of iterations of the learner; by default 100 for "
        "additive and 50 otherwise.",
    ),
]
NewtonMaxIter = Annotated[
    int,
    Option(metavar="N", help="classifier to student-t: maximum number of Newton steps."),
]
Missing = Annotated[
    choices.Missing,
    Option(
        help="All except pursuit: whether a missing value of an input is an error, or the row is "
        "used without the terms of this input."
    ),
]
MissingValue = Annotated[
    list[float] | None,
    Option(
        metavar="X",
        help="All except pursuit: a number that stands for a missing input, such as -999; can be "
        "repeated.",
    ),
]

# Projection pursuit.
Projections = Annotated[
    str | None,
    Option(
        metavar="auto|M",
        help="Number of functions of projections; auto, the default of pursuit, chooses it by the "
        "marginal likelihood. additive: added to the terms of the inputs; none by default.",
    ),
]
Method = Annotated[
    choices.Method | None,
    Option(
        help="pursuit: refit (default) learns all directions jointly; greedy learns one after the "
        "other, as in the paper; gibbs draws them from the posterior. additive: gibbs (the "
        "paper's sampler), plain-gibbs and collapsed draw kernels and noise from the posterior; by "
        "default they are learned."
    ),
]
NoRelevance = Annotated[
    bool,
    Option("--no-relevance", help="pursuit: do not look for inputs that are not needed."),
]
Starts = Annotated[
    int, Option(metavar="N", help="pursuit: number of initial directions per projection.")
]
Draws = Annotated[
    int, Option(metavar="N", help="With gibbs or collapsed: number of draws of all chains.")
]
Warmup = Annotated[
    int, Option(metavar="N", help="With gibbs or collapsed: number of warm-up sweeps per chain.")
]
Chains = Annotated[int, Option(metavar="N", help="With gibbs or collapsed: number of chains.")]
Seed = Annotated[
    int,
    Option(
        metavar="N",
        help="Random seed of the search (pursuit) or of the chains (additive). The same seed gives "
        "the same model.",
    ),
]

# How the mean is computed.
Bins = Annotated[
    str,
    Option(
        metavar="auto|none|N",
        help="Number of bins per input or projection; none keeps every distinct value.",
    ),
]
Solver = Annotated[choices.Solver, Option(help="Algorithm for the posterior mean.")]
Tol = Annotated[float, Option(metavar="TOL", help="Bound on the error of the mean, in prior std.")]
MaxIter = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Maximum number of iterations of the solver; by default 500, or 2000 for cg.",
    ),
]
