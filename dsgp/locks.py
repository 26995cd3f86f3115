"""Locks of files that the system releases when their process ends, in whatever way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dsgp.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows, on which open files cannot be removed or moved
    fcntl = None  # type: ignore[assignment]


def locked(file: IO[str]) -> bool | None:
    """Lock an open file; False if another process, or this one elsewhere, holds the lock.

    None if the system or the file system has no such locks, so that this is not known.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


@contextmanager
def only_here(path: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out while the block runs.

    Parameters
    ----------
    path : Path
        A file that is made, and removed at the end.
    refusal : str
        The message of the error if the file is locked.

    Raises
    ------
    StorageError
        If another process is within, or the file cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "lock"
    >>> with only_here(file, "wait"), only_here(file, "somebody is at it: wait"):
    ...     pass
    Traceback (most recent call last):
        ...
    dsgp.errors.StorageError: somebody is at it: wait
    """
    while True:
        try:
            file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
        with file:
            if locked(file) is False:
                raise StorageError(refusal)
            if not _is_at(path, file):
                continue  # the previous owner has removed the file since it was opened
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()
            return


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
