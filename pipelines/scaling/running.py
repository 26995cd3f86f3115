"""Runs of the benchmark, each in a fresh process, kept in a folder of results."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rich.console import Console

from dsgp.errors import StorageError
from pipelines.scaling.run import request

ROOT = Path(__file__).parents[2]
RUNS = "runs"

console = Console()


class Planned(Protocol):
    """Settings of a run: a dataclass that knows what it is called."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def told(self) -> str: ...

    @property
    def file_name(self) -> str: ...


def run_all(
    planned: Sequence[Planned],
    folder: Path,
    scheduler: str | None,
    overwrite: bool,
    module: str = "pipelines.scaling.run",
    limit_seconds: float | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run what is not finished yet; return the records, and a line for each run that failed.

    ``module`` is what runs, in a process of its own for each of the settings, which is ended when
    it takes longer than the limit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.part"):
        leftover.unlink()
    limit = () if limit_seconds is None else (limit_seconds,)
    records, failures = [], []
    for settings in planned:
        path = folder / settings.file_name
        label = settings.told
        if overwrite or not path.exists():
            code = run_apart(request(settings, path, scheduler), module, *limit)
            if code != 0:
                reason = _reason(code, limit_seconds)
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


def _reason(code: int | None, limit_seconds: float | None) -> str:
    if code is None:
        return f"longer than {limit_seconds:.0f} s"
    # The kernel ends a process that takes too much memory by signal 9.
    return f"signal {-code}, memory?" if code < 0 else f"exit code {code}"


def run_apart(asked: str, module: str, limit_seconds: float | None = None) -> int | None:
    """Run in a fresh process, and do not leave it behind; None where it took too long."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        text=True,
    )
    try:
        process.communicate(asked, limit_seconds)
        return process.returncode
    except subprocess.TimeoutExpired:
        return None
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
