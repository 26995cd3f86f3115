"""The work of ``dsgp report``: a page of HTML about a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from dsgp.cli.holidays import ForModel, file_of
from dsgp.cli.pictures import require_replaceable
from dsgp.cli.reaching import Reach
from dsgp.cli.tables import read_held_out
from dsgp.errors import ParameterError
from dsgp.estimators import load
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
    try:
        writing = import_module("dsgp.report")
    except ImportError as error:  # of an extra
        raise ParameterError(str(error)) from error
    writing.require_ending(out)
    if not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    roles = {role: name for role, name in further.items() if name is not None}
    if data is not None and target is None:
        raise ParameterError("--data needs --target, the name of its column with the target")
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
    held_out: dict[str, Any] = {}
    if data is not None:
        assert target is not None
        form, beside = CsvFormat(*csv_format), [target, *roles.values()]
        added = ForModel.of(holidays, reach, fitted)
        held_out = {
            "X": read_held_out(fitted, reach.place(data), beside, form, added),
            "y": target,
        }
        if not hasattr(fitted, "feature_names_in_"):  # inputs by their places
            rows = held_out["X"]
            held_out["y"] = rows[target]
            roles = {role: rows[name] for role, name in roles.items()}
            others = [name for name in rows if name not in (target, *further.values())]
            held_out["X"] = rows[others].to_numpy()
    writing.write_report(
        fitted, out, **held_out, target=target, title=title, level=level, extra=roles
    )
    typer.echo(f"report saved in {out}")
