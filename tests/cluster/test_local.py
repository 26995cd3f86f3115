"""The local cluster: loopback only, the command's exit code, and nothing left behind."""

import importlib.util
import ipaddress
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "cluster" / "local" / "launch.py"
# A source distribution has no cluster/.
pytestmark = pytest.mark.skipif(not LAUNCH.exists(), reason="needs cluster/")


@pytest.fixture(scope="module")
def launch():
    spec = importlib.util.spec_from_file_location("launch", LAUNCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command(*arguments):
    return [sys.executable, str(LAUNCH), *arguments]


SLEEP = ("--", sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)")


@pytest.fixture(params=["null", "0"], ids=["no dashboard", "dashboard"])
def running(request, tmp_path):
    """A cluster whose command sleeps, and all its processes."""
    config = tmp_path / "config.yaml"
    config.write_text(f"n_workers: 2\nmemory_limit: 512 MiB\ndashboard_port: {request.param}\n")
    process = subprocess.Popen(
        command("--config", str(config), *SLEEP), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    lines = iter(process.stdout.readline, "ready\n")
    printed = [line for line in lines if process.poll() is None]
    whole = [psutil.Process(process.pid)]
    whole += whole[0].children(recursive=True)
    yield process, printed, whole
    for one in whole:
        if one.is_running():
            one.kill()
    process.wait()
    process.stdout.close()


def test_nothing_listens_beyond_loopback(running):
    _, printed, whole = running
    assert printed[0].startswith("scheduler: tcp://127.0.0.1:")
    listening = [
        connection.laddr
        for process in whole
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 3  # a scheduler and two workers at least
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in listening)
    assert all(address.port != 8787 for address in listening)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
@pytest.mark.parametrize("running", ["null"], indirect=True)
def test_a_terminated_launch_leaves_no_process(running):
    process, _, whole = running
    assert len(whole) >= 4  # itself, two workers, the command
    process.terminate()
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert process.returncode == 143
    _, alive = psutil.wait_procs(whole, timeout=20)
    assert alive == []


def test_the_exit_code_is_that_of_the_command():
    code = "import sys; assert sys.argv[-2] == '--scheduler', sys.argv; sys.exit(7)"
    done = subprocess.run(
        command("--", sys.executable, "-c", code), capture_output=True, text=True, cwd=ROOT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr


def test_the_benchmark_runs_on_it(tmp_path):
    out = tmp_path / "out"
    arguments = ["--sizes", "300", "--n-test", "100", "--streamed", "--out", str(out)]
    done = subprocess.run(
        command("--", sys.executable, "-m", "pipelines.scaling", *arguments),
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = (out / "report.json").read_text(encoding="utf-8")
    assert '"workers": 2' in report


@pytest.mark.parametrize(
    ("text", "message"),
    [("workers: 2", "unknown key 'workers'; known: n_workers"), ("- 2", "n_workers: 2")],
)
def test_mistakes_in_the_configuration_are_named(launch, tmp_path, capsys, text, message):
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(SystemExit):
        launch.main(["--config", str(config), "--", "true"])
    assert message in capsys.readouterr().err


def test_the_shipped_configuration_says_all_there_is(launch):
    assert launch.read_config(LAUNCH.with_name("config.yaml")) == launch.DEFAULTS
