"""The work of ``dsgp predict``, ``explain`` and ``info``: what is done with a saved model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import typer

from dsgp import storage
from dsgp.addresses import Place, name_of, without_secrets
from dsgp.cli.clusters import on_cluster
from dsgp.cli.holidays import ForModel, require_inputs
from dsgp.cli.keeping import Copied
from dsgp.cli.outputs import Outputs, explanation_of, outputs_of, require_answers
from dsgp.cli.reaching import Reach
from dsgp.cli.tables import names_of
from dsgp.cli.work import file_of
from dsgp.clients import active_client
from dsgp.compute import over_chunks
from dsgp.errors import ParameterError
from dsgp.estimators import GridGP, load
from dsgp.estimators.classes import ClassEstimator
from dsgp.places import require_apart
from dsgp.progress import progress
from dsgp.rows.sinks import Table, table_writer, written_aside, written_parts
from dsgp.rows.sources import Block, CsvFormat, StoredTable, naming, open_table


def predict(
    model: Path,
    data: Path,
    out: Path,
    *,
    keep: Sequence[str] | None = None,
    level: float | None = None,
    quantiles: Sequence[float] | None = None,
    statistic: str | None = None,
    further: Mapping[str, str | None] | None = None,
    holidays: tuple[str, str] | None = None,
    csv_format: tuple[str, str, str] = (",", ".", "utf-8"),
    storage_options: Sequence[str] | None = None,
    scheduler: str | None = None,
    performance_report: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Predict every row of a table; `dsgp.cli.commands.predict` describes the options."""
    require_answers(level, statistic, quantiles)
    numbers = {role: name for role, name in (further or {}).items() if name is not None}
    n_rows = _row_by_row(
        model,
        data,
        out,
        _Columns.of(keep, numbers),
        lambda fitted: outputs_of(fitted, level, numbers, statistic, quantiles or ()),
        "predicting",
        holidays,
        CsvFormat(*csv_format),
        storage_options,
        scheduler,
        performance_report,
        overwrite,
    )
    typer.echo(f"{n_rows} predictions saved in {without_secrets(str(out))}")


def explain(
    model: Path,
    data: Path,
    out: Path,
    *,
    keep: Sequence[str] | None = None,
    holidays: tuple[str, str] | None = None,
    csv_format: tuple[str, str, str] = (",", ".", "utf-8"),
    storage_options: Sequence[str] | None = None,
    scheduler: str | None = None,
    performance_report: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Explain every row of a table; `dsgp.cli.commands.explain` describes the options."""
    n_rows = _row_by_row(
        model,
        data,
        out,
        _Columns.of(keep, {}),
        explanation_of,
        "explaining",
        holidays,
        CsvFormat(*csv_format),
        storage_options,
        scheduler,
        performance_report,
        overwrite,
    )
    typer.echo(f"explanations of {n_rows} rows saved in {without_secrets(str(out))}")


def _row_by_row(
    model: Path,
    data: Path,
    out: Path,
    columns: _Columns,
    asked: Callable[[Any], Outputs],
    stage: str,
    holidays: tuple[str, str] | None,
    form: CsvFormat,
    storage_options: Sequence[str] | None,
    scheduler: str | None,
    performance_report: Path | None,
    overwrite: bool,
) -> int:
    """Write what is asked of a model for every row of a table; return the number of rows."""
    file = None if holidays is None else file_of(holidays[0])
    require_apart(out, [data, model, file])
    reach = Reach.of(storage_options, [model, data, file, out])
    with _sink(reach.place(out), overwrite) as write:
        fitted = load(reach.place(model))
        if isinstance(fitted, GridGP):
            raise ParameterError(
                f"{str(model)!r} is a model of a grid, not of a table; smooth a field with its "
                "hyperparameters: dsgp smooth --model"
            )
        columns = replace(columns, added=ForModel.of(holidays, reach, form, fitted))
        outputs = asked(fitted)
        for name in columns.kept:
            if name in outputs.names:
                raise ParameterError(f"--keep {name!r} has the name of a column of the predictions")
        stored = open_table(reach.place(data), form)
        copy = Copied.of(
            stored, columns.kept, to_csv=out.name.lower().endswith((".csv", ".csv.gz"))
        )
        predicted = _Predicted(fitted, outputs, columns, copy)
        n_rows = 0
        with (
            on_cluster(scheduler, performance_report),
            progress(stage, stored.n_rows) as bar,
        ):
            for table in _each(predicted, _blocks(stored, fitted, columns)):
                write(table)
                n_rows += table.num_rows
                bar.update(table.num_rows)
    return n_rows


def _each(predicted: _Predicted, blocks: Iterator[Block]) -> Iterator[pa.Table]:
    """Yield the predictions of all blocks, in their order: from workers, if there are any."""
    if active_client() is None:
        # One block at a time: its rows are shared among the threads of this machine.
        for block in blocks:
            yield predicted(block)
    else:
        yield from over_chunks((partial(_itself, block) for block in blocks), predicted, "predict")


def _itself(block: Block) -> Block:
    return block


@contextmanager
def _sink(out: Place, overwrite: bool) -> Iterator[Callable[[Table], None]]:
    """Give a function that writes one table after another to a file, or as parts of a folder."""
    if out.suffix:
        with written_aside(out, overwrite) as aside, table_writer(name_of(out), aside) as write:
            yield write
    else:
        numbers = itertools.count()
        with written_parts(out, overwrite) as write_part:
            yield lambda table: write_part(table, next(numbers))


# ---------------------------------------------------------------- reading


def _has_names(model: Any) -> bool:
    """Return whether inputs are matched by name; not so if the model was fitted to an array."""
    return hasattr(model, "feature_names_in_")


@dataclass(frozen=True)
class _Columns:
    """Columns of a table besides the inputs.

    Attributes
    ----------
    kept : list of str
        Copied.
    further : dict of str to str
        Columns of exposures, offsets and trials.
    added : ForModel or None
        A column of holidays that the table lacks.
    """

    kept: list[str]
    further: dict[str, str]
    added: ForModel | None = None

    @classmethod
    def of(cls, keep: Sequence[str] | None, further: dict[str, str]) -> _Columns:
        """Take the names of an option that can be repeated, each once."""
        kept = dict.fromkeys(name for listed in keep or [] for name in names_of(listed))
        return cls(list(kept), further)

    def wanted(self, model: Any) -> list[str]:
        """Names of all columns that must be there."""
        return list(dict.fromkeys([*self.inputs(model), *self.kept, *self.further.values()]))

    def inputs(self, model: Any) -> list[str]:
        """Names of the inputs that the table has; none if they are matched by their places."""
        if not _has_names(model):
            return []
        used = list(model.used_columns_)
        return used if self.added is None else self.added.stored(used)

    def split(self, table: pd.DataFrame, model: Any) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
        """Give inputs and further numbers of some rows."""
        further = {role: table[name] for role, name in self.further.items()}
        if not _has_names(model):
            return table.drop(columns=list(dict.fromkeys(self.further.values()))), further
        if self.added is not None:
            table = self.added.to(table, model)
        inputs = list(model.used_columns_)
        return table[inputs] if inputs else table, further


@dataclass(frozen=True)
class _Predicted:
    """Predicts the rows of a block, wherever it is called."""

    model: Any
    outputs: Outputs
    columns: _Columns
    copy: Copied

    def __call__(self, block: Block) -> pa.Table:
        """Return predictions, and columns to keep."""
        with naming(_whereabouts(block)):
            table, as_stored = block.read_both()
            X, numbers = self.columns.split(table, self.model)
            return self.copy(as_stored, self.outputs.of(X, numbers))


def _blocks(stored: StoredTable, model: Any, columns: _Columns) -> Iterator[Block]:
    """Yield all rows: inputs and further numbers, and beside them the columns to keep."""
    require_inputs(stored, columns.wanted(model), model, columns.added)
    further = columns.further.values()
    if _has_names(model):
        inputs = columns.inputs(model)
    else:
        apart = {*columns.kept, *further}
        inputs = [name for name in stored.names if name not in apart]
    numbers = list(dict.fromkeys([*inputs, *further]))
    return stored.blocks(numbers or stored.names[:1], numbers, columns.kept)


def _whereabouts(block: Block) -> str:
    later = f", rows from {block.first_row} on" if block.first_row else ""
    return f"{block.part}{later}"


# ---------------------------------------------------------------- reporting


def info(model: Path, storage_options: Sequence[str] | None = None) -> None:
    """Show what a saved model is."""
    place = Reach.of(storage_options, [model]).place(model)
    fitted = load(place)
    if isinstance(fitted, GridGP):
        typer.echo("kind            GridGP")
        typer.echo(f"format version  {storage.format_version(place)}")
        typer.echo(f"\n{fitted.summary()}")
        return
    unnamed = f"{fitted.n_features_in_}, without names"
    names = getattr(fitted, "feature_names_in_", None)
    typer.echo(f"kind            {type(fitted).__name__}")
    typer.echo(f"format version  {storage.format_version(place)}")
    typer.echo(f"columns         {unnamed if names is None else ', '.join(names)}")
    if isinstance(fitted, ClassEstimator):
        typer.echo(f"classes         {', '.join(map(str, fitted.classes_))}")
        typer.echo(f"class weight    {fitted.class_weight or 'none'}")
    typer.echo(f"\n{fitted.summary()}")
