"""The command ``dsgp``: fit, predict and info on files. What it does is done by the library."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from typer import Argument, Option

from dsgp import __version__, kernels, storage
from dsgp.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    DsgpError,
    ParameterError,
)
from dsgp.estimators import AdditiveGPRegressor, load
from dsgp.interrupt import exit_on_termination
from dsgp.rows.sinks import write_table, written_aside
from dsgp.rows.sources import columns_of, read_table

OUTPUT_COLUMNS = ("mean", "std", "lower", "upper")

# \b keeps the lines of the paragraph that follows as they are.
FIT_EXAMPLES = """\b
Examples:
  dsgp fit train.csv --target price --out price.zarr
  dsgp fit train.parquet --target price --columns area,age \\
      --weight n_sales --kernel matern32 --out price.zarr
  dsgp fit train.csv --target price --drop id --learner none \\
      --lengthscale 10 --variance 4 --noise-variance 1 --out price.zarr
"""
PREDICT_EXAMPLES = """\b
Examples:
  dsgp predict price.zarr new.csv --out predictions.csv
  dsgp predict price.zarr new.parquet --keep id --keep date \\
      --level 0.9 --out predictions.parquet
"""
INFO_EXAMPLES = """\b
Examples:
  dsgp info price.zarr
  dsgp info price.zarr > price.txt
"""


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

    vbem = "vbem"
    none = "none"


app = typer.Typer(
    help="Structured Gaussian processes at any scale.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Data = Annotated[Path, Argument(metavar="DATA", help="A table: .csv, .csv.gz, .parquet or .pq.")]
Model = Annotated[Path, Argument(metavar="MODEL.zarr", help="A model written by dsgp fit.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace what is at --out.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsgp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command(epilog=FIT_EXAMPLES)
def fit(
    data: Data,
    target: Annotated[str, Option(metavar="COLUMN", help="What is to be predicted.")],
    out: Annotated[Path, Option(metavar="MODEL.zarr", help="Where the model goes.")],
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
        Kernel, Option(help="Covariance of every function, from rough to smooth.")
    ] = Kernel.matern52,
    lengthscale: Annotated[
        float | None, Option(metavar="L", help="Start for every input, in its units.")
    ] = None,
    variance: Annotated[
        float | None, Option(metavar="V", help="Start for every function, in squared target units.")
    ] = None,
    noise_variance: Annotated[
        float | None, Option(metavar="S2", help="Start for the noise, in squared target units.")
    ] = None,
    learner: Annotated[
        Learner, Option(help="vbem learns L and V per input, and S2; none keeps those given.")
    ] = Learner.vbem,
    learner_max_iter: Annotated[int, Option(metavar="N", help="Limit of iterations.")] = 100,
    solver: Annotated[Solver, Option(help="How the mean is computed.")] = Solver.multigrid,
    tol: Annotated[
        float, Option(metavar="TOL", help="Error of the mean at most, in prior std.")
    ] = 1e-4,
    max_iter: Annotated[
        int | None, Option(metavar="N", help="Limit; by default 500, or 2000 of cg.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Fit an additive model to a table and save it.

    The target is a sum of smooth functions, one of each input column, plus noise.
    """
    storage.check_writable(out, overwrite)
    model = AdditiveGPRegressor(
        getattr(kernels, kernel.capitalize())(lengthscale, variance),
        noise_variance=noise_variance,
        solver=solver.value,
        learner=None if learner is Learner.none else learner.value,
        tol=tol,
        max_iter=max_iter,
        learner_max_iter=learner_max_iter,
        verbose=True,
    )
    dropped = [name for names in drop or [] for name in _names(names)]
    training = _training_table(data, target, weight, columns, dropped, drop_missing)
    try:
        model.fit(*training)
    except DataError as error:
        gaps = any(part is not None and part.isna().any(axis=None) for part in training)
        remedy = " (--drop-missing leaves such rows out)" if gaps else ""
        raise DataError(f"{error}{remedy}") from error
    model.save(out, overwrite)
    typer.echo(f"{model.summary()}\n\nsaved in {out}")


def _training_table(
    data: Path,
    target: str,
    weight: str | None,
    columns: str | None,
    drop: Sequence[str],
    drop_missing: bool,
) -> tuple[pd.DataFrame, pd.Series, Any]:
    """Read inputs, target and weights (or None)."""
    if columns is not None and drop:
        raise ParameterError("--columns says which inputs are used already; leave out --drop")
    inputs = None if columns is None else _names(columns)
    named = [target, *([] if weight is None else [weight]), *(inputs or drop)]
    for name, count in Counter(named).items():
        if count > 1:
            raise ParameterError(
                f"column {name!r} is named more than once in --target, --weight, --columns and "
                "--drop; a column has one part to play"
            )
    table = _read(data, named, only=inputs is not None)
    table = table.drop(columns=list(drop))
    if drop_missing:
        table = _complete_rows(table)
    X = table[inputs] if inputs else table.drop(columns=[name for name in named if name in table])
    try:
        columns_of(X)
    except DataError as error:
        remedy = "" if inputs else " (--drop COLUMN, or --columns with the others)"
        raise DataError(f"{error}{remedy}") from error
    return X, table[target], None if weight is None else table[weight]


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",")]


def _complete_rows(table: pd.DataFrame) -> pd.DataFrame:
    complete = table.dropna()
    if len(complete) == 0:
        raise DataError("no row is complete: every one has a missing value")
    if lost := len(table) - len(complete):
        gaps = ", ".join(f"{name!r}" for name in table.columns[table.isna().any()])
        _one_line("Warning", f"{lost} of {len(table)} rows left out, with gaps in {gaps}")
    return complete


def _read(path: Path, columns: Sequence[str], only: bool) -> pd.DataFrame:
    """Read a table that must have ``columns``: only these, or further ones too."""
    table = read_table(path, columns if only else None)
    missing = [name for name in columns if name not in table]
    if missing:
        raise DataError(f"{str(path)!r} has no column {missing[0]!r}; it has {list(table)}")
    if len(table) == 0:
        raise DataError(f"{str(path)!r} is an empty table: it has columns {list(table)} but no row")
    return table


@app.command(epilog=PREDICT_EXAMPLES)
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path,
        Option(metavar="FILE", help="Where predictions go: .csv, .csv.gz, .parquet or .pq."),
    ],
    keep: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="Copied from DATA; can be repeated.")
    ] = None,
    level: Annotated[
        float, Option(metavar="P", help="Probability of the interval, between 0 and 1.")
    ] = 0.95,
    overwrite: Overwrite = False,
) -> None:
    """Predict every row of a table, in its order.

    Writes the columns mean and std of the function, without noise, and lower and upper: the
    interval of a new observation, noise included. All are in units of the target. Inputs are
    matched by name; further columns are ignored.
    """
    keep = list(dict.fromkeys(keep or []))
    if not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    for name in keep:
        if name in OUTPUT_COLUMNS:
            raise ParameterError(f"--keep {name!r} has the name of a column of the predictions")
    with written_aside(out, overwrite) as aside:
        fitted = load(model)
        inputs = [term.name for term in fitted.terms_]
        if not hasattr(fitted, "feature_names_in_"):  # fitted to an array: by position
            table = _read(data, keep, only=False)
            X = table.drop(columns=keep)
        else:
            table = _read(data, list(dict.fromkeys([*inputs, *keep])), only=bool(inputs))
            X = table[inputs] if inputs else table
        write_table(table[keep].assign(**_predictions(fitted, X, level)), out.name, aside)
    typer.echo(f"{len(table)} predictions saved in {out}")


def _predictions(model: AdditiveGPRegressor, X: pd.DataFrame, level: float) -> dict[str, Any]:
    mean, std = model.predict(X, return_std=True)
    half = NormalDist().inv_cdf(0.5 + level / 2) * np.hypot(std, np.sqrt(model.noise_variance_))
    return dict(zip(OUTPUT_COLUMNS, (mean, std, mean - half, mean + half), strict=True))


@app.command(epilog=INFO_EXAMPLES)
def info(model: Model) -> None:
    """Show what a saved model is."""
    fitted = load(model)
    unnamed = f"{fitted.n_features_in_}, without names"
    names = getattr(fitted, "feature_names_in_", None)
    typer.echo(f"kind            {type(fitted).__name__}")
    typer.echo(f"format version  {storage.format_version(model)}")
    typer.echo(f"columns         {unnamed if names is None else ', '.join(names)}")
    typer.echo(f"\n{fitted.summary()}")


def _one_line(label: str, message: object) -> None:
    typer.echo(f"{label}: {' '.join(line.strip() for line in str(message).splitlines())}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _one_line("Warning", message)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; errors of the library and of files end it with one line and exit code 1."""
    exit_on_termination()
    with warnings.catch_warnings():
        for category in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _show_warning
        try:
            app(arguments, prog_name="dsgp")
        except (DsgpError, OSError) as error:
            _one_line("Error", error)
            sys.exit(1)


if __name__ == "__main__":
    main()
