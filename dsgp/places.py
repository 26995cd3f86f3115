"""Places of results: never the same as an input, and written completely or not at all."""

from __future__ import annotations

import glob
import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from upath import UPath

from dsgp.addresses import (
    Place,
    address_of,
    is_store,
    is_web,
    local_path,
    name_of,
    require_outside_stores,
    require_writable,
    upload,
)
from dsgp.errors import DsgpError, StorageError
from dsgp.locks import locked
from dsgp.scratch import Scratch

# Extension of temporary results, and the name of the file in them that their owner has locked.
_ASIDE, _LOCK = ".part", ".lock"
# Seconds within which a new temporary result is locked by its owner.
_MOMENT = 60.0
# Seconds after which a temporary result without a lock is abandoned.
_SURELY_LEFT = 24 * 3600.0


def require_apart(
    out: str | Place, inputs: Iterable[str | Place | None], option: str = "--out"
) -> None:
    """Raise ``StorageError`` if a result would replace an input, or be inside or around one.

    Files are compared, not their names: links, hard links, relative paths and other spellings of
    a path are recognised. Permission to overwrite makes no difference.

    Parameters
    ----------
    out : str or Path
        Where the result is to be.
    inputs : iterable of str, Path or None
        Paths, patterns (``data/*.csv``) or URLs; what is not there, or None, is ignored.
    option : str
        What the user calls ``out``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.nc").touch()
    >>> require_apart(folder / "b.nc", [folder / "a.nc"])
    >>> require_apart(folder / ".." / folder.name / "a.nc", [folder / "a.nc"])
    Traceback (most recent call last):
        ...
    dsgp.errors.StorageError: --out ... is the input ...
    """
    for name in inputs:
        for source in [] if name is None else _expanded(str(name)):
            how = _relation(str(out), source)
            if how:
                raise StorageError(
                    f"{option} {str(out)!r} {how} the input {source!r}, which would be lost or "
                    "mixed with the result; choose another path (nothing overwrites an input)"
                )


@contextmanager
def made_aside(place: Place) -> Iterator[Path]:
    """Yield a path in a new folder; what the block makes there goes to ``place`` at the end.

    The folder is beside the place, on the same disk, and the result is moved; for an address it is
    a temporary folder, and the result is copied.

    Raises
    ------
    StorageError
        If the place cannot be written; as a rule before the block runs.
    """
    if isinstance(place, UPath) and not isinstance(place, Path):
        require_writable(place)
        with Scratch("upload") as folder:
            made = folder / name_of(place)
            yield made
            upload(made, place)
        return
    require_folder(place)
    remove_leftovers(place)
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_ASIDE, dir=place.parent))
    except OSError as error:
        raise cannot_write(place, error) from error
    try:
        with _owned(aside):
            made = aside / place.name
            yield made
            move_into_place(made, place, aside / ".replaced")
    except DsgpError:
        raise
    except OSError as error:
        raise cannot_write(place, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _owned(aside: Path) -> Iterator[None]:
    """Hold the lock by which others see that a temporary result has a living owner."""
    first = aside / f"{_LOCK}.first"
    with first.open("w", encoding="utf-8") as file:
        locked(file)
        first.replace(aside / _LOCK)  # whoever sees the folder sees it locked
        yield


def remove_leftovers(place: Path) -> None:
    """Remove temporary results of a place that killed processes have left, never a living one's."""
    for aside in place.parent.glob(f".{glob.escape(place.name)}.*{_ASIDE}"):
        lock = aside / _LOCK if aside.is_dir() else aside
        try:
            age = time.time() - aside.stat().st_mtime
            # A folder is only visible once it is locked; a file may be a moment old.
            if lock.exists() and (lock != aside or age > _MOMENT):
                with lock.open("r+", encoding="utf-8") as file:
                    ended = locked(file) is True
            else:  # being made now, or by a release without locks
                ended = False
            if ended or age > _SURELY_LEFT:
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        except OSError:
            continue  # another process uses it, or it belongs to another user


def replace_text(path: Path, text: str) -> None:
    """Write a text file so that readers find this text or the one before, whole.

    It is on the disk when this returns.
    """
    remove_leftovers(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}{_ASIDE}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            locked(file)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def require_folder(place: Path) -> None:
    """Raise ``StorageError`` if the folder of a result is not there, or is part of a store."""
    if not place.parent.is_dir():
        raise StorageError(f"cannot write {str(place)!r}: there is no folder {str(place.parent)!r}")
    require_outside_stores(place.absolute())


def cannot_write(place: Place, error: OSError) -> StorageError:
    """Return the error for a place that cannot be written."""
    return StorageError(f"cannot write {str(place)!r}: {error.strerror or error}")


def move_into_place(made: Path, path: Path, replaced: Path) -> None:
    """Move a complete result to a path; what was there goes to ``replaced``, or stays on failure.

    All three are in one file system.
    """
    if not path.is_dir():  # a file is replaced in one step
        os.replace(made, path)
        return
    path.rename(replaced)
    try:
        made.rename(path)
    except OSError:
        replaced.rename(path)
        raise


def _expanded(name: str) -> Iterator[str]:
    local = None if address_of(name) else str(local_path(name))
    if local is not None and glob.has_magic(local) and not os.path.exists(local):
        yield from glob.iglob(local, recursive=True)
    else:
        yield name


def _relation(out: str, source: str) -> str:
    """Describe how the two overlap; "" if they do not."""
    place, read = _local(out), _local(source)
    if place is None or read is None:
        if place is not None or read is not None:
            return ""
        return _relation_of_addresses(str(address_of(out)), str(address_of(source)))
    if not read.exists():
        return ""
    if _same(place, read):
        return "is"
    if read.is_dir() and any(_same(one, read) for one in place.parents):
        # A model beside the tables of a folder is not one of its parts.
        return "lies in" if is_store(read) or place.suffix.lower() != ".zarr" else ""
    return "contains" if place.is_dir() and any(_same(one, place) for one in read.parents) else ""


def _relation_of_addresses(out: str, source: str) -> str:
    a, b = _normalised(out), _normalised(source)
    same_depth = a.count("/") == b.count("/") or "**" in b
    if a == b or (glob.has_magic(b) and same_depth and fnmatchcase(a, b)):
        return "is"
    if a.startswith(b):  # as on a disk, a model beside tables is not one of them
        return "lies in" if b.endswith(".zarr/") or not a.endswith(".zarr/") else ""
    return "contains" * b.startswith(a)


def _normalised(address: str) -> str:
    """Return one spelling of an address: no password or query, no empty or relative parts."""
    scheme, _, rest = address.partition("://")
    rest = rest.partition("?")[0].partition("#")[0] if is_web(scheme) else rest
    host, _, path = rest.partition("/")
    parts = [part for part in posixpath.normpath(f"/{path}").split("/") if part]
    return f"{scheme.lower()}://{'/'.join([host.rpartition('@')[2], *parts])}/"


def _local(name: str) -> Path | None:
    """Return the path without links; None for a remote address."""
    if address_of(name) is not None:
        return None
    return Path(os.path.realpath(os.path.expanduser(local_path(name))))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)  # by device and number: hard links and mounts too
    except OSError:
        return a == b
