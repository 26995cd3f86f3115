"""The posterior of a field on disk, pass by pass, on the workers of a cluster or on threads.

Between passes there is a barrier; what is finished is in the manifest of the work folder beside
the output, from which an interrupted job resumes.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp import compute
from dsgp.addresses import Place, address_of, local_path
from dsgp.clients import active_client
from dsgp.errors import ConvergenceWarning, DataError, ParameterError, StorageError
from dsgp.grid.outputs import PLAIN, Labels
from dsgp.grid.passes import results, tasks
from dsgp.grid.passes.gappy import Tiles, plan_tiles, tile_error
from dsgp.grid.passes.inputs import Basis, checked
from dsgp.grid.passes.jobs import begun, forget_what_is_gone, resumed
from dsgp.grid.passes.plan import Plan
from dsgp.grid.passes.planning import make_plan
from dsgp.grid.passes.resources import memory_of_a_task, require_disk, size_of
from dsgp.grid.passes.running import run_pass
from dsgp.grid.passes.source import StoredField
from dsgp.grid.passes.tasks import RESULT, Job
from dsgp.locks import only_here
from dsgp.progress import progress

_DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class PassesReport:
    """Report of a field that was smoothed from disk to disk.

    Parameters
    ----------
    path : Path
        The result.
    plan : Plan
    n_run : int
        Number of tasks that this call ran.
    n_resumed : int
        Number of tasks that an earlier call had finished.
    seconds : float
        Wall time of this call.
    tile_error : dict or None
        For a field with gaps: the change by twice the halo in the middle of one tile, "mean" in
        standard deviations, "std" relative; and "local", the mean relative excess of its standard
        deviations over exact ones. None: the result is exact.
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
        One per axis, in ascending order of its coordinates; ``vectors`` of shape (G, G) and
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
        Resume an earlier call with the same inputs that was interrupted. False starts from the
        beginning.
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
    the report has the change by twice the halo in one tile.

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
        As for ``posterior_to_store``, which also lists the errors.
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
    """The request for a result, before it is planned."""

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
            f"cannot write to the address {address!r}: a field processed in pieces is written to a "
            "disk, where an interrupted job can be resumed and the result is moved into place; "
            "write to a path of this machine, and copy the result there"
        )
    out = local_path(str(out)).absolute()
    if memory is not None and not memory > 0:
        raise ParameterError(f"memory must be positive, in bytes; got {memory}")
    folder = out.parent / f".{out.name}.passes"
    results.check_free(out, folder, order.source.path, overwrite)
    refusal = (
        f"another process is writing {str(out)!r}: wait until it ends, or choose another path "
        "(nothing was changed)"
    )
    with only_here(folder.with_name(f"{folder.name}.lock"), refusal):
        report = _carry_out_alone(order, out, folder, memory, resume)
    return replace(report, seconds=time.monotonic() - began)


def _carry_out_alone(
    order: _Order, out: Path, folder: Path, memory: float | None, resume: bool
) -> PassesReport:
    """Do the work of a job in its folder, which no other process uses."""
    source = order.source
    client = active_client()
    if memory is None:
        memory = memory_of_a_task(client)
    names = [order.labels.mean, order.labels.std]
    fingerprint = {"source": source.fingerprint(), "names": names, **order.fingerprint}
    manifest = resumed(folder, fingerprint, *order.inputs, memory) if resume else None
    if manifest is None:
        plan = order.plan(memory)
        shutil.rmtree(folder, ignore_errors=True)
        require_disk(plan, out.parent, 0)
        manifest = begun(
            folder, fingerprint, plan, source, *order.inputs, order.domain, order.labels
        )
    else:
        require_disk(manifest.plan, out.parent, size_of(folder))
    job = Job(
        str(manifest.work), source, manifest.plan, float(order.noise_variance), order.include_noise,
        order.tiles, order.labels, order.constant_precision,
    )  # fmt: skip
    result = manifest.work / RESULT
    if not (result / "zarr.json").exists():
        results.create(result, source, manifest.plan, order.labels)
    forget_what_is_gone(job, manifest)
    n_resumed = manifest.n_done
    with (
        compute.one_blas_thread(),
        progress("posterior", total=manifest.plan.n_tasks - n_resumed) as bar,
    ):
        for p in range(len(manifest.plan.passes)):
            # Passes after the first one read from the folder, unless there are tiles.
            seen = fingerprint["source"] if p == 0 or order.tiles is not None else None
            with _unchanged(source, seen):
                run_pass(client, job, manifest, p, bar)
    report = PassesReport(out, manifest.plan, manifest.plan.n_tasks - n_resumed, n_resumed, 0.0)
    if order.tiles is not None:
        mean = float(order.inputs[2].item())
        report = replace(
            report,
            tile_error=tile_error(source, order.tiles, manifest.plan, mean),
            residual=_largest_residual(manifest.work),
        )
    results.install(result, out)
    shutil.rmtree(folder, ignore_errors=True)
    return report


@contextmanager
def _unchanged(source: StoredField, seen: dict[str, Any] | None) -> Iterator[None]:
    """Raise if the field changes during the block, also if a half-written chunk is an error."""
    try:
        yield
    except DataError:
        if seen is not None:
            source.require_same(seen)
        raise
    if seen is not None:
        source.require_same(seen)


def _largest_residual(folder: Path) -> float:
    """Return the largest residual of tiles that did not converge; 0 if all did."""
    residuals = [json.loads(file.read_text()) for file in folder.glob(f"{tasks.UNCONVERGED}*.json")]
    if residuals:
        warnings.warn(
            f"in {len(residuals)} tiles conjugate gradients stopped at relative residuals of up to "
            f"{max(residuals):.2g}, above the tolerance; allow more iterations (max_iter=)",
            ConvergenceWarning,
            stacklevel=4,
        )
    return max(residuals, default=0.0)


def _require_dtypes(**dtypes: str) -> None:
    for name, dtype in dtypes.items():
        if dtype not in _DTYPES:
            raise ParameterError(f"{name} must be one of {_DTYPES}; got {dtype!r}")
