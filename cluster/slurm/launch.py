"""Start workers as SLURM jobs, as many as there is work for, and run a command on them.

``python cluster/slurm/launch.py -- dsgp fit /data/sales --target y --out model.zarr``
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from dask_jobqueue import SLURMCluster
from distributed import Security
from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster import encryption
from cluster.launching import LOOPBACK, ROOT, Running, WaitingRecipe, launch, script
from dsgp.errors import ParameterError


class Slurm(WaitingRecipe):
    """Jobs of one worker each; the scheduler runs where this is started, such as a login node."""

    partition: str | None = None
    account: str | None = None
    memory_limit: str = Field("4 GiB", description="Of one worker, and so of its job.")
    walltime: str = Field("01:00:00", description="Of a job; what it did is done again by others.")
    minimum_jobs: int = Field(1, ge=0, description="Kept, and replaced when they end.")
    maximum_jobs: int = Field(4, ge=1, description="Started where there is work for them.")
    interface: str | None = Field(
        None, description="Network interface that all nodes have, such as ib0; null: any."
    )
    tls_directory: Path = Field(
        description="Made by ../tls/certificates.py, in a folder that all nodes share."
    )
    log_directory: Path = Field(Path("slurm-logs"), description="What the jobs print.")
    directives: list[str] = Field([], description="More for #SBATCH, such as --constraint=skylake.")
    prologue: list[str] = Field([], description="Lines of shell before the worker starts.")


@contextmanager
def start(settings: Slurm) -> Iterator[Running]:
    """Start the scheduler here, and jobs with workers."""
    if shutil.which("sbatch") is None:
        raise ParameterError("there is no sbatch here; start this where jobs are submitted")
    dask.config.set(encryption.dask_settings(settings.tls_directory))
    settings.log_directory.mkdir(parents=True, exist_ok=True)
    port = settings.dashboard_port
    # The dashboard is plain HTTP whatever the other connections are: loopback only.
    scheduler: dict[str, Any] = {"dashboard_address": f"{LOOPBACK}:{port or 0}"}
    with SLURMCluster(
        queue=settings.partition,
        account=settings.account,
        cores=settings.threads_per_worker,
        processes=1,
        memory=settings.memory_limit,
        walltime=settings.walltime,
        interface=settings.interface,
        protocol="tls://",
        security=Security(),
        scheduler_options=scheduler,
        local_directory=None if (local := settings.local_directory) is None else str(local),
        log_directory=str(settings.log_directory),
        job_extra_directives=settings.directives,
        job_script_prologue=[f"export PYTHONPATH={ROOT}", *settings.prologue],
        worker_extra_args=["--dashboard-address", f"{LOOPBACK}:0"],
    ) as cluster:
        # scale() does not replace a job that ended; adapt() does.
        cluster.adapt(minimum_jobs=settings.minimum_jobs, maximum_jobs=settings.maximum_jobs)
        settings.wait(lambda: len(cluster.scheduler.workers))
        yield Running(
            cluster.scheduler_address,
            None if port is None else f"http://{LOOPBACK}:{cluster.scheduler.http_server.port}",
            encryption.environment(settings.tls_directory),
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return launch(
        Slurm,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS of workers that are SLURM jobs.",
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
