"""Temporary folders that only their user can read, removed even if their process is killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import IO

from dsgp.locks import locked

_PREFIX, _LOCK = "dsgp-scratch-", ".lock"
# Seconds after which a folder without a lock is abandoned.
_SURELY_LEFT = 24 * 3600.0


class Scratch:
    """A folder in the system's place for temporary ones, of mode 0700.

    It is removed at the end of a ``with``, with the object, or with the process. A folder of a
    killed process is removed when the next one, of the same user, makes a folder.

    Attributes
    ----------
    path : Path

    Examples
    --------
    >>> with Scratch("example") as folder:
    ...     (folder / "a.txt").touch()
    >>> folder.exists()
    False
    """

    def __init__(self, what: str) -> None:
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{what}-"))
        first = self.path / f"{_LOCK}.first"
        lock = first.open("w", encoding="utf-8")
        locked(lock)
        first.replace(self.path / _LOCK)  # whoever sees the folder sees it locked
        self._end = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()


def _remove(path: Path, lock: IO[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def remove_leftovers() -> None:
    """Remove folders that killed processes of this user have left; never a living one's."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            # Another user's folder, or a link that another user has made, is left alone.
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != _user(status.st_uid):
                continue
            lock = folder / _LOCK
            if lock.exists():
                with lock.open("r+", encoding="utf-8") as file:
                    ended = locked(file) is True
            else:  # being made now, or its process was killed meanwhile
                ended = time.time() - status.st_mtime > _SURELY_LEFT
            if ended:
                shutil.rmtree(folder)
        except OSError:
            continue  # another process uses it


def _user(otherwise: int) -> int:
    return os.getuid() if hasattr(os, "getuid") else otherwise
