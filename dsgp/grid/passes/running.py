"""Running the tasks of a pass, in this process, on threads or on the workers of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from dsgp import compute
from dsgp.errors import ClusterError, StorageError
from dsgp.grid.passes import results, tasks
from dsgp.grid.passes.manifest import Manifest
from dsgp.grid.passes.regions import Region
from dsgp.grid.passes.tasks import RESULT, Failure, Job, Task
from dsgp.progress import Bar
from dsgp.waiting import RETRIES, in_order, n_threads


def run_pass(client: Any | None, job: Job, manifest: Manifest, p: int, bar: Bar) -> None:
    """Run the unfinished tasks of a pass, record them, and remove the input of the pass."""
    plan = job.plan
    todo = []
    for chain in plan.passes[p].chains:
        done = manifest.done[p, chain]
        if not done and p < len(plan.passes) - 1:
            tasks.create_stage(job, p, chain)
        todo += [Task(p, chain, k) for k in range(plan.n_regions(p)) if k not in done]
    try:
        for task, failure in _outcomes(client, job, todo):
            if failure is not None:
                if failure.damaged is not None:
                    _forget(manifest, task, failure.damaged)
                raise failure.error
            manifest.done[p, task.chain].add(task.index)
            manifest.save_now_and_then()
            bar.update(passes=f"{p + 1}/{len(plan.passes)}")
    finally:
        manifest.save()
    if p == len(plan.passes) - 1:
        _require_all_chunks(job, manifest)
    for chain in plan.passes[p].chains:
        if tasks.reads(plan, p, chain):
            shutil.rmtree(tasks.stage(job, p - 1, chain), ignore_errors=True)


def _forget(manifest: Manifest, task: Task, damaged: Region) -> None:
    """Mark the tasks that wrote a damaged region as not done."""
    p = task.p - 1
    done = manifest.done[p, task.chain]
    for index in list(done):
        written = manifest.plan.region(p, index)
        if all(
            a.start < b.stop and b.start < a.stop for a, b in zip(written, damaged, strict=True)
        ):
            done.discard(index)


def _require_all_chunks(job: Job, manifest: Manifest) -> None:
    """A chunk that is not there would read as missing values, without an error."""
    lacking = results.incomplete(Path(job.folder) / RESULT, job.names)
    if lacking:
        for chain in lacking:
            manifest.done[len(job.plan.passes) - 1, chain].clear()
        manifest.save()
        raise StorageError(
            f"the result in {job.folder!r} lacks chunks that were written: the disk is not "
            "reliable; run it again, and the last pass is computed again"
        )


def _outcomes(
    client: Any | None, job: Job, todo: Sequence[Task]
) -> Iterator[tuple[Task, Failure | None]]:
    """Run tasks, a bounded number at a time, and yield the outcome of each, in order."""
    if compute.alone():
        yield from ((task, tasks.run(job, task)) for task in todo)
        return
    if client is None:
        with ThreadPoolExecutor(compute.CPU_COUNT, "dsgp-pass") as pool:
            sends = (partial(pool.submit, tasks.run, job, task) for task in todo)
            with closing(in_order(sends, 2 * compute.CPU_COUNT)) as outcomes:
                yield from zip(todo, outcomes, strict=True)
        return
    try:
        sends = (partial(_sent, client, job, task) for task in todo)
        with closing(in_order(sends, 2 * n_threads(client), client, light=True)) as outcomes:
            yield from zip(todo, outcomes, strict=True)
    except ClusterError as error:
        raise ClusterError(
            f"{error}; finished regions are kept in {job.folder!r}, and the same call resumes from "
            "there"
        ) from error
    except Exception as error:
        error.add_note(f"finished regions are kept in {job.folder!r}: the same call resumes")
        raise


def _sent(client: Any, job: Job, task: Task) -> Any:
    return client.submit(tasks.run, job, task, pure=False, retries=RETRIES)
