"""The number of tasks of a pass that are submitted to a cluster at a time.

Two per thread keep the workers busy. A cluster that grows by demand (dask's adaptive scaling)
measures demand by the seconds of work that its scheduler knows of, which are few if tasks are
short: then more tasks are submitted, for twice the seconds that cause another worker to be
requested, as long as results that wait for the driver take only a small share of the workers'
memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from types import FunctionType, MethodType
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from dask.sizeof import sizeof
from dask.utils import parse_timedelta

# Tasks per thread, however long they take.
A_THREAD = 2
# Seconds of work per thread from which dask's adaptive scaling requests another worker.
_TARGET = "distributed.adaptive.target-duration"
_DEFAULT = "5s"
_TIMES = 2
# Largest share of the workers' memory for results, or bytes per worker whose memory is not limited.
_SHARE, _BYTES = 0.05, 2.0**26
# Number of results before anything is known of their size.
_FEW = 4
_DEPTH = 8  # of nested containers
# Largest size of a task's arguments, in bytes, if there are to be many tasks.
_LITTLE = 2.0**16
# Modules whose objects dask can measure.
_MEASURED = ("numpy", "pandas", "pyarrow")


class Ahead:
    """Limits the number of submitted tasks, by the workers and the durations of earlier tasks.

    Parameters
    ----------
    at_first : int
        Smallest number while as many threads are there.
    """

    def __init__(self, at_first: int) -> None:
        self._at_first = at_first
        self._began = time.monotonic()
        self._n_results, self._largest = 0, 0.0

    def came(self, result: Any) -> None:
        """Record a result."""
        self._n_results += 1
        self._largest = max(self._largest, n_bytes(result))

    def number(self, workers: Mapping[str, Any]) -> int:
        """Number of tasks that may be submitted to these workers."""
        n_threads = sum(worker["nthreads"] for worker in workers.values())
        least = max(self._at_first, A_THREAD * n_threads)
        if self._n_results < _FEW:
            return least
        target = float(parse_timedelta(dask.config.get(_TARGET, _DEFAULT)))
        # If the driver cannot keep up, tasks seem to take longer, and more workers would not help
        # it.
        seconds = (time.monotonic() - self._began) * max(n_threads, 1) / self._n_results
        wanted = math.ceil(_TIMES * target * n_threads / max(seconds, 1e-3))
        memory = sum(_room(worker) for worker in workers.values())
        return max(least, min(wanted, int(memory / max(self._largest, 1.0))))


def _room(worker: Mapping[str, Any]) -> float:
    limit = worker["memory_limit"]
    return _SHARE * limit if limit else _BYTES


def n_bytes(value: Any, depth: int = _DEPTH) -> float:
    """Bytes of the arrays and tables in a result, or in the arguments of a function.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.ahead import n_bytes
    >>> n_bytes({"a": [np.zeros(3), (np.zeros(2), 1)]})
    40.0
    """
    if isinstance(value, np.ndarray):
        return float(value.nbytes)
    if type(value).__module__.split(".")[0] in _MEASURED:
        return float(sizeof(value))
    if depth == 0:
        return 0.0
    return sum((n_bytes(one, depth - 1) for one in _within(value)), 0.0)


def _within(value: Any) -> Iterable[Any]:
    """Parts of an object that may hold arrays."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values(), value.__dict__]
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or ()]
    if isinstance(value, Delayed):
        # Only its own part of a shared graph is sent.
        graph: Any = value.__dask_graph__()
        keys = value.__dask_keys__()
        return (graph.cull(set(keys)) if hasattr(graph, "cull") else cull(graph, keys)[0]).values()
    if type(value).__module__.startswith("dask."):  # a node of its graph
        return [getattr(value, name, ()) for name in ("args", "kwargs", "value")]
    return getattr(value, "__dict__", {}).values()


def are_light(loaders: Iterable[Callable[[], Any]]) -> tuple[bool, Iterator[Callable[[], Any]]]:
    """Return, by the first loader, whether rows are read by the workers, not sent with the tasks.

    Returns
    -------
    bool
    iterator
        All loaders.
    """
    rest = iter(loaders)
    first = list(islice(rest, 1))
    return all(n_bytes(loader) <= _LITTLE for loader in first), chain(first, rest)
