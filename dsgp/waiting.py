"""Wait for what threads or the workers of a cluster compute: results come in order, or an error.

Every wait of the library for a cluster is one of these; ``watching`` handles failures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import dask

from dsgp.ahead import Ahead
from dsgp.clients import active_client, scheduler_of_collections
from dsgp.watching import Send, Sent, Watch

# A worker that died is replaced, or its tasks go to another worker.
RETRIES = 2


def in_order(
    sends: Iterable[Send], ahead: int, client: Any | None = None, *, light: bool = False
) -> Generator[Any, None, None]:
    """Send work, a bounded number of tasks at a time, and yield the results in order.

    Parameters
    ----------
    sends : iterable of callables
        Each sends the work of one task and returns its future; it may be called again, if the
        cluster forgets what it was sent.
    ahead : int
        Number of tasks that are submitted at a time.
    client : distributed.Client, optional
        None: futures are those of threads.
    light : bool
        Whether tasks do not include rows: on a cluster, more are submitted at a time if they are
        short, and if the number of threads grows (``Ahead``).

    Raises
    ------
    ClusterError
        If the cluster fails for good. Errors of tasks are raised as they are.
    """
    further = iter(sends)
    watch = None if client is None else Watch(client)

    def sent(count: int) -> Iterator[Sent]:
        return (Sent(send, watch) for send in islice(further, count))

    waiting: deque[Sent] = deque()
    limit = Ahead(ahead)
    try:
        waiting.extend(sent(ahead))
        while waiting:
            first = waiting.popleft()
            result = first.future.result() if watch is None else watch.result(first, waiting)
            first.forget()
            if light and watch is not None:
                limit.came(result)
                watch.glance()
                ahead = limit.number(watch.workers)
            waiting.extend(sent(max(ahead - len(waiting), 0)))
            yield result
    finally:
        for one in waiting:
            one.forget()


def gathered(client: Any, sends: Iterable[Send]) -> list[Any]:
    """Send all work at once and return the results in order; raises as ``in_order`` does."""
    every = list(sends)
    return list(in_order(every, max(len(every), 1), client))


def computed(*collections: Any) -> tuple[Any, ...]:
    """Compute collections of dask by the active client, watched, or as ``dask.compute`` does."""
    client = active_client()
    if client is None:
        values: tuple[Any, ...] = dask.compute(*collections, scheduler=scheduler_of_collections())
        return values
    return tuple(gathered(client, [partial(_computing, client, one) for one in collections]))


def _computing(client: Any, collection: Any) -> Any:
    return client.compute(collection, retries=RETRIES)


def n_threads(client: Any) -> int:
    """Threads of all workers; 1 if there are none at present."""
    workers = workers_of(client).values()
    return max(sum(worker["nthreads"] for worker in workers), 1)


def workers_of(client: Any) -> dict[str, Any]:
    """Return the scheduler's information on each worker, by address.

    Raises
    ------
    ClusterError
        If it does not answer.
    """
    known: dict[str, Any] = Watch(client).identity()["workers"]
    return known
