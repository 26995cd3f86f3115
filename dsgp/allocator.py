"""Reuse of memory that arrays free on a worker of dask by its next task.

Dask starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``, so that freed memory returns to the
system at once. With that setting, glibc also allocates every array of 128 KiB and more from the
system and returns it, page by page: in a streamed fit that took more than half of the workers'
time. Within a task of a worker, both limits are therefore set to those that glibc reaches by itself
in other processes, unless the user has chosen the setting: about 64 MiB per thread stay in the
process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

VARIABLE = "MALLOC_TRIM_THRESHOLD_"
# The value that dask sets unless the user has chosen one.
_OF_DASK = "65536"
# Arguments of mallopt: parameter and bytes. Larger arrays than the second are allocated by the
# system in any case; glibc allows no higher limit.
_SETTINGS = ((-1, 64 * 2**20), (-3, 32 * 2**20))

_is_due = os.environ.get(VARIABLE) == _OF_DASK


def is_due() -> bool:
    """Return whether dask's setting holds in this process, if it is a worker."""
    return _is_due


def keep_freed_memory() -> bool:
    """Undo dask's setting, once; return whether that was done.

    Examples
    --------
    >>> from dsgp.allocator import keep_freed_memory
    >>> keep_freed_memory()  # this process is no worker
    False
    """
    global _is_due
    if not _is_due:
        return False
    _is_due = False
    mallopt = _mallopt()
    if mallopt is None:
        return False
    done = [mallopt(*setting) for setting in _SETTINGS]  # each one, even if another one failed
    return all(done)


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function of glibc; other systems have none, nor dask's setting an effect."""
    try:
        return getattr(ctypes.CDLL(None), "mallopt", None)
    except (OSError, TypeError):  # no library of the process itself, as on Windows
        return None
