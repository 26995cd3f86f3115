"""Running tasks: in the caller, on threads, or on the workers of a dask cluster.

Compiled passes release the GIL, so threads are enough for the axes of one model. If a
``distributed.Client`` is active, blocks of rows go to its workers, and so does work per term if it
is worth the transfer. Work that is started within a task of a worker runs in the thread of that
task.
Results come in the order of the tasks, whichever ran first: sums over
them do not depend on the scheduler.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import chain, islice
from typing import Any, Generic, Protocol, Self, TypeVar
from uuid import uuid4

from dask import threaded
from dask.system import CPU_COUNT
from threadpoolctl import ThreadpoolController

from dsgp import allocator
from dsgp.ahead import are_light
from dsgp.clients import active_client, in_task
from dsgp.errors import ClusterError, ParameterError
from dsgp.waiting import RETRIES, gathered, in_order, n_threads, workers_of

# A graph of a few batches costs about 0.3 ms, and every further batch 60 µs: with less work than
# this, two threads are slower than one.
WORTH_A_GRAPH = 2e-3  # seconds of compiled work of all tasks together
# A task in another process costs about 3 ms, and its tables about 60 ms per 80 MB in each
# direction.
WORTH_A_WORKER = 0.5  # seconds of compiled work of one task

# Time within which a scheduler has to answer.
_PATIENCE = "10s"

_inside = threading.local()


class Piece(Protocol):
    """Rows that can be cut and joined."""

    def __len__(self) -> int: ...

    def part(self, rows: slice) -> Self:
        """Return some of the rows."""

    @staticmethod
    def join(pieces: Sequence[Any]) -> Any:
        """Concatenate rows."""


Result = TypeVar("Result")
Rows = TypeVar("Rows", bound=Piece)
Loaded = TypeVar("Loaded")


def run(
    tasks: Sequence[Callable[[], Result]],
    seconds: float,
    *,
    in_place: bool = False,
    name: str = "terms",
) -> list[Result]:
    """Run independent tasks and return their results in order.

    Parameters
    ----------
    tasks : sequence of callables without arguments
    seconds : float
        Estimate of the compiled work of all tasks together, on one core.
    in_place : bool
        The tasks write into arrays of the caller and cannot run elsewhere.
    name : str
        What a dashboard calls the tasks, after ``dsgp-``.

    Returns
    -------
    list, one result per task

    Examples
    --------
    >>> from dsgp.compute import run
    >>> run([lambda: 1, lambda: 2], seconds=0.0)
    [1, 2]
    """
    if len(tasks) < 2 or is_small(seconds):
        return [task() for task in tasks]
    if not in_place and seconds > WORTH_A_WORKER * len(tasks) and (client := active_client()):
        return gathered(client, [partial(_sent, client, name, _call, task) for task in tasks])
    if CPU_COUNT < 2:
        return [task() for task in tasks]
    n_batches = min(len(tasks), 2 * CPU_COUNT)
    # Batches take every n-th task: neighbouring tasks are alike, so that batches are too.
    # threaded.get is used because delayed objects cost ten times as much as the tasks themselves.
    graph = {batch: (_run_all, tasks[batch::n_batches]) for batch in range(n_batches)}
    results: list[Result] = [None] * len(tasks)  # type: ignore[list-item]
    for batch, done in enumerate(threaded.get(graph, list(graph))):
        results[batch::n_batches] = done
    return results


def _run_all(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    return [task() for task in tasks]


def is_small(seconds: float) -> bool:
    """Return whether ``run`` does that much work in the thread of its caller."""
    return seconds < WORTH_A_GRAPH or alone()


def alone() -> bool:
    """Return whether this is one of several tasks, and must not use more threads or workers."""
    return getattr(_inside, "task", False) or in_task()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Use the workers of a cluster within the block; None: do not use a cluster.

    Raises
    ------
    ParameterError
        If no scheduler answers there.
    ClusterError
        If its workers have other versions of Python, dask or dsgp than this process.
    """
    if address is None:
        yield
        return
    # Imported only when needed, because it takes half a second.
    make = import_module("distributed").Client
    try:
        with _without_collection():
            # A client that fails would otherwise stay the active client of this process.
            make(address, timeout=_PATIENCE, set_as_default=False).close(timeout=_PATIENCE)
            client = make(address, timeout=_PATIENCE)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError, AssertionError) as error:
        # The last three: dask's configuration has no certificates for tls://, or requires
        # encryption, and the client that it abandons then has no event loop.
        encrypted = "; tls:// needs certificates in dask's configuration"
        raise ParameterError(
            f"there is no dask scheduler at {address!r} ({error}); start one, or leave the address "
            "out" + (encrypted if address.startswith("tls:") else "")
        ) from error
    patience = _PATIENCE
    # Its log of a lost scheduler, with tracebacks, is replaced by a `ClusterError`.
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        workers_of(client)  # checks their versions before anything is read
        yield
    except ClusterError:
        patience = "1s"  # nobody would answer when the client disconnects
        raise
    finally:
        with suppress(TimeoutError, OSError):
            client.close(timeout=patience)
        log.setLevel(before)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend garbage collection.

    A failed client closes when it is collected, and for that needs a lock that distributed holds
    while it starts another client: in the same thread, that would wait for ever.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def over_chunks(
    loaders: Iterable[Callable[[], Loaded]],
    function: Callable[[Loaded], Result],
    name: str = "chunks",
) -> Iterator[Result]:
    """Load chunks of rows and apply a function to each, on threads or workers.

    Parameters
    ----------
    loaders : iterable of callables without arguments
        As for a ``Source``.
    function : callable
    name : str
        What a dashboard calls the tasks, after ``dsgp-``.

    Yields
    ------
    The results, in the order of the chunks. A few chunks are in memory at a time.
    """
    client = None if (inside := alone()) else active_client()
    if client is None and not inside:
        inside, loaders = _are_single(loaders)
    if inside:
        yield from (_load(loader, function) for loader in loaders)
    elif client is None:
        with ThreadPoolExecutor(CPU_COUNT, "dsgp-chunk") as pool:
            yield from in_order(
                (partial(pool.submit, _load, loader, function) for loader in loaders), CPU_COUNT
            )
    else:
        shared = Shared(client, function)
        light, loaders = are_light(loaders)
        yield from in_order(
            (_of_chunk(client, name, shared, loader) for loader in loaders),
            2 * n_threads(client),
            client,
            light=light,
        )


def _are_single(loaders: Iterable[Loaded]) -> tuple[bool, Iterator[Loaded]]:
    """Return whether there is at most one loader, for which threads are not worth their cost."""
    further = iter(loaders)
    first = list(islice(further, 2))
    return len(first) < 2, chain(first, further)


def over_blocks(
    loaders: Iterable[Callable[[], Rows]],
    lengths: Sequence[int],
    block: int,
    function: Callable[[Rows], Result],
    name: str = "blocks",
) -> Iterator[Result]:
    """Cut rows into logical blocks, whatever their chunks, and apply a function to each.

    Sums over logical blocks, in their order, are the same for any chunking, scheduler and number of
    workers.

    Parameters
    ----------
    loaders : iterable of callables without arguments
    lengths : sequence of int
        Rows of every chunk.
    block : int
        Rows of a logical block; the last one is shorter.
    function : callable
        In the caller it may use threads itself; on a worker its ``run`` does not.
    name : str
        What a dashboard calls the tasks, after ``dsgp-``.

    Yields
    ------
    The results, in the order of the blocks.
    """
    client = None if (inside := alone()) else active_client()
    if inside or (client is None and len(lengths) < 2):
        yield from map(function, _rebatched((loader() for loader in loaders), block))
    elif client is None:
        with ThreadPoolExecutor(CPU_COUNT, "dsgp-read") as pool:
            chunks = in_order((partial(pool.submit, loader) for loader in loaders), CPU_COUNT)
            yield from map(function, _rebatched(chunks, block))
    else:
        light, loaders = are_light(loaders)
        chunks = (Chunk(client, loader) for loader in loaders)
        yield from in_order(
            (
                sender_of_block(client, name, function, pieces)
                for pieces in pieces_of(chunks, lengths, block)
            ),
            2 * n_threads(client),
            client,
            light=light,
        )


def _sent(client: Any, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return client.submit(function, *arguments, key=key_of(name), pure=False, retries=RETRIES)


def key_of(name: str) -> str:
    """Return a key of a task, whose first words are its name on a dashboard."""
    return f"dsgp-{name}-{uuid4().hex}"


def _of_chunk(
    client: Any, name: str, function: Shared, loader: Callable[[], Any]
) -> Callable[[], Any]:
    return lambda: _sent(client, name, _apply, function.future, Chunk(client, loader).future)


def sender_of_block(
    client: Any,
    name: str,
    function: Callable[[Rows], Result],
    pieces: list[tuple[Chunk[Rows], int, int]],
) -> Callable[[], Any]:
    """Return a function that sends a block: from shared chunks first, from its own if sent again.

    Chunks are released once it is sent, so that workers do not keep them.
    """
    shared = [[(chunk.future, start, stop) for chunk, start, stop in pieces]]
    loaders = [(chunk.loader, start, stop) for chunk, start, stop in pieces]

    def send() -> Any:
        parts = (
            shared.pop()
            if shared
            else [(Chunk(client, loader).future, start, stop) for loader, start, stop in loaders]
        )
        return _sent(client, name, _apply_joined, function, *parts)

    return send


class Shared:
    """Something large that many tasks need: it is sent to the workers once."""

    def __init__(self, client: Any, value: Any) -> None:
        self._client, self._value = client, value
        self._future: Any = None

    @property
    def future(self) -> Any:
        """The future that stands for it in tasks; sent again if the cluster has forgotten it."""
        if self._future is None or self._future.cancelled():
            self._future = _sent(self._client, "shared", _itself, self._value)
        return self._future


def _itself(value: Result) -> Result:
    return value


class Chunk(Generic[Rows]):
    """A chunk of rows on a worker: loaded there, or computed from the user's collection."""

    def __init__(self, client: Any, loader: Callable[[], Rows]) -> None:
        self.loader = loader
        delayed = getattr(loader, "delayed", None)
        if delayed is not None:
            self.future = client.compute(delayed, retries=RETRIES)
        else:
            self.future = _sent(client, "read", _call, loader)


def _rebatched(chunks: Iterable[Rows], block: int) -> Iterator[Rows]:
    held: list[Rows] = []
    n_held = 0
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            stop = min(start + block - n_held, len(chunk))
            held.append(chunk.part(slice(start, stop)))
            n_held += stop - start
            start = stop
            if n_held == block:
                yield held[0].join(held)
                held, n_held = [], 0
    if held:
        yield held[0].join(held)


def pieces_of(
    chunks: Iterator[Chunk[Rows]], lengths: Sequence[int], block: int
) -> Iterator[list[tuple[Chunk[Rows], int, int]]]:
    """Return which rows of which chunks make each logical block: (chunk, start, stop)."""
    held: list[tuple[Chunk[Rows], int, int]] = []
    n_held = 0
    for chunk, length in zip(chunks, lengths, strict=True):
        start = 0
        while start < length:
            stop = min(start + block - n_held, length)
            held.append((chunk, start, stop))
            n_held += stop - start
            start = stop
            if n_held == block:
                yield held
                held, n_held = [], 0
    if held:
        yield held


def _call(task: Callable[[], Result]) -> Result:
    return run_alone(task)


def _load(loader: Callable[[], Loaded], function: Callable[[Loaded], Result]) -> Result:
    return run_alone(lambda: function(loader()))


def _apply(function: Callable[[Rows], Result], rows: Rows) -> Result:
    return run_alone(lambda: function(rows))


def _apply_joined(function: Callable[[Any], Result], *pieces: tuple[Any, int, int]) -> Result:
    parts = [chunk.part(slice(start, stop)) for chunk, start, stop in pieces]
    return run_alone(lambda: function(parts[0].join(parts)))


def run_alone(task: Callable[[], Result]) -> Result:
    """Run a task that must not use threads itself, as others run at the same time."""
    if allocator.is_due() and in_task():
        allocator.keep_freed_memory()
    before = getattr(_inside, "task", False)
    _inside.task = True
    try:
        return task()
    finally:
        _inside.task = before


class one_blas_thread:
    """A context in which BLAS uses one thread.

    On vectors of this size, its own threads would compete with ours, and the way they split sums
    depends on the machine. The limit is one of the process: the first thread that enters sets it,
    and the last that leaves removes it, so that it holds for each of them to the end.
    """

    _lock = threading.Lock()
    _n_within = 0
    _limits: Any = None
    # Searching for libraries takes 3 ms, more than a small prediction, and setting their limits 20
    # µs. Those that numpy and scipy use are loaded with modules.
    _controller: ThreadpoolController | None = None
    _n_modules = 0
    # Set all limits again: in OpenBLAS (0.3.30), a limit that one thread sets may have no effect
    # once another thread has set one.
    _setter: ThreadPoolExecutor | None = None

    def __enter__(self) -> None:
        cls = one_blas_thread
        with cls._lock:
            if cls._n_within == 0:
                cls._setter = cls._setter or ThreadPoolExecutor(1, "dsgp-blas")
                cls._limits = cls._setter.submit(cls._limited).result()
            cls._n_within += 1

    def __exit__(self, *_: object) -> None:
        cls = one_blas_thread
        with cls._lock:
            cls._n_within -= 1
            if cls._n_within == 0 and cls._limits is not None:
                cls._setter = cls._setter or ThreadPoolExecutor(1, "dsgp-blas")
                cls._setter.submit(cls._limits.restore_original_limits).result()
                cls._limits = None

    @classmethod
    def _limited(cls) -> Any:
        """Limit all libraries of BLAS, searched for again if modules were imported since."""
        if cls._controller is None or cls._n_modules != len(sys.modules):
            cls._controller = ThreadpoolController()
            cls._n_modules = len(sys.modules)
        return cls._controller.limit(limits=1, user_api="blas")


def _reset_after_fork() -> None:
    """Forget threads of the parent, which a forked process does not have, and their locks."""
    threaded.default_pool = None
    threaded.pools.clear()
    threaded.pools_lock = threading.Lock()
    one_blas_thread._lock = threading.Lock()
    one_blas_thread._setter = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
