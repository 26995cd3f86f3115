"""Where tasks run: in the caller while the work is small, else on dask's threaded scheduler.

Compiled passes release the GIL, so threads are enough for the axes of one model. Results come in
the order of the tasks, whichever ran first: sums over them do not depend on the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dask import threaded
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

Result = TypeVar("Result")

# A graph of a few batches costs about 0.3 ms, and every further one 60 µs; with less work than this
# two threads lose.
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
    n_batches = min(len(tasks), 2 * CPU_COUNT)
    # Every n-th task: neighbours are alike, so that batches are. threaded.get, because delayed
    # objects cost ten times as much as the tasks themselves.
    graph = {batch: (_run_all, tasks[batch::n_batches]) for batch in range(n_batches)}
    results: list[Result] = [None] * len(tasks)  # type: ignore[list-item]
    for batch, done in enumerate(threaded.get(graph, list(graph))):
        results[batch::n_batches] = done
    return results


def _run_all(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    return [task() for task in tasks]


def one_blas_thread() -> threadpool_limits:
    """Return a context in which BLAS uses one thread.

    Its own threads spin beside ours on vectors of this size, and split sums as the machine has it.
    """
    return threadpool_limits(limits=1, user_api="blas")
