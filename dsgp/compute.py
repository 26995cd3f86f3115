"""Where tasks run: in the caller while the work is small, else on dask's threaded scheduler.

Compiled passes release the GIL, so threads are enough for the axes of one model. Results come in
the order of the tasks, whichever ran first: sums over them do not depend on the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import dask
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

Result = TypeVar("Result")

# A graph costs about 0.3 ms and 60-90 µs a task; with less work than this two threads lose.
WORTH_A_GRAPH = 2e-3  # seconds of compiled work, all tasks together


def run(tasks: Sequence[Callable[[], Result]], seconds: float) -> list[Result]:
    """Run independent tasks and return their results in order.

    Parameters
    ----------
    tasks : sequence of callables without arguments
    seconds : float
        Estimate of the compiled work of all tasks together, on one core.

    Returns
    -------
    list, one result a task

    Examples
    --------
    >>> from dsgp.compute import run
    >>> run([lambda: 1, lambda: 2], seconds=0.0)
    [1, 2]
    """
    if len(tasks) < 2 or CPU_COUNT < 2 or seconds < WORTH_A_GRAPH:
        return [task() for task in tasks]
    return list(
        dask.compute(*[dask.delayed(task, pure=False)() for task in tasks], scheduler="threads")
    )


def one_blas_thread() -> threadpool_limits:
    """Return a context in which BLAS uses one thread.

    Its own threads spin beside ours on vectors of this size, and split sums as the machine has it.
    """
    return threadpool_limits(limits=1, user_api="blas")
