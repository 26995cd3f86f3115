"""``dsgp predict`` and ``dsgp info``: what is done with a saved model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from typer import Argument, Option

from dsgp import storage
from dsgp.cli.tables import Data, Overwrite, is_streamed, read
from dsgp.errors import ParameterError
from dsgp.estimators import load
from dsgp.estimators.predicting import AdditivePredictor
from dsgp.progress import progress
from dsgp.rows.sinks import table_writer, written_aside, written_parts
from dsgp.rows.sources import Block, naming, open_table

OUTPUT_COLUMNS = ("mean", "std", "lower", "upper")

# \b keeps the lines of the paragraph that follows as they are.
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

Model = Annotated[Path, Argument(metavar="MODEL.zarr", help="A model written by dsgp fit.")]


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
    data: Path, model: AdditivePredictor, keep: list[str]
) -> tuple[Iterator[tuple[str, pd.DataFrame, pd.DataFrame]], int | None]:
    """Give part, inputs and columns to keep of all rows, block by block; and how many rows."""
    inputs = list(model.used_columns_)
    by_name = hasattr(model, "feature_names_in_")  # not so if fitted to an array: by position
    wanted = list(dict.fromkeys([*inputs, *keep])) if by_name else keep

    def split(part: str, table: pd.DataFrame) -> tuple[str, pd.DataFrame, pd.DataFrame]:
        X = table.drop(columns=keep) if not by_name else table[inputs] if inputs else table
        return part, X, table[keep]

    if not is_streamed(data):
        table = read(data, wanted, only=by_name and bool(inputs))
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


def _predictions(model: AdditivePredictor, X: pd.DataFrame, level: float) -> dict[str, Any]:
    mean, std = model.predict(X, return_std=True)
    half = NormalDist().inv_cdf(0.5 + level / 2) * np.hypot(std, np.sqrt(model.noise_variance_))
    return dict(zip(OUTPUT_COLUMNS, (mean, std, mean - half, mean + half), strict=True))


def info(model: Model) -> None:
    """Show what a saved model is."""
    fitted = load(model)
    unnamed = f"{fitted.n_features_in_}, without names"
    names = getattr(fitted, "feature_names_in_", None)
    typer.echo(f"kind            {type(fitted).__name__}")
    typer.echo(f"format version  {storage.format_version(model)}")
    typer.echo(f"columns         {unnamed if names is None else ', '.join(names)}")
    typer.echo(f"\n{fitted.summary()}")
