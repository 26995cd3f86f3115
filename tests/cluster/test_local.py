"""The local cluster: loopback only, the command's exit code, and nothing left behind."""

import ast
import ipaddress
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

import dsgp
from cluster.local import launch as local

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "cluster" / "local" / "launch.py"


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


def listeners(processes):
    """Addresses at which processes listen; one that has ended listens no more."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            connections = process.net_connections(kind="inet")
            found |= {one.laddr for one in connections if one.status == psutil.CONN_LISTEN}
    return found


def run_watched(*arguments):
    """Run a command on a cluster; return how it ended, and where anything listened meanwhile."""
    process = subprocess.Popen(
        command("--", sys.executable, "-m", *arguments),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    texts, found, root = [], set(), psutil.Process(process.pid)
    reader = threading.Thread(target=lambda: texts.append(process.stderr.read()))
    reader.start()
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            found |= listeners([root, *root.children(recursive=True)])
        time.sleep(0.1)
    reader.join()
    process.stderr.close()
    return process.returncode, texts[0], found


def require_loopback(found):
    assert len(found) >= 3  # a scheduler and two workers at least
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in found), found


def test_nothing_listens_beyond_loopback(running):
    _, printed, whole = running
    assert printed[0].startswith("scheduler: tcp://127.0.0.1:")
    listening = listeners(whole)
    require_loopback(listening)
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
    code, errors, found = run_watched("pipelines.scaling", *arguments)
    assert code == 0, errors
    require_loopback(found)
    report = (out / "report.json").read_text(encoding="utf-8")
    assert '"workers": 2' in report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers: 2", "unknown key 'workers'; known: no_workers_timeout, "),
        ("- 2", "n_workers: 2"),
        ("n_workers: 0", "n_workers: Input should be greater than or equal to 1"),
        ("n_workers: [", "config.yaml: "),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path, capsys, text, message):
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(SystemExit):
        local.main(["--config", str(config), "--", "true"])
    assert message in capsys.readouterr().err


def test_a_command_that_is_not_there_is_named(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("n_workers: 1\nmemory_limit: 512 MiB\n")
    with pytest.raises(SystemExit):
        local.main(["--config", str(config), "--", "dsgp-of-nowhere"])
    assert "there is no command 'dsgp-of-nowhere'" in capsys.readouterr().err


def test_the_command_line_fits_on_it(tmp_path):
    rng = np.random.default_rng(0)
    for part in range(2):
        table = pd.DataFrame({"a": rng.uniform(size=5000)})
        table["y"] = np.sin(9 * table["a"]) + 0.1 * rng.standard_normal(5000)
        table.to_parquet(tmp_path / f"{part}.parquet")
    out = tmp_path / "model.zarr"
    fit = ["fit", str(tmp_path / "*.parquet"), "--target", "y", "--out", str(out)]
    code, errors, found = run_watched("dsgp.cli", *fit)
    assert code == 0, errors
    require_loopback(found)
    here = dsgp.AdditiveGPRegressor().fit(str(tmp_path / "*.parquet"), y="y")
    new = table[["a"]].head(100)
    np.testing.assert_array_equal(dsgp.load(out).predict(new), here.predict(new))


def test_every_cluster_gets_the_address_to_listen_at():
    """The defaults of dask are all interfaces, without encryption."""
    started = 0
    for folder in ("cluster", "pipelines", "benchmarks", "dsgp"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
                if name in ("LocalCluster", "Scheduler", "Worker", "Nanny"):
                    given = {word.arg for word in node.keywords}
                    wanted = {"host", "dashboard_address"}
                    wanted |= {"scheduler_kwargs"} if name == "LocalCluster" else set()
                    assert wanted <= given, (file, node.lineno)
                    started += 1
                elif name == "Client":  # without an address it starts a cluster
                    assert node.args, (file, node.lineno)
    assert started >= 3
