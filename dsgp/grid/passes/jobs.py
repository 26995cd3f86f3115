"""The work folder of a job beside its output: made, checked, and resumed after an interruption."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import MemoryLimitError, StorageError
from dsgp.grid.outputs import Labels
from dsgp.grid.passes import results, tasks
from dsgp.grid.passes.inputs import same_covariance
from dsgp.grid.passes.manifest import Manifest
from dsgp.grid.passes.plan import Plan
from dsgp.grid.passes.source import StoredField
from dsgp.grid.passes.tasks import RESULT, Job

_MIB = 2.0**20


def begun(
    folder: Path,
    fingerprint: dict[str, Any],
    plan: Plan,
    source: StoredField,
    vectors: list[NDArray[np.float64]],
    values: list[NDArray[np.float64]],
    mean: NDArray[np.float64],
    domain: NDArray[np.bool_] | None,
    labels: Labels,
) -> Manifest:
    """Make the folder of a new job, with its inputs and an empty result."""
    manifest = Manifest(folder, fingerprint, plan, f"work-{secrets.token_hex(4)}")
    try:
        manifest.work.mkdir(parents=True)
        tasks.save_inputs(manifest.work, vectors, values, mean)
        if domain is not None:
            tasks.save_domain(manifest.work, domain)
        results.create(manifest.work / RESULT, source, plan, labels)
    except OSError as error:
        raise StorageError(f"cannot write in {str(folder)!r}: {error}") from error
    manifest.save()  # last, because a folder with a manifest is complete
    return manifest


def resumed(
    folder: Path,
    fingerprint: dict[str, Any],
    vectors: list[NDArray[np.float64]],
    values: list[NDArray[np.float64]],
    mean: NDArray[np.float64],
    memory: float,
) -> Manifest | None:
    """Return the manifest of an interrupted job, if there is one and it is this job's."""
    manifest = Manifest.load(folder)
    if manifest is None:
        return None
    differing = [
        name for name, value in fingerprint.items() if manifest.fingerprint.get(name) != value
    ]
    if not differing:
        try:
            if not np.array_equal(tasks.load_inputs(manifest.work, "mean", 0), mean):
                differing.append("mean")
            for axis in range(len(vectors)):
                columns = tasks.load_inputs(manifest.work, "vectors", axis)
                numbers = tasks.load_inputs(manifest.work, "values", axis)
                if not same_covariance(columns, numbers, vectors[axis], values[axis]):
                    differing.append(f"basis of axis {axis}")
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{str(folder)!r} holds an interrupted job that cannot be read ({error}): start "
                "from the beginning (resume=False)"
            ) from error
    if differing:
        raise StorageError(
            f"{str(folder)!r} holds an interrupted job whose {', '.join(differing)} differ from "
            "those of this call: start from the beginning (resume=False), choose another path, or "
            "call it with the same options"
        )
    if manifest.plan.task_bytes > memory:
        raise MemoryLimitError(
            f"the interrupted job in {str(folder)!r} was planned with tasks of "
            f"{manifest.plan.task_bytes / _MIB:.1f} MiB of memory, and one may now take "
            f"{memory / _MIB:.1f} MiB: give workers more, or start from the beginning "
            "(resume=False)"
        )
    return manifest


def forget_what_is_gone(job: Job, manifest: Manifest) -> None:
    """Mark tasks as not done if their results are needed and no longer there."""
    plan = job.plan
    last = len(plan.passes) - 1
    for p in range(last, -1, -1):
        for chain in plan.passes[p].chains:
            wanted = p == last or len(manifest.done[p + 1, chain]) < plan.n_regions(p + 1)
            if wanted and not (tasks.stage(job, p, chain) / "zarr.json").exists():
                manifest.done[p, chain].clear()
