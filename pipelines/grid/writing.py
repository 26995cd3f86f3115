"""The folder that every command of this package writes, and what it prints on a terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.reporting import (
    Stopwatch,
    environment,
    gathered_warnings,
    output_folder,
    peak_memory_mb,
    show,
    write_report,
)
from pipelines.run.folders import write_json

METRICS = "metrics.json"
PAGE = "report.md"
POSTERIOR = "posterior.zarr"
MODEL = "model.zarr"


@dataclass
class Results:
    """What a command makes; its files are in the folder already.

    Attributes
    ----------
    folder : Path
        Becomes the folder of results when all went well.
    metrics : dict
        Of metrics.json.
    facts : dict
        Of the data, and ``extra`` of anything else, for report.json.
    notes : list of str
        Reported with the warnings.
    rows : dict of str to str
        Lines for the terminal.
    page : callable
        Makes report.md from the notes.
    """

    folder: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    page: Callable[[list[str]], str] = "\n".join


@contextmanager
def written(
    out: Path | None,
    command: str,
    name: str,
    overwrite: bool,
    clock: Stopwatch,
    seed: int,
    options: Mapping[str, Any],
    inputs: Iterable[str | Path] = (),
) -> Iterator[Results]:
    """Yield what a command fills in; write report.md, metrics.json and report.json, and print."""
    out = Path("results") / f"grid-{name}" if out is None else out
    pipeline = f"grid {command}"
    with output_folder(out, pipeline, name, overwrite=overwrite, inputs=inputs) as folder:
        run = Results(folder)
        with gathered_warnings() as messages:
            yield run
        notes = [*run.notes, *messages]
        write_json(folder / METRICS, run.metrics)
        (folder / PAGE).write_text(run.page(notes), encoding="utf-8")
        report = write_report(
            folder,
            pipeline,
            {
                "data": {"name": name, **run.facts},
                "metrics": run.metrics,
                **run.extra,
                "warnings": notes,
                "seconds": clock.seconds,
                "cpu_seconds": clock.cpu_seconds,
                "peak_memory_mb": peak_memory_mb(),
                "versions": environment(),
                "seed": seed,
                "options": dict(options),
            },
        )
    show(report, f"{name}: {pipeline}", run.rows, out)
