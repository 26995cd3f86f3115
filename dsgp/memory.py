"""How much memory there is, and refusing what cannot fit before it starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil

from dsgp.errors import MemoryLimitError

_GIB = 2.0**30
# Limits of a container, by version of its control groups: the allowed and the used memory.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available() -> int:
    """Bytes that this process may still take, by the machine and by a container's limit.

    Files that the system has in its cache count as used by a container.
    """
    free = int(psutil.virtual_memory().available)
    for limit, used in _CGROUPS:
        try:
            left = int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # no such group, or "max"
            continue
        free = min(free, max(left, 0))
    return free


def require(what: str, needed: float, remedy: str) -> None:
    """Raise ``MemoryLimitError`` if a job would need more bytes than there are.

    Examples
    --------
    >>> from dsgp.memory import require
    >>> require("nothing", 0.0, "none needed")
    """
    free = available()
    if needed > free:
        raise MemoryLimitError(
            f"{what} needs about {needed / _GIB:.1f} GiB of memory, and {free / _GIB:.1f} GiB are "
            f"available: {remedy}"
        )


def held(value: Any) -> int:
    """Bytes of the arrays that containers and objects of ours hold.

    Dask asks each object for its size (``__sizeof__``), to count memory and to let tasks run where
    what they need is; Python itself reports that of an object without the objects that it refers
    to.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.memory import held
    >>> held({"x": [np.zeros(10), np.zeros(5)], "y": None}) >= 120
    True
    """
    if isinstance(value, dict):
        return sum(map(held, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(held, value))
    n_bytes = getattr(value, "nbytes", None)
    return int(sys.getsizeof(value) if n_bytes is None else n_bytes)
