"""``dsgp fit``: from a table and options to a saved model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from typer import Option

from dsgp import kernels, storage
from dsgp.cli.messages import one_line
from dsgp.cli.tables import Data, Overwrite, is_streamed, read
from dsgp.errors import DataError, ParameterError
from dsgp.estimators import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.rows.sources import Stored, columns_of

# \b keeps the lines of the paragraph that follows as they are.
FIT_EXAMPLES = """\b
Examples:
  dsgp fit train.csv --target price --out price.zarr
  dsgp fit train.parquet --target price --columns area,age \\
      --weight n_sales --kernel matern32 --out price.zarr
  dsgp fit 'sales/*.parquet' --target price --bins auto --out price.zarr
  dsgp fit train.csv --target price --drop id --learner none \\
      --lengthscale 10 --variance 4 --noise-variance 1 --out price.zarr
  dsgp fit train.csv --target price --model pursuit --out price.zarr
  dsgp fit train.csv --target price --model pursuit --projections 10 \\
      --starts 20 --seed 1 --out price.zarr
"""

Regressor = AdditiveGPRegressor | ProjectionPursuitGPRegressor


class Model(StrEnum):
    """Choices of ``--model``."""

    additive = "additive"
    pursuit = "pursuit"


class Kernel(StrEnum):
    """Choices of ``--kernel``, smoother from one to the next."""

    matern12 = "matern12"
    matern32 = "matern32"
    matern52 = "matern52"
    matern72 = "matern72"


class Solver(StrEnum):
    """Choices of ``--solver``."""

    multigrid = "multigrid"
    cg = "cg"
    backfitting = "backfitting"


class Learner(StrEnum):
    """Choices of ``--learner``."""

    marginal = "marginal"
    vbem = "vbem"
    none = "none"


class Missing(StrEnum):
    """Choices of ``--missing``."""

    error = "error"
    ignore = "ignore"


class Method(StrEnum):
    """Choices of ``--method``."""

    refit = "refit"
    greedy = "greedy"
    gibbs = "gibbs"


# Parameters of ``fit`` that one model has and the other has not.
OWN_OPTIONS = {
    Model.additive: ("lengthscale", "variance", "learner", "learner_max_iter", "missing"),
    Model.pursuit: (
        "projections",
        "method",
        "no_relevance",
        "starts",
        "draws",
        "warmup",
        "chains",
        "seed",
    ),
}


def fit(
    context: typer.Context,
    data: Data,
    target: Annotated[str, Option(metavar="COLUMN", help="What is to be predicted.")],
    out: Annotated[Path, Option(metavar="MODEL.zarr", help="Where the model goes.")],
    model: Annotated[
        Model,
        Option(
            help="additive: a function of every input. pursuit: functions of projections of the "
            "inputs, which know interactions."
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
        str | None, Option(metavar="COLUMN", help="Weights w: a row has noise variance S2 / w.")
    ] = None,
    kernel: Annotated[
        Kernel,
        Option(help="Covariance of every function, from rough to smooth; no matern12 for pursuit."),
    ] = Kernel.matern52,
    lengthscale: Annotated[
        float | None,
        Option(metavar="L", help="additive: start for every input, in its units."),
    ] = None,
    variance: Annotated[
        float | None,
        Option(metavar="V", help="additive: start for every function, in squared target units."),
    ] = None,
    noise_variance: Annotated[
        float | None, Option(metavar="S2", help="Start for the noise, in squared target units.")
    ] = None,
    learner: Annotated[
        Learner,
        Option(
            help="additive: marginal and vbem learn L and V per input, and S2; none keeps those "
            "given."
        ),
    ] = Learner.marginal,
    learner_max_iter: Annotated[
        int, Option(metavar="N", help="additive: limit of iterations.")
    ] = 100,
    missing: Annotated[
        Missing,
        Option(help="additive: what a missing value of an input is: an error, or no contribution."),
    ] = Missing.error,
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
    overwrite: Overwrite = False,
) -> None:
    """Fit a model to a table and save it.

    The target is a sum of smooth functions plus noise: one of each input column (additive), or of
    projections of the inputs that are learned (pursuit). Options that say which model are of that
    one only.
    """
    storage.check_writable(out, overwrite)
    _require_own_options(context, model)
    shared: dict[str, Any] = {
        "noise_variance": noise_variance,
        "solver": solver.value,
        "bins": _bins(bins),
        "tol": tol,
        "max_iter": max_iter,
        "verbose": True,
    }
    kernel_class = getattr(kernels, kernel.capitalize())
    regressor: Regressor
    if model is Model.additive:
        regressor = AdditiveGPRegressor(
            kernel_class(lengthscale, variance),
            learner=None if learner is Learner.none else learner.value,
            missing=missing.value,
            learner_max_iter=learner_max_iter,
            **shared,
        )
    else:
        regressor = ProjectionPursuitGPRegressor(
            kernel_class(),
            n_projections=_projections(projections),
            method=method.value,
            relevance=not no_relevance,
            n_starts=starts,
            n_draws=draws,
            n_warmup=warmup,
            n_chains=chains,
            random_state=seed,
            **shared,
        )
    inputs = None if columns is None else _names(columns)
    dropped = [name for names in drop or [] for name in _names(names)]
    _require_one_role(target, weight, inputs, dropped)
    if is_streamed(data) and not (drop_missing and data.is_file()):
        if drop_missing:
            remedy = "; --missing ignore uses what such rows have"
            raise ParameterError(
                "--drop-missing reads the table at once, so DATA must be one file"
                + (remedy if model is Model.additive else "")
            )
        table = Stored(data, inputs, dropped) if inputs or dropped else data
        regressor.fit(table, y=target, sample_weight=weight)
    else:
        _fit_in_memory(regressor, data, target, weight, inputs, dropped, drop_missing)
    regressor.save(out, overwrite)
    typer.echo(f"{regressor.summary()}\n\nsaved in {out}")


def _require_own_options(context: typer.Context, model: Model) -> None:
    """Refuse options that the other model has, rather than leave them aside."""
    for other, names in OWN_OPTIONS.items():
        for name in names:
            source = context.get_parameter_source(name)
            if other is not model and source is not None and source.name != "DEFAULT":
                raise ParameterError(
                    f"--{name.replace('_', '-')} is an option of --model {other}, and this is "
                    f"--model {model}; leave it out"
                )


def _projections(text: str) -> str | int:
    if text == "auto":
        return text
    if text.isdecimal():
        return int(text)
    raise ParameterError(f"--projections must be auto or a number, got {text!r}")


def _bins(text: str) -> str | int | None:
    if text == "auto":
        return text
    if text == "none":
        return None
    if text.isdecimal():
        return int(text)
    raise ParameterError(f"--bins must be auto, none or a number, got {text!r}")


def _require_one_role(
    target: str, weight: str | None, inputs: Sequence[str] | None, dropped: Sequence[str]
) -> None:
    if inputs is not None and dropped:
        raise ParameterError("--columns says which inputs are used already; leave out --drop")
    named = [target, *([] if weight is None else [weight]), *(inputs or dropped)]
    for name, count in Counter(named).items():
        if count > 1:
            raise ParameterError(
                f"column {name!r} is named more than once in --target, --weight, --columns and "
                "--drop; a column has one part to play"
            )


def _fit_in_memory(
    model: Regressor,
    data: Path,
    target: str,
    weight: str | None,
    inputs: Sequence[str] | None,
    dropped: Sequence[str],
    drop_missing: bool,
) -> None:
    own = [target, *([] if weight is None else [weight])]
    table = read(data, [*own, *(inputs or dropped)], only=inputs is not None)
    table = table.drop(columns=list(dropped))
    if drop_missing:
        table = _complete_rows(table)
    X = table[inputs] if inputs else table.drop(columns=own)
    try:
        columns_of(X)
    except DataError as error:
        remedy = "" if inputs else " (--drop COLUMN, or --columns with the others)"
        raise DataError(f"{error}{remedy}") from error
    training = X, table[target], None if weight is None else table[weight]
    try:
        model.fit(*training)
    except DataError as error:
        gaps = any(part is not None and part.isna().any(axis=None) for part in training)
        remedy = " (--drop-missing leaves such rows out)" if gaps else ""
        raise DataError(f"{error}{remedy}") from error


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",")]


def _complete_rows(table: pd.DataFrame) -> pd.DataFrame:
    complete = table.dropna()
    if len(complete) == 0:
        raise DataError("no row is complete: every one has a missing value")
    if lost := len(table) - len(complete):
        gaps = ", ".join(f"{name!r}" for name in table.columns[table.isna().any()])
        one_line("Warning", f"{lost} of {len(table)} rows left out, with gaps in {gaps}")
    return complete
