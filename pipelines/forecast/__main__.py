"""Forecast series from moving origins by every method, each in a process of its own; one report.

``python -m pipelines.forecast --out results/forecast``
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import DataError, ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.terms import parse_term

try:
    from pipelines.cells import listed, results_aside
    from pipelines.forecast.cell import series_of, settings_of
    from pipelines.forecast.methods import METHODS, methods_named
    from pipelines.forecast.series import SERIES, Design, Series
    from pipelines.forecast.summary import draw, lines_of, markdown
    from pipelines.forecast.tables import Table
    from pipelines.reporting import REPORT, environment, plain_errors, write_report
    from pipelines.scaling.running import RUNS, require_own, run_all, say
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "forecast"
CELL = "pipelines.forecast.cell"

EXAMPLES = """\b
Examples:
  python -m pipelines.forecast --out results/forecast
  python -m pipelines.forecast --data-dir FOLDER --only births --origins 12 \\
      --out results/births
  python -m pipelines.forecast --data sales.csv --date day --value sales \\
      --holidays holidays.csv --days-before 1 --horizon 90 --out results/sales
  python -m pipelines.forecast --data visits.csv --date month --value visits \\
      --horizon 24 --transform none --term 'date: Periodic(year)' \\
      --models matern12,naive,ets,arima --out results/visits
  python -m pipelines.forecast --quick --out results/quick
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path(
        "results/forecast"
    ),
    data: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A series of your own: a file .csv, .csv.gz, .parquet or .pq with a column of "
            "dates and one of values, at equal steps. Needs --value and --horizon.",
        ),
    ] = None,
    date: Annotated[str, Option(metavar="COLUMN", help="--data: column of dates.")] = "date",
    value: Annotated[str | None, Option(metavar="COLUMN", help="--data: column of values.")] = None,
    add_up: Annotated[
        bool, Option("--sum", help="--data: add up the values of each date.")
    ] = False,
    holidays: Annotated[
        str | None,
        Option(
            metavar="FILE|COUNTRY",
            help="--data: a table with the columns date and holiday, or a country such as US, "
            "which needs the package holidays.",
        ),
    ] = None,
    days_before: Annotated[
        int, Option(metavar="N", help="Days before each holiday with effects of their own.")
    ] = 0,
    days_after: Annotated[
        int, Option(metavar="N", help="Days after each holiday with effects of their own.")
    ] = 0,
    data_dir: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Folder of birthdays.parquet (or of tables/ with it), for the series births.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(
            metavar="SERIES",
            help=f"Can be repeated, or be a list A,B,C: {', '.join(SERIES)}. By default all whose "
            "data are available; not together with --data.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help=f"Likewise: {', '.join(METHODS)}. By default those that are installed.",
        ),
    ] = None,
    term: Annotated[
        list[str] | None,
        Option(
            metavar="TERM",
            help="Models of dsgp: a term beside trend and slope, such as 'date: Periodic(year)'; "
            "can be repeated. The columns are called date and holiday. By default the seasons of "
            "the year and of the week, and holidays, where the series has them.",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        Option(
            metavar="none|log",
            help="Forecast the series or its logarithm; by default its logarithm.",
        ),
    ] = None,
    horizon: Annotated[int | None, Option(metavar="N", help="Steps to forecast.")] = None,
    window: Annotated[
        int | None,
        Option(metavar="N", help="Steps of the past in each fit; --data: by default half of them."),
    ] = None,
    season: Annotated[
        int | None,
        Option(metavar="N", help="Steps of the season of the baselines and of MASE; 1 for none."),
    ] = None,
    origins: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Number of origins, spread evenly or, with --origin-step, the last ones.",
        ),
    ] = None,
    origin_step: Annotated[
        int | None, Option(metavar="N", help="Steps from one origin to the next.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Two origins per series.")] = False,
    minutes: Annotated[
        float, Option(metavar="N", help="Time limit per series and model, in wall time.")
    ] = 60.0,
    overwrite: Annotated[bool, Option("--overwrite", help="Repeat finished runs.")] = False,
) -> None:
    """Forecast series from moving origins, and compare errors and coverage by horizon.

    A forecast uses a window of the past only. Each series by each model runs in a process of its
    own and is kept in FOLDER/runs, so that the same command resumes an interrupted run.
    """
    exit_on_termination()
    with plain_errors():
        if not minutes > 0:
            raise ParameterError(f"--minutes must be above 0, got {minutes}")
        for text in term or ():
            parse_term(text)
        table = _table(data, date, value, add_up, holidays, days_before, days_after, only, data_dir)
        design = Design(horizon, window, season, origins, origin_step, transform, tuple(term or ()))
        chosen, notes = methods_named(listed(models))
        made, absent = _series(listed(only), data_dir, table, design, quick)
        notes += absent
        require_own(out, _own_files(made))
        planned = [
            settings_of(name, series, method, data_dir, table, design, quick)
            for name, series in made.items()
            for method in chosen
        ]
        records, failures = run_all(
            planned, out / RUNS, None, overwrite, CELL, limit_seconds=60 * minutes
        )
        notes += failures
        if not records:
            raise ParameterError("no forecast was completed, so there is nothing to report")
        write(records, notes, out)
        say(f"everything is in {out}")
        if failures:
            raise typer.Exit(1)


def _table(
    data: Path | None,
    date: str,
    value: str | None,
    add_up: bool,
    holidays: str | None,
    before: int,
    after: int,
    only: list[str] | None,
    data_dir: Path | None,
) -> Table | None:
    """Return the file of a series, if there is one."""
    if data is None:
        if value is not None or add_up or holidays is not None or before or after:
            raise ParameterError(
                "--value, --sum, --holidays, --days-before and --days-after are for a series of "
                "your own; pass its file as --data"
            )
        return None
    if only is not None or data_dir is not None:
        raise ParameterError("--data is the series; leave out --only and --data-dir")
    if value is None:
        raise ParameterError("--data needs --value, the column to forecast")
    return Table(str(data.absolute()), date, value, add_up, holidays, before, after)


def _series(
    names: list[str] | None,
    data_dir: Path | None,
    table: Table | None,
    design: Design,
    quick: bool,
) -> tuple[dict[str, Series], list[str]]:
    """Series to forecast, and a line for each whose data are absent; one named must be there."""
    if table is not None:
        return {table.name: series_of(table.name, None, table, design, quick)}, []
    made, notes = {}, []
    for name in names or SERIES:
        if name not in SERIES:
            raise ParameterError(f"there is no series {name!r}; there are: {', '.join(SERIES)}")
        try:
            made[name] = series_of(name, data_dir, None, design, quick)
        except DataError as error:
            if names is not None:
                raise
            notes.append(f"{name} is left out: {error}")
    return made, notes


def _own_files(made: dict[str, Series]) -> set[str]:
    pictures = {
        f"{name}-{kind}.png" for name in [*SERIES, *made] for kind in ("horizon", "forecast")
    }
    return {RUNS, REPORT, "report.md", "results.csv"} | pictures


def write(records: list[dict[str, Any]], notes: list[str], out: Path) -> None:
    """Write report.md, results.csv, the pictures and report.json aside, and move each in place."""
    costs = []
    for record in records:
        with np.load(out / RUNS / record["arrays"]) as kept:
            costs.append(dict(kept))
    lines = lines_of(records, costs)
    command = f"python -m pipelines.forecast {' '.join(sys.argv[1:])}".strip()
    with results_aside(out) as aside:
        (aside / "report.md").write_text(markdown(records, lines, notes, command), encoding="utf-8")
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
        write_report(aside, PIPELINE, report)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.forecast")
