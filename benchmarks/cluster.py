"""Where the work of a fit is done on two worker processes, and whether memory stays flat.

``python -m benchmarks.cluster share --model regression --rows 1e7`` prints the processor seconds of
driver and workers and the driver's memory, for the model on workers or on threads; equal digests
of two runs are equal bits. ``python -m benchmarks.cluster flat`` repeats passes over rows that
workers keep.
"""

import hashlib
import json
import time
from functools import partial
from typing import Annotated, Any

import dask.array as da
import numpy as np
import psutil
import typer
from distributed import Client, LocalCluster

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP
from dsgp.kernels import Matern52
from dsgp.worker_blocks import WorkerBlocks
from pipelines.scaling.rows import N_COLUMNS, synth8d_blocks
from pipelines.scaling.run import own_peak_memory_mb

CHUNK = 2**19
WARM_UP_ROWS = 40_000

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _model(name: str) -> Any:
    if name == "regression":
        return AdditiveGPRegressor(Matern52())
    if name == "classes":
        return AdditiveGPClassifier(Matern52())
    return GeneralizedAdditiveGP(name, kernel=Matern52())


def _rows(name: str, n: int) -> tuple[Any, Any]:
    X, y = synth8d_blocks(n, 2, chunk=CHUNK)
    if name == "classes":
        y = (y > 0).astype(float)
    elif name != "regression":
        y = da.floor(da.exp(da.clip(y, -3, 3)))
    return X, y


def _digest(model: Any) -> str:
    X = np.random.default_rng(0).standard_normal((200, N_COLUMNS))
    answer = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return hashlib.sha256(np.ascontiguousarray(answer(X)).tobytes()).hexdigest()[:12]


def _cluster() -> LocalCluster:
    return LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        worker_dashboard_address=None,
    )


def _workers_seconds(client: Client | None) -> float:
    return sum(client.run(time.process_time).values()) if client else 0.0


@app.command()
def share(
    model: Annotated[str, typer.Option(help="regression, classes, or a likelihood.")],
    rows: Annotated[float, typer.Option(help="Streamed rows.")] = 1e6,
    threads: Annotated[bool, typer.Option("--threads", help="Without workers.")] = False,
) -> None:
    """Measure a streamed fit, after a small one that loads the compiled code."""
    before = _peak_mb()
    if threads:
        _measure(model, int(rows), None, before)
        return
    with _cluster() as cluster, Client(cluster) as client:
        _measure(model, int(rows), client, before)


def _measure(name: str, n: int, client: Client | None, imported: float) -> None:
    _model(name).fit(*_rows(name, WARM_UP_ROWS))
    at_workers, here, wall = _workers_seconds(client), time.process_time(), time.perf_counter()
    model = _model(name).fit(*_rows(name, n))
    here, wall = time.process_time() - here, time.perf_counter() - wall
    at_workers = _workers_seconds(client) - at_workers
    peak = _peak_mb()
    record = {
        "model": name,
        "rows": n,
        "wall_seconds": round(wall, 1),
        "driver_cpu_seconds": round(here, 2),
        "workers_cpu_seconds": round(at_workers, 2),
        "share_on_workers": round(at_workers / (at_workers + here), 3),
        "driver_peak_mb_above_import": round(peak - imported),
        "stages": {stage: round(seconds, 1) for stage, seconds in model.fit_seconds_.items()},
        "digest": _digest(model),
    }
    typer.echo(json.dumps(record))


@app.command()
def flat(passes: Annotated[int, typer.Option(help="Over the rows.")] = 1000) -> None:
    """Measure memory (MB) of driver with scheduler, and of workers, while passes go by."""
    with _cluster() as cluster, Client(cluster) as client:
        blocks = WorkerBlocks(client, list(client.map(partial(np.full, 100_000), range(8))))
        tables = np.ones(4096)
        for number in range(passes + 1):
            list(blocks.each(partial(_pass, tables), name="rows"))
            if number % max(passes // 10, 1) == 0:
                record = {
                    "passes": number,
                    "driver_and_scheduler_mb": round(_memory_mb()),
                    "workers_mb": [round(size) for size in client.run(_memory_mb).values()],
                    "tasks": len(cluster.scheduler.tasks),
                }
                typer.echo(json.dumps(record))


def _pass(tables: Any, block: Any) -> Any:
    return tables * block.sum()


def _memory_mb() -> float:
    return float(psutil.Process().memory_info().rss / 2**20)


def _peak_mb() -> float:
    return own_peak_memory_mb() or _memory_mb()


if __name__ == "__main__":
    app()
