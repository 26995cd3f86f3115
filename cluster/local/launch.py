"""Start a dask cluster on this machine, run a command on it, and take it down.

``python cluster/local/launch.py -- python -m pipelines.scaling --sizes 1e6``
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import yaml
from distributed import LocalCluster

from dsgp.interrupt import exit_on_termination

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOOPBACK = "127.0.0.1"
PATIENCE = 20  # seconds a command has to end when it is asked to
DEFAULTS: dict[str, Any] = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "memory_limit": "auto",
    "local_directory": None,
    "dashboard_port": None,
    "no_workers_timeout": "60s",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="launch.py", description="Run a command with --scheduler ADDRESS of a local cluster."
    )
    parser.add_argument(
        "--config", type=Path, default=HERE / "config.yaml", metavar="FILE", help="of the cluster"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its options")
    asked = parser.parse_args(arguments)
    try:
        config = read_config(asked.config)
    except (OSError, ValueError, yaml.YAMLError) as error:
        parser.error(" ".join(f"{asked.config}: {error}".split()))
    exit_on_termination()
    # Workers and the command import the pipelines of this checkout, and so does the scheduler,
    # which lives here.
    sys.path.insert(0, str(ROOT))
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with start(config) as cluster:
        print(f"scheduler: {cluster.scheduler_address}", flush=True)
        if config["dashboard_port"] is not None:
            print(f"dashboard: {cluster.dashboard_link}", flush=True)
        return run([*asked.command, "--scheduler", cluster.scheduler_address])


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration; what it leaves out is as in ``DEFAULTS``.

    Raises
    ------
    ValueError
        If it is no mapping, or has a key that means nothing.
    """
    given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if not isinstance(given, dict):
        raise ValueError("expected lines such as n_workers: 2")
    unknown = sorted(str(key) for key in given if key not in DEFAULTS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known: {', '.join(DEFAULTS)}")
    return DEFAULTS | given


def start(config: dict[str, Any]) -> LocalCluster:
    """Start scheduler and workers, all of them listening on loopback only."""
    dask.config.set({"distributed.scheduler.no-workers-timeout": config["no_workers_timeout"]})
    port = config["dashboard_port"]
    return LocalCluster(
        n_workers=config["n_workers"],
        threads_per_worker=config["threads_per_worker"],
        memory_limit=config["memory_limit"],
        local_directory=config["local_directory"],
        host=LOOPBACK,
        # The default is port 8787 of every interface, in plain HTTP. Without a dashboard the
        # scheduler still tells its state there, so that its address is given in either case.
        dashboard_address=None if port is None else f"{LOOPBACK}:{port}",
        scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:{port or 0}"},
        worker_dashboard_address=None,
        processes=True,
    )


def run(command: list[str]) -> int:
    """Run to the end; on the way out of an interrupt ask the command to end first."""
    process = subprocess.Popen(command)
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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
