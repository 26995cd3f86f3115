"""The work of ``dsgp evaluate`` and ``calibrate``: a saved model and rows held out of its fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import typer

from dsgp import storage
from dsgp.addresses import without_secrets
from dsgp.cli.holidays import ForModel
from dsgp.cli.pictures import require_replaceable
from dsgp.cli.reaching import Reach, require_model_path
from dsgp.cli.tables import read_held_out
from dsgp.cli.work import file_of
from dsgp.errors import ParameterError
from dsgp.estimators import GridGP, calibration_report, load
from dsgp.estimators.classes import ClassEstimator
from dsgp.places import made_aside, require_apart
from dsgp.rows.sources import CsvFormat, numbers_of

# By these pictures and tables are known as ours, which --overwrite replaces.
_MADE_BY = "dsgp evaluate"
_HEADER = "by,group,middle,n_rows,coverage,"


def evaluate(
    model: Path,
    data: Path,
    target: str,
    *,
    level: float,
    further: Mapping[str, str | None],
    out: Path | None,
    plot: Path | None,
    holidays: tuple[str, str] | None,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Judge a saved model; `dsgp.cli.commands.evaluate` describes the options."""
    if not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    for option, path, endings in (
        ("--out", out, (".csv",)),
        ("--plot", plot, (".png", ".pdf", ".svg")),
    ):
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise ParameterError(f"{option} must end in {' or '.join(endings)}, got {str(path)!r}")
        require_apart(path, [data, model, _file(holidays)], option)
        require_replaceable(path, _MADE_BY, overwrite, _HEADER if option == "--out" else None)
    reach = Reach.of(storage_options, [model, data, _file(holidays)])
    fitted, X, y, numbers = _read(reach, model, data, target, further, holidays, csv_format)
    density = fitted.log_predictive_density(X, y, **numbers)
    mean = fitted.predict(X, **numbers)
    report = calibration_report(fitted, X, y, level=level, **numbers)
    before = " (before calibration)" if report.n_calibrated else ""
    typer.echo(
        f"root mean squared error: {np.sqrt(np.mean((y - mean) ** 2)):.6g} "
        f"(standard deviation of {target}: {np.std(y):.6g})\n"
        f"mean log density of the observations{before}: {np.mean(density):.6g}\n"
        f"{report.summary()}"
    )
    if out is not None:
        with made_aside(out) as aside:
            report.coverage.to_csv(aside, index=False)
        typer.echo(f"coverage of groups of rows saved in {out}")
    if plot is not None:
        drawing = _drawing()
        with made_aside(plot) as aside:
            figure = drawing.plot_calibration_report(report)
            kind = plot.suffix[1:].lower()
            mark = {"Software" if kind == "png" else "Creator": _MADE_BY}
            figure.savefig(aside, format=kind, dpi=150, metadata=mark)
        typer.echo(f"picture saved in {plot}")


def calibrate(
    model: Path,
    data: Path,
    target: str,
    out: Path,
    *,
    further: Mapping[str, str | None],
    holidays: tuple[str, str] | None,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Calibrate a saved model; `dsgp.cli.commands.calibrate` describes the options."""
    inputs = [model, data, _file(holidays)]
    require_model_path(out)
    require_apart(out, inputs)
    reach = Reach.of(storage_options, [*inputs, out])
    saved = reach.place(out)
    storage.check_writable(saved, overwrite)
    fitted, X, y, numbers = _read(reach, model, data, target, further, holidays, csv_format)
    fitted.calibrate(X, y, **numbers)
    fitted.save(saved, overwrite)
    typer.echo(
        f"intervals calibrated by {fitted.n_calibrated_} rows; saved in {without_secrets(str(out))}"
    )


def _file(holidays: tuple[str, str] | None) -> Path | None:
    return None if holidays is None else file_of(holidays[0])


def _read(
    reach: Reach,
    model: Path,
    data: Path,
    target: str,
    further: Mapping[str, str | None],
    holidays: tuple[str, str] | None,
    csv_format: tuple[str, str, str],
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the model, and inputs, targets and further numbers of all rows."""
    fitted = load(reach.place(model))
    if isinstance(fitted, (GridGP, ClassEstimator)) or not hasattr(fitted, "calibrate"):
        raise ParameterError(
            f"{str(model)!r} is of type {type(fitted).__name__}, and evaluate and calibrate are of "
            "models of a number in a table: regressors, counts, rates"
            + (" (dsgp report --data judges classes)" if isinstance(fitted, ClassEstimator) else "")
            + (" (dsgp report --data judges fields)" if isinstance(fitted, GridGP) else "")
        )
    roles = {role: name for role, name in further.items() if name is not None}
    beside = [target, *roles.values()]
    form = CsvFormat(*csv_format)
    added = ForModel.of(holidays, reach, form, fitted)
    table = read_held_out(fitted, reach.place(data), beside, form, added)
    if not hasattr(fitted, "feature_names_in_"):
        inputs = table.drop(columns=list(dict.fromkeys(beside)))
    else:
        inputs = table
    y = numbers_of(f"the target {target!r}", table[target])
    return fitted, inputs, y, {role: table[name].to_numpy() for role, name in roles.items()}


def _drawing() -> Any:
    try:
        return import_module("dsgp.plotting")
    except ImportError as error:  # Matplotlib is an extra.
        raise ParameterError(str(error)) from error
