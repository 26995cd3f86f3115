"""The command ``dsgp``: fit, predict and info on files. What it does is done by the library."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from dsgp.progress import progress
from dsgp.rows.sinks import table_writer, written_aside, written_parts
from dsgp.rows.sources import Block, Stored, columns_of, naming, open_table, read_table

OUTPUT_COLUMNS = ("mean", "std", "lower", "upper")
# A file of so many bytes is read block by block, as tables of several parts always are.
LARGE_FILE = 2**28


# \b keeps the lines of the paragraph that follows as they are.
FIT_EXAMPLES = """\b
Examples:
  dsgp fit train.csv --target price --out price.zarr
  dsgp fit train.parquet --target price --columns area,age \\
      --weight n_sales --kernel matern32 --out price.zarr
  dsgp fit 'sales/*.parquet' --target price --bins auto --out price.zarr
  dsgp fit train.csv --target price --drop id --learner none \\
      --lengthscale 10 --variance 4 --noise-variance 1 --out price.zarr
"""
PREDICT_EXAMPLES = """\b
Examples:
  dsgp predict price.zarr new.csv --out predictions.csv
  dsgp predict price.zarr new.parquet --keep id --keep date \\
      --level 0.9 --out predictions.parquet
  dsgp predict price.zarr sales/ --out predictions/
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

    marginal = "marginal"
    vbem = "vbem"
    none = "none"


class Missing(StrEnum):
    """Choices of ``--missing``."""

    error = "error"
    ignore = "ignore"


app = typer.Typer(
    help="Structured Gaussian processes at any scale.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="A table: a file .csv, .csv.gz, .parquet or .pq, a folder of such files, a pattern in "
        "quotes ('data/*.csv'), or a zarr store. All but small files are read block by block.",
    ),
]
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
        Learner,
        Option(help="marginal and vbem learn L and V per input, and S2; none keeps those given."),
    ] = Learner.marginal,
    learner_max_iter: Annotated[int, Option(metavar="N", help="Limit of iterations.")] = 100,
    bins: Annotated[
        str,
        Option(metavar="auto|none|N", help="Distinct values kept of an input; none keeps all."),
    ] = "auto",
    missing: Annotated[
        Missing, Option(help="What a missing value of an input is: an error, or no contribution.")
    ] = Missing.error,
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
        bins=_bins(bins),
        missing=missing.value,
        tol=tol,
        max_iter=max_iter,
        learner_max_iter=learner_max_iter,
        verbose=True,
    )
    inputs = None if columns is None else _names(columns)
    dropped = [name for names in drop or [] for name in _names(names)]
    _require_one_role(target, weight, inputs, dropped)
    if _is_streamed(data) and not (drop_missing and data.is_file()):
        if drop_missing:
            raise ParameterError(
                "--drop-missing reads the table at once, so DATA must be one file; --missing "
                "ignore uses what such rows have"
            )
        table = Stored(data, inputs, dropped) if inputs or dropped else data
        model.fit(table, y=target, sample_weight=weight)
    else:
        _fit_in_memory(model, data, target, weight, inputs, dropped, drop_missing)
    model.save(out, overwrite)
    typer.echo(f"{model.summary()}\n\nsaved in {out}")


def _bins(text: str) -> str | int | None:
    if text == "auto":
        return text
    if text == "none":
        return None
    if text.isdecimal():
        return int(text)
    raise ParameterError(f"--bins must be auto, none or a number, got {text!r}")


def _is_streamed(data: Path) -> bool:
    """Tell whether a table is read block by block: it has parts, or is large."""
    return not data.is_file() or data.stat().st_size >= LARGE_FILE


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
    model: AdditiveGPRegressor,
    data: Path,
    target: str,
    weight: str | None,
    inputs: Sequence[str] | None,
    dropped: Sequence[str],
    drop_missing: bool,
) -> None:
    own = [target, *([] if weight is None else [weight])]
    table = _read(data, [*own, *(inputs or dropped)], only=inputs is not None)
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
        Option(
            metavar="FILE|FOLDER",
            help="Where predictions go: a file .csv, .csv.gz, .parquet or .pq. A name without an "
            "ending is a folder of files part-00000.parquet, …, one for each block.",
        ),
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
    with _sink(out, overwrite) as write:
        fitted = load(model)
        n_rows = 0
        blocks, total = _blocks(data, fitted, keep)
        with progress("predicting", total) as bar:
            for part, X, kept in blocks:
                with naming(part):
                    write(kept.assign(**_predictions(fitted, X, level)))
                n_rows += len(X)
                bar.update(len(X))
    typer.echo(f"{n_rows} predictions saved in {out}")


@contextmanager
def _sink(out: Path, overwrite: bool) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Give a function that writes one table after another to a file, or as parts of a folder."""
    if out.suffix:
        with written_aside(out, overwrite) as aside, table_writer(out.name, aside) as write:
            yield write
    else:
        numbers = itertools.count()
        with written_parts(out, overwrite) as write_part:
            yield lambda table: write_part(table, next(numbers))


def _blocks(
    data: Path, model: AdditiveGPRegressor, keep: list[str]
) -> tuple[Iterator[tuple[str, pd.DataFrame, pd.DataFrame]], int | None]:
    """Give part, inputs and columns to keep of all rows, block by block; and how many rows."""
    inputs = [term.name for term in model.terms_]
    by_name = hasattr(model, "feature_names_in_")  # not so if fitted to an array: by position
    wanted = list(dict.fromkeys([*inputs, *keep])) if by_name else keep

    def split(part: str, table: pd.DataFrame) -> tuple[str, pd.DataFrame, pd.DataFrame]:
        X = table.drop(columns=keep) if not by_name else table[inputs] if inputs else table
        return part, X, table[keep]

    if not _is_streamed(data):
        table = _read(data, wanted, only=by_name and bool(inputs))
        return iter([split("", table)]), len(table)
    stored = open_table(data)
    stored.require(wanted)
    columns = wanted if by_name else stored.names
    numbers = inputs if by_name else [name for name in columns if name not in keep]
    blocks = stored.blocks(columns, numbers)
    return (split(_whereabouts(block), block.read()) for block in blocks), stored.n_rows


def _whereabouts(block: Block) -> str:
    later = f", rows from {block.first_row} on" if block.first_row else ""
    return f"{block.part}{later}"


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
