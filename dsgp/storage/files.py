"""The files of a store: which there are, that they are plain files, and their checksums.

Nothing is opened before it is known to be a regular file: opening a pipe waits for ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsgp import memory
from dsgp.addresses import Place
from dsgp.errors import StorageError

ROOT = "zarr.json"
# Groups within groups, of which models have four, and of a chunk a folder for each dimension.
_DEEPEST = 48
# Bytes that a parsed document takes for each of its own, at most: objects of one digit.
_PARSED = 40


def read_document(path: Place, name: str = ROOT) -> dict[str, Any]:
    """Read a JSON object; ``name`` is what errors call the file.

    Raises
    ------
    StorageError
        If it is no regular file, no JSON, nested too deeply, no object, or has numbers that JSON
        has not (NaN, infinity).
    """
    if isinstance(path, Path):
        require_regular(path, name)
        memory.require(
            f"the text of {name}", float(_PARSED) * path.stat().st_size, "no model has so much"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        json.dumps(document, allow_nan=False)  # 1e999 is read as infinity
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{name} is not JSON that dsgp writes: {error}") from error
    if not isinstance(document, dict):
        raise StorageError(f"{name} holds no JSON object")
    return document


def require_regular(path: Path, name: str) -> None:
    """Raise ``StorageError`` if a path is a pipe, a socket, a device or a folder."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise StorageError(f"{name} cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise StorageError(
            f"{name} is not a regular file; a store has regular files and folders only"
        )


def files_of(folder: Path) -> dict[str, int]:
    """Return the bytes of each file below a folder, by its path within, in order of these.

    Raises
    ------
    StorageError
        If something there is neither a regular file nor a folder, or folders go round in circles.
    """
    return dict(sorted(_files(folder, "", set(), 0)))


def _files(
    folder: Path, within: str, above: set[tuple[int, int]], depth: int
) -> Iterator[tuple[str, int]]:
    kind = folder.stat()
    here = (kind.st_dev, kind.st_ino)
    if here in above or depth > _DEEPEST:
        raise StorageError(f"the folders below {within!r} form a cycle, or are nested too deeply")
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = f"{within}{entry.name}"
            path = folder / entry.name
            if entry.is_dir():
                yield from _files(path, f"{name}/", above | {here}, depth + 1)
            else:
                require_regular(path, name)
                yield name, path.stat().st_size


def checksum(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of what JSON holds, whatever its spacing and order of names."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_table(folder: Path) -> dict[str, dict[str, Any]]:
    """Return bytes and SHA-256 of every file of a store but its root file."""
    return {
        name: {"bytes": size, "sha256": checksum(folder / name)}
        for name, size in files_of(folder).items()
        if name != ROOT
    }


def require_files(folder: Path, files: Mapping[str, int], table: Mapping[str, Any]) -> None:
    """Raise ``StorageError`` naming the first file that is not as it was written.

    Parameters
    ----------
    folder : Path
    files : mapping of str to int
        As for ``files_of``.
    table : mapping of str to an entry with ``bytes`` and ``sha256``
    """
    for name in table:
        if name not in files:
            raise StorageError(f"its file {name!r} is missing")
    for name, size in files.items():
        if name == ROOT:
            continue
        if name not in table:
            raise StorageError(
                f"{name!r} is not one of the files that it was saved with; remove it, if another "
                "program put it there"
            )
        entry = table[name]
        if size != entry.bytes:
            raise StorageError(
                f"its file {name!r} has {size} bytes, and had {entry.bytes} when it was saved"
            )
        if checksum(folder / name) != entry.sha256:
            raise StorageError(f"its file {name!r} is not as it was saved: its checksum differs")


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")
