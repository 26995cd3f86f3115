"""The paper's evaluation, with its methods, those of other libraries, and our defaults.

``python -m pipelines.paper --data-dir FOLDER --out results/paper``
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import DataError, ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.places import replace_text

try:
    from pipelines.cells import listed, results_aside
    from pipelines.grid.corners import slopes_of
    from pipelines.grid.figures import draw_corners
    from pipelines.paper.cell import CORNERS, FIGURES, IMAGE, Settings
    from pipelines.paper.figures import drawings, write_figure
    from pipelines.paper.methods import METHODS
    from pipelines.paper.plan import (
        CLASS_RUNTIME,
        CLASSES_COMPARED,
        COMPARISON,
        QUICK_ROWS,
        RUNTIME,
        SECTIONS,
        SPEEDUP,
        SPEEDUP_ROWS,
        Choice,
        compared,
        left_out,
        of_speedup,
        planned,
    )
    from pipelines.paper.sets import CLASSIFICATION, DOWNLOADS, REGRESSION, SETS, download, files_of
    from pipelines.paper.summary import lines_of
    from pipelines.paper.tables import NAMES, tables_of, timings_of
    from pipelines.paper.text import markdown
    from pipelines.reporting import REPORT, plain_errors, plain_json, write_report
    from pipelines.scaling.running import RUNS, require_own, run_all, say
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "paper"
COMPARED = REGRESSION | CLASSIFICATION
OF_SECTION = {COMPARISON: list(REGRESSION), CLASSES_COMPARED: list(CLASSIFICATION)}
RUNS_DEFAULT, MINUTES_DEFAULT = 10, 60.0
METHOD_NAMES = tuple(dict.fromkeys(name for methods in METHODS.values() for name in methods))
CELL = "pipelines.paper.cell"
OWN_FILES = {RUNS, REPORT, "report.md"} | {
    f"{name}{ending}" for name in NAMES for ending in (*FIGURES, ".csv", ".json")
}

EXAMPLES = """\b
Examples:
  python -m pipelines.paper --data-dir FOLDER --out results/paper
  python -m pipelines.paper --data-dir FOLDER --only regression --runs 3
  python -m pipelines.paper --data-dir FOLDER --only elevators,kin40k \\
      --methods spgp,ppgpr-greedy,pursuit
  python -m pipelines.paper --data-dir FOLDER --quick --out results/paper-quick
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    data_dir: Annotated[Path, Option(metavar="FOLDER", help="Folder of the data sets, NAME.npz.")],
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path("results/paper"),
    only: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="What to run: a list A,B,C, or repeated. A table or figure: "
            f"{', '.join(SECTIONS)}; or a data set of the comparisons: {', '.join(COMPARED)}.",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        Option(
            metavar="METHOD",
            help=f"Methods to run: a list A,B,C, or repeated: {', '.join(METHOD_NAMES)}. By "
            "default those that are installed.",
        ),
    ] = None,
    runs: Annotated[
        int, Option(metavar="N", help="Number of runs of each method that draws random numbers.")
    ] = RUNS_DEFAULT,
    quick: Annotated[
        bool,
        Option(
            "--quick",
            help="A few hundred rows and one run, in a few minutes; seconds include loading code.",
        ),
    ] = False,
    minutes: Annotated[
        float, Option(metavar="N", help="Time limit per method and data set, in wall time.")
    ] = MINUTES_DEFAULT,
    at_once: Annotated[
        int, Option(metavar="N", help="Number of cells that run at the same time; 2 with --quick.")
    ] = 0,
    fetch: Annotated[
        bool,
        Option("--download", help=f"Fetch from OpenML what is absent: {', '.join(DOWNLOADS)}."),
    ] = False,
    report_only: Annotated[
        bool,
        Option("--report-only", help="Run nothing: report the finished cells, and count the rest."),
    ] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Repeat finished cells.")] = False,
) -> None:
    """Reproduce the tables and figures of the paper, with our defaults beside them.

    Each method on each data set runs in a process of its own, is kept in FOLDER/runs as it ends,
    and not made again, so that the same command resumes an interrupted run.
    """
    exit_on_termination()
    with plain_errors():
        if not minutes > 0 or runs < 1 or at_once < 0:
            raise ParameterError(
                "--minutes must be above 0, --runs at least 1, and --at-once not negative"
            )
        if report_only and overwrite:
            raise ParameterError("--report-only runs nothing; leave --overwrite out")
        sections, named = sections_and_sets(tuple(listed(only) or ()))
        chosen_methods, notes = _methods(tuple(listed(methods) or ()), tasks_of(sections))
        sets, absent = _present(data_dir, named, fetch)
        notes += absent
        require_own(out, OWN_FILES)
        choice = Choice(sections, sets, chosen_methods, 1 if quick else runs, quick, data_dir)
        cells = planned(choice)
        if not cells:
            raise ParameterError(
                "none of the chosen methods belongs to a chosen table, figure or data set; see "
                "--help for their names"
            )
        notes += left_out(choice)
        if report_only:
            cells, unfinished = _finished(cells, out / RUNS)
            notes += unfinished
        # Those that are timed with several threads have the processors to themselves.
        timed = set(of_speedup(choice))
        alone = [cell for cell in cells if cell in timed]
        others = [cell for cell in cells if cell not in timed]
        beside = at_once or (2 if quick else 1)
        records: list[dict[str, Any]] = []
        failures: list[str] = []
        for some, side_by_side in ((alone, 1), (others, beside)):
            finished, failed = run_all(
                some, out / RUNS, None, overwrite, CELL,
                limit_seconds=60 * minutes, at_once=side_by_side,
            )  # fmt: skip
            records += finished
            failures += failed
        notes += failures
        if not records:
            raise ParameterError("no cell has finished, so there is nothing to report")
        command = _command(only, methods, runs, quick, minutes, at_once)
        write(records, cells, choice, notes, command, out)
        say(f"everything is in {out}")
        if failures:
            raise typer.Exit(1)


def _finished(cells: list[Settings], folder: Path) -> tuple[list[Settings], list[str]]:
    """Cells whose results are there, and a line for each data set that lacks some."""
    finished: list[Settings] = []
    lacking: dict[str, Counter[str]] = {}
    for cell in cells:
        if (folder / cell.file_name).exists():
            finished.append(cell)
        else:
            lacking.setdefault(cell.data, Counter())[_label(cell.data, cell.method)] += 1
    notes = []
    for data, counts in sorted(lacking.items()):
        listed = ", ".join(f"{n} of {label}" for label, n in sorted(counts.items()))
        notes.append(f"{data}: runs that have not been made yet: {listed}.")
    return finished, notes


def _label(data: str, method: str) -> str:
    """Return the name of a method in tables."""
    return METHODS[SETS[data].task][method].label if data in SETS else method


def sections_and_sets(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate tables and figures from data sets, which mean their comparison.

    A comparison that is named itself has all its sets, whatever sets are named beside it.

    Raises
    ------
    ParameterError
        If a name is neither.
    """
    sections = [name for name in names if name in SECTIONS]
    sets = [name for name in names if name in COMPARED]
    for name in names:
        if name not in SECTIONS and name not in COMPARED:
            raise ParameterError(
                f"--only: there is no {name!r}; there are: {', '.join([*SECTIONS, *COMPARED])}"
            )
    if sets:
        for section, own in OF_SECTION.items():
            sets += own if section in sections else []
        sections += [name for name, own in OF_SECTION.items() if set(own) & set(sets)]
    return tuple(dict.fromkeys(sections or SECTIONS)), tuple(dict.fromkeys(sets))


def tasks_of(sections: tuple[str, ...]) -> set[str]:
    """Tasks whose methods the sections run."""
    tasks = set()
    if {RUNTIME, SPEEDUP, COMPARISON} & set(sections):
        tasks.add("regression")
    if {CLASS_RUNTIME, CLASSES_COMPARED} & set(sections):
        tasks.add("classification")
    return tasks


def _methods(
    names: tuple[str, ...], tasks: set[str]
) -> tuple[frozenset[tuple[str, str]], list[str]]:
    """Tasks and names of the methods to run, and a line for each that is not installed."""
    for name in names:
        if name not in METHOD_NAMES:
            raise ParameterError(
                f"there is no method {name!r}; there are: {', '.join(METHOD_NAMES)}"
            )
    chosen, notes = set(), []
    for task in sorted(tasks):
        for name, method in METHODS[task].items():
            if names and name not in names:
                continue
            lacking = method.lacking()
            if lacking is None:
                chosen.add((task, name))
            elif names:
                raise ParameterError(f"{name} ({task}): {lacking}")
            else:
                notes.append(f"{method.label} ({task}) is left out: {lacking}")
    # An empty set would mean all.
    return frozenset(chosen or {("", "")}), notes


def _present(
    data_dir: Path, named: tuple[str, ...], fetch: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Data sets that are there, and a line for each that is not; one that is named must be."""
    present, notes = [], []
    for name in named or COMPARED:
        try:
            files_of(name, data_dir)
        except DataError:
            if fetch and name in DOWNLOADS:
                say(f"{name}: fetched from OpenML into {download(name, data_dir)}")
            elif named:
                raise
            else:
                # Not the error: the report may travel, and where the data were need not.
                notes.append(f"{name} is left out: its file is not in the folder of data.")
                continue
        present.append(name)
    return tuple(present), notes


def write(
    records: list[dict[str, Any]],
    cells: list[Settings],
    choice: Choice,
    notes: list[str],
    command: str,
    out: Path,
) -> None:
    """Write report, tables and figures aside, and move each into its place.

    Those of an earlier run with other cells are removed.
    """
    rows, n_speedup = compared(choice), QUICK_ROWS if choice.quick else SPEEDUP_ROWS
    tables = tables_of(records, rows, n_speedup)
    notes = [*notes, *_ended(records), *_mixed(records), *_warnings(records)]
    facts = {
        "command": command,
        "machine": records[-1]["machine"],
        "versions": records[-1]["versions"],
    }
    with results_aside(out) as aside:
        figures = []
        for figure, draw in drawings(records, rows, n_speedup).items():
            figures += write_figure(draw(), aside, figure)
        if timings := timings_of(records):
            figures += write_figure(draw_corners(timings, slopes_of(timings)), aside, "kronecker")
        figures += _copy_image(cells, out / RUNS, aside)
        for label, table in tables.items():
            table.to_csv(aside / f"{label}.csv", index=False)
            lines = plain_json(table.astype(object).to_dict(orient="records"))
            replace_text(aside / f"{label}.json", json.dumps(lines, indent=1, allow_nan=False))
        (aside / "report.md").write_text(
            "# The paper\n\n" + markdown(tables, figures, notes, facts), encoding="utf-8"
        )
        report = {"data": {"name": "paper"}, **facts, "notes": notes, "lines": lines_of(records)}
        written = write_report(aside, PIPELINE, report)["files"]
    for file in OWN_FILES - {*written, RUNS}:
        (out / file).unlink(missing_ok=True)


def _ended(records: list[dict[str, Any]]) -> list[str]:
    """Say why the exact Gaussian process ends before the last grid."""
    return [
        f"Full-GP ends before the last grid of corners: {record['ended']}."
        for record in records
        if record["task"] == CORNERS and record["ended"]
    ]


def _mixed(records: list[dict[str, Any]]) -> list[str]:
    """Say where cells of several versions or machines are in one report."""
    notes = []
    for name in ("versions", "machine"):
        kinds = {json.dumps(record[name], sort_keys=True) for record in records}
        if len(kinds) > 1:
            notes.append(
                f"The cells have {len(kinds)} different {name}; those of the last one are shown. "
                "--overwrite runs all of them again."
            )
    return notes


def _warnings(records: list[dict[str, Any]]) -> list[str]:
    """Count the runs of each method that warned, with one of the warnings."""
    warned: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record["warnings"]:
            data, method = record["settings"]["data"], record["settings"]["method"]
            key = data, _label(data, method)
            warned.setdefault(key, []).append(record["warnings"][-1])
    # Several methods may say the same of the data.
    alike: dict[tuple[str, str], list[str]] = {}
    for (data, label), messages in sorted(warned.items()):
        alike.setdefault((data, messages[-1]), []).append(f"{label} ({len(messages)})")
    return [
        f"{data}: runs with a warning: {', '.join(counts)}; for example: {message}"
        for (data, message), counts in alike.items()
    ]


def _command(
    only: list[str] | None,
    methods: list[str] | None,
    runs: int,
    quick: bool,
    minutes: float,
    at_once: int,
) -> str:
    """What was asked for, without places, which are nobody else's."""
    words = ["python -m pipelines.paper --data-dir FOLDER"]
    words += [f"--only {','.join(listed(only) or ())}"] if only else []
    words += [f"--methods {','.join(listed(methods) or ())}"] if methods else []
    words += [f"--runs {runs}"] if not quick and runs != RUNS_DEFAULT else []
    words += ["--quick"] if quick else []
    words += [f"--minutes {minutes:g}"] if minutes != MINUTES_DEFAULT else []
    words += [f"--at-once {at_once}"] if at_once else []
    return " ".join(words)


def _copy_image(cells: list[Settings], folder: Path, aside: Path) -> list[str]:
    """The image is drawn by its cell."""
    copied = []
    for cell in cells:
        for ending in FIGURES:
            drawn = (folder / cell.file_name).with_suffix(ending)
            if cell.data == IMAGE and drawn.exists():
                shutil.copy(drawn, aside / f"image{ending}")
                copied.append(f"image{ending}")
    return copied


if __name__ == "__main__":
    run_app(app, "python -m pipelines.paper")
