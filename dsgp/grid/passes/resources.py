"""Memory that a task of a pass may take, and disk that all of them need."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from dsgp import compute
from dsgp.errors import MemoryLimitError, StorageError
from dsgp.grid.passes.plan import Plan
from dsgp.memory import available
from dsgp.waiting import workers_of

_MIB = 2.0**20
_GIB = 2.0**30
# Share of a worker's memory that dask lets be used before it pauses, and the memory of Python with
# what is imported.
_USABLE = 0.7
_INTERPRETER = 2**28


def memory_of_a_task(client: Any | None) -> float:
    """Bytes that a task may take: what workers leave to each of their threads, or this machine."""
    if client is not None:
        workers = workers_of(client).values()
        limited = [
            (_USABLE * worker["memory_limit"] - _INTERPRETER) / max(worker["nthreads"], 1)
            for worker in workers
            if worker["memory_limit"]
        ]
        if limited and min(limited) <= 0:
            raise MemoryLimitError(
                f"each worker needs more than {_INTERPRETER / _USABLE / _MIB:.0f} MiB of memory: "
                "start them with a higher memory_limit"
            )
        if limited:
            return min(limited)
    return _USABLE * available() / compute.CPU_COUNT


def require_disk(plan: Plan, where: Path, held: int) -> None:
    """Raise ``StorageError`` if the disk, with bytes that are ``held`` already, is too small."""
    free = shutil.disk_usage(where).free + held
    if plan.disk_bytes > free:
        raise StorageError(
            f"the passes need up to {plan.disk_bytes / _GIB:.2f} GiB of disk in {str(where)!r}, "
            f"and {free / _GIB:.2f} GiB are free: choose another place, or "
            'intermediate_dtype="float32" or dtype="float32"'
        )


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
