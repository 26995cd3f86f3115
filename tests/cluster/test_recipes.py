"""What all recipes have in common: a configuration that says all there is, and a README."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import dask
import distributed  # noqa: F401 - its settings
import pytest
import yaml

from cluster.compose import launch as compose
from cluster.kubernetes import launch as kubernetes
from cluster.launching import Recipe, read_config
from dsgp.locks import only_here

LOCK = "dsgp-compose-mine.lock"
FOLDER = Path(__file__).parents[2] / "cluster"
PLATFORMS = ["local", "ssh", "slurm", "tls", "kubernetes", "compose"]


def recipe_of(platform):
    module = importlib.import_module(f"cluster.{platform}.launch")
    return next(
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Recipe)
        and kind.__module__ == module.__name__
    )


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_shipped_configuration_says_all_there_is(platform):
    path = FOLDER / platform / "config.yaml"
    recipe = recipe_of(platform)
    assert read_config(path, recipe)
    assert set(yaml.safe_load(path.read_text(encoding="utf-8"))) == set(recipe.model_fields)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_has_a_page_that_names_its_files(platform):
    folder = FOLDER / platform
    text = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.iterdir():
        if path.suffix in (".py", ".yaml") and path.name != "__init__.py":
            assert path.name in text, path
    assert f"({platform}/README.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_pinned_versions_are_within_the_bounds_of_the_package():
    pinned = dict(
        line.split("==")
        for line in (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    metadata = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("numpy", "dask", "distributed", "zarr", "numba", "bokeh", "asyncssh"):
        least = re.search(rf'"{name}>=([\d.]+)', metadata)[1]
        assert [int(n) for n in pinned[name].split(".")] >= [int(n) for n in least.split(".")]
    assert pinned["dask"] == pinned["distributed"]


# ---------------------------------------------------------------- Kubernetes


def schema_of(kind):
    """The schema that the operator gives Kubernetes for a kind of resource."""
    operator = pytest.importorskip("dask_kubernetes")
    folder = Path(operator.__file__).parent.glob(f"operator/deployment/**/crds/{kind.lower()}.yaml")
    definition = yaml.safe_load(next(folder).read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    return f"{definition['spec']['group']}/{version['name']}", version["schema"]["openAPIV3Schema"]


def closed(schema):
    """The same schema, in which a misspelt key is an error, as for kubectl."""
    if isinstance(schema, dict):
        schema = {key: closed(part) for key, part in schema.items()}
        if "properties" in schema and "additionalProperties" not in schema:
            kubernetes_own = {"apiVersion": {}, "kind": {}, "metadata": {}}
            schema["additionalProperties"] = False
            if "spec" in schema["properties"]:
                schema["properties"] = kubernetes_own | schema["properties"]
        if schema.pop("x-kubernetes-int-or-string", False):
            schema.pop("type", None)
    return schema


@pytest.mark.parametrize("kind", ["DaskCluster", "DaskAutoscaler"])
def test_resources_of_kubernetes_follow_the_schema_of_the_operator(kind):
    jsonschema = pytest.importorskip("jsonschema")
    settings = kubernetes.Kubernetes(image="example.org/dsgp:1", minimum_workers=3)
    (resource,) = [one for one in kubernetes.resources(settings) if one["kind"] == kind]
    version, schema = schema_of(kind)
    assert resource["apiVersion"] == version
    jsonschema.Draft202012Validator(closed(schema)).validate(resource)
    resource["spec"]["wrong"] = 1
    with pytest.raises(jsonschema.ValidationError, match="wrong"):
        jsonschema.Draft202012Validator(closed(schema)).validate(resource)


def test_resources_of_kubernetes_are_encrypted_and_have_what_is_set():
    settings = kubernetes.Kubernetes(image="example.org/dsgp:1", minimum_workers=3)
    resources = {one["kind"]: one for one in kubernetes.resources(settings)}
    cluster = resources["DaskCluster"]["spec"]
    assert cluster["worker"]["replicas"] == resources["DaskAutoscaler"]["spec"]["minimum"] == 3
    for part in ("scheduler", "worker"):
        (container,) = cluster[part]["spec"]["containers"]
        assert container["image"] == "example.org/dsgp:1"
        variables = {one["name"]: one["value"] for one in container["env"]}
        assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
        assert variables["DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"] == "60s"
        if part == "scheduler":
            routes = ast.literal_eval(variables["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"])
            assert {*routes} == {
                *dask.config.get("distributed.scheduler.http.routes"),
                "distributed.http.scheduler.api",
            }
    assert kubernetes.ADDRESS in cluster["worker"]["spec"]["containers"][0]["args"]


KUBECTL = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *"get deployment/dsgp-scheduler"*) echo deployment.apps/dsgp-scheduler ;;
  *"get pods"*) echo '{{"items": [{{"metadata": {{"name": "pod-1"}}, "status": {{"phase": "Running"}}}}]}}' ;;
  *"get pod "*) echo '{{"status": {{"containerStatuses": [{{"state": {{"terminated": {{"exitCode": 3}}}}}}]}}}}' ;;
  *logs*) echo "what the command says" ;;
  *create*) if [ -e {log}.there ]; then
      echo 'Error from server (AlreadyExists): daskclusters "dsgp" already exists' >&2; exit 1
    fi ;;
  *apply*) cat >> {log}; echo >> {log} ;;
esac
"""  # fmt: skip  # noqa: E501


def test_a_command_on_kubernetes_waits_for_workers_as_long_as_its_scheduler():
    settings = kubernetes.Kubernetes(image="example.org/dsgp:1", no_workers_timeout="7s")
    pods = [kubernetes.job(settings, ["dsgp"])["spec"]["template"]["spec"]]
    for resource in kubernetes.resources(settings):
        if resource["kind"] == "DaskCluster":
            pods += [resource["spec"][part]["spec"] for part in ("scheduler", "worker")]
    assert len(pods) == 3
    for pod in pods:
        variables = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert variables["DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"] == "7s"


def acted(tmp_path, monkeypatch, name, text):
    """Put a program in place of another one, which logs how it is called; return the log."""
    program, log = tmp_path / name, tmp_path / "log"
    program.write_text(text.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return log


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text("namespace: gp\nimage: example.org/dsgp:1\n")
    return acted(tmp_path, monkeypatch, "kubectl", KUBECTL)


def test_a_second_launch_on_kubernetes_is_refused_and_the_first_goes_on(kubectl, tmp_path, capfd):
    kubectl.with_name("log.there").touch()
    with pytest.raises(SystemExit):
        kubernetes.main(["--config", str(tmp_path / "config.yaml"), "--", "dsgp", "info"])
    told = capfd.readouterr().err
    assert "there is a cluster 'dsgp' in the namespace 'gp' already" in told
    assert "kubectl --namespace gp delete daskcluster/dsgp job/dsgp-command" in told
    assert "create" in kubectl.read_text(encoding="utf-8").splitlines()[-1]


def test_a_command_on_kubernetes_ends_with_its_exit_code_and_leaves_nothing(
    kubectl, tmp_path, capfd
):
    log, config = kubectl, tmp_path / "config.yaml"
    code = kubernetes.main(["--config", str(config), "--", "dsgp", "info", "/data/model.zarr"])
    assert code == 3
    assert "what the command says" in capfd.readouterr().out
    said = log.read_text(encoding="utf-8")
    command = f'"args": ["dsgp", "info", "/data/model.zarr", "--scheduler", "{kubernetes.ADDRESS}"]'
    assert command in said
    called = [line for line in said.splitlines() if line.startswith("--namespace gp ")]
    assert [line.split()[2] for line in called[:2]] == ["create", "apply"]
    assert [line.split()[2] for line in called[-2:]] == ["delete", "delete"]


# ---------------------------------------------------------------- docker compose


def composed():
    text = (FOLDER / "compose" / "compose.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", text))


def test_containers_can_be_reached_by_the_dashboard_on_loopback_only():
    services = composed()["services"]
    assert set(services) == {"scheduler", "worker", "command"}
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8787:8787"]


DOCKER = """#!/bin/sh
echo "$COMPOSE_PROJECT_NAME: $@" >> {log}
case "$*" in
  *" ps "*) [ -e {log}.there ] && echo 0123456789ab ; exit 0 ;;
  *" run "*) exit 3 ;;
esac
"""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text("name: mine\n")
    monkeypatch.setattr(compose.tempfile, "gettempdir", lambda: str(tmp_path))
    for variable in compose.Compose().environment():
        monkeypatch.setenv(variable, "")  # as before at the end
    return acted(tmp_path, monkeypatch, "docker", DOCKER)


def asked(docker, verb):
    calls = docker.read_text(encoding="utf-8").splitlines()
    return [call for call in calls if verb in call.split()]


@pytest.mark.parametrize("other", ["its containers", "just starting"])
def test_a_second_launch_of_containers_is_refused_and_the_first_goes_on(
    docker, tmp_path, capfd, other
):
    arguments = ["--config", str(tmp_path / "config.yaml"), "--", "dsgp", "info"]
    with nullcontext() if other == "its containers" else only_here(tmp_path / LOCK, ""):
        if other == "its containers":
            docker.with_name("log.there").touch()
        with pytest.raises(SystemExit):
            compose.main(arguments)
    told = capfd.readouterr().err
    assert "containers of the name 'mine' are there already" in told
    assert "--project-name mine down" in told
    assert not asked(docker, "up")
    assert not asked(docker, "down")


def test_a_command_in_containers_ends_with_its_exit_code_and_leaves_nothing(docker, tmp_path):
    assert compose.main(["--config", str(tmp_path / "config.yaml"), "--", "dsgp", "info"]) == 3
    assert len(asked(docker, "up")) == len(asked(docker, "down")) == 1
    assert all(call.startswith("mine: ") for call in asked(docker, "down"))
    assert not (tmp_path / LOCK).exists()


def command_of(line):
    """The command line of dask, by the Python that runs the tests."""
    program, *options = line.split()
    assert program == "dask"
    return [sys.executable, "-m", "dask", *options]


def test_what_containers_run_is_understood(tmp_path):
    """The same command lines, with names of this machine, as far as they parse and listen."""
    services = composed()["services"]
    scheduler = services["scheduler"]["command"].replace("--host scheduler", "--host 127.0.0.1")
    scheduler = scheduler.replace("8786", "0").replace(":8787", "127.0.0.1:0")
    process = subprocess.Popen(
        command_of(scheduler), stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        for line in process.stderr:
            if "Scheduler at:" in line:
                address = line.split()[-1]
                break
        worker = services["worker"]["command"].replace("tcp://scheduler:8786", address)
        second = subprocess.Popen(
            [*command_of(worker), "--local-directory", str(tmp_path)],
            stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        try:
            assert any("Registered to:" in line for line in second.stderr)
        finally:
            second.terminate()
            second.communicate(timeout=30)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize("command", [["docker", "compose"], ["docker-compose"]], ids=" ".join)
def test_compose_understands_its_file(command):
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"needs {' '.join(command)}")
    path = FOLDER / "compose" / "compose.yaml"
    subprocess.run([*command, "--file", str(path), "config"], check=True, capture_output=True)
