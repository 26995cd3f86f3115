"""One fit on so many workers, in a process of its own: what driver and workers spent on what.

``python -m pipelines.scaling.cell`` reads a request as ``pipelines.scaling.run`` does. Seconds are
processor seconds unless they are called wall seconds: those do not depend on what else runs.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.system import CPU_COUNT
from distributed import Client

from cluster.local.launch import Local, start
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.places import replace_text
from pipelines.reporting import environment, gathered_warnings, machine, plain_errors
from pipelines.scaling.rows import N_COLUMNS, synth8d_blocks
from pipelines.scaling.run import WARM_UP_ROWS, Settings, model_of, own_peak_memory_mb

# Rows of a chunk: those of a logical block, so that none travels from worker to worker.
CHUNK = 2**19
ROW_BYTES = 8 * (N_COLUMNS + 1)
PASSES = 2
# What a task and a byte cost is also measured by itself: in fits of one model both grow with rows.
PROBE_TASKS = 400
PROBE_ARRAYS, PROBE_BYTES = 20, 4 * 2**20
# Of tasks that make or read rows; what dask calls those of the collection does not begin so.
_OURS, _READ = "dsgp-", "dsgp-read"


@dataclass(frozen=True)
class Spent:
    """What was spent so far, or in between.

    Attributes
    ----------
    wall, driver : float
        Seconds; the driver's with those of the scheduler, wherever it runs.
    workers : dict of str to float
        Seconds of each worker process, by its address.
    computing, reading : float
        Of the workers' seconds those within tasks of ours, and within those that make rows.
    tasks, sent_bytes : float
        Tasks that were finished; bytes that workers sent, to the driver or to each other.
    """

    wall: float
    driver: float
    workers: dict[str, float]
    computing: float
    reading: float
    tasks: float
    sent_bytes: float

    @classmethod
    def so_far(cls, client: Client) -> "Spent":
        """Ask scheduler and workers."""
        n_tasks, scheduler, where = client.run_on_scheduler(_of_scheduler)
        apart = where != (socket.gethostname(), os.getpid())
        workers = client.run(_of_worker)
        tasks = [entry for worker in workers.values() for entry in worker["tasks"]]
        reading = sum(seconds for name, seconds in tasks if _reads(name))
        return cls(
            wall=time.perf_counter(),
            driver=time.process_time() + (scheduler if apart else 0.0),
            workers={address: worker["seconds"] for address, worker in workers.items()},
            computing=sum(seconds for _, seconds in tasks) - reading,
            reading=reading,
            tasks=n_tasks,
            sent_bytes=sum(worker["sent"] for worker in workers.values()),
        )

    def since(self, before: "Spent") -> dict[str, Any]:
        """Return the difference; ``workers`` becomes a list, in the order of the addresses."""
        plain = {
            name: getattr(self, name) - getattr(before, name)
            for name in ("wall", "driver", "computing", "reading", "tasks", "sent_bytes")
        }
        workers = [
            seconds - before.workers.get(address, 0.0)
            for address, seconds in sorted(self.workers.items())
        ]
        return {**plain, "workers": workers}


def _reads(task: str) -> bool:
    return not task.startswith(_OURS) or task == _READ


def _of_scheduler(dask_scheduler: Any) -> tuple[int, float, tuple[str, int]]:
    finished = sum(
        prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values()
    )
    return finished, time.process_time(), (socket.gethostname(), os.getpid())


def _of_worker(dask_worker: Any) -> dict[str, Any]:
    # Keys are ("execute", span, name of the task, activity, unit).
    tasks = [
        (key[-3], value)
        for key, value in dask_worker.digests_total.items()
        if isinstance(key, tuple) and key[0] == "execute" and key[-2:] == ("thread-cpu", "seconds")
    ]
    return {
        "seconds": time.process_time(),
        "sent": dask_worker.transfer_outgoing_bytes_total,
        "tasks": tasks,
    }


def _of_host() -> tuple[str, int]:
    return socket.gethostname(), CPU_COUNT


@contextmanager
def workers_of(scheduler: str | None, n_workers: int) -> Iterator[tuple[Client, list[str]]]:
    """Yield a client, and the addresses of the workers that tasks are sent to within.

    Parameters
    ----------
    scheduler : str or None
        Of a cluster with at least so many workers; None starts one on this machine, of worker
        processes with one thread.
    n_workers : int

    Raises
    ------
    ParameterError
        If there are not as many workers.
    """
    if scheduler is None:
        recipe = {"n_workers": n_workers, "dashboard_port": None}
        with start(Local.model_validate(recipe)) as running:
            with workers_of(running.address, n_workers) as both:
                yield both
            return
    with Client(scheduler, timeout="10s") as client:
        addresses = sorted(client.nthreads())[:n_workers]
        if len(addresses) < n_workers:
            raise ParameterError(
                f"the cluster at {scheduler} has {len(addresses)} workers, and {n_workers} are "
                "needed; start more, or name fewer with --workers"
            )
        threads = {address: client.nthreads()[address] for address in addresses}
        if set(threads.values()) != {1}:
            raise ParameterError(
                f"workers of one thread are measured, and those of {scheduler} have "
                f"{max(threads.values())}; start them with threads_per_worker: 1"
            )
        with dask.annotate(workers=addresses, allow_other_workers=False):
            yield client, addresses


def measure(settings: Settings, client: Client, addresses: list[str]) -> dict[str, Any]:
    """Fit on these workers, after a small fit that loads the compiled code."""
    model_of(settings.model).fit(*synth8d_blocks(WARM_UP_ROWS, settings.seed, CHUNK // 64))
    probes = {"tasks": _probe_tasks(client, addresses), "bytes": _probe_bytes(client, addresses)}
    rows = synth8d_blocks(settings.n, settings.seed, CHUNK)
    before = Spent.so_far(client)
    model = model_of(settings.model).fit(*rows)
    spent = Spent.so_far(client).since(before)
    hosts = dict([_of_host(), *client.run(_of_host, workers=addresses).values()])
    peaks = client.run(own_peak_memory_mb, workers=addresses)
    return {
        "seconds": {"fit": spent["wall"]},
        "spent": spent,
        "probes": probes,
        "read_bytes": PASSES * settings.n * ROW_BYTES,
        "stages": {name: float(value) for name, value in model.fit_seconds_.items()},
        "workers_peak_memory_mb": max(peaks.values()),
        "driver_peak_memory_mb": own_peak_memory_mb(),
        # All that is there for driver and workers together.
        "cores": sum(hosts.values()),
    }


def _probe_tasks(client: Client, addresses: list[str]) -> dict[str, Any]:
    """Have tasks that do nothing."""
    before = Spent.so_far(client)
    client.gather(client.map(_nothing, range(PROBE_TASKS), pure=False, workers=addresses))
    return Spent.so_far(client).since(before)


def _probe_bytes(client: Client, addresses: list[str]) -> dict[str, Any]:
    """Have arrays made that are sent here."""
    before = Spent.so_far(client)
    made = client.map(_zeros, range(PROBE_ARRAYS), pure=False, workers=addresses)
    for future in made:
        future.result()
    return Spent.so_far(client).since(before)


def _nothing(_: int) -> None:
    return None


def _zeros(_: int) -> Any:
    return np.zeros(PROBE_BYTES, dtype=np.uint8)


def main() -> None:
    """Run what the standard input asks for."""
    asked = json.load(sys.stdin)
    exit_on_termination()
    with plain_errors():
        settings = Settings(**asked["settings"])
        with (
            gathered_warnings() as messages,
            workers_of(asked["scheduler"], settings.cluster["workers"]) as (client, addresses),
        ):
            outcome = measure(settings, client, addresses)
        record = {
            "settings": asdict(settings),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **outcome,
            "warnings": messages,
            "versions": environment(),
            "machine": machine(),
        }
        replace_text(Path(asked["path"]), json.dumps(record, indent=2, allow_nan=False))


if __name__ == "__main__":
    main()
