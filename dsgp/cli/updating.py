"""The work of ``dsgp update``: a saved model, further rows, and the model of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from dsgp import storage
from dsgp.addresses import without_secrets
from dsgp.cli.clusters import on_cluster
from dsgp.cli.holidays import ForModel, require_inputs
from dsgp.cli.reaching import Reach, require_model_path
from dsgp.cli.tables import read_further
from dsgp.cli.work import file_of
from dsgp.errors import ParameterError
from dsgp.estimators import SmoothingSpline, load
from dsgp.estimators.tables import TableEstimator
from dsgp.places import require_apart
from dsgp.rows.sources import CsvFormat, Stored, open_table


def update(
    model: Path,
    data: Path,
    target: str,
    out: Path,
    *,
    weight: str | None,
    relearn: bool,
    half_life: float | None,
    elapsed: float | None,
    holidays: tuple[str, str] | None,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    scheduler: str | None,
    performance_report: Path | None,
    overwrite: bool,
) -> None:
    """Update a model and save it; `dsgp.cli.commands.update` describes the options."""
    file = None if holidays is None else file_of(holidays[0])
    require_model_path(out)
    require_apart(out, [data, file])
    reach = Reach.of(storage_options, [model, data, file, out])
    saved = reach.place(out)
    storage.check_writable(saved, overwrite)
    fitted = load(reach.place(model))
    if not isinstance(fitted, (TableEstimator, SmoothingSpline)):
        raise ParameterError(
            f"{str(model)!r} is a {type(fitted).__name__}, which cannot be updated: fit it again, "
            "on all rows"
        )
    source, form = reach.place(data), CsvFormat(*csv_format)
    added = ForModel.of(holidays, reach, form, fitted)
    rows: Any = Stored(source, None, [], form)
    if added is not None:
        beside = [target] if weight is None else [target, weight]
        rows = read_further(fitted, source, beside, form, added)
    elif hasattr(fitted, "feature_names_in_"):
        require_inputs(open_table(source, form), fitted.used_columns_, fitted, None)
    with on_cluster(scheduler, performance_report):
        fitted.update(
            rows,
            target,
            weight,
            relearn=relearn,
            half_life=half_life,
            elapsed=elapsed,
        )
    fitted.save(saved, overwrite)
    typer.echo(f"{fitted.summary()}\n\nsaved in {without_secrets(str(out))}")
