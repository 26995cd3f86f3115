"""One task: a region of one pass, read, rotated and written; it runs anywhere and many times.

A task reads and writes whole chunks and never what another task of its pass writes, so that it can
be repeated after any failure.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec

from dsgp.compute import one_blas_thread
from dsgp.errors import DsgpError, StorageError
from dsgp.grid.outputs import PLAIN, Labels
from dsgp.grid.passes.constant import constant_share
from dsgp.grid.passes.gappy import Tiles
from dsgp.grid.passes.in_place import fill_variances, rotate, shrink
from dsgp.grid.passes.plan import MEAN, VARIANCE, Plan
from dsgp.grid.passes.regions import Region, lengths, pieces, relative
from dsgp.grid.passes.source import StoredField

RESULT = "result.zarr"
UNCONVERGED = "unconverged-"


@dataclass(frozen=True)
class Job:
    """What all tasks share, which is small, as it travels with each; arrays are in the folder."""

    folder: str
    source: StoredField
    plan: Plan
    noise_variance: float
    include_noise: bool
    tiles: Tiles | None = None  # of a field with gaps
    labels: Labels = PLAIN
    constant_precision: float | None = None  # of the prior mean, if it is unknown

    @property
    def names(self) -> dict[str, str]:
        """Variables of the result, by chain."""
        return {MEAN: self.labels.mean, VARIANCE: self.labels.std}


@dataclass(frozen=True)
class Task:
    """A region of one pass, for the mean or the variance."""

    p: int
    chain: str
    index: int


class DamagedError(StorageError):
    """Cells of an intermediate store cannot be read."""

    def __init__(self, message: str, region: Region = ()) -> None:
        super().__init__(message)
        self.region = region


@dataclass(frozen=True)
class Failure:
    """An error that would occur again; returned, because a raised one would be retried."""

    error: DsgpError
    damaged: Region | None = None


def reads(plan: Plan, p: int, chain: str) -> bool:
    """Whether a task reads results of the pass before."""
    return p > 0 and (chain == MEAN or p > plan.middle)


def stage(job: Job, p: int, chain: str) -> Path:
    """Store to which a pass writes."""
    if p == len(job.plan.passes) - 1:
        return Path(job.folder) / RESULT / job.names[chain]
    return Path(job.folder) / f"pass-{p + 1}-{chain}.zarr"


def create_stage(job: Job, p: int, chain: str) -> None:
    """Make an empty store between two passes, and replace an earlier one.

    It is made in a temporary place and moved: a task of a driver that failed, or was killed, may
    still write to the earlier one. That does no harm in the new one (the numbers are the same), but
    it would keep a folder from being emptied.
    """
    place = stage(job, p, chain)
    made = _aside(place)
    zarr.create_array(
        str(made),
        shape=job.plan.shape,
        chunks=job.plan.chunks,
        dtype=job.plan.intermediate_dtype,
        # Not compressed, because rotated noise is incompressible. Checksums reveal flipped bits.
        compressors=[Crc32cCodec()],
        fill_value=np.nan,  # a missing chunk shows as NaN
    )
    gone = []
    while True:
        try:
            made.rename(place)
            break
        except OSError:  # the folder is there, or there again since it was moved away
            if not place.exists():
                raise
            gone.append(place.rename(_aside(place)))
    for one in gone:
        shutil.rmtree(one, ignore_errors=True)


def _aside(place: Path) -> Path:
    return place.with_name(f"{place.name}.{secrets.token_hex(4)}")


# ---------------------------------------------------------------------- what a worker does


def run(job: Job, task: Task) -> Failure | None:
    """Do one task."""
    region = job.plan.region(task.p, task.index)
    try:
        with one_blas_thread():
            x = _compute(job, task, region)
        _write(stage(job, task.p, task.chain), region, x)
    except DamagedError as error:
        return Failure(error, error.region)
    except DsgpError as error:
        return Failure(error)
    return None


def _compute(job: Job, task: Task, region: Region) -> NDArray[np.float64]:
    plan, p = job.plan, task.p
    if job.tiles is not None:
        return _of_tile(job, job.tiles, task.chain, region)
    axes = plan.passes[p].axes
    values = [_load(job, "values", axis)[part] for axis, part in enumerate(region)]
    if reads(plan, p, task.chain):
        x = _read(stage(job, p - 1, task.chain), region)
    elif task.chain == MEAN:
        x = job.source.read_stored(region)
        x -= _mean(job, region)
    else:
        x = np.empty(lengths(region))
        fill_variances(x, values, job.noise_variance)
    if task.chain == VARIANCE:
        for axis in axes:
            rotate(x, np.square(_load(job, "vectors", axis)), axis)
    else:
        if p <= plan.middle:
            for axis in axes[::-1]:
                rotate(x, _load(job, "vectors", axis).T, axis)
        if p == plan.middle:
            shrink(x, values, job.noise_variance)
        if p >= plan.middle:
            for axis in axes:
                rotate(x, _load(job, "vectors", axis), axis)
    if p == len(plan.passes) - 1:
        if task.chain == MEAN:
            x += _mean(job, region)
        else:
            if job.constant_precision is not None:
                vectors = [_load(job, "vectors", axis) for axis in range(x.ndim)]
                numbers = [_load(job, "values", axis) for axis in range(x.ndim)]
                share = constant_share(vectors, numbers, job.noise_variance, region)
                x += share**2 / job.constant_precision
            if job.include_noise:
                x += job.noise_variance
            np.sqrt(x, out=x)
    return x


def _of_tile(job: Job, tiles: Tiles, chain: str, region: Region) -> NDArray[np.float64]:
    x, residual = tiles.posterior(job.source, region, float(_mean(job, region).item()), chain)
    if residual > tiles.tol:
        where = "-".join(str(part.start) for part in region)
        (Path(job.folder) / f"{UNCONVERGED}{where}.json").write_text(json.dumps(residual))
    if chain == MEAN:
        x = x + _mean(job, region)
    else:
        x = np.sqrt(x + job.noise_variance if job.include_noise else x)
    domain = _file(Path(job.folder), "domain", 0)
    if domain.exists():
        inside = np.load(domain, allow_pickle=False)
        domain_region = tuple(
            part if n > 1 else slice(0, 1) for part, n in zip(region, inside.shape, strict=True)
        )
        x = np.where(inside[domain_region], x, np.nan)
    return x


def save_domain(folder: Path, domain: NDArray[np.bool_]) -> None:
    """Save which cells are to be filled for the tasks, with length 1 along irrelevant axes."""
    np.save(_file(folder, "domain", 0), domain)


def save_inputs(
    folder: Path,
    vectors: Sequence[NDArray[np.float64]],
    values: Sequence[NDArray[np.float64]],
    mean: NDArray[np.float64],
) -> None:
    """Save the arrays that tasks need."""
    for axis, (columns, numbers) in enumerate(zip(vectors, values, strict=True)):
        np.save(_file(folder, "vectors", axis), columns)
        np.save(_file(folder, "values", axis), numbers)
    np.save(_file(folder, "mean", 0), mean)


def load_inputs(folder: Path, name: str, axis: int) -> NDArray[np.float64]:
    """Return an array that was saved: "vectors", "values" of an axis, or the "mean" (axis 0)."""
    return np.load(_file(folder, name, axis), allow_pickle=False)


def _load(job: Job, name: str, axis: int) -> NDArray[np.float64]:
    return load_inputs(Path(job.folder), name, axis)


def _file(folder: Path, name: str, axis: int) -> Path:
    return folder / f"{name}-{axis}.npy"


def _mean(job: Job, region: Region) -> NDArray[np.float64]:
    """Return the prior mean in a region, with length 1 along axes on which it does not depend."""
    mean = _load(job, "mean", 0)
    return mean[
        tuple(part if n > 1 else slice(0, 1) for part, n in zip(region, mean.shape, strict=True))
    ]


def _read(path: Path, region: Region) -> NDArray[np.float64]:
    try:
        array: Any = zarr.open_array(str(path), mode="r")
    # zarr and its codecs raise many types of errors for damaged data; all mean the same here and
    # below.
    except Exception as error:
        raise _damaged(path, region, error) from error
    x = np.empty(lengths(region))
    for part in pieces(region, array.chunks):
        try:
            values = np.asarray(array[part])
        except MemoryError:
            raise
        except Exception as error:
            raise _damaged(path, part, error) from error
        if np.isnan(values).any():
            raise _damaged(path, part, "it is missing or incomplete")
        x[relative(part, region)] = values
    return x


def _damaged(path: Path, region: Region, why: Exception | str) -> DamagedError:
    where = ", ".join(f"{part.start}:{part.stop}" for part in region)
    return DamagedError(
        f"the chunk of cells [{where}] of {str(path)!r} cannot be read ({why}); run it again: "
        "what depends on it is computed again, and all else is kept",
        region,
    )


def _write(path: Path, region: Region, x: NDArray[np.float64]) -> None:
    try:
        # A chunk that is entirely fill value need not be looked for: it may not exist, and looking
        # takes time. Otherwise it would not be written at all, and would look like one that was
        # lost.
        array: Any = zarr.open_array(str(path), mode="r+").with_config({"write_empty_chunks": True})
        for part in pieces(region, array.chunks):
            array[part] = x[relative(part, region)]
    except OSError as error:
        raise StorageError(
            f"cannot write {str(path)!r}: {error.strerror or error}; finished work is kept: "
            "correct this and run it again"
        ) from error
