"""Faults that end a job: in time, with an error that says what to do."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest

from dsgp import versions
from dsgp.errors import ClusterError
from dsgp.waiting import in_order
from tests.faults.jobs import NO_WORKERS, PATIENCE, STALL, wait_until


def test_all_workers_are_gone(cluster, running, kind):
    job = running(cluster.address, kind)
    cluster.kill()
    cluster.kill()
    began = time.monotonic()
    job.require_error(ClusterError, f"has had no worker for {NO_WORKERS:.3g} s", "start workers")
    assert time.monotonic() - began > NO_WORKERS / 2


def test_the_scheduler_is_frozen(cluster, running, kind):
    job = running(cluster.address, kind)
    os.kill(cluster.scheduler, signal.SIGSTOP)
    try:
        job.require_error(ClusterError, cluster.address, "has not answered for", "start the job")
    finally:
        os.kill(cluster.scheduler, signal.SIGCONT)
    job.go_on()


def test_the_scheduler_is_killed(own_cluster, running, kind):
    cluster = own_cluster(n_workers=1)
    job = running(cluster.address, kind)
    cluster.zygote.kill(cluster.scheduler)
    message = "the scheduler, or the connection to it, is lost"
    job.require_error(ClusterError, message, "whole or not at all")


def test_the_scheduler_is_killed_and_started_again(own_cluster, running, kind, expected):
    cluster = own_cluster(n_workers=1)
    job = running(cluster.address, kind)
    cluster.zygote.kill(cluster.scheduler)
    cluster.start_scheduler(int(cluster.address.rpartition(":")[2]))
    cluster.workers.append(cluster.worker())
    job.go_on()
    job.require(expected[kind])


def test_a_task_ends_its_workers(own_cluster, running, kind):
    cluster = own_cluster(
        n_workers=1, scheduler_config={"distributed.scheduler.allowed-failures": 0}
    )
    job = running(cluster.address, kind)
    (job.gate.folder / "fatal").touch()
    cluster.kill()
    job.require_error(ClusterError, "has ended 1 workers", "out of memory", "memory_limit")


def test_the_reason_is_reported_whichever_task_is_waited_for(own_cluster, patience):
    """The task that is given up need not be the one whose result comes next."""
    cluster = own_cluster(
        n_workers=1, scheduler_config={"distributed.scheduler.allowed-failures": 0}
    )
    client = cluster.admin
    sends = [
        partial(client.submit, abs, 1, workers="nowhere", allow_other_workers=False),
        partial(client.submit, time.sleep, PATIENCE, pure=False),
    ]
    results = in_order(sends, 2, client)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(next, results)
        wait_until(lambda: any(client.processing().values()), "a task under way")
        cluster.kill()
        with pytest.raises(ClusterError, match="task 'sleep' has ended 1 workers"):
            waits.result(PATIENCE)


def test_a_worker_is_out_of_memory(own_cluster, running, kind):
    cluster = own_cluster(n_workers=1, memory_limit=64 * 2**20)  # Python has more than that
    wait_until(
        lambda: (
            "paused" in {w["status"] for w in cluster.admin.scheduler_info()["workers"].values()}
        ),
        "a paused worker",
    )
    job = running(cluster.address, kind, held=False)
    job.require_error(ClusterError, "is out of memory", "of 64 MiB in use", "memory_limit")


def test_versions_differ(cluster, running, kind, monkeypatch):
    monkeypatch.setattr(versions, "version", lambda package: "0.0.1")
    began = time.monotonic()
    job = running(cluster.address, kind, held=False)
    job.require_error(ClusterError, "and not 0.0.1", f"numpy {np.__version__}", "nothing has been")
    assert time.monotonic() - began < PATIENCE
    assert not list(job.gate.folder.iterdir())  # nothing was read


@pytest.mark.parametrize("scheduler", ["lives", "is killed"])
def test_a_command_ends_with_one_line(own_cluster, tmp_path, scheduler):
    cluster = own_cluster(n_workers=0)
    pd.DataFrame({"a": np.linspace(0, 1, 50), "y": np.zeros(50)}).to_parquet(tmp_path / "0.parquet")
    out = tmp_path / "m.zarr"
    arguments = ["fit", str(tmp_path / "*.parquet"), "--target", "y", "--out", str(out)]
    patience = {"distributed.scheduler.no-workers-timeout": NO_WORKERS, "dsgp.stall-timeout": STALL}
    if scheduler == "is killed":
        patience["distributed.scheduler.no-workers-timeout"] = PATIENCE
    pid, log = cluster.zygote.start(
        "command", arguments=[*arguments, "--scheduler", cluster.address], config=patience
    )
    if scheduler == "is killed":
        wait_until(lambda: _n_tasks(cluster) > 0, "work that waits")
        cluster.zygote.kill(cluster.scheduler)
    assert cluster.zygote.exit_code(pid) == 1
    last = log.read_text().splitlines()[-1]
    assert last.startswith("Error: the scheduler")
    assert "Traceback" not in log.read_text()
    assert not out.exists()


def _n_tasks(cluster):
    return cluster.admin.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
