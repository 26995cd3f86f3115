"""Remote addresses, such as ``s3://bucket/a.csv``: found, read and written through fsspec.

Tables, and fields in zarr stores, are read where they are; models and netCDF files are copied to a
temporary folder first. A result is made in a temporary folder and uploaded when it is complete.
Credentials are in the storage options, which are never stored.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import has_magic
from pathlib import Path, PurePath
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from upath import UPath

from dsgp.errors import DsgpError, ParameterError, StorageError
from dsgp.scratch import Scratch

Place: TypeAlias = Path | UPath

# A scheme has at least two letters: C:/ is a disk.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_LOCAL = ("file", "local")
# The files that mark a folder as a zarr store, by format; it has one of these.
_ROOT = "zarr.json"
_OF_ZARR = (_ROOT, ".zgroup", ".zarray", ".zmetadata")


def address_of(path: object) -> str | None:
    """Return the address, such as ``s3://bucket/a.csv``, that a path is meant to be; else None.

    A ``Path`` has made one slash of two. Addresses of this machine's disk are none.

    Examples
    --------
    >>> from pathlib import Path
    >>> address_of(Path("s3://bucket/a.csv")), address_of("folder/a.csv")
    ('s3://bucket/a.csv', None)
    """
    parts = _ADDRESS.fullmatch(str(path))
    if parts is None or parts[1].lower() in _LOCAL or os.path.exists(str(path)):
        return None
    return f"{parts[1]}://{parts[2]}"


def place_of(path: str | Path | UPath, storage_options: Mapping[str, Any] | None = None) -> Place:
    """Return a path of this machine, or one of fsspec's file systems.

    Parameters
    ----------
    path : str, Path or UPath
        A path, or an address: ``s3://bucket/a.csv``, ``https://host/a.csv``, ``memory://a.csv``.
    storage_options : mapping, optional
        What fsspec's file system takes, such as ``{"anon": True}`` of S3.

    Raises
    ------
    ParameterError
        If there are options, and the path is one of this machine.
    StorageError
        If fsspec knows no such file system, its package is not there, or it refuses the options.

    Examples
    --------
    >>> from dsgp.addresses import place_of
    >>> place_of("memory://tables/a.csv").name
    'a.csv'
    """
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ParameterError(
            "storage_options must be a mapping, such as {'anon': True}, got "
            f"{type(storage_options).__name__}"
        )
    if isinstance(path, UPath) and not isinstance(path, Path):
        return path if not storage_options else UPath(path, **storage_options)
    address = address_of(path)
    if address is None:
        if storage_options:
            raise ParameterError(
                f"storage_options are for addresses such as s3://bucket/a.csv, and {str(path)!r} "
                "is a path on this machine; leave them out"
            )
        return local_path(str(path))
    if ".." in address.split("/"):
        raise StorageError(
            f"{without_secrets(address)!r}: some stores read '..' in an address as a name and "
            "others as the parent folder; write the address without it"
        )
    try:
        place = UPath(address, **(storage_options or {}))
        _ = place.fs
    except ImportError as error:
        raise StorageError(
            f"{address!r} needs another package: {error} (pip install it in the environment of "
            "dsgp)"
        ) from error
    # Each file system raises errors of its own for unknown options.
    except Exception as error:
        with_options = f" with the options {', '.join(storage_options)}" if storage_options else ""
        raise StorageError(
            f"{address!r} cannot be opened{with_options}: {error}; check the address and "
            "storage_options"
        ) from error
    return place


def local_path(name: str) -> Path:
    """Return a path of this machine, which may be written as ``file://…``."""
    parts = _ADDRESS.fullmatch(name)
    if parts is None or parts[1].lower() not in _LOCAL or os.path.exists(name):
        return Path(name)
    url = urlsplit(f"file:///{parts[2]}")
    return Path(url2pathname(url.path))


def is_remote(place: Place) -> bool:
    """Return whether a place is one of fsspec, not one of this machine."""
    return not isinstance(place, Path)


def options_of(place: Place) -> dict[str, Any]:
    """Return options with which xarray and zarr open a place given as text."""
    return {} if isinstance(place, Path) else {"storage_options": dict(place.storage_options)}


def zarr_options(place: Place) -> dict[str, Any]:
    """Return options with which xarray opens a zarr store given as text.

    On a disk metadata lie beside each other, and need not be consolidated.
    """
    consolidated = not isinstance(place, Path) and _is_consolidated(place)
    return {"engine": "zarr", "consolidated": consolidated} | options_of(place)


def _is_consolidated(place: UPath) -> bool:
    try:
        if not (place / _ROOT).exists():
            return (place / ".zmetadata").exists()  # in the second format
        return bool(json.loads((place / _ROOT).read_text()).get("consolidated_metadata"))
    except (OSError, ValueError):  # not a store: xarray reports that
        return False


def name_of(place: Place) -> str:
    """Return the last part of a place, without the query of a URL."""
    is_url = not isinstance(place, Path) and is_web(place.protocol)
    return re.split(r"[?#]", place.name)[0] if is_url else place.name


def is_web(scheme: str) -> bool:
    """Return whether the text after ? and # in addresses of a scheme is not part of a name."""
    return scheme.lower() in ("http", "https")


def parts_within(place: Place, folder: Place) -> tuple[str, ...]:
    """Return the names on the path from a folder to a file in it.

    Raises
    ------
    StorageError
        If the path leads out of the folder: listings of other servers are not trusted.
    """
    parts = PurePath(str(place)[len(str(folder)) :].lstrip("/\\")).parts
    inside = str(place).startswith(str(folder).rstrip("/\\"))
    if not inside or not parts or any(part in ("", ".", "..") or ":" in part for part in parts):
        raise StorageError(f"{str(folder)!r} lists {str(place)!r}, which does not lie in it")
    return parts


def without_secrets(text: str) -> str:
    """Return an address without the password and query that it may have.

    Examples
    --------
    >>> without_secrets("sftp://me:word@host/a.csv"), without_secrets("https://host/a.csv?key=1")
    ('sftp://host/a.csv', 'https://host/a.csv')
    """
    text = address_of(text) or text
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    host, slash, path = rest.partition("/")
    path = re.split(r"[?#]", path)[0] if is_web(scheme) else path
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def require_there(place: Place, error: type[DsgpError], what: str = "") -> None:
    """Raise an error of that type if nothing is there; ``what`` is said of what was expected."""
    if not exists(place):
        raise error(f"there is no {what}{str(place)!r}; check the path")


def exists(place: Place) -> bool:
    """Return whether something exists; for a zarr store by its own files, without a listing.

    Raises
    ------
    StorageError
        If an address does not answer, or refuses to.
    """
    if isinstance(place, Path):
        return place.exists()
    with _reaching(place):
        try:
            place.fs.info(place.path)
            return True
        except FileNotFoundError as error:
            # fsspec also raises this for a server that cannot be reached, with the true cause
            # behind it.
            if error.__cause__ is not None and not isinstance(error.__cause__, FileNotFoundError):
                status = getattr(error.__cause__, "status", None)
                if status not in (404, 410) and not is_store(place):
                    raise error.__cause__ from None
            return is_store(place)


def is_store(place: Place) -> bool:
    """Return whether there is a zarr store."""
    return any((place / mark).exists() for mark in _OF_ZARR)


def require_outside_stores(place: Place) -> None:
    """Raise ``StorageError`` if a result would be in a store, and vanish if that is replaced."""
    for folder in place.parents:
        if is_store(folder):
            raise StorageError(
                f"{without_secrets(str(place))!r} lies in the zarr store "
                f"{without_secrets(str(folder))!r}, and would be lost with it; choose another path"
            )


def matches(place: UPath) -> list[UPath]:
    """Return what matches a pattern such as ``s3://bucket/*.csv``, in no particular order."""
    with _reaching(place):
        return _places(place, place.fs.glob(place.path))


def files_below(place: UPath) -> list[UPath]:
    """Return all files below a folder, in no particular order."""
    with _reaching(place):
        return _places(place, place.fs.find(place.path))


def signatures(place: UPath) -> list[str]:
    """Return names, sizes and times of the files of a zarr array; otherwise its metadata."""
    kept = ("size", "mtime", "created", "LastModified", "updated", "ETag", "etag")
    with _reaching(place):
        refused: Exception = FileNotFoundError(place.path)
        try:
            files = place.fs.find(place.path, detail=True)
        # Many web servers cannot list files, and report that in different ways.
        except Exception as error:
            files, refused = {}, error
        if not files:
            described = [place / mark for mark in (_ROOT, ".zarray") if (place / mark).exists()]
            if not described:
                raise refused
            return [mark.read_text() for mark in described]
    return [
        f"{name} " + " ".join(f"{key}={info[key]}" for key in kept if info.get(key))
        for name, info in sorted(files.items())
    ]


def _places(place: UPath, names: list[str]) -> list[UPath]:
    whole = (place.fs.unstrip_protocol(name) for name in names)
    return [UPath(name, **place.storage_options) for name in whole]


@contextmanager
def _reaching(place: UPath) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    # Clients of networks raise many types of errors; all mean the same here.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise StorageError(
            f"{without_secrets(str(place))!r} cannot be read: {reason}; check the address and the "
            "credentials (storage_options, --storage-option)"
        ) from error


@contextmanager
def local_copy(place: Place) -> Iterator[Path]:
    """Yield a path of this machine: the path itself, or a copy that lasts as long as the block."""
    if isinstance(place, Path):
        yield place
        return
    with Scratch("copy") as folder:
        copy = folder / name_of(place)
        with _reaching(place):
            if place.is_dir():
                for file in files_below(place):
                    file_copy = copy.joinpath(*parts_within(file, place))
                    file_copy.parent.mkdir(parents=True, exist_ok=True)
                    place.fs.get_file(file.path, str(file_copy))
            else:
                place.fs.get_file(place.path, str(copy))
        yield copy


def require_writable(place: UPath) -> None:
    """Raise ``StorageError`` if nothing can be written at an address, before a long job."""
    if has_magic(place.path):  # fsspec would delete other files that match the pattern
        raise StorageError(
            f"cannot write to {without_secrets(str(place))!r}: *, ? and [ in an address mark a "
            "pattern; choose another name"
        )
    probe = place.with_name(f".{name_of(place)}.probe")
    try:
        if not place.parent.exists() and place.parent.parent != place.parent:
            probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    # Clients of networks raise many types of errors; all mean the same here.
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, NotImplementedError):
            reason = f"{place.protocol} is for reading only"
        raise StorageError(
            f"cannot write to {without_secrets(str(place))!r}: {reason}; write to a path on this "
            "machine, and copy the result there afterwards"
        ) from error
    require_outside_stores(place)


def upload(made: Path, place: UPath) -> None:
    """Upload a complete result to an address: a file, or a folder with its root file last.

    These stores cannot rename. Therefore a store that is replaced is removed first, its root file
    before all others: at no time does a part of a store look like a whole one. If the upload fails,
    its uploaded part is removed.
    """
    if made.is_file():
        try:
            place.fs.put_file(str(made), place.path)
        except Exception as error:
            raise _not_up(made, place, error) from error
        return
    try:
        remove(place)
        files = sorted(file for file in made.rglob("*") if file.is_file())
        last = [file for file in files if file == made / _ROOT]
        for some in ([file for file in files if file not in last], last):
            targets = [f"{place.path}/{file.relative_to(made).as_posix()}" for file in some]
            place.fs.put(list(map(str, some)), targets)
    except BaseException as error:
        with suppress(Exception):
            remove(place)
        if not isinstance(error, Exception):
            raise
        raise _not_up(made, place, error) from error


def _not_up(made: Path, place: UPath, error: Exception) -> StorageError:
    """Keep a result that could not be uploaded, as it may have taken hours; report where it is."""
    kept = Path(tempfile.mkdtemp(prefix="dsgp-kept-")) / made.name
    shutil.move(made, kept)
    return StorageError(
        f"cannot write to {without_secrets(str(place))!r}: {error or type(error).__name__}; the "
        f"result is kept at {str(kept)!r}"
    )


def remove(place: UPath) -> None:
    """Remove a file, or a folder with its root file first, if it exists."""
    if (place / _ROOT).exists():
        (place / _ROOT).unlink()
    if place.exists():
        place.fs.rm(place.path, recursive=place.is_dir())
