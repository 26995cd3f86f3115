"""Start an encrypted scheduler that workers of other machines can join, and run a command on it.

``python cluster/tls/launch.py -- dsgp fit data/ --target y --out model.zarr``
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import LocalCluster, Security
from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster import encryption
from cluster.launching import LOOPBACK, Running, WaitingRecipe, launch, script


class Encrypted(WaitingRecipe):
    """A scheduler that takes encrypted connections with a certificate of its authority only."""

    tls_directory: Path = Field(description="Made by certificates.py.")
    host: str = Field(
        LOOPBACK, description="Address of this machine at which others reach the scheduler."
    )
    port: int = Field(8786, ge=0, le=65535, description="Of the scheduler; 0 for any that is free.")
    n_workers: int = Field(2, ge=0, description="Workers on this machine.")


@contextmanager
def start(settings: Encrypted) -> Iterator[Running]:
    """Start the scheduler and the workers that are on this machine."""
    dask.config.set(encryption.dask_settings(settings.tls_directory))
    port = settings.dashboard_port
    directory = settings.local_directory
    with LocalCluster(
        n_workers=settings.n_workers,
        threads_per_worker=settings.threads_per_worker,
        memory_limit=settings.memory_limit,
        local_directory=None if directory is None else str(directory),
        protocol="tls://",
        security=Security(),
        host=settings.host,
        scheduler_port=settings.port,
        # The dashboard is plain HTTP whatever the other connections are: loopback only.
        dashboard_address=None if port is None else f"{LOOPBACK}:{port}",
        scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:{port or 0}"},
        worker_dashboard_address=None,
        processes=True,
    ) as cluster:
        address = cluster.scheduler_address
        if settings.wait_for_workers > settings.n_workers:
            print(
                "on other machines, with the same tls_directory in their configuration: "
                f"dask worker {address}",
                flush=True,
            )
            settings.wait(lambda: len(cluster.scheduler.workers))
        yield Running(
            address,
            None if port is None else cluster.dashboard_link,
            encryption.environment(settings.tls_directory),
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return launch(
        Encrypted,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS of an encrypted cluster.",
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
