"""The manifest of finished tasks: a small JSON file in the work folder, replaced as a whole.

It holds the plan, so that a job is resumed as it was begun, and what identifies the job.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from dsgp.errors import StorageError
from dsgp.grid.passes.plan import Plan
from dsgp.places import replace_text

_FORMAT = 2
_NAME = "manifest.json"
_EVERY = 1.0  # seconds: flushing a file to a busy disk takes a fraction of that


@dataclass
class Manifest:
    """State of one job.

    Parameters
    ----------
    folder : Path
        Where it lies.
    fingerprint : dict
        What must be the same when the job is resumed; JSON.
    plan : Plan
    name : str
        Name of the subfolder where tasks read and write. It is new for every job that begins, so
        that tasks of an earlier driver, which a cluster may still run, do not write into it.
    done : dict
        Finished regions of each pass: (pass, "mean" or "variance") to their indices.
    """

    folder: Path
    fingerprint: dict[str, Any]
    plan: Plan
    name: str
    done: dict[tuple[int, str], set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._saved = 0.0
        for p, one in enumerate(self.plan.passes):
            for chain in one.chains:
                self.done.setdefault((p, chain), set())

    @property
    def work(self) -> Path:
        """Folder where tasks read and write."""
        return self.folder / self.name

    @property
    def n_done(self) -> int:
        """Number of finished tasks."""
        return sum(map(len, self.done.values()))

    def finished(self, p: int) -> bool:
        """Whether a whole pass is finished."""
        count = self.plan.n_regions(p)
        return all(len(self.done[p, chain]) == count for chain in self.plan.passes[p].chains)

    def save_now_and_then(self) -> None:
        """Write it unless it was just written: a killed process loses little."""
        if time.monotonic() - self._saved > _EVERY:
            self.save()

    def save(self) -> None:
        """Write it; a reader finds this one or the one before, whole."""
        text = json.dumps(
            {
                "format": _FORMAT,
                "fingerprint": self.fingerprint,
                "plan": self.plan.as_json(),
                "name": self.name,
                "done": [[p, chain, sorted(which)] for (p, chain), which in self.done.items()],
            }
        )
        try:
            replace_text(self.folder / _NAME, text)
            self._saved = time.monotonic()
        except OSError as error:
            raise StorageError(
                f"cannot write in {str(self.folder)!r}: {error.strerror or error}; finished work "
                "is kept: correct this and run it again"
            ) from error

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the one in a folder; None if there is none.

        Raises
        ------
        StorageError
            If it is damaged, or written by another release.
        """
        try:
            text = (folder / _NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            stored = json.loads(text)
            if stored["format"] == _FORMAT:
                done = {(p, chain): set(which) for p, chain, which in stored["done"]}
                plan, name = Plan.from_json(stored["plan"]), stored["name"]
                if name != Path(name).name:
                    raise ValueError(f"{name!r} is not the name of a folder")
                return cls(folder, stored["fingerprint"], plan, name, done)
            why = "was written by another release"
        except (ValueError, KeyError, TypeError) as error:
            why = f"is damaged ({error})"
        raise StorageError(
            f"{str(folder / _NAME)!r} {why}; start from the beginning (resume=False)"
        )
