"""Where results go: never onto what they are made of, and as a whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from dsgp.errors import StorageError

# A scheme has two letters at least: C:/ is a disk.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
# Any of these marks the root of a zarr store.
_OF_ZARR = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def require_apart(
    out: str | Path, inputs: Iterable[str | Path | None], option: str = "--out"
) -> None:
    """Raise ``StorageError`` if a result would go onto an input, into one, or around one.

    Files are compared, not their names: links, hard links, relative paths and other spellings of
    a path are seen through. Overwriting is no excuse.

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


def address_of(path: str | Path) -> str | None:
    """Return the address, such as ``s3://bucket/a.csv``, that a path is meant to be; else None.

    A ``Path`` has made one slash of two.

    Examples
    --------
    >>> from pathlib import Path
    >>> address_of(Path("s3://bucket/a.csv")), address_of("folder/a.csv")
    ('s3://bucket/a.csv', None)
    """
    parts = _ADDRESS.fullmatch(str(path))
    return None if parts is None or os.path.exists(path) else f"{parts[1]}://{parts[2]}"


def refuse_output_address(path: str | Path) -> None:
    """Raise ``StorageError`` if a result would go to an address: it is moved into place as a whole.

    Most of these stores cannot rename, so that others would see a part of a result.
    """
    if address := address_of(path):
        raise StorageError(
            f"cannot write to the address {address!r}: results go to a disk and are moved into "
            "place as a whole; write to a path of this machine, and copy it there when it is done"
        )


def move_into_place(made: Path, path: Path, replaced: Path) -> None:
    """Put what is complete at a path; what was there goes to ``replaced``, or stays if that fails.

    All three lie in one file system.
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
    if has_magic(name) and not os.path.exists(name):
        yield from iglob(name, recursive=True)
    else:
        yield name


def _relation(out: str, source: str) -> str:
    """Say how the two meet; nothing if they do not."""
    place, read = _local(out), _local(source)
    if place is None or read is None:
        if place is not None or read is not None:
            return ""
        a, b = out.rstrip("/") + "/", source.rstrip("/") + "/"
        return "is" if a == b else "lies in" if a.startswith(b) else "contains" * b.startswith(a)
    if not read.exists():
        return ""
    if _same(place, read):
        return "is"
    if read.is_dir() and any(_same(one, read) for one in place.parents):
        # A model beside the tables of a folder is none of its parts.
        is_store = any((read / mark).exists() for mark in _OF_ZARR)
        return "lies in" if is_store or place.suffix.lower() != ".zarr" else ""
    return "contains" if place.is_dir() and any(_same(one, place) for one in read.parents) else ""


def _local(name: str) -> Path | None:
    """Return the path without links; None of a URL elsewhere."""
    if "://" in name:
        parts = urlsplit(name)
        if parts.scheme not in ("file", "local"):
            return None
        name = url2pathname(parts.netloc + parts.path)
    return Path(os.path.realpath(os.path.expanduser(name)))


def _same(a: Path, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)  # by device and number: hard links and mounts too
    except OSError:
        return a == b
