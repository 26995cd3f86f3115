"""Fit real tables by every method on the same rows, each in a process of its own; one report.

``python -m pipelines.tables --data-dir FOLDER --out results/tables``
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import DataError, ParameterError
from dsgp.interrupt import exit_on_termination

try:
    from pipelines.cells import listed, results_aside
    from pipelines.datasets.tables import NUMBER_JOBS, TABLE_JOBS, path_of
    from pipelines.reporting import REPORT, environment, plain_errors, write_report
    from pipelines.scaling.running import RUNS, require_own, run_all, say
    from pipelines.tables.cell import Settings
    from pipelines.tables.methods import METHODS, methods_named
    from pipelines.tables.summary import lines_of, markdown, shares_of
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "tables"
CELL = "pipelines.tables.cell"
OWN_FILES = {RUNS, REPORT, "report.md", "results.csv", "shares.csv"}
JOBS = [*TABLE_JOBS, *NUMBER_JOBS]

EXAMPLES = """\b
Examples:
  python -m pipelines.tables --data-dir FOLDER --out results/tables
  python -m pipelines.tables --data-dir FOLDER --out results/tables \\
      --only deliveries,ames --models additive,interactions,trees
  python -m pipelines.tables --data-dir FOLDER --out results/quick --quick
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    data_dir: Annotated[
        Path,
        Option(metavar="FOLDER", help="Folder of the tables: NAME.parquet (or in tables/), .npz."),
    ],
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path("results/tables"),
    only: Annotated[
        list[str] | None,
        Option(
            metavar="JOB",
            help=f"Jobs to run: a list A,B,C, or repeated: {', '.join(JOBS)}. By default those in "
            "the folder.",
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            help=f"Models to fit: a list A,B,C, or repeated: {', '.join(METHODS)}. By default "
            "those that are installed.",
        ),
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="Use at most 2000 training rows and 1000 test rows.")
    ] = False,
    minutes: Annotated[
        float, Option(metavar="N", help="Time limit per job and model, in wall time.")
    ] = 60.0,
    overwrite: Annotated[bool, Option("--overwrite", help="Repeat finished runs.")] = False,
) -> None:
    """Predict the test rows of real tables by every method, and compare.

    Each job by each model runs in a process of its own, is kept in FOLDER/runs as it ends, and not
    made again, so that an interrupted run resumes.
    """
    exit_on_termination()
    with plain_errors():
        if not minutes > 0:
            raise ParameterError(f"--minutes must be above 0, got {minutes}")
        chosen, notes = methods_named(listed(models))
        jobs, absent = _jobs(listed(only), data_dir)
        notes += absent
        require_own(out, OWN_FILES)
        planned = [
            Settings.of(job, method, data_dir, quick)
            for job in jobs
            for method in chosen
            if _task(job) in METHODS[method].method.tasks
        ]
        records, failures = run_all(
            planned, out / RUNS, None, overwrite, CELL, limit_seconds=60 * minutes
        )
        notes += failures
        if not records:
            raise ParameterError("no job has finished, so there is nothing to report")
        finished = {settings.key: settings.file_name for settings in planned}
        for record in records:
            key = Settings(**record["settings"]).key
            record["rows_file"] = finished[key].removesuffix(".json") + ".npz"
        write(records, notes, out)
        say(f"everything is in {out}")
        if failures:
            raise typer.Exit(1)


def _task(job: str) -> str:
    is_class = job in TABLE_JOBS and TABLE_JOBS[job].is_class
    return "classification" if is_class else "regression"


def _jobs(names: list[str] | None, data_dir: Path) -> tuple[list[str], list[str]]:
    """Jobs to run, and a line for each whose data are absent; one that is named must be there."""
    if names is not None:
        for name in names:
            path_of(name, data_dir)
        return names, []
    jobs, notes = [], []
    for name in JOBS:
        try:
            path_of(name, data_dir)
            jobs.append(name)
        except DataError as error:
            notes.append(f"left out: {error}")
    if not jobs:
        raise DataError(f"{data_dir} holds the data of no job; expected one of {', '.join(JOBS)}")
    return jobs, notes


def write(records: list[dict[str, Any]], notes: list[str], out: Path) -> None:
    """Write report.md, results.csv, shares.csv and report.json aside, and move each into place."""
    lines, shares = lines_of(records, out / RUNS), shares_of(records)
    command = f"python -m pipelines.tables {' '.join(sys.argv[1:])}".strip()
    with results_aside(out) as aside:
        text = markdown(lines, shares, notes, command)
        (aside / "report.md").write_text(text, encoding="utf-8")
        pd.DataFrame(lines).to_csv(aside / "results.csv", index=False)
        shares.to_csv(aside / "shares.csv", index=False)
        report = {
            "data": {"name": "tables"},
            "command": command,
            "lines": lines,
            "notes": notes,
            "versions": environment(),
            "machine": records[0]["machine"],
            "runs": records,
        }
        write_report(aside, PIPELINE, report)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.tables")
