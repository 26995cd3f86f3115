"""The dask client to which work may be sent, without importing dask if nobody has.

Within a task of a worker there is none: the task would hold one of the worker's threads while it
waits for others, and a cluster whose threads all wait would deadlock. There is none in a forked
process either, as the client's connections belong to the parent.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

# The name that distributed gives to the clients that workers make for their tasks.
_OF_A_WORKER = "Client-worker"

_lost: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by a weak reference in a fork


def _distributed() -> Any | None:
    """Return the module if it is completely imported; another thread may still import it."""
    module = sys.modules.get("distributed")
    if module is None or getattr(module.__spec__, "_initializing", False):
        return None
    return module


def in_task() -> bool:
    """Return whether this runs in a task of a dask worker.

    Not so once the task has seceded, as ``distributed.worker_client`` does: it holds no thread of
    the worker any more and may wait for others.
    """
    distributed = _distributed()
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    state = sys.modules["distributed.threadpoolexecutor"].thread_state
    return getattr(state, "proceed", True)


def active_client() -> Any | None:
    """Return the distributed client that the user has made, if work may be sent to it from here."""
    # Not imported here: if nobody has imported it there is no client, and importing takes half a
    # second.
    distributed = _distributed()
    if distributed is None or in_task():
        return None
    try:
        client = distributed.get_client()
    except ValueError:
        return None
    if client is _lost() or client.asynchronous:
        return None
    if client.id.startswith(_OF_A_WORKER):
        # In a task that seceded, or a thread that a task has started and waits for.
        try:
            distributed.get_worker()
        except ValueError:
            return None
    return client


def scheduler_of_collections() -> Any:
    """Return the scheduler by which dask computes collections; None is dask's own choice.

    In a task that is the client of the worker, by which the task secedes while it waits.
    """
    if in_task():
        return sys.modules["distributed"].get_client()
    return None if _lost() is None else "threads"


def _forget_client() -> None:
    """Ignore the parent's client in a forked process."""
    global _lost
    distributed = _distributed()
    if distributed is None:
        return
    try:
        _lost = weakref.ref(distributed.Client.current())
    except ValueError:
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_client)
