"""A field larger than memory: peak memory, wall time beside what it cannot avoid, and resumption.

``python -m benchmarks.grid_store --gib 4 --workers 2 --worker-memory 1GiB --kill``.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import psutil
import typer
import xarray as xr
import zarr
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from typer import Option

from benchmarks.pages import circumstances, command, json_text, markdown, plain, say, show
from dsgp.errors import ParameterError
from dsgp.grid.passes import PassesReport, StoredField, posterior_to_store
from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Matern32, Matern52
from pipelines.reporting import plain_errors

MODULE = "benchmarks.grid_store"
NOISE_VARIANCE = 0.25
MEAN = 1.0
RATIO = 4.0  # of the wall time to that of the files and the bare products
TOLERANCE = 1e-8  # of mean and std, over σ
ROUNDINGS = 100.0  # 12 to 18 at the worst cell of fields of 9 000 to 8 million cells
BLOCK = 2**24  # bytes that raw file I/O moves at a time
GIB = 2**30

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


# ---------------------------------------------------------------------- the field


def shape_of(gib: float) -> tuple[int, ...]:
    """Return 512 × 1024 × 1024, or what has the same proportions."""
    scale = (gib / 4) ** (1 / 3)
    return round(512 * scale), round(1024 * scale), round(1024 * scale)


def make_field(path: Path, shape: tuple[int, ...]) -> None:
    """Write waves and noise, one time step per chunk."""
    coords = {
        "time": np.arange(shape[0], dtype=float),
        "lat": np.linspace(80, -80, shape[1]),  # descending, as it mostly is
        "lon": np.linspace(0, 360, shape[2], endpoint=False),
    }
    xr.Dataset(coords=coords).to_zarr(path, zarr_format=3, consolidated=False)
    array = zarr.open_group(str(path), mode="r+").create_array(
        "t", shape=shape, chunks=(1, *shape[1:]), dtype="float64", dimension_names=tuple(coords)
    )
    rng = np.random.default_rng(0)
    lat, lon = np.radians(coords["lat"])[:, None], np.radians(coords["lon"])
    for step in range(shape[0]):
        waves = np.sin(3 * lon + step / 20) * np.cos(lat) + np.cos(5 * lat - step / 40)
        array[step] = MEAN + waves + rng.normal(0, math.sqrt(NOISE_VARIANCE), shape[1:])


def covariances(shape: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return those of the axes in ascending order."""
    lat = np.linspace(-80, 80, shape[1])
    lon = np.linspace(0, 360, shape[2], endpoint=False)
    return [
        Matern32(30.0, 1.0).covariance(np.arange(shape[0], dtype=float)),
        Matern52(20.0, 1.0).covariance(lat),
        Matern52(20.0, 1.0).covariance(lon),
    ]


def bases_of(shape: tuple[int, ...]) -> list[Any]:
    """Return their eigenbases."""
    found = []
    for covariance in covariances(shape):
        values, vectors = np.linalg.eigh(covariance)
        found.append(SimpleNamespace(vectors=vectors, values=np.maximum(values, 0)))
    return found


# ---------------------------------------------------------------------- the job, in its own process


class Watch:
    """Peak resident memory of processes, by looking every few milliseconds."""

    def __init__(self, pids: Callable[[], list[int]], every: float = 0.02) -> None:
        self.peaks: dict[int, int] = {}
        self._pids = pids
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(self._every):
            for pid in self._pids():
                try:
                    size = psutil.Process(pid).memory_info().rss
                except psutil.Error:
                    continue
                self.peaks[pid] = max(self.peaks.get(pid, 0), size)


@app.command(hidden=True)
def job(source: Path, out: Path, report: Path, workers: int, memory: str) -> None:
    """Run the passes on a cluster of this machine."""
    stored = StoredField(source, "t", (False, True, False))
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=memory,
            host="127.0.0.1", dashboard_address=None, worker_dashboard_address=None,
            # The scheduler serves its state in any case, by default on all interfaces.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster),
        Watch(lambda: [nanny.pid for nanny in cluster.workers.values() if nanny.pid]) as watch,
    ):  # fmt: skip
        bases = bases_of(stored.shape)  # known before: not timed
        done: PassesReport = posterior_to_store(stored, bases, NOISE_VARIANCE, MEAN, out)
    report.write_text(
        json.dumps(
            {
                "seconds": done.seconds,
                "n_run": done.n_run,
                "n_resumed": done.n_resumed,
                "peaks": sorted(watch.peaks.values()),
                "plan": done.plan.as_json(),
                "description": done.plan.describe(),
            }
        ),
        encoding="utf-8",
    )


def start_job(folder: Path, out: Path, workers: int, memory: str) -> subprocess.Popen[bytes]:
    """Start it, in a session of its own."""
    arguments = [folder / "field.zarr", out, folder / "report.json", str(workers), memory]
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, "job", *map(str, arguments)], start_new_session=True
    )


def finished(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """Wait for it, and return its report."""
    if process.wait():
        raise ParameterError(f"the job ended with {process.returncode}; see above")
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def kill_in_the_middle(process: subprocess.Popen[bytes], out: Path, n_tasks: int) -> int:
    """Kill the driver and its workers when half of the tasks are done; return how many were."""
    manifest = out.parent / f".{out.name}.passes" / "manifest.json"
    while True:
        if process.poll() is not None:
            raise ParameterError("the job ended before it could be killed")
        time.sleep(0.02)
        try:
            stored = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        n_done = sum(len(which) for _, _, which in stored["done"])
        if 2 * n_done >= n_tasks:
            break
    family = [process.pid, *(one.pid for one in psutil.Process(process.pid).children(True))]
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    return n_done


# ---------------------------------------------------------------------- what cannot be avoided


def _write_raw(arguments: tuple[str, int]) -> None:
    path, size = arguments
    block = np.random.default_rng(0).bytes(min(BLOCK, size))
    with open(path, "wb") as file:
        for start in range(0, size, BLOCK):
            file.write(block[: size - start])


def _read_raw(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(BLOCK):
            pass


def _multiply(arguments: tuple[int, int, int, int]) -> None:
    """Multiply along each axis so many planes and tiles as make a share of the field."""
    n0, n1, n2, planes = arguments
    rng = np.random.default_rng(0)
    q0, q1, q2 = (rng.standard_normal((n, n)) for n in (n0, n1, n2))
    plane, tile = rng.standard_normal((n1, n2)), rng.standard_normal((n0, n2))
    out, out0 = np.empty_like(plane), np.empty_like(tile)
    for _ in range(planes):
        np.matmul(plane, q2, out=out)
        np.matmul(q1, plane, out=out)
    for _ in range(round(planes * n1 / n0)):
        np.matmul(q0, tile, out=out0)


@contextmanager
def processes(n: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that have started, with one thread of BLAS each."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        with ProcessPoolExecutor(n, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_multiply, [(2, 2, 2, 1)] * 4 * n))
            yield pool
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


def seconds_of(call: Callable[[], Any]) -> float:
    """Wall seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def unavoidable(folder: Path, shape: tuple[int, ...], workers: int) -> dict[str, float]:
    """Time reading the field, writing two results and the nine products, in as many processes."""
    size = 8 * math.prod(shape)
    part = -(-size // 8)
    files = [str(folder / f"raw-{k}") for k in range(24)]
    with processes(workers) as pool:
        write = seconds_of(lambda: list(pool.map(_write_raw, [(one, part) for one in files[8:]])))
        list(pool.map(_write_raw, [(one, part) for one in files[:8]]))
        read = seconds_of(lambda: list(pool.map(_read_raw, files[:8])))
        for one in files:
            os.remove(one)
        # Forth, back, and back for the variance.
        n0, n1, n2 = shape
        planes = [
            (n0, n1, n2, len(part)) for part in np.array_split(np.arange(shape[0]), 4 * workers)
        ]
        products = seconds_of(lambda: list(pool.map(_multiply, planes * 3)))
    return {"read": read, "write": write, "products": products}


# ---------------------------------------------------------------------- checks


def digest(out: Path) -> str:
    """Hash all values of a posterior."""
    group: Any = zarr.open_group(str(out), mode="r")
    found = hashlib.sha256()
    for name in ("mean", "std"):
        for step in range(group[name].shape[0]):
            found.update(np.ascontiguousarray(group[name][step]).tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Errors:
    """How far a posterior is from what it should be."""

    spectrum: float  # of the mean along some eigenvectors of the whole field, over σ
    std: float  # at some cells, over σ
    residual: float  # of the equations at some cells, in roundings: ε λ_max / σ² of σ


def errors_of(source: Path, out: Path) -> Errors:
    """Compare with what is known without a solution, in one reading of the field.

    Along an eigenvector q of eigenvalue λ, qᵀ(mean - μ) = λ / (λ + σ²) qᵀ(y - μ): well conditioned,
    and every cell takes part. The variance at a cell is summed over the spectrum. The equations
    mean - μ = K (y - mean) / σ² involve neither eigenvectors nor passes, but amplify the last digit
    of the mean by λ_max / σ²: their residual is reported in units of that.
    """
    stored: Any = zarr.open_group(str(source), mode="r")["t"]
    found: Any = zarr.open_group(str(out), mode="r")
    shape = stored.shape
    cells = [tuple(int(f * (n - 1)) for n in shape) for f in (0.0, 0.31, 0.5, 0.77)]
    # From the largest eigenvalue down to where the mean is nearly all prior.
    triples = [tuple(n - 1 - min(k, n - 1) for n in shape) for k in (0, 1, 2, 3, 5, 8, 13, 40)]
    K = covariances(shape)
    K[1] = K[1][::-1, ::-1]
    q = bases_of(shape)
    q[1].vectors = q[1].vectors[::-1]
    means, variances = np.full(len(cells), MEAN), np.zeros(len(cells))
    projected = np.zeros((2, len(triples)))
    plane = np.multiply.outer(q[1].values, q[2].values)
    for step in range(shape[0]):
        y, mean = stored[step], found["mean"][step]
        alpha = (y - mean) / NOISE_VARIANCE
        spectrum = q[0].values[step] * plane
        spectrum *= NOISE_VARIANCE / (spectrum + NOISE_VARIANCE)
        for n, (a, b, c) in enumerate(cells):
            means[n] += K[0][a, step] * (K[1][b] @ alpha @ K[2][c])
            squares = q[1].vectors[b] ** 2 @ spectrum @ q[2].vectors[c] ** 2
            variances[n] += q[0].vectors[a, step] ** 2 * squares
        for n, (i, j, k) in enumerate(triples):
            for row, values in enumerate((y, mean)):
                along = q[1].vectors[:, j] @ (values - MEAN) @ q[2].vectors[:, k]
                projected[row, n] += q[0].vectors[step, i] * along
    values = np.array([math.prod(one.values[n] for one, n in zip(q, t, strict=True))
                       for t in triples])  # fmt: skip
    off = projected[1] - values / (values + NOISE_VARIANCE) * projected[0]
    largest = math.prod(one.values.max() for one in q)
    rounding = float(np.finfo(float).eps * largest / NOISE_VARIANCE)
    sigma = math.sqrt(NOISE_VARIANCE)
    stds = [
        abs(found["std"][cell] - math.sqrt(v)) for cell, v in zip(cells, variances, strict=True)
    ]
    residuals = [abs(found["mean"][cell] - m) for cell, m in zip(cells, means, strict=True)]
    return Errors(
        spectrum=float(np.abs(off).max()) / sigma,
        std=float(max(stds)) / sigma,
        residual=float(max(residuals)) / sigma / rounding,
    )


# ---------------------------------------------------------------------- the benchmark


@dataclass
class Found:
    """What was measured, and what was promised of it."""

    gib: float
    shape: tuple[int, ...]
    workers: int
    limit: int
    seconds: float = 0.0
    peaks: list[int] = field(default_factory=list)
    raw: dict[str, float] = field(default_factory=dict)
    errors: Errors = field(default_factory=lambda: Errors(math.nan, math.nan, math.nan))
    description: str = ""
    killed_after: int | None = None
    n_resumed: int | None = None
    identical: bool | None = None

    @property
    def ratio(self) -> float:
        return self.seconds / sum(self.raw.values())

    @property
    def promises(self) -> dict[str, bool | None]:
        return {
            "peak memory of each worker under its limit": max(self.peaks) < self.limit,
            f"wall time at most {RATIO:g} times the files and products": self.ratio <= RATIO,
            f"mean and std right to {TOLERANCE:g}": max(self.errors.spectrum, self.errors.std)
            < TOLERANCE,
            f"residual at most {ROUNDINGS:g} roundings": self.errors.residual < ROUNDINGS,
            "killed and started again: the same bits": self.identical,
        }


def rows_of(found: Found) -> list[tuple[str, str]]:
    return [
        ("field", f"{found.shape}, {found.gib:g} GiB"),
        ("passes, wall seconds", plain(found.seconds)),
        ("raw read / write / bare products, seconds",
         " / ".join(plain(found.raw[name]) for name in ("read", "write", "products"))),
        ("passes / (raw + products)", plain(found.ratio)),
        ("peak memory of the workers, MiB", ", ".join(f"{p / 2**20:.0f}" for p in found.peaks)),
        ("limit, MiB", f"{found.limit / 2**20:.0f}"),
        ("error along eigenvectors / of std at cells, over σ",
         f"{found.errors.spectrum:.1e} / {found.errors.std:.1e}"),
        ("residual of the equations at cells, roundings ε λ_max / σ²",
         f"{found.errors.residual:.1f}"),
        *([("killed after / resumed with, tasks", f"{found.killed_after} / {found.n_resumed}")]
          if found.killed_after is not None else []),
        *((promise, {True: "kept", False: "BROKEN", None: "not measured"}[kept])
          for promise, kept in found.promises.items()),
    ]  # fmt: skip


EXAMPLES = """\b
Examples:
  python -m benchmarks.grid_store --gib 0.25
  python -m benchmarks.grid_store --gib 4 --kill --check
"""


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def run(
    context: typer.Context,
    gib: Annotated[float, Option(metavar="N", help="Size of the field.")] = 4.0,
    workers: Annotated[
        int, Option(metavar="N", help="Number of worker processes, with one thread each.")
    ] = 2,
    worker_memory: Annotated[
        str, Option(metavar="SIZE", help="Memory limit of each worker.")
    ] = "1GiB",
    folder: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder for temporary files.")
    ] = None,
    kill: Annotated[
        bool, Option("--kill", help="Kill the job in the middle and start it again.")
    ] = False,
    check: Annotated[
        bool, Option("--check", help="Exit with 1 unless every promise holds; needs --kill.")
    ] = False,
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path(
        "results/grid_store"
    ),
) -> None:
    """Measure the passes over a field on disk on a cluster of this machine."""
    exit_on_termination()
    if context.invoked_subcommand:
        return
    with plain_errors():
        if not gib > 0 or workers < 1:
            raise ParameterError("--gib must be positive and --workers at least 1")
        try:
            limit = parse_bytes(worker_memory)
        except ValueError as error:
            raise ParameterError(f"--worker-memory: {error}") from error
        found = Found(gib, shape_of(gib), workers, limit)
        with tempfile.TemporaryDirectory(prefix="dsgp-grid-", dir=folder) as name:
            measure(Path(name), found, worker_memory, kill)
        rows = rows_of(found)
        out.mkdir(parents=True, exist_ok=True)
        report = {**circumstances(MODULE), **asdict(found), "promises": found.promises}
        (out / "grid_store.json").write_text(json_text(report), encoding="utf-8")
        page = [
            "# A field larger than memory", "", f"`{command(MODULE)}`", "",
            *markdown(("what", "figure"), rows), "", found.description,
        ]  # fmt: skip
        (out / "grid_store.md").write_text("\n".join(page) + "\n", encoding="utf-8")
        show("A field larger than memory", ("what", "figure"), rows)
        say(found.description)
        if check and not all(found.promises.values()):  # what is not measured does not pass
            raise typer.Exit(1)


def measure(folder: Path, found: Found, memory: str, kill: bool) -> None:
    """Make the field, time everything, and fill in what was found."""
    source, result = folder / "field.zarr", folder / "posterior.zarr"
    say("making the field")
    make_field(source, found.shape)
    say("raw files and bare products")
    found.raw = unavoidable(folder, found.shape, found.workers)
    say("passes")
    report = finished(start_job(folder, result, found.workers, memory), folder)
    found.seconds, found.peaks = report["seconds"], report["peaks"]
    found.description = report["description"]
    found.errors = errors_of(source, result)
    if not kill:
        return
    expected = digest(result)
    shutil.rmtree(result)
    say("passes, killed")
    n_tasks = report["n_run"]
    process = start_job(folder, result, found.workers, memory)
    found.killed_after = kill_in_the_middle(process, result, n_tasks)
    say("passes, again")
    again = finished(start_job(folder, result, found.workers, memory), folder)
    found.n_resumed = again["n_resumed"]
    found.peaks += again["peaks"]
    found.identical = digest(result) == expected and again["n_resumed"] > 0


if __name__ == "__main__":
    app(prog_name=f"python -m {MODULE}")
