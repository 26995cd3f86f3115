"""Fit synth8d at several sizes, each in a fresh process, beside peers; report and figures.

``python -m pipelines.scaling --sizes 1e3,1e4,1e5,1e6 --peer mgcv --out results/scaling``

With ``--workers`` on so many workers, with a cost model (``pipelines.scaling.workers``).
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from distributed import Client
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from pipelines.peers import PEERS, Peer, peer_of
from pipelines.scaling.rows import N_COLUMNS, NOISE_VARIANCE

try:
    from pipelines.cells import results_aside
    from pipelines.reporting import REPORT, environment, plain_errors, write_report
    from pipelines.scaling.figures import draw
    from pipelines.scaling.run import KERNELS, OURS, Settings
    from pipelines.scaling.running import RUNS, console, require_own, run_all, say
    from pipelines.scaling.summary import HEADER, markdown, slope_lines, slopes, summarise, table_of
    from pipelines.scaling.workers import QUICK_SIZES, Plan, measure_workers, numbers_of
    from pipelines.scaling.workers import SIZES as WORKERS_SIZES
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "scaling"
SIZES = "1e3,1e4,1e5,1e6"
IN_MEMORY = 1_000_000  # rows; more come as dask arrays
MOST_ROWS = 100_000_000
OWN_FILES = {RUNS, REPORT, "report.md", "stages.png", "time.png", "memory.png", "accuracy.png"}

EXAMPLES = """\b
Examples:
  python -m pipelines.scaling --sizes 1e3,1e4,1e5
  python -m pipelines.scaling --sizes 1e5,1e6,1e7 --bins 2048 --peer mgcv:40
  python cluster/local/launch.py -- python -m pipelines.scaling --sizes 1e7
  python -m pipelines.scaling --workers 1,2,4 --quick
  python -m pipelines.scaling --workers 1,2 --sizes 1e6,1e7 --check 2e7
  python -m pipelines.scaling --workers 4,8,16 --scheduler tls://head:8786
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    sizes: Annotated[
        str | None,
        Option(
            metavar="N,N,…",
            help=f"Training rows, up to 1e8: {SIZES}, or {WORKERS_SIZES} with --workers.",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        Option(
            metavar="W,W,…",
            help="Fit each size on these numbers of workers with one thread each, and the smallest "
            "size times the number of workers; fit a cost model, and predict.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        Option(
            metavar="N",
            help="With --workers: rows of a fit that is predicted and then measured; by default "
            "twice the largest size.",
        ),
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="With --workers: small sizes, in a few minutes.")
    ] = False,
    seed: Annotated[int, Option(metavar="N", help="Random seed of the rows.")] = 2,
    n_test: Annotated[int, Option(metavar="N", help="Test rows, the same for every size.")] = (
        100_000
    ),
    kernel: Annotated[
        str, Option(metavar="KERNEL", help=f"Kernel of every column: {', '.join(KERNELS)}.")
    ] = "matern52",
    bins: Annotated[
        str | None,
        Option(metavar="auto|none|N", help="Number of bins per column, as for dsgp fit."),
    ] = None,
    learner: Annotated[
        str | None,
        Option(metavar="LEARNER", help="As for dsgp fit; none: keep the true hyperparameters."),
    ] = None,
    repeats: Annotated[int, Option(metavar="N", help="Runs of each size.")] = 1,
    peer: Annotated[
        list[str] | None,
        Option(metavar="PEER", help=f"{', '.join(PEERS)}; with a size: mgcv:20. Can be repeated."),
    ] = None,
    streamed: Annotated[
        bool,
        Option(
            "--streamed",
            help=f"Use dask arrays at every size, not only from {IN_MEMORY:,} rows on.",
        ),
    ] = False,
    scheduler: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Address of a dask scheduler that runs the fits; its workers are used.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Output folder; by default results/scaling, or results/scaling-workers.",
        ),
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Repeat finished runs.")] = False,
) -> None:
    """Measure time, memory and accuracy of a fit against the number of rows.

    A run that is finished is kept in FOLDER/runs and not made again, so that an interrupted
    benchmark resumes.
    """
    exit_on_termination()
    with plain_errors():
        if repeats < 1 or n_test < 2:
            raise ParameterError("--repeats must be at least 1 and --n-test at least 2")
        model = _model(kernel, bins, learner)
        if workers is not None:
            if peer:
                raise ParameterError("--peer and --workers exclude each other: peers use no worker")
            rows = _sizes(sizes or (QUICK_SIZES if quick else WORKERS_SIZES))
            numbers = numbers_of(workers, "--workers")
            checked = 2 * rows[-1] if check is None else _sizes(check, "--check")[0]
            plan = Plan(
                numbers, rows, checked, repeats, seed, model, scheduler,
                out or Path("results/scaling-workers"), overwrite,
            )  # fmt: skip
            measure_workers(plan)
            return
        if quick or check is not None:
            raise ParameterError("--quick and --check need --workers; name some numbers of workers")
        _measure_sizes(
            _sizes(sizes or SIZES), seed, n_test, model, repeats, peer or [], streamed, scheduler,
            out or Path("results/scaling"), overwrite,
        )  # fmt: skip


def _model(kernel: str, bins: str | None, learner: str | None) -> dict[str, Any]:
    """Options of the model that are given."""
    if kernel not in KERNELS:
        raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    model: dict[str, Any] = {"kernel": kernel}
    model |= {} if bins is None else {"bins": _bins(bins)}
    return model | ({} if learner is None else {"learner": learner})


def _measure_sizes(
    rows: list[int],
    seed: int,
    n_test: int,
    model: dict[str, Any],
    repeats: int,
    peer: list[str],
    streamed: bool,
    scheduler: str | None,
    out: Path,
    overwrite: bool,
) -> None:
    """Measure each size, beside peers; write and show the report."""
    peers = dict(map(peer_of, peer))
    for method in peers.values():
        method.require()
    cluster = _describe(scheduler)
    require_own(out, OWN_FILES)
    planned = [
        settings
        for n in rows
        for repeat in range(repeats)
        for settings in _planned(
            n, repeat, seed, n_test, streamed or n > IN_MEMORY, model, cluster, peers
        )
    ]
    notes = [
        f"{name} is left out at {n:,} rows: it takes {method.max_rows:,} at most."
        for name, method in peers.items()
        for n in rows
        if n > method.max_rows
    ]
    records, failures = run_all(planned, out / RUNS, scheduler, overwrite)
    notes += failures
    if not records:
        raise ParameterError("no run has finished, so there is nothing to report")
    report = {
        "data": {"name": "synth8d", "columns": N_COLUMNS, "noise_variance": NOISE_VARIANCE},
        "seed": seed,
        "model": model,
        "cluster": cluster,
        "notes": notes,
        "versions": environment(),
        "machine": records[0]["machine"],
    }
    write(records, report, out)
    show(records, notes, out)
    if failures:
        raise typer.Exit(1)


def _sizes(text: str, option: str = "--sizes") -> list[int]:
    try:
        numbers = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = []
    if not numbers or not all(n == int(n) and 10 <= n <= MOST_ROWS for n in numbers):
        raise ParameterError(
            f"{option} takes whole numbers from 10 to {MOST_ROWS:,}, such as 1e5,1e6; got {text!r}"
        )
    return sorted({int(n) for n in numbers})


def _bins(text: str) -> str | int | None:
    if text in ("auto", "none"):
        return None if text == "none" else text
    if not (text.isdecimal() and int(text) > 1):
        raise ParameterError(f"--bins takes auto, none or a number above 1, got {text!r}")
    return int(text)


def _describe(scheduler: str | None) -> dict[str, int]:
    """Look whether the cluster is there, before anything runs."""
    if scheduler is None:
        return {}
    with Client(scheduler, timeout="10s", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        threads = client.nthreads()
    return {"workers": len(threads), "threads": sum(threads.values())}


def _planned(
    n: int,
    repeat: int,
    seed: int,
    n_test: int,
    streamed: bool,
    model: dict[str, Any],
    cluster: dict[str, int],
    peers: dict[str, Peer],
) -> Iterator[Settings]:
    """Plan the runs of one size: ours, then the peers on the same rows."""
    yield Settings(OURS, n, repeat, seed, n_test, streamed, model, cluster)
    for name, method in peers.items():
        if n <= method.max_rows:
            yield Settings(name, n, repeat, seed, n_test)


# ---- writing


def write(records: list[dict[str, Any]], report: dict[str, Any], out: Path) -> None:
    """Write report.json, report.md and the figures aside, and move each into its place."""
    lines = summarise(records)
    with results_aside(out) as aside:
        draw(lines, aside)
        (aside / "report.md").write_text(markdown(lines, report["notes"]), encoding="utf-8")
        body = {**report, "lines": lines, "slopes": slopes(lines), "runs": records}
        write_report(aside, PIPELINE, body)


def show(records: list[dict[str, Any]], notes: list[str], out: Path) -> None:
    """Print the table, the slopes and where everything is."""
    lines = summarise(records)
    table = Table(title="synth8d", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in HEADER:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in table_of(lines):
        table.add_row(*row)
    # As wide as it is: a terminal may be narrower, and a log has no width.
    wide = Console(width=max(console.width, 140))
    wide.print(table)
    for line in [*slope_lines(lines), *notes, f"everything is in {out}"]:
        say(line)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.scaling")
