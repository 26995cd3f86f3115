"""The work of ``dsgp report``: a page of HTML about a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from dsgp import memory
from dsgp.addresses import Place
from dsgp.cli import fields
from dsgp.cli.holidays import ForModel
from dsgp.cli.pictures import require_replaceable
from dsgp.cli.reaching import Reach
from dsgp.cli.sources import opened
from dsgp.cli.tables import read_held_out
from dsgp.cli.work import file_of
from dsgp.errors import ParameterError
from dsgp.estimators import GridGP, load
from dsgp.places import require_apart
from dsgp.rows.sources import CsvFormat


def report(
    model: Path,
    out: Path,
    *,
    data: Path | None,
    target: str | None,
    title: str | None,
    level: float,
    further: Mapping[str, str | None],
    holidays: tuple[str, str] | None,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Write a page about a saved model; `dsgp.cli.commands.report` describes the options."""
    writing = writing_of_pages()
    writing.require_ending(out)
    if not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    roles = {role: name for role, name in further.items() if name is not None}
    if data is None and roles:
        raise ParameterError(f"--{next(iter(roles))} names a column of --data; give --data, too")
    inputs = [model] if data is None else [model, data]
    if holidays is not None:
        if data is None:
            raise ParameterError("--holidays is for the rows of --data; give --data, too")
        inputs += [file for file in [file_of(holidays[0])] if file is not None]
    require_apart(out, inputs)
    require_replaceable(out, writing.MADE_BY, overwrite)
    reach = Reach.of(storage_options, inputs)
    fitted = load(reach.place(model))
    place = None if data is None else reach.place(data)
    options: dict[str, Any] = {"title": title, "level": level}
    if isinstance(fitted, GridGP):
        if holidays is not None:
            raise ParameterError(
                "--holidays is of models of tables, and the model is a GridGP; leave it out"
            )
        _report_field(writing, fitted, out, place, target, roles, options)
    else:
        form = CsvFormat(*csv_format)
        added = ForModel.of(holidays, reach, form, fitted)
        _report_table(writing, fitted, out, place, target, further, form, added, options)
    typer.echo(f"report saved in {out}")


def writing_of_pages() -> Any:
    """Return the module that writes pages, which needs an extra."""
    try:
        return import_module("dsgp.report")
    except ImportError as error:
        raise ParameterError(str(error)) from error


def _report_table(
    writing: Any,
    fitted: Any,
    out: Path,
    data: Place | None,
    target: str | None,
    further: Mapping[str, str | None],
    form: CsvFormat,
    added: ForModel | None,
    options: Mapping[str, Any],
) -> None:
    """Write the page of a model of a table."""
    roles: dict[str, Any] = {role: name for role, name in further.items() if name is not None}
    held_out: dict[str, Any] = {}
    if data is not None:
        if target is None:
            raise ParameterError("--data needs --target, the name of its column with the target")
        held_out = {
            "X": read_held_out(fitted, data, [target, *roles.values()], form, added),
            "y": target,
        }
        if not hasattr(fitted, "feature_names_in_"):  # inputs by their places
            rows = held_out["X"]
            held_out["y"] = rows[target]
            roles = {role: rows[name] for role, name in roles.items()}
            others = [name for name in rows if name not in (target, *further.values())]
            held_out["X"] = rows[others].to_numpy()
    writing.write_report(fitted, out, **held_out, target=target, extra=roles, **options)


def _report_field(
    writing: Any,
    fitted: GridGP,
    out: Path,
    data: Place | None,
    target: str | None,
    roles: Mapping[str, str],
    options: Mapping[str, Any],
) -> None:
    """Write the page of a model of a field; held-out cells are a variable of a file."""
    if roles:
        raise ParameterError(
            f"--{next(iter(roles))} is of models of counts and rates in tables, and the model is a "
            "GridGP; leave it out"
        )
    if data is None:
        writing.write_grid_report(fitted, out, target=target, **options)
        return
    with opened([data]) as dataset:
        name = fields.chosen(dataset, target, str(data), option="--target")
        memory.require(
            f"the held-out cells of {str(data)!r}",
            8.0 * dataset[name].size,
            "take a part of them, such as one time step",
        )
        held_out = fields.loaded(dataset[name], str(data))
    writing.write_grid_report(fitted, out, held_out, **options)
