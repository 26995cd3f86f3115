"""Files that are read in several passes, and must be the same in each."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from dsgp.addresses import Place
from dsgp.errors import DataError


@dataclass(frozen=True)
class Seen:
    """The state of a file or store when it was opened; it travels to workers with its reader.

    Sizes and times of modification are compared. Remote addresses have no such state.
    """

    path: Place
    label: str
    state: str

    @classmethod
    def of(cls, path: Place, label: str) -> Seen:
        return cls(path, label, _state(path))

    def require_same(self) -> None:
        """Raise ``DataError`` naming the file if it is another one now."""
        if _state(self.path) != self.state:
            raise DataError(
                f"{self.label} has changed since it was opened: it is read in several passes, and "
                "a result would mix two tables; run it again when nothing writes there any more"
            )


def require_same(seen: Seen | None) -> None:
    """Raise ``DataError`` if the file has changed; None: there is nothing to compare."""
    if seen is not None:
        seen.require_same()


def _state(path: Place) -> str:
    if not isinstance(path, Path):
        return ""
    files = [path] if not path.is_dir() else _below(path)
    digest = hashlib.sha256()
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:
            digest.update(f"{file}\0gone\n".encode())
        else:
            digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _below(folder: Path) -> list[Path]:
    return sorted(Path(root) / name for root, _, names in os.walk(folder) for name in names)
