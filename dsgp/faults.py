"""Errors of dask with messages of ours: what happened, what is safe and what to do."""

from __future__ import annotations

import re

from dsgp.errors import ClusterError

NO_WORKERS_TIMEOUT = "distributed.scheduler.no-workers-timeout"
# The part at the end of a task's name that makes it unique.
_NUMBERS = re.compile(r"(-[0-9a-f]{4,})+$")
# What is true after every fault, for all messages.
SAFE = "results are written whole or not at all, and nothing that was there is lost"


def of_dask(error: BaseException) -> bool:
    """Return whether an error is dask's own, and not one of a task."""
    return type(error).__module__.partition(".")[0] == "distributed"


def translated(error: BaseException) -> BaseException:
    """Return what to raise for the error of a task: dask's own translated, others unchanged."""
    kind = type(error).__name__
    if not of_dask(error):
        return error
    if kind == "KilledWorker":
        task, worker, failures = error.args
        return ClusterError(
            f"the task {_NUMBERS.sub('', str(task))!r} has ended {failures + 1} workers one after "
            f"the other, the last at {getattr(worker, 'address', worker)}: usually they ran out of "
            f"memory, otherwise they crashed; see their logs; {SAFE}: give workers more memory "
            "(memory_limit), cut the rows into smaller chunks, and start the job again"
        )
    if kind in ("NoWorkerError", "NoValidWorkerError"):
        return ClusterError(
            f"no worker could take a task within the time that the scheduler allows "
            f"({NO_WORKERS_TIMEOUT}); {SAFE}: start workers and the job again"
        )
    return ClusterError(
        f"the cluster failed ({kind}: {first_line(error)}); {SAFE}: see the logs of its workers, "
        "and start the job again"
    )


def first_line(error: BaseException) -> str:
    """Return the message of an error, without details."""
    return next(iter(str(error).strip().splitlines()), "")
