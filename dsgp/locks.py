"""Locks of files that the system lifts when their process ends, however it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dsgp.errors import StorageError

try:
    import fcntl
except ImportError:  # of Windows, which does not remove or move what is open there
    fcntl = None  # type: ignore[assignment]


def locked(file: IO[str]) -> bool | None:
    """Take the lock of an open file; False if another process has it, or this one has elsewhere.

    None where the system or its file system has no such locks: then nobody knows.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # of a file system without locks
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
        The message for those who come second.

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
                continue  # whoever had it before has removed it since it was opened
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
