"""Run a chain of stages: load, encode, fit, evaluate, report.

``python -m pipelines.run pipelines/configs/compare.yaml``
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from distributed import get_client
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from typer import Argument, Option

from dsgp.cli.endings import run_app
from dsgp.compute import connected
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination

try:
    from pipelines.reporting import REPORT, plain_errors
    from pipelines.run.chain import STAGES, Step, execute, reasons, until
    from pipelines.run.comparing import table_lines
    from pipelines.run.config import Config, read
    from pipelines.run.folders import chain_folder, manifest_of, read_json
    from pipelines.run.plan import plan_of
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

# \b keeps the lines of the paragraph that follows as they are.
EXAMPLES = """\b
Examples:
  python -m pipelines.run pipelines/configs/compare.yaml
  python -m pipelines.run pipelines/configs/compare.yaml \\
      --set load.data=elevators --set load.data_dir=FOLDER
  python -m pipelines.run mine.yaml --dry-run
  python -m pipelines.run mine.yaml --until additive
  python -m pipelines.run mine.yaml --from pursuit
  python cluster/local/launch.py -- python -m pipelines.run mine.yaml
"""
PATIENCE = 60  # seconds that a cluster has to show a worker

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console()


@app.command(epilog=EXAMPLES)
def main(
    config: Annotated[Path, Argument(metavar="CONFIG.yaml", help="Configuration.")],
    changes: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a value of the configuration, with dots in the key; can be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Folder of the stages; by default that of the configuration, or results/NAME.",
        ),
    ] = None,
    first: Annotated[
        str | None,
        Option(
            "--from",
            metavar="STAGE",
            help=f"Repeat this stage and those after it: {', '.join(STAGES)}.",
        ),
    ] = None,
    last: Annotated[
        str | None, Option("--until", metavar="STAGE", help="Stop after this stage.")
    ] = None,
    fresh: Annotated[bool, Option("--fresh", help="Repeat every stage.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print which stages would run and why, and run none.")
    ] = False,
    scheduler: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Address of a dask scheduler; by default threads are used."),
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace the stages of other data.")
    ] = False,
) -> None:
    """Run the stages of a configuration that are not up to date.

    Every stage keeps its results in a folder of its own. It runs again when its options, its data
    or a stage before it changed; a run that was interrupted or killed resumes after its last
    finished stage.
    """
    exit_on_termination()
    with plain_errors():
        if first is not None and fresh:
            raise ParameterError("--fresh runs every stage already; leave out --from")
        asked = read(config, changes or ())
        steps = until(plan_of(asked), last)
        folder = out or asked.out or Path("results") / str(asked.name)
        if dry_run:
            _tell_plan(steps, reasons(steps, folder, first=first, fresh=fresh), folder)
            return
        run(asked, folder, steps, first, fresh, scheduler, overwrite)


def run(
    config: Config,
    out: Path,
    steps: Sequence[Step] | None = None,
    first: str | None = None,
    fresh: bool = False,
    scheduler: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any] | None:
    """Run the stages that are not up to date, and report each.

    Parameters
    ----------
    config : Config
    out : Path
        Folder of the chain.
    steps : sequence of Step, optional
        All of the configuration by default.
    first, fresh
        See ``chain.reasons``.
    scheduler : str, optional
    overwrite : bool
        Replace the stages of other data.

    Returns
    -------
    dict or None
        What report.json holds; None where the steps end before the report.
    """
    steps = plan_of(config) if steps is None else steps
    with (
        _cluster(scheduler) as cluster,
        chain_folder(out, config.load.data, overwrite=overwrite, inputs=config.load.files) as root,
    ):
        stale = reasons(steps, root, first=first, fresh=fresh)
        for step, manifest in execute(steps, root, stale, {"cluster": cluster}):
            state = f"{manifest['seconds']:8.1f} s" if step in stale else "up to date"
            console.print(f"{step.name:<40} {state:>10}", markup=False, highlight=False)
        if steps[-1].stage != "report":
            return None
        place = root / steps[-1].place
        report = read_json(place / REPORT)
        assert report is not None
        _show(report, Path(out) / steps[-1].place)
        return report


@contextmanager
def _cluster(scheduler: str | None) -> Iterator[dict[str, int]]:
    """Use a cluster, where there is one, for what is fitted within; yield its size."""
    if scheduler is None:
        yield {}
        return
    with connected(scheduler):
        client = get_client()
        client.wait_for_workers(1, timeout=PATIENCE)
        threads = client.nthreads()
        yield {"workers": len(threads), "threads": sum(threads.values())}


def _tell_plan(steps: Sequence[Step], stale: Mapping[Step, str], folder: Path) -> None:
    for step in steps:
        if step in stale:
            state = f"would run: {stale[step]}"
        else:
            manifest = manifest_of(folder / step.place)
            seconds = 0.0 if manifest is None else manifest["seconds"]
            state = f"up to date ({seconds:.1f} s)"
        console.print(f"{step.name:<40} {state}", markup=False, highlight=False, soft_wrap=True)


def _show(report: Mapping[str, Any], folder: Path) -> None:
    """Print the comparison, and where everything is."""
    header, rows = table_lines(report["models"])
    table = Table(title=report["name"], title_justify="left", box=SIMPLE_HEAD)
    for name in header:
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Whole, where it is wider than a page or a terminal.
    wide = console.options.update(max_width=1000)
    wanted = Measurement.get(console, wide, table).maximum
    Console(width=max(wanted, console.width)).print(table)
    lines = [f"report and pictures are in {folder}"]
    if len(rows) > 1:
        lines.insert(0, "* best of the models compared, or within a thousandth of the best")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.run")
