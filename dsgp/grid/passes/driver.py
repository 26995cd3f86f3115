"""The posterior of a field on disk, pass by pass, on the workers of a cluster or on threads.

Between passes there is a barrier; what is finished is in the manifest of the work folder beside
the output, from which an interrupted job goes on.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp import compute
from dsgp.addresses import Place, address_of, local_path
from dsgp.clients import active_client
from dsgp.errors import ConvergenceWarning, MemoryLimitError, ParameterError, StorageError
from dsgp.grid.outputs import PLAIN, Labels
from dsgp.grid.passes import results, tasks
from dsgp.grid.passes.gappy import Tiles, plan_tiles, tile_error
from dsgp.grid.passes.inputs import Basis, checked, same_covariance
from dsgp.grid.passes.manifest import Manifest
from dsgp.grid.passes.plan import Plan
from dsgp.grid.passes.planning import make_plan
from dsgp.grid.passes.regions import Region
from dsgp.grid.passes.source import StoredField
from dsgp.grid.passes.tasks import RESULT, Failure, Job, Task
from dsgp.memory import available
from dsgp.progress import Bar, progress

_MIB = 2.0**20
_GIB = 2.0**30
_RETRIES = 2
# Of a worker's memory dask lets so much be used before it pauses, and Python with what is imported
# takes this.
_USABLE = 0.7
_INTERPRETER = 2**28
_DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class PassesReport:
    """What was done.

    Parameters
    ----------
    path : Path
        The result.
    plan : Plan
    n_run : int
        Tasks of this call.
    n_resumed : int
        Tasks that an earlier call had finished.
    seconds : float
        Of this call.
    tile_error : dict or None
        Of a field with gaps: what twice the halo changes in the middle of one tile, "mean" in
        standard deviations, "std" relatively; and "local", the mean relative excess of its
        standard deviations over exact ones. None: the result is exact.
    residual : float
        The largest relative residual of tiles that did not converge; 0 if all did.
    """

    path: Path
    plan: Plan
    n_run: int
    n_resumed: int
    seconds: float
    tile_error: dict[str, float] | None = None
    residual: float = 0.0


def posterior_to_store(
    source: StoredField,
    bases: Sequence[Basis],
    noise_variance: float,
    mean: ArrayLike,
    out: str | Place,
    *,
    constant_precision: float | None = None,
    memory: float | None = None,
    include_noise: bool = False,
    dtype: str = "float64",
    intermediate_dtype: str = "float64",
    resume: bool = True,
    overwrite: bool = False,
    labels: Labels = PLAIN,
) -> PassesReport:
    r"""Write the exact posterior mean and standard deviation of a complete field on disk.

    With K = QΛQᵀ the Kronecker product of the axes' covariances, μ the prior mean and y the field,

    .. math:: μ + Q Λ (Λ + σ²I)^{-1} Q^T (y - μ), \qquad (Q ∘ Q) \, λσ²/(λ + σ²)

    Only regions of the field are in memory at a time. Tasks run on the active distributed client,
    whose workers must see the same files, or on threads.

    Parameters
    ----------
    source : StoredField
    bases : sequence of Eigenbasis
        One an axis, in ascending order of its coordinates; ``vectors`` of shape (G, G) and
        ``values`` of shape (G,). The amplitude is in the values of one of them.
    noise_variance : float
        σ², in the square of the field's units.
    mean : float or ndarray
        The prior mean; an array has an axis for each of the field's, of its length, or of length
        1 where the mean does not depend on it, in ascending order.
    out : str or Path
        A zarr store to be: ``mean`` and ``std`` in the dims, order and coordinates of the source.
    constant_precision : float, optional
        Reciprocal of the variance of the prior mean, which is a constant; by default it is known.
    memory : float, optional
        Bytes that one task may take, beside some 200 MiB of Python in each process. By default
        what the workers' limits leave to each of their threads; without a cluster, what the
        machine does.
    include_noise : bool
        ``std`` of a new observation instead of the field.
    dtype, intermediate_dtype : "float64" or "float32"
        What is stored in the result, and between passes; computed in double precision.
    resume : bool
        Go on where an earlier call with the same inputs was interrupted. False starts anew.
    overwrite : bool
        Replace a posterior that is at ``out``.
    labels : Labels
        Names of the variables, and the command that made them.

    Returns
    -------
    PassesReport

    Raises
    ------
    DataError
        If a value is missing, or bases or mean are not of the field's shape.
    ParameterError
        If an option is out of its range.
    MemoryLimitError
        If a task would not fit; before anything is written.
    StorageError
        If ``out`` exists, the disk is too small, what an earlier call left is of other inputs, or
        a chunk of it is damaged. In the last case, another call mends it.

    Examples
    --------
    >>> import tempfile
    >>> from types import SimpleNamespace
    >>> import numpy as np, xarray as xr
    >>> from dsgp.grid.passes import StoredField, posterior_to_store
    >>> folder = tempfile.mkdtemp()
    >>> field = xr.DataArray(np.ones((4, 3)), dims=("lat", "lon"), name="t")
    >>> _ = field.to_dataset().to_zarr(f"{folder}/t.zarr", zarr_format=3, consolidated=False)
    >>> bases = [SimpleNamespace(vectors=np.eye(n), values=np.ones(n)) for n in (4, 3)]
    >>> report = posterior_to_store(
    ...     StoredField(f"{folder}/t.zarr", "t"), bases, 1.0, 0.0, f"{folder}/out.zarr")
    >>> with xr.open_zarr(report.path) as posterior:
    ...     float(posterior["mean"][0, 0]), round(float(posterior["std"][0, 0]), 4)
    (0.5, 0.7071)
    """
    _require_dtypes(dtype=dtype, intermediate_dtype=intermediate_dtype)
    inputs = checked(source, bases, noise_variance, mean)
    fingerprint = {
        "noise_variance": float(noise_variance),
        "include_noise": bool(include_noise),
        "dtype": dtype,
        "intermediate_dtype": intermediate_dtype,
        "constant_precision": constant_precision,
    }

    def plan(limit: float) -> Plan:
        return make_plan(source.layout, limit, dtype=dtype, intermediate_dtype=intermediate_dtype)

    order = _Order(
        source,
        inputs,
        fingerprint,
        plan,
        noise_variance,
        include_noise,
        labels=labels,
        constant_precision=constant_precision,
    )
    return _carry_out(order, out, memory, resume, overwrite)


def gappy_posterior_to_store(
    source: StoredField,
    tiles: Tiles,
    mean: float,
    out: str | Place,
    *,
    domain: NDArray[np.bool_] | None = None,
    memory: float | None = None,
    include_noise: bool = False,
    dtype: str = "float64",
    resume: bool = True,
    overwrite: bool = False,
    labels: Labels = PLAIN,
) -> PassesReport:
    """Write the posterior of a field with gaps on disk, tile by tile.

    An approximation: a tile sees what is observed in it and in a halo around it. ``tile_error`` of
    the report tells what twice the halo changes in one tile.

    Parameters
    ----------
    source : StoredField
        With ``gaps=True``.
    tiles : Tiles
    mean : float
        The prior mean.
    out : str or Path
        A zarr store to be.
    domain : ndarray of bool, optional
        In the order in which the field is stored, of length 1 where it does not depend on an
        axis. False: the cell stays empty.
    memory, include_noise, dtype, resume, overwrite, labels
        As for ``posterior_to_store``, which also tells what is raised.
    """
    _require_dtypes(dtype=dtype)
    fingerprint = {
        "noise_variance": tiles.noise_variance,
        "include_noise": bool(include_noise),
        "dtype": dtype,
        "kernels": [[kernel.to_settings() for kernel in term] for term in tiles.terms],
        "solver": [
            list(tiles.halo), tiles.n_neighbours, tiles.tol, tiles.max_iter, tiles.seed
        ],
        "constant_precision": tiles.constant_precision,
        "domain": None if domain is None else int(domain.sum()),
    }  # fmt: skip
    prior = np.full((1,) * len(source.shape), float(mean))

    def plan(limit: float) -> Plan:
        return plan_tiles(source.layout, tiles.halo, limit, dtype, tiles.n_neighbours)

    order = _Order(
        source,
        ([], [], prior),
        fingerprint,
        plan,
        tiles.noise_variance,
        include_noise,
        tiles,
        domain,
        labels,
    )
    return _carry_out(order, out, memory, resume, overwrite)


@dataclass(frozen=True)
class _Order:
    """What is to be computed, before it is planned."""

    source: StoredField
    inputs: tuple[list[NDArray[np.float64]], list[NDArray[np.float64]], NDArray[np.float64]]
    fingerprint: dict[str, Any]
    plan: Callable[[float], Plan]
    noise_variance: float
    include_noise: bool
    tiles: Tiles | None = None
    domain: NDArray[np.bool_] | None = None
    labels: Labels = PLAIN
    constant_precision: float | None = None


def _carry_out(
    order: _Order, out: str | Place, memory: float | None, resume: bool, overwrite: bool
) -> PassesReport:
    began = time.monotonic()
    if address := address_of(out):
        raise StorageError(
            f"cannot write to the address {address!r}: what is worked through in pieces is written "
            "to a disk, where an interrupted job goes on and the result is moved into place; write "
            "to a path of this machine, and copy it there when it is done"
        )
    out = local_path(str(out)).absolute()
    if memory is not None and not memory > 0:
        raise ParameterError(f"memory must be positive, in bytes; got {memory}")
    folder = out.parent / f".{out.name}.passes"
    source = order.source
    results.check_free(out, folder, source.path, overwrite)
    client = active_client()
    if memory is None:
        memory = _memory_of_a_task(client)
    names = [order.labels.mean, order.labels.std]
    fingerprint = {"source": source.fingerprint(), "names": names, **order.fingerprint}
    manifest = _resumed(folder, fingerprint, *order.inputs, memory) if resume else None
    if manifest is None:
        plan = order.plan(memory)
        shutil.rmtree(folder, ignore_errors=True)
        _require_disk(plan, out.parent, 0)
        manifest = _begun(
            folder, fingerprint, plan, source, *order.inputs, order.domain, order.labels
        )
    else:
        _require_disk(manifest.plan, out.parent, _size(folder))
    job = Job(
        str(folder), source, manifest.plan, float(order.noise_variance), order.include_noise,
        order.tiles, order.labels, order.constant_precision,
    )  # fmt: skip
    if not (folder / RESULT / "zarr.json").exists():
        results.create(folder / RESULT, source, manifest.plan, order.labels)
    _forget_what_is_gone(job, manifest)
    n_resumed = manifest.n_done
    with (
        compute.one_blas_thread(),
        progress("posterior", total=manifest.plan.n_tasks - n_resumed) as bar,
    ):
        for p in range(len(manifest.plan.passes)):
            _run_pass(client, job, manifest, p, bar)
    report = PassesReport(out, manifest.plan, manifest.plan.n_tasks - n_resumed, n_resumed, 0.0)
    if order.tiles is not None:
        mean = float(order.inputs[2].item())
        report = replace(
            report,
            tile_error=tile_error(source, order.tiles, manifest.plan, mean),
            residual=_largest_residual(folder),
        )
    results.install(folder / RESULT, out)
    shutil.rmtree(folder, ignore_errors=True)
    return replace(report, seconds=time.monotonic() - began)


def _largest_residual(folder: Path) -> float:
    """Return that of the tiles that did not converge; 0 if all did."""
    told = [json.loads(file.read_text()) for file in folder.glob(f"{tasks.UNCONVERGED}*.json")]
    if told:
        warnings.warn(
            f"in {len(told)} tiles conjugate gradients stopped at relative residuals of up to "
            f"{max(told):.2g}, above the tolerance; allow more iterations (max_iter=)",
            ConvergenceWarning,
            stacklevel=4,
        )
    return max(told, default=0.0)


# ---------------------------------------------------------------------- before the start


def _require_dtypes(**given: str) -> None:
    for name, dtype in given.items():
        if dtype not in _DTYPES:
            raise ParameterError(f"{name} must be one of {_DTYPES}; got {dtype!r}")


def _memory_of_a_task(client: Any | None) -> float:
    if client is not None:
        workers = client.scheduler_info()["workers"].values()
        limited = [
            (_USABLE * worker["memory_limit"] - _INTERPRETER) / max(worker["nthreads"], 1)
            for worker in workers
            if worker["memory_limit"]
        ]
        if limited and min(limited) <= 0:
            raise MemoryLimitError(
                f"each worker needs more than {_INTERPRETER / _USABLE / _MIB:.0f} MiB of memory: "
                "start them with a higher memory_limit"
            )
        if limited:
            return min(limited)
    return _USABLE * available() / compute.CPU_COUNT


def _require_disk(plan: Plan, where: Path, held: int) -> None:
    free = shutil.disk_usage(where).free + held
    if plan.disk_bytes > free:
        raise StorageError(
            f"the passes need up to {plan.disk_bytes / _GIB:.2f} GiB of disk in {str(where)!r}, "
            f"and {free / _GIB:.2f} GiB are free: choose another place, or "
            'intermediate_dtype="float32" or dtype="float32"'
        )


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _begun(
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
    try:
        folder.mkdir()
        tasks.save_inputs(folder, vectors, values, mean)
        if domain is not None:
            tasks.save_domain(folder, domain)
        results.create(folder / RESULT, source, plan, labels)
    except OSError as error:
        raise StorageError(f"cannot write in {str(folder)!r}: {error}") from error
    manifest = Manifest(folder, fingerprint, plan)
    manifest.save()  # last: a folder with a manifest has everything
    return manifest


def _resumed(
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
            if not np.array_equal(tasks.load_inputs(folder, "mean", 0), mean):
                differing.append("mean")
            for axis in range(len(vectors)):
                columns = tasks.load_inputs(folder, "vectors", axis)
                numbers = tasks.load_inputs(folder, "values", axis)
                if not same_covariance(columns, numbers, vectors[axis], values[axis]):
                    differing.append(f"basis of axis {axis}")
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{str(folder)!r} holds an interrupted job that cannot be read ({error}): start "
                "anew (resume=False)"
            ) from error
    if differing:
        raise StorageError(
            f"{str(folder)!r} holds an interrupted job whose {', '.join(differing)} differ from "
            "what is asked for now: start anew (resume=False), choose another path, or call it as "
            "it was called"
        )
    if manifest.plan.task_bytes > memory:
        raise MemoryLimitError(
            f"the interrupted job in {str(folder)!r} was planned with tasks of "
            f"{manifest.plan.task_bytes / _MIB:.1f} MiB of memory, and one may now take "
            f"{memory / _MIB:.1f} MiB: give workers more, or start anew (resume=False)"
        )
    return manifest


# ---------------------------------------------------------------------- the passes


def _forget_what_is_gone(job: Job, manifest: Manifest) -> None:
    """Let tasks be run again whose results are wanted and no longer there."""
    plan = job.plan
    last = len(plan.passes) - 1
    for p in range(last, -1, -1):
        for chain in plan.passes[p].chains:
            wanted = p == last or len(manifest.done[p + 1, chain]) < plan.n_regions(p + 1)
            if wanted and not (tasks.stage(job, p, chain) / "zarr.json").exists():
                manifest.done[p, chain].clear()


def _run_pass(client: Any | None, job: Job, manifest: Manifest, p: int, bar: Bar) -> None:
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
    """Let what wrote a damaged region be run again."""
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
            f"the result in {job.folder!r} lacks chunks that were written: the disk is not to be "
            "trusted; run it again, the last pass is computed anew"
        )


def _outcomes(
    client: Any | None, job: Job, todo: Sequence[Task]
) -> Iterator[tuple[Task, Failure | None]]:
    """Run tasks, a bounded number at a time, and yield what came of each, in order."""
    if compute.alone():
        yield from ((task, tasks.run(job, task)) for task in todo)
        return
    if client is None:
        with ThreadPoolExecutor(compute.CPU_COUNT, "dsgp-pass") as pool:
            yield from _in_order(
                lambda task: pool.submit(tasks.run, job, task), todo, 2 * compute.CPU_COUNT
            )
        return
    n_threads = max(sum(client.nthreads().values()), 1)
    try:
        yield from _in_order(
            lambda task: client.submit(tasks.run, job, task, pure=False, retries=_RETRIES),
            todo,
            2 * n_threads,
        )
    except Exception as error:
        error.add_note(
            f"finished regions are kept in {job.folder!r}: the same call goes on from there"
        )
        raise


def _in_order(
    submit: Callable[[Task], Any], todo: Sequence[Task], ahead: int
) -> Iterator[tuple[Task, Failure | None]]:
    further = iter(todo)
    waiting: deque[tuple[Task, Any]] = deque(
        (task, submit(task)) for task in islice(further, ahead)
    )
    try:
        while waiting:
            task, future = waiting.popleft()
            outcome = future.result()
            waiting.extend((task, submit(task)) for task in islice(further, 1))
            yield task, outcome
    finally:
        for _, future in waiting:
            future.cancel()
            if isinstance(future, Future) and not future.cancelled():
                future.exception()  # a thread cannot be stopped: wait, and drop what it says
