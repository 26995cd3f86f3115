"""Start a dask cluster on this machine, run a command on it, and take it down.

``python cluster/local/launch.py -- python -m pipelines.scaling --sizes 1e6``
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import LocalCluster
from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster.launching import LOOPBACK, Running, WorkerRecipe, launch, script


class Local(WorkerRecipe):
    """Worker processes of this machine."""

    n_workers: int = Field(2, ge=1, description="Each should do 100 ms and more of work per task.")


@contextmanager
def start(settings: Local) -> Iterator[Running]:
    """Start scheduler and workers, all of them listening on loopback only."""
    port = settings.dashboard_port
    directory = settings.local_directory
    with LocalCluster(
        n_workers=settings.n_workers,
        threads_per_worker=settings.threads_per_worker,
        memory_limit=settings.memory_limit,
        local_directory=None if directory is None else str(directory),
        host=LOOPBACK,
        # The default is port 8787 of every interface, in plain HTTP. Without a dashboard the
        # scheduler still tells its state there, so that its address is given in either case.
        dashboard_address=None if port is None else f"{LOOPBACK}:{port}",
        scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:{port or 0}"},
        worker_dashboard_address=None,
        processes=True,
    ) as cluster:
        yield Running(cluster.scheduler_address, None if port is None else cluster.dashboard_link)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return launch(
        Local,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS of a cluster on this machine.",
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
