"""Forecast series from moving origins by every method, each in a process of its own; one report.

``python -m pipelines.forecast --out results/forecast``
"""

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import DataError, ParameterError
from dsgp.interrupt import exit_on_termination

try:
    from pipelines.forecast.cell import Settings
    from pipelines.forecast.methods import METHODS, methods_named
    from pipelines.forecast.series import SERIES
    from pipelines.forecast.summary import draw, lines_of, markdown
    from pipelines.reporting import REPORT, environment, plain_errors, write_report
    from pipelines.scaling.running import RUNS, require_own, run_all, say
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "forecast"
CELL = "pipelines.forecast.cell"
PICTURES = {f"{name}-{kind}.png" for name in SERIES for kind in ("horizon", "forecast")}
OWN_FILES = {RUNS, REPORT, "report.md", "results.csv"} | PICTURES

EXAMPLES = """\b
Examples:
  python -m pipelines.forecast --out results/forecast
  python -m pipelines.forecast --data-dir FOLDER --only births \\
      --models matern12,naive,ets --out results/births
  python -m pipelines.forecast --quick --out results/quick
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    out: Annotated[Path, Option(metavar="FOLDER", help="What is written.")] = Path(
        "results/forecast"
    ),
    data_dir: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Where birthdays.parquet is (or in tables/), for births."),
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(
            metavar="SERIES",
            help=f"Can be repeated, or be a list A,B,C: {', '.join(SERIES)}. By default those "
            "that are there.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help=f"Likewise: {', '.join(METHODS)}. By default those that are installed.",
        ),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Two origins of each series.")] = False,
    minutes: Annotated[
        float, Option(metavar="N", help="Of one series by one model at most, by the clock.")
    ] = 60.0,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Run again what is finished already.")
    ] = False,
) -> None:
    """Forecast series from moving origins, and compare errors and coverage by horizon.

    A forecast sees a window of the past alone. Each series by each model runs in a process of its
    own and is kept in FOLDER/runs, so that an interrupted run goes on where it was.
    """
    exit_on_termination()
    with plain_errors():
        if not minutes > 0:
            raise ParameterError(f"--minutes must be above 0, got {minutes}")
        chosen, notes = methods_named(_listed(models))
        made, absent = _series(_listed(only), data_dir)
        notes += absent
        require_own(out, OWN_FILES)
        planned = [
            Settings.of(name, series, method, data_dir, quick)
            for name, series in made.items()
            for method in chosen
        ]
        records, failures = run_all(
            planned, out / RUNS, None, overwrite, CELL, limit_seconds=60 * minutes
        )
        notes += failures
        if not records:
            raise ParameterError("no forecast came to its end, so there is nothing to report")
        write(records, notes, out)
        say(f"everything is in {out}")
        if failures:
            raise typer.Exit(1)


def _listed(values: list[str] | None) -> list[str] | None:
    """Values that are repeated or lists, each once."""
    if values is None:
        return None
    words = [word.strip() for value in values for word in value.split(",")]
    return list(dict.fromkeys(filter(None, words)))


def _series(names: list[str] | None, data_dir: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Series to forecast, and a line for each whose data are absent; one named must be there."""
    made, notes = {}, []
    for name in names or SERIES:
        if name not in SERIES:
            raise ParameterError(f"there is no series {name!r}; there are: {', '.join(SERIES)}")
        try:
            made[name] = SERIES[name](data_dir)
        except DataError as error:
            if names is not None:
                raise
            notes.append(f"left out: {error}")
    return made, notes


def write(records: list[dict[str, Any]], notes: list[str], out: Path) -> None:
    """Write report.md, results.csv, the pictures and report.json aside, and move each in place."""
    costs = []
    for record in records:
        with np.load(out / RUNS / record["arrays"]) as kept:
            costs.append(dict(kept))
    lines = lines_of(records, costs)
    command = f"python -m pipelines.forecast {' '.join(sys.argv[1:])}".strip()
    # Within the folder of runs, so that a stray one is not taken for somebody else's file.
    with tempfile.TemporaryDirectory(dir=out / RUNS, suffix=".aside") as name:
        aside = Path(name)
        (aside / "report.md").write_text(markdown(lines, notes, command), encoding="utf-8")
        lines.to_csv(aside / "results.csv", index=False)
        draw(records, costs, aside)
        report = {
            "data": {"name": "forecast"},
            "command": command,
            "lines": lines.to_dict("records"),
            "notes": notes,
            "versions": environment(),
            "machine": records[0]["machine"],
            "runs": records,
        }
        for file in write_report(aside, PIPELINE, report)["files"]:
            (aside / file).replace(out / file)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.forecast")
