"""Memory that arrays free on a worker of dask, and that its next task can use.

Dask starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``, so that freed memory goes back to the
system at once. By the same setting glibc takes every array of 128 KiB and more from the system and
gives it back, page by page: of a streamed fit that was more than half of what workers did. Within a
task of a worker both limits are therefore those that glibc comes to by itself in other processes,
unless the user has chosen the setting: what stays in the process is some 64 MiB for each thread.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

VARIABLE = "MALLOC_TRIM_THRESHOLD_"
# What dask sets where nobody has chosen anything.
_OF_DASK = "65536"
# Of mallopt: parameter and bytes. Larger arrays than the second are taken from the system in any
# case, and glibc allows no more.
_SETTINGS = ((-1, 64 * 2**20), (-3, 32 * 2**20))

_is_due = os.environ.get(VARIABLE) == _OF_DASK


def is_due() -> bool:
    """Tell whether dask's setting holds in this process, if it is a worker."""
    return _is_due


def keep_freed_memory() -> bool:
    """Take back dask's setting, once; return whether that was done.

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
    done = [mallopt(*setting) for setting in _SETTINGS]  # each, whether or not the others could be
    return all(done)


def _mallopt() -> Callable[[int, int], int] | None:
    """Return the function of glibc; other systems have none, nor dask's setting an effect."""
    try:
        return getattr(ctypes.CDLL(None), "mallopt", None)
    except (OSError, TypeError):  # no library that is the program itself: Windows
        return None
