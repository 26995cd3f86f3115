"""Runs of the benchmark, each in a fresh process, kept in a folder of results."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar, Protocol, TypeVar

from rich.console import Console

from dsgp.errors import StorageError
from pipelines.scaling.run import request

ROOT = Path(__file__).parents[2]
RUNS = "runs"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

console = Console()
_choosing = Lock()
_used: Counter[int] = Counter()  # by processor: runs that are kept to it
_processes: set[subprocess.Popen[str]] = set()  # that run now
_ending = Event()  # their caller was interrupted

Result = TypeVar("Result")


class Planned(Protocol):
    """Settings of a run: a dataclass that knows what it is called."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def description(self) -> str: ...

    @property
    def file_name(self) -> str: ...


def run_all(
    planned: Sequence[Planned],
    folder: Path,
    scheduler: str | None,
    overwrite: bool,
    module: str = "pipelines.scaling.run",
    limit_seconds: float | None = None,
    at_once: int = 1,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run what is not finished yet; return the records, and a line for each run that failed.

    ``module`` is what runs, in a process of its own for each of the settings, which is ended when
    it takes longer than the limit; so many of them at the same time. Settings with ``threads`` are
    kept to as many processors.
    """
    _ending.clear()  # of an earlier call that was interrupted
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.part"):
        leftover.unlink()

    def finish(settings: Planned) -> dict[str, Any] | str:
        path = folder / settings.file_name
        state = " (kept)"
        if overwrite or not path.exists():
            options: dict[str, Any] = {}
            if limit_seconds is not None:
                options["limit_seconds"] = limit_seconds
            if (threads := getattr(settings, "threads", None)) is not None:
                options["threads"] = threads
            code = run_apart(request(settings, path, scheduler), module, **options)
            if code != 0:
                failure = f"{settings.description}: FAILED ({_reason(code, limit_seconds)})."
                say(failure)
                return failure
            state = ""
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        say(f"{settings.description}: fit {record['seconds']['fit']:.3g} s{state}")
        return record

    if at_once == 1:
        finished = [finish(settings) for settings in planned]
    else:
        finished = _side_by_side(finish, planned, at_once)
    records = [one for one in finished if not isinstance(one, str)]
    return records, [one for one in finished if isinstance(one, str)]


def _side_by_side(
    finish: Callable[[Planned], Result], planned: Sequence[Planned], at_once: int
) -> list[Result]:
    """Finish so many at the same time; where the caller is interrupted, end those that run."""
    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(finish, planned))
        except BaseException:
            _ending.set()  # also for one that is just being started
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_processes):
                process.terminate()
            raise


def _reason(code: int | None, limit_seconds: float | None) -> str:
    if code is None:
        return f"longer than {limit_seconds:.0f} s"
    # The kernel ends a process that takes too much memory by signal 9.
    return f"signal {-code}, memory?" if code < 0 else f"exit code {code}"


def run_apart(
    asked: str, module: str, limit_seconds: float | None = None, threads: int | None = None
) -> int | None:
    """Run in a fresh process, and do not leave it behind; None where it took too long.

    With ``threads`` it and the libraries of linear algebra have so many processors, where the
    system can keep a process to some.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if threads is not None:
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    with _kept_to(threads):
        process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, env=environment, text=True
        )
        _processes.add(process)
        if _ending.is_set():
            process.terminate()
        try:
            process.communicate(asked, limit_seconds)
            return process.returncode
        except subprocess.TimeoutExpired:
            return None
        finally:
            _processes.discard(process)
            if process.poll() is None:
                process.terminate()  # it may have a process of its own to end
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextmanager
def _kept_to(n: int | None) -> Iterator[None]:
    """Keep what this thread starts within to so many processors, those least used by others."""
    if n is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with _choosing:
        chosen = sorted(before, key=lambda processor: (_used[processor], processor))[:n]
        _used.update(chosen)
    try:
        os.sched_setaffinity(0, chosen)
        yield
    finally:
        os.sched_setaffinity(0, before)
        with _choosing:
            _used.subtract(chosen)


def require_own(out: Path, own_files: set[str]) -> None:
    """Refuse a folder that holds anything else."""
    if out.exists() and not out.is_dir():
        raise StorageError(f"{str(out)!r} is a file; choose a folder for the results")
    if not out.exists():
        return
    foreign = sorted({entry.name for entry in out.iterdir()} - own_files)
    if foreign:
        raise StorageError(
            f"{str(out)!r} holds {foreign[0]!r}, which is not a file of this pipeline; choose "
            "another folder"
        )


def say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
