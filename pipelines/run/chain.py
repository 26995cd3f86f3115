"""Steps that depend on each other: what each is known by, which are up to date, running the rest.

What the steps of a configuration are is the business of ``plan``.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dsgp.errors import DataError, ParameterError
from pipelines.reporting import (
    MAKER,
    Stopwatch,
    environment,
    gathered_warnings,
    peak_memory_mb,
    plain_json,
    release,
)
from pipelines.run.folders import MANIFEST, manifest_of, write_json, written_stage

FORMAT = 3  # of the folders; with another number every stage is made again
# In the order of the chain; a model has some of those between encode and evaluation.
STAGES = ("load", "encode", "additive", "pursuit", "scoring", "baseline", "evaluation", "report")


@dataclass(frozen=True)
class Work:
    """What the body of a step is given.

    Attributes
    ----------
    folder : Path
        Empty, for its artefacts.
    needs : dict of str to Path
        Folders of the steps that it needs, by stage; those of several models by ``MODEL/stage``.
    clock : Stopwatch
        For the parts of its work.
    """

    folder: Path
    needs: dict[str, Path]
    clock: Stopwatch


@dataclass(frozen=True, eq=False)
class Step:
    """One stage, of all models or of one.

    Attributes
    ----------
    stage : str
        One of ``STAGES``.
    model : str or None
        None for a stage that all models share.
    options : dict
        Everything that decides what it does, beside the steps it needs; JSON.
    needs : dict of str to Step
    body : callable
    """

    stage: str
    model: str | None
    options: Mapping[str, Any]
    needs: Mapping[str, "Step"]
    body: Callable[[Work], None]

    @property
    def name(self) -> str:
        return self.stage if self.model is None else f"{self.model}/{self.stage}"

    @property
    def place(self) -> Path:
        """Its folder within that of the chain."""
        return Path(self.stage) if self.model is None else Path("models", self.model, self.stage)

    @cached_property
    def key(self) -> str:
        """Digest of the options and of all that it depends on."""
        content = {
            "format": FORMAT,
            "dsgp": release(),
            "stage": self.stage,
            "options": plain_json(self.options),
            "needs": {name: step.key for name, step in self.needs.items()},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def until(steps: Sequence[Step], stage: str | None) -> list[Step]:
    """Return the steps up to and with a stage."""
    last = len(STAGES) if stage is None else position(stage)
    return [step for step in steps if position(step.stage) <= last]


def position(stage: str) -> int:
    """Place of a stage in the chain.

    Raises
    ------
    ParameterError
        If there is no such stage.
    """
    if stage not in STAGES:
        raise ParameterError(f"a stage is one of {', '.join(STAGES)}, got {stage!r}")
    return STAGES.index(stage)


def reasons(
    steps: Sequence[Step], root: Path, *, first: str | None = None, fresh: bool = False
) -> dict[Step, str]:
    """Say for every step that is not up to date why it has to run.

    Parameters
    ----------
    steps : sequence of Step
        Each after those it needs.
    root : Path
        Folder of the chain.
    first : str, optional
        A stage that runs in any case, with all after it.
    fresh : bool
        Everything runs.
    """
    reason_by_step: dict[Step, str] = {}
    start = len(STAGES) if first is None else position(first)
    for step in steps:
        if fresh or position(step.stage) >= start:
            reason_by_step[step] = "asked for"
        elif (reason := _stale(step, root, reason_by_step)) is not None:
            reason_by_step[step] = reason
    return reason_by_step


def _stale(step: Step, root: Path, reason_by_step: Mapping[Step, str]) -> str | None:
    for need in step.needs.values():
        if need in reason_by_step:
            return f"{need.name} runs"
    manifest = manifest_of(root / step.place)
    if manifest is None:
        return "not run yet"
    if manifest["key"] != step.key:
        changed = manifest["options"] != plain_json(step.options)
        return "its options changed" if changed else "what it depends on changed"
    # A stage may have been made again by a run that ended before this one's turn.
    runs = {name: _run_of(root / need.place) for name, need in step.needs.items()}
    return None if manifest["needs"] == runs else "what it depends on was run again"


def _run_of(folder: Path) -> str | None:
    manifest = manifest_of(folder)
    return None if manifest is None else manifest["run"]


def execute(
    steps: Sequence[Step], root: Path, stale: Mapping[Step, str], facts: Mapping[str, Any]
) -> Iterator[tuple[Step, dict[str, Any]]]:
    """Run the steps that are stale, in order; yield each step with its manifest.

    Parameters
    ----------
    steps : sequence of Step
    root : Path
    stale : mapping of Step to str
        See ``reasons``.
    facts : mapping
        Of this run, for the manifests: the cluster, say.
    """
    for step in steps:
        if step in stale:
            _run(step, root, facts)
        manifest = manifest_of(root / step.place)
        if manifest is None:
            raise DataError(f"{step.name} has been removed from {str(root)!r}; run the chain again")
        yield step, manifest


def _run(step: Step, root: Path, facts: Mapping[str, Any]) -> None:
    clock, whole = Stopwatch(), Stopwatch()
    with written_stage(root / step.place) as folder:
        needs = {name: root / need.place for name, need in step.needs.items()}
        with gathered_warnings() as messages, whole.stage(step.name, shown=False):
            step.body(Work(folder, needs, clock))
        write_json(
            folder / MANIFEST,
            {
                "made_by": MAKER,
                "stage": step.stage,
                "model": step.model,
                "key": step.key,
                "run": uuid.uuid4().hex,
                "options": step.options,
                "needs": {name: _run_of(need) for name, need in needs.items()},
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": whole.seconds[step.name],
                "parts": clock.seconds,
                "cpu_seconds": whole.cpu_seconds,
                "peak_memory_mb": peak_memory_mb(),
                "warnings": messages,
                "versions": environment(),
                **facts,
                "files": sorted(entry.name for entry in folder.iterdir()),
            },
        )
