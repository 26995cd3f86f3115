"""The work of ``dsgp update``: a saved model, further rows, and the model of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from dsgp import storage
from dsgp.addresses import without_secrets
from dsgp.cli.clusters import on_cluster
from dsgp.cli.reaching import Reach
from dsgp.errors import ParameterError
from dsgp.estimators import SmoothingSpline, load
from dsgp.estimators.tables import TableEstimator
from dsgp.places import require_apart
from dsgp.rows.sources import CsvFormat, Stored


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
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    scheduler: str | None,
    performance_report: Path | None,
    overwrite: bool,
) -> None:
    """Update a model and save it; `dsgp.cli.commands.update` describes the options."""
    require_apart(out, [data])
    reach = Reach.of(storage_options, [model, data, out])
    saved = reach.place(out)
    storage.check_writable(saved, overwrite)
    fitted = load(reach.place(model))
    if not isinstance(fitted, (TableEstimator, SmoothingSpline)):
        raise ParameterError(
            f"{str(model)!r} is a {type(fitted).__name__}, which cannot be updated: fit it again, "
            "on all rows"
        )
    with on_cluster(scheduler, performance_report):
        fitted.update(
            Stored(reach.place(data), None, [], CsvFormat(*csv_format)),
            target,
            weight,
            relearn=relearn,
            half_life=half_life,
            elapsed=elapsed,
        )
    fitted.save(saved, overwrite)
    typer.echo(f"{fitted.summary()}\n\nsaved in {without_secrets(str(out))}")
