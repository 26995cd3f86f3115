"""Start scheduler and workers as containers of this machine, run a command beside them.

``python cluster/compose/launch.py -- dsgp fit /data/sales.parquet --target y --out /data/m.zarr``
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster.launching import Recipe, Running, launch, run, script
from dsgp.errors import ParameterError, StorageError
from dsgp.locks import only_here

ADDRESS = "tcp://scheduler:8786"


class Compose(Recipe):
    """Containers of one machine."""

    name: str = Field(
        "dsgp",
        pattern="^[a-z0-9][a-z0-9_-]*$",
        description="Of the project, which containers at the same time may not share.",
    )
    image: str = Field("dsgp:latest", description="Made of ../Dockerfile.")
    data: Path = Field(Path("."), description="Folder that containers see as /data.")
    n_workers: int = Field(2, ge=1)
    threads_per_worker: int = Field(1, ge=1)
    memory_limit: str = Field("4GiB", description="Of one worker.")
    dashboard_port: int = Field(8787, ge=1, le=65535, description="On 127.0.0.1.")

    def environment(self) -> dict[str, str]:
        """Return the variables that compose.yaml reads."""
        return {
            "COMPOSE_PROJECT_NAME": self.name,
            "DSGP_IMAGE": self.image,
            "DSGP_DATA": str(self.data.expanduser().absolute()),
            "DSGP_WORKERS": str(self.n_workers),
            "DSGP_THREADS": str(self.threads_per_worker),
            "DSGP_MEMORY": self.memory_limit,
            "DSGP_NO_WORKERS_TIMEOUT": self.no_workers_timeout,
            "DSGP_DASHBOARD_PORT": str(self.dashboard_port),
        }


def compose() -> list[str]:
    """Return how docker compose is called here: a plugin of docker, or a command of its own."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        tried = subprocess.run([*command, "version"], capture_output=True, check=False)
        if tried.returncode == 0:
            return [*command, "--file", str(HERE / "compose.yaml")]
    raise ParameterError("neither docker compose nor docker-compose is here; install one")


@contextmanager
def start(settings: Compose) -> Iterator[Running]:
    """Start the containers, and remove them at the end.

    Raises
    ------
    ParameterError
        If there are containers of that name already, which are left alone, or none can be started.
    """
    command = compose()
    os.environ.update(settings.environment())
    with ExitStack() as stack:
        refusal = (
            f"containers of the name {settings.name!r} are there already: wait for the command "
            "that uses them, or give another name and dashboard_port; if they are left of a "
            f"launch that was killed: {' '.join(command)} --project-name {settings.name} down"
        )
        # Of two launches at once neither sees containers of the other one yet.
        try:
            stack.enter_context(only_here(_lock_of(settings.name), refusal))
        except StorageError as error:
            raise ParameterError(str(error)) from error
        listed = [*command, "ps", "--all", "--quiet"]
        there = subprocess.run(listed, capture_output=True, text=True, check=False)
        if there.returncode:
            raise ParameterError(f"docker does not answer: {there.stderr.strip()}")
        if there.stdout.strip():
            raise ParameterError(refusal)
        stack.callback(subprocess.run, [*command, "down"], check=False)
        if subprocess.run([*command, "up", "--detach"], check=False).returncode:
            raise ParameterError("the containers did not start; docker says above why")
        yield Running(ADDRESS, f"http://127.0.0.1:{settings.dashboard_port}/status")


def _lock_of(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"dsgp-compose-{name}.lock"


def main(arguments: list[str] | None = None) -> int:
    """Run the command in a container; return its exit code."""
    return launch(
        Compose,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS, all in containers of this machine.",
        runs=lambda _, command: run([*compose(), "run", "--rm", "command", *command]),
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
