"""Runs of the benchmark, each in a fresh process, kept in a folder of results."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from dsgp.errors import StorageError
from pipelines.scaling.run import Settings, request

ROOT = Path(__file__).parents[2]
RUNS = "runs"

console = Console()


def run_all(
    planned: list[Settings],
    folder: Path,
    scheduler: str | None,
    overwrite: bool,
    module: str = "pipelines.scaling.run",
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run what is not finished yet; return the records, and a line for each run that failed.

    ``module`` is what runs, in a process of its own for each of the settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.part"):
        leftover.unlink()
    records, failures = [], []
    for settings in planned:
        path = folder / settings.file_name
        label = settings.told
        if overwrite or not path.exists():
            code = run_apart(request(settings, path, scheduler), module)
            if code:
                # The kernel ends a process that takes too much memory by signal 9.
                reason = f"signal {-code}, memory?" if code < 0 else f"exit code {code}"
                failures.append(f"{label}: FAILED ({reason}).")
                say(failures[-1])
                continue
            state = ""
        else:
            state = " (kept)"
        record = json.loads(path.read_text(encoding="utf-8"))
        records.append(record)
        say(f"{label}: fit {record['seconds']['fit']:.3g} s{state}")
    return records, failures


def run_apart(asked: str, module: str) -> int:
    """Run in a fresh process, and do not leave it behind."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        text=True,
    )
    try:
        process.communicate(asked)
        return process.returncode
    finally:
        if process.poll() is None:
            process.terminate()  # it may have a process of its own to end
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def require_own(out: Path, own_files: set[str]) -> None:
    """Refuse a folder that holds anything else."""
    if out.exists() and not out.is_dir():
        raise StorageError(f"{str(out)!r} is a file; choose a folder for the results")
    if not out.exists():
        return
    foreign = sorted({entry.name for entry in out.iterdir()} - own_files)
    if foreign:
        raise StorageError(
            f"{str(out)!r} holds {foreign[0]!r}, which is no file of this pipeline; "
            "choose another folder"
        )


def say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
