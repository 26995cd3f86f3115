"""What the launch scripts of all platforms share: options, configuration and the command's run."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import dask
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsgp.errors import ParameterError
from dsgp.faults import NO_WORKERS_TIMEOUT
from dsgp.interrupt import exit_on_termination

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
PATIENCE = 20  # seconds a command has to end when it is asked to


class Recipe(BaseModel):
    """Settings of every platform."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    no_workers_timeout: str = Field(
        "60s", description="A task that no worker can take fails after this."
    )


class WorkerRecipe(Recipe):
    """Settings of every platform whose workers are started from here."""

    threads_per_worker: int = Field(
        1, ge=1, description="Compiled loops release the GIL: threads share a worker's memory."
    )
    memory_limit: str = Field("auto", description="Of one worker, such as 4 GiB.")
    local_directory: Path | None = Field(
        None, description="Where workers put what does not fit; null: the temporary folder."
    )
    dashboard_port: int | None = Field(
        0, ge=0, le=65535, description="On loopback, 0 for any that is free; null: no dashboard."
    )


class WaitingRecipe(WorkerRecipe):
    """Settings of platforms whose workers come when they come."""

    wait_for_workers: int = Field(0, ge=0, description="The command starts once there are as many.")
    wait_at_most: int = Field(600, ge=1, description="Seconds to wait for them.")

    def wait(self, count: Callable[[], int]) -> None:
        """Wait until there are enough workers.

        Raises
        ------
        ParameterError
            If there are not, in the time.
        """
        deadline = time.monotonic() + self.wait_at_most
        while (come := count()) < self.wait_for_workers:
            if time.monotonic() > deadline:
                raise ParameterError(
                    f"{come} of {self.wait_for_workers} workers came in {self.wait_at_most} s; "
                    "see why the others do not start, or lower wait_for_workers"
                )
            time.sleep(0.2)


@dataclass(frozen=True)
class Running:
    """A cluster that takes work.

    Attributes
    ----------
    address : str
        Of the scheduler.
    dashboard : str or None
    environment : mapping of str to str
        What the command needs to connect: files of certificates, but no secrets.
    """

    address: str
    dashboard: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


Settings = TypeVar("Settings", bound=Recipe)


def launch(
    recipe: type[Settings],
    start: Callable[[Settings], AbstractContextManager[Running]],
    *,
    here: Path,
    description: str,
    runs: Callable[[Settings, list[str]], int] | None = None,
    arguments: list[str] | None = None,
) -> int:
    """Start a cluster, run the command that follows ``--``, and return its exit code.

    Parameters
    ----------
    recipe : type of Recipe
        What the configuration may say.
    start : callable
        Makes the context in which the cluster runs.
    here : Path
        The folder of the platform, with its ``config.yaml``.
    description : str
        For ``--help``.
    runs : callable, optional
        Runs the command, where it does not run on this machine itself, and gives its exit code.
    arguments : list of str, optional
        By default those of this process.
    """
    parser = argparse.ArgumentParser(prog="launch.py", description=description)
    parser.add_argument(
        "--config", type=Path, default=here / "config.yaml", metavar="FILE", help="of the cluster"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its options")
    asked = parser.parse_args(arguments)
    try:
        settings = read_config(asked.config, recipe)
    except (OSError, ValueError, yaml.YAMLError) as error:
        parser.error(" ".join(f"{asked.config}: {error}".split()))
    exit_on_termination()
    dask.config.set({NO_WORKERS_TIMEOUT: settings.no_workers_timeout})
    # The command waits for workers as long as the scheduler does.
    variable = NO_WORKERS_TIMEOUT.upper().replace(".", "__").replace("-", "_")
    os.environ[f"DASK_{variable}"] = settings.no_workers_timeout
    # Workers and the command import the pipelines of this checkout.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        with start(settings) as running:
            print(f"scheduler: {running.address}", flush=True)
            if running.dashboard is not None:
                print(f"dashboard: {_dashboard(running.dashboard)}", flush=True)
            command = [*asked.command, "--scheduler", running.address]
            if runs is not None:
                return runs(settings, command)
            return run(command, running.environment)
    except ParameterError as error:
        parser.error(str(error))


def script(main: Callable[[], int]) -> None:
    """Run as a script; an interrupt ends it as the shell expects, without a traceback."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


def _dashboard(link: str) -> str:
    if find_spec("bokeh") is None:
        return f"{link} (its pages need bokeh: pip install 'dsgp[cluster]')"
    return link


def read_config(path: Path, recipe: type[Settings]) -> Settings:
    """Read a configuration; what it leaves out is as in the recipe.

    Raises
    ------
    ValueError
        If it is no mapping, has a key that means nothing, or a value that cannot be.
    """
    stated = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(stated, dict):
        raise ValueError("expected lines such as n_workers: 2")
    unknown = sorted(str(key) for key in stated if key not in recipe.model_fields)
    if unknown:
        known = ", ".join(recipe.model_fields)
        raise ValueError(f"unknown key {unknown[0]!r}; known: {known}")
    try:
        return recipe(**stated)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"{key}: {first['msg']}") from None


def run(command: list[str], environment: Mapping[str, str] | None = None) -> int:
    """Run to the end; on the way out of an interrupt ask the command to end first."""
    try:
        process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    except FileNotFoundError:
        raise ParameterError(f"there is no command {command[0]!r}") from None
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
