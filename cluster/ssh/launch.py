"""Start workers on machines that ssh reaches, run a command on them, and take them down.

``python cluster/ssh/launch.py -- dsgp fit /data/sales --target y --out model.zarr``
"""

import asyncio
import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import dask
from distributed import SSHCluster
from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster import encryption
from cluster.launching import LOOPBACK, Running, WorkerRecipe, launch, script
from dsgp.errors import ParameterError


class Ssh(WorkerRecipe):
    """A scheduler on the first host and workers on the others, encrypted."""

    hosts: list[str] = Field(
        min_length=2, description="The scheduler's, then the workers'; a host may be named twice."
    )
    workers_per_host: int = Field(1, ge=1)
    tls_directory: Path = Field(
        description="Made by ../tls/certificates.py; at the same absolute path on every host."
    )
    remote_python: str | None = Field(
        None, description="The python of the environment on the hosts; null: the path of this one."
    )
    port: int = Field(0, ge=0, le=65535, description="Of the scheduler; 0 for any that is free.")
    interface: str | None = Field(
        None, description="Network interface of the workers' hosts, such as ib0; null: any."
    )
    username: str | None = None
    ssh_port: int | None = Field(None, ge=1, le=65535)
    ssh_keys: list[Path] | None = Field(None, description="Null: those of ssh itself.")
    known_hosts: Path | None = Field(None, description="Null: that of ssh itself.")


def connect_options(settings: Ssh) -> dict[str, Any]:
    """Return what asyncssh needs; hosts whose key is not known are refused, as by ssh."""
    options: dict[str, Any] = {}
    if settings.username is not None:
        options["username"] = settings.username
    if settings.ssh_port is not None:
        options["port"] = settings.ssh_port
    if settings.ssh_keys is not None:
        options["client_keys"] = [str(path.expanduser()) for path in settings.ssh_keys]
    if settings.known_hosts is not None:
        options["known_hosts"] = str(settings.known_hosts.expanduser())
    return options


async def require_certificates(settings: Ssh) -> None:
    """See that who logs in on each host can read the certificates there, before anything starts.

    Raises
    ------
    ParameterError
        Naming the host and what is missing.
    """
    files = encryption.files(settings.tls_directory)
    options = connect_options(settings)
    tests = "; ".join(
        f"test -r {shlex.quote(str(path))} || echo {shlex.quote(path.name)}" for path in files
    )
    for host in dict.fromkeys(settings.hosts):
        async with asyncssh.connect(host, **options) as connection:
            answer = await connection.run(f"sh -c {shlex.quote(tests)}", check=False)
            user = connection.get_extra_info("username")
        missing = str(answer.stdout or "").split()
        if missing or answer.returncode:
            raise ParameterError(
                f"{user} cannot read {' and '.join(missing) or 'the certificates'} in "
                f"{str(files[0].parent)!r} on {host}: copy them to this path of every host, for "
                "that user alone to read, or name a tls_directory that is the same for all users, "
                "such as /opt/dsgp-tls (~ is the home of who runs this script)"
            )


@contextmanager
def start(settings: Ssh) -> Iterator[Running]:
    """Start the processes, which live as long as the connections by ssh."""
    # The processes inherit these settings: paths of the certificates, not what is in them.
    dask.config.set(encryption.dask_settings(settings.tls_directory))
    logging.getLogger("distributed.deploy.ssh").setLevel(logging.WARNING)  # every line of theirs
    workers: dict[str, Any] = {
        "n_workers": settings.workers_per_host,
        "nthreads": settings.threads_per_worker,
        "memory_limit": settings.memory_limit,
        "protocol": "tls://",
        "dashboard_address": f"{LOOPBACK}:0",
    }
    if settings.interface is not None:
        workers["interface"] = settings.interface
    if settings.local_directory is not None:
        workers["local_directory"] = str(settings.local_directory)
    try:
        asyncio.run(require_certificates(settings))
        cluster = SSHCluster(
            settings.hosts,
            connect_options=connect_options(settings),
            worker_options=workers,
            scheduler_options={
                "protocol": "tls://",
                "host": settings.hosts[0],
                "port": settings.port,
                # On the scheduler's host, for ssh -L.
                "dashboard_address": f"{LOOPBACK}:{settings.dashboard_port or 0}",
            },
            remote_python=settings.remote_python,
        )
    except (OSError, asyncssh.Error) as error:
        raise ParameterError(f"no connection by ssh: {error}; try ssh HOST by hand") from error
    except RuntimeError as error:
        python = settings.remote_python or sys.executable
        raise ParameterError(
            f"a process on a host did not start ({error}); try: ssh {settings.hosts[0]} {python} "
            "-c 'import distributed, dsgp'"
        ) from error
    with cluster:
        link = None
        if settings.dashboard_port is not None:
            port = cluster.scheduler_info["services"]["dashboard"]
            tunnel = f"ssh -L {port}:{LOOPBACK}:{port} {settings.hosts[0]}"
            link = f"http://{LOOPBACK}:{port}/status of {settings.hosts[0]}; from here: {tunnel}"
        yield Running(
            cluster.scheduler_address, link, encryption.environment(settings.tls_directory)
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return launch(
        Ssh,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS of workers that ssh starts.",
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
