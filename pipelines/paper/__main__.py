"""The paper's evaluation, with its methods, those of other libraries, and our defaults.

``python -m pipelines.paper --data-dir FOLDER --out results/paper``
"""

import json
import shutil
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import DataError, ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.places import replace_text

try:
    from pipelines.grid.corners import slopes_of
    from pipelines.grid.figures import draw_corners
    from pipelines.paper.cell import FIGURES, IMAGE, Settings
    from pipelines.paper.figures import drawings, write_figure
    from pipelines.paper.methods import METHODS
    from pipelines.paper.plan import (
        CLASSES_COMPARED,
        COMPARISON,
        QUICK_ROWS,
        SECTIONS,
        SPEEDUP_ROWS,
        Choice,
        planned,
    )
    from pipelines.paper.sets import CLASSIFICATION, DOWNLOADS, REGRESSION, download, files_of
    from pipelines.paper.summary import lines_of
    from pipelines.paper.tables import NAMES, tables_of, timings_of
    from pipelines.paper.text import markdown
    from pipelines.reporting import REPORT, environment, plain_errors, plain_json, write_report
    from pipelines.scaling.running import RUNS, require_own, run_all, say
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "paper"
COMPARED = REGRESSION | CLASSIFICATION
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
    data_dir: Annotated[
        Path, Option(metavar="FOLDER", help="Where the data sets are, as NAME.npz.")
    ],
    out: Annotated[Path, Option(metavar="FOLDER", help="What is written.")] = Path("results/paper"),
    only: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help=f"Can be repeated, or be a list A,B,C. A table or figure: {', '.join(SECTIONS)}; "
            f"or a data set of the comparisons: {', '.join(COMPARED)}.",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        Option(
            metavar="METHOD",
            help=f"Likewise: {', '.join(METHOD_NAMES)}. By default those that are installed.",
        ),
    ] = None,
    runs: Annotated[
        int, Option(metavar="N", help="Runs of each method that draws random numbers.")
    ] = 10,
    quick: Annotated[
        bool, Option("--quick", help="A few hundred rows and one run, in a few minutes.")
    ] = False,
    minutes: Annotated[
        float, Option(metavar="N", help="Of one method on one data set at most, by the clock.")
    ] = 60.0,
    at_once: Annotated[
        int, Option(metavar="N", help="Cells that run at the same time; 2 with --quick.")
    ] = 0,
    fetch: Annotated[
        bool,
        Option("--download", help=f"Fetch from OpenML what is absent: {', '.join(DOWNLOADS)}."),
    ] = False,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Run again what is finished already.")
    ] = False,
) -> None:
    """Reproduce the tables and figures of the paper, with our defaults beside them.

    Each method on each data set runs in a process of its own, is kept in FOLDER/runs as it ends,
    and not made again, so that an interrupted run goes on where it was.
    """
    exit_on_termination()
    with plain_errors():
        if not minutes > 0 or runs < 1 or at_once < 0:
            raise ParameterError("--minutes must be above 0, --runs and --at-once at least 1")
        chosen_methods, notes = _methods(_listed(methods))
        sections, named = sections_and_sets(_listed(only))
        sets, absent = _present(data_dir, named, fetch)
        notes += absent
        require_own(out, OWN_FILES)
        choice = Choice(sections, sets, chosen_methods, 1 if quick else runs, quick, data_dir)
        cells = planned(choice)
        if not cells:
            raise ParameterError("nothing is left to run: " + " ".join(notes))
        records, failures = run_all(
            cells, out / RUNS, None, overwrite, CELL,
            limit_seconds=60 * minutes, at_once=at_once or (2 if quick else 1),
        )  # fmt: skip
        notes += failures
        if not records:
            raise ParameterError("no cell came to its end, so there is nothing to report")
        write(records, cells, notes, out, quick)
        say(f"everything is in {out}")
        if failures:
            raise typer.Exit(1)


def _listed(values: list[str] | None) -> tuple[str, ...]:
    words = [word.strip() for value in values or () for word in value.split(",")]
    return tuple(dict.fromkeys(filter(None, words)))


def sections_and_sets(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell tables and figures from data sets, which mean their comparison.

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
    of_task = {"regression": COMPARISON, "classification": CLASSES_COMPARED}
    sections += [of_task[COMPARED[name].task] for name in sets]
    return tuple(dict.fromkeys(sections or SECTIONS)), tuple(sets)


def _methods(names: tuple[str, ...]) -> tuple[frozenset[tuple[str, str]], list[str]]:
    """Tasks and names of the methods to run, and a line for each that is not installed."""
    for name in names:
        if name not in METHOD_NAMES:
            raise ParameterError(
                f"there is no method {name!r}; there are: {', '.join(METHOD_NAMES)}"
            )
    chosen, notes = set(), []
    for task, methods in METHODS.items():
        for name, method in methods.items():
            if names and name not in names:
                continue
            lacking = method.lacking()
            if lacking is None:
                chosen.add((task, name))
            elif names:
                raise ParameterError(f"{name} ({task}): {lacking}")
            else:
                notes.append(f"{method.label} ({task}) is left out: {lacking}")
    return frozenset(chosen), notes


def _present(
    data_dir: Path, named: tuple[str, ...], fetch: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Data sets that are there, and a line for each that is not; one that is named must be."""
    present, notes = [], []
    for name in named or COMPARED:
        try:
            files_of(name, data_dir)
        except DataError as error:
            if fetch and name in DOWNLOADS:
                say(f"{name}: fetched from OpenML into {download(name, data_dir)}")
            elif named:
                raise
            else:
                # The report may travel; where the data were need not.
                notes.append(f"left out: {error}".replace(str(data_dir), "of --data-dir"))
                continue
        present.append(name)
    return tuple(present), notes


def write(
    records: list[dict[str, Any]], cells: list[Settings], notes: list[str], out: Path, quick: bool
) -> None:
    """Write report, tables and figures aside, and move each into its place."""
    lines = lines_of(records)
    speedup_rows = QUICK_ROWS if quick else SPEEDUP_ROWS
    tables = tables_of(lines, records, speedup_rows)
    facts = {
        "command": _command(),
        "machine": records[0]["machine"],
        "versions": environment(),
    }
    # Within the folder of runs, so that a stray one is not taken for somebody else's file.
    with tempfile.TemporaryDirectory(dir=out / RUNS, suffix=".aside") as name:
        aside = Path(name)
        figures = []
        for figure, draw in drawings(lines, {"speedup": speedup_rows}).items():
            figures += write_figure(draw(), aside, figure)
        if timings := timings_of(records):
            figures += write_figure(draw_corners(timings, slopes_of(timings)), aside, "kronecker")
        figures += _copy_image(cells, out / RUNS, aside)
        for label, table in tables.items():
            table.to_csv(aside / f"{label}.csv", index=False)
            rows = plain_json(table.astype(object).to_dict(orient="records"))
            replace_text(aside / f"{label}.json", json.dumps(rows, indent=1, allow_nan=False))
        (aside / "report.md").write_text(
            "# The paper\n\n" + markdown(tables, figures, notes, facts), encoding="utf-8"
        )
        report = {"data": {"name": "paper"}, **facts, "notes": notes, "lines": lines}
        for file in write_report(aside, PIPELINE, report)["files"]:
            (aside / file).replace(out / file)


def _command() -> str:
    """What was asked for, without the place of the data, which is nobody else's."""
    words = ["FOLDER" if before == "--data-dir" else word for before, word in pairwise(sys.argv)]
    return f"python -m pipelines.paper {' '.join(words)}".strip()


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
