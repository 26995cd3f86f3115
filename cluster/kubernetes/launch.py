"""Start a cluster of the dask operator, run a command beside it, and take both down.

``python cluster/kubernetes/launch.py -- dsgp fit /data/sales --target y --out /data/model.zarr``
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from cluster.launching import Recipe, Running, launch, script
from dsgp.errors import ParameterError

ADDRESS = "tls://dsgp-scheduler:8786"
JOB = "dsgp-command"


class Kubernetes(Recipe):
    """A cluster of the dask operator, as cluster.yaml describes it."""

    namespace: str = "default"
    context: str | None = Field(None, description="Of kubectl; null: the current one.")
    image: str = Field("dsgp:latest", description="Made of ../Dockerfile, in a registry of yours.")
    minimum_workers: int = Field(1, ge=0)
    maximum_workers: int = Field(8, ge=1)
    wait_at_most: int = Field(600, ge=1, description="Seconds until the scheduler is ready.")

    @property
    def kubectl(self) -> list[str]:
        """How kubectl is called."""
        context = [] if self.context is None else ["--context", self.context]
        return ["kubectl", *context, "--namespace", self.namespace]


def resources(settings: Kubernetes) -> list[dict[str, Any]]:
    """Return what cluster.yaml describes, with image and numbers of workers as set."""
    text = (HERE / "cluster.yaml").read_text(encoding="utf-8")
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        if document["kind"] == "DaskCluster":
            workers = document["spec"]["worker"]
            workers["replicas"] = settings.minimum_workers
            for part in (workers, document["spec"]["scheduler"]):
                part["spec"]["containers"][0]["image"] = settings.image
            for part in (workers, document["spec"]["scheduler"]):
                _set(part["spec"], "NO_WORKERS_TIMEOUT", settings.no_workers_timeout)
        elif document["kind"] == "DaskAutoscaler":
            document["spec"]["minimum"] = settings.minimum_workers
            document["spec"]["maximum"] = settings.maximum_workers
    return documents


def job(settings: Kubernetes, command: list[str]) -> dict[str, Any]:
    """Return the job that runs a command."""
    document = yaml.safe_load((HERE / "command.yaml").read_text(encoding="utf-8"))
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["image"] = settings.image
    container["args"] = command
    _set(pod, "NO_WORKERS_TIMEOUT", settings.no_workers_timeout)
    return document


def _set(pod: dict[str, Any], name: str, setting: str) -> None:
    """Set a variable of dask, named by its end."""
    for variable in pod["containers"][0]["env"]:
        if variable["name"].endswith(name):
            variable["value"] = setting


def _kubectl(settings: Kubernetes, *arguments: str, document: Any = None) -> str:
    given = None if document is None else json.dumps(document)
    done = subprocess.run(
        [*settings.kubectl, *arguments], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ParameterError(f"kubectl {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def _quietly(settings: Kubernetes, *arguments: str, document: Any = None) -> None:
    """Clean up: what does not work must not hide why the work ended."""
    try:
        _kubectl(settings, *arguments, document=document)
    except ParameterError as error:
        print(f"Warning: {error}", file=sys.stderr)


def _listed(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": documents}


@contextmanager
def start(settings: Kubernetes) -> Iterator[Running]:
    """Make the resources, and delete them at the end.

    Raises
    ------
    ParameterError
        If there is such a cluster already: it is left alone.
    """
    if shutil.which("kubectl") is None:
        raise ParameterError("there is no kubectl here; install it")
    documents = resources(settings)
    whole = _listed(documents)
    (cluster,) = (one for one in documents if one["kind"] == "DaskCluster")
    _create(settings, cluster)
    try:
        _kubectl(settings, "apply", "--filename", "-", document=whole)
        limit = f"{settings.wait_at_most}s"
        _until_there(settings, "deployment/dsgp-scheduler")
        _kubectl(settings, "rollout", "status", "deployment/dsgp-scheduler", f"--timeout={limit}")
        yield Running(ADDRESS, "kubectl port-forward service/dsgp-scheduler 8787:8787")
    finally:
        gone = "--ignore-not-found"
        _quietly(settings, "delete", "job", JOB, gone)
        _quietly(settings, "delete", "--filename", "-", gone, document=whole)


def _create(settings: Kubernetes, cluster: dict[str, Any]) -> None:
    """Make the cluster, unless there is one: of two launches at once one is refused."""
    try:
        _kubectl(settings, "create", "--filename", "-", document=cluster)
    except ParameterError as error:
        if "AlreadyExists" not in str(error):
            raise
        kubectl = " ".join(settings.kubectl)
        raise ParameterError(
            f"there is a cluster 'dsgp' in the namespace {settings.namespace!r} already: wait for "
            "the command that uses it, or take another namespace; if it is left of a launch that "
            f"was killed: {kubectl} delete daskcluster/dsgp job/{JOB}"
        ) from error


def _until_there(settings: Kubernetes, name: str) -> None:
    """Wait for a resource that the operator makes."""
    deadline = time.monotonic() + settings.wait_at_most
    while not _kubectl(settings, "get", name, "--ignore-not-found", "--output", "name"):
        if time.monotonic() > deadline:
            raise ParameterError(
                f"no {name} after {settings.wait_at_most} s; is the dask operator installed? "
                "kubectl get pods --namespace dask-operator"
            )
        time.sleep(1)


def run(settings: Kubernetes, command: list[str]) -> int:
    """Run the command as a job, show what it prints, and return its exit code."""
    # One that a killed script has left would be taken for this one.
    _kubectl(settings, "delete", "job", JOB, "--ignore-not-found")
    _kubectl(settings, "apply", "--filename", "-", document=job(settings, command))
    selected = f"--selector=job-name={JOB}"
    deadline = time.monotonic() + settings.wait_at_most
    while True:
        pods = json.loads(_kubectl(settings, "get", "pods", selected, "--output", "json"))["items"]
        phase = pods[0]["status"].get("phase") if pods else None
        if phase in ("Running", "Succeeded", "Failed"):
            break
        if time.monotonic() > deadline:
            raise ParameterError(
                f"the command did not start in {settings.wait_at_most} s; see kubectl describe "
                f"pods {selected}"
            )
        time.sleep(1)
    name = pods[0]["metadata"]["name"]
    subprocess.run([*settings.kubectl, "logs", "--follow", name], check=False)
    while True:
        pod = json.loads(_kubectl(settings, "get", "pod", name, "--output", "json"))
        for container in pod["status"].get("containerStatuses", []):
            if (ended := container["state"].get("terminated")) is not None:
                return int(ended["exitCode"])
        time.sleep(1)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return launch(
        Kubernetes,
        start,
        here=HERE,
        description="Run a command with --scheduler ADDRESS of a cluster of the dask operator.",
        runs=run,
        arguments=arguments,
    )


if __name__ == "__main__":
    script(main)
